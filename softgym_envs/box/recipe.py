"""How a box is recorded and identified: throws that cameras saw, and the constants of contact.

A recording holds poses in the table's frame: "x", "y", "z" of the centre and the attitude "qw", "qx", "qy", "qz" (in a plane
"x", "z" and "theta"). Without control columns no force acts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..core.recipe import Experiment, Recipe, Stage
from ..core.simulator import Array
from ..core.trajectory import Trajectory
from .experiments import posed, tossed
from .flight import begun, first_state

CONTACT = ("friction", "restitution", "inertia", "gravity", "table", "rounding")
KNOWN = {"gravity": (9.81, 0.3), "friction": (0.4, 0.4)}
"""Means and standard deviations beforehand: cameras' lengths and times are not exact [m/s^2]; friction of most things. Where
every corner sticks nothing tells it, and steps of a fit would know no bounds."""
ROWS = (6, 8, 10, 14, 20, 28)
"""Of the segments that a fit grows over: a strike or none, then one more at a time."""
ROUGH = ({"strike_parts": 6}, {"strike_parts": 2})
"""How strikes are taken meanwhile: in a third of the time, and with kinks elsewhere on the second way."""


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


def _stage(name: str, free: tuple[str, ...], options: dict[str, Any], **more: Any) -> Stage:
    """Whole predictions, from how the box was let go."""
    shared = {"loss": "robust", "errors": "clustered", "scan": False}
    given = {"prepare": posed, "free_motion": True, **more}
    return Stage(name, "tossed", free, "single_shooting", {**shared, **options}, **given)


def _differences(step: float) -> dict[str, Any]:
    """Slopes over a step [fit coordinate]: far off outcomes of strikes jump, and jumps pass for slopes over a short one."""
    return {"jacobian": "differences", "epsilon": step, "secant": step}


# By --stage: the first strike alone, by Huber's loss to the end: however far constants are off, a box still strikes there. Real
# boxes' later strikes, and lost frames, spoil no start; and so short a flight says less of gravity than is known.
STRIKE = _stage(
    "strike", tuple(name for name in CONTACT if name != "gravity"), {**_differences(1e-2), "reweight": 0},
    prepare=partial(begun, share=STRUCK),
)  # fmt: skip
# A few strikes, before throws go their own ways; differences are of the twin, whose derivatives are not exact.
GROWN = _stage(
    "contact", CONTACT, {"epsilon": 2e-3, "grow": ROWS, "rough": ROUGH, "levenberg": {"cost_tolerance": 1e-6}}, window=0.25,
    prior=KNOWN,
)  # fmt: skip
# By --stage: strikes tell friction of a real box otherwise than sliding does, which decides where it comes to rest.
SLID = _stage("slid", ("friction",), _differences(1e-2), free_initial=False)

RECIPE = Recipe(
    experiments=(Experiment("tossed", tossed, 207, enough=207),),
    stages=(GROWN,),
    others=(STRIKE, SLID),
    infer_controls=infer_controls,
    first_state=released,
    experiment_of=thrown,
)
