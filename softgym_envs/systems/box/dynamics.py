r"""A rigid box that is thrown on a table: it flies, strikes, slides, tips, rolls over its corners and bounces.

Between impacts velocities change evenly over a step h; this is exact in flight and of first order in lasting contact:

.. math::
   M (v^+ - v) = h (f + f_{gyro}) + J^T \lambda, \qquad q^+ = q \oplus \tfrac{h}{2} (v + v^+)

with corners as contacts, Coulomb friction, and v_n^+ >= 0 where a corner touches (`contacts`). A corner that comes down within
the step stops it at that moment; impulses there obey Newton's law v_n^+ >= -e v_n^- at every corner that touches [Moreau
1988], and the rest of the step follows. So steps may be as long as a camera's frame: times of impact are resolved, and the
motion depends smoothly on them.

While a strike lasts, friction turns the slip, stops it or reverses it. Hence the normal velocity goes from v_n^- to -e v_n^- in
equal parts, each with Coulomb's law at the slip of its end: Routh's integral along the impulse, to first order. Results with
`strike_parts` and twice as many parts are extrapolated to second order, except for the part in which slip stops.

*Derivatives* are exact, including those of impact times: complex steps through the same code, whose decisions (which corners
touch, stick, slide) use real parts. Where a decision changes they are one-sided.

Sources: [Pfrommer2020] "ContactNets", CoRL 2020, the cube; [Fazeli2017] "Empirical evaluation of common contact models for
planar impact", ICRA 2017, the square; [Stewart, Trinkle 1996]; [Moreau 1988] "Unilateral contact and dry friction in finite
freedom dynamics"; [Routh 1905] "Dynamics of a system of rigid bodies", part I; [Keller 1986] "Impact with friction". Legend: B
batch, T horizon, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...core.simulator import check_number
from ...engines.numba.engine import NumbaEngine, NumbaSimulator
from .geometry import BoxData
from .model import BoxModel
from .parameters import BoxParameters
from .stepping import derivative, forward


@dataclass(frozen=True, eq=False)
class BoxSimulator(NumbaSimulator):
    """The box, as a `core.simulator.Simulator`; see the module docstring.

    >>> simulator = BoxSimulator()
    >>> start = simulator.initial_state()
    >>> start[0, 2] += 0.5  # half a metre over the table
    >>> states, status = simulator.rollout(start, np.zeros((1, 300, 3)))
    >>> round(float(states[0, -1, 2]), 4), status.tolist()
    (0.0524, [0])

    Raises:
        OptionError: `strike_parts` is no positive whole number.
    """

    system = "box"
    parameters_class = BoxParameters

    model: BoxModel = field(default_factory=BoxModel)
    """Geometry."""
    dt: float = 1 / 296
    """Physics step [s]; half a frame of [Pfrommer2020]'s cameras."""
    strike_parts: int = 32
    """Equal parts of a strike, each with Coulomb's law at its own slip, extrapolated; 1: as if slip kept its direction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("strike_parts", self.strike_parts, low=1, whole=True)

    @cached_property
    def scene(self) -> BoxData:
        """See `BoxData`."""
        model = self.model
        still = 2 if model.planar else 3
        return BoxData(
            dt=float(self.dt),
            nq=3 if model.planar else 7,
            nv=3 if model.planar else 6,
            nu=still,
            sizes=model.sizes,
            signs=model.signs,
            uniform=np.concatenate([np.ones(still), model.uniform_inertia]),
            settle_speed=float(model.settle_speed),
            strike_parts=int(self.strike_parts),
            force_columns=np.arange(still),
        )

    @cached_property
    def engine(self) -> NumbaEngine:
        """The numba side of this simulator."""
        return NumbaEngine(forward, derivative, self.scene, self.nx, self.nu)
