"""The transfer protocol: does what was planned or learned in a simulator work on the truth, and what did identification buy?

Every condition plans with the same algorithm, iterations, restarts, first guesses and starts; conditions differ in what they
plan in. A policy is chosen among restarts and feedback strengths in the condition's own model, never on the truth, and is then
run once on the truth from starts that all share. Every step of the truth is counted: training, validation and tuning apart.

A `Case` is the robot's side of a study; these modules know no robot. `.case.RoomCase` is the case of any room; `.planned` plans
and runs, `.learned` learns and runs, `.report` tells.

Legend: B starts, T control steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.parameters import ParameterDistribution, Parameters
from softgym_envs.core.scenario import BatchPolicy
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit

from ..planning.cost import Cost

Array = NDArray[np.float64]


class Identified(NamedTuple):
    """What `Case.fit` returns."""

    parameters: Parameters
    distribution: ParameterDistribution | None
    """What the fit leaves open; None: nothing is known of it."""
    note: str
    """The fit's verdict in one sentence."""
    failed: bool = False
    """The verdict says not to use some of the constants. The study does, and says so."""


class Corrected(NamedTuple):
    """What `Case.residual` returns."""

    simulator: Simulator
    note: str
    """What the correction is worth, in one sentence."""


class Case(Protocol):
    """The robot's side of a study; picklable, so that every run builds its own simulators."""

    @property
    def description(self) -> Any:
        """As JSON, goes into study.json: it must change when anything in the case changes that changes numbers."""
        ...

    def native(self) -> Simulator:
        """Our engine."""
        ...

    def truth(self) -> Simulator:
        """What counts as the truth."""
        ...

    def truth_parameters(self) -> Parameters | None:
        """The truth's constants; None: its own defaults."""
        ...

    def recorded(self) -> Case:
        """The case that the recordings are of: this one, or another robot whose constants this one takes over."""
        ...

    def adapt(self, parameters: Parameters) -> Parameters:
        """Constants identified on the recorded case as constants of this one: with another gravity, for example."""
        ...

    def default(self) -> Parameters:
        """Constants of our engine before identification."""
        ...

    def best(self) -> Parameters:
        """Our engine with the truth's constants; where it has others (contact), those that fit unlimited data best."""
        ...

    def drawn(self, rng: np.random.Generator, factor: float) -> Parameters:
        """`best` with every constant that is identified times the factor or its reciprocal, by a coin each."""
        ...

    def wide(self) -> ParameterDistribution:
        """What one would randomise who has no data."""
        ...

    def around(self, center: Parameters, factor: float) -> ParameterDistribution:
        """What one would randomise about constants that were identified in a model that may be wrong."""
        ...

    def cost(self, simulator: Simulator) -> Cost:
        """The task, on this simulator's states."""
        ...

    def starts(self, rng: np.random.Generator, count: int) -> Array:
        """(count, nx): perturbed starts, the first one unperturbed; the same rng gives the same starts."""
        ...

    def first_policy(self, rng: np.random.Generator) -> BatchPolicy:
        """A policy whose run gives the first controls of a plan; all conditions begin from the same ones."""
        ...

    def force_scale(self) -> Array:
        """(n,): tangent vector of a random kick of 1 m/s."""
        ...

    def record(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """Recordings of the truth with `steps` physics steps for training; validation is counted beside, test is free."""
        ...

    def states(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """The same experiments as `record`, full states without a sensor: networks and corrections learn from these."""
        ...

    def fit(self, data: DataSplit) -> Identified:
        """Identify our engine.

        Raises:
            DataError: The recordings cannot be used; the run then goes on with the default constants.
        """
        ...

    def residual(self, data: DataSplit, fit: Identified, rng: np.random.Generator) -> Corrected:
        """Our engine with a learned correction of what the identified constants miss; without it where it is of no use.

        Args:
            data: Of the recorded case.
            fit: Constants of this case.
            rng: Of the training.

        Raises:
            DataError: The recordings cannot be used; the run then goes on with our engine alone.
        """
        ...

    def measure(self, states: Array) -> Mapping[str, Array]:
        """Further numbers of runs (B, T+1, nx), each (B,), such as the distance."""
        ...

    def position(self, states: Array) -> Array:
        """Where the robot is, (..., nx) -> (..., 3) [m]: prediction errors are measured with it."""
        ...
