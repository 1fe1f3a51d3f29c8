"""The elbow: its step against its order, other formulations and MuJoCo; its tasks and its identification. The elbow in
director coordinates: the engine's motion as dt goes to zero, and discrete paths that become the closed form."""

from __future__ import annotations

import itertools
from typing import Any

import casadi as ca
import gymnasium as gym
import mujoco
import numpy as np
import pytest
from helpers import success

from agents.control.first_guess import minimum_jerk
from agents.control.optimal import Manoeuvre, solve_form
from reproductions.penner2020.dmocc import DirectorElbow
from softgym_envs.core.errors import OptionError
from softgym_envs.core.task import Start
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.mechanics import Mechanism
from softgym_envs.systems.arm.build import MOVE
from softgym_envs.systems.arm.controllers import blind, reflex
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.elbow import activations, balance, both_tangents, inertia, net_torque
from softgym_envs.systems.arm.model import ElbowModel, muscle_path
from softgym_envs.systems.arm.mujoco import MujocoElbow
from softgym_envs.systems.arm.parameters import ElbowParameters
from softgym_envs.systems.arm.procedure import PROCEDURE, excited
from softgym_envs.systems.arm.tasks import HELD, NEXT, REACHED
from sysid import FitProblem, multiple_shooting
from sysid.fitting.shooting import ShootingOptions
from sysid.procedure.candidate_causes import candidate
from sysid.procedure.run import run_procedure

PARAMETERS = ElbowParameters().to_matrix(1)[0]


def excitations(seed: int, rows: int, steps: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.0, 0.3, (rows, 1, 2)).repeat(steps, axis=1) * (1.0, 0.4)


def test_steps_are_of_second_order():
    start = np.array([[1.2, -1.0, 0.3, 0.1]])  # away from where wrapping begins and ends, where forces have a kink
    controls = np.tile([0.25, 0.15], (1, 1, 1))
    ends = [
        ElbowSimulator(dt=dt).rollout(start, controls, substeps=round(0.08 / dt))[0][0, -1]
        for dt in (0.01, 0.005, 0.0025, 1e-4)
    ]
    errors = [np.abs(end - ends[-1]).max() for end in ends[:-1]]
    assert (np.log2(np.array(errors[:-1]) / errors[1:]) > 1.8).all(), errors


def test_the_symbolic_step_is_the_step():
    simulator, rng = ElbowSimulator(), np.random.default_rng(1)
    state = np.column_stack([rng.uniform(-0.1, 2.7, 40), rng.normal(size=40), rng.uniform(0, 1, (40, 2))])
    control = rng.uniform(0, 1, (40, 2))
    after, _ = simulator.step(state, control)
    residual = simulator.symbolic_step().residual(state, control, np.tile(PARAMETERS, (40, 1)), after, np.zeros((40, 0)))
    assert residual.max() < 1e-11


def test_bones_are_those_of_the_tree_mechanics():
    """The same inertia and weight as the tree of the TOML file, by another formulation."""
    model, (damping, payload) = ElbowModel(), (0.2, 1.3)
    tree = Mechanism(model.tree, 0.01, ("damping", "friction", "payload"))
    structure, q = model.structure(0.01), np.array([[0.4], [1.7]])
    slopes = tree.slopes(q, np.zeros_like(q), (damping, 0.0, payload))
    np.testing.assert_allclose(slopes.vv[:, 0, 0], structure.inertia + payload * structure.reach**2, rtol=1e-12)
    weight = (structure.moment[0] + payload * structure.load[0]) * structure.gravity * np.sin(q[:, 0])
    np.testing.assert_allclose(slopes.q[:, 0], -weight, rtol=1e-12)


@pytest.mark.parametrize("friction", [0.0, 0.05, 0.4, 3.0])
def test_an_arm_without_muscles_moves_as_that_of_the_tree_mechanics(friction):
    """Thrown upwards, it turns, and falls or is held by dry friction, as midpoint steps of the tree do."""
    dt, rows, names = 0.005, 120, ("damping", "friction", "payload")
    parameter_values = ElbowParameters(damping=0.02, friction=friction, payload=1.0).to_matrix(1)
    parameter_values[:, [0, 4]] = 0.0  # muscles of no force
    found, status = ElbowSimulator(dt=dt).engine.rollout(
        np.array([[0.8, 4.0, 0, 0]]), np.zeros((1, rows, 2)), parameter_values, 1
    )
    tree, values = Mechanism(ElbowModel().tree, dt, names, force_split="symmetric"), (0.02, friction, 1.0)
    theirs = tree.simulate(tree.state([[0.8]], [[4.0]], parameter_values=values), np.zeros((1, rows, tree.nu)), values)
    free = np.cumprod(found[0, :, 0] > 0.7) > 0  # until the elbow's soft stops, which are not the tree's
    assert not status.any() and free.sum() > 60 and found[0, free, 1].min() < 1e-3
    np.testing.assert_allclose(found[0, free, 0], theirs.states[0, free, 0], atol=1e-10)


@pytest.mark.parametrize("friction", [0.0, 0.4, 3.0])
def test_steps_solve_their_equation_however_a_solver_comes_there(friction):
    """Random muscles, loads and speeds: the residual vanishes at the speed of every single step."""
    rng, rows, dt = np.random.default_rng(3), 200, 0.01
    simulator = ElbowSimulator(dt=dt)
    parameter_values = ElbowParameters(friction=friction, payload=0.5).to_matrix(rows)
    state = np.column_stack([rng.uniform(0.05, 2.5, rows), 4.0 * rng.standard_normal(rows), rng.random((rows, 2))])
    control = rng.random((rows, 1, 2))
    states, status = simulator.engine.rollout(state, control, parameter_values, 1)
    g, worst = simulator.structure, 0.0
    for (q, v, a, b), e, after, c in zip(state, control[:, 0], states[:, 1], parameter_values, strict=True):
        first, second = activations(g, c, a, e[0], dt)[0], activations(g, c, b, e[1], dt)[0]
        worst = max(worst, abs(balance(g, c, dt, q, v, 0.5 * (v + after[1]), first, second, both_tangents(g, c))))
    assert not status.any() and worst < 1e-12


def test_dry_friction_is_named_where_it_is_a_candidate_cause():
    """0.1 N m that a fit of damping and strength does not know, seen as a laboratory sees it."""
    ground_truth, seen = ElbowSimulator(), ElbowParameters(friction=0.1)
    noise = {"elbow": 2e-3, "velbow": 0.02, "biceps": 0.01, "triceps": 0.01}
    recording = excited(ground_truth, np.random.default_rng(0), steps=600, parameters=seen).with_noise(
        np.random.default_rng(1), noise
    )
    free, candidate_causes = ("damping", "biceps_force", "triceps_force"), {"dry friction": ("friction",)}
    given = FitProblem(ground_truth, TrajectorySet((recording,)), free, free_initial=True, candidate_causes=candidate_causes)
    fit = lambda problem: multiple_shooting(problem, ShootingOptions(segment_steps=20))  # noqa: E731
    blind = fit(given)
    (cause,) = candidate(candidate_causes, fit, given, blind).of("likely_cause")
    assert not blind.explained and cause.parameter == "dry friction" and cause.facts["adequate"]
    found = next(e for e in fit(given.replace(free=(*free, "friction"))).estimates if e.name == "friction")
    assert abs(found.value - 0.1) < 4.0 * found.std < 0.04


def test_lengths_and_moment_arms_are_those_of_the_mujoco_models_tendons():
    model, mujoco_model = ElbowModel(), MujocoElbow()
    angles = np.linspace(0.0, 2.6, 27)
    lengths, arms = model.lengths(angles, PARAMETERS)
    states = np.column_stack([angles, np.zeros((27, 3))])

    def read(world: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
        return np.concatenate([data.ten_length[:2], np.asarray(data.ten_J).reshape(3, -1)[:2, 0]])

    theirs = mujoco_model.engine.evaluate(states, np.tile(PARAMETERS, (27, 1)), read)
    np.testing.assert_allclose(lengths, theirs[:, :2], atol=1e-12)
    np.testing.assert_allclose(arms, -theirs[:, 2:], atol=1e-12)
    slopes = (model.lengths(angles + 1e-6, PARAMETERS)[0] - model.lengths(angles - 1e-6, PARAMETERS)[0]) / 2e-6
    np.testing.assert_allclose(arms, -slopes, atol=1e-7)
    touching = [len(muscle_path(m, (np.ones(3), np.ones(3)), r, a)) > 2 for m, r in _muscles(model) for a in angles]
    assert 5 < sum(touching) < 2 * 27  # both touch somewhere, and are free somewhere


def _muscles(model: ElbowModel) -> list:
    structure = model.structure(1.0)
    return [(structure.biceps, PARAMETERS[3]), (structure.triceps, PARAMETERS[7])]


def test_the_drawn_path_is_as_long_as_the_muscle():
    model = ElbowModel()
    for angle in (0.0, 0.2, 1.0, 2.4):
        places, lengths = model.places(angle), model.lengths(np.array([angle]), PARAMETERS)[0][0]
        for (wrapped, radius), name, length in zip(_muscles(model), ("biceps", "triceps"), lengths, strict=True):
            path = muscle_path(wrapped, (places[f"{name}_origin"], places[f"{name}_insertion"]), radius, angle)
            assert abs(np.linalg.norm(np.diff(path, axis=0), axis=1).sum() - length) < 1e-3 * length


def test_the_mujoco_model_is_ours_but_for_the_muscles_curves():
    """With MuJoCo's own muscle forces on our moment arms, our equation of motion gives its accelerations."""
    model, mujoco_model, rng = ElbowModel(), MujocoElbow(), np.random.default_rng(3)
    states = np.column_stack([rng.uniform(0.1, 2.5, 20), rng.normal(size=20), rng.uniform(0, 1, (20, 2))])

    def read(world: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
        return np.array([data.qacc[0], *data.actuator_force])

    acceleration, *forces = mujoco_model.engine.evaluate(states, np.tile(PARAMETERS, (20, 1)), read).T
    structure, arms = model.structure(0.01), model.lengths(states[:, 0], PARAMETERS)[1]
    without = PARAMETERS.copy()
    without[[0, 4]] = 0.0
    passive = np.array([net_torque(structure, without, q, w, 0.0, 0.0) for q, w in states[:, :2]])
    torque = passive - (arms * np.array(forces).T).sum(axis=1)  # MuJoCo's forces push where they are positive
    np.testing.assert_allclose(torque / inertia(structure, PARAMETERS), acceleration, rtol=1e-6, atol=0.05)


def test_activations_of_the_mujoco_model_are_ours():
    ours, mujoco_model, controls = ElbowSimulator(), MujocoElbow(), excitations(2, 12, 20)
    a, _ = ours.rollout(ours.initial_state(12), controls, substeps=4)
    b, status = mujoco_model.rollout(ours.initial_state(12), controls, substeps=20)
    assert (status == 0).all() and np.abs(a - b)[:, :, 2:].max() < 0.03


def test_a_payload_lowers_the_arm_and_stops_hold_it():
    simulator = ElbowSimulator()
    controls = np.tile([0.08, 0.0], (3, 150, 1))
    parameters = ElbowParameters(payload=np.array([0.0, 1.0, 3.0]), damping=1.0)
    states, _ = simulator.rollout(simulator.initial_state(3), controls, parameters, substeps=4)
    assert (np.diff(states[:, -1, 0]) < -0.05).all()
    full, status = simulator.rollout(
        simulator.initial_state(2), np.array([[[1.0, 0.0]], [[0.0, 1.0]]]).repeat(100, axis=1), substeps=4
    )
    assert (status == 0).all() and full[:, :, 0].max() < 2.9 and full[:, :, 0].min() > -0.3


def test_bad_options_are_named():
    with pytest.raises(OptionError, match="rest_angle"):
        ElbowModel(rest_angle=9.0)
    with pytest.raises(OptionError, match="dt"):
        ElbowSimulator(dt=0.0)
    with pytest.raises(OptionError, match="dt"):
        MujocoElbow(dt=-1.0)
    with pytest.raises(OptionError, match="tolerance"):
        gym.make("softgym_envs:ArmReach-v0", tolerance=0.0)


# --- tasks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["ArmReach-v0", "ArmHold-v0"])
def test_a_reflex_does_it_and_nothing_does_not(env_id: str):
    for backend in ("native", "mujoco"):
        assert success(env_id, reflex, backend=backend) >= 0.9
    rng = np.random.default_rng(0)
    for idle in (lambda o: np.zeros((len(o), 2)), lambda o: -np.ones((len(o), 2)), lambda o: rng.uniform(-1, 1, (len(o), 2))):
        assert success(env_id, lambda envs, idle=idle: idle) <= 0.05
    assert success(env_id, blind) < 0.3


def test_a_load_that_is_named_is_not_drawn():
    for randomize, drawn in ((None, False), ({"payload": (0.5, 1.0)}, True)):
        keywords = {} if randomize is None else {"randomize": randomize}
        env = gym.make("softgym_envs:ArmHold-v0", params={"payload": 2.0}, **keywords).unwrapped
        place, loads = env.simulator.default_parameters.names().index("payload"), set()
        for seed in range(3):
            env.reset(seed=seed)
            loads.add(float(env.episodes.parameter_values[0, place]))
        assert (len(loads) == 3 and max(loads) <= 1.0) if drawn else loads == {2.0}


def test_no_constant_excitation_holds_both_angles():
    for constant in itertools.product(np.linspace(-1.0, 1.0, 7), repeat=2):
        assert success("ArmHold-v0", lambda envs, held=constant: lambda o: np.tile(held, (len(o), 1))) < 0.1, constant


def test_to_let_the_target_move_pays_at_once():
    """Also where the next angle is as far as can be, and half a second away: it was worth more to leave the first in time."""
    task = gym.make("softgym_envs:ArmHold-v0").unwrapped.task
    low, high = task.targets
    context, state, idle = np.zeros((1, 5)), np.array([[low, 0.0, 0.0, 0.0]]), -np.ones((1, 2))
    context[0, [0, NEXT]] = low, high
    total = 0.0
    for step in range(round((0.5 * task.hold_time + 0.5) / task.control_period)):
        state[0, 0] = low + max(0.0, step * task.control_period - 0.5 * task.hold_time) / 0.5 * (high - low)
        after = task.update(context, state)
        total += sum(float(term[0]) for term in task.reward(state, state, idle, context, after).values())
        context = after
    assert context[0, 0] == high and context[0, NEXT] == high
    assert total > 0.0  # what staying at the first angle could earn at most


def test_the_next_angle_comes_when_the_first_has_been_held():
    """Both lie in the range, at least MOVE apart; each is held for half of the time."""
    task = gym.make("softgym_envs:ArmHold-v0").unwrapped.task
    rngs = [np.random.default_rng(seed) for seed in range(300)]
    _, context = task.reset(Start(rngs, {}, {}, lambda state, control, seconds: state))
    first, following = context[:, 0], context[:, NEXT]
    assert (np.abs(following - first) >= MOVE).all()
    assert min(following) >= task.targets[0] and max(following) <= task.targets[1]
    assert np.ptp(following) > 0.9 * np.ptp(task.targets)
    state = np.zeros((300, 4))
    for angle, reached in ((first, 0.0), (following, 1.0)):
        state[:, 0] = angle
        for _ in range(round(0.5 * task.hold_time / task.control_period) - 1):
            context = task.update(context, state)
            assert (context[:, HELD] > 0).all() and not context[:, REACHED].any()
        context = task.update(context, state)
        np.testing.assert_array_equal(context[:, 0], following)
        np.testing.assert_array_equal(context[:, REACHED], reached)


# --- identification -------------------------------------------------------------------------------------------------------


def found_in(ground_truth: Any, steps: int) -> tuple[Any, Any]:
    """What the procedure finds in one recording, and a second recording."""
    data = PROCEDURE.record(ground_truth, np.random.default_rng(0), steps=steps, tests=1)
    return run_procedure(PROCEDURE, ElbowSimulator(), data), data.test[0]


def test_constants_are_found_in_recordings_of_ones_own():
    fits, _ = found_in(ElbowSimulator(), 1000)
    names = PROCEDURE.stages[0].free_of(ElbowSimulator())
    np.testing.assert_allclose(
        [getattr(fits.parameters, n) for n in names], [getattr(ElbowParameters(), n) for n in names], rtol=1e-6
    )
    assert fits.stages[-1].fit.diagnostics[0].value == 11


def test_identification_on_the_mujoco_model_predicts_what_it_has_not_seen():
    """From 3 s. MuJoCo's curves are other ones; parameters make up for a part: predictions of 0.5 s are better than before."""
    fits, test = found_in(MujocoElbow(dt=ElbowSimulator().dt), 600)
    simulator, starts = ElbowSimulator(), np.arange(0, len(test.controls) - 50, 20)
    controls = np.stack([test.controls[i : i + 50] for i in starts])
    errors = []
    for parameters in (ElbowParameters().replace(**PROCEDURE.initial_guess_of(simulator)), fits.parameters):
        states, _ = simulator.rollout(test.values[starts], controls, parameters, substeps=test.substeps)
        errors.append(float(np.sqrt(((states[:, -1, 0] - test.values[starts + 50, 0]) ** 2).mean())))
    assert errors[1] < 0.7 * errors[0], errors


def test_mismatched_models_are_other_arms():
    controls = np.tile([0.2, 0.05], (1, 30, 1))
    ends = []
    for level in range(4):
        mujoco_model = MujocoElbow(level=level, seed=3)
        states, status = mujoco_model.rollout(mujoco_model.initial_state(), controls, substeps=20)
        assert status[0] == 0
        ends.append(float(states[0, -1, 0]))
    assert len({round(end, 4) for end in ends}) == 4


START, CONTROL, HORIZON = np.array([1.2, -1.0, 0.3, 0.1]), np.array([0.25, 0.15]), 0.08


def end_of(elbow: DirectorElbow) -> np.ndarray:
    """State (4,) of the system after `HORIZON`."""
    x, u, y = ca.SX.sym("x", 4), ca.SX.sym("u", 2), ca.SX.sym("y", 4)
    residual = elbow.form.step(x, u, PARAMETERS, y, ca.SX.zeros(0))[0]
    step = ca.rootfinder("step", "newton", {"x": y, "p": ca.vertcat(x, u), "g": residual})
    state = elbow.states(START[None])[0]
    for _ in range(round(HORIZON / elbow.dt)):
        state = np.array(step(state, np.concatenate([state, CONTROL]))).ravel()
    state[1] /= elbow.inertia
    return state


def test_the_engine_and_director_coordinates_meet_in_second_order():
    ground_truth = ElbowSimulator(dt=1e-4).rollout(START[None], CONTROL[None, None], substeps=800)[0][0, -1]
    errors = [np.abs(end_of(DirectorElbow(dt)) - ground_truth).max() for dt in (0.02, 0.01, 0.005)]
    assert (np.log2(np.array(errors[:-1]) / errors[1:]) > 1.8).all() and errors[-1] < 5e-4, errors


def test_placed_nodes_nearly_obey_the_path_equations():
    """Nodes and pressures from the closed form: residuals in radii, of pulls that are K times a step."""
    elbow = DirectorElbow(0.02, segments=40)
    states = elbow.states(np.array([[0.1, 0, 0, 0], [1.2, 0, 0, 0], [2.2, 0, 0, 0]]))
    g, gaps = elbow.form.evaluate(states, np.zeros((3, 2)), np.tile(PARAMETERS, (3, 1)), states, elbow.pressures(states))
    lengths = 40 * np.linalg.norm(elbow._placed(0, 1.2)[1] - elbow._placed(0, 1.2)[0])
    assert np.abs(g[:, 4:]).max() < 0.1 * lengths and gaps.min() > -2e-3
    assert elbow.pressures(states).max() > 0.1  # they touch


def test_rest_to_rest_with_discrete_paths_is_near_the_closed_form():
    steps, horizon, bounds = 12, 0.5, (np.array([0.0, -np.inf, 0, 0]), np.array([2.6, np.inf, 1, 1]))
    start, end = np.array([0.4, 0.0, 0.05, 0.05]), np.array([1.8, 0.0, np.nan, np.nan])
    limits = (np.zeros(2), np.ones(2))
    plain = DirectorElbow(horizon / steps)
    asked = Manoeuvre(start, end, steps, limits, bounds, smoothness=1e-3)
    path = plain.states(minimum_jerk(start, end, steps, ((0, 1),), plain.dt))
    closed = solve_form(plain.form, asked, plain.dt, PARAMETERS, path)
    fine = DirectorElbow(plain.dt, segments=6)
    warm = closed.states / np.array([1.0, plain.inertia, 1.0, 1.0])
    nodes = fine.states(warm)
    wide = tuple(
        np.concatenate([side, np.full(fine.nx - 4, sign * np.inf)]) for side, sign in zip(bounds, (-1, 1), strict=True)
    )
    free = np.concatenate([end, np.full(fine.nx - 4, np.nan)])
    asked = Manoeuvre(nodes[0], free, steps, limits, (wide[0], wide[1]), smoothness=1e-3)
    found = solve_form(
        fine.form, asked, plain.dt, PARAMETERS, nodes, closed.controls, pairs=fine.pressures(nodes[1:]), taus=(1e-2, 1e-4, 1e-6)
    )
    assert closed.solved and found.solved and found.error < 1e-5
    assert np.abs(found.states[:, 0] - closed.states[:, 0]).max() < 0.1  # a path of 6 segments is a coarse one
    assert abs(found.objective / closed.objective - 1) < 0.05
