"""Real throws: a cube on a table [Pfrommer2020] and a square between two panes [Fazeli2017], fitted, and others predicted.

    python experiments/box_identify_throws/box_identify_throws.py fit --data cube_tosses.npz  # -> results/cube_identify_throws
    python experiments/box_identify_throws/box_identify_throws.py predict --data other.npz --out out
    python experiments/box_identify_throws/box_identify_throws.py fit --set square --data planar_drops.npz

`fit` identifies the parameters of contact by the documented command from some throws drawn by seed, those of the MuJoCo model
by the same method from the same throws, and predicts all others (`--looked`: except inspected ones). `predict` uses of a
throw its first six poses, in flight, and predicts the rest; it writes numbers, table and picture. Files are npz with
one array per throw (x y z qw qx qy qz ... at 148 Hz, or x z theta ... at 250 Hz); only poses are read from them. Recordings:
BSD 3-clause, not part of this repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from toss_errors import Errors, errors_of, plot, table
from toss_sets import SETS, Set, read

from softgym_envs.core.errors import DataError, SoftgymError
from softgym_envs.core.files import provenance, write_atomically, write_json
from softgym_envs.core.procedure import EXPERIMENT
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems import system
from softgym_envs.systems.box.mujoco import MujocoBoxParameters
from softgym_envs.systems.box.parameters import BoxBody, BoxParameters
from softgym_envs.systems.box.procedure import PROCEDURE
from sysid.procedure.run import run_procedure

RESULTS = {"cube": Path("results/cube_identify_throws"), "square": Path("results/square_identify_drops")}


@dataclass(frozen=True)
class Fit:
    """Fit the parameters to some throws, and predict the others."""

    data: Path
    """npz."""
    set: Literal["cube", "square"] = "cube"
    train: int = 40
    """Number of fitted throws."""
    looked: int = 0
    """Throws that were looked at while the model was made, the fitted ones first; they are not predicted."""
    seed: int = 0
    """Seed of the choice."""
    out: Path | None = None
    """Folder; none: the set's of `RESULTS`."""
    runs: Path = Path("runs/tosses")
    """Folder of recordings in the form that `softgym-envs identify box` reads."""


@dataclass(frozen=True)
class Predict:
    """Predict the throws of a file."""

    data: Path
    """npz."""
    set: Literal["cube", "square"] = "cube"
    params: Path | None = None
    """Folder of fit.toml and mujoco_model.toml; none: the set's of `RESULTS`."""
    out: Path = Path("runs/tosses/predicted")


def fit(args: Fit) -> None:
    """Fit both engines to the same throws, and predict."""
    kind, out, structure = SETS[args.set], args.out or RESULTS[args.set], _structure(args.set)
    throws = read(args.data, kind)
    order = np.random.default_rng(args.seed).permutation(len(throws))
    train = TrajectorySet(tuple(throws[i] for i in order[: args.train]))
    out.mkdir(parents=True, exist_ok=True)
    recordings = args.runs / f"{args.set}.h5"
    recordings.parent.mkdir(parents=True, exist_ok=True)
    train.save(recordings)
    runs = args.runs / args.set
    words = [
        sys.executable, "-m", "softgym_commands", "identify", "box",
        "--model", str(structure), "--data", str(recordings), "--dt", repr(kind.dt),
    ]  # fmt: skip
    found = runs / "fit.toml"
    for stage in kind.stages or ("", "slid"):
        begin = ["--initial-guess", str(found)] if stage != (kind.stages or ("",))[0] else []
        one = [*(["--stage", stage] if stage else []), *begin, "--out", str(runs / stage)]
        print(" ".join([*words[1:], *one]), flush=True)
        subprocess.run([*words, *one], check=False)  # the exit code is the diagnostic's, which fit.json says, too
        found = runs / stage / "fit.toml"
    if not found.is_file():
        raise DataError("no fit was made; the commands above say why")
    for name in ("fit.toml", "fit.json"):
        write_atomically(out / name, (found.parent / name).read_bytes())
    diagnostic = _fit_mujoco_model(structure, kind, train, args.runs / f"{args.set}_mujoco_model")
    write_atomically(out / "mujoco_model.toml", (args.runs / f"{args.set}_mujoco_model" / "fit.toml").read_bytes())
    test = [throws[i] for i in order[max(args.train, args.looked) :]]
    more = {"train": args.train, "looked": args.looked, "seed": args.seed, "diagnostic of the MuJoCo model": diagnostic}
    _report(test, structure, kind, out, out, more)


def _fit_mujoco_model(structure: Path, kind: Set, train: TrajectorySet, out: Path) -> str:
    """Fit MuJoCo's parameters by that procedure; returns its diagnostic."""
    mujoco_model = system("box").simulator(structure, backend="mujoco", dt=kind.mujoco_model_dt)
    chosen = tuple(PROCEDURE.stage(name) for name in kind.stages) or (*PROCEDURE.stages, PROCEDURE.stage("slid"))
    stages = tuple(replace(stage, free=_of_mujoco_model(stage.free_of(mujoco_model))) for stage in chosen)
    recordings = tuple(replace(t.for_timestep(mujoco_model.dt), metadata={EXPERIMENT: "tossed"}) for t in train)
    return run_procedure(PROCEDURE, mujoco_model, TrajectorySet(recordings), stages=stages, out=out, announce=print).headline


def _of_mujoco_model(free: tuple[str, ...]) -> tuple[str, ...]:
    """MuJoCo's contact in place of restitution."""
    soft = ("contact_timeconst", "contact_dampratio") if "restitution" in free else ()
    return (*(name for name in free if name != "restitution"), *soft)


def _structure(name: str) -> Path:
    """File of a set's box, relative to this folder: fit.toml names it."""
    return Path(os.path.relpath(Path(__file__).parent / f"{name}.toml"))


def predict(args: Predict) -> None:
    """Errors of both engines on every throw of a file."""
    kind, params = SETS[args.set], args.params or RESULTS[args.set]
    args.out.mkdir(parents=True, exist_ok=True)
    _report(read(args.data, kind), _structure(args.set), kind, params, args.out, {})


def _report(throws: list[Trajectory], structure: Path, kind: Set, params: Path, out: Path, more: dict[str, Any]) -> None:
    """Write predictions by both engines: numbers.json, table.md and picture.png in `out`."""
    engine = system("box").simulator(structure, dt=kind.dt)
    mujoco_model = system("box").simulator(structure, backend="mujoco", dt=kind.mujoco_model_dt)
    found: dict[str, Errors] = {}
    worlds: dict[str, tuple[Simulator, BoxBody]] = {
        "identified": (engine, BoxParameters.load(params / "fit.toml")),
        "the MuJoCo model, fitted by the same method": (mujoco_model, MujocoBoxParameters.load(params / "mujoco_model.toml")),
    }
    if kind.literature:
        worlds["its authors' parameters"] = (engine, BoxParameters(**kind.literature))
    for name, (simulator, parameter_values) in worlds.items():
        found[name] = errors_of(simulator, parameter_values, throws, kind)
        print(f"{name}: {found[name].line()}", flush=True)
    summaries = {name: errors.summary() for name, errors in found.items()}
    command = " ".join(["experiments/box_identify_throws/box_identify_throws.py", *sys.argv[1:]])
    write_json(out / "numbers.json", {**provenance(command=command), **more, "throws": len(throws), **summaries})
    write_atomically(out / "table.md", table(found, len(throws)).encode())
    plot(found, kind, out / "picture.png")


def main() -> None:
    """Run the command."""
    args = tyro.cli(Fit | Predict)  # type: ignore[arg-type]
    try:
        fit(args) if isinstance(args, Fit) else predict(args)
    except SoftgymError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
