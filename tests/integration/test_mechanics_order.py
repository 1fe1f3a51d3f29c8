"""Order of convergence of loop, body and arm against SciPy's integration of continuous equations in another formulation.

Lagrange's equations, from the textbook expressions of `mechanics.symbolic.describe` by CasADi's derivatives. Multipliers
of the loop's constraints come from their second time derivative. Torques jump every `HOLD`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from softgym_envs.mechanics.symbolic import describe
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.elbow import inertia, net_torque
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import LoopModel
from softgym_envs.systems.upper_body.dynamics import BodySimulator
from softgym_envs.systems.upper_body.model import BodyModel, muscled

HOLD = 0.02
"""[s]"""


def acceleration(tree: Any, names: Any) -> Any:
    """casadi.Function (q, v, u, c) -> acceleration."""
    s = describe(tree, names)
    n, m = s.q.numel(), s.gaps.numel()
    momentum = ca.gradient(s.lagrangian, s.v)
    push = s.force + ca.gradient(s.lagrangian, s.q) - ca.jtimes(momentum, s.q, s.v)
    G = ca.jacobian(s.gaps, s.q)
    bend = ca.jtimes(G @ s.v, s.q, s.v)
    K = ca.vertcat(ca.horzcat(ca.jacobian(momentum, s.v), G.T), ca.horzcat(G, ca.SX.zeros(m, m)))
    parts = ca.Function("parts", [s.q, s.v, s.u, s.c], [K, ca.vertcat(push, -bend)])
    return lambda *arguments: np.linalg.solve(*(np.array(part) for part in parts(*arguments)))[:n, 0]


def reference(simulator: Any, state: np.ndarray, controls: np.ndarray, tolerance: float = 1e-9) -> np.ndarray:
    """States (T + 1, nx)."""
    found, n = acceleration(simulator.model.tree, simulator.mechanism.parameter_names), simulator.model.n
    parameter_values, states = simulator.tree_constants()[0], [state]
    for control in controls:
        move = lambda _, x, u=control: np.concatenate([x[n:], found(x[:n], x[n:], u, parameter_values)])  # noqa: E731
        end = solve_ivp(move, (0.0, HOLD), states[-1], "DOP853", rtol=tolerance, atol=tolerance)
        states.append(end.y[:, -1])
    return np.array(states)


def pushed(simulator: Any, rows: int, size: float) -> np.ndarray:
    """Torques (rows, nu) about those that hold the start."""
    drawn = size * np.random.default_rng(0).uniform(-1, 1, (rows, simulator.nu)) * simulator.control_bounds[1]
    return np.asarray(drawn + getattr(simulator.model, "hold", 0.0))


def orders(make: Any, steps: tuple[float, ...], controls: np.ndarray, exact: np.ndarray, columns: slice) -> np.ndarray:
    """Orders of convergence of the last state from step to step."""
    errors = []
    for dt in steps:
        simulator = make(dt)
        states, status = simulator.rollout(exact[None, 0], controls[None], substeps=round(HOLD / dt))
        assert status[0] == 0
        errors.append(np.abs(states[0, -1] - exact[-1])[columns].max())
    ratios = np.array(errors[:-1]) / errors[1:]
    return np.asarray(np.log(ratios) / np.log(np.array(steps[:-1]) / steps[1:]))


@pytest.mark.parametrize("columns", [slice(0, 12), slice(12, 24)], ids=["angles", "speeds"])
def test_the_body_converges_in_first_order(columns: slice) -> None:
    simulator = BodySimulator()
    state = simulator.initial_state()[0] + np.random.default_rng(1).uniform(-0.3, 0.3, simulator.nx)
    controls = pushed(simulator, 4, 0.3)
    exact = reference(simulator, state, controls)
    found = orders(lambda dt: BodySimulator(dt=dt), (0.0025, 0.00125, 0.000625), controls, exact, columns)
    assert (found >= 0.9).all(), found


def test_the_loop_converges_in_first_order() -> None:
    simulator = LoopSimulator(LoopModel(6))
    controls = pushed(simulator, 3, 0.2)
    exact = reference(simulator, simulator.initial_state()[0], controls)
    for columns in (slice(0, 7), slice(0, simulator.model.n), slice(simulator.model.n, None)):
        found = orders(lambda dt: LoopSimulator(LoopModel(6), dt=dt), (0.0005, 0.00025, 0.000125), controls, exact, columns)
        assert (found >= 0.9).all(), found


def test_the_elbow_converges_in_second_order() -> None:
    """Activations are constant, so that the reference needs no muscles of its own: torques are checked elsewhere."""
    simulator = ElbowSimulator()
    structure, parameter_values = simulator.structure, simulator.parameter_values(None, 1)[0]
    active, start, horizon = np.array([0.2, 0.1]), np.array([1.0, -1.0]), 4

    def move(_: float, x: np.ndarray) -> np.ndarray:
        torque = net_torque(structure, parameter_values, x[0], x[1], *active)
        return np.array([x[1], torque / inertia(structure, parameter_values)])

    end = solve_ivp(move, (0.0, horizon * HOLD), start, "DOP853", rtol=1e-11, atol=1e-11).y[:, -1]
    exact = np.array([[*start, *active], [*end, *active]])
    controls = np.tile(active, (horizon, 1))
    found = orders(lambda dt: ElbowSimulator(dt=dt), (0.005, 0.0025, 0.00125), controls, exact, slice(0, 2))
    assert (found >= 1.9).all(), found


TABLE = Path(__file__).parents[2] / "docs/explanation/loop.md"
SCENES = {
    "loop": (LoopSimulator(), 0.05, 6, 1e-4),
    "upper body": (BodySimulator(), 0.02, 25, 1e-4),
    "upper body, muscles": (BodySimulator(model=muscled(BodyModel())), 0.02, 25, 2.5e-4),
}
"""Name in the table -> simulator, time for which controls are held [s], how often, and step of the reference [s]."""


@pytest.mark.parametrize("name", SCENES)
def test_the_table_tells_the_errors_at_the_usual_steps(name: str) -> None:
    """Median of 8 motions of the largest error of an angle at the end; the reference is our own step, whose order is tested."""
    simulator, hold, times, finest = SCENES[name]
    rng, (low, high) = np.random.default_rng(0), simulator.control_bounds
    if "muscles" in name:
        controls = low + (high - low) * rng.uniform(0.3, 0.7, (8, times, simulator.nu))
        controls[..., 14:] *= 0.3
    else:
        size = 0.2 if name == "loop" else 0.3
        controls = size * high * rng.uniform(-1, 1, (8, times, simulator.nu)) + getattr(simulator.model, "hold", 0.0)
    start, ends = simulator.initial_state(8), []
    for dt in (simulator.dt, finest):
        states, status = replace(simulator, dt=dt).rollout(start, controls, substeps=round(hold / dt))
        assert not status.any()
        ends.append(states[:, -1, : simulator.model.n])
    error = 1e3 * np.median(np.abs(ends[0] - ends[1]).max(axis=1))
    row = next(line for line in TABLE.read_text().splitlines() if line.startswith(f"| {name} |"))
    _, _, step, told, _ = (cell.strip() for cell in row.split("|"))
    assert step == f"{1e3 * simulator.dt:g} ms" and error == pytest.approx(float(told.removesuffix(" mrad")), rel=0.1)
