"""Effects of the mismatched model of a tensegrity robot, written into the compiled MuJoCo model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mujoco

from ...core.mismatch import Effect, Ladder, MismatchedModel, transmission
from ...core.simulator import Array
from .model import TensegrityModel
from .terrain import Terrain

LADDER = Ladder(
    (
        *transmission((0.0, 0.01, 0.03), (0.0, 0.005, 0.01)),
        Effect("gain_spread", "-", (0.05, 0.15, 0.15), "motor gain of every cable, plus or minus this share"),
        Effect("stiffness_spread", "-", (0.02, 0.1, 0.15), "stiffness of every cable, plus or minus this share"),
        Effect("damping_spread", "-", (0.1, 0.3, 0.3), "damping of every cable, plus or minus this share"),
        Effect("rest_spread", "-", (0.005, 0.02, 0.02), "rest length of every cable, plus or minus this share"),
        Effect("hysteresis", "N", (0.0, 5.0, 20.0), "dry friction along every cable"),
        Effect("mass_spread", "-", (0.01, 0.03, 0.05), "mass of every rod, plus or minus this share"),
        Effect("centre", "m", (0.002, 0.01, 0.02), "centre of mass of every rod off its middle, either way along it"),
        Effect("payload", "kg", (0.0, 0.0, 2.0), "a mass at the end of a rod"),
        Effect("friction", "-", (0.1, 0.3, 0.3), "friction of the ground, plus or minus this share"),
        Effect("pivot", "decades", (0.0, 0.5, 1.0), "friction that turns and rolls, weaker by up to so many decades"),
        Effect("softness", "octaves", (0.3, 1.0, 1.0), "time constant of contact, either way by up to so many factors of 2"),
        Effect("bounce", "-", (0.0, 0.2, 0.5), "share of contact's damping that is missing"),
        Effect("pyramid", "-", (0.0, 0.0, 1.0), "1: friction cones are pyramids"),
        Effect("implicit", "-", (0.0, 0.0, 1.0), "1: MuJoCo's integrator implicitfast instead of Euler's"),
        Effect("half_steps", "-", (0.0, 1.0, 1.0), "1: two integration steps per physics step"),
        Effect("tilt", "rad", (0.0, 0.005, 0.01), "the floor, against gravity"),
        Effect("floor", "m", (0.0, 0.0, 0.004), "standard deviation of the floor's height; only where it is drawn as flat"),
    )
)


def built_on(mujoco_model: MismatchedModel, model: TensegrityModel) -> TensegrityModel:
    """The structure on the MuJoCo model's uneven floor; no change on slopes and height fields."""
    height = mujoco_model.amount("floor")
    if height == 0 or not (model.terrain.is_plane and model.terrain.angle == 0):
        return model
    seed = int(mujoco_model.rng("floor").integers(2**31))
    return replace(model, terrain=Terrain.rubble(height=2.0 * height, size=30.0, seed=seed))


def free_centres(mujoco_model: MismatchedModel, spec: mujoco.MjSpec) -> mujoco.MjSpec:
    """The spec with movable centres of mass: the compiler fixes those that are in the middle of a body."""
    if mujoco_model.sizes["centre"] or mujoco_model.sizes["payload"]:
        for body in spec.bodies[1:]:
            body.ipos = [0.0, 0.0, 1e-3]
    return spec


def spread_cables(
    mujoco_model: MismatchedModel, stiffness: Array, damping: Array, rest: Array
) -> tuple[Array, Array, Array, Array]:
    """Stiffness, damping and rest length of every cable (C,), and the factor on its motor's gain."""
    count = len(stiffness)
    k, c, r, g = (1.0 + mujoco_model.spread(f"{name}_spread", count) for name in ("stiffness", "damping", "rest", "gain"))
    return stiffness * k, damping * c, rest * r, g


def harden(mujoco_model: MismatchedModel, mj: mujoco.MjModel, model: TensegrityModel) -> None:
    """Write all other effects, after the parameters."""
    sizes = mujoco_model.sizes
    _weigh(mujoco_model, mj, model)
    mj.tendon_frictionloss[:] = mujoco_model.amount("hysteresis")
    turning = 10.0 ** -abs(float(mujoco_model.spread("pivot")))
    mj.geom_friction[:] *= [1.0 + float(mujoco_model.spread("friction")), turning, turning]
    mj.geom_solref[:, 0] *= 2.0 ** float(mujoco_model.spread("softness"))
    mj.geom_solref[:, 1] *= 1.0 - min(mujoco_model.amount("bounce"), 0.95)
    mj.opt.gravity[:] = -mj.opt.gravity[2] * mujoco_model.down
    if sizes["pyramid"]:
        mj.opt.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    if sizes["implicit"]:
        mj.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST


def _weigh(mujoco_model: MismatchedModel, mj: mujoco.MjModel, model: TensegrityModel) -> None:
    """Write masses, centres, and a payload at a random node: I + M m / (M + m) d^2 about the common centre, at distance d."""
    factor, rods = 1.0 + mujoco_model.spread("mass_spread", model.num_rods), slice(1, 1 + model.num_rods)
    mj.body_mass[rods] *= factor
    mj.body_inertia[rods] *= factor[:, None]
    mj.body_ipos[rods, 2] = mujoco_model.spread("centre", model.num_rods)
    payload: Any = mujoco_model.amount("payload")
    if payload > 0:
        node = int(mujoco_model.rng("payload").integers(2 * model.num_rods))
        rod, end = 1 + node // 2, (node % 2 - 0.5) * model.rod_lengths[node // 2]
        mass, place = mj.body_mass[rod], mj.body_ipos[rod, 2]
        mj.body_inertia[rod, :2] += mass * payload / (mass + payload) * (end - place) ** 2
        mj.body_ipos[rod, 2] += payload / (mass + payload) * (end - place)
        mj.body_mass[rod] += payload
