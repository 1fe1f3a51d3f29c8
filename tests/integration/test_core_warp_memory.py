"""Structs of arrays for Warp kernels: what is made, what looks at what, and that a stage runs only once."""

from __future__ import annotations

import numpy as np
import pytest
import warp as wp

from softgym_envs.engines.warp import engine as warp_engine  # noqa: F401  (sets Warp up)
from softgym_envs.engines.warp.memory import Memory, blank, stage


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
