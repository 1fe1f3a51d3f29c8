"""Settings of reinforcement learning on the upper body's id; see `agents.learning.rl.settings`."""

from typing import Any

PPO: dict[str, Any] = {
    "steps": 800_000, "batch_size": 512, "gamma": 0.97, "target_kl": None,
    "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -1.0},
}  # fmt: skip
LEARNING: dict[str, dict[str, dict[str, Any]]] = {"UpperBodyReach-v0": {"ppo": PPO}}
"""Id -> algorithm -> changes to the usual settings."""
