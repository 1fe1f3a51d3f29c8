"""A black-box rival of the identified simulator: an ensemble of networks, trained on the same recordings.

    x_{k+1} = retract(x_k, mean + std * f_m(x_k, u_k)),    m = 1 ... M,

one step is a control period, u is the mean control over it, and f_m is a multilayer perceptron trained on its own bootstrap
sample of the transitions, with early stopping on transitions set apart. After Chua et al., "Deep reinforcement learning in a
handful of trials" (PETS), NeurIPS 2018, with deterministic members. As it is a `Simulator`, every planner runs on it.

Legend: B batch, M members, D transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, MissingDependencyError, OptionError
from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.simulator import IntArray, Linearization, Simulator, finite_differences
from softgym_envs.core.trajectory import TrajectorySet

try:
    import torch
except ImportError as error:
    raise MissingDependencyError('agents.network needs torch: pip install "softgym-envs[learn]"') from error

Array = NDArray[np.float64]

SPEED_LIMIT = 1e3
"""A row whose step is more than this many standard deviations of the data's steps has diverged."""


@dataclass(frozen=True)
class NetworkOptions:
    """How the ensemble is built and trained.

    Raises:
        OptionError: A value out of its range.
    """

    members: int = 5
    """M"""
    width: int = 200
    layers: int = 3
    epochs: int = 100
    """At most; the epoch that is best on the transitions set apart is kept."""
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    held_out: float = 0.2
    """Fraction of every recording's end that is set apart."""

    def __post_init__(self) -> None:
        for name in ("members", "width", "layers", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}, allowed is >= 1")
        if not 0 < self.held_out < 1 or not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise OptionError("held_out must be in (0, 1), learning_rate > 0 and weight_decay >= 0")


@dataclass(frozen=True)
class MemberParameters(Parameters):
    """Which member predicts."""

    member: float = param(-1.0, unit="-", bounds=(-1.0, 1000.0), source="-1: the mean of all members")


class Transitions:
    """Windows of recordings: state, mean control and tangent step over `substeps` physics steps.

    Args:
        simulator: For the order of columns and for `difference`; it is never stepped.
        recordings: Full states.
        substeps: Physics steps of a control period.

    Raises:
        DataError: A recording holds a part of the state, has rows longer than a period, or is too short for one window.
    """

    def __init__(self, simulator: Simulator, recordings: TrajectorySet, substeps: int) -> None:
        parts = [_windows(simulator, trajectory, substeps) for trajectory in recordings]
        if not parts:
            raise DataError("there are no recordings to train networks on")
        self.states, self.controls, self.steps = (np.concatenate([part[i] for part in parts]) for i in range(3))
        places = [np.arange(len(part[0])) / len(part[0]) for part in parts]
        self.place = np.concatenate(places)
        """(D,) where in its recording a window lies, 0 ... 1"""


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
    return states, (total[length:] - total[:-length]) / length, simulator.difference(after, states)


@dataclass(frozen=True, eq=False)
class NetworkSimulator:
    """See the module docstring; `dt` is a control period, so planners use `substeps` = 1."""

    simulator: Simulator
    """For names, limits, `retract` and `difference`; it is never stepped."""
    dt: float
    members: tuple[Any, ...]
    """M torch modules, normalised inputs (B, nx + nu) -> normalised steps (B, n)"""
    inputs: tuple[Array, Array]
    """Mean and standard deviation of (state, control), each (nx + nu,)"""
    outputs: tuple[Array, Array]
    """Mean and standard deviation of the tangent steps, each (n,)"""
    error: float
    """RMS error on the transitions set apart over the RMS of their steps' deviations from the mean: 1 has learned nothing."""

    default_parameters = MemberParameters()
    exact_linearize = False

    @property
    def nx(self) -> int:
        """Length of a state."""
        return self.simulator.nx

    @property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return self.simulator.n

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.simulator.nu

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest control, each (nu,)."""
        return self.simulator.control_bounds

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        return self.simulator.state_names

    @property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        return self.simulator.control_names

    def initial_state(self, batch: int = 1) -> Array:
        """The rest state, (B, nx)."""
        return self.simulator.initial_state(batch)

    def ensemble(self) -> Parameters:
        """One row per member: a planner that takes E rows is then robust to what the members disagree on."""
        return MemberParameters(member=np.arange(float(len(self.members))))  # type: ignore[arg-type]

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.step`; a row that leaves the data far behind has diverged."""
        chosen = (parameters or self.default_parameters).to_matrix(len(state))[:, 0]
        x, status = state, np.zeros(len(state), dtype=np.int32)
        for _ in range(substeps):
            scaled = self.predict(x, control, chosen)
            bad = np.logical_not((np.abs(scaled) < SPEED_LIMIT).all(axis=1))
            status = np.where(bad, 1, status).astype(np.int32)
            step = np.where(bad[:, None], 0.0, self.outputs[0] + self.outputs[1] * scaled)
            x = self.simulator.retract(x, step)
        return np.where((status != 0)[:, None], state, x), status

    def predict(self, state: Array, control: Array, chosen: Array) -> Array:
        """Normalised tangent step (B, n) of the chosen member of every row, or of the mean."""
        mean, std = self.inputs
        inputs = torch.from_numpy(((np.concatenate([state, control], axis=1) - mean) / std).astype(np.float32))
        result = np.zeros((len(state), self.n))
        with torch.no_grad():
            for index, member in enumerate(self.members):
                for rows, weight in ((chosen < 0, 1.0 / len(self.members)), (np.round(chosen) == index, 1.0)):
                    if rows.any():
                        result[rows] += weight * member(inputs[rows]).numpy()
        return result

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.rollout`."""
        states, status = [state], np.zeros(len(state), dtype=np.int32)
        for t in range(controls.shape[1]):
            after, failed = self.step(states[-1], controls[:, t], parameters, substeps=substeps)
            states.append(np.where((status != 0)[:, None], states[-1], after))
            status = np.where(status != 0, status, failed).astype(np.int32)
        return np.stack(states, axis=1), status

    def retract(self, state: Array, dx: Array) -> Array:
        """See `Simulator.retract`."""
        return self.simulator.retract(state, dx)

    def difference(self, a: Array, b: Array) -> Array:
        """See `Simulator.difference`."""
        return self.simulator.difference(a, b)

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Central differences, wide enough for 32-bit networks."""
        return finite_differences(self, state, control, parameters, substeps=substeps, epsilon=1e-2)


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
        recordings: What there is to learn from.
        substeps: Physics steps of a control period.
        rng: Of bootstrap samples, first weights and minibatches.
        options: See `NetworkOptions`.

    Raises:
        DataError: See `Transitions`, or too few windows.
    """
    options = options or NetworkOptions()
    data = Transitions(simulator, recordings, substeps)
    train, test = data.place < 1.0 - options.held_out, data.place >= 1.0 - options.held_out
    if train.sum() < 2 or not test.any():
        raise DataError(f"{len(data.states)} windows are too few to train networks on and to judge them")
    x = np.concatenate([data.states, data.controls], axis=1)
    inputs, outputs = _moments(x[train]), _moments(data.steps[train])
    x, y = (x - inputs[0]) / inputs[1], (data.steps - outputs[0]) / outputs[1]
    sets = [torch.from_numpy(a.astype(np.float32)) for a in (x[train], y[train], x[test], y[test])]
    members = tuple(_train_member(sets, rng, options) for _ in range(options.members))
    with torch.no_grad():
        mean = torch.stack([member(sets[2]) for member in members]).mean(dim=0)
        error = float(((mean - sets[3]) ** 2).mean().sqrt() / (sets[3] ** 2).mean().sqrt().clamp_min(1e-12))
    return NetworkSimulator(simulator, simulator.dt * substeps, members, inputs, outputs, error)


def _moments(x: Array) -> tuple[Array, Array]:
    """Mean and standard deviation; 1 for what does not vary."""
    std = x.std(axis=0)
    return x.mean(axis=0), np.where(std > 1e-8 * (1.0 + np.abs(x).max(axis=0)), std, 1.0)


def _train_member(sets: list[torch.Tensor], rng: np.random.Generator, options: NetworkOptions) -> torch.nn.Module:
    """One network on a bootstrap sample; torch's own generator stays as it is."""
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
