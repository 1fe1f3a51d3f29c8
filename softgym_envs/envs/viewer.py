"""The panel of running robots in a browser: play, speed, seeds, latency, mismatch, pushes, parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..core.parameters import ParameterSpec
from ..core.simulator import Array
from .live import Live, Robot
from .panel import SECOND, SQUARE, Panel, run_loop

LONGEST_LATENCY = 0.5
"""[s]"""
DRAG_SPEED = 2.0
"""Speed of a push over the way of the mouse [m/s per m]."""
WAYS = {"away": (0.0, 1.0), "left": (-1.0, 0.0), "right": (1.0, 0.0), "back": (0.0, -1.0)}
"""Name of a button -> direction to the right and away from the first camera."""


class LiveViewer:
    """Running robots in a page: play, speed, seeds, latency, level, pushes, parameters of the first robot.

    Args:
        live: The robots.
        port: Port of the page.

    Raises:
        OptionError: The port is in use.
        MissingDependencyError: viser is not installed.
    """

    def __init__(self, live: Live, port: int) -> None:
        self.live, first = live, live.first
        self.panel = Panel(port, first.name, self._dragged)
        self.tints = {robot.inner.backend: SECOND for robot in live.robots[1:]}
        self.sliders: dict[str, Any] = {}
        """Parameter -> its slider; the logarithm to base 10 where the scale is logarithmic."""
        gui, on = self.panel.browser.gui, self.panel.on
        on(self.panel.play, self._set_play)
        on(self.panel.speed, lambda value: setattr(live, "speed", value))
        self.seed: Any = on(gui.add_number("seed", live.first.seed, min=0, step=1), lambda seed: live.reset(int(seed)))
        self.panel.buttons("episode", {"reset": lambda: live.reset(int(self.seed.value)), "one step": self._one_step})
        on(gui.add_checkbox("next seed at the end", True), lambda value: setattr(live, "next_seed", value))
        self.latency = on(gui.add_slider("latency [s]", 0.0, LONGEST_LATENCY, 0.01, self._first_latency()), self._set_latency)
        if any(robot.has_level for robot in live.robots):
            self.level = on(gui.add_slider("mismatch level", 0, 3, 1, 0), self._set_level)
        self.apart = gui.add_slider("apart", 0.0, 4.0, 0.1, 1.8) if len(live.robots) > 1 else None
        self.follow = gui.add_checkbox("follow the robot", True)
        with gui.add_folder("Push"):
            gui.add_markdown("Shift + drag the robot, or:")
            self.push_speed = gui.add_slider("push [m/s]", 0.1, 5.0, 0.1, 1.0)
            self.panel.buttons("direction", {name: partial(self._push_way, *way) for name, way in WAYS.items()})
        with gui.add_folder("Parameters"):
            for name, spec in first.adjustable().items():
                self.sliders[name] = self._slider(name, spec)
            self.panel.buttons("all", {"as at the start": self._restore})

    def _first_latency(self) -> float:
        given = self.live.first.inner.episodes.settings.action_latency
        return min(float(np.max(given)), LONGEST_LATENCY)

    def _slider(self, name: str, spec: ParameterSpec) -> Any:
        """A slider of a parameter of the first robot."""
        first, gui, (low, high) = self.live.first, self.panel.browser.gui, spec.bounds
        value = float(getattr(first.parameters, name))
        if spec.scale != "log":
            linear = gui.add_slider(f"{name}{f' [{spec.unit}]' if spec.suffix else ''}", low, high, (high - low) / 400, value)
            return self.panel.on(linear, lambda value: first.set_parameter(name, value))
        least, most = float(np.ceil(100 * np.log10(low)) / 100), float(np.floor(100 * np.log10(high)) / 100)
        marks = ((least, f"{low:.3g}"), (most, f"{high:.3g}"))
        now = min(max(_exponent(value), least), most)
        slider: Any = gui.add_slider(
            _label(name, value, spec), least, most, 0.01, now, marks=marks, hint="logarithm to base 10"
        )

        def change(exponent: float) -> None:
            changed = float(np.clip(10.0**exponent, low, high))
            first.set_parameter(name, changed)
            slider.label = _label(name, changed, spec)

        return self.panel.on(slider, change)

    # --- commands ---------------------------------------------------------------------------------------------------

    def _set_play(self, value: bool) -> None:
        self.live.paused = not value

    def _one_step(self) -> None:
        self.panel.play.value, self.live.paused, self.live.share = False, True, 1.0
        self.live.step()

    def _set_latency(self, seconds: float) -> None:
        for robot in self.live.robots:
            robot.set_latency(seconds)

    def _set_level(self, level: int) -> None:
        for robot in self.live.robots:
            if robot.has_level:
                robot.set_level(int(level))
        self.live.reset(self.live.first.seed)

    def _restore(self) -> None:
        """Parameters as they were at first."""
        first = self.live.first
        first.restore_parameters()
        specs = first.parameters.specs()
        for name, slider in self.sliders.items():
            value = float(getattr(first.parameters, name))
            slider.value = _exponent(value) if specs[name].scale == "log" else value
            if specs[name].scale == "log":
                slider.label = _label(name, value, specs[name])

    def _push_way(self, right: float, away: float) -> None:
        axes = self.panel.browser.axes
        ahead = np.array([*axes[2][:2], 0.0])
        self._push(right * axes[0] + away * ahead / max(float(np.linalg.norm(ahead)), 1e-9), self.push_speed.value)

    def _push(self, direction: Array, speed: float) -> None:
        for robot in self.live.robots:
            robot.push(direction, speed)

    def _dragged(self, name: str, way: Array) -> None:
        """Push every robot along the way of a drag (3,) [m]."""
        length = float(np.linalg.norm(way))
        if length > 0:
            self.panel.commands.add("push", lambda: self._push(way, DRAG_SPEED * length))

    # --- the loop ---------------------------------------------------------------------------------------------------

    def frame(self, seconds: float) -> None:
        """Carry out commands, let time pass [s], and show the robots."""
        asked = self.panel.commands.run()
        self.live.advance(seconds)
        if self.seed.value != self.live.first.seed:
            self.seed.value = self.live.first.seed
        scenes = self.live.scenes()
        apart = 0.0 if self.apart is None else self.apart.value
        self.panel.browser.show(scenes, self.tints, apart, self.follow.value)
        legend = next(iter(scenes.values())).legend
        self.panel.tell("\n\n".join(self._line(robot) for robot in self.live.robots), legend, asked)

    def _line(self, robot: Robot) -> str:
        """One line on a robot."""
        done = "yes" if robot.info.get("is_success") else "no"
        mark = "" if robot is self.live.first else f" {SQUARE}"
        head = f"**{robot.inner.backend}**{mark} {robot.steps * self.live.period:.1f} s, return {robot.result:.1f}"
        return f"{head}, success: {done}{f', {robot.over}' if robot.over else ''}"

    def run(self, frames: int | None = None) -> None:
        """Show the robots until an interrupt, or for a number of frames; then close everything."""
        try:
            run_loop(self.frame, frames)
        finally:
            self.close()

    def close(self) -> None:
        """End the page and close the environments."""
        self.panel.browser.close()
        self.live.close()


def _label(name: str, value: float, spec: ParameterSpec) -> str:
    return f"{name} = {value:.3g}{spec.suffix}"


def _exponent(value: float) -> float:
    """The value of a slider with a logarithmic scale."""
    return round(float(np.log10(value)), 2)
