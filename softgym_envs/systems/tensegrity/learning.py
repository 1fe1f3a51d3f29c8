"""Settings of reinforcement learning on the tensegrity system's ids; see `agents.learning.rl.settings`."""

from typing import Any

LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "TensegrityRoll-v0": {
        # Updates after few steps, and a rate that falls to zero at the end; one network for all motors.
        "ppo": {
            "n_steps": 16, "batch_size": 512, "n_epochs": 3, "learning_rate": 3e-3, "final_rate": 0.0, "gamma": 0.95,
            "gae_lambda": 0.9, "shared": True,
            "policy_kwargs": {"net_arch": {"pi": [48, 48], "vf": [128, 128]}, "log_std_init": -0.5},
        },
        "sac": {"gamma": 0.95},
    },
    "TensegrityCrawl-v0": {"ppo": {"gamma": 0.97}, "sac": {"gamma": 0.97}},
    "TensegrityWaypoint-v0": {"ppo": {"gamma": 0.99}, "sac": {"gamma": 0.99}},
}  # fmt: skip
"""Id -> algorithm -> settings that differ from the usual ones."""
