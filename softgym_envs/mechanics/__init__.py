"""Trees of rigid bodies, their loops closed by constraints, and a variational integrator with exact derivatives.

Physics shared by several systems; it knows no robot.
"""

from .mechanism import Mechanism, Motion, MotionGradient, Rest, Slopes
from .tree import Ball, Body, Bond, Frame, Joint, Peg, Pin, Tree, Weld

__all__ = [
    "Ball",
    "Body",
    "Bond",
    "Frame",
    "Joint",
    "Mechanism",
    "Motion",
    "MotionGradient",
    "Peg",
    "Pin",
    "Rest",
    "Slopes",
    "Tree",
    "Weld",
]
