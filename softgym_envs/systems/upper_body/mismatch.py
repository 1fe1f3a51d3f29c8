"""Mismatched models of the upper body, in MuJoCo and in Pinocchio (`core.mismatch`)."""

from __future__ import annotations

from ...core.mismatch import TRANSMISSION, Effect, Ladder

LADDER = Ladder(
    (
        *TRANSMISSION,
        Effect("dry_friction", "-", (0.0, 0.005, 0.02), "Coulomb friction of every joint, as a share of its effort"),
        Effect("mass_spread", "-", (0.02, 0.1, 0.2), "logarithm of a factor of every body's mass and inertia, plus or minus"),
        Effect("stiffness_spread", "-", (0.05, 0.2, 0.4), "logarithm of a factor of every joint's stiffness, plus or minus"),
        Effect("damping_spread", "-", (0.05, 0.2, 0.4), "logarithm of a factor of every joint's damping, plus or minus"),
    )
)
"""Differences of the body from its nominal model."""
