"""What the vine's tasks mean: observations against geometry, rewards that add up, layouts that keep their word."""

import gymnasium as gym
import numpy as np
import pytest
from scipy.optimize import least_squares

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import OptionError, ShapeError, StructureError
from softgym_envs.systems.vine import VineModel
from softgym_envs.systems.vine.controllers import CONTROLLERS, ONWARD, OUT, follow, straight_through
from softgym_envs.systems.vine.free_paths import bent_axes, suggested
from softgym_envs.systems.vine.layouts import AWAY, BEHIND, CLEAR, Clutter, Doors, Gap, Open, Plate, Pocket
from softgym_envs.systems.vine.obstacles import Circle, Polygon, lines_apart, rectangle, segment_distance, to_local
from softgym_envs.systems.vine.tasks import GOAL_TOLERANCE, MAX_GOAL_SPEED, RANGE, RAYS

IDS = ["VineGrow-v0", "VineNavigate-v0", "VineSqueeze-v0", "VineWall-v0"]


def make(env_id, **keywords):
    return gym.make(env_id, **keywords).unwrapped


def drawn(layout, model, seed, level=1.0):
    """Poses and goal of one episode."""
    (poses,), (goal,) = layout.draw(model, [np.random.default_rng(seed)], level)
    return poses, goal


def random_axes(model, count, lengths, largest):
    rng = np.random.default_rng(0)
    return bent_axes(model, rng.uniform(*lengths, count), largest * rng.uniform(-1, 1, (count, 2)))


def apart(shape, pose, lines):
    """Smallest distance of lines (..., k, 2) from a shape at a pose."""
    local = to_local(lines, pose)
    return segment_distance(shape, local[..., :-1, :], local[..., 1:, :]).min(axis=-1)


def named(env, observation):
    return dict(zip([entry.name for entry in env.task.entries], observation.tolist(), strict=True))


@pytest.mark.parametrize("env_id", IDS)
def test_observed_tip_and_goal_are_those_of_the_model(env_id):
    """Position and heading by the model's own geometry, velocity by differences along the motion, goal by rotation."""
    env = make(env_id)
    env.reset(seed=0)
    for _ in range(15):
        observation = env.step(np.array([1.0, 0.7, -0.5]))[0]
    seen, model, state = named(env, observation), env.simulator.model, env.state
    x, y, heading = model.tip(state)
    np.testing.assert_allclose([seen["tip.x"], seen["tip.y"]], [x, y], atol=1e-6)
    np.testing.assert_allclose([seen["tip.cos"], seen["tip.sin"]], [np.cos(heading), np.sin(heading)], atol=1e-6)
    ends = []
    for sign in (-1e-6, 1e-6):
        moved = state.copy()
        parts = model.split(moved)
        parts.theta[...] += sign * parts.omega
        parts.length[...] += sign * parts.growth
        ends.append(model.tip(moved)[:2])
    np.testing.assert_allclose([seen["tip.vx"], seen["tip.vy"]], (ends[1] - ends[0]) / 2e-6, atol=1e-6)
    goal = env.task.draw_hints(env.context)["goal"][:2]
    turn = np.array([[np.cos(heading), np.sin(heading)], [-np.sin(heading), np.cos(heading)]])
    np.testing.assert_allclose([seen["goal.ahead"], seen["goal.aside"]], turn @ (goal - [x, y]), atol=1e-6)
    assert seen["pressure.left0"] > 0.5 > seen["pressure.right0"] and seen["pressure.right1"] > 0.3


@pytest.mark.parametrize("env_id", IDS[1:])
def test_range_readings_are_where_marching_along_the_ray_meets_an_obstacle(env_id):
    env = make(env_id)
    hits = 0
    for seed in range(6):
        env.reset(seed=seed, options={"level": 3.0})
        for _ in range(4 + 2 * seed):
            observation, _, over, *_ = env.step(np.array([1.0, 0.1, -0.1]))
            if over:
                break
        model, state = env.simulator.model, env.state
        x, y, heading = model.tip(state)
        for angle, reading in zip(RAYS, observation[-len(RAYS) :], strict=True):
            steps = np.linspace(0.0, RANGE, 3001)
            points = np.array([x, y]) + steps[:, None] * [np.cos(heading + angle), np.sin(heading + angle)]
            inside = np.zeros(len(steps), dtype=bool)
            for obstacle, pose in zip(model.obstacles, model.split(state).obstacles, strict=True):
                inside |= obstacle.shape.distance(to_local(points, pose)) <= 0
            expected = steps[np.argmax(inside)] if inside.any() else RANGE
            assert reading == pytest.approx(expected, abs=2e-4)
            hits += bool(inside.any())
    assert hits > 3


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_episodes_begin_at_random_at_rest_and_clear_of_obstacles(env_id, backend):
    envs = gym.make_vec(env_id, num_envs=8, backend=backend).unwrapped
    envs.reset(seed=0)
    model, parts = envs.simulator.model, envs.simulator.model.split(envs.state)
    assert (np.ptp(envs.state, axis=0)[: 2 * model.num_links + 1] > 0).all() and np.ptp(
        envs.context[:, :2], axis=0
    ).min() > 1e-3
    assert np.abs(parts.omega).max() < 0.05 and np.abs(parts.growth).max() < 1e-3
    assert model.clearance(envs.state).min() > 0
    np.testing.assert_allclose(parts.length, 0.3, rtol=0.11)


def test_progress_adds_up_and_reaching_ends_the_episode():
    """Held pressures bend the robot to a place that it is sent to in a second episode."""
    env, total = make("VineGrow-v0", control_weight=0.0), 0.0
    action = np.array([1.0, 0.3, -0.2])
    env.reset(seed=3)
    for _ in range(40):
        env.step(action)
    there = env.simulator.model.tip(env.state)[:2]
    env.reset(seed=3, options={"goal": there})
    first = np.linalg.norm(env.simulator.model.tip(env.state)[:2] - there)
    for k in range(41):  # noqa: B007  (it says when the episode ended)
        _, reward, terminated, _, info = env.step(action)
        total += reward
        if terminated:
            break
    assert terminated and info["is_success"] and 30 < k < 41 and info["distance"] <= 0.03
    assert total == pytest.approx(1.0 + first - info["distance"], abs=1e-9)


def test_a_tip_that_sweeps_over_the_goal_has_not_reached_it():
    """The tip is set on the goal at 0.5 m/s, then the same place is held at rest."""
    env = make("VineGrow-v0")
    env.reset(seed=0)
    model, parts = env.simulator.model, env.simulator.model.split(env.state)
    context = env.context[None].copy()
    context[:, :2] = model.tip(env.state)[:2]
    for speed, reached in ((0.5, False), (1.1 * MAX_GOAL_SPEED, False), (0.9 * MAX_GOAL_SPEED, True)):
        state = env.state.copy()
        moved = model.split(state)
        moved.omega[...], moved.growth[...] = speed / float(parts.length), 0.0
        assert env.task.success(state[None], env.task.update(context, state[None]))[0] == reached


def test_the_tip_stays_behind_the_wall_for_the_hold_time():
    """It is set on the goal, leaves it once, and comes back."""
    env = make("VineWall-v0", hold_time=0.5)
    env.reset(seed=0)
    there, away = env.context[None].copy(), env.context[None].copy()
    there[:, :2] = env.simulator.model.tip(env.state)[:2]
    seen, context = [], there
    for place in (there, there, there, there, away, there, there, there, there, there):
        context = context.copy()
        context[:, :2] = place[:, :2]
        context = env.task.update(context, env.state[None])
        seen.append(bool(env.task.success(env.state[None], context)[0]))
    assert seen == [False] * 9 + [True]
    assert "hold_time" in env.task.success_definition and "hold_time" not in make("VineGrow-v0").task.success_definition


def test_goals_behind_the_wall_are_on_both_sides_whichever_way_it_ends():
    """Neither side nor sign of the goal tells the other; goals of one side spread over many widths of `GOAL_TOLERANCE`."""
    layout = Plate()
    model = layout.furnish(VineModel())
    poses, goals = layout.draw(model, [np.random.default_rng(seed) for seed in range(200)], 1.0)
    side = -np.sign(poses[:, 0, 1])
    aside = side * goals[:, 1]
    assert 0.35 < (side > 0).mean() < 0.65 and 0.15 < (aside < 0).mean() < 0.5
    assert np.ptp(aside) > 8 * GOAL_TOLERANCE and aside.std() > 2 * GOAL_TOLERANCE


def test_zero_action_is_rest_and_growth_is_linear_in_the_action():
    task = make("VineGrow-v0").task
    control = task.scale_action(np.array([[-1.0, 0, 0], [0.0, 0, 0], [0.5, 0, 0], [1.0, 0, 0]]))
    np.testing.assert_allclose(control[:, 0], task.model.max_growth * np.array([0.0, 0.0, 0.5, 1.0]))
    assert not control[:, 1:].any()


def test_ways_are_arcs_that_a_robot_keeps_while_it_grows():
    """A bend in closed form; a longer robot's axis begins with the shorter one's; the goal suggests an arc and a line."""
    model = VineModel(num_links=400)
    bend = np.array([[1.5, 1.5]])
    short, long = bent_axes(model, np.array([0.6]), bend)[0], bent_axes(model, np.array([1.0]), bend)[0]
    np.testing.assert_allclose(long[-1], [np.sin(1.5) / 1.5, (1 - np.cos(1.5)) / 1.5], atol=1e-5)
    np.testing.assert_allclose(long[:201], short[:201], atol=1e-12)
    lines = suggested(model, long[-1:])[0]
    arc, line = lines[:401], lines[401:]
    np.testing.assert_allclose(arc[-1], long[-1], atol=1e-4)
    assert np.linalg.norm(arc[:, None] - long, axis=2).min(axis=1).max() < 2e-3
    np.testing.assert_allclose(line[[0, -1]], [[0, 0], long[-1]], atol=1e-12)


LAYOUTS = pytest.mark.parametrize(
    "layout", [Open(), Doors(), Clutter(), Gap(), Plate(), Pocket()], ids=lambda layout: type(layout).__name__
)


@LAYOUTS
def test_episodes_of_many_rows_are_those_of_single_rows(layout):
    model, rngs = layout.furnish(VineModel()), [np.random.default_rng(seed) for seed in range(40)]
    poses, goals = layout.draw(model, rngs, 2.0)
    for seed in range(40):
        alone = np.random.default_rng(seed)
        (pose,), (goal,) = layout.draw(model, [alone], 2.0)
        np.testing.assert_array_equal(pose, poses[seed])
        np.testing.assert_array_equal(goal, goals[seed])
        assert alone.random() == rngs[seed].random()


@pytest.mark.parametrize(
    "shape", [Circle(0.1), Gap().furnish(VineModel()).obstacles[0].shape, Polygon(((0, 0), (0.3, 0), (0, 0.2)))]
)
def test_lines_are_apart_where_the_smallest_distance_of_their_segments_says_so(shape):
    rng = np.random.default_rng(0)
    lines, poses = np.cumsum(rng.normal(0.0, 0.03, (2000, 2, 9, 2)), axis=2), rng.normal(0.0, 0.3, (2000, 3))
    distance = np.array([apart(shape, pose, line).min() for pose, line in zip(poses, lines, strict=True)])
    for least in (0.0, 0.05):
        found = lines_apart(shape, poses, lines, least)
        np.testing.assert_array_equal(found, distance > least)
        assert 100 < found.sum() < 1900


@LAYOUTS
def test_goals_are_outside_of_obstacles_and_away_from_the_robot(layout):
    model = layout.furnish(VineModel())
    for seed in range(12):
        for level in (1.0, 3.0):
            poses, goal = drawn(layout, model, seed, level)
            distance = [o.shape.distance(to_local(goal, p)) for o, p in zip(model.obstacles, poses, strict=True)]
            assert min(distance, default=1.0) > model.radius
            assert np.linalg.norm(goal) > 1.1 * model.initial_length + 0.03
    if isinstance(layout, Open):
        assert abs(goal[1]) > AWAY


def test_doors_are_off_the_ways_that_the_goal_suggests_and_there_is_a_way_through():
    """The barriers block the suggested ways; one of many random ways to the goal passes all entry points freely."""
    layout = Doors()
    model = layout.furnish(VineModel())
    axes = random_axes(model, 20_000, (1.0, 1.15), 3.0)
    for seed in range(8):
        for level in (1.0, 3.0):
            poses, goal = drawn(layout, model, seed, level)
            boards = [(model.obstacles[k].shape, poses[k]) for k in range(2 * int(level))]
            assert (poses[2 * int(level) : 6, 0] < BEHIND).all()
            entry_point = poses[:2, :2].mean(axis=0)
            lines = suggested(model, goal[None])[0]
            assert np.linalg.norm(lines - entry_point, axis=1).min() > layout.beside - 0.5 * model.link_length
            arc = lines[: model.num_links + 1]
            assert min(apart(shape, pose, arc) for shape, pose in boards) < model.radius
            width = np.linalg.norm(poses[0, :2] - poses[1, :2]) - layout.board[1]
            assert width == pytest.approx(layout.width / level**layout.narrower)
            there = axes[np.linalg.norm(axes[:, -1] - goal, axis=1) < 0.03]
            free = np.ones(len(there), dtype=bool)
            for shape, pose in ((o.shape, pose) for o, pose in zip(model.obstacles, poses, strict=True) if pose[0] > BEHIND):
                free &= apart(shape, pose, there) > model.radius
            assert free.any()


def test_the_gap_is_a_little_wider_than_the_tube_and_less_so_at_higher_levels():
    layout, model = Gap(), Gap().furnish(VineModel())
    for seed in range(10):
        widths = []
        for level in (1.0, 3.0):
            poses, goal = drawn(layout, model, seed, level)
            width = np.linalg.norm(poses[0, :2] - poses[1, :2])
            widths.append(width - 2 * model.radius)
            assert 0.004 / level <= widths[-1] <= 0.008 / level
            middle = poses[:, :2].mean(axis=0)
            lines = suggested(model, goal[None])[0]
            assert np.linalg.norm(lines - middle, axis=1).min() > layout.mouth
            assert to_local(goal, np.array([*middle, poses[0, 2]]))[0] > 0.1  # behind
        assert widths[1] == pytest.approx(widths[0] / 3)


def test_no_free_motion_leads_behind_the_wall():
    """Among 40 000 shapes with one bend per section, none ends at the goal without passing through the wall."""
    layout = Plate()
    model = layout.furnish(VineModel())
    axes = random_axes(model, 40_000, (0.6, 1.2), 4.0)
    for seed in range(24):
        poses, goal = drawn(layout, model, seed, 1.0 + seed % 3)
        gaps = apart(model.obstacles[0].shape, poses[0], axes[np.linalg.norm(axes[:, -1] - goal, axis=1) < 0.03])
        assert len(gaps) > 10 and gaps.max() < model.radius


def test_a_pocket_is_found_where_a_thousand_ways_have_none():
    model = gym.make_vec("VineNavigate-v0", num_envs=1, clutter="pocket").unwrapped.simulator.model
    assert np.isfinite(Pocket().draw(model, [np.random.default_rng([12, 896])], 1.0).goal).all()


def test_what_the_goal_suggests_ends_in_the_pocket_and_a_planned_way_leads_around_it():
    """Both suggested ways meet the back. Of random ways to the goal, the one farthest from the boards is followed."""
    envs = gym.make_vec("VineNavigate-v0", num_envs=10, clutter="pocket").unwrapped
    model, found = envs.simulator.model, {}
    axes = random_axes(model, 40_000, (0.9, 1.15), 3.8)
    envs.reset(seed=700)
    poses, goals = model.split(envs.state).obstacles.copy(), envs.context[:, :2]
    ways = np.empty((10, 2, 2))
    for row, (pose, goal) in enumerate(zip(poses, goals, strict=True)):
        arc, line = np.split(suggested(model, goal[None])[0], [model.num_links + 1])
        assert max(apart(model.obstacles[2].shape, pose[2], lines).min() for lines in (arc, line)) < model.radius
        there = axes[np.linalg.norm(axes[:, -1] - goal, axis=1) < 0.05]
        gaps = [apart(obstacle.shape, pose[k], there) for k, obstacle in enumerate(model.obstacles)]
        best = np.argmax(np.min(gaps, axis=0))
        assert np.min(gaps, axis=0)[best] > model.radius
        ways[row] = there[best, model.num_links // 2], goal
    planned = follow(envs, lambda model, state, goal: ways)
    for name, act in (("planned", planned), ("blind", CONTROLLERS["VineNavigate-v0"]["blind"](envs))):
        observation, _ = envs.reset(seed=700)
        done = np.zeros(10, dtype=bool)
        for _ in range(120):
            observation, _, terminated, *_ = envs.step(act(observation))
            done |= terminated
        found[name] = done.sum()
    assert found["planned"] >= 8 and found["blind"] == 0


def test_no_free_motion_passes_the_gap():
    """Of shapes with one bend per section that end at the goal, 1 % pass between the jaws without touching them (level 1)."""
    layout = Gap()
    model = layout.furnish(VineModel())
    axes = random_axes(model, 20_000, (0.8, 1.2), 3.0)
    tried = free = 0
    for seed in range(12):
        poses, goal = drawn(layout, model, seed, 1.0)
        there = axes[np.linalg.norm(axes[:, -1] - goal, axis=1) < 0.03]
        gaps = np.full(len(there), np.inf)
        for obstacle, pose in zip(model.obstacles, poses, strict=True):
            gaps = np.minimum(gaps, apart(obstacle.shape, pose, there))
        tried += len(there)
        free += int((gaps > model.radius).sum())
    assert tried > 300 and free <= 0.03 * tried


@pytest.mark.parametrize(
    "layout",
    [Open(), Open(lengths=(0.4, 0.6)), Doors(), Clutter(), Gap()],
    ids=["open", "near", "entry_points", "clutter", "gap"],
)
def test_goals_are_within_reach(layout):
    """A robot no longer than it grows, with muscles bent no more than the layout says, ends there: found by least squares."""
    model = layout.furnish(VineModel(max_length=0.65) if layout == Open(lengths=(0.4, 0.6)) else VineModel())
    low, high = np.array([0.3, *[-layout.curvature] * 2]), np.array([model.max_length, *[layout.curvature] * 2])
    starts = [np.array([0.6, a, b]) for a in (-1.5, 1.5) for b in (-1.5, 1.5)]
    for seed in range(6):
        _, goal = drawn(layout, model, seed, 3.0 if layout.levels else 1.0)
        miss = (
            least_squares(
                lambda given: bent_axes(model, given[:1], given[None, 1:])[0, -1] - goal,  # noqa: B023
                start,
                bounds=(low, high),
                diff_step=1e-4,
            )
            for start in starts
        )
        assert min(np.linalg.norm(found.fun) for found in miss) < 2e-3


@pytest.mark.parametrize("env_id", ["VineNavigate-v0", "VineWall-v0"])
def test_the_planner_reaches_goals_and_the_blind_one_does_not(env_id):
    """The task cards say how often; of 10 goals, at least 8 and at most 3."""
    envs, reached = gym.make_vec(env_id, num_envs=10).unwrapped, {}
    for name, controller in CONTROLLERS[env_id].items():
        observation, _ = envs.reset(seed=500)
        act, done = controller(envs), np.zeros(10, dtype=bool)
        for _ in range(120):
            observation, _, terminated, *_ = envs.step(act(observation))
            done |= terminated
            if done.all():
                break
        reached[name] = done.sum()
    assert reached["planner"] >= 8 and reached["blind"] <= 3


def test_the_papers_scene_leads_a_robot_without_steering_down_the_passage():
    env = make("VineNavigate-v0", clutter="paper")
    env.reset(seed=0)
    for _ in range(100):
        terminated, info = env.step(np.array([0.5, 0.0, 0.0]))[2::2]
        if terminated:
            break
    assert not info["sim_failed"] and env.simulator.model.tip(env.state)[1] < -0.5
    assert env.simulator.model.clearance(env.state) > -1e-4


def test_levels_are_an_option_of_reset():
    env = make("VineNavigate-v0")
    for level in (1.0, 2.0, 3.0):
        env.reset(seed=0, options={"level": level})
        assert (env.simulator.model.split(env.state).obstacles[:6, 0] > BEHIND).sum() == 2 * level
    with pytest.raises(OptionError, match="'level'"):
        make("VineGrow-v0").reset(seed=0, options={"level": 1.0})


@pytest.mark.parametrize("env_id", IDS)
def test_every_id_takes_a_scene_of_the_users(env_id):
    """Its obstacles stay, goals are free of them, and one that stands over the robot is refused."""
    env = make(env_id, model=VineModel(obstacles=(rectangle(0.5, 0.0, 0.05, 0.2),)))
    assert len(env.task.entries) == 14 + len(RAYS)
    shape = env.simulator.model.obstacles[0].shape
    for seed in range(3):
        env.reset(seed=seed)
        np.testing.assert_array_equal(env.simulator.model.split(env.state).obstacles[0], [0.5, 0.0, 0.0])
        assert shape.distance(to_local(env.context[:2], np.array([0.5, 0.0, 0.0]))) > env.simulator.model.radius + CLEAR
    with pytest.raises(OptionError, match="stands over the robot"):
        make(env_id, model=VineModel(obstacles=(rectangle(0.2, 0.0, 0.05, 0.2),))).reset(seed=0)
    with pytest.raises(OptionError, match="leave no way free"):
        make(env_id, model=VineModel(obstacles=(rectangle(0.4, 0.0, 0.05, 3.0),))).reset(seed=0)


@pytest.mark.parametrize("env_id", IDS[1:])
def test_layouts_refuse_robots_that_they_are_not_made_for(env_id):
    for model, message in ((VineModel(max_length=0.6), "max_length"), (VineModel(base=(0.0, 0.1, 0.0)), "base")):
        with pytest.raises(OptionError, match=message):
            make(env_id, model=model)


@pytest.mark.parametrize(
    ("env_id", "keywords", "message"),
    [
        ("VineGrow-v0", {"tolerance": 0.0}, "tolerance is 0"),
        ("VineGrow-v0", {"goal_length": (0.5, 9.0)}, r"goal_length is \(0\.5, 9\.0\)"),
        ("VineGrow-v0", {"obs_mode": "pixels"}, "obs_mode is 'pixels'"),
        ("VineGrow-v0", {"backend": "bullet"}, "native, mujoco"),
        ("VineGrow-v0", {"options": {"colour": 1}}, "'colour'"),
        ("VineNavigate-v0", {"level": 4}, r"level is 4, expected a number in \[1, 3\]"),
        ("VineNavigate-v0", {"clutter": "none"}, "random, scattered, pocket, paper"),
        ("VineNavigate-v0", {"clutter": "pocket", "level": 2}, "level is 2, but these obstacles have no levels"),
        ("VineSqueeze-v0", {"control_weight": -1}, "control_weight is -1"),
        ("VineWall-v0", {"hold_time": -1.0}, "hold_time is -1"),
    ],
)
def test_bad_keywords(env_id, keywords, message):
    with pytest.raises(OptionError, match=message):
        make(env_id, **keywords)


@pytest.mark.parametrize("options", [{"goal": [0.0]}, {"goal": "there"}, {"level": 0.5}, {"colour": 1}])
def test_bad_options(options):
    with pytest.raises((OptionError, ShapeError)):
        make("VineWall-v0").reset(seed=0, options=options)


def test_scenes_from_files_are_grown_in(tmp_path):
    path = tmp_path / "scene.toml"
    path.write_text(
        "[robot]\nnum_links = 20\nnum_sections = 1\n[[obstacles]]\ncircle = { center = [0.6, 0.2], radius = 0.05 }\n"
    )
    env = make("VineGrow-v0", model=path)
    assert env.action_space.shape == (2,) and len(env.task.entries) == 2 + 2 + 8 + len(RAYS)
    env.reset(seed=0)
    assert not env.step(np.zeros(2))[4]["sim_failed"]
    path.write_text("[robot]\nnum_links = -1\n")
    with pytest.raises(StructureError, match="num_links is -1"):
        make("VineGrow-v0", model=path)


def test_the_planner_of_a_squeeze_turns_behind_the_gap_only():
    """Until the tip is out, sections go where the gap leads, away from the base; then to the goal."""
    envs = gym.make_vec("VineSqueeze-v0", num_envs=4)
    envs.reset(seed=0)
    model, state = envs.unwrapped.simulator.model, envs.unwrapped.state.copy()
    goal, jaws = np.tile([0.1, 0.9], (4, 1)), model.split(state).obstacles[:, :2]
    between, middle = jaws[:, 1, :2] - jaws[:, 0, :2], jaws[:, :, :2].mean(axis=1)
    ahead = straight_through(model, state, goal)[:, 1:] - middle[:, None]
    np.testing.assert_allclose(np.hypot(ahead[..., 0], ahead[..., 1]), ONWARD, rtol=1e-12)
    np.testing.assert_allclose((ahead * between[:, None]).sum(axis=2), 0.0, atol=1e-12)
    assert ((ahead * middle[:, None]).sum(axis=2) > 0.0).all()
    jaws[..., :2] += (model.tip(state)[:, :2] - 1.01 * OUT / ONWARD * ahead[:, 0] - middle)[:, None]
    np.testing.assert_array_equal(
        straight_through(model, state, goal)[:, 1:], np.tile(goal[:, None], (1, model.num_sections - 1, 1))
    )
