r"""One step of a vine robot without muscles, free or among walls, as CasADi: for `sysid.fitting.simultaneous`.

A second formulation of `dynamics`: no sweeps and no small program. The rates are where the gradient of the whole objective is
zero, with V = J(q_k) \omega, B the differences of rates over a joint, and M_k the bending moments,

.. math::
   \min_\omega \; \tfrac12 (V - V_k)' M (V - V_k) + h M_k' B \omega + \tfrac12 h D |B \omega|^2 - h \sum (n v + t s)

and forces are complementary to the speeds that they hold back, at every end of a link and every wall,

.. math::
   0 \le n \perp v + \phi / h \ge 0, \quad 0 \le \mu n + t \perp s + w \ge 0, \quad 0 \le w \perp \mu n - t \ge 0

   2 \rho L (g - g_k) = h (F - c g - a + b + \sum \gamma n), \quad 0 \le a \perp u - g \ge 0, \quad 0 \le b \perp g \ge 0

v and s are the speeds of the skin away from the wall and to the left of that (the tip's v holds gamma g), w is that to the
right, phi the gap, half of it where they overlap; n and t are the force. g is the growth speed, u the commanded one, F the
force of the pressure, c g that of the growth speed, a the unused part of F, b the force of the reel: growth may stall. A
robot without walls grows as commanded, and has no pairs.

The number of links is the mode of a step. Not in here: contacts of the engine give way by a millionth (`contact.soften`), and a
step of it that ends in an overlap of more than `stepping.OVERLAP` is repeated in halves.

Legend: N links, M walls, K steps, P points. Pairs: (n, mu n + t, w) of link 0 ... N - 1 at wall 0, at wall 1, ..., then a, b.
"""

from __future__ import annotations

from typing import NamedTuple

import casadi as ca
import numpy as np

from ...core.complementarity import ComplementarityForm
from ...core.errors import OptionError
from ...core.simulator import Array
from .dynamics import VineSimulator
from .links import DRY_RATE, IMPLICIT
from .model import VineModel
from .obstacles import Wall
from .parameters import RATE_SPEED, VineParameters

PER_CONTACT = 3


def complementarity_form(simulator: VineSimulator) -> ComplementarityForm:
    """The step of a robot that is free or among walls; its mode is the number of links.

    Raises:
        OptionError: The robot has muscles, obstacles other than walls, or wrinkles.
    """
    model = simulator.model
    others = sum(not isinstance(obstacle.shape, Wall) for obstacle in model.obstacles)
    if model.num_sections or others or simulator.bending != "linear" or model.viscoelastic or model.has_load:
        raise OptionError(
            "the symbolic step is of a robot without muscles and load, with linear bending, free or among walls: it has "
            f"{model.num_sections} sections, {others} obstacles that are no walls, bending {simulator.bending!r}, "
            f"viscoelastic {model.viscoelastic}, max_load {model.max_load}"
        )
    names = VineParameters.names()
    x, u, p = ca.SX.sym("x", model.layout.nx), ca.SX.sym("u", model.nu), ca.SX.sym("p", len(names))
    y, z, mode = ca.SX.sym("y", model.layout.nx), ca.SX.sym("z", _num_pairs(model)), ca.SX.sym("mode")
    body = dict(zip(names, ca.vertsplit(p), strict=True))
    step = _Step(model, simulator.dt, x, z, body, _links(model, x, y[model.num_links : 2 * model.num_links], mode))
    outputs = [_equations(step, u[0], y), _slacks(step, u[0], y)]
    function = ca.Function("step", [x, u, p, y, z, mode], outputs, ["x", "u", "p", "y", "z", "mode"], ["g", "f"])

    def links_of(states: Array) -> Array:
        return model.num_active(model.split(states).length)[:, None].astype(np.float64)

    return ComplementarityForm(function, mode=links_of)


class _Link(NamedTuple):
    """A link at the start of the step, and its motion; of no length beyond the tip."""

    here: ca.SX
    """1, or 0 beyond the tip."""
    tip: ca.SX
    """1 for the tip link, else 0."""
    end: ca.SX
    """Far end (2,) [m]."""
    direction: ca.SX
    length: ca.SX
    velocity: ca.SX
    """Velocity of the far end, without growth [m/s]."""
    rate: ca.SX


class _Slip(NamedTuple):
    """The end of a link at a wall."""

    link: _Link
    gap: ca.SX
    """[m]"""
    away: ca.SX
    """Speed away from the wall, without growth [m/s]."""
    along: ca.SX
    """Speed along the wall, to the left of `away` [m/s]."""
    gamma: ca.SX
    """Speed away from the wall per growth speed."""
    normal: ca.SX
    """n [N]"""
    tangent: ca.SX
    """t [N]"""
    right: ca.SX
    """w [m/s]"""


class _Step(NamedTuple):
    """Known quantities of a step."""

    model: VineModel
    h: float
    x: ca.SX
    z: ca.SX
    body: dict[str, ca.SX]
    links: list[_Link]

    @property
    def damper(self) -> ca.SX:
        """D [N m^2 s]."""
        return ca.fmax(self.body["bending_damping"], IMPLICIT * self.h * self.body["bending_stiffness"])

    @property
    def slips(self) -> list[_Slip]:
        """All links at all walls, in the order of the pairs."""
        found: list[_Slip] = []
        poses = self.x[2 * self.model.num_links + 2 :]
        for m in range(len(self.model.obstacles)):
            normal = _direction(poses[3 * m + 2])
            for link in self.links:
                gap = ca.dot(normal, link.end - poses[3 * m : 3 * m + 2]) - self.model.radius
                along = ca.dot(_turned(normal), link.velocity) - self.model.radius * link.rate
                first = PER_CONTACT * len(found)
                push, shifted, right = ca.vertsplit(self.z[first : first + PER_CONTACT])
                rub = shifted - self.body["friction"] * push
                gamma = link.tip * ca.dot(normal, link.direction)
                found.append(_Slip(link, gap, ca.dot(normal, link.velocity), along, gamma, push, rub, right))
        return found

    def asked(self, u: ca.SX) -> ca.SX:
        """Growth speed command, within its limits and the robot's full length [m/s]."""
        rest = self.model.max_length - self.x[2 * self.model.num_links]
        return ca.fmin(ca.fmin(ca.fmax(u, 0.0), self.model.max_growth), rest / self.h)


def _num_pairs(model: VineModel) -> int:
    walls = len(model.obstacles)
    return PER_CONTACT * model.num_links * walls + (2 if walls else 0)


def _direction(angle: ca.SX) -> ca.SX:
    return ca.vertcat(ca.cos(angle), ca.sin(angle))


def _turned(direction: ca.SX) -> ca.SX:
    """A direction turned by 90 degrees to the left."""
    return ca.vertcat(-direction[1], direction[0])


def _links(model: VineModel, x: ca.SX, rates: ca.SX, mode: ca.SX) -> list[_Link]:
    """Links as they are at the start of the step, moving at the rates of its end."""
    links, end, velocity = [], ca.SX(ca.DM(list(model.base[:2]))), ca.SX.zeros(2)
    for i in range(model.num_links):
        here, tip = mode > i, ca.eq(mode, i + 1)
        length = ca.if_else(tip, x[2 * model.num_links] - i * model.link_length, here * model.link_length)
        direction = _direction(x[i])
        end, velocity = end + length * direction, velocity + length * rates[i] * _turned(direction)
        links.append(_Link(here, tip, end, direction, length, velocity, rates[i]))
    return links


def _equations(step: _Step, u: ca.SX, y: ca.SX) -> ca.SX:
    """g (nx). Links beyond the tip copy the one before."""
    model, x, h, total = step.model, step.x, step.h, step.model.num_links
    theta, rate, growth = y[:total], y[total : 2 * total], y[2 * total + 1]
    momentum = ca.gradient(_objective(step), rate)
    unit = step.body["linear_density"] * model.link_length**3 + h * step.damper / model.link_length
    turns = [ca.if_else(link.here, x[i] + h * rate[i], theta[max(i - 1, 0)]) for i, link in enumerate(step.links)]
    copies = [unit * (rate[i] - rate[max(i - 1, 0)]) for i in range(total)]
    balances = [ca.if_else(link.here, momentum[i], copies[i]) for i, link in enumerate(step.links)]
    held = _growth(step, growth) if model.obstacles else growth - step.asked(u)
    lengthens, stand = y[2 * total] - x[2 * total] - h * growth, y[2 * total + 2 :] - x[2 * total + 2 :]
    return ca.vertcat(theta - ca.vertcat(*turns), *balances, lengthens, held, stand)


def _objective(step: _Step) -> ca.SX:
    """See the module docstring."""
    model, x, h, body = step.model, step.x, step.h, step.body
    total, earlier, velocity, rate, heading = ca.SX(0), ca.SX.zeros(2), ca.SX.zeros(2), ca.SX(0), _heading(step)
    angle, ahead = body["gravity_angle"], body["tip_offset"]
    fall = h * body["gravity"] * ca.vertcat(ca.sin(angle), -ca.cos(angle))
    for i, link in enumerate(step.links):
        mass = body["linear_density"] * link.length
        heavy = mass + h * body["drag"] * link.length
        spin = link.length**2 / 12.0 + 0.5 * model.radius**2
        theta, before = x[i], x[model.num_links + i]
        old_arm = link.length * before * _turned(_direction(theta - h * before))
        middle, old = 0.5 * (velocity + link.velocity), earlier + 0.5 * old_arm
        total += 0.5 * heavy * ca.dot(middle, middle) - mass * ca.dot(old + fall, middle)
        load = link.velocity + ahead * link.rate * _turned(link.direction)
        old_load = earlier + old_arm * (1.0 + ahead / ca.fmax(link.length, 1e-9))
        total += link.tip * body["tip_mass"] * (0.5 * ca.dot(load, load) - ca.dot(old_load + fall, load))
        total += 0.5 * heavy * spin * link.rate**2 - mass * spin * before * link.rate
        spacing = 0.5 * link.length + (0.5 * model.link_length if i else body["clamp_length"])
        bend, bending = theta - heading, link.rate - rate
        last = before - (x[model.num_links + i - 1] if i else 0.0)
        damper = step.damper / spacing + body["bending_friction"] / (ca.fabs(last) + DRY_RATE * spacing)
        joint = h * body["bending_stiffness"] * bend / spacing * bending + 0.5 * h * damper * bending**2
        total += link.here * joint
        earlier, velocity, rate, heading = earlier + old_arm, link.velocity, link.rate, theta
    for slip in step.slips:
        total -= h * slip.link.here * (slip.normal * slip.away + slip.tangent * slip.along)
    return total


def _heading(step: _Step) -> ca.SX:
    """Heading of the clamp [rad]."""
    return step.model.base[2] + step.body["base_turn"]


def _growth(step: _Step, growth: ca.SX) -> ca.SX:
    """Residual of the growth speed's equation [N s]."""
    model, x, body = step.model, step.x, step.body
    length, before = x[2 * model.num_links], x[2 * model.num_links + 1]
    head = ca.pi * model.radius**2 * ca.fmax(0.0, body["pressure"] - body["yield_pressure"])
    headings = [_heading(step), *ca.vertsplit(x[: model.num_links])]
    bends = sum(link.here * ca.fabs(b - a) for link, a, b in zip(step.links, headings[:-1], headings[1:], strict=True))
    tail = body["tail_drag"] * length + body["bend_drag"] * (ca.exp(body["tail_friction"] * bends) - 1.0)
    force = ca.fmax(0.0, head - tail)
    rate = ca.pi * model.radius**2 * body["rate_pressure"]
    reached = (ca.fmax(force, 1e-9) / ca.fmax(rate, 1e-9)) ** body["rate_power"]
    speed = ca.if_else(before > 1e-2 * RATE_SPEED, before / RATE_SPEED, ca.fmax(reached, 1e-2))
    damper = rate / RATE_SPEED * speed ** (1.0 / body["rate_power"] - 1.0)
    pushed = sum(slip.link.here * slip.gamma * slip.normal for slip in step.slips)
    unneeded, reel = step.z[-2], step.z[-1]
    inertia = 2.0 * body["linear_density"] * length
    return inertia * (growth - before) - step.h * (force - damper * growth - unneeded + reel + pushed)


def _slacks(step: _Step, u: ca.SX, y: ca.SX) -> ca.SX:
    """f (nz); 1 where there is no link."""
    growth, rows = y[2 * step.model.num_links + 1], []
    for slip in step.slips:
        gap = ca.fmax(slip.gap, 0.5 * slip.gap) / step.h
        cone = step.body["friction"] * slip.normal - slip.tangent
        for f in (slip.away + slip.gamma * growth + gap, slip.along + slip.right, cone):
            rows.append(ca.if_else(slip.link.here, f, 1.0))
    return ca.vertcat(*rows, step.asked(u) - growth, growth) if rows else ca.SX.zeros(0)


def tracked_points(model: VineModel, share: Array) -> ca.Function:
    """Points at shares (P,) of the robot's length from the base, x (nx) -> (2 P) [m]: x0, y0, x1, ..."""
    x = ca.SX.sym("x", model.layout.nx)
    length, heading = x[2 * model.num_links], x[0]
    points = [ca.SX(ca.DM(list(model.base[:2]))) for _ in share]
    for i in range(model.num_links):
        heading = ca.if_else(length > (i + 1 - 1e-9) * model.link_length, x[i], heading)
        for k, part in enumerate(share):
            beyond = float(part) * length - i * model.link_length
            points[k] += ca.fmin(ca.fmax(beyond, 0.0), model.link_length) * _direction(heading)
    return ca.Function("points", [x], [ca.vertcat(*points)])
