"""Chosen policies, ready to run on the truth: plans, batched policies, receding-horizon controllers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.scenario import BatchPolicy
from softgym_envs.core.simulator import Simulator

from ..planning.mpc import ILQGController, SamplingController
from ..planning.plan import CountedSimulator, Plan, Run, roll_policy, run_closed_loop, run_open_loop, run_policy
from .models import Model

Array = NDArray[np.float64]


class Executable(Protocol):
    """A chosen policy."""

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """Run it from states (B, nx)."""
        ...


@dataclass(frozen=True, eq=False)
class PlanExecutable:
    """A plan with its gains times a factor."""

    plan: Plan
    feedback: float

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """See `Executable`."""
        if self.feedback == 0.0:
            return run_open_loop(self.plan, simulator, state, parameters)
        scaled = replace(self.plan, gains=self.feedback * self.plan.gains)
        return run_closed_loop(scaled, simulator, state, parameters)


@dataclass(frozen=True, eq=False)
class PolicyExecutable:
    """A batched policy."""

    policy: BatchPolicy
    steps: int
    substeps: int

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """See `Executable`."""
        return roll_policy(CountedSimulator(simulator, self.substeps), self.policy, state, self.steps, parameters)


@dataclass(frozen=True, eq=False)
class ControllerExecutable:
    """A receding-horizon controller, run from one start after the other; the record counts the steps of all its plans."""

    controller: ILQGController | SamplingController
    model: Model
    """Model to plan in: a state of the truth is converted to one of the model before every plan."""
    steps: int
    substeps: int
    spent: list[int] = field(default_factory=list)
    """Physics steps of planning, one entry per start."""

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """See `Executable`."""
        runs = []

        def policy(state: Array, t: int) -> Array:
            return self.controller(self.model.states(state, t), t)

        for x in state:
            self.controller.reset()
            runs.append(run_policy(policy, simulator, x, steps=self.steps, substeps=self.substeps, parameters=parameters))
            self.spent.append(self.controller.steps.total())
        return Run(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))


class Chosen(NamedTuple):
    """Result of a condition's planner."""

    executable: Executable
    model_cost: float | None
    """Expected cost in the condition's own model from perturbed starts; None if there is no model run."""
    detail: dict[str, Any]
    steps: int
    """Physics steps of the model, a linearisation by differences counted by its simulated steps"""
