"""Parameters of a box that is thrown on a table."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.parameters import Parameters, param


@dataclass(frozen=True)
class BoxBody(Parameters):
    """Parameters of box and table, shared with the MuJoCo model."""

    friction: float = param(0.2, unit="-", bounds=(0.0, 1.5), source="[Pfrommer2020]: 0.18, their own fit")
    mass: float = param(0.37, unit="kg", bounds=(1e-3, 1e3), scale="log", source="[Pfrommer2020]; only forces show it")
    inertia: float = param(
        1.0, unit="-", bounds=(0.3, 3.0), scale="log", source="over that of a uniform box of the same mass; hollow cube: 5/3"
    )
    gravity: float = param(9.81, unit="m/s^2", bounds=(0.0, 30.0), source="Earth")
    table: float = param(0.0, unit="m", bounds=(-1.0, 1.0), source="height of the table in the frame of the recordings")
    rounding: float = param(0.0, unit="m", bounds=(0.0, 0.02), source="radius of corners and edges; 0: sharp")


@dataclass(frozen=True)
class BoxParameters(BoxBody):
    """Parameters of our own engine: rigid contact."""

    restitution: float = param(
        0.12, unit="-", bounds=(0.0, 1.0), source="[Pfrommer2020]: 0.125, their own fit; Newton's law for every corner"
    )
