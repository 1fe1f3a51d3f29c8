r"""The mixed complementarity problems of this system as CasADi expressions, as in the paper, for `sysid.fitting.mpec`.

.. math:: g(x, u, p, x^+, z) = 0, \qquad 0 \le z \perp f(x, u, p, x^+, z) \ge 0

with x = (q, nu) of one body, x+ the state a step later, and z = (forces [N], slack speeds [m/s]) as in [Berard2008] slides 8
and 25. Nothing is eliminated or scaled here: this is a second formulation of `dynamics`, and its oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import casadi as ca

from ...core.complementarity import ComplementarityForm, ComplementarityPart
from .dynamics import BlockSimulator, ParticleSimulator
from .model import BlockModel, ParticleModel


def complementarity_form(simulator: ParticleSimulator | BlockSimulator) -> ComplementarityForm:
    """The problem that one physics step of the simulator solves."""
    model = simulator.model
    names = simulator.parameters_class.names()
    x, u, p = ca.SX.sym("x", simulator.nx), ca.SX.sym("u", simulator.nu), ca.SX.sym("p", len(names))
    y, z = ca.SX.sym("y", simulator.nx), ca.SX.sym("z", simulator.scene.bodies * simulator.pairs)
    if isinstance(model, BlockModel):
        equations, slacks = _block(model, simulator.dt, x, u, dict(zip(names, ca.vertsplit(p), strict=True)), y, z)
    else:
        parts = [_particle(simulator.dt, x, u, p, y, z, body, model.count) for body in range(model.count)]
        equations, slacks = (ca.vertcat(*column) for column in zip(*parts, strict=True))
    function = ca.Function("step", [x, u, p, y, z], [equations, slacks], ["x", "u", "p", "y", "z"], ["g", "f"])
    return ComplementarityForm(function, () if isinstance(model, BlockModel) else _parts(model, simulator.dt))


def _parts(model: ParticleModel, dt: float) -> tuple[ComplementarityPart, ...]:
    """One part per particle, as particles do not touch each other."""
    if model.count == 1:
        return ()
    single = ParticleSimulator(replace(model, count=1), dt)
    form = complementarity_form(single)

    def part(i: int) -> ComplementarityPart:
        states = {name: f"particle{i}.{name}" for name in single.state_names}
        parameter_values = {name: name for name in single.parameters_class.names()} | {"friction": f"friction{i}"}
        return ComplementarityPart(single, form, states, {"force": f"force{i}"}, parameter_values)

    return tuple(part(i) for i in range(model.count))


def _particle(h: float, x: ca.SX, u: ca.SX, p: ca.SX, y: ca.SX, z: ca.SX, body: int, count: int) -> tuple[ca.SX, ca.SX]:
    """[Berard2008] slide 25 for one particle: z = (normal, friction to the left, to the right, sigma)."""
    here, pairs = slice(4 * body, 4 * body + 4), slice(4 * body, 4 * body + 4)
    x, y, z = x[here], y[here], z[pairs]
    friction, mass, gravity, drag, tilt = p[body], *(p[count + shared] for shared in range(4))
    normal, left, right, sigma = ca.vertsplit(z)
    applied = ca.vertcat(u[body] + mass * gravity * ca.sin(tilt), -mass * gravity * ca.cos(tilt)) - drag * y[2:]
    contact = ca.vertcat(right - left, normal)
    equations = ca.vertcat(y[:2] - x[:2] - h * y[2:], mass * (y[2:] - x[2:]) - h * (contact + applied))
    return equations, ca.vertcat(y[1], sigma - y[2], sigma + y[2], friction * normal - left - right)


def _block(model: BlockModel, h: float, x: ca.SX, u: ca.SX, p: dict[str, ca.SX], y: ca.SX, z: ca.SX) -> tuple[ca.SX, ca.SX]:
    """The block: z = (forces at support 0, 1, 2 along all directions, slack speeds), tension eliminated."""
    d = model.num_directions
    q, v, after = x[:3], x[3:], y[3:]
    level = ca.cos(p["tilt_x"])
    down = [ca.sin(p["tilt_x"]), level * ca.sin(p["tilt_y"]), level * ca.cos(p["tilt_y"])]
    along_x, along_y, normal = (p["mass"] * p["gravity"] * share for share in down)
    loads = [normal * float(share) for share in model.shares]
    directions = ca.DM(model.directions.T)  # (2, d)
    total: ca.SX = ca.vertcat(along_x - p["drag"] * after[0], along_y - p["drag"] * after[1], 0.0)
    sliding, cones = [], []
    for i, support in enumerate(model.supports):
        jacobian = _point_jacobian(q, support)
        along, sigma = z[d * i : d * (i + 1)], z[3 * d + i]
        total += jacobian.T @ (directions @ along)
        sliding.append(sigma + directions.T @ (jacobian @ after))
        cones.append(p["friction"] * loads[i] - ca.sum1(along))
    handle = _point_jacobian(q, model.handle)
    total += handle.T @ (_turn(q[2]) @ u)
    mass = ca.diag(ca.vertcat(p["mass"], p["mass"], p["inertia"]))
    momentum = mass @ (after - v)
    if model.pulley is not None:
        pull = _pull(model, q)
        before = _pull(model, q - h * v)
        momentum += p["weight"] * pull * (ca.dot(pull, after) - ca.dot(before, v))
        total += p["weight"] * p["gravity"] * pull
    return ca.vertcat(y[:3] - q - h * after, momentum - h * total), ca.vertcat(*sliding, *cones)


def _turn(theta: ca.SX) -> ca.SX:
    """R(theta), (2, 2)."""
    c, s = ca.cos(theta), ca.sin(theta)
    return ca.vertcat(ca.horzcat(c, -s), ca.horzcat(s, c))


def _point_jacobian(q: ca.SX, point: Sequence[float]) -> ca.SX:
    """d(velocity of a body point) / d nu, (2, 3)."""
    rho = _turn(q[2]) @ ca.DM(list(point))
    return ca.vertcat(ca.horzcat(1, 0, -rho[1]), ca.horzcat(0, 1, rho[0]))


def _pull(model: BlockModel, q: ca.SX) -> ca.SX:
    """w = J_a' u, (3,)."""
    way = ca.DM(list(model.pulley or (0.0, 0.0))) - q[:2] - _turn(q[2]) @ ca.DM(list(model.attachment))
    return _point_jacobian(q, model.attachment).T @ (way / ca.norm_2(way))
