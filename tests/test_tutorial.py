"""docs/add_a_robot.md: its robot is built as the page says, in a package of its own, and its commands are run one after the other."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/add_a_robot.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))
COMMANDS = re.search(r"^```bash\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[1].splitlines()
METADATA = "Metadata-Version: 2.1\nName: elastic-pendulum\nVersion: 0.1\n"
LONGEST = 150
"""Lines of the whole robot, twin and all, without blank ones."""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The page's files as an installed package: sources, and the metadata that pip writes."""
    folder = tmp_path_factory.mktemp("installed")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    entry = re.search(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[1]
    info = folder / "elastic_pendulum-0.1.dist-info"
    info.mkdir()
    group, line = entry.strip().splitlines()
    info.joinpath("entry_points.txt").write_text(
        f"[{re.search(r'entry-points.\"(.*)\"', group)[1]}]\n{line.replace(chr(34), '')}\n", encoding="utf-8"
    )
    info.joinpath("METADATA").write_text(METADATA, encoding="utf-8")
    return folder


def run(package, *command, cwd):
    path = os.pathsep.join([str(package), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "SDL_VIDEODRIVER": "dummy"}
    found = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, f"{' '.join(command)}\n{found.stdout}\n{found.stderr}"
    return found.stdout


def test_the_robot_is_short():
    assert sum(bool(line.strip()) for text in FILES.values() for line in text.splitlines()) <= LONGEST


def test_contributing_names_these_steps():
    steps = re.findall(r"^## (\d\. .+)$", PAGE, flags=re.MULTILINE)
    assert len(steps) == 8
    assert steps == re.findall(r"^(\d\. .+\.py)$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_every_command_of_the_page_runs(package, tmp_path):
    """In one folder, in the page's order; the files that the page names are there afterwards."""
    for command in COMMANDS:
        words = shlex.split(command, comments=True)
        if words:
            assert words[0] == "softgym-envs"
            run(package, sys.executable, str(ROOT / "scripts"), *words[1:], cwd=tmp_path)
    for name in re.findall(r"^\| `([^`]+)` \|", PAGE, flags=re.MULTILINE):
        assert (tmp_path / name).exists(), name


CHECK = """
import gymnasium as gym, numpy as np, softgym_envs
from gymnasium.utils.env_checker import check_env
from softgym_envs.rooms import room
found = room("elastic_pendulum")
engine, twin = found.simulator(), found.simulator(backend="mujoco")
state = engine.initial_state(2)
state[:, :3] += [[0.1, 1.0, 0.1], [0.0, -0.5, 0.0]]
controls = np.random.default_rng(0).uniform(-5, 5, (2, 20, 1))
a, b = (s.rollout(state, controls, substeps=50)[0] for s in (engine, twin))
print(float(np.abs(a - b).max()))
quiet = engine.default_parameters.replace(damping=0.01)
states = engine.rollout(state, np.zeros((2, 20, 1)), quiet, substeps=5)[0]
momentum = 1.0 * states[..., 3] + 0.5 * (states[..., 3] + states[..., 5] * np.sin(states[..., 1])
    + states[..., 2] * states[..., 4] * np.cos(states[..., 1]))
print(float(np.ptp(momentum, axis=1).max()))
check_env(gym.make("ElasticCatch-v0", disable_env_checker=True).unwrapped, skip_render_check=True)
envs = gym.make_vec("ElasticCatch-v0", num_envs=3, backend="mujoco")
single = gym.make("ElasticCatch-v0", backend="mujoco")
first = envs.reset(seed=4)[0]
print(bool((first[1] == single.reset(seed=5)[0]).all()))
"""


def test_its_physics_and_its_environment(package, tmp_path):
    """Engine and twin agree over 2 s to the order of their step; nothing pushes the cart: momentum along the rail is kept."""
    far, drift, same = run(package, sys.executable, "-c", CHECK, cwd=tmp_path).split()
    assert float(far) < 0.05
    assert float(drift) < 1e-3 * np.sqrt(20)
    assert same == "True"
