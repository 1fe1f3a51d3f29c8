"""Lost and repeated rows, units, axes and quaternions under wrong labels are named before any fit; right recordings never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import sysid
from softgym_envs.core.errors import DataError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems import system
from softgym_envs.systems.box.procedure import outline
from sysid.problem.wrong_poses import check_angles, check_poses, without_lost
from sysid.procedure.job import Job

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
