"""What the model's step and its smooth law of dry friction leave open, by ground truths with other ones. A loop whose links
twist: the paper's loop in the limit of stiff joints, MuJoCo's chain, and what a rod says of itself. Springs of their own:
what the factors do in both engines, their derivatives, files, and what recordings tell of them. The loop's further ground
truths: an elastic rod, and a MuJoCo model as hard as a laboratory."""

import pickle
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.errors import OptionError, ParameterError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.procedure import MethodData, in_half_steps
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems.loop import SYSTEM
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.loop_file import read_model
from softgym_envs.systems.loop.mismatch import flawed
from softgym_envs.systems.loop.model import ARM, CLAMP, FRICTION, LoopModel
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.parameters import LoopParameters, TwistParameters, loop_parameters
from softgym_envs.systems.loop.procedure import (
    DAMPING,
    EVERYTHING,
    PROCEDURE,
    SPRING_DEVIATION,
    STIFFNESS,
    manipulation,
    unknown,
)
from softgym_envs.systems.loop.rod import LoopRod
from softgym_envs.systems.loop.springs import factor_names, spring_slopes, spring_values
from softgym_envs.systems.loop.tracking import creeping, held, pulled, tracker
from sysid.procedure.run import run_procedure

GROUND_TRUTH = LoopParameters(theta_stiffness=3.2, psi_stiffness=1.3, loop_damping=0.035, arm_damping=1.1)


def recorded(ground_truth, seconds, parameter_values=GROUND_TRUTH, scale=0.3):
    return manipulation(
        ground_truth, np.random.default_rng(0), steps=round(seconds / ground_truth.dt), parameters=parameter_values, scale=scale
    )


def test_half_of_the_step_is_nearer_to_a_ground_truth_in_fine_steps():
    """Torques are held for 10 ms: of first order at worst, so at least half of the errors goes."""
    recording = recorded(LoopSimulator(dt=1e-3), 2.0)
    noise = {**dict.fromkeys(ARM, 2e-4), **{f"control:{name}": 0.02 for name in ARM}}
    sizes = []
    for simulator in (held(LoopSimulator()), in_half_steps(held(LoopSimulator()))):
        errors = tracker(simulator, pulled(held(LoopSimulator()), recording)).anchored(GROUND_TRUTH.to_vector(), noise)
        found, good = errors.errors(GROUND_TRUTH.to_vector()[None])
        assert good.all()
        sizes.append(np.sqrt(np.mean(found**2)))
    assert sizes[1] < 0.55 * sizes[0]


def test_another_law_of_friction_is_within_the_intervals_and_a_diagnostic_names_it():
    """A ground truth whose friction sets in over a quarter more speed: less is told where it acts."""
    rubbed = GROUND_TRUTH.replace(**dict.fromkeys(FRICTION, 0.15))
    clean, rng = recorded(creeping(LoopSimulator()), 4.0, rubbed, scale=None), np.random.default_rng(1)
    data = replace(clean.with_noise(rng, 5e-4), controls=clean.controls + 0.05 * rng.standard_normal(clean.controls.shape))
    stage = replace(PROCEDURE.from_recordings, free=(*DAMPING, *FRICTION))
    fit = run_procedure(PROCEDURE, LoopSimulator(), TrajectorySet((data,)), start=GROUND_TRUTH, stages=(stage,)).stages[0].fit
    off = {e.name: abs(e.value - getattr(rubbed, e.name)) / e.std for e in fit.estimates}
    assert off["friction_w0"] > 2.5  # what noise alone leaves open misses it
    assert all(e.interval[0] <= getattr(rubbed, e.name) <= e.interval[1] for e in fit.estimates)
    said = next(d for d in fit.of("model_choice") if str(d.parameter).startswith("friction that creeps"))
    assert said.severity == "warning"
    assert "friction_w0" in {moved["name"] for moved in said.facts["moved"]}


def test_springs_that_are_not_alike_move_a_fit_as_its_diagnostic_says():
    """By how much each of four groups of springs moves whole fits, one at a time, makes up what the diagnostic tells of all."""
    model, factor = replace(LoopModel(), spring_parts=1), 0.05
    own = LoopSimulator(model)
    names = factor_names(1)
    stage = replace(PROCEDURE.from_recordings, free=STIFFNESS)
    grouped = replace(
        PROCEDURE,
        methods=MethodData(
            homogeneous={"springs unlike": (factor, lambda s: replace(s, model=replace(s.model, spring_parts=1)))}
        ),
    )

    def fitted(**factors):
        ground_truth = own.default_parameters.replace(
            **{name: getattr(GROUND_TRUTH, name) for name in GROUND_TRUTH.names()}, **factors
        )
        clean, rng = recorded(own, 3.0, ground_truth, scale=None), np.random.default_rng(1)
        data = replace(clean.with_noise(rng, 2e-4), controls=clean.controls + 0.02 * rng.standard_normal(clean.controls.shape))
        fit = run_procedure(grouped, LoopSimulator(), TrajectorySet((data,)), start=GROUND_TRUTH, stages=(stage,)).stages[0].fit
        return fit, np.log([getattr(fit.parameters, name) for name in STIFFNESS])

    fit, alike = fitted()
    moved = np.array([fitted(**{name: np.exp(factor)})[1] - alike for name in names])
    said = next(d for d in fit.of("model_choice") if d.parameter == "springs unlike")
    assert said.severity == "warning" and not said.facts["allowed"]
    told = {moved["name"]: moved["reach"] for moved in said.facts["moved"]}
    assert np.allclose([told[name] for name in STIFFNESS], 1.96 * np.linalg.norm(moved, axis=0), rtol=0.1)


TWISTING = LoopModel(twist=True)


def turned(model, stiffness=0.0):
    """Angles of the loop at rest, the hand turned by 0.3 rad about its axis and bent by 0.2, with this stiffness of twist."""
    parameter_values = model.defaults[None]
    if model.twist:
        parameter_values[0, model.parameter_names.index("twist_stiffness")] = stiffness
    arm = np.array([model.start])
    arm[0, [4, 6]] += [0.2, 0.3]
    return model.relax(arm, parameter_values)[0][0]


def test_joints_have_a_third_angle_with_constants_of_its_own(tmp_path):
    assert (LoopModel().n, TWISTING.n) == (31, 43) and TWISTING.layout.names[7:10] == ("left0.theta", "left0.psi", "left0.phi")
    assert TWISTING.parameters_class is TwistParameters and LoopModel().parameters_class is LoopParameters
    assert set(unknown(LoopSimulator(model=TWISTING))) - set(EVERYTHING) == {"twist_stiffness", "twist_damping"}
    both = loop_parameters(3, True)
    assert issubclass(both, Parameters) and pickle.loads(pickle.dumps(both(twist_stiffness=2.0))) == both(twist_stiffness=2.0)
    (tmp_path / "loop.toml").write_text("twist = true\n")
    assert read_model(tmp_path / "loop.toml").twist


def test_stiff_twist_is_the_papers_loop():
    """At rest under a turned hand: what twist changes is of first order in its softness."""
    places = np.flatnonzero([not name.endswith("phi") for name in TWISTING.layout.names[: TWISTING.n]])
    paper, gaps = turned(LoopModel()), []
    for stiffness in (2e3, 8e3):
        found = turned(TWISTING, stiffness)[places]
        gaps.append(np.abs(found - paper).max())
    assert gaps[0] > 1e-3 and gaps[1] == pytest.approx(gaps[0] / 4, rel=0.2)


def test_slopes_of_trees_constants_are_differences():
    model = LoopModel(6, twist=True, spring_parts=1)
    row = model.parameters_class(twist_stiffness=2.0, theta_left0=1.3).to_matrix(1)
    steps = 1e-6 * np.eye(row.shape[1])
    found = (model.tree_constants(row + steps) - model.tree_constants(row - steps)).T / 2e-6
    np.testing.assert_allclose(model.tree_slopes(row)[0], found, atol=1e-7)
    assert len(model.parameter_names) == found.shape[0]


def test_engine_and_mujoco_twist_alike():
    engine, mujoco_model = LoopSimulator(model=TWISTING, dt=1e-3), MujocoLoop(model=TWISTING, dt=1e-3)
    controls = np.tile(TWISTING.hold, (1, 15, 1))
    controls[..., 4:] += 2.0
    ours, theirs = (
        world.rollout(world.initial_state(), controls, substeps=10)[0][0, -1, : TWISTING.n] for world in (engine, mujoco_model)
    )
    phi = np.array([name.endswith("phi") for name in TWISTING.layout.names[: TWISTING.n]])
    moved = np.abs(ours - engine.initial_state()[0, : TWISTING.n])
    assert moved[phi].max() > 5e-3 and np.abs(ours - theirs).max() < 0.02 * moved.max()


def test_rod_shows_its_twist_to_a_model_that_has_one():
    """In the first state there is none; the wrist's turn arrives in the links nearest to the hand with its sign."""
    rod = LoopRod(model=TWISTING, pieces=1, dt=5e-3)
    start = rod.initial_state()[0, : TWISTING.n]
    phi = np.array([name.endswith("phi") for name in TWISTING.layout.names[: TWISTING.n]])
    assert rod.state_names[: TWISTING.n] == LoopSimulator(model=TWISTING).state_names[: TWISTING.n]
    assert np.abs(start[phi]).max() < 5e-3 and len(ARM) == 7
    controls = np.tile(TWISTING.hold, (1, 15, 1))
    controls[..., 4:] += 2.0
    theirs = rod.rollout(rod.initial_state(), controls, substeps=2)[0][0, -1, : TWISTING.n]
    same = TwistParameters(psi_stiffness=4.45252, twist_stiffness=4.45252 / 1.5)
    ours = LoopSimulator(model=TWISTING, dt=5e-3).rollout(rod.initial_state()[:, : 2 * TWISTING.n], controls, same, substeps=2)[
        0
    ]
    assert np.corrcoef(theirs[phi], ours[0, -1, : TWISTING.n][phi])[0, 1] > 0.9


@pytest.mark.parametrize("backend", ["native", "mujoco", "rod"])
@pytest.mark.parametrize("task", [task.id for task in SYSTEM.tasks])
def test_tasks_and_pictures_know_of_twist(task, backend):
    """Every task of the system, whatever parameters its world has."""
    usual = gym.make(task).unwrapped.simulator.model
    env = gym.make(task, backend=backend, model=replace(usual, twist=True), render_mode="rgb_array")
    env.reset(seed=0)
    observation, reward, *_ = env.step(np.zeros(env.action_space.shape, np.float32))
    assert np.isfinite(observation).all() and np.isfinite(reward) and env.render().std() > 5.0


MODEL = LoopModel(6, spring_parts=3)
UNEVEN = {"theta_left0": 1.4, "theta_right2": 0.7, "psi_left1": 1.3}


def torques(model, steps=20):
    return model.hold + 2.0 * np.random.default_rng(0).normal(size=(1, steps, 7))


def test_equal_springs_are_the_loops():
    plain, parted = LoopSimulator(model=LoopModel(6)), LoopSimulator(model=MODEL)
    ours, theirs = (s.rollout(s.initial_state(), torques(plain.model))[0] for s in (plain, parted))
    np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_factors_are_of_the_joints_that_they_name_in_both_engines():
    parameters = loop_parameters(3)(**UNEVEN)
    mujoco_model = MujocoLoop(model=MODEL).mj_model(parameters)
    for name, factor in (("left_theta0", 1.4), ("right_theta2", 0.7), ("right_theta1", 1.0)):
        assert mujoco_model.jnt_stiffness[mujoco_model.joint(name).id] == pytest.approx(factor * parameters.theta_stiffness)
    assert mujoco_model.jnt_stiffness[mujoco_model.joint("left_psi1").id] == pytest.approx(1.3 * parameters.psi_stiffness)
    own = dict(zip(MODEL.parameter_names, MODEL.tree_constants(parameters.to_matrix(1))[0], strict=True))
    for joint in MODEL.tree.moving:
        if isinstance(joint.stiffness, str):
            assert own[joint.stiffness] == pytest.approx(mujoco_model.jnt_stiffness[mujoco_model.joint(joint.name).id])


def test_a_coarser_or_finer_loop_has_the_same_parts():
    halves = [joint.stiffness for joint in LoopModel(12, spring_parts=2).tree.moving if joint.name.startswith("left_theta")]
    assert halves == ["spring_theta_left0"] * 3 + ["spring_theta_left1"] * 3


def test_slopes_are_differences():
    simulator = LoopSimulator(model=MODEL)
    parameters = loop_parameters(3)(**UNEVEN)
    names, vector = parameters.names(), parameters.to_vector()
    moved = simulator.step(simulator.initial_state(), torques(MODEL)[:, 0], parameters, substeps=5)[0]
    C = simulator.linearize(moved, torques(MODEL)[:, 1], parameters, substeps=5)[2][0]
    for name in ("theta_left0", "psi_right1", "theta_stiffness", "gravity", "friction_w2"):
        way = 1e-4 * np.eye(len(names))[names.index(name)]
        ends = [simulator.step(moved, torques(MODEL)[:, 1], type(parameters).from_vector(vector + s * way), substeps=5)[0]
                for s in (1, -1)]  # fmt: skip
        expected = (ends[0] - ends[1])[0] / 2e-4
        np.testing.assert_allclose(C[:, names.index(name)], expected, atol=2e-5 * np.abs(expected).max() + 1e-9)
    rows = np.random.default_rng(1).uniform(0.5, 2.0, (2, len(names)))
    found, step = spring_slopes(rows, 3), 1e-6
    for column in (0, 1, len(names) - 1, len(names) - 9):
        way = step * np.eye(len(names))[column]
        expected = (spring_values(rows + way, 3) - spring_values(rows - way, 3)) / (2 * step)
        np.testing.assert_allclose(found[:, :, column], expected, atol=1e-8)


def test_classes_are_pickled_and_files_are_of_their_own_kind(tmp_path):
    parameters = loop_parameters(3)(theta_left0=1.2)
    assert pickle.loads(pickle.dumps(parameters)) == parameters
    path = parameters.save(tmp_path / "own.toml")
    assert loop_parameters(3).load(path) == parameters
    with pytest.raises(ParameterError, match="LoopParameters3"):
        LoopParameters.load(path)
    (tmp_path / "joints.toml").write_text("links = 6\nspring_parts = 3\n")
    assert read_model(tmp_path / "joints.toml") == MODEL
    with pytest.raises(OptionError, match=r"spring_parts is 4, expected .* 3"):
        LoopModel(6, spring_parts=4)


def test_two_manipulations_tell_springs_apart_and_say_of_which_they_do_not():
    simulator, rng = LoopSimulator(model=LoopModel(6, spring_parts=1)), np.random.default_rng(0)
    ground_truth = loop_parameters(1)(theta_stiffness=4.0, psi_stiffness=1.2, theta_left0=1.3, theta_right0=0.8)

    def recorded():
        clean = manipulation(simulator, rng, steps=300, parameters=ground_truth)
        return replace(clean.with_noise(rng, 1e-3), controls=clean.controls + 0.05 * rng.standard_normal(clean.controls.shape))

    assert PROCEDURE.from_recordings is not None
    stage = replace(PROCEDURE.from_recordings, free=(*factor_names(1), "loop_damping"))
    start = loop_parameters(1)(theta_stiffness=5.0, psi_stiffness=5.0)
    found = (
        run_procedure(PROCEDURE, simulator, TrajectorySet((recorded(), recorded())), start=start, stages=(stage,)).stages[0].fit
    )
    for e in found.estimates[:4]:
        axis = e.name.split("_")[0] + "_stiffness"
        share = getattr(ground_truth, axis) * getattr(ground_truth, e.name) / getattr(found.parameters, axis)
        assert abs(np.log(e.value / share)) < 4 * e.std / e.value, (e, share)
        assert e.assumed == (e.std / e.value > SPRING_DEVIATION / np.sqrt(2))
    assert set(unknown(simulator)[:4]) == set(factor_names(1)) and "theta_stiffness" not in unknown(simulator)
    assert not found.estimates[0].assumed


ROD = LoopRod()


def test_rod_hangs_at_rest_as_the_models_loop_does():
    state, model = ROD.initial_state()[0], ROD.model.rest_state()
    polygon = ROD._polygon(state[None], LoopParameters().to_matrix(1))[0]
    np.testing.assert_allclose(polygon, model[len(ARM) : ROD.model.n], atol=5e-3)
    after, status = ROD.rollout(state[None], np.tile(ROD.model.hold, (1, 5, 1)), substeps=40)
    assert status[0] == 0 and np.abs(after[0, -1, : ROD.model.n] - state[: ROD.model.n]).max() < 5e-3


def test_rod_holds_its_line_between_gripper_and_clamp():
    gap = np.abs(ROD.engine.evaluate(ROD.initial_state(), LoopParameters().to_matrix(1), _gap)).max()
    assert gap < 1e-4
    assert len(ROD.tree.coordinates) == 7 + 3 * 24


def _gap(mj, data):
    return np.concatenate([data.site(f"N_{side}").xpos - data.site(f"clamp_{side}").xpos for side in ("left", "right")])


def test_rods_loop_pulls_as_a_ring_of_its_stiffness_does():
    """A sideways push of the hand meets what our loop does with kappa_psi near kappa_theta, within a third."""
    pushed = np.array(ROD.model.start) + np.array([0.06, 0, 0, 0, 0, 0, 0])
    rod = _torque(ROD, pushed)
    ours = _torque(MujocoLoop(), pushed, LoopParameters(psi_stiffness=3.0))
    assert rod == pytest.approx(ours, rel=0.35), (rod, ours)


def _torque(ground_truth, arm, parameters=None):
    """Torque of s0 that holds the arm there after a second, led there with stiff springs."""
    start = np.array(ground_truth.model.start)
    substeps, state, gains = (
        round(0.01 / ground_truth.dt),
        ground_truth.initial_state(),
        np.array([400.0, 400, 300, 300, 100, 100, 50]),
    )
    for k in range(80):
        target = start + min(k / 40, 1.0) * (arm - start)
        control = ground_truth.model.hold + gains * (target - state[0, :7]) - 0.05 * gains * state[0, 31:38]
        lower, upper = ground_truth.control_bounds
        control = np.clip(control, lower, upper)
        found, _ = ground_truth.rollout(state, control[None, None], parameters, substeps=substeps)
        state = found[:, -1]
    return float((control - ground_truth.model.hold)[0])


def test_every_flaw_of_the_sensors_does_what_it_says():
    """A recording of straight lines, 4 s at 100 Hz: a lag shifts torques by its size."""
    times = 0.01 * np.arange(401)
    angles, torques = times[:, None] * np.ones(7), 3.0 * times[:-1, None] * np.ones(7)
    ground_truth = Trajectory(times, torques, angles, ARM, ("rad",) * 7, tuple(f"{a}.torque" for a in ARM), ("N m",) * 7)

    def heard(effect, size):
        others = {"angle_noise": 0.0, "torque_noise": 0.0, "torque_bias": 0.0, "torque_lag": 0.0}
        found = MujocoLoop(seed=1, effects={**others, effect: size}).sensed(ground_truth, np.random.default_rng(0))
        return found.values - angles, found.controls - torques

    for effect, place in (("angle_noise", 0), ("torque_noise", 1)):  # 2800 draws: 5 standard errors of a deviation are 7 %
        errors = heard(effect, 0.02)
        assert not errors[1 - place].any() and errors[place].std() == pytest.approx(0.02, rel=0.07)
    still, biased = heard("torque_bias", 0.2)
    assert not still.any() and np.ptp(biased, axis=0).max() < 1e-12 and 0.01 < np.abs(biased).max() <= 0.2
    still, late = heard("torque_lag", 0.01)
    assert not still.any()
    np.testing.assert_allclose(late[3:], -3.0 * 0.01, atol=1e-12)


def test_mismatched_models_flaws_are_drawn_by_seed_and_seen_in_recordings():
    hard = MujocoLoop(level=2, seed=3)
    row = LoopParameters().to_vector()
    true, other = flawed(hard, row), flawed(MujocoLoop(level=2, seed=4), row)
    moved = [name for name, a, b in zip(LoopParameters.names(), row, true, strict=True) if a != b]
    assert set(moved) == {"arm_damping", "loop_damping", *CLAMP}
    assert np.array_equal(true, flawed(MujocoLoop(level=2, seed=3), row)) and not np.allclose(true, other)
    assert np.array_equal(flawed(MujocoLoop(), row), row)
    soft, drawn = (mujoco_model.mj_model() for mujoco_model in (MujocoLoop(), hard))
    factors = drawn.jnt_stiffness[soft.jnt_stiffness > 0] / soft.jnt_stiffness[soft.jnt_stiffness > 0]
    assert np.ptp(np.log(factors)) > 0.1 and np.abs(np.log(factors)).max() <= 0.1
    assert (drawn.dof_frictionloss > 0).sum() == 7
    quiet = {"angle_noise": 0.0, "torque_noise": 0.0, "torque_bias": 0.0, "torque_lag": 0.0}
    clean, noisy = (
        manipulation(MujocoLoop(effects={**quiet, **more}), np.random.default_rng(0), steps=600)
        for more in ({}, {"angle_noise": 2e-3, "torque_noise": 0.2, "torque_lag": 0.0})
    )
    assert clean.names == noisy.names == ARM
    assert np.std(noisy.values - clean.values) == pytest.approx(2e-3, rel=0.2)
    assert np.std(noisy.controls - clean.controls) == pytest.approx(0.2, rel=0.2)


def test_bad_options_are_named():
    with pytest.raises(OptionError, match="friction"):
        MujocoLoop(effects={"friction": -1.0}).engine.models(LoopParameters().to_matrix(1))
    with pytest.raises(OptionError, match="poisson"):
        LoopRod(poisson=0.7)
    with pytest.raises(OptionError, match="pieces"):
        LoopRod(pieces=3)
    with pytest.raises(OptionError, match="dt"):
        LoopRod(dt=0.0)


def test_a_rod_of_fewer_pieces_moves_alike():
    torques = ROD.model.hold + 4.0 * np.random.default_rng(0).normal(size=(1, 4, 7))
    coarse = LoopRod(dt=5e-3, pieces=1)
    assert coarse.refinement == 10 and len(coarse.tree.coordinates) == 7 + 3 * 12
    ends = []
    for rod in (coarse, replace(coarse, pieces=2)):
        states, status = rod.rollout(rod.initial_state(), torques, substeps=10)
        assert status[0] == 0
        ends.append(rod.model.nodes(states[0, -1:, : rod.model.layout.nx]))
    moved = np.abs(ends[1] - ROD.model.nodes(ROD.model.rest_state()[None])).max()
    assert np.abs(ends[0] - ends[1]).max() < 0.2 * moved and moved > 0.02


def test_rod_begins_with_the_models_entries():
    ours = LoopSimulator()
    assert ROD.state_names[: ours.nx] == ours.state_names and ROD.control_names == ours.control_names


def test_rods_long_steps_are_made_of_short_ones():
    torques = ROD.model.hold + 2.0 * np.random.default_rng(0).normal(size=(1, 3, 7))
    short, long = (
        LoopRod(dt=dt).rollout(ROD.initial_state(), torques, substeps=round(0.02 / dt))[0][0] for dt in (2.5e-4, 2e-3)
    )
    np.testing.assert_array_equal(short, long)


def test_rods_recordings_are_seen_through_the_arms_sensors():
    clean, noisy = (
        manipulation(LoopRod(dt=5e-3, effects=effects), np.random.default_rng(0), steps=300)
        for effects in ({}, {"angle_noise": 2e-3, "torque_noise": 0.2, "torque_bias": 0.3})
    )
    assert np.std(noisy.values - clean.values) == pytest.approx(2e-3, rel=0.2)
    off = (noisy.controls - clean.controls).mean(axis=0)
    assert 0.1 < np.abs(off).max() < 0.35
