"""Every id needs its robot: doing nothing and acting at random do not succeed, somebody does, and levels are in order. Tasks
that need their robot: what a policy did in one episode, done again without looking, is of no use in another."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script

from agents import pretrained
from agents.learning.evaluation import evaluate_controller, uniform, zero
from agents.transfer_study.statistics import share
from softgym_envs.core.files import read_json
from softgym_envs.systems import tasks

GENERATE = load_script("docs/generate.py")
FILES = read_json(Path(__file__).parents[2] / "results/task_cards/numbers.json")
CARDS = {env_id: card["runs"] for env_id, card in FILES.items()}
IDS = [task.id for task in tasks()]
EPISODES = 16


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(("name", "controller"), [("zero", zero), ("random", uniform)])
def test_who_does_not_look_does_not_succeed(env_id, name, controller):
    """A share beyond the limit is ruled out where the interval of the episodes seen is beyond it."""
    found = evaluate_controller(controller, f"softgym_envs:{env_id}", episodes=EPISODES, seed=77)
    assert share(int(found.success.sum()), EPISODES).low <= GENERATE.LIMITS[name]


def lines(env_id, backend, level=None):
    """Who was measured there, at the level or at the easiest one."""
    levels = (None, 1.0) if level is None else (level,)
    return {run["controller"] for run in CARDS[env_id] if run["backend"] == backend and run["level"] in levels}


@pytest.mark.parametrize("env_id", IDS)
def test_cards_hold_what_is_asked(env_id):
    """Limits of zero and random, a reference, the blind, the order of levels: on both worlds."""
    assert GENERATE.shortfalls(CARDS[env_id]) == []


@pytest.mark.parametrize("env_id", IDS)
def test_who_does_not_look_is_within_the_limits_for_sure(env_id):
    """Not only in the episodes seen: the 95 % intervals are, on both worlds and all levels (zero: none of 100)."""
    for run in CARDS[env_id]:
        if run["controller"] in GENERATE.LIMITS:
            assert run["success_95"][1] < GENERATE.LIMITS[run["controller"]], run


@pytest.mark.parametrize("env_id", IDS)
def test_cards_say_how_fast_both_worlds_are(env_id):
    for backend in ("native", "mujoco"):
        speed = FILES[env_id]["speed"][backend]
        assert speed["rows"] > 1 and min(speed["single"], speed["batch"]) > 0
    assert all(run["return_95"][0] <= run["return"] <= run["return_95"][1] for run in CARDS[env_id])


@pytest.mark.parametrize("env_id", IDS)
def test_everybody_has_been_tried_everywhere(env_id):
    """Who was measured in our engine was measured on the MuJoCo model, and at the last level; MPC where it is affordable."""
    here = lines(env_id, "native") - {"mpc"}
    assert set(GENERATE.LIMITS) <= here <= lines(env_id, "mujoco")
    if any(run["level"] is not None for run in CARDS[env_id]):
        assert here == lines(env_id, "native", 2.0) == lines(env_id, "native", 3.0) - {"mpc"}
        assert here <= lines(env_id, "mujoco", 3.0)


def run(controller, success, level=None, backend="native", earned=None):
    return {
        "controller": controller, "level": level, "backend": backend, "success": success,
        "success_95": (success - 0.1, success + 0.1), "return": success if earned is None else earned,
    }  # fmt: skip


def test_a_card_falls_short_in_a_sentence():
    """Of what does not look, of who knows, of who is blind, and of levels out of order."""
    good = [run("zero", 0.0), run("random", 0.1), run("planner", 1.0), run("blind", 0.5), run("policy", 0.3)]
    assert GENERATE.shortfalls(good) == []
    assert GENERATE.shortfalls([*good, run("zero", 0.05, backend="mujoco"), run("mpc", 0.95, backend="mujoco")]) == [
        'on mujoco, "zero" succeeds in 5 %, allowed is below 5 %'
    ]
    assert "nobody who knows the robot was measured" in GENERATE.shortfalls([run("policy", 1.0)])[0]
    assert '"heuristic" in 89 %' in GENERATE.shortfalls([run("heuristic", 0.89)])[0]
    assert GENERATE.shortfalls([run("planner", 0.9), run("policy of another", 0.46)])[0].endswith("though it is blind")
    assert "succeeds in 95 %, at level 1 in 90 %" not in str(GENERATE.shortfalls([run("mpc", 0.9, 1.0), run("mpc", 0.95, 3.0)]))
    assert "at level 2 in 60 %" in GENERATE.shortfalls([run("mpc", 0.9, 1.0), run("mpc", 0.6, 2.0), run("mpc", 0.85, 3.0)])[0]
    assert GENERATE.shortfalls([*good, run("muscles: planner", 0.5)])[0].startswith("muscles: on native, nobody")


def test_who_succeeds_earns_more_than_who_does_nothing():
    """Reward and success agree, on every world and level by itself."""
    zero, standing = run("zero", 0.0, earned=-25.0), run("zero", 0.0, backend="mujoco", earned=-60.0)
    good = [run("heuristic", 1.0, earned=-7.0), run("blind", 0.4, earned=-50.0)]
    there = run("heuristic", 1.0, backend="mujoco", earned=-50.0)
    assert GENERATE.shortfalls([zero, standing, *good, there]) == []
    assert GENERATE.shortfalls([zero, *good, run("policy", 0.96, earned=-59.6)]) == [
        'on native, "policy" succeeds in 96 % and earns -59.6, doing nothing -25'
    ]


CLOSED_LOOP_IDS = ("LoopPeg-v0", "LoopReach-v0", "VineWall-v0")
ROWS, REPLAYS, SHARE = 64, 3, 0.3


def episodes(envs, seed, act, steps):
    """Whether each succeeds, how long it is, and all actions (T, B, m); act(t, observation)."""
    observation, _ = envs.reset(seed=seed)
    success, ended, length, actions = np.zeros(ROWS, bool), np.zeros(ROWS, bool), np.full(ROWS, steps), []
    for t in range(steps):
        actions.append(act(t, observation))
        observation, _, terminated, truncated, info = envs.step(actions[-1])
        now = (terminated | truncated) & ~ended
        success[now], length[now] = info["is_success"][now], t + 1
        ended |= now
        if ended.all():
            break
    return success, length, np.array(actions)


@pytest.mark.parametrize("env_id", CLOSED_LOOP_IDS)
def test_replays_fail(env_id):
    """The last action of an episode is held on."""
    policy = pretrained(env_id)
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=ROWS, **policy.keywords)
    steps = envs.spec.max_episode_steps
    success, length, actions = episodes(envs, 60, lambda t, observation: policy(observation), steps)
    good = np.flatnonzero(success)[:REPLAYS]
    assert len(good) == REPLAYS
    for row in good:
        kept = actions[: length[row], row]
        again = episodes(envs, 7000, lambda t, _: np.tile(kept[min(t, len(kept) - 1)], (ROWS, 1)), steps)[0]  # noqa: B023
        assert again.mean() <= SHARE, f"actions of episode {row} succeed in {again.sum()} of {ROWS} others"


@pytest.mark.parametrize("level", [1.0, 2.0, 3.0])
def test_replays_that_know_which_way_the_wall_ends_fail(level):
    """What is done is mirrored where the wall ends on the other side: read once, at the reset."""
    policy = pretrained("VineWall-v0")
    envs = gym.make_vec("softgym_envs:VineWall-v0", num_envs=ROWS, level=level, **policy.keywords)
    steps = envs.spec.max_episode_steps

    def mirror():
        """(B, 3): of actions, where the wall ends to the right."""
        world = envs.unwrapped
        side = -np.sign(world.simulator.model.split(world.state).obstacles[:, 0, 1])  # the wall's middle is on the other one
        return np.stack([np.ones(ROWS), side, side], axis=1)

    envs.reset(seed=60)
    before = mirror()
    success, length, actions = episodes(envs, 60, lambda t, observation: policy(observation), steps)
    envs.reset(seed=7000)
    after = mirror()
    for row in np.flatnonzero(success)[:REPLAYS]:
        kept = actions[: length[row], row] * before[row]
        again = episodes(envs, 7000, lambda t, _: kept[min(t, len(kept) - 1)] * after, steps)[0]  # noqa: B023
        found = share(int(again.sum()), ROWS)
        assert found.high <= 0.35, f"actions of episode {row} succeed in {found} of others"
