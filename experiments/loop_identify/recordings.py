"""The documented command on recordings with noise and biased sensors: intervals, MuJoCo model, another loop.

A recording is one of `softgym-envs record loop`, with phases drawn by seed, 8 s unless stated; the fit is that of
`softgym-envs identify loop run.csv`, with all 25 parameters free, from the paper's start.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.links import TWIST
from softgym_envs.systems.loop.model import ARM, FRICTION, LoopModel
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.procedure import EVERYTHING, OFFSETS, PROCEDURE, STIFFNESS, manipulation
from softgym_envs.systems.loop.rod import LoopRod
from sysid.diagnostics.result import FitResult
from sysid.procedure.run import run_procedure

NOISE = {"torque": 0.2, "angle": 2e-3}
"""[N m], [rad]"""
BIAS = 0.2
"""[N m] Bias of every torque."""
DRY = 0.15
"""[N m] Largest dry friction of every joint of the arm."""
SECONDS = 8.0
SMOOTH = tuple(name for name in EVERYTHING if name not in FRICTION)
"""Free parameters where there is no dry friction."""


def recorded(ground_truth: Any, seed: int, parameters: LoopParameters | None = None, *, seconds: float = SECONDS) -> Any:
    """A manipulation of a ground truth with phases, noise and bias of this seed, and the bias (7,)."""
    rng = np.random.default_rng(1000 + seed)
    clean = manipulation(ground_truth, rng, steps=round(seconds / ground_truth.dt), parameters=parameters)
    bias = BIAS * rng.choice([-1.0, 1.0], clean.controls.shape[1])
    torques = clean.controls + bias + NOISE["torque"] * rng.standard_normal(clean.controls.shape)
    return replace(clean.with_noise(rng, NOISE["angle"]), controls=torques), bias


def identified(
    recording: Trajectory, free: tuple[str, ...] = EVERYTHING, model: LoopModel | None = None
) -> tuple[FitResult, float]:
    """Fit as the command does; also processor seconds."""
    begin, simulator = time.process_time(), LoopSimulator(model=model or LoopModel())
    first = simulator.default_parameters.replace(theta_stiffness=5.0, psi_stiffness=5.0)
    assert PROCEDURE.from_recordings is not None
    stages = (replace(PROCEDURE.from_recordings, free=free),)
    found = run_procedure(PROCEDURE, simulator, TrajectorySet((recording,)), start=first, stages=stages).stages[0].fit
    assert found is not None
    return found, time.process_time() - begin


def one(
    ground_truth: Any, seed: int, parameters: LoopParameters, free: tuple[str, ...] = EVERYTHING, model: LoopModel | None = None
) -> dict[str, Any]:
    """Estimates of one recording, whether 95 % intervals contain the ground truth, and the diagnostic."""
    recording, bias = recorded(ground_truth, seed, parameters)
    true = parameters.replace(**dict(zip(OFFSETS, -bias, strict=True)))
    try:
        found, seconds = identified(recording, free, model)
    except DataError as error:
        return {"failed": str(error)}
    inside = {
        e.name: bool(e.interval[0] <= getattr(true, e.name) <= e.interval[1])
        for e in found.estimates
        if not e.hidden and e.name not in TWIST
    }
    return {
        "true": {name: getattr(true, name) for name in STIFFNESS},
        "found": {e.name: (e.value, e.std if np.isfinite(e.std) else None) for e in found.estimates},
        "inside": inside,
        "hidden": [e.name for e in found.estimates if e.hidden],
        "explained": "model_mismatch" not in found.codes,
        "diagnostic": found.diagnostics[0].sentence(),
        "opened": [d.sentence() for d in found.of("model_choice") if d.facts["allowed"]],
        "chi2": found.reduced_chi2,
        "converged": found.converged,
        "cpu": seconds,
    }


def drawn(seed: int) -> LoopParameters:
    """Draw a ground truth that was not used for tuning."""
    rng = np.random.default_rng(5000 + seed)
    return LoopParameters(
        theta_stiffness=rng.uniform(2.0, 7.0), psi_stiffness=rng.uniform(0.5, 2.5), loop_damping=rng.uniform(0.015, 0.04),
        arm_damping=rng.uniform(0.4, 1.2), **dict(zip(FRICTION, rng.uniform(0.0, DRY, len(ARM)), strict=True)),
    )  # fmt: skip


def smooth(ground_truth: Any, seed: int) -> dict[str, Any]:
    """Estimates for an arm without dry friction, which is known: 18 parameters are free."""
    return one(ground_truth, seed, drawn(seed).replace(**dict.fromkeys(FRICTION, 0.0)), SMOOTH)


def own(seed: int) -> dict[str, Any]:
    """Estimates from our engine's recording."""
    return one(LoopSimulator(), seed, drawn(seed))


def mujoco_model(seed: int) -> dict[str, Any]:
    """Estimates from the MuJoCo model's recording."""
    return one(MujocoLoop(), seed, drawn(seed))


def rod(seed: int) -> dict[str, Any]:
    """Estimates from the elastic rod, with the paper's parameters and no dry friction: no parameters make the model one."""
    return one(LoopRod(), seed, LoopParameters(), SMOOTH)


def twisting(seed: int) -> dict[str, Any]:
    """Estimates from the rod by a model whose links twist, too, which can be such a rod, except for its pieces."""
    return one(LoopRod(), seed, LoopParameters(), (*SMOOTH, *TWIST), LoopModel(twist=True))


def paired(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    """The same ground truths, phases and noise in two simulators: effect of the simulator, in standard deviations."""
    both = [pair for pair in zip(ours, theirs, strict=False) if not any("failed" in row for row in pair)]
    shifts: dict[str, list[float]] = {"stiffness": [], "dry friction": [], "all else": []}
    for own_row, their_row in both:
        for name, (value, std) in their_row["found"].items():
            kind = "stiffness" if name in STIFFNESS else "dry friction" if name in FRICTION else "all else"
            if std is not None and name in own_row["found"]:
                shifts[kind].append((value - own_row["found"][name][0]) / std)
    held = [[value for row in rows for value in row["inside"].values()] for rows in zip(*both, strict=True)]
    return {
        "recordings": len(both),
        "held": [f"{sum(values)} of {len(values)}" for values in held],
        "mean_shift": {kind: float(np.mean(values)) for kind, values in shifts.items() if values},
        "rms_shift": {kind: float(np.sqrt(np.mean(np.square(values)))) for kind, values in shifts.items() if values},
    }


def _median(values: list[float | None]) -> float | None:
    """Median of the values that are not None."""
    there = [value for value in values if value is not None]
    return float(np.median(there)) if there else None


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summary of recordings of one ground truth."""
    good = [row for row in rows if "failed" not in row]
    inside = {name: [row["inside"][name] for row in good if name in row["inside"]] for name in EVERYTHING}
    flat = [value for values in inside.values() for value in values]
    both = [value for name in STIFFNESS for value in inside[name]]
    errors = {name: [row["found"][name][0] / row["true"][name] - 1 for row in good] for name in STIFFNESS}
    return {
        "recordings": len(rows),
        "failed": len(rows) - len(good),
        "converged": sum(row["converged"] for row in good),
        "explained": sum(row["explained"] for row in good),
        "inside": {name: float(np.mean(values)) for name, values in inside.items() if values},
        "inside_all": float(np.mean(flat)) if flat else None,
        "inside_stiffness": float(np.mean(both)) if both else None,
        "rms_error": {name: float(np.sqrt(np.mean(np.square(values)))) for name, values in errors.items()},
        "median_std": {name: _median([row["found"][name][1] for row in good]) for name in STIFFNESS},
        "chi2": float(np.median([row["chi2"] for row in good])),
        "cpu": float(np.median([row["cpu"] for row in good])),
    }
