"""Number of links that a model of the loop needs, the paper's open question: 6, 12, 24 by the errors of held-out motions.

Ground truths are finer than all of them: a polygon of 48 links with steps of 2.5 ms, and the elastic rod. Each is recorded for
6 s without noise in one manipulation to fit, by the paper's cost from [5, 5] (stiffness and damping free: sensors are exact,
the clamp's place is known), and in two others to be predicted; once as large as 6 links can follow, and once as large as 12
can. A model follows a recording by the same weak feedback, whatever its links, and is as high as the ground truth: its clamp is
the ground truth's. Compared are the places of the hand, as in the paper, and the innovations, in units of sensors of 0.2 mrad
and 0.02 N m.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.manipulation import SCALES
from softgym_envs.systems.loop.model import ARM, LoopModel
from softgym_envs.systems.loop.parameters import DELAY, LoopParameters
from softgym_envs.systems.loop.procedure import DAMPING, PAPER, PROCEDURE, STIFFNESS, manipulation
from softgym_envs.systems.loop.rod import LoopRod
from softgym_envs.systems.loop.tracking import held, pulled, tracker, undelayed
from sysid.diagnostics.result import FitResult
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.procedure.stage_problem import stage_problem

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.caldwell2014.least_squares import FollowingErrors

SECONDS = 6.0
FREE = (*STIFFNESS, *DAMPING)
FINE = 48
SIZES = {"small": SCALES[6], "large": SCALES[12]}
LINKS = {"small": (6, 12, 24), "large": (12, 24)}
EXACT = {**dict.fromkeys(ARM, 0.0), **{f"control:{name}": 0.0 for name in ARM}}


def as_fine(links: int, **changes: float) -> LoopParameters:
    """The default loop's parameters in the given number of links: stiffness and damping of a joint grow with it."""
    own, share = LoopParameters(**changes), links / 12
    return own.replace(
        theta_stiffness=own.theta_stiffness * share,
        psi_stiffness=own.psi_stiffness * share,
        loop_damping=own.loop_damping * share,
    )


def record(ground_truth: str, size: str, seed: int) -> Trajectory:
    """Record without noise."""
    simulator: Any = LoopRod() if ground_truth == "rod" else LoopSimulator(model=LoopModel(FINE), dt=0.0025)
    parameters = None if ground_truth == "rod" else as_fine(FINE)
    rng, steps = np.random.default_rng(seed), round(SECONDS / simulator.dt)
    return manipulation(simulator, rng, steps=steps, parameters=parameters, scale=SIZES[size])


def left(simulator: LoopSimulator, recording: Trajectory, parameters: Parameters) -> dict[str, float]:
    """Residual errors of a model on a recording: the hand's [m], and of innovations."""
    model, vector = held(simulator), parameters.to_vector()
    errors = tracker(model, pulled(model, recording)).anchored(vector, EXACT)
    own = undelayed(errors.recorded, vector[DELAY])
    follow = FollowingErrors(own.mechanism, own.forces, own.angles, own.gains, own.still, own.substeps)
    motion = follow.predict(errors.model.tree_constants(vector[None]))
    hand = follow.residuals(motion)[0]
    white, _ = errors.errors(vector[None])
    return {"hand": float(np.sqrt(np.mean(np.sum(hand**2, axis=1)))), "innovations": float(np.sqrt(np.mean(white**2)))}


def as_high(links: int, ground_truth: str) -> LoopModel:
    """A round loop of some links at rest at the ground truth's clamp: of one radius, fewer links reach less far."""
    height = LoopModel(FINE if ground_truth == "fine" else LoopRod().model.links).height
    return LoopModel(links, radius=height / (2 * cos(pi / links)))


def fitted(simulator: LoopSimulator, recording: Trajectory, start: Parameters) -> FitResult:
    """Fit by the paper's cost: a filter for the noise of sensors does not settle where errors are the model's own."""
    stage = replace(PAPER, free=FREE)
    problem = stage_problem(PROCEDURE, stage, simulator, TrajectorySet((recording,)), start=start)
    return single_shooting(problem, ShootingOptions(**stage.options))


def answer(ground_truth: str, size: str, links: int) -> dict[str, Any]:
    """Result of one model on one ground truth."""
    train, *test = (record(ground_truth, size, seed) for seed in (1, 2, 3))
    simulator, begin = LoopSimulator(model=as_high(links, ground_truth)), time.process_time()
    start = as_fine(links, theta_stiffness=5.0, psi_stiffness=5.0)
    found = fitted(simulator, train, start)
    parameter_values, seconds = found.parameters, time.process_time() - begin

    def held_out(parameters: Parameters) -> dict[str, float]:
        parts = [left(simulator, recording, parameters) for recording in test]
        return {name: float(np.sqrt(np.mean([part[name] ** 2 for part in parts]))) for name in parts[0]}

    return {
        "ground_truth": ground_truth, "size": size, "links": links, "cpu": seconds, "converged": found.converged,
        "train": left(simulator, train, parameter_values), "held_out": held_out(parameter_values), "start": held_out(start),
        "as_12_links": {name: getattr(parameter_values, name) * 12 / links for name in (*STIFFNESS, "loop_damping")},
    }  # fmt: skip
