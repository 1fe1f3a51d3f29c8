"""Settings of reinforcement learning on the loop system's ids; see `agents.learning.rl.settings`."""

from typing import Any

LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "LoopReach-v0": {
        # A small network, many small updates, and a rate that falls to zero: with the usual settings half of the episodes
        # succeed after 400 000 control steps, with these all of them (goals nearer one another, held for 0.5 s).
        "ppo": {
            "n_steps": 32, "batch_size": 512, "n_epochs": 8, "learning_rate": 1e-3, "final_rate": 0.0, "gamma": 0.97,
            "gae_lambda": 0.9, "policy_kwargs": {"net_arch": [64, 64], "log_std_init": -1.0},
        },
    },
}  # fmt: skip
"""Id -> algorithm -> changes to the usual settings."""
