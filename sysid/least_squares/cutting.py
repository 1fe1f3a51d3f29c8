"""Cut recordings into segments: start, controls and measurements of each.

Legend: T rows, L steps, nx state, nu controls, ny measured columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from softgym_envs.core.base import layout_of
from softgym_envs.core.errors import OptionError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..problem.problem import FitProblem
from .segments import Segments


def cut(
    problem: FitProblem,
    trajectories: TrajectorySet,
    steps: int | None,
    *,
    free: bool,
    exact: bool,
    epsilon: float = 1e-5,
    one_sided: bool = False,
    states: Sequence[Array] | None = None,
) -> Segments:
    """Cut recordings into segments of `steps` (None: whole recordings).

    Segments start from `states` of every recording, (T+1, nx); None: from measured ones, or where states are measured in part,
    from the simulation of the whole recording at the start parameters.

    Raises:
        OptionError: `steps` is not positive, or short segments of partly measured states have no free starts.
    """
    if steps is not None and steps < 1:
        raise OptionError(f"segment_steps is {steps}, expected >= 1")
    longest = max(t.num_steps for t in trajectories)
    horizon = min(steps or longest, longest)
    if not problem.full_state and not free and problem.initial_state is None and horizon < longest:
        raise OptionError(
            "the recordings hold only part of the state: short segments need `free_initial=True`, or fit single_shooting"
        )
    known = states or [_start_states(problem, trajectory, horizon) for trajectory in trajectories]
    parts = enumerate(zip(trajectories, known, strict=True))
    measured = problem.full_state and not free  # starts and the values compared with predictions are both at rows
    pieces = [
        piece
        for index, (recording, begun) in parts
        for piece in _pieces(problem, recording.on_grid if measured else recording, begun, horizon, index)
    ]
    starts, controls, values, late, recording, begins = (list(column) for column in zip(*pieces, strict=True))
    none = np.zeros(0, dtype=np.intp)
    actuated, propagated = (problem.actuated_entries, problem.propagated_entries) if free and any(begins) else (none, none)
    if all(_not_actuated(problem, recording, begun[:, actuated]) for recording, begun in zip(trajectories, known, strict=True)):
        actuated = none
    return Segments(
        problem, np.stack(starts), np.stack(controls), np.stack(values), np.stack(late), np.array(recording, dtype=np.intp),
        np.array(begins, dtype=np.intp), tuple(problem.commands(t) for t in trajectories),
        np.stack([problem.initial_guess(t) for t in trajectories]), actuated, propagated, free,
        trajectories[0].substeps, problem.parts, exact and not len(propagated), epsilon, one_sided,
    )  # fmt: skip


def _not_actuated(problem: FitProblem, trajectory: Trajectory, entries: Array) -> bool:
    """Whether there is no command, and the entries that commands drive (T+1, d) are constant."""
    return not problem.controls(trajectory).any() and bool((entries == entries[0]).all())


def _start_states(problem: FitProblem, trajectory: Trajectory, horizon: int) -> Array:
    """States (T+1, nx) to start segments from: measured, or simulated with the entries that rows at a segment's start show."""
    if problem.full_state or (problem.whole and problem.initial_state is None):
        return problem.states_at_rows(trajectory)
    start = problem.initial_guess(trajectory)[None]
    if horizon >= trajectory.num_steps:
        return start
    controls = problem.controls(trajectory)[None]
    states, _ = problem.simulator.rollout(start, controls, problem.initial_parameters, substeps=trajectory.substeps)
    simulated, rest = states[0].copy(), problem.simulator.initial_state(1)[0]
    for begin in range(horizon, trajectory.num_steps, horizon) if problem.initial_state is not None else ():
        told = problem.initial_guess(trajectory.on_grid.window(trajectory.times[begin], trajectory.times[-1]))
        # A guess does not know what it leaves at rest (a motor's filter); a number of a quaternion is at rest by chance.
        known = told != rest
        if (layout := layout_of(problem.simulator)) is not None:
            known = layout.whole(known)
        simulated[begin] = np.where(known, told, simulated[begin])
    return np.asarray(simulated)


def _pieces(
    problem: FitProblem, trajectory: Trajectory, states: Array, horizon: int, index: int
) -> Iterator[tuple[Array, Array, Array, Array, int, int]]:
    """Start (nx,), controls (L parts, nu), values (L+1, ny), `late` (L+1,), recording and first row of each segment.

    The last one is padded. Where two segments meet, a row's values are compared in the one in which they were seen.
    """
    controls, values, parts = problem.commands(trajectory).own, problem.values(trajectory), problem.parts
    for begin in range(0, trajectory.num_steps, horizon):
        count = min(horizon, trajectory.num_steps - begin)
        # A recording's last segment runs on under its last control; its predictions beyond the end are not compared.
        held = np.repeat(controls[-1:], (horizon - count) * parts, axis=0)
        empty = np.full((horizon - count, values.shape[1]), np.nan)
        piece = np.concatenate([values[begin : begin + count + 1], empty])
        late = np.concatenate([trajectory.late[begin : begin + count + 1], np.zeros(horizon - count)])
        for row, outside in ((0, late[0] < 0.0), (count, late[count] > 0.0)):
            if outside:
                piece[row], late[row] = np.nan, 0.0
        acting = np.concatenate([controls[begin * parts : (begin + count) * parts], held])
        yield states[begin], acting, piece, late, index, begin
