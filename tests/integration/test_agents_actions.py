"""Planning in actions for a task's own reward, beside the environment."""

import gymnasium as gym
import numpy as np
import pytest

from agents.control.actions import ActionSimulator, RewardCost
from agents.control.ilqg import ILQGOptions, plan_ilqg
from softgym_envs.core.simulator import finite_differences


@pytest.fixture(params=["ArmReach-v0", "VineGrow-v0", "SlidingBlock-v0"])
def made(request):
    """An environment of three rows after a reset, and the simulator of its actions."""
    envs = gym.make_vec(f"softgym_envs:{request.param}", num_envs=3)
    envs.reset(seed=2)
    inner = envs.unwrapped
    yield inner, ActionSimulator(inner.simulator, inner.task)
    envs.close()


def drawn(inner, steps):
    """Actions (3, T, na) as the environment takes them."""
    size = (3, steps, inner.action_space.shape[1])
    return np.random.default_rng(0).uniform(0.2, 0.9, size).astype(np.float32).astype(np.float64)


def test_costs_are_the_rewards_of_the_environment(made):
    inner, simulator = made
    actions, states = drawn(inner, 6), inner.state
    found = simulator.rollout(states, actions, inner.episodes.parameters, substeps=inner.episodes.substeps)[0]
    costs = [RewardCost(simulator, inner.context[row]).value(found[row][None], actions[row][None])[0] for row in range(3)]
    rewards = np.stack([inner.step(actions[:, t])[1] for t in range(6)], axis=1)
    np.testing.assert_allclose(np.array(costs)[:, 1:], -rewards, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(inner.state, found[:, -1])


def test_derivatives_by_actions_are_differences(made):
    inner, simulator = made
    actions, state = drawn(inner, 1)[:, 0], inner.state
    exact, other = simulator.linearize(state, actions, substeps=2), finite_differences(simulator, state, actions, substeps=2)
    np.testing.assert_allclose(exact.B, other.B, rtol=1e-4, atol=1e-6 * np.abs(other.B).max())


@pytest.mark.parametrize("made", ["ArmReach-v0", "VineGrow-v0"], indirect=True)
def test_gradients_through_the_dynamics_are_differences_of_the_return(made):
    inner, simulator = made
    cost, actions, start = RewardCost(simulator, inner.context[0]), drawn(inner, 4)[:1], inner.state[:1]
    substeps = inner.episodes.substeps
    states = simulator.rollout(start, actions, substeps=substeps)[0]
    expansion, slopes = cost.expand(states, actions), simulator.linearize(states[0, :-1], actions[0], substeps=substeps)
    gradient, pull = np.zeros(actions.shape[1:]), expansion.x[0, 4]
    for t in reversed(range(4)):
        gradient[t] = expansion.u[0, t] + slopes.B[t].T @ pull
        pull = expansion.x[0, t] + slopes.A[t].T @ pull
    h, expected = 1e-5, np.zeros_like(gradient)
    for place in np.ndindex(*gradient.shape):
        both = np.repeat(actions, 2, axis=0)
        both[0][place] += h
        both[1][place] -= h
        total = cost.value(simulator.rollout(np.repeat(start, 2, axis=0), both, substeps=substeps)[0], both).sum(axis=1)
        expected[place] = (total[0] - total[1]) / (2 * h)
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=2e-4 * np.abs(expected).max())


def test_ilqg_plans_for_the_reward_of_an_id():
    """The planned return is that of the environment; rest costs 33, the first plan of 30 iterations 3.6."""
    envs = gym.make_vec("softgym_envs:ArmReach-v0", num_envs=1)
    envs.reset(seed=5)
    inner, found = envs.unwrapped, 0.0
    simulator, options = ActionSimulator(inner.simulator, inner.task), ILQGOptions(max_iterations=12)
    cost, controls = RewardCost(simulator, inner.context[0]), np.zeros((40, 2))
    plan = plan_ilqg(simulator, cost, inner.state[0], controls=controls, substeps=inner.episodes.substeps, options=options)
    rest = cost.value(simulator.rollout(inner.state, controls[None], substeps=inner.episodes.substeps)[0], controls[None]).sum()
    for action in plan.controls:
        _, reward, terminated, _, _ = envs.step(action[None].astype(np.float32))
        found += reward[0]
        if terminated[0]:
            break
    assert found == pytest.approx(-plan.cost, rel=1e-4) and plan.cost < 0.3 * rest
    envs.close()
