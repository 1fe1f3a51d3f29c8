"""Trees of rigid bodies, their loops closed by constraints, and a variational integrator with exact derivatives.

What several rooms' physics shares and no robot owns.
"""

from .mechanism import Gradient, Mechanism, Motion, Rest, Slopes
from .tree import Body, Frame, Joint, Pin, Tree, Weld

__all__ = ["Body", "Frame", "Gradient", "Joint", "Mechanism", "Motion", "Pin", "Rest", "Slopes", "Tree", "Weld"]
