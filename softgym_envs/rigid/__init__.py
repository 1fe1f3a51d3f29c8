"""Rigid bodies with unilateral contact and Coulomb friction: particles on a plane, a block pulled over a table."""

from typing import Any

from .model import BlockModel, ParticleModel
from .parameters import BlockParameters, ParticleParameters, particle_parameters

__all__ = [
    "BlockModel",
    "BlockParameters",
    "ParticleModel",
    "ParticleParameters",
    "identification_setup",
    "particle_parameters",
]


def identification_setup(variant: str = "") -> Any:
    """What `scripts/identify.py contact[:variant]` fits; see `identification.setup`."""
    from .identification import setup

    return setup(variant)
