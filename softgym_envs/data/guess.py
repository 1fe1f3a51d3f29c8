"""Guesses which column of a file is which of a system's, by names and units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from ..core.units import UNITS, unit_named

_POSITION = frozenset("position pos translation trans location place point p coordinates xyz".split())
_ORIENTATION = frozenset("orientation rotation rot quaternion quat q attitude att ori".split())
_IDLE = frozenset("field pose transform data msg measured actual state values".split())
FAMILIES: tuple[tuple[str, str], ...] = (
    (r"(?:.*\W)?(?:q|pos|position|joint_?pos|joint|angle|theta)s?", "rad"),
    (r"(?:.*\W)?(?:dq|qd|qdot|vel|velocity|joint_?vel|omega)s?", "rad/s"),
    (r"(?:.*\W)?(?:tau(?:_?j)?|torque|effort|u|cmd|command)s?", "N m"),
)
"""Pattern of the name of an array of joints -> the SI unit of its entries."""


def usual_name(name: str) -> str:
    """The name in our words, where it is a position or a quaternion in somebody's.

    >>> [usual_name(name) for name in ("pose.position.x", "quat[0]", "cube_pos_z", "rot_w", "q[0]", "elbow")]
    ['x', 'qw', 'cube.z', 'qw', 'q[0]', 'elbow']
    """
    parts = [part for part in re.split(r"[^A-Za-z0-9]+", name.lower()) if part]
    turns = [part for part in parts if part in _ORIENTATION]
    places = [part for part in parts if part in _POSITION]
    rest = [part for part in parts if part not in _POSITION | _ORIENTATION | _IDLE]
    axis = rest[-1] if rest else ""
    if axis.isdigit() and parts[-1] == axis and len(turns + places) == 1 and (turns + places)[0] not in ("q", "p"):
        axis = ("wxyz" if turns else "xyz")[int(axis) : int(axis) + 1]
    if len(axis) != 1 or not ((turns and axis in "wxyz") or (places and axis in "xyz")):
        return name
    return ".".join([*rest[:-1], f"q{axis}" if turns else axis])


def guesses(names: Sequence[str], units: Sequence[str], system: Mapping[str, str]) -> dict[str, str]:
    """The system's columns -> those of a file that they probably are; none is used twice.

    Args:
        names: Columns of the file.
        units: Their units; "" where there is none.
        system: Names -> SI units of what the system's recordings may hold.
    """
    found: dict[str, str] = {}
    free = dict(zip(names, units, strict=True))

    def take(ours: str, theirs: str) -> None:
        si = UNITS[unit_named(free.get(theirs, "")) or "-"][0] if free.get(theirs) and free.get(theirs) != "px" else ""
        if ours in system and ours not in found and theirs in free and si in ("", system[ours]):
            found[ours] = theirs
            del free[theirs]

    for name in names:
        take(name, name)
    usual = {name: usual_name(name) for name in free}
    bodies = {word.rpartition(".")[0] for word in usual.values() if word.rpartition(".")[2] in ("x", "qw")}
    for name, word in usual.items():
        take(word, name)
        if len(bodies) == 1:
            take(word.rpartition(".")[2], name)
    for name, word in usual.items():
        plain = {re.sub(r"\W|_", "", ours.lower()): ours for ours in system}
        key = re.sub(r"\W|_", "", word.lower())
        take(plain.get(key, ""), name)
    for pattern, unit in FAMILIES:
        family = [name for name in free if re.fullmatch(pattern + r"\[\d+\]", name, re.IGNORECASE)]
        commands = unit == "N m"
        ours = [name for name, its in system.items() if its == unit and name.startswith("control:") == commands]
        for one, other in zip(ours, family, strict=False):
            take(one, other)
    for name in list(free):
        like = get_close_matches(usual.get(name, name), [ours for ours in system if ours not in found], n=1, cutoff=0.85)
        take(like[0] if like else "", name)
    return found
