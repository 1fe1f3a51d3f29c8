"""Every id needs its robot: doing nothing and acting at random do not succeed, somebody does, and levels are in order."""

from pathlib import Path

import pytest

from agents.learning.evaluation import evaluate_controller, uniform, zero
from agents.study.statistics import share
from softgym_envs.core.files import read_json
from softgym_envs.rooms import tasks

CARDS = {path.stem: read_json(path)["runs"] for path in (Path(__file__).parents[1] / "results" / "task_cards").glob("*.json")}
IDS = [task.id for task in tasks()]
EPISODES = 16
LIMITS = {"zero": 0.05, "random": 0.2}


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(("name", "controller"), [("zero", zero), ("random", uniform)])
def test_who_does_not_look_does_not_succeed(env_id, name, controller):
    """A share beyond the limit is ruled out where the interval of the episodes seen is beyond it."""
    found = evaluate_controller(controller, f"softgym_envs:{env_id}", episodes=EPISODES, seed=77)
    assert share(int(found.success.sum()), EPISODES).low <= LIMITS[name]


def lines(env_id, backend, level=None):
    """Who was measured there, at the level or at the easiest one."""
    levels = (None, 1.0) if level is None else (level,)
    return {run["controller"] for run in CARDS[env_id] if run["backend"] == backend and run["level"] in levels}


@pytest.mark.parametrize("env_id", IDS)
def test_cards_keep_the_limits(env_id):
    """On every world and level that was measured; both worlds have been, at the easiest."""
    for backend in ("native", "mujoco"):
        assert set(LIMITS) <= lines(env_id, backend), backend
    for run in CARDS[env_id]:
        if run["controller"] in LIMITS:
            assert run["success"] < LIMITS[run["controller"]], run


@pytest.mark.parametrize("env_id", IDS)
def test_the_twin_has_been_tried_by_everybody(env_id):
    """Who was measured in our engine was measured on the twin: sampling MPC where it is affordable."""
    assert lines(env_id, "native") - {"mpc"} <= lines(env_id, "mujoco")


@pytest.mark.parametrize("env_id", IDS)
def test_levels_are_monotone(env_id):
    """Nobody does better at a higher level than chance allows: the intervals overlap, or the order is right."""
    runs = [run for run in CARDS[env_id] if run["level"] is not None]
    for run in runs:
        for other in runs:
            if all(run[key] == other[key] for key in ("backend", "controller")) and other["level"] > run["level"]:
                assert other["success_95"][0] <= run["success_95"][1], (run, other)
    if runs:
        assert lines(env_id, "native", 1.0) == lines(env_id, "native", 2.0) == lines(env_id, "native", 3.0)


@pytest.mark.parametrize("env_id", IDS)
def test_somebody_who_looks_succeeds(env_id):
    """Of the easiest level: who knows the robot reaches at least nine of ten goals, and who is blind less than half of that."""
    easy = [run for run in CARDS[env_id] if run["level"] in (None, 1.0)]
    seeing = [run for run in easy if run["controller"] in ("planner", "heuristic", "mpc") and run["backend"] == "native"]
    assert max(run["success"] for run in seeing) >= 0.9, seeing
    for run in easy:
        if run["controller"] == "blind" or run["controller"].startswith("policy of"):
            assert run["success"] <= 0.45, run
