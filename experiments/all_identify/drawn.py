"""Diagnostics of the documented command over drawn ground truths: level x system, right or wrong.

    python experiments/all_identify/drawn.py  # 20 ground truths per level and system
    python experiments/all_identify/drawn.py --ground-truths 5 --systems particles --levels own 2
    python experiments/all_identify/drawn.py --jobs 16  # as many at a time; the first ones compile the kernels

A ground truth is our engine ("own": the model's own class) or the mismatched model of a level, its parameters drawn by seed
(cases.py). It is recorded as a laboratory would, with unstated noise, and identified by `softgym-envs identify SYSTEM --data
FILE --initial-guess START`, where START is a factor of 3 off in every parameter, either way. Counted are

* explains: the diagnostic that the residuals are noise;
* misses: the fitted model's prediction from the true state is off by more than the noise, 1 s ahead or at the recording's end;
* identified: the headline without reservations; falsely: some number is more than three half widths of its interval off;
* inside: number of intervals that contain the ground truth;
* misfit: the test statistic behind "explains"; `roc.py` measures how well it separates the two kinds of ground truths;
* bands: number of predictions on another recording of that ground truth inside the fit's 90 % bands, 0.5 and 1 s ahead.

Finished ground truths are not run again, except those of older commits without misfit or bands.
Writes numbers.json and table.md into results/all_identify_drawn.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from cases import CASES, files
from roc import table_of as roc_of

import sysid
from agents.transfer_study.jobs import in_processes
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.core.procedure import EXPERIMENT
from softgym_envs.core.trajectory import TrajectorySet
from sysid.diagnostics.model_form import in_steps_of
from sysid.diagnostics.prediction_intervals import scores
from sysid.problem.recording_parameters import RecordingParameters
from sysid.procedure.job import Job
from sysid.procedure.stage_problem import stage_problem

WITHOUT_BANDS = ("loop", "box")
"""Systems whose recordings begin at states that a prediction cannot know (an arm that a controller holds), or are fitted over a
quarter of a second only, before throws diverge."""


@dataclass(frozen=True)
class Args:
    """Options of the experiment."""

    ground_truths: int = 20
    """Ground truths per level and system."""
    systems: tuple[str, ...] = tuple(CASES)
    levels: tuple[str, ...] = ("own", "0", "1", "2", "3")
    """"own": our engine."""
    first: int = 500
    """Seed of the first ground truth."""
    jobs: int = 1
    """Processes."""
    out: Path = Path("results/all_identify_drawn")
    """Folder."""


def one(name: str, level: str, seed: int, folder: Path) -> dict[str, Any]:
    """Record, identify and judge one ground truth."""
    made = CASES[name](name, level, seed, np.random.default_rng([seed, len(level), ord(level[0])]))
    begin, said, given = time.process_time(), "", files(made, folder)
    data = sysid.load(*given.pop("data"), fps=given.pop("fps", None))
    given["initial_guess"] = given.pop("start")
    try:
        code = 2 if sysid.identify(name, data, diagnose="full", **given).unusable else 0
    except SoftgymError as error:
        code, said = 2, str(error)
    seconds = round(time.process_time() - begin, 1)
    row: dict[str, Any] = {"system": name, "level": level, "seed": seed, "true": made.true, "code": code, "seconds": seconds}
    written = sorted((folder / "fit").rglob("fit.json"), key=lambda path: path.stat().st_mtime_ns)
    if not (folder / "fit" / "fit.toml").exists():  # a stage may have finished, and the next one not
        return {**row, "said": said}
    fit = json.loads(written[-1].read_text())  # of a procedure's last stage
    found = {e["name"]: e for e in fit["estimates"] if e["name"] in made.true}
    numbers = {name: [float(end) for end in e["interval"]] for name, e in found.items() if not e["hidden"]}
    values, headline = {name: float(e["value"]) for name, e in found.items()}, fit["diagnostics"][0]
    wrong = [abs(values[name] - made.true[name]) > 1.5 * (high - low) for name, (low, high) in numbers.items()]
    parameter_values = type(made.start).load(folder / "fit" / "fit.toml", made.start)
    held = inside_bands(Job(name, data, **given), folder / "more.h5", parameter_values, fit)
    return {
        **row,
        "explains": fit["explained"],
        "misfit": fit["misfit"],
        "identified": headline["severity"] == "ok",
        "values": values,
        "intervals": numbers,
        "inside": {name: low <= made.true[name] <= high for name, (low, high) in numbers.items()},
        "false": headline["severity"] == "ok" and any(wrong),
        "miss": made.miss(parameter_values),
        "bands": held,
        "diagnostics": [d["sentence"] for d in fit["diagnostics"]],
    }


def alone(name: str, level: str, seed: int) -> dict[str, Any]:
    """Run `one` in its own folder."""
    with tempfile.TemporaryDirectory() as folder:
        return one(name, level, seed, Path(folder))


def inside_bands(job: Job, more: Path, parameter_values: Any, fit: dict[str, Any]) -> dict[str, list[int]]:
    """Horizon and kind -> number of predictions on held-out recordings inside the band, and number of all.

    Args:
        job: The identification.
        more: File of those recordings.
        parameter_values: Fitted parameters.
        fit: Report of the fit.
    """
    found: dict[str, list[int]] = {}
    if not (fit["bands"] and more.exists()):
        return found
    procedure, simulator, fitted = job.prepared()
    *_, unseen = replace(job, data=sysid.load(more)).prepared()
    if len(procedure.stages) > 1 and all(EXPERIMENT in recording.metadata for recording in fitted):  # as the command decides
        problem = stage_problem(procedure, procedure.stages[-1], simulator, fitted, start=parameter_values)
    else:
        stage = job.chosen(procedure)
        problem = job.problem(procedure, stage, simulator, fitted)
        if any(d["code"] == "other_simulator" for d in fit["diagnostics"]):
            assert stage.simulator.fallback is not None
            problem = in_steps_of(problem, stage.simulator.fallback(problem.before or problem.simulator))
        unseen = TrajectorySet(tuple(recording.for_timestep(problem.simulator.dt) for recording in unseen))
    problem = problem.replace(view=RecordingParameters(**fit["view"]))
    kinds = [band["kind"] for band in fit["bands"] if band["horizon"] == fit["bands"][0]["horizon"]]
    for recording in unseen:
        for horizon, errors in scores(problem, parameter_values, recording).items():
            for band in (band for band in fit["bands"] if band["horizon"] == horizon):
                held = errors[:, kinds.index(band["kind"])] <= band["size"]
                count = found.setdefault(f"{horizon:g} s, {band['kind']}", [0, 0])
                count[:] = [count[0] + int(held.sum()), count[1] + len(held)]
    return found


def table_of(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    head = "| system | level | ground truths | explains | misses more than noise | of these: does not explain | identified |"
    lines = [f"{head} falsely | intervals that hold the ground truth | predictions inside 90 % bands |", "| --- " * 10 + "|"]
    for name in dict.fromkeys(row["system"] for row in rows):
        for level in sorted({row["level"] for row in rows if row["system"] == name}, key=("own", "0", "1", "2", "3").index):
            some = [row for row in rows if (row["system"], row["level"]) == (name, level)]
            judged = [row for row in some if "explains" in row]
            missing = [row for row in judged if row["miss"] > 1.0]
            count = {key: sum(bool(row[key]) for row in judged) for key in ("explains", "identified", "false")}
            inside = [held for row in judged for held in row["inside"].values()]
            lines.append(
                f"| {name} | {level} | {len(some)} | {count['explains']} | {len(missing)} | "
                f"{sum(not row['explains'] for row in missing)} | {count['identified']} | {count['false']} | "
                f"{sum(inside)} / {len(inside)} | {_inside(judged)} |"
            )
    return "\n".join([*lines, "", roc_of(rows)])


def _inside(rows: list[dict[str, Any]]) -> str:
    """Numbers of predictions inside their bands, horizon by horizon."""
    found: dict[str, list[int]] = {}
    for key, (held, told) in ((key, count) for row in rows for key, count in row.get("bands", {}).items()):
        count = found.setdefault(key.partition(",")[0], [0, 0])
        count[:] = [count[0] + held, count[1] + told]
    return (
        ", ".join(f"{horizon}: {100 * held / told:.0f} % of {told}" for horizon, (held, told) in sorted(found.items())) or "-"
    )


def read(path: Path) -> list[dict[str, Any]]:
    """Read existing rows."""
    return list(json.loads(path.read_text())["rows"]) if path.exists() else []


def as_text(rows: list[dict[str, Any]]) -> str:
    """JSON with one line per row, numbers with six digits."""
    short = json.loads(json.dumps(rows), parse_float=lambda number: float(f"{float(number):.6g}"))
    lines = ",\n".join(json.dumps(row) for row in short)
    return f'{{"commit": "{git_commit()}", "rows": [\n{lines}\n]}}\n'


def key_of(row: dict[str, Any]) -> tuple[str, str, int]:
    """Key of a row's ground truth."""
    return row["system"], row["level"], row["seed"]


def older(row: dict[str, Any]) -> bool:
    """Whether a row comes from an older commit, without misfit or bands."""
    return "explains" in row and ("misfit" not in row or not (row["bands"] or row["system"] in WITHOUT_BANDS))


def main(args: Args) -> None:
    """Run all ground truths."""
    path = args.out / "numbers.json"
    done = {key_of(row) for row in read(path) if not older(row)}
    seeds = range(args.first, args.first + args.ground_truths)
    keys = [key for key in product(args.systems, args.levels, seeds) if key not in done]
    with contextlib.closing(in_processes(alone, sorted(keys, key=lambda key: key[2]), args.jobs)) as found:
        for _, ended in found:
            row = ended.result()
            rows = [other for other in read(path) if key_of(other) != key_of(row)] + [row]  # others may write, too
            write_atomically(path, as_text(rows).encode())
            write_atomically(args.out / "table.md", table_of(rows).encode())
            print(f"{row['system']} {row['level']} {row['seed']}: {row['seconds']} s", flush=True)
    print(table_of(read(path)))


if __name__ == "__main__":
    try:
        main(tyro.cli(Args, description=__doc__))
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on")
