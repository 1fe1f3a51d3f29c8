"""Say what a recorded file holds, and write a mapping of its columns for `identify --map`.

    softgym-envs inspect take.csv              # format, columns, units, ranges, rate, gaps, repeated samples
    softgym-envs inspect take.csv box          # and a guess which columns are those of a system

writes take.csv.map.toml beside the file; a file that is there stays. See docs/how-to/data.md.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from softgym_envs.data.inspection import inspect_file


@dataclass(frozen=True)
class Args:
    """Say what a recorded file holds, and write a mapping of its columns."""

    file: Annotated[Path, tyro.conf.Positional]  # Recording of any program: CSV, C3D, ROS bag, .mat, ...
    system: Annotated[str | None, tyro.conf.Positional] = None  # Whose columns the mapping should name.
    model: str | None = None  # Structure: a name of the system's, or a TOML file; none: the system's first.
    out: Path | None = None  # The mapping; none: FILE.map.toml, beside the file.


def main(args: Args) -> int:
    """Print and write."""
    found = inspect_file(args.file)
    print(found.summary(), flush=True)
    columns = None
    if args.system is not None:
        from softgym_envs.systems import system

        robot = system(args.system)
        columns = robot.recorded_columns(robot.simulator(args.model))
    place = found.write_mapping(args.out, columns)
    print(f"mapping: {place} (check it, then: softgym-envs identify {args.system or 'SYSTEM'} {args.file} --map {place})")
    return 0
