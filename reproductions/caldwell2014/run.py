"""The paper's identification [Caldwell2014, V]: 20 s at 100 Hz, start [5, 5], by its steepest descent and by later methods.

The paper publishes no recording: a model with its parameters is recorded under a manipulation of ours. Feedback gains are those
of a finite-horizon regulator about the model's motion at the start parameters (IV-C), 1e4 (N m / rad)^2 to 1.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from scipy.optimize import minimize

from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.mechanics import Mechanism
from softgym_envs.systems.loop.manipulation import SCALES, STIFF, Recording, record
from softgym_envs.systems.loop.model import ARM, PARAMETERS, LoopModel
from sysid.least_squares.levenberg import LevenbergOptions, LevenbergState, levenberg_marquardt, start_state

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.caldwell2014.least_squares import FollowingErrors, LogFit

STIFFNESS = ("theta_stiffness", "psi_stiffness")
OFFSETS = tuple(f"offset_{name}" for name in ARM)
START = (5.0, 5.0)
STARTS = ((0.5, 0.5), (1.0, 20.0), (20.0, 1.0), (50.0, 50.0))
NOISE = {"force": 0.2, "angle": 2e-3}
BIAS = 0.2
RATIO = 1e4
PAPER = {12: 219.05, 6: 61.01}
"""[min]"""
ARMIJO = 0.4
STOP = 0.001138
"""Norm of the gradient where the paper's descent stopped."""
EXACT = LevenbergOptions(step_tolerance=1e-8)
NOISY = LevenbergOptions(step_tolerance=1e-6, cost_tolerance=1e-8)
ROUGH = LevenbergOptions(step_tolerance=1e-2, cost_tolerance=1e-2)
PART = 0.25
"""Share of a recording that suffices to come near."""
SOFTER = 30.0
"""Factor of the loop's damping where a start is too stiff for the step."""
REPEATS = 3
"""Repetitions of timed fits; the best counts."""


class Setup(NamedTuple):
    """A loop, its recording without noise, and gains."""

    model: LoopModel
    mechanism: Mechanism
    ground_truth: np.ndarray
    clean: Recording
    gains: np.ndarray

    def fit(self, recording: Recording, free: Sequence[str] = STIFFNESS, **changes: Any) -> LogFit:
        """Fit of a recording."""
        gains = changes.pop("gains", self.gains)
        follow = FollowingErrors(self.mechanism, recording.forces, recording.angles, gains, still=50, **changes)
        return LogFit(follow, self.ground_truth, tuple(free), tuple(name for name in free if name in OFFSETS))


@cache
def prepare(links: int, steps: int = 2000) -> Setup:
    """Record the ground truth and compute the gains at the start parameters."""
    model = LoopModel(links)
    mechanism = Mechanism(model.tree, 0.01, PARAMETERS)
    ground_truth = model.defaults
    clean = record(model, mechanism, ground_truth, steps, scale=SCALES[links])
    stiff = FollowingErrors(mechanism, clean.forces, clean.angles, np.diag(STIFF)[None], still=50)
    initial_guess = ground_truth.copy()
    initial_guess[[PARAMETERS.index(name) for name in STIFFNESS]] = START
    return Setup(model, mechanism, ground_truth, clean, stiff.regulated(initial_guess, ratio=RATIO).gains)


# --- Methods ----------------------------------------------------------------------------------------------------------


def gauss_newton(fit: LogFit, values: Sequence[float], options: LevenbergOptions = EXACT) -> LevenbergState:
    """Levenberg and Marquardt from values of the free parameters; stiffness within [0.01, 1000], offsets within 5 N m."""
    theta = fit.encode(values)
    low, high = (np.where(fit.logarithmic, np.log(limit), side * 5.0) for limit, side in ((0.01, -1), (1000.0, 1)))
    return levenberg_marquardt(fit, start_state(fit, theta, np.zeros((1, 0)), options), (low, high), options=options)


def quickened(fit: LogFit, values: Sequence[float], options: LevenbergOptions = EXACT) -> tuple[LevenbergState, float]:
    """Gauss-Newton after a rough fit of the recording's first part; and its iterations, those of a part counted as that."""
    follow, rows = fit.following, round(PART * len(fit.following.forces))
    gains = follow.gains[:rows] if len(follow.gains) > 1 else follow.gains
    short = replace(follow, forces=follow.forces[:rows], angles=follow.angles[: rows + 1], gains=gains)
    near = gauss_newton(replace(fit, following=short), values, ROUGH)
    end = gauss_newton(fit, fit.decode(near.theta).tolist(), options)
    return end, PART * (len(near.log) - 1) + len(end.log) - 1


def continued(fit: LogFit, values: Sequence[float], options: LevenbergOptions = EXACT) -> tuple[LevenbergState, int]:
    """Gauss-Newton after a rough fit of a loop with much more damping, stable at any stiffness; and its iterations."""
    damped = fit.parameter_values.copy()
    damped[PARAMETERS.index("loop_damping")] *= SOFTER
    rough = replace(fit, parameter_values=damped)
    near = gauss_newton(rough, values, ROUGH)
    end = gauss_newton(fit, rough.decode(near.theta).tolist(), options)
    return end, len(near.log) - 1 + len(end.log) - 1


def quasi_newton(fit: LogFit, values: Sequence[float]) -> Any:
    """L-BFGS on log-parameters with the adjoint's gradient."""

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        found, slopes = fit.value_and_slopes(theta)
        return (found, slopes) if np.isfinite(found) else (1e6, np.zeros(len(theta)))

    bounds = [(np.log(0.01), np.log(1000.0))] * len(fit.free)
    return minimize(
        value, fit.encode(values), jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9}
    )


def descent(fit: LogFit, values: Sequence[float], most: int = 800) -> dict[str, Any]:
    """The paper's steepest descent on the parameters themselves, first step 1, Armijo 0.4 / 0.4, until its gradient's norm."""
    fit = replace(fit, linear=fit.free)
    c, evaluations, iterations = np.array(values, dtype=np.float64), 1, 0
    cost, slope = fit.value_and_slopes(c)
    while np.linalg.norm(slope) > STOP and iterations < most:
        length = 1.0
        while True:
            trial = c - length * slope
            evaluations += 1
            new = 2 * fit.cost(trial, np.zeros((1, 0))) if (trial > 0).all() else np.inf
            if new <= cost - ARMIJO * length * float(slope @ slope) or length < 1e-12:
                break
            length *= ARMIJO
        c, iterations = trial, iterations + 1
        cost, slope = fit.value_and_slopes(c)
    return {"found": c, "cost": cost, "iterations": iterations, "simulations": evaluations, "gradient": np.linalg.norm(slope)}


# --- The table --------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], Any], repeats: int = 1) -> tuple[Any, dict[str, Any]]:
    """Result of the last run of `work`; seconds of the best and of all runs, processor seconds of the best, load."""
    wall, cpu = [], []
    for _ in range(repeats):
        begin, used = time.perf_counter(), time.process_time()
        found = work()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
    return found, {"seconds": min(wall), "all": wall, "cpu": min(cpu), "load": os.getloadavg()[0]}


def row(what: str, setup: Setup, values: np.ndarray, times: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One line of the table."""
    error = values[:2] / setup.ground_truth[:2] - 1
    line = {"what": what, "links": setup.model.links, "found": values, "error": error, **more, **times}
    print(f"{what:52s} {values[:2]}  {np.abs(error).max():.1e}  {more['iterations']}  {times['seconds']:.2f} s", flush=True)
    return line


def fitted(what: str, setup: Setup, fit: LogFit, values: Sequence[float], options: LevenbergOptions, repeats: int = 1) -> Any:
    """Gauss-Newton, with standard deviations if there is noise."""
    end, times = timed(lambda: gauss_newton(replace(fit), values, options), repeats)
    found = fit.decode(end.theta)
    noisy = options is NOISY
    std = np.sqrt(np.diag(fit.covariance(end.theta, **NOISE))) * np.where(fit.logarithmic, found, 1.0) if noisy else None
    costs = [2 * entry.cost for entry in end.log]
    more = {"iterations": len(end.log) - 1, "cost": costs[-1], "costs": costs, "std": std, "stopped": end.outcome}
    return row(what, setup, found, times, **more)


def newton(links: int) -> list[dict[str, Any]]:
    """Gauss-Newton from the paper's start, and by continuation from others, noise-free."""
    setup = prepare(links)
    fit = setup.fit(setup.clean)
    rows = [fitted("Gauss-Newton, from [5, 5]", setup, fit, START, EXACT, REPEATS)]
    (end, count), times = timed(lambda: quickened(replace(fit), START), REPEATS)
    what = f"the same, begun with the first {PART:.0%} of the recording"
    rows.append(row(what, setup, fit.decode(end.theta), times, iterations=count, cost=2 * end.cost))
    soft = setup.fit(setup.clean, gains=np.diag(STIFF)[None]).following
    rows[0]["regulator"] = timed(lambda: soft.regulated(fit.parameter_values, ratio=RATIO))[1]["cpu"]
    for start in STARTS if links == 12 else ():
        (end, count), times = timed(partial(continued, fit, start))
        what = f"the same after a damped loop, from {list(start)}"
        rows.append(row(what, setup, fit.decode(end.theta), times, iterations=count, cost=2 * end.cost))
    return rows


def adjoint(links: int) -> list[dict[str, Any]]:
    """L-BFGS."""
    setup = prepare(links)
    found, times = timed(lambda: quasi_newton(setup.fit(setup.clean), START))
    more = {"iterations": found.nit, "simulations": found.nfev, "cost": found.fun}
    return [row("L-BFGS with the adjoint, from [5, 5]", setup, np.exp(found.x), times, **more)]


def descend(links: int) -> list[dict[str, Any]]:
    """The paper's method."""
    setup = prepare(links)
    found, times = timed(lambda: descent(setup.fit(setup.clean), START))
    return [row("steepest descent of the paper, from [5, 5]", setup, found.pop("found"), times, **found)]


def disturb() -> list[dict[str, Any]]:
    """Gauss-Newton on the paper's cost where recording and model differ."""
    setup, rows, rng = prepare(12), [], np.random.default_rng(0)
    fine = Mechanism(setup.model.tree, setup.mechanism.dt / 4, PARAMETERS)
    quarter = record(setup.model, fine, setup.ground_truth, len(setup.clean.forces), scale=SCALES[12], substeps=4)
    rows.append(fitted("ground truth with a quarter of the step", setup, setup.fit(quarter), START, NOISY))
    biased = setup.clean.disturbed(rng, **NOISE, bias=BIAS)
    rows.append(fitted("noise and bias 0.2 N m", setup, setup.fit(biased), START, NOISY))
    free = (*STIFFNESS, *OFFSETS)
    what = "noise and bias, offsets of all motors free"
    rows.append(fitted(what, setup, setup.fit(biased, free), (*START, *(0.0,) * 7), NOISY))
    return rows


def gradients() -> dict[str, Any]:
    """Compare adjoint with forward sensitivities and differences, over the whole recording, all motors' offsets included."""
    setup = prepare(12)
    fit = setup.fit(setup.clean, (*STIFFNESS, "loop_damping", "loop_scale", *OFFSETS))
    theta = fit.encode([*START, 0.01, 1.0, *(0.0,) * 7])
    (_, adjoint), by_adjoint = timed(lambda: replace(fit).value_and_slopes(theta), 3)
    (_, residual, jacobian), by_forward = timed(lambda: replace(fit).linearization(theta), 3)
    forward = 2 * np.einsum("ty,tyk->k", residual, jacobian)
    moves = 1e-5 * np.eye(len(theta))
    ends = [[2 * fit.cost(theta + side * move, np.zeros((1, 0))) for side in (1, -1)] for move in moves]
    differences = np.array([(ahead - behind) / 2e-5 for ahead, behind in ends])
    scale = np.abs(forward).max()
    return {
        "adjoint": adjoint,
        "adjoint_against_forward": np.abs(adjoint / forward - 1).max(),
        "adjoint_against_differences": np.abs(adjoint - differences).max() / scale,
        "seconds_simulation_and_adjoint": by_adjoint,
        "seconds_simulation_and_forward_of_11": by_forward,
    }


CASES: dict[str, Callable[[], Any]] = {
    "gradients": gradients,
    "Gauss-Newton, 12 links": partial(newton, 12),
    "Gauss-Newton, 6 links": partial(newton, 6),
    "L-BFGS, 12 links": partial(adjoint, 12),
    "L-BFGS, 6 links": partial(adjoint, 6),
    "noise": disturb,
    "steepest descent, 12 links": partial(descend, 12),
    "steepest descent, 6 links": partial(descend, 6),
}
"""Name -> list of rows, except the gradients."""


@dataclass(frozen=True)
class Args:
    """Options."""

    only: tuple[str, ...] = ()
    """Names of `CASES`; none: all, a quarter of an hour."""
    out: Path = Path("reproductions/caldwell2014/expected.json")


def plain(value: Any) -> Any:
    """Convert to JSON: arrays as lists, numbers with six digits."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry) for entry in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}")
    return int(value) if isinstance(value, np.integer) else value


def main(args: Args) -> None:
    """Run cases, and write them beside those that are there."""
    for name in args.only or CASES:
        found = plain(CASES[name]())
        before = read_json(args.out)["cases"] if args.out.exists() else {}
        write_json(args.out, {"provenance": provenance(), "cases": {**before, name: found}})


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
