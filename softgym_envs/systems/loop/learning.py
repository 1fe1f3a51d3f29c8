"""Settings of reinforcement learning on the loop system's ids; see `agents.learning.rl.settings`."""

from typing import Any

LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "LoopReach-v0": {
        # A small network and many small updates.
        "ppo": {
            "steps": 500_000, "n_steps": 32, "batch_size": 512, "n_epochs": 8,
            "policy_kwargs": {"net_arch": [64, 64], "log_std_init": -1.0},
        },
    },
    "LoopPeg-v0": {"ppo": {"steps": 700_000}},
    "LoopIdentify-v0": {"ppo": {"steps": 700_000, "gamma": 0.99}},
    "LoopBend-v0": {
        # An error of the hand shows in the next steps: a short memory suffices.
        "ppo": {
            "steps": 500_000, "n_steps": 32, "batch_size": 512, "gamma": 0.9, "gae_lambda": 0.9,
            "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -1.0},
        },
    },
}  # fmt: skip
"""Id -> algorithm -> changes to the usual settings."""
