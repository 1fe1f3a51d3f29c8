"""Warp gives the known answer of a small model, states and gradients; versions that do not are refused."""

from pathlib import Path

import numpy as np
import pytest
from oracles import warp_answer
from oracles.warp_answer import Answer, known_answer, question, reference

from softgym_envs.core.errors import DependencyError
from softgym_envs.engines.warp.buffers import Buffers, KernelProgram, LaneBuffers
from softgym_envs.engines.warp.engine import OLDEST, WarpEngine, check_version
from softgym_envs.systems import system


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
