"""Scenarios of transfer studies: a robot at a task, declared by a system beside its procedure and its objectives.

A system's `study` is a mapping: environment id -> `Scenario`. Functions stand in the system's study.py and take what they need;
`agents.transfer_study.task.TransferTask` makes simulators, costs, recordings and fits of all this, for any system.

Legend: B rows, T control steps, nx state, n tangent, nu control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .parameters import Parameters
from .simulator import Array, Simulator

BatchPolicy = Callable[[Array, int], Array]
"""States (B, nx) at control step t -> controls (B, nu)."""


START_DEVIATION = 0.01
"""Standard deviation of starts around the rest state [the unit of each tangent coordinate]."""


def around_rest(engine: Simulator, parameters: Parameters, rng: np.random.Generator, count: int) -> Array:
    """Starts around the engine's rest state, (count, nx); the first one is the rest state."""
    kick = START_DEVIATION * rng.standard_normal((count, engine.n))
    kick[:1] = 0.0
    return engine.retract(engine.initial_state(count), kick)


def held_at_random(model: Any, rng: np.random.Generator) -> BatchPolicy:
    """Random controls of up to half of their range, new ones every five control steps, the same for all rows."""
    low, high = model.control_bounds
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    drawn = middle + 0.5 * half * rng.uniform(-1.0, 1.0, (64, len(low)))
    return lambda x, t: np.tile(drawn[t // 5 % 64], (len(x), 1))


def by_name(engine: Simulator, parameter_values: Parameters) -> Parameters:
    """The engine's parameters with those of the ground truth that have the same names."""
    ours = engine.default_parameters
    return ours.replace(**{name: getattr(parameter_values, name) for name in parameter_values.names() if name in ours.names()})


class StudyScene(NamedTuple):
    """The robot and its target."""

    model: Any
    """Structure of the robot and of what stands around it."""
    target: Array | None = None
    """Target (m,) of the objective; None: the objective's own."""


class Noise(NamedTuple):
    """Random controls that are added to a policy: Gaussian knots, joined linearly, repeated after `steps`."""

    amplitude: float
    """Standard deviation as a fraction of the controls' half range."""
    knots: int
    steps: int
    """Control steps until it repeats."""


@dataclass(frozen=True)
class Scenario:
    """See the module docstring."""

    objective: str
    """Name of one of the system's objectives."""
    scene: Callable[[], StudyScene] | None = None
    """Makes the scene, always the same; None: the task's own model, and the objective's own target."""
    starts: Callable[[Simulator, Parameters, np.random.Generator, int], Array] | None = None
    """(our engine, its best parameters, rng, count) -> (count, nx): perturbed starts, the first one unperturbed; None: around
    the rest state, every tangent coordinate by a standard deviation of `START_DEVIATION` (unsuitable if rest is the goal)."""
    first_policy: Callable[[Any, np.random.Generator], BatchPolicy] | None = None
    """(model, rng) -> a policy that gives planners their first controls; None: random controls, held for a while."""
    measure: Callable[[Any, Array, Array], Mapping[str, Array]] | None = None
    """(model, target, states (B, T+1, nx)) -> further numbers of runs, each (B,); None: there are none."""
    position: Callable[[Any, Array], Array] | None = None
    """(model, states (..., nx)) -> position of the robot (..., 3) [m]; None: the first three features of the objective."""
    best: Callable[[Any], Parameters] | None = None
    """The ground truth's parameters -> equivalent ones of our engine, or those that fit unlimited data best; None: those of the
    same names."""
    recorded: str = ""
    """Id of the scenario that is recorded; "": this one."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Parameters of native engine and ground truth alike, such as gravity."""
    ground_truth_parameters: Mapping[str, float] = field(default_factory=dict)
    """Further parameters of the ground truth."""
    dt: float | None = None
    """Physics step of both simulators [s]; None: our engine's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of our engine."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the environments of the same task."""
    first_noise: Noise | None = None
    """Noise added to the first policy."""
    difference_step: float | None = 1e-2
    """Step of the finite differences in the demo's iLQG [the unit of each tangent coordinate]; None: the engine's own
    derivatives, as closed chains need, whose coordinates cannot move one by one."""
    hint: str = "goal"
    """Hint that shows the target in a picture: "goal" or "velocity"."""
