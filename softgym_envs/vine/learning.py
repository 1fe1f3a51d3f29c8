"""Settings of reinforcement learning on the vine room's ids; see `agents.learning.rl.settings`."""

from typing import Any

LEARNING: dict[str, dict[str, dict[str, Any]]] = {
    "VineGrow-v0": {
        # Many small updates, and a rate that falls to zero at the end: as good after 150 000 control steps as the usual
        # settings after a million.
        "ppo": {
            "n_steps": 16, "batch_size": 256, "n_epochs": 8, "learning_rate": 3e-3, "final_rate": 0.0, "gamma": 0.97,
            "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.5},
        },
    },
}  # fmt: skip
"""Id -> algorithm -> what differs from the usual settings."""
