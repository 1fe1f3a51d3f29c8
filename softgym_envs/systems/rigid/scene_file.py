"""Blocks and particles from TOML files."""

from __future__ import annotations

from pathlib import Path

from ...core.files import read_one_table
from .model import BlockModel, ParticleModel


def load_block(path: str | Path) -> BlockModel:
    """Read the geometry of a block from a TOML file, in m; points are in the block's frame, from its centre of mass.

    The form::

        [block]                                                   # entries are those of `BlockModel`, all optional
        supports = [[0.06, 0.0], [-0.05, 0.06], [-0.05, -0.06]]   # three points that touch the table
        attachment = [0.1, 0.04]                                  # where the string is tied
        pulley = [1.2, 0.3]                                       # in the table's frame; without this entry: no string

    Raises:
        FileFormatError: No such file, not TOML, unknown entries, entries of the wrong kind.
        StructureError: The centre of mass is not between the supports.
    """
    return read_one_table(path, "block", BlockModel, pulley=None)


def load_particles(path: str | Path) -> ParticleModel:
    """Read a scene of particles from a TOML file: a table [particles] with entries of `ParticleModel`, as `count = 3`.

    Raises:
        FileFormatError: No such file, not TOML, unknown entries, entries of the wrong kind.
        OptionError: The number is not allowed.
    """
    return read_one_table(path, "particles", ParticleModel)
