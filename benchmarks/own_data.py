"""Does every system's `sysid.record`, then `sysid.identify`, end soon and explain the recordings of its own engine?

    python benchmarks/own_data.py                   # all names
    python benchmarks/own_data.py block particles --out runs/own/numbers.json

prints one row per name: seconds of a processor of `identify` (kernels compiled before), whether its numbers may be used and
the fit is adequate, and how many 95 % intervals hold the values with which the recordings were made.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

import sysid
from softgym_envs.core.files import git_commit, write_json
from softgym_envs.systems import system, systems

ROUNDING = 1e-9
"""Relative error up to which a value counts as held: intervals of exact data are as narrow as rounding."""


class Row(NamedTuple):
    """Result of one name."""

    name: str
    seconds: float
    """Processor time of `identify`."""
    usable: bool
    adequate: bool
    hold: int
    """Intervals that hold the value of the recording."""
    intervals: int
    """Intervals of parameters that are identifiable."""


def run(name: str) -> Row:
    """Record, then identify: once briefly, so that kernels are compiled, and once in full."""
    data = sysid.record(name)
    sysid.identify(name, data, max_iterations=1, diagnose="none")
    begun = time.process_time()
    found = sysid.identify(name, data)
    seconds = time.process_time() - begun
    ground_truth = system(name).simulator().default_parameters
    fits = [stage.fit for stage in found.stages]
    last = {each.name: each.interval for fit in fits for each in fit.estimates if not each.hidden}
    given = {name: float(getattr(ground_truth, name)) for name in last}
    slack = {name: ROUNDING * max(abs(value), 1.0) for name, value in given.items()}
    hold = sum(low - slack[name] <= given[name] <= high + slack[name] for name, (low, high) in last.items())
    return Row(name, seconds, not found.unusable, fits[-1].explained, hold, len(last))


@dataclass(frozen=True)
class Args:
    """Options."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names; none: all."""
    out: Path | None = None
    """JSON file for the rows."""


def main(args: Args) -> int:
    """Print a row per name; 1 if one is not adequate or takes longer than a minute."""
    print(f"{'system':12s} {'cpu s':>6s} {'usable':>6s} {'adequate':>8s} intervals that hold")
    rows = []
    for name in args.names or systems():
        row = run(name)
        rows.append(row)
        print(
            f"{row.name:12s} {row.seconds:6.1f} {row.usable!s:>6s} {row.adequate!s:>8s} {row.hold} of {row.intervals}",
            flush=True,
        )
    if args.out is not None:
        write_json(args.out, {"commit": git_commit(), "rows": [row._asdict() for row in rows]})
    return int(not all(row.adequate and row.seconds < 60 and row.usable for row in rows))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
