"""The public functions of `agents`: what the commands do not show, and that commands and Python give equal bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import load_script, run_main

import agents
from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.systems import system

FEW = {"horizon": 3, "iterations": 1, "period": 0.02}


@pytest.mark.parametrize("method", ["ilqg", "gps"])
def test_a_plan_of_an_id_starts_at_its_start_and_is_repeatable(method: str) -> None:
    first, again = (agents.plan("ArmReach-v0", method=method, **FEW) for _ in range(2))
    np.testing.assert_array_equal(first.controls, again.controls)
    assert first.horizon == 3 and np.isfinite(first.cost)


def test_an_optimal_motion_ends_where_it_is_told() -> None:
    pytest.importorskip("casadi")
    start = system("arm").simulator().initial_state(1)[0]
    end = np.array([start[0] + 0.3, 0.0, np.nan, np.nan])
    found = agents.plan("ArmReach-v0", method="optimal", end=end, horizon=25, period=0.02)
    assert found.solved and found.states[-1][:2] == pytest.approx(end[:2], abs=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "guess"}, "method is 'guess', allowed are 'ilqg', 'gps', 'optimal'"),
        ({"method": "optimal"}, "end is None"),
        ({"horizon": 0}, "horizon is 0"),
        ({"period": 0.0151}, "period is 0.0151 s, expected a whole number of physics steps"),
    ],
)
def test_what_no_plan_can_be_is_named(given: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        agents.plan("ArmReach-v0", **{**FEW, **given})


def test_the_command_evaluates_as_python_does(tmp_path: Path) -> None:
    script, out = load_script("scripts/evaluate.py"), tmp_path / "found.json"
    args = script.Args("pretrained", "SlidingBlock-v0", backend="native", episodes=3, out=out)
    assert run_main(script, args) == 0
    found = agents.evaluate("pretrained", "SlidingBlock-v0", episodes=3)
    assert json.loads(out.read_text())["native"] == found.table()


def test_a_controller_of_my_own_is_evaluated_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and Python take "module:function"; it equals the same function given as a policy."""
    lines = ["import numpy as np", "def right(envs):", "    return lambda seen: np.tile([1.0, 0.5], (len(seen), 1))"]
    more = ["def wide(envs):", "    return lambda seen: np.zeros((len(seen), 9))", "def empty(envs):", "    pass", "number = 3"]
    (tmp_path / "my_controllers.py").write_text("\n".join(lines + more))
    monkeypatch.syspath_prepend(str(tmp_path))
    script, out = load_script("scripts/evaluate.py"), tmp_path / "found.json"
    args = script.Args("my_controllers:right", "SlidingBlock-v0", backend="native", episodes=2, out=out)
    assert run_main(script, args) == 0
    found = agents.evaluate(lambda seen: np.tile([1.0, 0.5], (len(seen), 1)), "SlidingBlock-v0", episodes=2)
    assert json.loads(out.read_text())["native"] == found.table()
    for name, error, message in (
        ("my_controllers:other", OptionError, "is not the path of an object"),
        ("my_controllers:number", OptionError, r"policy 'my_controllers:number' is 3, expected a function \(envs\) -> "),
        ("my_controllers:empty", OptionError, "policy 'my_controllers:empty' made None, expected a function"),
        ("my_controllers:wide", ShapeError, r"\(2, 9\)"),
    ):
        with pytest.raises(error, match=message):
            agents.evaluate(name, "SlidingBlock-v0", episodes=2)
