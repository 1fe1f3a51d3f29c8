"""Does estimating friction pay? SlidingBlock-v0 under one controller that knows, learns or assumes it.

    python experiments/block_push_adaptive.py  # 100 episodes x 3 controllers x 2 tolerances x 2 engines, a minute
    python experiments/block_push_adaptive.py --episodes 20

Friction is uniform in [0.15, 0.5] and new in every episode; poses and velocities are measured with noise. The force acts
at the centre of mass and the goal is not turned, so that the way there is a line and the best controller is a formula: the push
after which the block would coast to rest at the goal (`shove`). The controllers differ in the friction that they use in it:

- knows: the true one.
- learns: the mean of its posterior: Bayes' rule on a grid, every control step against its predictions.
- assumes: the middle of the range.

Predictions are those of our engine, whichever engine is the world. Intervals are 95 %: Wilson's for success, Student's t
over episodes for means. Writes results/block_push_adaptive/numbers.json.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

import softgym_envs  # noqa: F401  (registers the ids)
from agents.transfer_study.statistics import mean_of_runs, share
from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.systems.rigid.dynamics import BlockSimulator
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.rigid.parameters import BlockParameters

Array = NDArray[np.float64]
Kind = Literal["knows", "learns", "assumes"]
KINDS: tuple[Kind, ...] = ("knows", "learns", "assumes")

RANGE = (0.15, 0.5)
KEYWORDS: dict[str, Any] = {
    "randomize": {"friction": RANGE},
    "obs_mode": "state",
    "sensor_noise": 0.01,  # 1 mm, 10 mrad, 1 cm/s, 10 mrad/s
    "handle": (0.0, 0.0),
    "goal_turn": 0.0,
}
KNOWN = BlockParameters()
"""Parameters other than friction: mass, gravity, inertia."""
PERIOD, SUBSTEPS = 0.1, 5
"""Control step [s], and physics steps of a prediction in it."""
FASTEST = 0.6
"""[m/s]"""
GRID = np.linspace(0.05, 0.6, 45)
MISFIT = np.array([0.004, 0.004, 0.03, 0.03, 0.03, 0.15])
"""Standard deviation between a predicted and an observed step: noise of both, and the prediction's coarser physics."""


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    episodes: int = 100
    """Seeds 0, 1, ..."""
    tolerances: tuple[float, ...] = (0.02, 0.005)
    """Tolerance of the goal [m]; the task's default is 0.02."""
    backends: tuple[Literal["native", "mujoco"], ...] = ("native", "mujoco")
    """Worlds: our engine, or MuJoCo."""
    out: Path = Path("results/block_push_adaptive/numbers.json")
    """File of the numbers."""


@dataclass(frozen=True)
class Episode:
    """Result of an episode."""

    success: bool
    steps: int
    """Control steps until the goal, or all."""
    distance: float
    """[m] at the end."""
    reward: float
    error: float
    """|final estimate of the friction - true one|"""


class Belief:
    """Posterior p(friction | motion) on a grid; uniform within the range before anything has moved."""

    def __init__(self) -> None:
        self.simulator = BlockSimulator(BlockModel(pulley=None, handle=(0.0, 0.0), num_directions=8), dt=PERIOD / SUBSTEPS)
        self.logarithm = np.where((GRID >= RANGE[0]) & (GRID <= RANGE[1]), 0.0, -np.inf)

    def see(self, before: Array, force: Array, after: Array) -> None:
        """Update by one control step: states (6,) before and after, force (2,) [N]."""
        rows = len(GRID)
        start, control = np.tile(before, (rows, 1)), np.tile(force, (rows, 1))
        predicted, _ = self.simulator.step(start, control, KNOWN.replace(friction=GRID), substeps=SUBSTEPS)
        self.logarithm = self.logarithm - 0.5 * np.sum(((predicted - after) / MISFIT) ** 2, axis=1)

    @property
    def mean(self) -> float:
        """Posterior mean of the friction."""
        weight = np.exp(self.logarithm - self.logarithm.max())
        return float(weight @ GRID / weight.sum())


def shove(state: Array, goal: Array, friction: float) -> Array:
    """Force [N] in the block's axes (2,), for a state (6,) and the goal's place (2,) [m].

    With the deceleration a = mu g, the control step h begins at a speed v towards the goal and ends at s, from which the block
    coasts to rest there: D = h (v + s) / 2 + s^2 / (2 a). The force is m (s - v) / h, and mu m g against friction.
    """
    way, slowing = goal - state[:2], friction * KNOWN.gravity
    distance = float(np.hypot(*way))
    ahead = way / max(distance, 1e-9)
    rest = max(distance - 0.5 * PERIOD * float(state[3:5] @ ahead), 0.0)
    speed = min(slowing * (np.sqrt(0.25 * PERIOD**2 + 2 * rest / slowing) - 0.5 * PERIOD), FASTEST)
    mean = 0.5 * (speed * ahead + state[3:5])
    push = (speed * ahead - state[3:5]) / PERIOD + slowing * mean / max(float(np.hypot(*mean)), 1e-9)
    c, s = np.cos(state[2]), np.sin(state[2])
    limit = BlockModel.force_limit
    return np.asarray(np.clip(KNOWN.mass * np.array([c * push[0] + s * push[1], c * push[1] - s * push[0]]), -limit, limit))


def run(kind: Kind, seed: int, tolerance: float, backend: str = "native") -> Episode:
    """Run one episode."""
    env = gym.make("SlidingBlock-v0", backend=backend, tolerance=(tolerance, 0.15), control_period=PERIOD, **KEYWORDS)
    observation, info = env.reset(seed=seed)
    ground_truth = float(info["parameters"]["friction"])
    belief, goal, total, steps = Belief(), observation[6:8].astype(np.float64), 0.0, 0
    while True:
        friction = {"knows": ground_truth, "learns": belief.mean, "assumes": 0.5 * sum(RANGE)}[kind]
        state = observation[:6].astype(np.float64)
        force = shove(state, goal, friction)
        observation, reward, terminated, truncated, info = env.step((force / BlockModel.force_limit).astype(np.float32))
        total, steps = total + float(reward), steps + 1
        if kind == "learns":
            belief.see(state, force, observation[:6].astype(np.float64))
        if terminated or truncated:
            env.close()
            return Episode(bool(info["is_success"]), steps, float(info["distance"]), total, abs(friction - ground_truth))


def compare(backend: str, tolerance: float, episodes: int) -> list[dict[str, Any]]:
    """Run all controllers on the same episodes; one row each."""
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        ends = [run(kind, seed, tolerance, backend) for seed in range(episodes)]
        success = share(sum(end.success for end in ends), episodes)
        numbers = {
            name: mean_of_runs(np.array([[getattr(end, name) for end in ends]], dtype=np.float64))
            for name in ("steps", "distance", "reward", "error")
        }
        head = {"backend": backend, "tolerance": tolerance, "controller": kind}
        stored = {name: value[:3] for name, value in {"success": success, **numbers}.items()}
        rows.append({**head, **stored, "episodes": [asdict(end) for end in ends]})
        told = ", ".join(f"{name} {value}" for name, value in numbers.items())
        print(f"{backend:6s} {1000 * tolerance:2.0f} mm {kind:7s}: success {success}, {told}", flush=True)
    return rows


def main(args: Args) -> None:
    """Run, print, save."""
    begin = time.perf_counter()
    rows = [
        row for backend in args.backends for tolerance in args.tolerances for row in compare(backend, tolerance, args.episodes)
    ]
    document = {
        "command": f"python experiments/block_push_adaptive.py --episodes {args.episodes}",
        "commit": git_commit(),
        "keywords": KEYWORDS,
        "intervals": "[value, low, high], 95 %",
        "rows": rows,
        "seconds": time.perf_counter() - begin,
    }
    write_atomically(args.out, (json.dumps(document, indent=1) + "\n").encode())
    print(f"written to {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
