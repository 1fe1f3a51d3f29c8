"""Units of recorded data: one table, from units of a laboratory to SI."""

from __future__ import annotations

import math

from .errors import DataError

UNITS: dict[str, tuple[str, float]] = {
    "-": ("-", 1.0),
    "%": ("-", 1e-2),
    "SI": ("SI", 1.0),  # in recordings of older versions: the SI unit of the simulator's entry of this name
    "m": ("m", 1.0),
    "dm": ("m", 1e-1),
    "cm": ("m", 1e-2),
    "mm": ("m", 1e-3),
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "rad": ("rad", 1.0),
    "deg": ("rad", math.pi / 180.0),
    "m/s": ("m/s", 1.0),
    "cm/s": ("m/s", 1e-2),
    "mm/s": ("m/s", 1e-3),
    "rad/s": ("rad/s", 1.0),
    "deg/s": ("rad/s", math.pi / 180.0),
    "rpm": ("rad/s", math.pi / 30.0),
    "m/s^2": ("m/s^2", 1.0),
    "kg": ("kg", 1.0),
    "g": ("kg", 1e-3),
    "N": ("N", 1.0),
    "mN": ("N", 1e-3),
    "kN": ("N", 1e3),
    "N m": ("N m", 1.0),
    "N mm": ("N m", 1e-3),
    "Pa": ("Pa", 1.0),
    "kPa": ("Pa", 1e3),
    "MPa": ("Pa", 1e6),
    "bar": ("Pa", 1e5),
    "V": ("V", 1.0),
    "mV": ("V", 1e-3),
    "A": ("A", 1.0),
    "mA": ("A", 1e-3),
    "1/s": ("1/s", 1.0),
    "Hz": ("1/s", 1.0),
}
"""Unit -> its SI unit, and the factor that turns a number in this unit into one in SI."""

SI_UNITS: tuple[str, ...] = tuple(dict.fromkeys(si for si, _ in UNITS.values()))
"""Units that a `Trajectory` may hold."""


def to_si(unit: str, *, where: str) -> tuple[str, float]:
    """SI unit of `unit`, and the factor to it.

    >>> to_si("mm", where="column x")
    ('m', 0.001)

    Raises:
        DataError: Unknown unit; the message begins with `where` and lists the known units.
    """
    if unit not in UNITS:
        raise DataError(f"{where}: unknown unit {unit!r}; known are {', '.join(UNITS)}")
    return UNITS[unit]
