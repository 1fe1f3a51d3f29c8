"""The files of a new system: those of docs/tutorials/add_a_system.md, under another name."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from ..core.errors import OptionError
from ..core.files import write_atomically

SYSTEM, ENVIRONMENT, CLASS = "elastic_pendulum", "ElasticCatch-v0", "Pendulum"
"""Names of the tutorial's system that the new one replaces."""


def new_system(name: str, folder: Path = Path()) -> list[Path]:
    """Write a package `folder/name` with a system that works: a pendulum on a cart, to be changed file by file.

    Args:
        name: Name of the system and its package.
        folder: Where the package's folder is made.

    Returns:
        The files.

    Raises:
        OptionError: The name is no module's name, or the folder exists.
    """
    if not name.isidentifier() or name != name.lower() or name[0] == "_":
        raise OptionError(f"the name is {name!r}, expected lower-case letters, digits and _, as my_arm")
    target = Path(folder) / name
    if target.exists():
        raise OptionError(f"{target} exists: choose another name, or another folder")
    word = "".join(part.capitalize() for part in name.split("_"))
    names = {} if name == SYSTEM else {ENVIRONMENT: f"{word}Catch-v0", SYSTEM: name, CLASS: word}
    written = []
    for file in sorted(resources.files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".txt"):
            text = file.read_text("utf-8")
            for old, new in names.items():
                text = text.replace(old, new)
            own = file.name.removesuffix(".txt")
            written.append(target / (name if own.endswith(".py") else "") / own)
            write_atomically(written[-1], text.encode())
    return written
