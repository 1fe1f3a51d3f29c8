r"""Optimal excitation: the manipulation that tells both stiffnesses best, and what it gains on the MuJoCo twin.

    python studies/loop_excitation/loop_excitation.py                      # writes results/loop_excitation
    python studies/loop_excitation/loop_excitation.py --model my_loop.toml --theta 5 --psi 5 --twin 0 --out runs/mine

`softgym_envs.loop.excitation` looks for it; `path.csv` has the arm's angles every 10 ms, for a robot to follow. Then it and
manipulations as `record` draws them are recorded from the MuJoCo twin with noise and biased torques, and fitted by the
documented command's method: the gain is the ratio of the widths of the 95 % intervals. Every recording is written when it is
done; what is there is not run again (`--fresh`: all is).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro

from softgym_envs.core.files import provenance, read_json, write_atomically, write_json
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.loop.excitation import Excitation, drawn, optimal
from softgym_envs.loop.manipulation import Waves
from softgym_envs.loop.model import ARM, FRICTION
from softgym_envs.loop.mujoco import LoopTwin
from softgym_envs.loop.parameters import LoopParameters
from softgym_envs.loop.recipe import OFFSETS, RECIPE, STIFFNESS, manipulation
from softgym_envs.rooms import room
from sysid import run_recipe

BIAS, DRY = 0.2, 0.1
"""[N m] Of every torque, plus or minus; dry friction of every joint, up to."""


@dataclass(frozen=True)
class Args:
    """What to run."""

    model: str = "baxter12"
    """The loop: a name of the room's, or a TOML file."""
    theta: float = LoopParameters().theta_stiffness
    """Stiffness that is guessed before [N m/rad]."""
    psi: float = LoopParameters().psi_stiffness
    """[N m/rad]"""
    seconds: float = 8.0
    """Of a manipulation."""
    evaluations: int = 40
    """Manipulations that are looked at."""
    random: int = 6
    """Drawn ones to compare with, by their Fisher information."""
    twin: int = 2
    """Recordings of the twin, of each kind."""
    fresh: bool = False
    """Forget what an earlier run found."""
    out: Path = Path("results/loop_excitation")


def spreads(covariance: np.ndarray | None) -> list[float]:
    """Standard deviations of log stiffness; nothing of what cannot be done."""
    return [] if covariance is None else np.sqrt(np.diag(covariance)).tolist()


def fitted(design: Excitation, waves: Waves, seed: int) -> dict[str, Any]:
    """Errors of log stiffness and widths of 95 % intervals, from the twin with the truth of this seed, noise and bias."""
    rng, twin = np.random.default_rng(300 + seed), LoopTwin(model=design.simulator.model)
    truth = LoopParameters(
        theta_stiffness=design.parameters.theta_stiffness * np.exp(rng.uniform(-0.3, 0.3)),
        psi_stiffness=design.parameters.psi_stiffness * np.exp(rng.uniform(-0.3, 0.3)),
        **dict(zip(FRICTION, rng.uniform(0.0, DRY, len(ARM)), strict=True)),
    )
    clean = manipulation(twin, rng, steps=round(design.seconds / twin.dt), parameters=truth, waves=waves)
    bias = BIAS * rng.choice([-1.0, 1.0], len(OFFSETS))
    torques = clean.controls + bias + design.torque * rng.standard_normal(clean.controls.shape)
    recording = replace(clean.with_noise(rng, design.angle), controls=torques)
    assert RECIPE.laboratory is not None
    start = LoopParameters(theta_stiffness=5.0, psi_stiffness=5.0)
    found = run_recipe(
        RECIPE, design.simulator, TrajectorySet((recording,)), start=start, stages=(RECIPE.laboratory,)
    ).stages[0]  # fmt: skip
    assert found.fit is not None
    own = {e.name: e for e in found.fit.estimates}
    return {
        "errors": [float(np.log(own[name].value / getattr(truth, name))) for name in STIFFNESS],
        "widths": [float(np.log(own[name].interval[1] / own[name].interval[0])) for name in STIFFNESS],
        "inside": [bool(own[name].interval[0] <= getattr(truth, name) <= own[name].interval[1]) for name in STIFFNESS],
        "explained": found.fit.explained, "converged": found.fit.converged,
    }  # fmt: skip


def searched(design: Excitation, args: Args) -> dict[str, Any]:
    """The best manipulation, and drawn ones beside it."""
    rng, course = np.random.default_rng(7), []

    def announce(count: int, value: float) -> None:
        course.append([count, value])
        print(f"{count} manipulations: log det {value:.3f}", flush=True)

    waves, covariance = optimal(design, evaluations=args.evaluations, announce=announce)
    others = [spread for _ in range(args.random) if (spread := spreads(design.covariance(drawn(rng))))]
    return {"waves": waves._asdict(), "std": spreads(covariance), "drawn_std": others, "course": course}


def main(args: Args) -> None:
    """Search, compare, write."""
    simulator: Any = room("loop").simulator(args.model)
    design = Excitation(simulator, LoopParameters(theta_stiffness=args.theta, psi_stiffness=args.psi), args.seconds)
    path = args.out / "result.json"
    if args.fresh:
        path.unlink(missing_ok=True)
    done: dict[str, Any] = dict(read_json(path).get("cases", {})) if path.exists() else {}

    def keep(name: str, value: Any) -> None:
        done[name] = plain(value)
        write_json(path, {"provenance": provenance(), "cases": done})

    if "search" not in done:
        keep("search", searched(design, args))
    best = Waves(*(np.array(done["search"]["waves"][name]) for name in Waves._fields))
    for seed in range(args.twin):
        for kind, waves in (("best", best), ("drawn", drawn(np.random.default_rng(40 + seed)))):
            if f"{kind} {seed}" not in done:
                print(kind, seed, flush=True)
                keep(f"{kind} {seed}", fitted(design, waves, seed))
    angles = design.path(best)
    rows = [f"{0.01 * i:.2f}," + ",".join(f"{angle:.6f}" for angle in row) for i, row in enumerate(angles)]
    header = "time [s]," + ",".join(f"{name} [rad]" for name in ARM)
    write_atomically(args.out / "path.csv", "\n".join([header, *rows, ""]).encode())
    write_atomically(args.out / "table.md", table(done, args).encode())
    draw(done, angles, args.out / "plot.png")


def table(done: dict[str, Any], args: Args) -> str:
    """What is gained, by the model and on the twin."""
    search = done["search"]
    by_model = np.exp(np.mean(np.log(search["drawn_std"]), axis=0)) / search["std"]
    lines = [
        "# Optimal excitation of the loop\n",
        "`python studies/loop_excitation/loop_excitation.py`\n",
        f"Manipulations of {args.seconds:g} s at 100 Hz, noise of 0.2 N m and 2 mrad, 25 unknowns. Gain: how many times",
        "wider the 95 % interval of a stiffness is with manipulations that `record` draws than with the optimal one.\n",
        "| by | manipulations | gain, theta | gain, psi | rms errors, optimal | rms errors, drawn | intervals with the truth |",
        "|---|---|---|---|---|---|---|",
        f"| Fisher information of our model | {len(search['drawn_std'])} drawn, best of {search['course'][-1][0]} "
        f"| {by_model[0]:.2f} | {by_model[1]:.2f} | - | - | - |",
    ]  # fmt: skip
    missing = args.twin - sum(name.startswith("drawn") for name in done)
    if missing > 0:
        lines.insert(
            2,
            f"NOT COMPLETE: {missing} of {args.twin} pairs of the twin's recordings are missing; the command makes them.\n",
        )
    kinds = {kind: [row for name, row in done.items() if name.startswith(kind)] for kind in ("best", "drawn")}
    if kinds["best"] and len(kinds["best"]) == len(kinds["drawn"]):
        widths, errors, inside = (
            {kind: np.array([row[what] for row in rows]) for kind, rows in kinds.items()}
            for what in ("widths", "errors", "inside")
        )
        gain = np.exp(np.mean(np.log(widths["drawn"] / widths["best"]), axis=0))
        rms = {kind: ", ".join(f"{e:.1%}" for e in np.sqrt(np.mean(rows**2, axis=0))) for kind, rows in errors.items()}
        held = sum(int(rows.sum()) for rows in inside.values())
        lines.append(
            f"| fits of the MuJoCo twin, drawn truths | {len(kinds['best'])} of each | {gain[0]:.2f} | {gain[1]:.2f} "
            f"| {rms['best']} | {rms['drawn']} | {held} of {sum(rows.size for rows in inside.values())} |"
        )
    return "\n".join(lines) + "\n"


def plain(value: Any) -> Any:
    """For JSON."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry) for entry in value]
    return value if isinstance(value, (bool, int, str)) else float(f"{value:.5g}")


def draw(done: dict[str, Any], path: np.ndarray, where: Path) -> None:
    """Standard deviations, and the arm's path."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    left.loglog(*np.array(done["search"]["drawn_std"]).T, "o", label="as record draws them")
    left.loglog(*done["search"]["std"], "*", ms=14, label="D-optimal")
    left.set(xlabel="std of theta_stiffness, relative", ylabel="std of psi_stiffness, relative")
    left.legend()
    right.plot(0.01 * np.arange(len(path)), path - path[0], label=list(ARM))
    right.set(xlabel="time [s]", ylabel="angle from the start [rad]", title="the best manipulation")
    right.legend(fontsize=7)
    figure.savefig(where, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
