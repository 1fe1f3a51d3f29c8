r"""Optimal control of any robot with a symbolic step, by direct transcription into one nonlinear program [Leyendecker2010].

.. math:: \min_{x, u} \sum_k h\, \bigl(w_e |\bar u_k|^2 + w_s |\bar u_{k+1} - \bar u_k|^2 / h^2\bigr)

subject to the step's equations, to x_0 and the entries of x_K that are given, and to bounds on states and controls; u-bar is a
control over its range. Where no such motion exists, the nearest one is returned with a sentence on what is missing. States are
unknowns too ("lifted"), so that long motions stay well conditioned. It starts from a minimum-jerk path between start and end
with the controls that drive it (where the step is linear in them), or from another plan on a finer or coarser grid, which makes
a refinement of the mesh. IPOPT solves it with exact derivatives; pairs of contact are relaxed and driven to zero as in
`core.transcription`.

Legend: K steps, nx state, nu control, nz pairs, P parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import OptionError, ShapeError, shown
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Symbolic, as_numbers, check_array, check_number
from softgym_envs.core.transcription import Arc, Decisions, Symbols, Transcription, casadi

from .first_guess import driving_controls, minimum_jerk, rates_of, resample

MOST_NODES = 90_000
"""Most nodes of expressions to write out for all steps; longer programs take longer to build than it saves in solving them."""
NEAREST, MISSED = 1e4, 1e-2
"""Weight of an end that cannot be met; error above which it counts as missed."""
LOOSENING = (1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
"""Largest products of a pair, in consecutive programs: with the last one at once, a block of 99 pairs is not solved."""
TIMED_OUT = "Maximum CpuTime Exceeded"
WORDS = {
    "Solve Succeeded": "solved",
    "Solved To Acceptable Level": "solved, to a looser tolerance",
    "Infeasible Problem Detected": "no motion meets these conditions",
    "Maximum Iterations Exceeded": "not solved in so many iterations: allow more, or start from a better guess",
    TIMED_OUT: "not solved in so many seconds: allow more, or ask for fewer steps (a larger dt)",
    "Restoration Failed": "no motion was found that obeys the equations: start from a better guess",
}
"""IPOPT's status -> one sentence for people."""


@dataclass(frozen=True, eq=False)
class Manoeuvre:
    """The problem of optimal control; lists of numbers become arrays.

    Raises:
        ShapeError: A field is no array of numbers.
        OptionError: Shapes do not fit together, or the start or end is outside of the bounds.
    """

    start: Array
    """(nx,)"""
    end: Array
    """(nx,); NaN where it is free."""
    steps: int
    """K physics steps."""
    control_bounds: tuple[Array, Array]
    """Lower and upper (nu,)."""
    state_bounds: tuple[Array, Array] | None = None
    """Lower and upper (nx,) on the way; infinite where there are none."""
    effort: float = 1.0
    """w_e"""
    smoothness: float = 0.0
    """w_s [s^2]"""
    end_weight: float = np.inf
    """Weight of the squared error of the end; infinite: the end is met exactly."""

    def __post_init__(self) -> None:
        check_number("steps", self.steps, low=2, whole=True)
        for name in ("effort", "smoothness"):
            check_number(name, getattr(self, name), low=0.0)
        if not self.end_weight > 0:
            raise OptionError(f"end_weight is {self.end_weight}, expected a number > 0, or infinity")
        for name in ("start", "end"):
            object.__setattr__(self, name, as_numbers(name, getattr(self, name)))
        for name in ("control_bounds", "state_bounds"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _sides(name, getattr(self, name)))
        if self.start.shape != self.end.shape or self.start.ndim != 1 or not np.isfinite(self.start).all():
            raise OptionError(
                f"start has shape {self.start.shape}, end {self.end.shape}; expected two states, the first one finite"
            )
        if self.state_bounds is not None:
            low, high = self.state_bounds
            if low.shape != self.start.shape:
                raise OptionError(f"state_bounds have shape {low.shape}, expected {self.start.shape} each, as the states")
            for name, state in (("start", self.start), ("end", self.end)):
                outside = np.flatnonzero((state < low - 1e-9) | (state > high + 1e-9))
                if len(outside):
                    i = int(outside[0])
                    raise OptionError(
                        f"{name}[{i}] is {state[i]:g}, outside of its bounds [{low[i]:g}, {high[i]:g}]: out of reach"
                    )

    def bounds(self) -> tuple[Array, Array]:
        """Bounds of all states, (K + 1, nx) each."""
        sides = []
        for side, infinite in ((0, -np.inf), (1, np.inf)):
            row = np.full(len(self.start), infinite) if self.state_bounds is None else self.state_bounds[side]
            rows = np.tile(row, (self.steps + 1, 1))
            rows[0] = self.start
            if np.isinf(self.end_weight):
                rows[-1] = np.where(np.isfinite(self.end), self.end, rows[-1])
            sides.append(rows)
        return sides[0], sides[1]


def _sides(name: str, value: Any) -> tuple[Array, Array]:
    """Lower and upper bounds of equal shape."""
    try:
        low, high = (as_numbers(name, side) for side in value)
    except (TypeError, ValueError, ShapeError):
        low, high = np.zeros(0), np.zeros(1)
    if low.shape != high.shape or low.ndim != 1 or not (low <= high).all():
        raise OptionError(f"{name} is {shown(value)}, expected (lowest, highest), as many numbers each")
    return low, high


@dataclass(frozen=True, eq=False)
class OptimalMotion:
    """Result of optimal control."""

    states: Array
    """(K + 1, nx)"""
    controls: Array
    """(K, nu)"""
    pairs: Array
    """(K, nz)"""
    objective: float
    solved: bool
    message: str
    """PlanOutcome in one sentence."""
    iterations: int
    build_seconds: float
    """Processor time to build the program and its derivatives."""
    solve_seconds: float
    """Processor time to solve it."""
    error: float
    """Largest error of the step's equations, or product of a pair."""
    dt: float
    """Step [s]."""
    timed_out: bool = False
    """Whether IPOPT used up its processor time."""


def plan_motion(
    simulator: Symbolic,
    manoeuvre: Manoeuvre,
    *,
    parameters: Parameters | None = None,
    initial_guess: OptimalMotion | None = None,
    iterations: int = 500,
    seconds: float = 60.0,
) -> OptimalMotion:
    """Plan the optimal motion of a simulator of any system.

    Args:
        simulator: Simulator with a symbolic step.
        manoeuvre: The problem.
        parameters: Parameters, one row; None: the defaults.
        initial_guess: A motion on any grid to start from; None: minimum jerk.
        iterations: Most iterations of IPOPT.
        seconds: Most processor time of IPOPT; as much again may be spent on explaining an end that is not reached.

    Raises:
        OptionError: The simulator has no symbolic step, or `manoeuvre` does not fit it.
    """
    if not isinstance(simulator, Symbolic):
        raise OptionError(f"{type(simulator).__name__} has no symbolic step; optimal control needs one")
    if manoeuvre.start.shape != (simulator.nx,):
        raise OptionError(f"start has shape {manoeuvre.start.shape}, expected {(simulator.nx,)}")
    if manoeuvre.control_bounds[0].shape != (simulator.nu,):
        raise OptionError(f"control_bounds have shape {manoeuvre.control_bounds[0].shape}, expected {(simulator.nu,)} each")
    began = time.process_time()
    form = simulator.symbolic_step()
    parameter_values = (parameters or simulator.default_parameters).to_matrix(1)[0]
    path = minimum_jerk(manoeuvre.start, manoeuvre.end, manoeuvre.steps, rates_of(simulator), simulator.dt)
    if initial_guess is not None:
        path = resample(initial_guess.states, manoeuvre.steps + 1)
    driving = driving_controls(form, path, parameter_values, manoeuvre.control_bounds) if initial_guess is None else None
    controls = driving if initial_guess is None else resample(initial_guess.controls, manoeuvre.steps)
    limits: dict[str, Any] = {"iterations": iterations, "seconds": seconds}
    found = solve_form(form, manoeuvre, simulator.dt, parameter_values, path, controls, began=began, **limits)
    if found.solved or not np.isinf(manoeuvre.end_weight):
        return found
    return replace(found, message=f"{found.message}; {diagnostic(simulator, manoeuvre, parameters=parameters, **limits)}")


def diagnostic(
    simulator: Symbolic,
    manoeuvre: Manoeuvre,
    *,
    parameters: Parameters | None = None,
    iterations: int = 500,
    seconds: float = 60.0,
) -> str:
    """Sentence on whether the end can be reached: how near to it a motion comes, and which controls are at their limits."""
    soft = replace(manoeuvre, end_weight=NEAREST)
    idle = np.tile(np.clip(0.0, *manoeuvre.control_bounds), (manoeuvre.steps, 1))
    states, _ = simulator.rollout(manoeuvre.start[None], idle[None], parameters)  # obeys the equations, whatever the end
    initial_guess = OptimalMotion(states[0], idle, np.zeros((0, 0)), np.inf, False, "", 0, 0.0, 0.0, np.inf, simulator.dt)
    found = plan_motion(
        simulator, soft, parameters=parameters, initial_guess=initial_guess, iterations=iterations, seconds=seconds
    )
    if found.timed_out:
        return "nor was it found in as much time how near to the end a motion comes"
    if not found.solved:
        return "nor was a motion found that ends near: the start or the bounds on the way may be at fault"
    missed = np.where(np.isfinite(manoeuvre.end), found.states[-1] - manoeuvre.end, 0.0)
    worst = int(np.abs(missed).argmax())
    seconds, names = found.dt * manoeuvre.steps, simulator.state_names
    if abs(missed[worst]) < MISSED:
        return f"a motion of {seconds:.3g} s comes within {abs(missed[worst]):.1g} of the end: start from another guess"
    low, high = manoeuvre.control_bounds
    near = 0.01 * (high - low)
    full = np.mean((found.controls <= low + near) | (found.controls >= high - near), axis=0)
    busy = [f"{simulator.control_names[i]} {100 * full[i]:.0f} %" for i in np.argsort(-full)[:3] if full[i] > 0.3]
    limits = f"; of the time at their limits: {', '.join(busy)}" if busy else "; no control is at its limit for long"
    ends = f"{names[worst]} ends at {found.states[-1, worst]:.4g} where {manoeuvre.end[worst]:.4g} is asked"
    return f"in {seconds:.3g} s, at the nearest, {ends}{limits}. Give more time, wider bounds or another end"


def solve_form(
    form: ComplementarityForm,
    manoeuvre: Manoeuvre,
    dt: float,
    parameter_values: Array,
    path: Array,
    controls: Array | None = None,
    *,
    pairs: Array | None = None,
    taus: Sequence[float] = LOOSENING,
    iterations: int = 500,
    seconds: float = np.inf,
    began: float | None = None,
    cost: Callable[[Symbols], Any] | None = None,
) -> OptimalMotion:
    """Plan the optimal motion of any symbolic step.

    Args:
        form: The step.
        manoeuvre: The problem.
        dt: Length of the step [s].
        parameter_values: (P,).
        path: (K + 1, nx) guess of the states.
        controls: (K, nu) guess; None: a tenth of the range above the lower bound.
        pairs: (K, nz) guess.
        taus: Largest products of a pair, in consecutive programs.
        iterations: Most iterations of IPOPT per program.
        seconds: Most processor time of all programs.
        began: Start of the building, if not now.
        cost: Objective to minimise; None: the manoeuvre's effort, smoothness and weighted end.
    """
    began = time.process_time() if began is None else began
    low, high = manoeuvre.control_bounds
    nx, steps = form.step.size1_in(0), manoeuvre.steps
    path = check_array("path", path, (steps + 1, nx))
    given = (
        np.tile(low + 0.1 * (high - low), (steps, 1))
        if controls is None
        else check_array("controls", controls, (steps, len(low)))
    )
    lower, upper = manoeuvre.bounds()
    arc = Arc(np.clip(path, lower, upper), np.clip(given, low, high), (low, high), state_bounds=(lower, upper), pairs=pairs)
    nothing = Decisions(np.zeros(0), np.zeros(0), np.zeros(0), lambda theta: casadi().DM(parameter_values))
    objective = _objective(manoeuvre, dt) if cost is None else cost
    expand = form.step.n_nodes() * steps < MOST_NODES
    program = Transcription(form, (arc,), objective, decisions=nothing, nominal=parameter_values, expand=expand)
    built = time.process_time()
    found = program.solve(taus, iterations=iterations, seconds=seconds)
    solved, piece = time.process_time(), found.pieces[0]
    rows = np.tile(parameter_values, (steps, 1))
    g, f = form.evaluate(piece.states[:-1], piece.controls, rows, piece.states[1:], piece.pairs)
    error = max(np.abs(g).max(initial=0.0), np.abs(piece.pairs * f).max(initial=0.0))
    message = WORDS.get(found.message, found.message)
    if not found.solved:
        k, i = np.unravel_index(np.abs(g).argmax(), g.shape)
        message += f" (largest error {np.abs(g).max():.2g} in equation {i} of step {k})"
    return OptimalMotion(
        piece.states, piece.controls, piece.pairs, found.objective, found.solved, message, found.iterations,
        built - began + program.build_seconds, solved - built - program.build_seconds, float(error), dt,
        found.message == TIMED_OUT,
    )  # fmt: skip


def _objective(manoeuvre: Manoeuvre, dt: float) -> Callable[[Symbols], Any]:
    """See the module docstring."""
    low, high = manoeuvre.control_bounds

    def cost(symbols: Symbols) -> Any:
        ca = casadi()
        scaled = symbols.controls[0] / ca.repmat(ca.DM(high - low), 1, manoeuvre.steps)
        changes = (scaled[:, 1:] - scaled[:, :-1]) / dt
        running = dt * (manoeuvre.effort * ca.sumsqr(scaled) + manoeuvre.smoothness * ca.sumsqr(changes))
        if np.isinf(manoeuvre.end_weight):
            return running
        given = np.flatnonzero(np.isfinite(manoeuvre.end))
        return running + manoeuvre.end_weight * ca.sumsqr(symbols.states[0][given, -1] - ca.DM(manoeuvre.end[given]))

    return cost
