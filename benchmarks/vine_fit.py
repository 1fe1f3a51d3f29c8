"""The two experiments of [Jitosho2021] IV-B, recorded from the MuJoCo twin, fitted by our engine: results/vine_fit.json.

Oscillation: a cantilever let go, 240 frames per second; growth into a wall, 30 frames per second; 21 points with 0.5 mm of
noise, of which 3 % are lost. Errors of the tip are against points of recordings that no fit has seen, noise included.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from softgym_envs.core.parameters import write_atomically
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.vine.dynamics import VineSimulator
from softgym_envs.vine.experiments import BEAM, record_oscillation, record_wall
from softgym_envs.vine.identification import Setup
from softgym_envs.vine.mujoco import VineTwinParameters
from softgym_envs.vine.parameters import VineParameters
from sysid import FitProblem, FitResult, Measurement, ShootingOptions, single_shooting
from sysid.levenberg import LevenbergOptions

TRUTH = VineTwinParameters(bending_stiffness=0.03, bending_damping=5e-4, drag=0.0)
OPTIONS = ShootingOptions(levenberg=LevenbergOptions(cost_tolerance=1e-6), reweight=2)


@dataclass
class Args:
    """How much to measure."""

    seeds: int = 4
    """Repetitions with other noise and other first shapes."""
    out: Path = Path("results/vine_fit.json")
    """Where the numbers go."""


def fitted(setup: Setup, recording: Trajectory, free_initial: bool) -> FitResult:
    """Stiffness and damping from one recording."""
    offer = setup.measurement(recording.names)
    assert offer is not None
    problem = FitProblem(
        setup.simulator,
        TrajectorySet((recording,)),
        free=setup.free,
        start=VineParameters(drag=0.0),
        measurement=Measurement(offer[1], offer[0]),
        initial_state=setup.first_state(recording.names),
        free_initial=free_initial,
        free_motion=True,
    )
    return single_shooting(problem, OPTIONS)


def tip_error(setup: Setup, result: FitResult, test: Trajectory, axis: int) -> float:
    """Mean absolute error of the tip's x (0) or y (1) over a recording, from the guess of its first state [mm]."""
    offer, guess = setup.measurement(test.names), setup.first_state(test.names)
    assert offer is not None and guess is not None
    states, _ = setup.simulator.rollout(guess(test)[None], test.controls[None], result.parameters, substeps=test.substeps)
    error = offer[0](states[0])[:, -2 + axis] - test.values[:, -2 + axis]
    return 1e3 * float(np.nanmean(np.abs(error)))


def described(result: FitResult) -> list[dict[str, Any]]:
    """Value and interval of every constant, or that it is not identifiable."""
    return [
        {"name": e.name, "value": e.value, "interval": list(e.interval), "identifiable": not e.hidden} for e in result.estimates
    ]


def oscillation(seed: int) -> dict[str, Any]:
    """Fit one release, test on another."""
    rng, substeps = np.random.default_rng(seed), 8
    setup = Setup(VineSimulator(BEAM, 1 / (240 * substeps), "linear"))
    bends = rng.uniform(0.5, 0.9), -rng.uniform(0.5, 0.9)
    train, test = (replace(record_oscillation(TRUTH, rng, bend=b), substeps=substeps) for b in bends)
    result = fitted(setup, train, free_initial=True)
    return {"constants": described(result), "converged": result.converged, "tip_y_mae_mm": tip_error(setup, result, test, 1)}


def into_a_wall(seed: int) -> dict[str, Any]:
    """Fit growth into one wall, test on another run."""
    rng, substeps = np.random.default_rng(100 + seed), 14
    recordings = [record_wall(TRUTH, rng) for _ in range(2)]
    setup = Setup(VineSimulator(recordings[0][1], 1 / (30 * substeps), "linear"))
    train, test = (replace(recording, substeps=substeps) for recording, _ in recordings)
    result = fitted(setup, train, free_initial=False)
    return {"constants": described(result), "converged": result.converged, "tip_x_mae_mm": tip_error(setup, result, test, 0)}


def main(args: Args) -> None:
    """All seeds; prints and writes the numbers."""
    truth = {name: getattr(TRUTH, name) for name in ("bending_stiffness", "bending_damping")}
    report: dict[str, Any] = {"truth": truth, "oscillation": [], "wall": []}
    for seed in range(args.seeds):
        report["oscillation"].append(oscillation(seed))
        report["wall"].append(into_a_wall(seed))
    text = json.dumps(report, indent=1)
    print(text)
    write_atomically(args.out, (text + "\n").encode())


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
