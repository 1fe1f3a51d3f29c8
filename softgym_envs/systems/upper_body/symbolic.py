"""The upper body's step with muscles as casadi expressions: the tree's of `mechanics.symbolic`, paths of `muscles.routes`."""

from __future__ import annotations

from typing import Any

from ...core.errors import StructureError
from ...core.transcription import casadi
from ...mechanics.symbolic import velocity_step
from ...muscles.muscle import MUSCLE_SPEED, activated, symbols, tension
from ...muscles.routes import Routes
from .model import FALL, PARAMETERS, RISE, BodyModel


def muscled_step(model: BodyModel, dt: float, *, late: bool = False, rounding: float = 0.0) -> Any:
    """One step as casadi.Function (x, u, p, y, z) -> (g (2 n + m), nothing); see `stepping`.

    Args:
        model: A body with muscles.
        dt: Step [s].
        late: Whether muscles see the speed of the step itself, not that of the one before: for the long steps of optimal
            control, which the engine with its short ones does not need.
        rounding: Rounding of the muscles' paths where they begin to wrap [rad]; see `Routes`.

    Raises:
        StructureError: The body has no muscles.
    """
    ca = casadi()
    if model.muscles is None:
        raise StructureError(f"tree {model.tree.name!r} has no muscles")
    n, m, nu = model.n, len(model.muscle_names), len(model.control_names)
    bones, torques = velocity_step(model.tree, PARAMETERS, dt), muscle_torques(model, rounding)
    sizes = (("x", 2 * n + m), ("u", nu), ("p", len(PARAMETERS)), ("y", 2 * n + m), ("z", 0))
    x, u, p, y, z = (ca.SX.sym(name, size) for name, size in sizes)
    with symbols():
        moved = [activated(x[2 * n + i], u[i], RISE, FALL, dt) for i in range(m)]
    speed = y[n : 2 * n] if late else x[n : 2 * n]
    total = torques(x[:n], speed, ca.vertcat(*(middle for middle, _ in moved)))
    for k, i in enumerate(model.motors):
        total[i] += u[m + k]
    g, f = bones(x[: 2 * n], total, p, y[: 2 * n], z)
    after = ca.vertcat(*(end for _, end in moved))
    return ca.Function("step", [x, u, p, y, z], [ca.vertcat(g, y[2 * n :] - after), f], ["x", "u", "p", "y", "z"], ["g", "f"])


def muscle_torques(model: BodyModel, rounding: float = 0.0) -> Any:
    """casadi.Function: angles (n,), speeds (n,), activations (m,) -> torques (n,)."""
    ca, muscles = casadi(), model.muscles
    assert muscles is not None
    q, v, a = ca.SX.sym("q", model.n), ca.SX.sym("v", model.n), ca.SX.sym("a", len(muscles.muscles))
    lengths = Routes(model.tree, muscles, rounding).expressions(q)
    slopes = ca.jacobian(lengths, q)
    rates, pulls = slopes @ v, []
    with symbols():
        for i, muscle in enumerate(muscles.muscles):
            force, optimal, slack = muscle.numbers
            fibre, speed = (lengths[i] - slack) / optimal, rates[i] / (MUSCLE_SPEED * optimal)
            pulls.append(force * tension(a[i], fibre, speed))
    return ca.Function("torques", [q, v, a], [-slopes.T @ ca.vertcat(*pulls)])
