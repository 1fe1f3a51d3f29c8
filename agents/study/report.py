"""From the runs of a study to its numbers, verdicts and pages: summary.json, table.md and report.html.

Costs become two numbers per condition, both 1 for the oracle: *share* = (C_nothing - C) / (C_nothing - C_oracle), what of the
gain over doing nothing is reached, and *ratio* = (C_nominal - C) / (C_nominal - C_oracle), the return ratio against the engine
as it was before identification. Each is a ratio of interquartile means whose numerator and denominator are resampled together.
Broken promises are printed as such. Legend: G data sets, R seeds.
"""

from __future__ import annotations

import base64
import io
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, MissingDependencyError
from softgym_envs.core.files import write_atomically

from .jobs import Job, Study, Threshold, read_json, read_records, write_json
from .protocol import CONDITIONS, NOMINAL, NOTHING, ORACLE
from .statistics import (
    Interval,
    bootstrap,
    bootstrap_improvement,
    bootstrap_paired,
    interquartile_mean,
    optimality_gap,
    performance_profile,
)

Array = NDArray[np.float64]

LIMIT = 1e3
"""Ratios beyond it come from a denominator near zero and mean nothing."""


@dataclass(frozen=True)
class ConditionSummary:
    """Numbers of one condition at one budget."""

    condition: str
    text: str
    budget: int
    runs: int
    expected: int
    """Runs that the study plans; fewer `runs` is an unfinished study."""
    cost: Interval
    share: Interval | None
    """None without the conditions that it is measured against."""
    ratio: Interval | None
    improvement: Interval | None
    """P(better than nominal)"""
    gap: Interval | None
    """Optimality gap: mean of what single runs lack to a share of 1."""
    failed: int
    """Simulations of the truth that failed."""
    model_cost: float | None
    """Expected in the condition's own model; beside `cost` it is the transfer gap."""
    truth_steps: dict[str, float]
    """Per run: train, validation, tuning."""
    measures: dict[str, float]
    seconds: float | None


@dataclass(frozen=True)
class Verdict:
    """A promise and what became of it."""

    threshold: Threshold
    found: Interval | None
    passed: bool

    @property
    def text(self) -> str:
        """One line for people."""
        if self.found is None:
            return f"NOT JUDGED: {self.threshold.text}: runs are missing"
        word = "passed" if self.passed else "FAILED"
        clear = self.found.low >= self.threshold.limit or self.found.high < self.threshold.limit
        return f"{word}: {self.threshold.text}: found {self.found}" + ("" if clear else " (the interval holds the limit)")


@dataclass(frozen=True)
class Summary:
    """All numbers of a study."""

    study: Study
    conditions: tuple[ConditionSummary, ...]
    verdicts: tuple[Verdict, ...]
    scores: dict[str, Array]
    """Condition -> costs (G, R) at the main budget."""
    errors: dict[str, list[list[float]]]
    """Constants -> [horizon [s], mean error [m]], mean over the fits of the main budget"""

    def shares(self, condition: str) -> Array | None:
        """Every run's share of the oracle's gain, (G, R)."""
        low, high = self.scores.get(ORACLE), self.scores.get(NOTHING)
        if low is None or high is None or condition not in self.scores:
            return None
        best, nothing = float(interquartile_mean(low)), float(interquartile_mean(high))
        return np.asarray((nothing - self.scores[condition]) / (nothing - best))

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

    Raises:
        DataError: There is no run at all.
        FileFormatError: A file cannot be read.
    """
    jobs = study.jobs(CONDITIONS)
    records = read_records(out, jobs)
    if not records:
        raise DataError(f"{out} holds no run of the study {study.name!r}")
    groups: dict[tuple[str, int], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.condition, job.budget), []).append(job)
    main = {name: study.budget if CONDITIONS[name].budgeted else 0 for name in study.conditions}
    scores = {name: matrix for name in study.conditions if (matrix := _matrix(groups[name, main[name]], records)) is not None}
    conditions = tuple(
        found
        for key, members in groups.items()
        if (found := _summarise_condition(study, key, members, records, scores)) is not None
    )
    verdicts = tuple(_judge(threshold, conditions, scores, study) for threshold in study.thresholds)
    return Summary(study, conditions, verdicts, scores, _errors(study, out))


def _matrix(jobs: list[Job], records: dict[Job, dict[str, Any]]) -> Array | None:
    """Costs (G, R) over data sets and seeds that are complete; None if there are none."""
    datasets = sorted({job.dataset for job in jobs})
    seeds = [s for s in sorted({job.seed for job in jobs}) if all(j in records for j in jobs if j.seed == s)]
    if not seeds:
        return None
    by_place = {(job.dataset, job.seed): records[job]["cost"] for job in jobs if job.seed in seeds}
    return np.array([[by_place[d, s] for s in seeds] for d in datasets])


def _tiled(*matrices: Array) -> list[Array]:
    """The same (G, R): a condition without data is repeated for every data set; seeds that one lacks are cut."""
    groups, runs = max(len(m) for m in matrices), min(m.shape[1] for m in matrices)
    return [np.repeat(m[:, :runs], groups if len(m) == 1 else 1, axis=0) for m in matrices]


def _part(condition: Array, worst: Array, best: Array) -> Array:
    """(C_worst - C) / (C_worst - C_best) of interquartile means, bounded."""
    c, w, b = (interquartile_mean(x) for x in (condition, worst, best))
    with np.errstate(all="ignore"):
        return np.asarray(np.clip(np.nan_to_num((w - c) / (w - b), nan=0.0), -LIMIT, LIMIT))


def _summarise_condition(
    study: Study, key: tuple[str, int], jobs: list[Job], records: dict[Job, dict[str, Any]], scores: dict[str, Array]
) -> ConditionSummary | None:
    name, budget = key
    costs, there = _matrix(jobs, records), [records[job] for job in jobs if job in records]
    if costs is None:
        return None
    rng = np.random.default_rng(study.seed)
    parts: dict[str, Interval | None] = {"share": None, "ratio": None}
    for part, worst in (("share", NOTHING), ("ratio", NOMINAL)):
        if worst in scores and ORACLE in scores:
            parts[part] = bootstrap_paired(_part, *_tiled(costs, scores[worst], scores[ORACLE]), rng=rng)
    improvement = gap = None
    if NOMINAL in scores and name != NOMINAL:
        ours, theirs = _tiled(costs, scores[NOMINAL])
        improvement = bootstrap_improvement(-ours, -theirs, rng)
    if parts["share"] is not None:
        nothing, best = (float(interquartile_mean(scores[condition])) for condition in (NOTHING, ORACLE))
        if nothing > best:
            gap = bootstrap((nothing - costs) / (nothing - best), rng, statistic=optimality_gap)
    expected = [r["model_cost"] for r in there if r.get("model_cost") is not None]
    return ConditionSummary(
        name,
        CONDITIONS[name].text,
        budget,
        len(there),
        len(jobs),
        bootstrap(costs, rng),
        parts["share"],
        parts["ratio"],
        improvement,
        gap,
        sum(int(r["failed"]) for r in there),
        float(np.mean(expected)) if expected else None,
        {kind: float(np.mean([r["truth_steps"].get(kind, 0) for r in there])) for kind in ("train", "validation", "tuning")},
        {m: float(np.mean([np.mean(r["measures"][m]) for r in there])) for m in there[0]["measures"]},
        float(np.mean([r["seconds"] for r in there])) if all("seconds" in r for r in there) else None,
    )


def _judge(threshold: Threshold, conditions: tuple[ConditionSummary, ...], scores: dict[str, Array], study: Study) -> Verdict:
    """A promise against what was found at the main budget."""
    found: Interval | None = None
    if threshold.quantity == "improvement":
        if threshold.condition in scores and threshold.versus in scores:
            ours, theirs = _tiled(scores[threshold.condition], scores[threshold.versus])
            found = bootstrap_improvement(-ours, -theirs, np.random.default_rng(study.seed))
    else:
        mine = [a for a in conditions if a.condition == threshold.condition and a.budget in (0, study.budget)]
        found = getattr(mine[0], threshold.quantity) if mine else None
    return Verdict(threshold, found, found is not None and found.value >= threshold.limit)


def _errors(study: Study, out: Path) -> dict[str, list[list[float]]]:
    """Prediction errors, mean over the data sets of the main budget."""
    gathered: dict[str, dict[float, list[float]]] = {}
    for dataset in range(study.datasets):
        path = out / "fits" / f"b{study.budget}_d{dataset}.json"
        if path.exists():
            for name, pairs in read_json(path)["errors"].items():
                for horizon, error in pairs:
                    gathered.setdefault(name, {}).setdefault(horizon, []).append(error)
    return {name: [[h, float(np.mean(e))] for h, e in sorted(found.items())] for name, found in gathered.items()}


# --- words and files ------------------------------------------------------------------------------------------------------


def headline(summary: Summary) -> str:
    """One sentence: kept or broken promises first."""
    broken = [v for v in summary.verdicts if v.found is not None and not v.passed]
    open_ones = [v for v in summary.verdicts if v.found is None]
    if broken:
        return f"{len(broken)} of {len(summary.verdicts)} thresholds FAILED: " + "; ".join(v.threshold.text for v in broken)
    if open_ones or not summary.complete:
        return "The study is not finished: runs are missing, see the table"
    if not summary.verdicts:
        return "No thresholds were set before the runs: this is an exploration, not a test"
    return f"All {len(summary.verdicts)} thresholds passed"


def interval(found: Interval | None, runs: int) -> str:
    """An interval for a table, "–" where there is none; one run alone has no interval."""
    if found is None:
        return "–"
    return _number(found.value) + (f" [{_number(found.low)}, {_number(found.high)}]" if runs > 1 else "")


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(summary: Summary) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of the result table."""
    measures = list(dict.fromkeys(name for condition in summary.conditions for name in condition.measures))
    head = (
        "condition",
        "truth steps (train)",
        "(validation)",
        "(tuning)",
        "cost on the truth",
        "cost expected",
        "share of the oracle",
        "return ratio",
        "P(better than nominal)",
        "optimality gap",
        *measures,
        "failed",
        "runs",
    )
    rows = []
    for a in summary.conditions:
        steps = tuple(_number(a.truth_steps[kind]) for kind in ("train", "validation", "tuning"))
        rows.append(
            (
                a.text,
                *steps,
                interval(a.cost, a.runs),
                _number(a.model_cost),
                interval(a.share, a.runs),
                interval(a.ratio, a.runs),
                interval(a.improvement, a.runs),
                interval(a.gap, a.runs),
                *(_number(a.measures.get(m)) for m in measures),
                str(a.failed),
                f"{a.runs}/{a.expected}",
            )
        )
    return head, rows


def markdown(summary: Summary) -> str:
    """The table and the verdicts as Markdown."""
    head, rows = table(summary)
    lines = [f"# Transfer study: {summary.study.name}", "", f"**{headline(summary)}**", ""]
    lines += [f"- {v.text}" for v in summary.verdicts]
    lines += [f"- no run of {CONDITIONS[name].text}" for name in summary.missing] + [""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += [
        "",
        "Numbers are interquartile means with 95 % bootstrap intervals (data sets, then seeds); steps are per run.",
        "",
    ]
    return "\n".join(lines)


def to_json(summary: Summary, out: Path) -> dict[str, Any]:
    """Everything with every run, in plain numbers."""
    conditions = []
    for a in summary.conditions:
        entry = {k: v._asdict() if isinstance(v, Interval) else v for k, v in vars(a).items()}
        conditions.append(entry)
    verdicts = [
        {"threshold": vars(v.threshold), "found": v.found._asdict() if v.found else None, "passed": v.passed, "text": v.text}
        for v in summary.verdicts
    ]
    runs = list(read_records(out, summary.study.jobs(CONDITIONS)).values())
    return {
        "headline": headline(summary),
        "conditions": conditions,
        "verdicts": verdicts,
        "errors": summary.errors,
        "runs": runs,
    }


def write_report(study: Study, out: Path, *, images: tuple[str, ...] = ()) -> Summary:
    """Write summary.json, table.md and report.html into the folder of a study.

    Args:
        study: What was run.
        out: Its folder.
        images: GIF files in `out`, by name, to be embedded in the page.

    Raises:
        DataError: There is no run at all.
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    summary = summarise(study, out)
    provenance = read_json(out / "study.json").get("provenance", {})
    shown = tuple("data:image/gif;base64," + base64.b64encode((out / name).read_bytes()).decode() for name in images)
    write_json(out / "summary.json", json.loads(json.dumps(to_json(summary, out))))
    write_atomically(out / "table.md", markdown(summary).encode())
    write_atomically(out / "report.html", render(summary, provenance, shown).encode())
    return summary


def render(summary: Summary, provenance: dict[str, str], images: tuple[str, ...] = ()) -> str:
    """The page as text; everything is embedded.

    Raises:
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    try:
        import jinja2
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            f'the report needs matplotlib and jinja2: pip install "softgym-envs[report]" ({error})'
        ) from error
    source = (Path(__file__).parent / "templates" / "transfer.html").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
    draws = {"scores": _draw_scores, "profile": _draw_profile, "curve": _draw_curve, "errors": _draw_errors}
    plots = {name: embed(figure) for name, draw in draws.items() if (figure := draw(summary, Figure)) is not None}
    head, rows = table(summary)
    level = "ok" if headline(summary).startswith("All") else "failure" if "FAILED" in headline(summary) else "warning"
    settings = {k: v for k, v in vars(summary.study).items() if k != "thresholds"}
    return str(
        template.render(
            s=summary,
            headline=headline(summary),
            level=level,
            head=head,
            rows=rows,
            plots=plots,
            provenance=provenance,
            settings=settings,
            images=images,
        )
    )


# --- plots ----------------------------------------------------------------------------------------------------------------

INK, BLUE, ORANGE, GREY = "#1d2733", "#1f6fb4", "#d9822b", "#9aa7b4"
COLORS = (BLUE, ORANGE, "#2a9d6f", "#b0413e", "#7a5ba6", "#6b7785", "#c2a83e", "#3f8f9f")


def embed(figure: Any) -> str:
    """A figure as a data URI; SVG stays sharp."""
    from matplotlib import rc_context

    stream = io.BytesIO()
    with rc_context({"svg.hashsalt": "softgym"}):
        figure.savefig(stream, format="svg", bbox_inches="tight", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()


def plain_axes(axes: Any) -> None:
    """No frame, a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#e6ebf0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)


def _main_conditions(summary: Summary) -> list[ConditionSummary]:
    return [a for a in summary.conditions if a.budget in (0, summary.study.budget)]


def _draw_scores(summary: Summary, make: Any) -> Any:
    """Cost of every condition: interval, interquartile mean, every run."""
    conditions = _main_conditions(summary)
    figure = make(figsize=(9, 0.42 * len(conditions) + 1.0))
    axes = figure.add_subplot()
    for row, condition in enumerate(conditions):
        color = ORANGE if condition.condition in (NOMINAL, NOTHING) else BLUE
        runs = summary.scores[condition.condition].ravel()
        axes.plot(runs, np.full(runs.size, row), ".", color=GREY, markersize=4)
        axes.hlines(row, condition.cost.low, condition.cost.high, color=color, linewidth=8, alpha=0.35)
        axes.plot(condition.cost.value, row, "o", color=color)
        if condition.model_cost is not None:
            axes.plot(condition.model_cost, row, "|", color=INK, markersize=12, markeredgewidth=2)
    axes.set_yticks(range(len(conditions)), [a.text for a in conditions])
    axes.invert_yaxis()
    axes.set_xlabel("cost on the truth (dots: runs, bar: 95 %, tick: what the condition's own model expected)")
    plain_axes(axes)
    return figure


def _draw_profile(summary: Summary, make: Any) -> Any:
    """Performance profiles: fraction of runs with a share above tau."""
    found = {
        a.text: s
        for a in _main_conditions(summary)
        if a.condition != NOTHING and (s := summary.shares(a.condition)) is not None
    }
    if not found or not all(np.isfinite(s).all() for s in found.values()):
        return None
    taus = np.linspace(-0.2, 1.2, 141)
    figure = make(figsize=(9, 3.6))
    axes = figure.add_subplot()
    for index, (text, shares) in enumerate(found.items()):
        style = ("-", "--", ":")[index // len(COLORS) % 3]
        axes.plot(taus, performance_profile(shares, taus), style, color=COLORS[index % len(COLORS)], label=text)
    axes.set_xlabel("share of the oracle's gain, τ")
    axes.set_ylabel("runs with more than τ")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    plain_axes(axes)
    return figure


def _draw_curve(summary: Summary, make: Any) -> Any:
    """Cost against the training steps of the truth."""
    if len(summary.study.budgets) < 2 or not summary.study.curve:
        return None
    figure = make(figsize=(9, 3.4))
    axes = figure.add_subplot()
    for index, name in enumerate(summary.study.curve):
        points = sorted((a for a in summary.conditions if a.condition == name), key=lambda a: a.budget)
        x, y = [a.budget for a in points], [a.cost.value for a in points]
        bars = [[a.cost.value - a.cost.low for a in points], [a.cost.high - a.cost.value for a in points]]
        axes.errorbar(
            x, y, np.maximum(bars, 0.0), fmt="o-", color=COLORS[index % len(COLORS)], capsize=3, label=CONDITIONS[name].text
        )
    for name, color in ((NOMINAL, ORANGE), (ORACLE, INK)):
        for condition in summary.conditions:
            if condition.condition == name:
                axes.axhline(condition.cost.value, color=color, linestyle="--", linewidth=1, label=condition.text)
    axes.set_xscale("log")
    axes.set_xlabel("physics steps of the truth for training")
    axes.set_ylabel("cost on the truth")
    axes.legend(frameon=False, fontsize=8)
    plain_axes(axes)
    return figure


def _draw_errors(summary: Summary, make: Any) -> Any:
    """Prediction error against the horizon."""
    if not any(summary.errors.values()):
        return None
    figure = make(figsize=(9, 3.2))
    axes = figure.add_subplot()
    for index, (name, pairs) in enumerate(summary.errors.items()):
        if pairs:
            axes.loglog(*np.array(pairs).T, "o-", color=COLORS[index % len(COLORS)], label=name)
    axes.set_xlabel("horizon [s]")
    axes.set_ylabel("error of the position [m]")
    axes.legend(frameon=False, fontsize=8)
    plain_axes(axes)
    return figure
