"""Recording and identification of a tensegrity robot ([Wang2020] V-A, V-B): in the air, then thrown; measurement by cameras.

Columns that are no state entries: "com.x" of the centre of mass, "node3.x" or "point3.x" of node 3 [m].
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import lie
from ...core.errors import DataError, OptionError
from ...core.parameters import Parameters
from ...core.procedure import (
    Causes,
    Experiment,
    InitialState,
    Measurement,
    Outline,
    Procedure,
    Recorded,
    Stage,
    StageData,
    StageSimulator,
)
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from .experiments import record_in_air, record_throw
from .model import TensegrityModel
from .parameters import CONTACT, factor_names

BODY = ("cable_stiffness", "cable_damping", "motor_speed", "motor_gain")
"""Parameters that a recording in the air determines (with the rods' mass known)."""
HOMOGENEOUS = {"stiffness_factor*": (1.0, 0.1), "rest_factor*": (1.0, 0.02), "gain_factor*": (1.0, 0.1)}
"""Prior mean and standard deviation of factors among cables of one kind."""
GUESS = {"cable_stiffness": 3000.0, "cable_damping": 400.0, "motor_speed": 3.0, "motor_gain": 0.03}
"""Parameters before identification: a factor of about three off, as from a data sheet."""
HOLD = 0.1
"""[s] Duration of a command that cameras can follow."""
TAME = 1e-3
"""[m] Motor gain that crushes no robot, so that predictions follow the first commands."""
GENTLE = {"contact_bias": 1e-3, "restitution": -0.9, "sliding_damping": 0.9}
"""Contact that gives way over some steps of 1 ms, so that predictions of landings follow the parameters."""
TENSEGRITY_MAX_STEPS = 5000
"""Physics steps of the longest recording."""
ROLLS = 1000
"""Physics steps after which a thrown robot lies still: five throws of 1 s show of contact what one of 5 s does not."""
ROLLED = 1.0
"""[s] Time after which a thrown robot that cameras see lies still."""
STILL, LIVELY, MOVED = 0.01, 5.0, 0.005
"""[m] Median displacement below which nodes are held; how many times as far others move that are driven, and their least motion
over the length of a rod."""
OFTEN = 0.1
"""Share of frames in which rods meet from which on a recording is remarked on."""
MISLABELLED = 1.3
"""Ratio of two rods' measured lengths, over the model's, above which markers are mislabelled."""
ANOTHER = 1.5
"""Ratio of measured lengths of rods to the model's that means another robot, or another unit of length."""
EXCHANGED = 0.1, 0.5
"""Residual from the rest shape over a rod's length, and the share of it that remains with two ends exchanged."""
UNDER = 0.05
"""[m] Depth under the ground below which all nodes are refused."""
RATE_ROWS = 6
"""Rows at the start of a recording from which positions and velocities are guessed."""


def air(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Record with one rod held, and a new random command of the motors every physics step."""
    return record_in_air(ground_truth, rng, duration=steps * ground_truth.dt, hold=ground_truth.dt, parameters=parameters)


def air_slowly(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Record as `air` with commands that last for `HOLD`, after as long without any."""
    rest = round(HOLD / ground_truth.dt)
    return record_in_air(ground_truth, rng, duration=max(steps // rest, 2) * HOLD, hold=HOLD, parameters=parameters, quiet=1)


def markers(simulator: Any) -> tuple[str, ...]:
    """Columns of the ends of all rods."""
    return tuple(f"node{node}.{axis}" for node in range(2 * simulator.model.num_rods) for axis in "xyz")


def throw(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Record the robot rolling over the ground, motors off."""
    return record_throw(ground_truth, rng, duration=steps * ground_truth.dt, parameters=parameters)


def body(simulator: Any) -> tuple[str, ...]:
    """Parameters of the body; with factors of every cable, where they have their own."""
    return (*BODY, *(factor_names(simulator.model.num_cables, simulator.model.nu) if simulator.own_cables else ()))


def unlike_cables(simulator: Any) -> str:
    """Property of a robot built by hand that this simulator lacks; see `Causes.untried`."""
    cables = () if simulator.own_cables else ("cables that are unlike each other (--options own_cables=true)",)
    return ", ".join((*cables, "rods that are (a payload on one)"))


def filmed_body(simulator: Any) -> tuple[str, ...]:
    """Parameters of `body`, and the latency of commands."""
    return (*body(simulator), "latency")


def contact_constants(simulator: Any) -> tuple[str, ...]:
    """Parameters of the simulator's contact mode."""
    return CONTACT[simulator.contact]


def measurement(simulator: Any, names: tuple[str, ...]) -> Measurement | None:
    """Columns of the centre of mass and of nodes; None if there are none.

    Raises:
        OptionError: No such node.
    """
    model, picks = simulator.model, _picks(simulator.model, names)
    if not picks:
        return None
    nodes, axes = (np.array([pick[i] for pick in picks]) for i in (1, 2))

    def measure(states: Array) -> Array:
        points = np.concatenate([model.node_positions(states), model.center_of_mass(states)[..., None, :]], axis=-2)
        return np.asarray(points[..., nodes, axes])

    return Measurement(tuple(pick[0] for pick in picks), measure)


def first_state(simulator: Any, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
    """Recording -> initial state (nx,) from the first rows of its nodes; None if none is tracked.

    Nodes that are not tracked are where the rest shape, laid onto the tracked ones, has them. Motors are at zero.

    Raises:
        DataError: Only one or two are: they do not determine the robot's pose.
    """
    model = simulator.model
    picks = [pick for pick in _picks(model, names) if pick[1] >= 0]
    tracked = {node for _, node, _ in picks}
    if not tracked:
        return None
    if len(tracked) < 3:
        raise DataError(f"nodes {sorted(tracked)} alone do not tell where the robot is: track three or more")

    def initial_guess(trajectory: Trajectory) -> Array:
        position = np.full((len(model.nodes), 3), np.nan)
        velocity = position.copy()
        for name, node, axis in picks:
            column = trajectory.select((name,)).values[: RATE_ROWS + 1, 0]
            position[node, axis], velocity[node, axis] = _line(trajectory.times[: RATE_ROWS + 1], column)
        _check_markers(model, position)
        return _state_of(model, position, velocity)

    return initial_guess


def _check_markers(model: TensegrityModel, position: Array) -> None:
    """Check the first positions of nodes (N, 3), NaN where unseen."""
    rods = np.linalg.norm(position[1::2] - position[::2], axis=1) / np.linalg.norm(model.nodes[1::2] - model.nodes[::2], axis=1)
    if np.isfinite(rods).sum() > 1 and np.nanmax(rods) > MISLABELLED * np.nanmin(rods):
        worst = int(np.nanargmax(np.abs(np.log(rods / np.nanmedian(rods)))))
        raise DataError(
            f"nodes {2 * worst} and {2 * worst + 1} begin {100 * rods[worst]:.0f} % of rod {worst}'s length apart, others "
            f"{100 * np.nanmedian(rods):.0f} %: label markers as the robot's nodes, 2 r and 2 r + 1 the ends of rod r"
        )
    if np.isfinite(rods).any() and not 1 / ANOTHER < np.nanmedian(rods) < ANOTHER:
        raise DataError(
            f"ends of rods begin {np.nanmedian(rods):.3g} times as far apart as the model's rods are long: another unit of "
            "length (mm called m?), or another robot?"
        )
    _check_ends(model, position)
    if np.nanmax(position[:, 2], initial=-np.inf) < -UNDER:
        raise DataError(f"all nodes begin under the ground, z < {-UNDER:g} m: expected z upwards from the ground")


def _check_ends(model: TensegrityModel, position: Array) -> None:
    """Raises DataError: nodes (N, 3) fit the rest shape much better as its mirror image, or with two ends exchanged."""
    tracked = np.asarray(np.isfinite(position).all(axis=1))
    if tracked.sum() < 6:
        return

    def off(order: NDArray[np.intp], rest: Array = model.nodes) -> float:
        seen, moved = tracked[order], position[order]
        return float(np.sqrt(np.mean(np.sum((_laid_onto(rest, moved, seen) - moved)[seen] ** 2, axis=1))))

    plain = np.arange(len(position))
    given, length = off(plain), float(np.linalg.norm(model.nodes[1] - model.nodes[0]))
    if given < EXCHANGED[0] * length:
        return
    left = [off(plain, model.nodes * (1.0, 1.0, -1.0))]
    for rod in range(model.num_rods):
        order = plain.copy()
        order[[2 * rod, 2 * rod + 1]] = 2 * rod + 1, 2 * rod
        left.append(off(order))
    best = int(np.argmin(left))
    if left[best] >= EXCHANGED[1] * given:
        return
    if best == 0:
        raise DataError(
            "the nodes are the mirror image of the robot: one axis points the other way, or two are exchanged; expected a "
            "right-handed frame with z upwards"
        )
    a, b = 2 * (best - 1), 2 * (best - 1) + 1
    raise DataError(f"nodes {a} and {b}, the ends of rod {best - 1}, look exchanged: label them otherwise")


def _picks(model: TensegrityModel, names: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Name, node (-1 for the centre of mass) and axis of every column that is one."""
    picks = []
    for name in names:
        match = re.fullmatch(r"(com|(?:node|point)(\d+))\.([xyz])", name)
        if match:
            node = -1 if match[2] is None else int(match[2])
            if node >= 2 * model.num_rods:
                raise OptionError(f"column {name!r}: nodes are 0 ... {2 * model.num_rods - 1}")
            picks.append((name, node, "xyz".index(match[3])))
    return picks


def _line(times: Array, values: Array) -> tuple[float, float]:
    """Value and slope at the first time, of the line through the values that are finite; NaN without any.

    The slope is the median over all pairs (Theil 1950, Sen 1968), so that outliers do not change it.
    """
    seen = np.isfinite(values)
    if not seen.any():
        return float("nan"), float("nan")
    if seen.sum() == 1:
        return float(values[seen][0]), 0.0
    from scipy.stats import theilslopes

    slope = float(theilslopes(values[seen], times[seen]).slope)
    return float(np.median(values[seen] - slope * (times[seen] - times[0]))), slope


def _state_of(model: TensegrityModel, position: Array, velocity: Array) -> Array:
    """State (nx,) with tracked nodes (N, 3) where they were measured, NaN where not: v = mean, w = d x d' / |d|^2 per rod.

    Markers do not show a rod's spin about its axis: it is that of the robot, which was thrown as a whole.
    """
    tracked = np.asarray(np.isfinite(position).all(axis=1))
    if tracked.sum() < 3:
        return np.asarray(model.state_from_nodes(model.nodes))
    nodes = np.where(tracked[:, None], position, _laid_onto(model.nodes, position, tracked))
    moving = np.where(tracked[:, None], velocity, velocity[tracked].mean(axis=0))
    state = model.state_from_nodes(nodes)
    _, turn, speed, rate, _ = model.split(state)
    whole = _spin(nodes, moving)
    for rod, (a, b, va, vb) in enumerate(zip(nodes[::2], nodes[1::2], moving[::2], moving[1::2], strict=True)):
        along = b - a
        speed[rod] = 0.5 * (va + vb)
        spin = (np.cross(along, vb - va) + along * (along @ whole)) / (along @ along)
        rate[rod] = lie.rotate(lie.conjugate(turn[rod]), spin)
    return np.asarray(state)


def _spin(position: Array, velocity: Array) -> Array:
    """Rate (3,) of the rigid motion nearest to velocities (N, 3) [rad/s]: sum of r x v = (sum of |r|^2 I - r r') w."""
    arms, moving = position - position.mean(axis=0), velocity - velocity.mean(axis=0)
    inertia = (arms**2).sum() * np.eye(3) - arms.T @ arms
    return np.asarray(np.linalg.lstsq(inertia, np.cross(arms, moving).sum(axis=0), rcond=None)[0])


def _laid_onto(rest: Array, position: Array, tracked: NDArray[np.bool_]) -> Array:
    """The rest shape (N, 3), turned and shifted onto the tracked of `position` (N, 3) (Kabsch 1976: SVD of the covariance)."""
    from_mean, to_mean = rest[tracked].mean(axis=0), position[tracked].mean(axis=0)
    u, _, vt = np.linalg.svd((rest[tracked] - from_mean).T @ (position[tracked] - to_mean))
    turn = vt.T @ np.diag([1.0, 1.0, np.sign(np.linalg.det(vt.T @ u.T))]) @ u.T
    return np.asarray((rest - from_mean) @ turn.T + to_mean)


def experiment_of(simulator: Any, recording: Trajectory) -> str:
    """Experiment of a recording: "throws" without commands; else "air" if rod 0 stays in place while others move; else ""."""
    if not recording.controls.size or np.ptp(recording.controls, axis=0).max() == 0.0:
        return "throws"
    picks = [pick for pick in _picks(simulator.model, recording.names) if pick[1] >= 0]
    values = recording.select([name for name, _, _ in picks]).values
    moved = np.nanmedian(np.abs(values - np.nanmedian(values, axis=0)), axis=0)
    held = np.array([node < 2 for _, node, _ in picks])
    if not held.any() or held.all():
        return ""
    others = moved[~held].max()
    driven = others > MOVED * float(simulator.model.rod_lengths.min())
    return "air" if driven and moved[held].max() < min(STILL, others / LIVELY) else ""


def meeting_rods(simulator: Any, recording: Trajectory) -> str:
    """How often rods whose ends are tracked meet: what follows depends on less than a camera sees."""
    model = simulator.model
    places = {(node, axis): name for name, node, axis in _picks(model, recording.names) if node >= 0}
    whole = [r for r in range(model.num_rods) if all((2 * r + end, k) in places for end in (0, 1) for k in range(3))]
    ends = [[recording.select([places[2 * r + end, k] for k in range(3)]).values for end in (0, 1)] for r in whole]
    if len(ends) < 2:
        return ""
    nearest = np.min([_apart(*one, *other) for one, other in combinations(ends, 2)], axis=0)
    share = float(np.mean(nearest < 2.0 * model.rod_radius))
    if share < OFTEN:
        return ""
    return (
        f"rods meet in {100 * share:.0f} % of the frames: what follows hangs on less than a camera sees; drive the robot less"
    )


def outline(simulator: Any, recording: Trajectory) -> Outline | None:
    """Ends of the rods, from poses or markers; None if fewer than three are recorded."""
    model, places = simulator.model, {name: k for k, name in enumerate(recording.names)}
    poses = [name for name in model.layout.names if name in places and re.search(r"\.(x|y|z|qw|qx|qy|qz)$", name)]
    if len(poses) == 7 * model.num_rods:
        states = np.zeros((len(recording.times), model.layout.nx))
        states[:, [model.layout.offsets[name] for name in poses]] = recording.values[:, [places[name] for name in poses]]
        return Outline(model.node_positions(states), model.nodes, rigid=False)
    picks = {(node, axis): places[name] for name, node, axis in _picks(model, recording.names) if node >= 0}
    whole = [node for node in range(len(model.nodes)) if all((node, axis) in picks for axis in range(3))]
    if len(whole) < 3:
        return None
    points = recording.values[:, [[picks[node, axis] for axis in range(3)] for node in whole]]
    return Outline(points, model.nodes[whole], rigid=False)


def _apart(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Distances (T,) of the segments a b and c d, each (T, 3); infinite where an end is unseen."""
    u, v, w = b - a, d - c, a - c
    uu, uv, vv, uw, vw = (np.einsum("ti,ti->t", *pair) for pair in ((u, u), (u, v), (v, v), (u, w), (v, w)))
    s = np.clip((uv * vw - vv * uw) / np.maximum(uu * vv - uv**2, 1e-12), 0.0, 1.0)
    for _ in range(3):  # each the nearest to the other's point: at once where both lie within
        t = np.clip((vw + s * uv) / vv, 0.0, 1.0)
        s = np.clip((t * uv - uw) / uu, 0.0, 1.0)
    found = np.linalg.norm(w + s[:, None] * u - t[:, None] * v, axis=1)
    return np.where(np.isfinite(found), found, np.inf)


def tame(parameters: Any) -> dict[str, float]:
    """A motor that crushes no robot, and cables as much softer than in `GUESS` as rods are lighter than a SUPERball's."""
    share = parameters.rod_mass / parameters.specs()["rod_mass"].default
    return {"motor_gain": TAME, **{name: share * GUESS[name] for name in ("cable_stiffness", "cable_damping")}}


_PRECISE = {"errors": "clustered", "levenberg": {"max_iterations": 100}}
_LONG = {"errors": "clustered", "jacobian": "differences", "levenberg": {"max_iterations": 30, "cost_tolerance": 1e-6}}
_ROLLED = {**_LONG, "intervals": {"model_error": False}}
_FILMED = {"loss": "robust", "jacobian": "differences"}
_BRIEF = {**_FILMED, "reweight": 1, "intervals": {"model_error": False},
          "levenberg": {"max_iterations": 30, "cost_tolerance": 1e-3}}  # fmt: skip
_SEEN = {**_FILMED, "errors": "clustered", "intervals": {"half_step": True}, "segment_steps": 120,
         "levenberg": {"max_iterations": 30, "cost_tolerance": 1e-5}}  # fmt: skip
_HELD = StageSimulator({"fixed_rod": 0})
_THROWN = StageData(free_motion=True)
_LANDED = {
    **_FILMED, "jacobian": "one_sided", "errors": "clustered", "intervals": {"difference_step": 1e-3}, "segment_steps": 25,
    "initial": {"progressive": (5, 10, 15), "second_progressive": (5, 7, 10, 13, 17, 21)},
    "levenberg": {"max_iterations": 30, "cost_tolerance": 3e-4},
}  # fmt: skip

PROCEDURE = Procedure(
    experiments=(
        Experiment("air", air, TENSEGRITY_MAX_STEPS, share=0.5, most=1, from_markers=air_slowly),
        # At rest friction cannot be told from the radius it turns about: both drift together into the errors of the cables.
        Experiment("throws", throw, TENSEGRITY_MAX_STEPS, enough=ROLLS),
    ),
    stages=(
        Stage("body", "air", BODY, "one_step", _PRECISE, simulator=_HELD),
        # Single steps shrink the stiffness by a hundred where cables differ by 2 %; predictions over 0.1 s do not.
        Stage(
            "refine", "air", body, "multiple_shooting",
            {**_PRECISE, "segment_steps": 100}, simulator=_HELD, prior=HOMOGENEOUS,
            causes=Causes(
                {"commands that act late": ("latency",), "cables of another rest length": ("rest_length",)}, unlike_cables
            ),
        ),
        # No friction at all is a local minimum: the search from four starts sees only the beginning of every throw.
        Stage(
            "search", "throws", contact_constants, "one_step", {**_ROLLED, "starts": 4, "reweight": 1},
            data=StageData(free_motion=True, window=1.0),
        ),
        Stage("contact", "throws", contact_constants, "multiple_shooting", {**_ROLLED, "segment_steps": 50}, data=_THROWN),
        # Over 0.05 s a mismatched robot's friction is lost in the errors of its cables; over a quarter of a second it is not.
        Stage("rolling", "throws", contact_constants, "multiple_shooting", {**_LONG, "segment_steps": 250}, data=_THROWN),
    ),
    from_markers=(
        # From the markers' first positions, fixed, with any parameters; then with the first state unknown.
        # Cables damped three times too much are unstable in steps of 1 ms: there is no prediction to improve.
        Stage("beginning", "air", BODY, "single_shooting", _BRIEF, simulator=_HELD, begin=tame,
              data=StageData(free_initial=False, window=1.0)),
        Stage("begun", "air", (*BODY, "latency"), "single_shooting", _BRIEF, simulator=_HELD,
              data=StageData(window=1.0)),
        # In a few seconds of swinging a mismatched robot diverges from any model with cables that are alike: fitted as a whole,
        # a recording of 5 s gave parameters 10 times off. Segments of a second follow it.
        Stage("seen", "air", filmed_body, "multiple_shooting", _SEEN, simulator=_HELD, prior=HOMOGENEOUS,
              data=StageData(noise_known=True), causes=Causes({
                  "a tilted camera": ("tilt",), "lengths on another scale": ("scale",),
                  "cables of another rest length": ("rest_length",)}, unlike_cables)),
        # Poses from six frames are off by a millimetre, which looks like soft contact and hides friction: poses and velocities
        # are unknowns from the start, and segments grow. Over a quarter of a second friction shows beside the errors of a
        # mismatched robot's cables.
        Stage("landed", "throws", contact_constants, "multiple_shooting", _LANDED, begin=GENTLE,
              data=StageData(free_motion=True, window=ROLLED, noise_known=True)),
    ),
    from_recordings=Stage("from_recordings", "", contact_constants, "multiple_shooting", {"segment_steps": 100, "starts": 3}),
    options={"contact": "patch"},
    initial_guess=GUESS,
    recorded=Recorded(measurement, markers, experiment_of=experiment_of, remark=meeting_rods, outline=outline),
    initial=InitialState(
        first_state,
        known=("motor*", "rod*.rz", "rod*.wz"),  # markers do not show a rod's spin about its axis
        actuated=("motor*",),
        propagated=("rod*.wz",),  # friction turns it; where it slides is seen
    ),
)  # fmt: skip
"""Fits the body from the air; contact by a search over single steps of the throws' first second, then over segments."""
