"""Page of a prediction: result in words, errors at horizons, coverage, recorded and predicted columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from softgym_envs.data.page import BLUE, GREY, ORANGE, embed, render_page

from ..diagnostics.predictions import WHOLE, Coverage, PredictionError, Predictions, ahead
from .figures import Line, PlottedCurve, horizons, residuals, traces
from .page import number

MOST_PATHS = 3  # Largest number of recordings that are plotted.


def render(
    errors: Sequence[PredictionError], coverage: Sequence[Coverage], reasons: Sequence[str], headline: str,
    recordings: Sequence[str], provenance: Mapping[str, str], predictions: Predictions | None,
) -> str:  # fmt: skip
    """Render the page as text; it fetches nothing from elsewhere.

    Raises:
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    return render_page(
        Path(__file__).parent / "templates" / "prediction.html", errors=errors, coverage=coverage, reasons=reasons,
        headline=headline, recordings=recordings, provenance=provenance,
        horizon=embed(horizon_figure(errors)) if errors else "", paths=_paths(predictions), n=number, ahead=ahead,
    )  # fmt: skip


def horizon_figure(errors: Sequence[PredictionError]) -> Any:
    """Plot errors of the fit and of both simple predictors."""
    panels = {}
    for kind in dict.fromkeys(error.kind for error in errors):
        own = [error for error in errors if error.kind == kind]
        ticks = ["whole" if error.horizon == WHOLE else f"{error.horizon:g} s" for error in own]
        panels[kind] = (
            ticks,
            [
                Line("constant velocity", ORANGE, [error.velocity for error in own]),
                Line("standing still", GREY, [error.still for error in own]),
                Line("predicted by the fit", BLUE, [error.predicted for error in own]),
            ],
        )
    return horizons(panels)


def _paths(predictions: Predictions | None) -> list[dict[str, str]]:
    """Label and plots of the first recordings."""
    if predictions is None:
        return []
    names, units = predictions.names, predictions.units
    return [
        {
            "label": path.label,
            "trace": embed(traces(names, units, path.times, path.measured, [PlottedCurve("predicted", BLUE, path.predicted)])),
            "residuals": embed(residuals(names, units, path.times, path.predicted - path.measured, {})),
        }
        for path in predictions.paths[:MOST_PATHS]
    ]
