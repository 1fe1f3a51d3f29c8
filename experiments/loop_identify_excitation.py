r"""Optimal excitation: the manipulation that determines both stiffnesses best, and its gain on the MuJoCo model.

    python experiments/loop_identify_excitation.py  # writes results/loop_identify_excitation
    python experiments/loop_identify_excitation.py --model my_loop.toml --theta 5 --psi 5 --mujoco-model 0 --out runs/mine

`reproductions.caldwell2014.excitation` searches for it, from the model's start and with a free start, too; `path.csv` and
`path_moved.csv` have the arm's angles every 10 ms, for a robot to follow. Then both and manipulations as drawn by `record`
are recorded from the MuJoCo model with noise and biased torques, and fitted by the documented command's method: the gain is the
ratio of the widths of the 95 % intervals. Every recording is written when it is done; finished ones are not run again
(`--fresh`: all are).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro

from softgym_envs.core.files import provenance, read_json, write_atomically, write_json
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems import system
from softgym_envs.systems.loop.manipulation import Waves
from softgym_envs.systems.loop.model import ARM, FRICTION
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.procedure import OFFSETS, PROCEDURE, STIFFNESS, manipulation
from sysid.procedure.run import run_procedure

sys.path.insert(0, str(Path(__file__).parents[1]))  # `reproductions` is not installed
from reproductions.caldwell2014.excitation import Excitation, drawn, optimal

BIAS, DRY = 0.2, 0.1
"""[N m] Bias of every torque, either way; largest dry friction of every joint."""


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    model: str = "baxter12"
    """The loop: a name of the system's, or a TOML file."""
    theta: float = LoopParameters().theta_stiffness
    """Guessed stiffness [N m/rad]."""
    psi: float = LoopParameters().psi_stiffness
    """[N m/rad]"""
    seconds: float = 8.0
    """Length of a manipulation [s]."""
    evaluations: int = 60
    """Manipulations that are evaluated in either search."""
    random: int = 6
    """Drawn manipulations to compare with, by their Fisher information."""
    mujoco_model: int = 4
    """Recordings of the MuJoCo model, of each kind."""
    fresh: bool = False
    """Forget the results of an earlier run."""
    out: Path = Path("results/loop_identify_excitation")


KINDS = {"best": "optimal", "moved": "optimal, start and all", "drawn": "as `record` draws them"}
"""Kinds of manipulations."""
SEARCHED = ("best", "moved")


def spreads(covariance: np.ndarray | None) -> list[float]:
    """Standard deviations of log stiffness; empty for what cannot be done."""
    return [] if covariance is None else np.sqrt(np.diag(covariance)).tolist()


def fitted(design: Excitation, waves: Waves, seed: int) -> dict[str, Any]:
    """Errors of log stiffness and widths of 95 % intervals, from the MuJoCo model with this seed's noise and bias."""
    rng, mujoco_model = np.random.default_rng(300 + seed), MujocoLoop(model=design.simulator.model)
    ground_truth = LoopParameters(
        theta_stiffness=design.parameters.theta_stiffness * np.exp(rng.uniform(-0.3, 0.3)),
        psi_stiffness=design.parameters.psi_stiffness * np.exp(rng.uniform(-0.3, 0.3)),
        **dict(zip(FRICTION, rng.uniform(0.0, DRY, len(ARM)), strict=True)),
    )
    clean = manipulation(mujoco_model, rng, steps=round(design.seconds / mujoco_model.dt), parameters=ground_truth, waves=waves)
    bias = BIAS * rng.choice([-1.0, 1.0], len(OFFSETS))
    torques = clean.controls + bias + design.torque * rng.standard_normal(clean.controls.shape)
    recording = replace(clean.with_noise(rng, design.angle), controls=torques)
    assert PROCEDURE.from_recordings is not None
    start = LoopParameters(theta_stiffness=5.0, psi_stiffness=5.0)
    found = run_procedure(
        PROCEDURE, design.simulator, TrajectorySet((recording,)), start=start, stages=(PROCEDURE.from_recordings,)
    ).stages[0]  # fmt: skip
    own = {e.name: e for e in found.fit.estimates}
    return {
        "errors": [float(np.log(own[name].value / getattr(ground_truth, name))) for name in STIFFNESS],
        "widths": [float(np.log(own[name].interval[1] / own[name].interval[0])) for name in STIFFNESS],
        "inside": [bool(own[name].interval[0] <= getattr(ground_truth, name) <= own[name].interval[1]) for name in STIFFNESS],
        "explained": found.fit.explained, "converged": found.fit.converged,
        "said": [d.sentence() for d in found.fit.diagnostics if d.severity in ("warning", "do_not_use")],
    }  # fmt: skip


def searched(design: Excitation, args: Args, moved: bool) -> dict[str, Any]:
    """The best manipulation, and drawn ones from the same start for comparison."""
    rng, course = np.random.default_rng(7), []

    def announce(count: int, value: float) -> None:
        course.append([count, value])
        print(f"{count} manipulations: log det {value:.3f}", flush=True)

    waves, covariance = optimal(design, evaluations=args.evaluations, moved=moved, announce=announce)
    beside = [drawn(rng)._replace(offsets=waves.offsets) for _ in range(args.random)]
    others = [spread for each in beside if (spread := spreads(design.covariance(each)))]
    return {"waves": waves._asdict(), "std": spreads(covariance), "drawn_std": others, "course": course}


def main(args: Args) -> None:
    """Search, compare, write."""
    simulator: Any = system("loop").simulator(args.model)
    design = Excitation(simulator, LoopParameters(theta_stiffness=args.theta, psi_stiffness=args.psi), args.seconds)
    path = args.out / "numbers.json"
    if args.fresh:
        path.unlink(missing_ok=True)
    done: dict[str, Any] = dict(read_json(path).get("cases", {})) if path.exists() else {}

    def keep(name: str, value: Any) -> None:
        done[name] = plain(value)
        write_json(path, {"provenance": provenance(), "cases": done})

    waves: dict[str, Waves] = {}
    for kind in SEARCHED:
        if f"search {kind}" not in done:
            keep(f"search {kind}", searched(design, args, kind == "moved"))
        waves[kind] = Waves(*(np.array(done[f"search {kind}"]["waves"][name]) for name in Waves._fields))
    for seed in range(args.mujoco_model):
        for kind in KINDS:
            if f"{kind} {seed}" not in done:
                print(kind, seed, flush=True)
                chosen = waves.get(kind) or drawn(np.random.default_rng(40 + seed))
                keep(f"{kind} {seed}", fitted(design, chosen, seed))
    paths = {kind: design.path(each) for kind, each in waves.items()}
    for kind, name in (("best", "path.csv"), ("moved", "path_moved.csv")):
        rows = [f"{0.01 * i:.2f}," + ",".join(f"{angle:.6f}" for angle in row) for i, row in enumerate(paths[kind])]
        header = "time [s]," + ",".join(f"{name} [rad]" for name in ARM)
        write_atomically(args.out / name, "\n".join([header, *rows, ""]).encode())
    write_atomically(args.out / "table.md", table(done, args).encode())
    draw(done, paths, args.out / "picture.png")


def table(done: dict[str, Any], args: Args) -> str:
    """Table of the gains, by the model and on the MuJoCo model."""
    lines = [
        "# Optimal excitation of the loop\n",
        "`python experiments/loop_identify_excitation.py`\n",
        f"Manipulations of {args.seconds:g} s at 100 Hz, noise of 0.2 N m and 2 mrad, 25 unknowns. Gain: how many times",
        "wider the 95 % interval of a stiffness is with manipulations that `record` draws than with this one.\n",
        "By the Fisher information of our model:\n",
        "| manipulation | looked at | gain, theta | gain, psi | drawn ones from this start: theta | psi |",
        "|---" * 6 + "|",
    ]  # fmt: skip
    usual = np.exp(np.mean(np.log(done["search best"]["drawn_std"]), axis=0))
    for kind in SEARCHED:
        if f"search {kind}" not in done:
            lines.append(f"| {KINDS[kind]} | NOT COMPLETE: the command looks for it | | | | |")
            continue
        search = done[f"search {kind}"]
        gain = usual / search["std"]
        own = usual / np.exp(np.mean(np.log(search["drawn_std"]), axis=0)) if search["drawn_std"] else (np.nan, np.nan)
        lines.append(
            f"| {KINDS[kind]} | {search['course'][-1][0]} | {gain[0]:.2f} | {gain[1]:.2f} | {own[0]:.2f} | {own[1]:.2f} |"
        )
    return "\n".join([*lines, *_measured(done, args)]) + "\n"


def _measured(done: dict[str, Any], args: Args) -> list[str]:
    """Summary of fits to the MuJoCo model's recordings; gains: ground truths whose recordings all fits explain."""
    rows = {kind: [done[f"{kind} {seed}"] for seed in range(args.mujoco_model) if f"{kind} {seed}" in done] for kind in KINDS}
    rows = {kind: each for kind, each in rows.items() if each}
    if "drawn" not in rows:
        return []
    count = min(len(each) for each in rows.values())
    rows = {kind: each[:count] for kind, each in rows.items()}
    good = [seed for seed in range(count) if all(each[seed]["explained"] for each in rows.values())]
    widths = {kind: np.array([row["widths"] for row in each])[good] for kind, each in rows.items()}
    lines = [
        f"\nFits to recordings of the MuJoCo model, {count} drawn ground truths; gains where all fits explain ({len(good)}):\n",
        "| manipulation | explained | gain, theta | gain, psi | rms errors, all | intervals that hold |", "|---" * 6 + "|",
    ]  # fmt: skip
    for kind in rows:
        gain = np.exp(np.mean(np.log(widths["drawn"] / widths[kind]), axis=0)) if good else (np.nan, np.nan)
        error = ", ".join(f"{e:.1%}" for e in np.sqrt(np.mean(np.square([each["errors"] for each in rows[kind]]), axis=0)))
        inside = sum(sum(each["inside"]) for each in rows[kind])
        explained = sum(each["explained"] for each in rows[kind])
        lines.append(
            f"| {KINDS[kind]} | {explained} of {count} | {gain[0]:.2f} | {gain[1]:.2f} | {error} | {inside} of {2 * count} |"
        )
    return lines


def plain(value: Any) -> Any:
    """Convert to JSON."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry) for entry in value]
    return value if isinstance(value, (bool, int, str)) else float(f"{value:.5g}")


def draw(done: dict[str, Any], paths: dict[str, np.ndarray], where: Path) -> None:
    """Plot standard deviations, and the arm's paths."""
    figure, (left, *rights) = plt.subplots(1, 3, figsize=(15, 4), constrained_layout=True)
    for kind, mark, color in (("best", "o", "C0"), ("moved", "s", "C1")):
        if kind not in paths:
            continue
        search, ending = done[f"search {kind}"], "" if kind == "best" else ", start moved"
        if search["drawn_std"]:
            left.loglog(*np.array(search["drawn_std"]).T, mark, color=color, label=f"as record draws them{ending}")
        left.loglog(*search["std"], "*", color=color, ms=14, label=f"D-optimal{ending}")
    left.set(xlabel="std of theta_stiffness, relative", ylabel="std of psi_stiffness, relative")
    left.legend(fontsize=8)
    for right, (kind, path) in zip(rights, paths.items(), strict=False):
        right.plot(0.01 * np.arange(len(path)), path - paths["best"][0], label=list(ARM))
        right.set(xlabel="time [s]", ylabel="angle from the model's start [rad]", title=KINDS[kind])
    rights[0].legend(fontsize=7)
    figure.savefig(where, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
