"""A network in place of the contact law, as in [Wang2020] (arXiv 2011.04929) V-B1: one network for every cap that touches.

Inputs of a cap, in its contact's frame (along the rod over the ground, across, up): time since it touched, its depth, the
velocity of its contact point, the lever r from the rod's middle, r x n, the rod's axis and spin. That is the paper's input
without the parameters of a flat ground as the other body. The network, three layers of 100 units, gives the change of
the rod's velocity and spin by the contact in 1 ms; both caps' parts add up. It is trained on single steps of recordings,
less the engine's steps without ground; of all epochs, the one that predicts held-out recordings best is kept.

Legend: B states, R rods, 2 R caps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from softgym_envs.core import lie
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.parameters import TensegrityParameters

Array = NDArray[np.float64]
UP = np.array([0.0, 0.0, 10.0])
"""[m] Height without ground."""
BATCH, EPOCHS, RATE = 256, 15, 1e-3


class Caps(NamedTuple):
    """Inputs of all caps; the last axes are (R, 2)."""

    touch: NDArray[np.bool_]
    """(B, R, 2)"""
    inputs: Array
    """(B, R, 2, 17), without the number of steps in touch, which comes first."""
    frame: Array
    """(B, R, 2, 3, 3) columns along, across, up."""


def caps_of(engine: TensegritySimulator, states: Array) -> Caps:
    """Inputs of the caps of states (B, nx)."""
    model = engine.model
    position, quaternion, velocity, rate, _ = model.split(states)
    axis = lie.z_axis(quaternion)
    spin = lie.rotate(quaternion, rate)
    across = np.cross([0.0, 0.0, 1.0], axis)
    across /= np.linalg.norm(across, axis=-1, keepdims=True) + 1e-12
    frame = np.stack([np.cross(across, [0.0, 0.0, 1.0]), across, np.broadcast_to([0.0, 0.0, 1.0], axis.shape)], axis=-1)
    columns, touch = [], []
    for side in (-0.5, 0.5):
        lever = side * model.rod_lengths[:, None] * axis - model.cap_radius * np.array([0.0, 0.0, 1.0])
        gap = (position + lever)[..., 2]
        point = velocity + np.cross(spin, lever)
        vectors = (point, lever, np.cross(lever, [0.0, 0.0, 1.0]), np.sign(side) * axis, spin)
        turned = [np.einsum("...ji,...j->...i", frame, vector) for vector in vectors]
        columns.append(np.concatenate([gap[..., None], *turned], axis=-1))
        touch.append(gap < 0.0)
    both = np.repeat(frame[..., None, :, :], 2, axis=-3)
    return Caps(np.stack(touch, axis=-1), np.stack(columns, axis=-2), both)


def without_ground(engine: TensegritySimulator, states: Array, parameters: TensegrityParameters) -> Array:
    """States (B, nx) after a step without any contact."""
    lifted = states.copy()
    engine.model.split(lifted)[0][...] += UP
    after, _ = engine.step(lifted, np.zeros((len(states), engine.nu)), parameters)
    after = np.array(after)
    engine.model.split(after)[0][...] -= UP
    return after


def counted(touch: NDArray[np.bool_], before: Array) -> Array:
    """Number of steps for which every cap has touched."""
    return np.where(touch, before + 1.0, 0.0)


@dataclass(frozen=True, eq=False)
class ContactNetwork:
    """A trained network with the units of its inputs and outputs."""

    network: torch.nn.Module
    mean: Array
    scale: Array
    out: Array
    """(6,) units of a velocity and a spin."""

    def changes(self, caps: Caps, times: Array) -> Array:
        """Change of every rod's velocity and spin in the world's frame, (B, R, 6)."""
        x = (np.concatenate([times[..., None], caps.inputs], axis=-1) - self.mean) / self.scale
        with torch.no_grad():
            y = self.network(torch.from_numpy(x)).numpy() * self.out
        turned = np.concatenate([np.einsum("...ij,...j->...i", caps.frame, part) for part in (y[..., :3], y[..., 3:])], axis=-1)
        return np.asarray((turned * caps.touch[..., None]).sum(axis=-2))

    def rollout(self, engine: TensegritySimulator, start: Array, steps: int, parameters: TensegrityParameters) -> Array:
        """States (B, steps + 1, nx), with the network in place of the ground."""
        states, times = [start], np.zeros((len(start), engine.model.num_rods, 2))
        for _ in range(steps):
            caps = caps_of(engine, states[-1])
            times = counted(caps.touch, times)
            states.append(pushed(engine, without_ground(engine, states[-1], parameters), self.changes(caps, times)))
        return np.stack(states, axis=1)


def pushed(engine: TensegritySimulator, states: Array, changes: Array) -> Array:
    """States with changed velocities and spins (B, R, 6), also moved by them for the finished step."""
    model = engine.model
    own = lie.rotate(lie.conjugate(model.split(states)[1]), changes[..., 3:])
    tangent = np.zeros((len(states), model.layout.n))
    both = np.concatenate([changes[..., :3], own], axis=-1)
    tangent[:, : 12 * model.num_rods] = np.concatenate([engine.dt * both, both], axis=-1).reshape(len(states), -1)
    return np.asarray(model.layout.retract(states, tangent))


class Samples(NamedTuple):
    """Rods that touch: inputs of both caps (D, 2, 17), whether each touches (D, 2), and the targets (D, 6)."""

    inputs: Array
    touch: Array
    changes: Array


def samples_of(engine: TensegritySimulator, recordings: TrajectorySet, parameters: TensegrityParameters) -> Samples:
    """Single steps of all rods that touch; changes are in the frame of the rod's caps, which is the same for both."""
    parts = []
    for recording in recordings:
        values = recording.select(engine.state_names).values
        free, now = without_ground(engine, values[:-1], parameters), caps_of(engine, values[:-1])
        times = np.zeros(now.touch.shape)
        for k in range(len(times)):
            times[k] = counted(now.touch[k], times[k - 1] if k else np.zeros(times.shape[1:]))
        gap = engine.model.layout.difference(values[1:], free)[:, : 12 * engine.model.num_rods]
        gap = gap.reshape(len(free), -1, 12)[..., 6:]
        spin = lie.rotate(engine.model.split(free)[1], gap[..., 3:])
        local = [np.einsum("...ji,...j->...i", now.frame[..., 0, :, :], part) for part in (gap[..., :3], spin)]
        rows = now.touch.any(axis=-1)
        inputs = np.concatenate([times[..., None], now.inputs], axis=-1)
        parts.append((inputs[rows], now.touch[rows].astype(np.float64), np.concatenate(local, axis=-1)[rows]))
    return Samples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def train(
    engine: TensegritySimulator, recordings: TrajectorySet, parameters: TensegrityParameters, rng: np.random.Generator
) -> tuple[ContactNetwork, dict[str, float]]:
    """Train a network on recordings, holding out the last fifth (one at least); also its errors, over those of no network."""
    apart = max(len(recordings) // 5, 1)
    sets = [TrajectorySet(tuple(recordings)[:-apart]), TrajectorySet(tuple(recordings)[-apart:])]
    fit, test = (samples_of(engine, part, parameters) for part in sets)
    mean, scale = fit.inputs.mean(axis=(0, 1)), fit.inputs.std(axis=(0, 1)) + 1e-9
    out = np.sqrt((fit.changes**2).reshape(-1, 2, 3).mean(axis=(0, 2))).repeat(3)
    tensors = [
        [torch.from_numpy(a) for a in ((part.inputs - mean) / scale, part.touch[..., None], part.changes / out)]
        for part in (fit, test)
    ]
    network, loss_fit, loss_test = _trained(tensors, rng)
    return ContactNetwork(network, mean, scale, out), {
        "trained, of no network's error": loss_fit**0.5,
        "set apart, of no network's error": loss_test**0.5,
        "single steps": float(len(fit.changes)),
    }


def _trained(tensors: list[list[torch.Tensor]], rng: np.random.Generator) -> tuple[torch.nn.Module, float, float]:
    torch.manual_seed(int(rng.integers(2**31)))
    sizes = [tensors[0][0].shape[-1], 100, 100, 100, 6]
    layers: list[torch.nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [torch.nn.Linear(a, b, dtype=torch.float64), torch.nn.Tanh()]
    network = torch.nn.Sequential(*layers[:-1])
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.8)
    best, kept = np.inf, {name: value.clone() for name, value in network.state_dict().items()}
    for _ in range(EPOCHS):
        order = torch.from_numpy(rng.permutation(len(tensors[0][0])))
        for rows in order.split(BATCH):
            loss = _loss(network, *(tensor[rows] for tensor in tensors[0]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
        with torch.no_grad():
            error = float(_loss(network, *tensors[1]))
        if error < best:
            best, kept = error, {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(kept)
    with torch.no_grad():
        return network.eval(), float(_loss(network, *tensors[0])), best


def _loss(network: torch.nn.Module, inputs: torch.Tensor, touch: torch.Tensor, changes: torch.Tensor) -> torch.Tensor:
    return (((network(inputs) * touch).sum(dim=-2) - changes) ** 2).mean()
