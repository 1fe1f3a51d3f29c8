"""Pieces of a batch in threads: in order, each once, the caller's thread among them; errors end all; buffers are made once."""

import threading

import numpy as np
import pytest
from helpers import HUNG
from oracles import warp_answer

from softgym_envs.engines.threads import in_threads
from softgym_envs.engines.warp import engine as warp_engine


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
