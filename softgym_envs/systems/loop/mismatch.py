"""Mismatched models of arm and loop: structure, and errors of the arm's sensors (`core.mismatch`).

Friction, damping, the clamp's pose and stiffness are physics. Noise, bias and lag belong to sensors: they affect recordings
only (`procedure.manipulation`), while tasks see true states.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...core.mismatch import Effect, Ladder, MismatchedModel, transmission
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from ...mechanics.tree import Tree
from .model import ARM, CLAMP

if TYPE_CHECKING:
    import mujoco

LADDER = Ladder(
    (
        *transmission((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),  # from 5 ms on, the gains that hold the arm on its path shake it
        Effect("friction", "N m", (0.02, 0.1, 0.3), "dry friction of every joint of the arm, up to"),
        Effect("arm_damping", "-", (0.05, 0.3, 0.5), "logarithm of a factor of the arm's damping, plus or minus"),
        Effect("loop_damping", "-", (0.05, 0.3, 0.5), "logarithm of a factor of the loop's damping, plus or minus"),
        Effect("clamp_shift", "m", (0.001, 0.005, 0.01), "the clamp's place, plus or minus along every axis"),
        Effect("clamp_turn", "rad", (0.002, 0.01, 0.03), "the clamp's rotation, plus or minus about every axis"),
        Effect("stiffness_spread", "-", (0.02, 0.1, 0.2), "logarithm of a factor of every joint's stiffness, plus or minus"),
        Effect("angle_noise", "rad", (5e-4, 2e-3, 2e-3), "standard deviation of recorded angles"),
        Effect("torque_noise", "N m", (0.05, 0.2, 0.2), "standard deviation of recorded torques"),
        Effect("torque_bias", "N m", (0.05, 0.2, 0.5), "of every recorded torque, plus or minus"),
        Effect("torque_lag", "s", (0.0, 0.005, 0.01), "recorded torques come so much later than recorded angles"),
    )
)


def flawed(mujoco_model: MismatchedModel, row: Array) -> Array:
    """Parameters (P,) with the flaws that are parameters of the model, too."""
    names, found = mujoco_model.parameters_class.names(), row.copy()
    for name in ("arm_damping", "loop_damping"):
        found[names.index(name)] *= np.exp(float(mujoco_model.spread(name)))
    shift = np.concatenate([mujoco_model.spread("clamp_shift", 3), mujoco_model.spread("clamp_turn", 3)])
    found[[names.index(name) for name in CLAMP]] += shift
    return found


def harden(mujoco_model: MismatchedModel, mj: mujoco.MjModel, tree: Tree) -> None:
    """Write the other flaws into MuJoCo's model, after its parameters."""
    for name, share in zip(ARM, mujoco_model.spread("friction", len(ARM)), strict=True):
        mj.dof_frictionloss[mj.joint(name).dofadr[0]] += abs(share)
    own = [name for name in tree.coordinates if name not in ARM]
    for name, spread in zip(own, mujoco_model.spread("stiffness_spread", len(own)), strict=True):
        mj.jnt_stiffness[mj.joint(name).id] *= np.exp(spread)


def with_sensor_errors(mujoco_model: MismatchedModel, recording: Trajectory, rng: np.random.Generator) -> Trajectory:
    """Add the sensors' lag, bias and noise to a recording of the arm's angles and torques."""
    if not any(mujoco_model.sizes[name] for name in ("angle_noise", "torque_noise", "torque_bias", "torque_lag")):
        return recording
    times = recording.times[:-1]
    earlier = np.clip(times - mujoco_model.amount("torque_lag"), times[0], None)
    torques = np.stack([np.interp(earlier, times, column) for column in recording.controls.T], axis=1)
    torques += mujoco_model.spread("torque_bias", len(ARM)) + mujoco_model.amount("torque_noise") * rng.standard_normal(
        torques.shape
    )
    return replace(recording.with_noise(rng, mujoco_model.amount("angle_noise")), controls=torques)
