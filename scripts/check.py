"""Run the contract tests on a system: its simulators, its environments, and the names in its declaration and procedure.

    softgym-envs check my_arm
    softgym-envs check my_arm:SYSTEM      # a package in this folder that is not installed

Prints a line for every test, with a sentence that names the method for every fault; exit code 1 if there is one.

All commands: softgym-envs --help
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from softgym_envs.envs.conformance import check_system
from sysid import METHODS
from sysid.problem.recording_parameters import RecordingParameters


@dataclass(frozen=True)
class Args:
    """Options of the check."""

    system: Annotated[str, tyro.conf.Positional]
    """A system's name, or "package:SYSTEM" of one that is not installed."""


def main(args: Args) -> int:
    """Print the outcome of every test; 1 if any fails."""
    faults = 0
    for what, fault in check_system(args.system, recording=RecordingParameters.names(), methods=METHODS):
        faults += bool(fault)
        print(f"FAILED {what}\n       {fault}" if fault else f"ok     {what}", flush=True)
    print(f"{args.system}: {f'{faults} faults' if faults else 'all is well'}")
    return int(faults > 0)
