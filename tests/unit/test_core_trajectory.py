"""Trajectories and sets of them, right and wrong. HDF5 files of trajectories, right and wrong."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from helpers import make, raises

from softgym_envs.core.errors import DataError, FileFormatError, ShapeError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

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
        ({"commanded": np.zeros((2, 2))}, ShapeError, "commanded has shape (2, 2), expected (any, 3)"),
        ({"commanded": np.zeros((2, 3))}, DataError, "times of commanded must increase"),
        ({"offsets": np.zeros(5)}, ShapeError, "offsets has shape (5,), expected (6,)"),
        ({"offsets": np.full(6, 0.06)}, DataError, "offsets are up to 0.06 s, allowed is half a row: 0.05 s"),
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
    with raises(DataError, "expected at least 2; rows are 100 s apart: are the times in ms?"):
        replace(trajectory, times=1000.0 * trajectory.times).window(0.0, 0.25)


def test_a_window_of_a_window_knows_all_commands_before_it():
    trajectory = make()
    part = trajectory.window(0.1, 0.5).window(0.3, 0.5)
    np.testing.assert_array_equal(part.before, trajectory.controls[:3])
    assert trajectory.before.shape == (0, 2) and part.select(["a"]).before.shape == (3, 2)
    assert part.with_controls(np.zeros((2, 1)), ("u",), ("N",)).before.shape == (0, 1)
    with raises(ShapeError, "before has shape (3, 1), expected (any, 2)"):
        make(before=np.zeros((3, 1)))


def test_commands_between_rows_are_means_over_parts_of_them():
    """Against sums over a fine grid; a window knows those before it, other controls have none."""
    commanded = np.array([[0.0, 1.0, 0.0], [0.13, 3.0, 1.0], [0.27, -1.0, 5.0], [0.41, 2.0, 2.0]])
    trajectory = make(commanded=commanded)
    fine = commanded[np.searchsorted(commanded[:, 0], (np.arange(5000) + 0.5) * 1e-4, side="right") - 1, 1:]
    for parts in (1, 4):
        own, before = trajectory.in_parts(parts)
        np.testing.assert_allclose(own, fine.reshape(5 * parts, -1, 2).mean(axis=1), atol=1e-12)
        part = trajectory.window(0.2, 0.5).in_parts(parts)
        np.testing.assert_allclose(part[0], own[2 * parts :], atol=1e-12)
        np.testing.assert_allclose(part[1], own[: 2 * parts], atol=1e-12)
        assert before.shape == (0, 2)
    held, _ = make().in_parts(2)
    np.testing.assert_array_equal(held[::2], make().controls)
    turned = trajectory.select_controls(("right", "left")).in_parts(4)[0]
    np.testing.assert_allclose(turned[:, ::-1], trajectory.in_parts(4)[0], atol=1e-12)
    with raises(DataError, "no control 'up'; there are left, right"):
        trajectory.select_controls(("up",))
    assert not len(trajectory.with_controls(np.zeros((5, 1)), ("u",), ("N",)).commanded)


def test_values_seen_between_rows_keep_their_offsets():
    offsets = np.array([0.0, 0.01, -0.05, 0.05, 0.0, 0.02])
    trajectory = make(offsets=offsets)
    np.testing.assert_array_equal(trajectory.window(0.1, 0.3).offsets, offsets[1:4])
    np.testing.assert_array_equal(trajectory.select(("b",)).with_noise(np.random.default_rng(0), 1.0).offsets, offsets)
    held = make(offsets=offsets, controls=np.zeros((5, 2)))
    np.testing.assert_array_equal(held.thinned(2).offsets, offsets[:5:2])
    seen = trajectory.times + offsets
    line = make(values=np.column_stack([seen, 3.0 - 2.0 * seen, 0.0 * seen]), offsets=offsets)
    at_rows = line.on_grid
    np.testing.assert_allclose(at_rows.values[:, :2], np.column_stack([line.times, 3.0 - 2.0 * line.times]), atol=1e-12)
    assert not len(at_rows.offsets) and at_rows.on_grid is at_rows


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
    with raises(DataError, "no whole multiple of the simulator's dt = 0.03 s; say `dt` = 0.0333333 s"):
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
        make(1, before=np.zeros((1, 2))),
        make(1, before=np.ones((1, 2))),
        make(1, commanded=np.array([[0.0, 1.0, 1.0]])),
        make(1, commanded=np.array([[0.0, 1.0, 2.0]])),
        make(1, offsets=np.linspace(0.0, 0.01, 6)),
        make(1, offsets=np.linspace(0.0, 0.02, 6)),
    ]
    one = [TrajectorySet((run,)).sha256 for run in (make(1), *changed)]
    assert len(set(one)) == len(one)
    assert runs.sha256 != TrajectorySet((make(1), make(0))).sha256


def test_hash_does_not_depend_on_the_bits_of_nan():
    quiet = np.full((6, 3), np.nan)
    other = np.full((6, 3), 0x7FF8000000000001, dtype=np.int64).view(np.float64)
    assert TrajectorySet((make(values=quiet),)).sha256 == TrajectorySet((make(values=other),)).sha256


def same(a, b):
    assert (a.names, a.units, a.control_names, a.control_units) == (b.names, b.units, b.control_names, b.control_units)
    assert (a.substeps, dict(a.metadata)) == (b.substeps, dict(b.metadata))
    for name in ("times", "controls", "values", "before", "commanded", "offsets"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_hdf5_round_trip(tmp_path):
    values = make().values.copy()
    values[2, 1] = np.nan
    runs = TrajectorySet(
        (make(values=values), make(1, metadata={"größe": "5 cm", "a/b": "c"}), make(2, controls=np.zeros((5, 2))))
    )
    late = np.array([0.0, 0.01, -0.05, 0.05, 0.0, 0.02])
    runs = TrajectorySet((*runs, make(3, commanded=np.array([[0.05, 1.0, 2.0]]), offsets=late).window(0.2, 0.5)))
    again = TrajectorySet.load(runs.save(tmp_path / "new" / "runs.h5"))
    assert len(again) == 4
    for a, b in zip(runs, again, strict=True):
        same(a, b)
    assert again.sha256 == runs.sha256


def test_hdf5_without_controls(tmp_path):
    run = make(controls=np.zeros((5, 0)), control_names=(), control_units=())
    same(Trajectory.load(TrajectorySet((run,)).save(tmp_path / "run.h5")), run)


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
        (
            _no_format,
            "format is None, expected 'softgym_envs trajectories 1'; write the arrays of another program with np.savez",
        ),
        (_no_hash, "or it is damaged"),
        (_dataset, "or it is damaged"),
        (_substeps, "or it is damaged"),
    ],
)
def test_malformed_hdf5(tmp_path, act, message):
    path = TrajectorySet((make(),)).save(tmp_path / "run.h5")
    edit(path, act)
    with raises(FileFormatError, message):
        Trajectory.load(path)


def test_files_that_are_no_hdf5(tmp_path):
    with raises(FileFormatError, "no such file"):
        Trajectory.load(tmp_path / "absent.h5")
    with raises(FileFormatError, "no such file"):
        Trajectory.load(tmp_path)
    whole = TrajectorySet((make(),)).save(tmp_path / "run.h5").read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        (tmp_path / "half.h5").write_bytes(content)
        with raises(FileFormatError, "is no HDF5 file of trajectories, or it is damaged" if content else "is empty"):
            Trajectory.load(tmp_path / "half.h5")
    TrajectorySet((make(), make(1))).save(tmp_path / "two.h5")
    with raises(FileFormatError, "holds 2 trajectories, expected 1"):
        Trajectory.load(tmp_path / "two.h5")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = TrajectorySet((make(),)).save(tmp_path / "run.h5")
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        TrajectorySet((make(1),)).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run.h5"]
