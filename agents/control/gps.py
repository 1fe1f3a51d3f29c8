"""The tensegrity paper's sample-based iLQG: rollouts, fitted linear dynamics, and a KL-bounded LQR step; no derivatives.

[Wang2020] V-C gives 20 iterations of 40 rollouts and a KL term but no more, so the parts are those of guided policy search
(Levine and Abbeel, NeurIPS 2014): a time-varying linear-Gaussian controller u ~ N(u_t + K_t dx, S_t) is sampled, time-varying
linear dynamics are fitted to the samples, and the controller is improved under a bound on the KL divergence to the old one.

Prior of the dynamics: 40 samples cannot fix n + nu (SUPERball: 96 + 24) columns per time. Here one linear model is fitted to
the samples of the neighbouring times, and every time's own model is a ridge regression towards it, in coordinates whitened by
the pooled covariance. The width of the neighbourhood (up to all times) and the strength of the ridge minimise the
leave-one-out error, so nothing is tuned by hand.

Controls are measured in half ranges inside this file. Legend: N rollouts, T control steps, n tangent, nu control, d = n + nu.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator, check_number

from .cost import Cost, Expansion
from .linear_gaussian import Controller, FittedDynamics, fit_dynamics, kl_bounded_step, predict
from .plan import (
    CountedSimulator,
    Plan,
    PlanLog,
    PlanOutcome,
    Run,
    UnstablePlanError,
    check_start,
    control_scale,
    roll_policy,
    total_cost,
)

MINIMUM_ROLLOUTS = 4
"""Least successful rollouts for a fit."""


@dataclass(frozen=True)
class GPSOptions:
    """Settings of sampling and steps in `plan_gps`.

    Raises:
        OptionError: A value out of its range.
    """

    iterations: int = 20
    rollouts: int = 40
    """N per iteration; the first one is without noise and is the reference of the fit."""
    noise: float = 0.3
    """Standard deviation of the first controller's noise, as a fraction of the controls' half range."""
    kl_step: float = 0.3
    """Bound on the KL divergence of new and old controller, per control step [nat].

    Halved after an iteration whose mean cost rose, down to a ten-thousandth, and doubled back after one whose mean cost fell.
    A controller whose mean cost rose by more than its standard error is dropped: the next one starts from the last good one.
    """

    def __post_init__(self) -> None:
        check_number("iterations", self.iterations, low=1, whole=True)
        check_number("rollouts", self.rollouts, low=MINIMUM_ROLLOUTS, whole=True)
        for name in ("noise", "kl_step"):
            check_number(name, getattr(self, name), positive=True)


def plan_gps(
    simulator: Simulator,
    cost: Cost,
    state: Array,
    *,
    controls: Array,
    rng: np.random.Generator,
    substeps: int = 1,
    parameters: Parameters | None = None,
    options: GPSOptions | None = None,
    callback: Callable[[PlanLog], None] | None = None,
) -> Plan:
    """Minimise sum_t l_t(x_t, u_t) from one state, from rollouts only.

    The plan is the best noise-free rollout seen, with its controller's gains; `PlanLog.cost` is the cost of each
    iteration's noise-free rollout. Simulator steps: (iterations x rollouts + 1) T substeps, the + 1 for the last controller.

    Args:
        simulator: Any `Simulator`; only `step` is used.
        cost: See `agents.control.cost`.
        state: (nx,)
        controls: (T, nu) mean of the first controller.
        rng: Random generator of the noise.
        substeps: Physics steps per control step.
        parameters: Parameters of one row.
        options: See `GPSOptions`.
        callback: Called with every `PlanLog`.

    Raises:
        ShapeError: `state` or `controls` have a wrong shape or are not finite.
        UnstablePlanError: Fewer than four rollouts of the first controller succeed.
    """
    options = options or GPSOptions()
    state, controls = check_start(simulator, state, controls)
    search = _GpsSearch(CountedSimulator(simulator, substeps), cost, options, rng, parameters, state)
    return search.run(controls, callback)


class _Sampler(NamedTuple):
    """A controller and its reference trajectory."""

    controller: Controller
    states: Array
    """(T+1, nx)"""
    controls: Array
    """(T, nu)"""


class _Problem(NamedTuple):
    """Inputs of one step."""

    model: FittedDynamics
    cost: Expansion
    old: _Sampler


@dataclass(eq=False)
class _GpsSearch:
    """Parameters of one call of `plan_gps`."""

    simulator: CountedSimulator
    cost: Cost
    options: GPSOptions
    rng: np.random.Generator
    parameters: Parameters | None
    state: Array

    def __post_init__(self) -> None:
        self.scale = control_scale(self.simulator.simulator)
        self.limits = self.simulator.simulator.control_bounds
        self.began = time.perf_counter()

    def run(self, controls: Array, callback: Callable[[PlanLog], None] | None) -> Plan:
        """Run all iterations, then one noise-free rollout of the last controller."""
        sampler, multiplier, log = self.first(controls), 1.0, list[PlanLog]()
        best: tuple[float, Run, Array] | None = None
        problem: _Problem | None = None
        predicted, eta, previous = 0.0, 0.0, np.inf
        for iteration in range(self.options.iterations + 1):
            last = iteration == self.options.iterations
            runs = self.sample(sampler, 1 if last else self.options.rollouts)
            totals = total_cost(self.cost.value(runs.states, runs.controls), runs.status)
            good = np.isfinite(totals)
            index = 0 if good[0] else int(np.argmin(totals))
            if good[index] and (best is None or totals[index] < best[0]):
                best = float(totals[index]), _row(runs, index), sampler.controller.K * self.scale[:, None]
            mean = float(totals[good].mean()) if good.any() else np.inf
            gained = float(previous - mean) if problem is not None and not last else 0.0
            if problem is not None:
                log.append(self.entry(iteration - 1, float(totals[0]), predicted, gained, multiplier, eta))
                if callback is not None:
                    callback(log[-1])
            if last:
                break
            slack = float(totals[good].std()) / np.sqrt(good.sum()) if good.any() else 0.0
            if good.sum() >= MINIMUM_ROLLOUTS and mean <= previous + slack:
                if problem is not None:  # fitted models may promise anything: only the costs of rollouts decide
                    multiplier = float(np.clip(multiplier * (2.0 if gained > 0 else 0.5), 0.01, 1.0))
                problem, previous = self.local_problem(sampler, runs, good, index), mean
            elif problem is None:
                raise UnstablePlanError(
                    f"{np.sum(~good)} rollouts of the first controller fail: give smaller controls or less noise"
                )
            else:  # too far: from the same problem again, with a shorter step
                multiplier = max((0.5 if good.all() else 0.1) * multiplier, 1e-4)
            sampler, predicted, eta = self.step(problem, multiplier)
        assert best is not None
        return self.plan(best, tuple(log))

    def first(self, controls: Array) -> _Sampler:
        """The initial controls with noise; without gains any reference works."""
        horizon, nu = controls.shape
        covariance = np.tile(self.options.noise**2 * np.eye(nu), (horizon, 1, 1))
        controller = Controller(np.zeros((horizon, nu)), np.zeros((horizon, nu, self.simulator.simulator.n)), covariance)
        return _Sampler(controller, np.repeat(self.state[None], horizon + 1, axis=0), controls)

    def mean_control(self, sampler: _Sampler, x: Array, t: int) -> Array:
        """Control without noise or limits, (B, nx) -> (B, nu)."""
        dx = self.simulator.simulator.difference(x, np.broadcast_to(sampler.states[t], x.shape))
        return np.asarray(sampler.controls[t] + self.scale * (sampler.controller.k[t] + dx @ sampler.controller.K[t].T))

    def sample(self, sampler: _Sampler, rollouts: int) -> Run:
        """Rollouts of a controller; row 0 without noise."""
        noise = self.rng.standard_normal((rollouts, *sampler.controller.k.shape))
        noise[0] = 0.0
        noise = self.scale * np.einsum("tij,ntj->nti", np.linalg.cholesky(sampler.controller.covariance), noise)

        def policy(x: Array, t: int) -> Array:
            return np.asarray(np.clip(self.mean_control(sampler, x, t) + noise[:, t], *self.limits))

        return roll_policy(
            self.simulator, policy, np.repeat(self.state[None], rollouts, axis=0), len(sampler.controls), self.parameters
        )

    def local_problem(self, sampler: _Sampler, runs: Run, good: NDArray[np.bool_], index: int) -> _Problem:
        """Fitted dynamics and cost around run `index`, and the sampled controller, written around it."""
        states, controls, s = runs.states[index], runs.controls[index], self.scale
        dx = self.simulator.simulator.difference(runs.states[good], np.broadcast_to(states, runs.states[good].shape))
        model = fit_dynamics(dx[:, :-1], (runs.controls[good] - controls) / s, dx[:, 1:])
        e = self.cost.expand(states[None], controls[None])
        e = e._replace(u=e.u * s, uu=e.uu * s * s[:, None], ux=e.ux * s[:, None])
        means = np.stack([self.mean_control(sampler, states[t : t + 1], t)[0] for t in range(len(controls))])
        around = sampler.controller._replace(k=(np.clip(means, *self.limits) - controls) / s)
        return _Problem(model, e, _Sampler(around, states, controls))

    def step(self, problem: _Problem, multiplier: float) -> tuple[_Sampler, float, float]:
        """The improved controller, its expected decrease of the cost, and its eta."""
        model, cost, old = problem
        bound = self.options.kl_step * multiplier * len(old.controls)
        new, eta = kl_bounded_step(model, cost, old.controller, bound)
        promised = predict(model, cost, old.controller, old.controller)[0] - predict(model, cost, new, old.controller)[0]
        return old._replace(controller=new), promised, eta

    def entry(self, iteration: int, cost: float, expected: float, actual: float, multiplier: float, eta: float) -> PlanLog:
        """One line of the log."""
        seconds = time.perf_counter() - self.began
        return PlanLog(iteration, cost, expected, actual, self.options.kl_step * multiplier, eta, seconds, self.simulator.steps)

    def plan(self, best: tuple[float, Run, Array], log: tuple[PlanLog, ...]) -> Plan:
        """The best run as a plan."""
        _, run, gains = best
        costs = self.cost.value(run.states, run.controls)[0]
        return Plan(
            self.simulator.simulator,
            self.simulator.substeps,
            run.states[0],
            run.controls[0],
            gains,
            np.zeros_like(run.controls[0]),
            costs,
            PlanOutcome.MAX_ITERATIONS,
            log,
            self.simulator.steps,
        )


def _row(runs: Run, index: int) -> Run:
    part = slice(index, index + 1)
    return Run(runs.states[part], runs.controls[part], runs.status[part])
