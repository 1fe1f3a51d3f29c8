"""Trajectories, their HDF5 files, and CSV recordings as a laboratory writes them, right and wrong."""

import re
from dataclasses import replace

import h5py
import numpy as np
import pytest

from softgym_envs.core.errors import DataError, FileFormatError, ShapeError
from softgym_envs.core.recordings import align_points, flip_y, read_csv, read_points_csv
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.core.units import UNITS


def raises(error, message):
    return pytest.raises(error, match=re.escape(message))


def make(seed=0, **changes):
    rng = np.random.default_rng(seed)
    fields = {
        "times": 0.1 * np.arange(6),
        "controls": rng.standard_normal((5, 2)),
        "values": rng.standard_normal((6, 3)),
        "names": ("a", "b", "c"),
        "units": ("m", "rad", "N"),
        "control_names": ("left", "right"),
        "control_units": ("-", "V"),
        "substeps": 4,
        "metadata": {"robot": "made up"},
    }
    return Trajectory(**{**fields, **changes})


def same(a, b):
    assert (a.names, a.units, a.control_names, a.control_units) == (b.names, b.units, b.control_names, b.control_units)
    assert (a.substeps, dict(a.metadata)) == (b.substeps, dict(b.metadata))
    for name in ("times", "controls", "values"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


# --- Trajectory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"times": 0.1 * np.arange(7)}, ShapeError, "controls has shape (5, 2), expected (6, 2)"),
        ({"values": np.zeros((6, 2))}, ShapeError, "values has shape (6, 2), expected (6, 3)"),
        ({"controls": np.full((5, 2), np.nan)}, ShapeError, "controls holds NaN or infinity"),
        ({"values": np.full((6, 3), np.inf)}, ShapeError, "values holds infinity; use NaN"),
        ({"times": np.array([0, 0.1, 0.2, 0.2, 0.3, 0.4])}, DataError, "times[3] = 0.2 s follows 0.2 s"),
        ({"times": np.array([0, 0.1, 0.2, 0.3, 0.4, 0.6])}, DataError, "times must be uniform: times[5] comes 0.2 s after"),
        ({"names": ("a", "b", "a")}, DataError, "names has 'a' twice"),
        ({"names": ("a", "b", "")}, DataError, "names must be non-empty strings"),
        ({"units": ("m", "rad")}, DataError, "units has 2 entries, expected 3"),
        ({"units": ("m", "rad", "mm")}, DataError, "c is in 'mm'; a trajectory holds SI: "),
        ({"control_units": ("-", "volt")}, DataError, "control_units: right is in 'volt'"),
        ({"substeps": 0}, DataError, "substeps is 0, expected an integer >= 1"),
        ({"substeps": 1.5}, DataError, "substeps is 1.5, expected an integer >= 1"),
        ({"times": np.array([0.0]), "controls": np.zeros((0, 2)), "values": np.zeros((1, 3))}, ShapeError, "at least 2 rows"),
    ],
)
def test_wrong_trajectories_are_refused(changes, error, message):
    with raises(error, message):
        make(**changes)


def test_arrays_are_copied_and_read_only():
    values = np.zeros((6, 3))
    trajectory = make(values=values)
    values[:] = 1.0
    assert not trajectory.values.any()
    with pytest.raises(ValueError, match="read-only"):
        trajectory.values[0, 0] = 1.0


def test_column_and_select():
    trajectory = make()
    chosen = trajectory.select(["c", "a"])
    assert chosen.names == ("c", "a")
    assert chosen.units == ("N", "m")
    np.testing.assert_array_equal(chosen.values, trajectory.values[:, [2, 0]])
    np.testing.assert_array_equal(trajectory.column("b"), trajectory.values[:, 1])
    with raises(DataError, "no measured quantity 'd'; there are a, b, c"):
        trajectory.column("d")


def test_window_keeps_controls_with_their_rows():
    trajectory = make()
    part = trajectory.window(0.1, 0.3)  # 0.1 * 3 is a little over 0.3
    np.testing.assert_array_equal(part.times, trajectory.times[1:4])
    np.testing.assert_array_equal(part.values, trajectory.values[1:4])
    np.testing.assert_array_equal(part.controls, trajectory.controls[1:3])
    with raises(DataError, "window 0.12 ... 0.24 s holds 1 rows of 0 ... 0.5 s"):
        trajectory.window(0.12, 0.24)


def test_thinned_keeps_rows_at_which_commands_change():
    commands = np.repeat([[1.0], [3.0], [2.0]], 4, axis=0)[:11]
    dense = Trajectory(np.arange(12) * 0.1, commands, np.arange(12.0)[:, None], ("a",), ("m",), ("u",), ("N",), substeps=5)
    thin = dense.thinned(4)
    np.testing.assert_array_equal(thin.values[:, 0], [0.0, 4.0, 8.0])
    np.testing.assert_array_equal(thin.controls, [[1.0], [3.0]])
    np.testing.assert_array_equal(thin.times, dense.times[[0, 4, 8]])
    assert thin.substeps == 20
    for rows in (3, 12):
        with raises(DataError, f"one row of {rows}: controls change in between, or 11 rows are too few"):
            dense.thinned(rows)


def test_noise_has_the_std_it_was_given():
    n = 20_000
    long = Trajectory(np.arange(n) * 0.1, np.zeros((n - 1, 0)), np.zeros((n, 2)), ("a", "b"), ("m", "m"))
    noisy = long.with_noise(np.random.default_rng(0), {"b": 0.02})
    assert not noisy.values[:, 0].any()
    assert abs(noisy.values[:, 1].std() / 0.02 - 1) < 4 / np.sqrt(2 * n)  # standard error of a std, four times
    assert abs(noisy.values[:, 1].mean()) < 4 * 0.02 / np.sqrt(n)
    both = long.with_noise(np.random.default_rng(0), 0.02).values
    assert abs(np.corrcoef(both.T)[0, 1]) < 4 / np.sqrt(n)
    for wrong in (-1.0, np.nan, {"a": -1.0}):
        with raises(DataError, "expected finite numbers >= 0"):
            long.with_noise(np.random.default_rng(0), wrong)
    with raises(DataError, "no measured quantity 'z'"):
        long.with_noise(np.random.default_rng(0), {"z": 1.0})


def test_for_timestep():
    assert make().for_timestep(0.001).substeps == 100
    with raises(DataError, "no whole multiple of the simulator's dt = 0.03 s; build the simulator with dt = 0.0333333 s"):
        make().for_timestep(0.03)


# --- TrajectorySet -----------------------------------------------------------------------------------------------------


def test_sets_hold_alike_trajectories_only():
    with raises(DataError, "trajectory 1 has names a, b, d; trajectory 0 has a, b, c"):
        TrajectorySet((make(), make(names=("a", "b", "d"))))
    with raises(DataError, "trajectory 1 has units m, m, N; trajectory 0 has m, rad, N"):
        TrajectorySet((make(), make(units=("m", "m", "N"))))


def test_split_is_a_partition():
    runs = TrajectorySet(tuple(make(seed) for seed in range(6)))
    split = runs.split(3, 2, 1)
    assert [len(part) for part in split] == [3, 2, 1]
    assert [id(run) for part in split for run in part] == [id(run) for run in runs]
    shuffled = runs.split(3, 2, 1, rng=np.random.default_rng(0))
    assert sorted(id(run) for part in shuffled for run in part) == sorted(id(run) for run in runs)
    assert [id(run) for run in shuffled.train] != [id(run) for run in runs[:3]]
    assert len(runs.split(6, 0, 0).test) == 0
    for counts in ((3, 2, 2), (7, -1, 0)):
        with raises(DataError, "must be >= 0 and add up to the 6 trajectories"):
            runs.split(*counts)


def test_hash_sees_all_data_and_nothing_else():
    runs = TrajectorySet((make(0), make(1)))
    assert runs.sha256 == TrajectorySet((make(0, metadata={}), make(1))).sha256
    values = make(1).values.copy()
    values[2, 1] = np.nextafter(values[2, 1], 1)
    changed = [
        make(1, values=values),
        make(1, names=("a", "b", "x")),
        make(1, units=("m", "m", "N")),
        make(1, substeps=5),
        make(1, times=0.1 * np.arange(6) + 1),
        make(1, controls=make(2).controls),
        make(1, control_names=("left", "top")),
    ]
    one = [TrajectorySet((run,)).sha256 for run in (make(1), *changed)]
    assert len(set(one)) == len(one)
    assert runs.sha256 != TrajectorySet((make(1), make(0))).sha256


def test_hash_does_not_depend_on_the_bits_of_nan():
    quiet = np.full((6, 3), np.nan)
    other = np.full((6, 3), 0x7FF8000000000001, dtype=np.int64).view(np.float64)
    assert TrajectorySet((make(values=quiet),)).sha256 == TrajectorySet((make(values=other),)).sha256


# --- HDF5 --------------------------------------------------------------------------------------------------------------


def test_hdf5_round_trip(tmp_path):
    values = make().values.copy()
    values[2, 1] = np.nan
    runs = TrajectorySet(
        (make(values=values), make(1, metadata={"größe": "5 cm", "a/b": "c"}), make(2, controls=np.zeros((5, 2))))
    )
    again = TrajectorySet.load(runs.save(tmp_path / "new" / "runs.h5"))
    assert len(again) == 3
    for a, b in zip(runs, again, strict=True):
        same(a, b)
    assert again.sha256 == runs.sha256


def test_hdf5_without_controls(tmp_path):
    run = make(controls=np.zeros((5, 0)), control_names=(), control_units=())
    same(Trajectory.load(run.save_hdf5(tmp_path / "run.h5")), run)


def test_more_than_ten_runs_keep_their_order(tmp_path):
    runs = TrajectorySet(tuple(make(seed) for seed in range(12)))
    again = TrajectorySet.load(runs.save(tmp_path / "runs.h5"))
    np.testing.assert_array_equal([run.values for run in again], [run.values for run in runs])


def edit(path, act):
    with h5py.File(path, "r+") as file:
        act(file)


def _number(file):
    file["trajectory_000000/values"][0, 0] = 99.0


def _shape(file):
    del file["trajectory_000000/controls"]
    file["trajectory_000000/controls"] = np.zeros((2, 2))


def _no_times(file):
    del file["trajectory_000000/times"]


def _text(file):
    del file["trajectory_000000/times"]
    file["trajectory_000000/times"] = "soon"


def _group(file):
    del file["trajectory_000000/values"]
    file.create_group("trajectory_000000/values")


def _format(file):
    file.attrs["format"] = "something else"


def _no_format(file):
    del file.attrs["format"]


def _no_hash(file):
    del file.attrs["sha256"]


def _dataset(file):
    file["trajectory_000001"] = np.zeros(3)


def _substeps(file):
    file["trajectory_000000"].attrs["substeps"] = "many"


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (_number, "is damaged: its numbers do not have the hash"),
        (_shape, "controls has shape (2, 2), expected (5, 2)"),
        (_no_times, "or it is damaged"),
        (_text, "or it is damaged"),
        (_group, "or it is damaged"),
        (_format, "format is 'something else', expected 'softgym_envs trajectories 1'"),
        (_no_format, "format is None"),
        (_no_hash, "or it is damaged"),
        (_dataset, "or it is damaged"),
        (_substeps, "or it is damaged"),
    ],
)
def test_malformed_hdf5(tmp_path, act, message):
    path = make().save_hdf5(tmp_path / "run.h5")
    edit(path, act)
    with raises(FileFormatError, message):
        Trajectory.load(path)


def test_files_that_are_no_hdf5(tmp_path):
    with raises(FileFormatError, "no such file"):
        Trajectory.load(tmp_path / "absent.h5")
    with raises(FileFormatError, "no such file"):
        Trajectory.load(tmp_path)
    whole = make().save_hdf5(tmp_path / "run.h5").read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        (tmp_path / "half.h5").write_bytes(content)
        with raises(FileFormatError, "is no HDF5 file of trajectories, or it is damaged" if content else "is empty"):
            Trajectory.load(tmp_path / "half.h5")
    TrajectorySet((make(), make(1))).save(tmp_path / "two.h5")
    with raises(FileFormatError, "holds 2 trajectories, expected 1"):
        Trajectory.load(tmp_path / "two.h5")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = make().save_hdf5(tmp_path / "run.h5")
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        make(1).save_hdf5(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run.h5"]


# --- CSV ---------------------------------------------------------------------------------------------------------------


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
        ),
        substeps=10,
    )
    np.testing.assert_allclose(run.times, [0, 0.1, 0.2], atol=1e-15)
    np.testing.assert_allclose(run.values, [[1.0, np.pi / 2], [np.nan, np.nan], [-0.0205, -np.pi / 2]], rtol=1e-15)
    np.testing.assert_allclose(run.controls, [[0.5, 1.0], [0.25, 0.5]])
    assert (run.names, run.units) == (("tip.x", "angle"), ("m", "rad"))
    assert (run.control_names, run.control_units, run.substeps) == (("left", "pump"), ("V", "-"), 10)


def test_excel_writes_a_byte_order_mark_and_quotes(csv):
    run = read_csv(csv('"time [s]","tip [m]"\r\n0,"1.5"\r\n1,2\r\n', encoding="utf-8-sig"))
    assert run.column("tip").tolist() == [1.5, 2.0]


HEADER = "time [s], x [m]\n"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", FileFormatError, "has 0 lines, expected a header and at least one row"),
        (HEADER, FileFormatError, "has 1 lines"),
        ("time [s];x [m]\n0,0;1,5\n", FileFormatError, "separated by semicolons; expected commas, and decimals with a point"),
        ("time [s]\tx [m]\n0\t1\n", FileFormatError, "separated by tabs"),
        (HEADER + "0, 1,5\n", FileFormatError, "line 2 has 3 cells, the header has 2; decimals are written with a point"),
        (HEADER + '0,"1,5"\n1,2\n', FileFormatError, "line 2: x is '1,5', expected a number (write decimals with a point)"),
        (HEADER + "0, fast\n1, 2\n", FileFormatError, "line 2: x is 'fast', expected a number"),
        (HEADER + "0, inf\n1, 2\n", FileFormatError, "line 2: x is infinite; leave the cell empty"),
        (HEADER + "0, 1\n, 2\n2, 3\n", FileFormatError, "line 3: the time is missing"),
        ("t [s], x [m]\n0, 1\n1, 2\n", FileFormatError, "has no column 'time'; its columns are t, x"),
        ("time (s), x (m)\n0, 1\n1, 2\n", FileFormatError, "columns are time (s), x (m); units belong in square brackets"),
        ("time, x [m]\n0, 1\n1, 2\n", FileFormatError, "column 'time' has no unit in the header; write for example 'time [s]'"),
        ("time [s], x\n0, 1\n1, 2\n", FileFormatError, "column 'x' has no unit in the header; write for example 'x [mm]'"),
        ("time [s], x [m\n0, 1\n1, 2\n", FileFormatError, "column header 'x [m' is not of the form 'name [unit]'"),
        ("time [m], x [m]\n0, 1\n1, 2\n", FileFormatError, "column 'time' is in 'm', expected s, ms or us"),
        ("time [s], x [m], x [m]\n0, 1, 1\n1, 2, 2\n", FileFormatError, "column 'x' is there twice"),
        ("time [s], x [inch]\n0, 1\n1, 2\n", DataError, "column 'x': unknown unit 'inch'; known are -, %, SI, m, dm, cm, mm"),
        (
            "time [s], x [px]\n0, 1\n1, 2\n",
            DataError,
            "column 'x' is in px; say how large a pixel is with meters_per_pixel=...",
        ),
        (HEADER + "0, 1\n", DataError, "1 points of time, expected at least 2"),
        (HEADER + "0, 1\n2, 2\n1, 3\n", DataError, "times must increase, but 1 s follows 2 s (frame 2)"),
        (HEADER + "0, 1\n1, 2\n2.3, 3\n3, 1\n", DataError, "times are not uniform"),
        (HEADER + "0, 1\n1, 2\n3, 3\n4, 1\n", DataError, "1 lines are missing between 0 and 4 s"),
        ("time [s], x [m], control:u [V]\n0, 1, 1\n1, 2,\n2, 2, 1\n", DataError, "line 3: control 'u' is missing"),
    ],
)
def test_malformed_csv(csv, text, error, message):
    with raises(error, message):
        read_csv(csv(text))


def test_csv_that_is_no_text(tmp_path):
    with raises(FileFormatError, "cannot read"):
        read_csv(tmp_path / "absent.csv")
    (tmp_path / "utf16.csv").write_text("time [s], x [m]\n0, 1\n", encoding="utf-16")
    with raises(FileFormatError, "is not UTF-8 text"):
        read_csv(tmp_path / "utf16.csv")


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
    with raises(DataError, "say fps=... if the stamps are rough"):
        read_csv(csv("time [s], x [m]\n0.00, 0\n0.1, 0\n0.23, 0\n0.3, 0\n0.4, 0\n"))


def test_frames_are_times_once_the_rate_is_known(csv):
    text = "frame, x [m]\n10, 1\n11, 2\n12, 3\n"
    run = read_csv(csv(text), fps=50)
    np.testing.assert_allclose(run.times, [0.2, 0.22, 0.24])
    points = read_points_csv(csv("frame, point, x [mm], y [mm]\n0, 1, 1, 2\n1, 1, 1, 2\n3, 1, 1, 2\n"), fps=60)
    assert points.num_steps == 3 and points.period == pytest.approx(1 / 60) and np.isnan(points.values[2]).all()
    with raises(DataError, "has frames and no column 'time'; say how many frames a second has with fps=..."):
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


# --- units -------------------------------------------------------------------------------------------------------------


def test_every_unit_leads_to_si():
    for unit, (si, factor) in UNITS.items():
        assert UNITS[si] == (si, 1.0), unit
        assert factor > 0
