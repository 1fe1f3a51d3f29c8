"""The moving pictures of the documents: every id under its trained policy, every system before and after identification.

    python experiments/gallery.py
    python experiments/gallery.py --names VineGrow-v0 identify_block

Writes docs/images/<id>.gif and identify_<system>.gif, each below 290 kB, and benchmark.gif, below 400 kB. An episode is the
first successful one.
In `identify_<system>` the controls of an episode on MuJoCo (the ghost) are played on by the native engine, with the parameters
guessed at first and with those identified from recordings of MuJoCo. Fits are kept in runs/gallery; without them this takes
about an hour. `benchmark` shows the controllers of the highest and of the lowest mean return in the benchmark, without
learners, in the first episode of one id of every system. Each episode takes the whole film.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

import softgym_envs  # noqa: F401  (registers the ids)
import sysid
from agents import pretrained
from agents.benchmark_study import page
from agents.benchmark_study.case import Case, Cell
from agents.benchmark_study.controllers import row_of
from agents.benchmark_study.run import SEED
from agents.learning.evaluation import evaluate_controller
from softgym_envs.core.base import embedded
from softgym_envs.core.task import load
from softgym_envs.envs.drawing import scene_of
from softgym_envs.rendering import Camera, PygameRenderer, Scene, default_camera, side_by_side, write_gif
from softgym_envs.rendering.pygame_view import Image
from softgym_envs.rendering.scene import GroundGrid, Primitive
from softgym_envs.rendering.video import captioned
from softgym_envs.systems import system, tasks
from softgym_envs.systems.box.experiments import thrown

Array = NDArray[np.float64]

SIZE = (320, 222)
"""Size of a picture of an id, without its caption [pixels]."""
HALF = (264, 198)
"""Size of each of the two pictures of a system [pixels]."""
LONGEST = 4.5
"""Longest film [s]; longer episodes are played faster."""
SHORTEST = 2.0
"""Shortest film [s]; shorter episodes are played slower."""
END = 0.8
"""Time for which the last frame stays [s]."""
MOST_BYTES = 290_000
QUALITIES = ((20, 64), (16, 64), (15, 48), (15, 32), (12, 32), (10, 32), (8, 32), (8, 16))
"""Frames per second and colours, tried in this order until a film is small enough."""
GHOST = 0.4
"""Weight of the ground truth in a picture of both."""
CHOSEN = {
    "vine": ("VineGrow-v0", 4.0), "tensegrity": ("TensegrityRoll-v0", 2.5), "block": ("SlidingBlock-v0", 2.0),
    "loop": ("LoopReach-v0", 2.5), "arm": ("ArmReach-v0", 0.6), "upper_body": ("UpperBodyReach-v0", 1.5), "box": ("", 0.8),
}  # fmt: skip
"""System -> the id whose controls are played on, and for how long [s]."""
GIVEN: dict[str, dict[str, float]] = {"block": {"friction": 0.35}, "box": {"friction": 0.6}}
"""Parameters of MuJoCo's model where its own are close to the initial guess."""
FITS = Path("runs/gallery")
TILE = (132, 88)
"""Size of a picture of a controller [pixels]."""
TILED_SECONDS, PAIRS = 3.0, 3
"""Length of the film of controllers [s], and pairs of pictures in a row of it."""
LEFT_OUT = ("zero", "random", "policy", "imitation")
"""Controllers that are not filmed, beside those that learn from scratch."""


@dataclass(frozen=True)
class Args:
    """Options of the pictures."""

    names: tuple[str, ...] = (*(task.id for task in tasks()), *(f"identify_{name}" for name in CHOSEN), "benchmark")
    """Pictures to make."""
    out: Path = Path("docs/images")
    """Folder."""


class Shot(NamedTuple):
    """One instant of an episode."""

    state: Array  # (nx,)
    hints: Mapping[str, Array]
    control: Array  # (nu,), until the next one


def episode(env: Any, env_id: str) -> list[Shot]:
    """The first successful episode under the trained policy."""
    policy, inner = pretrained(env_id), env.unwrapped
    for seed in count():
        observation, info = env.reset(seed=seed)
        shots, over = [], False
        while not over:
            action = policy(observation)
            control = inner.task.scale_action(np.asarray(action, dtype=np.float64)[None])[0]
            shots.append(Shot(inner.state, inner.task.draw_hints(inner.context), control))
            observation, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        if info["is_success"]:
            break
    return [*shots, Shot(inner.state, inner.task.draw_hints(inner.context), control)]


def finer(inner: Any, shots: Sequence[Shot], steps: int = 0) -> list[Shot]:
    """The same episode with up to ten instants in every control step, of whole physics steps; `steps` is divided, too."""
    simulator, parameters = inner.simulator, inner.episodes.parameters
    substeps = inner.episodes.substeps
    parts = max(part for part in range(1, 11) if substeps % part == steps % part == 0)
    found: list[Shot] = []
    for shot in shots[:-1]:
        between = simulator.rollout(
            shot.state[None], np.repeat(shot.control[None, None], parts, axis=1), parameters, substeps=substeps // parts
        )[0][0, :-1]
        found += [Shot(state, shot.hints, shot.control) for state in between]
    return [*found, shots[-1]]


def speed_of(seconds: float) -> float:
    """How fast an episode is played: 1, or a round number at which the film is neither long nor short."""
    if SHORTEST <= seconds <= LONGEST:
        return 1.0
    if seconds > LONGEST:
        return float(np.ceil(2.0 * seconds / LONGEST) / 2.0)
    return float(max(0.05, np.floor(20.0 * seconds / SHORTEST) / 20.0))


def film(path: Path, seconds: float, rows: int, draw: Callable[[int], Image]) -> None:
    """Write the best film of the instants 0 ... rows - 1 that is small enough."""
    for fps, colors in QUALITIES:
        number = max(2, round(seconds * fps))
        frames = [draw(int(row)) for row in np.round(np.linspace(0, rows - 1, number))]
        frames += frames[-1:] * round(END * fps)
        write_gif(path, frames, fps=fps, colors=colors)
        if path.stat().st_size <= MOST_BYTES:
            break
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB, {fps} frames per second, {colors} colours", flush=True)


def still(scenes: Sequence[Scene]) -> tuple[Camera, list[Scene]]:
    """One camera that sees all scenes, and the scenes over a ground that stays: little changes from frame to frame."""
    looks = np.array([scene.look_at for scene in scenes])
    middle = 0.5 * (looks.min(axis=0) + looks.max(axis=0))
    away = np.linalg.norm(looks - middle, axis=1)
    extent = max(scene.extent + 0.4 * far for scene, far in zip(scenes, away, strict=True))
    grow, center = extent / scenes[0].extent, (float(middle[0]), float(middle[1]))

    def onto(part: Primitive) -> Primitive:
        return replace(part, center=center, radius=grow * part.radius) if isinstance(part, GroundGrid) else part

    kept = [replace(scene, primitives=tuple(onto(part) for part in scene.primitives)) for scene in scenes]
    return default_camera(replace(scenes[0], look_at=middle, extent=extent)), kept


def show_id(path: Path, env_id: str) -> None:
    """An id under its trained policy."""
    env: Any = gym.make(env_id, **pretrained(env_id).keywords)
    shots = episode(env, env_id)
    inner = env.unwrapped
    seconds = inner.episodes.settings.control_period * (len(shots) - 1)
    shots, speed, renderer = finer(inner, shots), speed_of(seconds), PygameRenderer(SIZE)
    caption = f"{env_id}, trained policy" + (f", {speed:g} x speed" if speed != 1.0 else "")

    scenes = [scene_of(inner.simulator, shot.state, shot.hints, parameters=inner.episodes.parameters) for shot in shots]
    camera, scenes = still(scenes)
    film(path, seconds / speed, len(scenes), lambda row: captioned(renderer.rgb(scenes[row], camera), caption))


# --- before and after identification -----------------------------------------------------------------------------------


def fitted(name: str) -> Path:
    """The file of the fit to MuJoCo's recordings, made if it is not there."""
    folder = FITS / name
    if not (folder / "fit.toml").exists():
        values = system(name).simulator(backend="mujoco").default_parameters.replace(**GIVEN.get(name, {}))
        data = sysid.record(name, backend="mujoco", parameters=values, seed=0)
        sysid.identify(name, data, out=folder, diagnose="none")
    return folder / "fit.toml"


def guessed(name: str, simulator: Any) -> dict[str, float]:
    """Parameters before identification."""
    found: dict[str, float] = load(system(name).procedure).initial_guess_of(simulator)
    return found


def thrown_box() -> Iterator[Any]:
    """Simulators and states of a throw, see `played_on`."""
    path, box = fitted("box"), system("box")
    ground_truth, native = box.simulator(backend="mujoco"), box.simulator()
    defaults = native.default_parameters
    start = thrown(native, np.random.default_rng(5))
    for simulator, parameters in (
        (ground_truth, ground_truth.default_parameters.replace(**GIVEN["box"])),
        (native, defaults.replace(**guessed("box", native))),
        (native, type(defaults).load(path, defaults)),
    ):
        dt = 0.01
        controls = np.zeros((1, round(CHOSEN["box"][1] / dt), simulator.nu))
        begin = embedded(simulator, start)[None]
        yield simulator, parameters, simulator.rollout(begin, controls, parameters, substeps=round(dt / simulator.dt))[0][0], {}


def played_on(name: str) -> Iterator[Any]:
    """Simulator, parameters, states and hints of the ground truth, of our engine as guessed, and as identified."""
    env_id, seconds = CHOSEN[name]
    keywords = pretrained(env_id).keywords
    path = fitted(name)
    env: Any = gym.make(env_id, backend="mujoco", params=GIVEN.get(name), **keywords)
    inner = env.unwrapped
    identified: Any = gym.make(env_id, params=str(path), **keywords).unwrapped
    whole = episode(env, env_id)
    shots = finer(inner, whole, identified.episodes.substeps)
    period = inner.episodes.settings.control_period * (len(whole) - 1) / (len(shots) - 1)
    shots = shots[: round(seconds / period) + 1]
    hints = shots[0].hints
    yield inner.simulator, inner.episodes.parameters, np.array([shot.state for shot in shots]), hints
    native, own = identified.simulator, identified.episodes.nominal
    start = embedded(native, shots[0].state[: native.model.layout.nx])
    controls = np.array([shot.control for shot in shots[:-1]])[None]
    before = native.default_parameters.replace(**guessed(name, native), **identified.task.parameter_values)
    for parameters in (before, own):
        states = native.rollout(start[None], controls, parameters, substeps=round(period / native.dt))[0][0]
        yield native, parameters, states, hints


def show_identification(path: Path, name: str) -> None:
    """Two pictures side by side, the ground truth as a ghost in both."""
    runs = list(thrown_box() if name == "box" else played_on(name))
    rows = len(runs[0][2])
    seconds = CHOSEN[name][1]
    speed, renderer = speed_of(seconds), PygameRenderer(HALF, overlay=False)

    each = [[scene_of(simulator, x, hints, parameters=values) for x in states] for simulator, values, states, hints in runs]
    camera, scenes = still([scene for run in each for scene in run])

    def draw(row: int) -> Image:
        ghost, *models = (renderer.rgb(scenes[row + run * rows], camera).astype(np.float64) for run in range(3))
        left, right = (((1.0 - GHOST) * image + GHOST * ghost).astype(np.uint8) for image in models)
        return side_by_side([left], [right], ("initial guess; ghost: MuJoCo", "identified; ghost: MuJoCo"))[0]

    film(path, seconds / speed, rows, draw)


# --- the best and the worst controller --------------------------------------------------------------------------------


def best_and_worst(env_id: str) -> tuple[page.Line, page.Line]:
    """Lines of the benchmark of an id, by mean return."""
    lines = [
        line
        for line in page.lines_of(page.published())
        if line.id == env_id and not line.reason and not line.options
        if line.controller not in LEFT_OUT and row_of(line.controller).budget != "training"
    ]
    lines.sort(key=lambda line: line.mean_return.value)
    return lines[-1], lines[0]


def played(line: page.Line) -> list[Scene]:
    """Scenes of the benchmark's first episode."""
    case, scenes = Case(Cell(line.id, line.controller, line.budget), np.ones(1, dtype=np.bool_)), list[Scene]()
    controller, keywords = row_of(line.controller).make(case)

    def opened(envs: Any) -> Callable[[Any], Any]:
        policy = controller(envs)

        def act(observation: Any) -> Any:
            hints = envs.task.draw_hints(envs.context[0])
            scenes.append(scene_of(envs.simulator, envs.state[0], hints, parameters=envs.episodes.parameters))
            return policy(observation)

        return act

    evaluate_controller(opened, f"softgym_envs:{line.id}", episodes=1, seed=SEED, keywords=keywords, alive=case.alive)
    return scenes


def show_benchmark(path: Path) -> None:
    """Pairs of pictures: the best controller left, the worst right."""
    renderer, panels = PygameRenderer(TILE, overlay=False), list[Callable[[float], Image]]()
    for env_id in [env_id for env_id, _ in CHOSEN.values() if env_id]:
        runs = best_and_worst(env_id)
        each = [played(line) for line in runs]
        camera, both = still([scene for run in each for scene in run])
        for line, scenes in zip(runs, (both[: len(each[0])], both[len(each[0]) :]), strict=True):
            caption = f"{100 * line.success.value:.0f} %: {line.label}"

            def draw(part: float, scenes: Any = scenes, camera: Any = camera, caption: str = caption) -> Image:
                return captioned(renderer.rgb(scenes[round(part * (len(scenes) - 1))], camera), caption)

            panels.append(draw)
    width, rows = 2 * PAIRS, round(TILED_SECONDS * QUALITIES[0][0])

    def mosaic(row: int) -> Image:
        images = [draw(row / (rows - 1)) for draw in panels]
        lines = [np.concatenate(images[k : k + width], axis=1) for k in range(0, len(images), width)]
        return np.concatenate(lines)

    film(path, TILED_SECONDS, rows, mosaic)


def main(args: Args) -> None:
    """Write the pictures."""
    for name in args.names:
        path = args.out / f"{name}.gif"
        if name == "benchmark":
            show_benchmark(path)
        elif name.startswith("identify_"):
            show_identification(path, name.removeprefix("identify_"))
        else:
            show_id(path, name)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
