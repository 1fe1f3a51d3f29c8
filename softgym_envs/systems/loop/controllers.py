"""Baseline controllers for the loop's tasks; see `core.system.System.controllers`.

Each is a function of a vector environment, whose internals it may read. Legend: B rows, T control steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.simulator import Array
from .arm_task import INCREMENT, rest_under
from .identify import LIMIT, PSI, THETA
from .model import ARM
from .peg import OFFSET

Policy = Callable[[Array], Array]

POSES = np.array([[0.3, -1.0, -1.0, -0.5, -1.0, 0.9, 0.0], [0.1, 0.3, -0.5, 1.0, 0.7, 1.0, 0.2]])
"""Actions that bend the loop mostly about theta, or mostly about psi, on the way there too. Found by search."""
AXES, SIGNS = np.array([0, 1, 1]), np.array([1.0, 1.0, -1.0])
"""Pose and sign of each of the bends that `excite` makes in turn."""
STARTS, LENGTHS = np.array([0.0, 0.54, 0.77]), np.array([0.54, 0.23, 0.23])
"""Start and length of each bend, as shares of the episode."""
AIM = 0.87
"""Wanted moment as a share of the loop's limit: the middle of the allowed range."""
FIXED = np.log([[6.0, 1.2]])
"""Logarithms of the stiffnesses whose bends succeed most often, of nine that were tried: some 10 of 100 loops."""


def excite(envs: Any, *, sees: bool = True) -> Policy:
    """Bends the loop slowly about theta, then to both sides about psi, up to `AIM` by the current estimate.

    Without `sees`, uses the stiffness `FIXED` instead of the estimate.
    """
    task, seen = envs.episodes.task, 2 * len(ARM)
    scales = _scales(task)

    def act(observation: Array) -> Array:
        logs, load, left = (observation[:, seen + first : seen + end] for first, end in ((0, 2), (4, 6), (6, 7)))
        way = np.sin(np.pi * np.clip((1.0 - left / task.duration - STARTS) / LENGTHS, 0.0, 1.0)) ** 2
        known = logs if sees else np.broadcast_to(FIXED, logs.shape)
        scale = np.stack([np.interp(known[:, i], *scales[i]) for i in AXES], axis=1)
        lack = (way - load[:, AXES] / AIM) * sees
        return np.clip((SIGNS * scale * way * (1.0 + lack)) @ POSES[AXES], -1.0, 1.0).astype(np.float32)

    return act


def _scales(task: Any) -> list[tuple[Array, Array]]:
    """For both axes: logarithms of stiffness, and the scale of the pose that brings a loop at rest to `AIM`, by our statics."""
    found = []
    for i, (low, high) in enumerate((THETA, PSI)):
        columns = np.tile(task.model.defaults, (9, 1))
        columns[:, i] = np.geomspace(low, high, 9)
        scale = np.full(9, 0.5)
        for _ in range(4):
            q = rest_under(task.model, task.scale_action(scale[:, None] * POSES[i]), columns)[0]
            bent = np.abs(q[:, len(ARM) + i :: task.model.turns]).max(axis=1)
            scale *= AIM * LIMIT[i] / (columns[:, i] * bent)
        found.append((np.log(columns[:, i]), np.minimum(scale, 1.0)))
    return found


def push(envs: Any) -> Policy:
    """Holds one pose, without feedback."""
    return lambda observation: np.full((len(observation), len(ARM)), 0.5, dtype=np.float32)


def track(envs: Any) -> Policy:
    """Applies the torques that hold the arm at rest on the profile, plus damping; knows the profile, not the loop."""
    episodes = envs.episodes
    task, model = episodes.task, episodes.task.model
    lead, period = 0.5 * task.control_period, task.control_period

    def act(observation: Array) -> Array:
        context = episodes.context
        now, later = task.profile(context, lead), task.profile(context, lead + period)
        needed = model.relax(now, np.tile(model.defaults, (len(now), 1)))[1]
        damping = (model.servo_damping + 0.7) * (later - now) / period
        return np.clip((needed - model.hold + damping) / INCREMENT, -1.0, 1.0).astype(np.float32)

    return act


STEPS, DAMPED, DIFFERENCE = 12, 1e-4, 0.02
"""Newton steps towards a goal's action, their damping [m^2], and the step of finite differences in the action."""


def settle(envs: Any) -> Policy:
    """Holds the action under which the loop rests at the goal, by our statics with the default parameters; no feedback."""
    episodes = envs.episodes
    task, held = episodes.task, np.zeros((len(episodes.state), len(ARM)))

    def act(observation: Array) -> Array:
        fresh = np.flatnonzero(episodes.steps == 0)
        if len(fresh):
            held[fresh] = _resting(task, episodes.context[fresh, :-3])
        return held.astype(np.float32)

    return act


def _resting(task: Any, goal: Array) -> Array:
    """Actions (B, 7) under which the wanted points rest at goals (B, 3 k), by damped Gauss-Newton steps within [-1, 1]."""
    rows, action = len(goal), np.zeros((len(goal), len(ARM)))
    tried = DIFFERENCE * np.concatenate([np.zeros((1, len(ARM))), np.eye(len(ARM))])
    columns = np.tile(task.model.defaults, (rows * len(tried), 1))
    for _ in range(STEPS):
        q = task.rest((action + tried[:, None]).reshape(-1, len(ARM)), columns)[0]
        found = task.points(q).reshape(len(tried), rows, -1)
        slopes = ((found[1:] - found[0]) / DIFFERENCE).transpose(1, 2, 0)
        normal = slopes.transpose(0, 2, 1) @ slopes + DAMPED * np.eye(len(ARM))
        step = np.linalg.solve(normal, slopes.transpose(0, 2, 1) @ (goal - found[0])[..., None])[..., 0]
        action = np.clip(action + np.clip(step, -0.3, 0.3), -1.0, 1.0)
    return action


INNER, AWAY, BEYOND = 0.03, 0.05, 0.1
"""[m] Wanted distance of the peg from the loop's middle, distance before the tip at which the loop waits, final depth."""
HAND_SPEED = 0.2
"""Speed of the hand [m/s]."""
TURNED, LEAK = 0.1, 0.012
"""Weight of a turn of the hand [m/rad], and of an action of 1 [m]."""


def slip(envs: Any, *, sees: bool = True) -> Policy:
    """Moves the hand aside until the peg is within the loop, then forward; without `sees`, forward only.

    The hand nods and does not turn otherwise. The torques are those that hold the arm at its wanted angles with a rigid loop.
    """
    episodes = envs.episodes
    task, model = episodes.task, episodes.task.model
    start, period = np.array(model.start), task.control_period
    wanted = np.tile(start, (len(episodes.state), 1))
    forward = np.full(len(wanted), not sees)

    def act(observation: Array) -> Array:
        fresh = episodes.steps == 0
        wanted[fresh], forward[fresh] = start, not sees
        off = episodes.context[:, OFFSET]
        distance = np.hypot(off[:, 0], off[:, 1])
        excess = np.maximum(1.0 - INNER / np.maximum(distance, 1e-9), 0.0) * sees
        forward[:] |= distance < INNER + 0.02
        along = off[:, 2] + np.where(forward, BEYOND, -AWAY)
        move = np.concatenate([off[:, :2] * excess[:, None], along[:, None]], axis=1) @ task._axes.T
        size = np.sqrt((move**2).sum(axis=1, keepdims=True))
        change = _follow(model, task._axes, wanted, move * np.minimum(1.0, HAND_SPEED * period / np.maximum(size, 1e-9)))
        wanted[:] += change
        q = np.zeros((len(wanted), model.n))
        q[:, : len(ARM)] = wanted
        needed = -model.mechanism.slopes(q, np.zeros_like(q), model.defaults).q[:, : len(ARM)]
        damping = (model.servo_damping + 0.7) * change / period
        return np.clip((needed - model.hold + damping) / INCREMENT, -1.0, 1.0).astype(np.float32)

    return act


def _follow(model: Any, axes: Array, arm: Array, move: Array) -> Array:
    """Change of the arm's angles (B, 7) that moves the hand by `move` (B, 3) [m] and turns it only about axes[:, 0].

    Damped least squares; the damping keeps the arm from its torque limits.
    """
    step, rows = 1e-6, len(arm)
    q = np.zeros((len(ARM) + 1, rows, model.n))
    q[:, :, : len(ARM)] = arm
    q[np.arange(1, len(ARM) + 1), :, np.arange(len(ARM))] += step
    R, p = model.mechanism.pose("H", q.reshape(-1, model.n))
    R, p = R.reshape(-1, rows, 3, 3), p.reshape(-1, rows, 3)
    W = (R[1:] - R[0]) @ R[0].swapaxes(1, 2) / step
    turns = np.stack([W[..., 2, 1], W[..., 0, 2], W[..., 1, 0]], axis=2) @ axes[:, 1:]
    slopes = np.concatenate([(p[1:] - p[0]) / step, TURNED * turns], axis=2).transpose(1, 0, 2)
    spring = (LEAK * np.array(model.servo_stiffness) / INCREMENT) ** 2
    force = (slopes[:, :, :3] @ move[..., None])[..., 0] - spring * (arm - np.array(model.start))
    return np.asarray(np.linalg.solve(slopes @ slopes.transpose(0, 2, 1) + np.diag(spring), force[..., None])[..., 0])


def thrust(envs: Any) -> Policy:
    """Moves the hand forward, wherever the peg is."""
    return slip(envs, sees=False)


def excite_all_alike(envs: Any) -> Policy:
    """Bends the loop without use of the stiffness estimate."""
    return excite(envs, sees=False)


CONTROLLERS: dict[str, dict[str, Callable[[Any], Policy]]] = {
    "LoopReach-v0": {"planner": settle, "blind": push},
    "LoopBend-v0": {"heuristic": track, "blind": push},
    "LoopPeg-v0": {"heuristic": slip, "blind": thrust},
    "LoopIdentify-v0": {"heuristic": excite, "blind": excite_all_alike},
}
"""Id -> name -> controller."""

PLANNING: dict[str, dict[str, float]] = {
    "LoopBend-v0": {"horizon": 8, "knots": 2, "noise": 0.3, "iterations": 5, "narrowing": 0.5, "temperature": 0.02},
    "LoopPeg-v0": {
        "horizon": 24, "samples": 32, "iterations": 3, "narrowing": 0.4, "replan_every": 4, "temperature": 0.05,
    },
    "LoopReach-v0": {
        "horizon": 10, "knots": 3, "samples": 24, "iterations": 2, "narrowing": 0.4, "replan_every": 4, "temperature": 0.05,
    },
}  # fmt: skip
"""Id -> settings of sampling MPC; see `core.system.System.planning`."""
