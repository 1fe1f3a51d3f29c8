"""Units of recorded data: one table, from units of a laboratory to SI."""

from __future__ import annotations

import math

from .errors import DataError

STANDARD_GRAVITY = 9.80665
"""Standard acceleration of gravity [m/s^2], in the definition of the pound-force (NIST SP 811)."""

UNITS: dict[str, tuple[str, float]] = {
    "-": ("-", 1.0),
    "%": ("-", 1e-2),
    "SI": ("SI", 1.0),  # in recordings of older versions: the SI unit of the simulator's entry of this name
    "m": ("m", 1.0),
    "dm": ("m", 1e-1),
    "cm": ("m", 1e-2),
    "mm": ("m", 1e-3),
    "um": ("m", 1e-6),
    "km": ("m", 1e3),
    "in": ("m", 0.0254),
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "min": ("s", 60.0),
    "rad": ("rad", 1.0),
    "mrad": ("rad", 1e-3),
    "deg": ("rad", math.pi / 180.0),
    "rev": ("rad", 2.0 * math.pi),
    "m/s": ("m/s", 1.0),
    "cm/s": ("m/s", 1e-2),
    "mm/s": ("m/s", 1e-3),
    "rad/s": ("rad/s", 1.0),
    "deg/s": ("rad/s", math.pi / 180.0),
    "rpm": ("rad/s", math.pi / 30.0),
    "m/s^2": ("m/s^2", 1.0),
    "mm/s^2": ("m/s^2", 1e-3),
    "rad/s^2": ("rad/s^2", 1.0),
    "deg/s^2": ("rad/s^2", math.pi / 180.0),
    "kg": ("kg", 1.0),
    "g": ("kg", 1e-3),
    "N": ("N", 1.0),
    "mN": ("N", 1e-3),
    "kN": ("N", 1e3),
    "lbf": ("N", 0.45359237 * STANDARD_GRAVITY),
    "N m": ("N m", 1.0),
    "N mm": ("N m", 1e-3),
    "mN m": ("N m", 1e-3),
    "N cm": ("N m", 1e-2),
    "kN m": ("N m", 1e3),
    "Pa": ("Pa", 1.0),
    "hPa": ("Pa", 1e2),
    "kPa": ("Pa", 1e3),
    "MPa": ("Pa", 1e6),
    "bar": ("Pa", 1e5),
    "mbar": ("Pa", 1e2),
    "psi": ("Pa", 0.45359237 * STANDARD_GRAVITY / 0.0254**2),
    "atm": ("Pa", 101325.0),
    "Torr": ("Pa", 101325.0 / 760.0),
    "mmHg": ("Pa", 133.322387415),
    "m^3/s": ("m^3/s", 1.0),
    "l/s": ("m^3/s", 1e-3),
    "l/min": ("m^3/s", 1e-3 / 60.0),
    "ml/min": ("m^3/s", 1e-6 / 60.0),
    "V": ("V", 1.0),
    "mV": ("V", 1e-3),
    "A": ("A", 1.0),
    "mA": ("A", 1e-3),
    "1/s": ("1/s", 1.0),
    "Hz": ("1/s", 1.0),
    "kHz": ("1/s", 1e3),
}
"""Unit -> its SI unit, and the factor that turns a number in this unit into one in SI."""

SPELLINGS: dict[str, tuple[str, ...]] = {
    "-": ("1", "none", "unitless", "dimensionless"),
    "%": ("percent", "pct"),
    "m": ("meter", "meters", "metre", "metres"),
    "cm": ("centimeter", "centimeters", "centimetres"),
    "mm": ("millimeter", "millimeters", "millimetre", "millimetres"),
    "um": ("µm", "μm", "micrometer", "micrometers", "micron", "microns"),
    "in": ("inch", "inches"),
    "s": ("sec", "secs", "second", "seconds"),
    "ms": ("msec", "millisecond", "milliseconds"),
    "us": ("µs", "μs", "usec", "microsecond", "microseconds"),
    "ns": ("nsec", "nanosecond", "nanoseconds"),
    "rad": ("radian", "radians"),
    "deg": ("°", "degree", "degrees"),
    "rev": ("turn", "turns", "revolution", "revolutions"),
    "m/s": ("mps", "m_s", "m_per_s", "m s^-1"),
    "rad/s": ("rad_s", "rad_per_s", "radps", "rad s^-1"),
    "deg/s": ("deg_s", "deg_per_s", "dps", "degps", "°/s"),
    "m/s^2": ("m/s2", "m/s²", "m_s2", "mps2", "m s^-2"),
    "mm/s^2": ("mm/s2", "mm/s²"),
    "rad/s^2": ("rad/s2", "rad/s²", "rad_s2"),
    "deg/s^2": ("deg/s2", "deg/s²", "deg_s2"),
    "kg": ("kilogram", "kilograms"),
    "g": ("gram", "grams"),
    "N": ("newton", "newtons"),
    "N m": ("Nm", "N.m", "N*m", "N·m", "N-m", "newton-meters"),
    "N mm": ("Nmm", "N.mm", "N*mm", "N·mm", "N-mm"),
    "N cm": ("Ncm", "N.cm", "N*cm", "N·cm"),
    "mN m": ("mNm", "mN.m", "mN*m", "mN·m"),
    "kN m": ("kNm", "kN.m"),
    "Pa": ("pascal", "pascals", "N/m^2"),
    "kPa": ("kpa",),
    "MPa": ("mpa", "Mpa", "N/mm^2"),
    "bar": ("bars",),
    "psi": ("PSI", "psig", "lbf/in^2"),
    "Torr": ("torr",),
    "l/min": ("lpm", "L/min", "LPM"),
    "l/s": ("L/s",),
    "ml/min": ("mL/min",),
    "V": ("volt", "volts"),
    "A": ("amp", "amps", "ampere", "amperes"),
    "rpm": ("RPM", "rev/min"),
    "Hz": ("hz",),
}
"""Unit -> other spellings that files use."""

_BY_SPELLING = {other: unit for unit, others in SPELLINGS.items() for other in others}

SI_UNITS: tuple[str, ...] = tuple(dict.fromkeys(si for si, _ in UNITS.values()))
"""Units that a `Trajectory` may hold."""


def to_si(unit: str, *, where: str) -> tuple[str, float]:
    """SI unit of `unit`, and the factor to it.

    >>> to_si("mm", where="column x")
    ('m', 0.001)

    Raises:
        DataError: Unknown unit; the message begins with `where` and lists the known units.
    """
    known = unit_named(unit)
    if known is None:
        raise DataError(f"{where}: unknown unit {unit!r}; known are {', '.join(UNITS)}")
    return UNITS[known]


def unit_named(spelling: str) -> str | None:
    """The unit of `UNITS` that is spelled so; None if there is none.

    >>> unit_named("Nm"), unit_named("degrees"), unit_named("furlong")
    ('N m', 'deg', None)
    """
    return spelling if spelling in UNITS else _BY_SPELLING.get(spelling, _BY_SPELLING.get(spelling.lower()))
