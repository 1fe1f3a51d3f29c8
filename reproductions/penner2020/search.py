"""Optimal control over the fixed quantities of a single program: its mesh, and its duration.

The step of a simulator is written for one dt, so both are searched from outside, with every program started from the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from scipy.optimize import minimize_scalar

from agents.control.optimal import NEAREST, Manoeuvre, OptimalMotion, plan_motion
from softgym_envs.core.errors import OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Symbolic, check_number

Simulate = Callable[[float], Symbolic]
"""dt [s] -> a simulator."""


def refined(
    simulate: Simulate,
    manoeuvre: Manoeuvre,
    seconds: float,
    meshes: Sequence[int],
    *,
    parameters: Parameters | None = None,
    tolerance: float = 0.0,
) -> list[OptimalMotion]:
    """Solve a manoeuvre on finer and finer meshes, each from the motion before.

    Args:
        simulate: Makes the simulator.
        manoeuvre: The problem; its `steps` are ignored.
        seconds: Duration.
        meshes: Increasing numbers of steps.
        parameters: Parameters, one row; None: the defaults.
        tolerance: Relative change of the objective at which the mesh is fine enough.

    Raises:
        OptionError: Meshes do not increase.
    """
    check_number("seconds", seconds, positive=True, unit="s")
    if not meshes or any(b <= a for a, b in pairwise(meshes)):
        raise OptionError(f"meshes are {tuple(meshes)}, expected numbers of steps that grow")
    found: list[OptimalMotion] = []
    for steps in meshes:
        initial_guess = found[-1] if found and found[-1].solved else None
        asked = replace(manoeuvre, steps=steps)
        found.append(plan_motion(simulate(seconds / steps), asked, parameters=parameters, initial_guess=initial_guess))
        if len(found) > 1 and found[-1].solved and found[-2].solved:
            if abs(found[-1].objective - found[-2].objective) <= tolerance * abs(found[-1].objective):
                break
    return found


@dataclass(frozen=True, eq=False)
class TimedMotion:
    """A motion of free duration."""

    motion: OptimalMotion
    seconds: float
    cost: float
    """Sum of objective and weighted time."""
    tried: tuple[tuple[float, float], ...]
    """Durations [s] and costs of all programs, with the end nearly met."""


def plan_free_time(
    simulate: Simulate,
    manoeuvre: Manoeuvre,
    seconds: tuple[float, float],
    *,
    time_weight: float,
    parameters: Parameters | None = None,
    tolerance: float = 0.01,
) -> TimedMotion:
    """Motion and duration T of least objective + time_weight T, with the steps of the manoeuvre.

    A bounded search over T (Brent) in which the end is a penalty, so that times that are too short have a cost, too.
    The motion returned meets the end, `tolerance` later.

    Args:
        simulate: Makes the simulator.
        manoeuvre: The problem; without effort and smoothness, the fastest motion is found.
        seconds: Shortest and longest duration.
        time_weight: Weight of a second.
        parameters: Parameters, one row; None: the defaults.
        tolerance: Relative tolerance of the duration.

    Raises:
        OptionError: Durations are not in order, or `time_weight` is not positive.
    """
    low, high = seconds
    check_number("time_weight", time_weight, positive=True)
    if not 0 < low < high:
        raise OptionError(f"seconds is {seconds}, expected a shortest and a longest duration, both positive")
    soft, steps, tried = replace(manoeuvre, end_weight=NEAREST), manoeuvre.steps, list[tuple[float, float]]()
    last: OptimalMotion | None = None

    def cost(duration: float) -> float:
        nonlocal last
        motion = plan_motion(simulate(duration / steps), soft, parameters=parameters, initial_guess=last)
        last = motion if motion.solved else last
        tried.append((duration, motion.objective + time_weight * duration))
        return tried[-1][1]

    best = minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": tolerance * low})
    duration = min(float(best.x) * (1 + tolerance), high)
    motion = plan_motion(simulate(duration / steps), manoeuvre, parameters=parameters, initial_guess=last)
    return TimedMotion(motion, duration, motion.objective + time_weight * duration, tuple(tried))
