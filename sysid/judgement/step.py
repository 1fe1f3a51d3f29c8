"""A problem in finer steps of its simulator: the same robot, nearer to continuous time."""

from __future__ import annotations

from dataclasses import is_dataclass, replace
from typing import Any

from softgym_envs.core.errors import OptionError
from softgym_envs.core.trajectory import DataSplit, TrajectorySet

from ..data.problem import FitProblem
from ..least_squares.segments import Segments
from .laws import Varied


def in_finer_steps(problem: FitProblem, simulator: Any) -> FitProblem:
    """The problem with the same robot in finer steps, of which recordings take as many more."""
    factor = round(problem.simulator.dt / simulator.dt)
    parts = (TrajectorySet(tuple(replace(t, substeps=factor * t.substeps) for t in part)) for part in problem.split)
    return problem.replace(simulator=simulator, data=DataSplit(*parts))


def in_half_steps(segments: Segments) -> dict[str, Varied]:
    """Of whose step -> segments in half the simulator's step, for `laws`.

    Raises:
        OptionError: The simulator has no step that can be changed.
    """
    simulator: Any = segments.problem.simulator
    if not is_dataclass(segments.problem.simulator) or not hasattr(simulator, "dt"):
        raise OptionError(f"{type(simulator).__name__} has no field dt: its step cannot be halved")
    halved = in_finer_steps(segments.problem, replace(simulator, dt=0.5 * simulator.dt))
    finer = replace(segments, problem=halved, substeps=2 * segments.substeps)
    return {f"the simulator's step of {1e3 * simulator.dt:.3g} ms": Varied(0.5, finer)}


__all__ = ["in_finer_steps", "in_half_steps"]
