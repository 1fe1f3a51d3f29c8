"""Oracles of settings that no controller of the benchmark solves: each knows all of the simulator, and shows what can be done.

    id                    keywords                              oracle
    VineNavigate-v0       clutter=pocket                        plan_far
    TensegrityTerrain-v0  ground=ridge heading=0.0 level=3      detour
    ArmReach-v0           tolerance=0.003                       regulate
    UpperBodyReach-v0     hold_time=1.0 tolerance=0.01          reach_stiffly
    SlidingBlock-v0       tolerance=[0.005,0.03]                try_policy
    LoopBend-v0           periods=[2.0,3.0] tolerance=0.001     foresee

    PYTHONPATH=experiments softgym-envs benchmark ArmReach-v0 hard_settings:regulate --keyword tolerance=0.003

Legend: B rows, na actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from agents.control.task_mpc import TaskMpc
from softgym_envs.core.simulator import Array
from softgym_envs.systems import system_of_task

Policy = Callable[[Any], Array]


def engine_of(envs: Any) -> Any:
    """The native engine of a vector environment's robot."""
    return system_of_task(envs.spec.id).simulator(envs.simulator.model)


def plan_far(envs: Any) -> Policy:
    """MPPI with a horizon of 9 s, 4,500 simulated control steps per executed one."""
    alive = np.ones(envs.num_envs, dtype=np.bool_)
    settings = TaskMpc(horizon=90, knots=4, samples=500, replan_every=10, noise=0.7)
    plan = settings.controller(envs, engine_of(envs), envs.episodes.nominal, seed=0, alive=alive)

    def act(observation: Any) -> Array:
        alive[:] = (envs.episodes.steps == 0) | ~envs.task.success(envs.state, envs.context)
        return plan(observation)

    return act


def detour(envs: Any) -> Policy:
    """Rolls to a point beside the ridge until it is 2.1 m from the x axis, then to a point beyond the ridge."""
    from softgym_envs.systems.tensegrity.controllers import rolling

    model, side, past = envs.simulator.model, np.ones(envs.num_envs), np.zeros(envs.num_envs, dtype=np.bool_)

    def act(observation: Any) -> Array:
        place = model.center_of_mass(envs.state)[:, :2]
        new = envs.episodes.steps == 0
        side[new], past[new] = np.where(place[new, 1] < 0.0, -1.0, 1.0), False
        past[:] |= place[:, 1] * side > 2.1
        way = np.where(past[:, None], (5.0, 1.5), (1.0, 2.4)) * np.stack([np.ones(len(side)), side], axis=1) - place
        size = np.linalg.norm(way, axis=1, keepdims=True)
        return np.asarray(rolling(model, envs.state, way / np.maximum(size, 1e-9)) * np.clip(size / 0.5, 0.0, 1.0))

    return act


def regulate(envs: Any, seconds: float = 0.5, relaxed: float = 0.03) -> Policy:
    """Linear-quadratic regulator about the equilibrium of a reference, which moves to the target within `seconds`.

    At an equilibrium the muscle that is not needed has the activation `relaxed`.
    """
    from scipy.linalg import solve_discrete_are
    from scipy.optimize import brentq

    from softgym_envs.systems.arm.elbow import net_torque

    task, engine, parameters = envs.task, engine_of(envs), envs.episodes.nominal
    structure, c, first = task.model.structure(0.0), parameters.to_matrix(1)[0], np.zeros(envs.num_envs)

    def holding(angle: float) -> Array:
        """Activations (2,) that hold an angle [rad]."""
        k = 1 if net_torque(structure, c, angle, 0.0, relaxed, relaxed) > 0.0 else 0

        def torque(a: float) -> float:
            return float(net_torque(structure, c, angle, 0.0, *np.where(np.arange(2) == k, a, relaxed)))

        held = brentq(torque, relaxed, 1.0) if torque(relaxed) * torque(1.0) < 0.0 else 1.0
        return np.where(np.arange(2) == k, held, relaxed)

    def excitations(state: Array, angle: float, speed: float) -> Array:
        held = holding(angle)
        A, B, _ = engine.linearize(
            np.array([[angle, 0.0, *held]]), held[None], parameters, substeps=round(task.control_period / engine.dt)
        )
        P = solve_discrete_are(A[0], B[0], np.diag([100.0, 1.0, 1e-6, 1e-6]), np.eye(2))
        gain = np.linalg.solve(np.eye(2) + B[0].T @ P @ B[0], B[0].T @ P @ A[0])
        return np.asarray(np.clip(held - gain @ (state - [angle, speed, *held]), 0.0, 1.0))

    def act(observation: Any) -> Array:
        begins = envs.episodes.steps == 0
        first[begins] = envs.state[begins, 0]
        s, away = np.clip(envs.episodes.steps * task.control_period / seconds, 0.0, 1.0), envs.context[:, 0] - first
        angle, speed = first + away * s**3 * (10 - 15 * s + 6 * s**2), 30 * away * (s * (1 - s)) ** 2 / seconds
        return 2.0 * np.array([excitations(*row) for row in zip(envs.state, angle, speed, strict=True)]) - 1.0

    return act


def reach_stiffly(envs: Any, frequency: float = 20.0, ratio: float = 0.7) -> Policy:
    """The declared heuristic with springs of twice the frequency [rad/s] and more damping."""
    from softgym_envs.systems.upper_body import controllers

    usual = controllers.FREQUENCY, controllers.RATIO
    controllers.FREQUENCY, controllers.RATIO = frequency, ratio
    try:
        return controllers.reach(envs)
    finally:
        controllers.FREQUENCY, controllers.RATIO = usual


def try_policy(envs: Any, tries: int = 512, noise: float = 0.15) -> Policy:
    """SlidingBlock: simulates the episode `tries` times under the shipped policy with noise, and replays a success."""
    import gymnasium as gym

    from agents.policies import pretrained
    from softgym_envs.systems.rigid.tasks import GOAL_THETA, GOAL_X

    policy = pretrained("SlidingBlock-v0")
    keywords = {**policy.keywords, "tolerance": envs.task.tolerance, "num_envs": tries}
    imagined, rng = gym.make_vec("SlidingBlock-v0", autoreset_mode="disabled", **keywords), np.random.default_rng(0)
    steps, (B, na) = envs.max_episode_steps, envs.action_space.shape
    plans, goal = np.zeros((B, steps, na)), slice(GOAL_X, GOAL_THETA + 1)

    def planned(row: int) -> Array:
        observation, _ = imagined.reset(seed=0, options={"state": envs.state[row], "goal": envs.context[row, goal]})
        smooth, actions = np.zeros((tries, na)), np.zeros((tries, steps, na))
        for t in range(steps):
            smooth = 0.7 * smooth + noise * rng.standard_normal((tries, na)) * (np.arange(tries) > 0)[:, None]
            actions[:, t] = np.clip(policy(observation) + smooth, -1.0, 1.0)
            observation, *_, info = imagined.step(actions[:, t].astype(np.float32))
            if info["is_success"].any():
                return actions[int(np.argmax(info["is_success"]))].astype(np.float32)
        return actions[0]

    def act(observation: Any) -> Array:
        for row in np.flatnonzero(envs.episodes.steps == 0):
            plans[row] = planned(int(row))
        return plans[np.arange(B), np.minimum(envs.episodes.steps, steps - 1)].astype(np.float32)

    return act


def foresee(envs: Any) -> Policy:
    """LoopBend: iLQG over the whole profile at once, with squared errors of the arm's angles as cost, replayed open loop."""
    from agents.control.actions import ActionSimulator
    from agents.control.cost import FeatureCost
    from agents.control.ilqg import plan_ilqg

    task, simulator, steps = envs.task, ActionSimulator(engine_of(envs), envs.task), envs.max_episode_steps
    (B, na), substeps = envs.action_space.shape, round(envs.task.control_period / simulator.engine.dt)
    plans = np.zeros((B, steps, na))

    def planned(row: int) -> Array:
        context = envs.context[row : row + 1]
        wanted = np.concatenate([task.profile(context, k * task.control_period) for k in range(steps + 1)])
        cost = FeatureCost(simulator, lambda states: states[..., :na], wanted, np.ones(na), control_weight=1e-6)
        begin = {"controls": np.zeros((steps, na)), "parameters": envs.episodes.nominal}
        return plan_ilqg(simulator, cost, envs.state[row], substeps=substeps, **begin).controls

    def act(observation: Any) -> Array:
        for row in np.flatnonzero(envs.episodes.steps == 0):
            plans[row] = planned(int(row))
        return plans[np.arange(B), np.minimum(envs.episodes.steps, steps - 1)].astype(np.float32)

    return act
