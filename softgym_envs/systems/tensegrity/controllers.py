"""Controllers that the tensegrity's tasks are judged by; see `core.system.System.controllers`.

Legend: B batch, m motors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.simulator import Array
from .crawling import crawling
from .model import TensegrityModel

Policy = Callable[[Any], Array]


FACTORS = {
    "1": 0.42,
    "p_h": -6.19,
    "p_z": 2.76,
    "p_h p_z": 0.55,
    "p_h^2": -0.05,
    "p_z^2": -2.49,
    "d_h^2": -0.55,
    "d_z^2": 2.02,
    "d_h d_z": 4.62,
    "w": -2.32,
    "v_h": 1.89,
    "v_z": -0.68,
    "p_y V_y": 2.98,
    "r": 1.41,
    "q_z": -0.22,
    "p_h q_z": 0.7,
    "q_h q_z": 2.59,
}
"""Term of `rolling` -> its factor; found by experiments/tensegrity_heuristics.py, with the usual contacts and soft ones."""
PACE = 0.8
"""[s/m] Strength of rolling per commanded speed; see `follow`."""
CATCH_UP = 2.0
"""[1/m] Strength of rolling per distance that is missing. Chosen in our engine: 1, 2 and 4 all succeeded in 32 of 32 episodes
of TensegrityTerrain with the usual contacts, and in 26, 30 and 30 with soft ones."""


CRAWL_PACE, CRAWL_CATCH_UP = 3.0, 1.0
"""`PACE` and `CATCH_UP` of `crawl`. Chosen in our engine, seeds 7 000 000 to 7 000 063: (3, 1) succeeded in 58 of 64, (0, 4) in
52, (1, 1) in 51, (2, 2) in 50, no speed law in 41."""


def rolling(model: TensegrityModel, state: Array, heading: Array, factors: Array | None = None) -> Array:
    """u = clip(sum of FACTORS times their terms): cables to shorten, by their position and motion.

    p is a cable's middle from the centre of mass in half rod lengths, q the middle between the other ends of its two rods, d
    its direction, v the velocity of its middle past the centre of mass, r that of its length, V that of the centre of mass
    [m/s], w its motor's position (of its range); _h is the part along the heading, _y across, _z up. Negative actions pull:
    cables ahead, before those behind, and on where they shorten. A structure with few motors may not move at all.

    Args:
        model: The robot.
        state: (..., nx)
        heading: Horizontal unit vectors (..., 2).
        factors: Replace those of `FACTORS`, (17,) or (..., 1, 17).

    Returns:
        Actions (..., m).
    """
    terms = np.stack(_terms(model, state, heading[..., None, :]), axis=-1)
    return np.asarray(
        np.clip((terms * (np.array([*FACTORS.values()]) if factors is None else factors)).sum(axis=-1), -1.0, 1.0)
    )


def _terms(model: TensegrityModel, state: Array, heading: Array) -> tuple[Array, ...]:
    """Terms of `FACTORS`, each (..., m); heading (..., 1, 2)."""

    def along(vectors: Array) -> Array:
        return np.asarray((vectors[..., :2] * heading).sum(axis=-1))

    def across(vectors: Array) -> Array:
        return np.asarray(heading[..., 0] * vectors[..., 1] - heading[..., 1] * vectors[..., 0])

    cables, half = np.array(model.cables)[list(model.actuated)], 0.5 * float(model.rod_lengths.max())
    nodes, center = model.node_positions(state), model.center_of_mass(state)[..., None, :]
    ends, velocities = nodes[..., cables, :], model.node_velocities(state)[..., cables, :]  # (..., m, 2, 3)
    p = (ends.mean(axis=-2) - center) / half
    q = (nodes[..., cables ^ 1, :].mean(axis=-2) - center) / half  # rods are nodes 2r, 2r + 1
    d = ends[..., 1, :] - ends[..., 0, :]
    d /= np.maximum(np.linalg.norm(d, axis=-1, keepdims=True), 1e-9)
    com_velocity = model.com_velocity(state)[..., None, :]
    v = velocities.mean(axis=-2) - com_velocity
    r = ((velocities[..., 1, :] - velocities[..., 0, :]) * d).sum(axis=-1)
    p_h, p_z, d_h, d_z, q_z = along(p), p[..., 2], along(d), d[..., 2], q[..., 2]
    motors = state[..., -model.nu :] / model.control_limit
    shape = (np.ones_like(p_h), p_h, p_z, p_h * p_z, p_h**2, p_z**2, d_h**2, d_z**2, d_h * d_z)
    motion = (motors, along(v), v[..., 2], across(p) * across(com_velocity), r)
    return (*shape, *motion, q_z, p_h * q_z, along(q) * q_z)


def roll(envs: Any) -> Policy:
    """Rolls along the task's heading."""
    heading = [envs.task.context_names.index(name) for name in ("heading_x", "heading_y")]
    return lambda observation: rolling(envs.simulator.model, envs.state, envs.context[:, heading])


def follow(envs: Any) -> Policy:
    """Rolls along the command, and keeps to its speed v*: `rolling` times clip(PACE v* + CATCH_UP (v* t - way), 0, 1)."""
    return _keep_pace(envs, east=False)


def follow_along_x(envs: Any) -> Policy:
    """As `follow`, but along the world's x axis, whatever the command."""
    return _keep_pace(envs, east=True)


def _keep_pace(envs: Any, *, east: bool) -> Policy:
    names = ("heading_x", "heading_y", "along", "across", "target_along", "elapsed")
    columns = [envs.task.context_names.index(name) for name in names]

    def act(observation: Any) -> Array:
        hx, hy, along, across, speed, elapsed = envs.context[:, columns].T
        way = hx * along - hy * across if east else along
        heading = np.array([1.0, 0.0]) if east else np.stack([hx, hy], axis=1)
        strength = np.clip(PACE * speed + CATCH_UP * (speed * elapsed - way), 0.0, 1.0)
        return rolling(envs.simulator.model, envs.state, heading) * strength[:, None]

    return act


def roll_along_x(envs: Any) -> Policy:
    """Rolls along the world's x axis, whatever the command."""
    east = np.array([1.0, 0.0])
    return lambda observation: rolling(envs.simulator.model, envs.state, east)


def hold_first(envs: Any) -> Policy:
    """Repeats the first action of `roll`, without feedback."""
    first = roll(envs)(None)
    return lambda observation: first


def crawl(envs: Any) -> Policy:
    """Crawls along the command (`crawling`, by what obs_mode "sensors" observes), and keeps to its speed as `follow` does."""
    columns = [envs.task.context_names.index(name) for name in ("along", "target_along", "elapsed")]

    def act(observation: Any) -> Array:
        along, speed, elapsed = envs.context[:, columns].T
        strength = np.clip(CRAWL_PACE * speed + CRAWL_CATCH_UP * (speed * elapsed - along), 0.0, 1.0)
        return crawling(envs.simulator.model, observation) * strength[:, None]

    return act


def wave(envs: Any) -> Policy:
    """Pulls one motor after the other, twice a second, without feedback."""
    phase = 2 * np.pi * np.arange(envs.simulator.nu) / envs.simulator.nu
    second = envs.task.control_period

    def act(observation: Any) -> Array:
        return np.asarray(np.sin(4 * np.pi * second * envs.episodes.steps[:, None] + phase))

    return act


CONTROLLERS: dict[str, dict[str, Callable[[Any], Policy]]] = {
    "TensegrityRoll-v0": {"heuristic": follow, "blind": hold_first},
    "TensegrityCrawl-v0": {"heuristic": crawl, "blind": wave},
    "TensegrityWaypoint-v0": {"heuristic": roll, "blind": roll_along_x},
    "TensegrityTerrain-v0": {"heuristic": follow, "blind": follow_along_x},
}
"""Id -> name -> controller."""

PLANNING: dict[str, dict[str, float]] = {
    "TensegrityCrawl-v0": {"horizon": 30, "knots": 7, "samples": 64, "iterations": 2},
    "TensegrityWaypoint-v0": {
        "horizon": 12, "knots": 3, "samples": 24, "iterations": 2, "narrowing": 0.5, "replan_every": 4, "temperature": 0.05,
    },
}  # fmt: skip
"""Id -> settings of sampling MPC; see `core.system.System.planning`."""
