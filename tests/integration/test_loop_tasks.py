"""LoopReach: goals that a constant action reaches and none does not. LoopBend: profiles that can be followed. Both worlds.
LoopPeg: who sees the peg slips the loop over it, who does not runs against it; contact in both worlds; bad input. Goals of
the loop's studies, controls beyond those that hold the start, and what the right parameters do for a plan."""

import gymnasium as gym
import numpy as np
import pytest
from numba import njit

from agents.control.cost import FeatureCost
from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.control.plan import run_open_loop
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.core.simulator import Differentiable, finite_differences
from softgym_envs.systems.loop import SYSTEM
from softgym_envs.systems.loop.arm_task import INCREMENT
from softgym_envs.systems.loop.controllers import slip, thrust
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import CLAMP, LoopModel, hanging12
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.observation import winding
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.peg import PegPlaces
from softgym_envs.systems.loop.study import REACH, STUDY, commanded, middle

ID, BEND = "softgym_envs:LoopReach-v0", "softgym_envs:LoopBend-v0"
ROWS = 6


def goal_actions(task, context, seed):
    """The constant actions that made the goals: as `reset` draws them."""
    found = []
    for row in range(ROWS):
        rng = np.random.default_rng(seed + row)
        rng.uniform(-task.spread, task.spread, 7)
        for _ in range(20):
            action = rng.uniform(-task.goal_action, task.goal_action, (1, 7))
            points = task.points(task.rest(action, task.model.defaults[None])[0])[0].ravel()
            if np.abs(points - context[row, :-3]).max() < 1e-9:
                found.append(action[0])
                break
    return np.array(found)


def feel(task):
    """A controller that knows the goal and nothing of the loop: action = pseudo-inverse of d(points) / d(action) at rest."""

    def slope(action):
        ends = [task.points(task.rest(sign * action[None], task.model.defaults[None])[0])[0].ravel() for sign in (1, -1)]
        return (ends[0] - ends[1]) / 0.6

    inverse = np.linalg.pinv(np.stack([slope(row) for row in 0.3 * np.eye(7)], axis=1), rcond=0.05)
    return lambda observation: np.clip(observation[:, 14:] @ inverse.T, -1, 1)


def successes(envs, act, seed=3, steps=120):
    """Share of rows that succeed, and whether any simulation failed."""
    observation, _ = envs.reset(seed=seed)
    done, failed = np.zeros(ROWS, bool), False
    for _ in range(steps):
        observation, _, terminated, _, info = envs.step(act(observation).astype(np.float32))
        done |= info["is_success"] & terminated
        failed |= bool(np.any(info["sim_failed"]))
        if done.all():
            break
    return done.mean(), failed


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_a_constant_action_reaches_the_goal_and_none_does_not(backend):
    envs = gym.make_vec(ID, num_envs=ROWS, backend=backend)
    task = envs.unwrapped.episodes.task
    envs.reset(seed=3)
    actions = goal_actions(task, envs.unwrapped.episodes.context, 3)
    assert actions.shape == (ROWS, 7)
    assert successes(envs, lambda _: actions) == (1.0, False)
    assert successes(envs, lambda _: np.zeros((ROWS, 7))) == (0.0, False)
    assert successes(envs, lambda _: np.full((ROWS, 7), 0.5)) == (0.0, False)
    assert successes(envs, feel(task))[0] >= 0.5


def test_the_shape_is_reached_too_and_the_state_can_be_seen():
    env = gym.make(ID, goal="shape", obs_mode="state", model="baxter6").unwrapped
    observation, info = env.reset(seed=0)
    n = env.simulator.model.n
    assert len(observation) == 2 * n + 3 * 4 and env.task.wanted.tolist() == [1, 2, 4, 5]
    assert info["distance"] > env.task.tolerance
    np.testing.assert_allclose(observation[n : 2 * n], 0.0)  # at rest
    still = env.step(np.zeros(7, np.float32))[0]
    assert np.abs(still[7:n] - observation[7:n]).max() < 0.05


def test_sensors_are_the_arms_own():
    env = gym.make(ID).unwrapped
    assert env.episodes.settings.control_period == env.task.control_period == 0.05
    observation, _ = env.reset(seed=1)
    names = [entry.name for entry in env.task.entries]
    assert (
        names[:7] == list(env.simulator.control_names) and names[7] == "vs0" and names[14:] == ["goal3.x", "goal3.y", "goal3.z"]
    )
    np.testing.assert_allclose(observation[:7], env.state[:7] - np.array(env.simulator.model.start), atol=1e-6)
    low, high = env.simulator.control_bounds
    assert all((low <= u).all() and (u <= high).all() for u in env.task.scale_action(np.array([np.ones(7), -np.ones(7)])))


def test_goals_follow_the_constants_of_the_episode():
    stiff = {"theta_stiffness": 8.0, "clamp_x": 0.03, "loop_scale": 2.0}
    env = gym.make(ID).unwrapped
    env.reset(seed=1, options={"parameters": stiff})
    moved = env.step(np.zeros(7, np.float32))
    assert not moved[4]["sim_failed"]
    columns = env.simulator.tree_constants(env.episodes.parameters)
    closed, _ = env.simulator.mechanism.gaps(np.ascontiguousarray(env.state[None, : env.simulator.model.n]), columns)
    assert np.abs(closed).max() < 1e-9
    assert np.abs(env.state[env.simulator.model.n :]).max() < 2.0  # nothing snaps when the episode begins


@pytest.mark.parametrize("keywords", [{"goal_distance": 0.4}, {"goal_distance": 5.0, "goal": "shape"}, {"goal_action": 0.0}])
def test_goals_that_no_action_reaches_are_refused(keywords):
    env = gym.make(ID, **keywords)
    with pytest.raises(OptionError, match=r"goal_distance is .*goal_action"):
        env.reset(seed=0)


@pytest.mark.parametrize("keywords", [{"goal": "all"}, {"obs_mode": "pixels"}, {"tolerance": 0.0}, {"goal_action": 2.0}])
def test_bad_keywords_are_named(keywords):
    with pytest.raises(OptionError, match=next(iter(keywords))):
        gym.make(ID, **keywords)


def follow(task, context):
    """A controller that knows the profile: torques that hold the arm where it is wanted at rest, and those of its damping."""
    model, lead = task.model, 0.5 * task.control_period
    start = context.copy()

    def act(time):
        start[:, 5] = time
        now, later = task.profile(start, lead), task.profile(start, lead + 0.05)
        needed = model.relax(now, np.tile(model.defaults, (len(start), 1)))[1]
        damping = model.servo_damping + 0.7
        return np.clip((needed - model.hold + damping * (later - now) / 0.05) / INCREMENT, -1, 1)

    return act


def profile_errors(backend, act_of, rows=4):
    """Mean errors [m] and successes at the end of profiles."""
    envs = gym.make_vec(BEND, num_envs=rows, backend=backend)
    episodes = envs.unwrapped.episodes
    envs.reset(seed=11)
    act = act_of(episodes.task, episodes.context)
    for k in range(160):
        _, _, terminated, truncated, info = envs.step(act(0.05 * k).astype(np.float32))
        assert not np.any(info["sim_failed"]) and not truncated.any()
        assert terminated.all() == (k == 159)
    return info["mean_error"], info["is_success"]


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_a_profile_is_followed_by_who_knows_it_and_not_by_who_does_nothing(backend):
    error, success = profile_errors(backend, follow)
    assert success.all() and error.max() < 0.006, error
    error, success = profile_errors(backend, lambda task, context: lambda time: np.zeros((4, 7)))
    assert not success.any() and error.min() > 0.02, error


def test_the_profile_is_what_it_is_called():
    """Stretch moves the hand up and turns nothing; twist turns it and moves nothing."""
    task = gym.make(BEND).unwrapped.task
    start = np.array([task.model.start])
    context = np.zeros((4, len(task.context_names)))
    context[:, :4] = np.diag([0.02, 0.02, 0.02, 0.1])
    context[:, 4], context[:, 5] = 4.0, 2.0
    off = task.seen(np.repeat(start, 4, axis=0), context)[:, :6]
    np.testing.assert_allclose(off[:, [2, 0, 1, 5]], np.diag([0.02, 0.02, 0.02, 0.1]), atol=2.5e-3)
    np.testing.assert_allclose(off[:, [3, 4]], 0.0, atol=5e-3)
    context[:, 5] = 0.0
    np.testing.assert_allclose(task.seen(np.repeat(start, 4, axis=0), context)[:, :6], 0.0, atol=1e-12)


@pytest.mark.parametrize("keywords", [{"periods": (5.0, 3.0)}, {"periods": 3}, {"duration": -1.0}, {"obs_mode": "pixels"}])
def test_bad_keywords_of_bend_are_named(keywords):
    with pytest.raises(OptionError, match=next(iter(keywords)).rstrip("s")):
        gym.make(BEND, **keywords)


PEG = "softgym_envs:LoopPeg-v0"


def share(drive, backend, rows=4, steps=70):
    """Of episodes that succeed."""
    envs = gym.make_vec(PEG, num_envs=rows, backend=backend)
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
    around = njit(lambda points: winding(points))
    assert [around(ring) for ring in (circle, circle[::-1], circle + 1.5)] == [1.0, 1.0, 0.0]
    places = PegPlaces()
    drawn = [places.sample(np.random.default_rng(seed), LoopParameters()) for seed in range(40)]
    aside, up = np.array([(np.hypot(p["clamp_x"], p["clamp_y"]), p["clamp_z"]) for p in drawn]).T
    far = np.hypot(aside, up)
    assert min(far) >= 0.12 and max(far) <= 0.3  # off the rim, within reach
    assert np.arctan2(aside, up).max() <= 0.65 * np.pi
    assert {np.sign(p["clamp_x"]) for p in drawn} == {-1.0, 1.0}
    assert np.abs(np.diff(np.sort(far))).max() < 0.05  # no clusters


def test_torques_are_seen_after_the_action():
    env = gym.make(PEG).unwrapped
    observation, _ = env.reset(seed=0)
    names = [entry.name for entry in env.task.entries]
    first = names.index("torque.s0")
    np.testing.assert_allclose(observation[first : first + 7], 0.0, atol=1e-5)
    observation = env.step(np.full(7, 0.5, np.float32))[0]
    np.testing.assert_allclose(observation[first : first + 7], [6, 6, 6, 6, 2, 2, 1], rtol=1e-5)


@pytest.mark.parametrize(
    "keywords", [{"depth": -0.1}, {"depth": 10.0}, {"hold_time": 0.0}, {"obs_mode": "pixels"}, {"model": "baxter12"}]
)
def test_bad_keywords_of_the_peg_are_named(keywords):
    with pytest.raises(OptionError, match="hanging" if "model" in keywords else next(iter(keywords))):
        gym.make(PEG, **keywords)


def test_no_control_is_an_arm_that_stays_in_both_worlds():
    model = commanded()
    for world, substeps in ((SYSTEM.simulator(model), 10), (SYSTEM.simulator(model, backend="mujoco", dt=0.002), 50)):
        states, status = world.rollout(world.initial_state(), np.zeros((1, 10, 7)), substeps=substeps)
        assert status[0] == 0 and np.abs(states[0, -1, : model.n] - states[0, 0, : model.n]).max() < 1e-3


def test_commands_are_limited_and_checked():
    low, high = commanded().control_bounds
    np.testing.assert_array_equal(high, commanded().command_limit)
    np.testing.assert_array_equal(low, -high)
    with pytest.raises(StructureError, match="command_limit"):
        LoopModel(command_limit=(1.0, 2.0))
    with pytest.raises(OptionError, match="command_limit"):
        LoopModel(command_limit=(-1.0,) * 7)


@pytest.mark.parametrize("name", STUDY)
def test_goals_are_far_and_starts_are_closed(name):
    scenario = STUDY[name]
    scene = scenario.scene()
    assert scenario.objective in SYSTEM.objectives
    engine = SYSTEM.simulator(scene.model, dt=scenario.dt)
    states = scenario.starts(engine, LoopParameters(), np.random.default_rng(0), 3)
    off = scenario.measure(scene.model, scene.target, states[:, None])["last [m]"]
    assert off.min() > 0.02 and off.max() < 0.3
    h, _ = engine.mechanism.gaps(states[:, : scene.model.n], engine.tree_constants(LoopParameters(), 3))
    assert np.abs(h).max() < 1e-9
    np.testing.assert_allclose(states[0], engine.initial_state()[0], atol=1e-9)


def test_a_plan_under_the_true_constants_arrives_on_the_mujoco_model_and_one_before_identification_does_not():
    scene = STUDY["LoopReach-v0"].scene()
    engine, mujoco_model = LoopSimulator(scene.model), SYSTEM.simulator(scene.model, backend="mujoco", dt=0.002)
    cost, missed = FeatureCost.of(REACH.aimed(scene.target), engine, scene.model), []
    for parameter_values in (LoopParameters(), LoopParameters(theta_stiffness=5.0, psi_stiffness=5.0)):
        options = ILQGOptions(max_iterations=5, trust=0.3)
        start = engine.initial_state()[0]
        plan = plan_ilqg(
            engine, cost, start, controls=np.zeros((12, 7)), substeps=10, parameters=parameter_values, options=options
        )
        run = run_open_loop(plan, mujoco_model, mujoco_model.initial_state())
        missed.append(np.linalg.norm(middle(scene.model, run.states[0, -4:]) - scene.target, axis=1).mean())
    assert missed[0] < 0.01 and missed[1] > 3 * missed[0], missed
