"""Settings of reinforcement learning on the vine system's ids; see `agents.learning.rl.settings`."""

from typing import Any

IN_CONTACT: dict[str, Any] = {
    "n_steps": 32, "batch_size": 512, "target_kl": None, "noise_decay": 1.5,
    "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.5},
}  # fmt: skip
"""Updates without a limit: noise falls sooner, which a tube in a gap of a few mm needs."""
GROWING: dict[str, Any] = {
    "steps": 300_000, "n_steps": 16, "batch_size": 256, "n_epochs": 4, "learning_rate": 4e-3, "gamma": 0.97, "target_kl": None,
    "scaled": False, "policy_kwargs": {"net_arch": [64, 64], "log_std_init": -0.5},
}  # fmt: skip
"""Settings of a small network: five seeds succeed as often as with 128 x 128 and twice the updates."""

LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "VineGrow-v0": {"ppo": GROWING},
    "VineNavigate-v0": {"ppo": {**IN_CONTACT, "steps": 1_500_000}},
    "VineSqueeze-v0": {"ppo": {**IN_CONTACT, "steps": 800_000}},
    "VineWall-v0": {
        "ppo": {
            "steps": 1_000_000,
            "gamma": 0.99,
            "noise_decay": 1.5,
            "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.5},
        },
    },
}
"""Id -> algorithm -> settings that differ from the usual ones."""
