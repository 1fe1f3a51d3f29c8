"""Environments on a device: on Warp's CPU device in float64 they equal the NumPy path, row by row and bit for bit."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers import IDS, actions_of, varied

import softgym_envs  # noqa: F401  (registers the ids)
from agents.policies import pretrained
from softgym_envs.core.errors import OptionError, ShapeError, SimulationWarning
from softgym_envs.systems.tensegrity.features import feel
from softgym_envs.systems.tensegrity.tasks import PATCH

torch = pytest.importorskip("torch")

ON_DEVICE = [name for name in IDS if name.startswith(("Tensegrity", "Vine"))]
EASY = {
    "TensegrityWaypoint-v0": {"radius": 0.4, "leg": (0.4, 0.6)},
    **{name: {"tolerance": 0.8} for name in ON_DEVICE if name.startswith("Vine")},
    "VineWall-v0": {"tolerance": 0.6, "hold_time": 0.2},
}
"""Keywords with which some random episodes succeed."""
DELAYS = {"action_latency": (0.17, 0.23), "observation_latency": (0.0, 0.15), "action_memory": 2}


def both(env_id: str, rows: int = 3, **keywords: Any) -> tuple[Any, Any]:
    """The NumPy environment and the one on the device."""
    made = [gym.make_vec(env_id, num_envs=rows, output=output, **keywords) for output in ("numpy", "torch")]
    return made[0], made[1]


def actions(envs: Any, count: int) -> Any:
    """Random actions, some of them beyond their bounds; robots that grow do grow."""
    found = 1.2 * actions_of(envs, count)
    if "Vine" in envs.spec.id:
        found[..., 0] = abs(found[..., 0])
    return found


def compare(host: Any, device: Any, steps: int) -> tuple[int, int]:
    """Step both; -> number of ended episodes and of successes."""
    ended, won = 0, 0
    for k, action in enumerate(actions(host, steps)):
        expected, found = host.step(action), device.step(torch.from_numpy(action))
        where = f"{host.spec.id}, step {k}"
        for one, other in zip(expected[:4], found[:4], strict=True):
            np.testing.assert_array_equal(one, other.numpy(), err_msg=where)
        for name in ("state", "context"):
            np.testing.assert_array_equal(getattr(host.unwrapped, name), getattr(device.unwrapped, name), err_msg=where)
        over = expected[2] | expected[3]
        ended, won = ended + over.sum(), won + expected[4].get("final_info", expected[4])["is_success"].sum()
        if "final_obs" in expected[4]:
            np.testing.assert_array_equal(np.stack(list(expected[4]["final_obs"][over])), found[4]["final_obs"][over])
        elif not over.any():
            for name in found[4]:
                if not name.startswith(("final", "_")):
                    np.testing.assert_array_equal(expected[4][name], found[4][name], err_msg=f"{where}, {name}")
    return int(ended), int(won)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("env_id", ON_DEVICE)
def test_a_device_equals_numpy_bit_for_bit(env_id: str, mode: str) -> None:
    """With resets, successes, drawn parameters and, in one of the modes, drawn delays within control steps."""
    delays = DELAYS if mode == "next_step" else {}
    keywords = {"randomize": varied(env_id), **delays, **EASY.get(env_id, {})}
    host, device = both(env_id, max_episode_steps=40, autoreset_mode=mode, **keywords)
    for seed in (7, None):
        np.testing.assert_array_equal(host.reset(seed=seed)[0], device.reset(seed=seed)[0])
        ended, won = compare(host, device, 80)
        assert ended >= 3
    assert won or env_id not in EASY


def test_a_slow_sensor_and_a_late_one() -> None:
    host, device = both("VineGrow-v0", observation_rate=4.0, observation_latency=0.03, action_latency=0.2)
    np.testing.assert_array_equal(host.reset(seed=1)[0], device.reset(seed=1)[0])
    compare(host, device, 20)


def test_a_row_that_fails_gets_the_penalty_and_keeps_its_state() -> None:
    with pytest.warns(SimulationWarning, match="it moves by itself"):
        host, device = both("TensegrityRoll-v0", params={"cable_damping": 300.0}, dt=0.01)
    np.testing.assert_array_equal(host.reset(seed=1)[0], device.reset(seed=1)[0])
    with pytest.warns(SimulationWarning, match="speed limit"):
        ended, _ = compare(host, device, 12)
    assert ended


def test_an_action_that_is_nan_ends_its_row() -> None:
    device = gym.make_vec("VineGrow-v0", num_envs=3, output="torch")
    device.reset(seed=0)
    _, reward, terminated, _, info = device.step(torch.tensor([[0.0] * 3, [float("nan")] * 3, [0.0] * 3]))
    assert terminated.tolist() == info["sim_failed"].tolist() == [False, True, False]
    assert reward[1] == -100.0


def test_ground_under_a_robot() -> None:
    """The kernel of the device equals Numba's, on rubble and beyond its rim."""
    task = gym.make("TensegrityTerrain-v0").unwrapped.task
    context = np.random.default_rng(0).uniform(-14.0, 14.0, (500, len(task.context_names)))
    found = task.kernels().updates[1](context)
    feel(task.model.terrain.field, PATCH, context)
    np.testing.assert_array_equal(found, context)
    assert len(np.unique(context[:, -9:])) > 100


def test_rows_that_wait_begin_by_a_mask() -> None:
    host, device = both("VineGrow-v0", rows=3, max_episode_steps=3, autoreset_mode="disabled")
    np.testing.assert_array_equal(host.reset(seed=5)[0], device.reset(seed=5)[0])
    compare(host, device, 2)
    mask = np.array([True, False, True])
    for options in ({"reset_mask": mask}, {"reset_mask": torch.from_numpy(mask)}):
        again = device.reset(options=options)[0]
        np.testing.assert_array_equal(host.reset(options={"reset_mask": mask})[0], again)
    compare(host, device, 1)
    with pytest.raises(gym.error.ResetNeeded):
        device.step(torch.zeros(3, 3))
    assert not np.array_equal(again, device.reset(seed=[1, 2, 3])[0])


@pytest.mark.parametrize(("env_id", "most"), [("TensegrityRoll-v0", 0.05), ("VineGrow-v0", 1e-4), ("VineWall-v0", 1e-3)])
def test_single_precision_is_close(env_id: str, most: float) -> None:
    """Over 1 s; a robot that rolls sends near states apart in double precision, too."""
    exact, rough = (gym.make_vec(env_id, num_envs=8, output="torch", dtype=dtype) for dtype in ("float64", "float32"))
    np.testing.assert_array_equal(exact.reset(seed=0)[0], rough.reset(seed=0)[0])
    for action in actions(exact, 10):
        (one, reward, *_), (other, found, *_) = (envs.step(torch.from_numpy(action)) for envs in (exact, rough))
    assert rough.unwrapped.state.dtype == found.dtype == torch.float32
    assert 0.0 < float((one - other).abs().median()) < most
    assert float((reward - found).abs().median()) < most


@pytest.mark.parametrize("env_id", ["TensegrityRoll-v0", "VineGrow-v0"])
def test_noise_and_disturbances_of_the_device(env_id: str) -> None:
    """They have the size asked for, and follow from the seed."""
    exact, noisy = (gym.make_vec(env_id, num_envs=200, output="torch", **given) for given in ({}, {"sensor_noise": 0.02}))
    kicked = gym.make_vec(env_id, num_envs=200, output="torch", disturbance=0.1)
    seen = []
    for seed in (0, 0, 1):
        for envs in (exact, noisy, kicked):
            envs.reset(seed=seed)
        steps = [[envs.step(torch.zeros(envs.action_space.shape))[0] for _ in range(2)] for envs in (exact, noisy, kicked)]
        seen.append(steps)
    scale = np.array([entry.scale for entry in exact.unwrapped.task.entries])
    apart = (seen[0][1][1] - seen[0][0][1]).numpy() / scale
    free = np.abs(seen[0][0][1].numpy() / scale).max(axis=0) < 0.5 * exact.observation_space.high[0] / scale  # not clipped
    assert apart[:, free & (exact.observation_space.low[0] < 0)].std() == pytest.approx(0.02, rel=0.05)
    assert (seen[0][2][0] - seen[0][0][0]).abs().max() > 1e-3
    for kind in (1, 2):
        assert torch.equal(seen[0][kind][1], seen[1][kind][1]) and not torch.equal(seen[0][kind][1], seen[2][kind][1])


def test_noise_of_a_sensor_that_is_no_entry_of_the_state() -> None:
    seen = []
    for given in ({}, {"sensor_noise": {"tip.x": 0.1}}):
        envs = gym.make_vec("VineGrow-v0", num_envs=2, output="torch", **given)
        envs.reset(seed=0)
        seen.append(envs.step(torch.zeros(envs.action_space.shape))[0])
    names = [entry.name for entry in envs.task.entries]
    assert [name for name, apart in zip(names, (seen[0] != seen[1]).any(dim=0), strict=True) if apart] == ["tip.x"]


def test_starts_that_are_used_again() -> None:
    """Each row begins from its own first starts in turn."""
    device = gym.make_vec("VineGrow-v0", num_envs=2, max_episode_steps=1, autoreset_mode="same_step", output="torch", starts=2)
    seen = [device.reset(seed=0)[0]] + [device.step(torch.zeros(2, 3))[0] for _ in range(4)]
    assert torch.equal(seen[0], seen[2]) and torch.equal(seen[1], seen[3]) and not torch.equal(seen[0], seen[1])


def test_tensors_are_fresh() -> None:
    device = gym.make_vec("VineGrow-v0", num_envs=2, output="torch")
    first, _ = device.reset(seed=0)
    kept = first.clone()
    device.step(torch.ones(2, 3))
    assert torch.equal(first, kept)


def test_other_ids_give_tensors_on_the_cpu() -> None:
    device = gym.make_vec("ArmReach-v0", num_envs=2, output="torch")
    observed, _ = device.reset(seed=0)
    assert isinstance(observed, torch.Tensor)
    assert isinstance(device.step(torch.zeros(device.action_space.shape))[1], torch.Tensor)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"output": "jax"}, "output is 'jax', allowed are numpy, torch"),
        ({"output": "torch", "sensor_bias": 0.1}, "sensor_bias is 0.1, which output='torch' does not play"),
        ({"output": "torch", "sensor_noise": {"length": 0.1}}, "sensor_noise is .*, a noise of the state, which output"),
        ({"output": "torch", "obs_mode": "state"}, "obs_mode is 'state', which output='torch' does not play"),
        ({"output": "torch", "backend": "mujoco"}, "backend is 'mujoco', which output='torch' does not play"),
        ({"output": "torch", "starts": 0}, "starts"),
        ({"starts": 1}, "starts is 1, which needs output='torch'"),
        ({"output": "torch", "dtype": "float16"}, "dtype is 'float16', allowed are float64, float32"),
        ({"output": "torch", "device": "cuda:7"}, "device is 'cuda:7', this machine has"),
    ],
)
def test_what_a_device_does_not_play_is_named(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        gym.make_vec("VineGrow-v0", num_envs=2, **keywords)


def test_what_only_numpy_has_is_named() -> None:
    """Among it the episodes, without which controllers that count steps would begin anew in each."""
    device = gym.make_vec("VineGrow-v0", num_envs=2, output="torch")
    for name in ("call", "get_attr", "set_attr", "get_state", "set_state", "episodes"):
        with pytest.raises(AttributeError, match=f"output='torch' has no '{name}'; one with output='numpy' has it"):
            getattr(device, name)
    assert not hasattr(device, "nothing")
    network = pretrained("VineGrow-v0")
    network.check(device)
    with pytest.raises(OptionError, match="was trained with"):
        network.check(gym.make_vec("VineWall-v0", num_envs=2, output="torch"))


@pytest.mark.parametrize("make", [gym.make, functools.partial(gym.make_vec, num_envs=2, vectorization_mode="sync")])
@pytest.mark.parametrize("keyword", [{"output": "torch"}, {"dtype": "float32"}, {"starts": 2}])
def test_who_makes_tensors_is_named(make: Any, keyword: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(keyword))} is one of gym.make_vec with vectorization_mode='vector_en"):
        make("VineGrow-v0", **keyword)


def test_actions_and_options_are_checked() -> None:
    device = gym.make_vec("VineGrow-v0", num_envs=2, output="torch")
    with pytest.raises(gym.error.ResetNeeded):
        device.step(torch.zeros(2, 3))
    with pytest.raises(OptionError, match="option 'goal' is not known"):
        device.reset(options={"goal": (0.1, 0.2)})
    device.reset(seed=0)
    device.step(device.action_space.sample())
    with pytest.raises(ShapeError, match=r"actions have shape \(3, 3\), expected \(2, 3\)"):
        device.step(torch.zeros(3, 3))


def test_a_seed_of_some_rows_leaves_the_starts_of_the_others() -> None:
    device = gym.make_vec("VineGrow-v0", num_envs=2, output="torch", starts=2, autoreset_mode="disabled")
    first = [device.reset(seed=3)[0][1], device.reset()[0][1]]
    device.reset(seed=9, options={"reset_mask": torch.tensor([True, False])})
    assert all(torch.equal(device.reset()[0][1], expected) for expected in first)


def test_actions_of_another_kind_and_copies_are_refused() -> None:
    with pytest.raises(OptionError, match="starts is 1000000000"):
        gym.make_vec("VineGrow-v0", num_envs=2, output="torch", starts=10**9)
    device = gym.make_vec("VineGrow-v0", num_envs=2, output="torch", device=torch.device("cpu"))
    device.reset(seed=0)
    zero = torch.zeros(device.action_space.shape)
    for wrong in (zero.bool(), zero + 0j, None, "up"):
        with pytest.raises(ShapeError, match="actions are"):
            device.step(wrong)
    assert not any(one.requires_grad for one in device.step(zero.requires_grad_())[:2]) and not device._given.requires_grad
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="output='torch' are not pickled or copied"):
            copied(device)


@pytest.mark.parametrize("env_id", [name for name in IDS if name not in ON_DEVICE])
def test_other_ids_give_tensors_where_episodes_end(env_id: str) -> None:
    host, other = both(env_id, rows=2, max_episode_steps=2, autoreset_mode="same_step", randomize=varied(env_id))
    np.testing.assert_array_equal(host.reset(seed=4)[0], other.reset(seed=4)[0])
    for action in actions(host, 3):
        expected, found = host.step(action), other.step(torch.from_numpy(action))
        np.testing.assert_array_equal(expected[0], found[0])
        if "final_obs" in expected[4]:
            np.testing.assert_array_equal(np.stack(list(expected[4]["final_obs"])), found[4]["final_obs"])
    assert isinstance(pickle.loads(pickle.dumps(other)).reset(seed=4)[0], torch.Tensor)
