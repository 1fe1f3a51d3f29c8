r"""Many steps of a symbolic physics step: derivatives as numbers, or one nonlinear program.

Unknowns of the program are decisions theta (parameters that are fitted, for instance; perhaps none), and of every arc the
states x_0 ... x_K of its physics steps, its controls where they are free, and the pairs z_1 ... z_K of contact:

.. math::
   \min J(\theta, x, u) \quad\text{s.t.}\quad g(x_k, u_k, p(\theta), x_{k+1}, z_{k+1}) = 0, \; 0 \le z \perp f \ge 0

The contact schedule is *given* (of every pair one number is zero, and it is known which one) or *found*: z, f >= 0 and
z f <= tau, with tau driven to almost zero (Scholtes 2001). IPOPT solves it with exact derivatives. The mode of the step's form
(the number of links of a growing robot) is that of the guess; if a solution has another mode, it is solved again with that.
`sysid.fitting.simultaneous` fits parameters with it, `sysid.fitting.mpec` uses its derivatives; optimal control frees the
controls.

Legend: K physics steps, nx state, nu control, nz pairs, P parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .complementarity import ComplementarityForm
from .errors import OptionError, needed
from .simulator import Array
from .step_derivatives import HeldSteps, derivatives

DERIVATIVES = {"grad_f": "grad_f", "jac_g": "jac_g", "hess_lag": "hess_l"}
"""Option of a solver -> function of an earlier solver that is reused."""
ROUNDS = 4
"""Largest number of modes tried."""
LATE = "Maximum_CpuTime_Exceeded"
"""IPOPT's status when its time is over."""
SHORTEST = 1e-3
"""Shortest time limit of IPOPT [s]."""


def casadi() -> Any:
    """Import CasADi.

    Raises:
        MissingDependencyError: CasADi is not installed.
    """
    with needed("symbolic steps need CasADi", "sysid"):
        import casadi as module
    return module


# --- derivatives of many steps ------------------------------------------------------------------------------------------


def evaluated_steps(form: ComplementarityForm, inputs: tuple[Array, ...]) -> Array:
    """[g; f] of K steps (K, nx + nz), as from `linearized_steps`, without the derivative.

    Args:
        form: The physics step, without modes.
        inputs: x (K, nx), u (K, nu), p (K, P), x+ (K, nx), z (K, nz).
    """
    function, steps = _mapped(form, len(inputs[0]), False), len(inputs[0])
    value = np.empty((steps, function.size1_out(0)))
    _fill(function, inputs, value)
    return value


def linearized_steps(form: ComplementarityForm, inputs: tuple[Array, ...]) -> tuple[Array, Array]:
    """[g; f] of K steps (K, nx + nz), and its derivative by (x, x+, z, p): through CasADi's buffers, without copies.

    Args:
        form: The physics step, without modes.
        inputs: x (K, nx), u (K, nu), p (K, P), x+ (K, nx), z (K, nz).
    """
    function, steps = _mapped(form, len(inputs[0]), True), len(inputs[0])
    rows = function.size1_out(0)
    value, jacobian = np.empty((steps, rows)), np.empty((steps, function.size2_out(1) // steps, rows))
    _fill(function, inputs, value, jacobian)
    return value, np.swapaxes(jacobian, 1, 2)


def _fill(function: Any, inputs: tuple[Array, ...], *results: Array) -> None:
    """Evaluate a function and write into the results."""
    given = [np.ascontiguousarray(values) for values in inputs]
    buffer, run = function.buffer()
    for index, array in enumerate(given):
        buffer.set_arg(index, array.data)
    for index, array in enumerate(results):
        buffer.set_res(index, array.data)
    run()


@lru_cache(maxsize=64)
def _mapped(form: ComplementarityForm, steps: int, derivative: bool) -> Any:
    """(x, u, p, x+, z), a column per step -> [g; f], and its derivative by (x, x+, z, p), side by side."""
    ca = casadi()
    x, u, p, y, z = (ca.SX.sym(name, form.step.size1_in(i)) for i, name in enumerate(("x", "u", "p", "y", "z")))
    results = [ca.vertcat(*form.step(x, u, p, y, z))]
    if derivative:
        results.append(ca.densify(ca.jacobian(results[0], ca.vertcat(x, y, z, p))))
    return ca.Function("constraints", [x, u, p, y, z], results).map(steps)


# --- the nonlinear program ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Arc:
    """One stretch of K physics steps.

    Raises:
        OptionError: Shapes do not fit together.
    """

    path: Array
    """(K+1, nx) guess of the states."""
    controls: Array
    """(K, nu) given controls; where they are free, their guess."""
    control_bounds: tuple[Array, Array] | None = None
    """Lower and upper (nu,) of free controls; None: controls are given."""
    hold: int = 1
    """Physics steps for which a free control is held."""
    fixed_start: bool = False
    """Whether x_0 is path[0]."""
    state_bounds: tuple[Array, Array] | None = None
    """Lower and upper (K+1, nx), infinite where there is none, equal where a state is given; None: no bounds."""
    pairs: Array | None = None
    """(K, nz) guess of the pairs; None: see `Transcription.first_guess`."""
    schedule: NDArray[np.bool_] | None = None
    """(K, nz): True where f = 0 (a contact touches, a slider slides), False where z = 0; None: it is found."""

    def __post_init__(self) -> None:
        steps = len(self.controls)
        if len(self.path) != steps + 1 or self.hold < 1 or steps % self.hold:
            raise OptionError(
                f"an arc has {len(self.path)} states for {steps} controls, each held for {self.hold} steps; expected one state "
                "more than controls, and a whole number of holds"
            )
        if self.state_bounds is not None and any(side.shape != self.path.shape for side in self.state_bounds):
            raise OptionError(
                f"state_bounds have shapes {[side.shape for side in self.state_bounds]}, expected {self.path.shape}"
            )

    @property
    def num_free(self) -> int:
        """Numbers of free controls."""
        return 0 if self.control_bounds is None else self.controls[:: self.hold].size


@dataclass(frozen=True, eq=False)
class Decisions:
    """Unknowns other than states, controls and pairs."""

    lower: Array
    upper: Array
    initial_guess: Array
    parameter_values: Callable[[Any], Any]
    """casadi.MX theta -> all parameters of the step (P,)."""


class Symbols(NamedTuple):
    """Unknowns as casadi.MX, for the objective."""

    theta: Any
    states: tuple[Any, ...]
    """(nx, K+1) per arc."""
    controls: tuple[Any, ...]
    """(nu, K) per arc: symbols where they are free, else numbers."""


class Piece(NamedTuple):
    """Numbers of one arc."""

    states: Array
    """(K+1, nx)"""
    controls: Array
    """(K, nu)"""
    pairs: Array
    """(K, nz)"""


class Solution(NamedTuple):
    """Solution found by IPOPT."""

    theta: Array
    pieces: tuple[Piece, ...]
    objective: float
    iterations: int
    solved: bool
    message: str


class Transcription:
    """The program of all arcs; see the module docstring.

    Args:
        form: The physics step.
        arcs: At least one; they share the decisions.
        objective: Unknowns -> objective to minimise.
        decisions: Unknowns that all arcs share.
        nominal: (P,) parameters that rows are scaled with.
        expand: Whether all steps are written out before they are differentiated: longer to build and faster to solve. Ignored
            where derivatives are made of one step's: for one arc without decisions, with free controls and contacts.

    Raises:
        MissingDependencyError: CasADi is not installed.
        OptionError: A schedule does not fit its arc.
    """

    def __init__(
        self,
        form: ComplementarityForm,
        arcs: Sequence[Arc],
        objective: Callable[[Symbols], Any],
        *,
        decisions: Decisions,
        nominal: Array,
        expand: bool = False,
    ) -> None:
        self.ca, self.form, self.arcs, self.objective = casadi(), form, tuple(arcs), objective
        self.decisions, self.nominal, self.expand = decisions, nominal, expand
        self.build_seconds, self._end = 0.0, np.inf
        """Processor time spent on making solvers so far [s]."""
        self.nx = int(form.step.size1_in(0))
        shapes = [(len(arc.controls), form.nz) for arc in self.arcs]
        given = [None if arc.schedule is None else arc.schedule.shape for arc in self.arcs]
        if any(shape is not None and shape != wanted for shape, wanted in zip(given, shapes, strict=True)):
            raise OptionError(f"schedule has shapes {given}, expected {shapes}")
        self.modes = [form.modes(arc.path[:-1]) for arc in self.arcs]
        self._build()

    def solve(self, taus: Sequence[float], *, iterations: int, seconds: float = np.inf) -> Solution:
        """Solve from the guess through all taus; repeat the last one while modes change.

        Args:
            taus: Largest products of a pair, one program after the other; only the last counts where there is nothing to find.
            iterations: Largest number of IPOPT's iterations per program.
            seconds: Largest processor time in all.
        """
        unknowns, used, self._end = self.first_guess(taus[0]), 0, time.process_time() + seconds
        for _ in range(ROUNDS):
            unknowns, more, stats = self._search(unknowns, taus, iterations)
            used, taus = used + more, taus[-1:]
            if stats["return_status"] == LATE or not self._take_modes(unknowns):
                message = str(stats["return_status"]).replace("_", " ")
                return self._solution(unknowns, used, bool(stats["success"]), message)
        return self._solution(unknowns, used, False, f"modes change for the {ROUNDS}th time")

    # --- building -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Build symbols, objective, and constraints with the signs of their bounds."""
        ca, decisions = self.ca, self.decisions
        theta, self.tau = ca.MX.sym("theta", len(decisions.initial_guess)), ca.MX.sym("tau")
        parameter_values, unknowns = decisions.parameter_values(theta), [theta]
        lower, upper = [decisions.lower], [decisions.upper]
        rows: list[Any] = []
        kinds: list[Array] = []
        states, controls = [], []
        for index, arc in enumerate(self.arcs):
            x, u, z, free = self._symbols(index, arc)
            unknowns += [ca.vec(x), *free, ca.vec(z)]
            self._constrain(index, arc, x, u, z, parameter_values, rows, kinds)
            for side, bounds in ((0, lower), (1, upper)):
                bounds += self._bounds(arc, side)
            states.append(x)
            controls.append(u)
        kind = np.concatenate(kinds)  # 0: = 0, 1: >= 0, -1: <= 0
        self.bounds = {
            "lbx": np.concatenate(lower), "ubx": np.concatenate(upper),
            "lbg": np.where(kind < 0, -np.inf, 0.0), "ubg": np.where(kind > 0, np.inf, 0.0),
        }  # fmt: skip
        cost = self.objective(Symbols(theta, tuple(states), tuple(controls)))
        self._derivatives: dict[str, Any] = {}
        self.nlp = {"x": ca.vertcat(*unknowns), "p": self.tau, "f": cost, "g": ca.vertcat(*rows)}

    def _symbols(self, index: int, arc: Arc) -> tuple[Any, Any, Any, list[Any]]:
        """States, controls of every physics step, pairs; and the free controls as a list of one vector, or none."""
        ca, count = self.ca, len(arc.controls)
        x, z = ca.MX.sym(f"x{index}", self.nx, count + 1), ca.MX.sym(f"z{index}", self.form.nz, count)
        if arc.control_bounds is None:
            return x, ca.DM(arc.controls.T), z, []
        held = ca.MX.sym(f"u{index}", arc.controls.shape[1], count // arc.hold)
        return x, ca.kron(held, ca.MX.ones(1, arc.hold)), z, [ca.vec(held)]

    def _constrain(
        self, index: int, arc: Arc, x: Any, u: Any, z: Any, parameter_values: Any, rows: list[Any], kinds: list[Array]
    ) -> None:
        """Append the step's equations of one arc, and its pairs."""
        ca, form, count = self.ca, self.form, len(arc.controls)
        mode = [] if form.mode is None else [ca.DM(self.modes[index].T)]
        g, f = form.step.map(count)(x[:, :-1], u, ca.repmat(parameter_values, 1, count), x[:, 1:], z, *mode)
        rows.append(ca.vec(ca.repmat(ca.DM(self._scale(index)), 1, count) * g))
        kinds.append(np.zeros(self.nx * count))
        if form.nz and arc.schedule is None:
            rows += [ca.vec(f), ca.vec(z * f) - self.tau]
            kinds += [np.ones(f.numel()), -np.ones(f.numel())]
        elif form.nz and arc.schedule is not None:
            rows.append(ca.vec(f))
            kinds.append(np.where(arc.schedule, 0.0, 1.0).ravel())

    def _bounds(self, arc: Arc, side: int) -> list[Array]:
        """Lower (side 0) or upper (1) bounds of an arc's unknowns, in their order."""
        count, infinite = len(arc.controls), (-np.inf, np.inf)[side]
        found = [np.full((count + 1, self.nx), infinite) if arc.state_bounds is None else arc.state_bounds[side].copy()]
        if arc.fixed_start:
            found[0][0] = arc.path[0]
        found[0] = found[0].ravel()
        if arc.control_bounds is not None:
            found.append(np.tile(arc.control_bounds[side], count // arc.hold))
        pairs = np.zeros((count, self.form.nz)) if side == 0 else np.full((count, self.form.nz), np.inf)
        if side == 1 and arc.schedule is not None:
            pairs[~arc.schedule] = 0.0
        return [*found, pairs.ravel()]

    def _scale(self, index: int) -> Array:
        """(nx,): one over the largest derivative of every row of g by the next state, at rest: scales forces and angles."""
        ca, form, nx, arc = self.ca, self.form, self.nx, self.arcs[index]
        x, z, u = ca.MX.sym("x", nx), ca.MX.sym("z", form.nz), ca.DM(arc.controls[0])
        y, p = ca.MX.sym("y", nx), ca.DM(self.nominal)
        mode = [] if form.mode is None else [ca.DM(self.modes[index][0])]
        jacobian = ca.Function("scale", [x, y, z], [ca.jacobian(form.step(x, u, p, y, z, *mode)[0], y)])
        size = np.abs(np.array(jacobian(arc.path[0], arc.path[0], np.zeros(form.nz)))).max(axis=1)
        return np.asarray(1.0 / np.where(size > 0, size, 1.0))

    # --- guesses ------------------------------------------------------------------------------------------------------

    def first_guess(self, tau: float) -> Array:
        """Decisions, paths, pairs as given. Missing pairs are sqrt(tau); with a schedule, those that fit the equations best."""
        parts = [self.decisions.initial_guess]
        for index, arc in enumerate(self.arcs):
            z = np.full((len(arc.controls), self.form.nz), np.sqrt(tau)) if arc.pairs is None else arc.pairs
            free = [] if arc.control_bounds is None else [arc.controls[:: arc.hold].ravel()]
            if arc.schedule is not None and arc.pairs is None:
                z = self._fitting(index, arc.schedule)
            parts += [arc.path.ravel(), *free, z.ravel()]
        return np.concatenate(parts)

    def _fitting(self, index: int, touching: NDArray[np.bool_]) -> Array:
        """Pairs (K, nz) of the guess: least squares in g = 0, and f = 0 where the schedule says so; both are linear in z."""
        ca, form, arc = self.ca, self.form, self.arcs[index]
        inputs = [ca.MX.sym(name, form.step.size1_in(i)) for i, name in enumerate(form.step.name_in())]
        g, f = form.step(*inputs)
        value = ca.vertcat(ca.DM(self._scale(index)) * g, f)
        count, nz = len(touching), form.nz
        function = ca.Function("value", inputs, [value, ca.densify(ca.jacobian(value, inputs[4]))]).map(count)
        parameter_values = np.tile(self.nominal, (count, 1))
        given = [arc.path[:-1], arc.controls, parameter_values, arc.path[1:], np.zeros((count, nz)), self.modes[index]]
        values, slopes = (np.array(part) for part in function(*(part.T for part in given[: len(inputs)])))
        z = np.zeros((count, nz))
        for k, closed in enumerate(touching):
            rows = np.concatenate([np.full(self.nx, True), closed])
            slope = slopes[:, nz * k : nz * (k + 1)][np.ix_(rows, closed)]
            z[k, closed] = np.maximum(-np.linalg.lstsq(slope, values[rows, k], rcond=None)[0], 0.0)
        return z

    # --- solving ------------------------------------------------------------------------------------------------------

    def _search(self, unknowns: Array, taus: Sequence[float], limit: int) -> tuple[Array, int, Any]:
        """Solve one program after the other, warm-started; -> unknowns, iterations, IPOPT's report on the last one."""
        duals: dict[str, Array] = {}
        iterations = 0
        found = self.form.nz and any(arc.schedule is None for arc in self.arcs)
        for tau in taus if found else taus[-1:]:
            unknowns, duals, stats = self._run(unknowns, duals, tau, limit)
            iterations += int(stats["iter_count"])
            if stats["return_status"] == LATE:
                break
        return unknowns, iterations, stats

    def _take_modes(self, unknowns: Array) -> bool:
        """Take over the modes of the states; -> whether they differ from those that were solved with."""
        modes = [self.form.modes(piece.states[:-1]) for piece in self.pieces(unknowns)]
        if all(np.array_equal(old, new) for old, new in zip(self.modes, modes, strict=True)):
            return False
        self.modes = modes
        self._build()
        return True

    def _run(self, unknowns: Array, duals: dict[str, Array], tau: float, limit: int) -> tuple[Array, dict[str, Array], Any]:
        """Solve one program from a guess; warm-started if there are multipliers."""
        settings = {"print_level": 0, "sb": "yes", "max_iter": limit, "tol": 1e-8}
        if np.isfinite(self._end):
            settings["max_cpu_time"] = max(self._end - time.process_time(), SHORTEST)
        if duals:
            settings |= {"warm_start_init_point": "yes", "mu_init": min(0.1 * tau, 1e-2)}
        began = time.process_time()
        made = self._of_steps() or ({"expand": True, **self._derivatives} if self.expand else {})
        solver = self.ca.nlpsol("fit", "ipopt", self.nlp, {"ipopt": settings, "print_time": False, **made})
        if "expand" in made:
            self._derivatives = {name: solver.get_function(f"nlp_{of}") for name, of in DERIVATIVES.items()}
        self.build_seconds += time.process_time() - began
        found = solver(x0=unknowns, p=tau, **self.bounds, **duals)
        kept = {"lam_x0": np.array(found["lam_x"]).ravel(), "lam_g0": np.array(found["lam_g"]).ravel()}
        return np.array(found["x"]).ravel(), kept, solver.stats()

    def _of_steps(self) -> dict[str, Any]:
        """Derivatives from those of one step; {} for other programs."""
        arc = self.arcs[0]
        simple = len(self.arcs) == 1 and not len(self.decisions.initial_guess) and arc.control_bounds is not None
        if not simple or arc.schedule is not None or self.form.mode is not None or not self.form.step.is_a("SXFunction"):
            return {}
        if not self._derivatives:
            theta = self.ca.MX.sym("theta", 0)
            parameter_values = self.ca.Function("parameters", [theta], [self.decisions.parameter_values(theta)])(np.zeros(0))
            steps = HeldSteps(self.form.step, parameter_values, self._scale(0), len(arc.controls), arc.hold)
            self._derivatives = derivatives(self.ca, steps, self.nlp)
        return self._derivatives

    def pieces(self, unknowns: Array) -> tuple[Piece, ...]:
        """States, controls and pairs of every arc."""
        nx, nz, place, parts = self.nx, self.form.nz, len(self.decisions.initial_guess), []
        for arc in self.arcs:
            count = len(arc.controls)
            sizes = np.cumsum([nx * (count + 1), arc.num_free, nz * count])
            x, u, z = np.split(unknowns[place : place + sizes[-1]], sizes[:-1])
            held = arc.controls if not u.size else np.repeat(u.reshape(count // arc.hold, -1), arc.hold, axis=0)
            parts.append(Piece(x.reshape(count + 1, nx), held, z.reshape(count, nz)))
            place += sizes[-1]
        return tuple(parts)

    def _solution(self, unknowns: Array, iterations: int, solved: bool, message: str) -> Solution:
        """Solution with named unknowns."""
        theta = np.clip(unknowns[: len(self.decisions.initial_guess)], self.decisions.lower, self.decisions.upper)
        value = self.ca.Function("objective", [self.nlp["x"]], [self.nlp["f"]])
        return Solution(theta, self.pieces(unknowns), float(value(unknowns)), iterations, solved, message)
