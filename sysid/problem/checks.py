"""Checks of recordings before any fit: recordings that cannot be used are refused with a reason and a remedy, never fitted.

Refused are: too few steps, missing columns, NaN rows, a wrong time base, controls that never change (unless it is declared a
free motion), no motion at all, controls outside the limits, numbers in a wrong unit (`.wrong_units`), exchanged names or turned
signs (`.wrong_labels`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from softgym_envs.core.errors import DataError, OptionError, ShapeError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.procedure import Measurement
from softgym_envs.core.simulator import Array, Simulator
from softgym_envs.core.trajectory import DataSplit, Trajectory

from .wrong_labels import check_labels
from .wrong_units import check_units

MIN_STEPS = 10  # Smallest number of steps per recording.
MOST_STEPS, LONGEST_ROW = 1000, 1.0  # Physics steps, and [s]: a row that lasts longer than both is an error.
REPEATS, REPEATED = 10, 0.1
"""Rows that repeat the row before, and their share from the first to the last motion; fewer may be chance."""
MOVED_STEPS = 4  # Fewest sizes in which changes of some column come: those of an encoder that moves slowly come in one or two.


class Checked(Protocol):
    """Fields of a problem that the checks use; see `FitProblem`."""

    @property
    def simulator(self) -> Simulator: ...  # noqa: D102

    @property
    def free(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def measured(self) -> tuple[str, ...] | None: ...  # noqa: D102

    @property
    def measurement(self) -> Measurement | None: ...  # noqa: D102

    @property
    def noise(self) -> Mapping[str, float] | None: ...  # noqa: D102

    @property
    def free_motion(self) -> bool: ...  # noqa: D102

    @property
    def initial_parameters(self) -> Parameters: ...  # noqa: D102

    @property
    def split(self) -> DataSplit: ...  # noqa: D102

    @property
    def full_state(self) -> bool: ...  # noqa: D102

    @property
    def column_names(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def free_initial(self) -> bool | None: ...  # noqa: D102

    def values(self, trajectory: Trajectory) -> Array: ...  # noqa: D102

    def controls(self, trajectory: Trajectory) -> Array: ...  # noqa: D102

    def observe(self, states: Array) -> Array: ...  # noqa: D102

    def initial_guess(self, trajectory: Trajectory) -> Array: ...  # noqa: D102


def check_data(problem: Checked) -> None:
    """Run all checks, cheapest first, and raise the first that fails.

    Raises:
        DataError: The recordings cannot be used.
        OptionError: `measured` or `noise` name other columns than there are.
    """
    if len(problem.split.train) == 0:
        raise DataError("no recording to train on: give at least one trajectory")
    _check_columns(problem)
    for part, trajectories in zip(("train", "validation", "test"), problem.split, strict=True):
        for index, trajectory in enumerate(trajectories):
            where = f"{part} recording {index}"
            _check_recording(problem, where, trajectory)
    _check_excitation(problem)
    _check_measurement(problem)
    _check_noise(problem)
    check_units(problem)
    check_labels(problem)


def check_recordings(problem: Checked) -> None:
    """Checks of recordings that are only predicted: columns, time base, missing and repeated rows, limits, units.

    Raises:
        DataError: The recordings cannot be used.
    """
    _check_columns(problem)
    for index, trajectory in enumerate(problem.split.train):
        _check_recording(problem, f"recording {index + 1}", trajectory)
    if _travel(problem) > 0.0:
        check_units(problem)


def _check_columns(problem: Checked) -> None:
    there, states = problem.split.train.names, problem.simulator.state_names
    wanted = problem.measurement.names if problem.measurement is not None else problem.measured
    for name in wanted or ():
        if name not in there:
            raise DataError(f"missing column {name!r}: the recordings hold {_short(there)}")
        if problem.measurement is None and name not in states:
            raise OptionError(f"{name!r} is no state entry of the simulator; give a Measurement that computes it")
    if not problem.column_names:
        raise DataError(
            f"missing columns: the recordings hold {_short(there)}, the simulator's state {_short(states)}; "
            "rename them, or give a Measurement that computes yours from the state"
        )
    missing = [name for name in problem.simulator.control_names if name not in problem.split.train.control_names]
    if missing:
        found = _short(problem.split.train.control_names)
        raise DataError(f"missing columns: control {missing[0]!r} is not recorded ({len(missing)} missing); there are {found}")


def _check_recording(problem: Checked, where: str, trajectory: Trajectory) -> None:
    if trajectory.num_steps < MIN_STEPS:
        raise DataError(f"{where} is too short: {trajectory.num_steps} steps, expected at least {MIN_STEPS}")
    expected = problem.simulator.dt * trajectory.substeps
    if abs(trajectory.period - expected) > 1e-3 * expected:
        raise DataError(
            f"{where} has rows {trajectory.period:.6g} s apart, but dt x substeps = {expected:.6g} s; are the times in "
            "seconds? If so use trajectory.for_timestep(simulator.dt)"
        )
    if trajectory.substeps >= MOST_STEPS and trajectory.period > LONGEST_ROW:
        raise DataError(
            f"{where} has rows {trajectory.period:.4g} s apart, {trajectory.substeps} physics steps: are the times in ms? "
            f"If not, record more often than every {LONGEST_ROW:g} s"
        )
    if trajectory.substeps != problem.split.train[0].substeps:
        raise DataError(
            f"{where} has {trajectory.substeps} substeps, the first {problem.split.train[0].substeps}; fit them apart"
        )
    _check_missing(problem, where, trajectory)
    _check_repeats(problem, where, trajectory)
    lower, upper = problem.simulator.control_bounds
    controls, slack = problem.controls(trajectory), 1e-6 * (upper - lower)
    if ((controls < lower - slack) | (controls > upper + slack)).any():
        raise DataError(
            f"{where} has controls from {controls.min():.4g} to {controls.max():.4g}, the limits are {lower.min():.4g} ... "
            f"{upper.max():.4g}: wrong unit?{_as_percent(controls, lower, upper)}"
        )


def _as_percent(controls: Array, lower: Array, upper: Array) -> str:
    """Advice where the controls are within limits of 1 as percentages."""
    fits = (lower >= -1.0).all() and (upper == 1.0).all() and (np.abs(controls) <= 100.0).all() and controls.max() > 2.0
    return " Percentages are written as [%] in the header" if fits else ""


def _check_missing(problem: Checked, where: str, trajectory: Trajectory) -> None:
    absent = ~np.isfinite(problem.values(trajectory))
    worst = int(np.argmax(absent.mean(axis=0)))
    if absent[:, worst].mean() > 0.5:
        share = 100 * absent[:, worst].mean()
        raise DataError(
            f"{where}: {problem.column_names[worst]} is NaN in {share:.0f} % of the rows, allowed is 50 %; leave it out, or, "
            f"where times are irregular, take rows longer than {trajectory.period:.3g} s (fewer frames per second)"
        )


def _check_repeats(problem: Checked, where: str, trajectory: Trajectory) -> None:
    """Refuse frames that are repeated, as in a file of more rows per second than its camera: they look like noise."""
    values = problem.values(trajectory)
    steps = np.diff(values[np.isfinite(values).all(axis=1)], axis=0)
    moved = np.flatnonzero((steps != 0).any(axis=1))
    if len(moved) < REPEATS:
        return
    still = np.diff(moved) - 1  # rows without motion between two with motion
    repeats = int(still.sum())
    regular = np.ptp(still) <= 1 and repeats >= max(REPEATS, REPEATED * (moved[-1] - moved[0]))
    sizes = np.abs(steps[moved]) / np.abs(steps).max(axis=0).clip(1e-300)
    if regular and max(len(np.unique(column.round(6))) for column in sizes.T) >= MOVED_STEPS:
        raise DataError(
            f"{where}: {repeats} rows repeat the row before in all columns while it moves: frames that were given twice? Give "
            f"each once, with its own time ({len(moved) + 1} of {len(values)} rows)"
        )


def _check_excitation(problem: Checked) -> None:
    train = problem.split.train
    if _travel(problem) == 0.0:
        raise DataError("nothing moves in the training recordings: zero excitation identifies no constant")
    if problem.simulator.nu and not problem.free_motion and all(np.ptp(problem.controls(t), axis=0).max() == 0 for t in train):
        raise DataError(
            "the controls never change in the training recordings, so they excite nothing; record with varied controls, or say "
            "`free_motion=True` if these are throws or releases"
        )


def _travel(problem: Checked) -> float:
    """Largest range of a column in a recording; 0 where it is rounding."""
    values = [problem.values(trajectory) for trajectory in problem.split.train]
    size = max(float(np.nanmax(np.abs(v), initial=0.0)) for v in values)
    travel = max(float(np.nanmax(np.nanmax(v, axis=0) - np.nanmin(v, axis=0))) for v in values)
    return travel if travel > 1e-9 * size else 0.0


def _check_measurement(problem: Checked) -> None:
    values = problem.observe(problem.simulator.initial_state(2))
    if values.shape != (2, len(problem.column_names)) or not np.isfinite(values).all():
        raise ShapeError(
            f"measurement gives shape {values.shape} for 2 rest states, expected (2, {len(problem.column_names)}), all finite"
        )
    count = sum(int(np.isfinite(problem.values(t)).sum()) for t in problem.split.train)
    starts = not problem.full_state if problem.free_initial is None else problem.free_initial
    unknowns = len(problem.free) + (problem.simulator.n * len(problem.split.train) if starts else 0)
    if count < 2 * unknowns:
        raise DataError(f"too short: {count} measured numbers for {unknowns} unknowns, expected at least twice as many")


def _check_noise(problem: Checked) -> None:
    if problem.noise is None:
        return
    for name in problem.noise:
        if name not in problem.column_names and name.removeprefix("control:") not in problem.simulator.control_names:
            raise OptionError(f"noise names {name!r}; fitted columns are {_short(problem.column_names)}")
    for name in problem.column_names:
        if name not in problem.noise:
            raise OptionError(f"noise of {name} is missing; give the standard deviation of every fitted column, or of none")
        value = problem.noise[name]
        if not (np.isfinite(value) and value > 0):
            raise OptionError(f"noise of {name} is {value}, expected a standard deviation > 0 for every fitted column")


def _short(names: tuple[str, ...]) -> str:
    return ", ".join(names[:10]) + (f", ... ({len(names)} in all)" if len(names) > 10 else "") if names else "none"
