"""LoopPeg: who sees the peg slips the loop over it, who does not runs against it; contact in both worlds; bad input."""

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.errors import OptionError
from softgym_envs.core.simulator import Differentiable, finite_differences
from softgym_envs.systems.loop.controllers import slip, thrust
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import CLAMP, LoopModel, hanging12
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.observation import windings
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.peg import PegPlaces

ID = "softgym_envs:LoopPeg-v0"


def share(drive, backend, rows=4, steps=70):
    """Of episodes that succeed."""
    envs = gym.make_vec(ID, num_envs=rows, backend=backend)
    observation, _ = envs.reset(seed=20)
    act, done = drive(envs.unwrapped), np.zeros(rows, bool)
    for _ in range(steps):
        observation, _, terminated, _, info = envs.step(act(observation))
        done |= info["is_success"] & terminated
        assert not info["sim_failed"].any()
        if done.all():
            break
    return done.mean()


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_who_sees_the_peg_slips_the_loop_over_it(backend):
    assert share(slip, backend) == 1.0


def test_who_does_not_see_it_or_does_nothing_fails():
    assert share(thrust, "native") == 0.0
    assert share(lambda envs: lambda observation: np.zeros((len(observation), 7), np.float32), "native") == 0.0


def within():
    """Parameters of a peg that is within the loop, below its upper link."""
    back = -0.15 * np.sqrt(0.5)  # the tip is towards the arm, and up under the gripper's link: the hand is then let down
    return LoopParameters(clamp_x=back, clamp_y=back, clamp_z=0.29)


def test_the_loop_lies_on_the_peg_in_both_worlds():
    """Pressed onto the peg by the same torques, both come to rest at the same place but for the depth of the contact."""
    model = LoopModel(12, hanging=True, servo_stiffness=(200.0,) * 7, servo_damping=20.0)
    found = {}
    for kind, substeps in ((LoopSimulator, 5), (MujocoLoop, 50)):
        simulator = kind(model=model)
        parameters = within()
        press = model.hold + np.array([0.0, 12.0, 0.0, 0.0, 0.0, 0.0, 0.0])  # s1 lets the hand down
        states, status = simulator.rollout(simulator.initial_state(), np.tile(press, (1, 60, 1)), parameters, substeps=substeps)
        away, _ = simulator.rollout(
            simulator.initial_state(), np.tile(press, (1, 60, 1)), LoopParameters(clamp_x=0.4), substeps=substeps
        )
        assert status[0] == 0 and np.isfinite(states).all()
        height = [model.mechanism.pose("H", np.ascontiguousarray(x[:, -1, : model.n]))[1][0, 2] for x in (states, away)]
        found[kind.__name__] = (model.nodes(states[:, -1])[0], height[0] - height[1])
    ours, theirs = found["LoopSimulator"], found["MujocoLoop"]
    assert ours[1] > 1e-3 and theirs[1] > 1e-3  # the peg carries a part of what the hand presses with
    assert np.linalg.norm(ours[0] - theirs[0], axis=1).max() < 0.03


def test_derivatives_are_differences_in_contact():
    simulator = LoopSimulator(model=hanging12())
    parameters = LoopParameters(clamp_x=-0.15 * np.sqrt(0.5), clamp_y=-0.15 * np.sqrt(0.5), clamp_z=0.06)
    state = simulator.initial_state()
    control = simulator.model.hold[None]
    assert isinstance(simulator, Differentiable)
    for _ in range(3):
        state, status = simulator.step(state, control, parameters)
    assert status[0] == 0
    exact = simulator.linearize(state, control, parameters)
    rough = finite_differences(simulator, state, control, parameters)
    np.testing.assert_allclose(exact.B, rough.B, rtol=1e-4, atol=1e-5 * np.abs(rough.B).max())
    columns = [list(LoopParameters.names()).index(name) for name in CLAMP]
    assert np.abs(exact.C[0][:, columns]).max() > 1e-3  # the peg is felt
    np.testing.assert_allclose(exact.C, rough.C, rtol=1e-3, atol=1e-4 * np.abs(rough.C).max())


def test_winding_and_places():
    angle = np.linspace(0.0, 2 * np.pi, 12, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert windings(np.stack([circle, circle[::-1], circle + 1.5])).tolist() == [1.0, 1.0, 0.0]
    places = PegPlaces()
    drawn = [places.sample(np.random.default_rng(seed), LoopParameters()) for seed in range(40)]
    aside, up = np.array([(np.hypot(p["clamp_x"], p["clamp_y"]), p["clamp_z"]) for p in drawn]).T
    far = np.hypot(aside, up)
    assert min(far) >= 0.12 and max(far) <= 0.3  # off the rim, within reach
    assert np.arctan2(aside, up).max() <= 0.65 * np.pi
    assert {np.sign(p["clamp_x"]) for p in drawn} == {-1.0, 1.0}
    assert np.abs(np.diff(np.sort(far))).max() < 0.05  # no clusters


def test_torques_are_seen_after_the_action():
    env = gym.make(ID).unwrapped
    observation, _ = env.reset(seed=0)
    names = [entry.name for entry in env.task.entries]
    first = names.index("torque.s0")
    np.testing.assert_allclose(observation[first : first + 7], 0.0, atol=1e-5)
    observation = env.step(np.full(7, 0.5, np.float32))[0]
    np.testing.assert_allclose(observation[first : first + 7], [6, 6, 6, 6, 2, 2, 1], rtol=1e-5)


@pytest.mark.parametrize(
    "keywords", [{"depth": -0.1}, {"depth": 10.0}, {"hold_time": 0.0}, {"obs_mode": "pixels"}, {"model": "baxter12"}]
)
def test_bad_keywords_are_named(keywords):
    with pytest.raises(OptionError, match="hanging" if "model" in keywords else next(iter(keywords))):
        gym.make(ID, **keywords)
