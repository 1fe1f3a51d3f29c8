"""Gymnasium environments for soft robots, with system identification and sim2sim transfer.

Importing the package registers every id and imports nothing heavy; `gym.make("softgym_envs:TensegrityRoll-v0")` does so itself.
"""

from .envs.registry import add_system, register

register()

__all__ = ["add_system", "register"]
