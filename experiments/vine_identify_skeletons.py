"""Films of growing vine robots among walls: the tip of one film, by a body fitted to the others [CoMMALab/DiffVineSimPy].

    git clone https://github.com/CoMMALab/DiffVineSimPy
    python experiments/vine_identify_skeletons.py --data DiffVineSimPy  # writes results/vine_identify_skeletons

The recordings have no licence and are not ours to pass on; results are. They are skeletons in pixels, three frames of a camera
apart, and walls marked by hand. Their scale is not stated: a pixel is called a millimetre, as in the authors' own fit.

`sysid.identify` takes one scene at a time, so the fit is a search here: of `DRAWS` bodies, that with the least error of the tip
in five films predicts the sixth. A prediction starts from eight frames, and is given the length in every frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from scipy.ndimage import gaussian_filter1d

from softgym_envs.core.files import provenance, write_atomically, write_json
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems.vine import VineModel, VineParameters
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.obstacles import rectangle
from softgym_envs.systems.vine.procedure import SHAPE_ROWS, along_body, first_state, infer_controls

OUT = Path("results/vine_identify_skeletons")
FILMS = range(1, 7)
PIXEL, PERIOD = 1e-3, 0.1
"""[m], [s]"""
RADIUS, WALL = 0.004, 0.002
"""[m] Of the tube, by the distances of skeletons from walls; thickness of a wall."""
POINTS, SMOOTH = 11, 4.0
"""Points along the body; width of the filter that takes a skeleton's steps away [pixels]."""
START = 0.06
"""[m] Length from which on a film is predicted."""
DT, DRAWS = 2.5e-3, 100


@dataclass(frozen=True)
class Args:
    """Options."""

    data: Path
    """Clone of the recordings' repository."""


@dataclass(frozen=True)
class Film:
    """Points and walls of one film."""

    points: np.ndarray
    """(T, P, 2) from base to tip [m]"""
    walls: np.ndarray
    """(W, 2, 2) ends [m]"""

    @property
    def lengths(self) -> np.ndarray:
        """Of the body, (T,) [m]."""
        return np.asarray(np.linalg.norm(np.diff(self.points, axis=1), axis=2).sum(axis=1))

    def prepared(self) -> tuple[VineSimulator, np.ndarray, np.ndarray]:
        """The robot among these walls, its first state (nx,) and its growth (T - 1, nu) [m/s]."""
        ways = self.walls[:, 1] - self.walls[:, 0]
        walls = [
            rectangle(x, y, float(np.linalg.norm(way)), WALL, float(np.arctan2(way[1], way[0])))
            for (x, y), way in zip(self.walls.mean(axis=1), ways, strict=True)
        ]
        model = VineModel(
            num_links=24, max_length=0.36, radius=RADIUS, initial_length=float(self.lengths[0]), num_sections=0,
            obstacles=tuple(walls),
        )  # fmt: skip
        simulator = VineSimulator(model, DT, "linear")
        names = tuple(f"point{k}.{axis}" for k in range(POINTS) for axis in "xy")
        rows, times = self.points.reshape(len(self.points), -1), np.arange(len(self.points), dtype=np.float64) * PERIOD
        data = Trajectory(times, np.zeros((len(rows) - 1, 0)), rows, names, ("m",) * len(names))
        first = first_state(simulator, data.names)
        assert first is not None
        return simulator, first(data), infer_controls(simulator, data).controls

    def off(self, tips: np.ndarray) -> dict[str, float]:
        """Distance from the real tip [mm]: the mean, and at the end."""
        found = 1e3 * np.linalg.norm(tips - self.points[:, -1], axis=1)[SHAPE_ROWS:]
        return {"mean": float(found.mean()), "end": float(found[-1])}


def read(folder: Path) -> Film:
    """Skeletons at equal distances, from when they are long enough; y of the files is downwards in skeletons only."""
    rows = []
    for row in np.load(folder / "points.npy", allow_pickle=False):
        line = gaussian_filter1d(row[1 : int(row[0, 0]) + 1] * [1, -1], SMOOTH, axis=0, mode="nearest")
        line = np.concatenate([np.zeros((1, 2)), line])
        along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
        rows.append(np.stack([np.interp(np.linspace(0, along[-1], POINTS), along, axis) for axis in line.T], axis=1))
    walls = PIXEL * np.load(folder / "tf_walls.npy", allow_pickle=False).astype(float)
    film = Film(PIXEL * np.array(rows), walls[1:])  # the first is the base
    return Film(film.points[int(np.argmax(film.lengths > START)) :], film.walls)


def straight_on(film: Film) -> np.ndarray:
    """Tips (T, 2) [m] of a linear model: the place is linear in the length, by the first quarter of the film."""
    quarter, columns = len(film.points) // 4, np.stack([film.lengths, np.ones(len(film.points))], axis=1)
    return np.asarray(columns @ np.linalg.lstsq(columns[:quarter], film.points[:quarter, -1], rcond=None)[0])


def drawn(rng: np.random.Generator) -> dict[str, float]:
    """A body at random."""
    stiffness = float(10 ** rng.uniform(-5.5, -2))
    damping = stiffness * float(10 ** rng.uniform(-2, 0))
    return {"bending_stiffness": stiffness, "bending_damping": damping, "friction": float(rng.uniform(0.0, 0.5))}


def table(rows: list[dict[str, Any]], good: list[dict[str, float]]) -> str:
    """Errors of every film, left out."""
    names = list(rows[0]["errors"])
    text = (
        "# The tip of growing vine robots, from films\n\n"
        "`python experiments/vine_identify_skeletons.py --data CLONE`; recordings of CoMMALab/DiffVineSimPy.\n\n"
        "Every film is predicted by a body that was fitted to the others. "
        "Distance from the real tip in pixels, mean of a film and at its end.\n\n"
        f"| film | frames | final length | {' | '.join(names)} |\n|---|---:|---:|{'---:|' * len(names)}\n"
    )
    for row in rows:
        cells = [f"{row['errors'][name]['mean']:.1f}, {row['errors'][name]['end']:.1f}" for name in names]
        text += f"| {row['film']} | {row['frames']} | {row['length']:.0f} | {' | '.join(cells)} |\n"
    means = [[np.mean([row["errors"][name][key] for row in rows]) for key in ("mean", "end")] for name in names]
    text += f"| all | | | {' | '.join(f'{mean:.1f}, {end:.1f}' for mean, end in means)} |\n"
    stiffness = [body["bending_stiffness"] for body in good]
    return text + (
        f"\nBodies whose mean error is within a tenth of the least one, of {DRAWS}: {len(good)}. "
        f"Their bending stiffness is {min(stiffness):.1g} to {max(stiffness):.1g} N m^2.\n"
    )


def main(args: Args) -> None:
    """Search, leave one film out, and write."""
    films = {number: read(args.data / f"videoparser/data/frames/vid{number}") for number in FILMS}
    rng = np.random.default_rng(0)
    bodies = [drawn(rng) for _ in range(DRAWS)]
    errors: dict[int, list[dict[str, float]]] = {}
    for number, film in films.items():
        simulator, first, controls = film.prepared()
        firsts, growth = (np.repeat(each[None], DRAWS, axis=0) for each in (first, controls))
        given = VineParameters(**{name: np.array([body[name] for body in bodies]) for name in bodies[0]})  # type: ignore[arg-type]
        states = simulator.rollout(firsts, growth, given, substeps=round(PERIOD / DT))[0]
        errors[number] = [film.off(along_body(simulator.model, each, np.ones(1))[:, 0]) for each in states]
        print(f"film {number}: {len(film.points)} frames", flush=True)
    means = np.array([[each["mean"] for each in errors[number]] for number in FILMS])
    rows = []
    for k, (number, film) in enumerate(films.items()):
        best = int(np.argmin(np.delete(means, k, axis=0).mean(axis=0)))
        still = np.repeat(film.points[:1, -1], len(film.points), axis=0)
        found = {"standing still": film.off(still), "linear": film.off(straight_on(film)), "vine": errors[number][best]}
        rows.append(
            {
                "film": number,
                "frames": len(film.points),
                "length": 1e3 * film.lengths[-1],
                "errors": found,
                "body": bodies[best],
            }
        )
    total = means.mean(axis=0)
    good = [bodies[k] for k in np.flatnonzero(total < 1.1 * total.min())]
    write_json(OUT / "numbers.json", {"provenance": provenance(), "films": rows, "as_good": good})
    write_atomically(OUT / "table.md", table(rows, good).encode())
    print(table(rows, good))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
