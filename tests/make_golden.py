"""Write tests/data/golden.npz, numbers that must not change: one control step of every world, derivatives of every engine.

    python tests/make_golden.py                    add what the file lacks (a new id, a new engine)
    python tests/make_golden.py TensegrityRoll-v0  make these again, where numbers change on purpose (a line in CHANGELOG.md)

The entry "made" says in JSON of every name which commit, day, and MuJoCo its numbers come from.
"""

from __future__ import annotations

import io
import json
import lzma
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np

import softgym_envs
from softgym_envs.core.simulator import Differentiable, Simulator

Arrays = dict[str, Any]
FILE = Path(__file__).parent / "data" / "golden.npz"
ROWS, SUBSTEPS, HORIZON = 2, 5, 2


def world(env_id: str, backend: str, moved: float = 0.0, draw: int = 0) -> Arrays:
    """Two rows at the beginning, and after one control step with random actions, from state and context moved by `moved`."""
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=ROWS, backend=backend)
    first, _ = envs.reset(seed=3)
    start = envs.unwrapped.state
    if moved:
        frozen = envs.unwrapped.get_state()
        rng = np.random.default_rng(draw)
        frozen["state"] = start + moved * np.abs(start).max() * rng.standard_normal(start.shape)
        frozen["context"] = frozen["context"] * (1.0 + moved * rng.standard_normal(frozen["context"].shape))
        envs.unwrapped.set_state(frozen)
    action = np.random.default_rng(7).uniform(-1, 1, envs.action_space.shape).astype(np.float32)
    observation, reward, *_ = envs.step(action)
    found = {"observation": np.stack([first, observation]), "reward": reward, "state": np.stack([start, envs.unwrapped.state])}
    envs.close()
    return found


def derivatives(simulator: Simulator) -> Arrays:
    """`linearize` near rest, over a few physics steps, and `vjp` where there is one."""
    rng = np.random.default_rng(1)
    state = simulator.retract(simulator.initial_state(1), 0.01 * rng.standard_normal((1, simulator.n)))
    controls = 0.5 * rng.uniform(*simulator.control_bounds, (1, HORIZON, simulator.nu))
    found = dict(zip("ABC", simulator.linearize(state, controls[:, 0], substeps=SUBSTEPS), strict=True))
    if isinstance(simulator, Differentiable):
        gradient = simulator.vjp(state, controls, rng.standard_normal((1, HORIZON + 1, simulator.nx)), substeps=SUBSTEPS)
        found |= {f"vjp.{name}": value for name, value in gradient._asdict().items()}
    return found


def everything() -> dict[str, Callable[..., Arrays]]:
    """Name -> what makes its arrays: the engine and first ground truth of every id, and the derivatives of every engine."""
    from softgym_envs.systems import LIST, system

    makers: dict[str, Callable[..., Arrays]] = {}
    for found in map(system, LIST):
        for entry in found.tasks:
            for backend in ("native", *tuple(found.ground_truths)[:1]):
                makers[f"{entry.id}/{backend}"] = partial(world, entry.id, backend)
        for model in dict.fromkeys((next(iter(found.models)), *(entry.model for entry in found.tasks))):
            makers[f"{found.name}/{model}"] = lambda found=found, model=model: derivatives(found.simulator(model))
    return makers


def origin() -> dict[str, str]:
    """Commit of the package that is measured, today, and the version of MuJoCo."""
    folder = Path(softgym_envs.__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    today = datetime.now(UTC).date().isoformat()
    return {"commit": commit, "date": today, "mujoco": mujoco.__version__}


def write(makers: dict[str, Callable[..., Arrays]], renewed: list[str], path: Path = FILE) -> None:
    """Add what is missing; make again what begins with one of `renewed`."""
    stored: Arrays = dict(np.load(path)) if path.exists() else {}
    origins: dict[str, dict[str, str]] = json.loads(str(stored.pop("made", "{}")))
    for name, make in makers.items():
        if name in origins and not any(name.startswith(start) for start in renewed):
            continue
        stored = {key: value for key, value in stored.items() if not key.startswith(f"{name}/")}
        stored |= {f"{name}/{key}": value for key, value in make().items()}
        origins[name] = origin()
        print("made", name)
    stored["made"] = np.array(json.dumps(origins))
    with zipfile.ZipFile(path, "w") as file:  # as np.savez_compressed, but smaller
        for name, value in stored.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(value), allow_pickle=False)
            file.writestr(f"{name}.npy", content.getvalue(), smaller(content.getvalue()), 9)


def smaller(content: bytes) -> int:
    """The way of packing that makes it smaller."""
    plain, dear = len(zlib.compress(content, 9)), len(lzma.compress(content, lzma.FORMAT_ALONE))
    return zipfile.ZIP_DEFLATED if plain <= dear else zipfile.ZIP_LZMA


if __name__ == "__main__":
    write(everything(), sys.argv[1:])
