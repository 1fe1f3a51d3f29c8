"""Warp gives the known answer of a small model, states and gradients; versions that do not are refused. What stands before
kernels in place of Warp's own loops and arrays (`engines/warp/plain.h`). Rows through a Warp kernel: the right numbers,
whatever the number of rows and the thread that asks. Structs of arrays for Warp kernels: what is made, what looks at what,
and that a stage runs only once."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import warp as wp
from helpers import run_limited
from oracles import warp_answer
from oracles.warp_answer import Answer, known_answer, question, reference

from softgym_envs.core.errors import DependencyError
from softgym_envs.engines.warp import engine as warp_engine  # noqa: F401  (sets Warp up)
from softgym_envs.engines.warp.buffers import EXACT, FORWARD, PLAIN, Buffers, KernelProgram, LaneBuffers
from softgym_envs.engines.warp.engine import OLDEST, WarpEngine, check_version
from softgym_envs.engines.warp.memory import Memory, blank, stage
from softgym_envs.engines.warp.row_kernel import RowKernel
from softgym_envs.systems import system
from softgym_envs.systems.vine.build import wall
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel


def solved():
    engine = WarpEngine(KernelProgram(warp_answer.check_kernel, warp_answer.MEMORY), warp_answer.structure(), 21, 1, 2)
    asked = question()
    gradient = engine.vjp(*asked[:3], warp_answer.SUBSTEPS, asked.cotangent)
    return engine, Answer(gradient.states, gradient.state, gradient.controls, gradient.parameter_values)


def test_the_known_answer_is_the_kernels_and_its_derivative_that_of_differences():
    engine, found = solved()
    known = known_answer(question())
    for a, b in zip(found, known, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max())
    states, _ = engine.rollout(*question()[:3], warp_answer.SUBSTEPS)
    np.testing.assert_allclose(states, known.states, atol=1e-13)
    asked, step = question(), 1e-6
    for k, gradient in enumerate(known[1:]):
        direction = np.cos(np.arange(gradient.size)).reshape(gradient.shape)
        ends = []
        for sign in (1, -1):
            moved = [part[0].copy() for part in asked[:3]]
            moved[k] += sign * step * direction[0]
            ends.append(reference(*moved))
        slope = (asked.cotangent[0] * (ends[0] - ends[1])).sum() / (2 * step)
        assert slope == pytest.approx((gradient * direction).sum(), rel=1e-7)


def test_every_branch_of_the_kernel_is_in_the_question():
    """A slack spring, a wound one and a control beyond its bound; every parameter, control and rod matters."""
    asked, known = question(), known_answer(question())
    rods = asked.state[0, :-1].reshape(-1, 10)
    ends = np.concatenate([[p[:3] - a, p[:3] + a] for p, a in ((rod, warp_answer._axis(rod[3:7])) for rod in rods)])
    lengths = np.linalg.norm(ends[list(warp_answer.SECOND)] - ends[list(warp_answer.FIRST)], axis=1)
    stretched = lengths > asked.parameter_values[0, 1] - np.array(warp_answer.WOUND) * asked.state[0, -1]
    assert stretched.any() and not stretched.all()
    assert known.controls[0, 0, 0] != 0.0 == known.controls[0, 1, 0]
    assert (known.parameter_values != 0).all() and (known.state[0] != 0).all()


def test_rows_beside_each_other_give_the_known_answer():
    """Five rows without cotangent, springs stretched in some and slack in others; one row is over after a group of four."""
    asked = warp_answer.rows_question()
    program = KernelProgram(warp_answer.check_kernel, warp_answer.MEMORY, lanes=True)
    engine = WarpEngine(program, warp_answer.structure(), warp_answer.WIDTH, 1, 2)
    buffers = LaneBuffers(engine, len(asked.state), asked.controls.shape[1], warp_answer.SUBSTEPS)
    buffers.forward(*asked[:3])
    found = buffers.states()
    known = np.stack([reference(*given) for given in zip(asked.state, asked.controls, asked.parameter_values, strict=True)])
    np.testing.assert_allclose(found, known, rtol=0, atol=1e-9 * np.abs(known).max())


@pytest.mark.parametrize("version", ["1.9.0", "1.18.0", "0.15.1", "1.2.0.dev1"])
def test_old_versions_are_refused(version):
    with pytest.raises(DependencyError, match=f"Warp is {version}, needed is 1.19 or later"):
        check_version(version)


@pytest.mark.parametrize("version", ["1.19.0", "1.20.0.dev20270101", "2.0"])
def test_later_versions_are_asked(version):
    check_version(version)


def test_the_oldest_version_is_that_of_the_package():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'"warp-lang>={OLDEST}"' in text


def test_the_way_through_a_device_gives_the_same_bits():
    """Uploads and downloads of CUDA, run on the CPU: the state goes up once, and only what is read comes back."""
    simulator = system("vine").simulator()
    engine, rng = simulator.engine, np.random.default_rng(0)
    state, controls = simulator.initial_state(1), rng.uniform(0.0, 0.05, (1, 3, simulator.nu))
    given = (state, controls, simulator.parameter_values(None, 1))
    expected, status = engine.rollout(*given, 5)
    buffers = Buffers(engine, 1, 3, 5, False)
    buffers.on_host = False
    for _ in range(2):
        np.testing.assert_array_equal(buffers.forward(*given), status)
        np.testing.assert_array_equal(buffers.states(), expected)
        np.testing.assert_array_equal(buffers.last(), expected[:, -1])
    np.testing.assert_array_equal(engine.advance(state, controls[:, 0], given[2], 5)[0], expected[:, 1])


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


@wp.kernel(enable_backward=False)
def _polynomial(
    coefficients: wp.array(dtype=wp.float64),
    columns: wp.array(dtype=int),
    x: wp.array2d(dtype=wp.float64),
    shift: wp.array2d(dtype=wp.float64),
    out: wp.array2d(dtype=wp.float64),
):
    """out = a + b x + shift, for some columns of x."""
    b = wp.tid()
    for c in range(columns.shape[0]):
        out[b, c] = coefficients[0] + coefficients[1] * x[b, columns[c]] + shift[b, 0]


def _kernel() -> RowKernel:
    return RowKernel(_polynomial, (np.array([0.5, 2.0]), np.array([2, 0], dtype=np.int32)), (3, 1), 2)


def test_any_number_of_rows_in_any_order() -> None:
    kernel, rng = _kernel(), np.random.default_rng(0)
    for rows in (1, 5, 2, 64, 1):
        x, shift = rng.standard_normal((rows, 3)), rng.standard_normal((rows, 1))
        np.testing.assert_allclose(kernel(x, shift), 0.5 + 2.0 * x[:, [2, 0]] + shift, rtol=1e-14, atol=1e-14)


def test_results_are_fresh_and_take_views() -> None:
    kernel = _kernel()
    wide = np.arange(12.0).reshape(2, 6)
    first = kernel(wide[:, ::2], np.zeros((2, 1)))
    kept = first.copy()
    kernel(np.ones((2, 3)), np.ones((2, 1)))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(first, [[8.5, 0.5], [20.5, 12.5]])


def test_threads_share_one_kernel() -> None:
    kernel = _kernel()

    def ask(value: int) -> bool:
        rows = 1 + value % 7
        return bool((kernel(np.full((rows, 3), float(value)), np.zeros((rows, 1))) == 0.5 + 2.0 * value).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(500)))


@wp.struct
class Pair:
    """Two numbers."""

    a: wp.float64
    b: wp.float64


@wp.struct
class Inner:
    """A part."""

    numbers: wp.array2d(dtype=wp.float64)


@wp.struct
class Outer:
    """A struct with a part and a view."""

    pairs: wp.array2d(dtype=Pair)
    counts: wp.array2d(dtype=int)
    squares: wp.array2d(dtype=wp.float64)
    inner: Inner


MEMORY = Memory(Outer, {"counts": 3, "squares": 1}, {"pairs": 2}, {"inner": Memory(Inner, {"numbers": 5})})


def test_arrays_have_a_row_each_and_views_look_at_the_state_and_its_gradient():
    state = wp.zeros((4, 6), dtype=wp.float64, requires_grad=True, device="cpu")
    memory = MEMORY.allocate(4, state, differentiable=True)
    assert memory.counts.shape == (4, 3) and memory.squares.requires_grad and not memory.counts.requires_grad
    assert memory.inner.numbers.shape == (4, 5) and not memory.inner.numbers.requires_grad
    assert MEMORY.row_bytes == 3 * 4 + 8 + 5 * wp.types.type_size_in_bytes(Inner.vars["numbers"].type.dtype)
    state.fill_(2.0)
    state.grad.fill_(3.0)
    for view, value in ((memory.pairs, 2.0), (memory.pairs.grad, 3.0)):
        assert view.shape == (4, 2) and view.numpy()["b"].tolist() == [[value] * 2] * 4


def test_only_structs_have_a_blank_adjoint():
    assert blank(MEMORY.struct()).squares is None
    assert blank(1.0) is None and blank(wp.zeros(1, device="cpu")) is None


def square(row: int, x: wp.float64, memory: Outer):
    """Add x^2."""
    wp.atomic_add(memory.squares, row, 0, x * x)


once, twice = stage(square), wp.func(square, name="square_that_runs_twice")


@wp.kernel(module="unique")
def once_kernel(x: wp.array(dtype=wp.float64), memory: Outer):
    once(0, x[0], memory)


@wp.kernel(module="unique")
def twice_kernel(x: wp.array(dtype=wp.float64), memory: Outer):
    twice(0, x[0], memory)


@pytest.mark.parametrize(("kernel", "runs"), [(once_kernel, 1), (twice_kernel, 2)])
def test_a_stage_is_not_run_again_before_it_is_differentiated(kernel, runs: int):
    x = wp.array([3.0], dtype=wp.float64, requires_grad=True, device="cpu")
    memory = MEMORY.allocate(1, wp.zeros((1, 6), dtype=wp.float64, device="cpu"), differentiable=True)
    wp.launch(kernel, dim=1, inputs=[x, memory], device="cpu")
    memory.squares.grad.fill_(1.0)
    wp.launch(kernel, dim=1, inputs=[x, memory], adj_inputs=[x.grad, blank(memory)], adj_outputs=[], adjoint=True, device="cpu")
    np.testing.assert_allclose(memory.squares.numpy(), [[9.0 * runs]])
    np.testing.assert_allclose(x.grad.numpy(), [6.0])
