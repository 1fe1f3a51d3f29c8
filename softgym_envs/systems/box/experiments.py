"""Throws for identification: poses as cameras see them.

Legend: T rows, nx state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...core.errors import DataError, OptionError
from ...core.parameters import Parameters
from ...core.simulator import Array
from ...core.trajectory import Trajectory

PERIOD = 1 / 148
"""Time between two frames [s]; [Pfrommer2020]'s cameras."""
NOISE, TURN_NOISE = 2e-4, 2e-3
"""[m, rad] Standard deviation of a recorded pose."""
HEIGHT, SPEED, SPIN = (0.03, 0.12), 0.7, 4.0
"""Height of the lowest corner over the table [m]; standard deviations of velocities [m/s, rad/s] when a throw is released."""


def tossed(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Record one throw over the table, any side up, as cameras see it.

    Raises:
        OptionError: The simulator's physics step is no whole part of a frame, or its simulation fails.
    """
    substeps = round(PERIOD / ground_truth.dt)
    if substeps < 1 or abs(substeps * ground_truth.dt - PERIOD) > 1e-5 * PERIOD:
        near = max(round(PERIOD / ground_truth.dt), 1)
        raise OptionError(
            f"dt is {ground_truth.dt:g} s, expected a whole part of a frame of {PERIOD:.6g} s, as {PERIOD / near:.6g}"
        )
    return _throw(ground_truth, rng, max(round(steps / substeps), 4), substeps, parameters, {"m": NOISE, "rad": TURN_NOISE})


def tossed_exactly(
    ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None
) -> Trajectory:
    """The same in exact poses at every physics step: for a camera, which adds its own noise."""
    return _throw(ground_truth, rng, max(steps, 4), 1, parameters, {})


def _throw(
    ground_truth: Any,
    rng: np.random.Generator,
    rows: int,
    substeps: int,
    parameters: Parameters | None,
    noise: dict[str, float],
) -> Trajectory:
    start = thrown(ground_truth, rng, parameters)
    controls = np.zeros((rows, ground_truth.nu))
    states, status = ground_truth.rollout(start[None], controls[None], parameters, substeps=substeps)
    if status[0] != 0:
        raise OptionError("the simulation of the throw fails: other parameters")
    layout, poses = ground_truth.model.layout, len(ground_truth.model.measured)
    errors = np.zeros((rows + 1, layout.n))
    for unit, std in noise.items():
        columns = [name == unit for name in layout.tangent_units]
        errors[:, columns] = std * rng.standard_normal((rows + 1, sum(columns)))
    seen = layout.retract(states[0, :, : layout.nx], errors)
    return Trajectory(
        times=ground_truth.dt * substeps * np.arange(rows + 1),
        controls=controls,
        values=seen[:, :poses],
        names=layout.names[:poses],
        units=layout.units[:poses],
        control_names=ground_truth.control_names,
        control_units=ground_truth.model.control_units,
        substeps=substeps,
    )


def thrown(ground_truth: Any, rng: np.random.Generator, parameters: Parameters | None = None) -> Array:
    """Sample the state (nx,) of a box that was just released over the table, any side up."""
    model, layout = ground_truth.model, ground_truth.model.layout
    start = ground_truth.initial_state()[0]
    moved = np.zeros(layout.n)
    turns, speeds = (1, 2) if model.planar else (3, 3)
    moved[speeds : speeds + turns] = np.pi * rng.uniform(-1.0, 1.0, turns)
    velocities = np.concatenate([SPEED * rng.standard_normal(speeds), SPIN * rng.standard_normal(turns)])
    moved[speeds + turns : 2 * (speeds + turns)] = velocities
    start[: layout.nx] = layout.retract(start[: layout.nx], moved)
    names = ground_truth.parameters_class.names()
    table = (
        ground_truth.parameter_values(parameters, 1)[0, names.index("table")] if "table" in names else 0.0
    )  # a user's own simulator
    lowest = model.corners(start[: layout.nx])[:, 2].min()
    start[1 if model.planar else 2] += table + rng.uniform(*HEIGHT) - lowest
    return np.asarray(start)


def posed(simulator: Any, recording: Trajectory) -> Trajectory:
    """Select the poses of a recording; quaternions become unit and of one sign from row to row.

    Velocities that were recorded are left out: those that trackers difference backwards lag by half a frame.

    Raises:
        DataError: A column of the pose is missing.
    """
    names = simulator.model.measured
    lacking = [name for name in names if name not in recording.names]
    if lacking:
        raise DataError(
            f"{recording.metadata.get('source', 'the recording')} lacks {', '.join(lacking)}; a box is identified from its "
            f"pose: {', '.join(names)}; export a rigid body, or name columns by a mapping (`map`)"
        )
    found = recording.select(names)
    if simulator.model.planar:
        return found
    values = found.values.copy()
    values[:, 3:] = _unit(values[:, 3:])
    return replace(found, values=values)


def _unit(q: Array) -> Array:
    """Unit quaternions (T, 4), each with the sign nearest to the last one seen; NaN where there is none."""
    q, last = q / np.linalg.norm(q, axis=1, keepdims=True), None
    for row in q:
        if np.isfinite(row).all():
            row *= -1.0 if last is not None and row @ last < 0 else 1.0
            last = row
    return np.asarray(q)
