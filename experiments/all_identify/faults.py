"""Recordings with formerly wrong diagnostics, row by row: present diagnostics of the documented command.

    python experiments/all_identify/faults.py  # missing rows
    python experiments/all_identify/faults.py --rows modulo sticks

Every row (fault_cases.py, more_faults.py) makes files as a laboratory would have them, runs `softgym-envs identify`, and counts
its
diagnostics over some seeds: explained, exit codes, intervals that contain the ground truth; and "misled": a number without a
warning that the model does not explain the data, or that it depends on a fixed parameter and by as much as it is off, three
half widths of its interval or more from the ground truth. Writes numbers.json and table.md into results/all_identify_faults
after every fit.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from fault_cases import ROWS, Asked, Row
from more_faults import OTHERS

from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

ALL = {**ROWS, **OTHERS}


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    rows: tuple[str, ...] = ()
    """Rows to run again; none: the missing ones."""
    seeds: int | None = None
    """Recordings per row; none: the row's own number."""
    first: int = 100
    """Seed of the first; none of these was used for tuning."""
    out: Path = Path("results/all_identify_faults")
    """Folder."""


def csv_of(recording: Trajectory, path: Path) -> Path:
    """A wide CSV in SI, controls included; lost values are empty."""
    header = ["time [s]"] + [f"{name} [{unit}]" for name, unit in zip(recording.names, recording.units, strict=True)]
    header += [f"control:{name} [{u}]" for name, u in zip(recording.control_names, recording.control_units, strict=True)]
    controls = np.vstack([recording.controls, recording.controls[-1:]])
    lines = np.column_stack([recording.times, recording.values, controls])
    text = [",".join("" if np.isnan(v) else repr(float(v)) for v in line) for line in lines]
    path.write_text("\n".join([",".join(header), *text]))
    return path


def commands(asked: Asked, folder: Path) -> list[list[str]]:
    """Arguments of the commands, and the files that they name."""
    data = (
        [str(csv_of(t, folder / f"run{k}.csv")) for k, t in enumerate(asked.recordings)]
        if asked.csv
        else [str(folder / "run.h5")]
    )
    if not asked.csv:
        TrajectorySet(asked.recordings).save(folder / "run.h5")
    words, start = [asked.system, "--data", *data, *asked.words], []
    if asked.model is not None:
        (folder / "robot.toml").write_text(asked.model)
        words += ["--model", str(folder / "robot.toml")]
    if asked.start is not None:
        asked.start.save(folder / "start.toml")
        start = ["--initial-guess", str(folder / "start.toml")]
    found = []
    for stage in asked.stages or ("",):
        out = folder / f"fit_{stage}"
        found.append([*words, *start, "--out", str(out), *(["--stage", stage] if stage else [])])
        start = ["--initial-guess", str(out / "fit.toml")]
    return found


def one(asked: Asked, folder: Path) -> dict[str, Any]:
    """Identify one ground truth from its files."""
    said, begin, code = io.StringIO(), time.process_time(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        for words in commands(asked, folder):
            code = importlib.import_module("softgym_commands.__main__").main(["identify", *words, "--diagnose", "full"])
    row: dict[str, Any] = {"true": asked.true, "code": code, "seconds": round(time.process_time() - begin, 1)}
    written = sorted(folder.glob("fit_*/**/fit.json"), key=lambda path: path.stat().st_mtime_ns)
    fits = [json.loads(path.read_text()) for path in written]
    if not fits or (code and "error:" in said.getvalue()):
        return {**row, "said": said.getvalue()[-400:].splitlines()[-1]}
    stages = {f"{path.parent.name}".removeprefix("fit_") or "fit": fit for path, fit in zip(written, fits, strict=True)}
    told = {e["name"]: (e, fit) for fit in fits for e in fit["estimates"] if e["name"] in asked.true}
    values = {name: float(e["value"]) for name, (e, _) in told.items()}
    intervals = {name: [float(end) for end in e["interval"]] for name, (e, _) in told.items()}
    given = [name for name, (e, _) in told.items() if not e["hidden"] and not code]
    far = {n: abs(values[n] - asked.true[n]) > 1.5 * (intervals[n][1] - intervals[n][0]) for n in given}
    hangs = {n: conditional(n, values[n], asked.true[n], told[n][1]["diagnostics"]) for n in given}
    return {
        **row, "explained": fits[-1]["explained"], "chi2": fits[-1]["reduced_chi2"], "misfit": fits[-1]["misfit"],
        "headlines": {name: fit["diagnostics"][0]["sentence"] for name, fit in stages.items()},
        "diagnostics": [f"[{d['severity']}] {d['sentence']}" for d in fits[-1]["diagnostics"]],
        "level": fits[-1]["diagnostics"][0]["severity"], "values": values, "intervals": intervals, "given": given,
        "inside": {n: inside(asked.true[n], ends) for n, ends in intervals.items()},
        "misled": sorted(n for n in given if far[n] and told[n][1]["explained"] and not hangs[n]),
    }  # fmt: skip


def conditional(name: str, value: float, true: float, diagnostics: list[dict[str, Any]]) -> bool:
    """Whether a fit warns that a number depends on a fixed parameter's value, or may be as far off as it is because of it."""
    if any(d["code"] == "depends_on_fixed" and name in d["parameter"].split(", ") for d in diagnostics):
        return True
    reserved = [d for d in diagnostics if d["code"] == "fixed_uncertain" and d["severity"] == "warning"]
    moved = [(d["value"], each) for d in reserved for each in d["facts"]["moved"] if each["name"] == name]
    reach = max((each["reach"] * (abs(value) if each["log"] else 1.0) for _, each in moved), default=0.0)
    return reach >= abs(value - true) or any(known is None for known, _ in moved)


def inside(true: float, ends: list[float]) -> bool:
    """Whether an interval contains the ground truth, up to rounding."""
    near = 1e-9 * abs(true)
    return ends[0] - near <= true <= ends[1] + near


def line(row: Row, found: list[dict[str, Any]]) -> str:
    """Row of the table in Markdown."""
    n, judged = len(found), [f for f in found if "values" in f]
    ok, stop = sum(f["level"] == "ok" for f in judged), sum(f["code"] != 0 for f in found)
    explained, misled = sum(f["explained"] for f in judged), sum(bool(f["misled"]) for f in judged)
    inside = [held for f in judged for name, held in f["inside"].items()]
    return f"| {row.text} | {ok}/{n} | {explained}/{n} | {stop}/{n} | {sum(inside)}/{len(inside)} | {misled}/{n} |"


def table_of(there: dict[str, Any]) -> str:
    """Markdown."""
    head = "| recordings | without reservations | adequate | exit code 2 | intervals that hold | misled |"
    lines: list[str] = []
    for kind in (ROWS, OTHERS):
        done = [line(kind[name], there[name]["found"]) for name in kind if there.get(name, {}).get("found")]
        lines += [head, "| --- " * 6 + "|", *done, ""]
    return "\n".join(lines)


def read(path: Path) -> dict[str, Any]:
    """Row -> results, and the commit at which they began."""
    there: dict[str, Any] = json.loads(path.read_text())["rows"] if path.exists() else {}
    return there


def main(args: Args) -> None:
    """Run the given rows."""
    path = args.out / "numbers.json"
    before = read(path)
    for name in args.rows or ALL:
        fresh: dict[str, Any] = {"commit": git_commit(), "found": []}
        mine = fresh if args.rows or name not in before else before[name]
        for seed in range(args.first + len(mine["found"]), args.first + (args.seeds or ALL[name].seeds)):
            with tempfile.TemporaryDirectory() as folder:
                mine["found"].append({"seed": seed, **one(ALL[name].make(seed), Path(folder))})
            there = {**read(path), name: mine}  # another process may have written other rows meanwhile
            write_atomically(path, (json.dumps({"rows": there}, indent=1) + "\n").encode())
            write_atomically(args.out / "table.md", table_of(there).encode())
            print(name, line(ALL[name], mine["found"]), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
