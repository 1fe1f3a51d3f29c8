"""Write the recordings of real robots that come with the package: softgym_envs/data/library/<name>.h5.

    python experiments/recordings_library.py --data DIR

DIR holds folders of the sources' files: cube_tosses/cube_tosses.npz, planar_drops/planar_drops.npz, pam_arm/pam_arm.npz and
soft_beam/beam_gravity_V2_a.csv, beam_load52_V2_a.csv. A part of each is kept, evenly over the file, rounded to 1e-6. Licences:
softgym_envs/data/library/LICENSES.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro

from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.library import FOLDER, LIBRARY

sys.path += [str(Path(__file__).parent / name) for name in ("box_identify_throws", "pneumatic_arm_identify")]
import episodes
import toss_sets

KEPT = 12
"""Recordings of each set."""
FRAMES = 1.0 / episodes.H
"""[Hz] Of the arm."""
RELEASED = slice(28, 291)
"""Rows of the silicone beam: from before its release until it has nearly come to rest."""


@dataclass(frozen=True)
class Args:
    """Options."""

    data: Path
    """Folder of the sources' files."""


def some(found: list[Trajectory]) -> list[Trajectory]:
    """`KEPT` of the recordings, evenly over the list."""
    return [found[k] for k in np.linspace(0, len(found) - 1, KEPT).astype(int)]


def throws(folder: Path, kind: str) -> list[Trajectory]:
    """Throws of a cube, or drops of a square."""
    return some(toss_sets.read(folder, toss_sets.SETS[kind]))


def arm(file: Path) -> list[Trajectory]:
    """Angles of an arm, and the pressures of its muscles, a row later than commanded."""
    found, _ = episodes.load(file)
    joints, muscles = tuple(f"q{k}" for k in range(4)), tuple(f"pressure{k}" for k in range(8))
    return some([
        Trajectory(np.arange(len(rows)) / FRAMES, rows[:-1, 4:], rows[:, :4], joints, ("rad",) * 4, muscles, ("-",) * 8)
        for rows in found
    ])  # fmt: skip


def beam(folder: Path) -> list[Trajectory]:
    """Markers of a clamped beam after its release, without load and with 52 g at its tip."""
    found = []
    for load in ("gravity", "load52"):
        file = folder / f"beam_{load}_V2_a.csv"
        names = file.read_text().splitlines()[0].split(",")[1:]
        rows = np.loadtxt(file, delimiter=",", skiprows=1)[RELEASED]
        columns = tuple(name.replace(" - ", "").replace("_", ".").lower() for name in names)
        found.append(
            Trajectory(rows[:, 0] - rows[0, 0], np.zeros((len(rows) - 1, 0)), rows[:, 1:], columns, ("m",) * len(columns),
                       metadata={"load": load})
        )  # fmt: skip
    return found


def main(args: Args) -> None:
    """Write the files."""
    readers: dict[str, Callable[[], list[Trajectory]]] = {
        "cube_tosses": lambda: throws(args.data / "cube_tosses/cube_tosses.npz", "cube"),
        "planar_drops": lambda: throws(args.data / "planar_drops/planar_drops.npz", "square"),
        "pneumatic_arm": lambda: arm(args.data / "pam_arm/pam_arm.npz"),
        "silicone_beam": lambda: beam(args.data / "soft_beam"),
    }
    for name, read in readers.items():
        source = {"source": f"{name}: {LIBRARY[name]}"}
        kept = [
            replace(t, controls=t.controls.round(6), values=t.values.round(6), substeps=1, metadata={**t.metadata, **source})
            for t in read()
        ]
        print(TrajectorySet(tuple(kept)).save(FOLDER / f"{name}.h5"))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
