"""A study as data: what is compared, how often, what was promised beforehand; and the runs, each a file, on any executor.

    out/study.json         the study and its thresholds, written before the first run; another study is refused there
    out/fits/*.json        one per data set and budget
    out/runs/*.json        one per condition, budget, data set and seed; those that exist are not run again

Runs are independent and seeded by what they are: the executor (this process, processes, a Ray cluster) changes no number.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from softgym_envs.core.errors import FileFormatError, MissingDependencyError, OptionError
from softgym_envs.core.files import write_atomically

Executor = Literal["serial", "processes", "ray"]
Worker = Callable[["Job"], dict[str, Any]]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Condition:
    """One way to a policy."""

    name: str
    text: str
    """For the table."""
    model: str
    """What is planned or trained in; see `agents.study.protocol.CONDITIONS`."""
    method: Literal["plan", "mpc", "sampling", "sampled_plan", "budgeted_plan", "fixed"] = "plan"
    data: bool = False
    """Needs recordings of the truth."""
    budgeted: bool = False
    """Depends on the budget of the truth's steps."""
    learns: bool = True
    """Has a counterpart in reinforcement learning."""


@dataclass(frozen=True)
class Threshold:
    """A promise: `quantity` of `condition` will be at least `limit`.

    Raises:
        OptionError: Unknown quantity.
    """

    condition: str
    quantity: Literal["share", "ratio", "improvement"]
    """share of the oracle's gain over doing nothing; ratio: share of its gain over `nominal`; improvement: P(> versus)"""
    limit: float
    versus: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if self.quantity not in ("share", "ratio", "improvement"):
            raise OptionError(f"quantity is {self.quantity!r}, allowed are 'share', 'ratio', 'improvement'")
        if (self.quantity == "improvement") != bool(self.versus):
            raise OptionError("versus names the other condition of an improvement, and nothing else")

    @property
    def text(self) -> str:
        """One line for people."""
        what = f"P(better than {self.versus})" if self.versus else f"{self.quantity} of the oracle"
        return f"{self.condition}: {what} ≥ {self.limit:g}"


@dataclass(frozen=True)
class Study:
    """Everything that decides the numbers, apart from the case (robot, task, fit), which is named only.

    Raises:
        OptionError: A count is not positive, no budget, or a threshold on a condition that is not part of the study.
    """

    name: str
    kind: Literal["plan", "mpc", "rl"]
    """plan: iLQG once, then run; mpc: sampling MPC (MPPI), replanned at every control step; rl: a learned policy."""
    conditions: tuple[str, ...]
    budgets: tuple[int, ...]
    """Physics steps of the truth for training; the first is the main one, the others make the budget curve."""
    curve: tuple[str, ...] = ()
    """Conditions of the budget curve."""
    datasets: int = 5
    seeds: int = 5
    starts: int = 10
    """Perturbed starts (rl: episodes), the same for all."""
    horizon: int = 50
    """Control steps."""
    substeps: int = 100
    """Physics steps per control step."""
    restarts: int = 3
    """Plans per run; the best in the condition's own model is kept."""
    iterations: int = 40
    """Of iLQG per plan."""
    trust: float = 0.3
    """See `agents.planning.ilqg.ILQGOptions`."""
    difference_step: float | None = 1e-2
    """See `agents.planning.ilqg.ILQGOptions`; the same everywhere, so the truth's derivatives are no better or worse."""
    ensemble: int = 6
    """Rows of robust conditions."""
    force: float = 0.1
    """Random kicks [m/s]."""
    train_steps: int = 0
    """rl: control steps."""
    failure_cost: float = 100.0
    """Cost of a run whose simulation fails."""
    tuning_steps: int = 0
    """Steps of the truth that were spent to choose the settings of this study."""
    thresholds: tuple[Threshold, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        positive = ("datasets", "seeds", "starts", "horizon", "substeps", "restarts", "iterations", "ensemble")
        for name in positive:
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}, allowed is >= 1")
        if not self.budgets or min(self.budgets) < 1:
            raise OptionError(f"budgets are {self.budgets}, expected at least one, all >= 1")
        if self.kind not in ("plan", "mpc", "rl") or (self.kind == "rl" and self.train_steps < 1):
            raise OptionError(
                f"kind is {self.kind!r} with train_steps {self.train_steps}; allowed are 'plan', 'mpc', or 'rl' with >= 1"
            )
        for condition in (*self.curve, *(name for t in self.thresholds for name in (t.condition, t.versus or t.condition))):
            if condition not in self.conditions:
                raise OptionError(f"condition {condition!r} is not part of the study; there are {', '.join(self.conditions)}")

    @property
    def budget(self) -> int:
        """The main budget."""
        return self.budgets[0]

    def jobs(self, conditions: dict[str, Condition]) -> tuple[Job, ...]:
        """All runs; conditions without data run once per seed.

        Raises:
            OptionError: A condition is unknown.
        """
        found = []
        for name in self.conditions:
            if name not in conditions:
                raise OptionError(f"unknown condition {name!r}; there are {', '.join(conditions)}")
            condition = conditions[name]
            for budget in self.budgets if name in self.curve and condition.budgeted else self.budgets[:1]:
                for dataset in range(self.datasets if condition.data else 1):
                    found += [Job(name, budget if condition.budgeted else 0, dataset, seed) for seed in range(self.seeds)]
        return tuple(found)


class Job(NamedTuple):
    """One run."""

    condition: str
    budget: int
    """Physics steps of the truth for training; 0 where they do not matter."""
    dataset: int
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.condition}_b{self.budget}_d{self.dataset}_s{self.seed}"


class Failure(NamedTuple):
    """A run that raised."""

    job: Job
    message: str


def register(study: Study, case: str, out: Path, *, provenance: dict[str, str]) -> None:
    """Write the study and its thresholds before the first run.

    Raises:
        OptionError: Another study, or the same with other thresholds, was registered in this folder.
        FileFormatError: The file that is there cannot be read.
    """
    path = out / "study.json"
    described = json.loads(json.dumps({"case": case, **asdict(study)}))
    if not path.exists():
        write_json(path, {"study": described, "provenance": provenance})
        return
    there = read_json(path).get("study")
    if there != described:
        fields = set(described) | set(there or {})
        differing = sorted(name for name in fields if (there or {}).get(name) != described.get(name))
        raise OptionError(f"{path} holds another study ({', '.join(differing)} differ); give another folder")


def run_jobs(
    jobs: Sequence[Job],
    worker: Worker,
    out: Path,
    *,
    executor: Executor = "serial",
    workers: int | None = None,
    progress: Progress = print,
) -> tuple[Failure, ...]:
    """Run those whose file does not exist yet; a run that raises is reported and the others go on.

    Args:
        jobs: What to run.
        worker: Picklable; a run's record from its job.
        out: Folder of the study.
        executor: "serial" in this process, "processes" on this machine, "ray" on a cluster that shares `out`.
        workers: Processes; None: one per processor. Ray uses what the cluster has.
        progress: Called with one line per run.

    Raises:
        OptionError: Unknown executor, or workers < 1.
        MissingDependencyError: Ray is asked for and not installed.
    """
    runners = {"serial": _serial, "processes": _processes, "ray": _ray}
    if executor not in runners:
        raise OptionError(f"executor is {executor!r}, allowed are {', '.join(runners)}")
    if workers is not None and workers < 1:
        raise OptionError(f"workers is {workers}, allowed is >= 1")
    pending = [job for job in jobs if not record_path(out, job).exists()]
    progress(f"{len(jobs)} runs, {len(jobs) - len(pending)} done before")
    failures = []
    for count, (job, problem) in enumerate(runners[executor](pending, worker, out, workers or os.cpu_count() or 1), start=1):
        progress(f"[{count}/{len(pending)}] {job.name}" + (f" FAILED: {problem}" if problem else ""))
        if problem:
            failures.append(Failure(job, problem))
    return tuple(failures)


def run_one(job: Job, worker: Worker, out: Path) -> str:
    """One run into its file; the message of what it raised, or ""."""
    began = time.perf_counter()
    try:
        record = worker(job)
    except Exception as error:  # one bad run must not end a study of days
        return f"{type(error).__name__}: {error}"
    write_json(record_path(out, job), {**job._asdict(), **record, "seconds": time.perf_counter() - began})
    return ""


def _serial(jobs: Sequence[Job], worker: Worker, out: Path, workers: int) -> Iterator[tuple[Job, str]]:
    for job in jobs:
        yield job, run_one(job, worker, out)


def _processes(jobs: Sequence[Job], worker: Worker, out: Path, workers: int) -> Iterator[tuple[Job, str]]:
    with _one_thread(), ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(run_one, job, worker, out): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _ray(jobs: Sequence[Job], worker: Worker, out: Path, workers: int) -> Iterator[tuple[Job, str]]:
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError('the executor "ray" needs Ray: pip install "softgym-envs[ray]"') from error
    with _one_thread():
        # Workers find what this process finds: a study's case may live in a script.
        paths = os.pathsep.join(entry for entry in sys.path if entry)
        ray.init(ignore_reinit_error=True, runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}})
    remote, shared = ray.remote(num_cpus=1)(run_one), ray.put(worker)
    waiting = {remote.remote(job, shared, out.resolve()): job for job in jobs}
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1)
        yield waiting.pop(ready[0]), ray.get(ready[0])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Children inherit OMP_NUM_THREADS=1: runs share the processors, not each run all of them."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


# --- files --------------------------------------------------------------------------------------------------------------


def record_path(out: Path, job: Job) -> Path:
    """File of a run."""
    return out / "runs" / f"{job.name}.json"


def write_json(path: Path, document: Any) -> None:
    """A whole JSON file or nothing; NaN and infinity are refused (they are no JSON)."""
    write_atomically(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        FileFormatError: No such file, or no JSON object in it.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot read {path}: {error}") from error
    if not isinstance(document, dict):
        raise FileFormatError(f"{path} holds no JSON object")
    return document


def read_records(out: Path, jobs: Sequence[Job]) -> dict[Job, dict[str, Any]]:
    """Records of those jobs that have run."""
    return {job: read_json(record_path(out, job)) for job in jobs if record_path(out, job).exists()}
