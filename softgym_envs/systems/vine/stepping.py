"""The vine robot that a laboratory wants: a chain that grows at its tip, bends, wrinkles, is steered, and meets obstacles.

One step of h, in minimal coordinates (angles and length, no drift), for n links:

1. `read_links`      places and directions now; velocities of the last step as Cartesian vectors, V_k = J(q_{k-1}) v_k
2. `stage_of`        bending moment M(kappa) of an inflated beam that wrinkles, and the muscles' moment: `tube`
3. `sweep_back`, `sweep_forward`    velocities without contact: the quadratic program of `chain`, spring and damper implicit
4. `contact`         impulses of contact, friction and growth; a second sweep spreads them
5. `move`            semi-implicit Euler

    minimise 1/2 (V - V_k)' M (V - V_k) - h F' V + 1/2 h D (dkappa/dt)^2 + ...,   V = J(q_k) v,   q_{k+1} = q_k + h v
    D = max(bending_damping, 0.6 h K), and what dry friction adds (`links`)

The kinetic energy of the last step is projected onto the motions possible now, and K is the largest slope of the moments: EI
of the tube, wrinkled or not (`bending`), and what the muscles add. Hence, as D >= h K / 2, the sum of kinetic energy (at V)
and elastic energy cannot grow without growth, change of steering or gravity, whatever the step. A tube whose own damping is
larger than 0.6 h K oscillates and dies away as it should, to second order in h. Steps in which a contact moves so far that
its straight-line gap would be wrong by more than a few hundredths of a mm are halved.

Parameters are those of the tube, not of its links: refining the links converges. With n links of mass rho l_i (thin tubes):
k_i = EI / h_i, h_i the distance between the middles of the links that meet there (half a link, and clamp_length, at the base).
A `viscoelastic` body has beside every k_i two springs with dashpots, of k_i relaxation and k_i creep (generalised Maxwell);
their force is that at the start of the step, and K the sum of all. At the tip hangs a point mass: tip_mass and the load.

Robots without obstacles have a kernel of their own, `free_kernel`, which runs four rows at once: code that both share keeps to
the rules of `engines.warp.lanes`, with the tip link's index `tip` as a number, and loops over the links that the longest row
has.

Sources: framework of velocities and impulses [Jitosho2021] (arXiv 2011.01917) II; eversion force [Blumenschein2017]; bending
of an inflated beam [Comer1963]. Legend: B batch, N links, K sections, M obstacles, C contacts.
"""

# mypy: disable-error-code="valid-type"
# ruff: noqa: UP018, RUF046
from __future__ import annotations

import warp as wp

from .chain import EndMotion, Gain, Value, backward, feedback, forward, mark_diverged, record
from .contact import apply_impulses, build_matrix, set_rows, solve_contacts
from .gaps import find_contacts
from .geometry import place_obstacles
from .links import is_there, links_up_to, read_links, stage_of, tip_link
from .memory import Size, VineWork, VineWorld
from .parameters import VineParameters
from .tube import TubeData, growth_force, growth_inertia, read_body

VINE_SPEED_LIMIT = 1e4
"""[m/s, rad/s] A robot faster than this has diverged."""
OVERLAP = 5e-5
"""[m] A step that ends in a deeper overlap is repeated at half the size, down to 1/64."""
BENDING = {"linear": 0, "wrinkling": 1}

LAG = wp.constant(VineParameters.index("steering_lag"))

_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_least_reach = wp.constant(wp.float64(1e-3))
_safe_move = wp.constant(wp.float64(5e-4))
_overlap = wp.constant(wp.float64(-OVERLAP))
_limit = wp.constant(wp.float64(VINE_SPEED_LIMIT))
_least_share = wp.constant(wp.float64(1.0 / 64.0))


@wp.func
def sweep_back(
    row: int, tip: wp.float64, h: wp.float64, size: Size, body: TubeData, state: wp.array2d(dtype=wp.float64), work: VineWork
):
    """Feedback of every link, from the tip to the base."""
    num = links_up_to(tip)
    value = Value()
    for back in range(num):
        i = num - 1 - back
        stage = stage_of(row, i, tip, h, size, body, state, work.links)
        gain = feedback(value, stage)
        work.gains[row, i] = gain
        before = backward(value, stage, gain)
        if is_there(i, tip):
            value = before


@wp.func
def sweep_forward(row: int, tip: wp.float64, gains: wp.array2d(dtype=Gain), motions: wp.array2d(dtype=EndMotion)):
    """Velocities from the base to the tip. -> largest speed of a link's end [m/s]."""
    x = EndMotion()
    motions[row, 0] = x
    fastest = wp.float64(0.0)
    for i in range(links_up_to(tip)):
        x = forward(x, gains[row, i])
        motions[row, i + 1] = x
        if is_there(i, tip):
            fastest = wp.max(fastest, wp.dot(x.e, x.e))
    return wp.sqrt(fastest)


@wp.func
def get_used(
    row: int,
    tip: wp.float64,
    h: wp.float64,
    size: Size,
    body: TubeData,
    motions: wp.array2d(dtype=EndMotion),
    state: wp.array2d(dtype=wp.float64),
):
    """Dashpots z, 0 beyond the tip; b - z = (b - z) e^{-h / t} + t / h (1 - e^{-h / t}) db for a bend b that grows evenly."""
    before = size.heading + body.turn
    for i in range(size.links):
        for k in range(2):
            x = size.memory + 2 * i + k
            used = _zero
            if wp.float64(i) <= tip:
                rate = motions[row, i + 1].w - motions[row, i].w
                decay = wp.exp(-h / body.time[k])
                bend = state[row, i] - before
                used = bend + h * rate - (bend - state[row, x]) * decay - body.time[k] * (_one - decay) * rate
            state[row, x] = used
        before = state[row, i]


@wp.func
def move(
    row: int,
    tip: wp.float64,
    h: wp.float64,
    growth: wp.float64,
    size: Size,
    body: TubeData,
    motions: wp.array2d(dtype=EndMotion),
    state: wp.array2d(dtype=wp.float64),
):
    """theta += h w, L += h g, memories follow; links beyond the tip copy the tip link."""
    if size.memory >= 0:
        get_used(row, tip, h, size, body, motions, state)
    theta = wp.float64(0.0)
    omega = wp.float64(0.0)
    for i in range(size.links):
        if wp.float64(i) <= tip:
            omega = motions[row, i + 1].w
            theta = state[row, i] + h * omega
        state[row, size.links + i] = omega
        state[row, i] = theta
    state[row, 2 * size.links] = wp.min(state[row, 2 * size.links] + h * growth, size.full)
    state[row, 2 * size.links + 1] = growth


@wp.func
def copy_motion(source: int, target: int, size: Size, state: wp.array2d(dtype=wp.float64)):
    """Angles, rates, length and growth of one row of `state` into another."""
    for x in range(2 * size.links + 2):
        state[target, x] = state[source, x]
    if size.memory >= 0:
        for x in range(size.memory, size.memory + 2 * size.links):
            state[target, x] = state[source, x]


@wp.func
def fill_muscles(
    b: int, t: int, lag: wp.float64, size: Size, controls: wp.array3d(dtype=wp.float64), state: wp.array2d(dtype=wp.float64)
):
    """p' = p + (1 - exp(-dt / lag)) (asked - p)."""
    share = _one - wp.exp(-size.dt / lag)
    for k in range(2 * size.sections):
        x = 2 * size.links + 2 + k
        asked = wp.clamp(controls[b, t, 1 + k], _zero, size.max_steering)
        state[b, x] = state[b, x] + share * (asked - state[b, x])


@wp.func
def touch_obstacles(
    row: int,
    tip: wp.float64,
    count: int,
    h: wp.float64,
    growth: wp.float64,
    goal: wp.float64,
    push: wp.float64,
    mobility: wp.float64,
    mu: wp.float64,
    work: VineWork,
):
    """Impulses of contact, friction and growth, and velocities after them. -> growth, largest speed, 1 or 0 if not solved."""
    build_matrix(row, count, mobility, work)
    set_rows(row, count, _one / h, growth, goal, push, work)
    good = solve_contacts(row, count, mu, work.qp)
    grown = growth + mobility * apply_impulses(row, count, work)
    return grown, sweep_forward(row, tip, work.gains, work.motions), good


@wp.func
def free_growth(growth: wp.float64, goal: wp.float64, push: wp.float64, mobility: wp.float64):
    """Growth speed that the drive reaches where nothing is touched [m/s]."""
    return wp.min(goal, wp.max(_zero, growth) + mobility * push)


@wp.func
def free_velocities(
    row: int,
    tip: wp.float64,
    h: wp.float64,
    lag: wp.float64,
    size: Size,
    body: TubeData,
    state: wp.array2d(dtype=wp.float64),
    work: VineWork,
):
    """Steps 1 to 3 of the module docstring. -> sum of |bends| [rad], largest speed [m/s]."""
    bends = read_links(row, tip, lag, size, body, state, work.links)
    sweep_back(row, tip, h, size, body, state, work)
    return bends, sweep_forward(row, tip, work.gains, work.motions)


@wp.func
def solve_velocities(
    row: int,
    h: wp.float64,
    lag: wp.float64,
    asked: wp.float64,
    read: int,
    bends: wp.float64,
    body: TubeData,
    world: VineWorld,
    state: wp.array2d(dtype=wp.float64),
    work: VineWork,
):
    """Steps 1 to 4 of the module docstring. -> growth speed, largest speed [m/s], number of contacts (-1 if not solved).

    read: 1 where `overlaps` has read the links as they are now, with the sum `bends`.
    """
    size = world.size
    length = state[row, 2 * size.links]
    tip = tip_link(length, size)
    bent = bends + _zero
    if read == 0:
        bent = read_links(row, tip, lag, size, body, state, work.links)
    sweep_back(row, tip, h, size, body, state, work)
    fastest = sweep_forward(row, tip, work.gains, work.motions)
    growth = state[row, 2 * size.links + 1]
    goal = wp.min(asked, (size.full - length) / h)
    force = growth_force(bent, length, body)
    push = h * force
    mobility = _one / growth_inertia(growth, force, length, h, body)
    growth = growth * (_two * body.rho * length * mobility)
    count = find_contacts(row, links_up_to(tip), _least_reach + _two * h * (fastest + goal), world, work)
    if count > 0:
        growth, fastest, good = touch_obstacles(row, tip, count, h, growth, goal, push, mobility, body.mu, work)
        if good == 0:
            count = -1
    else:
        growth = free_growth(growth, goal, push, mobility)
    return growth, fastest, count


@wp.func
def overlaps(row: int, lag: wp.float64, body: TubeData, world: VineWorld, state: wp.array2d(dtype=wp.float64), work: VineWork):
    """Whether the robot now overlaps an obstacle by more than `OVERLAP`; and the sum of |bends| [rad]."""
    tip = tip_link(state[row, 2 * world.size.links], world.size)
    bends = read_links(row, tip, lag, world.size, body, state, work.links)
    return find_contacts(row, links_up_to(tip), _overlap, world, work) > 0, bends


@wp.func
def step_row(
    row: int,
    spare: int,
    asked: wp.float64,
    known: int,
    total: wp.float64,
    body: TubeData,
    world: VineWorld,
    state: wp.array2d(dtype=wp.float64),
    work: VineWork,
):
    """One step of dt, in halves of halves where a contact moves far. -> 1, or 0 if a program was not solved; read, bends.

    `known` and `total` are read and bends from the step before, see `solve_velocities`.
    """
    size = world.size
    good = int(1)
    read = known + 0
    bends = total + _zero
    rest = wp.float64(1.0)
    share = wp.float64(1.0)
    lag = size.dt + _zero
    while rest > _zero:
        h = share * size.dt
        tip = tip_link(state[row, 2 * size.links], size)
        growth, fastest, count = solve_velocities(row, h, lag, asked, read, bends, body, world, state, work)
        read = 0
        if count < 0:
            good = 0
        may_overlap = h * (fastest + growth) > _safe_move and share > _least_share and count != 0
        if may_overlap:
            copy_motion(row, spare, size, state)
        move(row, tip, h, growth, size, body, work.motions, state)
        redo = bool(False)
        if may_overlap:
            redo, bends = overlaps(row, lag, body, world, state, work)
        if redo:
            copy_motion(spare, row, size, state)
            share = _half * share
        else:
            rest = rest - share
            if may_overlap and lag == h:
                read = 1
            lag = h + _zero
    if lag < size.dt:  # the next step begins with dt
        read = 0
    return good, read, bends


@wp.func
def step_free(row: int, asked: wp.float64, body: TubeData, size: Size, state: wp.array2d(dtype=wp.float64), work: VineWork):
    """One step of dt of a row that has nothing to touch."""
    h = size.dt + _zero
    length = state[row, 2 * size.links]
    tip = tip_link(length, size)
    bends, _fastest = free_velocities(row, tip, h, h, size, body, state, work)
    goal = wp.min(asked, (size.full - length) / h)
    force = growth_force(bends, length, body)
    growth = state[row, 2 * size.links + 1]
    mobility = _one / growth_inertia(growth, force, length, h, body)
    growth = free_growth(growth * (_two * body.rho * length * mobility), goal, h * force, mobility)
    move(row, tip, h, growth, size, body, work.motions, state)


@wp.func
def place_world(row: int, world: VineWorld, state: wp.array2d(dtype=wp.float64), work: VineWork):
    """Put the obstacles of row `row` where its state says."""
    first = 2 * world.size.links + 2 + 2 * world.size.sections
    place_obstacles(row, first, state, world.shapes, world.corners, work.places, work.corners)


# --- kernels ---------------------------------------------------------------------------------------------------------


def rollout_kernel(
    world: VineWorld,
    parameter_values: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    horizon: int,
    substeps: int,
    slots: int,
    state: wp.array2d(dtype=wp.float64),
    work: VineWork,
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
):
    """All substeps of row b; see `engines.warp.engine` for the arguments. Forward only.

    The first of the two slots of `state` holds the state, the second the one to which a step may have to go back.
    """
    b = wp.tid()
    spare = parameter_values.shape[0] + b
    size = world.size
    body = read_body(parameter_values, b, size.radius)
    place_world(b, world, state, work)
    mark_diverged(b, size.links, 2 * size.links + 2, _limit, state, status)
    own_mass = body.tip_mass + _zero
    read = int(0)
    bends = wp.float64(0.0)
    for t in range(horizon):
        if size.max_load > _zero:
            body.tip_mass = own_mass + wp.clamp(controls[b, t, 1 + 2 * size.sections], _zero, size.max_load)
        for _s in range(substeps):
            if status[b] == _zero:
                fill_muscles(b, t, parameter_values[b, LAG], size, controls, state)
                asked = wp.clamp(controls[b, t, 0], _zero, size.max_growth)
                good, read, bends = step_row(b, spare, asked, read, bends, body, world, state, work)
                if good == 0:
                    status[b] = _one
        record(b, t, size.links, 2 * size.links + 2, _limit, state, states, status)


def free_kernel(
    world: VineWorld,
    parameter_values: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    horizon: int,
    substeps: int,
    slots: int,
    state: wp.array2d(dtype=wp.float64),
    work: VineWork,
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
):
    """`rollout_kernel` for robots without obstacles; keeps to the rules of `engines.warp.lanes`."""
    b = wp.tid()
    size = world.size
    body = read_body(parameter_values, b, size.radius)
    mark_diverged(b, size.links, 2 * size.links + 2, _limit, state, status)
    own_mass = body.tip_mass + _zero
    for t in range(horizon):
        if size.max_load > _zero:
            body.tip_mass = own_mass + wp.clamp(controls[b, t, 1 + 2 * size.sections], _zero, size.max_load)
        if status[b] == _zero:
            for _s in range(substeps):
                fill_muscles(b, t, parameter_values[b, LAG], size, controls, state)
                step_free(b, wp.clamp(controls[b, t, 0], _zero, size.max_growth), body, size, state, work)
        record(b, t, size.links, 2 * size.links + 2, _limit, state, states, status)
