"""The package as a user gets it: names, wheel, light import, documents that are true."""

import ast
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from helpers import run

from softgym_envs.core.files import read_toml
from softgym_envs.core.task import EXTRAS
from softgym_envs.systems import systems

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("softgym_envs", "sysid", "agents")
SUBCOMMANDS = sorted((ROOT / "scripts").glob("*.py"))


def modules():
    """Every module of the three packages, by name."""
    paths = [str(ROOT / package) for package in PACKAGES]
    found = list(PACKAGES)
    for package, path in zip(PACKAGES, paths, strict=True):
        found += [info.name for info in pkgutil.walk_packages([path], f"{package}.", onerror=lambda name: None)]
    return found


def sources():
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


# --- names -------------------------------------------------------------------------------------------------------------


def test_public_names_exist_and_are_documented():
    for name in modules():
        module = importlib.import_module(name)
        assert module.__doc__ or not vars(module).get("__all__"), f"{name} has public names and no docstring"
        for public in getattr(module, "__all__", ()):
            found = getattr(module, public)
            assert not (inspect.isclass(found) or inspect.isroutine(found)) or found.__doc__, (
                f"{name}.{public} has no docstring"
            )


def test_the_top_of_each_package_says_what_it_is():
    for package in PACKAGES:
        assert importlib.import_module(package).__doc__, package


def test_import_is_light(tmp_path):
    heavy = ["torch", "mujoco", "pygame", "warp", "matplotlib", "casadi", "h5py", "ray", "scipy.optimize"]
    code = f"import sys, softgym_envs; print(*[name for name in {heavy} if name in sys.modules])"
    assert run(sys.executable, "-c", code, cwd=tmp_path).split() == []


# --- files -------------------------------------------------------------------------------------------------------------


def test_wheel_holds_the_packages_and_nothing_else(tmp_path):
    names = built_wheel(tmp_path).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {*PACKAGES, "softgym_commands"}
    assert {name.split("/")[1] for name in names if name.startswith("softgym_commands/")} == {path.name for path in SUBCOMMANDS}
    expected = {path.relative_to(ROOT).as_posix() for path in sources()}
    data = {path.relative_to(ROOT).as_posix() for package in PACKAGES for path in data_files(ROOT / package)}
    held = {name for name in names if name.split("/")[0] in PACKAGES}
    assert held == expected | data
    assert {f"{package}/py.typed" for package in PACKAGES} <= held
    assert any(name.endswith("licenses/LICENSE") for name in names)


def data_files(folder):
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and "__pycache__" not in path.parts
    ]


def built_wheel(tmp_path):
    """Built from a copy, so that no build folder is left in the tree and no old one is picked up."""
    copy = tmp_path / "tree"
    tracked = [*sources(), *SUBCOMMANDS, *(path for package in PACKAGES for path in data_files(ROOT / package))]
    for path in [
        *tracked,
        *(ROOT / name for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "tests/conftest.py")),
    ]:
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, "-w", str(tmp_path), str(copy), cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    return zipfile.ZipFile(wheel)


def test_the_commands_of_the_wheel_run_far_from_this_folder(tmp_path):
    """The installed subcommands are those of the wheel: listed without tyro, run with it."""
    (tmp_path / "wheel").mkdir()
    built_wheel(tmp_path).extractall(tmp_path / "wheel")
    entry = next((tmp_path / "wheel").glob("*.dist-info/entry_points.txt")).read_text(encoding="utf-8")
    assert "softgym-envs = softgym_commands.__main__:main" in entry
    call = "import softgym_commands.__main__ as command, softgym_envs, sys; print(command.__file__, softgym_envs.__file__);"
    said = run(
        sys.executable, "-c", f"{call} sys.exit(command.main(['list']))", cwd=tmp_path, PYTHONPATH=str(tmp_path / "wheel")
    )
    assert said.splitlines()[0].split() == [
        str(tmp_path / "wheel" / "softgym_commands" / "__main__.py"),
        str(tmp_path / "wheel" / "softgym_envs" / "__init__.py"),
    ]
    assert all(task.id in said for system in systems().values() for task in system.tasks)
    (tmp_path / "mine.py").write_text("def still(envs):\n    return lambda observation: 0.0 * envs.action_space.sample()\n")
    words = ["benchmark", "ArmReach-v0", "mine:still", "--episodes", "1"]
    run(sys.executable, "-c", f"{call} sys.exit(command.main({words}))", cwd=tmp_path, PYTHONPATH=str(tmp_path / "wheel"))
    assert "`mine:still` | 0 [" in (tmp_path / "runs" / "benchmark" / "benchmark.md").read_text(encoding="utf-8")
    bare = f"{call} sys.modules['tyro'] = None; sys.exit(command.main(['list']) != 2)"
    run(sys.executable, "-c", bare, cwd=tmp_path, PYTHONPATH=str(tmp_path / "wheel"))


def test_a_missing_package_is_named_with_the_extra_that_brings_it(tmp_path):
    """Every ground truth of every system, without its package; the native backend needs none."""
    code = """
import sys
for name in ("mujoco", "pinocchio", "elastica"):
    sys.modules[name] = None
import gymnasium as gym, softgym_envs
from softgym_envs.core.errors import MissingDependencyError
from softgym_envs.systems import systems
for system in systems().values():
    for backend in system.ground_truths:
        try:
            system.simulator(backend=backend)
        except MissingDependencyError as error:
            needed = "pinocchio" if backend in ("pinocchio", "elastica") else "mujoco"  # elastica needs both
            assert f'needs {needed}: pip install ".[{needed}]"' in str(error), error
        else:
            raise AssertionError(f"{system.name} made {backend}")
    assert system.installed == ("native",)
gym.make("SlidingBlock-v0").reset(seed=0)
"""
    run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT))
    extras = read_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        wheel = {"pinocchio": "pin", "elastica": "pyelastica"}.get(package, package.replace("_", "-"))
        assert any(wanted.startswith(wheel) for wanted in extras[extra]), (package, extra)


def test_the_demo_needs_no_pytorch(tmp_path):
    """`make demo` installs neither PyTorch nor what builds on it."""
    code = """
import importlib.abc, sys
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "stable_baselines3", "moviepy", "tensorboard"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
import scripts.demo
from softgym_envs.core.task import load
from softgym_envs.systems import systems
for system in systems().values():
    load(system.procedure)
"""
    run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT))


def test_training_leaves_the_processors_to_the_simulator(tmp_path):
    """PyTorch has one thread wherever the process is ours, unless somebody says otherwise."""
    code = "import os; os.environ.pop('OMP_NUM_THREADS', None); import scripts.train, torch; print(torch.get_num_threads())"
    assert run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT)).split() == ["1"]


FORBIDDEN = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def test_no_source_unpickles():
    """Files of others are never run: no pickle (conformance.py copies its own object), torch files by weights only."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert path.name == "conformance.py" or not {name.split(".")[0] for name in names} & FORBIDDEN, path
            if isinstance(node, ast.Call):
                options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert options.get("allow_pickle") != "True", path
                assert ast.unparse(node.func) != "torch.load" or options.get("weights_only") == "True", path


def test_one_language():
    """The field's words: a system, a ground truth, a MuJoCo model, a procedure, diagnostics, candidate causes."""
    own = re.compile(r"room|truth|twin|suspect|verdict|recipe", re.IGNORECASE)
    exceptions = ("CHANGELOG.md", "tests/unit/test_packaging.py")
    for name in tracked():
        path = ROOT / name
        if name not in exceptions and path.suffix in (".py", ".md", ".toml", ".json", ".html", ".txt", ".h"):
            text = re.sub(r"ground[\s_-]*truth", "", path.read_text(encoding="utf-8"), flags=re.IGNORECASE)
            assert not (found := own.search(text)), f"{name}: {text[max(found.start() - 40, 0) : found.end() + 20]!r}"


def tracked():
    """Names of the files of this checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_only_the_contract_asks_for_its_base_class():
    """All other modules ask for protocols (`HasWarnings`, `Differentiable`), which foreign simulators can have."""
    asks = re.compile(r"isinstance\([^)]*\bBaseSimulator\b")
    paths = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    assert [path.name for path in paths if asks.search(path.read_text(encoding="utf-8"))] == ["base.py"]


def test_no_path_of_one_machine():
    pattern = re.compile(rb"(?<![\w.])/(?:work|root|home/\w+|tmp)/")
    for name in tracked():
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".yaml", ".cff", ".json", "") and path.name != Path(__file__).name:
            assert not pattern.search(path.read_bytes()), name


# --- the checkout ----------------------------------------------------------------------------------------------------


def test_ci_runs_what_a_person_runs():
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    assert "make test" in lines
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_no_test_ends_by_the_clock_of_a_busy_machine():
    """But after `helpers.HUNG`, for what waits for ever; other limits are of processor time, or shares of a sleep."""
    for path in (ROOT / "tests").rglob("*.py"):
        found = re.findall(r"timeout=[\d.]+", path.read_text(encoding="utf-8"))
        assert not found, f"{path.name}: {found}"


def test_makefile_is_short_and_describes_each_target():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    for target in targets:
        assert re.search(rf"^{target}:.*## .+$", text, re.MULTILINE), f"make {target} is not described"


def test_makefile_names_a_python_that_is_missing(tmp_path):
    """On a machine without a fitting Python, one sentence says so."""
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    old = tmp_path / "oldpython"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    result = subprocess.run(["make", f"PYTHON={old}", "check"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "is missing or older than 3.11; name another one: make PYTHON=python3.12 check" in result.stdout + result.stderr
    assert not (tmp_path / ".venv").exists()


POSIX = re.compile(
    r"os\.(?:fork|getloadavg|get(?!pid)\w*id|set\w*id|killpg|uname|mkfifo|nice|sched_\w+|register_at_fork|(?:sym)?link)\b"
    r"|(?:import|from) (?:fcntl|grp|posix|pty|pwd|resource|termios)\b"
    r"|signal\.(?:SIGALRM|SIGHUP|SIGKILL|SIGUSR\d|alarm|setitimer|ITIMER_REAL)\b|preexec_fn|shell=True"
    r"|[\"']/(?:tmp|dev|proc|usr|home)\b"  # a path of one system
    r"|\+ ?f?[\"']/|[\"']/[\"']\.(?:join|split)|split\([\"']/[\"']\)"  # paths joined or cut by hand
    r"|\.(?:read|write)_text\(\)|(?<!os\.)\bopen\([^\"')]*\)"  # the encoding of the machine
)
GUARDED = {
    "scripts/__main__.py": {"signal.SIGALRM", "signal.setitimer", "signal.ITIMER_REAL"},
    "softgym_envs/engines/threads.py": {"os.register_at_fork"},
    "softgym_envs/engines/kernel_cache.py": {"os.getuid"},
    "softgym_envs/engines/mujoco/engine.py": {"os.register_at_fork", "os.sched_getaffinity"},
    "softgym_envs/engines/timing.py": {'"/proc', "os.getloadavg"},
}
"""What is used only where it exists."""


def test_code_is_portable():
    """Windows and macOS have not run this code: nothing that only Linux or POSIX has, but where a test for it stands before."""
    found = {}
    for path in (*sources(), *SUBCOMMANDS):
        code = re.sub(r'"""(?:.|\n)*?"""|(?<!["\'])#.*', "", path.read_text(encoding="utf-8"))
        if calls := set(POSIX.findall(code)):
            found[path.relative_to(ROOT).as_posix()] = calls
    assert found == GUARDED
