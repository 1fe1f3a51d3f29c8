"""What the vine's tasks mean: observations against geometry, rewards that add up, layouts that keep their word."""

import gymnasium as gym
import numpy as np
import pytest

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.vine import VineModel
from softgym_envs.vine.layouts import CLEAR, Clutter, Gap, Open, WallAhead, bent_axis
from softgym_envs.vine.obstacles import to_local
from softgym_envs.vine.tasks import RANGE, RAYS

IDS = ["VineGrow-v0", "VineNavigate-v0", "VineSqueeze-v0", "VineWall-v0"]


def make(env_id, **keywords):
    return gym.make(env_id, **keywords).unwrapped


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
        for _ in range(12 + 4 * seed):
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


def test_clutter_leaves_the_way_free_and_grows_with_the_level():
    layout = Clutter()
    model = layout.furnish(VineModel())
    for level, most in ((0.0, 0), (1.0, 4), (3.0, 12)):
        near = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            poses, goal = layout.draw(model, rng, level)
            length, bend = Open(layout.lengths, layout.curvature).bend(model, np.random.default_rng(seed))
            way = bent_axis(model, length, bend)
            np.testing.assert_array_equal(way[-1], goal)
            gaps = [o.shape.distance(to_local(way, p)).min() for o, p in zip(model.obstacles, poses, strict=True)]
            assert min(gaps) > model.radius + CLEAR
            near.append(sum(gap < 0.4 for gap in gaps))
        assert max(near) <= most and min(near) >= most // 2


def test_the_gap_is_a_little_wider_than_the_tube_and_less_so_at_higher_levels():
    model = Gap().furnish(VineModel())
    for level in (1.0, 3.0):
        poses, goal = Gap().draw(model, np.random.default_rng(0), level)
        width = np.linalg.norm(poses[0, :2] - poses[1, :2])
        assert 0.002 / level <= width - 2 * model.radius <= 0.008 / level
        assert goal[0] > poses[:, 0].max()
        middle = poses[:, :2].mean(axis=0)
        assert all(o.shape.distance(to_local(middle, p)) > 0 for o, p in zip(model.obstacles, poses, strict=True))


def test_the_wall_is_across_the_way_and_the_goal_beside_it():
    model = WallAhead().furnish(VineModel())
    for seed in range(20):
        poses, goal = WallAhead().draw(model, np.random.default_rng(seed), 1.0)
        wall = model.obstacles[0].shape
        assert wall.distance(to_local(goal, poses[0])) == pytest.approx(model.radius + 0.005)
        assert wall.distance(to_local(np.array([0.3, 0.0]), poses[0])) > 0.05
        assert wall.distance(to_local(np.array([0.8, 0.0]), poses[0])) < 0


def test_the_papers_scene_leads_a_robot_without_steering_down_the_passage():
    env = make("VineNavigate-v0", clutter="paper")
    env.reset(seed=0)
    for _ in range(100):
        terminated, info = env.step(np.array([0.0, 0.0, 0.0]))[2::2]
        if terminated:
            break
    assert not info["sim_failed"] and env.simulator.model.tip(env.state)[1] < -0.5
    assert env.simulator.model.clearance(env.state) > -1e-4


def test_levels_are_an_option_of_reset():
    env = make("VineNavigate-v0")
    counts = []
    for level in (0.0, 3.0):
        env.reset(seed=0, options={"level": level})
        counts.append(int((env.simulator.model.split(env.state).obstacles[:, 0] > -2).sum()))
    assert counts[0] == 0 and counts[1] > 6


@pytest.mark.parametrize(
    ("env_id", "keywords", "message"),
    [
        ("VineGrow-v0", {"tolerance": 0.0}, "tolerance is 0"),
        ("VineGrow-v0", {"goal_length": (0.5, 9.0)}, r"goal_length is \(0\.5, 9\.0\)"),
        ("VineGrow-v0", {"obs_mode": "pixels"}, "obs_mode is 'pixels'"),
        ("VineGrow-v0", {"backend": "bullet"}, "native, mujoco"),
        ("VineGrow-v0", {"simulator_options": {"colour": 1}}, "'colour'"),
        ("VineNavigate-v0", {"level": 4}, r"level is 4, expected a number in \[0, 3\]"),
        ("VineNavigate-v0", {"clutter": "none"}, "random, paper"),
        ("VineSqueeze-v0", {"control_weight": -1}, "control_weight is -1"),
    ],
)
def test_bad_keywords(env_id, keywords, message):
    with pytest.raises(OptionError, match=message):
        make(env_id, **keywords)


@pytest.mark.parametrize("options", [{"goal": [0.0]}, {"goal": "there"}, {"level": -1}, {"colour": 1}])
def test_bad_options(options):
    with pytest.raises(OptionError):
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
