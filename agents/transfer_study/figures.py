"""Figures of a transfer report."""

from __future__ import annotations

from typing import Any

import numpy as np

from softgym_envs.data.page import BLUE, COLORS, GREY, INK, ORANGE, new_figure, plain_axes

from .conditions import CONDITIONS, NOMINAL, NOTHING, ORACLE
from .statistics import performance_profile
from .summary import ConditionSummary, Summary


def _main_conditions(summary: Summary) -> list[ConditionSummary]:
    return [a for a in summary.conditions if a.budget in (0, summary.study.budget)]


def draw_scores(summary: Summary) -> Any:
    """Cost of every condition: interval, mean, every run."""
    conditions = _main_conditions(summary)
    figure = new_figure(9, 0.42 * len(conditions) + 1.0)
    axes = figure.add_subplot()
    for row, condition in enumerate(conditions):
        color = ORANGE if condition.condition in (NOMINAL, NOTHING) else BLUE
        runs = summary.scores[condition.condition].ravel()
        axes.plot(runs, np.full(runs.size, row), ".", color=GREY, markersize=4)
        if condition.cost.low is not None:
            axes.hlines(row, condition.cost.low, condition.cost.high, color=color, linewidth=8, alpha=0.35)
        axes.plot(condition.cost.value, row, "o", color=color)
        if condition.model_cost is not None:
            axes.plot(condition.model_cost, row, "|", color=INK, markersize=12, markeredgewidth=2)
    axes.set_yticks(range(len(conditions)), [a.label for a in conditions])
    axes.invert_yaxis()
    axes.set_xlabel("cost on the ground truth (dots: runs, bar: 95 %, tick: what the condition's own model expected)")
    plain_axes(axes)
    return figure


def draw_profile(summary: Summary) -> Any:
    """Performance profiles: fraction of runs with a share above tau."""
    found = {
        a.label: s
        for a in _main_conditions(summary)
        if a.condition != NOTHING and (s := summary.shares(a.condition)) is not None
    }
    if not found:
        return None
    taus = np.linspace(-0.2, 1.2, 141)
    figure = new_figure(9, 3.6)
    axes = figure.add_subplot()
    for index, (text, shares) in enumerate(found.items()):
        style = ("-", "--", ":")[index // len(COLORS) % 3]
        axes.plot(taus, performance_profile(shares, taus), style, color=COLORS[index % len(COLORS)], label=text)
    axes.set_xlabel("score, τ")
    axes.set_ylabel("runs with more than τ")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    plain_axes(axes)
    return figure


def draw_curve(summary: Summary) -> Any:
    """Cost against the training steps of the ground truth."""
    drawn = [a for a in summary.conditions if a.condition in summary.study.curve and a.budget > 0]
    if len(summary.study.budgets) < 2 or not drawn:  # an interrupted study may have none yet
        return None
    figure = new_figure(9, 3.4)
    axes = figure.add_subplot()
    for index, name in enumerate(summary.study.curve):
        points = sorted((a for a in summary.conditions if a.condition == name), key=lambda a: a.budget)
        x, y = [a.budget for a in points], [a.cost.value for a in points]
        half = [0.0 if a.cost.high is None else a.cost.high - a.cost.value for a in points]
        axes.errorbar(x, y, half, fmt="o-", color=COLORS[index % len(COLORS)], capsize=3, label=CONDITIONS[name].label)
    for name, color in ((NOMINAL, ORANGE), (ORACLE, INK)):
        for condition in summary.conditions:
            if condition.condition == name:
                axes.axhline(condition.cost.value, color=color, linestyle="--", linewidth=1, label=condition.label)
    axes.set_xscale("log")
    axes.set_xlabel("physics steps of the ground truth for training")
    axes.set_ylabel("cost on the ground truth")
    axes.legend(frameon=False, fontsize=8)
    plain_axes(axes)
    return figure


def draw_errors(summary: Summary) -> Any:
    """Prediction error against the horizon."""
    if not any(summary.errors.values()):
        return None
    figure = new_figure(9, 3.2)
    axes = figure.add_subplot()
    for index, (name, pairs) in enumerate(summary.errors.items()):
        if pairs:
            axes.loglog(*np.array(pairs).T, "o-", color=COLORS[index % len(COLORS)], label=name)
    axes.set_xlabel("horizon [s]")
    axes.set_ylabel("error of the position [m]")
    axes.legend(frameon=False, fontsize=8)
    plain_axes(axes)
    return figure


FIGURES = {"scores": draw_scores, "profile": draw_profile, "curve": draw_curve, "errors": draw_errors}
"""Name on the page -> function that draws it, or returns None if there is no data."""
