"""A laboratory's own loop and arm from a TOML file; `read_model` describes the form."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..core.errors import FileFormatError, shown
from ..core.files import number_in, read_toml
from ..mechanics.tree import Body, Frame, Joint, Tree
from ..mechanics.tree_file import load_tree
from ..mechanics.urdf import load_urdf
from .model import ARM, LoopModel

ENTRIES = tuple(field.name for field in fields(LoopModel) if field.name != "own_arm")
ARM_ENTRIES = ("file", "joints", "hand", "hand_xyz", "hand_rpy")


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

    An arm has seven joints that turn, with limits and efforts; their damping is the constant `arm_damping`,
    their dry friction `friction_s0` ...

    Raises:
        FileFormatError: No such file, unknown entries, or entries of the wrong kind.
        StructureError: Arm or loop make no sense.
    """
    document = read_toml(path)
    for key in document:
        if key not in (*ENTRIES, "arm"):
            raise FileFormatError(f"{path}: unknown entry {key!r}; allowed are {', '.join((*ENTRIES, 'arm'))}")
    values: dict[str, Any] = {key: _value(path, key, value) for key, value in document.items() if key != "arm"}
    if "arm" in document:
        values["own_arm"] = _arm(Path(path), document["arm"])
    return LoopModel(**values)


def _value(path: str | Path, key: str, value: Any) -> Any:
    """A number, or seven of them, as the field has it."""
    default = getattr(LoopModel, key)
    if isinstance(default, tuple):
        return _numbers(path, key, value, len(default))
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise FileFormatError(f"{path}: {key} is {value!r}, expected true or false")
        return value
    whole = isinstance(default, int)
    if whole and (isinstance(value, bool) or not isinstance(value, int)):
        raise FileFormatError(f"{path}: {key} is {shown(value)}, expected a whole number")
    return value if whole else number_in(f"{path}: {key}", value)


def _numbers(path: str | Path, key: str, value: Any, count: int) -> tuple[float, ...]:
    if not (isinstance(value, list) and len(value) in (count, len(ARM) if count == 0 else count)):
        raise FileFormatError(f"{path}: {key} is {shown(value)}, expected {count or len(ARM)} numbers")
    return tuple(number_in(f"{path}: {key}", part) for part in value)


def _arm(path: Path, table: Any) -> Tree:
    """The arm with joints called `model.ARM`, constants for their damping and offsets, and frame H on a body `gripper`."""
    if not isinstance(table, dict):
        raise FileFormatError(f"{path}: arm is {table!r}, expected a table [arm]")
    for key in table:
        if key not in ARM_ENTRIES:
            raise FileFormatError(f"{path}: [arm] has {key!r}; allowed are {', '.join(ARM_ENTRIES)}")
    for key in ("file", "hand"):
        if not isinstance(table.get(key), str):
            raise FileFormatError(f"{path}: [arm] {key} is {table.get(key)!r}, expected a text")
    file = path.parent / table["file"]
    tree = load_urdf(file) if file.suffix == ".urdf" else load_tree(file)
    names = table.get("joints", list(ARM))
    moving = [joint.name for joint in tree.moving]
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(moving) or len(names) != len(ARM):
        raise FileFormatError(
            f"{path}: [arm] joints is {names!r}, expected the {len(ARM)} joints that move in {file.name}, from the base to the "
            f"hand; it has {', '.join(moving)}"
        )
    renamed = dict(zip(names, ARM, strict=True))

    def ours(joint: Joint) -> Joint:
        name = renamed.get(joint.name, joint.name)
        if joint.kind == "fixed":
            return joint
        return replace(joint, name=name, damping="arm_damping", friction=f"friction_{name}", offset=f"offset_{name}")

    joints, bodies = [ours(joint) for joint in tree.joints], list(tree.bodies)
    xyz, rpy = (_numbers(path, f"[arm] {key}", table.get(key, [0.0] * 3), 3) for key in ("hand_xyz", "hand_rpy"))
    known = [body.name for body in bodies]
    if table["hand"] not in known:
        raise FileFormatError(f"{path}: [arm] hand is {table['hand']!r}; {file.name} has the bodies {', '.join(known)}")
    if table["hand"] != "gripper" or any(xyz) or any(rpy):
        if "gripper" in known:
            raise FileFormatError(f"{path}: {file.name} has a body 'gripper', which is to be the one with frame H; rename it")
        bodies.append(Body("gripper"))
        joints.append(Joint("gripper", "fixed", table["hand"], "gripper", xyz=xyz, rpy=rpy))  # type: ignore[arg-type]
    frames = (Frame("H", "gripper"),)
    return Tree(tree.name, tuple(bodies), tuple(joints), frames, actuated=ARM)
