"""A problem with other steps of its simulator: finer ones simulate the same robot, nearer to continuous time."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

from softgym_envs.core.errors import OptionError
from softgym_envs.core.trajectory import DataSplit, TrajectorySet, part_of

from ..least_squares.segments import Segments
from ..problem.problem import FitProblem
from .model_form import Varied


def in_steps_of(problem: FitProblem, simulator: Any) -> FitProblem:
    """Copy of the problem with another simulator, whose steps are adjusted so that a row has a whole number of them."""
    dt = part_of(problem.split.train[0].period, simulator.dt)
    cut = (TrajectorySet(tuple(replace(t, substeps=round(t.period / dt)) for t in part)) for part in problem.split)
    own = simulator if abs(dt - simulator.dt) < 1e-9 * dt else replace(simulator, dt=dt)
    return problem.replace(simulator=own, data=DataSplit(*cut))


def half_step_variation(segments: Segments) -> dict[str, Varied]:
    """Step in words -> segments in half the simulator's step, for `laws`.

    Raises:
        OptionError: The simulator has no step that can be changed.
    """
    simulator: Any = segments.problem.simulator
    if not is_dataclass(segments.problem.simulator) or not hasattr(simulator, "dt"):
        raise OptionError(f"{type(simulator).__name__} has no field dt: its step cannot be halved")
    halved = in_steps_of(segments.problem, replace(simulator, dt=0.5 * simulator.dt))
    finer = replace(segments, problem=halved, substeps=2 * segments.substeps)
    return {f"the simulator's step of {1e3 * simulator.dt:.3g} ms": Varied(0.5, finer)}


__all__ = ["half_step_variation", "in_steps_of"]
