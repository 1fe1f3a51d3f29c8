"""What the tensegrity tasks mean: observations against geometry, rewards, success, options, where episodes begin."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from helpers import actions_of, load_script

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core import lie
from softgym_envs.core.errors import OptionError, ParameterError, ShapeError, StructureError
from softgym_envs.envs.episodes import Episodes
from softgym_envs.systems import system
from softgym_envs.systems.tensegrity.build import uneven_ground
from softgym_envs.systems.tensegrity.controllers import CONTROLLERS
from softgym_envs.systems.tensegrity.features import COM, HEADING, RowFeatures
from softgym_envs.systems.tensegrity.model import prism, superball
from softgym_envs.systems.tensegrity.poses import StartSpread, kept_starts, stable_faces
from softgym_envs.systems.tensegrity.task_kernels import FRAME_NAMES, HEIGHT
from softgym_envs.systems.tensegrity.terrain import Terrain

IDS = ROLL, CRAWL, WAYPOINT, TERRAIN = [entry.id for entry in system("tensegrity").tasks]


@pytest.mark.parametrize("level", [1.0, 3.0])
def test_the_ridge_stands_across_the_way_and_is_as_high_as_its_level(level):
    ridge, y = uneven_ground("ridge"), np.linspace(-1.2, 1.2, 25)
    highest = [ridge.height(np.linspace(0.0, 4.0, 401), np.full(401, place), level).max() for place in y]
    np.testing.assert_allclose(highest, level, rtol=0.02)
    x = np.linspace(-1.0, 6.0, 71)
    assert not ridge.height(x, 2.0 + 0.0 * x).any() and not ridge.height(np.full(25, 0.8), y).any()  # beside and before it


def test_straight_on_ends_at_the_ridge_and_a_detour_gets_past_it():
    envs = gym.make_vec(TERRAIN, num_envs=10, ground="ridge", heading=0.0, level=3).unwrapped
    found, detour = {}, load_script("experiments/hard_settings.py").detour(envs)
    for name, act in (("straight", CONTROLLERS[TERRAIN]["heuristic"](envs)), ("detour", detour)):
        observation, _ = envs.reset(seed=900)
        for _ in range(99):
            observation, *_, info = envs.step(act(observation))
        found[name] = info["is_success"].sum()
    assert found["straight"] == 0 and found["detour"] >= 7


# --- Keywords and options ---------------------------------------------------------------------------------------------


def test_tasks_take_their_options():
    env = gym.make(ROLL).unwrapped
    env.reset(seed=0, options={"velocity": [0.0, -2.0]})
    np.testing.assert_allclose(env.task.draw_hints(env.context)["velocity"], [0.0, -2.0, 0.0], atol=1e-15)
    env = gym.make(WAYPOINT).unwrapped
    env.reset(seed=0, options={"goal": [[3.0, 4.0], [5.0, 6.0]]})
    np.testing.assert_array_equal(env.task.draw_hints(env.context)["goal"], [3.0, 4.0, 0.0])
    env = gym.make(TERRAIN).unwrapped
    heights = []
    for level in (0.0, 2.0):
        env.reset(seed=0, options={"level": level})
        heights.append(
            [
                o
                for o, e in zip(env.reset(seed=0, options={"level": level})[0], env.task.entries, strict=True)
                if "ground" in e.name
            ]
        )
        assert env.episodes.parameter_values[0, env.episodes.nominal.index("terrain_scale")] == level
    assert np.abs(heights[0]).max() == 0 and np.abs(heights[1]).max() > 1e-3
    assert {gym.make(TERRAIN, ground=g).reset(seed=0)[0].shape for g in ("rubble", "steps", "slope", "ridge")} == {(111,)}
    assert gym.make(ROLL, target_speed=(0.5, 1.5), heading=None).unwrapped.reset(seed=0)


def test_headings_and_speeds_are_drawn():
    envs = gym.make_vec(ROLL, num_envs=32, target_speed=(0.5, 1.5), heading=None).unwrapped
    envs.reset(seed=0)
    velocity = np.array([envs.task.draw_hints(c)["velocity"] for c in envs.context])
    speed = np.linalg.norm(velocity, axis=1)
    assert 0.5 <= speed.min() < 0.8 and 1.2 < speed.max() <= 1.5
    assert (np.abs(velocity[:, :2].mean(axis=0)) < 5 / np.sqrt(2 * 32)).all()


@pytest.mark.parametrize(
    ("env_id", "keywords", "error", "message"),
    [
        (CRAWL, {"gravity": "moon"}, OptionError, "gravity is 'moon'"),
        (CRAWL, {"actuated": ()}, OptionError, "actuated is empty"),
        (CRAWL, {"actuated": "678"}, StructureError, r"actuated holds '6', expected numbers of cables, 0 \.\.\. 8"),
        (CRAWL, {"actuated": (6.5,)}, StructureError, "actuated holds 6.5"),
        (WAYPOINT, {"num_waypoints": 2.5}, OptionError, r"num_waypoints is 2.5, expected a whole number in \[1, 1000\]"),
        (WAYPOINT, {"radius": 0}, OptionError, "radius is 0"),
        (WAYPOINT, {"leg": (0.0, 1.0)}, OptionError, "leg is 0"),
        (TERRAIN, {"ground_seed": "a"}, OptionError, "ground_seed is 'a'"),
        (TERRAIN, {"averaging_time": -1.0}, OptionError, "averaging_time is -1.0"),
        (ROLL, {"averaging_time": "a"}, OptionError, "averaging_time is 'a'"),
        (CRAWL, {"averaging_time": 1e9}, OptionError, r"averaging_time is .*, expected a number \[s\] in \[0, 60\]"),
        (ROLL, {"target_speed": 1e9}, OptionError, "target_speed is .* expected 0 <= low <= high <= 10"),
        (TERRAIN, {"level": 4}, OptionError, r"level is 4, expected a number in \[0, 3\]"),
    ],
)
def test_bad_keywords_of_one_task(env_id, keywords, error, message):
    with pytest.raises(error, match=message):
        gym.make(env_id, **keywords)


@pytest.mark.parametrize(
    ("env_id", "options", "error", "message"),
    [
        (ROLL, {"colour": 1}, OptionError, "unknown option 'colour'; allowed are state, parameters, velocity"),
        (ROLL, {"level": 1}, OptionError, "'level'"),
        (ROLL, {"velocity": [1.0, 2.0, 3.0]}, OptionError, "'velocity'"),
        (ROLL, {"velocity": [np.nan, 0.0]}, OptionError, "'velocity'"),
        (ROLL, {"velocity": [1e9, 0.0]}, OptionError, "'velocity' is .* <= 10"),
        (ROLL, {"state": np.zeros(3)}, ShapeError, r"option 'state' has shape \(3,\), expected \(102"),
        (ROLL, {"state": np.full(102, np.nan)}, ShapeError, "option 'state' holds NaN"),
        (ROLL, {"parameters": {"colour": 1.0}}, ParameterError, "'colour'"),
        (ROLL, {"parameters": {"rod_mass": -1.0}}, ParameterError, "rod_mass"),
        (ROLL, {"parameters": {"rod_mass": [1.0, 2.0]}}, ShapeError, "'rod_mass'"),
        (ROLL, {"parameters": 3}, OptionError, "'parameters' is 3"),
        (WAYPOINT, {"goal": np.zeros((9, 2))}, OptionError, "9 waypoints, at most 3"),
        (WAYPOINT, {"goal": "there"}, OptionError, "'goal' is 'there'"),
        (TERRAIN, {"level": 9}, OptionError, "level is 9"),
    ],
)
def test_bad_options(env_id, options, error, message):
    env = gym.make(env_id)
    with pytest.raises(error, match=message):
        env.reset(seed=0, options=options)
    env.reset(seed=0, options=None)
    env.reset(seed=0, options={})


def test_a_users_structure_can_be_driven(tmp_path):
    model = prism()
    nodes = "\n".join(f"n{i} = {list(map(float, xyz))}" for i, xyz in enumerate(model.nodes))
    rods = "\n".join(f'[[rods]]\nnodes = ["n{2 * r}", "n{2 * r + 1}"]' for r in range(3))
    cables = "\n".join(f'[[cables]]\nnodes = ["n{a}", "n{b}"]' for a, b in model.cables)
    path = tmp_path / "robot.toml"
    path.write_text(f'name = "mine"\n[nodes]\n{nodes}\n{rods}\n{cables}\n')
    env = gym.make(ROLL, model=str(path))
    env.reset(seed=0)
    assert env.action_space.shape == (9,)
    assert np.isfinite(env.step(env.action_space.sample())[1])


# --- What is seen -----------------------------------------------------------------------------------------------------


def random_state(model, seed=0):
    """Any state: rods anywhere, turning and flying."""
    rng = np.random.default_rng(seed)
    state = model.state_from_nodes(model.nodes)[None]
    dx = rng.standard_normal((1, model.layout.n))
    return model.layout.retract(state, dx)


def test_observed_nodes_are_those_of_the_model():
    """Positions and velocities of the nodes, by the model's own geometry and by differences along the motion."""
    model = superball()
    state = random_state(model)
    angle = 0.7
    heading = np.array([[np.cos(angle), np.sin(angle)]])
    context = np.zeros((1, len(FRAME_NAMES)))
    context[:, HEADING], context[:, COM], context[:, HEIGHT] = heading, model.center_of_mass(state), 1.0
    out = RowFeatures(model).observer((), len(FRAME_NAMES))(state, context)
    observed = out[0, :72].reshape(12, 6)
    world_to_command = np.array([[np.cos(angle), np.sin(angle), 0], [-np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    nodes = model.node_positions(state)[0] - model.center_of_mass(state)
    np.testing.assert_allclose(observed[:, :3], nodes @ world_to_command.T, atol=1e-12)
    epsilon = 1e-6
    flow = np.zeros((2, model.layout.n))
    position, _, velocity, spin, _ = model.split(state[0])
    blocks = np.concatenate([velocity, spin, np.zeros_like(position), np.zeros_like(position)], axis=1).ravel()
    flow[:, : len(blocks)] = np.array([[-epsilon], [epsilon]]) * blocks
    ends = model.node_positions(model.layout.retract(np.repeat(state, 2, axis=0), flow))
    rates = (ends[1] - ends[0]) / (2 * epsilon)
    np.testing.assert_allclose(observed[:, 3:], rates @ world_to_command.T, atol=1e-7)
    assert out[0, 96] == 1.0


@pytest.mark.parametrize("env_id", [ROLL, CRAWL, WAYPOINT])
def test_a_robot_turned_with_its_command_sees_and_earns_the_same(env_id):
    env = gym.make(env_id).unwrapped
    env.reset(seed=0)
    task, model = env.task, env.simulator.model
    angle = 1.1
    c, s = np.cos(angle), np.sin(angle)
    goal = np.array([2.0, 1.0])
    option = "goal" if env_id == WAYPOINT else "velocity"
    state = env.state
    state[:3] += 0.1
    there = model.move(state, rotation=np.array([0.0, 0.0, angle]))
    center = model.center_of_mass(state)[:2]
    turned = np.array([c * goal[0] - s * goal[1], s * goal[0] + c * goal[1]])
    chosen = [goal + center, turned + center] if env_id == WAYPOINT else [goal, turned]
    results = []
    for x, g in zip((state, there), chosen, strict=True):
        observation, _ = env.reset(seed=0, options={"state": x, option: g})
        context = env.episodes.context
        moved = x[None].copy()
        later = task.update(context, moved)
        terms = task.reward(x[None], moved, np.zeros((1, model.nu)), context, later)
        results.append(np.concatenate([observation, [float(t[0]) for t in terms.values()]]))
    np.testing.assert_allclose(results[1], results[0], atol=2e-6)


def test_terrain_is_felt_where_it_is():
    env = gym.make(TERRAIN, heading=0.3, level=2.0).unwrapped
    observation, _ = env.reset(seed=3)
    ground = [o for o, e in zip(observation, env.task.entries, strict=True) if e.name.startswith("ground")]
    terrain = env.simulator.model.terrain
    x, y = env.simulator.model.center_of_mass(env.state)[:2]
    angles = 0.3 + np.deg2rad(45.0 * np.arange(8))
    expected = terrain.height(x + np.cos(angles), y + np.sin(angles), 2.0) - terrain.height(x, y, 2.0)
    np.testing.assert_allclose(ground, expected, atol=1e-6)


def test_flat_slope_level_is_an_inclined_plane():
    x = np.linspace(-9, 9, 7)
    inclined = Terrain.slope(np.deg2rad(8.0))
    np.testing.assert_allclose(uneven_ground("slope").height(x, 0.3 * x), inclined.height(x, 0.3 * x), atol=1e-12)


def test_pictures():
    env = gym.make(ROLL, render_mode="rgb_array")
    env.reset(seed=0)
    first, again = env.render(), env.render()
    assert first.dtype == np.uint8 and first.ndim == 3 and first is not again
    np.testing.assert_array_equal(first, again)
    env.step(np.ones(24))
    assert (env.render() != first).any()
    env.close()
    env.close()
    envs = gym.make_vec(CRAWL, num_envs=2, render_mode="rgb_array")
    envs.reset(seed=0)
    assert len(envs.render()) == 2
    envs.close()
    human = gym.make(CRAWL, render_mode="human")
    human.reset(seed=0)
    human.step(np.zeros(3))
    assert human.render() is None
    human.close()


# --- Where episodes begin ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_initial_states_are_random_and_at_rest_on_the_ground(env_id):
    envs = gym.make_vec(env_id, num_envs=24)
    envs.reset(seed=0)
    model, state = envs.unwrapped.simulator.model, envs.unwrapped.state
    assert (np.ptp(state, axis=0) > 0).all()
    scale = envs.unwrapped.episodes.parameter_values[:, envs.unwrapped.episodes.nominal.index("terrain_scale")]
    assert np.abs(model.clearance(state, scale[:, None])).max() < 0.03
    assert np.abs(model.com_velocity(state)).max() < 0.25
    # Different faces: the world's vertical, seen from rod 0, takes well separated directions.
    up = lie.rotate(lie.conjugate(state[:, 3:7]), np.array([0.0, 0.0, 1.0]))
    assert len(np.unique(np.round(up, 0), axis=0)) > 2


@pytest.mark.parametrize("env_id", [ROLL, CRAWL])
def test_kept_starts_are_settled_once_and_equal_settling_after_the_turn(env_id):
    """Without a push: the robot turned first and then settled by the simulator alone."""
    task = gym.make(env_id).unwrapped.task
    quiet = replace(task, spread=StartSpread(speed=0.0, place=0.3), num_kept=5)
    envs = gym.make_vec(env_id, num_envs=12).unwrapped
    episodes = Episodes(quiet, envs.simulator, [np.random.default_rng(k) for k in range(12)], envs.episodes.settings)
    episodes.reset(np.arange(12))
    assert len(episodes._kept) <= 5
    model, uniform = task.model, np.array([np.random.default_rng(k).random(4 + task.model.nu) for k in range(12)])
    first = kept_starts(model, task.faces, quiet.spread, 5)[(5 * uniform[:, 0]).astype(int)]
    at = [np.array([0.0, 0.0, 2 * np.pi * row[1]]) for row in uniform]
    first = np.array([_turned_about_the_vertical(model, state, turn) for state, turn in zip(first, at, strict=True)])
    model.split(first)[0][..., :2] += 0.3 * (2 * uniform[:, None, 2:4] - 1)
    steps = round(task.settle_time / envs.simulator.dt)
    motors = first[:, model.layout.slices[1]]
    settled, status = envs.simulator.step(first, motors, envs.episodes.nominal, substeps=steps)
    assert not status.any()
    assert np.abs(model.node_positions(settled) - model.node_positions(episodes.state)).max() < 1e-6
    assert np.abs(model.node_velocities(settled) - model.node_velocities(episodes.state)).max() < 1e-5


def _turned_about_the_vertical(model, state, turn):
    """A state (nx,) turned about the world's vertical through the origin."""
    center = model.center_of_mass(state)
    return model.move(state, rotation=turn, translation=lie.rotate(lie.exp(turn), center) - center)


def test_kept_starts_do_not_depend_on_earlier_episodes_nor_hold_for_other_parameters():
    envs = gym.make_vec(ROLL, num_envs=3).unwrapped
    first, _ = envs.reset(seed=7)
    envs.reset(seed=100)
    again, _ = envs.reset(seed=7)
    assert np.array_equal(first, again)
    heavy, _ = envs.reset(seed=7, options={"parameters": {"rod_mass": 20.0}})
    one, _ = gym.make(ROLL).reset(seed=8, options={"parameters": {"rod_mass": 20.0}})
    assert np.array_equal(heavy[1], one)
    assert not np.array_equal(heavy, first)


def test_stable_faces():
    """The icosahedron stands on all its 20 faces, in a triangle of nodes; the prism stands upright on both triangles."""
    model = superball()
    faces = stable_faces(model)
    assert len(faces) == 20
    for turn in faces:
        nodes = lie.rotate(turn, model.nodes)
        assert (nodes[:, 2] < nodes[:, 2].min() + 1e-5).sum() == 3
    up = lie.rotate(stable_faces(prism()), np.array([0.0, 0.0, 1.0]))
    assert {1, -1} <= set(np.round(up[:, 2], 6).tolist())


# --- What is earned ---------------------------------------------------------------------------------------------------


def test_roll_reward_is_the_papers_cost():
    """[Wang2020] V-C: weights (1, 0.5, 0.1) on the squared error to the target (1, 0, 0) m/s."""
    env = gym.make(ROLL, control_weight=0.0).unwrapped
    env.reset(seed=0)
    for action in actions_of(env, 5):
        _, reward, *_ = env.step(action)
        error = env.simulator.model.com_velocity(env.state) - np.array([1.0, 0.0, 0.0])
        assert reward == pytest.approx(-error @ np.diag([1.0, 0.5, 0.1]) @ error, rel=1e-12)


def test_control_cost_is_the_mean_square():
    env = gym.make(CRAWL, control_weight=2.0).unwrapped
    env.reset(seed=0)
    assert env.step(np.array([0.5, -1.0, 0.0]))[4]["reward_control"] == pytest.approx(-2.0 * 1.25 / 3, rel=1e-12)


def push(env, velocity, seconds):
    """Slide the robot through the air without physics: states as if it moved at `velocity` [m/s]."""
    state, context = env.episodes.state, env.episodes.context
    for _ in range(round(seconds / env.task.control_period)):
        state = env.simulator.model.move(state[0], translation=np.array([*velocity, 0.0]) * env.task.control_period)[None]
        context = env.task.update(context, state)
    return state, context


@pytest.mark.parametrize(
    ("velocity", "seconds", "expected"),
    [
        ((0.6, 0.0), 3.0, True),
        ((0.6, 0.0), 1.5, False),
        ((0.4, 0.0), 3.0, False),
        ((1.4, 0.0), 3.0, True),
        ((1.6, 0.0), 3.0, False),
        ((1.4, -0.4), 3.0, True),
        ((1.0, 0.6), 3.0, False),
        ((-0.6, 0.0), 3.0, False),
    ],
)
def test_roll_success_is_what_the_sentence_says(velocity, seconds, expected):
    env = gym.make(ROLL).unwrapped
    env.reset(seed=0)
    assert "2 s" in env.task.success_definition
    assert env.task.success(*push(env, velocity, seconds)).tolist() == [expected]


@pytest.mark.parametrize(
    ("speed", "velocity", "expected"),
    [(0.0, 0.0, True), (0.0, 0.03, True), (0.0, -0.06, False), (0.0, 0.85, False), (0.03, 0.0, True), (0.3, 0.0, False)],
)
def test_a_command_of_zero_is_held_within_a_decimetre(speed, velocity, expected):
    """Who stands still has held no command but (nearly) zero, and who rolls away has not held that."""
    env = gym.make(ROLL, target_speed=speed).unwrapped
    env.reset(seed=0)
    for direction in ((velocity, 0.0), (0.0, velocity)) if speed == 0 else ((velocity, 0.0),):
        assert env.task.success(*push(env, direction, 3.0)).tolist() == [expected]


@pytest.mark.parametrize("env_id", [ROLL, CRAWL, TERRAIN])
def test_standing_still_is_no_success_and_a_robot_at_its_command_succeeds(env_id):
    env = gym.make(env_id, heading=0.0).unwrapped
    env.reset(seed=0)
    assert env.task.success(*push(env, (0.0, 0.0), 3.0)).tolist() == [False]
    assert env.task.success(*push(env, (env.task.target_speed[0], 0.0), 3.0)).tolist() == [True]


def test_the_velocity_of_the_reward_is_averaged():
    """u' = a u + (1 - a) v with a = exp(-0.1 / 0.4), from 0; u - v* is observed behind all that is observed without it."""
    env, plain = (gym.make(ROLL, averaging_time=time, control_weight=0.0).unwrapped for time in (0.4, 0.0))
    np.testing.assert_array_equal(env.reset(seed=0)[0], [*plain.reset(seed=0)[0], -1.0, 0.0, 0.0])
    mean, keep = np.zeros(3), np.exp(-0.1 / 0.4)
    for action in actions_of(env, 5):
        observation, reward, *_ = env.step(action)
        mean = keep * mean + (1 - keep) * env.simulator.model.com_velocity(env.state)
        error = mean - np.array([1.0, 0.0, 0.0])
        np.testing.assert_allclose(observation, [*plain.step(action)[0], *error], atol=1e-6)
        assert reward == pytest.approx(-error @ np.diag([1.0, 0.5, 0.1]) @ error, rel=1e-9)


@pytest.mark.parametrize(("env_id", "told", "still", "least"), [(TERRAIN, 0.5, -25.0, -10.0), (CRAWL, 0.2, -100.0, -40.0)])
def test_moving_in_jerks_is_worth_more_than_standing_still(env_id, told, still, least):
    """A robot that is as fast as told on average, as a SUPERball is: at rest for 0.3 s, then 2.5 times as fast for 0.2 s."""
    env = gym.make(env_id, heading=0.0).unwrapped
    env.reset(seed=0)
    model, action = env.simulator.model, np.zeros((1, env.simulator.nu))

    def earned(speeds):
        state, before, total = env.episodes.state.copy(), env.episodes.context, 0.0
        for speed in speeds:
            state[:, [13 * r + 7 + k for r in range(model.num_rods) for k in range(3)]] = [speed, 0.0, 0.0] * model.num_rods
            moved = model.move(state[0], translation=np.array([0.1 * speed, 0.0, 0.0]))[None]
            after = env.task.update(before, moved)
            total += sum(float(term[0]) for term in env.task.reward(state, moved, action, before, after).values())
            state, before = moved, after
        return total, bool(env.task.success(state, before)[0])

    (moving, held), (standing, stood) = earned([0.0, 0.0, 0.0, 2.5 * told, 2.5 * told] * 20), earned([0.0] * 100)
    assert held and not stood
    assert standing == pytest.approx(still) and moving > least


def test_waypoints_are_visited_in_order_and_progress_adds_up():
    env = gym.make(WAYPOINT, control_weight=0.0).unwrapped
    env.reset(seed=0)
    center = env.simulator.model.center_of_mass(env.state)
    goals = center[:2] + np.array([[2.0, 0.0], [2.0, 2.0]])
    env.reset(seed=0, options={"state": env.state, "goal": goals})
    state, before = env.episodes.state, env.episodes.context
    terms = {"progress": 0.0, "reached": 0.0, "control": 0.0}
    reached = []
    for velocity in [(1.0, 0.0)] * 16 + [(0.0, 1.0)] * 18:
        moved = env.simulator.model.move(state[0], translation=np.array([*velocity, 0.0]) * 0.1)[None]
        after = env.task.update(before, moved)
        for name, value in env.task.reward(state, moved, np.zeros((1, 24)), before, after).items():
            terms[name] += float(value[0])
        state, before = moved, after
        reached.append(float(env.task.measure(state, after)["reached"][0]))
    # 2 m to the first, of which 0.5 m (the radius) remain; then what is left of the way to the second.
    first = 2.0 - 0.5
    start = np.hypot(0.5, 2.0)
    end = np.linalg.norm(env.simulator.model.center_of_mass(state[0])[:2] - goals[1])
    assert reached.index(1.0) == 14 and reached.index(2.0) > 16
    assert terms["reached"] == 2.0
    assert terms["progress"] == pytest.approx(first + start - end, abs=1e-9)
    assert env.task.success(state, before).tolist() == [True]


def test_robots_of_any_size_stand_on_their_faces():
    for make in (superball, prism):
        usual = stable_faces(make())
        for length in (0.5, 3.0, 10.0):
            np.testing.assert_allclose(stable_faces(make(rod_length=length)), usual, atol=1e-6)
