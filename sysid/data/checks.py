"""Verdicts on recordings before any fit: what cannot be used is refused with a reason and a remedy, never fitted.

Refused are: too few steps, missing columns, NaN rows, a wrong time base, controls that never change (unless it is declared a
free motion), no motion at all, controls outside the limits, and numbers in a wrong unit. Units are judged by physics: if one
factor on all lengths, velocities or angles makes the simulator agree with the recording ten times better, that factor is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, OptionError, ShapeError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.recipe import Measurement
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit, Trajectory

Array = NDArray[np.float64]

MIN_STEPS = 10
"""Smallest number of steps per recording."""
TRAVEL = 200.0
"""Recordings travel at most this many times as far as the simulator with the start constants."""
FACTORS = {
    1e-3: "mm (1000 x too large)",
    1e-2: "cm (100 x too large)",
    1e-1: "dm (10 x too large)",
    1e3: "km (1000 x too small)",
}
"""Factors that are tried on lengths, and what they mean."""


class Checked(Protocol):
    """What the checks ask of a problem; see `FitProblem`."""

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
    def constants(self) -> Parameters: ...  # noqa: D102

    @property
    def split(self) -> DataSplit: ...  # noqa: D102

    @property
    def full(self) -> bool: ...  # noqa: D102

    @property
    def column_names(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def estimates_initial(self) -> bool: ...  # noqa: D102

    def values(self, trajectory: Trajectory) -> Array: ...  # noqa: D102

    def controls(self, trajectory: Trajectory) -> Array: ...  # noqa: D102

    def observe(self, states: Array) -> Array: ...  # noqa: D102

    def guess(self, trajectory: Trajectory) -> Array: ...  # noqa: D102


def check_data(problem: Checked) -> None:
    """All verdicts, cheapest first; the first that fails is raised.

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
    _check_units(problem)


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
    if trajectory.substeps != problem.split.train[0].substeps:
        raise DataError(
            f"{where} has {trajectory.substeps} substeps, the first {problem.split.train[0].substeps}; fit them apart"
        )
    _check_missing(problem, where, trajectory)
    lower, upper = problem.simulator.control_bounds
    controls, slack = problem.controls(trajectory), 1e-6 * (upper - lower)
    if ((controls < lower - slack) | (controls > upper + slack)).any():
        raise DataError(
            f"{where} has controls from {controls.min():.4g} to {controls.max():.4g}, the limits are {lower.min():.4g} ... "
            f"{upper.max():.4g}: wrong unit?"
        )


def _check_missing(problem: Checked, where: str, trajectory: Trajectory) -> None:
    absent = ~np.isfinite(problem.values(trajectory))
    if problem.full and absent.any():
        row = int(np.flatnonzero(absent.any(axis=1))[0])
        raise DataError(
            f"{where} has NaN in {int(absent.any(axis=1).sum())} rows, first row {row} (t = {trajectory.times[row]:g} s): cut "
            "the recording with window(), or leave the broken columns out with measured=..."
        )
    worst = int(np.argmax(absent.mean(axis=0)))
    if absent[:, worst].mean() > 0.5:
        share = 100 * absent[:, worst].mean()
        raise DataError(
            f"{where}: {problem.column_names[worst]} is NaN in {share:.0f} % of the rows, allowed is 50 %; leave it out"
        )
    if absent.all(axis=1).mean() > 0.1:
        raise DataError(f"{where}: {100 * absent.all(axis=1).mean():.0f} % of the rows are NaN throughout, allowed is 10 %")


def _check_excitation(problem: Checked) -> None:
    train = problem.split.train
    values = [problem.values(trajectory) for trajectory in train]
    size = max(float(np.nanmax(np.abs(v), initial=0.0)) for v in values)
    travel = max(float(np.nanmax(np.nanmax(v, axis=0) - np.nanmin(v, axis=0))) for v in values)
    if travel <= 1e-9 * size or travel == 0:
        raise DataError("nothing moves in the training recordings: zero excitation identifies no constant")
    if problem.simulator.nu and not problem.free_motion and all(np.ptp(problem.controls(t), axis=0).max() == 0 for t in train):
        raise DataError(
            "the controls never change in the training recordings, so they excite nothing; record with varied controls, or say "
            "free_motion=True if these are throws or releases"
        )


def _check_measurement(problem: Checked) -> None:
    values = problem.observe(problem.simulator.initial_state(2))
    if values.shape != (2, len(problem.column_names)) or not np.isfinite(values).all():
        raise ShapeError(
            f"measurement gives shape {values.shape} for 2 rest states, expected (2, {len(problem.column_names)}), all finite"
        )
    count = sum(int(np.isfinite(problem.values(t)).sum()) for t in problem.split.train)
    unknowns = len(problem.free) + (problem.simulator.n * len(problem.split.train) if problem.estimates_initial else 0)
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


# --- units ----------------------------------------------------------------------------------------------------------


def _check_units(problem: Checked) -> None:
    """A unit is wrong if it looks wrong with the start constants and with the robot's defaults: either may be far off."""
    verdicts = []
    for constants in (problem.constants, problem.simulator.default_parameters):
        verdict = _by_prediction(problem, constants) if problem.full else _by_rest(problem)
        verdict = verdict or ("" if problem.free_motion else _by_motion(problem, constants))
        if not verdict:
            return
        verdicts.append(verdict)
    raise DataError(verdicts[-1])


def quantities(simulator: Simulator, names: tuple[str, ...], units: tuple[str, ...]) -> tuple[str, ...]:
    """Unit of every column; where a recording says only "SI" (of an older version), that of the state entry of this name."""
    entries = dict(zip(simulator.state_names, simulator.state_units, strict=True))
    return tuple(entries.get(name, unit) if unit == "SI" else unit for name, unit in zip(names, units, strict=True))


def _by_prediction(problem: Checked, constants: Parameters) -> str:
    """Verdict, or "": compare the recording with short rollouts of the simulator, as recorded and under every factor.

    One step shows wrong velocities, ten steps show wrong forces.
    """
    trajectory = problem.split.train[0]
    kind = np.array(quantities(problem.simulator, problem.column_names, trajectory.select(problem.column_names).units))
    for horizon in (1, min(10, trajectory.num_steps // 2)):
        base = _prediction_error(problem, constants, np.ones(len(kind)), horizon)
        errors = {words: _prediction_error(problem, constants, factors, horizon) for words, factors in _hypotheses(kind)}
        best = min(errors.values())
        words = next(w for w, error in errors.items() if error <= 3.0 * best)  # the likelier comes first: mm before km
        if base > 0.1 and errors[words] < 0.1 * base:
            gain = f"the simulator agrees {base / errors[words]:.0f} times better"
            return f"wrong units: the {words}; with that factor {gain}. Convert to SI"
        if not np.isfinite(base):
            where = "within a few steps of every recorded state"
            return f"the simulator diverges {where}: wrong units, wrong columns, another robot, or start constants far off"
    return ""


def _hypotheses(kind: NDArray[np.str_]) -> list[tuple[str, Array]]:
    """What may be wrong, in words, and the factor per column that would mend it."""
    groups = {
        "lengths and velocities": ("m", "m/s"),
        "lengths": ("m",),
        "velocities": ("m/s",),
        "other values": tuple(sorted(set(kind.tolist()) - {"m", "m/s", "rad", "rad/s"})),
    }
    found = [
        (f"{what} look as if they were given in {meaning}", np.where(np.isin(kind, chosen), factor, 1.0))
        for what, chosen in groups.items()
        for factor, meaning in FACTORS.items()
    ]
    for what, chosen in {"angles and rates": ("rad", "rad/s"), "angles": ("rad",), "angular rates": ("rad/s",)}.items():
        found.append((f"{what} look as if they were given in degrees", np.where(np.isin(kind, chosen), np.pi / 180, 1.0)))
    return found


def _prediction_error(problem: Checked, constants: Parameters, factors: Array, horizon: int) -> float:
    """Median over channels of RMS prediction error / RMS change over `horizon` steps, from at most 40 recorded states."""
    trajectory = problem.split.train[0]
    values, controls = problem.values(trajectory) * factors, problem.controls(trajectory)
    first = np.unique(np.linspace(0, trajectory.num_steps - horizon, 40).astype(int))
    windows = np.stack([controls[k : k + horizon] for k in first])
    with np.errstate(all="ignore"):
        states, status = problem.simulator.rollout(values[first], windows, constants, substeps=trajectory.substeps)
        good = (status == 0) & np.isfinite(states[:, -1]).all(axis=1)
        if good.mean() < 0.5:
            return float("inf")
        error = problem.simulator.difference(states[good, -1], values[first + horizon][good])
        change = problem.simulator.difference(values[first + horizon][good], values[first][good])
        error, change = np.sqrt(np.mean(error**2, axis=0)), np.sqrt(np.mean(change**2, axis=0))
    moving = change > 1e-9 * change.max(initial=0.0)
    return float(np.median(error[moving] / change[moving])) if moving.any() else float("inf")


def _by_rest(problem: Checked) -> str:
    """Verdict, or "": compare the spread of the measured columns of one kind with that of the robot at rest."""
    trajectory = problem.split.train[0]
    kind = np.array(quantities(problem.simulator, problem.column_names, trajectory.select(problem.column_names).units))
    rest = problem.observe(problem.simulator.initial_state(1))[0]
    values = problem.values(trajectory)
    for chosen in sorted(set(kind) - {"m/s", "rad/s"}):
        here = kind == chosen
        model, data = np.ptp(rest[here]), float(np.nanmedian(np.ptp(values[:, here], axis=1)))
        if here.sum() >= 2 and model > 1e-9 and not 1 / 30 < data / model < 30:
            ratio = f"({data / model:.3g} times)"
            return f"wrong units: the columns in {chosen} spread over {data:.3g}, the robot over {model:.3g} {ratio}; use SI"
    return ""


def _by_motion(problem: Checked, constants: Parameters) -> str:
    """Verdict, or "": compare how far the measured columns travel with how far the simulator's do under the same controls."""
    trajectory = problem.split.train[0]
    start = problem.simulator.initial_state(1) if problem.full else problem.guess(trajectory)[None]
    controls = problem.controls(trajectory)[None]
    states, status = problem.simulator.rollout(start, controls, constants, substeps=trajectory.substeps)
    if status[0] != 0:
        return ""  # constants far off may diverge; the method will say so
    kind = np.array(quantities(problem.simulator, problem.column_names, trajectory.select(problem.column_names).units))
    model, values = problem.observe(states[0]), problem.values(trajectory)
    data = np.nanmax(values, axis=0) - np.nanmin(values, axis=0)
    for chosen in sorted(set(kind)):
        size, seen = float(np.ptp(model[:, kind == chosen], axis=0).max()), float(data[kind == chosen].max())
        if size > 1e-9 and seen > TRAVEL * size:
            travel = f"travel over {seen:.3g}, the simulator's over {size:.3g} under the same controls"
            return f"wrong units: the columns in {chosen} {travel}; use SI, or say free_motion=True if it was thrown"
    return ""


def _short(names: tuple[str, ...]) -> str:
    return ", ".join(names[:10]) + (f", ... ({len(names)} in all)" if len(names) > 10 else "") if names else "none"
