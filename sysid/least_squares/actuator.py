"""State entries that only commands move, at the starts of segments: recordings are simulated from their first rows.

Legend: K candidates, M recordings, T rows, R rows of a batch, p parameters, nx state, nu controls.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array

from ..problem.problem import FitProblem
from ..problem.recording_parameters import Commands, delayed


def commanded(
    problem: FitProblem,
    commands: tuple[Commands, ...],
    recording: NDArray[np.intp],
    rows: NDArray[np.intp],
    theta: Array,
    substeps: int,
) -> Array:
    """Commands that act in rows (R, L) of recordings (R,) at parameters (R, p), with their latency and gain: (R, L, nu).

    Rows are those of `commands`, which may be parts of a recording's rows, of `substeps` physics steps each.
    """
    found = np.empty((*rows.shape, commands[0].own.shape[1]))
    views = problem.views(theta)
    rates, gains = views["latency"] / (problem.simulator.dt * substeps), views["command_gain"]
    for index, given in enumerate(commands):
        own = recording == index
        found[own] = delayed(given, rows[own], rates[own]) / gains[own][:, None, None]
    return found


def followed(
    problem: FitProblem, commands: tuple[Commands, ...], origins: Array, thetas: Array, steps: int, substeps: int, parts: int
) -> tuple[Array, NDArray[np.bool_]]:
    """Simulate recordings for `steps` rows from their origins (M, nx); commands beyond their ends stay at the last.

    Args:
        problem: Its simulator is used.
        commands: Commands of every recording.
        origins: Initial states.
        thetas: Candidates (K, p).
        steps: Rows T.
        substeps: Physics steps of a row.
        parts: Parts of a row, each with its own command.

    Returns:
        States (K, M, T+1, nx) and success (K, M).
    """
    count = len(commands)
    each, recording = np.repeat(thetas, count, axis=0), np.tile(np.arange(count), len(thetas))
    rows = np.tile(np.arange(steps * parts), (len(each), 1))
    parameter_values: Parameters = type(problem.initial_parameters).from_vector(problem.vectors(each))
    controls = commanded(problem, commands, recording, rows, each, substeps // parts)
    states, status = problem.simulator.rollout(origins[recording], controls, parameter_values, substeps=substeps // parts)
    return states[:, ::parts].reshape(len(thetas), count, steps + 1, -1), (status == 0).reshape(len(thetas), count)
