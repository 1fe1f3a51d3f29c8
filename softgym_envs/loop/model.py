"""The tree of the flexible loop on Baxter's left arm [Caldwell2014, section IV].

The loop is a regular polygon of rigid links. One link is in the gripper, centred in frame H; two branches of equal length grow
from its ends and meet in the link that is clamped to the table, where a weld holds the end of each. Joint i turns by theta_i
about X and then by psi_i about Y, in a frame turned about X by the polygon's outer angle; links lie along Z; all angles zero is
the regular polygon. (The paper's 5 pi / 6 is the inner angle of a dodecagon.)

Not in the paper, assumed here: links are thin tubes of the tyre's `tube_radius`; `radius` is that of the corners; the clamped
link is half in each branch; H is the electric gripper's base; the loop rests as a regular polygon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import cos, pi, sin
from pathlib import Path

import numpy as np

from ..core.errors import StructureError
from ..core.simulator import check_number
from ..mechanics.placement import frame_pose, roll_pitch_yaw
from ..mechanics.tree import Body, Frame, Joint, Tree, Weld
from ..mechanics.tree_file import load_tree

ARM_FILE = Path(__file__).with_name("baxter.toml")
ARM = ("s0", "s1", "e0", "e1", "w0", "w1", "w2")
"""Joints of the arm."""
CLAMP = ("clamp_x", "clamp_y", "clamp_z", "clamp_roll", "clamp_pitch", "clamp_yaw")
"""Constants of the clamp's pose [m, rad]."""
LOOP = ("theta_stiffness", "psi_stiffness", "loop_damping", "loop_scale")
"""Constants of the loop [N m/rad, N m/rad, N m s/rad, -]."""
CONSTANTS = (*LOOP, "arm_damping", *(f"offset_{name}" for name in ARM), *CLAMP)
"""All constants, in the order of their vector (P = 18)."""
START = (0.0, -1.0, 0.0, 1.5, 0.0, pi / 2 - 0.5, 0.0)
"""[rad] The hand points down; holding arm and loop takes 38 of s1's 50 N m."""


@dataclass(frozen=True)
class LoopModel:
    """Structure of arm and loop.

    >>> model = LoopModel()
    >>> len(model.tree.coordinates), round(model.height, 4)
    (31, 0.6858)

    Raises:
        StructureError: The number of links is odd or below 6, or the start is no pose of the arm.
        OptionError: A length or mass is not positive.
    """

    links: int = 12
    """Links of the loop; 12 and 6 in the paper."""
    radius: float = 0.355
    """Of the circle through the joints [m]."""
    mass: float = 0.132
    """Of the loop [kg]."""
    tube_radius: float = 0.02
    """[m]"""
    start: tuple[float, ...] = START
    """(7,) pose of the arm [rad] below which the clamp is, where the loop is regular."""

    def __post_init__(self) -> None:
        if self.links < 6 or self.links % 2:
            raise StructureError(f"a loop of {self.links} links: expected an even number >= 6")
        if len(self.start) != len(ARM):
            raise StructureError(f"start has {len(self.start)} angles, expected {len(ARM)}")
        for name in ("radius", "mass", "tube_radius"):
            check_number(name, getattr(self, name), positive=True)

    @property
    def link_length(self) -> float:
        """2 R sin(pi / links) [m]."""
        return 2 * self.radius * sin(pi / self.links)

    @property
    def height(self) -> float:
        """From H to the clamp in a regular loop, 2 R cos(pi / links) [m]."""
        return 2 * self.radius * cos(pi / self.links)

    @cached_property
    def arm(self) -> Tree:
        """Arm and gripper with frame H, without the loop."""
        return replace(load_tree(ARM_FILE), frames=(Frame("H", "gripper"),))

    @cached_property
    def clamp(self) -> tuple[float, ...]:
        """Pose of the clamp (6,): x, y, z [m], roll, pitch, yaw [rad]; below H, turned as H."""
        turn, origin = frame_pose(self.arm, "H", dict(zip(ARM, self.start, strict=True)))
        place = origin + turn @ np.array([0.0, 0.0, self.height])
        return (*(float(value) for value in place), *roll_pitch_yaw(turn))

    @cached_property
    def tree(self) -> Tree:
        """Arm, both branches and the welds that close them; q = (arm, left, right), each joint theta, psi."""
        bodies, joints, frames, welds = list(self.arm.bodies), list(self.arm.joints), list(self.arm.frames), []
        bodies.append(self._link("grip", 1.0, 0.0))
        joints.append(Joint("grip", "fixed", "gripper", "grip", rpy=(pi / 2, 0.0, 0.0)))
        for side, sign in (("left", 1), ("right", -1)):
            more_bodies, more_joints = self._branch(side, sign)
            bodies += more_bodies
            joints += more_joints
            end = Frame(f"N_{side}", more_bodies[-1].name, (0.0, 0.0, self.link_length / 2), (-sign * pi / 2, 0.0, 0.0))
            frames.append(end)
            welds.append(Weld(f"clamp_{side}", end.name, CLAMP[:3], CLAMP[3:]))
        return Tree(f"loop{self.links}", tuple(bodies), tuple(joints), tuple(frames), tuple(welds), ARM)

    @property
    def defaults(self) -> np.ndarray:
        """Values of `CONSTANTS` (P,): stiffness as identified in the paper, damping that its integrator needs."""
        return np.array([4.45252, 0.96969, 0.01, 1.0, 0.7, *(0.0,) * len(ARM), *self.clamp])

    def _link(self, name: str, share: float, centre: float) -> Body:
        """A thin tube along z: m r^2 along its axis, m (L^2 / 12 + r^2 / 2) across; `share` of a link."""
        mass, length, r = share * self.mass / self.links, share * self.link_length, self.tube_radius
        across = mass * (length**2 / 12 + r**2 / 2)
        return Body(name, mass, (0.0, 0.0, centre), (across, across, mass * r**2), scale="loop_scale")

    def _branch(self, side: str, sign: int) -> tuple[list[Body], list[Joint]]:
        """From the gripper's link to the clamp: links / 2 joints of two angles; the last carries half the clamped link."""
        bodies: list[Body] = []
        joints: list[Joint] = []
        count, length, turn = self.links // 2, self.link_length, sign * 2 * pi / self.links
        for i in range(count):
            parent = "gripper" if i == 0 else f"{side}{i - 1}"
            xyz = (0.0, sign * length / 2, 0.0) if i == 0 else (0.0, 0.0, length)
            rpy = (turn - sign * pi / 2 if i == 0 else turn, 0.0, 0.0)
            knee, share = f"{side}{i}_knee", 0.5 if i == count - 1 else 1.0
            bodies += [Body(knee), self._link(f"{side}{i}", share, share * length / 2)]
            theta, psi = f"{side}_theta{i}", f"{side}_psi{i}"
            damping = "loop_damping"
            joints += [
                Joint(theta, "revolute", parent, knee, (1.0, 0.0, 0.0), xyz, rpy, stiffness="theta_stiffness", damping=damping),
                Joint(psi, "revolute", knee, f"{side}{i}", (0.0, 1.0, 0.0), stiffness="psi_stiffness", damping=damping),
            ]
        return bodies, joints
