"""Vine robots: inflated tubes that grow at their tip, steer, and use contact."""

from typing import Any

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
    "identification_setup",
    "load_scene",
    "polygon",
    "rectangle",
    "wall",
    "with_obstacles",
]


def identification_setup(variant: str = "") -> Any:
    """What `scripts/identify.py vine[:variant]` fits; see `identification.setup`."""
    from .identification import setup

    return setup(variant)
