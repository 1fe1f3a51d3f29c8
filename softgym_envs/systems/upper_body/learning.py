"""Settings of reinforcement learning on the upper body's id; see `agents.learning.rl.settings`."""

from typing import Any

PPO: dict[str, Any] = {
    "n_steps": 64, "batch_size": 512, "n_epochs": 6, "learning_rate": 1e-3, "final_rate": 0.0, "gamma": 0.97,
    "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -1.0},
}  # fmt: skip
LEARNING: dict[str, dict[str, dict[str, Any]]] = {"UpperBodyReach-v0": {"ppo": PPO}}
"""Id -> algorithm -> changes to the usual settings."""
