"""Settings of reinforcement learning on the vine system's ids; see `agents.learning.rl.settings`."""

from typing import Any

MANY_SMALL_UPDATES: dict[str, Any] = {
    "n_steps": 16, "batch_size": 256, "n_epochs": 8, "learning_rate": 3e-3, "final_rate": 0.0, "gamma": 0.97,
    "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.5},
}  # fmt: skip
"""Settings with many small updates, and a rate that falls to zero at the end."""
IN_CONTACT: dict[str, Any] = {
    **MANY_SMALL_UPDATES, "n_steps": 32, "batch_size": 512, "n_epochs": 6, "learning_rate": 1e-3, "gamma": 0.98,
}  # fmt: skip

GROWING: dict[str, Any] = {
    **MANY_SMALL_UPDATES, "n_epochs": 4, "learning_rate": 4e-3,
    "policy_kwargs": {"net_arch": [64, 64], "log_std_init": -0.5},
}  # fmt: skip
"""Settings of a small network: five seeds succeed as often as with 128 x 128 and twice the updates."""

LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "VineGrow-v0": {"ppo": GROWING},
    "VineNavigate-v0": {"ppo": IN_CONTACT},
    "VineSqueeze-v0": {"ppo": IN_CONTACT},
    "VineWall-v0": {"ppo": IN_CONTACT},
}
"""Id -> algorithm -> settings that differ from the usual ones."""
