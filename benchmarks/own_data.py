"""Does every system's `sysid.record`, then `sysid.identify`, end soon and explain the recordings of its own engine?

    python benchmarks/own_data.py                   # all systems
    python benchmarks/own_data.py block particles

prints one row per system: seconds of a processor of `identify` (kernels compiled before), whether its numbers may be used and
the fit is adequate, and how many 95 % intervals hold the values with which the recordings were made.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import sysid
from softgym_envs.rooms import room, rooms

ROUNDING = 1e-9
"""Relative error up to which a value counts as held: intervals of exact data are as narrow as rounding."""


class Row(NamedTuple):
    """Result of one system."""

    system: str
    seconds: float
    """Processor time of `identify`."""
    usable: bool
    adequate: bool
    hold: int
    """Intervals that hold the value of the recording."""
    intervals: int
    """Intervals of parameters that are identifiable."""


def run(system: str) -> Row:
    """Record, then identify: once briefly, so that kernels are compiled, and once in full."""
    data = sysid.record(system)
    sysid.identify(system, data, max_iterations=1, diagnose="none")
    begun = time.process_time()
    found = sysid.identify(system, data)
    seconds = time.process_time() - begun
    truth = room(system).simulator().default_parameters
    fits = [stage.fit for stage in found.stages]
    last = {each.name: each.interval for fit in fits for each in fit.estimates if not each.hidden}
    given = {name: float(getattr(truth, name)) for name in last}
    slack = {name: ROUNDING * max(abs(value), 1.0) for name, value in given.items()}
    hold = sum(low - slack[name] <= given[name] <= high + slack[name] for name, (low, high) in last.items())
    return Row(system, seconds, not found.unusable, fits[-1].explained, hold, len(last))


def main(systems: Sequence[str]) -> int:
    """Print a row per system; 1 if one is not adequate or takes longer than a minute."""
    print(f"{'system':12s} {'cpu s':>6s} {'usable':>6s} {'adequate':>8s} intervals that hold")
    rows = []
    for system in systems or rooms():
        row = run(system)
        rows.append(row)
        print(
            f"{row.system:12s} {row.seconds:6.1f} {row.usable!s:>6s} {row.adequate!s:>8s} {row.hold} of {row.intervals}",
            flush=True,
        )
    return int(not all(row.adequate and row.seconds < 60 and row.usable for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
