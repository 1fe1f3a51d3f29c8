"""What ended in a traceback at the command line: one sentence that names what to do, and exit code 2. What happens to files of
studies and policies, and to running studies: one sentence, and nothing left behind. The entry points of fuzz.py for
seconds, by hypothesis: it shrinks what it finds. `python tests/fuzz.py` runs them for hours."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pytest
from helpers import HUNG, ROOT, load_script, run_limited
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.transfer_study.definition import Planning, Study
from agents.transfer_study.document import read_study
from agents.transfer_study.fits import FitRecord
from agents.transfer_study.jobs import read_record, register
from agents.transfer_study.planned import read_replay
from softgym_envs.core.errors import FileFormatError, OptionError, SoftgymError
from softgym_envs.core.spec import ROBOT, SimulatorSpec
from softgym_envs.core.system import task_keywords
from softgym_envs.systems import systems
from sysid.diagnostics.uncertainty import clustered_covariance


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`main` of the command line."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return load_script("scripts/__main__.py").main


WITHOUT = """import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {0!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())"""
"""Begin of a program for which a package is not installed."""


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [("casadi", "sysid", ("identify", "block", "--data")), ("torch", "learn", ("train", "SlidingBlock-v0", "--steps", "1")),
     ("torch", "learn", ("evaluate", ROOT / "pyproject.toml", "SlidingBlock-v0"))],
    ids=("casadi", "torch-train", "torch-evaluate"),
)  # fmt: skip
def test_a_missing_package_names_the_extra_that_brings_it(
    command: Any, tmp_path: Path, package: str, extra: str, arguments: tuple[Any, ...]
) -> None:
    """As after `pip install .`."""
    if package == "casadi":
        assert command(("record", "block", "--steps", "100", "--out", str(tmp_path / "data.h5"))) == 0
        arguments = (*arguments, tmp_path / "data.h5")
    code = f"{WITHOUT.format(package)}\nfrom scripts.__main__ import main; sys.exit(main())"
    given = [sys.executable, "-c", code, *map(str, arguments), "--out", str(tmp_path / "out")]
    found = run_limited(given, seconds=60, cwd=ROOT)
    said = found.stderr.replace("stable-baselines3", "torch")
    assert found.returncode == 2 and package in said and f'pip install ".[{extra}]"' in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("word", "said"),
    [("max_episode_steps=0", "max_episode_steps is 0"), ("max_episode_steps=nan", "max_episode_steps is nan"),
     ("max_episode_steps=x", "max_episode_steps is 'x'"), ("id=x", "id is the command's own"), ("nan", "expected key=value"),
     ("a=1 a=2", "keyword a is given twice"),
     ("num_envs=3", "num_envs is the command's own"), ("wrappers=[]", "wrappers is the command's own")],
)  # fmt: skip
def test_keywords_of_gymnasium_itself_are_checked(word: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        task_keywords(word.split(), ())
    assert task_keywords(("max_episode_steps=3",), ()) == {"max_episode_steps": 3}


@pytest.mark.parametrize("value", ["3", "[1.0]", "true", "{ a = 1 }"])
def test_a_structure_that_is_not_text_is_named(tmp_path: Path, value: str) -> None:
    path = tmp_path / "fit.toml"
    path.write_text(f'[parameters]\n[simulator]\nsystem = "block"\ndt = 0.01\n[simulator.structure]\npulley = {value}\n')
    with pytest.raises(FileFormatError, match=r"\[simulator\.structure\] pulley is"):
        SimulatorSpec.read(path)


def test_a_full_disk_ends_a_training_in_a_sentence(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("stable_baselines3")

    def full(self: Path, *_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "open", full)
    given = ("train", "SlidingBlock-v0", "--num-envs", "4", "--steps", "512", "--episodes", "1", "--out", str(tmp_path))
    assert command(given) == 2
    assert "No space left on device" in capsys.readouterr().err


def test_a_fault_of_ours_keeps_its_traceback(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("softgym_envs.systems.systems", broken)
    with pytest.raises(ZeroDivisionError):
        command(("list",))


# --- Data in which nothing touches ------------------------------------------------------------------------------------


def test_clustered_errors_of_a_constant_that_only_its_prior_knows_are_the_priors() -> None:
    """A box that flies tells nothing of friction: J'J is singular, J'J + P is not."""
    rng = np.random.default_rng(0)
    jacobian = np.column_stack([rng.standard_normal(4000), np.zeros(4000)])
    prior, variance = np.diag([0.0, 1.0 / 0.4]), 2.0
    residual = np.sqrt(variance) * rng.standard_normal(4000)
    given = (jacobian, residual, np.arange(4000) // 10, np.eye(2))
    found = clustered_covariance(*given, prior=np.sqrt(variance) * prior, variance=variance)
    assert found[1, 1] == pytest.approx(0.4**2, rel=1e-9) and abs(found[0, 1]) < 1e-12
    assert found[0, 0] == pytest.approx(variance / np.sum(jacobian[:, 0] ** 2), rel=0.2)


def test_clustered_errors_with_a_prior_are_the_scatter_of_such_estimates() -> None:
    """Slope under noise that lasts, with a prior that says as much: 4000 draws of noise and of the prior's mean."""
    rng = np.random.default_rng(1)
    regressor, clusters = rng.standard_normal(300).cumsum()[:, None] / 10, np.arange(300) // 15
    noise = np.repeat(rng.standard_normal((4000, 20)), 15, axis=1)  # as constant as it can be
    information = float(np.sum(regressor**2))
    spread = np.sqrt(15.0 / information)
    means = spread * rng.standard_normal(4000)
    estimates = (noise @ regressor[:, 0] + means / spread**2) / (information + 1.0 / spread**2)
    left = noise - estimates[:, None] * regressor[:, 0]
    prior = np.array([[1.0 / spread]])
    stated = [clustered_covariance(regressor, r, clusters, np.eye(1), prior=prior)[0, 0] for r in left[:400]]
    assert np.mean(np.abs(estimates) < 1.96 * np.sqrt(np.mean(stated))) > 0.93
    assert np.mean(stated) < 2.5 * np.var(estimates)


def test_a_box_that_touches_nothing_is_told_from_its_prior(command: Any, tmp_path: Path, capsys: Any) -> None:
    """Clustered errors and priors: it ended in LinAlgError: Singular matrix."""
    times, rng = np.arange(40) / 148.0, np.random.default_rng(0)
    height = 1.0 + 0.5 * times - 0.5 * 9.81 * times**2
    table = [times, 0.3 * times, 0.1 * times, height, np.cos(times), 0.0 * times, 0.0 * times, np.sin(times)]  # it turns
    table = np.column_stack(table)
    table[:, 1:4] += 1e-3 * rng.standard_normal((40, 3))
    header = "time [s],x [m],y [m],z [m],qw [-],qx [-],qy [-],qz [-]"
    np.savetxt(tmp_path / "flight.csv", table, delimiter=",", header=header, comments="", fmt="%.9g")
    given = ("identify", "box", "--data", str(tmp_path / "flight.csv"), "--out", str(tmp_path / "out"))
    assert command(given) in (0, 2)
    said = capsys.readouterr()
    assert "(mostly as known before)" in said.out and "Traceback" not in said.err
    assert json.loads((tmp_path / "out" / "fit.json").read_text())["converged"]


# --- Studies that are interrupted -------------------------------------------------------------------------------------

STUDY = """
import os, sys, time
from pathlib import Path
from agents.transfer_study.definition import StudyRun
from agents.transfer_study.jobs import run_jobs

OUT = Path(sys.argv[1])

def worker(job):
    (OUT / f"pid_{os.getpid()}").touch()
    time.sleep(float(sys.argv[2]))
    if job.seed == int(sys.argv[3]):
        os.abort()
    return {}

if __name__ == "__main__":
    jobs = [StudyRun("zero", 0, 0, seed) for seed in range(20)]
    print(len(run_jobs(jobs, worker, OUT, executor="processes", workers=2, progress=lambda line: None)), "failed")
"""


RUN = 600
"""[s] Length of a run that is interrupted; twenty take ten times as long with two workers."""


def alive(pid):
    """Whether a process runs, other than as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def within(seconds, condition):
    """Whether the condition becomes true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def began(tmp_path, *arguments):
    (tmp_path / "study.py").write_text(STUDY)
    command = [sys.executable, str(tmp_path / "study.py"), str(tmp_path), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in the background
    )  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda sign: sign.name)
def test_a_study_that_is_interrupted_ends_at_once_with_all_its_workers(tmp_path, sign):
    """The signal reaches the main process only, while two of twenty runs of ten minutes are under way."""
    main = began(tmp_path, RUN, -1)
    try:
        assert within(HUNG, lambda: len(list(tmp_path.glob("pid_*"))) == 2), main.communicate()
        main.send_signal(sign)
        main.communicate(timeout=RUN / 2)
        assert main.returncode != 0
        workers = [int(path.name[4:]) for path in tmp_path.glob("pid_*")]
        assert within(RUN / 2, lambda: not any(map(alive, workers)))
        assert len(workers) == 2 and not list(tmp_path.glob("runs/*"))
    finally:
        main.kill()


def test_a_worker_that_is_killed_is_a_failed_run(tmp_path):
    main = began(tmp_path, 0, 3)
    said, complaint = main.communicate(timeout=HUNG)
    assert main.returncode == 0 and int(said.split()[0]) >= 1, complaint


# --- Files in a study's folder ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"cost": None}, {"cost": "1"}, {"cost": 1e999}, {"ground_truth_steps": 3}, {"ground_truth_steps": {"train": "x"}},
     {"ground_truth_steps": {"train": [1, 2]}}, {"measures": {"m": [[]]}}, {"measures": None}, {"seconds": {}},
                   {"model_cost": []}],
    ids=str,
)  # fmt: skip
def test_a_record_that_lacks_a_number_is_refused(tmp_path, change):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(fuzz.RECORD))
    assert read_record(path) == fuzz.RECORD
    path.write_text(json.dumps({**fuzz.RECORD, **change}))
    with pytest.raises(FileFormatError, match=r"run\.json"):
        read_record(path)


@pytest.mark.parametrize("content", ["{}", '{"study": 3}', '{"study": []}', "[]", "{"])
def test_a_damaged_study_is_refused(tmp_path, content):
    study = Study("s", "plan", ("zero",), (100,))
    register(study, {}, tmp_path, provenance={})
    register(study, {}, tmp_path, provenance={})
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(SoftgymError, match=r"study\.json"):
        register(study, {}, tmp_path, provenance={})


def test_a_damaged_fit_is_refused():
    default = next(iter(systems().values())).simulator().default_parameters
    vector = default.to_vector()
    good = FitRecord(
        default, type(default).from_vector(np.stack([vector] * 2)), "", False, {"train": 1}, {"nominal": [[0.1, 1.0]]}
    )
    assert FitRecord.from_json(good.to_json(), type(default)).errors == good.errors
    for change in ({"parameters": None}, {"parameters": [1.0]}, {"samples": "x"}, {"ground_truth_steps": 3},
                   {"errors": {"a": [1]}},
                   {"errors": {"a": [[1, "nan"]]}}):  # fmt: skip
        with pytest.raises(SoftgymError):
            FitRecord.from_json({**good.to_json(), **change}, type(default))


@pytest.mark.parametrize("stage", ["3", "inf", "[]"])
def test_a_stage_of_a_study_that_is_no_table_is_named(tmp_path, stage):
    path = tmp_path / "study.toml"
    head = 'name = "s"\nkind = "plan"\nconditions = ["zero"]\nbudgets = [1]\n'
    path.write_text(f'{head}[case]\nsystem = "block"\ntask = "t"\n[case.stages]\nbody = {stage}\n')
    with pytest.raises(SoftgymError, match=r"stages\.body is"):
        read_study(path)


def test_a_study_with_a_number_that_is_not_finite_is_refused(tmp_path):
    with pytest.raises(SoftgymError, match="trust is inf"):
        register(Study("s", "plan", ("zero",), (100,), planning=Planning(trust=float("inf"))), {}, tmp_path, provenance={})


@pytest.mark.parametrize("states", [None, 3, [1.0], [[1.0], [1.0, 2.0]], [[1.0, 2.0]], [["nan"] * 3]], ids=str)
def test_a_damaged_replay_is_refused(tmp_path, states):
    path = tmp_path / "replay.json"
    path.write_text(json.dumps({"states": states}))
    with pytest.raises(FileFormatError, match=r"replay\.json"):
        read_replay(path, 3)


def test_a_recording_that_says_nonsense_of_its_robot_says_nothing():
    for spec in ({"system": "r", "dt": 1.0, "structure": {"a": 3}}, {"system": "r", "dt": 1.0, "structure": [1]}):
        assert SimulatorSpec.recorded({ROBOT: json.dumps(spec)}) is None


# --- Policies ---------------------------------------------------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return os.system, ("echo executed",)


def policy(torch, weights=None, settings=None):
    """Bytes of a policy.zip."""
    layers = {"mlp_extractor.policy_net.0": (4, 3), "action_net": (2, 4)}
    plain = {f"{name}.weight": torch.zeros(shape) for name, shape in layers.items()}
    plain |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in layers.items()}
    buffer, inner = io.BytesIO(), io.BytesIO()
    torch.save(plain if weights is None else weights(plain), inner)
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("policy.pth", inner.getvalue())
        archive.writestr("data", json.dumps({} if settings is None else settings))
    return buffer.getvalue()


def test_damaged_and_hostile_policies_are_refused_without_advice_to_trust_them(tmp_path, capfd):
    torch = pytest.importorskip("torch")
    from agents.learning.policy import load_policy

    path = tmp_path / "policy.zip"
    good = policy(torch)
    path.write_bytes(good)
    assert load_policy(path)(np.zeros((1, 3))).shape == (1, 2)
    rng = np.random.default_rng(0)
    bad = [good[:size] for size in range(0, len(good), 97)]
    bad += [policy(torch, settings=[]), policy(torch, weights=lambda w: [1, 2]), policy(torch, weights=lambda w: {1: 2})]
    bad += [policy(torch, weights=lambda w: {**w, "action_net.weight": torch.zeros(2, 5)})]
    bad += [policy(torch, weights=lambda w: {**w, "action_net.bias": torch.full((2,), torch.nan)})]
    bad += [policy(torch, weights=lambda w: {**w, "action_net.weight": torch.zeros(1).expand(10**9, 10**9)})]
    bad += [policy(torch, weights=lambda w: {"a": Evil()}), pickle.dumps(Evil()), b""]
    for content in bad:
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"policy\.zip") as caught:
            load_policy(path)
        assert "weights_only" not in str(caught.value) and len(str(caught.value)) < 500
    for _ in range(100):  # flipped bytes: refused, or a policy
        array = np.frombuffer(good, dtype=np.uint8).copy()
        array[rng.integers(len(array), size=3)] = rng.integers(256, size=3)
        path.write_bytes(array.tobytes())
        try:
            assert load_policy(path)(np.zeros((1, 3))).shape == (1, 2)
        except FileFormatError as error:
            assert "weights_only" not in str(error)
    assert "executed" not in capfd.readouterr().out


@pytest.fixture(scope="module")
def warm():
    fuzz.warm_up()


@pytest.mark.parametrize("name", fuzz.entry_points())
def test_an_entry_point_gives_what_is_right_or_one_of_our_errors(warm, name):
    entry_point = fuzz.entry_points()[name]

    @settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def fuzzed(data):
        fuzz.check(entry_point, fuzz.Draw(lambda count: data.draw(st.integers(0, count - 1))))

    fuzzed()


def test_every_system_that_reads_models_has_a_good_one():
    for system in systems().values():
        if system.read_model:
            fuzz.drive(system.simulator(system.model(fuzz.MODELS / f"{system.name}.toml")))
