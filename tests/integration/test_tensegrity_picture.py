"""The tensegrity's picture: rods, caps, cables and ground where the state says, and keys that roll it where they point. The
vine's picture: tube, tip and obstacles where the state says, keys that bend it where they point, tracked points. The loop's
picture: the force on the clamp is what holds the loop there. The pictures of block and particles, and keys that push them
where they point."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import ShapeError
from softgym_envs.engines.mujoco.mjcf import NoParameters
from softgym_envs.envs.drawing import scene_of
from softgym_envs.rendering import PygameRenderer, default_camera
from softgym_envs.rendering.colors import FORCE, OBSTACLE, RING, SLACK, TUBE, as_color, tension_colors
from softgym_envs.rendering.ground import ground_mesh
from softgym_envs.rendering.scene import Arrow, GroundGrid, Marker, Prism, Segment, Sphere
from softgym_envs.rendering.teleop import ramp
from softgym_envs.systems.loop.bend import PERIOD, TIME
from softgym_envs.systems.loop.build import held
from softgym_envs.systems.loop.model import LoopModel
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.picture import clamp_force, loop_scene
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.model import BlockModel, ParticleModel
from softgym_envs.systems.rigid.picture import BLOCK, HEIGHT, PARTICLES, block_scene
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import prism, superball
from softgym_envs.systems.tensegrity.picture import PICTURE, tensegrity_scene
from softgym_envs.systems.tensegrity.terrain import Terrain
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.obstacles import circle, rectangle
from softgym_envs.systems.vine.picture import NO_FORCES, vine_scene
from softgym_envs.systems.vine.picture import PICTURE as VINE_PICTURE


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


def kinds(scene, kind, color=None):
    return [
        part
        for part in (*scene.primitives, *scene.overlay)
        if isinstance(part, kind) and (color is None or part.color == color)
    ]


def test_the_tube_ends_at_the_tip_and_obstacles_are_drawn():
    model = VineModel(obstacles=(circle(0.6, 0.2, 0.05), rectangle(0.5, -0.3, 0.1, 0.1)))
    state = model.straight_state(0.5, 1.0)
    scene = vine_scene(model, state, NO_FORCES, goal=np.array([0.7, 0.0, 0.0]))
    balls = kinds(scene, Sphere, TUBE)
    np.testing.assert_allclose(balls[-1].center[:2], model.tip(state)[:2], atol=1e-9)
    np.testing.assert_allclose(VINE_PICTURE.followed(model, state)[:2], model.tip(state)[:2])
    assert all(ball.radius == model.radius for ball in balls)
    assert len(kinds(scene, Prism, OBSTACLE)) == 2 and len(kinds(scene, Marker)) == 1 and not kinds(scene, Arrow)


def test_length_and_pressures_are_seen():
    """A ring every 0.1 m says the length; muscles have the colours of their pressures, left and right."""
    model = VineModel()
    state = model.straight_state(0.85)
    pressure = model.split(state).pressure.reshape(-1, 2)
    pressure[0], pressure[1] = [model.max_steering, 0.0], [0.0, 0.5 * model.max_steering]
    scene = vine_scene(model, state, NO_FORCES)
    assert scene.legend.note == "a ring every 10 cm" and len(kinds(scene, Segment, RING)) == 8
    for section, (left, right) in enumerate(pressure / model.max_steering):
        first = int(np.flatnonzero(model.section_of_joint == section)[0])
        for share, side in ((left, 1.0), (right, -1.0)):
            place = model.points(state)[first] + np.array([0.0, 0.8 * side * model.radius])
            (muscle,) = (part for part in kinds(scene, Segment) if np.allclose(part.start[:2], place))
            assert muscle.color == as_color(tension_colors(np.array([share]))[0])


def test_a_robot_that_leans_on_an_obstacle_shows_the_force():
    model = VineModel(obstacles=(circle(0.55, 0.0, 0.05),))
    simulator = VineSimulator(model)
    state = model.straight_state(0.51 - model.radius + 0.004)
    arrows = kinds(VINE_PICTURE.scene(simulator, state, {}, simulator.default_parameters), Arrow)
    assert len(arrows) >= 1 and all(arrow.start[0] > arrow.end[0] for arrow in arrows)  # it pushes the robot back


@pytest.mark.parametrize("heading, sign", [((0.0, 1.0), 1.0), ((0.0, -1.0), -1.0), ((1.0, 0.0), 0.0)])
def test_keys_bend_towards_the_heading_and_grow(heading, sign):
    model = VineModel()
    action = VINE_PICTURE.heading_action(model, model.straight_state(0.4), np.array(heading))
    assert action[0] == 1.0 and VINE_PICTURE.rest_action(model)[0] == -1.0
    np.testing.assert_allclose(np.sign(np.round(action[1:], 9)), sign)


def test_tracked_points_lie_over_the_fitted_tube_and_lost_ones_are_left_out():
    model = VineModel(obstacles=(circle(0.6, 0.2, 0.05),))
    fitted = np.column_stack([np.linspace(0.0, 0.4, 5), np.zeros(5)])
    measured = fitted + 0.01
    measured[2] = np.nan
    scene = VINE_PICTURE.overlay(model, fitted, measured)
    assert len(kinds(scene, Segment, TUBE)) == 4 and len(kinds(scene, Prism, OBSTACLE)) == 1 and scene.legend is None
    np.testing.assert_allclose([dot.center[:2] for dot in kinds(scene, Sphere, FORCE)], measured[[0, 1, 3, 4]])


def test_goals_are_in_view_and_range_readings_end_where_they_say():
    """The goal is within the picture's half height of its middle; rays begin at the tip and are as long as the readings."""
    env = gym.make("softgym_envs:VineSqueeze-v0").unwrapped
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        hints = env.task.draw_hints(env.context)
        scene = vine_scene(env.simulator.model, env.state, NO_FORCES, **hints)
        assert np.abs(hints["goal"][:2] - scene.look_at[:2])[1] < scene.extent
        rays = hints["rays"]
        np.testing.assert_allclose(rays[:, 0, :2], np.tile(env.simulator.model.tip(env.state)[:2], (len(rays), 1)), atol=1e-9)
        np.testing.assert_allclose(np.linalg.norm(rays[:, 1] - rays[:, 0], axis=1), observation[-len(rays) :], atol=1e-6)


def test_the_force_on_the_clamp_is_that_of_statics():
    """At rest the loop's weight is carried by hand and clamp: the multipliers of the rest are the forces."""
    model = held(LoopModel())
    found = model.mechanism.rest(model.rest_state()[None, : model.n], model.hold[None], model.defaults)
    statics = found.multipliers[0, :3] + found.multipliers[0, 6:9]
    np.testing.assert_allclose(clamp_force(model, model.rest_state(), LoopParameters()), statics, rtol=1e-4, atol=1e-4)
    lifted, _ = model.relax(np.array([model.start]) + np.array([0.0, -0.05, 0.0, 0.0, 0.0, 0.0, 0.0]), model.defaults[None])
    pulled = clamp_force(model, np.pad(lifted[0], (0, model.n)), LoopParameters())
    assert pulled[2] > statics[2] + 0.5  # who lifts the hand pulls the clamp up
    open_chain = np.pad(lifted[0], (0, model.n))
    open_chain[10] += 0.02  # as a rod's polygon is, a little
    np.testing.assert_array_equal(clamp_force(model, open_chain, LoopParameters()), np.zeros(3))


def test_scenes_show_force_goal_and_peg():
    model = held(LoopModel())
    lifted, _ = model.relax(np.array([model.start]) + np.array([0.1, -0.05, 0.0, 0.0, 0.0, 0.0, 0.0]), model.defaults[None])
    state = np.pad(lifted[0], (0, model.n))
    parts = loop_scene(model, state, LoopParameters(), goal=np.array([0.5, 0.5, 0.0])).overlay
    assert any(getattr(part, "color", None) == FORCE for part in parts)
    env = gym.make("softgym_envs:LoopPeg-v0", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().std() > 5.0


def test_the_profile_that_is_to_be_bent_along_is_drawn_over_the_hand():
    """From where the hand starts to its place in the middle of a period, half a period of the goal's own way."""
    env = gym.make("softgym_envs:LoopBend-v0").unwrapped
    env.reset(seed=0)
    task, context = env.task, env.context
    way = task.draw_hints(context)["way"]
    np.testing.assert_allclose(way[0], task.draw_hints(context)["goal"], atol=1e-9)
    context[TIME] = 0.5 * context[PERIOD]
    np.testing.assert_allclose(way[-1], task.draw_hints(context)["goal"], atol=1e-9)
    assert np.linalg.norm(way[-1] - way[0]) > 0.01
    shown, bare = (PygameRenderer().rgb(scene_of(env.simulator, env.state, hints)) for hints in ({"way": way}, {}))
    changed = (shown != bare).any(axis=-1)
    camera = default_camera(scene_of(env.simulator, env.state))
    pixels = np.round(camera.project(way, (640, 480))[0]).astype(int)
    assert changed[pixels[:, 1], pixels[:, 0]].all()


def test_pictures_show_block_string_and_goal():
    simulator = BlockSimulator()
    scene = scene_of(simulator, np.zeros(6), {"pose": np.array([0.3, 0.1, 0.5])})
    (block,) = [p for p in scene.primitives if isinstance(p, Prism)]
    np.testing.assert_allclose(np.ptp(block.outline, axis=0), [0.2, 0.2])
    centers = [p.center[:2].tolist() for p in scene.primitives if isinstance(p, Sphere)]
    assert list(simulator.model.pulley) in centers
    for point in simulator.model.supports:
        assert any(np.allclose(point, c) for c in centers)
    image = PygameRenderer(mode="rgb_array", size=(160, 120)).draw(scene)
    assert image.shape == (120, 160, 3) and np.ptp(image) > 50
    particles = ParticleSimulator(ParticleModel(3))
    balls = [p for p in scene_of(particles, particles.initial_state()[0]).primitives if isinstance(p, Sphere)]
    assert len(balls) == 3
    with pytest.raises(ShapeError, match="pose"):
        block_scene(simulator.model, np.zeros(6), pose=np.zeros(2))


@pytest.mark.parametrize("tilts", [(0.3, 0.0), (0.0, -0.3), (-0.25, 0.25)])
def test_a_table_that_is_not_level_falls_where_the_block_slides(tilts: tuple[float, float]):
    simulator = BlockSimulator(BlockModel(pulley=None))
    parameter_values = simulator.default_parameters.replace(friction=0.1, tilt_x=tilts[0], tilt_y=tilts[1])
    state = np.array([0.2, -0.1, 0.4, 0.0, 0.0, 0.0])
    slid = simulator.rollout(state[None], np.zeros((1, 30, 2)), parameter_values)[0][0, -1, :2] - state[:2]
    way = slid / np.linalg.norm(slid)
    scene = scene_of(simulator, state, {"pose": np.array([0.5, 0.1, 0.5])}, parameters=parameter_values)
    (ground,) = [p for p in scene.primitives if isinstance(p, GroundGrid)]
    (block,) = [p for p in scene.primitives if isinstance(p, Prism)]
    assert ground.height(*way) < ground.height(0.0, 0.0) - 0.2 and block.floor is ground.height
    downhill = next(p for p in scene.primitives if isinstance(p, Arrow))
    along = (downhill.end - downhill.start)[:2]
    np.testing.assert_allclose(along / np.linalg.norm(along), way, atol=0.02)
    for ball in (p for p in scene.primitives if isinstance(p, Sphere)):
        assert ball.center[2] == pytest.approx(ground.height(*ball.center[:2]) + HEIGHT)
    without = scene_of(simulator, state, parameters=NoParameters())
    assert len([p for p in without.primitives if isinstance(p, Arrow)]) == 1  # where the block's front is


def test_a_pushed_block_goes_where_the_arrow_points():
    """From rest, however it is turned, the handle's side of the block goes along the heading first."""
    env = gym.make("SlidingBlock-v0").unwrapped
    env.reset(seed=0)
    model, heading = env.simulator.model, np.array([0.6, -0.8])
    for theta in (0.0, 1.0, -2.5):
        state = np.array([0.1, -0.2, theta, 0.0, 0.0, 0.0])
        control = env.task.scale_action(BLOCK.heading_action(model, state, heading)[None])
        after = env.simulator.step(state[None], control, env.episodes.parameters, substeps=5)[0][0]
        assert np.dot(model.to_table(after, model.handle) - model.to_table(state, model.handle), heading) > 0
        np.testing.assert_allclose(BLOCK.followed(model, state), [0.1, -0.2, 0.0])


def test_particles_are_followed_and_pushed_along_their_planes():
    simulator = ParticleSimulator(ParticleModel(3))
    state = simulator.initial_state()[0]
    state[::4] = 0.3, 0.6, 0.9
    scene, point = scene_of(simulator, state), PARTICLES.followed(simulator.model, state)
    balls = [p.center for p in scene.primitives if isinstance(p, Sphere)]
    np.testing.assert_allclose(point, np.mean(balls, axis=0), atol=1e-12)
    assert np.linalg.norm(point - scene.look_at) < scene.extent  # also before they fall
    control = PARTICLES.heading_action(simulator.model, state, np.array([-0.6, 0.8]))[None]
    after = simulator.step(state[None], control)[0][0]
    assert (after[2::4] < 0).all()
