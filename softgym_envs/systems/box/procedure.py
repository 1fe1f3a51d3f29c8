"""Recording and identification of a box: throws that cameras saw, and the parameters of contact.

A recording holds poses in the table's frame: "x", "y", "z" of the centre and the attitude "qw", "qx", "qy", "qz" (in a plane
"x", "z" and "theta"). Without control columns no force acts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...core.procedure import Causes, Experiment, InitialState, Outline, Procedure, Recorded, Stage, StageData
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from ...core.typed import merged
from .experiments import posed, tossed, tossed_exactly
from .flight import begun, first_state

CONTACT = ("friction", "restitution", "inertia", "gravity", "table", "rounding")
KNOWN = {"gravity": (9.81, 0.3), "friction": (0.4, 0.4)}
"""Prior means and standard deviations: gravity [m/s^2], as cameras' lengths and times are not exact; friction of most things.
Where every corner sticks, data do not determine friction, and steps of a fit would be unbounded."""
ROWS = (6, 8, 10, 14, 20, 28)
"""Rows of the segments that a fit grows over: a strike or none, then one more at a time."""
COARSE = ({"strike_parts": 6}, {"strike_parts": 2})
"""Coarser strikes while segments grow: a third of the time; the second option has its kinks elsewhere."""


def infer_controls(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """Set forces to zero where none is recorded."""
    if trajectory.control_names:
        return trajectory
    still = np.zeros((trajectory.num_steps, simulator.nu))
    return trajectory.with_controls(still, simulator.control_names, simulator.model.control_units)


def released(simulator: Any, names: tuple[str, ...]) -> Callable[[Trajectory], Array]:
    """Estimator of the state in which a recording's box was released."""
    return partial(first_state, simulator=simulator)


def thrown(simulator: Any, trajectory: Trajectory) -> str:
    """Experiment of a laboratory's recording: always a throw."""
    return "tossed"


def outline(simulator: Any, recording: Trajectory) -> Outline | None:
    """Corners of the box; None unless its whole pose is recorded."""
    model = simulator.model
    if not set(model.measured) <= set(recording.names):
        return None
    poses = recording.select(model.measured).values
    if not model.planar:
        poses = np.hstack([poses[:, :3], poses[:, 3:] / np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)])
    return Outline(model.corners(poses), model.corners(model.rest_state()), rigid=True)


def untried(simulator: Any) -> str:
    """What real throws have and this model lacks; see `Causes.untried`."""
    return (
        "restitution and friction that depend on speed, drag of air or plates, a table that gives way or is not level, "
        "a box of another size (--model), lengths on another scale (--free ... scale)"
    )


STRUCK = 1.5
"""Duration of the data of stage `strike`, over that of the flight before."""


def _stage(name: str, free: tuple[str, ...], options: dict[str, Any], prior: Any = None, **data: Any) -> Stage:
    """Stage that predicts whole recordings from the released state."""
    shared = {"loss": "robust", "errors": "clustered", "intervals": {"model_error": False}}
    return Stage(
        name, "tossed", free, "single_shooting", merged(shared, options), prior=prior or {},
        data=StageData(**{"prepare": posed, "free_motion": True, **data}), causes=Causes(untried=untried),
    )  # fmt: skip


def _differences(step: float) -> dict[str, Any]:
    """Finite differences over a step [fit coordinate]: outcomes of strikes jump, which looks like a slope over a short step."""
    return {"jacobian": "differences", "epsilon": step, "intervals": {"difference_step": step}}


# By --stage: only the first strike, with Huber's loss to the end: however wrong the parameters, a box still strikes there.
# Later
# strikes of real boxes, and lost frames, do not spoil the start; so short a flight determines gravity worse than the prior.
STRIKE = _stage(
    "strike", tuple(name for name in CONTACT if name != "gravity"), {**_differences(1e-2), "reweight": 0},
    prepare=partial(begun, share=STRUCK),
)  # fmt: skip
# A few strikes, before throws diverge; finite differences are for the MuJoCo model, whose derivatives are not exact.
GROWN = _stage(
    "contact", CONTACT,
    {"epsilon": 2e-3, "initial": {"progressive": ROWS, "coarse": COARSE}, "levenberg": {"cost_tolerance": 1e-6}},
    window=0.25, prior=KNOWN,
)  # fmt: skip
# By --stage: strikes of a real box give another friction than sliding, which determines where the box comes to rest.
SLID = _stage("slid", ("friction",), _differences(1e-2), free_initial=False)

PROCEDURE = Procedure(
    experiments=(Experiment("tossed", tossed, 207, enough=207, from_markers=tossed_exactly),),
    stages=(GROWN,),
    others=(STRIKE, SLID),
    recorded=Recorded(infer_controls=infer_controls, experiment_of=thrown, outline=outline),
    initial=InitialState(released),
)
