"""Verdicts of the documented command over drawn truths: level x room, right or wrong.

    python studies/hard_truths/ladder.py                     # 20 truths per level and room
    python studies/hard_truths/ladder.py --truths 5 --rooms particles --levels own 2

A truth is our engine ("own": the model's own class) or the hard twin of a level, drawn by seed, with a friction drawn between
0.1 and 0.45. It is recorded as the room's recipe says (positions with noise that nobody states), and identified by
`softgym-envs identify ROOM --data FILE --start START`, where START is a factor of 3 off, either way. Counted are

* explains: the verdict that the residuals are noise;
* misses: the fitted model's prediction from the true first state is off by more than the noise 1 s ahead (or at the end);
* identified: the headline without reservations; falsely: by more than three half widths of the interval off the truth;
* inside: of those with a number, how many intervals hold the truth.

Truths that were done before are not run again. Writes ladder.json and ladder.md into results/hard_truths.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.core.recipe import Recipe
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.rooms import room

NOISE = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
"""Standard deviations that the recipes' cameras have."""
AHEAD = 1.0
"""[s]"""


@dataclass(frozen=True)
class Args:
    """What to run."""

    truths: int = 20
    """Per level and room."""
    rooms: tuple[str, ...] = ("particles", "block")
    """Rooms whose recordings are positions with noise."""
    levels: tuple[str, ...] = ("own", "0", "1", "2", "3")
    """"own": our engine."""
    first: int = 100
    """Seed of the first truth."""
    out: Path = Path("results/hard_truths")
    """Folder."""


@cache
def identify() -> Any:
    """scripts/identify.py."""
    path = Path(__file__).parents[2] / "scripts" / "identify.py"
    spec = importlib.util.spec_from_file_location("identify", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["identify"] = module
    spec.loader.exec_module(module)
    return module


def one(name: str, level: str, seed: int, folder: Path) -> dict[str, Any]:
    """One truth: recorded, identified, judged."""
    robot, rng = room(name), np.random.default_rng([seed, len(level), ord(level[0])])
    recipe: Recipe = load(robot.recipe)
    own = level == "own"
    truth = robot.simulator() if own else robot.simulator(backend="mujoco", options={"level": int(level), "seed": seed})
    friction = float(rng.uniform(0.1, 0.45))
    free = next(n for n in truth.default_parameters.names() if n.startswith("friction"))
    constants = truth.default_parameters.replace(**{free: friction})
    experiment = recipe.experiments[0]
    engine = robot.simulator()
    steps = experiment.steps_on(truth, engine)
    recording = recipe.record_one(experiment.name, truth, rng, steps=steps, parameters=constants)
    if not own and name == "particles":
        recording = thinned(recording, round(engine.dt / recording.period))
    TrajectorySet((recording,)).save(folder / "run.h5")
    start = engine.default_parameters.replace(**{free: float(np.clip(friction * 3.0 ** rng.choice([-1, 1]), 0.0, 1.0))})
    start.save(folder / "start.toml")
    module, said = identify(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = module.main(module.Args(name, data=(folder / "run.h5",), start=folder / "start.toml", out=folder / "fit"))
    row: dict[str, Any] = {"room": name, "level": level, "seed": seed, "friction": friction, "code": code}
    if not (folder / "fit" / "fit.json").exists():
        return {**row, "said": said.getvalue()[-300:]}
    fit = json.loads((folder / "fit" / "fit.json").read_text())
    (estimate,) = fit["estimates"]
    low, high = (float(end) for end in estimate["interval"])
    headline = fit["verdicts"][0]
    found = engine.default_parameters.replace(**{free: float(estimate["value"])})
    return {
        **row,
        "explains": fit["explained"],
        "identified": headline["level"] == "ok",
        "number": not estimate["hidden"],
        "value": estimate["value"],
        "interval": [low, high],
        "inside": low <= friction <= high,
        "false": headline["level"] == "ok" and abs(estimate["value"] - friction) > 1.5 * (high - low),
        "miss": miss(engine, found, truth, constants, recording),
        "verdicts": [verdict["text"] for verdict in fit["verdicts"]],
    }


def thinned(recording: Any, keep: int) -> Any:
    """Every so many rows, as a slower camera sees."""
    controls = recording.controls[::keep][: len(recording.times[::keep]) - 1]
    values, times = recording.values[::keep][: len(controls) + 1], recording.times[::keep][: len(controls) + 1]
    return replace(recording, times=times, values=values, controls=controls, substeps=1)


def miss(engine: Any, found: Any, truth: Any, constants: Any, recording: Any) -> float:
    """RMS of position errors over the noise, `AHEAD` from the true first state, or at the recording's end."""
    count = min(round(AHEAD / recording.period), recording.num_steps)
    controls = recording.controls[None, :count]
    ends = []
    for world, parameters in ((engine, found), (truth, constants)):
        states, _ = world.rollout(world.initial_state(1), controls, parameters, substeps=round(recording.period / world.dt))
        ends.append(states[0, -1, [world.state_names.index(n) for n in recording.names]])
    sigma = np.array([NOISE[n.split(".")[-1]] for n in recording.names])
    return float(np.sqrt(np.mean(((ends[0] - ends[1]) / sigma) ** 2)))


def table_of(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    head = "| room | level | truths | explains | misses by more than the noise | of these: does not explain |"
    lines = [f"{head} identified | falsely | inside / numbers |", "| --- " * 9 + "|"]
    for name in dict.fromkeys(row["room"] for row in rows):
        for level in dict.fromkeys(row["level"] for row in rows if row["room"] == name):
            some = [row for row in rows if (row["room"], row["level"]) == (name, level)]
            judged = [row for row in some if "explains" in row]
            missing, numbers = [r for r in judged if r["miss"] > 1.0], [r for r in judged if r["number"]]
            count = {key: sum(bool(r[key]) for r in judged) for key in ("explains", "identified", "false")}
            lines.append(
                f"| {name} | {level} | {len(some)} | {count['explains']} | {len(missing)} | "
                f"{sum(not r['explains'] for r in missing)} | {count['identified']} | {count['false']} | "
                f"{sum(r['inside'] for r in numbers)} / {len(numbers)} |"
            )
    return "\n".join([*lines, ""])


def main(args: Args) -> None:
    """All truths."""
    path = args.out / "ladder.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(row["room"], row["level"], row["seed"]) for row in rows}
    for seed in range(args.first, args.first + args.truths):
        for name in args.rooms:
            for level in args.levels:
                if (name, level, seed) in done:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(one(name, level, seed, Path(folder)))
                write_atomically(path, (json.dumps({"commit": git_commit(), "rows": rows}, indent=1) + "\n").encode())
                write_atomically(args.out / "ladder.md", table_of(rows).encode())
    print(table_of(rows))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
