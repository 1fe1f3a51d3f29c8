"""A laboratory's own loop and arm from a file: the same arm under other names moves as ours does; bad files are named."""

import gymnasium as gym
import numpy as np
import pytest
from helpers import urdf

from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.mechanics.tree_file import load_tree
from softgym_envs.systems import system
from softgym_envs.systems.loop.loop_file import read_model
from softgym_envs.systems.loop.model import ARM, ARM_FILE, LoopModel

OWN = [f"joint{i}" for i in range(7)]


def own_arm(folder, text=""):
    """Baxter's arm with joints of other names, and a loop file beside it."""
    arm = ARM_FILE.read_text(encoding="utf-8")
    for ours, theirs in zip(ARM, OWN, strict=True):
        arm = arm.replace(f'name = "{ours}"', f'name = "{theirs}"').replace(f'"{ours}", ', f'"{theirs}", ')
    arm = arm.replace('"w2"]', '"joint6"]').replace('damping = "arm_damping"', "damping = 0.1")
    (folder / "arm.toml").write_text(arm, encoding="utf-8")
    loop = f'links = 6\nmass = 0.2\n[arm]\nfile = "arm.toml"\njoints = {OWN}\nhand = "gripper"\n'
    (folder / "loop.toml").write_text(text or loop, encoding="utf-8")
    return folder / "loop.toml"


def test_the_same_arm_under_other_names_is_the_same(tmp_path):
    model, ours = read_model(own_arm(tmp_path)), LoopModel(6, mass=0.2)
    assert model.links == 6 and model.own_arm is not None and model.tree.coordinates == ours.tree.coordinates
    np.testing.assert_allclose(model.hold, ours.hold, rtol=1e-12)
    np.testing.assert_allclose(model.rest_state(), ours.rest_state(), atol=1e-12)


def test_an_arm_from_urdf_is_the_same_too(tmp_path):
    (tmp_path / "arm.urdf").write_text(urdf(load_tree(ARM_FILE)), encoding="utf-8")
    path = own_arm(tmp_path, '[arm]\nfile = "arm.urdf"\nhand = "gripper"\n')
    np.testing.assert_allclose(read_model(path).hold, LoopModel().hold, rtol=1e-9)


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_gym_make_takes_the_file(tmp_path, backend):
    env = gym.make("softgym_envs:LoopReach-v0", model=str(own_arm(tmp_path)), backend=backend)
    env.reset(seed=0)
    assert not env.step(np.full(7, 0.3, np.float32))[4]["sim_failed"]
    assert env.unwrapped.simulator.model.mass == 0.2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("links = 7", "7 links"),
        ("links = 12.5", "links"),
        ("links = true", "links"),
        ("mass = -1.0", "mass"),
        ("radius = 'big'", "radius"),
        ("start = [0.0, 1.0]", "start"),
        ("start = [0, 0, 0, 0, 0, 0, 'x']", "start"),
        ("servo_damping = -1.0", "servo_damping"),
        ("radius = 0.0", "radius"),
        ("radius = 1e-9", "radius"),
        ("tube_radius = 0.5", "tube_radius"),
        ("start = [9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]", "s0 at 9.0"),
        ("command_limit = [1.0, 2.0]", r"command_limit"),
        ("theta_stiffness = -1.0", "theta_stiffness"),
        ("wheels = 3", "wheels"),
        ("hanging = 1", "hanging"),
        ("own_arm = 3", "own_arm"),
        ("arm = 3", "arm"),
        ("[arm]\nfile = 3", "file"),
        ("[arm]\nfile = 'missing.toml'\nhand = 'gripper'", "missing.toml"),
        ("[arm]\nfile = 'arm.toml'\nhand = 'gripper'\njoints = ['a']", "joints"),
        (f"[arm]\nfile = 'arm.toml'\njoints = {OWN}\nhand = 'nowhere'", "nowhere"),
        (f"[arm]\nfile = 'arm.toml'\njoints = {OWN}\nhand = 'gripper'\nhand_xyz = [1.0]", "hand_xyz"),
        (f"[arm]\nfile = 'arm.toml'\njoints = {OWN}\nhand = 'gripper'\nhand_xyz = [0, 0, 0.1]", "gripper"),
        (f"[arm]\nfile = 'arm.toml'\njoints = {OWN}\nhand = 'gripper'\nwrist = 1", "wrist"),
        ("links = ", "TOML"),
    ],
)
def test_bad_files_are_named(tmp_path, text, named):
    own_arm(tmp_path)
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SoftgymError, match=named):
        read_model(tmp_path / "bad.toml")


def test_a_loop_that_the_arm_cannot_hold_is_refused(tmp_path):
    path = own_arm(tmp_path, "mass = 50.0")
    with pytest.raises(SoftgymError, match=r"takes .* N m of s1, which gives 50 N m"):
        gym.make("softgym_envs:LoopReach-v0", model=str(path))


def test_other_bad_models_are_named(tmp_path):
    with pytest.raises(OptionError, match=r"\.toml"):
        system("loop").model("nothing")
    with pytest.raises(SoftgymError, match="no_such"):
        gym.make("softgym_envs:LoopReach-v0", model=str(tmp_path / "no_such.toml"))
