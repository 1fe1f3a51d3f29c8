"""Optimal control through the symbolic entry point: closed forms, replay in the engine, meshes, words about what cannot be
done."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

from agents.control.first_guess import driving_controls, minimum_jerk, rates_of, resample
from agents.control.optimal import Manoeuvre, plan_motion, solve_form
from reproductions.penner2020.search import plan_free_time, refined
from softgym_envs.core.base import PlainStructure, SteppedSimulator
from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.parameters import ElbowParameters
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.upper_body.dynamics import BodySimulator

FREE = np.nan


def bend(steps: int, **more) -> Manoeuvre:
    """The elbow from 0.4 to 1.8 rad, rest to rest."""
    bounds = (np.array([0.0, -np.inf, 0.0, 0.0]), np.array([2.6, np.inf, 1.0, 1.0]))
    start, end = np.array([0.4, 0.0, 0.05, 0.05]), np.array([1.8, 0.0, FREE, FREE])
    return Manoeuvre(start, end, steps, (np.zeros(2), np.ones(2)), bounds, **{"smoothness": 1e-3, **more})


def test_a_double_integrator_is_moved_as_the_closed_form_says():
    """min sum u^2 from rest to rest over a distance of 1: least squares in u."""
    h, count = 0.05, 20
    x, u, y, p, z = (ca.SX.sym(name, size) for name, size in (("x", 2), ("u", 1), ("y", 2), ("p", 0), ("z", 0)))
    step = ca.Function("step", [x, u, p, y, z], [ca.vertcat(y[0] - x[0] - h * y[1], y[1] - x[1] - h * u), ca.SX.zeros(0)])
    manoeuvre = Manoeuvre(np.zeros(2), np.array([1.0, 0.0]), count, (np.array([-50.0]), np.array([50.0])))
    found = solve_form(
        ComplementarityForm(step), manoeuvre, h, np.zeros(0), minimum_jerk(np.zeros(2), np.array([1.0, 0.0]), count)
    )
    rows = np.array([[h * h * (count - k) for k in range(count)], [h] * count])
    np.testing.assert_allclose(found.controls[:, 0], np.linalg.lstsq(rows, [1.0, 0.0], rcond=None)[0], atol=1e-6)
    assert found.solved and found.message == "solved"


def test_driving_controls_are_inverse_dynamics():
    """Those of a motion of the engine are found again, within their bounds; the elbow's step is not linear in its own."""
    simulator, rng = BodySimulator(dt=0.01), np.random.default_rng(0)
    controls = 0.2 * simulator.model.effort * rng.uniform(-1, 1, (1, 6, 12))
    states, _ = simulator.rollout(simulator.initial_state(), controls)
    form, parameter_values, bounds = simulator.symbolic_step(), simulator.model.defaults, simulator.model.control_bounds
    found = driving_controls(form, states[0], parameter_values, bounds)
    assert found is not None
    np.testing.assert_allclose(found, controls[0], atol=1e-7)
    clipped = driving_controls(form, states[0], parameter_values, (np.full(12, -0.1), np.full(12, 0.1)))
    assert clipped is not None and np.abs(clipped).max() <= 0.1
    elbow = ElbowSimulator()
    assert driving_controls(elbow.symbolic_step(), np.zeros((3, 4)), elbow.default_parameters.to_matrix(1)[0], bounds) is None


def test_the_upper_body_reaches_in_few_iterations():
    simulator, goal = BodySimulator(dt=0.08), np.array([[0.4, -0.2, -0.1]])
    model = simulator.model
    end, (low, high) = np.concatenate([model.reaching(goal)[0][0], np.zeros(12)]), model.limits
    sides = (np.concatenate([low, np.full(12, -12.0)]), np.concatenate([high, np.full(12, 12.0)]))
    found = plan_motion(simulator, Manoeuvre(model.rest_state(), end, 10, model.control_bounds, sides, smoothness=1e-3))
    assert found.solved and found.iterations < 60 and found.error < 1e-6
    assert np.linalg.norm(model.hand(found.states[-1:, :12])[0] - goal[0]) < 5e-3


def test_the_elbows_motion_is_one_of_the_engine_on_every_mesh():
    costs = []
    for steps in (10, 40):
        simulator = ElbowSimulator(dt=0.5 / steps)
        found = plan_motion(simulator, bend(steps))
        assert found.solved and found.iterations < 100 and found.error < 1e-6
        assert abs(found.states[-1, 0] - 1.8) < 1e-7 and abs(found.states[-1, 1]) < 1e-7
        assert found.controls.min() > -1e-7 and found.states[:, 0].max() < 2.6 + 1e-6
        states, status = simulator.rollout(found.states[:1], found.controls[None])
        assert status[0] == 0
        np.testing.assert_allclose(states[0], found.states, atol=1e-4)
        costs.append(found.objective)
    assert abs(costs[0] / costs[1] - 1) < 0.15


def test_a_plan_on_another_mesh_is_a_guess():
    coarse = plan_motion(ElbowSimulator(dt=0.05), bend(10))
    simulator = ElbowSimulator(dt=0.025)
    found, cold = plan_motion(simulator, bend(20), initial_guess=coarse), plan_motion(simulator, bend(20))
    assert found.solved and abs(found.objective / cold.objective - 1) < 1e-5


def test_a_particle_with_contact_is_planned_too():
    """Another system's entry point, with complementarity: pushed over the ground from rest to rest against friction."""
    simulator = ParticleSimulator(dt=0.05)
    form, nx = simulator.symbolic_step(), simulator.nx
    start = np.zeros(nx)
    end = start.copy()
    end[0] += 0.3
    high = simulator.control_bounds[1]
    limit = np.where(np.isfinite(high), high, 20.0)
    manoeuvre = Manoeuvre(start, end, 20, (-limit, limit))
    parameter_values = simulator.default_parameters.to_matrix(1)[0]
    path = minimum_jerk(start, end, 20, rates_of(simulator), simulator.dt)
    found = solve_form(
        form, manoeuvre, simulator.dt, parameter_values, path, np.zeros((20, simulator.nu)), taus=(1.0, 1e-2, 1e-4, 1e-6)
    )
    assert found.solved, found.message
    assert found.states.shape == (21, nx) and abs(found.states[-1, 0] - end[0]) < 1e-6
    states, _ = simulator.rollout(start[None], found.controls[None])
    assert abs(states[0, -1, 0] - end[0]) < 0.02


class Cart(SteppedSimulator):
    """A point that a force moves along a line, exact for forces that are held."""

    system, parameters_class = "cart", ElbowParameters
    model = PlainStructure(
        StateLayout(Field("", None, ("x", "m"), ("vx", "m/s"))), ("force",), ("N",), (-np.ones(1), np.ones(1)), np.zeros(2)
    )

    def __init__(self, dt: float) -> None:
        self.dt = dt

    def _step(self, state, control, parameter_values, substeps):
        x, v, force = state[:, 0], state[:, 1], control[:, 0]
        h = self.dt * substeps
        return np.stack([x + h * v + h**2 / 2 * force, v + h * force], axis=1), np.zeros(len(state), dtype=np.int32)

    def symbolic_step(self) -> ComplementarityForm:
        x, u, y, p, z = (ca.SX.sym(name, size) for name, size in (("x", 2), ("u", 1), ("y", 2), ("p", 0), ("z", 0)))
        p = ca.SX.sym("p", len(self.default_parameters.names()))
        moved = ca.vertcat(y[0] - x[0] - self.dt * x[1] - self.dt**2 / 2 * u, y[1] - x[1] - self.dt * u)
        return ComplementarityForm(ca.Function("step", [x, u, p, y, z], [moved, ca.SX.zeros(0)]))


def test_the_fastest_motion_is_bang_bang():
    """A metre from rest to rest with a force of 1 N at most and a mass of 1 kg: 2 s."""
    asked = Manoeuvre(np.zeros(2), np.array([1.0, 0.0]), 20, (-np.ones(1), np.ones(1)), effort=0.0)
    found = plan_free_time(Cart, asked, (0.5, 6.0), time_weight=1.0)
    assert found.motion.solved and 2.0 < found.seconds < 2.1 and abs(found.cost - found.seconds) < 1e-6
    force = found.motion.controls[:, 0]
    assert force[:8].min() > 0.9 and force[-8:].max() < -0.9


def test_time_and_effort_are_weighed():
    """Least int (u / 2)^2 of a metre in T is 3 / T^3, over the controls' range of 2: with T, least at 9^(1/4)."""
    asked = Manoeuvre(np.zeros(2), np.array([1.0, 0.0]), 40, (-np.full(1, 1e3), np.full(1, 1e3)), effort=1e6)
    found = plan_free_time(Cart, asked, (0.5, 6.0), time_weight=1.0, tolerance=1e-3)
    assert abs(found.seconds - 9**0.25) < 0.02 and abs(found.motion.objective - 3 / found.seconds**3) < 2e-3


def test_refined_meshes_converge():
    found = refined(lambda dt: ElbowSimulator(dt=dt), bend(10), 0.5, (10, 20, 40, 80), tolerance=0.02)
    assert all(motion.solved for motion in found) and 2 <= len(found) <= 4
    assert abs(found[-1].objective / found[-2].objective - 1) <= 0.02
    with pytest.raises(OptionError, match="meshes are"):
        refined(lambda dt: ElbowSimulator(dt=dt), bend(10), 0.5, (20, 10))


def test_what_is_out_of_reach_is_said_with_the_nearest_end():
    """In 1 s no force of 1 N moves 1 kg by a metre and stops it; nor is the elbow so fast."""
    asked = Manoeuvre(np.zeros(2), np.array([1.0, 0.0]), 20, (-np.ones(1), np.ones(1)))
    said = plan_motion(Cart(0.05), asked).message
    assert "in 1 s, at the nearest, x ends at" in said and "where 1 is asked" in said and "force" in said, said
    said = plan_motion(ElbowSimulator(dt=0.006), bend(25)).message
    assert "in 0.15 s, at the nearest, elbow ends at 1." in said and "biceps" in said, said
    weak = ElbowSimulator().default_parameters.replace(biceps_force=200.0, payload=6.0)
    said = plan_motion(ElbowSimulator(dt=0.02), bend(25), parameters=weak).message  # the arm falls out of its range
    assert "the bounds on the way" in said, said
    with pytest.raises(OptionError, match="end_weight"):
        Manoeuvre(np.zeros(1), np.zeros(1), 5, (np.zeros(1), np.ones(1)), end_weight=-1.0)


def test_what_cannot_be_done_is_said():
    late = plan_motion(ElbowSimulator(dt=0.002), bend(10), iterations=60)  # 1.4 rad in 20 ms
    assert not late.solved and ("no motion" in late.message or "not solved" in late.message) and "equation" in late.message
    with pytest.raises(OptionError, match=r"end\[0\] is 2.9, outside of its bounds"):
        Manoeuvre(np.zeros(1), np.array([2.9]), 5, (np.zeros(1), np.ones(1)), (np.array([-1.0]), np.array([2.6])))
    with pytest.raises(OptionError, match="start has shape"):
        plan_motion(ElbowSimulator(), Manoeuvre(np.zeros(3), np.zeros(3), 5, (np.zeros(2), np.ones(2))))
    with pytest.raises(OptionError, match=r"control_bounds have shape \(1,\), expected \(2,\)"):
        plan_motion(ElbowSimulator(), Manoeuvre(np.zeros(4), np.zeros(4), 5, (np.zeros(1), np.ones(1))))
    with pytest.raises(OptionError, match="no symbolic step"):
        from softgym_envs.systems.arm.mujoco import MujocoElbow

        plan_motion(MujocoElbow(), bend(5))  # type: ignore[arg-type]


def test_a_block_slides_to_a_pose_through_stick_and_slip():
    """27 pairs a step: its friction is loosened, then driven to the law; the engine moves as the program says."""
    simulator = BlockSimulator(BlockModel(num_directions=8, pulley=None))
    asked = Manoeuvre([0] * 6, [0.1, 0.05, 0.3, 0, 0, 0], 40, simulator.control_bounds)
    found = plan_motion(simulator, asked)
    assert found.solved and found.error < 1e-7, found.message
    states, _ = simulator.rollout(found.states[:1], found.controls[None])
    np.testing.assert_allclose(states[0, -1], asked.end, atol=2e-3)
    late = plan_motion(simulator, asked, seconds=0.05)
    assert not late.solved and "not solved in so many seconds: allow more" in late.message and "as much time" in late.message


def test_lists_are_taken_and_what_is_no_number_is_named():
    plain = Manoeuvre([0, 0], [1, np.nan], 5, ([-1], [1]), ([-2, -3], [2, 3]))
    arrays = Manoeuvre(np.zeros(2), np.array([1, np.nan]), 5, (-np.ones(1), np.ones(1)), np.array([[-2.0, -3.0], [2.0, 3.0]]))
    for a, b in zip(plain.bounds(), arrays.bounds(), strict=True):
        np.testing.assert_array_equal(a, b)
    for wrong, message in (
        ({"start": "here"}, "start is not an array of numbers"),
        ({"control_bounds": ([1.0], [-1.0])}, "control_bounds is"),
        ({"control_bounds": 3}, "control_bounds is 3"),
        ({"state_bounds": ([0.0], [1.0])}, r"state_bounds have shape \(1,\)"),
    ):
        with pytest.raises((OptionError, ShapeError), match=message):
            Manoeuvre(**({"start": [0, 0], "end": [1, 0], "steps": 5, "control_bounds": ([-1], [1])} | wrong))


def test_paths_are_resampled_and_start_with_least_jerk():
    path = minimum_jerk(np.array([0.0, 0.0]), np.array([1.0, np.nan]), 10, ((0, 1),), 0.1)
    assert path[0, 0] == 0 and path[-1, 0] == 1 and abs(path[5, 0] - 0.5) < 1e-12 and abs(path[5, 1] - 1.875) < 0.1
    np.testing.assert_allclose(resample(path, 21)[::2], path)
