"""Tables of estimates row by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from softgym_envs.core.files import write_atomically

from ..fitting.online import HorizonResult


def save_rows(found: HorizonResult, state_names: tuple[str, ...], path: Path) -> None:
    """Write times, parameters, their standard deviations, states, seconds and excess per row as CSV [SI]."""
    deviations = tuple(f"{name}.std" for name in found.names)
    header = ("time [s]", *found.names, *deviations, *state_names, "processor [s]", "excess")
    columns = [found.times[:, None], found.mean, found.std, found.states, found.seconds[:, None], found.excess[:, None]]
    rows = [",".join(f"{value:.9g}" for value in row) for row in np.hstack(columns)]
    write_atomically(path, "\n".join([",".join(header), *rows, ""]).encode())


def rows_in_words(found: HorizonResult) -> str:
    """One line per constant, the time per row, the number of windows that the model does not explain, and a caveat."""
    lines = [
        f"{name} = {value:.4g}, standard deviation {std:.2g}" if told else f"{name}: not identifiable so far"
        for name, value, std, told in zip(found.names, found.mean[-1], found.std[-1], found.determined, strict=True)
    ]
    rows, first = found.seconds[1:], found.seconds[0]
    if len(rows):
        lines += [
            f"{1e3 * np.median(rows):.1f} ms of a processor per row ({1e3 * rows.max():.1f} at most), {first:.2g} s before"
        ]
    missed = int((found.excess > 1.0).sum())
    if missed:
        lines += [
            f"DO NOT USE these numbers: in {missed} of {len(found.times)} rows the noise does not explain the residuals (up to "
            f"{np.sqrt(found.excess.max()):.3g} times what it does): model error"
        ]
    if not missed:
        lines += [
            "each row asks its window alone: whether the model explains the whole, the same command says without --online"
        ]
    return "\n".join(lines)
