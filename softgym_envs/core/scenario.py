"""A robot at a task as transfer studies want it: what a room declares beside its recipe and its objectives.

A room's `study` is a mapping: environment id -> `Scenario`. Functions stand in the room's study.py and take what they need;
`agents.study.case.RoomCase` makes simulators, costs, recordings and fits of all this, for any room.

Legend: B rows, T control steps, nx state, n tangent, nu control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .parameters import Parameters
from .simulator import Simulator

Array = NDArray[np.float64]
BatchPolicy = Callable[[Array, int], Array]
"""States (B, nx) at control step t -> controls (B, nu)."""


class Scene(NamedTuple):
    """What the robot is, and where it shall go."""

    model: Any
    """Structure of the robot and of what stands around it."""
    target: Array | None = None
    """(m,) of the objective; None: the objective's own."""


class Noise(NamedTuple):
    """Random controls that are added to a policy: Gaussian knots, joined linearly, repeated after `steps`."""

    amplitude: float
    """Standard deviation as a fraction of the controls' half range."""
    knots: int
    steps: int
    """Control steps."""


@dataclass(frozen=True)
class Scenario:
    """See the module docstring."""

    objective: str
    """Of the room, by name."""
    scene: Callable[[], Scene]
    """Always the same one."""
    starts: Callable[[Simulator, Parameters, np.random.Generator, int], Array]
    """(our engine, its best constants, rng, count) -> (count, nx): perturbed starts, the first one unperturbed."""
    first_policy: Callable[[Any, np.random.Generator], BatchPolicy]
    """(model, rng) -> a policy that gives planners their first controls."""
    force_scale: Callable[[Any], Array]
    """Model -> (n,): tangent vector of a random kick of 1 m/s."""
    measure: Callable[[Any, Array, Array], Mapping[str, Array]]
    """(model, target, states (B, T+1, nx)) -> further numbers of runs, each (B,)."""
    position: Callable[[Any, Array], Array]
    """(model, states (..., nx)) -> (..., 3) [m]: where the robot is."""
    best: Callable[[Any], Parameters]
    """The truth's constants -> those of our engine that mean the same, or fit unlimited data best."""
    recorded: str = ""
    """Id of the scenario that is recorded; "": this one."""
    constants: Mapping[str, float] = field(default_factory=dict)
    """Constants that both worlds have here, such as gravity."""
    truth_constants: Mapping[str, float] = field(default_factory=dict)
    """Further constants of the truth."""
    dt: float | None = None
    """Physics step of both worlds [s]; None: their own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of our engine."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Of the environments of the same task."""
    first_noise: Noise | None = None
    """Added to the first policy."""
    first_residual: Callable[[np.random.Generator], Array] | None = None
    """Weights to start from, where the engine has a correction of its own; None: a correction around the engine is learned."""
    hint: str = "goal"
    """What the target is in a picture: "goal" or "velocity"."""
