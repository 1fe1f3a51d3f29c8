"""The elbow in director coordinates: the engine's motion as dt goes to zero, and discrete paths that become the closed form."""

from __future__ import annotations

import casadi as ca
import numpy as np

from agents.control.first_guess import minimum_jerk
from agents.control.optimal import Manoeuvre, solve_form
from reproductions.penner2020.dmocc import DirectorElbow
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.parameters import ElbowParameters

PARAMETERS = ElbowParameters().to_matrix(1)[0]
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
