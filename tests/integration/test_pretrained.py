"""Policies that come with the package, played by NumPy alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script, run_main

import softgym_envs  # noqa: F401  (registers the ids)
from agents import pretrained
from agents.learning.policy import load_policy
from agents.policies import FOLDER, Network, load_network, save_network
from softgym_envs.core.errors import FileFormatError, OptionError, ShapeError
from softgym_envs.envs.player import PlayOptions
from softgym_envs.systems import tasks

ROOT = Path(__file__).resolve().parents[2]
BLOCKED = "import sys; sys.modules.update(torch=None, mujoco=None, stable_baselines3=None); "
"""Start of a program in which importing these raises ImportError."""


def test_every_id_has_a_policy_that_comes_with_the_package():
    names = {path.stem for path in FOLDER.glob("*.npz")}
    assert {name.partition("+")[0] for name in names} == {task.id for task in tasks()}


def test_all_are_played_without_torch_and_mujoco():
    """The observation space that their keywords give is the one that they take."""
    code = f"""{BLOCKED}
import gymnasium as gym, numpy as np, softgym_envs
from agents.policies import FOLDER, pretrained
for path in sorted(FOLDER.glob("*.npz")):
    policy = pretrained(path.stem)
    env = gym.make(path.stem.partition("+")[0], **policy.keywords)
    action = policy(np.zeros(env.observation_space.shape))
    assert env.action_space.contains(action) and action.any(), path
print("played")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.stdout.split() == ["played"], found.stderr


def test_the_first_snippet_of_the_readme_needs_base_dependencies_only(tmp_path):
    """It plays one of our policies and writes a GIF; a shorter episode is enough here."""
    from PIL import Image

    code = next(block for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S))
    assert "pretrained(" in code and "mujoco" not in code
    short = BLOCKED + "sys.path.insert(0, sys.argv[1])\n" + code.replace("render_mode=", "max_episode_steps=5, render_mode=")
    run = [sys.executable, "-c", short, str(ROOT)]
    found = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    (gif,) = tmp_path.glob("*.gif")
    with Image.open(gif) as image:
        assert image.n_frames == 5


def test_a_name_without_a_policy_is_told_what_there_is():
    assert pretrained("softgym_envs:TensegrityRoll-v0").keywords == {"action_memory": 3}
    for name in ("Hopper-v5", "../policies/VineGrow-v0", None):
        with pytest.raises(OptionError, match=r"no policy comes with the package for .*; there are ArmHold-v0, ArmReach-v0"):
            pretrained(name)
    with pytest.raises(ShapeError, match=r"takes 172 observed numbers, the environment has shape \(100,\)"):
        pretrained("TensegrityRoll-v0")(np.zeros(100))


def test_pretrained_stands_for_a_file_in_both_commands(tmp_path, capsys):
    play, evaluate = load_script("scripts/play.py"), load_script("scripts/evaluate.py")
    seen = PlayOptions(record=tmp_path / "a.gif", size=(160, 120), headless_frames=4)
    assert run_main(play, play.Args("VineGrow-v0", policy=Path("pretrained"), options=seen)) == 0
    assert (tmp_path / "a.gif").is_file()
    assert run_main(play, play.Args("VineGrow-v0", options=PlayOptions(headless_frames=4))) == 2
    assert "add --record roll.gif or --dataset roll.h5" in capsys.readouterr().err
    arguments = {"episodes": 1, "backend": "native", "out": tmp_path / "a.json"}
    assert run_main(evaluate, evaluate.Args("pretrained", "VineGrow-v0", **arguments)) == 0
    assert json.loads((tmp_path / "a.json").read_text())["native"]["episodes"] == 1


@pytest.mark.parametrize("activation, squashed", [("Tanh", False), ("ReLU", True), ("ELU", False)])
def test_a_network_is_read_as_it_was_written(tmp_path, activation, squashed):
    rng = np.random.default_rng(1)
    sizes = ((5, 8), (8, 8), (8, 2))
    layers = tuple(
        (rng.standard_normal((b, a)).astype(np.float32), rng.standard_normal(b).astype(np.float32)) for a, b in sizes
    )
    network = Network(layers, activation, squashed, {"action_memory": 1})
    path = save_network(network, tmp_path / "p.npz", {"commit": "c"})
    first = path.read_bytes()
    again, seen = load_network(path), rng.standard_normal((4, 5))
    assert np.array_equal(again(seen), network(seen)) and again.keywords == {"action_memory": 1}
    np.testing.assert_array_equal(load_policy(path)(seen), network(seen))
    assert save_network(again, path, {"commit": "c"}).read_bytes() == first


def test_files_that_hold_no_network_are_refused(tmp_path):
    path = tmp_path / "p.npz"
    weight, bias = np.zeros((2, 3), dtype=np.float32), np.zeros(2, dtype=np.float32)
    save_network(Network(((weight, bias),)), path, {})
    good, settings = path.read_bytes(), {"activation": "Tanh", "squashed": False}

    def refused(match):
        with pytest.raises(FileFormatError, match=match):
            load_network(path)

    for entries, said in (
        ({"activation": "Sine"}, "allowed are Tanh, ReLU, ELU"), ({"activation": None}, "allowed are Tanh, ReLU, ELU"),
        ({"observed": [3]}, "expected a table of keywords"),
    ):  # fmt: skip
        np.savez(path, weight0=weight, bias0=bias, settings=json.dumps({**settings, **entries}))
        refused(said)
    for text, said in (("no json", "is not valid JSON"), ("[1]", "holds no JSON object"), (3.0, "holds no text 'settings'")):
        np.savez(path, weight0=weight, bias0=bias, settings=text)
        refused(said)
    np.savez(path, weight0=weight, bias0=bias)
    refused("holds no text 'settings'")
    for bad in (b"", b"no zip", good[: len(good) // 2]):
        path.write_bytes(bad)
        refused("is no policy, or it is damaged")
    for arrays in (
        {"weight0": weight.astype(object), "bias0": bias},
        {"weight0": weight},
        {"weight0": weight, "bias0": np.zeros(3, dtype=np.float32)},
        {"weight0": weight.astype(float), "bias0": bias},
        {"weight0": weight, "bias0": bias * np.float32(np.nan)},
        {"weight0": weight, "bias0": bias, "weight1": weight, "bias1": bias},
    ):
        np.savez(path, **arrays, settings=json.dumps(settings))
        refused("damaged|expected weight0|do not fit each other")


def test_the_environment_of_a_policy_is_made_from_its_keywords():
    policy = pretrained("UpperBodyReach-v0+muscles")
    env = gym.make("softgym_envs:UpperBodyReach-v0", **policy.keywords)
    assert policy(env.reset(seed=0)[0]).shape == env.action_space.shape
