"""How the shipped policies were taught: in several worlds at once, by imitation, from another task."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script

pytest.importorskip("stable_baselines3")

from agents.learning.evaluation import evaluate, zero
from agents.learning.policy import load_policy, policy_of
from agents.learning.rl import Training
from agents.learning.vec_env import SB3VecEnv
from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.systems import system_of_task

TEACHING = load_script("experiments/policies/teaching.py")
Imitation, Lesson, SideBySide = TEACHING.Imitation, TEACHING.Lesson, TEACHING.SideBySide
carried, imitate = TEACHING.carried, TEACHING.imitate
ROOT = Path(__file__).parents[2]
ID, STEPS = "softgym_envs:TensegrityRoll-v0", 4
OWN = system_of_task(ID).learning_of("TensegrityRoll-v0", "ppo")
SAME = {"net_arch": {"pi": [48, 48], "vf": [48, 48]}}
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
    policy = load_policy(file)
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=3, **policy.keywords).unwrapped
    seen, _ = envs.reset(seed=1)
    seen = np.asarray(seen, dtype=np.float32)
    entries = len(envs.task.entries)
    told = np.concatenate([seen[:, :100], seen[:, entries:]], axis=1)
    told[:, 97] = factor * seen[:, entry] + offset
    np.testing.assert_allclose(policy(seen), load_policy(ROLL)(told), atol=1e-4)


@pytest.mark.parametrize("env_id, least", [("TensegrityWaypoint-v0", ROWS - 4), ("TensegrityTerrain-v0", ROWS - 4)])
def test_carried_policies_do_the_tasks(env_id, least):
    """In our engine nine of ten succeed: more than four failures of twelve happen in less than 1 of 200 sets of seeds."""
    file = POLICIES / f"{env_id}.npz"
    policy = load_policy(file)
    found = evaluate(policy, f"softgym_envs:{env_id}", episodes=ROWS, seed=50, keywords=policy.keywords)
    assert int(found.success.sum()) >= least


def test_one_policy_learns_in_several_worlds_and_looks_at_its_own_actions(tmp_path):
    """A shared network of motors sees what each motor was told last; the policy that is saved takes what is observed."""
    quick = {**OWN, "n_steps": 8, "n_epochs": 1, "batch_size": 32}
    worlds = ({"action_latency": 0.0}, {"action_latency": 0.2})
    run = Training(ID, 64, keywords={"max_episode_steps": 8, "action_memory": 3}, num_envs=4, overrides=quick)
    lesson, given = Lesson(run, worlds), {"resume": False, "report": None, "pupil": None}
    model = lesson.learn(tmp_path, **given)
    views, motors = model.policy.views, 24
    assert views.shape[1] == motors and lesson.make().num_envs == 4
    for way in views:
        for motor, seen in enumerate(way):
            assert list(seen[-3:]) == [100 + k * motors + motor for k in range(3)]  # oldest first; 100 is the task's own
    policy = load_policy(tmp_path / "policy.zip")
    assert policy.keywords == {"action_memory": 3}
    observation = np.random.default_rng(0).normal(size=(4, 100 + 3 * motors)).astype(np.float32)
    np.testing.assert_allclose(policy(observation), policy_of(model)(observation), atol=1e-5)
    pupil = imitate(Imitation(ID, 2, 1, 4, run.keywords, hidden=(48, 48), shared=True, updates=2), lambda envs: zero(envs))
    later = dataclasses.replace(run, overrides={**quick, "policy_kwargs": {**SAME, "log_std_init": -1.0}})
    learned = Lesson(later, worlds, critic_first=1000).learn(None, **{**given, "pupil": pupil}).policy
    for name, value in pupil.policy.state_dict().items():  # the critic learned, the actor waits for it
        changed = not np.array_equal(learned.state_dict()[name], value)
        assert changed == ("critic" in name or "value" in name or name == "log_std"), name
    assert learned.log_std.mean().item() == pytest.approx(-1.0)
    with pytest.raises(FileFormatError, match="belongs to another run"):
        Lesson(dataclasses.replace(run, steps=128), worlds[::-1]).learn(tmp_path, **{**given, "resume": True})
    with pytest.raises(OptionError, match="num_envs is 5, allowed are multiples of the 2 variants"):
        Lesson(dataclasses.replace(run, num_envs=5), worlds)


def make(num_envs=3, **keywords):
    given = {"autoreset_mode": "same_step", "max_episode_steps": STEPS, **keywords}
    return SB3VecEnv(gym.make_vec("softgym_envs:TensegrityCrawl-v0", num_envs=num_envs, **given))


def test_environments_side_by_side_are_the_same_as_each_alone():
    """Rows keep their order, seeds count on from part to part, and ends of episodes say what they say in each part."""
    worlds = ({"num_envs": 2, "action_latency": 0.1}, {"num_envs": 3})
    both, alone = SideBySide([make(**world) for world in worlds]), [make(**world) for world in worlds]
    both.seed(5)
    alone[0].seed(5)
    alone[1].seed(7)
    np.testing.assert_array_equal(both.reset(), np.concatenate([envs.reset() for envs in alone]))
    rng = np.random.default_rng(0)
    for _ in range(STEPS + 1):
        actions = rng.uniform(-1, 1, (5, 3)).astype(np.float32)
        found = both.step(actions)
        expected = [alone[0].step(actions[:2]), alone[1].step(actions[2:])]
        for got, parts in zip(found[:3], zip(*expected, strict=True), strict=False):
            np.testing.assert_array_equal(got, np.concatenate(parts))
        last = [info.get("terminal_observation") for info in found[3]]
        wanted = [info.get("terminal_observation") for part in expected for info in part[3]]
        assert all(np.array_equal(a, b) for a, b in zip(last, wanted, strict=True))
    assert found[0].shape == (5, 46) and both.get_attr("num_envs") == [2, 2, 3, 3, 3]
    both.close()
