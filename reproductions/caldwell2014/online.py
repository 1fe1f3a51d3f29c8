"""Online estimate of the loop's stiffness, row by row as torques and angles come: `kalman` for arm and loop.

Free are both stiffnesses and the torque sensors' offsets, without which a bias would spoil them; the other parameters that
recordings determine (`procedure.EVERYTHING`) are taken as known. Legend: T rows.
"""

from __future__ import annotations

import numpy as np

from softgym_envs.mechanics.mechanism import Mechanism
from softgym_envs.systems.loop.model import ARM, LoopModel
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.procedure import OFFSETS, STIFFNESS

from .kalman import OnlineEstimator

SPREAD = {**dict.fromkeys(STIFFNESS, 1.0), **dict.fromkeys(OFFSETS, 1.0)}
"""Standard deviations of the guess: logarithms of stiffness, offsets [N m]."""


def online_estimator(
    model: LoopModel,
    initial_guess: LoopParameters | None = None,
    *,
    period: float = 0.01,
    angle: float = 2e-3,
    torque: float = 0.2,
) -> OnlineEstimator:
    """An estimator for rows that are `period` [s] apart: `start` with rows at rest, then `update` row by row.

    Args:
        model: Arm and loop, whose joints are alike.
        initial_guess: Initial parameters; None: the paper's.
        period: Period of the rows, and step of the model [s].
        angle: Standard deviation of measured angles [rad].
        torque: Standard deviation of measured torques [N m].

    Raises:
        OptionError: The period is not positive.
    """
    parameter_values = model.tree_constants((initial_guess or LoopParameters()).to_matrix(1))[0]
    mechanism = Mechanism(model.tree, period, model.parameter_names)
    width = len(ARM)
    return OnlineEstimator(
        mechanism, parameter_values, SPREAD, OFFSETS, np.full(width, torque), np.full(width, angle)
    )  # fmt: skip


__all__ = ["SPREAD", "online_estimator"]
