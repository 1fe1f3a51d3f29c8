"""Numba kernels over rows: the counterpart of `engines.warp.engine` for systems whose step is a small dense solver per row.

A kernel is compiled when it is first called (some seconds; then cached on disk) and releases the GIL, so that large batches run
in threads. Rows never interact: how they are spread over threads changes no bit. Legend: B batch, T horizon, P parameters.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numba import types

from ...core.base import RolledSimulator, pull_back
from ...core.parameters import Parameters
from ...core.simulator import Array, Gradient, IntArray, Linearization
from ..kernel_cache import CheckedCache
from ..threads import in_threads

MIN_STEPS_PER_THREAD = 100
"""Physics steps (over all rows) below which another thread does not pay."""

PIECES = 4
"""Pieces of the rows per thread: rows take unequal time."""


def kernel(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorator of functions that Python calls: compiled on the first call, then loaded from a checked cache.

    A compilation that makes the caller wait is reported on stderr.
    """
    if function is None:
        return partial(kernel, **options)
    made: Any = numba.njit(function, nogil=True, error_model="numpy", **options)
    made._cache = CheckedCache(function, announced=not options.get("no_cpython_wrapper", False))
    template = made.get_call_template
    made.get_call_template = lambda args, kws: template([types.unliteral(arg) for arg in args], kws)  # one code for all values
    return made


inner: Callable[..., Any] = partial(kernel, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Decorator of functions that only kernels call: without a Python wrapper they compile faster."""

LEAN: Any = {"_nrt": False, "error_model": "numpy"}
"""Options of `lean` functions for Numba's `overload`."""
lean: Callable[..., Any] = partial(inner, _nrt=False)
"""Like `inner`, for functions that make and return no arrays (Numba refuses others): references are not counted.

Otherwise every call counts the references of all its array arguments: half the time of tree mechanics."""


def plain(value: Any) -> Any:
    """Convert nested NamedTuples to plain tuples, which Numba reads 0.7 us faster each in a call of a kernel."""
    return tuple(plain(part) for part in value) if isinstance(value, tuple) else value


@dataclass(frozen=True, eq=False)
class NumbaEngine:
    """Batched control steps by two kernels.

    Args:
        forward: (structure, state (B, nx), controls (B, T, nu), parameters (B, P), substeps, states (B, T+1, nx), status (B,)).
        derivative: (structure, state, control (B, nu), parameters, substeps, A, B, C); writes NaN into a row that fails.
        structure: Data shared by all rows, as the kernels expect it.
        nx: Length of a state.
        nu: Number of controls.
        lanes: Rows that `forward` steps together; see `lanes`.
    """

    forward: Callable[..., None]
    derivative: Callable[..., None]
    structure: Any
    nx: int
    nu: int
    lanes: int = 1
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)

    def rollout(self, state: Array, controls: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """(B, nx), (B, T, nu), (B, P) -> states (B, T+1, nx), status (B,)."""
        states = np.empty((len(state), controls.shape[1] + 1, self.nx))
        status = np.zeros(len(state), dtype=np.int32)  # Status.OK
        if len(state) == 1:
            self.forward(self.structure, state, controls, parameter_values, substeps, states, status)
            return states, status

        def run(rows: slice) -> None:
            arguments = (state[rows], controls[rows], parameter_values[rows], substeps, states[rows], status[rows])
            self.forward(self.structure, *arguments)

        spread(run, len(state), controls.shape[1] * substeps, self.threads, self.lanes)
        return states, status

    def linearize(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> Linearization:
        """Derivatives of one control step with respect to the numbers of a state, (B, nx, nx), (B, nx, nu), (B, nx, P)."""
        sizes = (self.nx, self.nu, parameter_values.shape[1])
        found = Linearization(*(np.empty((len(state), self.nx, size)) for size in sizes))

        def run(rows: slice) -> None:
            arguments = (state[rows], control[rows], parameter_values[rows], substeps)
            self.derivative(self.structure, *arguments, *(part[rows] for part in found))

        spread(run, len(state), substeps * sum(sizes), self.threads)
        return found


class NumbaSimulator(RolledSimulator):
    """A simulator with numba kernels for its steps and for their derivatives; see `core.simulator.Differentiable`."""

    exact = True

    @property
    @abstractmethod
    def engine(self) -> NumbaEngine:
        """The numba side of this simulator."""

    def vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Gradient:
        """See `Differentiable.vjp`; by the chain rule over the control steps."""
        state, controls, parameter_values, cotangent = self._checked_cotangent(state, controls, cotangent, parameters, substeps)
        given = self.parameters_class.from_vector(parameter_values)
        return pull_back(self, self.layout, state, controls, cotangent, given, int(substeps))

    def _linearize(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> Linearization:
        A, B, C = self.engine.linearize(state, control, self._columns(parameter_values), substeps)
        C = C[:, :, : parameter_values.shape[1]]
        if self.layout.is_flat:
            return Linearization(A, B, C)
        out_of = self.layout.difference_jacobian(self._step(state, control, parameter_values, substeps)[0])
        return Linearization(out_of @ A @ self.layout.retract_jacobian(state), out_of @ B, out_of @ C)


def spread(run: Callable[[slice], None], rows: int, work_per_row: int, threads: int | None = None, lanes: int = 1) -> None:
    """Call `run` for all rows, in threads where they pay; a free thread takes the next piece. Work is in physics steps.

    Pieces are of whole groups of `lanes` rows.
    """
    threads, groups = threads or os.cpu_count() or 1, -(-rows // lanes)
    count = min(threads, groups, rows * work_per_row // MIN_STEPS_PER_THREAD)
    if count <= 1:
        run(slice(0, rows))
        return
    edges = np.minimum(lanes * np.linspace(0, groups, min(PIECES * count, groups) + 1).astype(int), rows)
    in_threads(run, [slice(a, b) for a, b in pairwise(edges)], threads)
