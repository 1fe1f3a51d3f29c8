"""Warp must give a known answer before it is believed, and what it gets wrong is refused."""

from pathlib import Path

import numpy as np
import pytest
import warp as wp

from softgym_envs.core import warp_buffers, warp_check, warp_engine
from softgym_envs.core.errors import DependencyError
from softgym_envs.core.warp_check import Answer, check_version, known_answer, note_path, question, reference
from softgym_envs.core.warp_engine import RECORDED, Program, WarpEngine


@pytest.fixture
def unbelieved(monkeypatch, tmp_path):
    """As if this version of Warp had never been asked on this machine; what it compiles stays where it is."""
    monkeypatch.setattr(warp_check, "_believed", set())
    monkeypatch.setattr(warp_check, "note_path", lambda: tmp_path / "note")
    return tmp_path / "note"


def solved():
    engine = WarpEngine(Program(warp_check.check_kernel, warp_check.MEMORY), warp_check.structure(), 21, 1, 2)
    asked = question()
    gradient = engine.vjp(*asked[:3], warp_check.SUBSTEPS, asked.cotangent)
    return engine, Answer(gradient.states, gradient.state, gradient.controls, gradient.constants)


def test_the_known_answer_is_the_kernels_and_its_derivative_that_of_differences():
    engine, found = solved()
    known = known_answer(question())
    for a, b in zip(found, known, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13 * np.abs(b).max())
    states, _ = engine.rollout(*question()[:3], warp_check.SUBSTEPS)
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
    """A slack spring, a wound one and a control beyond its bound; every constant, control and rod matters."""
    asked, known = question(), known_answer(question())
    rods = asked.state[0, :-1].reshape(-1, 10)
    ends = np.concatenate([[p[:3] - a, p[:3] + a] for p, a in ((rod, warp_check._axis(rod[3:7])) for rod in rods)])
    lengths = np.linalg.norm(ends[list(warp_check.SECOND)] - ends[list(warp_check.FIRST)], axis=1)
    stretched = lengths > asked.constants[0, 1] - np.array(warp_check.WOUND) * asked.state[0, -1]
    assert stretched.any() and not stretched.all()
    assert known.controls[0, 0, 0] != 0.0 == known.controls[0, 1, 0]
    assert (known.constants != 0).all() and (known.state[0] != 0).all()


def test_it_is_asked_once_and_remembered(unbelieved, monkeypatch):
    asked = []

    def solve(given):
        asked.append(given)
        return known_answer(given)

    warp_check.require_known_answer(solve)
    warp_check.require_known_answer(solve)
    assert len(asked) == 1 and unbelieved.exists()
    monkeypatch.setattr(warp_check, "_believed", set())  # the next process
    warp_check.require_known_answer(solve)
    assert len(asked) == 1
    with warp_engine.LOADING:
        unbelieved.unlink()
        warp_engine.believe_warp(RECORDED)
    assert unbelieved.exists()


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("wrong", [1e-6, np.nan])
def test_a_wrong_answer_is_refused_and_not_remembered(unbelieved, part, wrong):
    def solve(given):
        answer = [value.copy() for value in known_answer(given)]
        answer[part].flat[0] += wrong
        return Answer(*answer)

    for _ in range(2):
        with pytest.raises(DependencyError, match=f"Warp {wp.__version__} computes wrong results") as caught:
            warp_check.require_known_answer(solve)
        assert ("states" if part == 0 else "gradient") in str(caught.value) and "\n" not in str(caught.value)
    assert not unbelieved.exists()


def test_internals_that_a_later_warp_changed_are_refused_in_one_sentence(unbelieved, monkeypatch):
    monkeypatch.setattr(warp_buffers, "Packed", lambda launch: launch.no_such_field)
    with warp_engine.LOADING, pytest.raises(DependencyError, match=r"does not run our kernels \(AttributeError: .*no_such"):
        warp_engine.believe_warp(RECORDED)


def test_a_launch_that_leaves_out_the_adjoint_is_refused(unbelieved, monkeypatch):
    class Forgetful(warp_buffers.Packed):
        def _call(self):
            return (lambda: None) if self.launch.adjoint else super()._call()

    monkeypatch.setattr(warp_buffers, "Packed", Forgetful)
    with warp_engine.LOADING, pytest.raises(DependencyError, match="the gradient of controls off by"):
        warp_engine.believe_warp(RECORDED)


def test_an_unwritable_cache_is_no_error(unbelieved, monkeypatch):
    def refuse(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr(warp_check, "write_atomically", refuse)
    warp_check.require_known_answer(known_answer)
    assert not unbelieved.exists()
    monkeypatch.setattr(warp_check, "_believed", set())
    warp_check.require_known_answer(refuse)  # nothing can be compiled there, then


def test_the_note_is_for_one_version_and_one_machine(monkeypatch):
    first = note_path()
    assert first.parent == Path(wp.config.kernel_cache_dir)
    monkeypatch.setattr(wp, "__version__", "9.9.9")
    second = note_path()
    monkeypatch.setattr("platform.node", lambda: "another")
    assert len({first, second, note_path()}) == 3


@pytest.mark.parametrize("version", ["1.9.0", "1.18.0", "0.15.1", "1.2.0.dev1"])
def test_old_versions_are_refused(version):
    with pytest.raises(DependencyError, match=f"Warp is {version}, needed is 1.19 or later"):
        check_version(version)


@pytest.mark.parametrize("version", ["1.19.0", "1.20.0.dev20270101", "2.0"])
def test_later_versions_are_asked(version):
    check_version(version)


def test_the_oldest_version_is_that_of_the_package():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert f'"warp-lang>={warp_check.OLDEST}"' in text
