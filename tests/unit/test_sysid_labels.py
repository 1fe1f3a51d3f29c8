"""Exchanged names and turned signs of recordings of whole states are named before any fit, and right ones pass. Every code of
a diagnostic is in the table, and every entry of the table can be found. Lost and repeated rows, units, axes and quaternions
under wrong labels are named before any fit; right recordings never."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from sysid_systems import Spring, SpringParameters

import sysid
from softgym_envs.core.errors import DataError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems import system
from softgym_envs.systems.arm.parameters import ElbowParameters
from softgym_envs.systems.box.procedure import outline
from sysid import Diagnostic, FitProblem
from sysid.diagnostics import sentences
from sysid.diagnostics.sentences import CODES, as_flags
from sysid.problem import wrong_labels
from sysid.problem.lost_rows import without_lost
from sysid.problem.wrong_poses import check_angles, check_poses
from sysid.procedure.job import Job

ENGINE = system("arm").simulator()
NOISE = np.array([2e-3, 2e-2, 5e-3, 5e-3])
FREE = ("biceps_force", "damping", "rise_time")


def scaled(parameter_values: ElbowParameters, factors: dict[str, float]) -> ElbowParameters:
    """Parameters times factors, within their bounds."""
    specs = parameter_values.specs()
    return parameter_values.replace(
        **{n: float(np.clip(getattr(parameter_values, n) * f, *specs[n].bounds)) for n, f in factors.items()}
    )


def recorded(seed: int, factor: float = 1.25) -> tuple[Trajectory, ElbowParameters]:
    """An elbow with parameters within `factor` of the usual ones, jumping commands, 4 s at 100 Hz, with noise; and these."""
    rng = np.random.default_rng(seed)
    fine = replace(ENGINE, dt=1e-3)
    usual = fine.default_parameters
    parameter_values = scaled(usual, {name: factor ** rng.uniform(-1.0, 1.0) for name in FREE})
    controls = np.repeat(rng.uniform(0.0, (0.5, 0.25), (16, 2)), 25, axis=0)
    states, status = fine.rollout(fine.initial_state(1), controls[None], parameter_values, substeps=10)
    assert not status.any()
    noisy = states[0] + NOISE * rng.standard_normal(states[0].shape)
    recording = Trajectory.from_rollout(fine, noisy, controls, substeps=10)
    return replace(recording, substeps=round(0.01 / ENGINE.dt)), parameter_values


def problem(recording: Trajectory, start: ElbowParameters = ENGINE.default_parameters) -> FitProblem:
    """A fit of the recording."""
    return FitProblem(ENGINE, TrajectorySet((recording,)).split(1, 0, 0), free=FREE, start=start)


@pytest.mark.parametrize("seed", range(8))
def test_right_labels_pass_under_constants_far_off(seed: int) -> None:
    """Neither a start a factor of 3 off, either way, nor the usual parameters, up to 3 times off, find another label."""
    recording, ground_truth = recorded(seed, factor=3.0)
    given = problem(recording)
    rng = np.random.default_rng(seed)
    start = scaled(ground_truth, {name: 3.0 ** rng.choice([-1, 1]) for name in FREE})
    for parameter_values in (start, given.simulator.default_parameters):
        assert wrong_labels._likeliest(given, parameter_values) == ""


def test_commands_that_act_half_a_period_late_do_not_look_turned() -> None:
    spring = Spring(dt=0.01)
    controls = np.where(np.arange(400) // 20 % 2, 1.0, -1.0)[:, None]  # a square wave of 0.4 s
    states, _ = spring.rollout(spring.initial_state(1), np.roll(controls, 20, axis=0)[None], SpringParameters())
    late = Trajectory.from_rollout(spring, states[0], controls)
    FitProblem(spring, TrajectorySet((late,)).split(1, 0, 0), free=("stiffness",))


def test_mistakes_are_named_in_words() -> None:
    right, _ = recorded(7)
    angle, rate, biceps, triceps = range(4)
    turned = np.array([-1.0, -1.0, 1.0, 1.0])
    mistakes = {
        "controls biceps and triceps look exchanged": replace(right, controls=right.controls[:, ::-1]),
        "columns biceps and triceps look exchanged": replace(right, values=right.values[:, [angle, rate, triceps, biceps]]),
        "biceps and triceps look exchanged, states and controls": replace(
            right, values=right.values[:, [angle, rate, triceps, biceps]], controls=right.controls[:, ::-1]
        ),
        "angles and rates look turned": replace(right, values=right.values * turned),
        "rates look turned": replace(right, values=right.values * np.array([1.0, -1.0, 1.0, 1.0])),
    }
    for words, recording in mistakes.items():
        with pytest.raises(DataError, match=f"wrong labels: {words}"):
            problem(recording)


def test_percentages_are_told_apart_from_other_units() -> None:
    right, _ = recorded(8)
    with pytest.raises(DataError, match=r"written as \[%\] in the header"):
        problem(replace(right, controls=100.0 * right.controls))


PACKAGE = Path(sentences.__file__).parents[1]
MAKERS = ("Diagnostic", "with_diagnostic", "with_reservation")


def test_codes_that_are_found_are_in_the_table_and_vice_versa() -> None:
    sources = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py") if path.name != "sentences.py"}
    named = set()
    for text in sources.values():
        for node in ast.walk(ast.parse(text)):
            maker = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in MAKERS
            if maker and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                named.add(node.args[0].value)
    assert named and named <= set(CODES)
    whole = "\n".join(sources.values())
    assert [code for code in CODES if f'"{code}"' not in whole] == []


def test_arguments_in_hints_and_sentences_are_flags_on_the_command_line() -> None:
    said = Diagnostic("noisy_starts", "warning").sentence()
    assert "`free_initial=True`" in said and as_flags(said).endswith("with --free-initial True")
    assert not any(re.search(r"--\w", code.hint) for code in CODES.values())


def test_a_diagnostic_comes_back_from_its_file() -> None:
    facts = {"sign": ">=", "unit": " m", "adequate": True}
    found = Diagnostic("one_sided", "warning", "length", 0.5, None, facts)
    assert Diagnostic.from_json(json.loads(json.dumps(found.to_json()))) == found


CUBE = system("box").simulator("cube")
POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")
RIGHT = [
    *((name, "") for name in ("arm", "upper_body", "block", "particles", "vine")),
    *((name, "camera") for name in ("arm", "upper_body", "block", "particles", "vine", "tensegrity")),
    *(("box", f"noise={noise}") for noise in (0.0, 1e-3)),
]


def tossed(seed: int) -> Trajectory:
    """A toss of a cube until it lies still, as cameras see it."""
    return sysid.record("box", seed=seed)[0]


def with_values(recording: Trajectory, change: Callable[[Array], Array]) -> Trajectory:
    """The recording with other values."""
    return replace(recording, values=change(recording.values.copy()))


def flown(times: Array) -> Array:
    """Places (T, 3) of a throw over the table."""
    return np.stack([0.3 * times, 0.1 * times, 1.0 + 2.0 * times - 0.5 * 9.81 * times**2], axis=1)


def message(recording: Trajectory) -> str:
    """What is said of a cube's recording; "" if nothing."""
    try:
        seen, notes = without_lost(recording)
        check_poses(outline, CUBE, seen)
    except DataError as error:
        return str(error)
    return "; ".join(notes)


@pytest.mark.parametrize(("name", "sensor"), RIGHT)
def test_right_recordings_pass(name: str, sensor: str) -> None:
    notes: list[str] = []
    Job(name, tuple(sysid.record(name, sensor=sensor, seed=3)), announce=notes.append).prepared()
    assert not [note for note in notes if "missing" in note]


@pytest.mark.parametrize("seed", [1, 6, 10])
def test_wrong_labels_of_a_toss_are_named(seed: int) -> None:
    right = tossed(seed)
    assert message(right) == ""
    turned = Rotation.from_euler("x", -90, degrees=True)  # z up -> y up

    def y_up(values: Array) -> Array:
        return np.hstack([turned.apply(values[:, :3]), values[:, 3:4], turned.apply(values[:, 4:])])

    mistakes: dict[str, Callable[[Array], Array]] = {
        "order x y z w": lambda v: v[:, [0, 1, 2, 4, 5, 6, 3]],
        "turned the world into the body": lambda v: v * np.array([1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0]),
        r"wrong axes: y looks as if it pointed up \(in flight": y_up,
        "given in mm": lambda v: v * np.array([1e3] * 3 + [1.0] * 4),
    }
    for words, mistake in mistakes.items():
        with pytest.raises(DataError, match=words):
            check_poses(outline, CUBE, with_values(right, mistake))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: replace(r, times=1.48 * r.times), r"wrong frame rate or unit: it falls with 4\.[45]\d* m/s\^2 before"),
        (lambda r: replace(r, times=148 / 120 * r.times), r"expected 9\.81: it would fit 14\d frames per second"),
        (lambda r: replace(r, times=1000.0 * r.times), r"are the times in ms\?"),
        (lambda r: with_values(r, lambda v: v / np.array([2.54] * 3 + [1.0] * 4)), r"or lengths 2\.\d+ times as long"),
        (lambda r: with_values(r, lambda v: np.hstack([np.full((len(v), 1), 0.1), v[:, 1:]])), "x stays 0.1 in all rows"),
        (lambda r: with_values(r, lambda v: np.hstack([v[:, :3], np.tile([1.0, 0, 0, 0], (len(v), 1))])), "the attitude stays"),
    ],
    ids=["fps 100 of 148", "fps 120 of 148", "ms", "inches", "dead x", "dead attitude"],
)
def test_a_fall_shows_frame_rate_and_unit_and_a_flight_dead_columns(
    change: Callable[[Trajectory], Trajectory], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        check_poses(outline, CUBE, change(tossed(6)))


def test_a_fall_of_known_or_free_gravity_passes(tmp_path: Path) -> None:
    slow = replace(tossed(6), times=1.48 * tossed(6).times)
    (tmp_path / "guess.toml").write_text("[parameters]\ngravity = 4.4\n")
    Job("box", (slow,), initial_guess=tmp_path / "guess.toml").prepared()
    for freed in ("gravity", "scale"):
        Job("box", (slow,), free=("friction", freed)).prepared()


@pytest.mark.parametrize("noise", [0.0, 1e-3, 5e-3, 2e-2])
def test_right_falls_and_hands_pass(noise: float) -> None:
    """Throws with more noise, cubes that a hand holds or lowers first, and straight drops without noise."""
    rng = np.random.default_rng(0)
    times, upright = 0.005 * np.arange(80), np.tile([1.0, 0.0, 0.0, 0.0], (80, 1))
    ground = CUBE.model.half_size[2]
    dropped = np.maximum(0.3 - 0.5 * 9.81 * np.maximum(times - 0.1, 0.0) ** 2, ground)
    lowered = ground + 0.06 * (1.0 + np.cos(np.pi * np.minimum(times / 0.3, 1.0)))
    hands = [
        Trajectory(times, np.zeros((79, 0)), np.column_stack([0.0 * z, 0.0 * z, z, upright]), POSE, ("m",) * 3 + ("-",) * 4)
        for z in (dropped, lowered)
    ]
    for right in [*hands, *(tossed(seed) for seed in range(8))]:
        spread = noise * np.array([1.0] * 3 + [5.0] * 4)
        said = message(with_values(right, lambda v, spread=spread: v + spread * rng.standard_normal(v.shape)))
        assert "frame rate" not in said and "stays" not in said


@pytest.mark.parametrize("hold", [0.0, 0.1])
@pytest.mark.parametrize("noise", [0.0, 1e-3])
@pytest.mark.parametrize("seconds", [0.2, 0.3, 0.5])
def test_a_body_that_a_hand_lowers_is_not_refused(seconds: float, noise: float, hold: float) -> None:
    rng = np.random.default_rng(1)
    times = 0.005 * np.arange(160)
    share = np.clip((times - hold) / seconds, 0.0, 1.0)
    smooth = (0.5 * (1.0 - np.cos(np.pi * share)), share**3 * (10.0 - 15.0 * share + 6.0 * share**2))
    for height, course in itertools.product((0.03, 0.12, 0.3), smooth):
        values = np.zeros((160, 7))
        values[:, 2], values[:, 3] = CUBE.model.half_size[2] + height * (1.0 - course), 1.0
        values += noise * rng.standard_normal(values.shape)
        hand = Trajectory(times, np.zeros((159, 0)), values, POSE, ("m",) * 3 + ("-",) * 4)
        assert message(hand) == ""


@pytest.mark.filterwarnings("error")
def test_a_file_of_zeros_is_named_without_a_warning() -> None:
    with pytest.raises(DataError, match="qw is NaN in 100 % of the rows"):
        sysid.identify("box", [with_values(tossed(1), np.zeros_like)])


def test_lost_and_repeated_rows_become_missing() -> None:
    right = tossed(1)
    lost, half, repeated = (right.values.copy() for _ in range(3))
    lost[20:24] = 0.0
    half[5:7, 3:] = 0.0
    repeated[11:16] = repeated[10]
    for values, rows, columns, words in (
        (lost, slice(20, 24), slice(0, 7), r"4 rows (21 to 24) of zeros"),
        (half, slice(5, 7), slice(3, 7), r"2 rows (6 to 7) of zeros"),
        (repeated, slice(11, 16), slice(0, 7), r"5 rows (12 to 16) repeat"),
    ):
        found, (note,) = without_lost(replace(right, values=values))
        expected = right.values.copy()
        expected[rows, columns] = np.nan
        assert words in note
        np.testing.assert_array_equal(found.values, expected)


def test_what_shows_nothing_is_not_refused() -> None:
    """A cube that lies still on a face, and one that only flies, fit every order of their quaternions."""
    times = 0.005 * np.arange(80)
    still = np.tile([0.1, 0.2, CUBE.model.half_size[2], 1.0, 0.0, 0.0, 0.0], (80, 1))
    turns = Rotation.from_rotvec(np.outer(times, [3.0, 1.0, 2.0])).as_quat(scalar_first=True)
    place = flown(times)
    for values in (still, np.hstack([place, turns]), np.hstack([place, turns[:, [1, 2, 3, 0]]])):
        assert message(Trajectory(times, np.zeros((79, 0)), values, POSE, ("m",) * 3 + ("-",) * 4)) == ""


def test_a_start_from_rest_and_a_slow_encoder_repeat_rows_rightly() -> None:
    times = 0.01 * np.arange(100)
    start = np.maximum(times - 0.5, 0.0) ** 2
    kicked = np.maximum(times - 0.5, 0.0)
    coarse = np.round(0.21 * times, 2)
    for column in (start, kicked, coarse):
        given = Trajectory(times, np.zeros((99, 0)), column[:, None], ("x",), ("m",))
        assert without_lost(given) == (given, ())


def test_angular_velocities_show_the_order_in_flight() -> None:
    times = 0.005 * np.arange(80)
    spin = np.tile([3.0, 1.0, 2.0], (80, 1))  # body axes: constant for a cube
    turns = Rotation.from_rotvec(times[:, None] * spin).as_quat(scalar_first=True)
    place = flown(times)
    names, units = (*POSE, "wx", "wy", "wz"), ("m",) * 3 + ("-",) * 4 + ("rad/s",) * 3
    right = Trajectory(times, np.zeros((79, 0)), np.hstack([place, turns, spin]), names, units)
    check_poses(outline, CUBE, right)
    with pytest.raises(DataError, match="turned the world into the body"):
        check_poses(outline, CUBE, with_values(right, lambda v: v * np.array([1.0] * 4 + [-1.0] * 3 + [1.0] * 3)))


def test_joints_in_degrees_are_named() -> None:
    times = np.arange(3.0)
    given = Trajectory(times, np.zeros((2, 0)), np.array([[10.0], [60.0], [90.0]]), ("elbow",), ("rad",))
    with pytest.raises(DataError, match=r"elbow reaches 84 rad, its joint 2.6 rad: write \[deg\]"):
        check_angles({"elbow": (0.0, 2.6)}, given)
