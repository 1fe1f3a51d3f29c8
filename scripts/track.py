"""Track points in a film: along a vine or a loop before a plain ground, or coloured markers of a tensegrity robot.

    softgym-envs track film.mp4 --system vine --base 82 300 --ruler 100 420 500 420 0.4
    softgym-envs track film.mp4 --system tensegrity --base 320 470 --ruler 100 470 500 470 1.5 --markers 210 300 250 190 ...

writes one CSV, time, point, place and confidence, which `identify` reads; points that are not certain are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from sysid import track


@dataclass(frozen=True)
class Args:
    """Track points in a film."""

    film: Annotated[Path, tyro.conf.Positional]  # The film; pixels are counted from its upper left corner.
    system: str  # Robot: vine, loop or tensegrity.
    base: tuple[float, float]  # Pixel of the origin: the vine's base, the loop's clamp, or a point on the ground.
    ruler: tuple[float, float, float, float, float]  # Pixels of two points in the plane of the motion, their distance [m].
    points: int = 11  # Number of points along a body.
    markers: tuple[float, ...] = ()  # Pixels of all markers in the first frame, in the order of the nodes.
    color: tuple[int, ...] = ()  # Red, green, blue of the body, 0 to 255; none: the colour that stands out.
    fps: float | None = None  # Frames per second of the recording; none: those of the file.
    lens: tuple[float, ...] = ()  # Focal length [pixels] and the radial coefficients k1, k2 of OpenCV; none: no distortion.
    least: float = 0.5  # Confidence below which a point is left out.
    out: Path = Path("tracked.csv")  # CSV file.


def main(args: Args) -> None:
    """Track."""
    given = {name: value for name, value in vars(args).items() if name not in ("film", "system", "least", "out")}
    found = track(args.film, args.system, **given)
    path = found.save(args.out, least=args.least)
    kept = (found.confidence >= args.least).mean(axis=0)
    print(f"{len(found.times)} frames, {found.times[-1]:g} s; share of the frames in which each point is kept:")
    print("  " + ", ".join(f"{name} {share:.0%}" for name, share in zip(found.names, kept, strict=True)))
    print(f"points: {path}")
