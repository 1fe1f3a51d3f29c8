"""Boxes from TOML files."""

from __future__ import annotations

from pathlib import Path

from ...core.files import read_one_table
from .model import BoxModel


def load_box(path: str | Path) -> BoxModel:
    """Read a box from a TOML file.

    The form::

        [box]                                # entries are those of `BoxModel`, all optional
        half_size = [0.0524, 0.0524, 0.0524] # half edges [m]; two: it moves in a plane

    Raises:
        FileFormatError: No such file, not TOML, unknown entries, entries of the wrong kind.
        StructureError: A size is no length.
        OptionError: A number is not allowed.
    """
    return read_one_table(path, "box", BoxModel)
