"""Kernels of a control step on a device beside physics and task: `Episodes.step` and `Episodes.reset`, line by line.

Thread b works on row b, and rows never interact. Arrays that only some environments need (latencies, last actions) have no
entries in the others.

Legend: B batch, nx state, nc context, nu control, na action, no observation, E the task's entries of it, M last actions,
Q waiting actions, D pending observations, S starts per row, N physics steps per control step.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .episodes import FAILURE_PENALTY

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_penalty = wp.constant(wp.float64(-FAILURE_PENALTY))


@wp.struct
class Timing:
    """`interfacing.Timing` of one environment: N, and the physics steps between observations."""

    substeps: int
    sample: int


@wp.struct
class Drive:
    """How an action becomes a control; see `TaskKernels`."""

    columns: wp.array(dtype=int)
    scale: wp.array(dtype=wp.float64)
    lowest: wp.float64


@wp.struct
class Starts:
    """Beginnings of episodes; start k of row b stands at [k % S * B + b]. The environment's own arrays are one such (S = 1)."""

    state: wp.array2d(dtype=wp.float64)
    context: wp.array2d(dtype=wp.float64)
    parameter_values: wp.array2d(dtype=wp.float64)
    late: wp.array2d(dtype=int)
    clean: wp.array2d(dtype=wp.float64)
    """(., E), as measured, before clipping"""
    observed: wp.array2d(dtype=wp.float64)
    """(., no)"""


@wp.struct
class Outcome:
    """What a control step returns, (B,) or (B, .)."""

    observation: wp.array2d(dtype=wp.float32)
    reward: wp.array(dtype=wp.float64)
    terms: wp.array2d(dtype=wp.float64)
    """The task's, then "failure"."""
    terminated: wp.array(dtype=bool)
    truncated: wp.array(dtype=bool)
    success: wp.array(dtype=bool)
    failed: wp.array(dtype=bool)
    final: wp.array2d(dtype=wp.float32)
    """Last observation of an episode that has ended in this step."""
    ended: wp.array(dtype=bool)
    """Rows that begin anew: in this step ("same_step"), or in the next one."""


@wp.func
def held(line: wp.array3d(dtype=wp.float64), b: int, place: int, k: int, newest: wp.float64):
    """Entry k of an action that waits; behind the last one stands the newest."""
    if place < line.shape[1]:
        return line[b, place, k]
    return newest


@wp.func
def push(line: wp.array3d(dtype=wp.float64), b: int, k: int, newest: wp.float64):
    """Drop entry k of the oldest action, and append the newest."""
    for place in range(line.shape[1]):
        line[b, place, k] = held(line, b, place + 1, k, newest)


@wp.func
def drive(action: wp.array2d(dtype=wp.float64), b: int, by: Drive, control: wp.array3d(dtype=wp.float64)):
    """Control of an action."""
    for u in range(by.columns.shape[0]):
        control[b, 0, u] = wp.max(by.lowest, by.scale[u] * action[b, by.columns[u]])


@wp.func
def random_of(seed: wp.array(dtype=int), stream: int, b: int, clock: wp.array(dtype=int)):
    """Generator of a row in a control step; kernels that draw have streams of their own."""
    return wp.rand_init(seed[0] + stream, clock[b] * clock.shape[0] + b)


@wp.kernel(enable_backward=False)
def kick(
    seed: wp.array(dtype=int),
    clock: wp.array(dtype=int),
    columns: wp.array(dtype=int),
    size: wp.array(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
):
    """Disturb the velocities in some columns, with a standard deviation for each."""
    b = wp.tid()
    generator = random_of(seed, 0, b, clock)
    for k in range(columns.shape[0]):
        state[b, columns[k]] = state[b, columns[k]] + size[k] * wp.float64(wp.randn(generator))


@wp.kernel(enable_backward=False)
def blur(
    seed: wp.array(dtype=int),
    stream: int,
    clock: wp.array(dtype=int),
    size: wp.array(dtype=wp.float64),
    looked: wp.array2d(dtype=wp.float64),
):
    """Add noise to the observed entries, with a standard deviation for each."""
    b = wp.tid()
    generator = random_of(seed, stream, b, clock)
    for e in range(looked.shape[1]):
        looked[b, e] = looked[b, e] + size[e] * wp.float64(wp.randn(generator))


@wp.kernel(enable_backward=False)
def act(
    given: wp.array2d(dtype=wp.float32),
    timing: Timing,
    by: Drive,
    late: wp.array2d(dtype=int),
    memory: wp.array3d(dtype=wp.float64),
    queue: wp.array3d(dtype=wp.float64),
    older: wp.array2d(dtype=wp.float64),
    newer: wp.array2d(dtype=wp.float64),
    older_control: wp.array3d(dtype=wp.float64),
    newer_control: wp.array3d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
):
    """Clip the given action, let it wait, and find the one or two that take effect; the row's physics begins from `state`.

    An action that is NaN makes the row fail.
    """
    b = wp.tid()
    status[b] = _zero
    place = queue.shape[1] - late[b, 0] // timing.substeps
    for k in range(newer.shape[1]):
        action = wp.float64(given[b, k])
        if wp.isnan(action):
            status[b] = _one
            action = _zero
        action = wp.min(wp.max(action, -_one), _one)
        push(memory, b, k, action)
        newer[b, k] = held(queue, b, place, k, action)
        older[b, k] = held(queue, b, wp.max(place - 1, 0), k, action)
        push(queue, b, k, action)
    drive(newer, b, by, newer_control)
    drive(older, b, by, older_control)
    for x in range(state.shape[1]):
        states[b, 0, x] = state[b, x]


@wp.kernel(enable_backward=False)
def choose(
    mark: int,
    timing: Timing,
    late: wp.array2d(dtype=int),
    older: wp.array3d(dtype=wp.float64),
    newer: wp.array3d(dtype=wp.float64),
    control: wp.array3d(dtype=wp.float64),
):
    """The control of the physics steps before `mark`: the older one until the newer takes over."""
    b = wp.tid()
    for u in range(control.shape[2]):
        if mark <= late[b, 0] % timing.substeps:
            control[b, 0, u] = older[b, 0, u]
        else:
            control[b, 0, u] = newer[b, 0, u]


@wp.kernel(enable_backward=False)
def carry(states: wp.array3d(dtype=wp.float64), state: wp.array2d(dtype=wp.float64)):
    """Physics goes on from where it has come to."""
    b = wp.tid()
    for x in range(state.shape[1]):
        state[b, x] = states[b, 1, x]


@wp.kernel(enable_backward=False)
def settle(
    state: wp.array2d(dtype=wp.float64),
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
    failed: wp.array(dtype=bool),
):
    """The state after the control step; a row fails by its status or an entry that is not finite, and keeps its state."""
    b = wp.tid()
    bad = status[b] != _zero
    for x in range(state.shape[1]):
        bad = bad or not wp.isfinite(states[b, 1, x])
    failed[b] = bad
    for x in range(state.shape[1]):
        if bad:
            state[b, x] = states[b, 0, x]
        else:
            state[b, x] = states[b, 1, x]


@wp.kernel(enable_backward=False)
def keep(
    mark: int,
    timing: Timing,
    late: wp.array2d(dtype=int),
    steps: wp.array(dtype=int),
    looked: wp.array2d(dtype=wp.float64),
    pending: wp.array3d(dtype=wp.float64),
):
    """Keep what was observed at `mark` as the pending observations that are made there; see `interfacing.Timing.plan`."""
    b = wp.tid()
    for d in range(pending.shape[1]):
        instant = (steps[b] + 1 + d) * timing.substeps - late[b, 1]
        if instant > 0 and instant // timing.sample * timing.sample - steps[b] * timing.substeps == mark:
            for e in range(looked.shape[1]):
                pending[b, d, e] = looked[b, e]


@wp.kernel(enable_backward=False)
def finish(
    success: int,
    enough: int,
    ends: bool,
    limit: int,
    low: wp.array(dtype=wp.float64),
    high: wp.array(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
    looked: wp.array2d(dtype=wp.float64),
    pending: wp.array3d(dtype=wp.float64),
    memory: wp.array3d(dtype=wp.float64),
    context: wp.array2d(dtype=wp.float64),
    observed: wp.array2d(dtype=wp.float64),
    steps: wp.array(dtype=int),
    clock: wp.array(dtype=int),
    out: Outcome,
):
    """Observation, reward and end of a step; a failed row keeps its context and observation, and gets the penalty only."""
    b = wp.tid()
    bad = out.failed[b]
    entries = looked.shape[1]
    if pending.shape[1] > 0:
        for e in range(entries):
            looked[b, e] = pending[b, 0, e]
            for d in range(pending.shape[1] - 1):
                pending[b, d, e] = pending[b, d + 1, e]
    if not bad:
        for c in range(context.shape[1]):
            context[b, c] = after[b, c]
        for e in range(observed.shape[1]):
            if e < entries:
                observed[b, e] = looked[b, e]
            else:
                known = e - entries
                width = (observed.shape[1] - entries) // memory.shape[1]
                observed[b, e] = memory[b, known // width, known % width]
            if observed[b, e] < low[e]:
                observed[b, e] = low[e]
            elif observed[b, e] > high[e]:
                observed[b, e] = high[e]
    for e in range(observed.shape[1]):
        out.observation[b, e] = wp.float32(observed[b, e])
    last = out.terms.shape[1] - 1
    total = out.terms[b, 0]
    for k in range(1, last):
        total = total + out.terms[b, k]
    out.terms[b, last] = _zero
    wanted = wp.float64(1.0)
    if enough >= 0:
        wanted = context[b, enough]
    won = context[b, success] >= wanted and not bad
    if bad:
        for k in range(last):
            out.terms[b, k] = _zero
        out.terms[b, last] = _penalty
        total = _penalty
    steps[b] = steps[b] + 1
    clock[b] = clock[b] + 1
    out.reward[b] = total
    out.success[b] = won
    out.terminated[b] = bad or (ends and won)
    out.truncated[b] = limit > 0 and steps[b] >= limit


@wp.kernel(enable_backward=False)
def restart(
    at_once: bool,
    rows: int,
    pool: Starts,
    row: Starts,
    queue: wp.array3d(dtype=wp.float64),
    memory: wp.array3d(dtype=wp.float64),
    pending: wp.array3d(dtype=wp.float64),
    steps: wp.array(dtype=int),
    taken: wp.array(dtype=int),
    out: Outcome,
):
    """Rows that have ended begin anew from their next start: those of this step (`at_once`), or of the step before."""
    b = wp.tid()
    over = out.terminated[b] or out.truncated[b]
    begins = out.ended[b]
    out.ended[b] = over and not begins
    if at_once:
        begins = over
        out.ended[b] = over
        if over:
            for e in range(out.final.shape[1]):
                out.final[b, e] = out.observation[b, e]
    elif begins:
        out.reward[b] = _zero
        out.terminated[b] = False
        out.truncated[b] = False
        out.success[b] = False
        out.failed[b] = False
        for k in range(out.terms.shape[1]):
            out.terms[b, k] = _zero
    if begins:
        p = taken[b] % (pool.state.shape[0] // rows) * rows + b
        taken[b] = taken[b] + 1
        steps[b] = 0
        for x in range(row.state.shape[1]):
            row.state[b, x] = pool.state[p, x]
        for c in range(row.context.shape[1]):
            row.context[b, c] = pool.context[p, c]
        for k in range(row.parameter_values.shape[1]):
            row.parameter_values[b, k] = pool.parameter_values[p, k]
        for k in range(2):
            row.late[b, k] = pool.late[p, k]
        for k in range(queue.shape[2]):
            for place in range(queue.shape[1]):
                queue[b, place, k] = _zero
            for place in range(memory.shape[1]):
                memory[b, place, k] = _zero
        for e in range(pending.shape[2]):
            for d in range(pending.shape[1]):
                pending[b, d, e] = pool.clean[p, e]
        for e in range(row.observed.shape[1]):
            row.observed[b, e] = pool.observed[p, e]
            out.observation[b, e] = wp.float32(pool.observed[p, e])
