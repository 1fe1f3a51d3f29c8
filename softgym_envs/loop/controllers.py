"""Controllers that the loop's tasks are judged by; see `core.room.Room.controllers`.

Each is a function of a vector environment, which it may look into. Legend: B rows, T control steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.simulator import Array
from .arm_task import INCREMENT, rest_under
from .identify import LIMIT, PSI, THETA
from .model import ARM
from .peg import OFFSET

Policy = Callable[[Array], Array]

POSES = np.array([[0.3, -1.0, -1.0, -0.5, -1.0, 0.9, 0.0], [0.1, 0.3, -0.5, 1.0, 0.7, 1.0, 0.2]])
"""Actions that bend the loop about theta and hardly about psi, on the way too, and the other way round: found by search."""
AXES, SIGNS = np.array([0, 1, 1]), np.array([1.0, 1.0, -1.0])
"""Of the poses that `excite` goes to, one after the other."""
STARTS, LENGTHS = np.array([0.0, 0.54, 0.77]), np.array([0.54, 0.23, 0.23])
"""When it leaves for them, and comes back, in episodes."""
AIM = 0.87
"""Share of the moments that the loop bears, wanted: amid those that are allowed."""
FIXED = np.log([[6.0, 1.2]])
"""Logarithms of the stiffnesses whose bends serve most loops, of nine that were tried: some 10 of 100."""


def excite(envs: Any, *, sees: bool = True) -> Policy:
    """Bends the loop about theta, and to both sides about psi: slowly, as far as it bears by what is known of it by then.

    Without `sees`, as far as one of stiffness `FIXED` bears.
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
    """Of both axes: logarithms of stiffness, and the scale of the pose that brings a loop at rest to `AIM`, by our statics."""
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
    """Holds one pose, whatever it feels."""
    return lambda observation: np.full((len(observation), len(ARM)), 0.5, dtype=np.float32)


def track(envs: Any) -> Policy:
    """Torques that hold the arm where the profile is, at rest, and those of its damping; knows the profile, not the loop."""
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
"""Newton steps towards the action of a goal, their damping [m^2], and the change of action that slopes are taken from."""


def settle(envs: Any) -> Policy:
    """Holds the action under which the loop rests at the goal, by our statics with the usual constants; feels nothing."""
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
"""[m] How near the loop's middle the peg is to be, how far before the tip the loop waits for that, how far it goes then."""
SPEED = 0.2
"""Of the hand [m/s]."""
TURNED, LEAK = 0.1, 0.012
"""[m/rad] What a turn of the hand counts for; [m] what an action of 1 does."""


def slip(envs: Any, *, sees: bool = True) -> Policy:
    """Moves the hand aside until the peg is within the loop, and then forward; without `sees`, forward only.

    The hand nods rather than turns otherwise; the torques are those that hold the arm where it is wanted, with a rigid loop.
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
        change = _follow(model, task._axes, wanted, move * np.minimum(1.0, SPEED * period / np.maximum(size, 1e-9)))
        wanted[:] += change
        q = np.zeros((len(wanted), model.n))
        q[:, : len(ARM)] = wanted
        needed = -model.mechanism.slopes(q, np.zeros_like(q), model.defaults).q[:, : len(ARM)]
        damping = (model.servo_damping + 0.7) * change / period
        return np.clip((needed - model.hold + damping) / INCREMENT, -1.0, 1.0).astype(np.float32)

    return act


def _follow(model: Any, axes: Array, arm: Array, move: Array) -> Array:
    """Change of the arm's angles (B, 7) that moves the hand by `move` (B, 3) [m], turning it about axes[:, 0] at most.

    Damped least squares, which keep the arm from where its torques are at their limits.
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
    """Bends the loop, however stiff it is."""
    return excite(envs, sees=False)


CONTROLLERS: dict[str, dict[str, Callable[[Any], Policy]]] = {
    "LoopReach-v0": {"planner": settle, "blind": push},
    "LoopBend-v0": {"heuristic": track, "blind": push},
    "LoopPeg-v0": {"heuristic": slip, "blind": thrust},
    "LoopIdentify-v0": {"heuristic": excite, "blind": excite_all_alike},
}
"""Id -> name -> controller."""
