"""An objective's numbers stand once: the task's reward, the planners' cost and the studies read the same ones."""

import gymnasium as gym
import numpy as np
import pytest

from agents.control.cost import FeatureCost
from softgym_envs.core.errors import OptionError
from softgym_envs.core.objective import Objective
from softgym_envs.core.task import load
from softgym_envs.systems import systems
from softgym_envs.systems.tensegrity.tasks import CRAWL, ROLL
from softgym_envs.systems.vine.tasks import REACH

OBJECTIVES = [(name, path) for system in systems().values() for name, path in system.objectives.items()]


@pytest.mark.parametrize(("name", "path"), OBJECTIVES, ids=[name for name, _ in OBJECTIVES])
def test_features_fit_the_weights(name, path):
    system = next(system for system in systems().values() if system.objectives.get(name) == path)
    objective, model = load(path), system.model()
    states = np.tile(system.simulator(model).initial_state(1), (3, 2, 1))
    assert objective.features(model, states).shape == (3, 2, len(objective.weights))


@pytest.mark.parametrize(("env_id", "objective"), [("TensegrityRoll-v0", ROLL), ("TensegrityCrawl-v0", CRAWL)])
def test_a_reward_is_minus_the_cost_of_the_planners(env_id, objective):
    """Motors off, so that only the terms of the velocity are left; the reward sees the state after every step."""
    env = gym.make(f"softgym_envs:{env_id}", averaging_time=0.0).unwrapped
    env.reset(seed=0)
    simulator = env.simulator
    cost = FeatureCost.of(objective, simulator, simulator.model)
    for _ in range(3):
        _, reward, *_ = env.step(np.zeros(env.action_space.shape, dtype=np.float32))
        value = cost.value(np.asarray(env.state)[None, None], np.zeros((1, 0, simulator.nu)))[0, 0]
        assert reward == pytest.approx(-value, rel=1e-12)


def test_controls_are_measured_by_their_limits():
    system = systems()["vine"]
    simulator = system.simulator()
    cost = FeatureCost.of(REACH.aimed((0.5, 0.0)), simulator, simulator.model)
    states, limit = np.tile(simulator.initial_state(1), (1, 2, 1)), simulator.control_bounds[1]
    effort = cost.value(states, limit[None, None])[0, 0] - cost.value(states, 0 * limit[None, None])[0, 0]
    assert effort == pytest.approx(REACH.control_weight * simulator.nu)


def test_bad_objectives_are_named():
    with pytest.raises(OptionError, match="weights are"):
        Objective(REACH.features, weights=(-1.0,))
    with pytest.raises(OptionError, match="one per weight: 2"):
        REACH.aimed((1.0, 2.0, 3.0))
    with pytest.raises(OptionError, match="no target"):
        _ = REACH.aim
