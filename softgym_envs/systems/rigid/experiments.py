"""Recordings for identification: positions of particles and of the block with noise, as a camera would see them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.errors import OptionError
from ...core.parameters import Parameters
from ...core.simulator import Array
from ...core.trajectory import Trajectory

UNITS = {"x": "m", "y": "m", "theta": "rad"}


def record(
    simulator: Any,
    start: Array,
    controls: Array,
    parameters: Parameters | None = None,
    *,
    noise: dict[str, float],
    rng: np.random.Generator,
    period: float | None = None,
    uniform: bool = False,
) -> Trajectory:
    """Positions under given controls, with noise of given standard deviations.

    Args:
        simulator: A simulator of this system, or a MuJoCo model.
        start: Initial state (nx,).
        controls: (T, nu), each held for `period`.
        parameters: The true parameters.
        noise: Measured entry -> standard deviation of its noise [SI]; entries of every particle are named alike.
        rng: Source of the noise.
        period: Time between frames [s]; None: the simulator's dt.
        uniform: Noise uniform in +-sqrt(3) sigma instead of normal.

    Raises:
        OptionError: The simulation fails, or period is no multiple of dt.
    """
    substeps = 1 if period is None else round(period / simulator.dt)
    if substeps < 1 or (period is not None and abs(substeps * simulator.dt - period) > 1e-9):
        raise OptionError(f"period is {period} s, expected a multiple of the simulator's dt {simulator.dt} s")
    states, status = simulator.rollout(start[None], controls[None], parameters, substeps=substeps)
    if status[0] != 0:
        raise OptionError("the simulation of the recording fails: other start, controls or parameters")
    names = tuple(name for name in simulator.state_names if name.split(".")[-1] in noise)
    values = states[0][:, [simulator.state_names.index(name) for name in names]]
    sigma = np.array([noise[name.split(".")[-1]] for name in names])
    draw = rng.uniform(-np.sqrt(3), np.sqrt(3), values.shape) if uniform else rng.standard_normal(values.shape)
    return Trajectory(
        times=simulator.dt * substeps * np.arange(len(values)),
        controls=controls,
        values=values + sigma * draw,
        names=names,
        units=tuple(UNITS[name.split(".")[-1]] for name in names),
        control_names=simulator.control_names,
        control_units=("N",) * simulator.nu,
        substeps=substeps,
    )
