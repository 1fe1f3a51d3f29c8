"""Rigid bodies with unilateral contact and Coulomb friction: particles on a plane, a block pulled over a table."""

from .model import BlockModel, ParticleModel
from .parameters import BlockParameters, ParticleParameters, particle_parameters

__all__ = ["BlockModel", "BlockParameters", "ParticleModel", "ParticleParameters", "particle_parameters"]
