"""The transfer protocol: does a plan or policy made in a simulator work on the truth, and what did identification gain?

Every condition plans with the same algorithm, iterations, restarts, first guesses and starts; conditions differ in the
model they plan in. A policy is chosen among restarts and feedback strengths in the condition's own model, never on the truth,
and is then run once on the truth from common starts. Every step of the truth is counted: training, validation and tuning apart.

A `Case` is the robot's side of a study; these modules know no robot. `.case.RoomCase` is the case of any room; `.planned` plans
and runs, `.learned` learns and runs, `.report` reports.

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
    """Result of `Case.fit`."""

    parameters: Parameters
    distribution: ParameterDistribution | None
    """Posterior of the fit; None: unknown."""
    note: str
    """The fit's verdict in one sentence."""
    failed: bool = False
    """Whether the verdict rejects some of the constants. The study uses them nevertheless, and reports it."""


class Corrected(NamedTuple):
    """Result of `Case.residual`."""

    simulator: Simulator
    note: str
    """Gain of the correction, in one sentence."""


class Case(Protocol):
    """The robot's side of a study; picklable, so that every run builds its own simulators."""

    @property
    def description(self) -> Any:
        """JSON for study.json: it must change whenever anything changes that affects numbers."""
        ...

    def native(self) -> Simulator:
        """Our engine."""
        ...

    def truth(self) -> Simulator:
        """World that counts as the truth."""
        ...

    def truth_parameters(self) -> Parameters | None:
        """The truth's constants; None: its own defaults."""
        ...

    def recorded(self) -> Case:
        """The case of the recordings: this one, or another robot whose constants this one takes over."""
        ...

    def adapt(self, parameters: Parameters) -> Parameters:
        """Constants identified on the recorded case as constants of this one: with another gravity, for example."""
        ...

    def default(self) -> Parameters:
        """Constants of our engine before identification."""
        ...

    def best(self) -> Parameters:
        """Our engine with the truth's constants; if it has others (contact), those that best fit unlimited data."""
        ...

    def drawn(self, rng: np.random.Generator, factor: float) -> Parameters:
        """`best` with every identified constant times the factor or its reciprocal, by a coin each."""
        ...

    def wide(self) -> ParameterDistribution:
        """Range of domain randomisation without data."""
        ...

    def around(self, center: Parameters, factor: float) -> ParameterDistribution:
        """Range of domain randomisation about constants that were identified in a possibly wrong model."""
        ...

    def cost(self, simulator: Simulator) -> Cost:
        """The task, on this simulator's states."""
        ...

    def starts(self, rng: np.random.Generator, count: int) -> Array:
        """(count, nx): perturbed starts, the first one unperturbed; the same rng gives the same starts."""
        ...

    def first_policy(self, rng: np.random.Generator) -> BatchPolicy:
        """Policy whose run gives the initial controls of a plan; the same for all conditions."""
        ...

    def force_scale(self) -> Array:
        """(n,): tangent vector of a random kick of 1 m/s."""
        ...

    def record(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """Recordings of the truth with `steps` physics steps for training; validation is counted separately, test is free."""
        ...

    def states(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """The experiments of `record` as full states without a sensor, for networks and corrections."""
        ...

    def fit(self, data: DataSplit) -> Identified:
        """Identify our engine.

        Raises:
            DataError: The recordings cannot be used; the run then continues with the default constants.
        """
        ...

    def residual(self, data: DataSplit, fit: Identified, rng: np.random.Generator) -> Corrected:
        """Our engine with a learned correction of the identified model's error; without it if it is of no use.

        Args:
            data: Recordings of the recorded case.
            fit: Constants of this case.
            rng: Random generator of the training.

        Raises:
            DataError: The recordings cannot be used; the run then continues with the uncorrected engine.
        """
        ...

    def measure(self, states: Array) -> Mapping[str, Array]:
        """Further numbers of runs (B, T+1, nx), each (B,), such as the distance."""
        ...

    def position(self, states: Array) -> Array:
        """Position of the robot, (..., nx) -> (..., 3) [m], by which prediction errors are measured."""
        ...
