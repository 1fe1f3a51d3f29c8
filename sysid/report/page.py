"""One self-contained HTML page per fit: diagnostic in words, table of parameters, plots, provenance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from softgym_envs.data.page import BLUE, GREY, INK, ORANGE, embed, new_figure, plain_axes, render_page

from ..diagnostics.result import Estimate, FitResult


def render(*results: FitResult) -> str:
    """Render the page of one fit, or of several stages, as text; it fetches nothing from elsewhere.

    Raises:
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    fits = [(each, {name: embed(figure) for name, figure in figures(each).items()}) for each in results]
    return render_page(Path(__file__).parent / "templates" / "report.html", fits=fits, n=number)


def number(value: float, digits: int = 5) -> str:
    """Format a number for people.

    >>> number(1234.5678), number(float("inf"))
    ('1234.6', '∞')
    """
    if math.isnan(value):
        return "–"
    return ("-" if value < 0 else "") + "∞" if math.isinf(value) else f"{value:.{digits}g}"


def figures(result: FitResult) -> dict[str, Any]:
    """Every plot of the page by name."""
    plots = {"intervals": _intervals, "trace": _trace, "horizon": _horizon, "cost": _cost, "correlation": _correlation}
    return {name: draw(result) for name, draw in plots.items() if name != "trace" or len(result.trace.names)}


def _intervals(result: FitResult) -> Any:
    """Plot every parameter on its own allowed range, 0 ... 1 in fit coordinates."""
    figure = new_figure(9, 0.55 * len(result.estimates) + 0.9)
    axes = figure.add_subplot()
    for row, estimate in enumerate(result.estimates):
        place = _placer(result, estimate)
        axes.hlines(row, 0, 1, color="#e6ebf0", linewidth=8, zorder=1)
        if estimate.hidden:
            axes.text(0.01, row, "not identifiable", ha="left", va="center", color=GREY, fontsize=9, zorder=3)
        else:
            axes.hlines(
                row, place(estimate.interval[0]), place(estimate.interval[1]), color=BLUE, linewidth=8, alpha=0.35, zorder=2
            )
            axes.plot(place(estimate.value), row, "o", color=BLUE, markersize=8, zorder=4)
        axes.plot(place(estimate.start), row, "|", color=ORANGE, markersize=16, markeredgewidth=2, zorder=3)
    axes.plot([], [], "o", color=BLUE, label="identified, with 95 % interval")
    axes.plot([], [], "|", color=ORANGE, markersize=12, markeredgewidth=2, label="before the fit")
    axes.set_yticks(range(len(result.estimates)), [e.name for e in result.estimates])
    axes.set_ylim(len(result.estimates) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks([0, 1], ["lower bound", "upper bound"])
    plain_axes(axes)
    axes.grid(False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
    return figure


def _placer(result: FitResult, estimate: Estimate) -> Any:
    spec = {**result.view.specs(), **result.parameters.specs()}[estimate.name]
    lower, upper = (float(spec.encode(bound)) for bound in estimate.bounds)
    return lambda value: (float(spec.encode(value)) - lower) / (upper - lower)


def _trace(result: FitResult) -> Any:
    """Plot the six columns that move most, measured and predicted."""
    trace = result.trace
    travel = np.nan_to_num(np.nanmax(trace.measured, axis=0) - np.nanmin(trace.measured, axis=0))
    chosen = _varied(trace.names, travel)
    every = max(1, len(trace.times) // 500)
    rows = (len(chosen) + 1) // 2
    figure = new_figure(9, 1.9 * rows + 0.5)
    for place, column in enumerate(chosen):
        axes = figure.add_subplot(rows, 2, place + 1)
        shown = trace.measured[::every, column]
        axes.plot(trace.times[::every], shown, color=INK, linewidth=2.4, alpha=0.35, label="recorded")
        axes.plot(trace.times[::every], trace.start[::every, column], color=ORANGE, linewidth=1, label="before the fit")
        axes.plot(trace.times[::every], trace.fitted[::every, column], color=BLUE, linewidth=1.2, label="fitted")
        low, high = np.nanmin(shown), np.nanmax(shown)
        axes.set_ylim(
            low - 0.4 * (high - low) - 1e-12, high + 0.4 * (high - low) + 1e-12
        )  # a diverging start must not hide the data
        axes.set_title(trace.names[column], fontsize=10, loc="left", color=INK)
        plain_axes(axes)
        if place >= len(chosen) - 2:
            axes.set_xlabel("time [s]", fontsize=9)
        if place == 0:
            figure.legend(*axes.get_legend_handles_labels(), loc="upper center", ncols=3, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 0.96))
    return figure


def _varied(names: tuple[str, ...], travel: Any) -> list[int]:
    """Six columns that travel most, at most two of one kind (last part of the name)."""
    chosen: list[int] = []
    for limit in (2, 6):
        for column in np.argsort(-travel, kind="stable"):
            kind = names[column].rsplit(".", 1)[-1]
            same = sum(names[c].rsplit(".", 1)[-1] == kind for c in chosen)
            if len(chosen) < min(6, len(names)) and column not in chosen and same < limit:
                chosen.append(int(column))
    return sorted(chosen)


def _horizon(result: FitResult) -> Any:
    """Plot RMS error against horizon, one panel per kind of quantity."""
    kinds = list(dict.fromkeys(e.kind for e in result.open_loop)) or ["other"]
    parts = list(dict.fromkeys(e.part for e in result.open_loop))
    style = {"train": ":", "validation": "--", "test": "-"}
    columns = min(3, len(kinds))
    rows = -(-len(kinds) // columns)
    figure = new_figure(9, 2.7 * rows + 0.4)
    for place, kind in enumerate(kinds):
        axes = figure.add_subplot(rows, columns, place + 1)
        for part in parts:
            some = [e for e in result.open_loop if e.kind == kind and e.part == part]
            horizon = [e.horizon for e in some]
            for name, colour in (("persistence", GREY), ("start", ORANGE), ("fitted", BLUE)):
                label = {"persistence": "standing still", "start": "before the fit", "fitted": "fitted"}[name]
                values = [max(getattr(e, name), 1e-17) for e in some]
                axes.loglog(horizon, values, style[part], marker="o", markersize=4, color=colour, label=f"{label} ({part})")
        axes.set_title(
            f"RMS error [{kind}]" if kind != "other" else "RMS error (other columns)", fontsize=10, loc="left", color=INK
        )
        axes.set_xlabel("horizon [s]", fontsize=9)
        plain_axes(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.tight_layout()
    figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.99), ncols=3, frameon=False, fontsize=8)
    return figure


def _cost(result: FitResult) -> Any:
    figure = new_figure(4.6, 3.4)
    axes = figure.add_subplot()
    taken = [e for e in result.log if e.accepted]
    axes.semilogy([e.iteration for e in taken], [max(e.cost, 1e-300) for e in taken], "o-", color=BLUE, markersize=4)
    axes.set_xlabel("iteration", fontsize=9)
    axes.set_ylabel("cost (a jump up: new weights)" if any(np.diff([e.cost for e in taken]) > 0) else "cost", fontsize=9)
    plain_axes(axes)
    return figure


def _correlation(result: FitResult) -> Any:
    figure = new_figure(4.6, 3.4)
    axes = figure.add_subplot()
    matrix = result.correlation
    image = axes.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
    names = list(result.posterior.names)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    if len(names) <= 8:
        for i, j in np.ndindex(matrix.shape):
            text = "–" if np.isnan(matrix[i, j]) else f"{matrix[i, j]:.2f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if abs(matrix[i, j]) > 0.6 else INK)
    figure.colorbar(image, ax=axes, shrink=0.85)
    return figure
