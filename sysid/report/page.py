"""One self-contained HTML page per fit: diagnostic in words, table of parameters, plots, provenance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from softgym_envs.data.page import BLUE, GREY, INK, ORANGE, embed, new_figure, plain_axes, render_page

from ..diagnostics.result import Estimate, FitResult
from ..diagnostics.validation import held_out
from .figures import Line, PlottedCurve, horizons, residuals, traces


def render(*results: FitResult) -> str:
    """Render the page of one fit, or of several stages, as text; it fetches nothing from elsewhere.

    Raises:
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    fits = [(each, {name: embed(figure) for name, figure in figures(each).items()}) for each in results]
    return render_page(Path(__file__).parent / "templates" / "report.html", fits=fits, n=number, words=in_words, source=_source)


def _source(result: FitResult, name: str) -> str:
    """What is declared of a parameter, for people."""
    return {**result.view.specs(), **result.parameters.specs()}[name].source


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
    plots = {"intervals": _intervals}
    plots |= {"cost": _cost} if sum(entry.accepted for entry in result.log) > 1 else {}
    plots |= {"correlation": _correlation} if len(result.posterior.names) > 1 else {}
    plots |= {"trace": _trace, "residuals": _residuals} if len(result.trace.names) else {}
    plots |= {"horizon": _horizon} if result.open_loop else {}
    return {name: draw(result) for name, draw in plots.items()}


def in_words(estimate: Estimate) -> str:
    """What a fit says of a parameter, without numbers for one that is not identifiable."""
    low, high = estimate.interval
    if estimate.hidden:
        return "not identifiable: the data hardly show it"
    if estimate.at_bound:
        return f"at its {estimate.at_bound} bound: it may lie beyond"
    if estimate.assumed:
        return "mostly as known before: the data say little"
    size, half = abs(estimate.value), 0.5 * (high - low)
    known = f"known to {100 * half / size:.2g} %" if half < size else "sign and size are uncertain"
    if low <= estimate.start <= high:
        return f"as before within its interval; {known}"
    ratio = estimate.value / estimate.start if estimate.start else 0.0
    if not 0.1 < ratio < 10.0:
        return f"changed; {known}"
    return f"{float(f'{100 * abs(ratio - 1.0):.2g}'):g} % {'larger' if ratio > 1.0 else 'smaller'} than before; {known}"


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
    """Plot recorded columns, and their predictions before and after the fit."""
    trace = result.trace
    curves = [PlottedCurve("before the fit", ORANGE, trace.start), PlottedCurve("fitted", BLUE, trace.fitted)]
    return traces(trace.names, trace.units, trace.times, trace.measured, curves)


def _residuals(result: FitResult) -> Any:
    """Plot what the prediction of that recording leaves."""
    trace = result.trace
    return residuals(trace.names, trace.units, trace.times, trace.fitted - trace.measured, result.noise)


def _horizon(result: FitResult) -> Any:
    """Plot RMS error against horizon on held-out data, where there are any, one panel per kind of quantity."""
    panels, errors = {}, held_out(result.open_loop) or result.open_loop
    for kind in dict.fromkeys(e.kind for e in errors):
        own = [e for e in errors if e.kind == kind]
        panels[kind] = (
            [f"{e.horizon:.3g} s" for e in own],
            [
                Line("standing still", GREY, [e.persistence for e in own]),
                Line("before the fit", ORANGE, [e.start for e in own]),
                Line("fitted", BLUE, [e.fitted for e in own]),
            ],
        )
    return horizons(panels)


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
