"""The ground of the MuJoCo model: where it is, and that a height field is met as planes are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from softgym_envs.systems.tensegrity.controllers import rolling
from softgym_envs.systems.tensegrity.model import prism, superball, with_terrain
from softgym_envs.systems.tensegrity.mujoco import MujocoParameters, MujocoTensegrity
from softgym_envs.systems.tensegrity.mujoco_ground import FIELD_MARGIN
from softgym_envs.systems.tensegrity.terrain import Terrain

Array = NDArray[np.float64]

PRETENSION = 1e4 * (np.sqrt(6) / 4 * 1.684 - 0.95)  # k (l - L0) of the expanded octahedron: 812.35 N


def ray_heights(mj: mujoco.MjModel, x: Array, y: Array) -> Array:
    """Height of the ground under points, by MuJoCo's ray caster."""
    data, geom, bare = mujoco.MjData(mj), np.zeros(1, dtype=np.int32), np.array([1, 0, 0, 0, 0, 0], dtype=np.uint8)
    mj.geom_group[1:] = 1  # robots out of sight
    mujoco.mj_forward(mj, data)
    top, down = 50.0, np.array([0.0, 0.0, -1.0])
    reach = [mujoco.mj_ray(mj, data, np.array([a, b, top]), down, bare, 1, -1, geom) for a, b in zip(x, y, strict=True)]
    assert min(reach) > 0
    return top - np.array(reach)


TERRAINS = {
    "slope": Terrain.slope(0.2),
    "steps": Terrain.steps(size=6.0),
    "rubble": Terrain.rubble(size=6.0, seed=3),
    "rubble-on-slope": replace(Terrain.rubble(size=6.0, seed=4), angle=-0.1),
}


@pytest.mark.parametrize("name", TERRAINS)
def test_the_ground_is_the_terrain(name: str) -> None:
    """At grid points, also beyond the rim: exact but for MuJoCo's 32 bit heights; the factor on heights is a parameter."""
    terrain = TERRAINS[name]
    mujoco_model = MujocoTensegrity(with_terrain(superball(), terrain))
    rng = np.random.default_rng(5)
    reach = 0.5 * terrain.cell * (terrain.heights.shape[0] - 1) + FIELD_MARGIN - 2 * terrain.cell
    half = 0.5 * ((terrain.heights.shape[0] - 1) % 2)
    x, y = (np.round(rng.uniform(-reach, reach, 60) / terrain.cell - half) + half for _ in range(2))
    inside = 1e-6  # a ray exactly through a triangle's corner may miss
    x, y = x * terrain.cell + inside, y * terrain.cell + 0.5 * inside
    for scale in (1.0, 0.0, 2.5):
        expected = terrain.height(x, y, scale)
        assert name == "slope" or scale == 0.0 or np.ptp(expected) > 0.1
        heights = ray_heights(mujoco_model.mj_model(MujocoParameters(terrain_scale=scale)), x, y)
        np.testing.assert_allclose(heights, expected, rtol=0, atol=5e-6 + np.ptp(expected) * 2.0**-23)


@pytest.mark.parametrize("name", TERRAINS)
def test_a_dropped_robot_comes_to_lie_on_the_terrain(name: str) -> None:
    """No cap sinks in deeper than the soft contact gives, and the lowest one does touch."""
    mujoco_model = MujocoTensegrity(with_terrain(superball(), TERRAINS[name]))
    state = mujoco_model.model.place_on_ground(mujoco_model.initial_state()[0], gap=0.05)[None]
    states, status = mujoco_model.rollout(state, np.zeros((1, 20, 24)), substeps=100)
    assert not status.any()
    # At rest a = 0: depth = (1 - d) a0 / (d k), k = 1 / (dmax timeconst dampratio)^2, impedance d >= 0.9, dmax 0.95;
    # a0, the contact point's own acceleration, is at most gravity plus the pull of four cables on half a rod.
    depth = 0.1 * (9.81 + 4 * 1.5 * PRETENSION / 5.0) / (0.9 / (0.95 * 0.1) ** 2)
    assert -depth < mujoco_model.model.clearance(states[:, -1])[0] < 0.02


def field_of(rise: float) -> Terrain:
    """A height field of square cells that is a plane, but for a millionth of a millimetre at its rim."""
    x = 0.2 * (np.arange(61) - 30.0)
    heights = np.repeat(rise * x[:, None], 61, axis=1)
    heights[0, 0] += 1e-9
    return Terrain(heights=heights, cell=0.2)


def rolled(terrain: Terrain, rise: float, structure: Any = superball, fixed_rod: int | None = None) -> Array:
    """States of six robots, driven by what they would do at rest, over 0.4 s in which they roll off one face."""
    mujoco_model = MujocoTensegrity(with_terrain(structure(), terrain), fixed_rod=fixed_rod)
    model, angle = mujoco_model.model, 2 * np.pi * np.arange(6) / 6
    tilt = -np.arctan(rise)
    down = model.move(model.rest_state(), rotation=np.array([0.0, tilt, 0.0]))
    state = np.repeat(model.place_on_ground(down, gap=-0.03)[None], 6, axis=0)
    heading = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    control = model.control_limit * rolling(model, state, heading)
    states, status = mujoco_model.rollout(state, np.repeat(control[:, None], 4, axis=1), substeps=100)
    assert not status.any()
    return states


@pytest.mark.parametrize("rise", [0.0, 0.25])
@pytest.mark.parametrize(("structure", "fixed_rod"), [(superball, None), (prism, None), (superball, 2)])
def test_a_field_without_unevenness_is_a_plane(rise: float, structure: Any, fixed_rod: int | None) -> None:
    """Also where soft contacts overlap by centimetres: MuJoCo's own height fields push a cap sideways there."""
    field, plane = (
        rolled(terrain, rise, structure, fixed_rod) for terrain in (field_of(rise), Terrain.slope(float(np.arctan(rise))))
    )
    assert np.abs(plane[:, -1, :3] - plane[:, 0, :3]).max() > 0.05 or fixed_rod is not None
    np.testing.assert_allclose(field, plane, rtol=0, atol=1e-5)


def test_a_node_meets_its_own_plane_only() -> None:
    """Every cap and every end of a rod once, at the depth that our engine finds under it; the field itself touches nobody."""
    model = superball(terrain=Terrain.rubble(size=6.0, seed=3))
    mujoco_model = MujocoTensegrity(model)
    state = model.place_on_ground(model.rest_state(), gap=-0.8)
    pairs, depths = touching(mujoco_model, state)
    assert {first for first, _ in pairs} <= {f"ground{node}" for node in range(12)}
    assert all(first.removeprefix("ground") == second[3:] for first, second in pairs) and len(set(pairs)) == len(pairs)
    nodes = model.node_positions(state)
    normal = model.terrain.normal(nodes[:, 0], nodes[:, 1])
    expected = (nodes[:, 2] - model.terrain.height(nodes[:, 0], nodes[:, 1])) * normal[:, 2] - model.cap_radius
    found = {int(second[3:]): depth for (_, second), depth in zip(pairs, depths, strict=True) if second.startswith("cap")}
    assert sorted(found) == np.flatnonzero(expected < 0).tolist() and len(found) >= 6
    np.testing.assert_allclose([found[n] for n in sorted(found)], expected[expected < 0], rtol=0, atol=1e-12)


def touching(mujoco_model: MujocoTensegrity, state: Array) -> tuple[list[tuple[str, str]], list[float]]:
    """Names of geoms that touch the ground, and their gaps."""
    pairs: list[tuple[str, str]] = []
    depths: list[float] = []

    def read(mj: mujoco.MjModel, data: mujoco.MjData) -> Array:
        for contact in data.contact[: data.ncon]:
            first, second = (mj.geom(int(geom)).name for geom in contact.geom)
            if "ground" in first:
                pairs.append((first, second))
                depths.append(float(contact.dist))
        return np.zeros(1)

    mujoco_model.engine.evaluate(state[None], MujocoParameters().to_matrix(1), read)
    return pairs, depths


@pytest.mark.parametrize("name", TERRAINS)
def test_the_normal_is_that_of_the_heights(name: str) -> None:
    """By differences of 0.1 um, within cells and beyond the rim."""
    terrain, step, scale = TERRAINS[name], 1e-7, 1.5
    x, y = np.random.default_rng(0).uniform(-5.0, 5.0, (2, 200))
    rise = [
        (terrain.height(x + dx, y + dy, scale) - terrain.height(x - dx, y - dy, scale)) / (2 * step)
        for dx, dy in ((step, 0.0), (0.0, step))
    ]
    normal = terrain.normal(x, y, scale)
    np.testing.assert_allclose(-normal[:, :2].T / normal[:, 2], rise, rtol=0, atol=1e-6)
    np.testing.assert_allclose((normal**2).sum(axis=1), 1.0, rtol=1e-12)
    assert np.isnan(terrain.normal(np.array(np.nan), np.array(0.0))).any()
