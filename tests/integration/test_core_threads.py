"""Pieces of a batch in threads: in order, each once, the caller's thread among them; errors end all; buffers are made once. A
forked child computes what its parent does: neither a pool nor a lock of the parent's threads keeps it waiting. Rows that
run four at once in one thread: what stands beside a row, if anything, changes no bit of it."""

import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers import HUNG
from oracles import warp_answer

from softgym_envs.engines.threads import in_threads
from softgym_envs.engines.warp import engine as warp_engine
from softgym_envs.engines.warp.lanes import LANES, gather, spread
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import superball
from softgym_envs.systems.tensegrity.residual import random_weights
from softgym_envs.systems.tensegrity.terrain import Terrain
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.obstacles import circle


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_every_piece_once_and_in_order(threads, count):
    done = []

    def run(piece):
        done.append(piece)
        return piece**2

    assert in_threads(run, range(count), threads) == [k**2 for k in range(count)]
    assert sorted(done) == list(range(count))


def test_threads_work_at_once_and_the_caller_is_one():
    both = threading.Barrier(2, timeout=HUNG)

    def run(_):
        both.wait()
        return threading.current_thread()

    workers = in_threads(run, (0, 1), 2)
    assert threading.current_thread() in workers
    assert workers[0] is not workers[1]


def test_pieces_that_ask_for_threads_themselves_do_not_wait_for_each_other():
    found = in_threads(lambda k: sum(in_threads(lambda m: k * m, range(8), 2)), range(8), 2)
    assert found == [28 * k for k in range(8)]


@pytest.mark.parametrize("bad", [0, 1, 7])
def test_an_error_is_raised_when_all_have_stopped(bad):
    busy, lock = [0], threading.Lock()

    def run(k):
        with lock:
            busy[0] += 1
        try:
            if k == bad:
                raise ValueError(k)
        finally:
            with lock:
                busy[0] -= 1

    with pytest.raises(ValueError, match=str(bad)):
        in_threads(run, range(8), 3)
    assert busy[0] == 0


def test_every_thread_finds_its_buffers_again(monkeypatch):
    """A batch in two pieces of one shape: whoever came second used to make its buffers anew in every call."""
    made, both = [], threading.Barrier(2, timeout=HUNG)

    class Watched(warp_engine.Buffers):
        """Both threads are inside at once."""

        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

        def forward(self, *given):
            both.wait()
            return super().forward(*given)

    monkeypatch.setattr(warp_engine, "MIN_ROW_SUBSTEPS_PER_THREAD", 1)
    monkeypatch.setattr(warp_engine, "Buffers", Watched)
    program = warp_engine.KernelProgram(warp_answer.check_kernel, warp_answer.MEMORY)
    engine = warp_engine.WarpEngine(program, warp_answer.structure(), warp_answer.WIDTH, 1, 2, threads=2)
    asked = warp_answer.question()
    state, controls, parameter_values = (
        np.repeat(part, 4, axis=0) for part in (asked.state, asked.controls, asked.parameter_values)
    )
    first = engine.rollout(state, controls, parameter_values, warp_answer.SUBSTEPS)[0]
    assert len(made) == 2
    for _ in range(3):
        assert np.array_equal(engine.rollout(state, controls, parameter_values, warp_answer.SUBSTEPS)[0], first)
    assert len(made) == 2


WARP = """
from oracles import warp_answer
from softgym_envs.engines.warp import engine as warp_engine
warp_engine.MIN_ROW_SUBSTEPS_PER_THREAD = 1
program = warp_engine.KernelProgram(warp_answer.check_kernel, warp_answer.MEMORY)
engine = warp_engine.WarpEngine(program, warp_answer.structure(), 21, 1, 2, threads=2)
state, controls, parameters, cotangent = (np.repeat(part, 4, axis=0) for part in warp_answer.question())
locks = [engine._lock, warp_engine.LOADING]
"""
ROLLOUT = """
def compute():
    return engine.rollout(state, controls, parameters, 2)[0]
"""
NEW_SHAPE = """
def compute():
    engine._buffers.clear()
    return engine.rollout(state, controls, parameters, 2)[0]
"""
GRADIENT = """
def compute():
    return engine.vjp(state, controls, parameters, 2, cotangent).state
"""
ROWS = """
import warp as wp
from softgym_envs.engines.warp import row_kernel
from softgym_envs.engines.warp import engine as warp_engine

@wp.kernel(enable_backward=False)
def double(x: wp.array2d(dtype=wp.float64), out: wp.array2d(dtype=wp.float64)):
    b = wp.tid()
    out[b, 0] = x[b, 0] + x[b, 0]

kernel = row_kernel.RowKernel(double, (), (1,), 1)
locks = [kernel._lock, warp_engine.LOADING]

def compute():
    kernel._capacity = kernel._rows = 0
    return kernel(np.ones((3, 1)))
"""
MUJOCO = """
import mujoco
from softgym_envs.engines.mujoco import engine as mujoco_engine
xml = "<mujoco><worldbody><body><joint name='j'/><geom size='.1'/></body></worldbody></mujoco>"
engine = mujoco_engine.MujocoEngine(
    mujoco.MjModel.from_xml_string(xml), 2, 0, np.arange(2), lambda model, parameters: None, num_threads=2
)
locks = [engine._lock, engine._single.lock, mujoco_engine._quiet]

def compute():
    many = engine.step(np.ones((4, 2)), np.zeros((4, 0)), np.zeros((4, 1)), 5)[0]
    return many + engine.step(np.ones((1, 2)), np.zeros((1, 0)), np.zeros((1, 1)), 1)[0]
"""
NUMBA = """
from softgym_envs.engines.numba import engine as numba_engine
numba_engine.MIN_STEPS_PER_THREAD = 1
locks = []

def compute():
    found = np.zeros(4)
    def run(rows):
        found[rows] = 1.0
    numba_engine.spread(run, 4, 1, 2)
    return found
"""
FORK = """
import os, sys, threading
import numpy as np
{setup}

def hold():
    for lock in locks:
        lock.__enter__()
    inside.set()
    threading.Event().wait()

expected, inside = compute(), threading.Event()
threading.Thread(target=hold, daemon=True).start()
inside.wait()
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(compute(), expected) else 3)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    "setup",
    [WARP + ROLLOUT, WARP + NEW_SHAPE, WARP + GRADIENT, ROWS, MUJOCO, NUMBA],
    ids=["rollout", "new-shape", "gradient", "rows", "mujoco", "numba"],
)
def test_a_forked_child_computes_while_another_thread_holds_every_lock(setup, tmp_path):
    script = tmp_path / "fork.py"
    script.write_text(FORK.format(setup=setup))
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}  # for `oracles`
    with subprocess.Popen(
        [sys.executable, str(script)], env=environment, stderr=subprocess.PIPE, start_new_session=True, text=True
    ) as process:
        try:
            _, errors = process.communicate(timeout=HUNG)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # the child, too
            raise
    assert process.returncode == 0, errors


LANE_ROWS, SUBSTEPS = 19, 20
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
    state = np.repeat(simulator.initial_state(1), LANE_ROWS, axis=0)
    rods = state[:, : 13 * simulator.model.num_rods].reshape(LANE_ROWS, -1, 13)
    rods[:, :, :3] += 0.3 * rng.standard_normal(rods[:, :, :3].shape)
    rods[1::2, :, 3:7] += rng.standard_normal(rods[1::2, :, 3:7].shape)
    rods[::5, :3, 3:7] = [0.5**0.5, 0.5**0.5, 0.0, 0.0]
    rods[:, :, 3:7] /= np.linalg.norm(rods[:, :, 3:7], axis=-1, keepdims=True)
    rods[:, :, 2] -= rods[:, :, 2].min(axis=1, keepdims=True) - np.linspace(-0.02, 1.5, LANE_ROWS)[:, None]
    rods[:, :, 7:] = rng.standard_normal(rods[:, :, 7:].shape)
    rods[[3, 10], 0, 7] = 1e5
    rods[6, :, 10:] *= 60.0
    return state


def vines(simulator, rng):
    """Robots of all lengths, bent so that they wrinkle, with angles of their own beyond the tip, and two that are too fast."""
    state = np.repeat(simulator.initial_state(1), LANE_ROWS, axis=0)
    parts = simulator.model.split(state)
    parts.theta[:] = np.cumsum(0.25 * rng.standard_normal(parts.theta.shape), axis=1)
    parts.omega[:] = 2.0 * rng.standard_normal(parts.omega.shape)
    parts.length[:] = rng.permutation(np.linspace(simulator.model.link_length, simulator.model.max_length, LANE_ROWS))
    parts.pressure[:] = rng.uniform(0.0, simulator.model.max_steering, parts.pressure.shape)
    parts.omega[[3, 10], 0] = 1e5
    return state


@pytest.mark.parametrize("name", VINES)
def test_vines_of_all_lengths_change_no_bit_of_each_other_and_move_as_beside_a_far_obstacle(name) -> None:
    """The kernel with obstacles runs row by row."""
    simulator = VINES[name]
    rng = np.random.default_rng(5)
    state = vines(simulator, rng)
    controls = rng.uniform(*simulator.control_bounds, (LANE_ROWS, 2, simulator.nu))
    states, status = simulator.rollout(state, controls, substeps=10)
    assert status.nonzero()[0].tolist() == [3, 10] and np.isfinite(states).all()
    order = rng.permutation(LANE_ROWS)
    np.testing.assert_array_equal(simulator.rollout(state[order], controls[order], substeps=10)[0], states[order])
    engine = simulator.engine
    unsorted = replace(engine, program=replace(engine.program, size=None))
    np.testing.assert_array_equal(unsorted.rollout(state, controls, simulator.parameter_values(None, LANE_ROWS), 10)[0], states)
    alone = [simulator.rollout(state[b : b + 1], controls[b : b + 1], substeps=10)[0] for b in range(LANE_ROWS)]
    np.testing.assert_array_equal(np.concatenate(alone), states)
    beside = replace(simulator, model=replace(simulator.model, obstacles=(circle(50.0, 0.0, 0.1),)))
    columns = [beside.state_names.index(name) for name in simulator.state_names]
    start = beside.initial_state(LANE_ROWS)
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
    controls = rng.uniform(*simulator.control_bounds, (LANE_ROWS, 3, simulator.nu))
    states, status = simulator.rollout(state, controls, substeps=SUBSTEPS)
    assert status[[3, 10]].all() and status.sum() < 5 and np.isfinite(states).all()
    order = rng.permutation(LANE_ROWS)
    mixed, mixed_status = simulator.rollout(state[order], controls[order], substeps=SUBSTEPS)
    np.testing.assert_array_equal(mixed, states[order])
    np.testing.assert_array_equal(mixed_status, status[order])
    for b in range(LANE_ROWS):
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
