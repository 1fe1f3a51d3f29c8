"""The paper's model [Jitosho2021]: the O(N) solver against the program written out as matrices, and OSQP as published."""

import numpy as np
import pytest

from reproductions.jitosho2021.model import CLUTTERED, PaperModel, cluttered_scene, runtime_scene
from reproductions.jitosho2021.parameters import PaperParameters
from reproductions.jitosho2021.program import OsqpSolver, assemble, contact_rows, in_millimetres, solve_exactly
from reproductions.jitosho2021.simulator import PaperSimulator
from softgym_envs.core.errors import DataError, StructureError
from softgym_envs.core.simulator import Status
from softgym_envs.systems.vine.obstacles import circle, rectangle, wall


def agreement(model, parameters, dt, growth, states):
    """Largest relative difference of the velocities of one step, and how many contacts push, of every state."""
    after, status = PaperSimulator(model, dt).step(states, np.full((len(states), 1), growth), parameters)
    errors, contacts = [], []
    for before, ours, ok in zip(states, model.split(after)[1], status, strict=True):
        try:
            exact, count = solve_exactly(assemble(model, before, growth, parameters, dt))
        except DataError:
            assert ok == Status.DIVERGED
            continue
        assert ok == Status.OK
        errors.append(np.abs(ours.ravel() - exact).max() / np.abs(exact).max())
        contacts.append(count)
    return np.array(errors), np.array(contacts)


def pressed_states(rng, count):
    """Robots beside a row of circles of which they touch or overlap several by parts of a mm, pushed by random rates."""
    links = 12
    spots = rng.choice(links, 7, replace=False)
    model = PaperModel(links, 0.01, initial_length=0.36, obstacles=tuple(circle(0.03 * (i + 1), 0.032, 0.02) for i in spots))
    states = np.tile(model.straight_state(), (count, 1))
    q, v = model.split(states)
    q[:] += 1e-4 * rng.normal(size=q.shape)
    v[:] = 0.05 * rng.normal(size=v.shape) + np.array([0.0, 0.3, 0.0]) * rng.uniform(-1, 1, (count, 1, 1))
    return model, states


def test_the_solver_is_exact_on_random_steps_with_many_contacts():
    """Relative 1e-9: the two solutions differ by rounding only, of systems with condition numbers up to 1e6."""
    seen = []
    for seed in range(4):
        model, states = pressed_states(np.random.default_rng(seed), 40)
        errors, contacts = agreement(model, PaperParameters(body_inertia=2e-6), 0.01, 0.04, states)
        assert errors.max() < 1e-9
        seen += contacts.tolist()
    assert max(seen) >= 6 and min(seen) <= 1


@pytest.mark.parametrize(
    ("model", "parameters", "dt", "growth", "steps"),
    [(runtime_scene(), PaperParameters(), 0.01, 0.04, 400), (cluttered_scene(), CLUTTERED, 1 / 90, 0.205, 270)],
    ids=["runtime", "cluttered"],
)
def test_the_papers_scenes(model, parameters, dt, growth, steps):
    """Every tenth step exact; joints hold and contact points stay outside to the order of the linearisation."""
    simulator = PaperSimulator(model, dt)
    states, status = simulator.rollout(simulator.initial_state(), np.full((1, steps, 1), growth), parameters)
    assert status[0] == Status.OK
    errors, contacts = agreement(model, parameters, dt, growth, states[0, :-1:10])
    assert errors.max() < 1e-9 and contacts.max() >= 1
    turn = dt * np.abs(model.split(states[0])[1][..., 2]).max()
    assert np.abs(model.joint_errors(states[0])).max() < model.initial_length * turn**2
    assert model.gaps(states[0]).min() > -1e-4
    tip = model.contact_points(states[0])[:, -1]
    assert np.linalg.norm(tip[-1]) > np.linalg.norm(tip[0]) + 0.1


def test_osqp_finds_the_same_within_its_tolerance():
    """Warm-started along the paper's scene, tolerance 1e-6 on |A v - z| and the dual residual, in mm/s of about 40 mm/s."""
    model, parameters = runtime_scene(20), PaperParameters()
    simulator, solver = PaperSimulator(model), OsqpSolver(eps=1e-6)
    states, _ = simulator.rollout(simulator.initial_state(), np.full((1, 120, 1), 0.04), parameters)
    for k in range(0, 120, 4):
        program = assemble(model, states[0, k], 0.04, parameters, 0.01)
        solver.load(program)
        v, solved = solver.solve()
        ours = model.split(states[0, k + 1])[1].ravel()
        assert solved
        # Rows are satisfied within eps (1 + |A v|), in mm/s.
        scaled = in_millimetres(program)
        rows = scaled.A @ (v * np.tile([1e3, 1e3, 1.0], model.num_bodies))
        violation = np.maximum(scaled.low - rows, rows - scaled.high).max()
        assert violation < 2e-6 * (1 + np.abs(rows).max())
        np.testing.assert_allclose(v, ours, atol=1e-3 * np.abs(ours).max())


def test_contact_rows_are_the_gradient_of_the_gap_away_from_corners():
    model = PaperModel(5, 0.02, obstacles=(circle(0.3, 0.1, 0.05), rectangle(0.3, -0.3, 0.8, 0.2, 0.1)))
    state = model.straight_state()
    q, _ = model.split(state)
    rows, gaps = contact_rows(model, q)
    epsilon = 1e-6
    for x in range(3 * model.num_bodies):
        ends = []
        for side in (-epsilon, epsilon):
            moved = state.copy()
            moved[x] += side
            ends.append(contact_rows(model, model.split(moved)[0])[1])
        np.testing.assert_allclose((ends[1] - ends[0]) / (2 * epsilon), rows[:, x], atol=1e-8)
    np.testing.assert_allclose(gaps.reshape(5, 2), model.gaps(state), atol=1e-15)


def test_growth_is_shared_by_all_links():
    model = runtime_scene()
    simulator = PaperSimulator(model)
    states, _ = simulator.rollout(simulator.initial_state(), np.full((1, 10, 1), 0.04))
    q, _ = model.split(states[0, -1])
    gaps = np.linalg.norm(q[1::2, :2] - q[::2, :2], axis=1)
    first, _ = model.split(states[0, 0])
    np.testing.assert_allclose(gaps - np.linalg.norm(first[1::2, :2] - first[::2, :2], axis=1), 0.1 * 0.04 / 15, rtol=1e-3)


def test_head_on_growth_is_infeasible_and_says_so():
    """What the authors' program answers with NaN: the growth motor has unlimited force. The lab's model stalls instead."""
    model = PaperModel(obstacles=(rectangle(0.5, 0.0, 0.1, 1.0),))
    simulator = PaperSimulator(model)
    states, status = simulator.rollout(simulator.initial_state(), np.full((1, 400, 1), 0.04))
    assert status[0] == Status.DIVERGED
    assert np.isfinite(states).all()
    try:
        last, _ = solve_exactly(assemble(model, states[0, -1], 0.04, PaperParameters(), 0.01))
    except DataError as error:
        assert "no solution" in str(error)
    else:
        assert np.abs(last).max() > 100  # rounding leaves a way out, at absurd speed


def test_bad_models():
    with pytest.raises(StructureError, match=r"initial_length is 0\.1 m, expected > 0\.2"):
        PaperModel(initial_length=0.1)
    with pytest.raises(StructureError, match="rectangle in place of a wall"):
        PaperModel(obstacles=(wall(1.0, 0.0, 3.0),))
