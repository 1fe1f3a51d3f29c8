"""The rigid room's environments: each function builds a task and the simulator under it. See `envs.registry`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import OptionError
from ..core.simulator import Simulator
from ..core.task import Task
from .model import BlockModel
from .tasks import ReachPose, same


def sliding_block(
    *,
    backend: str = "native",
    device: str = "cpu",
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    simulator_options: Mapping[str, Any] | None = None,
    supports: Sequence[Sequence[float]] = BlockModel.supports,
    handle: Sequence[float] = BlockModel.handle,
    goal_distance: Sequence[float] = (0.15, 0.4),
    goal_turn: float = 1.0,
    tolerance: Sequence[float] = (0.02, 0.15),
    control_weight: float = 0.001,
) -> tuple[Task, Simulator]:
    """A block on three supports is pulled and pushed over a table to a pose, by a force at its handle ([Berard2008] slide 31).

    Its friction is not observed. With randomize={"friction": (0.15, 0.5)} every episode has its own, and a policy that finds it
    out has an advantage (docs/rigid.md); handle=(0, 0) with goal_turn=0 is the easier task of shoving it to a place.

    Args:
        backend: "native", our engine, or "mujoco", the twin.
        device: "cpu".
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        simulator_options: Further keywords of the simulator: dt; for the twin height.
        supports: Three points of the block that touch the table, from its centre of mass [m].
        handle: Where the force acts [m].
        goal_distance: Distance of the goal from the first pose, (low, high) [m].
        goal_turn: Largest angle of the goal from the first pose [rad].
        tolerance: How near the goal counts as reached, (place [m], angle [rad]).
        control_weight: Weight of the mean squared action.
    """
    try:
        points: Any = tuple((float(x), float(y)) for x, y in supports)
    except (TypeError, ValueError):
        points = ()
    model = BlockModel(supports=points, handle=_pair("handle", handle), pulley=None)
    simulator = simulate(model, backend, device, simulator_options)
    embed = getattr(simulator, "embed", same)
    task = ReachPose(
        model, control_period, obs_mode, control_weight, goal_distance=_pair("goal_distance", goal_distance),
        goal_turn=goal_turn, tolerance=_pair("tolerance", tolerance), embed=embed, extra=simulator.nx - 6,
    )  # fmt: skip
    return task, simulator


def simulate(model: BlockModel, backend: str, device: str, options: Mapping[str, Any] | None) -> Simulator:
    """The simulator of a model.

    Raises:
        OptionError: Unknown backend, a device that it cannot use, unknown keywords.
    """
    kind: Any
    if backend == "native":
        from .dynamics import BlockSimulator as kind
    elif backend == "mujoco":
        from .mujoco import BlockTwin as kind
    else:
        raise OptionError(f"backend is {backend!r}, allowed are native, mujoco")
    if device != "cpu":
        raise OptionError(f"device is {device!r}, the sliding block runs on 'cpu'")
    if not isinstance(options or {}, Mapping):
        raise OptionError(f"simulator_options is {options!r}, expected a mapping of keywords to values")
    keywords = dict(options or {})
    allowed = set(inspect.signature(kind).parameters) - {"model"}
    for name in keywords:
        if name not in allowed:
            raise OptionError(f"simulator_options has {name!r}; {kind.__name__} takes {', '.join(sorted(allowed))}")
    simulator: Simulator = kind(model=model, **keywords)
    return simulator


def _pair(name: str, value: Any) -> tuple[float, float]:
    """Two finite numbers.

    Raises:
        OptionError: Anything else.
    """
    try:
        a, b = (float(end) for end in value)
    except (TypeError, ValueError):
        a = b = float("nan")
    if not (abs(a) < float("inf") and abs(b) < float("inf")):
        raise OptionError(f"{name} is {value!r}, expected two numbers")
    return a, b
