"""Makes episodes of an id of a system: its task, and the simulator given by the keywords of `gymnasium.make`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.base import model_width
from ..core.contract import check_build
from ..core.errors import KeywordError, OptionError, ParameterError, SimulationWarning, shown
from ..core.files import read_toml
from ..core.interface import NOT_PLAYED, Interface
from ..core.parameters import Interval, Parameters
from ..core.simulator import Simulator
from ..core.spec import SimulatorSpec
from ..core.system import NATIVE, System
from ..core.task import Task, load
from .episodes import Episodes
from .interfacing import mapped, names_of
from .settings import Settings

CLOSE = 0.01
"""Largest relative difference of the physics step from that at which parameters were identified, as by a camera."""

ON_DEVICE = ("output", "dtype", "starts")
"""Keywords of a vector environment alone."""

MOST_NAMED = 5
"""Most sensors that a warning names."""


def make_episodes(system: System, task_id: str, rngs: Sequence[np.random.Generator], keywords: Mapping[str, Any]) -> Episodes:
    """Episodes of one of a system's ids.

    Args:
        system: Where the id is declared.
        task_id: The id.
        rngs: One generator per row.
        keywords: Keywords of `Settings` and of the id's own function.

    Raises:
        KeywordError: Unknown keyword.
        OptionError: A value that is not allowed.
        ParameterError: The file given as params belongs to another system, structure, option or dt.
    """
    entry, given = system.task(task_id), keywords.get("params")
    if not isinstance(given, (type(None), str, Path, Mapping, Parameters)):
        raise OptionError(f"params is {shown(given)}, expected parameters, {{name: value}}, or a TOML file")
    build = load(entry.build)
    shared = [f.name for f in fields(Settings)]
    signature = inspect.signature(build).parameters
    own = [name for name in signature if name not in ("model", *shared)]
    for name in keywords:
        if name not in (*shared, *own):
            known = ", ".join(sorted((*shared, *own)))
            hint = f"; {name} is one of gym.make_vec with vectorization_mode='vector_entry_point'" if name in ON_DEVICE else ""
            raise KeywordError(f"{task_id} got an unexpected keyword argument {name!r}{hint}; allowed are render_mode, {known}")
    defaults = {name: signature[name].default for name in shared if name in signature and name != "model"}
    if isinstance(defaults.get("randomize"), Mapping) and isinstance(keywords.get("params"), Mapping):  # named: not drawn
        defaults["randomize"] = {k: v for k, v in defaults["randomize"].items() if k not in keywords["params"]}
    settings = Settings(**{**defaults, **{name: value for name, value in keywords.items() if name in shared}})
    spec = SimulatorSpec.read(settings.params) if isinstance(settings.params, (str, Path)) else None
    if str(settings.backend) != NATIVE and (spec is not None or isinstance(settings.params, Parameters)):
        warnings.warn(
            f"params replace the parameters of backend {str(settings.backend)!r}, which is then another ground truth than the "
            "recorded one; to test a fit on the ground truth, leave params out there",
            SimulationWarning,
            stacklevel=4,
        )

    model = system.model(entry.model if settings.model is None else settings.model, settings.params)
    task = build(
        model, control_period=settings.control_period, **{name: value for name, value in keywords.items() if name in own}
    )
    simulator = check_build(entry.build, task, lambda model: _simulator(system, model, settings, spec))
    if isinstance(settings.params, (str, Path)):
        settings = replace(settings, **_interface_of(settings.params, task, simulator, keywords))
    if "randomize" not in keywords and isinstance(settings.randomize, Mapping):
        settings = replace(settings, randomize=_drawn(settings.randomize, simulator, settings.backend))
    return Episodes(task, simulator, rngs, settings)


def _interface_of(path: str | Path, task: Task, simulator: Simulator, given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the interface in a file that are not given; a `SimulationWarning` names what cannot be played."""
    found, missing = mapped(Interface.read(path), names_of(task, simulator, model_width(simulator)))
    said = []
    if missing:
        more = f" and {len(missing) - MOST_NAMED} others" if len(missing) > MOST_NAMED else ""
        said.append(f"this environment has no sensor {', '.join(missing[:MOST_NAMED])}{more}")
    if other := read_toml(path).get("provenance", {}).get(NOT_PLAYED):
        said.append(f"{other} of the recordings is no part of it")
    if said:
        warnings.warn(f"{path}: [interface] is played in part: {'; '.join(said)}", SimulationWarning, stacklevel=5)
    return {name: value for name, value in found.items() if name not in given}


def _drawn(usual: Mapping[str, Interval], simulator: Simulator, backend: str) -> dict[str, Interval]:
    """Parameters that a task draws and this simulator has; a `SimulationWarning` names the others."""
    there = simulator.default_parameters
    absent = [name for name in usual if name not in there.names() and name not in there.vectors]
    if absent:
        text = f"backend {str(backend)!r} has no parameter {', '.join(absent)}, which the task draws: it stays as it was built"
        warnings.warn(text, SimulationWarning, stacklevel=5)
    return {name: interval for name, interval in usual.items() if name not in absent}


def _simulator(system: System, model: Any, settings: Settings, spec: SimulatorSpec | None) -> Simulator:
    """The simulator given by the settings; the native engine with the options and dt of a file of parameters."""
    options, dt = settings.options, settings.dt
    if spec is not None and settings.backend == NATIVE:
        if spec.system == system.name:
            options, dt = {**spec.options, **(options or {})}, _near(spec.dt, settings.control_period) if dt is None else dt
    made = system.simulator(model, backend=settings.backend, dt=dt, device=settings.device, options=options)
    if spec is not None and settings.backend == NATIVE:
        wrong = spec.mismatch(SimulatorSpec.of(made), free=system.free_structure, slack=CLOSE)
        if wrong:
            raise ParameterError(
                f"params {settings.params}: {wrong}. Identify again for this simulator, or give the parameters as an object "
                "(Parameters.load) if you know that they hold"
            )
    return made


def _near(dt: float, period: float) -> float:
    """The physics step [s], or an even fraction of the control period that is within `CLOSE` of it."""
    share = period / dt if isinstance(period, (int, float)) and period > 0 else 0.0
    near = period / max(round(share), 1)
    return near if 1e-6 * dt < abs(near - dt) <= CLOSE * dt else dt
