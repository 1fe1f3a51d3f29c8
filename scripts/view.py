"""Show a robot live in a web browser: pause, slow motion, seeds, sliders of parameters, latency and mismatch, pushes.

    softgym-envs view TensegrityRoll-v0
    softgym-envs view SlidingBlock-v0 --policy random --beside mujoco      (native beside its ground truth, same actions)
    softgym-envs view vine --data recordings.h5 --params fit.toml          (recordings beside the fitted model)

The page stands at http://localhost:8080 until Ctrl-C. See docs/how-to/view.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

import sysid
from agents.learning.policy import PRETRAINED, load_policy
from agents.policies import FOLDER
from softgym_envs.core.errors import OptionError
from softgym_envs.core.system import NATIVE, task_keywords
from softgym_envs.envs.live import SIMPLE, Live, Robot, rest
from softgym_envs.envs.replay import Replay, ReplayViewer
from softgym_envs.envs.viewer import LiveViewer
from softgym_envs.systems import system_of_task


@dataclass(frozen=True)
class Args:
    """Show a robot live in a web browser."""

    id: Annotated[str, tyro.conf.Positional]  # Id of the environment; with --data: name of the system.
    policy: str = ""  # pretrained, zero, random or a file; none: pretrained if there is one, else no keys pressed.
    backend: str = NATIVE  # native, a ground truth of the system such as mujoco, or package.module:function.
    beside: str = ""  # Backend of a second robot, under the same actions.
    model: str | None = None  # Robot of the system: a name, or a TOML file of your own.
    keyword: tuple[str, ...] = ()  # Keywords of the task, key=value: level=3.
    params: Path | None = None  # Parameters of the first robot, or the fit of the recordings (TOML).
    data: tuple[Path, ...] = ()  # Recordings to show beside the fit.
    seed: int = 0  # Seed of the first episode.
    port: int = 8080  # Port of the page.


def main(args: Args) -> None:
    """Show the page until Ctrl-C."""
    viewer = recorded(args) if args.data else live(args)
    print(f"{viewer.panel.browser.url} (Ctrl-C ends)", flush=True)
    viewer.run()
    print("closed")


def recorded(args: Args) -> ReplayViewer:
    """Recordings beside the fit."""
    if args.params is None:
        raise OptionError("`data` needs a fit: give `params`, the fit.toml of `softgym-envs identify`")
    found = sysid.predict(args.params, sysid.load(*args.data), system=args.id).predictions
    assert found is not None
    return ReplayViewer(Replay.of_fit(args.params, args.id, found.names, found.paths), args.port)


def live(args: Args) -> LiveViewer:
    """Robots under a policy."""
    name = args.id.removeprefix("softgym_envs:")
    system_of_task(name)
    if args.beside == args.backend:
        raise OptionError(f"`beside` is {args.beside!r}, the backend of the first robot: name another one, such as 'mujoco'")
    simple = args.policy in SIMPLE or (not args.policy and not (FOLDER / f"{name}.npz").exists())
    network = None if simple else load_policy(Path(args.policy or PRETRAINED), name)
    keywords: dict[str, Any] = {**(network.keywords if network else {}), **({"model": args.model} if args.model else {})}
    keywords |= task_keywords(args.keyword, [entry.name for entry in fields(args)])
    first: dict[str, Any] = {"backend": args.backend, **({"params": args.params} if args.params else {})}
    robots = [Robot(name, {**keywords, **each}) for each in (first, *([{"backend": args.beside}] if args.beside else []))]
    if network is not None:
        network.check(robots[0].env)
    act = SIMPLE.get(args.policy, rest) if network is None else lambda robot: network(robot.observation)
    return LiveViewer(Live(robots, act, args.seed), args.port)
