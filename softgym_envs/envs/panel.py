"""The page of a view with what every view has, and its loop.

Callbacks of the page arrive in threads of their own; they only leave a command, which the loop carries out.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..core.errors import SoftgymError
from ..core.simulator import Array
from ..rendering.browser import Browser
from ..rendering.colors import Color, tension_colors
from ..rendering.scene import Legend

FPS = 30.0
"""Pictures per second."""
SECOND: Color = (30, 100, 225)
"""Tint of the robot beside the first."""
LONGEST_FRAME = 0.1
"""Most time that passes between two pictures, however long they take [s]."""


def _square(color: Color) -> str:
    return '<span style="color: rgb({}, {}, {})">■</span>'.format(*color)


SQUARE = _square(SECOND)
"""A mark in the tint of the second robot."""


class Commands:
    """What the page asked for since the last picture; of several changes of one control the last one counts."""

    def __init__(self) -> None:
        self.error = ""
        """What the last command that was refused says."""
        self._waiting: dict[str, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, work: Callable[[], None]) -> None:
        """Leave a command."""
        with self._lock:
            self._waiting[name] = work

    def run(self) -> bool:
        """Carry out the commands; whether there were any."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for work in waiting.values():
            try:
                self.error = ""
                work()
            except SoftgymError as error:
                self.error = str(error)
        return bool(waiting)


def run_loop(frame: Callable[[float], None], frames: int | None = None) -> None:
    """Call `frame` with the time since its last call [s], `FPS` times per second, up to a signal or a number of frames.

    Ctrl-C and SIGTERM end it between two frames: an exception within a callback from C would be lost, or end the process.
    """
    stopped, before = threading.Event(), dict[signal.Signals, Any]()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, lambda *_: stopped.set())
    last = time.perf_counter()
    try:
        while not stopped.is_set() and (frames is None or frames > 0):
            now = time.perf_counter()
            frame(min(now - last, LONGEST_FRAME))
            last, frames = now, None if frames is None else frames - 1
            stopped.wait(max(0.0, 1.0 / FPS - (time.perf_counter() - now)))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Panel:
    """The page with what every view has: a status line, play and speed, a legend."""

    def __init__(self, port: int, title: str, on_drag: Callable[[str, Array], None]) -> None:
        self.commands, self.browser = Commands(), Browser(port, title, on_drag)
        gui = self.browser.gui
        self.status = gui.add_markdown("")
        self.legend = gui.add_html("")
        self.play: Any = gui.add_checkbox("play", True)
        self.speed = gui.add_slider("speed", 0.05, 3.0, 0.05, 1.0, hint="1: real time")
        self._said = 0.0

    def on(self, control: Any, work: Callable[[Any], None]) -> Any:
        """Do this work with the control's value when it changes."""

        @control.on_update
        def _(event: Any) -> None:
            if event.client is not None:  # a person, not this program
                self.commands.add(control.label.partition(" =")[0], lambda: work(control.value))

        return control

    def buttons(self, label: str, work: Mapping[str, Callable[[], None]]) -> None:
        """Buttons side by side, each with its work."""
        group = self.browser.gui.add_button_group(label, tuple(work))

        @group.on_click
        def _(event: Any) -> None:
            self.commands.add(label, work[group.value])

    def tell(self, text: str, legend: Legend | None, now: bool) -> None:
        """Show the status, five times per second or now."""
        if now or time.perf_counter() - self._said > 0.2:
            self._said = time.perf_counter()
            self.status.content = text + (f"\n\n**{self.commands.error}**" if self.commands.error else "")
            self.legend.content = "" if legend is None else legend_page(legend)


def legend_page(legend: Legend) -> str:
    """The legend as HTML."""
    rows = [f"{_square(color)} {meaning}" for color, meaning in legend.entries]
    if legend.label:
        stops = ", ".join("rgb({}, {}, {})".format(*color) for color in tension_colors(np.linspace(0.0, 1.0, 9)).tolist())
        bar = f'<div style="height: 8px; border-radius: 4px; background: linear-gradient(90deg, {stops})"></div>'
        rows.insert(0, f"{legend.label}{bar}{legend.low:g} ... {legend.high:g}")
    rows += [legend.note] if legend.note else []
    return f'<div style="margin: 0.5em 1em; font-size: 0.8em">{"<br>".join(rows)}</div>'
