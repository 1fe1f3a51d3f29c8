"""The file that maps a user's own MJCF to our state: what it says wrongly is named, not taken."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import fuzz
import gymnasium as gym
import numpy as np
import pytest

from agents.learning.rl import Training
from agents.transfer_study.task import TransferTask
from softgym_envs.core.errors import ParameterError, SimulationWarning, SoftgymError
from softgym_envs.core.system import identity_of
from softgym_envs.systems import system
from softgym_envs.systems.box.experiments import thrown

pytest.importorskip("mujoco")


def simulator(folder: Path, **changes: Any) -> Any:
    """The block on the MJCF of `fuzz.py`; changes of its mapping: table__name=value, or name=value."""
    document = copy.deepcopy(fuzz.MAPPING)
    for name, value in changes.items():
        table, _, entry = name.rpartition("__")
        (document[table] if table else document)[entry] = value
    (folder / "mine.xml").write_bytes(fuzz.MJCF)
    (folder / "mine.toml").write_bytes(fuzz.toml(document))
    return system("block").simulator(backend=str(folder / "mine.toml"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dt": float("nan")}, "dt is nan, expected a number"),
        ({"dt": -0.01}, r"dt is -0.01, expected a number \[s\] > 0"),
        ({"dt": 0}, r"dt is 0, expected a number \[s\] > 0"),
        ({"held__entries": 3}, r"entries of \[held\] is 3, expected a list of names"),
        ({"held__entries": "omega"}, r"entries of \[held\] is 'omega', expected a list of names"),
        ({"held__entry": ["omega"]}, "held: unknown entry 'entry'; allowed are entries"),
        ({"held__entries": ["omega", "spin"]}, "'spin' is no state entry of block"),
        ({"held__entries": []}, "state entry 'omega' is neither mapped nor held"),
        ({"states__omega": "qvel:turn"}, "state entry 'omega' is both mapped and held"),
        ({"states__y": "qpos:along"}, "x and y are the same place of the MJCF"),
        ({"states__y": "qpos:nowhere"}, "the MJCF has no joint 'nowhere'"),
        ({"states__theta": {"qpos": "turn", "scale": "-1"}}, "scale of theta is '-1', expected a number"),
        ({"states__theta": {"qpos": "turn", "scale": True}}, "scale of theta is True, expected a number"),
        ({"dt": 1e9}, r"dt is 1e\+09, expected a number \[s\] > 0 and <= 1"),
        ({"states__theta": {"qpos": "turn", "scale": 0}}, "theta has scale 0 and offset 0, allowed are sizes of 1e-06 to 1e"),
        ({"states__theta": {"qpos": "turn", "scale": 1e11}}, r"theta has scale 1e\+11"),
        ({"states__theta": {"qpos": "turn", "offset": -1e11}}, r"scale 1 and offset -1e\+11, allowed"),
        ({"states__theta": {"qpos": "turn", "scal": 2.0}}, "expected 'qpos:joint'"),
        ({"states__theta": {"qpos": "turn", "offset": 10**400}}, "offset of theta is 1000"),
        ({"controls__force_z": "ahead"}, "controls: unknown entry 'force_z'; allowed are force_x, force_y"),
        ({"controls__force_y": "ahead"}, "actuator 'ahead' has two of our controls"),
        ({"mjcf": "none.xml"}, "MuJoCo cannot load"),
    ],
    ids=str,
)
def test_what_a_mapping_says_wrongly_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SoftgymError, match=message):
        simulator(tmp_path, **changes)


def test_a_mapping_that_is_right_moves_the_block(tmp_path: Path) -> None:
    """A force of 1 N along x for 1 s on 0.5 kg: 1 m in semi-implicit steps of 10 ms, and half a step more; omega is held."""
    found = simulator(tmp_path)
    states, status = found.rollout(found.initial_state(), [[[1.0, 0.0]] * 100])
    assert not status.any() and found.dt == 0.01
    assert states[0, -1, 0] == pytest.approx(0.5 * 2.0 * (1.0 + 0.01)) and states[0, -1, 3] == pytest.approx(2.0)
    assert states[0, -1, 5] == 0.0


def test_another_robot_in_the_same_file_is_another_world(tmp_path: Path) -> None:
    """What a study or a training goes on with: the mapping, and what MuJoCo makes of the MJCF, not where it lies."""
    simulator(tmp_path)
    file, before = tmp_path / "mine.toml", identity_of(tmp_path / "mine.toml")
    assert before == identity_of(str(file)) and identity_of("mujoco") == "mujoco"
    xml = tmp_path / "mine.xml"
    xml.write_bytes(fuzz.MJCF.replace(b"mass", b" mass"))
    assert identity_of(file) == before
    heavier = xml.read_bytes().replace(b'mass="0.5"', b'mass="0.6"')
    assert heavier != xml.read_bytes()
    xml.write_bytes(heavier)
    assert identity_of(file) != before


PUSH = 'site="middle" refsite="here"'
BRICK = f"""<mujoco><option timestep="0.001"/>
<worldbody><site name="here"/><geom name="floor" type="plane" size="5 5 .1"/>
<body name="brick" pos="0 0 .3"><freejoint/><site name="middle"/><geom type="box" size=".06 .04 .025" mass=".5"/></body>
</worldbody><actuator><motor name="fx" {PUSH} gear="1 0 0 0 0 0"/><motor name="fy" {PUSH} gear="0 1 0 0 0 0"/>
<motor name="fz" {PUSH} gear="0 0 1 0 0 0"/></actuator></mujoco>"""


def test_a_robot_that_is_one_free_body_is_mapped_and_thrown(tmp_path: Path) -> None:
    """Its entries have no field's name before them, and its world no table that a parameter moves: it flies as a stone does."""
    (tmp_path / "brick.xml").write_text(BRICK)
    mapping = {"mjcf": "brick.xml", "states": {"box": "body:brick"}, "controls": {f"force_{e}": f"f{e}" for e in "xyz"}}
    (tmp_path / "brick.toml").write_bytes(fuzz.toml(mapping))
    ground_truth = system("box").simulator(backend=str(tmp_path / "brick.toml"))
    start = thrown(ground_truth, np.random.default_rng(0))
    start[2] += 1.0
    (end,), status = ground_truth.step(start[None], np.zeros((1, 3)), substeps=100)
    assert status[0] == 0 and end[7:9] == pytest.approx(start[7:9], rel=1e-6)
    assert end[9] == pytest.approx(start[9] - 9.81 * 0.1, rel=1e-6)


ELBOW = b"""<mujoco><option timestep="0.005"/><worldbody><body><joint name="hinge" axis="0 -1 0" damping=".1"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass="1"/></body></worldbody><actuator>
<general name="pull" joint="hinge" dyntype="filter" dynprm=".03" gainprm="20"/>
<general name="push" joint="hinge" dyntype="filter" dynprm=".03" gainprm="-20"/></actuator></mujoco>"""
MUSCLES = {"biceps": "pull", "triceps": "push"}
ANGLES = {"elbow": "qpos:hinge", "velbow": "qvel:hinge"}


def elbow(folder: Path) -> str:
    """A forearm with two motors for muscles, which has no payload that an episode could draw."""
    (folder / "elbow.xml").write_bytes(ELBOW)
    states = ANGLES | {name: f"act:{motor}" for name, motor in MUSCLES.items()}
    (folder / "elbow.toml").write_bytes(fuzz.toml({"mjcf": "elbow.xml", "states": states, "controls": MUSCLES}))
    return str(folder / "elbow.toml")


def test_what_a_task_draws_and_a_world_lacks_stays_as_it_was_built(tmp_path: Path) -> None:
    with pytest.warns(SimulationWarning, match="has no parameter payload, which the task draws"):
        env = gym.make("ArmHold-v0", backend=elbow(tmp_path))
    env.reset(seed=0)
    assert np.isfinite(env.step(env.action_space.sample())[0]).all()
    with pytest.raises(ParameterError, match="payload"):
        gym.make("ArmHold-v0", backend=elbow(tmp_path), randomize={"payload": (0.0, 1.0)})


def test_studies_and_trainings_go_on_with_the_same_robot_only(tmp_path: Path) -> None:
    file = elbow(tmp_path)
    case = TransferTask(system("arm"), "ArmHold-v0", file)
    training = Training("softgym_envs:ArmReach-v0", 1000, "ppo", {"backend": file})
    before = case.description["ground_truth"]["world"], training.run["keywords.backend"]
    assert before == (case.description["ground_truth"]["world"], training.run["keywords.backend"])
    (tmp_path / "elbow.xml").write_bytes(ELBOW.replace(b'mass="1"', b'mass="2"'))
    after = case.description["ground_truth"]["world"], training.run["keywords.backend"]
    assert before[0] != after[0] and before[1] != after[1]
