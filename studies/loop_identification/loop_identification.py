"""Identify the flexible loop as in [Caldwell2014]: 20 s at 100 Hz, start [5, 5], by three methods, with noise and with bias.

python studies/loop_identification/loop_identification.py    # minutes; writes results/loop_identification

The paper publishes no recording: a model with its constants is recorded under a manipulation of ours. Feedback gains are those
of a finite-horizon regulator about the motion that the model makes at the start constants (IV-C), 1e4 (N m / rad)^2 to 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from scipy.optimize import minimize

from softgym_envs.core.files import provenance, write_json
from softgym_envs.loop.manipulation import SCALES, STIFF, Recording, record
from softgym_envs.loop.model import ARM, CONSTANTS, LoopModel
from softgym_envs.mechanics import Body, Frame, Joint, Mechanism, Tree
from softgym_envs.mechanics.following import Following, LogFit
from sysid.least_squares.levenberg import LevenbergOptions, LevenbergState, levenberg_marquardt, start_state

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
SOFTER = 30.0
"""Factor of the loop's damping where a start is too stiff for the step."""


@dataclass(frozen=True)
class Args:
    """What to run."""

    steps: int = 2000
    """Samples of a recording."""
    seeds: int = 50
    """Noisy recordings for the coverage of intervals."""
    repeats: int = 5
    """How often the timed fits are repeated."""
    chain_steps: int = 100_000
    """Of the energy comparison."""
    out: Path = Path("results/loop_identification")


class Setup(NamedTuple):
    """A loop, its recording without noise, and gains."""

    model: LoopModel
    mechanism: Mechanism
    truth: np.ndarray
    clean: Recording
    gains: np.ndarray

    def fit(self, recording: Recording, free: Sequence[str] = STIFFNESS, **changes: Any) -> LogFit:
        """The fit of a recording."""
        gains = changes.pop("gains", self.gains)
        follow = Following(self.mechanism, "H", recording.forces, recording.angles, gains, still=50, **changes)
        return LogFit(follow, self.truth, tuple(free), tuple(name for name in free if name in OFFSETS))


def prepare(links: int, steps: int) -> Setup:
    """Record the truth and find the gains at the start constants."""
    model = LoopModel(links)
    mechanism = Mechanism(model.tree, 0.01, CONSTANTS)
    truth = model.defaults
    clean = record(model, mechanism, truth, steps, scale=SCALES[links])
    stiff = Following(mechanism, "H", clean.forces, clean.angles, np.diag(STIFF)[None], still=50)
    guess = truth.copy()
    guess[[CONSTANTS.index(name) for name in STIFFNESS]] = START
    return Setup(model, mechanism, truth, clean, stiff.regulated(guess, ratio=RATIO).gains)


# --- Methods ----------------------------------------------------------------------------------------------------------


def gauss_newton(fit: LogFit, values: Sequence[float], options: LevenbergOptions = EXACT) -> LevenbergState:
    """Levenberg and Marquardt from values of the free constants; stiffness within [0.01, 1000], offsets within 5 N m."""
    theta = fit.encode(values)
    low, high = (np.where(fit.logarithmic, np.log(limit), side * 5.0) for limit, side in ((0.01, -1), (1000.0, 1)))
    return levenberg_marquardt(fit, start_state(fit, theta, np.zeros((1, 0)), options), (low, high), options=options)


def continued(fit: LogFit, values: Sequence[float], options: LevenbergOptions = EXACT) -> tuple[LevenbergState, int]:
    """The same after a rough fit of a loop with much more damping, which bears any stiffness; and its iterations."""
    damped = fit.constants.copy()
    damped[CONSTANTS.index("loop_damping")] *= SOFTER
    rough = replace(fit, constants=damped)
    near = gauss_newton(rough, values, ROUGH)
    end = gauss_newton(fit, rough.decode(near.theta).tolist(), options)
    return end, len(near.log) - 1 + len(end.log) - 1


def quasi_newton(fit: LogFit, values: Sequence[float]) -> Any:
    """L-BFGS on log-constants with the adjoint's gradient."""

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        found, slopes = fit.value_and_slopes(theta)
        return (found, slopes) if np.isfinite(found) else (1e6, np.zeros(len(theta)))

    bounds = [(np.log(0.01), np.log(1000.0))] * len(fit.free)
    return minimize(
        value, fit.encode(values), jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9}
    )


def descent(fit: LogFit, values: Sequence[float], most: int = 800) -> dict[str, Any]:
    """The paper's: steepest descent on the constants themselves, first step 1, Armijo 0.4 / 0.4, until its gradient's norm."""
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
    """What `work` returns last; seconds of the best and of all runs, processor seconds of the best, load."""
    wall, cpu = [], []
    for _ in range(repeats):
        begin, used = time.perf_counter(), time.process_time()
        found = work()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - used)
    return found, {"seconds": min(wall), "all": wall, "cpu": min(cpu), "load": os.getloadavg()[0]}


def row(what: str, setup: Setup, values: np.ndarray, times: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One line of the table."""
    error = values[:2] / setup.truth[:2] - 1
    line = {"what": what, "links": setup.model.links, "found": values, "error": error, **more, **times}
    print(f"{what:52s} {values[:2]}  {np.abs(error).max():.1e}  {more['iterations']}  {times['seconds']:.2f} s", flush=True)
    return line


def fitted(what: str, setup: Setup, fit: LogFit, values: Sequence[float], options: LevenbergOptions, repeats: int = 1) -> Any:
    """Gauss and Newton, with standard deviations where there is noise."""
    end, times = timed(lambda: gauss_newton(replace(fit), values, options), repeats)
    found = fit.decode(end.theta)
    noisy = options is NOISY
    std = np.sqrt(np.diag(fit.covariance(end.theta, **NOISE))) * np.where(fit.logarithmic, found, 1.0) if noisy else None
    costs = [2 * entry.cost for entry in end.log]
    more = {"iterations": len(end.log) - 1, "cost": costs[-1], "costs": costs, "std": std, "stopped": end.outcome}
    return row(what, setup, found, times, **more)


def compare(setup: Setup, repeats: int) -> list[dict[str, Any]]:
    """All methods on the recording without noise."""
    fit, rows = setup.fit(setup.clean), []
    rows.append(fitted("Gauss-Newton, from [5, 5]", setup, fit, START, EXACT, repeats))
    for start in STARTS if setup.model.links == 12 else ():
        (end, count), times = timed(partial(continued, fit, start))
        what = f"the same after a damped loop, from {list(start)}"
        rows.append(row(what, setup, fit.decode(end.theta), times, iterations=count, cost=2 * end.cost))
    found, times = timed(lambda: quasi_newton(replace(fit), START), repeats)
    more = {"iterations": found.nit, "simulations": found.nfev, "cost": found.fun}
    rows.append(row("L-BFGS with the adjoint, from [5, 5]", setup, fit.decode(found.x), times, **more))
    found, times = timed(lambda: descent(fit, START))
    rows.append(row("steepest descent of the paper, from [5, 5]", setup, found.pop("found"), times, **found))
    return rows


def disturb(setup: Setup) -> list[dict[str, Any]]:
    """Gauss and Newton where recording and model differ."""
    rows, rng = [], np.random.default_rng(0)
    fine = Mechanism(setup.model.tree, setup.mechanism.dt / 4, CONSTANTS)
    steps, scale = len(setup.clean.forces), SCALES[setup.model.links]
    quarter = record(setup.model, fine, setup.truth, steps, scale=scale, substeps=4)
    rows.append(fitted("truth with a quarter of the step", setup, setup.fit(quarter), START, NOISY))
    noisy = setup.clean.disturbed(rng, **NOISE)
    rows.append(fitted("noise 2 mrad, 0.2 N m", setup, setup.fit(noisy), START, NOISY))
    biased = setup.clean.disturbed(rng, **NOISE, bias=BIAS)
    rows.append(fitted("noise and bias 0.2 N m", setup, setup.fit(biased), START, NOISY))
    free = (*STIFFNESS, *OFFSETS)
    rows.append(
        fitted("noise and bias, offsets of all motors free", setup, setup.fit(biased, free), (*START, *(0.0,) * 7), NOISY)
    )
    fit, wrong = setup.fit(noisy), setup.truth.copy()
    wrong[CONSTANTS.index("loop_damping")] *= 2
    rows.append(fitted("noise, model with twice the damping", setup, replace(fit, constants=wrong), START, NOISY))
    return rows


def gradients(setup: Setup) -> dict[str, Any]:
    """Adjoint beside forward sensitivities and differences, over the whole recording, all motors' offsets included."""
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


def coverage(setup: Setup, seeds: int) -> dict[str, Any]:
    """Share of 95 % intervals that hold the truth, with and without a bias of every torque that the fit may explain."""
    found = {}
    for name, bias, free in (("noise", 0.0, STIFFNESS), ("noise, bias, offsets free", BIAS, (*STIFFNESS, *OFFSETS))):
        truth = np.array([*setup.truth[:2], *(-bias,) * (len(free) - 2)])
        values, stds = [], []
        for seed in range(seeds):
            fit = setup.fit(setup.clean.disturbed(np.random.default_rng(100 + seed), **NOISE, bias=bias), free)
            end = gauss_newton(fit, (*START, *(0.0,) * (len(free) - 2)), NOISY)
            values.append(fit.decode(end.theta))
            stds.append(np.sqrt(np.diag(fit.covariance(end.theta, **NOISE))) * np.where(fit.logarithmic, values[-1], 1.0))
        inside = np.abs(np.array(values) - truth) < 1.96 * np.array(stds)
        found[name] = {
            "constants": free, "seeds": seeds, "inside": inside.mean(axis=0), "all": inside.mean(),
            "scatter": np.std(values, axis=0, ddof=1), "std": np.mean(stds, axis=0), "mean": np.mean(values, axis=0),
        }  # fmt: skip
        print(name, found[name], flush=True)
    return found


# --- Energy of a chain ------------------------------------------------------------------------------------------------


def chain() -> Mechanism:
    """Three rods on hinges with springs, swinging freely; steps of 10 ms."""
    inertia = (0.4 * 0.09 / 12, 0.4 * 0.09 / 12, 3e-5)
    bodies = tuple(Body(f"rod{i}", 0.4, (0.0, 0.0, -0.15), inertia) for i in range(3))
    axes = ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    joints = tuple(
        Joint(
            f"hinge{i}", "revolute", "world" if i == 0 else f"rod{i - 1}", f"rod{i}", axis=axes[i],
            xyz=(0.0, 0.0, -0.3 if i else 0.0), stiffness=2.0,
        )
        for i in range(3)
    )  # fmt: skip
    return Mechanism(Tree("chain", bodies, joints, (Frame("tip", "rod2", (0.0, 0.0, -0.3)),)), 0.01)


def energies(steps: int) -> dict[str, np.ndarray]:
    """Energy errors relative to the swing's energy: ours at midpoints, and semi-implicit Euler, every 20th step.

    Euler's method, v^+ = v + dt a(q, v), q^+ = q + dt v^+, ends where its error is a thousand times the swing's energy.
    """
    mechanism, q = chain(), np.array([[0.5, -0.4, 0.3]])
    rest = mechanism.energies(np.zeros((1, 3)), np.zeros((1, 3))).sum()
    motion = mechanism.simulate(mechanism.state(q, np.zeros((1, 3))), np.zeros((1, steps, 0)))
    path = motion.path[0, :, :3]
    some = slice(0, steps, 20)
    middle, speed = 0.5 * (path[1:] + path[:-1])[some], (np.diff(path, axis=0) / mechanism.dt)[some]
    ours, v, euler = mechanism.energies(middle, speed).sum(axis=1), np.zeros((1, 3)), []
    for k in range(steps):
        if k % 20 == 0:
            euler.append(mechanism.energies(q, v).sum())
            if not euler[-1] < euler[0] + 1e3 * (euler[0] - rest):
                break
        s = mechanism.slopes(q, v)
        v = v + mechanism.dt * np.linalg.solve(s.vv[0], s.q[0] - s.qv[0].T @ v[0])
        q = q + mechanism.dt * v
    return {"ours": (ours - ours[0]) / (ours[0] - rest), "euler": (np.array(euler) - euler[0]) / (euler[0] - rest)}


# --- What is written --------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """For JSON: arrays as lists, numbers with six digits."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items() if key != "costs"}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry) for entry in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}")
    return int(value) if isinstance(value, np.integer) else value


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    head = (
        "| links | fit | iterations | seconds (best; processor) | theta | psi | largest error | cost |\n" + "|---" * 8 + "|\n"
    )
    lines = []
    for entry in rows:
        digits = [f"{value:.5f}" for value in entry["found"][:2]]
        if entry.get("std") is not None:
            digits = [f"{value:.3f} ± {std:.3f}" for value, std in zip(entry["found"], entry["std"], strict=False)]
        counts = f"{entry['iterations']}" + (f" ({entry['simulations']} simulations)" if "simulations" in entry else "")
        seconds = f"{entry['seconds']:.2f}; {entry['cpu']:.2f}"
        error = f"{np.abs(entry['error']).max():.1e}"
        lines.append(
            f"| {entry['links']} | {entry['what']} | {counts} | {seconds} | {digits[0]} | {digits[1]} | {error} "
            f"| {entry['cost']:.3g} |"
        )
    for links, minutes in PAPER.items():
        iterations = 75 if links == 12 else "not stated"
        lines.append(f"| {links} | the paper, on its own recording | {iterations} | {60 * minutes:.0f} | - | - | - | - |")
    return head + "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]], energy: dict[str, np.ndarray], path: Path) -> None:
    """Cost by iteration, and energy errors."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), constrained_layout=True)
    for entry in rows:
        if "costs" in entry:
            left.semilogy(entry["costs"], "o-", ms=3, label=f"{entry['links']} links: {entry['what']}")
    left.set(xlabel="iteration of Gauss-Newton", ylabel="sum of squared errors of the hand [m²]")
    left.legend(fontsize=6)
    for name, label in (("euler", "semi-implicit Euler"), ("ours", "midpoint variational (at midpoints)")):
        right.plot(np.arange(len(energy[name])) * 0.2, 100 * energy[name], lw=0.4, label=label)
    right.set(xlabel="time [s]", ylabel="energy error [% of the swing's energy]")
    right.set_yscale("symlog", linthresh=1.0)
    right.legend(fontsize=6)
    figure.savefig(path, dpi=110)


def main(args: Args) -> None:
    """Run all; what is there is written after each part, as all takes half an hour."""
    args.out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"steps": args.steps, "noise": NOISE, "bias": BIAS, "provenance": provenance(), "rows": []}
    setup = prepare(12, args.steps)
    for part in (partial(compare, setup, args.repeats), partial(disturb, setup)):
        document["rows"] += part()
        write(args.out, document)
    document["gradients"] = gradients(setup)
    document["rows"] += compare(prepare(6, args.steps), args.repeats)
    energy = energies(args.chain_steps)
    document["energy"] = {
        name: {"steps": 20 * len(e), "largest": np.abs(e).max(), "mean of last tenth": e[-len(e) // 10 :].mean()}
        for name, e in energy.items()
    }
    plot(document["rows"], energy, args.out / "plot.png")
    write(args.out, document)
    for name, gains in (("constant gains", 0.5 * np.diag(STIFF)[None]), ("regulator", setup.gains)):
        document.setdefault("coverage", {})[name] = coverage(setup._replace(gains=gains), args.seeds)
        write(args.out, document)


def write(out: Path, document: dict[str, Any]) -> None:
    """result.json and table.md."""
    write_json(out / "result.json", plain(document))
    (out / "table.md").write_text(table(document["rows"]))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
