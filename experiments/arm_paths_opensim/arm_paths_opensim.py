"""Muscle paths against OpenSim's arm26 over the elbow's whole range, and the elbow's rest-to-rest problem in OpenSim Moco.

    python experiments/arm_paths_opensim/arm_paths_opensim.py --peer VENV/bin/python --arm26 arm26.osim

OpenSim stays in its own environment, whose interpreter is `--peer` (`python -m venv VENV; VENV/bin/pip install
opensim`); arm26.osim is Models/Arm26/arm26.osim of github.com/opensim-org/opensim-models. arm26's muscles in our form are in
arm26_muscles.toml in this folder. Both sides solve the same motion: 0.4 to 1.8 rad in 0.5 s with least squared excitation.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.control.first_guess import minimum_jerk
from agents.control.optimal import Manoeuvre, solve_form
from softgym_envs.core.files import provenance, write_json
from softgym_envs.data.page import BLUE, plain_axes
from softgym_envs.mechanics.tree_file import load_tree
from softgym_envs.muscles.arm_file import load_muscles
from softgym_envs.muscles.muscle import MUSCLE_SPEED
from softgym_envs.muscles.paths import Muscles
from softgym_envs.muscles.routes import Routes
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.model import MUSCLES, ElbowModel
from softgym_envs.systems.arm.parameters import ElbowParameters

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.penner2020.dmocc import DirectorElbow
from reproductions.penner2020.geodesics import discrete_length

Array = NDArray[np.float64]
FOLDER = Path(__file__).parent
DISCRETE, COUNT = "BIClong", 40
"""The muscle that passes an ellipsoid, and segments of its discrete geodesic."""
START, END, SECONDS = np.array([0.4, 0.0, 0.05, 0.05]), np.array([1.8, 0.0, np.nan, np.nan]), 0.5
MESHES = (("trapezoidal", 50), ("hermite-simpson", 25), ("hermite-simpson", 50))
SMOOTHNESS = (1e-3, 0.0)
"""Weights of changes. Without them, bursts pay: muscles rise in 15 ms and fall in 60; Moco, from its start, stays smooth."""
RED = "#b01820"


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    peer: Path
    """Interpreter of an environment with OpenSim."""
    arm26: Path
    """OpenSim's model file."""
    angles: int = 47
    """Number of angles over the elbow's range."""
    out: Path = Path("results/arm_paths_opensim")
    """Folder."""


def asked_of(peer: Path, *arguments: str) -> dict[str, Any]:
    """Run `opensim_side.py`, and parse what it prints."""
    ran = subprocess.run([str(peer), str(FOLDER / "opensim_side.py"), *arguments], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found


# --- paths ----------------------------------------------------------------------------------------------------------------


def arm26() -> Routes:
    """arm26's muscles on its elbow, in our form."""
    return Routes(load_tree(FOLDER / "arm26.toml"), load_muscles(FOLDER / "arm26_muscles.toml"))


def our_paths(angles: Array) -> dict[str, dict[str, list[float]]]:
    """Lengths and moment arms [m] by muscle: in closed form, except the one around an ellipsoid, whose length is discrete."""
    routes = arm26()
    closed = Muscles(routes.muscles.surfaces, tuple(m for m in routes.muscles.muscles if m.name != DISCRETE))
    lengths, arms = Routes(routes.tree, closed).lengths(angles[:, None])
    found = {
        muscle.name: {"length": lengths[:, i].tolist(), "arm": arms[:, i, 0].tolist()}
        for i, muscle in enumerate(closed.muscles)
    }
    step, around = 1e-3, [[discrete_length(routes, DISCRETE, [q + d], COUNT) for d in (-1e-3, 0.0, 1e-3)] for q in angles]
    found[DISCRETE] = {
        "length": [row[1] for row in around],
        "arm": [-(row[2] - row[0]) / (2 * step) for row in around],
    }
    return found


def compared(peer: Path, file: Path, count: int) -> dict[str, Any]:
    """Compare both sides at `count` angles: the largest differences by muscle [mm]."""
    angles = np.linspace(0.0, arm26().tree.moving[0].upper, count)
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "angles.json"
        given.write_text(json.dumps(angles.tolist()))
        theirs = asked_of(peer, "paths", str(file), str(given))
    ours, apart = our_paths(angles), {}
    for name, found in theirs["found"]["muscles"].items():
        apart[name] = {
            what: 1e3 * float(np.abs(np.array(ours[name][what]) - np.array(found[what])).max()) for what in ("length", "arm")
        }
    two = ElbowModel().lengths(angles, ElbowParameters().to_matrix(1)[0])
    return {
        "opensim_version": theirs["opensim"], "angles": angles.tolist(), "opensim": theirs["found"]["muscles"], "ours": ours,
        "largest_difference_mm": apart,
        "two_muscle_arm": {name: {"arm": two[1][:, i].tolist()} for i, name in enumerate(MUSCLES)},
    }  # fmt: skip


# --- the same motion ------------------------------------------------------------------------------------------------------


def problem() -> dict[str, Any]:
    """Our two-muscle arm and the motion, as numbers for OpenSim."""
    model, parameter_values = ElbowModel(), ElbowParameters()
    forearm = next(body for body in model.tree.bodies if body.name == "forearm")
    grip = next(joint for joint in model.tree.joints if joint.child == "load")
    muscles = []
    for name, quadrant in zip(MUSCLES, ("x", "-x"), strict=True):
        muscle = model.muscle(name)
        numbers = {what: float(getattr(parameter_values, f"{name}_{what}")) for what in ("force", "optimal", "slack", "radius")}
        muscles.append({"name": name, "quadrant": quadrant, "origin": muscle.origin, "insertion": muscle.insertion, **numbers})
    return {
        "gravity": model.structure(1.0).gravity,
        "forearm": {"mass": forearm.mass, "com": forearm.com, "inertia": forearm.inertia},
        "load": {"mass": float(parameter_values.payload), "place": grip.xyz}, "speed": MUSCLE_SPEED,
        "rise": float(parameter_values.rise_time),
        "fall": float(parameter_values.fall_time), "damping": float(parameter_values.damping),
        "seconds": SECONDS, "range": model.limits,
        "start": START[0], "end": END[0], "activation": START[2], "muscles": muscles, "meshes": MESHES,
    }  # fmt: skip


def ours(steps: int, smoothness: float) -> dict[str, Any]:
    """Plan the motion in director coordinates and closed-form paths, from minimum jerk."""
    began, limits = time.process_time(), (np.zeros(2), np.ones(2))
    bounds = (np.array([0.0, -np.inf, 0.0, 0.0]), np.array([2.6, np.inf, 1.0, 1.0]))
    elbow = DirectorElbow(SECONDS / steps)
    path = elbow.states(minimum_jerk(START, END, steps, ((0, 1),), elbow.dt))
    asked = Manoeuvre(path[0], END, steps, limits, bounds, smoothness=smoothness)
    found = solve_form(elbow.form, asked, elbow.dt, ElbowParameters().to_matrix(1)[0], path)
    effort = float(elbow.dt * (found.controls**2).sum())
    return {
        "intervals": steps, "smoothness": smoothness, "solved": found.solved, "cost": effort, "iterations": found.iterations,
        "processor_seconds": time.process_time() - began, "build": found.build_seconds, "solve": found.solve_seconds,
        "times": np.linspace(0.0, SECONDS, steps + 1).tolist(), "angle": found.states[:, 0].tolist(),
        "excitations": found.controls.T.tolist(),
    }  # fmt: skip


def replayed(times: list[float], excitations: list[list[float]]) -> dict[str, float]:
    """Run our engine with OpenSim's excitations, joined linearly: final errors of angle [rad] and speed [rad/s]."""
    middle = (np.arange(500) + 0.5) * SECONDS / 500
    controls = np.stack([np.interp(middle, times, row) for row in excitations], axis=1)
    end = ElbowSimulator(dt=SECONDS / 500).rollout(START[None], np.clip(controls, 0, 1)[None])[0][0, -1]
    return {"angle_error": float(end[0] - END[0]), "speed_error": float(end[1])}


def planned(peer: Path) -> dict[str, Any]:
    """Plan the motion on both sides."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "asked.json"
        given.write_text(json.dumps(problem()))
        theirs = asked_of(peer, "moco", str(given))
    for row in theirs["found"]:
        row["in_our_engine"] = replayed(row["times"], row["excitations"])
        del row["speed"], row["activations"]
    return {
        "opensim_version": theirs["opensim"], "moco": theirs["found"],
        "directors": [ours(steps, smoothness) for smoothness in SMOOTHNESS for steps in (50, 100)],
    }  # fmt: skip


def main(args: Args) -> None:
    """Runs both, writes numbers.json and picture.png."""
    paths = compared(args.peer, args.arm26, args.angles)
    print(json.dumps(paths["largest_difference_mm"], indent=1), flush=True)
    motions = planned(args.peer)
    for side in ("moco", "directors"):
        for row in motions[side]:
            print(side, {name: value for name, value in row.items() if not isinstance(value, list)})
    args.out.mkdir(parents=True, exist_ok=True)
    command = "python experiments/arm_paths_opensim/arm_paths_opensim.py --peer VENV/bin/python --arm26 arm26.osim"
    found = {"paths": {"command": command, **paths}, "motion": motions}
    write_json(args.out / "numbers.json", {**provenance(), **found})
    draw(paths, motions, args.out / "picture.png")


def draw(paths: dict[str, Any], motions: dict[str, Any], file: Path) -> None:
    """Plot lengths, moment arms and differences by angle; also our two muscles; the motion of both sides."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 7), layout="constrained")
    lengths, arms, apart, two, angle, excitation = figure.subplots(2, 3).ravel()
    q = np.degrees(paths["angles"])
    colors = dict(zip(paths["opensim"], ("#b01820", "#e08020", "#d8b020", "#1f5fa8", "#40a0d0", "#208050"), strict=True))
    for name, color in colors.items():
        ours, theirs = paths["ours"][name], paths["opensim"][name]
        for axes, what in ((lengths, "length"), (arms, "arm")):
            shift = theirs[what][0] if what == "length" else 0.0
            axes.plot(q, 1e3 * (np.array(ours[what]) - shift), color=color, lw=1.2, label=name)
            axes.plot(q[::4], 1e3 * (np.array(theirs[what]) - shift)[::4], "o", color=color, ms=3)
            difference = np.abs(np.array(ours[what]) - np.array(theirs[what]))
            apart.plot(q, 1e3 * np.maximum(difference, 1e-9), color=color, lw=1.2, ls="-" if what == "length" else ":")
    lengths.legend(frameon=False, fontsize=7)
    lengths.set_title("arm26: lengths less those at 0 [mm] (dots: OpenSim)", fontsize=10)
    arms.set_title("arm26: moment arms [mm] (dots: OpenSim)", fontsize=10)
    apart.set_yscale("log")
    apart.axhline(1.0, color="0.6", lw=0.8)
    apart.set_title("differences [mm]: lengths (full), moment arms (dotted)", fontsize=10)
    for name, color, like in (("biceps", BLUE, "BICshort"), ("triceps", RED, "TRIlat")):
        two.plot(q, 1e3 * np.array(paths["two_muscle_arm"][name]["arm"]), color=color, label=f"our {name}")
        two.plot(q, 1e3 * np.array(paths["opensim"][like]["arm"]), "--", color=color, label=f"OpenSim's {like}")
    two.legend(frameon=False, fontsize=8)
    two.set_title("moment arms of the two-muscle arm [mm]", fontsize=10)
    for axes in (lengths, arms, apart, two):
        axes.set_xlabel("elbow [deg]")
    for row, color, label in (
        (motions["moco"][-1], RED, "OpenSim Moco"),
        (motions["directors"][0], BLUE, "ours"),
        (motions["directors"][2], "0.7", "ours, changes for nothing"),
    ):
        angle.plot(row["times"], row["angle"], color=color, label=label)
        for k, style in enumerate(("-", ":")):
            values = row["excitations"][k]
            excitation.plot(row["times"][-len(values) :], values, style, color=color)
    angle.legend(frameon=False, fontsize=8)
    angle.set_title("same motion: angle [rad]", fontsize=10)
    excitation.set_title("excitations of biceps (full) and triceps (dotted)", fontsize=10)
    for axes in (angle, excitation):
        axes.set_xlabel("time [s]")
    for axes in figure.axes:
        plain_axes(axes)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
