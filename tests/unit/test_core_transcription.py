"""Symbolic steps as a nonlinear program: closed-form optimal control, given and found schedules, derivatives of many steps."""

import numpy as np
import pytest

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import OptionError
from softgym_envs.core.transcription import Arc, Decisions, Transcription, evaluated_steps, linearized_steps

ca = pytest.importorskip("casadi")

STEP = 0.1
NOTHING = Decisions(np.zeros(0), np.zeros(0), np.zeros(0), lambda theta: ca.DM([1.0]))


def cart() -> ComplementarityForm:
    """A mass p under a force: x' = x + h v', v' = v + h u / p."""
    x, u, p, y = (ca.SX.sym(name, size) for name, size in (("x", 2), ("u", 1), ("p", 1), ("y", 2)))
    v = x[1] + STEP * u[0] / p[0]
    g = y - ca.vertcat(x[0] + STEP * v, v)
    return ComplementarityForm(ca.Function("step", [x, u, p, y, ca.SX.sym("z", 0)], [g, ca.SX.zeros(0)]))


def landing() -> ComplementarityForm:
    """A unit mass that falls on the ground: v' = v + h (u - 10) + z, 0 <= z, x' = x + h v' >= 0."""
    x, u, p, y, z = (ca.SX.sym(name, size) for name, size in (("x", 2), ("u", 1), ("p", 1), ("y", 2), ("z", 1)))
    v = x[1] + STEP * (u[0] - 10.0 * p[0]) + z[0]
    return ComplementarityForm(ca.Function("step", [x, u, p, y, z], [y - ca.vertcat(x[0] + STEP * y[1], v), y[0]]))


def to_rest_at_one(symbols):
    """Least squares of forces, and a stiff spring to (1, 0) at the end."""
    (x,), (u,) = symbols.states, symbols.controls
    return 0.5 * ca.sumsqr(u) + 0.5e4 * ca.sumsqr(x[:, -1] - ca.DM([1.0, 0.0]))


def closed_form(count: int, hold: int) -> np.ndarray:
    """The same as linear least squares: forces (count,), each held for `hold` steps."""
    powers = [np.array([[STEP**2 * (count - k)], [STEP]]) for k in range(count)]
    reach = np.hstack(powers) @ np.kron(np.eye(count // hold), np.ones((hold, 1)))
    rows = np.vstack([np.sqrt(hold) * np.eye(count // hold), 1e2 * reach])
    forces = np.linalg.lstsq(rows, np.concatenate([np.zeros(count // hold), [1e2, 0.0]]), rcond=None)[0]
    return np.repeat(forces, hold)


@pytest.mark.parametrize("hold", [1, 5])
def test_free_controls_are_those_of_least_squares(hold):
    arc = Arc(np.zeros((21, 2)), np.zeros((20, 1)), (np.full(1, -99.0), np.full(1, 99.0)), hold=hold, fixed_start=True)
    found = Transcription(cart(), (arc,), to_rest_at_one, decisions=NOTHING, nominal=np.ones(1)).solve([1.0], iterations=50)
    assert found.solved
    np.testing.assert_allclose(found.pieces[0].controls[:, 0], closed_form(20, hold), atol=1e-6)
    np.testing.assert_array_equal(found.pieces[0].states[0], [0.0, 0.0])


def pendulum() -> ComplementarityForm:
    """Nothing linear: an angle, a force that is swung, and a pair that pushes by its square."""
    x, u, p, y, z = (ca.SX.sym(name, size) for name, size in (("x", 2), ("u", 2), ("p", 1), ("y", 2), ("z", 1)))
    g = ca.vertcat(
        y[0] - x[0] - STEP * y[1], y[1] - x[1] + STEP * (ca.sin(x[0] * y[0]) * u[0] * p[0] + z[0] ** 2 * u[1] * y[1])
    )
    return ComplementarityForm(ca.Function("step", [x, u, p, y, z], [g, ca.vertcat(y[0] * u[1] + z[0] * x[1])]))


@pytest.mark.parametrize("hold", [1, 2])
def test_derivatives_of_steps_are_those_of_the_program(hold):
    arc = Arc(np.zeros((7, 2)), np.zeros((6, 2)), (np.full(2, -1.0), np.full(2, 1.0)), hold=hold)
    program = Transcription(pendulum(), (arc,), lambda s: ca.sumsqr(s.states[0]) ** 2, decisions=NOTHING, nominal=np.ones(1))
    x, tau, g = program.nlp["x"], program.nlp["p"], program.nlp["g"]
    found, rng = program._of_steps(), np.random.default_rng(0)
    at, lam, free = rng.normal(size=x.numel()), rng.normal(size=g.numel()), ca.MX.sym("lam", g.numel())
    exact = ca.Function("J", [x, tau], [g, ca.jacobian(g, x)])
    for ours, theirs in zip(found["jac_g"](at, 0.1), exact(at, 0.1), strict=True):
        np.testing.assert_allclose(ca.DM(ours).full(), ca.DM(theirs).full(), atol=1e-13)
    lagrangian = 2.0 * program.nlp["f"] + ca.dot(free, g)
    exact = ca.Function("H", [x, tau, free], [ca.triu(ca.hessian(lagrangian, x)[0])])
    np.testing.assert_allclose(
        ca.DM(found["hess_lag"](at, 0.1, 2.0, lam)).full(), ca.DM(exact(at, 0.1, lam)).full(), atol=1e-12
    )


def test_bounds_of_controls_hold():
    arc = Arc(np.zeros((21, 2)), np.zeros((20, 1)), (np.full(1, -1.0), np.full(1, 1.0)), fixed_start=True)
    found = Transcription(cart(), (arc,), to_rest_at_one, decisions=NOTHING, nominal=np.ones(1)).solve([1.0], iterations=50)
    assert found.solved and np.abs(found.pieces[0].controls).max() < 1.0 + 1e-6
    assert np.abs(closed_form(20, 1)).max() > 1.0


def test_a_mass_is_found_from_where_it_went():
    controls, states = np.ones((20, 1)), [np.zeros(2)]
    for _ in controls:
        speed = states[-1][1] + STEP / 2.5
        states.append(np.array([states[-1][0] + STEP * speed, speed]))
    decisions = Decisions(np.array([0.1]), np.array([10.0]), np.array([1.0]), lambda theta: theta)
    arc = Arc(np.zeros((21, 2)), controls, fixed_start=True)
    goal = np.array(states)
    program = Transcription(
        cart(), (arc,), lambda s: ca.sumsqr(s.states[0] - ca.DM(goal.T)), decisions=decisions, nominal=np.ones(1)
    )
    assert program.solve([1.0], iterations=50).theta[0] == pytest.approx(2.5, rel=1e-6)


def test_a_schedule_is_found_and_taken():
    """A mass that falls from 0.3 m is held by the ground; its impulses are the weight's from then on."""
    arc = Arc(np.tile([0.3, 0.0], (11, 1)), np.zeros((10, 1)), fixed_start=True)

    def program(arc):
        return Transcription(landing(), (arc,), lambda s: ca.MX(0), decisions=NOTHING, nominal=np.ones(1))

    found = program(arc).solve([1.0, 1e-2, 1e-4, 1e-8], iterations=100)
    height, impulse = found.pieces[0].states[1:, 0], found.pieces[0].pairs[:, 0]
    assert found.solved and np.abs(height * impulse).max() < 1e-7
    np.testing.assert_allclose(impulse[-5:], STEP * 10.0, atol=1e-3)
    touching = (height < impulse)[:, None]
    given = program(Arc(arc.path, arc.controls, fixed_start=True, schedule=touching)).solve([1.0], iterations=100)
    np.testing.assert_allclose(given.pieces[0].states, found.pieces[0].states, atol=1e-3)
    with pytest.raises(OptionError, match=r"schedule has shapes \[\(9, 1\)\], expected \[\(10, 1\)\]"):
        program(Arc(arc.path, arc.controls, schedule=touching[1:]))


def test_arcs_of_other_shapes_are_refused():
    for states, steps, hold in ((10, 10, 1), (11, 10, 3), (11, 10, 0)):
        with pytest.raises(OptionError, match="expected one state more than controls"):
            Arc(np.zeros((states, 2)), np.zeros((steps, 1)), hold=hold)


def test_derivatives_of_many_steps_are_those_of_differences():
    """Central differences with step 1e-6 err by rounding over it, 1e-9 here."""
    rng, form = np.random.default_rng(0), cart()
    inputs = tuple(rng.uniform(0.5, 1.5, (4, size)) for size in (2, 1, 1, 2, 0))
    value, jacobian = linearized_steps(form, inputs)
    np.testing.assert_array_equal(value, evaluated_steps(form, inputs))
    np.testing.assert_array_equal(value, form.evaluate(*inputs)[0])
    column = 0
    for place in (0, 3, 4, 2):
        for entry in range(inputs[place].shape[1]):
            ends = []
            for sign in (1, -1):
                moved = [part.copy() for part in inputs]
                moved[place][:, entry] += sign * 1e-6
                ends.append(form.evaluate(*moved)[0])
            np.testing.assert_allclose(jacobian[:, :, column], (ends[0] - ends[1]) / 2e-6, atol=1e-8)
            column += 1
