"""Does every system's `record`, then `identify`, end soon and explain the recordings of its own engine?

    python benchmarks/own_data.py                   # all systems
    python benchmarks/own_data.py block particles

prints one row per system: seconds of a processor of `identify` (kernels compiled before), its exit code, whether the fit is
adequate, and how many 95 % intervals hold the values with which the recordings were made.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softgym_envs.rooms import room, rooms

ROUNDING = 1e-9
"""Relative error up to which a value counts as held: intervals of exact data are as narrow as rounding."""


class Row(NamedTuple):
    """Result of one system."""

    system: str
    seconds: float
    """Processor time of `identify`."""
    code: int
    """Its exit code."""
    adequate: bool
    hold: int
    """Intervals that hold the value of the recording."""
    intervals: int
    """Intervals of constants that are identifiable."""


def command(*words: Any) -> tuple[int, float, str]:
    """Run `softgym-envs` with these words: exit code, processor time [s], and what it said on stderr."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    script = Path(__file__).resolve().parent.parent / "scripts" / "__main__.py"
    found = subprocess.run([sys.executable, script, *map(str, words)], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.returncode, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, found.stderr


def run(system: str, folder: Path) -> Row:
    """`record`, then `identify`, in a folder.

    Raises:
        RuntimeError: `record` failed.
    """
    data, out = folder / f"{system}.h5", folder / system
    code, _, said = command("record", system, "--out", data)
    if code:
        raise RuntimeError(f"record {system}: {said}")
    code, seconds, said = command("identify", system, "--data", data, "--out", out)
    if "compiling" in said:
        code, seconds, _ = command("identify", system, "--data", data, "--out", out)
    fits = [json.loads(path.read_text()) for path in sorted(out.rglob("fit.json"), key=lambda path: path.stat().st_mtime)]
    truth = room(system).simulator().default_parameters
    last = {each["name"]: each["interval"] for fit in fits for each in fit["estimates"] if not each["hidden"]}
    given = {name: getattr(truth, name) for name in last}
    slack = {name: ROUNDING * max(abs(value), 1.0) for name, value in given.items()}
    hold = sum(low - slack[name] <= given[name] <= high + slack[name] for name, (low, high) in last.items())
    return Row(system, seconds, code, bool(fits) and fits[-1]["explained"], hold, len(last))


def main(systems: Sequence[str]) -> int:
    """Print a row per system; 1 if one is not adequate or takes longer than a minute."""
    print(f"{'system':12s} {'cpu s':>6s} {'exit':>4s} {'adequate':>8s} intervals that hold")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for system in systems or rooms():
            row = run(system, Path(folder))
            rows.append(row)
            print(
                f"{row.system:12s} {row.seconds:6.1f} {row.code:4d} {row.adequate!s:>8s} {row.hold} of {row.intervals}",
                flush=True,
            )
    return int(not all(row.adequate and row.seconds < 60 and row.code == 0 for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
