"""Drive a robot with the keyboard, or watch a policy drive it.

    softgym-envs play TensegrityRoll-v0
    softgym-envs play TensegrityRoll-v0 --backend mujoco --record roll.gif --dataset roll.h5
    softgym-envs play TensegrityRoll-v0 --policy pretrained
    softgym-envs play TensegrityRoll-v0 --policy runs/train/TensegrityRoll-v0_ppo_native_0/policy.zip
    softgym-envs play TensegrityRoll-v0 --headless-frames 150 --record roll.gif      (no display needed)

Arrows move the robot that way (up is away from you). Drag turns the view, the wheel zooms. The other keys, and their effect on
this robot, are shown at the lower edge of the window.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import tyro

from agents.learning.policy import load_policy
from softgym_envs.core.errors import OptionError
from softgym_envs.core.system import task_keywords
from softgym_envs.envs.player import Player, PlayOptions
from softgym_envs.systems import system_of_task


@dataclass(frozen=True)
class Args:
    """Drive a robot with the keyboard, or watch a policy drive it."""

    env: Annotated[str, tyro.conf.Positional]
    """Id of the environment."""
    backend: str = "native"
    """"native", a ground truth of the system such as "mujoco", or "package.module:function"."""
    model: str | None = None
    """Robot of the system: a name, or a TOML file of your own."""
    keyword: tuple[str, ...] = ()
    """Keywords of the task, key=value: level=3."""
    params: Path | None = None
    """Parameters of the robot, as written by system identification (TOML)."""
    policy: Path | None = None
    """A policy of stable-baselines3 (PPO, A2C, SAC with an MLP), a .npz, or "pretrained"; it drives until Tab is pressed."""
    action_memory: int = 0
    """Number of its last actions that the policy observes; 0: as in the JSON file beside it, if there is one."""
    options: Annotated[PlayOptions, tyro.conf.arg(name="")] = field(default_factory=PlayOptions)
    """Options of display and output."""


def main(args: Args) -> None:
    """Make the environment and play."""
    name = args.env.removeprefix("softgym_envs:")
    system_of_task(name)
    args.options.check()
    if args.options.headless_frames and args.options.record is None and args.options.dataset is None:
        raise OptionError("--headless-frames shows no window and writes no file: add --record roll.gif or --dataset roll.h5")
    policy = None if args.policy is None else load_policy(args.policy, name)
    given: dict[str, Any] = {"backend": args.backend, "model": args.model, "params": args.params}
    given = {key: value for key, value in given.items() if value is not None}
    given |= task_keywords(args.keyword, [entry.name for entry in fields(args)])
    given |= {"action_memory": args.action_memory} if args.action_memory else {}
    env = gym.make(name, **{**(policy.keywords if policy else {}), **given})
    try:
        if policy is not None:
            policy.check(env)
        Player(env, args.options, policy).run()
    finally:
        env.close()
