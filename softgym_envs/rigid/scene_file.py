"""Blocks and particles from TOML files."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from ..core.errors import FileFormatError, OptionError, StructureError
from ..core.files import read_toml
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
    model: BlockModel = _read(path, "block", BlockModel, {"pulley": None})
    return model


def load_particles(path: str | Path) -> ParticleModel:
    """Read a scene of particles from a TOML file: a table [particles] with entries of `ParticleModel`, as `count = 3`.

    Raises:
        FileFormatError: No such file, not TOML, unknown entries, entries of the wrong kind.
        OptionError: The number is not allowed.
    """
    model: ParticleModel = _read(path, "particles", ParticleModel, {})
    return model


def _read(path: str | Path, name: str, kind: Any, absent: dict[str, Any]) -> Any:
    """A model from the one table of a file; `absent` is what entries that it lacks mean."""
    document = read_toml(path)
    table = document.get(name)
    if set(document) != {name} or not isinstance(table, dict):
        raise FileFormatError(f"{path}: it has {', '.join(document) or 'nothing'}; expected one table [{name}]")
    allowed = [f.name for f in fields(kind)]
    for key in table:
        if key not in allowed:
            raise FileFormatError(f"{path}: [{name}] has {key!r}; allowed are {', '.join(allowed)}")
    try:
        return kind(**{**absent, **{key: _points(value) for key, value in table.items()}})
    except (StructureError, OptionError) as error:
        raise type(error)(f"{path}: {error}") from None
    except TypeError as error:
        raise FileFormatError(f"{path}: [{name}] has {error}") from None


def _points(value: Any) -> Any:
    """Lists as tuples of numbers, all the way down; numbers as they are."""
    if isinstance(value, list):
        return tuple(_points(entry) for entry in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r}, which is no number")
    return value
