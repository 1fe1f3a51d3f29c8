"""A study's runs, each a file, on any executor.

    out/study.json         the study and its thresholds, written before the first run; another study is refused there
    out/fits/*.json        one per data set and budget
    out/runs/*.json        one per condition, budget, data set and seed; those that exist are not run again

Runs are independent and seeded by their job: the executor (this process, processes, a Ray cluster) changes no number.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import typing
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import asdict, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from softgym_envs.core.errors import FileFormatError, OptionError, SoftgymError, needed
from softgym_envs.core.files import read_json, write_json

from .definition import GROUPS, Study, StudyRun, Threshold

Executor = Literal["serial", "processes", "ray"]
Progress = Callable[[str], None]


class Job(Protocol):
    """What becomes a file: a NamedTuple with the file's name."""

    @property
    def name(self) -> str:
        """Name without a suffix; no other job has it."""

    def _asdict(self) -> dict[str, Any]: ...


Worker = Callable[[Any], dict[str, Any]]
Call = tuple[Job, Worker, Path]
Results = Generator[tuple[Job, str], None, None]
"""Finished runs, each with the message of its error, or ""."""

REMOVE_IT = "remove it, and the same command runs it again"
"""Advice for a damaged file of a run."""


class Failure(NamedTuple):
    """A failed run."""

    job: Job
    message: str


def register(study: Study, case: Any, out: Path, *, provenance: dict[str, str]) -> None:
    """Write the study and its thresholds before the first run.

    Raises:
        OptionError: Another study, or the same with other thresholds, was registered in this folder; or a number is not finite.
        FileFormatError: The existing file cannot be read.
    """
    path = out / "study.json"
    try:
        described = json.loads(json.dumps({"case": case, **asdict(study)}, allow_nan=False))
    except ValueError as error:
        raise OptionError(f"the study {study.name!r} has a number that is not finite: {error}") from error
    if not path.exists():
        write_json(path, {"study": described, "provenance": provenance})
        return
    found = read_json(path)
    there, made = found.get("study"), found.get("provenance")
    if not isinstance(there, dict):
        raise FileFormatError(f"{path} holds no study; give another folder")
    usual = {entry.name: entry.default for entry in fields(study)}  # of fields that did not exist when it was registered
    differing = _differing({**usual, **there}, described)
    if differing:
        commit = made.get("commit", "") if isinstance(made, dict) else ""
        other = commit and " " not in str(commit) and commit != provenance.get("commit")
        on = f"to go on with it check out {commit!s:.10}, which made it, else " if other else ""
        raise OptionError(f"{path} holds another study ({', '.join(differing)} differ): {on}give another folder")


def registered(out: Path) -> Study:
    """The study that is registered in a folder; fields that it lacks have their usual values.

    Raises:
        FileFormatError: The file is missing, or holds no study.
    """
    table: dict[str, Any] = read_json(out / "study.json").get("study", {})
    try:
        known: dict[str, Any] = {entry.name: table[entry.name] for entry in fields(Study) if entry.name in table}
        tuples: dict[str, Any] = {name: tuple(known[name]) for name in ("conditions", "budgets", "curve") if name in known}
        known |= {name: kind(**known.get(name, {})) for name, kind in GROUPS.items()}
        known["thresholds"] = tuple(Threshold(**entry) for entry in known.get("thresholds", ()))
        return Study(**{**known, **tuples})
    except (KeyError, TypeError, OptionError) as error:
        raise FileFormatError(f"{out / 'study.json'} holds no study: {error}") from error


def _differing(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Entries that differ, those of tables with dots: ["case.ground_truth.level", "seeds"]."""
    found = []
    for name in sorted({*one, *other}):
        a, b = one.get(name), other.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += _differing(a, b, f"{prefix}{name}.")
        elif a != b:
            found.append(prefix + name)
    return found


def run_jobs(
    jobs: Sequence[Job],
    worker: Worker,
    out: Path,
    *,
    executor: Executor = "serial",
    workers: int | None = None,
    progress: Progress = print,
) -> tuple[Failure, ...]:
    """Run the jobs whose file does not exist yet; a failed run is reported and the others continue.

    Args:
        jobs: Jobs to run.
        worker: Picklable function from a job to a run's record.
        out: Folder of the study.
        executor: "serial" in this process, "processes" on this machine, "ray" on a cluster that shares `out`.
        workers: Number of processes; None: one per processor. Ray uses the cluster's.
        progress: Called with one line per run.

    Raises:
        OptionError: Unknown executor, or workers < 1.
        MissingDependencyError: Ray is asked for and not installed.
    """
    if executor not in typing.get_args(Executor):
        raise OptionError(f"executor is {executor!r}, allowed are {', '.join(typing.get_args(Executor))}")
    if workers is not None and workers < 1:
        raise OptionError(f"workers is {workers}, allowed is >= 1")
    pending = [job for job in jobs if not record_path(out, job).exists()]
    progress(f"{len(jobs)} runs, {len(jobs) - len(pending)} done before")
    failures, run = [], {"serial": _serial, "processes": _processes, "ray": _ray}[executor]
    began = time.monotonic()
    with closing(run([(job, worker, out) for job in pending], workers or os.cpu_count() or 1)) as results:
        for count, (job, problem) in enumerate(results, start=1):
            passed, failed = time.monotonic() - began, f" FAILED: {problem}" if problem else ""
            left = passed / count * (len(pending) - count)
            progress(
                f"[{count}/{len(pending)}] {job.name}{failed} ({_span(passed)}; {_span(left)} left if runs take equally long)"
            )
            if problem:
                failures.append(Failure(job, problem))
    return tuple(failures)


def _span(seconds: float) -> str:
    """A time for people.

    >>> _span(30.0), _span(300.0)
    ('30 s', '5 min')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def run_one(job: Job, worker: Worker, out: Path) -> str:
    """Run one job and write its file; returns the message of its error, or ""."""
    began = time.perf_counter()
    try:
        record = worker(job)
    except Exception as error:  # one bad run must not end a study of days
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SoftgymError) else f" ({last.filename}:{last.lineno})"
        return f"{type(error).__name__}: {error}{where}"
    write_json(record_path(out, job), {**job._asdict(), **record, "seconds": time.perf_counter() - began})
    return ""


def _serial(calls: Sequence[Call], workers: int) -> Results:
    yield from ((call[0], run_one(*call)) for call in calls)


def _processes(calls: Sequence[Call], workers: int) -> Results:
    with closing(in_processes(run_one, calls, workers)) as ended:
        for (job, *_), future in ended:
            killed = isinstance(future.exception(), BrokenProcessPool)
            yield job, "a worker process was killed: is there enough memory?" if killed else future.result()


def in_processes(
    function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], workers: int
) -> Generator[tuple[tuple[Any, ...], Future[Any]], None, None]:
    """Call a picklable function in processes of this machine; yields arguments and results as the calls end.

    If the caller stops or is interrupted, none of them is waited for; workers end with this process in any case.
    """
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    with _one_thread(), writer, ProcessPoolExecutor(workers, context, _end_with_parent, (reader,)) as pool:
        futures = {pool.submit(function, *call): call for call in calls}
        try:
            for future in as_completed(futures):
                yield futures[future], future
        except BaseException:  # interrupted, or no more results wanted: running calls are not waited for
            writer.close()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent(pipe: Connection) -> None:
    """End a worker when the other end of the pipe closes, as it does when its process ends in any way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the main process decides

    def watch() -> None:
        try:
            pipe.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _ray(calls: Sequence[Call], workers: int) -> Results:
    with needed("the executor 'ray' needs Ray", "ray"):
        import ray
    # Workers find what this process finds: a study's task may live in a script.
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    ray.init(ignore_reinit_error=True, runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}})
    remote = ray.remote(num_cpus=1)(run_one)
    waiting = {remote.remote(job, worker, out.resolve()): job for job, worker, out in calls}
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1)
        yield waiting.pop(ready[0]), ray.get(ready[0])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set OMP_NUM_THREADS=1 for children: runs share the processors instead of each using all of them."""
    before = dict(os.environ)
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        os.environ |= before


# --- files --------------------------------------------------------------------------------------------------------------


def record_path(out: Path, job: Job) -> Path:
    """File of a run."""
    return out / "runs" / f"{job.name}.json"


def read_records(out: Path, jobs: Sequence[StudyRun]) -> dict[StudyRun, dict[str, Any]]:
    """Records of the finished jobs.

    Raises:
        FileFormatError: A file cannot be read, or holds no record of a run.
    """
    return {job: read_record(record_path(out, job)) for job in jobs if record_path(out, job).exists()}


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of a run from its file.

    Raises:
        FileFormatError: It cannot be read, or holds no record of a run.
    """
    try:
        record = read_json(path)
    except FileFormatError as error:
        raise FileFormatError(f"{error}; {REMOVE_IT}") from error
    numbers = [record.get(name) for name in ("cost", "failed")]
    numbers += [record[name] for name in ("model_cost", "seconds") if record.get(name) is not None]
    numbers += _values(record.get("measures"))
    numbers += record["ground_truth_steps"].values() if isinstance(record.get("ground_truth_steps"), dict) else [None]
    if not all(isinstance(number, (int, float)) and abs(number) < sys.float_info.max for number in numbers):
        raise FileFormatError(f"{path} is no record of a run: it lacks a number; {REMOVE_IT}")
    return record


def _values(table: Any) -> list[Any]:
    """All entries of a table of numbers and lists of numbers; [None] for anything else."""
    if not isinstance(table, Mapping):
        return [None]
    return [number for value in table.values() for number in (value if isinstance(value, list) and value else [value])]
