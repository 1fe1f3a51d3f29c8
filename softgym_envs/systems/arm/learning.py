"""Settings of reinforcement learning on the arm system's ids; see `agents.learning.rl.settings`."""

from typing import Any

PPO: dict[str, Any] = {
    "steps": 400_000, "num_envs": 128, "n_steps": 16, "batch_size": 256, "n_epochs": 3, "learning_rate": 3e-3, "gamma": 0.97,
    "target_kl": None, "scaled": False, "policy_kwargs": {"net_arch": [64, 64], "log_std_init": -0.7},
}  # fmt: skip
LEARNING: dict[str, dict[str, dict[str, Any]]] = {"ArmReach-v0": {"ppo": PPO}, "ArmHold-v0": {"ppo": PPO}}
"""Id -> algorithm -> changes to the usual settings."""
