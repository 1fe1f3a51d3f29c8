"""Structs of kernel arguments: data that all rows share, data of one row, tape, working memory.

Legend: B batch, R rods, P pairs of rods.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ...engines.warp.memory import Memory
from .cables import Cable, CableData, Node
from .contact import ContactData, Ground
from .contact_patches import Pair
from .patch import Problem
from .rods import Rod, RodState, Twist


@wp.struct
class RodWorld:
    """Structure of the robot, the ground, and options of the steps."""

    links: wp.array(dtype=CableData)
    """Cables, in groups of four."""
    rods: wp.array(dtype=Rod)
    terrain: Ground
    rod_radius: wp.float64
    cap_radius: wp.float64
    control_limit: wp.float64
    mode: int
    dt: wp.float64
    own_cables: int
    """Cables with factors of their own among the parameters, see `cables.link_of`; 0: all are alike."""
    learned: int
    """See `contact.ContactData`."""


@wp.struct
class Row:
    """Parameters of row b."""

    b: int
    cable: Cable
    contact: ContactData
    inverse_mass: wp.float64
    motor_rate: wp.float64
    """Share of the way to its command that a motor makes in a step."""
    terrain_scale: wp.float64
    fall: wp.vec3d
    """Change of velocity by gravity in a step [m/s]."""


@wp.struct
class Tape:
    """Results of a step for the next one and for the backward pass; one row per slot and row of the batch."""

    bodies: wp.array2d(dtype=RodState)
    """The rods' part of the state."""
    nodes: wp.array2d(dtype=Node)
    """Motion of the rods' ends."""
    axes: wp.array2d(dtype=wp.vec3d)
    """Directions of the rods."""
    forces: wp.array2d(dtype=wp.vec3d)
    """Pull of the cables on the rods' ends [N]."""
    predicted: wp.array2d(dtype=Twist)
    """Velocities without contact; w in the rod's frame."""
    twists: wp.array2d(dtype=Twist)
    """Velocities after contact with the ground; w in the rod's frame."""
    push: wp.array2d(dtype=wp.vec3d)
    """Change of v by contact between rods; in mode patch, slope of the energy along v."""
    turn: wp.array2d(dtype=wp.vec3d)
    """Change of w, or slope of the energy along w, as in `push`; world frame."""
    touching: wp.array2d(dtype=int)
    """Mode patch: number of others that each rod touches; then the number of pairs."""
    settled: wp.array2d(dtype=Twist)
    """Mode patch: twists of least energy of rods that touch others, world frame."""
    steps: wp.array2d(dtype=Twist)
    """Mode patch: the Newton step from `settled`."""


@wp.struct
class RodWork:
    """A group of rods that touch each other, mode patch: its members, and Newton's method on their twists."""

    members: wp.array2d(dtype=Problem)
    pairs: wp.array2d(dtype=Pair)
    twists: wp.array2d(dtype=Twist)
    steps: wp.array2d(dtype=Twist)
    slopes: wp.array2d(dtype=Twist)
    """Gradient of the energy."""
    matrix: wp.array2d(dtype=wp.float64)
    """Its second derivative (6n x 6n, by rows), then the Cholesky factor of it."""
    vector: wp.array2d(dtype=wp.float64)


def tape(num_rods: int, *, patch: bool) -> Memory:
    """The tape of a robot; arrays of mode patch are empty in the other modes."""
    twice = dict.fromkeys(("nodes", "forces"), 2 * num_rods)
    once = dict.fromkeys(("axes", "twists", "push", "turn"), num_rods)
    group = dict.fromkeys(("predicted", "settled", "steps"), num_rods if patch else 0)
    return Memory(Tape, {**twice, **once, **group, "touching": num_rods + 1 if patch else 0}, {"bodies": num_rods})


def workspace(num_rods: int, *, patch: bool) -> Memory:
    """The working memory of a robot; empty except in mode patch."""
    size = num_rods if patch else 0
    each = dict.fromkeys(("members", "twists", "steps", "slopes"), size)
    return Memory(RodWork, {**each, "pairs": size * (size - 1) // 2, "matrix": (6 * size) ** 2, "vector": 6 * size})
