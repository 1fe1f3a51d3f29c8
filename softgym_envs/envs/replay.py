"""Recordings beside a fit's predictions of them, as scenes of one instant; it knows no `sysid`.

Legend: L rows, ny columns, nx state, P points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..core.errors import DataError, FileFormatError
from ..core.parameters import Parameters
from ..core.simulator import Array
from ..core.spec import SimulatorSpec
from ..data.sensors import points_of
from ..rendering.colors import FORCE, TRAIL
from ..rendering.picture import PointOverlay
from ..rendering.scene import GroundGrid, Primitive, Scene, Sphere
from ..systems import system as system_named
from .drawing import overlay_scene, picture_of, scene_of
from .panel import SECOND, SQUARE, Panel, run_loop


class Predicted(Protocol):
    """A recording with its prediction to the end, as `sysid.predict` returns it."""

    @property
    def label(self) -> str:
        """Name of the recording."""

    @property
    def times(self) -> Array:
        """Times, (L,) [s]."""

    @property
    def measured(self) -> Array:
        """Recorded columns, (L, ny)."""

    @property
    def predicted(self) -> Array:
        """Predicted columns, (L, ny); NaN where it diverged."""


@dataclass(frozen=True, eq=False)
class Replay:
    """Recordings and predictions of a robot.

    Columns that are entries of the state move two robots, whose other entries are at rest. Without such columns, points are
    drawn: by the system's own picture of a fit to points, if it has one, else as two sets of balls.

    Raises:
        DataError: No recording is long enough, or there is nothing to draw in them.
    """

    simulator: Any
    parameters: Parameters
    names: tuple[str, ...]
    """ny columns."""
    paths: Sequence[Predicted]

    def __post_init__(self) -> None:
        if not self.paths:
            raise DataError("no recording is long enough for a prediction")
        if not self._points and not self._has_state:
            raise DataError(f"nothing can be drawn of the columns {', '.join(self.names[:5])}: no points, no state entries")

    @classmethod
    def of_fit(cls, fit: str | Path, system: str, names: tuple[str, ...], paths: Sequence[Predicted]) -> Replay:
        """Predictions of a fit, with the simulator and parameters of its file.

        Raises:
            FileFormatError: The file is no fit.
        """
        file = Path(fit) if Path(fit).suffix == ".toml" else Path(fit) / "fit.toml"
        spec = SimulatorSpec.read(file)
        if spec is None:
            raise FileFormatError(f"{file} does not say to which simulator it belongs: it is no fit")
        simulator = system_named(system).simulator(spec.model or None, options=spec.options)
        return cls(simulator, type(simulator.default_parameters).load(file, simulator.default_parameters), names, paths)

    @property
    def title(self) -> str:
        """Title of the page."""
        return f"{self.simulator.system}: recorded and fit"

    @property
    def _has_state(self) -> bool:
        return not set(self.names).isdisjoint(self.simulator.state_names)

    @cached_property
    def _points(self) -> list[list[int]]:
        """Columns of every point."""
        return [list(group) for group in points_of(self.names) if len(group) in (2, 3)]

    def length(self, index: int) -> float:
        """Duration of a recording [s]."""
        return float(self.paths[index].times[-1] - self.paths[index].times[0])

    def error(self, index: int) -> str:
        """How far the prediction is off at the end of a recording, in words."""
        path = self.paths[index]
        apart = path.predicted - path.measured
        good = np.isfinite(apart)
        return f"RMS difference of all columns: {np.sqrt(np.mean(apart[good] ** 2)):.3g} SI" if good.any() else "diverged"

    def scenes(self, index: int, seconds: float) -> dict[str, Scene]:
        """Scenes "recorded" and "fit" of a recording, some time after its start [s]; "recorded" alone holds overlaid points."""
        path = self.paths[index]
        row = int(
            np.clip(np.searchsorted(path.times - path.times[0], seconds + 1e-9, side="right") - 1, 0, len(path.times) - 1)
        )
        if not self._has_state:
            return self._of_points(path.measured[row], path.predicted[row])
        return {"recorded": self._robot(path.measured, row), "fit": self._robot(path.predicted, row)}

    def _robot(self, values: Array, row: int) -> Scene:
        """The robot in a row, or in the last one before it in which a column was known."""
        state, places = self.simulator.initial_state()[0], {name: k for k, name in enumerate(self.simulator.state_names)}
        for column, name in enumerate(self.names):
            known = np.flatnonzero(np.isfinite(values[: row + 1, column]))
            if name in places and len(known):
                state[places[name]] = values[known[-1], column]
        return scene_of(self.simulator, state, parameters=self.parameters)

    def _of_points(self, measured: Array, predicted: Array) -> dict[str, Scene]:
        flat = all(len(group) == 2 for group in self._points)
        seen, fitted = (np.array([values[group] for group in self._points]) for values in (measured, predicted))
        if flat and isinstance(picture_of(self.simulator), PointOverlay) and np.isfinite(fitted).all():
            return {"recorded": overlay_scene(self.simulator, fitted, seen)}
        rest = scene_of(self.simulator, self.simulator.initial_state()[0], parameters=self.parameters)
        parts: list[Primitive] = [part for part in rest.primitives if isinstance(part, GroundGrid)]
        for points, color in ((seen, FORCE), (fitted, TRAIL)):
            points = np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
            parts += [Sphere(point, 0.02 * rest.extent, color) for point in points if np.isfinite(point).all()]
        return {"recorded": replace(rest, primitives=tuple(parts), legend=None)}


class ReplayViewer:
    """Recordings beside the fitted model in a page, scrubbed in time.

    Args:
        replay: The recordings and their predictions.
        port: Port of the page.

    Raises:
        OptionError: The port is in use.
        MissingDependencyError: viser is not installed.
    """

    def __init__(self, replay: Replay, port: int) -> None:
        self.replay, self.index, self.time = replay, 0, 0.0
        self.panel = Panel(port, replay.title, lambda name, way: None)
        gui, on = self.panel.browser.gui, self.panel.on
        labels = tuple(f"{place + 1}: {path.label}" for place, path in enumerate(replay.paths))
        self.which = on(gui.add_dropdown("recording", labels), lambda label: self._choose(labels.index(label)))
        self.slider: Any = gui.add_slider("time [s]", 0.0, replay.length(0), 0.001, 0.0)
        self.apart = gui.add_slider("apart", 0.0, 4.0, 0.1, 1.8)

    def _choose(self, index: int) -> None:
        self.index = index
        self.slider.max, self.slider.value = self.replay.length(index), 0.0

    def frame(self, seconds: float) -> None:
        """Carry out commands, let time pass [s], and show both."""
        asked = self.panel.commands.run()
        length = self.replay.length(self.index)
        if self.panel.play.value:
            now = self.slider.value + seconds * self.panel.speed.value
            self.slider.value = now if now <= length else 0.0
        scenes: dict[str, Scene] = self.replay.scenes(self.index, self.slider.value)
        self.panel.browser.show(scenes, {"fit": SECOND}, self.apart.value)
        text = f"**recorded**, **fit** {SQUARE}, {self.slider.value:.2f} of {length:.2f} s\n\n{self.replay.error(self.index)}"
        self.panel.tell(text, None, asked)

    def run(self, frames: int | None = None) -> None:
        """Show both until an interrupt, or for a number of frames; then end the page."""
        try:
            run_loop(self.frame, frames)
        finally:
            self.panel.browser.close()
