"""Numbers of MuJoCo's own muscles that MuJoCo models have in common."""

SMOOTH = 0.1
"""Width of the transition from activation to deactivation [-]."""
RANGE = (0.5, 1.5)
"""Fibre lengths at MuJoCo's two given lengths of a tendon."""
