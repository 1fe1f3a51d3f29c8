"""Computes the numbers and threshold results of a study from its runs.

A cost C becomes a *share* = (C_nothing - C) / (C_nothing - C_oracle): 0 for no control, 1 for the oracle, run by run. Table and
report print the means of runs.
Legend: G data sets, R seeds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.errors import DataError, FileFormatError
from softgym_envs.core.files import read_json
from softgym_envs.core.simulator import Array

from .conditions import CONDITIONS, DOUBLED, NOMINAL, NOTHING, ORACLE
from .definition import Study, StudyRun, Threshold
from .fits import read_errors
from .jobs import read_records
from .statistics import Interval, better, mean_of_runs, shares

BEATEN = 1.1
"""Share of the oracle's gain that is not reached by chance."""


@dataclass(frozen=True)
class ConditionSummary:
    """Numbers of one condition at one budget."""

    condition: str
    label: str
    budget: int
    runs: int
    expected: int
    """Runs that the study plans; fewer `runs` is an unfinished study."""
    cost: Interval
    share: Interval | None
    """Share; None without its reference conditions, or where the oracle is not better than no control in every run."""
    improvement: float | None
    """Share of pairs with a lower cost than nominal."""
    failed: int
    """Number of failed simulations of the ground truth."""
    model_cost: float | None
    """Expected cost in the condition's own model; its difference from `cost` is the transfer gap."""
    ground_truth_steps: dict[str, float]
    """Steps per run: train, validation, tuning."""
    measures: dict[str, float]
    seconds: float | None


@dataclass(frozen=True)
class ThresholdResult:
    """A threshold and its result."""

    threshold: Threshold
    found: Interval | None
    passed: bool

    @property
    def label(self) -> str:
        """One line for people."""
        if self.found is None:
            return f"NOT JUDGED: {self.threshold.label}: runs are missing"
        word = "passed" if self.passed else "FAILED"
        low, high, limit = self.found.low, self.found.high, self.threshold.limit
        clear = low is None or high is None or low >= limit or high < limit
        return f"{word}: {self.threshold.label}: found {self.found}" + ("" if clear else " (the interval holds the limit)")


class FitNote(NamedTuple):
    """Result of the identification of one data set."""

    budget: int
    dataset: int
    failed: bool
    """Whether there is no fit, or the diagnostic rejects it."""
    note: str

    @property
    def label(self) -> str:
        """One line for people."""
        head = "FIT NOT TO BE USED (runs went on with the parameters that it left)" if self.failed else "fit"
        return f"{head}: data set {self.dataset}, {self.budget:,} steps of the ground truth: {self.note}"


@dataclass(frozen=True)
class Summary:
    """All numbers of a study."""

    study: Study
    folder: Path
    conditions: tuple[ConditionSummary, ...]
    thresholds: tuple[ThresholdResult, ...]
    scores: dict[str, Array]
    """Condition -> costs (G, R) at the main budget."""
    errors: dict[str, list[list[float]]]
    """Parameters -> [horizon [s], mean error [m]], mean over the fits of the main budget"""
    fits: tuple[FitNote, ...] = ()
    """Notes of every budget and data set."""
    unequal: dict[str, int] = field(default_factory=dict)
    """kind "rl": condition -> physics steps of its longest training, where they are not the same for all."""

    def shares(self, condition: str) -> Array | None:
        """Every run's share of the oracle's gain, (G, R)."""
        worst, best, costs = (self.scores.get(name) for name in (NOTHING, ORACLE, condition))
        return None if worst is None or best is None or costs is None else shares(costs, worst, best)

    @property
    def change(self) -> tuple[float, float] | None:
        """Change of the oracle's mean cost by twice its samples or steps, and half its interval; None if not known."""
        by_name = {a.condition: a.cost for a in self.conditions}
        oracle, doubled = by_name.get(ORACLE), by_name.get(DOUBLED)
        if oracle is None or doubled is None or oracle.low is None or oracle.high is None:
            return None
        return abs(doubled.value - oracle.value), (oracle.high - oracle.low) / 2

    @property
    def saturated(self) -> bool:
        """Whether the oracle is one: twice its samples or steps change its mean cost by less than half its interval."""
        return self.change is not None and self.change[0] < self.change[1]

    @property
    def saturation(self) -> str:
        """`saturated` in words; "" where the oracle plans once."""
        if ORACLE not in {a.condition for a in self.conditions} or self.study.kind == "plan":
            return ""
        if self.change is None:
            return "oracle not known to be saturated: no run has twice its samples or steps"
        word, (change, half) = "saturated oracle" if self.saturated else "UNSATURATED ORACLE", self.change
        return f"{word}: twice its samples or steps change its mean cost by {change:.3g}, half its interval is {half:.3g}"

    @property
    def doubts(self) -> str:
        """What makes shares meaningless: unequal training, or an oracle that is beaten; "" if nothing does."""
        better = [a.label for a in self.conditions if a.share is not None and a.share.value > BEATEN]
        beaten = f"it is beaten by {', '.join(better)}" if better else ""
        if {NOTHING, ORACLE} <= set(self.scores) and self.shares(ORACLE) is None:
            beaten = "in some run it is no better than no control"
        beaten = f"THE ORACLE IS NONE, shares of its gain mean nothing: {beaten}. " if beaten else ""
        told = ", ".join(f"{name} {steps:,}" for name, steps in self.unequal.items())
        return f"UNEQUAL TRAINING, no comparison: {told} physics steps. {beaten}" if told else beaten

    @property
    def broken(self) -> list[ThresholdResult]:
        """Thresholds that were missed."""
        return [result for result in self.thresholds if result.found is not None and not result.passed]

    @property
    def kept(self) -> bool:
        """Whether there are thresholds, all runs are there, and all thresholds were reached."""
        return bool(self.thresholds) and self.complete and all(result.passed for result in self.thresholds)

    @property
    def level(self) -> str:
        """Level of the headline: "failure", "warning" or "ok"."""
        if self.broken or self.unequal:
            return "failure"
        return "ok" if self.kept and not (self.doubts or any(fit.failed for fit in self.fits)) else "warning"

    @property
    def headline(self) -> str:
        """One sentence: doubts, thresholds, fits that their own diagnostics reject."""
        count, failed = len(self.thresholds), sum(fit.failed for fit in self.fits)
        said = "No thresholds were set before the runs: this is an exploration, not a test"
        if self.broken:
            said = f"{len(self.broken)} of {count} thresholds FAILED: " + "; ".join(v.threshold.label for v in self.broken)
        elif not self.complete or any(result.found is None for result in self.thresholds):
            said = "The study is not finished: runs are missing, see the table"
        elif self.kept:
            said = f"{count} of {count} thresholds passed"
        doubt = f"; {failed} of {len(self.fits)} FITS NOT TO BE USED, by their own diagnostic" if failed else ""
        return self.doubts + said + doubt

    @property
    def complete(self) -> bool:
        """Whether every run is there."""
        return not self.missing and all(condition.runs == condition.expected for condition in self.conditions)

    @property
    def missing(self) -> tuple[str, ...]:
        """Conditions without any run: they have no row in the table."""
        there = {condition.condition for condition in self.conditions}
        return tuple(name for name in self.study.conditions if name not in there)


def summarise(study: Study, out: Path) -> Summary:
    """Read the runs of a study; conditions without any run are left out.

    DataError: There is no run.
        DataError: There is no run at all.
        FileFormatError: A file cannot be read.
    """
    jobs = study.jobs(CONDITIONS)
    records = read_records(out, jobs)
    if not records:
        raise DataError(f"{out} holds no run of the study {study.name!r}")
    groups: dict[tuple[str, int], list[StudyRun]] = {}
    for job in jobs:
        groups.setdefault((job.condition, job.budget), []).append(job)
    main = {name: study.budget if CONDITIONS[name].budgeted else 0 for name in study.conditions}
    scores = {name: matrix for name in study.conditions if (matrix := _matrix(groups[name, main[name]], records)) is not None}
    conditions = tuple(
        found for key, members in groups.items() if (found := _summarise_condition(key, members, records, scores)) is not None
    )
    results = tuple(_judge(threshold, conditions, scores, study) for threshold in study.thresholds)
    return Summary(study, out, conditions, results, scores, *_fits(study, out), _unequal(study, records))


def _unequal(study: Study, records: dict[StudyRun, dict[str, Any]]) -> dict[str, int]:
    """Training steps by condition if they differ; those with the data's steps only, and twice the oracle's, differ by name."""
    steps: dict[str, int] = {}
    for job, record in records.items():
        if (
            study.kind == "rl"
            and job.condition != NOTHING
            and CONDITIONS[job.condition].method not in ("budgeted_plan", "doubled")
        ):
            trained = int(record.get("model_steps") or record["ground_truth_steps"].get("train", 0))
            steps[job.condition] = max(steps.get(job.condition, 0), trained)
    return steps if len(set(steps.values())) > 1 else {}


def _matrix(jobs: list[StudyRun], records: dict[StudyRun, dict[str, Any]]) -> Array | None:
    """Costs (G, R) over data sets and the seeds complete in all of them; None if there are none."""
    datasets = sorted({job.dataset for job in jobs})
    seeds = [s for s in sorted({job.seed for job in jobs}) if all(j in records for j in jobs if j.seed == s)]
    if not seeds:
        return None
    by_place = {(job.dataset, job.seed): records[job]["cost"] for job in jobs if job.seed in seeds}
    return np.array([[by_place[d, s] for s in seeds] for d in datasets])


def _summarise_condition(
    key: tuple[str, int], jobs: list[StudyRun], records: dict[StudyRun, dict[str, Any]], scores: dict[str, Array]
) -> ConditionSummary | None:
    name, budget = key
    costs, there = _matrix(jobs, records), [records[job] for job in jobs if job in records]
    if costs is None:
        return None
    share = improvement = None
    if NOTHING in scores and ORACLE in scores:
        share = shares(costs, scores[NOTHING], scores[ORACLE])
    if NOMINAL in scores and name != NOMINAL:
        improvement = better(costs, scores[NOMINAL])
    expected = [r["model_cost"] for r in there if r.get("model_cost") is not None]
    return ConditionSummary(
        name,
        CONDITIONS[name].label,
        budget,
        len(there),
        len(jobs),
        mean_of_runs(costs),
        None if share is None else mean_of_runs(share),
        improvement,
        sum(int(r["failed"]) for r in there),
        float(np.mean(expected)) if expected else None,
        {
            kind: float(np.mean([r["ground_truth_steps"].get(kind, 0) for r in there]))
            for kind in ("train", "validation", "tuning")
        },
        {m: float(np.mean([np.mean(r["measures"][m]) for r in there])) for m in _shared(there)},
        float(np.mean([r["seconds"] for r in there])) if all("seconds" in r for r in there) else None,
    )


def _shared(records: list[dict[str, Any]]) -> list[str]:
    """Measures that all runs have."""
    return [name for name in records[0]["measures"] if all(name in record["measures"] for record in records)]


def _judge(
    threshold: Threshold, conditions: tuple[ConditionSummary, ...], scores: dict[str, Array], study: Study
) -> ThresholdResult:
    """Judge a threshold by the results at the main budget."""
    found: Interval | None = None
    if threshold.quantity == "improvement":
        if threshold.condition in scores and threshold.versus in scores:
            value = better(scores[threshold.condition], scores[threshold.versus])
            found = Interval(value, None, None)
    else:
        mine = [a for a in conditions if a.condition == threshold.condition and a.budget in (0, study.budget)]
        found = mine[0].share if mine else None
    return ThresholdResult(threshold, found, found is not None and found.value >= threshold.limit)


def _fits(study: Study, out: Path) -> tuple[dict[str, list[list[float]]], tuple[FitNote, ...]]:
    """Prediction errors, mean over the data sets of the main budget; notes of all fits."""
    gathered: dict[str, dict[float, list[float]]] = {}
    notes = []
    for budget, dataset in itertools.product(study.budgets, range(study.repeats.datasets)):
        path = out / "fits" / f"b{budget}_d{dataset}.json"
        if not path.exists():
            continue
        try:
            document = read_json(path)
            errors = read_errors(document["errors"])
            notes.append(FitNote(budget, dataset, bool(document["failed"]), str(document["note"])))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FileFormatError(f"{path} is no fit of a study: {error!r}") from error
        for name, pairs in errors.items() if budget == study.budget else ():
            for horizon, size in pairs:
                gathered.setdefault(name, {}).setdefault(horizon, []).append(size)
    mean = {name: [[h, float(np.mean(e))] for h, e in sorted(found.items())] for name, found in gathered.items()}
    return mean, tuple(notes)
