"""Rows that run four at once in one thread: what stands beside a row, if anything, changes no bit of it."""

from dataclasses import replace

import numpy as np
import pytest

from softgym_envs.core.warp_lanes import LANES, gather, lanes_of, spread
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.model import superball
from softgym_envs.tensegrity.residual import random_weights
from softgym_envs.tensegrity.terrain import Terrain

ROWS, SUBSTEPS = 19, 20
WEIGHTS = tuple(random_weights(np.random.default_rng(3)) + 0.2)
SIMULATORS = {
    "stick": TensegritySimulator(),
    "paper": TensegritySimulator(contact="paper"),
    "held": TensegritySimulator(fixed_rod=2),
    "rough": TensegritySimulator(superball(terrain=Terrain.rubble(seed=1))),
    "learned": TensegritySimulator(residual=WEIGHTS),
}


def heaps(simulator, rng):
    """Rows in every branch of a step: in the air, on caps, lying, rods through each other, and two that are too fast."""
    state = np.repeat(simulator.initial_state(1), ROWS, axis=0)
    rods = state[:, : 13 * simulator.model.num_rods].reshape(ROWS, -1, 13)
    rods[:, :, :3] += 0.3 * rng.standard_normal(rods[:, :, :3].shape)
    rods[1::2, :, 3:7] += rng.standard_normal(rods[1::2, :, 3:7].shape)
    rods[::5, :3, 3:7] = [0.5**0.5, 0.5**0.5, 0.0, 0.0]
    rods[:, :, 3:7] /= np.linalg.norm(rods[:, :, 3:7], axis=-1, keepdims=True)
    rods[:, :, 2] -= rods[:, :, 2].min(axis=1, keepdims=True) - np.linspace(-0.02, 1.5, ROWS)[:, None]
    rods[:, :, 7:] = rng.standard_normal(rods[:, :, 7:].shape)
    rods[[3, 10], 0, 7] = 1e5
    rods[6, :, 10:] *= 60.0
    return state


@pytest.mark.parametrize("name", SIMULATORS)
def test_neighbours_change_no_bit_of_a_row_and_alone_it_comes_out_alike(name) -> None:
    simulator = SIMULATORS[name]
    rng = np.random.default_rng(5)
    state = heaps(simulator, rng)
    controls = rng.uniform(*simulator.control_bounds, (ROWS, 3, simulator.nu))
    states, status = simulator.rollout(state, controls, substeps=SUBSTEPS)
    assert status[[3, 10]].all() and status.sum() < 5 and np.isfinite(states).all()
    order = rng.permutation(ROWS)
    mixed, mixed_status = simulator.rollout(state[order], controls[order], substeps=SUBSTEPS)
    np.testing.assert_array_equal(mixed, states[order])
    np.testing.assert_array_equal(mixed_status, status[order])
    for b in range(ROWS):
        alone, failed = simulator.rollout(state[b : b + 1], controls[b : b + 1], substeps=SUBSTEPS)
        np.testing.assert_array_equal(alone[0], states[b])
        assert failed[0] == status[b]
    one_by_one = replace(simulator)
    one_by_one.engine.in_lanes = False
    scalar, beside = (s.rollout(state, controls[:, :1], substeps=1) for s in (one_by_one, simulator))
    np.testing.assert_array_equal(scalar[1], beside[1])
    good = scalar[1] == 0
    np.testing.assert_allclose(beside[0][good], scalar[0][good], rtol=0, atol=1e-12 * np.abs(scalar[0][good]).max())


def test_a_single_row_runs_by_itself() -> None:
    assert [lanes_of(rows) for rows in (1, 2, 3, 4, 5, 256)] == [1, *5 * [LANES]]


@pytest.mark.parametrize("wide", [1, LANES])
@pytest.mark.parametrize("count", range(1, 10))
def test_rows_are_spread_over_lanes_and_gathered(count, wide) -> None:
    rows = np.random.default_rng(count).standard_normal((count, 3, 2))
    lanes = np.full((-(-count // wide), 3, 2, wide), np.nan)
    spread(rows, lanes)
    assert np.isfinite(lanes).all()
    np.testing.assert_array_equal(gather(lanes, count), rows)
    assert not np.shares_memory(gather(lanes, count), lanes)
