"""HDF5 files of trajectories, right and wrong."""

import h5py
import numpy as np
import pytest
from trajectories import make, raises

from softgym_envs.core.errors import FileFormatError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet


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
        (_no_format, "format is None"),
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
