"""Effects of the mismatched model of a vine robot, written into the compiled MuJoCo model."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from ...core.mismatch import Effect, Ladder, MismatchedModel, transmission
from ...core.simulator import Array
from .model import VineModel

LADDER = Ladder(
    (
        *transmission((0.0, 0.02, 0.05), (0.0, 0.01, 0.02)),
        Effect("stiffness_spread", "-", (0.05, 0.15, 0.2), "bending stiffness of every joint, plus or minus this share"),
        Effect("soft_end", "-", (0.0, 0.2, 0.5), "share by which the outer half of the drawn robot is softer"),
        Effect("damping_spread", "-", (0.1, 0.3, 0.3), "damping of every joint, plus or minus this share"),
        Effect("hysteresis", "N m", (0.0, 1e-4, 5e-4), "friction of every joint, as soft as MuJoCo's usual one"),
        Effect("steering_spread", "-", (0.05, 0.15, 0.2), "gain of every joint's muscles, plus or minus this share"),
        Effect("density", "-", (0.02, 0.05, 0.1), "linear density, plus or minus this share"),
        Effect("drag", "-", (0.1, 0.5, 1.0), "more drag, by this share", 100.0),
        Effect("payload", "kg", (0.0, 0.0, 2e-3), "a mass at the tip"),
        Effect("base", "rad", (0.002, 0.01, 0.03), "the base is turned, either way"),
        Effect("friction", "-", (0.1, 0.3, 0.3), "friction, plus or minus this share"),
        Effect("softness", "octaves", (0.0, 0.5, 1.0), "longer time constant of contact, by up to so many factors of 2"),
        Effect("half_steps", "-", (0.0, 1.0, 1.0), "1: two integration steps per physics step"),
    )
)


def built(mujoco_model: MismatchedModel, model: VineModel) -> VineModel:
    """The structure with its base turned by the MuJoCo model's effect."""
    x, y, angle = model.base
    return replace(model, base=(x, y, angle + float(mujoco_model.spread("base")))) if mujoco_model.sizes["base"] else model


def factors(mujoco_model: MismatchedModel, effect: str, n: int) -> Array:
    """Factor of every joint, 1 plus or minus the spread; a shorter robot has the first ones of a longer robot."""
    return 1.0 + mujoco_model.spread(effect, n)


def stiffness_factors(mujoco_model: MismatchedModel, model: VineModel, n: int) -> Array:
    """Factor on the stiffness of every joint, (n,)."""
    outer = np.arange(n) >= model.num_links // 2
    return factors(mujoco_model, "stiffness_spread", n) * np.where(outer, 1.0 - min(mujoco_model.amount("soft_end"), 0.95), 1.0)


def harden(mujoco_model: MismatchedModel, mj: mujoco.MjModel, n: int) -> None:
    """Write effects outside the law of bending, after the parameters."""
    mj.dof_frictionloss[:n] += mujoco_model.amount("hysteresis")
    mj.body_mass[1:] *= (mass := 1.0 + float(mujoco_model.spread("density")))
    mj.body_inertia[1:] *= mass
    mj.opt.viscosity *= 1.0 + mujoco_model.amount("drag")
    mj.geom_friction[:, 0] *= 1.0 + float(mujoco_model.spread("friction"))
    mj.geom_solref[:, 0] *= 2.0 ** abs(float(mujoco_model.spread("softness")))
    bear(mj, mujoco_model.amount("payload"), 0.0)


def bear(mj: mujoco.MjModel, mass: float, ahead: float) -> None:
    """Fix a point mass [kg] ahead of the robot's end [m]; the frame of the last body is there."""
    own, place = mj.body_mass[-1], mj.body_ipos[-1, 0]
    if mass > 0:
        mj.body_inertia[-1, 1:] += own * mass / (own + mass) * (place - ahead) ** 2
        mj.body_ipos[-1, 0] = (own * place + mass * ahead) / (own + mass)
        mj.body_mass[-1] += mass
