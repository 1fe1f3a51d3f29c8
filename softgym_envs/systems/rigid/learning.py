"""Settings of reinforcement learning on the block's id; see `agents.learning.rl.settings`."""

from typing import Any

LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "SlidingBlock-v0": {
        # The way to the goal is as long as the episode. While actions are noisy, noise frees the block from static friction:
        # the policy without it succeeds as often only after the noise has fallen.
        "ppo": {"steps": 800_000, "gamma": 0.99, "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.5}},
    },
}
"""Id -> algorithm -> changes to the usual settings."""
