"""How a box is recorded and identified: throws that cameras saw, and the constants of contact.

A recording holds poses in the table's frame: "x", "y", "z" of the centre and the attitude "qw", "qx", "qy", "qz" (in a plane
"x", "z" and "theta"). Without control columns no force acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core.recipe import Experiment, Recipe, Stage
from ..core.simulator import Array
from ..core.trajectory import Trajectory
from .experiments import posed, tossed
from .flight import begun, first_state

CONTACT = ("friction", "restitution", "inertia", "gravity", "table", "rounding")
GRAVITY = (9.81, 0.3)
"""[m/s^2] Mean and standard deviation beforehand: it is known, but cameras' lengths and times are not exact."""


def infer_controls(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """No force where none is recorded."""
    if trajectory.control_names:
        return trajectory
    still = np.zeros((trajectory.num_steps, simulator.nu))
    return trajectory.with_controls(still, simulator.control_names, simulator.model.control_units)


def released(simulator: Any, names: tuple[str, ...]) -> Callable[[Trajectory], Array]:
    """How a box was let go in a recording."""
    return partial(first_state, simulator=simulator)


def thrown(simulator: Any, trajectory: Trajectory) -> str:
    """Whatever a laboratory records of a box is a throw."""
    return "tossed"


STRUCK = 1.5
"""How long `strike` looks, over how long a box flew before."""


def _stage(name: str, window: float | None, step: float, free: tuple[str, ...] = CONTACT, **more: Any) -> Stage:
    """Whole predictions over `window` [s] from how the box was let go: a strike or two, before throws go their own ways.

    Differences along constants are over `step` [fit coordinate]: where a start is far off, outcomes of a strike jump, and over
    a short one jumps pass for slopes.
    """
    options = {
        "loss": "robust", "errors": "clustered", "scan": False, "jacobian": "differences", "epsilon": step, "secant": step,
    }  # fmt: skip
    return Stage(
        name, "tossed", free, "single_shooting", options, prepare=posed, free_motion=True, window=window,
        prior={"gravity": GRAVITY} if "gravity" in free else {}, **more,
    )  # fmt: skip


def _first_strike() -> Stage:
    """The first strike alone, by Huber's loss to the end: however far constants are off, a box still strikes there.

    Real boxes' later strikes, and lost frames, spoil no start; and so short a flight says less of gravity than is known.
    """
    stage = _stage("strike", None, 1e-2, tuple(name for name in CONTACT if name != "gravity"))
    return replace(stage, prepare=partial(begun, share=STRUCK), options={**stage.options, "reweight": 0})


RECIPE = Recipe(
    experiments=(Experiment("tossed", tossed, 207, enough=207),),
    stages=(_first_strike(), _stage("struck", 0.2, 1e-2), _stage("contact", 0.25, 2e-3)),
    # By --stage: strikes tell friction of a real box otherwise than sliding does, which decides where it comes to rest.
    laboratory=_stage("slid", None, 1e-2, ("friction",), free_initial=False),
    infer_controls=infer_controls,
    first_state=released,
    experiment_of=thrown,
)
