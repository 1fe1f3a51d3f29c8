"""A black-box alternative to the identified simulator: an ensemble of networks, trained on the same recordings.

    x_{k+1} = retract(x_k, mean + std * f_m(x_k, u_k)),    m = 1 ... M,

one step is a control period, u is the mean control over it, and f_m is a multilayer perceptron trained on its own bootstrap
sample of the transitions, with early stopping on held-out transitions. After Chua et al., "Deep reinforcement learning in a
handful of trials" (PETS), NeurIPS 2018, with deterministic members. As it is a `Simulator`, every planner runs on it.

Legend: B batch, M members, D transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from softgym_envs.core.errors import DataError, OptionError, needed
from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.simulator import Array, IntArray, Linearization, Simulator, finite_differences
from softgym_envs.core.trajectory import TrajectorySet

with needed("agents.models.network needs torch", "learn"):
    import torch

from .wrapper import Wrapper

NETWORK_SPEED_LIMIT = 1e3
"""Steps beyond this many standard deviations of the data's steps count as diverged."""
DIFFERENCE = 1e-2
"""Half width of differences through networks, which calculate in 32 bits."""


@dataclass(frozen=True)
class NetworkOptions:
    """Settings of the ensemble and its training.

    Raises:
        OptionError: A value out of its range.
    """

    members: int = 5
    """Number M of members."""
    width: int = 200
    layers: int = 3
    epochs: int = 100
    """Most epochs; the one that is best on the held-out transitions is kept."""
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    held_out: float = 0.2
    """Fraction of every recording that is held out, at its end."""

    def __post_init__(self) -> None:
        for name in ("members", "width", "layers", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}, allowed is >= 1")
        if not 0 < self.held_out < 1 or not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise OptionError("held_out must be in (0, 1), learning_rate > 0 and weight_decay >= 0")


@dataclass(frozen=True)
class MemberParameters(Parameters):
    """Index of the member that predicts."""

    member: float = param(-1.0, unit="-", bounds=(-1.0, 1000.0), source="-1: the mean of all members")


class Transitions:
    """Windows of recordings: state, mean control and tangent step over `substeps` physics steps.

    Args:
        simulator: For the order of columns and for `difference`; never stepped.
        recordings: Full states.
        substeps: Physics steps of a control period.

    Raises:
        DataError: A recording holds a part of the state, has rows longer than a period, or is too short for one window.
    """

    def __init__(self, simulator: Simulator, recordings: TrajectorySet, substeps: int) -> None:
        parts = [_windows(simulator, trajectory, substeps) for trajectory in recordings]
        if not parts:
            raise DataError("there are no recordings to train networks on")
        self.states, self.controls, self.after = (np.concatenate([part[i] for part in parts]) for i in range(3))
        self.steps = simulator.difference(self.after, self.states)
        self.place = np.concatenate([np.arange(len(part[0])) / len(part[0]) for part in parts])
        """(D,) relative place of a window in its recording, 0 ... 1"""


def _windows(simulator: Simulator, trajectory: Any, substeps: int) -> tuple[Array, Array, Array]:
    if substeps % trajectory.substeps:
        raise DataError(f"rows are {trajectory.substeps} physics steps long, a control period of {substeps} is no multiple")
    length = substeps // trajectory.substeps
    if trajectory.num_steps < length:
        raise DataError(f"a recording has {trajectory.num_steps} steps, a control period needs {length}")
    values = trajectory.select(simulator.state_names).values
    if not np.isfinite(values).all():
        raise DataError("networks need fully measured states; a recording holds NaN")
    order = [trajectory.control_names.index(name) for name in simulator.control_names]
    total = np.concatenate([np.zeros((1, len(order))), np.cumsum(trajectory.controls[:, order], axis=0)])
    states, after = values[:-length], values[length:]
    return states, (total[length:] - total[:-length]) / length, after


@dataclass(frozen=True, eq=False)
class Networks:
    """A trained ensemble, inputs z (B, a) -> outputs y (B, b)."""

    members: tuple[Any, ...]
    """M torch modules, normalised inputs -> normalised outputs"""
    inputs: tuple[Array, Array]
    """Mean and standard deviation, each (a,)"""
    outputs: tuple[Array, Array]
    """Mean and standard deviation, each (b,)"""
    error: float
    """RMS error on the held-out rows over the RMS of their deviations from the mean: 1 has learned nothing."""

    def predict(self, inputs: Array, chosen: Array | None = None) -> Array:
        """Normalised outputs (B, b): of the member `chosen` (B,) in every row, or of the mean if it is -1 or None."""
        mean, std = self.inputs
        scaled = torch.from_numpy(((inputs - mean) / std).astype(np.float32))
        which = np.full(len(inputs), -1.0) if chosen is None else chosen
        result = np.zeros((len(inputs), len(self.outputs[0])))
        with torch.no_grad():
            for index, member in enumerate(self.members):
                for rows, weight in ((which < 0, 1.0 / len(self.members)), (np.round(which) == index, 1.0)):
                    if rows.any():
                        result[rows] += weight * member(scaled[rows]).numpy()
        return result


@dataclass(frozen=True, eq=False)
class NetworkSimulator(Wrapper):
    """See the module docstring; the inner simulator gives names, limits and manifold, and is never stepped.

    `dt` is a control period, so planners use `substeps` = 1.
    """

    period: int
    """Physics steps of the inner simulator in one step."""
    networks: Networks
    """(state, control) -> tangent step"""

    default_parameters = MemberParameters()

    @property
    def stretch(self) -> int:
        """A step is a control period."""
        return self.period

    def ensemble(self) -> Parameters:
        """One row per member: a planner with E rows is then robust to the members' disagreement."""
        return MemberParameters(member=np.arange(float(len(self.networks.members))))  # type: ignore[arg-type]

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.step`; a row that leaves the data far behind has diverged."""
        chosen = (parameters or self.default_parameters).to_matrix(len(state))[:, 0]
        x, status = state, np.zeros(len(state), dtype=np.int32)
        mean, std = self.networks.outputs
        for _ in range(substeps):
            scaled = self.networks.predict(np.concatenate([x, control], axis=1), chosen)
            bad = np.logical_not((np.abs(scaled) < NETWORK_SPEED_LIMIT).all(axis=1))
            status = np.where(bad, 1, status).astype(np.int32)
            x = self.simulator.retract(x, np.where(bad[:, None], 0.0, mean + std * scaled))
        return np.where((status != 0)[:, None], state, x), status

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Central differences, wide enough for 32-bit networks."""
        return finite_differences(self, state, control, parameters, substeps=substeps, epsilon=DIFFERENCE)


def train_networks(
    simulator: Simulator,
    recordings: TrajectorySet,
    *,
    substeps: int,
    rng: np.random.Generator,
    options: NetworkOptions | None = None,
) -> NetworkSimulator:
    """Fit an ensemble to full-state recordings.

    Args:
        simulator: Names, limits and the manifold of the states.
        recordings: Training data.
        substeps: Physics steps of a control period.
        rng: Random generator of bootstrap samples, initial weights and minibatches.
        options: See `NetworkOptions`.

    Raises:
        DataError: See `Transitions`, or too few windows.
    """
    data, options = Transitions(simulator, recordings, substeps), options or NetworkOptions()
    x, y = np.concatenate([data.states, data.controls], axis=1), data.steps
    train, test = data.place < 1.0 - options.held_out, data.place >= 1.0 - options.held_out
    if train.sum() < 2 or not test.any():
        raise DataError(f"{len(x)} windows are too few to train networks on and to judge them")
    inputs, outputs = _moments(x[train]), _moments(y[train])
    x, y = (x - inputs[0]) / inputs[1], (y - outputs[0]) / outputs[1]
    sets = [torch.from_numpy(a.astype(np.float32)) for a in (x[train], y[train], x[test], y[test])]
    members = tuple(_train_member(sets, rng, options) for _ in range(options.members))
    with torch.no_grad():
        mean = torch.stack([member(sets[2]) for member in members]).mean(dim=0)
        error = float(((mean - sets[3]) ** 2).mean().sqrt() / (sets[3] ** 2).mean().sqrt().clamp_min(1e-12))
    return NetworkSimulator(simulator, substeps, Networks(members, inputs, outputs, error))


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and standard deviation; 1 for constant columns."""
    std = x.std(axis=0)
    return x.mean(axis=0), np.where(std > 1e-8 * (1.0 + np.abs(x).max(axis=0)), std, 1.0)


def _train_member(sets: list[torch.Tensor], rng: np.random.Generator, options: NetworkOptions) -> torch.nn.Module:
    """Train one network on a bootstrap sample; torch's own generator is restored."""
    x, y, x_test, y_test = sets
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        sizes = [x.shape[1], *[options.width] * options.layers]
        layers: list[torch.nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [torch.nn.Linear(a, b), torch.nn.SiLU()]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], y.shape[1]))
    rows = rng.integers(len(x), size=len(x))
    optimiser = torch.optim.AdamW(network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay)
    best, kept = np.inf, {name: value.clone() for name, value in network.state_dict().items()}
    for _ in range(options.epochs):
        order = rows[rng.permutation(len(rows))]
        for start in range(0, len(order), options.batch):
            chosen = torch.from_numpy(order[start : start + options.batch])
            loss = ((network(x[chosen]) - y[chosen]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            error = float(((network(x_test) - y_test) ** 2).mean())
        if error < best:
            best, kept = error, {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(kept)
    return network.eval()
