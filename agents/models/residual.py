"""A learned correction of any identified simulator, trained on the recordings that it was fitted to.

One control period is

    x_{k+1} = retract(y, d),    y = f(x_k, u_k; theta),    d = clip(mean + std * N(x_k, u_k), lowest, highest),

with u the mean control, N the mean of an ensemble of networks (trained as in `agents.models.network`) and, in training, d the
difference of the measured x_{k+1} and y. Its limits are the smallest and largest d seen, entry by entry: where the networks
extrapolate the correction is no larger than it ever had to be, and where the simulator is exact it is zero.

It is judged on the end of every recording, which the networks are not fitted to, predicted as a whole from its first state:

    loss = mean over recordings, steps and entries of (difference(measured, predicted) / sigma)^2,

sigma the root mean square change of a tangent entry over a period. The correction is used only if the loss falls clearly:
the same rows stop the training early, so a small gain may be luck.

Legend: B batch, T control periods, n tangent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import IntArray, Linearization, Simulator, finite_differences
from softgym_envs.core.trajectory import TrajectorySet

from .network import DIFFERENCE, NetworkOptions, Networks, Transitions, train_ensemble
from .wrapper import Wrapper

Array = NDArray[np.float64]

WORTH = 0.8
"""Largest loss with a correction, over that without one, at which it is used."""


class Correction(NamedTuple):
    """A learned correction."""

    networks: Networks
    lowest: Array
    """(n,)"""
    highest: Array
    """(n,)"""
    period: int
    """Physics steps of a control period."""


@dataclass(frozen=True, eq=False)
class CorrectedSimulator(Wrapper):
    """See the module docstring; `dt` stays the physics step, and `substeps` is a whole number of control periods.

    The state may have further entries that the correction does not know (obstacles, for example): they are not corrected.
    """

    correction: Correction

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.step`.

        Raises:
            OptionError: `substeps` is not a whole number of control periods.
        """
        networks, lowest, highest, period = self.correction
        if substeps % period:
            raise OptionError(f"substeps is {substeps}, the correction was learned for multiples of {period}")
        known, (mean, std) = len(networks.inputs[0]) - self.nu, networks.outputs
        x, status = state, np.zeros(len(state), dtype=np.int32)
        for _ in range(substeps // period):
            y, failed = self.simulator.step(x, control, parameters, substeps=period)
            dx = np.zeros((len(x), self.n))
            scaled = networks.predict(np.concatenate([x[:, :known], control], axis=1))
            dx[:, : len(mean)] = np.clip(mean + std * scaled, lowest, highest)
            status = np.where(status != 0, status, failed).astype(np.int32)
            x = np.where((status != 0)[:, None], x, self.simulator.retract(y, dx))
        return np.where((status != 0)[:, None], state, x), status

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Central differences, wide enough for 32-bit networks."""
        return finite_differences(self, state, control, parameters, substeps=substeps, epsilon=DIFFERENCE)


@dataclass(frozen=True, eq=False)
class CorrectionFit:
    """Result of training."""

    simulator: Simulator
    """Simulator that was corrected."""
    correction: Correction
    before: float
    """Loss without the correction."""
    after: float
    """Loss with the correction."""

    @property
    def used(self) -> bool:
        """Whether the correction predicts clearly better than no correction."""
        return self.after < WORTH * self.before

    def on(self, simulator: Simulator) -> Simulator:
        """This simulator with the correction, or unchanged if the correction is not used.

        Raises:
            OptionError: Its state does not begin with that of the simulator on which the correction was learned, or it has
                other controls.
        """
        names = self.simulator.state_names
        if simulator.state_names[: len(names)] != names or simulator.control_names != self.simulator.control_names:
            raise OptionError("the correction was learned on a simulator with other states or controls")
        return CorrectedSimulator(simulator, self.correction) if self.used else simulator

    def summary(self) -> str:
        """One line for people."""
        if not self.before > 0:
            return "no correction: the constants alone predict what was set apart exactly"
        if not np.isfinite(self.after):
            return "no correction: the simulation fails with it"
        share = f"{100 * np.sqrt(self.after / self.before):.0f} % of the error on what was set apart"
        return f"the correction leaves {share}" if self.used else f"no correction: it would leave {share}"


def learn_correction(
    simulator: Simulator,
    recordings: TrajectorySet,
    parameters: Parameters,
    *,
    substeps: int,
    rng: np.random.Generator,
    options: NetworkOptions | None = None,
) -> CorrectionFit:
    """Train a correction on full-state recordings and judge it.

    Args:
        simulator: Simulator of the robot that was recorded.
        recordings: Data that the constants were identified from.
        parameters: Constants, already identified; they stay as they are.
        substeps: Physics steps of a control period.
        rng: Random generator of bootstrap samples, initial weights and minibatches.
        options: See `agents.models.network.NetworkOptions`.

    Raises:
        DataError: See `agents.models.network.Transitions`; or too few windows that the simulator can predict.
    """
    options = options or NetworkOptions()
    data = Transitions(simulator, recordings, substeps)
    predicted, status = simulator.step(data.states, data.controls, parameters, substeps=substeps)
    good = status == 0
    missed = simulator.difference(data.after, predicted)[good]
    networks = train_ensemble(data.inputs[good], missed, data.place[good], rng, options)
    seen = missed[data.place[good] < 1.0 - options.held_out]
    correction = Correction(networks, seen.min(axis=0), seen.max(axis=0), substeps)
    ends = [_end(simulator, recordings[i : i + 1], substeps, options.held_out) for i in range(len(recordings))]
    sigma = _scale(data.steps)
    losses = (_loss(s, ends, parameters, substeps, sigma) for s in (simulator, CorrectedSimulator(simulator, correction)))
    return CorrectionFit(simulator, correction, *losses)


class _End(NamedTuple):
    """The end of a recording in whole control periods."""

    start: Array
    """(nx,)"""
    controls: Array
    """(T, nu)"""
    after: Array
    """(T, nx)"""


def _end(simulator: Simulator, recording: TrajectorySet, substeps: int, held_out: float) -> _End:
    """The held-out end of one recording, in windows that follow each other without a gap."""
    data = Transitions(simulator, recording, substeps)
    apart = np.flatnonzero(data.place >= 1.0 - held_out)[:: substeps // recording[0].substeps]
    if not len(apart):
        raise DataError(f"a recording has {len(data.place)} windows: too few to set some apart")
    return _End(data.states[apart[0]], data.controls[apart], data.after[apart])


def _loss(simulator: Simulator, ends: list[_End], parameters: Parameters, substeps: int, sigma: Array) -> float:
    """See the module docstring; infinite if the simulation of one end fails."""
    losses = []
    for end in ends:
        states, status = simulator.rollout(end.start[None], end.controls[None], parameters, substeps=substeps)
        error = simulator.difference(end.after, states[0, 1:]) / sigma
        losses.append(float(np.mean(error**2)) if status[0] == 0 else np.inf)
    return float(np.mean(losses))


def _scale(steps: Array) -> Array:
    """Root mean square of tangent steps (D, n); nearly constant entries get a hundredth of the typical one."""
    rms = np.sqrt(np.mean(steps**2, axis=0))
    return np.asarray(np.maximum(rms, 1e-2 * np.median(rms[rms > 0])) if (rms > 0).any() else np.ones_like(rms))


__all__ = ["CorrectedSimulator", "Correction", "CorrectionFit", "learn_correction"]
