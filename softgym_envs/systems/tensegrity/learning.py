"""Settings of reinforcement learning on the tensegrity system's ids; see `agents.learning.rl.settings`."""

from typing import Any

ONE_FOR_ALL: dict[str, Any] = {
    "n_steps": 32, "n_epochs": 3, "learning_rate": 3e-3, "target_kl": None, "scaled": False, "shared": True,
    "policy_kwargs": {"net_arch": {"pi": [48, 48], "vf": [128, 128]}, "log_std_init": -0.5},
}  # fmt: skip
"""One small network for all motors, and large steps: 24 motors learn from each other's experience."""
LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "TensegrityRoll-v0": {
        # Updates after few steps, and a rate that falls to zero at the end.
        "ppo": {**ONE_FOR_ALL, "steps": 100_000, "n_steps": 16, "batch_size": 512, "gamma": 0.95, "gae_lambda": 0.9},
        "sac": {"gamma": 0.95},
    },
    "TensegrityCrawl-v0": {
        # Much noise, and a far view: a step of the gait costs before it pays.
        "ppo": {
            **ONE_FOR_ALL,
            "n_steps": 64,
            "batch_size": 2048,
            "n_epochs": 5,
            "learning_rate": 2e-3,
            "gamma": 0.99,
            "scaled": True,
            "policy_kwargs": {"net_arch": {"pi": [64, 64], "vf": [128, 128]}, "log_std_init": 0.0},
        },
        "sac": {"gamma": 0.97},
    },
    "TensegrityWaypoint-v0": {"ppo": {**ONE_FOR_ALL, "steps": 200_000}, "sac": {"gamma": 0.99}},
    "TensegrityTerrain-v0": {"ppo": {**ONE_FOR_ALL, "steps": 200_000, "gamma": 0.97}},
}
"""Id -> algorithm -> settings that differ from the usual ones."""
