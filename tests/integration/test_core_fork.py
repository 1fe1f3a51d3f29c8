"""A forked child computes what its parent does: neither a pool nor a lock of the parent's threads keeps it waiting."""

import os
import subprocess
import sys

import pytest
from helpers import HUNG

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

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
