"""LoopReach: goals that a constant action reaches and none does not. LoopBend: profiles that can be followed. Both worlds."""

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.errors import OptionError
from softgym_envs.systems.loop.arm_task import INCREMENT

ID, BEND = "softgym_envs:LoopReach-v0", "softgym_envs:LoopBend-v0"
ROWS = 6


def goal_actions(task, context, seed):
    """The constant actions that made the goals: as `reset` draws them."""
    found = []
    for row in range(ROWS):
        rng = np.random.default_rng(seed + row)
        rng.uniform(-task.spread, task.spread, 7)
        for _ in range(20):
            action = rng.uniform(-task.goal_action, task.goal_action, (1, 7))
            points = task.points(task.rest(action, task.model.defaults[None])[0])[0].ravel()
            if np.abs(points - context[row, :-3]).max() < 1e-9:
                found.append(action[0])
                break
    return np.array(found)


def feel(task):
    """A controller that knows the goal and nothing of the loop: action = pseudo-inverse of d(points) / d(action) at rest."""

    def slope(action):
        ends = [task.points(task.rest(sign * action[None], task.model.defaults[None])[0])[0].ravel() for sign in (1, -1)]
        return (ends[0] - ends[1]) / 0.6

    inverse = np.linalg.pinv(np.stack([slope(row) for row in 0.3 * np.eye(7)], axis=1), rcond=0.05)
    return lambda observation: np.clip(observation[:, 14:] @ inverse.T, -1, 1)


def successes(envs, act, seed=3, steps=120):
    """Share of rows that succeed, and whether any simulation failed."""
    observation, _ = envs.reset(seed=seed)
    done, failed = np.zeros(ROWS, bool), False
    for _ in range(steps):
        observation, _, terminated, _, info = envs.step(act(observation).astype(np.float32))
        done |= info["is_success"] & terminated
        failed |= bool(np.any(info["sim_failed"]))
        if done.all():
            break
    return done.mean(), failed


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_a_constant_action_reaches_the_goal_and_none_does_not(backend):
    envs = gym.make_vec(ID, num_envs=ROWS, backend=backend)
    task = envs.unwrapped.episodes.task
    envs.reset(seed=3)
    actions = goal_actions(task, envs.unwrapped.episodes.context, 3)
    assert actions.shape == (ROWS, 7)
    assert successes(envs, lambda _: actions) == (1.0, False)
    assert successes(envs, lambda _: np.zeros((ROWS, 7))) == (0.0, False)
    assert successes(envs, lambda _: np.full((ROWS, 7), 0.5)) == (0.0, False)
    assert successes(envs, feel(task))[0] >= 0.5


def test_the_shape_is_reached_too_and_the_state_can_be_seen():
    env = gym.make(ID, goal="shape", obs_mode="state", model="baxter6").unwrapped
    observation, info = env.reset(seed=0)
    n = env.simulator.model.n
    assert len(observation) == 2 * n + 3 * 4 and env.task.wanted.tolist() == [1, 2, 4, 5]
    assert info["distance"] > env.task.tolerance
    np.testing.assert_allclose(observation[n : 2 * n], 0.0)  # at rest
    still = env.step(np.zeros(7, np.float32))[0]
    assert np.abs(still[7:n] - observation[7:n]).max() < 0.05


def test_sensors_are_the_arms_own():
    env = gym.make(ID).unwrapped
    assert env.episodes.settings.control_period == env.task.control_period == 0.05
    observation, _ = env.reset(seed=1)
    names = [entry.name for entry in env.task.entries]
    assert (
        names[:7] == list(env.simulator.control_names) and names[7] == "vs0" and names[14:] == ["goal3.x", "goal3.y", "goal3.z"]
    )
    np.testing.assert_allclose(observation[:7], env.state[:7] - np.array(env.simulator.model.start), atol=1e-6)
    low, high = env.simulator.control_bounds
    assert all((low <= u).all() and (u <= high).all() for u in env.task.scale_action(np.array([np.ones(7), -np.ones(7)])))


def test_goals_follow_the_constants_of_the_episode():
    stiff = {"theta_stiffness": 8.0, "clamp_x": 0.03, "loop_scale": 2.0}
    env = gym.make(ID).unwrapped
    env.reset(seed=1, options={"parameters": stiff})
    moved = env.step(np.zeros(7, np.float32))
    assert not moved[4]["sim_failed"]
    columns = env.simulator.tree_constants(env.episodes.parameters)
    closed, _ = env.simulator.mechanism.gaps(np.ascontiguousarray(env.state[None, : env.simulator.model.n]), columns)
    assert np.abs(closed).max() < 1e-9
    assert np.abs(env.state[env.simulator.model.n :]).max() < 2.0  # nothing snaps when the episode begins


@pytest.mark.parametrize("keywords", [{"goal_distance": 0.4}, {"goal_distance": 5.0, "goal": "shape"}, {"goal_action": 0.0}])
def test_goals_that_no_action_reaches_are_refused(keywords):
    env = gym.make(ID, **keywords)
    with pytest.raises(OptionError, match=r"goal_distance is .*goal_action"):
        env.reset(seed=0)


@pytest.mark.parametrize("keywords", [{"goal": "all"}, {"obs_mode": "pixels"}, {"tolerance": 0.0}, {"goal_action": 2.0}])
def test_bad_keywords_are_named(keywords):
    with pytest.raises(OptionError, match=next(iter(keywords))):
        gym.make(ID, **keywords)


def follow(task, context):
    """A controller that knows the profile: torques that hold the arm where it is wanted at rest, and those of its damping."""
    model, lead = task.model, 0.5 * task.control_period
    start = context.copy()

    def act(time):
        start[:, 5] = time
        now, later = task.profile(start, lead), task.profile(start, lead + 0.05)
        needed = model.relax(now, np.tile(model.defaults, (len(start), 1)))[1]
        damping = model.servo_damping + 0.7
        return np.clip((needed - model.hold + damping * (later - now) / 0.05) / INCREMENT, -1, 1)

    return act


def profile_errors(backend, act_of, rows=4):
    """Mean errors [m] and successes at the end of profiles."""
    envs = gym.make_vec(BEND, num_envs=rows, backend=backend)
    episodes = envs.unwrapped.episodes
    envs.reset(seed=11)
    act = act_of(episodes.task, episodes.context)
    for k in range(160):
        _, _, terminated, truncated, info = envs.step(act(0.05 * k).astype(np.float32))
        assert not np.any(info["sim_failed"]) and not truncated.any()
        assert terminated.all() == (k == 159)
    return info["mean_error"], info["is_success"]


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_a_profile_is_followed_by_who_knows_it_and_not_by_who_does_nothing(backend):
    error, success = profile_errors(backend, follow)
    assert success.all() and error.max() < 0.006, error
    error, success = profile_errors(backend, lambda task, context: lambda time: np.zeros((4, 7)))
    assert not success.any() and error.min() > 0.02, error


def test_the_profile_is_what_it_is_called():
    """Stretch moves the hand up and turns nothing; twist turns it and moves nothing."""
    task = gym.make(BEND).unwrapped.task
    start = np.array([task.model.start])
    context = np.zeros((4, len(task.context_names)))
    context[:, :4] = np.diag([0.02, 0.02, 0.02, 0.1])
    context[:, 4], context[:, 5] = 4.0, 2.0
    off = task.seen(np.repeat(start, 4, axis=0), context)[:, :6]
    np.testing.assert_allclose(off[:, [2, 0, 1, 5]], np.diag([0.02, 0.02, 0.02, 0.1]), atol=2.5e-3)
    np.testing.assert_allclose(off[:, [3, 4]], 0.0, atol=5e-3)
    context[:, 5] = 0.0
    np.testing.assert_allclose(task.seen(np.repeat(start, 4, axis=0), context)[:, :6], 0.0, atol=1e-12)


@pytest.mark.parametrize("keywords", [{"periods": (5.0, 3.0)}, {"periods": 3}, {"duration": -1.0}, {"obs_mode": "pixels"}])
def test_bad_keywords_of_bend_are_named(keywords):
    with pytest.raises(OptionError, match=next(iter(keywords)).rstrip("s")):
        gym.make(BEND, **keywords)
