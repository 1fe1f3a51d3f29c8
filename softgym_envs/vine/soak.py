"""Cases of the verb `soak`: random clutter at every level, gaps, walls; none of them may break down."""

from __future__ import annotations

from ..core.room import SoakCase

NOISY = {"sensor_noise": 0.05, "action_delay": 2, "disturbance": 0.1}
GROW, NAVIGATE, SQUEEZE, AT_WALL = (f"softgym_envs:Vine{name}-v0" for name in ("Grow", "Navigate", "Squeeze", "Wall"))
VINES = {
    "randomize": {
        "bending_stiffness": (0.003, 0.1),
        "bending_damping": (2e-5, 1e-3),
        "friction": (0.0, 1.0),
        "pressure": (3e3, 5e4),
        "steering_gain": (1e-6, 8e-6),
    }
}

CASES = (
    SoakCase(NAVIGATE, 64, "uniform", {"level": 1.0}, False),
    SoakCase(NAVIGATE, 64, "held", {"level": 3.0, "autoreset_mode": "same_step"}, False),
    SoakCase(NAVIGATE, 64, "held", {**NOISY, **VINES, "level": 2.0}, False),
    SoakCase(NAVIGATE, 16, "pulled", {"clutter": "paper", "obs_mode": "state"}, False),
    SoakCase(NAVIGATE, 1, "uniform", {"level": 3.0}, False),
    SoakCase(SQUEEZE, 64, "held", {**VINES, "level": 3.0}, False),
    SoakCase(AT_WALL, 64, "uniform", {**NOISY, "obs_mode": "state"}, False),
    SoakCase(GROW, 64, "held", {**VINES, "control_period": 0.05}, False),
)
"""See `core.room.Room.soak`."""
