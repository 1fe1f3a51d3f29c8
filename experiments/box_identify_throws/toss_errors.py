"""Errors of predicted throws: of place in widths of the box, of attitude in degrees.

Legend: M throws, T rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from toss_sets import Set

import sysid
from softgym_envs.core import lie
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems.box.flight import FLIGHT_ROWS, first_state
from softgym_envs.systems.box.parameters import BoxBody

Array = NDArray[np.float64]

AHEAD = (0.05, 0.1, 0.25, 0.5)
"""[s] Horizons after the first row."""
DRAWS = 2000
"""Draws of the bootstrap over throws."""


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors of one engine."""

    place: list[Array]
    """Errors of place of every throw (T,) [widths]."""
    turn: list[Array]
    """Errors of attitude of every throw (T,) [degrees]"""
    rate: float
    """[Hz]"""

    def summary(self) -> dict[str, Any]:
        """Means over throws of the mean over a throw, and medians some time ahead, each with its 95 % interval."""
        found: dict[str, Any] = {}
        for name, values in (("place [widths]", self.place), ("turn [deg]", self.turn)):
            found[f"{name}, whole throws"] = _interval(np.array([v[FLIGHT_ROWS:].mean() for v in values]), np.mean)
            for seconds in AHEAD:
                row = round(seconds * self.rate)
                found[f"{name}, {seconds:g} s"] = _interval(np.array([v[row] for v in values if len(v) > row]), np.median)
        return found

    def line(self) -> str:
        """The summary in a line."""
        return ", ".join(f"{name} {value[0]:.3g} [{value[1]:.3g}, {value[2]:.3g}]" for name, value in self.summary().items())


def _interval(values: Array, of: Any) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    drawn = [of(values[rng.integers(len(values), size=len(values))]) for _ in range(DRAWS)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(of(values)), float(low), float(high)


def errors_of(simulator: Any, parameter_values: BoxBody, throws: list[Trajectory], kind: Set) -> Errors:
    """Errors of predictions by `sysid.predict`, from the first poses of every throw to its end."""
    substeps, planar = round(1.0 / (kind.rate * simulator.dt)), kind.poses == 3

    def from_first_poses(throw: Trajectory, now: NDArray[np.intp], steps: int) -> Array:
        start = simulator.initial_state(1)
        first = throw.window(0.0, (FLIGHT_ROWS - 1) / kind.rate)
        start[0, : simulator.model.layout.nx] = first_state(first, simulator, parameter_values.gravity)
        states, _ = simulator.rollout(start, np.zeros((1, steps, simulator.nu)), parameter_values, substeps=substeps)
        return np.asarray(states[:, :, : kind.poses])

    found = sysid.predict(sysid.Predictor(from_first_poses, look=0), throws).predictions
    assert found is not None
    place, turn, axes = [], [], 2 if planar else 3
    for path in found.paths:
        seen, rows = path.measured, path.predicted
        place.append(np.linalg.norm(rows[:, :axes] - seen[:, :axes], axis=1) / kind.width)
        off = rows[:, 2] - seen[:, 2] if planar else np.linalg.norm(lie.difference(rows[:, 3:7], seen[:, 3:7]), axis=1)
        turn.append(np.degrees(np.abs(off)))
    return Errors(place, turn, kind.rate)


def table(found: Mapping[str, Errors], throws: int) -> str:
    """Markdown."""
    names = list(next(iter(found.values())).summary())
    lines = [
        f"Predictions of {throws} throws that nothing was fitted to, by their first {FLIGHT_ROWS} poses; "
        "95 % intervals over throws.",
        "Means over whole throws, medians some time after the first row.",
        "",
        "| | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for name, errors in found.items():
        cells = [f"{v:.3g} [{low:.3g}, {high:.3g}]" for v, low, high in errors.summary().values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plot(found: Mapping[str, Errors], kind: Set, path: Path) -> None:
    """Plot median and quartiles of both errors against time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), constrained_layout=True)
    for what, axis, label in (("place", axes[0], "place [widths]"), ("turn", axes[1], "attitude [deg]")):
        for name, errors in found.items():
            values = getattr(errors, what)
            rows = int(np.median([len(v) for v in values]))
            stacked = np.array([v[:rows] for v in values if len(v) >= rows])
            low, middle, high = np.percentile(stacked, [25, 50, 75], axis=0)
            times = np.arange(rows) / kind.rate
            axis.plot(times, middle, label=name)
            axis.fill_between(times, low, high, alpha=0.15)
        axis.set(xlabel="time since the first pose [s]", ylabel=f"error of {label}")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
