"""LoopIdentify: the estimator is consistent and learns from its sensors alone; who does not move the loop does not know it."""

import itertools
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.errors import OptionError
from softgym_envs.mechanics.mechanism import Mechanism
from softgym_envs.systems.loop.arm_task import INCREMENT
from softgym_envs.systems.loop.build import held
from softgym_envs.systems.loop.controllers import POSES, excite
from softgym_envs.systems.loop.estimate import COLUMNS, Estimator
from softgym_envs.systems.loop.identify import OFFSET, PSI, THETA
from softgym_envs.systems.loop.model import LoopModel

ID = "softgym_envs:LoopIdentify-v0"


def ends(drive, backend="native", rows=5, seed=40, **keywords):
    """Information that is gained, and the info of every row's last step, and the environments."""
    envs = gym.make_vec(ID, num_envs=rows, backend=backend, **keywords)
    observation, _ = envs.reset(seed=seed)
    act = drive(envs.unwrapped)
    total, ended, last = np.zeros(rows), np.zeros(rows, dtype=bool), {}
    for _ in range(200):
        observation, _, terminated, _, info = envs.step(act(observation))
        total[~ended] += info["reward_information"][~ended]
        for name in ("is_success", "theta_error", "psi_error", "theta_moment", "psi_moment"):
            last[name] = np.where(ended, last.get(name, info[name]), info[name])
        ended |= terminated
    assert ended.all()
    return last, total, envs.unwrapped


def still(envs):
    return lambda observation: np.zeros(envs.action_space.shape, np.float32)


def shake(envs):
    rng = np.random.default_rng(0)
    return lambda observation: rng.uniform(-1, 1, envs.action_space.shape).astype(np.float32)


def replay(actions, envs):
    left = iter(actions)
    return lambda observation: np.tile(next(left), (len(observation), 1))


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_who_excites_the_loop_knows_it(backend):
    info, gained, envs = ends(excite, backend)
    assert info["is_success"].mean() >= 0.8, info
    belief = envs.episodes.task.belief(envs.episodes.context)
    error = belief.theta[:, :2] - np.log(envs.episodes.context[:, 15:17])
    assert np.mean((error / belief.deviation) ** 2) < 3.0  # it knows how well it knows
    assert gained.min() > 5.0


def test_who_rests_or_shakes_does_not():
    info, gained, _ = ends(still)
    assert not info["is_success"].any() and gained.max() < 4.0
    info, shaken, _ = ends(shake, rows=20)
    assert info["is_success"].mean() <= 0.2 and np.median(shaken) > gained.max()


def test_a_replay_of_other_episodes_does_not():
    """The task needs its robot: actions that served one loop kink another, or load it too little."""
    envs = gym.make_vec(ID, num_envs=8).unwrapped
    observation, _ = envs.reset(seed=7)
    act, actions = excite(envs), []
    for _ in range(200):
        actions.append(act(observation))
        observation, _, _, _, info = envs.step(actions[-1])
    solved = np.flatnonzero(info["is_success"])
    assert len(solved) >= 6
    for k in solved:
        info, _, _ = ends(partial(replay, [action[k] for action in actions]), rows=16, seed=70)
        assert info["is_success"].mean() <= 0.4


def test_a_loop_that_is_bent_too_far_kinks():
    """The stiff one at a pose that the soft one bears; by then the arm knows the moment."""
    envs = gym.make_vec(ID, num_envs=2)
    envs.reset(seed=3, options={"parameters": {"theta_stiffness": np.array([1.0, 8.0])}})
    for t in range(150):
        pose = np.tile(0.5 * min(t / 100, 1.0) * POSES[0], (2, 1)).astype(np.float32)
        observation, _, terminated, _, info = envs.step(pose)
        if terminated[1]:
            break
    assert terminated.tolist() == [False, True] and not info["is_success"].any()
    assert info["theta_moment"][0] < 1.0 < info["theta_moment"][1]
    np.testing.assert_allclose(observation[:, 18], info["theta_moment"], rtol=0.05)


def test_the_ground_truth_decides_nothing_but_success_and_kinks():
    """Same motion and noise, another ground truth beside it, which it bears: all observations and rewards but bonuses are the
    same."""
    found = []
    for ground_truth in (2.0, 7.0):
        env = gym.make(ID).unwrapped
        env.reset(seed=5)
        env.episodes.context[:, 15:17] = ground_truth
        found.append([env.step(np.full(7, 0.5, np.float32))[:2] for _ in range(3)])
    for (a, r), (b, s) in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
        assert r == s


def test_sensitivities_are_differences_of_predictions():
    model = held(LoopModel(6))
    estimator = Estimator(model, 0.02, 0.008, (THETA, PSI), OFFSET)
    torques = model.hold + 0.5 * np.random.default_rng(0).uniform(-1, 1, (10, 7)) * INCREMENT

    def moved(theta):
        belief = estimator.prior._replace(theta=theta, state=estimator._rest(theta))
        for u in torques:
            belief = estimator.predict(belief, u[None])
        return belief.state

    belief = estimator.prior
    for u in torques:
        belief = estimator.predict(belief, u[None])
    theta = estimator.prior.theta
    for k in (0, 1, 2, 5):
        step = 1e-5 * np.eye(len(COLUMNS))[k]
        slope = (moved(theta + step) - moved(theta - step))[0] / 2e-5
        own = belief.slopes[0, :, k] * (np.exp(theta[0, k]) if k < 2 else 1.0)
        np.testing.assert_allclose(own, slope, atol=1e-5 * np.abs(slope).max())


@pytest.mark.parametrize("parts", [0, 2])
def test_a_prediction_is_that_of_the_mechanism_with_all_its_constants(parts):
    """The kernel knows only what is estimated; motion and sensitivities by all 26 parameters and more are the same."""
    model = held(LoopModel(6, spring_parts=parts))
    estimator = Estimator(model, 0.02, 0.008, (THETA, PSI), OFFSET)
    mechanism, belief = Mechanism(model.tree, 0.01, model.parameter_names), estimator.prior
    belief.theta[:] += 0.1 * np.random.default_rng(3).standard_normal(belief.theta.shape)
    for u in model.hold + 0.5 * np.random.default_rng(2).uniform(-1, 1, (5, 7)) * INCREMENT:
        parameter_values = estimator.parameter_values(belief.theta)
        motion = mechanism.simulate(belief.state, u[None, None], parameter_values, substeps=2)
        ways = model.tree_slopes(model.parameters_class().to_matrix(1))[0][:, COLUMNS]
        slopes = mechanism.sensitivities(motion, belief.slopes, ways)[:, -1]
        belief = estimator.predict(belief, u[None])
        np.testing.assert_allclose(belief.state, motion.states[:, -1], rtol=0, atol=1e-10)
        np.testing.assert_allclose(belief.slopes, slopes, rtol=0, atol=1e-9 * np.abs(slopes).max())
        assert not belief.lost.any()


def test_a_correction_is_that_of_weighted_least_squares():
    """One measurement: P^-1 grows by H' H / sigma^2, theta moves by the gradient's share."""
    model = held(LoopModel(6))
    estimator = Estimator(model, 0.02, 0.01, (THETA, PSI), OFFSET)
    before = estimator.prior
    angles = before.state[:, :7] + 1e-3 * np.random.default_rng(1).standard_normal((1, 7))
    after = estimator.correct(before, angles)
    H = before.slopes[0, :7] * np.concatenate([before.stiffness[0], np.ones(7)])
    information = np.linalg.inv(before.covariance[0]) + H.T @ H / 0.01**2
    np.testing.assert_allclose(np.linalg.inv(after.covariance[0]), information, rtol=1e-6, atol=1e-6)
    change = np.linalg.solve(information, H.T @ (angles - before.state[:, :7])[0] / 0.01**2)
    np.testing.assert_allclose((after.theta - before.theta)[0], change, rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(estimator.unpack(estimator.pack(after)).slopes, after.slopes)


def test_a_lost_row_learns_nothing_and_the_others_do():
    model = held(LoopModel())
    estimator = Estimator(model, 0.02, 0.008, (THETA, PSI), OFFSET)
    two = type(estimator.prior)(*(np.repeat(part, 2, axis=0) for part in estimator.prior))
    two.state[0, 35:40] += 50.0  # a state that no step can follow
    later = estimator.correct(estimator.predict(two, np.tile(model.hold, (2, 1))), two.state[:, :7])
    assert later.lost.tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(later.theta[0], two.theta[0])
    assert later.information[1] > two.information[1] and later.information[0] == two.information[0]
    assert np.isfinite(estimator.pack(later)).all()


def test_no_pose_that_is_held_tells_both_stiffnesses():
    """Poses at the ends of the actions, each from the first step on; an estimate that is right by luck does not count."""
    poses = np.array(list(itertools.product([-1.0, 1.0], repeat=7)), dtype=np.float32)
    info, _, _ = ends(lambda envs: lambda observation: poses, rows=len(poses), seed=11)
    error = np.maximum(info["theta_error"], info["psi_error"])
    assert (error < 0.03).sum() >= 10, "some are right by luck"
    assert info["is_success"].mean() <= 0.05


@pytest.mark.parametrize(
    "keywords", [{"angle_noise": 0.0}, {"duration": -1.0}, {"duration": 1e9}, {"tolerance": "x"}, {"obs_mode": "pixels"}]
)
def test_bad_keywords_are_named(keywords):
    with pytest.raises(OptionError, match=next(iter(keywords))):
        gym.make(ID, **keywords)
