"""The pages of a study: summary.json, table.md and report.html. Failed thresholds are printed as such."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from softgym_envs.core.files import read_json, write_atomically, write_json
from softgym_envs.core.page import embed, embed_image, render_page

from .conditions import CONDITIONS
from .definition import Study
from .figures import FIGURES
from .jobs import read_records
from .statistics import Interval
from .summary import Summary, summarise

BEATEN = 1.1
"""Share of the oracle's gain that is not reached by chance."""


def headline(summary: Summary) -> str:
    """One sentence: an oracle that is beaten, thresholds passed or failed, fits that their own verdict rejects."""
    better = [a.text for a in summary.conditions if a.share is not None and a.share.value > BEATEN]
    beaten = f"THE ORACLE IS NONE, shares of its gain mean nothing: it is beaten by {', '.join(better)}. " if better else ""
    failed = sum(fit.failed for fit in summary.fits)
    doubt = f"; {failed} of {len(summary.fits)} FITS NOT TO BE USED, by their own verdict" if failed else ""
    return beaten + _promises(summary) + doubt


def _promises(summary: Summary) -> str:
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
    """An interval for a table, "–" if there is none; a single run has no interval."""
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
        "physics steps of the truth (train)",
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
    lines += [f"- no run of {CONDITIONS[name].text}" for name in summary.missing]
    lines += [f"- {fit.text}" for fit in summary.fits] + [""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += [
        "",
        "Numbers are interquartile means with 95 % bootstrap intervals (data sets, then seeds). A physics step is one of",
        "the truth's own, however long the rows of its recordings are; steps are per run.",
        "",
    ]
    return "\n".join(lines)


def to_json(summary: Summary, out: Path) -> dict[str, Any]:
    """The summary with every run, as plain numbers."""
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
        "fits": [fit._asdict() for fit in summary.fits],
        "runs": runs,
    }


def write_report(study: Study, out: Path, *, images: tuple[str, ...] = ()) -> Summary:
    """Write summary.json, table.md and report.html into the folder of a study.

    Args:
        study: The study that was run.
        out: Its folder.
        images: GIF files in `out`, by name, to be embedded in the page.

    Raises:
        DataError: There is no run.
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    summary = summarise(study, out)
    provenance = read_json(out / "study.json").get("provenance", {})
    shown = tuple(embed_image(out / name) for name in images)
    write_json(out / "summary.json", json.loads(json.dumps(to_json(summary, out))))
    write_atomically(out / "table.md", markdown(summary).encode())
    write_atomically(out / "report.html", render(summary, provenance, shown).encode())
    return summary


def render(summary: Summary, provenance: dict[str, str], images: tuple[str, ...] = ()) -> str:
    """The page as text; everything is embedded.

    Raises:
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    plots = {name: embed(figure) for name, draw in FIGURES.items() if (figure := draw(summary)) is not None}
    head, rows = table(summary)
    broken, kept = "FAILED" in headline(summary), headline(summary).startswith("All")
    level = "failure" if broken else "ok" if kept and not any(fit.failed for fit in summary.fits) else "warning"
    settings = {k: v for k, v in vars(summary.study).items() if k != "thresholds"}
    return render_page(
        Path(__file__).parent / "templates" / "transfer.html", s=summary, headline=headline(summary), level=level, head=head,
        rows=rows, plots=plots, provenance=provenance, settings=settings, images=images,
    )  # fmt: skip
