"""Order of convergence of loop, body and arm against SciPy's integration of continuous equations in another formulation.
Lagrange's equations, from the textbook expressions of `mechanics.symbolic.describe` by CasADi's derivatives. Multipliers of
the loop's constraints come from their second time derivative. Torques jump every `HOLD`. A clamped beam of rigid pieces on
springs rings as Euler and Bernoulli's does, and gravity stiffens it where it hangs. A ring of links on springs becomes the
closed form of the elastica as links grow in number, pressed and pulled. A chain of hinges against MuJoCo, an independent
engine with an independent integrator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import casadi as ca
import mujoco
import numpy as np
import pytest
from mechanics_systems import chain
from scipy.integrate import quad, solve_ivp
from scipy.linalg import eigh
from scipy.optimize import brentq

from softgym_envs.mechanics import Body, Frame, Joint, Mechanism, Tree, Weld
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


LENGTH, BENDING, LINE = 0.52, 1.27, 0.63
"""[m], EI [N m^2], mass per length [kg/m]"""


def beam(pieces, gravity):
    """Hinges in the middle of equal parts, of stiffness EI / part; along -z."""
    part, bodies, joints = LENGTH / pieces, [], []
    for i in range(pieces + 1):
        size = part * (0.5 if i in (0, pieces) else 1.0)
        mass = LINE * size
        bodies.append(
            Body(f"piece{i}", mass, (0.0, 0.0, -size / 2), (mass * size**2 / 12, mass * size**2 / 12, mass * size**2 / 24))
        )
        if i == 0:
            joints.append(Joint("clamp", "fixed", "world", "piece0"))
        else:
            place = (0.0, 0.0, -part / 2 if i == 1 else -part)
            bend = {"axis": (0.0, 1.0, 0.0), "stiffness": BENDING / part}
            joints.append(Joint(f"bend{i}", "revolute", f"piece{i - 1}", f"piece{i}", xyz=place, **bend))
    return Mechanism(Tree("beam", tuple(bodies), tuple(joints), gravity=(0.0, 0.0, gravity)), 0.001)


def square(mechanism):
    """Of the first frequency [(rad/s)^2]."""
    still = np.zeros((1, mechanism.n))
    slopes = mechanism.slopes(still, still)
    return eigh(-slopes.qq[0], slopes.vv[0], eigvals_only=True)[0]


def test_first_frequency_is_that_of_euler_and_bernoulli_to_second_order():
    expected = 1.87510407**4 * BENDING / (LINE * LENGTH**4)
    errors = [square(beam(pieces, 0.0)) / expected - 1 for pieces in (8, 16)]
    assert abs(errors[0]) < 1e-2
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.15)


def test_gravity_adds_to_the_square_of_a_hanging_beams_frequency_and_takes_from_a_standing_ones():
    """By Rayleigh's quotient with the first mode: 1.571 g / L."""
    free = square(beam(16, 0.0))
    assert (square(beam(16, -9.81)) - free) / (9.81 / LENGTH) == pytest.approx(1.571, rel=0.02)
    assert (square(beam(16, 9.81)) - free) / (9.81 / LENGTH) == pytest.approx(-1.571, rel=0.02)


RADIUS, RING_EI = 0.355, 0.8
"""[m], EI [N m^2]"""


def ring(count, force):
    """Links of equal length around a foot on a slide, which `force` [N] presses upwards; held at the top.

    Two angles per joint, in the plane and out of it; without gravity. -> The tree, and its height at q = 0.
    """
    length, turn = 2 * np.pi * RADIUS / count, 2 * np.pi / count
    height = length / np.tan(turn / 2)
    slide = Joint("slide", "prismatic", "world", "foot", axis=(0.0, 0.0, 1.0), offset=force)
    bodies, joints = [Body("foot", 1.0, inertia=(1e-3, 1e-3, 1e-3))], [slide]
    for side, sign in (("l", 1), ("r", -1)):
        for i in range(count // 2):
            parent, start = ("foot", (0.0, sign * length / 2, 0.0)) if i == 0 else (f"{side}{i - 1}", (0.0, 0.0, length))
            bent = (sign * (turn - np.pi / 2) if i == 0 else sign * turn, 0.0, 0.0)
            knee, link, spring = f"{side}{i}_knee", f"{side}{i}", {"stiffness": RING_EI / length}
            bodies += [Body(knee), Body(link, 0.01, (0.0, 0.0, length / 2), (1e-4, 1e-4, 1e-5))]
            joints.append(Joint(f"{side}{i}_in", "revolute", parent, knee, (1.0, 0.0, 0.0), start, bent, **spring))
            joints.append(Joint(f"{side}{i}_out", "revolute", knee, link, (0.0, 1.0, 0.0), **spring))
    ends = [(f"end_{side}", f"{side}{count // 2 - 1}", sign) for side, sign in (("l", 1), ("r", -1))]
    frames = tuple(Frame(name, body, (0.0, 0.0, length / 2), (-sign * np.pi / 2, 0.0, 0.0)) for name, body, sign in ends)
    welds = tuple(Weld(f"held_{name}", name, (0.0, 0.0, height)) for name, _, _ in ends)
    return Tree("ring", tuple(bodies), tuple(joints), frames, welds, gravity=(0.0, 0.0, 0.0)), height


def height_of(count, force):
    """Of the ring of links at rest [m]."""
    tree, height = ring(count, force)
    mechanism = Mechanism(tree, 0.01)
    assert np.abs(mechanism.gaps(np.zeros((1, mechanism.n)))[0]).max() < 1e-12
    rest = mechanism.rest(np.zeros((1, mechanism.n)))
    assert rest.status[0] == 0
    return height - rest.q[0, 0]


def elastica(force):
    """Of the elastic ring between two opposite forces [m].

    A quarter of it, with the angle theta from 0 to pi / 2: EI theta'' = F / 2 cos(theta), so
    EI theta'^2 / 2 = C + F / 2 sin(theta), where C gives it its length; the curvature at rest drops out.
    """

    def along(f, constant):
        return quad(lambda angle: f(angle) / np.sqrt(2 / RING_EI * (constant + force / 2 * np.sin(angle))), 0, np.pi / 2)[0]

    lowest = max(0.0, -force / 2)
    constant = brentq(lambda c: along(np.ones_like, c) - np.pi * RADIUS / 2, lowest + 1e-9, lowest + 1e3, xtol=1e-13)
    return 2 * along(np.sin, constant)


def test_the_closed_form_is_timoshenkos_where_forces_are_small():
    softness = (np.pi / 4 - 2 / np.pi) * RADIUS**3 / RING_EI
    assert (elastica(-1e-3) - elastica(1e-3)) / 2e-3 == pytest.approx(softness, rel=1e-6)


@pytest.mark.parametrize("load", [2.0, -4.0])
def test_a_pressed_and_a_pulled_ring_are_the_elastica_to_second_order(load):
    """Load: force times R^2 / EI."""
    force = load * RING_EI / RADIUS**2
    exact = elastica(force)
    errors = [height_of(count, force) - exact for count in (12, 24, 48)]
    assert abs(exact / (2 * RADIUS) - 1) > 0.1  # far from the circle
    ratios = [errors[0] / errors[1], errors[1] / errors[2]]
    assert ratios == pytest.approx([4.0, 4.0], rel=0.1), (errors, ratios)
    assert abs(4 * errors[2] - errors[1]) / 3 < 1e-3 * RADIUS, errors  # for links without end


def model_of(tree, timestep):
    """The same chain as MJCF."""
    inner = ""
    for body, joint in reversed(list(zip(tree.bodies, tree.joints, strict=True))):
        numbers = {
            key: " ".join(map(str, value)) for key, value in (("pos", joint.xyz), ("axis", joint.axis), ("com", body.com))
        }
        inertia = " ".join(map(str, body.inertia))
        inner = f"""
        <body name="{body.name}" pos="{numbers["pos"]}">
          <joint name="{joint.name}" axis="{numbers["axis"]}" stiffness="{joint.stiffness}" damping="{joint.damping}"/>
          <inertial pos="{numbers["com"]}" mass="{body.mass}" diaginertia="{inertia}"/>{inner}
        </body>"""
    tip = f'<site name="tip" pos="{" ".join(map(str, tree.frames[0].xyz))}"/>'
    last = f'name="{tree.bodies[-1].name}"'
    head, tail = inner.split(last)
    inner = head + last + tail.replace("/>\n        </body>", f"/>{tip}\n        </body>", 1)
    return mujoco.MjModel.from_xml_string(f"""<mujoco>
        <option timestep="{timestep}" gravity="0 0 -9.81" integrator="implicitfast"/>
        <worldbody>{inner}</worldbody><actuator><motor joint="hinge0"/></actuator></mujoco>""")


def mujoco_tip(tree, timestep, start, torque, dt):
    """Positions of the tip every `dt`, (T + 1, 3)."""
    model = model_of(tree, timestep)
    data = mujoco.MjData(model)
    data.qpos[:] = start
    mujoco.mj_forward(model, data)
    found = [data.site("tip").xpos.copy()]
    for value in torque:
        data.ctrl[0] = value
        mujoco.mj_step(model, data, nstep=round(dt / timestep))
        mujoco.mj_kinematics(model, data)
        found.append(data.site("tip").xpos.copy())
    return np.array(found)


def test_chain_moves_as_in_mujoco():
    tree, dt, seconds = chain(6, length=0.2, stiffness=1.0, damping=0.01), 0.0025, 3.0
    mechanism = Mechanism(tree, dt, force_split="symmetric")
    steps, start = round(seconds / dt), np.array([0.6, 0.5, -0.3, 0.2, 0.4, -0.2])
    torque = 1.5 * np.sin(5 * dt * np.arange(steps))
    motion = mechanism.simulate(mechanism.state(start[None], np.zeros((1, 6))), torque[None, :, None])
    ours = mechanism.pose("tip", motion.states[0, :, :6])[1]
    coarse, fine = (mujoco_tip(tree, timestep, start, torque, dt) for timestep in (5e-4, 2.5e-4))
    assert np.ptp(ours, axis=0).max() > 0.5
    errors = [np.linalg.norm(ours - theirs, axis=1).max() for theirs in (coarse, fine, 2 * fine - coarse)]
    assert errors[0] < 4e-3 and errors[1] < 2e-3, errors  # MuJoCo's integrator is of first order
    assert errors[2] < 3e-4, errors  # without its first-order error


def test_mass_matrix_and_bias_are_mujocos():
    tree = chain(6, length=0.2, stiffness=1.0)
    mechanism, model = Mechanism(tree, 0.01), model_of(tree, 0.001)
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    q, v = rng.normal(size=(2, 6))
    data.qpos[:], data.qvel[:] = q, v
    mujoco.mj_forward(model, data)
    slopes, mass = mechanism.slopes(q[None], v[None]), np.zeros((6, 6))
    for column in range(6):
        mujoco.mj_mulM(model, data, mass[column], np.eye(6)[column])
    np.testing.assert_allclose(slopes.vv[0], mass, atol=1e-12)
    bias = slopes.qv[0].T @ v - slopes.q[0]  # d/dt L_v - L_q at zero acceleration
    np.testing.assert_allclose(bias, data.qfrc_bias - data.qfrc_passive, atol=1e-12)
