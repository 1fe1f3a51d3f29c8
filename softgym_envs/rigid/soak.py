"""Cases of the verb `soak`: the sliding block."""

from __future__ import annotations

from ..core.room import SoakCase

NOISY = {"sensor_noise": 0.05, "action_delay": 2, "disturbance": 0.1}
SHORT = {"max_episode_steps": 20}
BLOCK = "softgym_envs:SlidingBlock-v0"
BLOCKS = {"friction": (0.0, 1.5), "mass": (0.2, 5.0), "inertia": (1e-3, 0.05), "gravity": (1.0, 20.0)}

CASES = (
    SoakCase(BLOCK, 1, "uniform"),
    SoakCase(BLOCK, 64, "held", {**NOISY, "randomize": BLOCKS, **SHORT}),
    SoakCase(BLOCK, 16, "pulled", {"obs_mode": "state", "autoreset_mode": "same_step", "control_period": 0.02, **SHORT}),
    SoakCase(BLOCK, 4, "uniform", {"backend": "mujoco", "randomize": {"friction": (0.05, 1.0)}, **SHORT}),
)
"""See `core.room.Room.soak`."""
