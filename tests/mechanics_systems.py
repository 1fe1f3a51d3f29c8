"""Trees that the tests of mechanics share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from softgym_envs.mechanics import Body, Frame, Joint, Mechanism, Pin, Tree, Weld

PARAMETERS = (
    "k",
    "rest",
    "damping",
    "armature",
    "offset",
    "friction",
    "scale",
    "gravity",
    "x",
    "y",
    "z",
    "roll",
    "pitch",
    "yaw",
)
"""One of every kind."""


def rod(name: str, length: float = 0.5, mass: float = 1.0) -> Body:
    """A slender rod that hangs down from its joint."""
    moment = mass * length**2 / 12
    return Body(name, mass, (0.0, 0.0, -length / 2), (moment, moment, 0.01 * moment))


def pendulum(length: float = 1.0, damping: float = 0.0) -> Tree:
    """A point mass on a massless rod."""
    hinge = Joint("hinge", "revolute", "world", "bob", axis=(0.0, 1.0, 0.0), damping=damping)
    return Tree("pendulum", (Body("bob", 1.0, (0.0, 0.0, -length)),), (hinge,), actuated=("hinge",))


def chain(count: int = 3, *, length: float = 0.3, stiffness: float = 2.0, damping: float = 0.0) -> Tree:
    """Rods on hinges whose axes alternate, with springs; the frame `tip` at the end."""
    bodies = tuple(rod(f"rod{i}", length, 0.4) for i in range(count))
    joints = tuple(
        Joint(
            f"hinge{i}", "revolute", "world" if i == 0 else f"rod{i - 1}", f"rod{i}",
            axis=((0.0, 1.0, 0.0), (1.0, 0.0, 0.0))[i % 2],
            xyz=(0.0, 0.0, 0.0 if i == 0 else -length), stiffness=stiffness, damping=damping,
        )
        for i in range(count)
    )  # fmt: skip
    return Tree("chain", bodies, joints, (Frame("tip", f"rod{count - 1}", (0.0, 0.0, -length)),), actuated=("hinge0",))


def rich(seed: int) -> tuple[Tree, np.ndarray]:
    """Two branches, all kinds of joints, massless and fixed bodies, a weld and a pin, which hold at q = 0.

    Every kind of constant is used. -> The tree and values of its parameters (P,).
    """
    rng = np.random.default_rng(seed)
    bodies, joints = [], []
    parents = ("world", "b0", "b1", "b2", "b3", "b4", "b5", "b2", "b7", "b8", "b9", "b10", "b11")
    kinds = (
        "revolute",
        "revolute",
        "prismatic",
        "revolute",
        "revolute",
        "fixed",
        "revolute",
        "revolute",
        "fixed",
        *["revolute"] * 4,
    )
    for i, (parent, kind) in enumerate(zip(parents, kinds, strict=True)):
        massless = i in (3, 5)
        inertia = (0.0, 0.0, 0.0) if massless else (0.1, 0.12, 0.15, 0.01, 0.02, -0.01)
        com = tuple(0.2 * rng.normal(size=3))
        bodies.append(Body(f"b{i}", 0.0 if massless else rng.uniform(0.5, 1.5), com, inertia, "scale" if i in (4, 7) else 1.0))
        named = {"stiffness": "k", "rest": "rest", "damping": "damping", "armature": "armature"} if i in (2, 4, 7) else {}
        joints.append(
            Joint(
                f"j{i}", kind, parent, f"b{i}",
                tuple(rng.normal(size=3)), tuple(0.4 * rng.normal(size=3)), tuple(rng.normal(size=3)),
                **{"stiffness": 2.0, "damping": 0.3, **named}, offset="offset" if i == 1 else 0.0,
                friction="friction" if i in (1, 2, 9) else 0.0, friction_speed=1.0,
            )
        )  # fmt: skip
    frames = (
        Frame("end", "b6", (0.1, 0.2, 0.0), (0.3, 0.1, -0.4)),
        Frame("hand", "b12", (0.2, 0.0, 0.1)),
        Frame("elbow", "b4"),
    )
    tree = Tree("rich", tuple(bodies), tuple(joints), frames, (), ("j0", "j3", "j9"), (0.5, 0.0, "gravity"))
    turned, end = place(tree, "end")
    elbow, origin = place(tree, "elbow")
    frames = (*frames[:2], Frame("elbow", "b4", tuple((elbow.T @ (place(tree, "hand")[1] - origin)).tolist())))
    held = (Weld("clamp", "end", ("x", "y", "z"), ("roll", "pitch", "yaw")), Pin("pin", "hand", "elbow"))
    values = np.array([3.0, 0.2, 0.15, 0.02, 0.1, 0.2, 1.3, -9.0, *end, *angles(turned)])
    return replace(tree, frames=frames, constraints=held), values


def place(tree: Tree, frame: str) -> tuple[np.ndarray, np.ndarray]:
    """Rotation (3, 3) and origin (3,) of a frame at q = 0."""
    mechanism = Mechanism(tree, 0.01, PARAMETERS)
    turned, origin = mechanism.pose(frame, np.zeros((1, mechanism.n)))
    return turned[0], origin[0]


def angles(R: np.ndarray) -> tuple[float, float, float]:
    """Roll, pitch, yaw of a rotation."""
    return float(np.arctan2(R[2, 1], R[2, 2])), float(-np.arcsin(R[2, 0])), float(np.arctan2(R[1, 0], R[0, 0]))


def closed(count: int = 6, *, damping: float = 0.02, dt: float = 0.01, force_split: str = "left") -> Mechanism:
    """A planar and bendable chain of rods, whose end is welded where it is when the coordinates are zero: a slack loop.

    Parameters: stiffness k of all joints, damping.
    """
    length, turn = 0.2, 2 * np.pi / (count + 1)
    bodies, joints = [], []
    for i in range(count):
        parent = "world" if i == 0 else f"rod{i - 1}"
        xyz, rpy = ((0.0, 0.0, 0.0), (0.3, 0.0, 0.0)) if i == 0 else ((0.0, 0.0, -length), (turn, 0.0, 0.0))
        bodies += [Body(f"knee{i}"), rod(f"rod{i}", length, 0.1)]
        joints += [
            Joint(f"theta{i}", "revolute", parent, f"knee{i}", (1.0, 0.0, 0.0), xyz, rpy, stiffness="k", damping="damping"),
            Joint(f"psi{i}", "revolute", f"knee{i}", f"rod{i}", (0.0, 1.0, 0.0), stiffness="k", damping="damping"),
        ]
    frame = Frame("end", f"rod{count - 1}", (0.0, 0.0, -length))
    tree = Tree("closed", tuple(bodies), tuple(joints), (frame,), actuated=("theta0", "psi2"))
    open_chain = Mechanism(tree, dt, ("k", "damping"))
    turned, origin = (part[0] for part in open_chain.pose("end", np.zeros((1, open_chain.n))))
    weld = Weld("clamp", "end", tuple(origin.tolist()), angles(turned))
    return Mechanism(replace(tree, constraints=(weld,)), dt, ("k", "damping"), force_split)
