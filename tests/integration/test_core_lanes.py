"""Rows that run four at once in one thread: what stands beside a row, if anything, changes no bit of it."""

from dataclasses import replace

import numpy as np
import pytest

from softgym_envs.engines.warp.lanes import LANES, gather, spread
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import superball
from softgym_envs.systems.tensegrity.residual import random_weights
from softgym_envs.systems.tensegrity.terrain import Terrain
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.obstacles import circle

ROWS, SUBSTEPS = 19, 20
WEIGHTS = tuple(random_weights(np.random.default_rng(3)) + 0.2)
SIMULATORS = {
    "stick": TensegritySimulator(),
    "paper": TensegritySimulator(contact="paper"),
    "held": TensegritySimulator(fixed_rod=2),
    "rough": TensegritySimulator(superball(terrain=Terrain.rubble(seed=1))),
    "learned": TensegritySimulator(residual=WEIGHTS),
}

VINES = {
    "wrinkling": VineSimulator(),
    "linear": VineSimulator(bending="linear"),
    "remembers and carries": VineSimulator(VineModel(viscoelastic=True, max_load=0.05, num_links=25)),
    "without muscles": VineSimulator(VineModel(num_sections=0, num_links=7)),
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


def vines(simulator, rng):
    """Robots of all lengths, bent so that they wrinkle, with angles of their own beyond the tip, and two that are too fast."""
    state = np.repeat(simulator.initial_state(1), ROWS, axis=0)
    parts = simulator.model.split(state)
    parts.theta[:] = np.cumsum(0.25 * rng.standard_normal(parts.theta.shape), axis=1)
    parts.omega[:] = 2.0 * rng.standard_normal(parts.omega.shape)
    parts.length[:] = rng.permutation(np.linspace(simulator.model.link_length, simulator.model.max_length, ROWS))
    parts.pressure[:] = rng.uniform(0.0, simulator.model.max_steering, parts.pressure.shape)
    parts.omega[[3, 10], 0] = 1e5
    return state


@pytest.mark.parametrize("name", VINES)
def test_vines_of_all_lengths_change_no_bit_of_each_other_and_move_as_beside_a_far_obstacle(name) -> None:
    """The kernel with obstacles runs row by row."""
    simulator = VINES[name]
    rng = np.random.default_rng(5)
    state = vines(simulator, rng)
    controls = rng.uniform(*simulator.control_bounds, (ROWS, 2, simulator.nu))
    states, status = simulator.rollout(state, controls, substeps=10)
    assert status.nonzero()[0].tolist() == [3, 10] and np.isfinite(states).all()
    order = rng.permutation(ROWS)
    np.testing.assert_array_equal(simulator.rollout(state[order], controls[order], substeps=10)[0], states[order])
    engine = simulator.engine
    unsorted = replace(engine, program=replace(engine.program, size=None))
    np.testing.assert_array_equal(unsorted.rollout(state, controls, simulator.parameter_values(None, ROWS), 10)[0], states)
    alone = [simulator.rollout(state[b : b + 1], controls[b : b + 1], substeps=10)[0] for b in range(ROWS)]
    np.testing.assert_array_equal(np.concatenate(alone), states)
    beside = replace(simulator, model=replace(simulator.model, obstacles=(circle(50.0, 0.0, 0.1),)))
    columns = [beside.state_names.index(name) for name in simulator.state_names]
    start = beside.initial_state(ROWS)
    start[:, columns] = state
    general, failed = beside.rollout(start, controls, substeps=10)
    np.testing.assert_array_equal(failed, status)
    expected = general[status == 0][:, :, columns]
    np.testing.assert_allclose(states[status == 0], expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("count, shards", [(2, 1), (19, 1), (19, 2), (32, 3)])
def test_rows_of_like_size_share_a_thread_and_every_shard_has_all_sizes(count, shards) -> None:
    engine = VINES["linear"].engine
    state = VINES["linear"].initial_state(count)
    length = state[:, engine.program.size]
    length[:] = np.random.default_rng(count).permutation(np.linspace(0.1, 1.0, count))
    order = engine._order(state, shards)
    assert sorted(order) == list(range(count))
    groups = np.argsort(np.argsort(length))[order][: count // LANES * LANES].reshape(-1, LANES) // LANES
    assert (groups == groups[:, :1]).all()
    assert np.abs(np.diff(groups[:, 0])).max(initial=0) <= max(shards, count // LANES)


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


@pytest.mark.parametrize("count", range(1, 10))
def test_rows_are_spread_over_lanes_and_gathered(count) -> None:
    rows = np.random.default_rng(count).standard_normal((count, 3, 2))
    lanes = np.full((-(-count // LANES), 3, 2, LANES), np.nan)
    spread(rows, lanes)
    assert np.isfinite(lanes).all()
    np.testing.assert_array_equal(gather(lanes, count), rows)
    assert not np.shares_memory(gather(lanes, count), lanes)
