"""The moving pictures of README: every robot under its trained policy, and a thrown box, in the native engines.

    python experiments/readme_pictures.py
    python experiments/readme_pictures.py --names block box

Writes docs/images/<name>.gif in real time, each below 250 kB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from PIL import Image as pillow

import softgym_envs  # noqa: F401  (registers the ids)
from agents import pretrained
from softgym_envs.envs.drawing import render_state
from softgym_envs.rendering import PygameRenderer, write_gif
from softgym_envs.rendering.pygame_view import Image
from softgym_envs.systems import system
from softgym_envs.systems.box.experiments import thrown

IDS = {
    "vine": "VineNavigate-v0", "superball": "TensegrityRoll-v0", "prism": "TensegrityCrawl-v0", "loop": "LoopPeg-v0",
    "arm": "ArmHold-v0", "upper_body": "UpperBodyReach-v0", "block": "SlidingBlock-v0",
}  # fmt: skip
"""Name of a picture -> environment."""
SIZE = (200, 150)
FRAMES = 28
"""Most frames of a picture."""
CROP = {"block": (150, 100, 470, 340), "box": (176, 60, 496, 300), "loop": (190, 70, 530, 325)}
"""Part of a picture of 640 x 480 that is shown (left, upper, right, lower) [pixels]; all of it where none is given."""
TOSS = 0.02
"""Time between pictures of the box [s]; it is shown at a fifth of its speed."""


@dataclass(frozen=True)
class Args:
    """Options of the pictures."""

    names: tuple[str, ...] = (*IDS, "box")
    """Pictures to make."""
    seed: int = 0
    """Seed of the episodes."""
    out: Path = Path("docs/images")
    """Folder."""


def episode(env: Any, env_id: str, seed: int) -> Iterator[Image]:
    """Pictures of every control step under the trained policy."""
    policy = pretrained(env_id)
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        yield env.render()
        observation, _, terminated, truncated, _ = env.step(policy(observation))
        over = terminated or truncated
    yield env.render()


def throw(seed: int) -> Iterator[Image]:
    """Pictures of a box that is thrown on the table."""
    simulator: Any = system("box").simulator()
    start = thrown(simulator, np.random.default_rng(seed))
    controls = np.zeros((1, FRAMES - 1, simulator.nu))
    states, _ = simulator.rollout(start[None], controls, simulator.default_parameters, substeps=round(TOSS / simulator.dt))
    renderer = PygameRenderer(size=(640, 480))
    for state in states[0]:
        picture = render_state(simulator, state, {}, renderer)
        assert picture is not None  # it has no window
        yield picture


def small(frame: Image, name: str) -> Image:
    """The part of a frame that is shown, in the size that it is shown in."""
    part = pillow.fromarray(frame).crop(CROP.get(name, (0, 0, 640, 480))).resize(SIZE, pillow.Resampling.LANCZOS)
    return np.asarray(part) // 8 * 8 + 4  # fewer colours: the file is smaller


def main(args: Args) -> None:
    """Write the pictures."""
    for name in args.names:
        if name == "box":
            frames, fps = list(throw(args.seed)), 0.2 / TOSS
        else:
            env: Any = gym.make(IDS[name], render_mode="rgb_array", **pretrained(IDS[name]).keywords)
            frames, fps = list(episode(env, IDS[name], args.seed)), env.metadata["render_fps"]
            env.close()
        skip = -(-len(frames) // FRAMES)
        path = write_gif(args.out / f"{name}.gif", [small(frame, name) for frame in frames[::skip]], fps=fps / skip)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
