"""Trees from URDF files: inertias, joints, limits, damping, friction. Meshes, colours, transmissions, collisions are left out.

Read with the standard library: of the parsers on PyPI, yourdfpy and urchin bring trimesh, lxml and more for meshes, which
mechanics does not need. Documents with a DTD are refused, so that no entity can expand.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ..core.errors import FileFormatError
from .tree import ORIGIN, WORLD, Body, Joint, Tree, Triple

KINDS = {"revolute": "revolute", "continuous": "revolute", "prismatic": "prismatic", "fixed": "fixed"}
LARGEST_FILE = 50_000_000
"""Largest size of a file [bytes]."""


def load_urdf(path: str | Path, *, constraints: tuple = (), frames: tuple = ()) -> Tree:
    """Read a robot from a URDF file; its root link is fixed to the world, and every joint that moves has a control.

    Inertias are given along the axes of <inertial><origin rpy>; <mimic> is refused.

    Args:
        path: The file.
        constraints: Welds and pins to add.
        frames: Frames to add, on links of the file.

    Raises:
        FileFormatError: No such file, not URDF, a kind of joint that is not known here.
        StructureError: The tree is invalid.
    """
    root = _parse(path)
    if root.tag != "robot":
        raise FileFormatError(f"{path}: the outermost element is <{root.tag}>, expected <robot>")
    placed = [_read_body(path, link) for link in root.findall("link")]
    joints = [_read_joint(path, joint) for joint in root.findall("joint")]
    children = {joint.child for joint in joints}
    roots = [body.name for body, _ in placed if body.name not in children]
    if len(roots) != 1:
        raise FileFormatError(f"{path}: {len(roots)} links have no parent joint ({', '.join(roots)}), expected 1")
    bodies, extra = _with_frames(placed)
    if roots[0] != WORLD:
        joints.insert(0, Joint(f"{roots[0]}_to_world", "fixed", WORLD, roots[0]))
    actuated = tuple(joint.name for joint in joints if joint.kind != "fixed")
    name = root.get("name") or Path(path).stem
    return Tree(name, bodies, (*joints, *extra), frames=frames, constraints=constraints, actuated=actuated)


def _with_frames(placed: list[tuple[Body, Triple]]) -> tuple[tuple[Body, ...], tuple[Joint, ...]]:
    """Replace inertias that are rotated against their link by bodies of their own, fixed at the centre of mass."""
    bodies: list[Body] = []
    extra: list[Joint] = []
    for body, rpy in placed:
        if body.name == WORLD:
            continue
        if body.mass == 0 or not any(rpy):
            bodies.append(body)
            continue
        inner = f"{body.name}_inertial"
        bodies += [Body(body.name), replace(body, name=inner, com=ORIGIN)]
        extra.append(Joint(f"{inner}_joint", "fixed", body.name, inner, xyz=body.com, rpy=rpy))
    return tuple(bodies), tuple(extra)


def _parse(path: str | Path) -> Element:
    """Parse a file; -> its outermost element."""
    try:
        if not Path(path).is_file():
            raise FileFormatError(f"cannot read {path}: there is no such file")
        if Path(path).stat().st_size > LARGEST_FILE:
            raise FileFormatError(f"{path} has more than {LARGEST_FILE} bytes")
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from error
    builder, parser = TreeBuilder(), expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise FileFormatError(f"{path}: has a document type declaration, which is refused")

    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
    except (expat.ExpatError, RecursionError, LookupError, ValueError) as error:  # the last two: unknown encoding
        raise error if isinstance(error, FileFormatError) else FileFormatError(f"{path} is not valid XML: {error}") from error
    return builder.close()


def _read_body(path: str | Path, link: Element) -> tuple[Body, Triple]:
    """A link, and the rotation of the axes of its inertia."""
    name = _attribute(path, link, "name")
    inertial = link.find("inertial")
    if inertial is None:
        return Body(name), ORIGIN
    mass = _number(path, inertial.find("mass"), "value", 0.0)
    xyz, rpy = _origin(path, inertial)
    element = inertial.find("inertia")
    moments = tuple(_number(path, element, key, 0.0) for key in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"))
    return Body(name, mass, xyz, moments), rpy


def _read_joint(path: str | Path, joint: Element) -> Joint:
    name, kind = _attribute(path, joint, "name"), _attribute(path, joint, "type")
    if kind not in KINDS:
        raise FileFormatError(f"{path}: joint {name!r} is of type {kind!r}, known are {', '.join(KINDS)}")
    if joint.find("mimic") is not None:
        raise FileFormatError(f"{path}: joint {name!r} mimics another one, which is not supported")
    parent, child = (
        _attribute(path, joint.find(tag), "link", what=f"<{tag}> of joint {name!r}") for tag in ("parent", "child")
    )
    xyz, rpy = _origin(path, joint)
    limit, bounded = joint.find("limit"), kind in ("revolute", "prismatic")
    return Joint(
        name,
        KINDS[kind],
        parent,
        child,
        axis=_triple(path, joint.find("axis"), "xyz", (1.0, 0.0, 0.0)),
        xyz=xyz,
        rpy=rpy,
        lower=_number(path, limit, "lower", 0.0) if bounded else -inf,
        upper=_number(path, limit, "upper", 0.0) if bounded else inf,
        effort=_number(path, limit, "effort", inf),
        velocity=_number(path, limit, "velocity", inf),
        damping=_number(path, joint.find("dynamics"), "damping", 0.0),
        friction=_number(path, joint.find("dynamics"), "friction", 0.0),
    )


def _origin(path: str | Path, element: Element) -> tuple[Triple, Triple]:
    """Xyz, rpy of <origin>."""
    origin = element.find("origin")
    return _triple(path, origin, "xyz", ORIGIN), _triple(path, origin, "rpy", ORIGIN)


def _attribute(path: str | Path, element: Element | None, key: str, *, what: str = "") -> str:
    value = None if element is None else element.get(key)
    if value is None:
        raise FileFormatError(f"{path}: {what or f'<{element.tag if element is not None else key}>'} has no {key!r}")
    return value


def _number(path: str | Path, element: Element | None, key: str, default: float) -> float:
    text = None if element is None else element.get(key)
    return default if text is None else _numbers(path, key, text, 1)[0]


def _triple(path: str | Path, element: Element | None, key: str, default: Triple) -> Triple:
    text = None if element is None else element.get(key)
    if text is None:
        return default
    x, y, z = _numbers(path, key, text, 3)
    return x, y, z


def _numbers(path: str | Path, key: str, text: str, count: int) -> list[float]:
    try:
        found = [float(part) for part in text.split()]
    except ValueError:
        found = []
    if len(found) != count or not all(isfinite(value) for value in found):
        raise FileFormatError(f"{path}: {key} is {text!r}, expected {count} finite number{'s' if count > 1 else ''}")
    return found
