r"""Optimal excitation: the manipulation from which a laboratory's recording tells both stiffnesses best.

    python studies/loop_excitation/loop_excitation.py                      # writes results/loop_excitation
    python studies/loop_excitation/loop_excitation.py --model my_loop.toml --theta 5 --psi 5 --out runs/mine

A manipulation is five sines of the hand (`loop.manipulation.Waves`): how many cycles, with what phase, how large, none larger
than in the manipulations that `record` draws. CMA-ES looks for the one that is D-optimal for log stiffness, the others of the
18 constants being unknown, too:

.. math:: \min \log\det \, [(J^T J + \Lambda)^{-1}]_{\kappa \kappa}

with J the derivatives of the whitened errors (`mechanics.innovations`), whose J' J is the Fisher information, and Lambda what a
ruler and a clock know. Angles, speeds and torques of the arm are within their limits, or the manipulation is none. `path.csv`
has the arm's angles every 10 ms, for a robot to follow. Then both kinds are recorded with noise and bias, and fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cma
import matplotlib.pyplot as plt
import numpy as np
import tyro

from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import provenance, write_atomically, write_json
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.loop.dynamics import LoopSimulator
from softgym_envs.loop.manipulation import CYCLES, SCALES, Waves, reference
from softgym_envs.loop.model import ARM
from softgym_envs.loop.parameters import LoopParameters
from softgym_envs.loop.recipe import EVERYTHING, KNOWN, RECIPE, STIFFNESS, manipulation
from softgym_envs.loop.tracking import held, pulled, tracker
from softgym_envs.rooms import room
from sysid import run_recipe

TORQUE, ANGLE, BIAS = 0.2, 2e-3, 0.2
"""[N m], [rad], [N m] Noise of the sensors, and their bias."""
NOISE = {**dict.fromkeys(ARM, ANGLE), **{f"control:{name}": TORQUE for name in ARM}}
MOST_CYCLES = 1.0
"""[Hz]"""
COUNT = len(CYCLES)


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
    """Of the manipulation."""
    evaluations: int = 100
    """Manipulations that are looked at."""
    random: int = 10
    """Random ones to compare with."""
    fits: int = 5
    """Recordings of each kind that are fitted."""
    out: Path = Path("results/loop_excitation")


def waves_of(x: np.ndarray, seconds: float) -> Waves:
    """Of unbounded numbers (15,)."""
    part = 0.5 * (1 + np.sin(x[: 2 * COUNT]))
    return Waves(0.5 + part[:COUNT] * (MOST_CYCLES * seconds - 0.5), x[2 * COUNT :], part[COUNT:])


def drawn(rng: np.random.Generator) -> Waves:
    """As `record` draws them."""
    return Waves(np.array(CYCLES)[:, 0], rng.uniform(0.0, 2 * np.pi, COUNT), np.ones(COUNT))


@dataclass(frozen=True)
class Design:
    """Manipulations of one loop."""

    simulator: LoopSimulator
    parameters: LoopParameters
    seconds: float

    def record(self, waves: Waves) -> Trajectory:
        """Without noise.

        Raises:
            SoftgymError: The loop cannot follow.
        """
        steps = round(self.seconds / self.simulator.dt)
        return manipulation(self.simulator, np.random.default_rng(0), steps=steps, parameters=self.parameters, waves=waves)

    def covariance(self, waves: Waves) -> np.ndarray | None:
        """Of log stiffness (2, 2); None where the arm or the loop cannot follow."""
        try:
            recording = self.record(waves)
            if not self.within(recording):
                return None
            model, vector = held(self.simulator), self.parameters.to_vector()
            errors = tracker(model, pulled(model, recording)).anchored(vector, NOISE)
        except SoftgymError:
            return None
        names = LoopParameters.names()
        ways = np.eye(len(names))[:, [names.index(name) for name in EVERYTHING]]
        ways *= [getattr(self.parameters, name) if name in STIFFNESS else 1.0 for name in EVERYTHING]
        J = errors.slopes(vector, ways).reshape(-1, len(EVERYTHING))
        known = np.diag([KNOWN[name][1] ** -2.0 if name in KNOWN else 0.0 for name in EVERYTHING])
        return np.asarray(np.linalg.inv(J.T @ J + known)[:2, :2])

    def within(self, recording: Trajectory) -> bool:
        """Whether angles, speeds and torques are."""
        low, high = self.simulator.model.limits
        joints = {joint.name: joint for joint in self.simulator.model.arm.joints}
        effort, speed = (np.array([getattr(joints[name], what) for name in ARM]) for what in ("effort", "velocity"))
        q, rate = recording.values, np.abs(np.diff(recording.values, axis=0)) / recording.period
        torques = np.abs(recording.controls)
        return bool(((q > low) & (q < high)).all() and (rate < speed).all() and (torques < effort).all())

    def best(self, evaluations: int) -> tuple[Waves, list[float]]:
        """By CMA-ES, and the best objective by generation."""
        options = {"maxfevals": evaluations, "popsize": 10, "seed": 1, "verbose": -9}
        search, course = cma.CMAEvolutionStrategy(np.random.default_rng(0).uniform(-1, 1, 3 * COUNT), 1.0, options), []
        while not search.stop():
            asked = search.ask()
            found = [self.covariance(waves_of(x, self.seconds)) for x in asked]
            search.tell(asked, [1e3 if cov is None else float(np.linalg.slogdet(cov)[1]) for cov in found])
            course.append(float(search.best.f))
            print(f"{search.countevals} manipulations: log det {search.best.f:.3f}", flush=True)
        return waves_of(search.best.x, self.seconds), course

    def fitted(self, waves: Waves, seed: int) -> list[float]:
        """Errors of log stiffness of the documented command's method, with noise and bias."""
        rng, clean = np.random.default_rng(seed), self.record(waves)
        torques = (
            clean.controls + BIAS * rng.choice([-1.0, 1.0], COUNT + 2) + TORQUE * rng.standard_normal(clean.controls.shape)
        )
        recording = replace(clean.with_noise(rng, ANGLE), controls=torques)
        assert RECIPE.laboratory is not None
        start = self.parameters.replace(theta_stiffness=5.0, psi_stiffness=5.0)
        found = run_recipe(RECIPE, self.simulator, TrajectorySet((recording,)), start=start, stages=(RECIPE.laboratory,))
        return [float(np.log(getattr(found.parameters, name) / getattr(self.parameters, name))) for name in STIFFNESS]


def main(args: Args) -> None:
    """Search, compare, write."""
    simulator: Any = room("loop").simulator(args.model)
    design = Design(simulator, LoopParameters(theta_stiffness=args.theta, psi_stiffness=args.psi), args.seconds)
    rng = np.random.default_rng(7)
    others = [drawn(rng) for _ in range(args.random)]
    spreads = [np.sqrt(np.diag(cov)).tolist() for cov in map(design.covariance, others) if cov is not None]
    best, course = design.best(args.evaluations)
    cov = design.covariance(best)
    assert cov is not None
    fits = {
        "best": [design.fitted(best, seed) for seed in range(args.fits)],
        "random": [design.fitted(others[seed % len(others)], seed) for seed in range(args.fits)],
    }
    result = {
        "waves": best._asdict(), "std": np.sqrt(np.diag(cov)), "random_std": spreads, "course": course,
        "rms_of_fits": {name: np.sqrt(np.mean(np.square(rows), axis=0)) for name, rows in fits.items()}, "fits": fits,
    }  # fmt: skip
    write_json(args.out / "result.json", {**plain(result), "provenance": provenance()})
    path = reference(
        simulator.model, round(100 * args.seconds), scale=SCALES[6 if simulator.model.links < 12 else 12], waves=best
    )
    rows = [f"{0.01 * i:.2f}," + ",".join(f"{angle:.6f}" for angle in row) for i, row in enumerate(path)]
    header = "time [s]," + ",".join(f"{name} [rad]" for name in ARM)
    write_atomically(args.out / "path.csv", "\n".join([header, *rows, ""]).encode())
    draw(result, path, args.out / "plot.png")
    print(plain(result))


def plain(value: Any) -> Any:
    """For JSON."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry) for entry in value]
    return float(f"{value:.5g}")


def draw(result: dict[str, Any], path: np.ndarray, where: Path) -> None:
    """Standard deviations, and the arm's path."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    left.loglog(*np.array(result["random_std"]).T, "o", label="random phases")
    left.loglog(*result["std"], "*", ms=14, label="D-optimal")
    left.set(xlabel="std of theta_stiffness, relative", ylabel="std of psi_stiffness, relative")
    left.legend()
    right.plot(0.01 * np.arange(len(path)), path - path[0], label=list(ARM))
    right.set(xlabel="time [s]", ylabel="angle from the start [rad]", title="the best manipulation")
    right.legend(fontsize=7)
    figure.savefig(where, dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
