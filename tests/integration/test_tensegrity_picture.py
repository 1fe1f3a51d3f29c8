"""The tensegrity's picture: rods, caps, cables and ground where the state says, and keys that roll it where they point."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.errors import ShapeError
from softgym_envs.rendering import PygameRenderer
from softgym_envs.rendering.colors import SLACK, tension_colors
from softgym_envs.rendering.ground import ground_mesh
from softgym_envs.rendering.scene import Arrow, GroundGrid, Segment, Sphere
from softgym_envs.rendering.teleop import ramp
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import prism, superball
from softgym_envs.systems.tensegrity.picture import PICTURE, tensegrity_scene
from softgym_envs.systems.tensegrity.terrain import Terrain


def resting(model):
    return model.place_on_ground(model.state_from_nodes(model.nodes))


def superball_scene(model=None, **keywords):
    model = model or superball()
    return tensegrity_scene(model, resting(model), np.linspace(0.0, 2000.0, model.num_cables), max_tension=2000.0, **keywords)


@pytest.mark.parametrize("terrain", [Terrain.steps(), Terrain.rubble(seed=3), Terrain.slope(0.2)])
def test_the_drawn_ground_is_the_ground_of_the_physics(terrain):
    scene = superball_scene(superball(terrain=terrain), terrain_scale=1.5)
    ground = next(p for p in scene.primitives if isinstance(p, GroundGrid))
    mesh = ground_mesh(ground)
    drawn = [p for i in range(0, len(mesh.x) - 1, 3) for p in _sides(mesh, i)]
    middle = np.array([0.5 * (a + b) for a, b in drawn])
    np.testing.assert_allclose(middle[:, 2], terrain.height(middle[:, 0], middle[:, 1], 1.5), atol=1e-9)


def _sides(mesh, i):
    """Edges of quads along x: straight lines in the picture, and so in a ground that bends at grid lines only."""
    return [(mesh.points[i, j], mesh.points[i + 1, j]) for j in range(len(mesh.y))]


def test_rubble_is_seen():
    """The ground of the first level beside the same one made even: a tenth of the picture differs by 5 grey levels."""
    env = gym.make("softgym_envs:TensegrityTerrain-v0").unwrapped
    renderer = PygameRenderer((160, 120))
    for seed in range(3):
        env.reset(seed=seed, options={"level": 1.0})
        model, given = env.simulator.model, {"max_tension": 2000.0}
        lying = env.state
        rough, even = (
            renderer.rgb(tensegrity_scene(model, lying, np.zeros(model.num_cables), terrain_scale=scale, **given))
            for scale in (1.0, 0.0)
        )
        assert (np.abs(rough.astype(float) - even).mean(axis=-1) > 5.0).mean() > 0.1


def test_grid_and_arrows_are_as_large_as_the_robot():
    """One of a tenth of the size, and as slow: a like number of grid lines, arrows of the same share of the picture."""
    seen = []
    for size in (1.0, 0.1):
        model = prism(rod_length=size)
        speed = np.array([0.1 * size, 0.0, 0.0])
        scene = tensegrity_scene(model, resting(model), np.zeros(model.num_cables), max_tension=1.0, velocity=speed)
        (ground,) = (part for part in scene.primitives if isinstance(part, GroundGrid))
        (command, *_) = (part for part in scene.primitives if isinstance(part, Arrow))
        seen.append((ground.radius / ground.spacing, np.linalg.norm(command.end - command.start) / scene.extent))
    (lines, arrow), (few, short) = seen
    assert 0.4 < lines / few < 2.5 and arrow == pytest.approx(short, rel=0.2) and arrow > 0.2


def test_slack_cables_are_dashed_and_gray_and_tight_ones_are_not():
    model = superball()
    tensions = np.full(model.num_cables, 500.0)
    tensions[[3, 7]] = 0.0
    bars = [
        p for p in tensegrity_scene(model, resting(model), tensions, max_tension=2000.0).primitives if isinstance(p, Segment)
    ]
    cables = [bar for bar in bars if bar.width < 2 * model.rod_radius]
    assert [i for i, cable in enumerate(cables) if cable.dashed] == [3, 7]
    assert {cable.color for cable in cables if cable.dashed} == {SLACK}
    assert {cable.color for cable in cables if not cable.dashed} == {tuple(tension_colors(np.array([0.25]))[0].tolist())}


def test_rods_and_caps_are_where_the_state_says():
    model = prism()
    state = model.move(resting(model), rotation=np.array([0.3, 0.2, 0.9]), translation=np.array([3.0, -1.0, 0.4]))
    scene = superball_scene_of(model, state)
    centers = np.array([p.center for p in scene.primitives if isinstance(p, Sphere)])
    np.testing.assert_allclose(centers, model.node_positions(state))


def superball_scene_of(model, state):
    return tensegrity_scene(model, state, np.ones(model.num_cables), max_tension=2000.0)


@pytest.mark.parametrize(
    "bad, error",
    [
        ({"state": np.zeros(5)}, "state has shape"),
        ({"tensions": np.zeros(3)}, "tensions has shape"),
        ({"goal": np.zeros(2)}, "goal has shape"),
    ],
)
def test_bad_arguments_of_a_scene(bad, error):
    model = superball()
    arguments = {"state": resting(model), "tensions": np.zeros(24), **bad}
    with pytest.raises(ShapeError, match=error):
        tensegrity_scene(model, max_tension=1.0, **arguments)


def test_heading_turns_with_the_robot():
    model, angle = superball(), 1.1
    state = model.move(resting(model), rotation=np.array([0.4, -0.2, 0.7]))
    turned = model.move(state, rotation=np.array([0.0, 0.0, angle]))
    heading = np.array([0.6, 0.8])
    c, s = np.cos(angle), np.sin(angle)
    np.testing.assert_allclose(
        PICTURE.heading_action(model, state, heading),
        PICTURE.heading_action(model, turned, np.array([[c, -s], [s, c]]) @ heading),
        atol=1e-12,
    )


def test_arrows_roll_the_superball_where_they_point():
    """In 4 s it must leave its own footprint, i.e. go farther than half a rod, towards each of six headings."""
    simulator = TensegritySimulator()
    model, angles = simulator.model, np.pi / 3 * np.arange(6) + 0.2
    headings = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    states = np.tile(resting(model), (6, 1))
    start, actions = model.center_of_mass(states), np.zeros((6, 24))
    for _ in range(40):
        wanted = np.array(
            [PICTURE.heading_action(model, state, heading) for state, heading in zip(states, headings, strict=True)]
        )
        actions = ramp(actions, wanted, 0.1)
        states, status = simulator.step(states, 100.0 * actions, substeps=100)
        assert not status.any()
    moved = (model.center_of_mass(states) - start)[:, :2]
    assert ((moved * headings).sum(axis=1) > 0.5 * model.rod_lengths.max()).all()
