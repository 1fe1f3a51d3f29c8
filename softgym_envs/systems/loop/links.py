"""Links of the flexible loop: their bodies, the joints between them, and the balls by which they touch a peg."""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING

import numpy as np

from ...core.simulator import Array
from ...mechanics.tree import Ball, Body, Joint
from .springs import SIDES

if TYPE_CHECKING:
    from .model import LoopModel

TWIST = ("twist_stiffness", "twist_damping")
"""Parameters of joints in which links twist [N m/rad, N m s/rad]; behind `model.PARAMETERS` if there are any."""
BALLS = 4
"""Balls per link: gaps between them are narrower than they are."""


def link(model: LoopModel, name: str, share: float, centre: float) -> Body:
    """A thin tube along z: m r^2 along its axis, m (L^2 / 12 + r^2 / 2) across; `share` of a link."""
    mass, length, r = share * model.mass / model.links, share * model.link_length, model.tube_radius
    across = mass * (length**2 / 12 + r**2 / 2)
    return Body(name, mass, (0.0, 0.0, centre), (across, across, mass * r**2), scale="loop_scale")


def balls(model: LoopModel) -> tuple[Ball, ...]:
    """Balls on every link, evenly spaced; the last link of a branch is half a link."""
    places = {"grip": (BALLS, -0.5)}
    for side in SIDES:
        for i in range(model.links // 2):
            places[f"{side}{i}"] = (BALLS if i < model.links // 2 - 1 else BALLS // 2, 0.0)
    step = model.link_length / BALLS
    return tuple(
        Ball(f"{body}_ball{k}", body, (0.0, 0.0, (k + 0.5) * step + start * model.link_length), model.tube_radius)
        for body, (count, start) in places.items()
        for k in range(count)
    )


def _spring(model: LoopModel, axis: str, part: str) -> str:
    """Name of the parameter that is a joint's stiffness."""
    return f"spring_{axis}{part}" if model.spring_parts else f"{axis}_stiffness"


def branch(model: LoopModel, side: str, sign: int) -> tuple[list[Body], list[Joint]]:
    """Branch from the gripper's link to the clamp: links / 2 joints of `turns` angles; the last has half the clamped link."""
    bodies: list[Body] = []
    joints: list[Joint] = []
    count, length, turn = model.links // 2, model.link_length, sign * 2 * pi / model.links
    for i in range(count):
        parent = "gripper" if i == 0 else f"{side}{i - 1}"
        xyz = (0.0, sign * length / 2, 0.0) if i == 0 else (0.0, 0.0, length)
        rpy = (turn - sign * pi / 2 if i == 0 else turn, 0.0, 0.0)
        knee, wrist, share = f"{side}{i}_knee", f"{side}{i}_wrist", 0.5 if i == count - 1 else 1.0
        bodies += [Body(name) for name in (knee, wrist)[: model.turns - 1]]
        bodies.append(link(model, f"{side}{i}", share, share * length / 2))
        theta, psi = f"{side}_theta{i}", f"{side}_psi{i}"
        damping, own = "loop_damping", f"_{side}{i * model.spring_parts // count}"
        joints += [
            Joint(
                theta,
                "revolute",
                parent,
                knee,
                (1.0, 0.0, 0.0),
                xyz,
                rpy,
                stiffness=_spring(model, "theta", own),
                damping=damping,
            ),
            Joint(
                psi,
                "revolute",
                knee,
                wrist if model.twist else f"{side}{i}",
                (0.0, 1.0, 0.0),
                stiffness=_spring(model, "psi", own),
                damping=damping,
            ),
        ]
        if model.twist:
            phi = f"{side}_phi{i}"
            joints.append(Joint(phi, "revolute", wrist, f"{side}{i}", stiffness=TWIST[0], damping=TWIST[1]))
    return bodies, joints


def about(axis: int, angle: Array) -> Array:
    """Rotations about x, y or z, (...) -> (..., 3, 3)."""
    found, (i, j) = np.zeros((*np.shape(angle), 3, 3)), ((1, 2), (2, 0), (0, 1))[axis]
    found[..., axis, axis] = 1.0
    found[..., i, i] = found[..., j, j] = np.cos(angle)
    found[..., j, i] = np.sin(angle)
    found[..., i, j] = -found[..., j, i]
    return found


def first_turns(sign: int, links: int) -> Array:
    """Rotations about x between the gripper, or a link, and the next one in the regular loop, (links / 2, 3, 3)."""
    turn = np.full(links // 2, sign * 2 * pi / links)
    turn[0] -= sign * pi / 2
    return about(0, turn)


def polygon_angles(turn: Array, sign: int, ways: Array, links: int, across: Array | None) -> Array:
    """Angles theta, psi (and phi), (..., turns J), of joints whose links point along `ways` (..., J, 3).

    Args:
        turn: Rotation of the gripper (..., 3, 3).
        sign: Side of the loop: 1 is left.
        ways: Directions, of any length.
        links: Links of the loop, 2 J.
        across: Directions of the links' x axes (..., J, 3), if links twist.
    """
    found: list[Array] = []
    for i, regular in enumerate(first_turns(sign, links)):
        turn = turn @ regular
        way = np.einsum("...ji,...j->...i", turn, ways[..., i, :])
        x, y, z = np.moveaxis(way / np.linalg.norm(way, axis=-1, keepdims=True), -1, 0)
        theta, psi = np.arctan2(-y, z), np.arcsin(np.clip(x, -1.0, 1.0))
        found += [theta, psi]
        turn = turn @ about(0, theta) @ about(1, psi)
        if across is not None:
            x, y, _ = np.moveaxis(np.einsum("...ji,...j->...i", turn, across[..., i, :]), -1, 0)
            found.append(np.arctan2(y, x))
            turn = turn @ about(2, found[-1])
    return np.stack(found, axis=-1)
