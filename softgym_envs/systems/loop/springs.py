r"""Own springs: both sides of the loop cut into parts, each with a factor of either stiffness.

.. math:: \kappa_{joint} = \kappa_\theta f_{\theta, part}, \qquad \kappa_{joint} = \kappa_\psi f_{\psi, part}

With as many parts as a side has joints, every joint has its own factors. Legend: B batch, P parameters, F factors.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Array

AXES, SIDES = ("theta", "psi"), ("left", "right")
"""Axes X and Y; in the order of `LoopParameters`' first two parameters."""


def factor_names(parts: int) -> tuple[str, ...]:
    """Names of F = 4 parts factors, theta_left0 ... psi_right..: parts count from the gripper to the clamp.

    >>> factor_names(1)
    ('theta_left0', 'theta_right0', 'psi_left0', 'psi_right0')
    """
    return tuple(f"{axis}_{side}{part}" for axis in AXES for side in SIDES for part in range(parts))


def spring_values(parameter_values: Array, parts: int) -> Array:
    """Stiffness of all parts (B, F) [N m/rad] of `loop_parameters(parts)` (B, P), whose last F columns are factors."""
    count = 2 * parts
    return np.asarray(
        np.repeat(parameter_values[:, :2], count, axis=1) * parameter_values[:, parameter_values.shape[1] - 2 * count :]
    )


def spring_slopes(parameter_values: Array, parts: int) -> Array:
    """Derivatives (B, F, P) of `spring_values`."""
    rows, width = parameter_values.shape
    count = 2 * parts
    found, factors = np.zeros((rows, 2 * count, width)), parameter_values[:, width - 2 * count :]
    for place in range(2 * count):
        found[:, place, place // count] = factors[:, place]
        found[:, place, width - 2 * count + place] = parameter_values[:, place // count]
    return found
