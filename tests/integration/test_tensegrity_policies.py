"""Committed policies of TensegrityRoll and TensegrityCrawl, in both worlds; and the heuristics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agents import pretrained
from agents.learning.evaluation import evaluate, evaluate_controller, zero
from softgym_envs.systems import system
from softgym_envs.systems.tensegrity.crawling import FACTORS, TERMS, crawling
from softgym_envs.systems.tensegrity.model import prism

ROWS = 24
NOISY = {"sensor_noise": 0.02, "action_latency": 0.2}
MUJOCO_MODEL = {"backend": "mujoco"}


@pytest.mark.parametrize("keywords", [{}, NOISY, {**NOISY, "action_latency": 0.1}, MUJOCO_MODEL, {**MUJOCO_MODEL, **NOISY}])
def test_the_policy_rolls(keywords):
    """At most six of 24 episodes fail; where nine of ten succeed, more do in 1 of 100 sets of seeds, and this is one set."""
    policy = pretrained("TensegrityRoll-v0")
    given = {**policy.keywords, **keywords}
    found = evaluate(policy, "softgym_envs:TensegrityRoll-v0", episodes=ROWS, seed=50, keywords=given)
    assert not found.failed.any()
    assert int(found.success.sum()) >= ROWS - 6


@pytest.mark.parametrize(("speed", "least"), [(0.9, ROWS - 6), (1.4, ROWS - 6), (0.5, 0)])
def test_the_policy_rolls_at_about_one_metre_per_second(speed, least):
    """Told 0.9 to 1.5 m/s it does what it is told; told half as much it rolls on at 1.1 m/s, and does not succeed."""
    policy = pretrained("TensegrityRoll-v0")
    given = {**policy.keywords, "target_speed": speed}
    found = evaluate(policy, "softgym_envs:TensegrityRoll-v0", episodes=ROWS, seed=50, keywords=given)
    assert int(found.success.sum()) >= least if least else int(found.success.sum()) <= 6


@pytest.mark.parametrize(
    ("env_id", "speed"),
    [("TensegrityRoll-v0", 0.3), ("TensegrityRoll-v0", 0.6), ("TensegrityRoll-v0", 0.0), ("TensegrityTerrain-v0", 0.5)],
)
def test_the_heuristic_keeps_the_commanded_speed(env_id, speed):
    """Success, and more reward than for standing still, where the reward averages over the jerks; also at rest."""
    heuristic = system("tensegrity").controllers_of(env_id)["heuristic"]
    given: dict[str, Any] = {"episodes": 12, "seed": 50, "keywords": {"target_speed": speed, "averaging_time": 1.0}}
    found = evaluate_controller(heuristic, f"softgym_envs:{env_id}", **given)
    standing = evaluate_controller(zero, f"softgym_envs:{env_id}", **given)
    assert int(found.success.sum()) >= 9
    assert int(standing.success.sum()) == (12 if speed == 0 else 0)
    assert speed == 0 or (found.returns > standing.returns).all()


@pytest.mark.parametrize("keywords", [{}, {"params": "experiments/policies/superball_fit.toml"}, MUJOCO_MODEL])
def test_the_heuristic_rolls(keywords):
    """With the usual contacts, with soft ones in our engine (40 of 48) and on the MuJoCo model, whose contacts are soft."""
    heuristic = system("tensegrity").controllers_of("TensegrityRoll-v0")["heuristic"]
    found = evaluate_controller(heuristic, "softgym_envs:TensegrityRoll-v0", episodes=12, seed=50, keywords=keywords)
    assert not found.failed.any()
    assert int(found.success.sum()) >= (6 if keywords else 11)


@pytest.mark.parametrize(("keywords", "least"), [({}, 16), (NOISY, 16), (MUJOCO_MODEL, 12), ({**MUJOCO_MODEL, **NOISY}, 12)])
def test_the_policy_crawls(keywords, least):
    """Where 89 of 100 succeed (76 on the MuJoCo model), fewer of 24 do in 1 of 400 sets of seeds, and this is one set."""
    policy = pretrained("TensegrityCrawl-v0")
    given = {**policy.keywords, **keywords}
    found = evaluate(policy, "softgym_envs:TensegrityCrawl-v0", episodes=ROWS, seed=50, keywords=given)
    assert not found.failed.any()
    assert int(found.success.sum()) >= least


def test_the_crawling_heuristic_crawls_in_our_engine():
    """87 of 100 do; of 24 fewer than 16 would in 1 of 200 sets of seeds. It earns more than standing still."""
    heuristic = system("tensegrity").controllers_of("TensegrityCrawl-v0")["heuristic"]
    found, idle = (
        evaluate_controller(controller, "softgym_envs:TensegrityCrawl-v0", episodes=ROWS, seed=50)
        for controller in (heuristic, zero)
    )
    assert not found.failed.any() and int(found.success.sum()) >= 16
    assert found.returns.mean() > idle.returns.mean() + 20.0


def test_the_crawling_heuristic_does_not_care_which_end_of_a_cable_comes_first():
    """Nor is a term without a factor."""
    model, observation = prism(), np.random.default_rng(0).normal(size=(5, 46))
    turned = replace(model, cables=tuple((b, a) for a, b in model.cables))
    small = 0.02 * np.array(list(FACTORS.values()))  # so that no action is clipped
    actions = crawling(model, observation, small)
    assert tuple(FACTORS) == TERMS
    assert np.abs(actions).max() < 1.0
    assert crawling(turned, observation, small) == pytest.approx(actions, abs=1e-12)
