"""Pictures by pygame: as arrays without any display, or in a window that a person can turn and zoom.

pygame is imported when the first renderer is made, so that training never touches it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import MissingDependencyError, OptionError
from .camera import Camera
from .scene import Hud, Scene, default_camera

if TYPE_CHECKING:
    import pygame

Image = NDArray[np.uint8]
"""(height, width, 3), red, green, blue."""

ORBIT_SPEED = 0.008
"""Turn per pixel of mouse drag [rad]."""
ZOOM_STEP = 0.9
"""Factor on the distance per click of the mouse wheel."""


class PygameRenderer:
    """Draws scenes; only the window and the user's view change.

    Args:
        size: Width and height of the picture in pixels.
        mode: What `draw` does: "rgb_array" returns the picture, "human" shows it in a window.
        fps: Pictures per second that a window shows at most; None for no limit.
        title: Title of the window.
        overlay: Whether the legend and the scene's overlay are drawn, see `Scene`.

    Raises:
        OptionError: `size`, `mode` or `fps` is not allowed.
        MissingDependencyError: pygame is not installed.
    """

    def __init__(
        self,
        size: tuple[int, int] = (640, 480),
        *,
        mode: str = "rgb_array",
        fps: float | None = 30.0,
        title: str = "softgym_envs",
        overlay: bool = True,
    ) -> None:
        if len(size) != 2 or not all(isinstance(s, (int, np.integer)) and 16 <= s <= 4096 for s in size):
            raise OptionError(f"size is {size}, expected (width, height), both integers of 16 ... 4096 pixels")
        if mode not in ("rgb_array", "human"):
            raise OptionError(f"mode is {mode!r}, allowed are 'rgb_array' and 'human'")
        if fps is not None and not fps > 0:
            raise OptionError(f"fps is {fps}, expected > 0 or None")
        self.size = (int(size[0]), int(size[1]))
        self.mode = mode
        self.fps = fps
        self.title = title
        self.overlay = overlay
        self.closed = False
        """Whether the user closed the window, or `close` was called; then nothing is shown any more."""
        self._pygame = _import_pygame()
        self._window: pygame.Surface | None = None
        self._clock: pygame.time.Clock | None = None
        self._turned = (0.0, 0.0)
        self._zoomed = 1.0

    def rgb(self, scene: Scene, camera: Camera | None = None, hud: Hud | None = None) -> Image:
        """The picture as a fresh contiguous uint8 array (height, width, 3); no display is needed.

        Without a camera the scene is seen by `default_camera`; without a HUD there is no text but the legend.
        """
        return self._pixels(self._paint(scene, camera or default_camera(scene), hud))

    def show(
        self, scene: Scene, camera: Camera | None = None, hud: Hud | None = None, on_event: Callable[[Any], None] | None = None
    ) -> Image | None:
        """Show the picture in a window, and wait so that `fps` is not exceeded.

        The window opens on the first call. Dragging turns the view, the wheel zooms; closing the window sets `closed`.

        Args:
            scene: What to draw.
            camera: Camera before the user's turns and zoom; `default_camera` if None.
            hud: Text over it.
            on_event: Called with every pygame event, e.g. to read keys.

        Returns:
            The picture shown, or None once the window is closed.
        """
        if self.closed:
            return None
        window = self._open()
        for event in self._pygame.event.get():
            self._handle(event)
            if on_event is not None:
                on_event(event)
        if self.closed:
            self.close()
            return None
        surface = self._paint(scene, self.turned(camera or default_camera(scene)), hud)
        window.blit(surface, (0, 0))
        self._pygame.display.flip()
        if self.fps is not None and self._clock is not None:
            self._clock.tick(self.fps)
        return self._pixels(surface)

    def turned(self, camera: Camera) -> Camera:
        """The camera as the user has turned and zoomed it."""
        return camera.orbit(*self._turned).zoom(self._zoomed)

    def draw(self, scene: Scene, camera: Camera | None = None, hud: Hud | None = None) -> Image | None:
        """`rgb` in mode "rgb_array"; `show` in mode "human", which returns None as Gymnasium expects."""
        if self.mode == "rgb_array":
            return self.rgb(scene, camera, hud)
        self.show(scene, camera, hud)
        return None

    def close(self) -> None:
        """Close the window; safe to call twice, and without a window."""
        self.closed = True
        if self._window is not None:
            self._window = None
            self._pygame.display.quit()

    def _open(self) -> pygame.Surface:
        if self._window is None:
            try:
                self._pygame.display.init()  # not pygame.init(): no sound device is wanted
                if self._pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
                    raise self._pygame.error("no display: SDL would draw where nobody sees it")
                self._window = self._pygame.display.set_mode(self.size)
            except self._pygame.error as error:
                raise OptionError(
                    f'no window can be opened here ({error}). Without a display: render_mode="rgb_array"; for checks that open '
                    "windows, as Gymnasium's check_env, set SDL_VIDEODRIVER=dummy; `softgym-envs play` takes "
                    "--headless-frames 150 --record roll.gif"
                ) from error
            self._pygame.display.set_caption(self.title)
            self._clock = self._pygame.time.Clock()
        return self._window

    def _handle(self, event: Any) -> None:
        """Window closed, view turned, view zoomed."""
        pg = self._pygame
        if event.type == pg.QUIT:
            self.closed = True
        elif event.type == pg.MOUSEMOTION and event.buttons[0]:
            azimuth, elevation = self._turned
            self._turned = (azimuth - ORBIT_SPEED * event.rel[0], elevation + ORBIT_SPEED * event.rel[1])
        elif event.type == pg.MOUSEWHEEL:
            self._zoomed = float(np.clip(self._zoomed * ZOOM_STEP**event.y, 0.1, 10.0))

    def _pixels(self, surface: pygame.Surface) -> Image:
        pixels = np.frombuffer(self._pygame.image.tobytes(surface, "RGB"), dtype=np.uint8)
        return pixels.reshape(self.size[1], self.size[0], 3).copy()

    def _paint(self, scene: Scene, camera: Camera, hud: Hud | None) -> pygame.Surface:
        from .hud import draw_hud
        from .raster import render

        surface = render(scene, camera, self.size, overlay=self.overlay)
        legend = scene.legend if self.overlay else None
        if hud is not None or legend is not None:
            draw_hud(surface, hud or Hud(), legend)
        return surface


def _import_pygame() -> Any:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError as error:
        raise MissingDependencyError(
            'pictures need pygame: pip install "pygame>=2.6", or "pygame-ce" on Python >= 3.14'
        ) from error
    return pygame
