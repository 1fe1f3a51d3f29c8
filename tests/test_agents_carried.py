"""A policy that is carried over to another task acts as it does in its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from agents.learning.carried import carried
from agents.learning.evaluation import evaluate
from agents.learning.policy import load_policy, observed_with, policy_of
from softgym_envs.core.errors import OptionError

ROOT = Path(__file__).parents[1]
POLICIES = ROOT / "agents/policies"
ROLL = POLICIES / "TensegrityRoll-v0.npz"
ROWS = 12


def task(names, given=0, actions=24):
    """What `carried` reads of an environment."""
    size = len(names) + given
    return SimpleNamespace(
        task=SimpleNamespace(entries=[SimpleNamespace(name=name) for name in names]),
        single_observation_space=gym.spaces.Box(-1e4, 1e4, (size,), np.float32),
        single_action_space=gym.spaces.Box(-1.0, 1.0, (actions,), np.float32),
    )


def test_a_carried_policy_acts_as_its_source_where_both_observe_the_same():
    """Entries in another order, one with an offset, one that the source does not know; the actions given last stay last."""
    names = [f"e{i}" for i in range(100)]
    source, target = task(names, 72), task(["new", *names[:1:-1], "moved", "halved"], 72)
    model = carried(ROLL, source, target, {"e0": ("moved", -1.5), "e1": ("halved", 0.5, 2.0)})
    seen = np.random.default_rng(0).normal(size=(5, 172)).astype(np.float32)
    moved, halved = seen[:, :1] + 1.5, (seen[:, 1:2] - 0.5) / 2
    other = np.concatenate([np.full((5, 1), 7.0), seen[:, 99:1:-1], moved, halved, seen[:, 100:]], axis=1)
    np.testing.assert_allclose(policy_of(model)(other), load_policy(ROLL)(seen), atol=1e-4)


def test_what_the_target_does_not_observe_is_named():
    """And other actions are refused."""
    names = [f"e{i}" for i in range(172)]
    with pytest.raises(OptionError, match="does not observe e171"):
        carried(ROLL, task(names), task(names[:-1]))
    with pytest.raises(OptionError, match="actions differ"):
        carried(ROLL, task(names), task(names, actions=3))


@pytest.mark.parametrize(
    "env_id, entry, offset, factor", [("TensegrityWaypoint-v0", 97, -1.0, 1.0), ("TensegrityTerrain-v0", 100, 0.1, 4.0)]
)
def test_the_files_are_the_roll_policy(env_id, entry, offset, factor):
    """The committed files act as that policy does when it is told the same."""
    file = POLICIES / f"{env_id}.npz"
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=3, **observed_with(file)).unwrapped
    seen, _ = envs.reset(seed=1)
    seen = np.asarray(seen, dtype=np.float32)
    entries = len(envs.task.entries)
    told = np.concatenate([seen[:, :100], seen[:, entries:]], axis=1)
    told[:, 97] = factor * seen[:, entry] + offset
    np.testing.assert_allclose(load_policy(file)(seen), load_policy(ROLL)(told), atol=1e-4)


@pytest.mark.parametrize("env_id, least", [("TensegrityWaypoint-v0", ROWS - 4), ("TensegrityTerrain-v0", ROWS - 4)])
def test_carried_policies_do_the_tasks(env_id, least):
    """In our engine nine of ten succeed: more than four failures of twelve happen in less than 1 of 200 sets of seeds."""
    file = POLICIES / f"{env_id}.npz"
    policy = load_policy(file)
    found = evaluate(policy, f"softgym_envs:{env_id}", episodes=ROWS, seed=50, keywords=observed_with(file))
    assert int(found.success.sum()) >= least
