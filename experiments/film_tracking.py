"""Points tracked in rendered films against the exact ones: pixels, and the parameters that are fitted to them.

    python experiments/film_tracking.py  # ten films of a vine, a loop and a tensegrity robot
    python experiments/film_tracking.py --systems vine --films 2

Our renderer draws simulated robots with shadows on a grid. Films differ in noise, blur, uneven light and H.264 compression. A
vine swings freely; a loop's hand stands still in eight poses; a prism is thrown before two cameras at right angles. The same
fit is made to the tracked and to the exact points. Writes numbers.json, table.md and picture.png into results/film_tracking.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import tyro
from scipy.ndimage import gaussian_filter
from scipy.optimize import least_squares

import sysid
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import provenance, read_json, write_atomically, write_json
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.data.film import Tracked
from softgym_envs.rendering import Camera, PygameRenderer, Scene, write_png
from softgym_envs.rendering.scene import Sphere
from softgym_envs.systems.loop.model import CLAMP, PARAMETERS, LoopModel
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.picture import hand, loop_scene
from softgym_envs.systems.tensegrity import TensegrityParameters, prism
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.experiments import record_throw
from softgym_envs.systems.tensegrity.picture import tensegrity_scene
from softgym_envs.systems.vine import VineModel, VineParameters
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.picture import NO_FORCES, vine_scene
from softgym_envs.systems.vine.procedure import along_body

OUT = Path("results/film_tracking")
SIZE = (640, 480)
POINTS, FPS = 11, 120.0
HALF = 0.5
"""The renderer counts pixels from the corner of the first, OpenCV from its middle."""
COLORS = ((200, 45, 40), (30, 110, 200), (30, 150, 80), (220, 120, 20), (130, 60, 170), (200, 60, 140))
"""Markers of the six ends of the prism's rods."""


@dataclass(frozen=True)
class Args:
    """Options."""

    systems: tuple[str, ...] = ("vine", "loop", "tensegrity")
    films: int = 10
    """Films of a system."""
    seed: int = 0


@dataclass(frozen=True)
class Shown:
    """A film, where its points are, and what was tracked."""

    exact: np.ndarray
    """(T, P, 2) pixels"""
    found: Tracked
    frame: np.ndarray
    """The frame in the middle."""


@dataclass(frozen=True)
class View:
    """A camera, a frame's disturbances, and the film's compression."""

    camera: Camera
    noise: float
    blur: float
    light: float
    """Share by which one side of the picture is darker."""
    crf: int
    """Compression of H.264: 18 is good, 32 is poor."""

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Pixels (..., 2) of points (..., 3) [m]."""
        return self.camera.project(points, SIZE)[0] - HALF

    def film(self, scenes: list[Scene], rng: np.random.Generator, path: Path) -> np.ndarray:
        """Write the film; returns the frame in its middle."""
        renderer, middle = PygameRenderer(SIZE), np.zeros(0)
        options = ["-crf", str(self.crf), "-pix_fmt", "yuv420p"]
        writer = imageio_ffmpeg.write_frames(
            str(path), SIZE, fps=FPS, codec="libx264", quality=None, output_params=options, ffmpeg_log_level="error"
        )
        writer.send(None)
        dim = 1.0 - self.light * np.linspace(0.0, 1.0, SIZE[0])[None, :, None]
        for k, scene in enumerate(scenes):
            clean = renderer.rgb(scene, self.camera).astype(np.float64) * dim
            noisy = gaussian_filter(clean, (self.blur, self.blur, 0)) + self.noise * rng.standard_normal(clean.shape)
            frame = np.clip(noisy, 0, 255).astype(np.uint8)
            middle = frame if k == len(scenes) // 2 else middle
            writer.send(frame)
        writer.close()
        return middle

    @classmethod
    def drawn(cls, camera: Camera, rng: np.random.Generator) -> View:
        """Disturbances at random."""
        return cls(camera, rng.uniform(2, 10), rng.uniform(0.3, 1.5), rng.uniform(0.0, 0.3), int(rng.integers(20, 33)))


def shown(
    view: View,
    system: str,
    scenes: list[Scene],
    exact: np.ndarray,
    ruler: np.ndarray,
    base: np.ndarray,
    rng: np.random.Generator,
) -> Shown:
    """Film, and track; `ruler` (2, 3) and `base` (3,) are points [m], `exact` (T, P, 2) is in pixels."""
    given: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "film.mp4"
        frame = view.film(scenes, rng, path)
        ends = view.pixels(ruler)
        size = (*ends.ravel().tolist(), float(np.linalg.norm(ruler[1] - ruler[0])))
        if system == "tensegrity":
            given["markers"] = exact[0].ravel().tolist()
        found = sysid.track(path, system, base=view.pixels(base).tolist(), ruler=size, points=POINTS, **given)
    return Shown(exact, found, frame)


Made = tuple[list[Shown], Callable[[bool], dict[str, float]], dict[str, float]]
"""Films, the fit to exact (False) or tracked points, and the right parameters."""
FIT: dict[str, Any] = {
    "diagnose": "none", "split": (1, 0, 0), "max_iterations": 30,
    "settings": {"starts": 1, "initial": {"restart_steps": 0}, "intervals": {"half_step": False}},
}  # fmt: skip
ROLLED: dict[str, Any] = {
    "diagnose": "none", "split": (1, 0, 0), "settings": {"segment_steps": 25, "starts": 1}, "max_iterations": 8
}  # fmt: skip
TENSEGRITY_FPS = 50.0


# --- Vine -----------------------------------------------------------------------------------------------------------------


def vine(seed: int) -> Made:
    """A tube of 0.4 m that swings freely on a table: its film, the fit, and the right parameters."""
    rng = np.random.default_rng([seed, 1])
    model = VineModel(num_links=12, max_length=0.4, initial_length=0.4, num_sections=0)
    right = {"bending_stiffness": 0.02 * float(np.exp(rng.uniform(-0.5, 0.5))), "bending_damping": 2e-4 * rng.uniform(0.6, 1.6)}
    simulator = VineSimulator(model, 1 / FPS / 8, "linear")
    parameters = VineParameters(**right)
    state = model.straight_state()
    state[: model.num_links] += np.linspace(0.0, rng.uniform(0.5, 0.9), model.num_links) * rng.choice([-1.0, 1.0])
    steps = round(0.3 * FPS)
    states = simulator.rollout(state[None], np.zeros((1, steps, simulator.nu)), parameters, substeps=8)[0][0]
    flat = along_body(model, states, np.linspace(0.0, 1.0, POINTS))
    exact = np.concatenate([flat, np.full((*flat.shape[:2], 1), model.radius)], axis=2)
    view = View.drawn(Camera((0.2, 0.0, model.radius), 1.0, -0.5 * np.pi, 0.5 * np.pi), rng)
    scenes = [vine_scene(model, row, NO_FORCES) for row in states]
    ruler = np.array([[0.0, 0.15, model.radius], [0.4, 0.15, model.radius]])
    film = shown(view, "vine", scenes, view.pixels(exact), ruler, np.array([0.0, 0.0, model.radius]), rng)

    def fit(tracked: bool) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as name:
            robot = Path(name) / "robot.toml"
            robot.write_text("[robot]\nnum_links = 12\nmax_length = 0.4\ninitial_length = 0.4\nnum_sections = 0\n")
            if tracked:
                data = sysid.load(film.found.save(Path(name) / "points.csv"), fps=FPS)
            else:
                names = tuple(f"point{k}.{axis}" for k in range(POINTS) for axis in "xy")
                data = (
                    Trajectory(film.found.times, np.zeros((steps, 0)), flat.reshape(len(flat), -1), names, ("m",) * len(names)),
                )
            found = sysid.identify("vine", data, model=str(robot), free_motion=True, **FIT)
        return {name: float(getattr(found.parameters, name)) for name in right}

    return [film], fit, right


# --- Loop -----------------------------------------------------------------------------------------------------------------


def loop(seed: int) -> Made:
    """A heavy tyre that hangs in an arm's hand, standing still in eight poses; its sag shows the stiffness."""
    rng = np.random.default_rng([seed, 2])
    model = LoopModel(mass=0.5)
    right = {"theta_stiffness": float(rng.uniform(2.0, 5.0))}
    arms = np.array(model.start) + rng.uniform(-0.06, 0.06, (8, 7)) * np.array([0, 1, 0, 1, 0, 1, 0])
    arms[0] = model.start

    def states(stiffness: float) -> np.ndarray:
        values = model.tree_constants(LoopParameters(theta_stiffness=stiffness).to_matrix(1))
        angles, _ = model.relax(arms, np.repeat(values, len(arms), axis=0))
        return np.hstack([angles, np.zeros_like(angles)])

    resting = states(right["theta_stiffness"])
    clamp = model.tree_constants(LoopParameters().to_matrix(1))[0, [PARAMETERS.index(name) for name in CLAMP[:3]]]
    middle = 0.5 * (clamp + hand(model, resting[0]))
    view = View.drawn(Camera(tuple(middle.tolist()), 8.0, 0.25 * np.pi, 0.0, 0.16), rng)

    def pixels(rows: np.ndarray) -> np.ndarray:
        return np.array([_around(view, _corners(model, row, clamp)) for row in rows])

    right_parameters = LoopParameters(**right)
    scenes = [replace(loop_scene(model, row, right_parameters), legend=None) for row in resting]
    across = 0.3 * np.array([-1.0, 1.0, 0.0]) / np.sqrt(2.0)
    film = shown(view, "loop", scenes, pixels(resting), np.array([clamp - across, clamp + across]), clamp, rng)

    def fit(tracked: bool) -> dict[str, float]:
        seen = np.where((film.found.confidence >= 0.5)[..., None], film.found.pixels, np.nan) if tracked else film.exact
        known = np.isfinite(seen)
        found = least_squares(
            lambda log: (pixels(states(float(np.exp(log[0])))) - seen)[known], [np.log(3.0)], diff_step=1e-3, loss="soft_l1"
        )
        return {"theta_stiffness": float(np.exp(found.x[0]))}

    return [film], fit, right


def _corners(model: LoopModel, state: np.ndarray, clamp: np.ndarray) -> np.ndarray:
    """The loop's corners from the clamp around to the clamp, (links + 3, 3) [m]."""
    nodes, half = model.nodes(state[None])[0], model.links // 2
    return np.concatenate([clamp[None], nodes[:half][::-1], hand(model, state)[None], nodes[half:], clamp[None]])


def _around(view: View, corners: np.ndarray) -> np.ndarray:
    """Points at equal distances in the picture, counterclockwise, (P, 2) pixels."""
    line = view.pixels(corners)
    (x, y), (u, v) = line[:-1].T, line[1:].T
    line = line[::-1] if (x * v - u * y).sum() > 0 else line
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    places = along[-1] * np.arange(POINTS) / POINTS
    return np.stack([np.interp(places, along, axis) for axis in line.T], axis=1)


# --- Tensegrity -----------------------------------------------------------------------------------------------------------


def tensegrity(seed: int) -> Made:
    """A prism with six coloured ends, thrown before two cameras at right angles."""
    rng = np.random.default_rng([seed, 3])
    model, right = prism(), {"friction": float(rng.uniform(0.3, 0.7))}
    simulator = TensegritySimulator(model, contact="patch")
    recording = record_throw(simulator, rng, duration=1.0, parameters=TensegrityParameters(**right))
    stride = round(1.0 / TENSEGRITY_FPS / simulator.dt)
    states = recording.select(simulator.state_names).values[::stride]
    nodes = model.node_positions(states)
    middle = 0.5 * (nodes.min(axis=(0, 1)) + nodes.max(axis=(0, 1)))
    size = float(np.ptp(nodes, axis=(0, 1)).max())
    films = []
    for azimuth in (-0.5 * np.pi, 0.0):
        view = View.drawn(Camera(tuple(middle.tolist()), 60.0, azimuth, 0.0, 1.35 * size / 60.0), rng)
        right_hand = view.camera.axes[0]
        scenes = [_marked(model, row, ends) for row, ends in zip(states, nodes, strict=True)]
        ruler = np.array([middle - 0.4 * size * right_hand, middle + 0.4 * size * right_hand])
        films.append(shown(view, "tensegrity", scenes, view.pixels(nodes), ruler, middle, rng))

    def fit(tracked: bool) -> dict[str, float]:
        seen = nodes.copy()
        if tracked:
            for film, axes in zip(films, ((0, 2), (1, 2)), strict=True):
                places = np.where((film.found.confidence >= 0.5)[..., None], film.found.positions, np.nan)
                for column, axis in enumerate(axes[: 2 if axes[0] == 0 else 1]):
                    seen[..., axis] = middle[axis] + places[..., column]
        names = tuple(f"node{k}.{axis}" for k in range(nodes.shape[1]) for axis in "xyz")
        controls = np.zeros((len(nodes) - 1, simulator.nu))
        data = Trajectory(
            np.arange(len(nodes)) / TENSEGRITY_FPS, controls, seen.reshape(len(nodes), -1), names, ("m",) * len(names),
            simulator.control_names, simulator.control_units, metadata={"source": "film"},
        )  # fmt: skip
        often = [name for name, column in zip(names, data.values.T, strict=True) if np.isfinite(column).mean() > 0.6]
        found = sysid.identify(
            "tensegrity", [data.select(often)], model="prism", free=("friction",), free_motion=True, **ROLLED
        )
        return {"friction": float(found.parameters.friction)}  # type: ignore[attr-defined]

    return films, fit, right


def _marked(model: Any, state: np.ndarray, ends: np.ndarray) -> Scene:
    """The prism with coloured balls at its rods' ends."""
    scene = tensegrity_scene(model, state, np.zeros(model.num_cables), max_tension=1.0)
    balls = tuple(Sphere(end, 0.06, color) for end, color in zip(ends, COLORS, strict=True))
    return replace(scene, primitives=(*scene.primitives, *balls), legend=None)


# --- Results --------------------------------------------------------------------------------------------------------------


def result(name: str, seed: int) -> tuple[dict[str, Any], np.ndarray]:
    """Errors of one film, and a frame of it with the points."""
    films, fit, right = SYSTEMS[name](seed)
    off = np.concatenate([np.linalg.norm(film.found.pixels - film.exact, axis=2).ravel() for film in films])
    sure = np.concatenate([film.found.confidence.ravel() >= 0.5 for film in films])
    row: dict[str, Any] = {"system": name, "seed": seed, "kept": float(sure.mean())}
    kept = off[sure]
    row |= {"median": float(np.median(kept)), "p95": float(np.quantile(kept, 0.95)), "largest": float(kept.max())}
    for kind, tracked in (("exact", False), ("tracked", True)):
        try:
            found = fit(tracked)
            row[kind] = {key: found[key] / value - 1.0 for key, value in right.items()}
        except SoftgymError as error:
            row[kind] = str(error)
    picture = films[0].frame.copy()
    middle = len(films[0].exact) // 2
    for (x, y), confidence in zip(films[0].found.pixels[middle], films[0].found.confidence[middle], strict=True):
        if confidence >= 0.5:
            picture[round(y) - 2 : round(y) + 3, round(x) - 2 : round(x) + 3] = (255, 0, 255)
    return row, picture


def table(rows: list[dict[str, Any]]) -> str:
    """Medians over films, and the largest value."""
    lines = ["| system | films | kept | median [px] | 95 % [px] | largest [px] |", "|---|---:|---:|---:|---:|---:|"]
    more = ["| system | parameter | exact points | tracked points |", "|---|---|---:|---:|"]
    for name in dict.fromkeys(row["system"] for row in rows):
        own = [row for row in rows if row["system"] == name]
        middle = {key: np.median([row[key] for row in own]) for key in ("kept", "median", "p95")}
        largest = max(row["largest"] for row in own)
        sizes = " | ".join(f"{middle[key]:.2f}" for key in ("median", "p95"))
        lines.append(f"| {name} | {len(own)} | {middle['kept']:.1%} | {sizes} | {largest:.1f} |")
        fits = {kind: [row[kind] for row in own if isinstance(row[kind], dict)] for kind in ("exact", "tracked")}
        for key in fits["exact"][0] if fits["exact"] else ():
            cells = []
            for found in fits.values():
                errors = [abs(each[key]) for each in found]
                cells.append(f"{np.median(errors):.1%} ({np.max(errors):.1%})" if errors else "no fit")
            more.append(f"| {name} | `{key}` | {' | '.join(cells)} |")
    head = "# Points tracked in rendered films\n\nCommand: `python experiments/film_tracking.py`\n\n"
    text = (
        "Films are 640 x 480 pixels, with noise, blur, uneven light and H.264 compression drawn at random. "
        "Pixels are distances to the exact points among the kept ones.\n\n"
    )
    fitted = "\n\nRelative errors of fitted parameters, the median of all films and the largest:\n\n"
    return head + text + "\n".join(lines) + fitted + "\n".join(more) + "\n"


def main(args: Args) -> None:
    """Track and fit; files are written after every film, and keep the films of other systems."""
    numbers = OUT / "numbers.json"
    films = read_json(numbers)["films"] if numbers.exists() else []
    rows: list[dict[str, Any]] = [row for row in films if row["system"] not in args.systems]
    pictures: dict[str, np.ndarray] = {}
    for name in args.systems:
        for seed in range(args.seed, args.seed + args.films):
            row, picture = result(name, seed)
            rows.append(row)
            pictures.setdefault(name, picture)
            print(row, flush=True)
            write_json(numbers, {"provenance": provenance(), "films": rows})
            write_atomically(OUT / "table.md", table(rows).encode())
    write_png(OUT / "picture.png", np.concatenate(list(pictures.values()), axis=1)[::2, ::2])


SYSTEMS: dict[str, Callable[[int], Made]] = {"vine": vine, "loop": loop, "tensegrity": tensegrity}

if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
