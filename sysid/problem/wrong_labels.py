"""Checks by physics whether whole states, or the controls beside them, stand under exchanged names or with turned signs.

Short rollouts from recorded states are compared with the recording, as it is and with one mistake undone. Where one of these
agrees several times better, both with the start parameters and with the robot's defaults, the recording is refused with that in
words. Recordings that show a state in part are judged after the fit (`sysid.procedure.mislabelled`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array

from .wrong_units import kinds, prediction_errors

if TYPE_CHECKING:
    from .checks import Checked

BAD = 0.3  # Error of predictions, over the recorded change, below which no other label is tried.
GOOD, BETTER = 0.5, 0.4
"""Largest error, and share of the error as it is, that another label may leave to be named; standing still has one of 1."""
WORST = 2.0  # Largest error over change that one column counts: predictions that run away say no more.
MOST_PAIRS = 6
"""Most pairs of controls, or of columns of one unit, that may have been exchanged; with more of them (loops, most tensegrity
robots) only signs of columns are tried. Signs of commands are not: late ones look turned."""


class _Label(NamedTuple):
    """One mistake undone: what it says in words, and order and signs of columns (nx) and of controls (nu)."""

    words: str
    columns: Array
    controls: Array


def check_labels(problem: Checked) -> None:
    """Raise where another label explains the recording much better.

    Raises:
        DataError: Names are exchanged, or signs are turned.
    """
    if not problem.full_state:
        return
    mistake = _likeliest(problem, problem.initial_parameters)
    if mistake and mistake == _likeliest(problem, problem.simulator.default_parameters):
        raise DataError(mistake)


def _likeliest(problem: Checked, parameter_values: Parameters) -> str:
    """The label that agrees much better, in words; "" if there is none."""
    nx, nu = len(problem.column_names), problem.simulator.nu
    horizon = min(10, problem.split.train[0].num_steps // 2)
    base = _error(problem, parameter_values, _Label("", np.eye(nx), np.eye(nu)), horizon)
    if base <= BAD:
        return ""
    errors = {label.words: _error(problem, parameter_values, label, horizon) for label in _labels(problem)}
    best = min(errors, key=errors.__getitem__, default="")
    return (
        f"wrong labels: {best}; so read, the simulator agrees much better"
        if best and errors[best] < min(GOOD, BETTER * base)
        else ""
    )


def _error(problem: Checked, parameter_values: Parameters, label: _Label, horizon: int) -> float:
    """Mean over columns of prediction error over change, each at most `WORST`."""
    ratio = prediction_errors(problem, parameter_values, horizon, label.columns, label.controls)
    return float(np.minimum(np.nan_to_num(ratio, nan=WORST, posinf=WORST), WORST).mean()) if len(ratio) else WORST


def _labels(problem: Checked) -> Iterator[_Label]:
    """All labels that are tried."""
    names, given = problem.column_names, problem.simulator.control_names
    kind = kinds(problem)
    same, other = np.eye(len(names)), np.eye(len(given))
    columns = [(i, j) for i, j in combinations(range(len(names)), 2) if kind[i] == kind[j]]
    unit = problem.simulator.control_units
    controls = [(i, j) for i, j in combinations(range(len(given)), 2) if unit[i] == unit[j]]
    if len(controls) <= MOST_PAIRS:
        for i, j in controls:
            both = f"{given[i]} and {given[j]} look exchanged"
            yield _Label(f"controls {both}: exchange them", same, _exchanged(other, i, j))
            if {given[i], given[j]} <= set(names):
                there = _exchanged(same, names.index(given[i]), names.index(given[j]))
                yield _Label(f"{both}, states and controls: exchange them", there, _exchanged(other, i, j))
    if len(columns) <= MOST_PAIRS:
        for i, j in columns:
            yield _Label(f"columns {names[i]} and {names[j]} look exchanged: exchange them", _exchanged(same, i, j), other)
    for words, turned in {
        "angles and rates": ("rad", "rad/s"), "rates": ("rad/s",), "angles": ("rad",), "velocities": ("m/s",),
    }.items():  # fmt: skip
        if set(turned) <= set(kind):
            yield _Label(f"{words} look turned: change their signs", np.diag(np.where(np.isin(kind, turned), -1.0, 1.0)), other)


def _exchanged(matrix: Array, i: int, j: int) -> Array:
    """The matrix with two rows exchanged."""
    order = np.arange(len(matrix))
    order[[i, j]] = j, i
    return matrix[order]
