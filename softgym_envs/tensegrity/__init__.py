"""Tensegrity robots: rods that float in a net of cables."""

from typing import Any

from .model import TensegrityModel, prism, superball, with_terrain
from .parameters import TensegrityBody, TensegrityParameters
from .structure_file import load_structure
from .terrain import Terrain

__all__ = [
    "TensegrityBody",
    "TensegrityModel",
    "TensegrityParameters",
    "Terrain",
    "identification_setup",
    "load_structure",
    "prism",
    "superball",
    "with_terrain",
]


def identification_setup(variant: str = "") -> Any:
    """What `scripts/identify.py tensegrity[:variant]` fits; see `identification.setup`."""
    from .identification import setup

    return setup(variant)
