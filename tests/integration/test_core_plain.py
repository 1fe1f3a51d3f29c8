"""What stands before kernels in place of Warp's own loops and arrays (`engines/warp/plain.h`)."""

import os
import sys
from dataclasses import replace

import numpy as np
import pytest
import warp as wp
from helpers import run_limited

from softgym_envs.engines.warp.buffers import EXACT, FORWARD, PLAIN
from softgym_envs.engines.warp.engine import WarpEngine
from softgym_envs.systems.vine.build import wall
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel

CHECKED = (("mode", "debug"), ("extra_build_options", wp.ModuleBuildOptions(extra_cpu_preamble=PLAIN)))
"""Options with which every index is looked at; one outside its array ends the process."""
RANGES = [(0, 5, 1), (2, 2, 1), (3, 1, 1), (-2, 3, 2), (5, -1, -1), (5, -2, -3), (1, 4, -1), (0, 3, 0)]


def walk_kernel(ranges: wp.array2d(dtype=int), met: wp.array3d(dtype=wp.float64), count: wp.array(dtype=int)):
    b = wp.tid()
    for i in range(ranges[b, 0], ranges[b, 1], ranges[b, 2]):
        met[b, 0, count[b]] = wp.float64(i)
        count[b] = count[b] + 1
    for i in range(ranges[b, 0], ranges[b, 1]):
        met[b, 1, i + 2] = met[b, 1, i + 2] + wp.float64(1.0)
    for _i in range(ranges[b, 1]):
        met[b, 2, 0] = met[b, 2, 0] + wp.float64(1.0)


def outside_kernel(place: int, numbers: wp.array2d(dtype=wp.float64)):
    numbers[wp.tid(), place] = wp.float64(1.0)


def launch(function, options, dim, inputs):
    kernel = wp.kernel(function, enable_backward=False, module="unique", module_options=dict(options))
    wp.launch(kernel, dim=dim, inputs=inputs, device="cpu")


@pytest.mark.parametrize("options", [FORWARD, EXACT])
def test_loops_go_where_pythons_do(options):
    given = [wp.array(a) for a in (np.array(RANGES, np.int32), np.zeros((len(RANGES), 3, 8)), np.zeros(len(RANGES), np.int32))]
    launch(walk_kernel, options, len(RANGES), given)
    met, count = given[1].numpy(), given[2].numpy()
    for (start, end, step), row, number in zip(RANGES, met, count, strict=True):
        assert row[0, :number].tolist() == (list(range(start, end, step)) if step else [])
        assert np.flatnonzero(row[1]).tolist() == [i + 2 for i in range(start, end)] and row[1].max() <= 1
        assert row[2, 0] == max(0, end)


def walled_rollouts():
    """Robots that run into VineWall's wall: as usual, which asks Warp for its known answer; then with every index looked at."""
    simulator = VineSimulator(wall(VineModel()).model)
    usual = simulator.engine
    program = replace(usual.program, options=CHECKED)
    checked = WarpEngine(program, usual.structure, simulator.nx, simulator.nu, usual.num_parameters)
    state = np.repeat(simulator.initial_state(1), 2, axis=0)
    parts = simulator.model.split(state)
    parts.length[:], parts.obstacles[:] = [0.3, 0.4], [0.45, 0.0, 0.0]
    given = state, np.tile([0.1, 2e3, 0.0, 0.0, 0.0], (2, 30, 1)), simulator.parameter_values(None, 2), 5
    found = usual.rollout(*given), checked.rollout(*given)
    met = simulator.model.clearance(found[0][0].reshape(62, -1)).reshape(2, 31).min(axis=1)
    assert (np.abs(met) < 1e-3).all(), met
    return found


HELPERS = os.path.dirname(os.path.dirname(__file__))


@pytest.mark.parametrize("what", ["inside", "-1", "3"])
def test_indices_are_inside_their_arrays_and_one_outside_is_noticed_where_asked(what):
    run = run_limited([sys.executable, __file__, what], seconds=300, env={**os.environ, "PYTHONPATH": HELPERS})
    noticed = run.returncode != 0 and "inside(a, 1, j)" in run.stderr
    assert run.returncode == 0 if what == "inside" else noticed, run.stderr


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        (usual, _), (states, status) = walled_rollouts()
        assert not status.any() and np.abs(states - usual).max() < 1e-6, np.abs(states - usual).max()
    else:
        launch(outside_kernel, CHECKED, 2, [int(sys.argv[1]), wp.zeros((2, 3), dtype=wp.float64)])
