r"""Trajectory and constants in one nonlinear program, as [Jitosho2021] III fits a vine robot to points tracked on video.

Unknowns are constants theta, the states x_0 ... x_K of every physics step, and the pairs z_1 ... z_K of contact:

.. math::
   \min \tfrac12 \sum_k \| (y_k - h(x_k)) / \sigma \|^2 \quad\text{s.t.}\quad g(x_k, u_k, \theta, x_{k+1}, z_{k+1}) = 0, \;
   0 \le z \perp f \ge 0

The contact schedule is *given* (of every pair one number is zero, and it is known which one; [Jitosho2021] assumes it) or
*found*: z, f >= 0 and z f <= tau, with tau driven to almost zero (Scholtes 2001). IPOPT solves it with exact derivatives;
a polish by single shooting from where it ends then removes what is left of tau and gives the usual judgement. What the step's
form calls its mode (the number of links of a robot that grows) is that of the first guess; where a solution has another one, it
is solved again with that. With `free_initial=False` the first states are the guess.

Measured points are a function of the state that CasADi can differentiate (`observe`), from the room. Compared with
`sysid.mpec`, which eliminates the states and needs measured state entries, this is slower and more general.

Legend: K physics steps, nx state, nz pairs, p free constants, ny measured columns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import DataError, MissingDependencyError, OptionError
from softgym_envs.core.trajectory import Trajectory

from ..data.problem import FitProblem
from ..judgement.judge import Ending, judge
from ..judgement.result import FitResult
from ..least_squares.levenberg import IterLog, LevenbergOptions, levenberg_marquardt, start_state
from .collocation import Window, window_of
from .mpec import whole_recordings

Array = NDArray[np.float64]
ROUNDS = 4
"""Modes that are tried at most."""
Schedule = Sequence[NDArray[np.bool_]]
"""Per recording (K, nz): True where f = 0 (a contact touches, a slider slides), False where z = 0."""


@dataclass(frozen=True)
class SimultaneousOptions:
    """Settings of `simultaneous`.

    Raises:
        OptionError: A value is not allowed.
    """

    tau: float = 1.0
    """Largest product of a pair at first [units of the form]."""
    factor: float = 0.1
    """tau shrinks by it from program to program."""
    last: float = 1e-6
    """tau of the last program."""
    iterations: int = 300
    """Of IPOPT per program, at most."""
    polish: int = 40
    """Iterations of single shooting at the end, at most."""

    def __post_init__(self) -> None:
        if not (0 < self.last <= self.tau < np.inf and 0 < self.factor < 1):
            raise OptionError(
                f"tau {self.tau}, last {self.last}, factor {self.factor}: expected 0 < last <= tau and 0 < factor < 1"
            )
        if min(self.iterations, self.polish) < 1:
            raise OptionError(f"iterations {self.iterations}, polish {self.polish}: expected >= 1")


class Solution(NamedTuple):
    """What IPOPT found."""

    theta: Array
    """(p,) fit coordinates."""
    states: tuple[Array, ...]
    """(K+1, nx) per recording."""
    pairs: tuple[Array, ...]
    """(K, nz) per recording."""
    objective: float
    """Sum of squared weighted residuals."""
    iterations: int
    solved: bool
    message: str


def simultaneous(
    problem: FitProblem,
    form: ComplementarityForm,
    options: SimultaneousOptions | None = None,
    *,
    observe: Any = None,
    schedule: Schedule | None = None,
) -> FitResult:
    """Identify; see the module docstring.

    Args:
        problem: With known noise.
        form: The simulator's physics step, from the room.
        options: Settings.
        observe: casadi.Function x (nx) -> measured columns (ny), the same as the problem's measurement; None: state entries.
        schedule: The contact schedule; None: it is found.

    Raises:
        OptionError: The noise is not given, `observe` is missing or wrong, or the schedule does not fit the recordings.
        DataError: The recordings cannot be simulated from the guess, nor from where IPOPT ends.
        MissingDependencyError: CasADi is not installed.
    """
    begin, options = time.perf_counter(), options or SimultaneousOptions()
    found = solve(problem, form, options, observe=observe, schedule=schedule)
    system = whole_recordings(problem, free=problem.free_initial is not False)
    starts = np.stack([states[0] for states in found.states])
    settings = LevenbergOptions(max_iterations=options.polish, cost_tolerance=1e-9)
    try:
        state = start_state(system, found.theta, starts, settings)
    except DataError as error:
        raise DataError(f"IPOPT ({found.message}) ended where the simulation fails: {error}") from error
    end = levenberg_marquardt(system, state, problem.theta_bounds, options=settings)
    seconds, cost = time.perf_counter() - begin, 0.5 * found.objective
    moved = float(np.abs(end.theta - found.theta).max(initial=0.0))
    message = f"IPOPT: {found.message} after {found.iterations} iterations; shooting then moved the constants by {moved:.1e}"
    log = (IterLog(0, cost, 0.0, float("nan"), 0.0, found.solved, seconds),)
    return judge(problem, system, Ending("simultaneous", end.theta, end.blocks, found.solved, message, log, (cost,), seconds))


def solve(
    problem: FitProblem,
    form: ComplementarityForm,
    options: SimultaneousOptions | None = None,
    *,
    observe: Any = None,
    schedule: Schedule | None = None,
) -> Solution:
    """`simultaneous` without polish and report."""
    options = options or SimultaneousOptions()
    program = _Program(problem, form, observe, schedule)
    taus = [options.tau]
    while taus[-1] > options.last * (1.0 + 1e-9):
        taus.append(max(options.factor * taus[-1], options.last))
    unknowns, iterations = program.first_guess(options.tau), 0
    for _ in range(ROUNDS):
        unknowns, used, stats = program.search(unknowns, taus, options.iterations)
        iterations, taus = iterations + used, taus[-1:]
        if not program.take_modes(unknowns):
            return program.solution(unknowns, iterations, bool(stats["success"]), str(stats["return_status"]).replace("_", " "))
    return program.solution(unknowns, iterations, False, f"modes change for the {ROUNDS}th time")


class _Program:
    """The nonlinear program of all recordings: unknowns are theta, then states and pairs of one recording after the other."""

    def __init__(self, problem: FitProblem, form: ComplementarityForm, observe: Any, schedule: Schedule | None) -> None:
        if problem.known_noise is None:
            raise OptionError("noise is not given: say how large the measurement noise of every column is")
        if (problem.measurement is None) != (observe is None):
            raise OptionError("observe is the CasADi function of the problem's measurement: give both or neither")
        self.ca = _casadi()
        self.problem, self.form, self.observe, self.sigma = problem, form, observe, problem.known_noise
        self.windows = tuple(window_of(problem, recording) for recording in problem.split.train)
        self.schedule = None if schedule is None else tuple(np.asarray(part, dtype=np.bool_) for part in schedule)
        shapes = [(len(window.controls), form.nz) for window in self.windows]
        if self.schedule is not None and [part.shape for part in self.schedule] != shapes:
            raise OptionError(f"schedule has shapes {[part.shape for part in self.schedule]}, expected {shapes}")
        self.paths = tuple(self._path(window, part) for window, part in zip(self.windows, problem.split.train, strict=True))
        self.modes = [form.modes(path[:-1]) for path in self.paths]
        self._build()

    def _path(self, window: Window, recording: Trajectory) -> Array:
        """(K+1, nx): the simulation from the guessed start with the start constants; at rest where it fails."""
        start = self.problem.guess(recording)
        states, status = self.problem.simulator.rollout(start[None], window.controls[None], self.problem.constants)
        return np.asarray(states[0] if status[0] == 0 else np.repeat(start[None], len(window.values), axis=0))

    def _build(self) -> None:
        """Symbols, objective, constraints with the signs that their bounds take."""
        ca, problem, form = self.ca, self.problem, self.form
        nx, theta = problem.simulator.nx, ca.MX.sym("theta", len(problem.free))
        self.tau = ca.MX.sym("tau")
        constants, unknowns = self._constants(theta), [theta]
        lower, upper = ([side] for side in problem.theta_bounds)
        objective, rows, kinds = self._prior(theta), [], []
        for index, window in enumerate(self.windows):
            count = len(window.controls)
            x, z = ca.MX.sym(f"x{index}", nx, count + 1), ca.MX.sym(f"z{index}", form.nz, count)
            unknowns += [ca.vec(x), ca.vec(z)]
            objective += self._misfit(window, x)
            controls, repeated = ca.DM(window.controls.T), ca.repmat(constants, 1, count)
            mode = [] if form.mode is None else [ca.DM(self.modes[index].T)]
            g, f = form.step.map(count)(x[:, :-1], controls, repeated, x[:, 1:], z, *mode)
            rows.append(ca.vec(ca.repmat(ca.DM(self._scale(index)), 1, count) * g))
            kinds.append(np.zeros(nx * count))
            highest = np.full((count, form.nz), np.inf)
            if form.nz and self.schedule is None:
                rows += [ca.vec(f), ca.vec(z * f) - self.tau]
                kinds += [np.ones(f.numel()), -np.ones(f.numel())]
            elif form.nz and self.schedule is not None:
                touching = self.schedule[index]
                rows.append(ca.vec(f))
                kinds.append(np.where(touching, 0.0, 1.0).ravel())
                highest[~touching] = 0.0
            known = [] if problem.free_initial is not False else [self.paths[index][0]]
            free = np.full(nx * (count + 1 - len(known)), np.inf)
            lower += [*known, -free, np.zeros(form.nz * count)]
            upper += [*known, free, highest.ravel()]
        kind = np.concatenate(kinds)  # 0: = 0, 1: >= 0, -1: <= 0
        self.bounds = {
            "lbx": np.concatenate(lower), "ubx": np.concatenate(upper),
            "lbg": np.where(kind < 0, -np.inf, 0.0), "ubg": np.where(kind > 0, np.inf, 0.0),
        }  # fmt: skip
        self.nlp = {"x": ca.vertcat(*unknowns), "p": self.tau, "f": objective, "g": ca.vertcat(*rows)}

    def _constants(self, theta: Any) -> Any:
        """All constants (P,) as expressions of theta."""
        ca = self.ca
        entries = [ca.MX(float(value)) for value in self.problem.constants.to_vector()]
        for place, (column, spec) in enumerate(zip(self.problem.columns, self.problem.specs, strict=True)):
            width = spec.bounds[1] - spec.bounds[0]
            entries[column] = ca.exp(theta[place]) if spec.scale == "log" else theta[place] * width
        return ca.vertcat(*entries)

    def _prior(self, theta: Any) -> Any:
        mean, std = self.problem.prior_rows
        known = np.isfinite(std)
        weight = np.where(known, 1.0 / std, 0.0)
        return 0.5 * self.ca.sumsqr(self.ca.DM(weight) * (theta - self.ca.DM(np.where(known, mean, 0.0))))

    def _misfit(self, window: Window, x: Any) -> Any:
        """Half of the squared weighted residuals at the rows where something was measured."""
        ca, rows = self.ca, np.flatnonzero(np.isfinite(window.values).any(axis=1))
        seen = window.values[rows].T
        picked = x[:, [int(row) for row in rows]]
        if self.observe is not None:
            predicted = self.observe.map(len(rows))(picked)
        else:
            predicted = picked[[int(column) for column in self.problem.state_columns], :]
        weight = np.where(np.isfinite(seen), 1.0 / self.sigma[:, None], 0.0)
        return 0.5 * ca.sumsqr(ca.DM(weight) * (predicted - ca.DM(np.nan_to_num(seen))))

    def _scale(self, index: int) -> Array:
        """(nx,): one over the largest derivative of every row of g by the next state, at rest: forces and angles alike."""
        ca, form, nx = self.ca, self.form, self.problem.simulator.nx
        x, z, u = ca.MX.sym("x", nx), ca.MX.sym("z", form.nz), ca.DM(self.windows[index].controls[0])
        y, p = ca.MX.sym("y", nx), ca.DM(self.problem.constants.to_vector())
        mode = [] if form.mode is None else [ca.DM(self.modes[index][0])]
        jacobian = ca.Function("scale", [x, y, z], [ca.jacobian(form.step(x, u, p, y, z, *mode)[0], y)])
        state = self.paths[index][0]
        size = np.abs(np.array(jacobian(state, state, np.zeros(form.nz)))).max(axis=1)
        return np.asarray(1.0 / np.where(size > 0, size, 1.0))

    def first_guess(self, tau: float) -> Array:
        """Start constants and what they lead to. Pairs are sqrt(tau); with a schedule, those that fit the equations best."""
        parts = [self.problem.encode(self.problem.constants)]
        for index, path in enumerate(self.paths):
            z = np.full((len(path) - 1, self.form.nz), np.sqrt(tau))
            parts += [path.ravel(), (z if self.schedule is None else self._fitting(index, self.schedule[index])).ravel()]
        return np.concatenate(parts)

    def _fitting(self, index: int, touching: NDArray[np.bool_]) -> Array:
        """Pairs (K, nz) of the guess: least squares in g = 0, and f = 0 where the schedule says so; both are linear in z."""
        ca, form, path, window = self.ca, self.form, self.paths[index], self.windows[index]
        inputs = [ca.MX.sym(name, form.step.size1_in(i)) for i, name in enumerate(form.step.name_in())]
        g, f = form.step(*inputs)
        value = ca.vertcat(ca.DM(self._scale(index)) * g, f)
        count, nz, nx = len(touching), form.nz, form.step.size1_in(0)
        function = ca.Function("value", inputs, [value, ca.densify(ca.jacobian(value, inputs[4]))]).map(count)
        constants = np.tile(self.problem.constants.to_vector(), (count, 1))
        given = [path[:-1], window.controls, constants, path[1:], np.zeros((count, nz)), self.modes[index]]
        values, slopes = (np.array(part) for part in function(*(part.T for part in given[: len(inputs)])))
        z = np.zeros((count, nz))
        for k, closed in enumerate(touching):
            rows = np.concatenate([np.full(nx, True), closed])
            slope = slopes[:, nz * k : nz * (k + 1)][np.ix_(rows, closed)]
            z[k, closed] = np.maximum(-np.linalg.lstsq(slope, values[rows, k], rcond=None)[0], 0.0)
        return z

    def search(self, unknowns: Array, taus: list[float], limit: int) -> tuple[Array, int, Any]:
        """One program after the other, warm. -> unknowns, iterations, IPOPT's report on the last one."""
        duals: dict[str, Array] = {}
        iterations = 0
        for tau in taus if self.form.nz and self.schedule is None else taus[-1:]:
            unknowns, duals, stats = self.run(unknowns, duals, tau, limit)
            iterations += int(stats["iter_count"])
        return unknowns, iterations, stats

    def take_modes(self, unknowns: Array) -> bool:
        """Whether the states have other modes than they were solved with; those are taken over."""
        modes = [self.form.modes(states[:-1]) for states, _ in self._split(unknowns)]
        if all(np.array_equal(old, new) for old, new in zip(self.modes, modes, strict=True)):
            return False
        self.modes = modes
        self._build()
        return True

    def run(self, unknowns: Array, duals: dict[str, Array], tau: float, limit: int) -> tuple[Array, dict[str, Array], Any]:
        """One program from a guess; warm where there are multipliers."""
        settings = {"print_level": 0, "sb": "yes", "max_iter": limit, "tol": 1e-8}
        if duals:
            settings |= {"warm_start_init_point": "yes", "mu_init": min(0.1 * tau, 1e-2)}
        solver = self.ca.nlpsol("fit", "ipopt", self.nlp, {"ipopt": settings, "print_time": False})
        found = solver(x0=unknowns, p=tau, **self.bounds, **duals)
        kept = {"lam_x0": np.array(found["lam_x"]).ravel(), "lam_g0": np.array(found["lam_g"]).ravel()}
        return np.array(found["x"]).ravel(), kept, solver.stats()

    def _split(self, unknowns: Array) -> list[tuple[Array, Array]]:
        """States (K+1, nx) and pairs (K, nz) of every recording."""
        nx, nz, place, parts = self.problem.simulator.nx, self.form.nz, len(self.problem.free), []
        for window in self.windows:
            count = len(window.controls)
            between, end = place + nx * (count + 1), place + nx * (count + 1) + nz * count
            parts.append((unknowns[place:between].reshape(count + 1, nx), unknowns[between:end].reshape(count, nz)))
            place = end
        return parts

    def solution(self, unknowns: Array, iterations: int, solved: bool, message: str) -> Solution:
        """The unknowns, named."""
        theta = np.clip(unknowns[: len(self.problem.free)], *self.problem.theta_bounds)
        states, pairs = zip(*self._split(unknowns), strict=True)
        value = self.ca.Function("objective", [self.nlp["x"]], [self.nlp["f"]])
        return Solution(theta, states, pairs, 2.0 * float(value(unknowns)), iterations, solved, message)


def _casadi() -> Any:
    try:
        import casadi
    except ImportError as error:
        raise MissingDependencyError('sysid.simultaneous needs CasADi: pip install "softgym-envs[sysid]"') from error
    return casadi
