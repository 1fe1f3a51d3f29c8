"""CSV recordings as a laboratory writes them, right and wrong."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import raises

from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.core.units import UNITS
from softgym_envs.data.library import FOLDER, LIBRARY
from softgym_envs.data.recordings import align_points, flip_y, read_csv, read_points_csv, read_recordings, with_controls_of
from sysid import load


@pytest.fixture
def csv(tmp_path):
    def write(text, encoding="utf-8"):
        path = tmp_path / "run.csv"
        path.write_text(text, encoding=encoding)
        return path

    return write


def test_read_csv(csv):
    run = read_csv(
        csv(
            "# camera 2\ntime [ms], tip.x [mm], angle [deg], control:left [mV], control:pump [%]\n"
            "0, 1000, 90, 500, 100\n100, , nan, 250, 50\n\n200, -20.5, -90,,\n"
        )
    )
    np.testing.assert_allclose(run.times, [0, 0.1, 0.2], atol=1e-15)
    np.testing.assert_allclose(run.values, [[1.0, np.pi / 2], [np.nan, np.nan], [-0.0205, -np.pi / 2]], rtol=1e-15)
    np.testing.assert_allclose(run.controls, [[0.5, 1.0], [0.25, 0.5]])
    assert (run.names, run.units) == (("tip.x", "angle"), ("m", "rad"))
    assert (run.control_names, run.control_units) == (("left", "pump"), ("V", "-"))


def test_excel_writes_a_byte_order_mark_and_quotes(csv):
    run = read_csv(csv('"time [s]","tip [m]"\r\n0,"1.5"\r\n1,2\r\n', encoding="utf-8-sig"))
    assert run.column("tip").tolist() == [1.5, 2.0]


HEADER = "time [s], x [m]\n"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", FileFormatError, "has 0 lines, expected a header and at least one row"),
        (HEADER, FileFormatError, "has 1 lines"),
        (HEADER + "0, 1,5\n", FileFormatError, "line 2 has 3 cells, the header has 2; decimals are written with a point"),
        (
            HEADER + '0,"1,500"\n1,2\n',
            FileFormatError,
            "'1,500' may be a decimal or a whole number; save it with a decimal point",
        ),
        (HEADER + '0,"1,5,"\n1,2\n', FileFormatError, "line 2: x is '1,5,', expected a number (write decimals with a point)"),
        (HEADER + "0, fast\n1, 2\n", FileFormatError, "line 2: x is 'fast', expected a number"),
        (HEADER + "0, inf\n1, 2\n", FileFormatError, "line 2: x is infinite; leave the cell empty"),
        (HEADER + "0, 1\n, 2\n2, 3\n", FileFormatError, "line 3: the time is missing"),
        ("u [s], x [m]\n0, 1\n1, 2\n", FileFormatError, "has no column 'time'; its columns are u, x"),
        ("0, 1\n1, 2\n", FileFormatError, "a table of 2 columns without header: name all in a mapping (`map`), names ="),
        ("time, x [m]\n0, 1\n1, 2\n", FileFormatError, "column 'time' has no unit in the header; write for example 'time [s]'"),
        ("time [s], x\n0, 1\n1, 2\n", FileFormatError, "column 'x' has no unit in the header; write for example 'x [mm]'"),
        ("time [s], x [m\n0, 1\n1, 2\n", FileFormatError, "column header 'x [m' is not of the form 'name [unit]'"),
        ("time [m], x [m]\n0, 1\n1, 2\n", FileFormatError, "column 'time' is in 'm', expected s, ms, us or ns"),
        ("time [s], x [m], x [m]\n0, 1, 1\n1, 2, 2\n", FileFormatError, "column 'x' is there twice"),
        (
            "time [s], x [furlong]\n0, 1\n1, 2\n",
            DataError,
            "column 'x': unknown unit 'furlong'; known are -, %, SI, m, dm, cm, mm",
        ),
        (
            "time [s], x [px]\n0, 1\n1, 2\n",
            DataError,
            "column 'x' is in px; say how large a pixel is with `meters_per_pixel=...`",
        ),
        (HEADER + "0, 1\n", DataError, "1 points of time, expected at least 2"),
        (HEADER + "0, 1\n2, 2\n1, 3\n", DataError, "times must increase, but 1 s follows 2 s (frame 2)"),
        (
            "time [s], x [m], control:u [V]\n0, 1, 1\n1, 2, 1\n3, 3, 1\n4, 1, 1\n",
            DataError,
            "1 lines are missing between 0 and 4 s, and nobody knows what acted there; write a line for each, with 'control:u'",
        ),
        ("time [s], x [m], control:u [V]\n0, 1, 1\n1, 2,\n2, 2, 1\n", DataError, "line 3: control 'u' is missing"),
    ],
)
def test_malformed_csv(csv, text, error, message):
    with raises(error, message):
        read_csv(csv(text))


def test_lines_that_are_missing_are_gaps_where_nothing_acts(csv):
    run = read_csv(csv(HEADER + "0, 1\n1, 2\n3, 3\n4, 1\n"))
    np.testing.assert_array_equal(run.values[:, 0], [1, 2, np.nan, 3, 1])
    np.testing.assert_allclose(run.times, np.arange(5.0), atol=1e-12)


def test_rough_stamps_are_put_on_the_grid_of_a_known_rate(csv):
    """100 frames per second, stamps off by 0.5 ms (one standard deviation), one by 2.4 ms; by another rate they are refused."""
    rng = np.random.default_rng(0)
    stamps = 0.01 * np.arange(400) + 1.0 + np.clip(5e-4 * rng.normal(size=400), -1.5e-3, 1.5e-3)
    stamps[200] += 2.4e-3 - (stamps[200] - 3.0)
    text = "time [s], x [m]\n" + "".join(f"{stamp:.5f}, {k}\n" for k, stamp in enumerate(stamps))
    run = read_csv(csv(text), fps=100.0)
    np.testing.assert_array_equal(run.values[:, 0], np.arange(400))
    assert run.period == pytest.approx(0.01, rel=1e-9)
    for wrong in (90.0, 105.0, 120.0, 200.0 / 3):
        with raises(DataError, "is it another rate?"):
            read_csv(csv(text), fps=wrong)


def test_csv_that_is_no_text(tmp_path):
    with raises(FileFormatError, "cannot read"):
        read_csv(tmp_path / "absent.csv")
    (tmp_path / "noise.csv").write_bytes(bytes(range(256)) * 4)
    with raises(FileFormatError, "(binary file of no known format) has no reader here: export it as CSV"):
        read_csv(tmp_path / "noise.csv")


def test_rounded_time_stamps_are_put_on_their_grid(csv):
    """30 frames per second with stamps in whole ms: 200 frames, of which the true period is 1/30 s."""
    stamps = np.rint(1000 * np.arange(200) / 30)
    run = read_csv(csv("time [ms], x [m]\n" + "".join(f"{stamp:.0f}, 0\n" for stamp in stamps)))
    assert run.num_steps == 199
    # Stamps are off by half a ms at most; over N of them a fitted slope is off by 6 * 0.5 ms / N at most.
    assert abs(run.period - 1 / 30) < 6 * 0.5e-3 / 200


def test_exact_time_stamps_are_kept(csv):
    run = read_csv(csv("time [s], x [m]\n1.5, 0\n1.6, 0\n1.7, 0\n"))
    assert run.times.tolist() == [1.5, 1.6, 1.7]


POINTS = "time [s], point, x [mm], y [cm], z [px]\n"


def test_tracked_points(csv):
    """Lines in any order, a missing point, an empty cell and a missing frame."""
    lines = ["0.3, tip, 5, 6, 7", "0.0, 2, 1, 2, 3", "0.1, 2, 3, , 5", "0.0, tip, 7, 8, 9"]
    run = read_points_csv(csv(POINTS + "\n".join(lines)), meters_per_pixel=0.5)
    assert run.names == ("point2.x", "point2.y", "point2.z", "tip.x", "tip.y", "tip.z")
    assert set(run.units) == {"m"}
    gap = [np.nan] * 3
    expected = [
        [0.001, 0.02, 1.5, 0.007, 0.08, 4.5],
        [0.003, np.nan, 2.5, *gap],
        [*gap, *gap],
        [*gap, 0.005, 0.06, 3.5],
    ]
    np.testing.assert_allclose(run.values, expected, rtol=1e-14)
    np.testing.assert_allclose(run.times, [0, 0.1, 0.2, 0.3], atol=1e-12)
    assert run.controls.shape == (3, 0)
    driven = run.with_controls(np.ones((3, 1)), ["valve"], ["-"])
    assert driven.control_names == ("valve",)


def points_file(rows):
    """One line per (time, point); x of point k is k mm, of tip 99 mm."""
    lines = [f"{time}, {point}, {99 if point == 'tip' else point}, 0" for time, point in rows]
    return "time [s], point, x [mm], y [mm]\n" + "\n".join(lines)


@pytest.mark.parametrize("missing", [1, 2, 10, "tip"])
def test_columns_do_not_depend_on_which_point_appears_first(csv, missing):
    labels = [10, "tip", 1, 2]
    run = read_points_csv(csv(points_file((t, p) for t in (0, 1) for p in labels if (t, p) != (0, missing))))
    assert run.names[::2] == ("point1.x", "point2.x", "point10.x", "tip.x")
    np.testing.assert_allclose(run.values[1, ::2], [0.001, 0.002, 0.010, 0.099])
    assert np.isnan(run.values[0, ::2]).tolist() == [label == missing for label in (1, 2, 10, "tip")]


def test_files_in_which_different_points_are_missing_become_one_set(csv):
    """Two files, another point lost in the first frame of each: equal columns, no values mixed."""
    first = read_points_csv(csv(points_file([(0, 2), (0, 10), (1, 1), (1, 2), (1, 10)])))
    second = read_points_csv(csv(points_file([(0, 10), (0, 1), (1, 2), (1, 1), (1, 10)])))
    both = TrajectorySet((first, second))
    np.testing.assert_array_equal(both[0].values[1], both[1].values[1])


def test_a_point_that_a_whole_file_lacks_is_nan_there(csv):
    whole = read_points_csv(csv(points_file([(0, 10), (0, 2), (1, 2), (1, 10)])))
    lacking = read_points_csv(csv(points_file([(0, 10), (1, 10)])))
    with raises(DataError, "trajectory 1 has names"):
        TrajectorySet((whole, lacking))
    for order in ((whole, lacking), (lacking, whole)):
        both = TrajectorySet(tuple(align_points(order)))
        assert both.names == ("point2.x", "point2.y", "point10.x", "point10.y")
        np.testing.assert_array_equal(both[order.index(whole)].values, whole.values)
        np.testing.assert_array_equal(both[order.index(lacking)].values[:, 2:], lacking.values)
        assert np.isnan(both[order.index(lacking)].values[:, :2]).all()
    with raises(DataError, "point2.x is in rad in one recording and in m in another"):
        align_points([whole, replace(whole, units=("rad",) * 4)])
    assert align_points([]) == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("time [s], x [m], y [m]\n0, 1, 1\n", FileFormatError, "has no column 'point'"),
        ("time [s], point, x [m]\n0, 1, 1\n", FileFormatError, "expected time, point, x, y and perhaps z"),
        (
            "time [s], point, x [m], y [m], w [m]\n0, 1, 1, 1, 1\n",
            FileFormatError,
            "expected time, point, x, y and perhaps z",
        ),
        (POINTS + "0, , 1, 1, 1\n1, 1, 1, 1, 1\n", FileFormatError, "line 2: the point has no name"),
        (POINTS + "0, 1, 1, 1, 1\n1, 1, 1, 1, 1\n", DataError, "column 'z' is in px"),
        (
            POINTS + "0, 1, 1, 1, 1\n0, 2, 1, 1, 1\n1, 1, 1, 1, 1\n0, 1, 1, 1, 1\n",
            DataError,
            "point1 at 0 s is in line 2 already",
        ),
        (POINTS + "0, 1, 1, 1, 1\n", DataError, "1 points of time"),
    ],
)
def test_malformed_points(csv, text, error, message):
    with raises(error, message):
        read_points_csv(csv(text))


# --- what cameras write ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [24, 25, 29.97, 30, 50, 59.94, 60, 100, 120, 240])
def test_any_frame_rate_in_whole_milliseconds_is_read(csv, rate):
    stamps = np.rint(1000 * np.arange(200) / rate)
    run = read_csv(csv("time [ms], x [m]\n" + "".join(f"{stamp:.0f}, 0\n" for stamp in stamps)))
    assert run.num_steps == 199 and abs(run.period * rate - 1) < 6 * 0.5e-3 / 200 * rate
    known = read_csv(csv("time [ms], x [m]\n" + "".join(f"{stamp:.0f}, 0\n" for stamp in stamps)), fps=rate)
    assert known.num_steps == 199 and abs(known.period * rate - 1) < 1e-12


def test_a_rate_that_the_stamps_contradict_is_refused(csv):
    path = csv("time [s], x [m]\n" + "".join(f"{k / 29.97:.4f}, 0\n" for k in range(600)))
    assert read_csv(path).period == pytest.approx(1 / 29.97, rel=1e-6)
    with raises(DataError, "is it another rate?"):
        read_csv(path, fps=30)


@pytest.mark.parametrize("steps", [(0.012, 0.028), (0.018, 0.045), (0.005, 0.035)])
def test_values_at_irregular_times_are_moved_along_the_motion(csv, steps):
    """Values stand as they were seen; a motion with constant jerk is on the grid exactly, in either form, and angles."""
    stamps = np.cumsum(np.random.default_rng(0).uniform(*steps, 100)).round(6)
    x, angle = (lambda t: 0.1 + 2.0 * t - 0.7 * t**2 + 0.2 * t**3), (lambda t: 3.0 * t**2)
    lines = [f"{t!r}, {x(t)!r}, {(angle(t) + np.pi) % (2 * np.pi) - np.pi!r}" for t in stamps.tolist()]
    recorded = read_csv(csv("\n".join(["time [s], x [m], turn [rad]", *lines, ""])))
    there = np.isfinite(recorded.values[:, 0])
    seen_at = (recorded.times + recorded.offsets)[there].round(6)
    np.testing.assert_allclose(recorded.values[there, 0], x(seen_at), rtol=1e-14)
    assert set(seen_at.tolist()) <= set(stamps.tolist())
    run = recorded.on_grid
    there = np.isfinite(run.values[:, 0])
    assert there.sum() > 60 and "ms off" in run.metadata["irregular"] and np.ptp(np.diff(run.times)) < 1e-9
    np.testing.assert_allclose(run.values[there, 0], x(run.times[there]), atol=1e-12)
    np.testing.assert_allclose(run.values[there, 1], angle(run.times[there]), atol=1e-11)
    lines = [
        f"{t!r}, {point}, {point + x(t)!r}, 0.0" for t in stamps.tolist() for point in (1, 2) if point == 1 or t != stamps[9]
    ]
    points = read_points_csv(csv("\n".join(["time [s], point, x [m], y [m]", *lines, ""])))
    np.testing.assert_array_equal(points.offsets, recorded.offsets)
    seen = points.on_grid
    np.testing.assert_allclose(seen.values[there, 0], 1.0 + x(run.times[there]), atol=1e-12)
    assert seen.metadata["irregular"] == run.metadata["irregular"]


@pytest.mark.parametrize("off", [0.2, 0.3])
def test_values_at_irregular_times_keep_their_noise(csv, off):
    """Of nine rows a cubic's slope has 0.34 of the noise per frame, so that the noise grows by off^2 0.34^2 / 6 in the mean.

    Neighbours stay as uncorrelated as they were: 1 / sqrt(2000), four of it, beside what their slopes have in common.
    """
    rng = np.random.default_rng(1)
    stamps = 0.02 * (np.arange(2000) + rng.uniform(-off, off, 2000))
    motion = lambda t: 0.3 * np.sin(2.0 * t)  # noqa: E731
    lines = [
        f"{t!r}, {v!r}"
        for t, v in zip(stamps.tolist(), (motion(stamps) + 1e-3 * rng.standard_normal(2000)).tolist(), strict=True)
    ]
    run = read_csv(csv("\n".join(["time [s], x [m]", *lines, ""]))).on_grid
    left = (run.values[:, 0] - motion(run.times)) / 1e-3
    assert run.period == pytest.approx(0.02, rel=1e-9) and np.isfinite(left).all()
    assert abs(left.std() - 1.0) < 4 / np.sqrt(2 * 2000) + off**2 * 0.34**2 / 6
    assert abs(np.mean(left[1:] * left[:-1])) < 4 / np.sqrt(2000) + off**2 * 0.34**2


def test_an_outlier_at_irregular_times_moves_its_own_row_alone(csv):
    rng = np.random.default_rng(2)
    stamps = 0.01 * (np.arange(300) + rng.uniform(-0.3, 0.3, 300))
    seen = 0.2 * np.sin(3.0 * stamps) + 1e-4 * rng.standard_normal(300)
    values = []
    for jump in (0.0, 1.0):
        seen[150] += jump
        lines = [f"{t!r}, {v!r}" for t, v in zip(stamps.tolist(), seen.tolist(), strict=True)]
        values.append(read_csv(csv("\n".join(["time [s], x [m]", *lines, ""]))).on_grid.values[:, 0])
    apart = np.abs(values[1] - values[0])
    assert apart[150] == pytest.approx(1.0, abs=1e-3) and np.delete(apart, 150).max() < 3e-4


def test_irregular_times_have_the_rate_that_they_keep_to(csv):
    """100 frames/s up to 0.3 of a frame off, one line in twenty lost: every line has a frame of its own."""
    rng = np.random.default_rng(3)
    stamps = (np.arange(1000) + rng.uniform(-0.3, 0.3, 1000)) / 100
    kept = np.delete(stamps, 1 + rng.choice(998, 50, replace=False))
    lines = [f"{t!r}, {t!r}, 0" for t in kept.round(6).tolist()]
    run = read_csv(csv("\n".join(["time [s], x [m], control:u [V]", *lines, ""])))
    assert run.period == pytest.approx(0.01, rel=1e-9) and run.num_steps == 999
    assert np.isfinite(run.values[:, 0]).sum() == 950
    assert "50 of 1000 without a line" in run.metadata["irregular"]


def test_commands_at_irregular_times_do_in_every_frame_what_they_did(csv):
    text = "time [s], x [m], control:u [V]\n0, 0, 1\n0.1, 0, 1\n0.22, 0, 2\n0.3, 0, 3\n0.4, 0, 3\n0.5, 0, 4\n"
    few = read_csv(csv(text))
    fine = np.linspace(few.times[0], few.times[-1], 100 * few.num_steps, endpoint=False) + 0.005 * few.period
    acting = np.array([1, 1, 2, 3, 3, 4])[np.searchsorted([0, 0.1, 0.22, 0.3, 0.4, 0.5], fine, "right") - 1]
    acting = np.minimum(acting, 3)  # what acts behind the last line is not known
    np.testing.assert_allclose(few.controls[:, 0], acting.reshape(-1, 100).mean(axis=1), atol=0.025)
    rng = np.random.default_rng(0)
    stamps, u = np.cumsum(rng.uniform(0.012, 0.028, 200)).round(6), rng.integers(0, 3, 200)
    lines = [f"{t!r}, 0, {v}" for t, v in zip(stamps.tolist(), u.tolist(), strict=True)]
    run = read_csv(csv("\n".join(["time [s], x [m], control:u [V]", *lines, ""])))
    begin, end = run.times[3], run.times[-3]
    done = np.sum(run.controls[3:-2, 0]) * run.period
    edges = np.clip(stamps, begin, end)
    assert done == pytest.approx(np.sum(u[:-1] * np.diff(edges)), abs=1e-9)
    with raises(DataError, "line 4: control 'u' is missing"):
        read_csv(csv(text.replace("0.22, 0, 2", "0.22, 0, ")))


def test_frames_are_times_once_the_rate_is_known(csv):
    text = "frame, x [m]\n10, 1\n11, 2\n12, 3\n"
    run = read_csv(csv(text), fps=50)
    np.testing.assert_allclose(run.times, [0.2, 0.22, 0.24])
    points = read_points_csv(csv("frame, point, x [mm], y [mm]\n0, 1, 1, 2\n1, 1, 1, 2\n3, 1, 1, 2\n"), fps=60)
    assert points.num_steps == 3 and points.period == pytest.approx(1 / 60) and np.isnan(points.values[2]).all()
    with raises(DataError, "has frames and no column 'time'; say how many frames a second has with `fps=...`"):
        read_csv(csv(text))
    with raises(FileFormatError, "line 3: frame is '1.5', expected a whole number"):
        read_csv(csv("frame, x [m]\n1, 1\n1.5, 2\n"), fps=50)
    both = read_csv(csv("frame, time [s], x [m]\n10, 0.0, 1\n11, 0.1, 2\n"))
    assert both.names == ("x",) and both.period == pytest.approx(0.1)


@pytest.mark.parametrize(("unit", "turn"), [("deg", 360.0), ("rad", 2 * np.pi)])
@pytest.mark.parametrize("low", [-0.5, 0.0], ids=["-180 to 180", "0 to 360"])
def test_angles_that_jump_by_a_turn_are_unwrapped(csv, unit, turn, low):
    """Three turns and back, with an empty cell at a jump; a straight angle and one of half a turn stay."""
    angle = np.concatenate([np.linspace(0.1, 3.2, 40), np.linspace(3.2, 0.1, 40)])
    wrapped = (angle - low) % 1.0 + low
    cells = [f"{turn * w:.9f}" for w in wrapped]
    jump = int(np.argmax(np.abs(np.diff(wrapped)) > 0.5))
    cells[jump] = ""
    text = f"time [s], theta [{unit}], phi [rad]\n" + "".join(f"{k / 10}, {cell}, 3.1\n" for k, cell in enumerate(cells))
    run = read_csv(csv(text))
    expected = 2 * np.pi * (angle + wrapped[0] - angle[0])
    seen = np.arange(80) != jump
    np.testing.assert_allclose(run.values[seen, 0], expected[seen], atol=1e-7)
    assert np.isnan(run.values[jump, 0]) and (run.values[:, 1] == 3.1).all()
    assert run.metadata["unwrapped"] == "theta"


def test_images_in_which_y_points_down_are_flipped(csv):
    points = read_points_csv(csv("frame, point, x [px], y [px]\n0, 1, 10, 20\n1, 1, 11, 22\n"), meters_per_pixel=0.1, fps=10)
    np.testing.assert_allclose(flip_y(points).values, [[1.0, -2.0], [1.1, -2.2]])
    with raises(DataError, "point1.z is recorded: only recordings of a plane are flipped"):
        flip_y(read_points_csv(csv("time [s], point, x [m], y [m], z [m]\n0, 1, 1, 1, 1\n1, 1, 1, 1, 1\n")))


def test_a_scale_that_no_column_needs_is_refused(csv):
    millimeters = csv("time [s], x [mm]\n0, 1\n1, 2\n")
    with raises(DataError, "`meters_per_pixel=0.1` is given, but no column of a file is in px"):
        read_recordings([millimeters], meters_per_pixel=0.1)


@pytest.mark.parametrize("wrong", ["50", 0, -1.0, np.nan, True])
def test_rates_and_scales_are_positive_numbers(csv, wrong):
    with raises(OptionError, f"fps is {wrong!r}, expected a number > 0"):
        read_csv(csv("frame, x [m]\n0, 1\n1, 2\n"), fps=wrong)
    with raises(OptionError, f"meters_per_pixel is {wrong!r}, expected a number > 0"):
        read_csv(csv("time [s], x [px]\n0, 1\n1, 2\n"), meters_per_pixel=wrong)


# --- units -------------------------------------------------------------------------------------------------------------


def test_every_unit_leads_to_si():
    for unit, (si, factor) in UNITS.items():
        assert UNITS[si] == (si, 1.0), unit
        assert factor > 0


@pytest.mark.parametrize("frames", [10, 30, 100])
def test_rounded_stamps_of_a_whole_rate_are_those_of_it(tmp_path, frames):
    """120 Hz with three decimals: files of any length have one rate, so that one physics step fits all."""
    lines = "\n".join(f"{frame / 120:.3f},0.1" for frame in range(frames))
    (tmp_path / "seen.csv").write_text(f"time [s],x [m]\n{lines}\n")
    assert read_csv(tmp_path / "seen.csv").period == pytest.approx(1 / 120, rel=1e-12)


def test_commands_of_a_file_of_their_own_keep_their_times(csv):
    stamps = np.cumsum(np.random.default_rng(0).uniform(0.012, 0.028, 50)).round(6).tolist()
    seen = read_csv(csv("\n".join(["time [s], x [m]", *(f"{t!r}, {t!r}" for t in stamps), ""])))
    given = read_csv(csv("\n".join(["time [s], control:u [V]", *(f"{t!r}, {k % 3}" for k, t in enumerate(stamps)), ""])))
    found = with_controls_of(seen, given)
    assert len(given.commanded) == 49
    np.testing.assert_array_equal(found.commanded, given.commanded)
    np.testing.assert_array_equal(found.offsets, seen.offsets)


@pytest.mark.parametrize("name", LIBRARY)
def test_recordings_of_the_package_load_by_name_with_their_licence(name):
    """Nothing moves or turns faster than a thrown object: 10 m/s, 300 rad/s."""
    found = load(name)
    assert len(found) == int(LIBRARY[name].split()[0]) and f"## {name}.h5" in (FOLDER / "LICENSES.md").read_text("utf-8")
    for recording in found:
        assert recording.metadata["source"].startswith(name) and np.isfinite(recording.values).all()
        limits = [10.0 if unit == "m" else 300.0 for unit in recording.units]
        assert (np.abs(np.diff(recording.values, axis=0)) < np.multiply(limits, recording.period)).all()
    if name == "cube_tosses":
        quaternions = np.concatenate([recording.values[:, 3:] for recording in found])
        np.testing.assert_allclose(np.linalg.norm(quaternions, axis=1), 1.0, atol=1e-5)


def test_a_name_that_is_no_file_lists_the_recordings_of_the_package():
    with raises(FileFormatError, "cube_toss: no such file; recordings of the package are cube_tosses, planar_drops"):
        load("cube_toss")
