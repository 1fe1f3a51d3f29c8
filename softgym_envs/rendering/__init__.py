"""From states to pictures: scenes of drawing primitives, an orbit camera, pygame windows and arrays, videos.

Knows models and states, but neither Gymnasium nor tasks; it may be deleted without any physics changing.
"""

from .camera import Camera
from .draw import overlay_scene, render_state, scene_of
from .pygame_view import PygameRenderer, default_camera
from .rigid import block_scene, particle_scene
from .scene import Bar, Hud, Scene
from .tensegrity import tensegrity_scene
from .video import side_by_side, write_gif, write_mp4, write_png, write_video
from .vine import vine_scene

__all__ = [
    "Bar",
    "Camera",
    "Hud",
    "PygameRenderer",
    "Scene",
    "block_scene",
    "default_camera",
    "overlay_scene",
    "particle_scene",
    "render_state",
    "scene_of",
    "side_by_side",
    "tensegrity_scene",
    "vine_scene",
    "write_gif",
    "write_mp4",
    "write_png",
    "write_video",
]
