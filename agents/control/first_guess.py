"""First guesses of optimal control: minimum jerk, the controls that drive a path, a motion on another mesh.

Legend: K steps, nx state, nu control, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.simulator import Array
from softgym_envs.core.transcription import casadi


def minimum_jerk(start: Array, end: Array, steps: int, rates: Sequence[tuple[int, int]] = (), dt: float = 1.0) -> Array:
    """States (K + 1, nx) from start to end, both at rest, with least jerk; a free end stays at the start.

    Args:
        start: (nx,).
        end: (nx,), NaN where free.
        steps: K.
        rates: Pairs (position, rate): each rate is the derivative of its position.
        dt: Step [s], for the rates.
    """
    s = np.linspace(0.0, 1.0, steps + 1)[:, None]
    path = start + (np.where(np.isfinite(end), end, start) - start) * s**3 * (10 - 15 * s + 6 * s * s)
    for position, rate in rates:
        path[:, rate] = np.gradient(path[:, position], dt)
    return np.asarray(path)


def rates_of(simulator: Any) -> tuple[tuple[int, int], ...]:
    """Pairs (position, rate) of a state, by name: "elbow" and "velbow", "left0.theta" and "left0.vtheta"."""
    names = list(simulator.state_names)
    pairs = []
    for i, name in enumerate(names):
        *stem, last = name.split(".")
        rate = ".".join([*stem, f"v{last}"])
        if rate in names:
            pairs.append((i, names.index(rate)))
    return tuple(pairs)


def driving_controls(
    form: ComplementarityForm, path: Array, parameter_values: Array, bounds: tuple[Array, Array]
) -> Array | None:
    """Controls (K, nu) within bounds that best fit a path of states (K + 1, nx): inverse dynamics.

    None where the step is not linear in its controls, or has pairs.
    """
    ca = casadi()
    x, u, p, y, z = (ca.SX.sym(name, form.step.size1_in(i)) for i, name in enumerate(("x", "u", "p", "y", "z")))
    if form.nz or form.mode is not None:
        return None
    g = form.step(x, u, p, y, z)[0]
    if not ca.is_linear(g, u):
        return None
    needed = ca.Function("needed", [x, p, y], [ca.substitute(g, u, ca.SX.zeros(u.numel())), ca.jacobian(g, u)])
    found = []
    for before, after in pairwise(path):
        rest, slope = (np.array(part) for part in needed(before, parameter_values, after))
        found.append(np.linalg.lstsq(slope, -rest[:, 0], rcond=None)[0])
    return np.asarray(np.clip(np.array(found), *bounds))


def resample(values: Array, count: int) -> Array:
    """Resample values (k, m) to (count, m), linearly over the same time."""
    old, new = np.linspace(0.0, 1.0, len(values)), np.linspace(0.0, 1.0, count)
    return np.stack([np.interp(new, old, column) for column in values.T], axis=1)
