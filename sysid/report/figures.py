"""Plots that pages of fits and of predictions share: recorded and predicted columns, their residuals, errors at horizons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.simulator import Array
from softgym_envs.data.page import COLORS, GREY, INK, new_figure, plain_axes

PANELS = 13  # Largest number of columns that are shown one by one: a box has as many state entries.
PLOTTED_POINTS = 500  # Largest number of points of a curve.
FIGURE_MARGIN = 0.4  # Space around the recorded curve, over its range: a diverging prediction must not hide it.
FLOOR = 1e-17  # Smallest error on a logarithmic axis.


class PlottedCurve(NamedTuple):
    """Predicted columns of a recording."""

    label: str
    color: str
    values: Array  # (L, ny)


class Line(NamedTuple):
    """Errors of one predictor."""

    label: str
    color: str
    errors: Sequence[float]  # One per horizon.


def titled(name: str, unit: str) -> str:
    """Name of a column with its unit.

    >>> titled("tip.x", "m"), titled("qw", "-")
    ('tip.x [m]', 'qw [-]')
    """
    return f"{name} [{unit or '-'}]"


def shown_columns(names: Sequence[str], measured: Array) -> list[int]:
    """All columns if there are at most `PANELS`, else those that travel most, two of a kind (last part of the name) first."""
    if len(names) <= PANELS:
        return list(range(len(names)))
    seen = np.isfinite(measured)
    travel = np.where(seen, measured, -np.inf).max(axis=0) - np.where(seen, measured, np.inf).min(axis=0)
    chosen: list[int] = []
    for limit in (2, PANELS):
        for column in np.argsort(-np.nan_to_num(travel, neginf=0.0), kind="stable"):
            kind = names[column].rsplit(".", 1)[-1]
            same = sum(names[c].rsplit(".", 1)[-1] == kind for c in chosen)
            if len(chosen) < PANELS - 1 and column not in chosen and same < limit:
                chosen.append(int(column))
    return sorted(chosen)


def traces(names: Sequence[str], units: Sequence[str], times: Array, measured: Array, curves: Sequence[PlottedCurve]) -> Any:
    """Plot columns (L, ny) over times (L,) [s], each with its unit in a panel of its own."""
    chosen, every = shown_columns(names, measured), max(1, len(times) // PLOTTED_POINTS)
    rows = -(-len(chosen) // 3)
    figure = new_figure(10.5, 1.75 * rows + 0.6)
    for place, column in enumerate(chosen):
        axes = figure.add_subplot(rows, 3, place + 1)
        recorded = measured[::every, column]
        axes.plot(times[::every], recorded, color=INK, linewidth=2.6, alpha=0.35, label="recorded")
        for curve in curves:
            axes.plot(times[::every], curve.values[::every, column], color=curve.color, linewidth=1.2, label=curve.label)
        if np.isfinite(recorded).any():
            low, high = np.nanmin(recorded), np.nanmax(recorded)
            space = FIGURE_MARGIN * (high - low) + 1e-12
            axes.set_ylim(low - space, high + space)
        axes.set_title(titled(names[column], units[column]), fontsize=10, loc="left", color=INK)
        plain_axes(axes)
        if place >= len(chosen) - 3:
            axes.set_xlabel("time [s]", fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.tight_layout()
    figure.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.01, 0.99), ncols=4, frameon=False, fontsize=9)
    return figure


def residuals(names: Sequence[str], units: Sequence[str], times: Array, error: Array, noise: Mapping[str, float]) -> Any:
    """Plot predicted minus recorded columns (L, ny), one panel per unit, with two standard deviations of the noise in grey."""
    kinds, every = list(dict.fromkeys(units)), max(1, len(times) // PLOTTED_POINTS)
    columns = min(3, len(kinds))
    rows = -(-len(kinds) // columns)
    figure = new_figure(10.5, 2.3 * rows + 0.3)
    for place, kind in enumerate(kinds):
        axes = figure.add_subplot(rows, columns, place + 1)
        own = [column for column, unit in enumerate(units) if unit == kind]
        if sizes := [noise[names[column]] for column in own if np.isfinite(noise.get(names[column], np.nan))]:
            axes.axhspan(-2 * max(sizes), 2 * max(sizes), color=GREY, alpha=0.25, linewidth=0)
        axes.axhline(0.0, color=INK, linewidth=0.8)
        for number, column in enumerate(own):
            label = names[column] if len(own) <= len(COLORS) else None
            color = COLORS[number % len(COLORS)]
            axes.plot(times[::every], error[::every, column], color=color, linewidth=0.9, label=label)
        axes.set_title(f"predicted - recorded [{kind or '-'}]", fontsize=10, loc="left", color=INK)
        axes.set_xlabel("time [s]", fontsize=9)
        plain_axes(axes)
        if len(own) <= len(COLORS):
            axes.legend(fontsize=7.5, frameon=False, ncols=2)
    figure.tight_layout()
    return figure


def horizons(panels: Mapping[str, tuple[Sequence[str], Sequence[Line]]]) -> Any:
    """Plot errors at horizons on a logarithmic axis, one panel per unit.

    Args:
        panels: Unit -> names of the horizons, and lines with an error for each.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(min(3.7 * columns + 0.6, 10.5), 2.9 * rows + 0.3)
    for place, (kind, (ticks, lines)) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        for line in lines:
            errors = [max(error, FLOOR) if np.isfinite(error) else np.nan for error in line.errors]
            axes.semilogy(range(len(ticks)), errors, "o-", color=line.color, linewidth=1.8, markersize=5, label=line.label)
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlim(-0.25, len(ticks) - 0.75)
        axes.set_title(f"RMS error [{kind or '-'}]", fontsize=10, loc="left", color=INK)
        axes.set_xlabel("horizon", fontsize=9)
        plain_axes(axes)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.tight_layout()
    figure.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.01, 0.99), ncols=3, frameon=False, fontsize=9)
    return figure
