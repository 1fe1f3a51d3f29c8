r"""One step of a free vine robot without muscles, between two births of links, as CasADi: for `sysid.simultaneous`.

A second formulation of `dynamics`: no sweeps, the velocities are where the gradient of the whole objective is zero,

.. math:: \min_\omega \; \tfrac12 (V - V_k)' M (V - V_k) + h M_k' B \omega + \tfrac12 h D |B \omega|^2, \quad V = J(q_k) \omega

with B the differences of rates over a joint and M_k the bending moments. The number of links is that of the initial length, so
recordings must stay within the length of one link; growth is as asked (no force limits it).
Legend: N links, n active, P points.
"""

from __future__ import annotations

import casadi as ca
import numpy as np
from numpy.typing import NDArray

from ..core.complementarity import ComplementarityForm
from ..core.errors import OptionError
from .dynamics import IMPLICIT, VineSimulator
from .model import VineModel
from .parameters import VineParameters

Array = NDArray[np.float64]


def complementarity_form(simulator: VineSimulator) -> ComplementarityForm:
    """The step of a free robot; it has no pairs.

    Raises:
        OptionError: The robot has muscles or obstacles, or wrinkles.
    """
    model = simulator.model
    if model.num_sections or model.obstacles or simulator.bending != "linear":
        raise OptionError(
            "the symbolic step is of a free robot without muscles and with linear bending: it has "
            f"{model.num_sections} sections, {len(model.obstacles)} obstacles, bending {simulator.bending!r}"
        )
    total, active, h, names = model.num_links, _active(model), simulator.dt, VineParameters.names()
    x, u, p = ca.SX.sym("x", model.nx), ca.SX.sym("u", model.nu), ca.SX.sym("p", len(names))
    y, z = ca.SX.sym("y", model.nx), ca.SX.sym("z", 0)
    omega = ca.SX.sym("omega", active)
    objective = _objective(model, h, x, omega, dict(zip(names, ca.vertsplit(p), strict=True)))
    theta, rate = y[:total], y[total : 2 * total]
    g = ca.vertcat(
        theta[:active] - x[:active] - h * rate[:active],
        ca.substitute(ca.gradient(objective, omega), omega, rate[:active]),
        *(part[i] - part[active - 1] for part in (theta, rate) for i in range(active, total)),  # copies of the tip link
        y[2 * total] - x[2 * total] - h * u[0],
        y[2 * total + 1] - u[0],
    )
    return ComplementarityForm(ca.Function("step", [x, u, p, y, z], [g, ca.SX.zeros(0)], ["x", "u", "p", "y", "z"], ["g", "f"]))


def _active(model: VineModel) -> int:
    """Number n of active links."""
    return int(model.num_active(np.array(model.initial_length)))


def _objective(model: VineModel, h: float, x: ca.SX, omega: ca.SX, body: dict[str, ca.SX]) -> ca.SX:
    """See the module docstring."""
    theta, before = x[: model.num_links], x[model.num_links : 2 * model.num_links]
    damper = ca.fmax(body["bending_damping"], IMPLICIT * h * body["bending_stiffness"])
    total, end, earlier = ca.SX(0), ca.SX.zeros(2), ca.SX.zeros(2)
    for i, length in enumerate(_lengths(model, x)):
        mass = body["linear_density"] * length
        heavy = mass + h * body["drag"] * length
        spin = length**2 / 12.0 + 0.5 * model.radius**2
        arm = length * omega[i] * _normal(theta[i])
        old_arm = length * before[i] * _normal(theta[i] - h * before[i])
        velocity, old = end + 0.5 * arm, earlier + 0.5 * old_arm
        weight = ca.vertcat(0.0, h * mass * body["gravity"])
        total += 0.5 * heavy * ca.dot(velocity, velocity) - ca.dot(mass * old - weight, velocity)
        total += 0.5 * heavy * spin * omega[i] ** 2 - mass * spin * before[i] * omega[i]
        spacing = 0.5 * (length + model.link_length) if i else 0.5 * length
        bend, rate = (theta[i] - theta[i - 1], omega[i] - omega[i - 1]) if i else (theta[0] - model.base[2], omega[0])
        total += h * body["bending_stiffness"] * bend / spacing * rate + 0.5 * h * damper / spacing * rate**2
        end, earlier = end + arm, earlier + old_arm
    return total


def _lengths(model: VineModel, x: ca.SX) -> list[ca.SX]:
    """Of the n active links; the tip link ends where the robot does (its length is a state, and so estimated)."""
    whole = _active(model) - 1
    return [ca.SX(model.link_length)] * whole + [x[2 * model.num_links] - whole * model.link_length]


def _normal(angle: ca.SX) -> ca.SX:
    return ca.vertcat(-ca.sin(angle), ca.cos(angle))


def tracked_points(model: VineModel, share: Array) -> ca.Function:
    """Points at shares (P,) of the robot's length from the base, x (nx) -> (2 P) [m]: x0, y0, x1, ..."""
    x = ca.SX.sym("x", model.nx)
    joints = [ca.SX(ca.DM(list(model.base[:2])))]
    for i, length in enumerate(_lengths(model, x)):
        joints.append(joints[-1] + length * ca.vertcat(ca.cos(x[i]), ca.sin(x[i])))
    points = []
    for part in np.asarray(share):
        i = min(int(part * model.initial_length / model.link_length), _active(model) - 1)
        rest = float(part) * x[2 * model.num_links] - i * model.link_length
        points.append(joints[i] + rest * ca.vertcat(ca.cos(x[i]), ca.sin(x[i])))
    return ca.Function("points", [x], [ca.vertcat(*points)])
