"""The tutorials: their systems are built as the pages say, in packages of their own; their commands run one after the other."""

import ast
import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from helpers import run_limited

from softgym_envs.core.errors import OptionError
from softgym_envs.core.files import read_toml
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.templates import new_system

ROOT = Path(__file__).resolve().parents[2]
PAGE, CHAIN = (
    (ROOT / "docs/tutorials" / name).read_text(encoding="utf-8") for name in ("add_a_system.md", "add_a_soft_chain.md")
)
ENTRY = re.search(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[1]
STUDY = re.search(r"^```toml file=study.toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[1]
LONGEST = 150
"""Lines of the whole robot, MuJoCo model and all, without blank ones; of the soft chain without imports and docstrings, too."""


def files_of(page):
    return dict(re.findall(r"^```python file=(\S+)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL))


FILES = files_of(PAGE)


def installed(folder, name, page):
    """A page's files as an installed package: sources, and the metadata that pip writes."""
    for file, text in files_of(page).items():
        path = folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    info = folder / f"{name}-0.1.dist-info"
    info.mkdir()
    head, line = ENTRY.replace("elastic_pendulum", name).replace('"', "").strip().splitlines()
    group = head.removeprefix("[project.entry-points.")
    info.joinpath("entry_points.txt").write_text(f"[{group}\n{line}\n", encoding="utf-8")
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return installed(tmp_path_factory.mktemp("installed"), "elastic_pendulum", PAGE)


def run_commands(package, page, folder):
    """Run a page's commands in one folder, in their order; the files that it names are there afterwards."""
    for command in re.search(r"^```bash\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)[1].splitlines():
        words = shlex.split(command, comments=True)
        if words:
            assert words[0] == "softgym-envs"
            run(package, sys.executable, str(ROOT / "scripts"), *words[1:], cwd=folder)
    for name in re.findall(r"^\| `([^`]+)` \|", page, flags=re.MULTILINE):
        assert (folder / name).exists(), name


def run(package, *command, cwd):
    path = os.pathsep.join([str(package), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "SDL_VIDEODRIVER": "dummy"}
    found = run_limited(command, seconds=600, cwd=cwd, env=env)
    assert found.returncode == 0, f"{' '.join(command)}\n{found.stdout}\n{found.stderr}"
    return found.stdout


def test_the_robot_is_short():
    assert sum(bool(line.strip()) for text in FILES.values() for line in text.splitlines()) <= LONGEST


def test_new_writes_the_files_of_the_page(tmp_path):
    written = new_system("elastic_pendulum", tmp_path)
    package = tmp_path / "elastic_pendulum"
    for name, text in {**FILES, "study.toml": STUDY}.items():
        assert (package / name).read_text("utf-8") == text, f"templates/{Path(name).name}.txt differs from the page"
    assert len(written) == len(FILES) + 2
    other = new_system("my_arm", tmp_path)
    assert not any("lastic_" in path.read_text("utf-8") or "ElasticCatch" in path.read_text("utf-8") for path in other)
    for wrong, said in (("My-Arm", "expected lower-case letters"), ("my_arm", "exists")):
        with pytest.raises(OptionError, match=said):
            new_system(wrong, tmp_path)


def test_check_prints_a_sentence_for_every_fault(tmp_path):
    new_system("my_arm", tmp_path)
    tasks = tmp_path / "my_arm" / "my_arm" / "tasks.py"
    tasks.write_text(tasks.read_text("utf-8").replace(" < 0.1", ""), "utf-8")
    command = [sys.executable, str(ROOT / "scripts"), "check", "my_arm:SYSTEM"]
    found = run_limited(command, seconds=60, cwd=tmp_path / "my_arm", env={**os.environ, "OMP_NUM_THREADS": "1"})
    faults = re.findall(r"^FAILED (.+)\n +(.+)$", found.stdout, flags=re.MULTILINE)
    assert found.returncode == 1 and len(faults) == 8 and all(what.startswith("MyArmCatch-v0") for what, _ in faults)
    assert all("CatchSwing.success returned float64 of shape" in said for _, said in faults), faults


def test_contributing_names_these_steps():
    steps = re.findall(r"^## (\d\. .+)$", PAGE, flags=re.MULTILINE)
    assert len(steps) == 8
    assert steps == re.findall(r"^(\d\. .+\.py)$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_every_command_of_the_page_runs(package, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    run_commands(package, PAGE, tmp_path)
    costs = {row[0]: float(row[1]) for row in json.loads((tmp_path / "demo" / "demo.json").read_text())["rows"]}
    assert costs["identified"] < 0.5 * costs["no control"]  # it has something to do


def test_the_soft_chain_is_short():
    """As it is shown, without blank lines, imports and docstrings."""
    shown = 0
    for text in files_of(CHAIN).values():
        nodes = list(ast.walk(ast.parse(text)))
        dropped = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
        dropped += [n for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
        lines = {line for n in dropped for line in range(n.lineno, n.end_lineno + 1)}
        shown += sum(bool(line.strip()) and k not in lines for k, line in enumerate(text.splitlines(), 1))
    assert shown <= LONGEST


def test_every_command_of_the_soft_chain_runs(tmp_path_factory, tmp_path):
    """Its hidden state is not recorded; of all nodes, what the pieces have in common is found."""
    package = installed(tmp_path_factory.mktemp("installed"), "soft_chain", CHAIN)
    run_commands(package, CHAIN, tmp_path)
    assert TrajectorySet.load(tmp_path / "tip.h5")[0].names == ("tip.x", "tip.y", "tip.z")
    assert len(TrajectorySet.load(tmp_path / "shaken.h5")[0].names) == 18
    found = {name: entry["value"] for name, entry in read_toml(tmp_path / "fit" / "fit.toml")["parameters"].items()}
    for name, true in {"density": 0.25, "stretching": 20.0, "damping": 0.05, "shear0": 3.0, "shear1": 3.0}.items():
        assert abs(found[name] / true - 1.0) < 0.05, name


CHECK = """
from dataclasses import replace
import gymnasium as gym, numpy as np, softgym_envs
from gymnasium.utils.env_checker import check_env
from softgym_envs.systems import system
found = system("elastic_pendulum")
start = found.simulator().initial_state(2)
start[:, :3] += [[0.1, 1.0, 0.1], [0.0, -0.5, 0.0]]
controls = np.random.default_rng(0).uniform(-5, 5, (2, 20, 1))
for dt, substeps in ((2e-3, 50), (1e-3, 100)):
    engine, reference = found.simulator(dt=dt), found.simulator(backend="mujoco", dt=dt)
    a, b = (s.rollout(start, controls, substeps=substeps)[0] for s in (engine, reference))
    states = engine.rollout(start, 0 * controls, substeps=substeps)[0]
    x, theta, r, vx, w, vr = np.moveaxis(states, -1, 0)
    momentum = vx + 0.5 * (vx + vr * np.sin(theta) + r * w * np.cos(theta))
    print(float(np.abs(a - b).max()), float(np.ptp(momentum, axis=1).max()))
check_env(gym.make("ElasticCatch-v0", disable_env_checker=True).unwrapped, skip_render_check=True)
envs = gym.make_vec("ElasticCatch-v0", num_envs=3, backend="mujoco")
single = gym.make("ElasticCatch-v0", backend="mujoco")
first = envs.reset(seed=4)[0]
print(bool((first[1] == single.reset(seed=5)[0]).all()))
"""


def test_its_physics_and_its_environment(package, tmp_path):
    """Halving the step halves the distance of engine and MuJoCo model, and the drift of the momentum that nothing changes."""
    coarse, fine, same = run(package, sys.executable, "-c", CHECK, cwd=tmp_path).splitlines()
    for a, b in zip(coarse.split(), fine.split(), strict=True):
        assert 1.6 < float(a) / float(b) < 2.5
    assert same == "True"


FIRST = """
import warnings
warnings.simplefilter("error")
import elastic_pendulum
import gymnasium as gym
for name in ("ElasticCatch-v0", "softgym_envs:ElasticCatch-v0"):
    print(gym.make(name).reset(seed=0)[0].shape, gym.make_vec(name, num_envs=2).reset(seed=0)[0].shape)
from softgym_envs.systems import awaits_systems, system
print(system("elastic_pendulum") is elastic_pendulum.SYSTEM, awaits_systems())
"""


def test_its_package_may_be_imported_before_ours(package, tmp_path):
    said = run(package, sys.executable, "-c", FIRST, cwd=tmp_path).splitlines()
    assert said == 2 * ["(6,) (2, 6)"] + ["True False"]


MJCF = """<mujoco><option timestep="0.002" gravity="0 0 -9.81"/><worldbody>
<body><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><joint name="rail" type="slide" axis="1 0 0"/>
<body><inertial pos="0 0 0" mass="1e-6" diaginertia="1e-6 1e-6 1e-6"/><joint name="swing" axis="0 1 0"/>
<body><inertial pos="0 0 0" mass="0.5" diaginertia="1e-6 1e-6 1e-6"/>
<joint name="spring" type="slide" axis="0 0 -1" springref="0.5" stiffness="60" damping="0.3"/>{more}</body></body></body>
</worldbody><actuator><motor name="idle" joint="swing"/><motor name="push" joint="rail"/></actuator></mujoco>"""
FLAG = """<body pos="0 0.1 0"><inertial pos="0 0 -0.02" mass="1e-3" diaginertia="1e-6 1e-6 1e-6"/>
<joint name="flag" axis="0 1 0" damping="1e-5"/></body>"""
MAPPING = """mjcf = "mine.xml"
[states]
x = "qpos:rail"
theta = { qpos = "swing", scale = -1.0 }
r = "qpos:spring"
vx = "qvel:rail"
w = { qvel = "swing", scale = -1.0 }
vr = "qvel:spring"
[controls]
force = "push"
"""
WORLDS = """
import sys
import gymnasium as gym, numpy as np, softgym_envs
from softgym_envs.core.errors import SoftgymError
from softgym_envs.systems import system
found = system("elastic_pendulum")
reference, mine, flag = (found.simulator(backend=b) for b in ("mujoco", "mine.toml", "flag.toml"))
hidden = ("unseen_mjcf.qpos3", "unseen_mjcf.qvel3")
assert mine.state_names == reference.state_names and flag.state_names == (*reference.state_names, *hidden)
start = reference.initial_state(2)
start[:, :3] += [[0.1, 1.0, 0.1], [0.0, -0.5, 0.0]]
controls = np.random.default_rng(0).uniform(-5, 5, (2, 20, 1))
a, b = (s.rollout(start, controls, substeps=50)[0] for s in (reference, mine))
print(float(np.abs(a - b).max()))
push, rest = np.random.default_rng(1).uniform(-5, 5, (1, 30, 1)), np.zeros((1, 1, 1))
for backend in ("mine.toml", "flag.toml"):
    one, other = (found.simulator(backend=backend, options={"effects": e}) for e in ({}, {"latency": 0.01}))
    prompt = one.rollout(one.initial_state(), np.concatenate([rest, push], axis=1), substeps=5)[0]
    late = other.rollout(other.initial_state(), np.concatenate([push, rest], axis=1), substeps=5)[0]
    print(float(np.abs(late[..., : one.nx] - prompt).max()), float(np.ptp(prompt[0, :, 0])))
for backend in ("mine.toml", "flag.toml", "elastic_pendulum.mujoco:PendulumMujocoModel"):
    env = gym.make("ElasticCatch-v0", backend=backend)
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        observation, reward, *_, info = env.step(np.ones(1, dtype=np.float32))
    print(backend, observation.shape, env.unwrapped.state.shape, round(reward, 4), info["sim_failed"])
for backend in ("bad.toml", "elastic_pendulum.mujoco:Nothing", "json:dumps", "bullet"):
    try:
        found.simulator(backend=backend)
    except SoftgymError as error:
        print("refused:", error)
"""


def test_worlds_of_the_users(package, tmp_path):
    """A mapped MJCF equals the MuJoCo model that it describes, has a ladder of effects too; of one that has more, tasks see
    ours."""
    (tmp_path / "mine.xml").write_text(MJCF.format(more=""), encoding="utf-8")
    (tmp_path / "flag.xml").write_text(MJCF.format(more=FLAG), encoding="utf-8")
    (tmp_path / "mine.toml").write_text(MAPPING, encoding="utf-8")
    (tmp_path / "flag.toml").write_text(MAPPING.replace("mine", "flag"), encoding="utf-8")
    (tmp_path / "bad.toml").write_text(MAPPING.replace("qvel:spring", "qvel:sprung"), encoding="utf-8")
    said = run(package, sys.executable, "-c", WORLDS, cwd=tmp_path).splitlines()
    assert float(said[0]) < 1e-9
    for line in said[1:3]:  # commands that act 10 ms late are the same commands, and they move the robot
        apart, moved = map(float, line.split())
        assert apart < 1e-9 < 1e-3 < moved
    shapes = {line.split(" (")[0]: line for line in said[3:6]}
    assert "(6,) (6,)" in shapes["mine.toml"] and "(6,) (8,)" in shapes["flag.toml"]
    refused = [line for line in said if line.startswith("refused")]
    assert len(refused) == 4
    assert "has no joint 'sprung'" in refused[0]
    assert "allowed are native, mujoco, 'package.module:function' or a .toml file" in refused[3]


def test_every_rule_holds_because_it_is_on_the_list(package):
    """Promises of simulators and rules of environments take it from the list of systems."""
    rules = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").glob("test_envs_*.py"))]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "elastic_pendulum or ElasticCatch"]
    said = run(package, *command, "tests/integration/test_contract.py", *rules, cwd=ROOT)
    assert int(re.search(r"(\d+) passed", said)[1]) >= 26 and "skipped" not in said
