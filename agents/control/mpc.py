"""Receding-horizon control: plan over a short horizon, apply the first control, shift the plan, plan again.

`ILQGController` replans by iLQG; `SamplingController` by MPPI (Williams et al., ICRA 2017) or, at temperature 0, by
predictive sampling (Howell et al., 2022), on control splines. Both are policies `controller(state, t) -> control` and keep the
shifted plan between calls: call `reset()` before a new episode. The simulator they plan in need not be the one they control.

Legend: S samples, T horizon in control steps, P knots, nu control.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator, check_array, check_number

from .cost import Cost
from .ilqg import ILQGOptions, plan_ilqg
from .plan import (
    CountedSimulator,
    Plan,
    PlanOutcome,
    RateLimits,
    StepCount,
    UnstablePlanError,
    check_splines,
    control_scale,
    own_entries,
    roll_policy,
    spline_matrix,
    total_cost,
)


@dataclass(eq=False)
class ILQGController:
    """MPC by iLQG, started from the shifted plan; between two plans it follows the feedback law of the last one.

    Called with many states (B, nx), it has a controller for each row in `rows`, with that row's plans and statistics.

    Raises:
        ShapeError: `controls` is not (T, nu), `rate_limits` or `first_control` not (nu,), or not finite.
        OptionError: `replan_every` is not in 1 ... T, or limits of rates as in `plan_ilqg`.
    """

    simulator: Simulator
    cost: Cost | Callable[[int], Cost]
    """The same at every plan, or a function of the control step at which the plan begins (targets that move)"""
    controls: Array
    """(T, nu) first guess; its length is the horizon"""
    substeps: int = 1
    """Physics steps per control step"""
    parameters: Parameters | None = None
    """Parameters of the planner's simulator; E rows plan robustly, see `plan_ilqg`"""
    options: ILQGOptions = field(default_factory=lambda: ILQGOptions(max_iterations=3))
    first_options: ILQGOptions = field(default_factory=ILQGOptions)
    """Options of the first plan of an episode, which has no warm start"""
    replan_every: int = 1
    """Control steps between plans"""
    rate_limits: float | Array | None = None
    """Limits of the controls' rates, see `plan_ilqg`; those of the first control of an episode hold from `first_control`"""
    first_control: Array | None = None
    """(nu,) the control before an episode; None: the first one has no limit of its rate"""
    rows: list[ILQGController] = field(default_factory=list, init=False)
    """A controller for every row of the states of the last call, where they were many"""
    plan: Plan | None = field(default=None, init=False)
    seconds: list[float] = field(default_factory=list, init=False)
    """Wall time of every plan"""
    steps: StepCount = field(default_factory=StepCount, init=False)
    """Simulator steps of all plans"""
    outcomes: list[PlanOutcome | None] = field(default_factory=list, init=False)
    """Outcome of every plan; None where the simulation failed under the shifted plan, so that the old one went on"""

    def __post_init__(self) -> None:
        self.controls = check_array("controls", self.controls, (None, self.simulator.nu))
        check_splines(len(self.controls), 1, self.replan_every)
        RateLimits.of(self.simulator, self.rate_limits, self.substeps, self.first_control, "first_control")
        self.reset()

    def reset(self) -> None:
        """Forget the plan and the statistics, and those of the rows."""
        self.plan, self._age, self.seconds, self.steps, self.outcomes = None, 0, [], StepCount(), []
        self.rows, self._last = [], self.first_control

    def __call__(self, state: Array, t: int) -> Array:
        """Control at control step `t`, for a cost that moves.

        Args:
            state: (nx,) or a longer one, see `own_entries`; or many, (B, nx).
            t: Control step.

        Returns:
            (nu,) or (B, nu)

        Raises:
            ShapeError: `state` has another shape, or is not finite.
            OptionError: Another number of rows than at the last call; `reset` comes before.
        """
        state = own_entries(self.simulator, np.asarray(state, dtype=np.float64))
        if state.ndim == 2:
            if not len(state):
                raise ShapeError(f"state has shape {state.shape}, expected a row at least")
            self.rows = self.rows or [replace(self) for _ in state]
            if len(self.rows) != len(state):
                raise OptionError(f"{len(state)} states, {len(self.rows)} at the last call; call reset() before a new episode")
            return np.stack([row(own, t) for row, own in zip(self.rows, state, strict=True)])
        if self.plan is None or self._age >= self.replan_every:
            self._replan(state, self.cost(t) if callable(self.cost) else self.cost)
        assert self.plan is not None
        self._age += 1
        self._last = self.plan.policy(state, self._age - 1, self._last)
        return self._last

    def _replan(self, state: Array, cost: Cost) -> None:
        """Make a new plan; if the simulation fails under the shifted one, keep the old plan's feedback."""
        began = time.perf_counter()
        options = self.first_options if self.plan is None else self.options
        try:
            plan = plan_ilqg(
                self.simulator,
                cost,
                state,
                controls=self.controls if self.plan is None else self._shifted(self.plan, state),
                substeps=self.substeps,
                parameters=self.parameters,
                rate_limits=self.rate_limits,
                last_control=self._last if self.rate_limits is not None else None,
                options=options,
            )
        except UnstablePlanError:
            if self.plan is None:
                raise
            self.outcomes.append(None)
        else:
            self.plan, self._age = plan, 0
            self._count(plan.steps)
            self.outcomes.append(plan.outcome)
        self.seconds.append(time.perf_counter() - began)

    def _shifted(self, plan: Plan, state: Array) -> Array:
        """Controls (T, nu) of the shifted plan, followed with its feedback: without it an unstable robot leaves the plan."""
        counted, follow = CountedSimulator(self.simulator, self.substeps), plan.followed(self._age, self._last)
        first = self.parameters if self.parameters is None or self.parameters.batch is None else self.parameters.row(0)
        run = roll_policy(counted, follow, state[None], plan.horizon, first)
        self._count(counted.steps)
        return np.asarray(run.controls[0])

    def _count(self, steps: StepCount) -> None:
        self.steps = StepCount(*(a + b for a, b in zip(self.steps, steps, strict=True)))


@dataclass(frozen=True)
class SamplingOptions:
    """Settings of sampling in `SamplingController`.

    Raises:
        OptionError: A value out of its range.
    """

    samples: int = 64
    """Samples S; the first is the present plan without noise."""
    knots: int = 6
    """P knots of the linear control spline over the horizon"""
    noise: float = 0.2
    """Standard deviation of a knot, as a fraction of the control's half range"""
    temperature: float = 0.1
    """MPPI weights exp(-(J - min J) / (temperature std J)); 0: the best sample wins (predictive sampling)"""
    iterations: int = 1
    """Rounds of sampling per plan"""

    def __post_init__(self) -> None:
        for name, lowest in (("samples", 2), ("knots", 1), ("iterations", 1)):
            check_number(name, getattr(self, name), low=lowest, whole=True)
        for name in ("noise", "temperature"):
            check_number(name, getattr(self, name), low=0.0)


def mix(knots: Array, costs: Array, temperature: float) -> Array:
    """MPPI: the mean of the samples' knots with weights exp(-(J - min J) / (temperature std J)); failed ones weigh 0.

    Args:
        knots: (S, P, nu)
        costs: (S,); infinite for failed rows.
        temperature: 0 returns the best sample; the first row (the plan so far) if all fail.
    """
    good = np.isfinite(costs)
    if not good.any():
        return np.asarray(knots[0])
    best = int(np.argmin(costs))
    spread = temperature * float(costs[good].std())
    if spread == 0.0:
        return np.asarray(knots[best])
    weights = np.zeros(len(costs))
    weights[good] = np.exp(-(costs[good] - costs[best]) / spread)
    return np.asarray(np.einsum("s,spj->pj", weights / weights.sum(), knots))


@dataclass(eq=False)
class SamplingController:
    """MPC by sampling: S noisy control splines, one batched rollout, and their best or exponentially weighted mean.

    Needs no derivatives and no smoothness. Deterministic for a given `rng`.

    Raises:
        OptionError: `replan_every` is not in 1 ... T, or more knots than control steps.
    """

    simulator: Simulator
    cost: Cost
    horizon: int
    """T"""
    rng: np.random.Generator
    substeps: int = 1
    """Physics steps per control step"""
    parameters: Parameters | None = None
    """Parameters of the planner's simulator; with E rows a sample's cost is the mean over them"""
    options: SamplingOptions = field(default_factory=SamplingOptions)
    replan_every: int = 1
    """Control steps between plans"""
    seconds: list[float] = field(default_factory=list, init=False)
    """Wall time of every plan"""

    def __post_init__(self) -> None:
        check_splines(self.horizon, self.options.knots, self.replan_every)
        self._spline = spline_matrix(self.horizon, self.options.knots)
        self.reset()

    def reset(self) -> None:
        """Forget the plan and the statistics, but not the state of the random numbers."""
        lower, upper = self.simulator.control_bounds
        self.knots = np.tile(np.clip(0.0, lower, upper), (self.options.knots, 1))
        self.controls = self._spline @ self.knots
        self._counted = CountedSimulator(self.simulator, self.substeps)
        self._age, self.seconds = 0, []

    def __call__(self, state: Array, t: int) -> Array:
        """Control (nu,) for a state (nx,) or a longer one, see `own_entries`. `t` is not used: the horizon moves along."""
        if not self.seconds or self._age >= self.replan_every:
            self._replan(check_array("state", own_entries(self.simulator, state), (self.simulator.nx,)))
        self._age += 1
        return np.asarray(self.controls[self._age - 1])

    def _replan(self, state: Array) -> None:
        began = time.perf_counter()
        if self._age:
            self.knots = self._shift() @ self.knots
        for _ in range(self.options.iterations):
            self._improve(state)
        self.controls, self._age = self._spline @ self.knots, 0
        self.seconds.append(time.perf_counter() - began)

    def _shift(self) -> Array:
        """Matrix (P, P) that shifts the spline's knots by the age of the plan; the last one is held."""
        count = self.options.knots
        if count == 1:
            return np.ones((1, 1))
        place = np.arange(count) + self._age * (count - 1) / max(self.horizon - 1, 1)
        return np.asarray(np.maximum(0.0, 1.0 - np.abs(np.minimum(place, count - 1.0)[:, None] - np.arange(count))))

    def _improve(self, state: Array) -> None:
        options = self.options
        noise = self.rng.standard_normal((options.samples, *self.knots.shape))
        noise[0] = 0.0
        knots = self.knots + options.noise * control_scale(self.simulator) * noise
        knots = np.clip(knots, *self.simulator.control_bounds)
        controls = self._spline @ knots
        rows = 1 if self.parameters is None else self.parameters.batch or 1
        controls = np.repeat(controls, rows, axis=0)
        starts = np.repeat(state[None], len(controls), axis=0)
        states, status = self._counted.rollout(starts, controls, self._constants(rows))
        costs = total_cost(self.cost.value(states, controls), status)
        self.knots = mix(knots, costs.reshape(-1, rows).mean(axis=1), options.temperature)

    def _constants(self, rows: int) -> Parameters | None:
        """Parameters of every sample under every row."""
        if rows == 1 or self.parameters is None:
            return self.parameters
        return type(self.parameters).from_vector(np.tile(self.parameters.to_matrix(rows), (self.options.samples, 1)))

    @property
    def steps(self) -> StepCount:
        """Simulator steps of all plans since the last reset."""
        return self._counted.steps
