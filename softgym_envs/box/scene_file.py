"""Boxes from TOML files."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from ..core.errors import FileFormatError, OptionError, StructureError
from ..core.files import read_toml
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
    document = read_toml(path)
    table = document.get("box")
    if set(document) != {"box"} or not isinstance(table, dict):
        raise FileFormatError(f"{path}: it has {', '.join(document) or 'nothing'}; expected one table [box]")
    allowed = [f.name for f in fields(BoxModel)]
    for key in table:
        if key not in allowed:
            raise FileFormatError(f"{path}: [box] has {key!r}; allowed are {', '.join(allowed)}")
    size = table.get("half_size", list(BoxModel().half_size))
    if not isinstance(size, list):
        raise FileFormatError(f"{path}: half_size is {size!r}, expected two or three lengths [m]")
    try:
        return BoxModel(**{**table, "half_size": tuple(size)})
    except (StructureError, OptionError) as error:
        raise type(error)(f"{path}: {error}") from None
