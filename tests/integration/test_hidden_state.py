"""A ground truth with more state than the model: twelve hinges in MuJoCo for three segments of ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pytest

from softgym_envs.core.base import PlainStructure
from softgym_envs.core.conformance import PROMISES, Inputs, case_of
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.core.procedure import Experiment, Procedure, Stage
from softgym_envs.core.trajectory import Trajectory

pytest.importorskip("mujoco")
SEGMENTS, PIECES = 3, 4
JOINTS = SEGMENTS * PIECES
SUMS = {
    f"{name}{k}": [f"{kind}:j{k * PIECES + i}" for i in range(PIECES)]
    for name, kind in (("bend", "qpos"), ("rate", "qvel"))
    for k in range(SEGMENTS)
}
CONTROLS = {f"pull{k}": f"m{k}" for k in range(SEGMENTS)}
MODEL = PlainStructure(
    StateLayout(Field("", SEGMENTS, ("bend", "rad")), Field("", SEGMENTS, ("rate", "rad/s"))),
    tuple(CONTROLS), ("N m",) * SEGMENTS, (-0.1 * np.ones(SEGMENTS), 0.1 * np.ones(SEGMENTS)), np.zeros(2 * SEGMENTS),
)  # fmt: skip
TIP = PlainStructure(
    StateLayout(Field("tip", None, ("x z", "m"), ("vx vz", "m/s")), Field("cable", None, ("length", "m"), ("speed", "m/s"))),
    MODEL.control_names, MODEL.control_units, MODEL.control_bounds, np.array([0.0, -0.6, 0.0, 0.0, 0.0, 0.0]),
)  # fmt: skip
READ = {
    "tip.x": "site:tip.x", "tip.z": "site:tip.z", "tip.vx": "sitevel:tip.x", "tip.vz": "sitevel:tip.z",
    "cable.length": "tendon:all", "cable.speed": {"tendonvel": "all", "scale": 1.0},
}  # fmt: skip


def chain() -> str:
    """A hanging chain of twelve equal pieces; a motor pulls at the four joints of a segment."""
    bodies = ""
    for k in reversed(range(JOINTS)):
        site = '<site name="tip" pos="0 0 -0.05"/>' if k == JOINTS - 1 else ""
        bodies = (
            f'<body pos="0 0 {0.0 if k == 0 else -0.05}"><joint name="j{k}" axis="0 -1 0" stiffness="0.2" damping="0.01"/>'
            f'<geom type="capsule" fromto="0 0 0 0 0 -0.05" size="0.01" mass="0.02" contype="0"/>{site}{bodies}</body>'
        )
    tendons = "".join(
        f'<fixed name="t{k}">{"".join(f"""<joint joint="j{k * PIECES + i}" coef="1"/>""" for i in range(PIECES))}</fixed>'
        for k in range(SEGMENTS)
    )
    whole = "".join(f'<joint joint="j{k}" coef="0.01"/>' for k in range(JOINTS))
    motors = "".join(f'<motor name="m{k}" tendon="t{k}"/>' for k in range(SEGMENTS))
    return (
        f'<mujoco><option timestep="0.002"/><worldbody>{bodies}</worldbody>'
        f'<tendon>{tendons}<fixed name="all">{whole}</fixed></tendon><actuator>{motors}</actuator></mujoco>'
    )


def world(folder: Path, model: Any = MODEL, states: Any = SUMS) -> Any:
    from softgym_envs.engines.mujoco.mjcf import MjcfGroundTruth

    (folder / "chain.xml").write_text(chain(), "utf-8")
    (folder / "chain.toml").write_bytes(fuzz.toml({"mjcf": "chain.xml", "states": states, "controls": CONTROLS}))
    return MjcfGroundTruth(model, "chain", folder / "chain.toml")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_it_keeps_every_promise_of_a_simulator(tmp_path: Path, promise: Any) -> None:
    promise(case_of(partial(world, tmp_path), Inputs()))


def test_joints_share_what_ours_say_and_sums_of_them_are_ours(tmp_path: Path) -> None:
    ground_truth = world(tmp_path)
    assert ground_truth.nx == 6 + 2 * JOINTS and ground_truth.state_names[6] == "unseen_mjcf.qpos0"
    state = ground_truth.embed(np.array([0.4, -0.2, 0.1, 1.0, 0.0, -1.0]))
    np.testing.assert_allclose(state[6 : 6 + JOINTS], np.repeat([0.1, -0.05, 0.025], PIECES), atol=1e-12)
    after, status = ground_truth.step(state[None], np.full((1, 3), 0.05), substeps=20)
    hidden = after[0, 6:].reshape(2, SEGMENTS, PIECES)
    np.testing.assert_allclose(after[0, :6].reshape(2, 3), hidden.sum(axis=2), atol=1e-12)
    assert status[0] == 0 and np.ptp(hidden[0], axis=1).max() > 1e-3  # pieces of a segment move otherwise than it


def test_tips_and_tendons_are_read_and_the_joints_follow_a_tip_that_is_set(tmp_path: Path) -> None:
    ground_truth = world(tmp_path, TIP, READ)
    angles = 0.1 * np.arange(1, JOINTS + 1)  # of pieces, where every joint is bent alike
    x, z = 0.05 * np.sin(angles).sum(), -0.05 * np.cos(angles).sum()
    wanted = np.array([x, z, 0.1, 0.0, 0.01 * angles[-1], 0.0])
    (after,), status = ground_truth.step(ground_truth.embed(wanted)[None], np.zeros((1, 3)))
    assert status[0] == 0
    np.testing.assert_allclose(after[:2], wanted[:2] + 0.002 * after[2:4], atol=1e-4)
    assert after[4] == pytest.approx(wanted[4] + 0.002 * after[5], abs=1e-6)


def record(ground_truth: Any, rng: Any, *, steps: int, parameters: Any = None) -> Trajectory:
    controls = rng.uniform(-0.1, 0.1, (steps // 20, 3))
    states, _ = ground_truth.rollout(ground_truth.initial_state(), controls[None], parameters, substeps=20)
    return Trajectory.from_rollout(ground_truth, states[0], controls, substeps=20)


def test_hidden_state_is_not_recorded(tmp_path: Path) -> None:
    procedure = Procedure(experiments=(Experiment("shaken", record, 200),), stages=(Stage("all", "shaken", (), "one_step"),))
    recording = procedure.record_one("shaken", world(tmp_path), np.random.default_rng(0))
    assert recording.names == MODEL.layout.names


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (["qpos:j0", "pos:j1"], "bend0 has the term 'pos:j1', expected one of qpos, qvel, act, tendon"),
        (["qpos:j0", "qpos:j99"], "has no joint 'j99'"),
        ("tendon:none", "bend0: the MJCF has no tendon 'none'"),
        ("site:tip", "has no site with an axis, as 'site:tip.x', 'tip'"),
        ([], r"bend0 is \{'sum': \[\]\}, expected 'qpos:joint'"),
    ],
)
def test_what_a_sum_says_wrongly_is_named(tmp_path: Path, where: Any, message: str) -> None:
    with pytest.raises(SoftgymError, match=message):
        world(tmp_path, states={**SUMS, "bend0": where})
