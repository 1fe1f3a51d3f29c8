"""Record a robot's experiments on any world: our engine, a truth such as MuJoCo, or a simulator of your own.

    softgym-envs record tensegrity --backend mujoco --budget 10000 --out recordings.h5
    softgym-envs record block --experiment pulled --count 3 --params truth.toml

writes one HDF5 file; every recording names its experiment, so that `identify` runs the room's recipe on it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from softgym_envs.core.errors import DataError, OptionError, SoftgymError
from softgym_envs.core.files import git_commit
from softgym_envs.core.parameters import warn_of_file
from softgym_envs.core.recipe import EXPERIMENT, Recipe
from softgym_envs.core.room import NATIVE, options_from_text
from softgym_envs.core.sensors import sensor_from_text
from softgym_envs.core.simulator import check_number
from softgym_envs.core.spec import ROBOT, SimulatorSpec
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import Trajectory, TrajectorySet, check_ending
from softgym_envs.rooms import room as room_named


@dataclass(frozen=True)
class Args:
    """Record a robot's experiments."""

    room: Annotated[str, tyro.conf.Positional]
    """Robot: a room's name, or "package.module:ROOM" of your own."""
    model: str | None = None
    """Structure: a name of the room's, or a TOML file; none: the room's first."""
    backend: str = "native"
    """The world: native, a truth of the room, or "package.module:function" of your own."""
    option: tuple[str, ...] = ()
    """Structural choices of the world, e.g. contact=patch; our engine's are else those with which `identify` fits."""
    dt: float | None = None
    """Physics step [s]; none: the world's own, or before a camera a whole part of a frame of our engine, as in fits."""
    params: Path | None = None
    """TOML file of the world's constants; none: its defaults."""
    experiment: tuple[str, ...] = ()
    """Experiments; none: all of the room's recipe."""
    count: int = 1
    """Recordings of each experiment."""
    steps: int | None = None
    """Physics steps of a recording; none: as many as last as long as the recipe's for our engine."""
    budget: int | None = None
    """Physics steps of all recordings together, in recordings of the recipe's number of steps, whatever the world's are."""
    sensor: tuple[str, ...] = ()
    """Camera of a laboratory instead of states: camera, lab or poor, and changes such as rate=120 noise=0.002."""
    seed: int = 0
    """Seed of poses, commands and noise."""
    out: Path = Path("recordings.h5")
    """HDF5 file."""


def record(args: Args) -> TrajectorySet:
    """The recordings.

    Raises:
        OptionError: No such room, model, backend or experiment, or a number is too small.
        FileFormatError: The file's name does not end like that of an HDF5 file.
        ParameterError: The constants are of another world.
    """
    check_number("--seed", args.seed, low=0, whole=True)
    for name in ("count", "steps", "budget"):
        if getattr(args, name) is not None:
            check_number(f"--{name}", getattr(args, name), low=1, whole=True)
    check_ending(args.out)
    room, rng = room_named(args.room), np.random.default_rng(args.seed)
    if not room.recipe:
        raise OptionError(f"room {room.name!r} has no recipe: nothing says what to record")
    recipe: Recipe = load(room.recipe)
    drawn = room.simulator(args.model, constants=args.params)
    filmed, sensor, dt = bool(args.sensor), sensor_from_text(args.sensor), args.dt
    if dt is None and sensor.rate and args.backend == NATIVE:
        dt = recipe.step_of(1.0 / sensor.rate, drawn.dt)
    own = recipe.options if args.backend == NATIVE else {}  # as `identify` fits
    options = {**own, **options_from_text(args.option)}
    truth = room.simulator(args.model, backend=args.backend, dt=dt, options=options, constants=args.params)
    usual = truth.default_parameters
    constants = type(usual).load(args.params, usual) if args.params else None
    if args.params:
        warn_of_file(args.params)
    if args.budget is not None:
        found = recipe.record(truth, rng, steps=args.budget, parameters=constants, filmed=filmed).train
    else:
        chosen = [recipe.experiment(name) for name in args.experiment] or recipe.experiments
        found = TrajectorySet(
            tuple(
                recipe.record_one(
                    experiment.name,
                    truth,
                    rng,
                    steps=args.steps or experiment.steps_on(truth, drawn),
                    parameters=constants,
                    filmed=filmed,
                )
                for experiment in chosen
                for _ in range(args.count)
            )
        )
    for recording in found:
        require_numbers(recording)
    if filmed:
        found = TrajectorySet(tuple(sensor(recording, drawn, recipe, rng) for recording in found))  # markers as drawn
    robot = json.dumps(SimulatorSpec.of(drawn, Path(args.model or next(iter(room.models))).name).table())
    return TrajectorySet(tuple(replace(t, metadata={**t.metadata, ROBOT: robot}) for t in found))


def require_numbers(recording: Trajectory) -> None:
    """Refuse a recording of a world that failed.

    Raises:
        DataError: A value is NaN or infinite.
    """
    wrong = ~np.isfinite(recording.values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{recording.metadata[EXPERIMENT]}: the world gives {recording.values[row, column]} for {recording.names[column]} "
            f"at {recording.times[row]:g} s"
        )


def main(args: Args) -> int:
    """Record; 0, 2 for bad input, or 130 if interrupted."""
    print(f"seed {args.seed}, commit {git_commit()}")
    try:
        recordings = record(args)
        path = recordings.save(args.out)
    except SoftgymError as error:
        print(f"nothing recorded: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing is written", file=sys.stderr)
        return 130
    for recording in recordings:
        seconds = recording.times[-1] - recording.times[0]
        print(
            f"  {recording.metadata[EXPERIMENT]}: {seconds:g} s, {recording.num_steps} rows of {len(recording.names)} columns"
        )
    print(f"recordings: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
