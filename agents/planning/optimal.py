r"""Optimal control of any robot with a symbolic step, by direct transcription into one nonlinear program [Leyendecker2010].

.. math:: \min_{x, u} \sum_k h\, \bigl(w_e |\bar u_k|^2 + w_s |\bar u_{k+1} - \bar u_k|^2 / h^2\bigr)

subject to the step's equations, to x_0 and the entries of x_K that are given, and to bounds on states and controls; u-bar is a
control over its range. States are unknowns too ("lifted"), so that long motions stay well conditioned. It starts from a
minimum-jerk path between start and end with the controls that drive it (where the step is linear in them), or from another plan
on a finer or coarser grid, which makes a refinement of the mesh. IPOPT solves it with exact derivatives; pairs of contact are
relaxed and driven to zero as in `core.transcription`.

Legend: K steps, nx state, nu control, nz pairs, P constants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Symbolic, check_array, check_number
from softgym_envs.core.transcription import Arc, Decisions, Symbols, Transcription, casadi

Array = NDArray[np.float64]
MOST_NODES = 90_000
"""Of expressions of all steps that are written out; longer programs take longer to build than it saves in solving them."""
WORDS = {
    "Solve Succeeded": "solved",
    "Solved To Acceptable Level": "solved, to a looser tolerance",
    "Infeasible Problem Detected": "no motion meets these conditions: give more time, or wider bounds",
    "Maximum Iterations Exceeded": "not solved in so many iterations: allow more, or start from a better guess",
    "Restoration Failed": "no motion was found that obeys the equations: start from a better guess",
}
"""IPOPT's status -> one sentence for people."""


@dataclass(frozen=True, eq=False)
class Manoeuvre:
    """What is asked for.

    Raises:
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

    def __post_init__(self) -> None:
        check_number("steps", self.steps, low=2, whole=True)
        for name in ("effort", "smoothness"):
            check_number(name, getattr(self, name), low=0.0)
        if self.start.shape != self.end.shape or not np.isfinite(self.start).all():
            raise OptionError(
                f"start has shape {self.start.shape}, end {self.end.shape}; expected two states, the first one finite"
            )
        if self.state_bounds is not None:
            low, high = self.state_bounds
            for name, state in (("start", self.start), ("end", self.end)):
                outside = np.flatnonzero((state < low - 1e-9) | (state > high + 1e-9))
                if len(outside):
                    i = int(outside[0])
                    raise OptionError(
                        f"{name}[{i}] is {state[i]:g}, outside of its bounds [{low[i]:g}, {high[i]:g}]: out of reach"
                    )

    def bounds(self) -> tuple[Array, Array]:
        """Of all states, (K + 1, nx) each."""
        sides = []
        for side, infinite in ((0, -np.inf), (1, np.inf)):
            row = np.full(len(self.start), infinite) if self.state_bounds is None else self.state_bounds[side]
            rows = np.tile(row, (self.steps + 1, 1))
            rows[0] = self.start
            rows[-1] = np.where(np.isfinite(self.end), self.end, rows[-1])
            sides.append(rows)
        return sides[0], sides[1]


@dataclass(frozen=True, eq=False)
class OptimalMotion:
    """What was found."""

    states: Array
    """(K + 1, nx)"""
    controls: Array
    """(K, nu)"""
    pairs: Array
    """(K, nz)"""
    objective: float
    solved: bool
    message: str
    """One sentence."""
    iterations: int
    build_seconds: float
    """Processor time to make the program and its derivatives."""
    solve_seconds: float
    """Processor time to solve it."""
    error: float
    """Largest error of the step's equations, and product of a pair."""


def minimum_jerk(start: Array, end: Array, steps: int, rates: Sequence[tuple[int, int]] = (), dt: float = 1.0) -> Array:
    """States (K + 1, nx) that go from start to end, both at rest, with least jerk; a free end stays at the start.

    Args:
        start: (nx,).
        end: (nx,), NaN where free.
        steps: K.
        rates: Pairs (position, rate): such a rate is that of its position.
        dt: Step [s], for the rates.
    """
    s = np.linspace(0.0, 1.0, steps + 1)[:, None]
    path = start + (np.where(np.isfinite(end), end, start) - start) * s**3 * (10 - 15 * s + 6 * s * s)
    for position, rate in rates:
        path[:, rate] = np.gradient(path[:, position], dt)
    return np.asarray(path)


def rates_of(simulator: Any) -> tuple[tuple[int, int], ...]:
    """Positions and their rates in a state, by name: "elbow" and "velbow", "left0.theta" and "left0.vtheta"."""
    names = list(simulator.state_names)
    pairs = []
    for i, name in enumerate(names):
        *stem, last = name.split(".")
        rate = ".".join([*stem, f"v{last}"])
        if rate in names:
            pairs.append((i, names.index(rate)))
    return tuple(pairs)


def driving_controls(form: ComplementarityForm, path: Array, constants: Array, bounds: tuple[Array, Array]) -> Array | None:
    """Controls (K, nu) within bounds that fit a path of states (K + 1, nx) best: inverse dynamics.

    None where the step is not linear in its controls, or has pairs.
    """
    ca = casadi()
    x, u, p, y, z = (ca.SX.sym(name, form.step.size1_in(i)) for i, name in enumerate(("x", "u", "p", "y", "z")))
    if form.nz or form.mode is not None:
        return None
    g = form.step(x, u, p, y, z)[0]
    if not ca.is_linear(g, u):
        return None
    needed = ca.Function("needed", [x, p, y], [ca.substitute(g, u, ca.SX.zeros(u.numel())), ca.jacobian(g, u)])
    found = []
    for before, after in pairwise(path):
        rest, slope = (np.array(part) for part in needed(before, constants, after))
        found.append(np.linalg.lstsq(slope, -rest[:, 0], rcond=None)[0])
    return np.asarray(np.clip(np.array(found), *bounds))


def plan_motion(
    simulator: Symbolic,
    manoeuvre: Manoeuvre,
    *,
    parameters: Parameters | None = None,
    guess: OptimalMotion | None = None,
    iterations: int = 500,
) -> OptimalMotion:
    """The optimal motion of a simulator of any room.

    Args:
        simulator: With a symbolic step.
        manoeuvre: What is asked for.
        parameters: Constants, one row; None: the defaults.
        guess: A motion on any grid to start from; None: minimum jerk.
        iterations: Of IPOPT at most.

    Raises:
        OptionError: The simulator has no symbolic step, or `manoeuvre` does not fit it.
    """
    if not isinstance(simulator, Symbolic):
        raise OptionError(f"{type(simulator).__name__} has no symbolic step; optimal control needs one")
    if manoeuvre.start.shape != (simulator.nx,):
        raise OptionError(f"start has shape {manoeuvre.start.shape}, expected {(simulator.nx,)}")
    began = time.process_time()
    form = simulator.symbolic_step()
    constants = (parameters or simulator.default_parameters).to_matrix(1)[0]
    path = minimum_jerk(manoeuvre.start, manoeuvre.end, manoeuvre.steps, rates_of(simulator), simulator.dt)
    if guess is not None:
        path = resample(guess.states, manoeuvre.steps + 1)
    driving = driving_controls(form, path, constants, manoeuvre.control_bounds) if guess is None else None
    controls = driving if guess is None else resample(guess.controls, manoeuvre.steps)
    expand = form.step.n_nodes() * manoeuvre.steps < MOST_NODES
    return solve_form(
        form, manoeuvre, simulator.dt, constants, path, controls, iterations=iterations, began=began, expand=expand
    )


def solve_form(
    form: ComplementarityForm,
    manoeuvre: Manoeuvre,
    dt: float,
    constants: Array,
    path: Array,
    controls: Array | None = None,
    *,
    pairs: Array | None = None,
    taus: Sequence[float] = (1e-8,),
    iterations: int = 500,
    began: float | None = None,
    expand: bool = True,
) -> OptimalMotion:
    """The optimal motion of any symbolic step.

    Args:
        form: The step.
        manoeuvre: What is asked for.
        dt: Its length [s].
        constants: (P,).
        path: (K + 1, nx) guess of the states.
        controls: (K, nu) guess; None: a tenth of the range above the lower bound.
        pairs: (K, nz) guess.
        taus: Largest products of a pair, one program after the other.
        iterations: Of IPOPT per program at most.
        began: When the building began, if not now.
        expand: Whether all steps are written out before they are differentiated.
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
    nothing = Decisions(np.zeros(0), np.zeros(0), np.zeros(0), lambda theta: casadi().DM(constants))
    objective = _objective(manoeuvre, dt)
    program = Transcription(form, (arc,), objective, decisions=nothing, nominal=constants, expand=expand)
    built = time.process_time()
    found = program.solve(taus, iterations=iterations)
    solved, piece = time.process_time(), found.pieces[0]
    rows = np.tile(constants, (steps, 1))
    g, f = form.evaluate(piece.states[:-1], piece.controls, rows, piece.states[1:], piece.pairs)
    error = max(np.abs(g).max(initial=0.0), np.abs(piece.pairs * f).max(initial=0.0))
    message = WORDS.get(found.message, found.message)
    if not found.solved:
        k, i = np.unravel_index(np.abs(g).argmax(), g.shape)
        message += f" (largest error {np.abs(g).max():.2g} in equation {i} of step {k})"
    return OptimalMotion(
        piece.states, piece.controls, piece.pairs, found.objective, found.solved, message, found.iterations,
        built - began + program.build_seconds, solved - built - program.build_seconds, float(error),
    )  # fmt: skip


def _objective(manoeuvre: Manoeuvre, dt: float) -> Callable[[Symbols], Any]:
    """See the module docstring."""
    low, high = manoeuvre.control_bounds

    def cost(symbols: Symbols) -> Any:
        ca = casadi()
        scaled = symbols.controls[0] / ca.repmat(ca.DM(high - low), 1, manoeuvre.steps)
        changes = (scaled[:, 1:] - scaled[:, :-1]) / dt
        return dt * (manoeuvre.effort * ca.sumsqr(scaled) + manoeuvre.smoothness * ca.sumsqr(changes))

    return cost


def resample(values: Array, count: int) -> Array:
    """Rows (count, m) of values (k, m), joined linearly over the same time."""
    old, new = np.linspace(0.0, 1.0, len(values)), np.linspace(0.0, 1.0, count)
    return np.stack([np.interp(new, old, column) for column in values.T], axis=1)
