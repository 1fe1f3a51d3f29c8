"""Friction of falling and sliding particles through complementarity, over noise levels and seeds: the tables of [Berard2008].

    python reproductions/berard2008/run.py  # 100 seeds x 5 noise levels, then 2, 3, 5, 10 and 100 particles
    python reproductions/berard2008/run.py --seeds 10 --counts 2 3

Setting of slides 27-29: friction 0.2, h = 0.05 s, 100 steps, start (0, 3) m, 5 N, 1 kg; noise uniform in [-eps, eps] on
positions. Every fit starts at friction 1 from the noisy positions. A fit is global if its objective is at most that of the
ground truth. The Fisher bound is the standard deviation of friction by the exact derivatives at the ground truth, for normal
noise of the same variance, with unknown initial state. Writes expected.json.

The paper's own digits are printed with ours and tested nowhere: at noise 5e-3 and above its errors of friction are 0.02 to
0.08 of that bound, which an estimate from these measurements reaches by luck only.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.rigid.dynamics import ParticleSimulator
from softgym_envs.systems.rigid.experiments import record
from softgym_envs.systems.rigid.model import ParticleModel
from softgym_envs.systems.rigid.symbolic import complementarity_form
from sysid.fitting.mpec import MpecOptions, MpecSolution, solve
from sysid.least_squares.cutting import cut
from sysid.problem.problem import FitProblem

LEVELS = (5e-5, 5e-4, 5e-3, 5e-2, 5e-1)
PAPER = {5e-5: "0.2", 5e-4: "0.2", 5e-3: "0.2", 5e-2: "0.200022", 5e-1: "0.199873 (infeasible)"}
PAPER_RMS = {5: 6.0e-6, 10: 7.2e-6}
STEPS, FORCE = 100, 5.0


@dataclass
class Args:
    """Options of the study."""

    seeds: int = 100
    """Noise seeds per level."""
    counts: tuple[int, ...] = (2, 3, 5, 10, 100)
    """Numbers of particles; rows of others stay as they are in the file."""
    count_seeds: int = 20
    """Seeds per number of particles up to 10; larger numbers get one."""
    out: Path = Path("reproductions/berard2008/expected.json")
    """File of the numbers."""


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    what: float
    """Noise level, or number of particles."""
    fits: int
    globals: int
    """Fits whose objective is at most the ground truth's."""
    first_way: int
    """Fits that needed no fallback."""
    rms_error: float
    fisher: float
    """Root mean square of the Fisher bounds."""
    processor_median: float
    """Processor time per fit [s]: most time on an idle machine."""
    seconds_median: float
    """Wall time, with the machine's other load."""
    seconds_max: float
    objective_median: float
    errors: list[float]


def problem_of(simulator: ParticleSimulator, ground_truth: Parameters, start: np.ndarray, eps: float, seed: int) -> FitProblem:
    """A noisy recording as a problem, from friction 1."""
    sigma = eps / np.sqrt(3)
    recording = record(
        simulator, start, np.full((STEPS, simulator.nu), FORCE), ground_truth,
        noise={"x": sigma, "y": sigma}, rng=np.random.default_rng(seed), uniform=True,
    )  # fmt: skip
    free = tuple(name for name in ground_truth.names() if name.startswith("friction"))
    initial_guess = ground_truth.replace(**dict.fromkeys(free, 1.0))
    noise = dict.fromkeys(recording.names, sigma)
    return FitProblem(simulator, TrajectorySet((recording,)), free, start=initial_guess, noise=noise, free_motion=True)


def judge(problem: FitProblem, ground_truth: Parameters, start: np.ndarray) -> tuple[float, np.ndarray]:
    """Objective at the ground truth, and the Fisher bounds of all frictions (p,)."""
    segments = cut(problem, problem.split.train, None, free=True, exact=True)
    theta = problem.encode(ground_truth)
    found = segments.derivative(theta, start[None])
    noise = problem.known_noise
    J = np.concatenate([found.by_parameters, found.starts], axis=-1)[0] / noise[:, None]  # type: ignore[index]
    rows = J.reshape(-1, J.shape[-1])
    objective = float(np.sum((found.residual[0] / noise) ** 2))
    root = np.linalg.inv(np.linalg.qr(rows, mode="r"))
    return objective, np.linalg.norm(root, axis=1)[: len(theta)] * problem.slopes(theta)


@dataclass(frozen=True)
class Fit:
    """One fit against its ground truth."""

    solution: MpecSolution
    error: np.ndarray
    fisher: np.ndarray
    is_global: bool
    processor: float
    """Processor time of the fit [s]."""


def fit(
    form: ComplementarityForm, simulator: ParticleSimulator, ground_truth: Parameters, start: np.ndarray, eps: float, seed: int
) -> Fit:
    """Solve and compare."""
    problem = problem_of(simulator, ground_truth, start, eps, seed)
    begin = time.process_time()
    solution = solve(problem, form, MpecOptions(box=True))
    processor = time.process_time() - begin
    objective, fisher = judge(problem, ground_truth, start)
    values = problem.vectors(solution.theta[None])[0, problem.columns]
    error = values - ground_truth.to_vector()[problem.columns]
    return Fit(solution, error, fisher, solution.objective <= objective * (1 + 1e-12), processor)


def without_fallback(solution: MpecSolution) -> bool:
    """Whether the homotopy from the start parameters and the grid were enough."""
    return not any(attempt.method.startswith("homotopy from") for attempt in solution.attempts)


def row(what: float, fits: list[Fit]) -> Row:
    """Statistics of fits."""
    errors = np.concatenate([f.error for f in fits])
    seconds = [f.solution.seconds for f in fits]
    fisher = float(np.sqrt(np.mean(np.concatenate([f.fisher for f in fits]) ** 2)))
    processor, objective = np.median([(f.processor, f.solution.objective) for f in fits], axis=0)
    return Row(
        what, len(fits), sum(f.is_global for f in fits), sum(without_fallback(f.solution) for f in fits),
        float(np.sqrt(np.mean(errors**2))), fisher, float(processor), float(np.median(seconds)), max(seconds),
        float(objective), errors.tolist(),
    )  # fmt: skip


def levels(seeds: int) -> list[Row]:
    """The table of slide 27."""
    simulator = ParticleSimulator()
    form, ground_truth, start = complementarity_form(simulator), simulator.default_parameters, simulator.initial_state()[0]
    fit(form, simulator, ground_truth, start, 5e-3, 1000)  # compiles
    rows = []
    for place, eps in enumerate(LEVELS):  # every level has its own noise
        rows.append(row(eps, [fit(form, simulator, ground_truth, start, eps, 100_000 * place + seed) for seed in range(seeds)]))
        show(rows[-1], f"paper: {PAPER[eps]}")
    return rows


def many(counts: tuple[int, ...], seeds: int) -> list[Row]:
    """The table of slide 29: random starts, every particle its own friction."""
    rows = []
    for count in counts:
        simulator = ParticleSimulator(ParticleModel(count))
        form, fits = complementarity_form(simulator), []
        for seed in range(seeds if count <= 10 else 1):
            rng = np.random.default_rng(seed)
            ground_truth = simulator.parameters_class(**{f"friction{i}": 0.5 * (1 - rng.random()) for i in range(count)})
            start = simulator.initial_state()[0]
            start[0::4], start[1::4] = rng.uniform(-10, 10, count), rng.uniform(0, 5, count)
            fits.append(fit(form, simulator, ground_truth, start, 5e-3, seed + 10_000))
        rows.append(row(count, fits))
        show(rows[-1], f"paper's RMS: {PAPER_RMS.get(count, '-')}")
    return rows


def show(one: Row, note: str) -> None:
    """One line."""
    print(
        f"{one.what:8g}: global {one.globals}/{one.fits}, without fallback {one.first_way}, RMS {one.rms_error:.3g} = "
        f"{one.rms_error / one.fisher:.3f} x Fisher, {one.processor_median:.2f} s of processor, "
        f"{one.seconds_median:.2f} s of wall time (max {one.seconds_max:.2f}); {note}",
        flush=True,
    )


def main(args: Args) -> None:
    """Run both tables."""
    begin = time.perf_counter()
    there = json.loads(args.out.read_text())["particles"] if args.out.exists() else []
    asked = f"--seeds {args.seeds} --counts {' '.join(str(count) for count in args.counts)} --count-seeds {args.count_seeds}"
    document: dict[str, Any] = {
        "command": f"python reproductions/berard2008/run.py {asked}",
        "commit": git_commit(),
        "levels": [asdict(r) for r in levels(args.seeds)],
        "particles": [
            *(row for row in there if row["what"] not in args.counts),
            *(asdict(r) for r in many(args.counts, args.count_seeds)),
        ],
    }
    document["seconds"] = time.perf_counter() - begin
    write_atomically(args.out, (json.dumps(document, indent=1) + "\n").encode())
    print(f"written to {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
