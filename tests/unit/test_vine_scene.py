"""Vine robots and obstacles: geometry against dense sampling, files, bad input."""

import numpy as np
import pytest

from softgym_envs.core.errors import FileFormatError, OptionError, ParameterError, StructureError
from softgym_envs.systems.vine import VineModel, circle, load_scene, polygon, rectangle
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.layouts import Clutter
from softgym_envs.systems.vine.mujoco import MujocoVine, MujocoVineParameters
from softgym_envs.systems.vine.obstacles import Polygon, outline, to_local
from softgym_envs.systems.vine.parameters import VineParameters

SCENE = """
[robot]
num_links = 20
max_length = 1.0
base = [0.1, 0.2, 0.3]
[[obstacles]]
circle = { center = [0.5, 0.1], radius = 0.06 }
[[obstacles]]
rectangle = { center = [0.8, 0.0], size = [0.1, 0.3], angle = 0.2 }
[[obstacles]]
polygon = { points = [[0.0, 0.3], [0.2, 0.3], [0.1, 0.5]] }
[[obstacles]]
wall = { point = [1.0, 0.0], angle = 3.14159 }
"""


@pytest.mark.parametrize(
    "obstacle", [circle(0.1, 0.2, 0.3), rectangle(0.1, 0.2, 0.4, 0.2, 0.5), polygon(((0, 0), (1, 0), (0, 1)))]
)
def test_distance_is_that_to_the_nearest_point_of_the_outline(obstacle):
    """Outside: the least distance to 20 000 points of the rim; inside: minus that."""
    pose = np.array([obstacle.x, obstacle.y, obstacle.angle])
    corners = outline(obstacle.shape, pose)
    if not isinstance(obstacle.shape, Polygon):
        angles = np.linspace(0, 2 * np.pi, 20000)
        rim = pose[:2] + obstacle.shape.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    else:
        share = np.linspace(0, 1, 5000)[:, None]
        rim = np.concatenate([a * (1 - share) + b * share for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True)])
    points = pose[:2] + np.random.default_rng(0).uniform(-0.8, 0.8, (200, 2))
    distance = obstacle.shape.distance(to_local(points, pose))
    nearest = np.linalg.norm(points[:, None] - rim, axis=2).min(axis=1)
    np.testing.assert_allclose(np.abs(distance), nearest, atol=3e-4)
    centre = corners.mean(axis=0)
    assert obstacle.shape.distance(to_local(centre, pose)) < 0 < obstacle.shape.distance(to_local(centre + 5.0, pose))


def test_clearance_is_that_of_dense_points_along_the_tube():
    corners = ((0.6, -0.3), (0.8, -0.2), (0.6, -0.1))
    model = VineModel(obstacles=(circle(0.55, 0.12, 0.06), polygon(corners), rectangle(0.5, -0.2, 0.1, 0.004, 0.3)))
    states = np.stack([model.straight_state(0.9, bend) for bend in np.linspace(-3, 3, 40)])
    axis = model.points_along(states, np.linspace(0, 0.9, 4000))
    dense = np.min(
        [o.shape.distance(to_local(axis, p)).min(axis=1) for o, p in zip(model.obstacles, model.poses, strict=True)], axis=0
    )
    exact = model.clearance(states) + model.radius
    clear = dense > 0.001
    np.testing.assert_allclose(exact[clear], dense[clear], atol=1e-4)
    assert (exact[~clear] < 0.0012).all() and 5 < clear.sum() < 35


def test_joints_tip_and_stations_are_one_curve():
    model = VineModel(base=(0.1, -0.2, 0.4))
    state = model.straight_state(0.777, curvature=2.0)
    points = model.points(state)
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert steps.sum() == pytest.approx(0.777, abs=1e-12)
    np.testing.assert_allclose(model.points_along(state, np.cumsum(steps)), points[1:], atol=1e-12)
    np.testing.assert_allclose(model.tip(state)[:2], points[-1])
    # An arc of curvature 2 from the base: chord and heading of a circle, to second order in the links.
    np.testing.assert_allclose(model.tip(state)[2], 0.4 + 2.0 * 0.777, atol=2.0 * 2 * model.link_length)
    radius, angle = 0.5, 2.0 * 0.777
    arc = radius * np.array([np.sin(angle), 1 - np.cos(angle)])
    turned = np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]]) @ arc + (0.1, -0.2)
    np.testing.assert_allclose(points[-1], turned, atol=2e-3)


def test_a_link_divides_without_a_jump():
    model = VineModel(num_links=10, max_length=1.0)
    lengths = np.array([0.39999999, 0.4, 0.45, 1.0, 0.1])
    assert model.num_active(lengths).tolist() == [3, 4, 4, 10, 1]
    assert model.num_active(np.nextafter(0.3, 0)).tolist() == 3  # rounding of n l does not lose a link
    state = model.straight_state(0.35, 1.0)
    near = np.stack([state, state])
    near[:, 20] = (0.4 - 1e-7, 0.4)
    np.testing.assert_allclose(*model.points(near)[:, -1], atol=2e-7)


def test_a_scene_file_is_read(tmp_path):
    path = tmp_path / "scene.toml"
    path.write_text(SCENE)
    model = load_scene(path)
    assert model.num_links == 20 and model.base == (0.1, 0.2, 0.3)
    assert [type(o.shape).__name__ for o in model.obstacles] == ["Circle", "Polygon", "Polygon", "Wall"]
    corners = outline(model.obstacles[1].shape, model.poses[1])
    np.testing.assert_allclose(np.linalg.norm(np.diff(corners, axis=0), axis=1), [0.1, 0.3, 0.1], atol=1e-12)
    assert (VineSimulator(model).rollout(VineSimulator(model).initial_state(), np.full((1, 3, 5), 0.05))[1] == 0).all()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "[[obstacles]]\ncircle = { center = [0.5], radius = 0.06 }",
            FileFormatError,
            r"obstacle 0: circle: center is \[0.5\], expected a list of 2",
        ),
        ("[[obstacles]]\ncircle = { center = [0.5, 0.1], radius = -1 }", StructureError, "radius of a circle is -1"),
        ("[[obstacles]]\nblob = { radius = 1 }", FileFormatError, "circle, rectangle, wall, polygon"),
        ("[[obstacles]]\ncircle = { radius = 1 }", FileFormatError, "circle: center is missing; needed are center, radius"),
        ("[[obstacles]]\npolygon = { points = [[0, 0], [0, 1], [1, 0]] }", StructureError, "counter-clockwise"),
        ("[[obstacles]]\npolygon = { points = [[0, 0], [1, 0], [0.1, 0.1], [0, 1]] }", StructureError, "convex"),
        ("[robot]\nnum_links = 0", StructureError, r"scene.toml: num_links is 0, expected a whole number in \[1, 2000\]"),
        ("[robot]\ninitial_length = 9.0", StructureError, "initial_length is 9.0"),
        ("[robot]\ncolour = 1", FileFormatError, "'colour'; allowed are num_links"),
        ("[robot]\nradius = nan", FileFormatError, "radius is nan"),
        ("base = 3", FileFormatError, "unknown entry 'base'"),
        ("[robot", FileFormatError, "not valid TOML"),
    ],
)
def test_bad_scenes(tmp_path, text, error, message):
    (tmp_path / "scene.toml").write_text(text)
    with pytest.raises(error, match=message):
        load_scene(tmp_path / "scene.toml")


def test_bad_simulators_and_constants():
    with pytest.raises(OptionError, match="bending is 'soft'"):
        VineSimulator(bending="soft")
    with pytest.raises(OptionError, match="dt is 0"):
        VineSimulator(dt=0)
    with pytest.raises(ParameterError, match="bending_stiffness = -1"):
        VineParameters(bending_stiffness=-1.0)
    with pytest.raises(ParameterError, match="takes VineParameters"):
        simulator = VineSimulator()
        simulator.step(simulator.initial_state(), np.zeros((1, 5)), MujocoVineParameters())


def test_the_mujoco_models_tube_overlaps_by_what_its_page_says():
    """Random actions in clutter: half of the states that touch below 0.5 mm, nine of ten below 2 mm; ours below 0.1 mm."""
    layout = Clutter(curvature=1.5)
    model = layout.furnish(VineModel())
    poses = layout.draw(model, [np.random.default_rng(seed) for seed in range(16)], 3.0).poses
    for simulator, half, most in ((VineSimulator(model), 0.05, 0.1), (MujocoVine(model), 0.5, 2.0)):
        state = simulator.initial_state(16)
        model.split(state).obstacles[:] = poses
        controls = np.repeat(np.random.default_rng(1).uniform(*simulator.control_bounds, (16, 8, model.nu)), 5, axis=1)
        states, status = simulator.rollout(state, controls, substeps=round(0.1 / simulator.dt))
        depth = -1e3 * model.clearance(states[:, 1:])
        touching = depth[depth > -0.01]
        assert (status == 0).all() and len(touching) > 30
        assert np.percentile(touching, 50) < half and np.percentile(touching, 90) < most
