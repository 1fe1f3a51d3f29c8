"""The last stage of a progressive fit ([Wang2020] IV-D): a learned correction in the simulator, trained on its own gradients.

The simulator offers weights w (`core.simulator.Residual`); the loss is that of multiple shooting,

    loss(w) = mean_{s, k, i} ((x_{s,k}(w) - y_{s,k}) / sigma)_i^2,    k = 1 ... L,

over segments s that start from measured states, with sigma the root mean square change of every state entry over a block.
y is taken into the coordinates around x first (retract(x, difference(y, x))), so quaternions of either sign agree. Gradients
are propagated backwards through all L steps. Some blocks of the recordings are set apart; the weights that predict them best
are kept, and if none beat the simulator without a correction, none are used.

Legend: S segments, L steps, W weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Residual, Simulator
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

R = TypeVar("R", bound=Residual)


@dataclass(frozen=True)
class ResidualOptions:
    """Settings of the training.

    Raises:
        OptionError: A value out of its range.
    """

    segment: int = 1
    """Steps L of a segment."""
    block: int = 200
    """Rows of a block; every `held_out`-th one is set apart, and predicted as a whole."""
    held_out: int = 4
    iterations: int = 150
    """Iterations of L-BFGS, on all segments at once."""
    patience: int = 75
    """Iterations without a better prediction of the blocks set apart before training stops."""
    weight_decay: float = 1e-5
    """Weight of |w|^2 beside the loss relative to its start."""
    worth: float = 0.8
    """Share of the loss of the blocks set apart, relative to no correction, below which a correction is used."""

    def __post_init__(self) -> None:
        for name, lowest in (("segment", 1), ("block", 1), ("held_out", 2), ("iterations", 1), ("patience", 1)):
            if getattr(self, name) < lowest:
                raise OptionError(f"{name} is {getattr(self, name)}, allowed is >= {lowest}")
        if not self.weight_decay >= 0 or not 0 < self.worth <= 1:
            raise OptionError(f"weight_decay is {self.weight_decay}, allowed is >= 0; worth is {self.worth}, allowed is (0, 1]")


class Progress(NamedTuple):
    """One iteration of training."""

    iteration: int
    train: float  # Training loss relative to the start.
    validation: float  # Loss of the blocks set apart.


@dataclass(frozen=True, eq=False)
class ResidualFit:
    """Result of the training."""

    simulator: Any  # Simulator with the weights that were kept.
    parameters: Parameters  # Parameters that the weights belong to.
    before: float  # Loss of the blocks set apart without a correction.
    after: float  # Loss of the blocks set apart with the correction; equal if none is used.
    log: tuple[Progress, ...]

    @property
    def used(self) -> bool:
        """Whether a correction predicts better than none."""
        return self.after < self.before

    def summary(self) -> str:
        """One line for people."""
        if not self.used:
            return "no correction predicts what was set apart better than the parameters alone"
        share = np.sqrt(self.after / self.before)
        return f"the correction leaves {100 * share:.0f} % of the error on what was set apart, after {len(self.log)} iterations"


class _Segments(NamedTuple):
    starts: Array  # (S, nx)
    controls: Array  # (S, L, nu)
    values: Array  # (S, L, nx)


def fit_residual(
    simulator: R,
    recordings: TrajectorySet,
    parameters: Parameters,
    start: Array,
    *,
    options: ResidualOptions | None = None,
) -> ResidualFit:
    """Train the simulator's correction on fully measured recordings.

    Args:
        simulator: With or without weights; they are replaced.
        recordings: All of the same number of substeps.
        parameters: Parameters, already identified; they stay as they are.
        start: (W,) weights to start from.
        options: See `ResidualOptions`.

    Raises:
        DataError: A recording holds a part of the state or NaN, or there is nothing to train on or to set apart.
    """
    options = options or ResidualOptions()
    blocks = [block for recording in recordings for block in _blocks(simulator, recording, options.block)]
    apart = blocks[options.held_out - 1 :: options.held_out]
    train = [block for index, block in enumerate(blocks) if index % options.held_out != options.held_out - 1]
    if not apart or not train:
        raise DataError(f"{len(blocks)} blocks of {options.block} rows are too few to train a correction and to judge it")
    segments = _cut(train, min(options.segment, options.block))
    whole, scale = _cut(apart, options.block), _scale(_cut(blocks, options.block))
    return _Training(simulator, parameters, recordings[0].substeps, segments, whole, scale, options).run(start)


@dataclass
class _BestWeights:
    """The weights that predict the blocks set apart best."""

    loss: float
    weights: tuple[float, ...] = ()
    iteration: int = 0

    def offer(self, progress: Progress, weights: Array) -> None:
        if progress.validation < self.loss:
            self.loss, self.iteration = progress.validation, progress.iteration
            self.weights = tuple(float(w) for w in weights)


@dataclass(frozen=True, eq=False)
class _Training:
    simulator: Any
    parameters: Parameters
    substeps: int
    train: _Segments
    apart: _Segments
    scale: Array  # (nx,) sigma
    options: ResidualOptions

    def run(self, start: Array) -> ResidualFit:
        """L-BFGS (Liu and Nocedal, 1989): the loss has no noise, as all segments take part in every step."""
        weights = np.array(start, dtype=np.float64)
        before, first = self.loss(self.apart, ()), max(self.gradient(self.train, tuple(weights))[0], 1e-30)
        best = _BestWeights(self.options.worth * before)
        log: list[Progress] = []

        def objective(w: Array) -> tuple[float, Array]:
            loss, gradient = self.gradient(self.train, tuple(w))
            decay = self.options.weight_decay
            return loss / first + decay * float(w @ w), gradient / first + 2.0 * decay * w

        def watch(intermediate_result: Any) -> None:
            w, value = intermediate_result.x, float(intermediate_result.fun)
            log.append(Progress(len(log), value, self.loss(self.apart, tuple(w))))
            best.offer(log[-1], w)
            if len(log) - best.iteration > self.options.patience:
                raise StopIteration

        from scipy.optimize import minimize

        options = {"maxiter": self.options.iterations, "maxcor": 30}
        minimize(objective, weights, jac=True, method="L-BFGS-B", callback=watch, options=options)
        kept = replace(self.simulator, residual=best.weights)
        return ResidualFit(kept, self.parameters, before, best.loss if best.weights else before, tuple(log))

    def loss(self, part: _Segments, weights: tuple[float, ...]) -> float:
        """Mean over segments of min(1, mean of squares); a segment that diverges counts 1, as a useless prediction."""
        simulator = replace(self.simulator, residual=weights)
        states, status = simulator.rollout(part.starts, part.controls, self.parameters, substeps=self.substeps)
        squares = np.mean((self.error(states, part) / self.scale) ** 2, axis=(1, 2))
        return float(np.where((status == 0) & (squares < 1.0), squares, 1.0).mean())

    def error(self, states: Array, part: _Segments) -> Array:
        """Error x - y in the coordinates of x, (S, L, nx)."""
        x = states[:, 1:]
        return np.asarray(x - self.simulator.retract(x, self.simulator.difference(part.values, x)))

    def gradient(self, part: _Segments, weights: tuple[float, ...]) -> tuple[float, Array]:
        """Loss and its gradient (W,); segments that diverge are left out."""
        simulator = replace(self.simulator, residual=weights)
        states, status = simulator.rollout(part.starts, part.controls, self.parameters, substeps=self.substeps)
        error = self.error(states, part) / self.scale
        cotangent = np.zeros_like(states)
        cotangent[:, 1:] = 2.0 * error / self.scale / error.size
        _, _, rows = simulator.residual_vjp(
            part.starts, part.controls, cotangent, self.parameters, substeps=self.substeps
        )  # fmt: skip
        good = (status == 0) & np.isfinite(rows).all(axis=1)
        return float(np.mean(error[status == 0] ** 2)), np.asarray(rows[good].sum(axis=0))


def _scale(part: _Segments) -> Array:
    """Root mean square change of every state entry; one that hardly moves counts as a hundredth of the typical one."""
    rms = np.sqrt(np.mean((part.values - part.starts[:, None]) ** 2, axis=(0, 1)))
    return np.asarray(np.maximum(rms, 1e-2 * np.median(rms[rms > 0])) if (rms > 0).any() else np.ones_like(rms))


def _blocks(simulator: Simulator, recording: Trajectory, rows: int) -> list[tuple[Array, Array]]:
    """States (rows + 1, nx) and controls (rows, nu) of whole blocks."""
    missing = set(simulator.state_names) - set(recording.names)
    if missing:
        raise DataError(f"a correction needs fully measured states; the recording lacks {', '.join(sorted(missing)[:3])}")
    values = recording.select(simulator.state_names).values
    if not np.isfinite(values).all():
        raise DataError("a correction needs fully measured states; a recording holds NaN")
    controls = recording.controls[:, [recording.control_names.index(name) for name in simulator.control_names]]
    starts = range(0, recording.num_steps - rows + 1, rows)
    return [(values[k : k + rows + 1], controls[k : k + rows]) for k in starts]


def _cut(blocks: Sequence[tuple[Array, Array]], length: int) -> _Segments:
    pieces = [
        (values[k], controls[k : k + length], values[k + 1 : k + length + 1])
        for values, controls in blocks
        for k in range(0, len(controls) - length + 1, length)
    ]
    return _Segments(*(np.ascontiguousarray(np.stack(column)) for column in zip(*pieces, strict=True)))
