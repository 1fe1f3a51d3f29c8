"""Mistakes of a newcomer: each ends in a sentence that names the method, the parameter or the file, never in a crash. The
system is that of the first tutorial. A mistake is a replacement in one of its files, and words of the sentence. Systems
that are added by hand: bad paths, and names and ids that another system has, are refused."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import softgym_envs
from softgym_envs.core.conformance import PROMISES, Inputs, case_of
from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.envs.conformance import declaration, procedure
from softgym_envs.envs.making import make_episodes
from softgym_envs.systems import system, systems
from softgym_envs.templates import new_system

pytest.importorskip("mujoco")
NAME = "elastic_pendulum"


class Mistake(NamedTuple):
    file: str
    old: str
    new: str
    said: str
    """Words of the sentence."""


STEP = "return np.where(failed, state, after), failed[:, 0].astype(np.int32)"
REWARD = """return {"place": -(self.model.bob(next_state)[:, 0] ** 2), "speed": -0.01 * (next_state[:, 3:] ** 2).sum(axis=1)}"""
SUCCESS = "return np.abs(self.model.bob(state)[:, 0]) < 0.1"
OWN = "    def success("
MISTAKES = {
    # physics
    "step returns half of the state": Mistake(
        "dynamics", "np.where(failed, state, after),", "np.where(failed, state, after)[:, :3],",
        r"PendulumSimulator\._step returned float64 of shape \(\d, 3\), expected float64 of shape \(\d, 6\)",
    ),
    "step returns no status": Mistake(
        "dynamics", STEP, "return np.where(failed, state, after)", r"_step returned float64 .*, expected a tuple of 2 arrays"
    ),
    "step returns nothing": Mistake("dynamics", STEP, "pass", "_step returned NoneType None, expected a tuple of 2"),
    "status is a flag": Mistake("dynamics", ".astype(np.int32)", "", r"_step returned bool .*, expected int32 of shape"),
    "status is unknown": Mistake(
        "dynamics", ".astype(np.int32)", ".astype(np.int32) + 7", r"_step returned the status 7, allowed are 0 \(OK\), 1"
    ),
    "step computes in float32": Mistake(
        "dynamics", "np.where(failed, state, after),", "np.where(failed, state, after).astype(np.float32),",
        r"_step returned float32 .*, expected float64",
    ),
    "step works in place": Mistake("dynamics", "state.copy()", "state", "_step writes into its argument 'state'"),
    "step draws random numbers": Mistake(
        "dynamics", "failed = ~", "after += 1e-9 * np.random.default_rng().normal(size=after.shape)\n        failed = ~",
        "step gives other numbers at a second call",
    ),
    "step uses the parameters of the first row": Mistake(
        "dynamics", "*parameter_values.T", "*parameter_values[0]", r"PendulumSimulator\._step raised IndexError"
    ),
    "step hides a failure": Mistake(
        "dynamics", STEP, "return after, np.zeros(len(state), np.int32)", r"speeds of 1e\+09 in row 1 give status \[0, 0,"
    ),
    "step returns NaN": Mistake(
        "dynamics", STEP, "return after * np.nan, np.zeros(len(state), np.int32)", "step returns NaN with status 0"
    ),
    "nothing moves": Mistake("dynamics", STEP, "return state.copy(), np.zeros(len(state), np.int32)", "nothing moves"),
    # structure
    "a unit that is not SI": Mistake("model", '("theta", "rad")', '("theta", "deg")', "theta is in 'deg'; a layout holds SI"),
    "two entries of one name": Mistake("model", '("w", "rad/s")', '("r", "rad/s")', "two entries of a state are called 'r'"),
    "a rest state without speeds": Mistake(
        "model", "self.rest_length, 0.0, 0.0, 0.0]", "self.rest_length]", r"PendulumModel\.rest_state returned .* \(3,\)"
    ),
    "a rest state of whole numbers": Mistake(
        "model", "[0.0, 0.0, self.rest_length, 0.0, 0.0, 0.0]", "[0, 0, 1, 0, 0, 0]", "rest_state returned int64"
    ),
    "bounds the wrong way": Mistake("model", "[-10.0]), np.array([10.0]", "[10.0]), np.array([-10.0]", "lower < upper"),
    "one unit too many": Mistake("model", '("N",)', '("N", "N")', "control_units are .* expected one per name: force"),
    # parameters
    "a value out of bounds": Mistake("parameters", "param(0.5,", "param(50.0,", r"default 50\.0 and bounds \(0\.05, 5\.0\)"),
    "text for a number": Mistake("parameters", "param(0.5,", 'param("0.5",', "default '0.5'"),
    "a log scale from zero": Mistake("parameters", "bounds=(0.05, 5.0)", "bounds=(0.0, 5.0)", "'log' with positive bounds"),
    # task
    "success is a distance": Mistake(
        "tasks", " < 0.1", "", r"CatchSwing\.success returned float64 of shape \(1,\), expected booleans of shape \(1,\)"
    ),
    "success is one flag": Mistake("tasks", " < 0.1", ".max() < 0.1", r"success returned bool (True|False|np\.\w+), expected"),
    "reward is an array": Mistake("tasks", REWARD, "return np.zeros(len(state))", "reward returned float64 .* expected a dict"),
    "reward is a number": Mistake("tasks", REWARD, 'return {"place": -1.0}', r"reward, entry 'place', returned float -1\.0"),
    "reward is a column": Mistake(
        "tasks", "[:, 0] ** 2)", "[:, :1] ** 2)", r"reward, entry 'place', returned float64 of shape \(1, 1\)"
    ),
    "reward is NaN": Mistake(
        "tasks", '"place": -(', '"place": np.nan * (', r"reward, entry 'place', returned nan at index \(0,\), expected finite"
    ),
    "reward works in place": Mistake(
        "tasks", "        return {", "        next_state[:, 3:] *= 2.0\n        return {",
        r"CatchSwing\.reward writes into its argument 'next_state'",
    ),
    "reset returns the state alone": Mistake(
        "tasks", ", np.zeros((len(state), 0))", "", r"CatchSwing\.reset returned float64 .*, expected a tuple of 2 arrays"
    ),
    "reset returns a context that no name has": Mistake(
        "tasks", "np.zeros((len(state), 0))", "np.zeros((len(state), 1))", r"reset returned float64 of shape \(1, 1\), expected"
    ),
    "a task without success": Mistake("tasks", "def success", "def succeeds", "CatchSwing lacks success"),
    "a task's function without a task": Mistake("tasks", "return CatchSwing(model)", "return model", r"tasks:catch: .* lacks"),
    "an observation that is a view": Mistake(
        "tasks", OWN, "    def observe(self, state, context):\n        return state[:, :6]\n\n" + OWN,
        r"CatchSwing\.observe returned a view of an argument",
    ),
    "an observation without speeds": Mistake(
        "tasks", OWN, "    def observe(self, state, context):\n        return state[:, :3].copy()\n\n" + OWN,
        r"CatchSwing\.observe returned float64 of shape \(1, 3\), expected float64 of shape \(1, 6\)",
    ),
    "an action that is no control": Mistake(
        "tasks", OWN, "    def scale_action(self, action):\n        return 10.0 * action[:, 0]\n\n" + OWN,
        r"CatchSwing\.scale_action returned float64 of shape \(1,\), expected float64 of shape \(1, 1\)",
    ),
    # procedure, picture, declaration
    "a stage that frees what is not there": Mistake(
        "procedure", '("bob_mass",', '("mass",', "stage 'all': free names mass; PendulumParameters has bob_mass"
    ),
    "a guess out of bounds": Mistake("procedure", '"stiffness": 100.0', '"stiffness": 1.0', r"stiffness = 1\.0 N/m, allowed"),
    "a method that is not there": Mistake("procedure", '"one_step"', '"two_step"', "method 'two_step'; there are one_step"),
    "a weight without its feature": Mistake("procedure", "states)[..., :1]", "states)", r"features have shape \(1, 2\)"),
    "a scenario of an unknown id": Mistake("procedure", '{"ElasticCatch-v0"', '{"ElasticCatch-v1"', "the ids of elastic"),
    "a picture that is no scene": Mistake("picture", "return Scene(", "return (", "scene returned tuple, expected a Scene"),
    "a path that leads nowhere": Mistake("__init__", "picture:PICTURE", "picture:IMAGE", "IMAGE' is not the path of an"),
}  # fmt: skip


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tutorial's package in a folder, not yet imported."""
    new_system(NAME, tmp_path)
    monkeypatch.syspath_prepend(tmp_path / NAME)
    yield tmp_path / NAME / NAME
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def used() -> None:
    """What `check` does first: an environment that steps, and the promises of every backend."""
    found = system(f"{NAME}:SYSTEM")
    for backend in ("native", *found.ground_truths):
        episodes = make_episodes(found, "ElasticCatch-v0", [np.random.default_rng(0)], {"backend": backend})
        episodes.reset(np.arange(1))
        episodes.step(np.ones((1, 1)))
    declaration(found)
    procedure(found, (), ("one_step",))
    for backend in ("native", *found.ground_truths):
        case = case_of(lambda backend=backend: found.simulator(backend=backend), Inputs())
        for promise in PROMISES:
            promise(case)


def test_without_a_mistake_all_is_well(written: Path) -> None:
    used()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_in_a_sentence(written: Path, name: str) -> None:
    mistake = MISTAKES[name]
    file = written / f"{mistake.file}.py"
    text = file.read_text("utf-8")
    assert mistake.old in text
    file.write_text(text.replace(mistake.old, mistake.new), "utf-8")
    with pytest.raises(SoftgymError, match=mistake.said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        used()


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module for systems of somebody else."""
    module = types.ModuleType("systems_of_somebody_else")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "elbow_of_mine"}, "has an id of system 'arm': ArmHold-v0, ArmReach-v0"),
        ({"tasks": ()}, "has the name of another system"),
    ],
)
def test_names_and_ids_of_another_system_are_refused(other: Any, changes: dict[str, Any], words: str) -> None:
    """Before, an id that was there already stayed the other system's, and nothing said so."""
    other.SYSTEM, before = replace(system("arm"), **changes), set(systems())
    with pytest.raises(OptionError, match=words):
        softgym_envs.add_system("systems_of_somebody_else:SYSTEM")
    assert set(systems()) == before


def test_a_system_that_is_no_path_is_refused() -> None:
    wrong: Any = system("vine")
    with pytest.raises(OptionError, match="path is a System, expected text"):
        softgym_envs.add_system(wrong)


OTHER = [path for entry in systems().values() for path in (entry.engine, *entry.ground_truths.values())]


@pytest.mark.parametrize("name", systems())
def test_a_simulator_of_another_system_is_no_backend(name: str) -> None:
    """Before, some were taken, with the names of the model that they were given; others ended in an AttributeError."""
    own = system(name)
    for path in set(OTHER) - {own.engine, *own.ground_truths.values()}:
        with pytest.raises(OptionError, match=f"is a simulator of system '[a-z_]+', this is {name!r}"):
            own.simulator(backend=path)


@pytest.mark.parametrize("path", ["math:pi", "os:path", "builtins:dict", "builtins:print", "numpy:array", "operator:neg"])
def test_what_makes_no_simulator_is_no_backend(path: str) -> None:
    with pytest.raises(OptionError, match=f"backend '{path}'"):
        system("block").simulator(backend=path)
