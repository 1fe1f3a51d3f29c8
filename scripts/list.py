"""List the systems: models, environments, ground truths, and the parameters that can be identified.

    softgym-envs list            # every system in a few lines
    softgym-envs list vine       # one system, parameter by parameter
    softgym-envs list vine --states    # and the entries of its engine's state and control

All subcommands: softgym-envs --help
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.system import System
from softgym_envs.systems import system, systems


@dataclass(frozen=True)
class Args:
    """Options of the list."""

    system: Annotated[str, tyro.conf.Positional] = ""
    """A system; none: all of them."""
    states: bool = False
    """Also list state and control entries of the engine, to which a ground truth of your own is mapped."""


def lines(found: System) -> list[str]:
    """A system in a few lines."""
    files = ", or a .toml file" if found.read_model else ""
    ids = ", ".join(task.id for task in found.tasks) or "none"
    return [
        f"{found.name}: {found.summary}",
        f"  models        {', '.join(found.models)}{files}",
        f"  environments  {ids}",
        f"  backends      native, {', '.join((*found.ground_truths, 'package.module:function'))}",
    ]


def parameter_values(found: System) -> list[str]:
    """One line per parameter of the native engine."""
    specs = found.simulator().default_parameters.specs().values()
    return [f"  {s.name:24s} {s.default:<10g} {s.unit:8s} [{s.bounds[0]:g}, {s.bounds[1]:g}]" for s in specs]


def states(found: System) -> list[str]:
    """One line per entry of the native engine's state, then of its control."""
    world = found.simulator()
    state = [f"  {name:24s} {unit}" for name, unit in zip(world.state_names, world.state_units, strict=True)]
    control = [f"  {name:24s} {unit}" for name, unit in zip(world.control_names, world.control_units, strict=True)]
    return ["  state", *state, "  control", *control]


def main(args: Args) -> int:
    """Print; 2 if there is no such system."""
    try:
        if args.system:
            chosen = system(args.system)
            more = states(chosen) if args.states else []
            print("\n".join([*lines(chosen), "  parameters", *parameter_values(chosen), *more]))
        else:
            print("\n".join(line for found in systems().values() for line in lines(found)))
    except SoftgymError as error:
        print(error, file=sys.stderr)
        return 2
    return 0
