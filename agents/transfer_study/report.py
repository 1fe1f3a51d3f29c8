"""The pages of a study: summary.json, table.md and report.html. Failed thresholds are printed as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from softgym_envs.core.files import read_json, write_atomically, write_json
from softgym_envs.data.page import embed, embed_image, render_page

from .conditions import CONDITIONS
from .definition import Study
from .figures import FIGURES
from .jobs import read_records
from .statistics import Interval, number
from .summary import Summary, summarise


def _text(value: float | Interval | None) -> str:
    return "–" if value is None else number(value) if isinstance(value, float) else str(value)


def table(summary: Summary) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of the result table."""
    measures = list(dict.fromkeys(name for condition in summary.conditions for name in condition.measures))
    head = (
        "condition",
        "physics steps of the ground truth (train)",
        "(validation)",
        "(tuning)",
        "cost on the ground truth",
        "cost expected",
        "score",
        "better than nominal",
        *measures,
        "failed",
        "runs",
    )
    rows = []
    for a in summary.conditions:
        steps = tuple(_text(a.ground_truth_steps[kind]) for kind in ("train", "validation", "tuning"))
        rows.append(
            (
                a.label,
                *steps,
                str(a.cost),
                _text(a.model_cost),
                _text(a.share),
                _text(a.improvement),
                *(_text(a.measures.get(m)) for m in measures),
                str(a.failed),
                f"{a.runs}/{a.expected}",
            )
        )
    return head, rows


def markdown(summary: Summary) -> str:
    """The table and the thresholds as Markdown."""
    head, rows = table(summary)
    lines = [f"# Transfer study: {summary.study.name}", "", f"**{summary.headline}**", ""]
    lines += [f"- {v.label}" for v in summary.thresholds]
    lines += [f"- {summary.saturation}"] * bool(summary.saturation)
    lines += [f"- no run of {CONDITIONS[name].label}" for name in summary.missing]
    lines += [f"- {fit.label}" for fit in summary.fits] + [""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += [
        "",
        intervals(summary.study),
        "A physics step is one of the ground truth's own, however long the rows of its recordings are; steps are per run.",
        "",
    ]
    return "\n".join(lines)


def intervals(study: Study) -> str:
    """What the numbers of a table are."""
    over = "seeds, of one data set" if study.repeats.datasets == 1 else "data sets and seeds"
    return (
        f"Numbers are means over runs. Intervals are 95 % ones by Student's t over {over}; where there are fewer than three, "
        "runs are printed. Score = (C no control - C) / (C no control - C oracle), run by run. Better than "
        "nominal: share of the pairs of one seed."
    )


def to_json(summary: Summary, out: Path) -> dict[str, Any]:
    """The summary with every run, as plain numbers."""
    conditions = []
    for a in summary.conditions:
        entry = {k: v._asdict() if isinstance(v, Interval) else v for k, v in vars(a).items()}
        conditions.append(entry)
    results = [
        {"threshold": vars(v.threshold), "found": v.found._asdict() if v.found else None, "passed": v.passed, "text": v.label}
        for v in summary.thresholds
    ]
    runs = list(read_records(out, summary.study.jobs(CONDITIONS)).values())
    return {
        "headline": summary.headline,
        "conditions": conditions,
        "thresholds": results,
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
    groups = {**vars(summary.study.repeats), **vars(summary.study.planning)}
    settings = {k: v for k, v in vars(summary.study).items() if k not in ("thresholds", "repeats", "planning")} | groups
    return render_page(
        Path(__file__).parent / "templates" / "transfer.html", s=summary, head=head, rows=rows,
        plots=plots, intervals=intervals(summary.study), provenance=provenance, settings=settings, images=images,
    )  # fmt: skip
