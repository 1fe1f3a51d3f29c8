r"""Optimal excitation: the manipulation from whose recording a laboratory learns both stiffnesses best.

A manipulation is five sines of the hand (`manipulation.Waves`): their cycles, phases and sizes, none larger than in the
manipulations that `record` draws; optionally also where the hand starts, no farther from the model's start than those go.
The search is for the one that is D-optimal for log stiffness, while all else that a laboratory does not know is unknown:

.. math:: \min \log\det \, [(J^T J + \Lambda)^{-1}]_{\kappa \kappa}

with J the derivatives of the whitened errors (`mechanics.innovations`), whose J' J is the Fisher information, and Lambda the
information of a ruler and a clock (`procedure.KNOWN`). Manipulations that exceed the arm's limits of angle, speed or torque are
rejected. Legend: T control steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from softgym_envs.core.errors import SoftgymError, StructureError, needed
from softgym_envs.core.simulator import Array, check_number
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.manipulation import CYCLES, SCALES, Waves, reference
from softgym_envs.systems.loop.model import ARM
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.procedure import EVERYTHING, KNOWN, STIFFNESS, manipulation
from softgym_envs.systems.loop.tracking import held, pulled, tracker

FASTEST = 1.0
"""[Hz]"""
COUNT = len(CYCLES)
POPULATION = 10
"""Manipulations per generation of CMA-ES."""
NONE = 1e3
"""Cost of a manipulation that cannot be done."""


@dataclass(frozen=True, eq=False)
class Excitation:
    """Information of manipulations of one loop.

    >>> design = Excitation(LoopSimulator(), LoopParameters(), seconds=4.0)
    >>> spread = np.sqrt(np.diag(design.covariance(drawn(np.random.default_rng(0)))))
    >>> bool((spread > 0).all() and (spread < 1).all())
    True

    Raises:
        OptionError: A number is not positive.
    """

    simulator: LoopSimulator
    parameters: LoopParameters
    """Guessed parameters; the optimum depends on them."""
    seconds: float = 8.0
    """Length of the manipulation [s]."""
    angle: float = 2e-3
    """Standard deviation of measured angles [rad]."""
    torque: float = 0.2
    """Standard deviation of measured torques [N m]."""

    def __post_init__(self) -> None:
        for name in ("seconds", "angle", "torque"):
            check_number(name, getattr(self, name), positive=True)

    def record(self, waves: Waves) -> Trajectory:
        """Angles and torques of a manipulation of the guessed loop, without noise.

        Raises:
            SoftgymError: The loop cannot follow.
        """
        steps = round(self.seconds / self.simulator.dt)
        return manipulation(self.simulator, np.random.default_rng(0), steps=steps, parameters=self.parameters, waves=waves)

    def path(self, waves: Waves) -> Array:
        """Wanted angles of the arm, every 10 ms, (T + 1, 7) [rad]."""
        model = self.simulator.model
        return reference(model, round(100 * self.seconds), scale=SCALES[6 if model.links < 12 else 12], waves=waves)

    def covariance(self, waves: Waves) -> Array | None:
        """Covariance of log stiffness (2, 2), by the Fisher information; None if the arm or the loop cannot follow."""
        try:
            recording = self.record(waves)
            if not self.within(recording):
                return None
            errors = tracker(self._held, pulled(self._held, recording)).anchored(self.parameters.to_vector(), self._noise)
        except SoftgymError:
            return None
        J = errors.slopes(self.parameters.to_vector(), self._ways).reshape(-1, len(EVERYTHING))
        known = np.diag([KNOWN[name][1] ** -2.0 if name in KNOWN else 0.0 for name in EVERYTHING])
        return np.asarray(np.linalg.inv(J.T @ J + known)[:2, :2])

    def within(self, recording: Trajectory) -> bool:
        """Whether angles, speeds and torques are within the arm's limits."""
        low, high = self.simulator.model.limits
        joints = {joint.name: joint for joint in self.simulator.model.arm.joints}
        effort, speed = (np.array([getattr(joints[name], what) for name in ARM]) for what in ("effort", "velocity"))
        q, rate = recording.values, np.abs(np.diff(recording.values, axis=0)) / recording.period
        torques = np.abs(recording.controls)
        return bool(((q > low) & (q < high)).all() and (rate < speed).all() and (torques < effort).all())

    @cached_property
    def _held(self) -> LoopSimulator:
        found: LoopSimulator = held(self.simulator)
        return found

    @cached_property
    def _noise(self) -> dict[str, float]:
        return {**dict.fromkeys(ARM, self.angle), **{f"control:{name}": self.torque for name in ARM}}

    @cached_property
    def _ways(self) -> Array:
        """Directions (P, p) of the fit: logarithms of stiffness, the values of all others."""
        names = self.parameters.names()
        ways = np.eye(len(names))[:, [names.index(name) for name in EVERYTHING]]
        return np.asarray(ways * [getattr(self.parameters, name) if name in STIFFNESS else 1.0 for name in EVERYTHING])


def drawn(rng: np.random.Generator) -> Waves:
    """Draw a manipulation as `record` does."""
    return Waves(np.array(CYCLES)[:, 0], rng.uniform(0.0, 2 * np.pi, COUNT), np.ones(COUNT))


def optimal(
    design: Excitation,
    *,
    evaluations: int = 100,
    seed: int = 1,
    moved: bool = False,
    announce: Callable[[int, float], None] | None = None,
) -> tuple[Waves, Array]:
    """Search the best manipulation by CMA-ES; returns it and its covariance of log stiffness (2, 2).

    Args:
        design: Information of the loop's manipulations.
        evaluations: Manipulations to evaluate, about a second each.
        seed: Seed of the search.
        moved: Search for the hand's start, too; else it starts at the model's start.
        announce: Called after every generation with the evaluations so far and the least log determinant.

    Raises:
        MissingDependencyError: cma is not installed.
        OptionError: `evaluations` is not positive.
        StructureError: The loop can follow none of the manipulations that were tried.
    """
    check_number("evaluations", evaluations, low=1, whole=True)
    with needed("the search needs CMA-ES", "sysid"):
        import cma
    options = {"maxfevals": evaluations, "popsize": min(POPULATION, max(evaluations, 2)), "seed": seed, "verbose": -9}
    search = cma.CMAEvolutionStrategy(np.random.default_rng(seed).uniform(-1, 1, (4 if moved else 3) * COUNT), 1.0, options)
    while not search.stop():
        asked = search.ask()
        found = [design.covariance(_waves(x, design.seconds)) for x in asked]
        search.tell(asked, [NONE if cov is None else float(np.linalg.slogdet(cov)[1]) for cov in found])
        if announce is not None:
            announce(search.countevals, float(search.best.f))
    best = _waves(search.best.x, design.seconds)
    covariance = design.covariance(best)
    if covariance is None:
        raise StructureError(f"the loop could follow none of {search.countevals} manipulations; look at more, or give seconds")
    return best, covariance


def _waves(x: Array, seconds: float) -> Waves:
    """Map unbounded numbers (15,), or (20,) with offsets, to a manipulation."""
    part = 0.5 * (1 + np.sin(x[: 2 * COUNT]))
    offsets = np.sin(x[3 * COUNT :]) if len(x) > 3 * COUNT else np.zeros(COUNT)
    return Waves(0.5 + part[:COUNT] * (FASTEST * seconds - 0.5), x[2 * COUNT : 3 * COUNT], part[COUNT:], offsets)


__all__ = ["Excitation", "drawn", "optimal"]
