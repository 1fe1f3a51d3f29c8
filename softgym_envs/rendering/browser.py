"""Scenes in a web browser, by viser, which is imported when the first `Browser` is made; only what changed is sent.

Legend: M instances, V corners, F triangles.
"""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import MissingDependencyError, OptionError
from ..core.simulator import Array
from .camera import Camera
from .colors import GRID, Color
from .scene import GroundGrid, Scene, default_camera
from .shapes import SIDES, Flats, GroundPatch, Instances, Shapes, Triangles, shapes_of, strip

if TYPE_CHECKING:
    import viser

HOST = "127.0.0.1"
"""Only this machine sees the page."""
SKY = 0.3
"""Light from all sides, as a share of viser's: with all of it, colours are pale."""
MARGIN = 1.25
"""Distance of the camera over that of a picture without a panel."""


@dataclass(eq=False)
class _Batch:
    """Instances of a unit mesh in the browser; those that are not in use have no size."""

    add: Callable[[Instances], Any]
    handle: Any = None
    size: int = 0

    def draw(self, wanted: Instances) -> bool:
        """Show these instances; whether the batch had to be made anew, large enough for twice as many."""
        grows = len(wanted.positions) > self.size or self.handle is None
        if grows:
            self.size = max(16, 2 * len(wanted.positions))
        more = self.size - len(wanted.positions)
        rows = {name: np.pad(value, ((0, more), (0, 0))) for name, value in vars(wanted).items()}
        rows["turns"][self.size - more :, 0] = 1.0
        if grows:
            self.handle = self.add(Instances(**rows))
        else:
            self.handle.batched_positions, self.handle.batched_wxyzs = rows["positions"], rows["turns"]
            self.handle.batched_scales, self.handle.batched_colors = rows["scales"], rows["colors"]
        return grows


@dataclass(eq=False)
class _Robot:
    """Nodes of one scene in the browser."""

    server: viser.ViserServer
    name: str
    on_drag: Callable[[Array], None]
    flats: dict[Color, Any] = field(default_factory=dict)
    ground: GroundPatch = field(default_factory=GroundPatch)

    def __post_init__(self) -> None:
        import trimesh

        ball, angle = trimesh.creation.icosphere(subdivisions=2), np.linspace(0.0, 2.0 * np.pi, SIDES, endpoint=False)
        circle = np.column_stack([np.cos(angle), np.sin(angle)])
        wall = np.concatenate([np.column_stack([circle, np.full(SIDES, z)]) for z in (-0.5, 0.5)])
        self.frame = self.server.scene.add_frame(self.name, show_axes=False)
        self.bars = self._batch("bars", wall, strip(SIDES))
        self.balls = self._batch("balls", np.asarray(ball.vertices), np.asarray(ball.faces))

    def _batch(self, name: str, corners: Array, triangles: Triangles) -> _Batch:
        def add(rows: Instances) -> Any:
            return self.server.scene.add_batched_meshes_simple(
                f"{self.name}/{name}", corners, triangles, rows.turns, rows.positions, batched_scales=rows.scales,
                batched_colors=rows.colors, lod="off",
            )  # fmt: skip

        return _Batch(add)

    def draw(self, shapes: Shapes, place: Array) -> None:
        """Show these shapes, moved by `place` (3,) [m]."""
        self.frame.position = place
        for batch, instances in ((self.bars, shapes.bars), (self.balls, shapes.balls)):
            if batch.draw(instances):
                self._follow_mouse(batch.handle)
        self._draw_flats(shapes.flats)
        if shapes.ground is not None:
            self._draw_ground(shapes.ground)

    def _follow_mouse(self, handle: Any) -> None:
        @handle.on_drag("left", modifier="shift")
        async def _(event: Any) -> None:
            if event.phase == "end":
                self.on_drag(np.subtract(event.end_position, event.start_position))

    def _draw_flats(self, flats: Flats) -> None:
        for color in [color for color in self.flats if color not in flats]:
            self.flats.pop(color)[0].remove()
        for color, (corners, triangles) in flats.items():
            known = self.flats.get(color)
            if known is not None and known[1].shape == corners.shape and np.array_equal(known[1], corners):
                continue
            if known is not None and known[1].shape == corners.shape:
                known[0].vertices = corners
                self.flats[color] = known[0], corners
            else:
                name = f"{self.name}/flat_{'_'.join(map(str, color))}"
                handle = self.server.scene.add_mesh_simple(
                    name, corners, triangles, color=color, side="double", flat_shading=True
                )
                self.flats[color] = handle, corners

    def _draw_ground(self, ground: GroundGrid) -> None:
        found, scene = self.ground.follow(ground), self.server.scene
        if found is None:
            return
        (corners, triangles), lines = found
        name = f"{self.name}/ground"
        scene.add_mesh_simple(name, corners, triangles, color=ground.color, side="double", flat_shading=True, cast_shadow=False)
        scene.add_line_segments(f"{self.name}/lines", lines, np.array(GRID), thickness=1.0, thickness_units="screen")


class Browser:
    """A page that shows scenes; a person turns and zooms them by mouse, and drags a robot with Shift held.

    Args:
        port: Port of the page.
        title: Title of the panel.
        on_drag: Called with the name of a scene and the way (3,) [m] of a drag, in viser's thread.

    Raises:
        OptionError: The port is in use, or not allowed.
        MissingDependencyError: viser is not installed.
    """

    def __init__(self, port: int, title: str, on_drag: Callable[[str, Array], None]) -> None:
        self.server = _serve(port, title)
        self.on_drag = on_drag
        self.gui = self.server.gui
        self.url = f"http://localhost:{port}"
        self._robots: dict[str, _Robot] = {}
        self._world = self.server.scene.add_frame("/world", show_axes=False)
        self._first: Array | None = None
        self.axes = np.eye(3)
        """Right, up and forward of the first camera (3, 3)."""
        self.server.scene.configure_environment_map("studio", environment_intensity=SKY)
        self.gui.configure_theme(show_logo=False, show_share_button=False)
        self.gui.main_panel.dock_right()

    def show(
        self, scenes: Mapping[str, Scene], tints: Mapping[str, Color] | None = None, apart: float = 0.0, follow: bool = True
    ) -> None:
        """Show scenes by their names, side by side; names that were not shown before are added.

        Args:
            scenes: Name -> scene, the first one is followed.
            tints: Name -> colour that is mixed into those of the scene.
            apart: Distance between scenes, sideways, in extents of the first.
            follow: Whether the view moves with the first scene.
        """
        first = next(iter(scenes.values()))
        camera = default_camera(first)
        if self._first is None:
            self._first, self.axes = first.look_at, camera.axes
            self._look(camera, MARGIN + 0.3 * apart * (len(scenes) - 1))
        aside = apart * first.extent * camera.axes[0]
        with self.server.atomic():
            if follow:
                self._world.position = self._first - first.look_at - 0.5 * (len(scenes) - 1) * aside
            for index, (name, scene) in enumerate(scenes.items()):
                if name not in self._robots:
                    node = f"/world/robot{len(self._robots)}"
                    self._robots[name] = _Robot(self.server, node, partial(self.on_drag, name))
                self._robots[name].draw(shapes_of(scene, (tints or {}).get(name)), index * aside)

    def _look(self, camera: Camera, farther: float) -> None:
        """Where a new page looks from."""
        start = self.server.initial_camera
        start.fov, start.look_at = camera.field_of_view, camera.target
        start.position = np.asarray(camera.target) + farther * (camera.position - camera.target)

    def close(self) -> None:
        """End the page."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()


def _serve(port: int, title: str) -> viser.ViserServer:
    try:
        import viser
    except ImportError as error:
        raise MissingDependencyError(
            "the browser view needs viser: pip install 'softgym-envs[viewer]', or \".[viewer]\" in a clone of the repository"
        ) from error
    if not 1 <= port <= 65535:
        raise OptionError(f"port is {port}, expected 1 ... 65535")
    with socket.socket() as probe:  # viser would take another port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise OptionError(f"port {port} cannot be used ({error.strerror}): give another one, --port {port + 1}") from error
    with contextlib.redirect_stdout(io.StringIO()):  # it prints a frame with its addresses
        return viser.ViserServer(host=HOST, port=port, label=title, verbose=False)
