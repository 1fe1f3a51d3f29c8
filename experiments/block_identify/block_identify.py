"""Friction of the sliding block from simulated camera data, by four methods: the experiment of [Berard2008] slides 30-34.

    python experiments/block_identify/block_identify.py  # 20 seeds, 3 geometries, own engine and MuJoCo, 4 methods
    python experiments/block_identify/block_identify.py --seeds 3
    python experiments/block_identify/block_identify.py --sources mujoco # only these rows again, the others stay

A weight of 0.5 kg pulls the block (1 kg, friction 0.33) by a string for 0.8 s; a camera sees x, y and the angle at 50 Hz with
noise of 1 mm and 5 mrad. Data come from our own engine and from MuJoCo's block in space (round cones, soft contact, loads that
move). Every method starts at friction 1 (shooting also at 0.2, the filter and the evolution with all of [0, 1.5]) and fits the
initial state too. Writes numbers.json and picture.png, of the first source, into results/block_identify.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.files import git_commit, read_json, write_json
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.rigid.dynamics import BlockSimulator
from softgym_envs.systems.rigid.experiments import record
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.rigid.mujoco import MujocoBlock
from softgym_envs.systems.rigid.parameters import BlockParameters
from softgym_envs.systems.rigid.symbolic import complementarity_form
from sysid.fitting.evolution import EvolutionOptions, cma_es
from sysid.fitting.mpec import MpecOptions, solve
from sysid.fitting.shooting import single_shooting
from sysid.problem.problem import FitProblem

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.berard2008.particle_filter import FilterResult, ParticleOptions, bootstrap_filter

GROUND_TRUTH = 0.33
NOISE = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
PERIOD, FRAMES, SUBSTEPS = 0.02, 40, 2
GEOMETRIES = (
    BlockModel(),
    BlockModel(supports=((0.08, 0.02), (-0.04, 0.06), (-0.05, -0.07)), attachment=(0.1, -0.05), pulley=(1.3, -0.4)),
    BlockModel(supports=((0.05, 0.05), (0.05, -0.06), (-0.08, 0.0)), attachment=(0.1, 0.08), pulley=(1.0, 0.6)),
)
COARSE = 8
"""Edges of the cone in the homotopy; the polish has the simulator's 32."""
FILTER = ParticleOptions(
    count=500, walk=0.004, process={"vx": 0.01, "vy": 0.01, "omega": 0.05}, first={"vx": 0.01, "vy": 0.01, "omega": 0.05}
)


@dataclass
class Args:
    """Options of the study."""

    seeds: int = 20
    """Noise seeds per geometry and source."""
    evolution_seeds: int = 5
    """Noise seeds for CMA-ES, which takes longest."""
    sources: tuple[Literal["own", "mujoco"], ...] = ("own", "mujoco")
    """Engines that write data; rows of the other stay as they are in the file."""
    out: Path = Path("results/block_identify")
    """Folder of numbers and plots."""


@dataclass(frozen=True)
class Row:
    """One method on one source of data and one geometry."""

    source: str
    geometry: int
    method: str
    mean: float
    spread: float
    """Standard deviation over seeds."""
    rms_error: float
    worst_error: float
    seconds_median: float
    estimates: list[float]


Method = Callable[[FitProblem, ComplementarityForm], tuple[float, Any]]


def by_mpec(problem: FitProblem, form: ComplementarityForm) -> tuple[float, Any]:
    """Fit by complementarity; one fallback, since MuJoCo's data never pass the gate."""
    found = solve(problem, form, MpecOptions(fallbacks=1, grid=0))
    return float(problem.decode(found.theta).friction), found  # type: ignore[attr-defined]


def by_shooting(problem: FitProblem, form: ComplementarityForm) -> tuple[float, Any]:
    """Fit by least squares from friction 0.2 and 1, the better of the two."""
    starts = [problem.replace(start=problem.initial_parameters.replace(friction=friction)) for friction in (0.2, 1.0)]
    best = min((single_shooting(start) for start in starts), key=lambda fit: fit.reduced_chi2)
    return float(best.parameters.friction), best  # type: ignore[attr-defined]


def by_filter(problem: FitProblem, form: ComplementarityForm) -> tuple[float, Any]:
    """Fit by the bootstrap filter."""
    found = bootstrap_filter(problem, FILTER)
    return float(found.parameters.friction), found  # type: ignore[attr-defined]


def by_evolution(problem: FitProblem, form: ComplementarityForm) -> tuple[float, Any]:
    """Fit by CMA-ES."""
    found = cma_es(problem, EvolutionOptions(generations=150, start_spread=0.01))
    return float(found.parameters.friction), found  # type: ignore[attr-defined]


METHODS: dict[str, Method] = {
    "MPEC": by_mpec, "single shooting": by_shooting, "particle filter": by_filter, "CMA-ES": by_evolution,
}  # fmt: skip


def problem_of(simulator: BlockSimulator, source: str, seed: int) -> FitProblem:
    """A camera recording as a problem, from friction 1."""
    ground_truth: Any = simulator if source == "own" else MujocoBlock(simulator.model)
    parameter_values: Parameters = ground_truth.default_parameters.replace(friction=GROUND_TRUTH)
    start = ground_truth.initial_state()[0]
    rng = np.random.default_rng(seed)
    recording = record(ground_truth, start, np.zeros((FRAMES, 2)), parameter_values, noise=NOISE, rng=rng, period=PERIOD)
    recording = replace(recording, substeps=SUBSTEPS)  # of our engine, whatever wrote it
    initial_guess = BlockParameters(friction=1.0)
    return FitProblem(simulator, TrajectorySet((recording,)), ("friction",), start=initial_guess, noise=NOISE, free_motion=True)


def study(seeds: int, evolution_seeds: int, sources: tuple[str, ...]) -> tuple[list[Row], dict[str, Any]]:
    """Run all methods on all data; also the data of the plots, of geometry 0 and seed 0."""
    rows, shown = [], {}
    for source in sources:
        for index, model in enumerate(GEOMETRIES):
            simulator = BlockSimulator(model, dt=PERIOD / SUBSTEPS)
            coarse = BlockSimulator(replace(model, num_directions=COARSE), dt=simulator.dt)
            form = complementarity_form(coarse)
            problems = [problem_of(simulator, source, 100 * index + seed) for seed in range(seeds)]
            for name, method in METHODS.items():
                method(problems[0], form)  # compiles
                estimates, seconds = [], []
                for number, problem in enumerate(problems[:evolution_seeds] if name == "CMA-ES" else problems):
                    begin = time.perf_counter()
                    value, found = method(problem, form)
                    seconds.append(time.perf_counter() - begin)
                    estimates.append(value)
                    if index == 0 and number == 0:
                        shown[f"{source} {name}"] = (problem, value, found)
                rows.append(statistics(source, index, name, estimates, seconds))
                print(line(rows[-1]), flush=True)
    return rows, shown


def statistics(source: str, geometry: int, method: str, estimates: list[float], seconds: list[float]) -> Row:
    """Statistics over seeds."""
    errors = np.array(estimates) - GROUND_TRUTH
    rms, worst = float(np.sqrt(np.mean(errors**2))), float(np.abs(errors).max())
    spread = float(np.std(estimates, ddof=1))
    return Row(source, geometry, method, float(np.mean(estimates)), spread, rms, worst, float(np.median(seconds)), estimates)


def line(row: Row) -> str:
    """One line for people."""
    return (
        f"{row.source:7s} geometry {row.geometry} {row.method:16s} {row.mean:.4f} +- {row.spread:.4f}, RMS error "
        f"{100 * row.rms_error / GROUND_TRUTH:5.2f} %, "
        f"worst {100 * row.worst_error / GROUND_TRUTH:5.2f} %, {row.seconds_median:.2f} s"
    )


def plot(source: str, shown: dict[str, Any], path: Path) -> None:
    """Plot trajectory, velocity and friction over time, as slides 32-34."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    problem, value, found = shown[f"{source} MPEC"]
    filtered: FilterResult = shown[f"{source} particle filter"][2]
    (recording,) = tuple(problem.split.train)
    times, seen = recording.times, problem.values(recording)
    states, _ = problem.simulator.rollout(
        found.starts, problem.controls(recording)[None], problem.initial_parameters.replace(friction=value), substeps=SUBSTEPS
    )
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), constrained_layout=True)
    axes[0].plot(seen[:, 0], seen[:, 1], "k.", label="camera")
    axes[0].plot(states[0, :, 0], states[0, :, 1], label="MPEC")
    axes[0].plot(filtered.states[:, 0], filtered.states[:, 1], "--", label="particle filter")
    axes[0].set(xlabel="x [m]", ylabel="y [m]", title="trajectory")
    axes[1].plot(times[1:], np.diff(seen[:, 0]) / PERIOD, "k.", label="camera, differences")
    axes[1].plot(times, states[0, :, 3], label="MPEC")
    axes[1].plot(times, filtered.states[:, 3], "--", label="particle filter")
    axes[1].set(xlabel="time [s]", ylabel="velocity in x [m/s]", title="velocity")
    axes[2].plot(times, filtered.mean[:, 0], "C1--", label="particle filter")
    low, high = filtered.mean[:, 0] - 2 * filtered.std[:, 0], filtered.mean[:, 0] + 2 * filtered.std[:, 0]
    axes[2].fill_between(times, low, high, color="C1", alpha=0.2)
    axes[2].axhline(value, color="C0", label=f"MPEC {value:.4f}")
    axes[2].axhline(GROUND_TRUTH, color="k", lw=0.8, label=f"ground truth {GROUND_TRUTH}")
    axes[2].set(xlabel="time [s]", ylabel="friction", title="friction", ylim=(0.2, 0.5))
    for axis in axes:
        axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def command(args: Args) -> str:
    """Command line for the same rows."""
    seeds = f"--seeds {args.seeds} --evolution-seeds {args.evolution_seeds}"
    return f"python experiments/block_identify/block_identify.py {seeds} --sources {' '.join(args.sources)}"


def main(args: Args) -> None:
    """Run, print, save."""
    begin = time.perf_counter()
    rows, shown = study(args.seeds, args.evolution_seeds, args.sources)
    path, made = args.out / "numbers.json", {"commit": git_commit(), "command": command(args)}
    before = read_json(path) if path.exists() else {"rows": []}
    document = before | {
        "friction": GROUND_TRUTH,
        "noise": NOISE,
        "rows": [row for row in before["rows"] if row["source"] not in args.sources] + [asdict(row) | made for row in rows],
        "seconds": time.perf_counter() - begin,
    }
    write_json(path, document)
    plot(args.sources[0], shown, args.out / "picture.png")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
