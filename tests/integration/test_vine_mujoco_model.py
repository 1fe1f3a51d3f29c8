"""The vine's MuJoCo model against our engine, where both have to be the same robot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from reproductions.jitosho2021.experiments import BEAM
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.mujoco import MujocoVine

DT = 2e-4
"""[s] So small that neither integrator counts."""


@pytest.mark.parametrize("length", [0.4, 0.39, 0.37])
def test_drag_slows_both_alike_however_far_the_telescope_is_out(length: float) -> None:
    """Released from an arc, in a fluid that takes nine tenths of the swing; what slides out feels drag as long as it is."""
    model, tips = replace(BEAM, initial_length=length), []
    for one in (MujocoVine(model, dt=DT, bending="linear"), VineSimulator(model, DT, "linear")):
        start = one.initial_state(1)
        start[0, : model.layout.nx] = model.straight_state(curvature=0.8)
        parameter_values = one.default_parameters.replace(drag=0.5)
        states, status = one.rollout(start, np.zeros((1, 30, one.nu)), parameter_values, substeps=50)
        assert not status.any()
        tips.append(model.tip(states[0, :, : model.layout.nx])[:, 1])
    # MuJoCo also damps turning, by the cube of a box's side: 0.5 % of the drag's moment.
    assert np.abs(tips[0] - tips[1]).max() < 5e-3 * np.abs(tips[1]).max()
