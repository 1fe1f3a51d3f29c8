"""From states to pictures: scenes of drawing primitives, an orbit camera, pygame windows and arrays, videos.

Knows no robot, no task and no Gymnasium: each system has its own `picture.py`. Physics does not depend on it.
"""

from .camera import Camera
from .picture import Picture, PointOverlay
from .pygame_view import PygameRenderer
from .scene import Bar, Hud, Scene, default_camera
from .video import side_by_side, write_gif, write_mp4, write_png, write_video

__all__ = [
    "Bar",
    "Camera",
    "Hud",
    "Picture",
    "PointOverlay",
    "PygameRenderer",
    "Scene",
    "default_camera",
    "side_by_side",
    "write_gif",
    "write_mp4",
    "write_png",
    "write_video",
]
