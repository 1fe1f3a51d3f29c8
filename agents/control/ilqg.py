"""iLQG: trajectory optimisation by second-order backward passes, with control limits, on the simulator's own derivatives.

Each iteration linearises the whole trajectory in one batched call, solves the local linear-quadratic problem backwards
(a box QP per time, so limits are part of the problem, not clipped afterwards) for several dampings at once, and rolls out the
feedback policies of every damping and step size as one batch; the best one is kept. After Tassa, Mansard and Todorov,
"Control-limited differential dynamic programming", ICRA 2014, without second derivatives of the dynamics.

Limits of the controls' rates make the last control a part of the state: a control at such a limit moves with the one before,
and the backward pass knows it, so that a plan at which nothing improves meets the first-order conditions of the whole problem.

Controls are measured in units of their half range inside this file, so damping and trust region mean the same for any robot.
Damping is measured in units of the cost's curvature, and convergence by decreases: a cost times a factor, or plus a constant,
has the same plan. The gains of a plan are those of its own trajectory.

Legend: M dampings, E ensemble, T control steps, n tangent (and the last control, if rates have limits), nu control;
(M, E, ...) first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from softgym_envs.core.errors import OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator, check_number

from .backward import Box, LocalModel, Step, Trajectories, backward_pass, control_curvature
from .cost import Cost
from .plan import (
    CountedSimulator,
    Plan,
    PlanLog,
    PlanOutcome,
    RateLimits,
    UnstablePlanError,
    check_start,
    control_scale,
    roll_policy,
    total_cost,
)
from .run_slopes import run_slopes

STEP_SIZES = 10.0 ** -np.linspace(0.0, 3.0, 8)
DAMPING_FACTOR = 10.0
DAMPING_RANGE = (1e-12, 1e9)


@dataclass(frozen=True)
class ILQGOptions:
    """Settings of the search in `plan_ilqg`.

    Raises:
        OptionError: A value out of its range.
    """

    max_iterations: int = 100
    tolerance: float = 1e-6
    """Converged when the expected decrease of a full step is below tolerance x min(decrease so far, cost)."""
    damping: float = 1e-3
    """Initial Levenberg-Marquardt mu, added to Quu, over the curvature of the cost, see `control_curvature`; then adapted."""
    trust: float = np.inf
    """Largest change of the feedforward control per iteration, as a fraction of the control's half range."""
    trials: int = 3
    """M: dampings mu, 10 mu, 100 mu, ... tried side by side in each line search."""
    searches: int = 100
    """Most line searches per iteration, each with larger dampings; fewer bound the simulated steps of a plan."""
    difference_step: float | None = None
    """None: the simulator's own `linearize`. A number: central differences of this half width (tangent and control units),
    which average over rougher features: contacts that open and close."""
    whole_runs: bool = False
    """Whether differences are those of whole runs by their controls, with this step in half ranges: see `run_slopes`."""

    def __post_init__(self) -> None:
        for name in ("max_iterations", "trials", "searches"):
            check_number(name, getattr(self, name), low=1, whole=True)
        check_number("tolerance", self.tolerance, low=0.0)
        check_number("damping", self.damping, low=DAMPING_RANGE[0])
        if self.difference_step is not None:
            check_number("difference_step", self.difference_step, positive=True)
        if self.whole_runs and self.difference_step is None:
            raise OptionError("whole_runs needs a difference_step")
        if not self.trust > 0:
            raise OptionError(f"trust is {self.trust}, allowed is > 0")


def plan_ilqg(
    simulator: Simulator,
    cost: Cost,
    state: Array,
    *,
    controls: Array,
    substeps: int = 1,
    parameters: Parameters | None = None,
    rate_limits: float | Array | None = None,
    last_control: Array | None = None,
    options: ILQGOptions | None = None,
    callback: Callable[[PlanLog], None] | None = None,
) -> Plan:
    """Minimise sum_t l_t(x_t, u_t) over the controls from one state, within the limits of the controls and of their rates.

    Args:
        simulator: Any `Simulator`; `linearize`, `step` and `rollout` are used.
        cost: See `agents.control.cost`.
        state: (nx,)
        controls: (T, nu) initial controls; see `random_controls`. Their length is the horizon.
        substeps: Physics steps per control step.
        parameters: Parameters. With E rows the plan is robust: one policy for all rows, its cost the mean over them, its
            reference trajectory that of row 0 (put the best estimate there, samples of the posterior after it).
        rate_limits: Largest |du/dt|, (nu,) or one number for all controls [unit of the control per second]; None: no limit.
        last_control: (nu,) the control that acts until the plan begins, for the rate of the first one. None: no limit there.
        options: See `ILQGOptions`.
        callback: Called with every `PlanLog`, for a progress display; it may raise KeyboardInterrupt.

    Raises:
        ShapeError: `state`, `controls`, `rate_limits` or `last_control` have a wrong shape or are not finite.
        OptionError: A rate limit is not positive, `last_control` is beyond its limits or has no rate limits, or the cost of the
            initial controls is not finite.
        UnstablePlanError: The simulation already fails under the initial controls.
    """
    state, controls = check_start(simulator, state, controls)
    rates = RateLimits.of(simulator, rate_limits, substeps, last_control)
    search = _IlqgSearch(CountedSimulator(simulator, substeps), cost, options or ILQGOptions(), parameters, state, rates)
    return search.run(controls, callback)


@dataclass(eq=False)
class _IlqgSearch:
    """Parameters of one call of `plan_ilqg`."""

    simulator: CountedSimulator
    cost: Cost
    options: ILQGOptions
    parameters: Parameters | None
    state: Array
    rates: RateLimits | None

    def __post_init__(self) -> None:
        parameter_values = self.parameters or self.simulator.simulator.default_parameters
        self.members = parameter_values.batch or 1
        self.parameter_values = parameter_values.to_matrix(self.members)
        self.kind = type(parameter_values)
        self.scale = control_scale(self.simulator.simulator)
        self.n = self.simulator.simulator.n + (0 if self.rates is None else self.simulator.simulator.nu)
        self.began = time.perf_counter()

    def rows(self, repeats: int) -> Parameters:
        """Parameters of repeats x E rows, the ensemble running fastest."""
        return self.kind.from_vector(np.tile(self.parameter_values, (repeats, 1)))

    def run(self, controls: Array, callback: Callable[[PlanLog], None] | None) -> Plan:
        """Iterate until an `PlanOutcome`."""
        runs = self.start(controls if self.rates is None else self.rates.clipped(controls))
        self.first = runs.values
        gains = np.zeros((*controls.shape, self.n))
        damping, log = self.options.damping, []
        outcome: PlanOutcome | None = None
        model = self.local_model(runs)
        self.unit = control_curvature(model)
        for iteration in range(self.options.max_iterations):
            if not model.finite:
                outcome = PlanOutcome.NOT_FINITE
                break
            runs, gains, entry, outcome = self.improve(runs, model, gains, damping, iteration)
            log.append(entry)
            if callback is not None:
                callback(entry)
            if entry.step:
                model = self.local_model(runs)
            if outcome is not None:
                break
            damping = max(entry.damping / DAMPING_FACTOR, DAMPING_RANGE[0])
        if outcome is not None:  # an optimum needs no damping; where no step was good, the last damping says nothing
            damping = DAMPING_RANGE[0] if outcome is PlanOutcome.CONVERGED else self.options.damping
        gains, feedforward = self.feedback(runs, model, gains, damping)
        return Plan(
            self.simulator.simulator,
            self.simulator.substeps,
            runs.states[0],
            runs.controls[0],
            gains[..., : self.simulator.simulator.n],
            feedforward,
            runs.values.mean(axis=0),
            PlanOutcome.MAX_ITERATIONS if outcome is None else outcome,
            tuple(log),
            self.simulator.steps,
            self.rates,
            None if self.rates is None else gains[..., self.simulator.simulator.n :] / self.scale,
        )

    def start(self, controls: Array) -> Trajectories:
        """Open-loop runs of the initial controls."""
        states = np.repeat(self.state[None], self.members, axis=0)
        repeated = np.repeat(controls[None], self.members, axis=0)
        states, status = self.simulator.rollout(states, repeated, self.rows(1))
        values = self.cost.value(states, repeated)
        if (status != 0).any():
            raise UnstablePlanError("the simulation fails under the initial controls: give smaller ones, or other parameters")
        if not np.isfinite(total_cost(values, status)).all():
            raise OptionError("the cost of the initial controls is not finite, although their simulation is")
        return Trajectories(states, repeated, values)

    def local_model(self, runs: Trajectories) -> LocalModel:
        """Derivatives along all runs: one batched call of `linearize`, E T rows."""
        states, controls, _ = runs
        A, B = self.slopes(states, controls)
        expansion = self.cost.expand(states, controls)
        deviation = self.simulator.simulator.difference(states[:, :-1], np.broadcast_to(states[:1, :-1], states[:, :-1].shape))
        s = self.scale
        scaled = expansion._replace(u=expansion.u * s, uu=expansion.uu * s * s[:, None], ux=expansion.ux * s[:, None])
        model = LocalModel(A, B * s, scaled, deviation)
        if self.rates is None:
            return model
        before = self.rates.before(controls) / s
        return model.with_last_control(np.nan_to_num(before - before[:1]))

    def slopes(self, states: Array, controls: Array) -> tuple[Array, Array]:
        """A (E, T, n, n) and B (E, T, n, nu) along all runs, according to the options."""
        members, horizon, nu = controls.shape
        n, width = self.simulator.simulator.n, self.options.difference_step
        if width is not None and self.options.whole_runs:
            rows = [self.kind.from_vector(row[None]) for row in self.parameter_values]
            found = [run_slopes(self.simulator, *run, width) for run in zip(states, controls, rows, strict=True)]
            return np.stack([A for A, _ in found]), np.stack([B for _, B in found])
        parameter_values = self.kind.from_vector(np.repeat(self.parameter_values, horizon, axis=0))
        points = states[:, :-1].reshape(members * horizon, -1), controls.reshape(members * horizon, nu), parameter_values
        A, B, _ = self.simulator.linearize(*points) if width is None else self.simulator.differences(*points, width)
        return A.reshape(members, horizon, n, n), B.reshape(members, horizon, n, nu)

    def box(self, controls: Array) -> Box:
        """Limits of k, in half ranges, around the controls (T, nu) of the reference."""
        lower, upper = self.simulator.simulator.control_bounds
        trust = self.options.trust
        low, high = np.maximum((lower - controls) / self.scale, -trust), np.minimum((upper - controls) / self.scale, trust)
        if self.rates is None:
            fixed = np.zeros(controls.shape, dtype=np.bool_)
            return Box(low, high, fixed, fixed)
        before = self.rates.before(controls)
        falls = np.minimum((before - self.rates.change - controls) / self.scale, 0.0)
        rises = np.maximum((before + self.rates.change - controls) / self.scale, 0.0)
        return Box(np.fmax(low, falls), np.fmin(high, rises), falls > low, rises < high)

    def improve(
        self, runs: Trajectories, model: LocalModel, gains: Array, damping: float, iteration: int
    ) -> tuple[Trajectories, Array, PlanLog, PlanOutcome | None]:
        """Raise the damping until a step lowers the cost; the derivatives stay, so a retry costs only rollouts.

        Returns runs, the gains (T, nu, n) that they followed, log entry, and the outcome if this was the end.
        """
        cost = float(runs.values.sum(axis=-1).mean())
        rounding = np.finfo(float).eps * float(np.abs(runs.values).sum(axis=-1).mean())
        negligible = self.options.tolerance * min(_decrease(self.first, runs.values), abs(cost)) + rounding
        for _ in range(self.options.searches):
            mus = _dampings(damping, self.options.trials)
            step = self.solve(runs, model, gains, mus)
            promised = float(step.expected(1.0)[0])
            best = self.search(runs, step, gains)
            gain, expected = _decrease(runs.values, best.runs.values), float(step.expected(best.alpha)[best.trial])
            if np.isfinite(best.cost) and gain > 1e-4 * max(expected, 0.0):
                entry = self.entry(iteration, best.cost, expected, gain, best.alpha, float(mus[best.trial]))
                done = promised <= negligible and mus[0] <= self.options.damping
                return best.runs, best.gains, entry, PlanOutcome.CONVERGED if done else None
            if promised <= negligible or mus[-1] >= DAMPING_RANGE[1]:
                break
            damping = float(mus[-1]) * DAMPING_FACTOR
        # Judge by the damping of the start: with more of it every expected decrease is small.
        promised = float(self.solve(runs, model, gains, np.array([self.options.damping])).expected(1.0)[0])
        entry = self.entry(iteration, cost, promised, 0.0, 0.0, float(mus[-1]))
        return runs, gains, entry, PlanOutcome.CONVERGED if promised <= negligible else PlanOutcome.STALLED

    def feedback(self, runs: Trajectories, model: LocalModel, gains: Array, damping: float) -> tuple[Array, Array]:
        """Gains (T, nu, n) of these runs, and the feedforward (T, nu) that an iteration would still add.

        Rows of an ensemble beside the reference are where the given gains led them, so those stay.
        """
        if not model.finite:
            return gains, np.zeros_like(runs.controls[0])
        step = self.solve(runs, model, gains, np.array([damping]))
        own = self.members == 1 and bool(np.isfinite(step.slope[0]))
        return step.K[0] * self.scale[:, None] if own else gains, step.k[0] * self.scale

    def solve(self, runs: Trajectories, model: LocalModel, gains: Array, damping: Array) -> Step:
        """Run `backward_pass` in the box of the limits and of the trust region; `damping` is over the curvature."""
        return backward_pass(model, damping * self.unit, self.box(runs.controls[0]), gains / self.scale[:, None])

    def search(self, runs: Trajectories, step: Step, gains: Array) -> _LineSearch:
        """Line search: closed-loop rollouts of every damping and step size, M x J x E rows in one batch."""
        trials, horizon, nu = step.k.shape
        rows, sizes, E = trials * len(STEP_SIZES), len(STEP_SIZES), self.members
        alpha = np.tile(STEP_SIZES, trials)
        k = np.repeat(step.k, sizes, axis=0) * self.scale * alpha[:, None, None]
        K = np.repeat(step.K, sizes, axis=0) * self.scale[:, None]
        if E > 1:  # rows off the reference feel the gains: blend them in, so that alpha -> 0 changes nothing
            K = gains + alpha[:, None, None, None] * (K - gains)
        reference, nominal = runs.states[0], runs.controls[0]
        lower, upper = self.simulator.simulator.control_bounds
        rates = self.rates
        before = nominal if rates is None else rates.before(nominal)
        last = np.broadcast_to(before[0], (rows, E, nu))

        def policy(x: Array, t: int) -> Array:
            nonlocal last
            dx = self.simulator.simulator.difference(x, np.broadcast_to(reference[t], x.shape)).reshape(rows, E, -1)
            if rates is not None:
                dx = np.concatenate([dx, np.nan_to_num(last - before[t]) / self.scale], axis=-1)
            u = nominal[t] + k[:, None, t] + dx @ np.swapaxes(K[:, t], 1, 2)
            last = np.clip(u if rates is None else rates.clip(u, last), lower, upper)
            return np.asarray(last.reshape(rows * E, nu))

        start = np.repeat(self.state[None], rows * E, axis=0)
        rolled = roll_policy(self.simulator, policy, start, horizon, self.rows(rows))
        values = self.cost.value(rolled.states, rolled.controls)
        costs = total_cost(values, rolled.status).reshape(rows, E).mean(axis=1)
        index = int(np.argmin(costs))
        part = slice(index * E, (index + 1) * E)
        kept = Trajectories(rolled.states[part], rolled.controls[part], values[part])
        return _LineSearch(float(costs[index]), float(alpha[index]), index // sizes, kept, K[index])

    def entry(self, iteration: int, cost: float, expected: float, actual: float, alpha: float, damping: float) -> PlanLog:
        """One line of the log."""
        seconds = time.perf_counter() - self.began
        return PlanLog(iteration, cost, expected, actual, alpha, damping, seconds, self.simulator.steps)


class _LineSearch(NamedTuple):
    cost: float
    alpha: float
    trial: int
    runs: Trajectories
    gains: Array


def _decrease(before: Array, after: Array) -> float:
    """Decrease of the total cost between values (E, T+1); time by time, so that a constant in the cost takes no digits."""
    return float((before - after).sum(axis=-1).mean())


def _dampings(first: float, count: int) -> Array:
    """Dampings (M,): first, then each ten times the one before, inside the range."""
    return np.asarray(np.minimum(first * DAMPING_FACTOR ** np.arange(count), DAMPING_RANGE[1]))
