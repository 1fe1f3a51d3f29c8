"""The two experiments of [Jitosho2021] IV-B, recorded from the MuJoCo model, fitted by the native engine.

Oscillation: a cantilever let go, 240 frames per second; growth into a wall, 30 frames per second; 21 points with 0.5 mm of
noise, of which 3 % are lost. Errors of the tip are against points of held-out recordings, noise included.
`wall_program` compares shooting with one nonlinear program (contact schedule found, and given by the start parameters) on 0.8 s
of growth into a wall, by a robot of six links and one physics step per frame; seconds are of the processor.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from softgym_envs.core.files import write_atomically
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.mujoco import MujocoVineParameters
from softgym_envs.systems.vine.parameters import VineParameters
from softgym_envs.systems.vine.procedure import TUBE, first_state, measurement, program
from sysid import FitProblem, simultaneous
from sysid.diagnostics.result import FitResult
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.fitting.simultaneous import SimultaneousOptions
from sysid.least_squares.levenberg import LevenbergOptions

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.jitosho2021.engine_pairs import engine_pairs
from reproductions.jitosho2021.experiments import BEAM, NOISE, record_oscillation, record_wall

GROUND_TRUTH = MujocoVineParameters(bending_stiffness=0.03, bending_damping=5e-4, drag=0.0)
OPTIONS = ShootingOptions(levenberg=LevenbergOptions(cost_tolerance=1e-6), reweight=2)


@dataclass
class Args:
    """Options of the measurement."""

    seeds: int = 4
    """Repetitions with other noise and other first shapes."""
    parts: tuple[Literal["oscillation", "wall", "wall_program"], ...] = ("oscillation", "wall", "wall_program")
    """Parts to measure; the rest of the file stays."""
    out: Path = Path("reproductions/jitosho2021/expected.json")
    """File of the numbers."""


def fitted(simulator: VineSimulator, recording: Trajectory, free_initial: bool) -> FitResult:
    """Identify stiffness and damping from one recording."""
    problem = FitProblem(
        simulator,
        TrajectorySet((recording,)),
        free=TUBE,
        start=VineParameters(drag=0.0),
        measurement=measurement(simulator, recording.names),
        initial_state=first_state(simulator, recording.names),
        free_initial=free_initial,
        free_motion=True,
    )
    return single_shooting(problem, OPTIONS)


def tip_error(simulator: VineSimulator, result: FitResult, test: Trajectory, axis: int) -> float:
    """Mean absolute error of the tip's x (0) or y (1) over a recording, from its estimated first state [mm]."""
    offer, initial_guess = measurement(simulator, test.names), first_state(simulator, test.names)
    assert offer is not None and initial_guess is not None
    states, _ = simulator.rollout(initial_guess(test)[None], test.controls[None], result.parameters, substeps=test.substeps)
    error = offer.function(states[0])[:, -2 + axis] - test.values[:, -2 + axis]
    return 1e3 * float(np.nanmean(np.abs(error)))


def described(result: FitResult) -> list[dict[str, Any]]:
    """Value and interval of every parameter, or that it is not identifiable."""
    return [
        {"name": e.name, "value": e.value, "interval": list(e.interval), "identifiable": not e.hidden} for e in result.estimates
    ]


def oscillation(seed: int) -> dict[str, Any]:
    """Fit one release, test on another."""
    rng, substeps = np.random.default_rng(seed), 8
    simulator = VineSimulator(BEAM, 1 / (240 * substeps), "linear")
    bends = rng.uniform(0.5, 0.9), -rng.uniform(0.5, 0.9)
    train, test = (replace(record_oscillation(GROUND_TRUTH, rng, bend=b), substeps=substeps) for b in bends)
    result = fitted(simulator, train, free_initial=True)
    return {
        "parameters": described(result),
        "converged": result.converged,
        "tip_y_mae_mm": tip_error(simulator, result, test, 1),
    }


def into_a_wall(seed: int) -> dict[str, Any]:
    """Fit growth into one wall, test on another run."""
    rng, substeps = np.random.default_rng(100 + seed), 14
    recordings = [record_wall(GROUND_TRUTH, rng) for _ in range(2)]
    simulator = VineSimulator(recordings[0][1], 1 / (30 * substeps), "linear")
    train, test = (replace(recording, substeps=substeps) for recording, _ in recordings)
    result = fitted(simulator, train, free_initial=False)
    return {
        "parameters": described(result),
        "converged": result.converged,
        "tip_x_mae_mm": tip_error(simulator, result, test, 0),
    }


def wall_by_program(seed: int) -> dict[str, Any]:
    """Three fits to one recording, tested on another run."""
    rng = np.random.default_rng(200 + seed)
    (train, model), (test, _) = (record_wall(GROUND_TRUTH, rng, seconds=0.8) for _ in range(2))
    train, test = (replace(recording, substeps=1) for recording in (train, test))
    simulator = VineSimulator(replace(model, num_links=6, max_length=0.54), 1 / 30, "linear")
    offer = measurement(simulator, train.names)
    assert offer is not None
    problem = FitProblem(
        simulator, TrajectorySet((train,)), free=TUBE, start=VineParameters(drag=0.0),
        measurement=offer, noise=dict.fromkeys(offer.names, NOISE),
        initial_state=first_state(simulator, train.names), free_initial=False, free_motion=True,
    )  # fmt: skip
    form, observe, _ = program(simulator, offer.names)
    states, _ = simulator.rollout(problem.initial_guess(train)[None], train.controls[None], problem.initial_parameters)
    _, schedule = engine_pairs(simulator, states[0], train.controls[:, 0], VineParameters(drag=0.0))
    options = SimultaneousOptions(tau=1e-2, factor=1e-2)
    ways: dict[str, Callable[[], FitResult]] = {
        "shooting": lambda: single_shooting(problem, OPTIONS),
        "schedule_given": lambda: simultaneous(problem, form, options, observe=observe, schedule=[schedule]),
        "schedule_found": lambda: simultaneous(problem, form, options, observe=observe),
    }
    report: dict[str, Any] = {}
    for name, fit in ways.items():
        begin = time.process_time()
        result = fit()
        report[name] = {
            "parameters": described(result),
            "converged": result.converged,
            "reduced_chi2": result.reduced_chi2,
            "tip_x_mae_mm": tip_error(simulator, result, test, 0),
            "seconds": time.process_time() - begin,
        }
    return report


MEASURED = {"oscillation": oscillation, "wall": into_a_wall, "wall_program": wall_by_program}


def main(args: Args) -> None:
    """Run all seeds; prints and writes the numbers."""
    report: dict[str, Any] = json.loads(args.out.read_text()) if args.out.is_file() else {}
    report["ground_truth"] = {name: getattr(GROUND_TRUTH, name) for name in ("bending_stiffness", "bending_damping")}
    for part in args.parts:
        report[part] = [MEASURED[part](seed) for seed in range(args.seeds)]
    text = json.dumps(report, indent=1)
    print(text)
    write_atomically(args.out, (text + "\n").encode())


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
