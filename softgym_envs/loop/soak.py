"""Long runs of the verb `soak`. Soft loops under jumps of all torques may be unstable at steps of 10 ms."""

from __future__ import annotations

from ..core.room import SoakCase

REACH, BEND, IDENTIFY, PEG = (f"softgym_envs:Loop{name}-v0" for name in ("Reach", "Bend", "Identify", "Peg"))
NOISY = {"sensor_noise": 0.05, "action_delay": 2, "disturbance": 0.05}
LOOPS = {"randomize": {"theta_stiffness": (1.0, 8.0), "psi_stiffness": (0.3, 3.0), "loop_scale": (0.8, 1.2)}}

CASES = (
    SoakCase(REACH, 16, "uniform", {}, False),
    SoakCase(REACH, 16, "uniform", {"backend": "mujoco", "goal": "shape", "obs_mode": "state"}, False),
    SoakCase(REACH, 16, "held", {**NOISY, **LOOPS}),
    SoakCase(BEND, 16, "uniform", {}, False),
    SoakCase(BEND, 1, "pulled", {"backend": "mujoco", **LOOPS}),
    SoakCase(IDENTIFY, 16, "uniform", {}, False),
    SoakCase(IDENTIFY, 16, "held", {"backend": "mujoco"}),
    SoakCase(PEG, 16, "uniform", {"dt": 0.005}, False),
    SoakCase(PEG, 16, "held", {"backend": "mujoco"}),
    *(SoakCase(env_id, 1, "uniform", {"backend": "rod"}, False) for env_id in (REACH, BEND, IDENTIFY, PEG)),
)
"""See `core.room.Room.soak`."""
