"""Settings of reinforcement learning on the block's id; see `agents.learning.rl.settings`."""

from typing import Any

LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "SlidingBlock-v0": {
        # The way to the goal is as long as the episode. Noise frees the block from static friction; as it falls, the policy
        # learns to do without.
        "ppo": {
            "steps": 800_000,
            "gamma": 0.99,
            "target_kl": None,
            "noise_decay": 1.5,
            "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.5},
        },
    },
}
"""Id -> algorithm -> changes to the usual settings."""
