"""A laboratory's own loop and arm from a TOML file; `read_model` describes the form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.errors import FileFormatError
from ...core.files import entries, made, read_toml
from ...mechanics.tree import ORIGIN, Body, Frame, Joint, Tree, Triple
from ...mechanics.tree_file import load_tree
from ...mechanics.urdf import load_urdf
from .model import ARM, LoopModel


def read_model(path: str | Path) -> LoopModel:
    """Read arm and loop from a TOML file, in SI units and rad; defaults are Baxter, and the paper's loop.

    The form::

        links = 12                          # any field of `LoopModel`
        radius = 0.30
        mass = 0.2
        start = [0.0, 0.4, 0.0, -1.8, 0.0, 2.2, 0.8]

        [arm]                               # optional
        file = "my_arm.urdf"                # or .toml, see `mechanics.tree_file`; beside this file
        joints = ["j1", "j2", "j3", "j4", "j5", "j6", "j7"]     # from the base to the hand; here s0, s1, e0, e1, w0, w1, w2
        hand = "flange"                     # body that holds the loop
        hand_xyz = [0.0, 0.0, 0.1]          # frame H on it: the gripper's link is centred there, and lies along its y;
        hand_rpy = [0.0, 0.0, 0.0]          # the loop's plane is y, z, and the clamp is below, along z

    An arm has seven joints that turn, with limits and efforts; their damping is the parameter `arm_damping`,
    their dry friction `friction_s0` ...

    Raises:
        FileFormatError: No such file, unknown entries, or entries of the wrong kind.
        StructureError: Arm or loop make no sense.
    """
    document = read_toml(path)
    arm = _arm(Path(path), document.pop("arm")) if "arm" in document else None
    return LoopModel(**entries(str(path), document, LoopModel, skip=("own_arm",)), own_arm=arm)


@dataclass(frozen=True)
class _ArmEntries:
    """Entries of [arm]."""

    file: str
    hand: str
    joints: tuple[str, ...] = ARM
    hand_xyz: Triple = ORIGIN
    hand_rpy: Triple = ORIGIN


def _arm(path: Path, table: Any) -> Tree:
    """The arm with joints called `model.ARM`, parameters for their damping and offsets, and frame H on a body `gripper`."""
    given = made(f"{path}: [arm]", table, _ArmEntries)
    file = path.parent / given.file
    tree = load_urdf(file) if file.suffix == ".urdf" else load_tree(file)
    moving = [joint.name for joint in tree.moving]
    if sorted(given.joints) != sorted(moving) or len(moving) != len(ARM):
        raise FileFormatError(
            f"{path}: [arm] joints is {list(given.joints)!r}, expected the {len(ARM)} joints that move in {file.name}, from "
            f"the base to the hand; it has {', '.join(moving)}"
        )
    renamed = dict(zip(given.joints, ARM, strict=True))

    def ours(joint: Joint) -> Joint:
        name = renamed.get(joint.name, joint.name)
        if joint.kind == "fixed":
            return joint
        return replace(joint, name=name, damping="arm_damping", friction=f"friction_{name}", offset=f"offset_{name}")

    joints, bodies = [ours(joint) for joint in tree.joints], list(tree.bodies)
    known = [body.name for body in bodies]
    if given.hand not in known:
        raise FileFormatError(f"{path}: [arm] hand is {given.hand!r}; {file.name} has the bodies {', '.join(known)}")
    if given.hand != "gripper" or any(given.hand_xyz) or any(given.hand_rpy):
        if "gripper" in known:
            raise FileFormatError(f"{path}: {file.name} has a body 'gripper', which is to be the one with frame H; rename it")
        bodies.append(Body("gripper"))
        joints.append(Joint("gripper", "fixed", given.hand, "gripper", xyz=given.hand_xyz, rpy=given.hand_rpy))
    frames = (Frame("H", "gripper"),)
    return Tree(tree.name, tuple(bodies), tuple(joints), frames, actuated=ARM)
