"""Results of transfer studies: numbers.json from the folder of a study that ran, and table.md from numbers.json.

python experiments/tables.py runs/transfer_vine_grow_mpc  # -> results/vine_grow_mpc/numbers.json and table.md
python experiments/tables.py  # every table.md of results/ again
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from agents.transfer_study.definition import StudyRun
from agents.transfer_study.jobs import record_path, registered
from agents.transfer_study.report import markdown
from agents.transfer_study.statistics import Interval
from agents.transfer_study.summary import Summary, summarise
from softgym_envs.core.files import read_json, write_atomically, write_json

RESULTS = Path("results")
KEYS = ("condition", "budget", "dataset", "seed")
RUN = (*KEYS, "cost", "costs", "failed", "measures", "model_cost", "ground_truth_steps", "model_steps", "seconds")
"""Entries of a run that tables need."""
FIT = ("failed", "note", "errors")


@dataclass(frozen=True)
class Args:
    """Options."""

    run: Annotated[Path | None, tyro.conf.Positional] = None
    """Folder of a study that ran; none: write the tables of results/ again."""


def packed(folder: Path) -> dict[str, Any]:
    """Study, runs and fits of the folder of a study, without what its report alone needs."""
    document = read_json(folder / "study.json")
    runs = [read_json(path) for path in sorted((folder / "runs").glob("*.json"))]
    fits = []
    for path in sorted((folder / "fits").glob("b*_d*.json")):
        budget, dataset = path.stem[1:].split("_d")
        fit = read_json(path)
        parameters = dict(zip(fit["names"], fit["parameters"], strict=True))
        found = {name: fit[name] for name in FIT} | {"parameters": parameters}
        fits.append({"budget": int(budget), "dataset": int(dataset), **found})
    study = {name: value for name, value in document["study"].items() if name != "case"}
    kept = [{name: run[name] for name in RUN if name in run} for run in runs]
    return {"provenance": document["provenance"], "study": study, "fits": fits, "runs": kept}


def summary(numbers: dict[str, Any]) -> Summary:
    """The numbers of a study, of what `packed` gives."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_json(folder / "study.json", {"study": numbers["study"]})
        for run in numbers["runs"]:
            write_json(record_path(folder, StudyRun(**{key: run[key] for key in KEYS})), {"detail": {}, **run})
        for fit in numbers["fits"]:
            write_json(folder / "fits" / f"b{fit['budget']}_d{fit['dataset']}.json", fit)
        return summarise(registered(folder), folder)


def scores(found: Summary) -> dict[str, Any]:
    """Condition, and its budget if it has one -> mean cost and normalised score, each with its interval, and mean measures."""

    def ends(interval: Interval | None) -> list[float]:
        parts = () if interval is None else (interval.value, interval.low, interval.high)
        return [float(f"{part:.6g}") for part in parts if part is not None]

    return {
        f"{row.condition}_{row.budget}" if row.budget else row.condition: {
            "cost": ends(row.cost), "score": ends(row.share), "steps": row.ground_truth_steps["train"],
            "measures": {name: float(f"{value:.6g}") for name, value in row.measures.items()},
        }
        for row in found.conditions
    }  # fmt: skip


def main(args: Args) -> None:
    """Pack one study, or write all tables."""
    if args.run is not None:
        numbers = packed(args.run)
        write_json(RESULTS / numbers["study"]["name"] / "numbers.json", numbers)
    for path in sorted(RESULTS.glob("*/numbers.json")):
        numbers = read_json(path)
        if "study" in numbers:
            found = summary(numbers)
            write_json(path, numbers | {"scores": scores(found)})
            write_atomically(path.with_name("table.md"), markdown(found).encode())


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
