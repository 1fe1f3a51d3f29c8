"""Effects of the mismatched models of particles and block, written into the compiled MuJoCo models."""

from __future__ import annotations

import mujoco
import numpy as np

from ...core.mismatch import Effect, Ladder, MismatchedModel, transmission

TWO_STEPS = Effect("half_steps", "-", (0.0, 1.0, 1.0), "1: two integration steps per physics step")
SHARED = (
    *transmission((0.0, 0.01, 0.03), (0.0, 0.01, 0.02)),
    Effect("mass", "-", (0.01, 0.03, 0.1), "mass, plus or minus this share"),
    Effect("drag", "N s/m", (0.0, 0.02, 0.1), "viscous friction beside Coulomb's"),
    Effect("tilt", "rad", (0.002, 0.005, 0.02), "the table, against gravity"),
    Effect("softness", "octaves", (0.3, 1.0, 1.0), "time constant of contact, either way by up to so many factors of 2"),
    Effect("bounce", "-", (0.0, 0.2, 0.5), "share of contact's damping that is missing"),
    TWO_STEPS,
)
PARTICLES = Ladder(SHARED)
BLOCK = Ladder(
    (
        *SHARED,
        Effect("foot_spread", "-", (0.02, 0.1, 0.2), "friction of every foot, plus or minus this share"),
        Effect("centre", "m", (0.001, 0.005, 0.01), "centre of mass, plus or minus along both sides"),
        Effect("string", "N", (0.0, 0.0, 0.2), "dry friction of the pulley"),
    )
)


def harden(mujoco_model: MismatchedModel, mj: mujoco.MjModel, sliding: int, drag: float = 0.0) -> None:
    """Write the effects that both share, after the parameters; on the first `sliding` joints their drag adds to `drag`."""
    mj.opt.gravity[:] = -mj.opt.gravity[2] * mujoco_model.down
    mass = 1.0 + float(mujoco_model.spread("mass"))
    mj.body_mass[1:] *= mass
    mj.body_inertia[1:] *= mass
    mj.geom_solref[:, 0] *= 2.0 ** float(mujoco_model.spread("softness"))
    mj.geom_solref[:, 1] *= 1.0 - min(mujoco_model.amount("bounce"), 0.95)
    drag = drag + mujoco_model.amount("drag")
    mj.dof_damping[:sliding] = drag if mj.dof_damping.ndim == 1 else [drag, *[0.0] * (mj.dof_damping.shape[1] - 1)]


def lean(mj: mujoco.MjModel, tilt_x: float, tilt_y: float = 0.0) -> None:
    """Tilt the ground by parameters of the robot: gravity turns about y, then about x."""
    (sx, sy), (cx, cy), (x, y, z) = np.sin((tilt_x, tilt_y)), np.cos((tilt_x, tilt_y)), mj.opt.gravity
    x, z = cx * x - sx * z, cx * z + sx * x
    mj.opt.gravity[:] = (x, cy * y - sy * z, cy * z + sy * y)


def harden_block(mujoco_model: MismatchedModel, mj: mujoco.MjModel, string: bool) -> None:
    """Write the effects that only the block has."""
    mj.geom_friction[1:, 0] *= 1.0 + mujoco_model.spread("foot_spread", mj.ngeom - 1)
    mj.body_ipos[1, :2] = mujoco_model.spread("centre", 2)
    if string:
        mj.tendon_frictionloss[0] = mujoco_model.amount("string")
