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


@pytest.mark.parametrize("env_id", IDS)
def test_cards_keep_the_limits(env_id):
    """On every world and level that was measured; our engine has been, at the easiest."""
    runs = [(run["controller"].rpartition(": ")[2], run) for run in CARDS[env_id]]  # "option: controller"
    runs = [(name, run) for name, run in runs if name in LIMITS]
    assert {name for name, run in runs if run["backend"] == "native" and run["level"] in (None, 1.0)} == set(LIMITS)
    for name, run in runs:
        assert run["success"] < LIMITS[name], run


@pytest.mark.parametrize("env_id", IDS)
def test_levels_are_monotone(env_id):
    """Nobody does better at a higher level than chance allows: the intervals overlap, or the order is right."""
    for run in CARDS[env_id]:
        for other in CARDS[env_id]:
            same = all(run[key] == other[key] for key in ("backend", "controller"))
            if same and run["level"] is not None and other["level"] is not None and other["level"] > run["level"]:
                assert other["success_95"][0] <= run["success_95"][1], (run, other)


@pytest.mark.parametrize("env_id", IDS)
def test_somebody_who_looks_succeeds(env_id):
    """Of the easiest level: who knows the robot reaches at least nine of ten goals, and who is blind less than half of that."""
    easy = [run for run in CARDS[env_id] if run["level"] in (None, 1.0)]
    seeing = [run for run in easy if run["controller"] in ("planner", "heuristic", "mpc") and run["backend"] == "native"]
    assert max(run["success"] for run in seeing) >= 0.9, seeing
    for run in easy:
        if run["controller"].endswith("blind") or run["controller"].startswith("policy of"):
            assert run["success"] <= 0.45, run
