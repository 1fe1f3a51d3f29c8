r"""A system's physics step as a symbolic mixed complementarity problem, for identification.

.. math:: g(x, u, p, x^+, z) = 0, \qquad 0 \le z \perp f(x, u, p, x^+, z) \ge 0

as in [Berard2008] slides 8 and 13. Legend: nx state, nu control, P parameters, nz pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import StructureError
from .simulator import Array, Simulator


@dataclass(frozen=True, eq=False)
class ComplementarityPart:
    """A part of a scene without contact with the rest, treated as a scene of its own."""

    simulator: Simulator
    form: ComplementarityForm
    states: Mapping[str, str]
    """State entry of the part -> of the whole."""
    controls: Mapping[str, str]
    parameter_values: Mapping[str, str]
    """Parameters of the part -> of the whole; several parts may share one."""


@dataclass(frozen=True, eq=False)
class ComplementarityForm:
    """One physics step; see the module docstring.

    Raises:
        StructureError: Sizes do not fit together.
    """

    step: Any
    """casadi.Function (x (nx), u (nu), p (P), y (nx), z (nz)) -> g (nx), f (nz); y is the next state."""
    parts: tuple[ComplementarityPart, ...] = ()
    """Independent parts of the scene."""
    mode: Callable[[Array], Array] | None = None
    """Modes that change discontinuously with the state, as the number of links of a growing robot: states (K, nx) at the start
    of steps -> numbers (K, nm), a sixth input of `step`. A solver keeps them fixed; None: there are none."""
    substeps: int = 1
    """Physics steps of the simulator that `step` takes in one."""

    def __post_init__(self) -> None:
        nx, nz = self.step.size1_in(0), self.step.size1_in(4)
        found = (self.step.size1_in(3), self.step.size1_out(0), self.step.size1_out(1))
        if found != (nx, nx, nz):
            raise StructureError(f"step has sizes next state, g, f {found}, expected {(nx, nx, nz)}")

    @property
    def nz(self) -> int:
        """Number of pairs."""
        return int(self.step.size1_in(4))

    def modes(self, x: Array) -> Array:
        """Sixth input of `step` at states (K, nx), (K, nm); (K, 0) without modes."""
        return np.zeros((len(x), 0)) if self.mode is None else np.asarray(self.mode(x), dtype=np.float64)

    def evaluate(self, x: Array, u: Array, p: Array, y: Array, z: Array) -> tuple[Array, Array]:
        """g and f of B steps, arrays (B, ...)."""
        inputs = [x, u, p, y, z] if self.mode is None else [x, u, p, y, z, self.modes(x)]
        g, f = self.step(*(part.T for part in inputs))
        return np.array(g).T, np.array(f).T

    def residual(self, x: Array, u: Array, p: Array, y: Array, z: Array) -> NDArray[np.float64]:
        """Largest of |g| and |min(z, f)| of B steps: arrays (B, ...) -> (B,)."""
        g, f = self.evaluate(x, u, p, y, z)
        return np.asarray(np.maximum(np.abs(g).max(axis=1), np.abs(np.minimum(z, f)).max(axis=1, initial=0.0)))
