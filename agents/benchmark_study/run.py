"""The cells of the benchmark, each a file, on any executor of `agents.transfer_study.jobs`.

    out/runs/*.json        one per cell; those that exist are not run again, and refused if they were made otherwise
    out/policies/*.npz     policies that imitate
    out/numbers.json       all cells
    out/benchmark.md       the page, and a picture per system
    out/<controller>.md    its page

Every episode and every sample is seeded by its cell: a cell that runs alone is equal to that of a table, but for times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.errors import FileFormatError, MissingDependencyError, OptionError, shown
from softgym_envs.core.files import read_json, write_atomically
from softgym_envs.core.simulator import check_number
from softgym_envs.core.system import task_keywords
from softgym_envs.systems import system_of_task, tasks

from ..learning.evaluation import Controller, evaluate_controller
from ..policies import save_network
from ..transfer_study.jobs import REMOVE_IT, Executor, record_path, run_jobs
from . import page
from .case import ANY, Case, Cell, Unable
from .controllers import ROWS, row_of, source_of
from .watch import Watched

SEED = 50_000_017
"""Seed of the first episode; no training starts from it."""
TIMED = 40
"""Control steps of one row whose planning is timed."""


class Settings(NamedTuple):
    """What all cells share."""

    episodes: int
    out: Path


class _EnoughError(Exception):
    """Enough control steps were timed."""


def cells(
    ids: Sequence[str], controllers: Sequence[str], budgets: Sequence[int], training_steps: int | None, options: str
) -> list[Cell]:
    """Cells in the order in which they run: controller by controller, smaller budgets first.

    Raises:
        OptionError: Unknown id or controller.
    """
    found, options = [], " ".join(sorted(options.split()))
    for name in controllers or tuple(ROWS):
        row = row_of(name)
        amounts = {"planning": tuple(sorted(budgets)), "training": (training_steps or 0,)}.get(row.budget, (0,))
        for budget in amounts:
            for id in ids or tuple(task.id for task in tasks()):
                system_of_task(id)
                found += [Cell(id.rpartition(":")[2], name, budget, seed, options) for seed in range(row.seeds)]
    return list(dict.fromkeys(found))


def keep_equal(jobs: Sequence[Cell], settings: Settings) -> None:
    """Remove empty cells, which are tried again, and refuse cells that were made otherwise.

    Raises:
        OptionError: A cell of the folder has another number of episodes, or its controller's file has changed.
        FileFormatError: A cell cannot be read.
    """
    for job in jobs:
        path = record_path(settings.out, job)
        if not path.exists():
            continue
        record = _record(path)
        if "reason" in record:
            path.unlink()
            continue
        expected = {**job._asdict(), "episodes": settings.episodes, "source": source_of(job.controller)}
        for name, value in expected.items():
            if (there := record.get(name, "")) != value:
                raise OptionError(f"{path} has {name} {there!r}, now it is {value!r}: remove it, or give another folder")


def run_cell(cell: Cell, settings: Settings) -> dict[str, Any]:
    """Record of a cell; where the controller cannot do it, "reason" says why."""
    np.seterr(all="ignore")
    row, case = row_of(cell.controller), Case(cell, np.ones(settings.episodes, dtype=np.bool_))
    try:
        controller, observed = row.make(case)
        found, count = _episodes(case, controller, observed, settings.episodes)
    except (Unable, MissingDependencyError) as error:
        return {"reason": str(error)}
    if case.network is not None:
        save_network(case.network, settings.out / "policies" / f"{cell.name}.npz", {"imitation": cell.name})
    simulated = case.steps
    again = (lambda _: (controller, observed)) if case.training_steps else row.make
    source = source_of(cell.controller)
    return {
        **({"source": source} if source else {}),
        "episodes": settings.episodes,
        "success": "".join(str(int(one)) for one in found.success),
        "returns": [float(f"{one:.4g}") for one in found.returns],
        "failed": int(found.failed.sum()),
        "sees": count.sees if row.sees == ANY else row.sees,
        "executed": count.executed,
        "simulated": simulated,
        "processor_seconds": _short(count.seconds),
        "training_steps": case.training_steps,
        "training_seconds": _short(case.training_seconds),
        **_timing(cell, again, observed),
    }


class _Count:
    """Control steps executed, processor time of the controller, and what it read."""

    def __init__(self) -> None:
        self.executed, self.seconds, self.sees = 0, 0.0, ""


def _keywords(cell: Cell, observed: Any) -> dict[str, Any]:
    return {**observed, **cell.keywords}


def _episodes(case: Case, controller: Controller, observed: Any, episodes: int) -> tuple[Any, _Count]:
    """Episodes of a controller, side by side."""
    count = _Count()

    def opened(envs: Any) -> Callable[[Any], Any]:
        watched = Watched(envs)
        policy = controller(watched if row_of(case.cell.controller).sees == ANY else envs)

        def act(observation: Any) -> Any:
            began = time.process_time()
            action = policy(observation)
            count.seconds += time.process_time() - began
            count.executed += int(case.alive.sum())
            count.sees = watched.kind
            return action

        return act

    found = evaluate_controller(
        opened,
        f"softgym_envs:{case.cell.id}",
        episodes=episodes,
        seed=SEED,
        keywords=_keywords(case.cell, observed),
        alive=case.alive,
    )
    return found, count


def _timing(cell: Cell, make: Callable[[Case], Any], observed: Any) -> dict[str, Any]:
    """Processor time of single plans of one row, beside the control period."""
    alone = Case(cell, np.ones(1, dtype=np.bool_))
    spent, plans, period = list[float](), list[bool](), [0.0]

    def opened(envs: Any) -> Callable[[Any], Any]:
        policy = make(alone)[0](envs)
        period[0] = float(envs.episodes.settings.control_period)

        def act(observation: Any) -> Any:
            before, began = alone.planned, time.process_time()
            action = policy(observation)
            spent.append(time.process_time() - began)
            plans.append(alone.planned > before or not alone.engines)
            if len(spent) >= TIMED:
                raise _EnoughError
            return action

        return act

    try:
        evaluate_controller(
            opened, f"softgym_envs:{cell.id}", episodes=1, seed=SEED, keywords=_keywords(cell, observed), alive=alone.alive
        )
    except _EnoughError:
        pass
    times = np.array(spent)[np.array(plans)]
    return {
        "period": period[0],
        "plan_p50": _short(np.quantile(times, 0.5)),
        "plan_p95": _short(np.quantile(times, 0.95)),
        "plans": len(times),
        "missed": int((times > period[0]).sum()),
        "real_time_factor": _short(period[0] / max(float(np.mean(spent)), 1e-9)),
    }


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def benchmark(
    ids: Sequence[str] = (),
    controllers: Sequence[str] = (),
    *,
    out: str | Path = Path("runs") / "benchmark",
    budgets: int | Sequence[int] = (100,),
    training_steps: int | None = None,
    episodes: int = 30,
    options: str = "",
    executor: Executor = "processes",
    workers: int | None = None,
    progress: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """See `agents.benchmark`."""
    ids, controllers, budgets = _listed(ids), _listed(controllers), _listed(budgets)
    for name, words, example in (("ids", ids, "ArmReach-v0"), ("controllers", controllers, "package.module:function")):
        for word in words:
            if not isinstance(word, str):
                raise OptionError(f"{name} holds {shown(word)}, expected names, as {example!r}")
    trainings = [] if training_steps is None else [training_steps]
    for name, values in (("budgets", budgets), ("training_steps", trainings), ("episodes", [episodes])):
        for value in values:
            check_number(name, value, low=1, whole=True)
    if not budgets:
        raise OptionError("budgets is empty, expected whole numbers >= 1")
    if not isinstance(options, str):
        raise OptionError(f"options is {shown(options)}, expected words key=value with spaces between them, as 'level=3'")
    task_keywords(options.split(), ())
    settings, jobs = Settings(episodes, Path(out).resolve()), cells(ids, controllers, budgets, training_steps, options)
    keep_equal(jobs, settings)
    write_atomically(settings.out / "numbers.json", page.packed(collected(settings.out)))  # fails now, not after a cell
    failures = run_jobs(
        jobs, partial(run_cell, settings=settings), settings.out, executor=executor, workers=workers, progress=progress
    )
    found = collected(settings.out)
    write_atomically(settings.out / "numbers.json", page.packed(found))
    page.write(found, settings.out)
    if failures:
        raise OptionError(f"{len(failures)} cells failed, the first one: {failures[0].job.name}: {failures[0].message}")
    return found


def collected(out: Path) -> list[dict[str, Any]]:
    """Records of all cells of a folder."""
    return [_record(path) for path in sorted((out / "runs").glob("*.json"))]


def _record(path: Path) -> dict[str, Any]:
    """Record of a cell from its file."""
    try:
        return read_json(path)
    except FileFormatError as error:
        raise FileFormatError(f"{error}; {REMOVE_IT}") from error


def _listed(given: Any) -> tuple[Any, ...]:
    """Entries of an argument; one that is no list is the only one."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
