"""The vine room's environments: each function builds a task and the simulator under it. See `envs.registry`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import OptionError
from ..core.simulator import Simulator
from ..core.task import Task
from .layouts import Clutter, Gap, Layout, Open, PaperClutter, WallAhead
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
    layout = Open(interval("goal_length", goal_length, model.link_length, model.max_length))
    task = ReachGoal(model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout)
    return task, simulate(model, backend, device, simulator_options)


def navigate(
    *,
    backend: str = "native",
    device: str = "cpu",
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    simulator_options: Mapping[str, Any] | None = None,
    clutter: str = "random",
    level: float = 1.0,
    tolerance: float = 0.03,
    control_weight: float = 0.001,
) -> tuple[Task, Simulator]:
    """A vine robot finds its way through clutter to a goal; five range readings at the tip see 0.3 m far.

    Args:
        backend: "native", our engine, or "mujoco", the twin.
        device: "cpu", or a CUDA device for our engine.
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        simulator_options: Further keywords of the simulator: dt, bending ("wrinkling", "linear").
        clutter: "random", circles and boxes anew in every episode, or "paper", the scene of [Jitosho2021] IV-C.
        level: Random clutter has 4 x level obstacles, up to 12. An option of `reset` as well.
        tolerance: The goal is reached within this distance of the tip [m].
        control_weight: Weight of the mean squared action.
    """
    if clutter not in CLUTTERS:
        raise OptionError(f"clutter is {clutter!r}, allowed are {', '.join(CLUTTERS)}")
    layout, constants = CLUTTERS[clutter]
    model = layout.furnish(VineModel())
    task = ReachGoal(
        model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout, level=level, constants=constants
    )
    return task, simulate(model, backend, device, simulator_options)


CLUTTERS: dict[str, tuple[Layout, dict[str, float]]] = {
    "random": (Clutter(), {}),
    "paper": (PaperClutter(), {"bending_stiffness": 3.6e-4, "bending_damping": 1e-5}),  # k l of the authors' 12 mm links
}
"""Kinds of clutter, with the constants of their robots."""


def squeeze(
    *,
    backend: str = "native",
    device: str = "cpu",
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    simulator_options: Mapping[str, Any] | None = None,
    level: float = 1.0,
    tolerance: float = 0.04,
    control_weight: float = 0.001,
) -> tuple[Task, Simulator]:
    """A vine robot of 24 mm passes a gap of 26 to 32 mm between slanted jaws, leaning on them, to a goal behind.

    Args:
        backend: "native", our engine, or "mujoco", the twin.
        device: "cpu", or a CUDA device for our engine.
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        simulator_options: Further keywords of the simulator: dt, bending ("wrinkling", "linear").
        level: Divides the free width of the gap, from 1 to 3. An option of `reset` as well.
        tolerance: The goal is reached within this distance of the tip [m].
        control_weight: Weight of the mean squared action.
    """
    layout = Gap()
    model = layout.furnish(VineModel())
    task = ReachGoal(model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout, level=level)
    return task, simulate(model, backend, device, simulator_options)


def wall(
    *,
    backend: str = "native",
    device: str = "cpu",
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    simulator_options: Mapping[str, Any] | None = None,
    tolerance: float = 0.03,
    control_weight: float = 0.001,
) -> tuple[Task, Simulator]:
    """A vine robot grows into a wall and slides along it to a goal beside the wall ([Jitosho2021] IV-B2).

    Args:
        backend: "native", our engine, or "mujoco", the twin.
        device: "cpu", or a CUDA device for our engine.
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        simulator_options: Further keywords of the simulator: dt, bending ("wrinkling", "linear").
        tolerance: The goal is reached within this distance of the tip [m].
        control_weight: Weight of the mean squared action.
    """
    layout = WallAhead()
    model = layout.furnish(VineModel())
    task = ReachGoal(model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout)
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


def interval(name: str, value: Any, lowest: float, highest: float) -> tuple[float, float]:
    """Two numbers [m] with lowest <= low <= high <= highest.

    Raises:
        OptionError: Anything else.
    """
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not lowest <= low <= high <= highest:
        raise OptionError(f"{name} is {value!r}, expected (low, high) in [{lowest:g}, {highest:g}] m")
    return low, high
