"""Write the files of a new system, which works as it is: a package of its own, to be changed file by file.

    softgym-envs new my_arm
    pip install -e my_arm          # then every command knows it
    softgym-envs check my_arm

All commands: softgym-envs --help
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from softgym_envs.templates import new_system


@dataclass(frozen=True)
class Args:
    """Options of the new system."""

    name: Annotated[str, tyro.conf.Positional]
    """Name of the system and its package: lower-case letters, digits and _."""
    folder: Path = Path()
    """Folder in which the package's folder is made."""


def main(args: Args) -> int:
    """Write, and say what comes next."""
    print("\n".join(map(str, new_system(args.name, args.folder))))
    print(f"Next: pip install -e {args.folder / args.name}; softgym-envs check {args.name}; see docs/tutorials/add_a_system.md")
    return 0
