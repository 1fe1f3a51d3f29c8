"""What several test files need: simulators of the systems on the list, what drives them, a trajectory, scripts as modules."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.system import NATIVE, System
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems import systems, tasks

ROOT = Path(__file__).resolve().parent.parent
IDS = [entry.id for entry in tasks()]
BACKENDS = [NATIVE, *dict.fromkeys(backend for system in systems().values() for backend in system.ground_truths)]
WORLDS = [
    (entry.id, backend)
    for backend in BACKENDS
    for system in systems().values()
    for k, entry in enumerate(system.tasks)
    if backend in (NATIVE, *(tuple(system.ground_truths) if k == 0 else tuple(system.ground_truths)[:1]))
]
"""Every id in our engine and the first ground truth of its system, further ground truths with its first id: (id, backend)."""
EVERY_ID = pytest.mark.parametrize("env_id", IDS)
EVERY_WORLD = pytest.mark.parametrize(("env_id", "backend"), WORLDS, ids=[f"{backend}-{env_id}" for env_id, backend in WORLDS])


def system_of_id(env_id: str) -> System:
    return next(system for system in systems().values() if env_id in [entry.id for entry in system.tasks])


def actions_of(env: Any, count: int, seed: int = 0) -> Any:
    """Random actions (count, *shape of the env's)."""
    return np.random.default_rng(seed).uniform(-1, 1, (count, *env.action_space.shape)).astype(np.float32)


def equal(a: dict[str, Any], b: dict[str, Any]) -> None:
    """Same keys, same types, same numbers, bit for bit."""
    assert a.keys() == b.keys()
    for name, value in a.items():
        if isinstance(value, dict):
            equal(value, b[name])
        else:
            np.testing.assert_array_equal(value, b[name])


def row_of(info: dict[str, Any], row: int) -> dict[str, Any]:
    """One row of a vector environment's info, without the masks."""
    shown = {name: value for name, value in info.items() if not name.startswith("_")}
    return {name: row_of(value, row) if isinstance(value, dict) else value[row] for name, value in shown.items()}


@cache
def varied(env_id: str, backend: str = NATIVE) -> dict[str, tuple[float, float]]:
    """Intervals of 10 % around every positive constant of the world, inside its bounds."""
    system = system_of_id(env_id)
    specs = system.simulator(system.task(env_id).model, backend=backend).default_parameters.specs()
    around = {name: (0.9 * spec.default, 1.1 * spec.default) for name, spec in specs.items() if spec.default > 0}
    return {name: (max(low, specs[name].bounds[0]), min(high, specs[name].bounds[1])) for name, (low, high) in around.items()}


def noisy(env_id: str, backend: str = NATIVE) -> dict[str, Any]:
    """Keywords of a world in which nothing is certain."""
    period = system_of_id(env_id).task(env_id).control_period
    late = {"action_latency": (0.0, 2.0 * period), "observation_latency": 0.7 * period}
    return {"sensor_noise": 0.02, **late, "disturbance": 0.05, "randomize": varied(env_id, backend)}


def late(env_id: str, steps: int) -> dict[str, float]:
    """Keywords of actions that are some control steps late."""
    return {"action_latency": steps * system_of_id(env_id).task(env_id).control_period}


def success(env_id: str, make: Any, *, backend: str = NATIVE, rows: int = 32, **keywords: Any) -> float:
    """Share of first episodes in which the policy that `make` makes of the environment succeeds."""
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=rows, backend=backend, **keywords)
    observation, _ = envs.reset(seed=5)
    policy, done, reached = make(envs), np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
    for _ in range(200):
        observation, _, terminated, truncated, info = envs.step(np.asarray(policy(observation), dtype=np.float32))
        reached |= info["is_success"] & ~done
        done |= terminated | truncated
        if done.all():
            break
    assert done.all()
    return float(reached.mean())


HUNG = 3600.0
"""[s] By the clock, for what waits for ever and takes no processor time."""


def run_limited(command: Sequence[Any], *, seconds: int, **options: Any) -> subprocess.CompletedProcess[str]:
    """A finished command that may take so many seconds of processor time per process; on a busy machine it may last longer."""

    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    options |= {} if os.name == "nt" else {"preexec_fn": limit}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=HUNG, **options)


def run(*command, cwd, seconds=300, **env):
    """Output of a command that may take so much processor time; the clock of a busy machine does not count."""
    result = run_limited(command, seconds=seconds, cwd=cwd, env={**os.environ, **env})
    assert result.returncode == 0, f"{' '.join(map(str, command))}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def urdf(tree: Any) -> str:
    """A tree as URDF; its hand is its last body."""
    lines = ['<robot name="arm">', '<link name="base"/>']
    for body in tree.bodies:
        moments = " ".join(
            f'i{k}="{v}"' for k, v in zip(("xx", "yy", "zz", "xy", "xz", "yz"), (*body.inertia, 0, 0, 0), strict=False)
        )
        origin = f'<origin xyz="{" ".join(map(str, body.com))}"/>'
        inertial = f'<inertial>{origin}<mass value="{body.mass}"/><inertia {moments}/></inertial>'
        lines.append(f'<link name="{body.name}">{inertial if body.mass else ""}</link>')
    for joint in tree.joints:
        parent = "base" if joint.parent == "world" else joint.parent
        limit = f'<limit lower="{joint.lower}" upper="{joint.upper}" effort="{joint.effort}" velocity="{joint.velocity}"/>'
        lines.append(
            f'<joint name="{joint.name}" type="{joint.kind}"><parent link="{parent}"/><child link="{joint.child}"/>'
            f'<origin xyz="{" ".join(map(str, joint.xyz))}" rpy="{" ".join(map(str, joint.rpy))}"/>'
            f'<axis xyz="{" ".join(map(str, joint.axis))}"/>{limit if joint.kind != "fixed" else ""}</joint>'
        )
    return "\n".join([*lines, "</robot>"])


@cache
def load_script(path: str) -> ModuleType:
    """A script as a module, e.g. "scripts/play.py"; as when it runs, it finds the files beside it."""
    name = f"{Path(path).stem}_script"
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    sys.path.insert(0, str((ROOT / path).parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def run_script(script: Any, *arguments: Any) -> int:
    """Exit status of a script with these words of a command line."""
    import tyro

    return run_main(script, tyro.cli(script.Args, args=[str(argument) for argument in arguments]))


def run_main(script: Any, args: Any) -> int:
    """Exit status of a script, its errors handled as the command does."""
    return int(load_script("scripts/__main__.py").guarded(lambda: int(script.main(args) or 0)))


def raises(error, message):
    return pytest.raises(error, match=re.escape(message))


def make(seed=0, **changes):
    rng = np.random.default_rng(seed)
    fields = {
        "times": 0.1 * np.arange(6),
        "controls": rng.standard_normal((5, 2)),
        "values": rng.standard_normal((6, 3)),
        "names": ("a", "b", "c"),
        "units": ("m", "rad", "N"),
        "control_names": ("left", "right"),
        "control_units": ("-", "V"),
        "substeps": 4,
        "metadata": {"robot": "made up"},
    }
    return Trajectory(**{**fields, **changes})
