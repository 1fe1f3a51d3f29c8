"""The elbow's step as casadi expressions, from the same functions as the kernels: for optimal control and collocation."""

from __future__ import annotations

from typing import Any

from ...core.complementarity import ComplementarityForm
from ...core.transcription import casadi
from ...muscles.muscle import symbols
from .elbow import Elbow, activations, balance, both_tangents


def elbow_form(structure: Elbow, parameter_values: int) -> ComplementarityForm:
    """g(x, e, c, x+) = 0 of one physics step, with the given number of parameters; no pairs."""
    ca = casadi()
    sizes = (("x", 4), ("u", 2), ("p", parameter_values), ("y", 4), ("z", 0))
    x, u, p, y, z = (ca.SX.sym(name, size) for name, size in sizes)
    with symbols():
        value = _residual(structure, ca.vertsplit(x), ca.vertsplit(u), ca.vertsplit(p), ca.vertsplit(y))
    step = ca.Function("step", [x, u, p, y, z], [ca.vertcat(*value), ca.SX.zeros(0)], ["x", "u", "p", "y", "z"], ["g", "f"])
    return ComplementarityForm(step)


def _residual(g: Elbow, x: list[Any], u: list[Any], c: list[Any], y: list[Any]) -> list[Any]:
    """Residual of four rows; see `elbow`."""
    first, second = (activations(g, c, a, e, g.dt) for a, e in zip(x[2:], u, strict=True))
    w = 0.5 * (x[1] + y[1])
    moved = balance(g, c, g.dt, x[0], x[1], w, first[0], second[0], both_tangents(g, c))
    return [y[0] - x[0] - g.dt * w, moved, y[2] - first[1], y[3] - second[1]]
