"""The vine room's environments: each function builds a task and the simulator under it. See `envs.registry`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import OptionError
from ..core.simulator import Simulator
from ..core.task import Task
from .model import VineModel
from .scene_file import load_scene
from .tasks import ReachGoal


def grow(
    *,
    backend: str = "native",
    device: str = "cpu",
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    simulator_options: Mapping[str, Any] | None = None,
    scene: str | Path | None = None,
    tolerance: float = 0.03,
    goal_length: Sequence[float] = (0.45, 1.0),
    control_weight: float = 0.001,
) -> tuple[Task, Simulator]:
    """A vine robot of 24 mm diameter grows from 0.3 m to at most 1.2 m and steers its tip to a goal in the open.

    Args:
        backend: "native", our engine, or "mujoco", the twin.
        device: "cpu", or a CUDA device for our engine.
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        simulator_options: Further keywords of the simulator: dt, bending ("wrinkling", "linear").
        scene: TOML file of another robot, and obstacles if any; see `scene_file.load_scene`.
        tolerance: The goal is reached within this distance of the tip [m].
        goal_length: Goals are where a bent robot of such a length ends, (low, high) [m].
        control_weight: Weight of the mean squared action.
    """
    model = VineModel() if scene is None else load_scene(scene)
    task = ReachGoal(
        model, control_period, obs_mode, control_weight, tolerance=tolerance, lengths=interval("goal_length", goal_length)
    )
    return task, simulate(model, backend, device, simulator_options)


def simulate(model: VineModel, backend: str, device: str, options: Mapping[str, Any] | None) -> Simulator:
    """The simulator of a model.

    Raises:
        OptionError: Unknown backend, a device that it cannot use, unknown keywords.
    """
    kind: Any
    if backend == "native":
        from .dynamics import VineSimulator as kind
    elif backend == "mujoco":
        from .mujoco import VineTwin as kind
    else:
        raise OptionError(f"backend is {backend!r}, allowed are native, mujoco")
    if backend == "mujoco" and device != "cpu":
        raise OptionError(f"device is {device!r}, the mujoco backend runs on 'cpu'")
    if not isinstance(options or {}, Mapping):
        raise OptionError(f"simulator_options is {options!r}, expected a mapping of keywords to values")
    keywords = dict(options or {})
    allowed = set(inspect.signature(kind).parameters) - {"model", "device"}
    for name in keywords:
        if name not in allowed:
            raise OptionError(f"simulator_options has {name!r}; {kind.__name__} takes {', '.join(sorted(allowed))}")
    simulator: Simulator = kind(model=model, **keywords, **({"device": device} if backend == "native" else {}))
    return simulator


def interval(name: str, value: Any) -> tuple[float, float]:
    """Two numbers, the first not larger.

    Raises:
        OptionError: Anything else.
    """
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not low <= high:
        raise OptionError(f"{name} is {value!r}, expected (low, high)")
    return low, high
