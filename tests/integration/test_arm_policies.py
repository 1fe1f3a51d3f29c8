"""Committed policies of the arm's ids reach goals in both worlds, with noise and delay too."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.learning.evaluation import evaluate
from agents.learning.policy import load_policy, observed_with

ROWS = 16
NOISY = {"sensor_noise": 0.02, "action_latency": 0.04}


def reached(env_id, **keywords):
    """How many of `ROWS` episodes succeed."""
    file = Path(f"agents/policies/{env_id}.npz")
    policy = load_policy(file)
    made = f"softgym_envs:{env_id.partition('+')[0]}"
    return int(evaluate(policy, made, episodes=ROWS, seed=50, keywords=observed_with(file) | keywords).success.sum())


@pytest.mark.parametrize(
    ("env_id", "least"), [("ArmReach-v0", ROWS - 4), ("ArmHold-v0", ROWS - 6), ("UpperBodyReach-v0", ROWS - 4)]
)
@pytest.mark.parametrize("keywords", [{}, NOISY, {"backend": "mujoco"}])
def test_the_policies_reach_goals(env_id, least, keywords):
    """ArmReach's succeeds in 95 %, ArmHold's in 89 %, UpperBodyReach's in 97 % at least: more failures are rare."""
    assert reached(env_id, **keywords) >= least


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_the_policy_of_muscles_reaches_most_goals(backend):
    """It succeeds in 98 % in our engine and in 92 % of 164 episodes from four seeds on the MuJoCo model, without noise and
    delay."""
    assert reached("UpperBodyReach-v0+muscles", backend=backend) >= ROWS - 7
