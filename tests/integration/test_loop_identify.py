"""LoopIdentify: the estimator is consistent and learns from its sensors alone; who does not move the loop does not know it.
Identification of the loop's stiffness from torques and angles of the arm: gradients, recovery, intervals."""

import itertools
from dataclasses import replace
from functools import cache, partial

import gymnasium as gym
import numpy as np
import pytest

from reproductions.caldwell2014.excitation import drawn
from reproductions.caldwell2014.least_squares import FollowingErrors, LogFit
from softgym_envs.core.errors import OptionError, ShapeError, StructureError
from softgym_envs.mechanics import Mechanism
from softgym_envs.systems.loop.arm_task import INCREMENT
from softgym_envs.systems.loop.build import held
from softgym_envs.systems.loop.controllers import POSES, excite
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.estimate import COLUMNS, Estimator
from softgym_envs.systems.loop.identify import OFFSET, PSI, THETA
from softgym_envs.systems.loop.manipulation import STIFF, Recording, record, reference
from softgym_envs.systems.loop.model import ARM, PARAMETERS, LoopModel
from softgym_envs.systems.loop.procedure import HAND, PAPER, PROCEDURE, first_state, followed, manipulation
from softgym_envs.systems.loop.rod import LoopRod
from softgym_envs.systems.loop.tracking import held as held_by_tracking
from sysid.least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from sysid.procedure.run import run_procedure

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
    predicted = estimator.predict(two, np.tile(model.hold, (2, 1)))
    for row in range(2):
        alone = estimator.predict(type(two)(*(part[row : row + 1] for part in two)), model.hold[None])
        np.testing.assert_array_equal(estimator.pack(alone)[0], estimator.pack(predicted)[row])
    later = estimator.correct(predicted, two.state[:, :7])
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


MODEL = LoopModel()
GROUND_TRUTH = MODEL.defaults
STIFFNESS = ("theta_stiffness", "psi_stiffness")
OFFSETS = tuple(f"offset_{name}" for name in ARM)
STEPS = 400
SCALE = 0.6
NOISE = {"force": 0.2, "angle": 2e-3}


@cache
def mechanism():
    return Mechanism(MODEL.tree, 0.01, PARAMETERS)


@cache
def recording():
    return record(MODEL, mechanism(), GROUND_TRUTH, STEPS, scale=SCALE)


def following(found=None, **changes):
    found = found or recording()
    values = {"gains": 0.5 * np.diag(STIFF)[None], "still": 50, **changes}
    return FollowingErrors(mechanism(), found.forces, found.angles, **values)


def minimise(fit, values, **options):
    theta, limit = fit.encode(values), np.where(fit.logarithmic, np.log(500.0), 5.0)
    state = start_state(fit, theta, np.zeros((1, 0)), LevenbergOptions())
    end = levenberg_marquardt(fit, state, (-limit, limit), options=LevenbergOptions(**options))
    assert end.outcome.converged
    return end


def test_manipulation_begins_and_ends_at_the_start_and_moves_the_hand():
    path = reference(MODEL, STEPS)
    assert path.shape == (STEPS + 1, 7)
    np.testing.assert_allclose(path[[0, 50, -1]], np.tile(MODEL.start, (3, 1)), atol=1e-12)
    hand = mechanism().pose("H", np.hstack([path, np.zeros((STEPS + 1, 24))]))[1]
    assert (np.ptp(hand, axis=0) > 0.05).all()
    with pytest.raises(StructureError, match="scale 9"):
        record(MODEL, mechanism(), GROUND_TRUTH, STEPS, scale=9.0)


def test_a_manipulation_rests_where_its_waves_begin_and_a_world_at_rest_elsewhere_refuses_it():
    waves = drawn(np.random.default_rng(0))._replace(offsets=np.array([0.5, -0.3, 0.4, 0.2, -0.6]))
    path = reference(MODEL, STEPS, scale=SCALE, waves=waves)
    np.testing.assert_allclose(path[[50, -1]], path[[0, 0]], atol=1e-12)
    assert np.linalg.norm(path[0] - MODEL.start) > 0.1
    found = manipulation(LoopSimulator(), np.random.default_rng(0), steps=STEPS, waves=waves)
    np.testing.assert_allclose(found.values[:51], np.tile(path[0], (51, 1)), atol=1e-6)
    with pytest.raises(OptionError, match=r"waves have offsets .*, expected none: LoopRod"):
        manipulation(LoopRod(), np.random.default_rng(0), steps=STEPS, waves=waves)


def test_model_follows_its_own_recording_exactly_and_residuals_are_the_hands():
    follow = following()
    motion = follow.predict(GROUND_TRUTH)
    assert np.abs(motion.states[0, :, :7] - recording().angles).max() < 1e-10
    other = follow.predict(np.concatenate([[5.0, 5.0], GROUND_TRUTH[2:]]))
    hand = mechanism().pose("H", other.states[0, 1:, :31])[1]
    measured = mechanism().pose("H", follow.predict(GROUND_TRUTH).states[0, 1:, :31])[1]
    residual = follow.residuals(other)[0]
    np.testing.assert_allclose(residual[:-1], (hand - measured)[:-1], atol=1e-10)
    np.testing.assert_allclose(residual[-1], np.sqrt(2) * (hand - measured)[-1], atol=1e-10)


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_adjoint_equals_forward_sensitivities_and_differences(weight):
    fit = LogFit(following(angle_weight=weight), GROUND_TRUTH, (*STIFFNESS, "loop_damping", *OFFSETS[:2]), OFFSETS[:2])
    theta = fit.encode([5.0, 2.0, 0.02, 0.1, -0.1])
    value, adjoint = fit.value_and_slopes(theta)
    _, residual, jacobian = fit.linearization(theta)
    assert residual.shape == (STEPS, 3 if weight == 0 else 10)
    forward = 2 * np.einsum("ty,tyk->k", residual, jacobian)
    np.testing.assert_allclose(adjoint, forward, rtol=1e-10, atol=1e-10 * np.abs(forward).max())
    moves = 1e-5 * np.eye(5)
    differences = np.array([(fit.cost(theta + m, None) - fit.cost(theta - m, None)) / 1e-5 for m in moves])
    np.testing.assert_allclose(adjoint, differences, rtol=1e-5, atol=1e-6 * np.abs(adjoint).max())
    assert value == pytest.approx(2 * fit.cost(theta, None))


@pytest.mark.parametrize("start", [[5.0, 5.0], [0.5, 0.5], [20.0, 1.0]])
def test_ground_truth_is_recovered_from_a_recording_without_noise(start):
    fit = LogFit(following(), GROUND_TRUTH, STIFFNESS)
    end = minimise(fit, start)
    np.testing.assert_allclose(fit.decode(end.theta), GROUND_TRUTH[:2], rtol=1e-6)


def test_stiff_start_converges_through_a_damped_loop():
    follow = following()
    damped = GROUND_TRUTH.copy()
    damped[2] *= 30
    rough = LogFit(follow, damped, STIFFNESS)
    near = minimise(rough, [50.0, 50.0], cost_tolerance=1e-2, step_tolerance=1e-2)
    fit = LogFit(follow, GROUND_TRUTH, STIFFNESS)
    end = minimise(fit, rough.decode(near.theta))
    np.testing.assert_allclose(fit.decode(end.theta), GROUND_TRUTH[:2], rtol=1e-6)


def test_bias_of_torques_spoils_the_fit_unless_offsets_are_free():
    biased = Recording(recording().forces + 0.2, recording().angles)
    without = LogFit(following(biased), GROUND_TRUTH, STIFFNESS)
    spoilt = without.decode(minimise(without, [5.0, 5.0]).theta)
    assert np.abs(spoilt / GROUND_TRUTH[:2] - 1).max() > 0.02
    fit = LogFit(following(biased), GROUND_TRUTH, (*STIFFNESS, *OFFSETS), OFFSETS)
    found = fit.decode(minimise(fit, [5.0, 5.0, *(0.0,) * 7]).theta)
    np.testing.assert_allclose(found, [*GROUND_TRUTH[:2], *(-0.2,) * 7], rtol=1e-5)


def test_regulator_gains_hold_the_arm():
    follow = following()
    regulated = follow.regulated(GROUND_TRUTH, ratio=1e4)
    assert regulated.gains.shape == (STEPS, 7, 7)
    assert (np.linalg.eigvals(regulated.gains[0]).real > 0).all()
    fit = LogFit(regulated, GROUND_TRUTH, STIFFNESS)
    np.testing.assert_allclose(fit.decode(minimise(fit, [5.0, 5.0]).theta), GROUND_TRUTH[:2], rtol=1e-6)


def test_covariance_is_that_of_linearised_fits_to_noisy_recordings():
    """Gauss-Newton's step from the ground truth is linear in the noise; 120 draws show its standard deviation within 7 %."""
    follow, rng = following(), np.random.default_rng(0)
    fit = LogFit(follow, GROUND_TRUTH, STIFFNESS)
    theta = fit.encode(GROUND_TRUTH[:2])
    jacobian = fit.linearization(theta)[2].reshape(-1, 2)
    inverse, steps = np.linalg.pinv(jacobian), []
    for _ in range(120):
        noisy = recording().disturbed(rng, force=0.02, angle=2e-4)  # a tenth: the model is linear there
        other = following(noisy)
        steps.append(inverse @ other.residuals(other.predict(GROUND_TRUTH))[0].ravel())
    drawn = 100 * np.cov(np.array(steps).T)
    expected = fit.covariance(theta, **NOISE)
    np.testing.assert_allclose(np.sqrt(np.diag(drawn)), np.sqrt(np.diag(expected)), rtol=0.25)
    correlation = [matrix[0, 1] / np.sqrt(matrix[0, 0] * matrix[1, 1]) for matrix in (drawn, expected)]
    assert abs(correlation[0] - correlation[1]) < 0.25


def test_most_intervals_contain_the_ground_truth():
    """24 intervals of 95 %: fewer than 19 inside happens in 1 of 250 tests of a right covariance."""
    inside = []
    for seed in range(12):
        noisy = recording().disturbed(np.random.default_rng(seed), **NOISE)
        fit = LogFit(following(noisy), GROUND_TRUTH, STIFFNESS)
        theta = minimise(fit, [5.0, 2.0], cost_tolerance=1e-7).theta
        inside += list(np.abs(theta - fit.encode(GROUND_TRUTH[:2])) < 1.96 * np.sqrt(np.diag(fit.covariance(theta, **NOISE))))
    assert sum(inside) >= 19, sum(inside)


def test_bad_arguments_are_named():
    with pytest.raises(ShapeError, match="angles"):
        replace(following(), angles=recording().angles[1:])
    with pytest.raises(ShapeError, match="gains are given for 3"):
        following(gains=np.zeros((3, 7, 7)))
    with pytest.raises(OptionError, match="still"):
        following(still=0)
    with pytest.raises(StructureError, match="'k' is unknown"):
        LogFit(following(), GROUND_TRUTH, ("k",))
    with pytest.raises(OptionError, match="linear"):
        LogFit(following(), GROUND_TRUTH, STIFFNESS, OFFSETS[:1])


# --- The system's procedure ------------------------------------------------------------------------------------------------


@cache
def manipulated():
    return PROCEDURE.record(LoopSimulator(), np.random.default_rng(0), steps=300).train


def test_springs_that_pull_to_the_recorded_angles_add_nothing_where_the_model_moves_as_recorded():
    simulator = held_by_tracking(LoopSimulator())
    raw = manipulated()[0]
    assert raw.names == ARM and np.ptp(raw.values, axis=0).max() > 0.1
    recording = followed(simulator, raw)
    assert recording.names == (*HAND, *ARM)
    state = first_state(simulator, recording.names)(recording)
    states, status = simulator.rollout(state[None], recording.controls[None])
    assert status[0] == 0
    np.testing.assert_allclose(states[0, :, :7], raw.values, atol=1e-9)
    np.testing.assert_allclose(
        PROCEDURE.recorded.measurement(simulator, recording.names).function(states)[0], recording.values, atol=1e-9
    )


def test_the_papers_cost_finds_the_ground_truth_through_the_same_entry_point():
    stage = replace(PAPER, experiment="manipulation")
    fits = run_procedure(PROCEDURE, LoopSimulator(), manipulated(), stages=(stage,))
    found = [getattr(fits.parameters, name) for name in STIFFNESS]
    np.testing.assert_allclose(found, GROUND_TRUTH[:2], rtol=1e-6)
    assert fits.stages[-1].fit.diagnostics[0].value == 2
