"""Muscles of the upper body's right arm: kernels against symbols and against MuJoCo's tendons; engine, task, bad files."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from softgym_envs.core.errors import StructureError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.muscles.muscle import tension
from softgym_envs.muscles.paths import Muscles
from softgym_envs.muscles.routes import Routes
from softgym_envs.systems.upper_body.controllers import reach
from softgym_envs.systems.upper_body.dynamics import BodySimulator
from softgym_envs.systems.upper_body.model import BodyModel, muscled
from softgym_envs.systems.upper_body.mujoco import MujocoUpperBody
from softgym_envs.systems.upper_body.muscle_control import held_pose
from softgym_envs.systems.upper_body.muscle_kernels import lengths_and_arms
from softgym_envs.systems.upper_body.picture import PICTURE, body_scene
from softgym_envs.systems.upper_body.sharing import LITTLE, bounded, share
from softgym_envs.systems.upper_body.tasks import UpperBodyReach

MODEL = muscled(BodyModel())
N, M = MODEL.n, len(MODEL.muscle_names)


def poses(count: int, seed: int) -> np.ndarray:
    """Angles within the limits."""
    low, high = MODEL.limits
    return low + (high - low) * np.random.default_rng(seed).uniform(0.05, 0.95, (count, N))


def test_lengths_and_moment_arms_are_those_of_the_symbols():
    assert MODEL.muscles is not None
    q = poses(30, 0)
    lengths, arms = lengths_and_arms(MODEL.routes, q)
    expected = Routes(MODEL.tree, MODEL.muscles).lengths(q)
    np.testing.assert_allclose(lengths, expected[0], atol=1e-12)
    np.testing.assert_allclose(arms, expected[1], atol=1e-12)
    assert not arms[:, :, 6:].any() and (np.abs(arms).max(axis=(0, 2)) > 2e-3).all()


def test_lengths_and_moment_arms_are_those_of_mujocos_tendons():
    mujoco_model = MujocoUpperBody(model=MODEL)
    compiled = mujoco_model.engine.models(MODEL.defaults[None])[0]
    data, names = mujoco.MjData(compiled), [compiled.joint(i).name for i in range(N)]
    order, q = [MODEL.tree.coordinates.index(name) for name in names], poses(40, 1)
    lengths, arms = lengths_and_arms(MODEL.routes, q)
    for k, row in enumerate(q):
        data.qpos[:] = row[order]
        mujoco.mj_forward(compiled, data)
        np.testing.assert_allclose(data.ten_length[:M], lengths[k], atol=TENDON)
        found = np.zeros((len(data.ten_length), N))
        mujoco.mju_sparse2dense(found, data.ten_J.ravel(), compiled.ten_J_rownnz, compiled.ten_J_rowadr, compiled.ten_J_colind)
        np.testing.assert_allclose(-found[:M], arms[k][:, order], atol=TENDON)


TENDON = 1e-6
"""[m]"""


def moving() -> tuple[BodySimulator, np.ndarray, np.ndarray]:
    """The engine, states (3, nx) on the way, and controls (3, nu)."""
    simulator, rng = BodySimulator(model=MODEL), np.random.default_rng(2)
    low, high = simulator.control_bounds
    control = 0.5 * (low + (high - low) * rng.uniform(0.2, 0.8, (3, simulator.nu)))
    states, status = simulator.rollout(simulator.initial_state(3), np.repeat(control[:, None], 6, axis=1), substeps=4)
    assert not status.any()
    return simulator, states[:, -1], control


def test_the_symbolic_step_is_the_engines_and_derivatives_are_exact():
    simulator, state, control = moving()
    after, _ = simulator.step(state, control)
    form = simulator.symbolic_step()
    assert form.residual(state, control, np.tile(MODEL.defaults, (3, 1)), after, np.zeros((3, 0))).max() < 1e-10
    exact, differences = (
        way(state, control, substeps=2) for way in (simulator.linearize, lambda *a, **k: finite_differences(simulator, *a, **k))
    )
    for a, b in zip(exact, differences, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(np.abs(b).max(), 1.0))


def test_the_body_rests_and_muscles_pull():
    simulator = BodySimulator(model=MODEL)
    still, _ = simulator.rollout(simulator.initial_state(), np.zeros((1, 20, simulator.nu)), substeps=4)
    assert np.abs(still[0, -1] - still[0, 0]).max() < 1e-8
    bent = np.zeros((1, 20, simulator.nu))
    bent[0, :, MODEL.muscle_names.index("brachialis")] = 0.5
    states, _ = simulator.rollout(simulator.initial_state(), bent, substeps=4)
    assert states[0, -1, MODEL.tree.coordinates.index("right_elbow")] > states[0, 0, 3] + 0.3


def test_muscles_share_torques_as_bounded_least_squares():
    rng = np.random.default_rng(3)
    pulls, needed, found = 30.0 * rng.standard_normal((5, 6, M)), 20.0 * rng.standard_normal((5, 6)), np.zeros((5, M))
    bounded(pulls, needed, LITTLE, found)
    for row in range(5):
        stacked, wanted = np.vstack([pulls[row], LITTLE * np.eye(M)]), np.append(needed[row], np.zeros(M))
        expected = lsq_linear(stacked, wanted, (0.0, 1.0), tol=1e-12)
        cost = 0.5 * ((stacked @ found[row] - wanted) ** 2).sum()
        assert cost <= expected.cost + 0.5 * GAP**2 and found[row].min() >= 0 and found[row].max() <= 1


GAP = 0.5
"""[N m] Of torques that are 50 N m in all: one activation after the other comes slowly to the very end."""


def test_shared_torques_and_missing_ones_are_all_of_them():
    q = poses(6, 3)
    torque = MODEL.holding(q)
    found = share(MODEL, q, np.zeros_like(q), torque)
    force, optimal, slack = MODEL.routes.numbers.T
    lengths, arms = lengths_and_arms(MODEL.routes, q)
    fibre = (lengths - slack) / optimal
    pull = force * tension(found.activations, fibre, np.zeros_like(fibre))
    done = np.einsum("bmn,bm->bn", arms, pull)[:, :6]
    np.testing.assert_allclose(done + found.missing, torque[:, :6], atol=1e-9)


def test_goals_with_muscles_can_be_held():
    task = UpperBodyReach(MODEL)
    goals = np.array([task._goal(np.random.default_rng(k)) for k in range(6)])
    pose = held_pose(MODEL, goals)
    assert np.linalg.norm(MODEL.hand(pose) - goals, axis=1).max() < 0.01
    assert np.abs(share(MODEL, pose, np.zeros_like(pose), MODEL.holding(pose)).missing).max() < 1.0


def test_the_picture_shows_muscles_and_its_keys_pull():
    state = MODEL.rest_state()
    more, bare = (len(body_scene(model, state[: model.layout.nx]).primitives) for model in (MODEL, BodyModel()))
    assert more > bare + M
    assert (PICTURE.rest_action(MODEL)[:M] == -1).all() and PICTURE.heading_action(MODEL, state, np.array([1.0, 0.0]))[0] > -1
    points = MODEL.muscle_points(MODEL.rest[None])
    assert len(points) == M and abs(np.linalg.norm(points[7][0]) - np.linalg.norm([0.026, -0.182, 0.02])) < 1e-12


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_a_controller_reaches_with_muscles(backend):
    envs = gym.make_vec("softgym_envs:UpperBodyReach-v0", num_envs=8, muscles=True, backend=backend)
    observation, _ = envs.reset(seed=5)
    assert observation.shape == (8, 2 * N + M + 6) and envs.single_action_space.shape == (M + 6,)
    policy, done, reached = reach(envs.unwrapped), np.zeros(8, dtype=bool), np.zeros(8, dtype=bool)
    for _ in range(150):
        observation, _, terminated, truncated, info = envs.step(policy(observation))
        reached |= info["is_success"] & ~done
        done |= terminated | truncated
        if done.all():
            break
    assert reached.mean() >= SHARE, reached


SHARE = 0.75
"""It reaches 48 of 48 in either world."""


def test_muscles_that_make_no_sense_are_named():
    assert MODEL.muscles is not None
    first = MODEL.muscles.muscles[0]
    with pytest.raises(StructureError, match=f"muscle '{first.name}' has no force"):
        BodyModel(MODEL.tree, Muscles(MODEL.muscles.surfaces, (replace(first, force=None),))).routes  # noqa: B018
    with pytest.raises(StructureError, match="nobody"):
        BodyModel(MODEL.tree, Muscles(MODEL.muscles.surfaces, (replace(first, origin_body="nobody"),))).routes  # noqa: B018
    deltoid = replace(first, origin=(0.005, -0.19, 0.0))
    with pytest.raises(StructureError, match="'deltoid_front' goes through surface 'head'"):
        BodyModel(MODEL.tree, Muscles(MODEL.muscles.surfaces, (deltoid,))).routes  # noqa: B018
    with pytest.raises(StructureError, match="has no muscles"):
        BodyModel().routes  # noqa: B018
