"""Results of planners and their execution: Plan, policies, closed- and open-loop runs, and the count of simulator steps.

Legend: B batch, T control steps, nx state, n tangent, nu control; a control is held for `substeps` physics steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np

from softgym_envs.core.base import embedded
from softgym_envs.core.errors import OptionError
from softgym_envs.core.mismatch import seen
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, IntArray, Linearization, Simulator, check_array, check_number, finite_differences
from softgym_envs.core.trajectory import whole_steps


class UnstablePlanError(OptionError):
    """The simulation fails under the initial controls of a planner."""


class PlanOutcome(IntEnum):
    """Reason why a planner stopped, and advice for each."""

    CONVERGED = 0
    MAX_ITERATIONS = 1
    STALLED = 2
    NOT_FINITE = 3

    @property
    def message(self) -> str:
        """One sentence for people."""
        return (
            "converged: no further decrease is expected",
            "stopped after max_iterations: allow more, or start from better controls",
            "stalled: no step lowers the cost although the model expects it (rough dynamics): start elsewhere",
            "the derivatives are not finite: use smaller controls or a smaller dt",
        )[self]


class PlanLog(NamedTuple):
    """One iteration of a planner."""

    iteration: int
    cost: float
    """Total cost after the iteration (mean over an ensemble)."""
    expected: float
    """Decrease that the quadratic model promised for the step taken."""
    actual: float
    """Decrease found; 0 if no step was taken."""
    step: float
    """ilqg: fraction of the full step that was taken; gps: bound on the KL divergence per control step [nat]."""
    damping: float
    """ilqg: Levenberg-Marquardt mu, over the curvature of the cost; gps: weight eta of the KL divergence [cost]."""
    seconds: float
    """Wall time since the start."""
    steps: StepCount
    """Simulator steps since the start."""

    def __str__(self) -> str:
        return (
            f"{self.iteration:4d}  cost {self.cost:12.6g}  expected {self.expected:9.3g}  actual {self.actual:9.3g}"
            f"  step {self.step:7.3g}  damping {self.damping:8.2g}  {self.seconds:7.2f} s"
        )


class StepCount(NamedTuple):
    """Physics steps (rows x control steps x substeps) of a simulator."""

    simulated: int = 0
    """Steps by `step` and `rollout`."""
    linearized: int = 0
    """Steps by `linearize`, along which derivatives were taken."""

    def total(self, per_linearization: int = 1) -> int:
        """Total of all steps.

        Args:
            per_linearization: Simulated steps that one linearised step costs: 1 with exact derivatives,
                2 (n + nu + np) with central differences.
        """
        return self.simulated + per_linearization * self.linearized


@dataclass(eq=False)
class CountedSimulator:
    """A simulator that counts its calls; planners put it around the simulator they are given.

    Calls are passed on unchanged. It is the only object here that changes while it is used.
    """

    simulator: Simulator
    substeps: int
    steps: StepCount = field(default_factory=StepCount)

    def _count(self, simulated: int = 0, linearized: int = 0) -> None:
        k = self.substeps
        self.steps = StepCount(self.steps.simulated + k * simulated, self.steps.linearized + k * linearized)

    def step(self, state: Array, control: Array, parameters: Parameters | None) -> tuple[Array, IntArray]:
        """`Simulator.step`, counted."""
        self._count(simulated=len(state))
        return self.simulator.step(state, control, parameters, substeps=self.substeps)

    def rollout(self, state: Array, controls: Array, parameters: Parameters | None) -> tuple[Array, IntArray]:
        """`Simulator.rollout`, counted."""
        self._count(simulated=controls.shape[0] * controls.shape[1])
        return self.simulator.rollout(state, controls, parameters, substeps=self.substeps)

    def linearize(self, state: Array, control: Array, parameters: Parameters | None) -> Linearization:
        """`Simulator.linearize`, counted."""
        self._count(linearized=len(state))
        return self.simulator.linearize(state, control, parameters, substeps=self.substeps)

    def differences(self, state: Array, control: Array, parameters: Parameters | None, epsilon: float) -> Linearization:
        """`finite_differences`, counted as simulated steps."""
        parameter_values = (parameters or self.simulator.default_parameters).to_vector().shape[-1]
        self._count(simulated=2 * len(state) * (self.simulator.n + self.simulator.nu + parameter_values))
        return finite_differences(self.simulator, state, control, parameters, substeps=self.substeps, epsilon=epsilon)


class Policy(Protocol):
    """Function from a state to a control."""

    def __call__(self, state: Array, t: int) -> Array:
        """State (nx,) at control step t -> control (nu,); or many, (B, nx) -> (B, nu)."""
        ...


class Run(NamedTuple):
    """Trajectories of B rows."""

    states: Array
    """(B, T+1, nx)"""
    controls: Array
    """(B, T, nu)"""
    status: IntArray
    """(B,) `core.simulator.Status`; a failed row keeps its last good state."""


class RateLimits(NamedTuple):
    """Limits of the controls' rates."""

    change: Array
    """(nu,): largest change from one control step to the next, > 0."""
    last: Array
    """(nu,): the control before the first one; NaN where that one has no limit."""

    @classmethod
    def of(
        cls, simulator: Simulator, rates: float | Array | None, substeps: int, last: Array | None, name: str = "last_control"
    ) -> RateLimits | None:
        """Limits from rates, (nu,) or one number [unit of the control per second], see `plan_ilqg`; None: no limits.

        Args:
            simulator: For the number and limits of the controls, and the length of its steps.
            rates: Rates.
            substeps: Physics steps per control step.
            last: (nu,) control before the first one.
            name: Name of `last` in errors.

        Raises:
            ShapeError: A wrong shape, NaN or infinity.
            OptionError: A rate is not positive; or there is a last control, which is beyond its limits or has no rates.
        """
        nu = simulator.nu
        if rates is None:
            if last is not None:
                raise OptionError(f"{name} limits nothing without rate_limits: give both, or none")
            return None
        rates = check_array("rate_limits", np.full(nu, rates) if np.ndim(rates) == 0 else rates, (nu,))
        if not (rates > 0).all():
            raise OptionError(f"rate_limits is {rates.tolist()}, allowed are rates > 0")
        if last is None:
            return cls(rates * simulator.dt * substeps, np.full(nu, np.nan))
        last, (lower, upper) = check_array(name, last, (nu,)), simulator.control_bounds
        if not ((lower <= last) & (last <= upper)).all():
            raise OptionError(f"{name} is {last.tolist()}, allowed is {lower.tolist()} ... {upper.tolist()}")
        return cls(rates * simulator.dt * substeps, last)

    def before(self, controls: Array) -> Array:
        """The control before each one of (..., T, nu)."""
        first = np.broadcast_to(self.last, controls[..., :1, :].shape)
        return np.concatenate([first, controls[..., :-1, :]], axis=-2)

    def clip(self, control: Array, last: Array) -> Array:
        """Nearest control (..., nu) that may follow the one before, `last`."""
        return np.fmin(np.fmax(control, last - self.change), last + self.change)

    def clipped(self, controls: Array) -> Array:
        """Controls (T, nu), one after another the nearest that may follow."""
        kept = list[Array]([self.last])
        for control in controls:
            kept.append(self.clip(control, kept[-1]))
        return np.stack(kept[1:])


@dataclass(frozen=True, eq=False)
class Plan:
    """A trajectory with its feedback law u = clip(controls[t] + gains[t] difference(x, states[t])).

    With limits of rates, the law also follows the last control: see `policy`. The plan of an ensemble of parameters refers to
    the trajectory of its first row; `cost` is the mean over the ensemble.
    """

    simulator: Simulator
    """The simulator it was planned in."""
    substeps: int
    states: Array
    """(T+1, nx)"""
    controls: Array
    """(T, nu)"""
    gains: Array
    """(T, nu, n)"""
    feedforward: Array
    """(T, nu): the step that the last iteration would still take."""
    costs: Array
    """(T+1,)"""
    outcome: PlanOutcome
    log: tuple[PlanLog, ...]
    steps: StepCount
    """Simulator steps spent on planning."""
    rates: RateLimits | None = None
    last_gains: Array | None = None
    """(T, nu, nu): gains by the difference of the last control from the planned one, where rates have limits."""

    @property
    def cost(self) -> float:
        """Total cost."""
        return float(self.costs.sum())

    @property
    def converged(self) -> bool:
        """Whether the planner's own test of convergence was met."""
        return self.outcome is PlanOutcome.CONVERGED

    @property
    def horizon(self) -> int:
        """Horizon T."""
        return len(self.controls)

    def substeps_in(self, simulator: Simulator) -> int:
        """Physics steps of another simulator in a control step of the plan.

        Raises:
            OptionError: They are no whole number.
        """
        return whole_steps("the plan's control step", self.substeps * self.simulator.dt, simulator.dt)

    def policy(self, state: Array, t: int, last: Array | None = None) -> Array:
        """Feedback law at one state (nx,), or many (B, nx), see `own_entries`; after the horizon its last step is repeated.

        Args:
            state: State.
            t: Control step of the plan.
            last: (nu,) or (B, nu) the control before, which counts where rates have limits. None: the planned one.
        """
        t, state = min(t, self.horizon - 1), own_entries(self.simulator, state)
        dx = self.simulator.difference(state, np.broadcast_to(self.states[t], state.shape))
        control = self.controls[t] + dx @ self.gains[t].T
        if self.rates is not None and self.last_gains is not None:
            before = self.rates.before(self.controls)[t]
            last = before if last is None else last
            control = self.rates.clip(control + np.nan_to_num(last - before) @ self.last_gains[t].T, last)
        return np.asarray(np.clip(control, *self.simulator.control_bounds))

    def followed(self, age: int = 0, last: Array | None = None) -> Callable[[Array, int], Array]:
        """`policy` from control step `age` on, which remembers the control before; the first one comes after `last`."""

        def follow(state: Array, t: int) -> Array:
            nonlocal last
            last = self.policy(state, age + t, last)
            return last

        return follow

    def shifted(self, steps: int = 1) -> Array:
        """Controls (T, nu) of the plan shifted by `steps`; the last one is held."""
        return np.concatenate([self.controls[steps:], np.repeat(self.controls[-1:], min(steps, self.horizon), axis=0)])


def own_entries(simulator: Simulator, state: Array) -> Array:
    """States (..., nx) of a simulator from those of a world with further entries, such as pending commands."""
    return state if state.shape[-1] <= simulator.nx else np.ascontiguousarray(state[..., : simulator.nx])


def check_simulator(planner: Simulator, world: Simulator) -> None:
    """Raise `OptionError` unless the world's states are those of the planner's simulator, or begin with them."""
    ours, theirs = tuple(planner.state_names), tuple(world.state_names)
    if ours == theirs or (seen(ours) == ours and theirs[: len(ours)] == ours):
        return
    differing = next((a for a, b in zip(ours, theirs, strict=False) if a != b), "") or " ".join(ours[len(theirs) :][:3])
    raise OptionError(
        f"planned in {type(planner).__name__} with {len(ours)} state entries, which those of {type(world).__name__} "
        f"({len(theirs)}) do not begin with: {differing!r}; plan in the robot's own engine"
    )


def run_open_loop(plan: Plan, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
    """Play the planned controls from states (B, nx), on this or another simulator of the same robot, whatever its `dt`.

    Args:
        plan: Plan of any simulator of the robot.
        simulator: The world to run it in.
        state: States of the world, or of the robot's model: then the world is at rest in its further entries.
        parameters: Parameters of the world.

    Raises:
        ShapeError: `state` is not (B, nx).
        OptionError: The control step of the plan is no whole number of the world's physics steps.
    """
    state = check_array("state", embedded(simulator, state), (None, simulator.nx))
    controls = np.repeat(plan.controls[None], len(state), axis=0)
    states, status = simulator.rollout(state, controls, parameters, substeps=plan.substeps_in(simulator))
    return Run(states, controls, status)


def run_closed_loop(plan: Plan, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
    """Follow the plan with its feedback gains from states (B, nx), on this or another simulator of the same robot.

    Arguments are those of `run_open_loop`; the plan sees the entries of its own simulator.

    Raises:
        ShapeError: `state` is not (B, nx).
        OptionError: The world's states do not begin with those that the plan was made with, or see `run_open_loop`.
    """
    check_simulator(plan.simulator, simulator)
    state = check_array("state", embedded(simulator, state), (None, simulator.nx))
    counted = CountedSimulator(simulator, plan.substeps_in(simulator))
    return roll_policy(counted, plan.followed(), state, plan.horizon, parameters)


def run_policy(
    policy: Policy, simulator: Simulator, state: Array, *, steps: int, substeps: int = 1, parameters: Parameters | None = None
) -> Run:
    """Apply a policy (an MPC, for example) for `steps` control steps from one state (nx,), or from many (B, nx).

    The policy gets states of that shape; the batch of the result is 1 for one state. A policy with its own `simulator`, as
    controllers have, sees the entries of that simulator's states.

    Raises:
        ShapeError: `state` is neither (nx,) nor (B, nx).
        OptionError: The world's states do not begin with those of the policy's simulator, or a control step has another length
            than in its plans.
    """
    if (planner := getattr(policy, "simulator", None)) is not None:
        check_simulator(planner, simulator)
        planned, played = planner.dt * getattr(policy, "substeps", substeps), simulator.dt * substeps
        if hasattr(policy, "substeps") and not np.isclose(planned, played, rtol=1e-4):
            raise OptionError(
                f"substeps is {substeps}: a control step of {played:g} s, the policy plans steps of {planned:g} s"
            )
    many = np.ndim(state) == 2
    state = check_array("state", embedded(simulator, state), (None, simulator.nx) if many else (simulator.nx,))
    counted = CountedSimulator(simulator, substeps)
    if many:
        return roll_policy(counted, policy, state, steps, parameters)
    return roll_policy(counted, lambda x, t: policy(x[0], t)[None], state[None], steps, parameters)


def roll_policy(
    simulator: CountedSimulator, policy: Callable[[Array, int], Array], state: Array, steps: int, parameters: Parameters | None
) -> Run:
    """Roll B rows under a batched policy, (B, nx), t -> (B, nu); a failed row stays at its last good state."""
    state = embedded(simulator.simulator, state)
    states: list[Array] = [state]
    controls: list[Array] = []
    status = np.zeros(len(state), dtype=np.int32)
    for t in range(steps):
        controls.append(policy(states[-1], t))
        after, failed = simulator.step(states[-1], controls[-1], parameters)
        if status.any():
            after = np.where((status != 0)[:, None], states[-1], after)
            failed = np.where(status != 0, status, failed).astype(np.int32)
        states.append(after)
        status = failed
    return Run(np.stack(states, axis=1), np.stack(controls, axis=1), status)


def total_cost(values: Array, status: IntArray) -> Array:
    """Sum of costs (..., T+1) over time; infinite where the row failed (status (...,) not 0) or the cost is not finite."""
    total = values.sum(axis=-1)
    return np.where((status == 0) & np.isfinite(total), total, np.inf)


def control_scale(simulator: Simulator) -> Array:
    """Half range of every control (nu,), 1 where it is unbounded: the unit of controls in planners."""
    lower, upper = simulator.control_bounds
    half = 0.5 * (upper - lower)
    return np.where(np.isfinite(half) & (half > 0), half, 1.0)


def random_controls(
    simulator: Simulator, horizon: int, *, rng: np.random.Generator, amplitude: float = 0.1, knots: int | None = None
) -> Array:
    """Random controls (T, nu) to start a planner from: Gaussian knots, joined linearly, inside the limits.

    Args:
        simulator: For the number and limits of the controls.
        horizon: T.
        rng: Source of randomness.
        amplitude: Standard deviation as a fraction of the controls' half range.
        knots: Number of knots over the horizon; None for one per control step.

    Raises:
        OptionError: horizon < 1, knots not in 1 ... T, or amplitude not in [0, inf).
    """
    check_number("horizon", horizon, low=1, whole=True)
    count = horizon if knots is None else knots
    if not 1 <= count <= horizon:
        raise OptionError(f"knots is {knots}, allowed is 1 ... horizon = {horizon}")
    check_number("amplitude", amplitude, low=0.0)
    values = amplitude * control_scale(simulator) * rng.standard_normal((count, simulator.nu))
    return np.clip(spline_matrix(horizon, count) @ values, *simulator.control_bounds)


def spline_matrix(horizon: int, knots: int) -> Array:
    """Linear interpolation (T, P) from P knots spread evenly over T control steps; rows sum to 1, so limits are kept."""
    place = np.linspace(0.0, knots - 1.0, horizon) if knots > 1 else np.zeros(horizon)
    return np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(knots)))


def check_splines(horizon: int, knots: int, replan_every: int) -> None:
    """Raise `OptionError` unless a plan over T control steps has the given number of knots, and lasts until the next one."""
    for name, value, low in (("horizon", horizon, 1), ("knots", knots, 1), ("replan_every", replan_every, 1)):
        check_number(name, value, low=low, whole=True)
    for name, value in (("knots", knots), ("replan_every", replan_every)):
        if value > horizon:
            raise OptionError(f"{name} is {value}, allowed is 1 ... horizon = {horizon}")


def check_start(simulator: Simulator, state: Array, controls: Array) -> tuple[Array, Array]:
    """Checked copies of the first state (nx,) and the initial controls (T, nu), clipped to the limits.

    Raises:
        ShapeError: Wrong shapes, NaN or infinity.
        OptionError: No control step.
    """
    state = check_array("state", state, (simulator.nx,))
    controls = check_array("controls", controls, (None, simulator.nu))
    check_number("number of control steps", len(controls), low=1)
    return state, np.clip(controls, *simulator.control_bounds)
