"""Vine robots: inflated tubes that grow at their tip, steer, and use contact."""

from .model import VineModel, with_obstacles
from .obstacles import Circle, Obstacle, Polygon, Wall, circle, polygon, rectangle, wall
from .parameters import VineBody, VineParameters
from .scene_file import load_scene

__all__ = [
    "Circle",
    "Obstacle",
    "Polygon",
    "VineBody",
    "VineModel",
    "VineParameters",
    "Wall",
    "circle",
    "load_scene",
    "polygon",
    "rectangle",
    "wall",
    "with_obstacles",
]
