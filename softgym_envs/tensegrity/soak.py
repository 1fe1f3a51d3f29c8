"""Cases of the verb `soak`: SUPERball and prism."""

from __future__ import annotations

from ..core.room import SoakCase

NOISY = {"sensor_noise": 0.05, "action_delay": 2, "disturbance": 0.1}
SHORT = {"max_episode_steps": 20}
ROLL, CRAWL, WAYPOINT, TERRAIN = (f"softgym_envs:Tensegrity{name}-v0" for name in ("Roll", "Crawl", "Waypoint", "Terrain"))
DRAWN = {
    "randomize": {
        "rod_mass": (8.0, 15.0),
        "cable_stiffness": (5e3, 1.2e4),
        "cable_damping": (300.0, 1100.0),
        "friction": (0.1, 1.5),
        "restitution": (-0.5, 0.3),
        "motor_speed": (0.5, 3.0),
    }
}

CASES = (
    SoakCase(ROLL, 1, "uniform"),
    SoakCase(ROLL, 64, "held", {**NOISY, **DRAWN, **SHORT, "target_speed": (0.5, 1.5), "heading": None}),
    SoakCase(ROLL, 16, "pulled", {"control_period": 0.25, "simulator_options": {"contact": "paper"}}),
    SoakCase(ROLL, 7, "held", {"obs_mode": "state", "autoreset_mode": "same_step", "action_delay": 1, **SHORT}),
    SoakCase(ROLL, 8, "held", {"randomize": {"cable_damping": (1e3, 1e4)}, **SHORT}),  # breaks down, and must be contained
    SoakCase(CRAWL, 1, "held"),
    SoakCase(CRAWL, 64, "uniform", {**NOISY, **DRAWN, **SHORT}),
    SoakCase(CRAWL, 16, "pulled", {"gravity": 9.81, "actuated": tuple(range(9)), "control_period": 0.02}),
    SoakCase(WAYPOINT, 1, "pulled", {"control_period": 0.05}),
    SoakCase(WAYPOINT, 64, "uniform", {**DRAWN, **SHORT, "num_waypoints": 5, "leg": (0.5, 1.0)}),
    SoakCase(TERRAIN, 1, "uniform", {"level": 3.0}),
    SoakCase(TERRAIN, 64, "held", {**NOISY, "level": 2.0, "randomize": {"terrain_scale": (0.0, 3.0)}}),
    SoakCase(TERRAIN, 16, "held", {"ground": "steps", "level": 3.0, "autoreset_mode": "same_step", **SHORT}),
    SoakCase(TERRAIN, 16, "uniform", {"ground": "slope", "level": 3.0, "obs_mode": "state"}),
)
"""See `core.room.Room.soak`."""
