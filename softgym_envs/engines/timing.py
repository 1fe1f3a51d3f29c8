"""Speed as ratios: two sides run in turn in one process, so that other load of the machine affects both."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Rate:
    """One line of a table of speeds."""

    what: str
    unit: str
    ours: float
    """Median over the rounds."""
    peer: float | None = None
    """Median over the rounds; None: no peer."""
    ratio: float | None = None
    """Median over the rounds of ours / peer."""
    required: str = ""


Side = tuple[float, Callable[[], object]]
"""Number of things, and the work that does them."""


def rate(count: float, work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """`count` things per second of a clock: the wall's, or the processor's (`time.process_time`), less slowed by others."""
    start = clock()
    work()
    return count / (clock() - start)


def compare(
    what: str, unit: str, ours: Side, peer: Side, *, rounds: int, required: str = "",
    clock: Callable[[], float] = time.perf_counter,
) -> Rate:  # fmt: skip
    """Time both sides in turn, `rounds` times."""
    rates = np.array([(rate(*ours, clock), rate(*peer, clock)) for _ in range(rounds)])
    own, other = (float(r) for r in np.median(rates, axis=0))
    return Rate(what, unit, own, other, float(np.median(rates[:, 0] / rates[:, 1])), required)


def alone(what: str, unit: str, ours: Side, *, rounds: int) -> Rate:
    """Time one side, `rounds` times."""
    return Rate(what, unit, float(np.median([rate(*ours) for _ in range(rounds)])))


def table(rows: list[Rate], peer: str = "MuJoCo") -> str:
    """The rates as a Markdown table."""
    lines = [f"| what | ours | {peer} | ratio | required |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        theirs = "" if row.peer is None else f"{row.peer:,.0f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
        lines.append(f"| {row.what} [{row.unit}] | {row.ours:,.0f} | {theirs} | {ratio} | {row.required} |")
    return "\n".join(lines)


def machine(*packages: str) -> dict[str, str]:
    """Processor, cores, load and versions of Python and `packages`."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": str(os.cpu_count()),
        "load": " ".join(f"{value:.1f}" for value in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }
