"""Files that are damaged, mistyped, or made to hurt: one sentence each, within time and memory."""

import copy
import os
import resource
import time
from functools import reduce
from operator import getitem

import h5py
import numpy as np
import pytest
from fuzz import MODELS, toml
from helpers import ROOT, load_script, run_script
from tensegrity_systems import STRUCTURE

from softgym_envs.core.errors import DataError, FileFormatError, ParameterError, SoftgymError, StorageError, StructureError
from softgym_envs.core.files import read_json, read_toml, write_atomically
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.recordings import read_csv, read_points_csv, read_recordings
from softgym_envs.systems import system, systems


@pytest.fixture
def frugal():
    """The test may take 300 MB and 5 s of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300e3
    assert time.process_time() - began < 5.0


def written(folder, text, name="a.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- Recordings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [read_csv, read_points_csv])
@pytest.mark.parametrize("jump", ["1.7e9", "1e300", "1e308"])
def test_a_jump_of_the_clock_is_named(tmp_path, frugal, read, jump):
    stamps = ("0.0", "0.01", "0.02", jump)
    if read is read_csv:
        text = "time [s], x [m]\n" + "".join(f"{stamp}, 1\n" for stamp in stamps)
    else:
        text = "time [s], point, x [m], y [m]\n" + "".join(f"{stamp}, 0, 1, 2\n" for stamp in stamps)
    with pytest.raises(DataError, match=r"follows 0.02 s.*0\.01 s are usual: has the clock jumped"):
        read(written(tmp_path, text))


def test_a_pause_of_the_camera_is_kept(tmp_path):
    text = "time [s], point, x [m], y [m]\n" + "".join(f"{t:.2f}, 0, 1, 2\n" for t in (0.0, 0.01, 0.02, 60.0))
    assert read_points_csv(written(tmp_path, text)).num_steps == 6000


def test_points_that_are_all_different_are_refused(tmp_path, frugal):
    lines = "".join(f"{k * 0.01:.2f}, p{k}, 1, 2\n" for k in range(5_000))
    with pytest.raises(DataError, match="nearly all are missing"):
        read_points_csv(written(tmp_path, "time [s], point, x [m], y [m]\n" + lines))


def test_many_columns_are_read_in_time(tmp_path, frugal):
    names = ", ".join(f"m{k} [m]" for k in range(20_000))
    row = ", ".join(["0.5"] * 20_000)
    found = read_csv(written(tmp_path, f"time [s], {names}\n0.0, {row}\n0.1, {row}\n"))
    assert len(found.names) == 20_000 and found.column("m19999").tolist() == [0.5, 0.5]


def test_a_cell_that_is_too_long_is_refused(tmp_path):
    for text in ("time [s], x [m]\n0.0, " + "1" * 200_000 + "\n", "time [s], " + "x" * 200_000 + "\n0.0, 1\n"):
        with pytest.raises(FileFormatError, match=r"field larger than field limit|expected a number"):
            read_csv(written(tmp_path, text))


def still(rows=3):
    return Trajectory(np.arange(float(rows)), np.zeros((rows - 1, 0)), np.zeros((rows, 1)), ("x",), ("m",))


def test_an_hdf5_file_that_would_fill_the_memory_is_refused(tmp_path, frugal):
    path = TrajectorySet((still(),)).save(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        group = file["trajectory_000000"]
        del group["values"]
        group.create_dataset("values", shape=(400_000_000, 1), dtype=np.float64, chunks=(100_000, 1))
    with pytest.raises(FileFormatError, match=r"would take 2\.98 GB of memory"):
        TrajectorySet.load(path)


def test_a_strange_hash_or_text_in_an_hdf5_file_is_refused(tmp_path):
    path = TrajectorySet((still(),)).save(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["sha256"] = np.arange(3)
    with pytest.raises(FileFormatError, match="damaged"):
        TrajectorySet.load(path)


def test_names_of_thousands_of_digits_are_names(tmp_path):
    text = "time [s], point, x [m], y [m]\n" + "".join(f"{t}, {'9' * 5000}, 1, 2\n" for t in (0, 1))
    assert read_points_csv(written(tmp_path, text)).num_steps == 1


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig"])
def test_the_encodings_of_windows_are_read(tmp_path, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes("# by Jürgen\r\ntime [s], angle [°]\r\n0.0, 90\r\n0.1, 180\r\n".encode(encoding))
    np.testing.assert_allclose(read_recordings([path])[0].values[:, 0], [np.pi / 2, np.pi])


def test_tracked_points_may_begin_with_a_comment(tmp_path):
    text = "# by hand\n\ntime [s], point, x [m], y [m]\n" + "".join(f"{t}, 0, 1, 2\n" for t in (0, 1))
    assert read_recordings([written(tmp_path, text)])[0].names == ("point0.x", "point0.y")


# --- TOML and JSON ----------------------------------------------------------------------------------------------------

BAD_TOML = {
    "deep list": "a = " + "[" * 3000 + "]" * 3000,
    "list 60 deep": "a = " + "[" * 60 + "]" * 60,
    "deep key": ".".join(["a"] * 3000) + " = 1",
    "long number": "a = " + "1" * 5000,
    "huge": "# " + "x" * 5 * 2**20,
    "no text": "a = \udcff",
}
BAD_JSON = {
    "deep list": '{"a": ' + "[" * 3000 + "]" * 3000 + "}",
    "deep table": '{"a": ' * 3000 + "1" + "}" * 3000,
    "long number": '{"a": ' + "1" * 5000 + "}",
    "NaN": '{"a": NaN}',
    "doubled": '{"a": 1, "a": 2}',
}


@pytest.mark.parametrize("content", BAD_TOML.values(), ids=BAD_TOML)
def test_toml_that_is_nested_huge_or_no_text(tmp_path, frugal, content):
    path = tmp_path / "a.toml"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(FileFormatError, match=r"a\.toml"):
        read_toml(path)


@pytest.mark.parametrize("content", BAD_JSON.values(), ids=BAD_JSON)
def test_json_that_is_nested_or_says_two_things(tmp_path, frugal, content):
    with pytest.raises(FileFormatError, match=r"a\.json"):
        read_json(written(tmp_path, content, "a.json"))


@pytest.mark.parametrize("path", ["/dev/zero", ".", "a\0b", "no/such"])
@pytest.mark.parametrize("read", [read_toml, read_json, read_csv])
def test_what_is_no_file_is_not_read(frugal, read, path):
    with pytest.raises(FileFormatError, match="cannot read"):
        read(path)


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("stiffness_ratio", "stifness_ratio", FileFormatError, "cables 1: unknown entry 'stifness_ratio'"),
        ("[[cables]]", "mass = 1.0\n[[cables]]", FileFormatError, "rods 1: unknown entry 'mass'"),
        ('name = "c1"', 'name = "c0"', StructureError, "two cables are named 'c0'"),
        ("stiffness_ratio = 2.0", "stiffness_ratio = true", FileFormatError, "cables 1: stiffness_ratio is True"),
        ("stiffness_ratio = 2.0", "stiffness_ratio = nan", FileFormatError, "cables 1: stiffness_ratio is nan"),
        ("stiffness_ratio = 2.0", "rest_ratio = inf", FileFormatError, "cables 1: rest_ratio is inf"),
        ("[0.0, 0.0, 0.0]", "[0.0, false, 0.0]", FileFormatError, r"nodes\.a\[1\] is False"),
        ("[[rods]]", "[rod]\n[[rods]]", FileFormatError, "unknown entry 'rod'"),
    ],
)
def test_typos_in_a_structure_are_named(tmp_path, old, new, error, message):
    assert old in STRUCTURE
    path = written(tmp_path, STRUCTURE.replace(old, new, 1), "robot.toml")
    with pytest.raises(error, match=message):
        system("tensegrity").model(path)


def places(document, path=()):
    """Where something stands in a document, and what."""
    for key, value in list(document.items() if isinstance(document, dict) else enumerate(document)):
        yield (*path, key), value
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("owner", [system.name for system in systems().values() if system.read_model])
def test_every_typo_and_no_number_in_a_model_file_is_refused(tmp_path, owner):
    """An "s" behind any name, True and NaN in the place of any number."""
    seed, file, tried = read_toml(MODELS / f"{owner}.toml"), tmp_path / "model.toml", 0
    for place, value in places(seed):
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        for wrong in (*([True, float("nan")] if numeric else []), *(["s"] if isinstance(place[-1], str) else [])):
            document = copy.deepcopy(seed)
            table = reduce(getitem, place[:-1], document)
            if wrong == "s":
                table[f"{place[-1]}s"] = table.pop(place[-1])
            else:
                table[place[-1]] = wrong
            file.write_bytes(toml(document))
            tried += 1
            with pytest.raises(SoftgymError):
                system(owner).model(file)
                pytest.fail(f"{place} taken with {wrong}")
    assert tried > 3


@pytest.mark.parametrize("owner", systems())
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[simulater]\ncontact = 1\n[parameters]\n", "unknown entry 'simulater'"),
        ("[parameters]\n{name} = true\n", "{name} is True, expected a number"),
        ("[parameters]\n{name} = {{ value = 1.0, units = 'm' }}\n", "{name}: unknown entry 'units'"),
        ("[parameters]\n{name} = nan\n", "{name} is nan, expected a number"),
        ("[parameters]\n{name} = 1" + "0" * 400 + "\n", "{name} is 1000"),
        ("[parameters]\n[parameters.{name}]\nvalue = '1'\n", "{name} is '1'"),
    ],
)
def test_typos_in_a_file_of_constants_are_named(tmp_path, owner, text, message):
    kind = type(systems()[owner].simulator().default_parameters)
    path = written(tmp_path, text.format(name=kind.names()[0]), "fit.toml")
    with pytest.raises(FileFormatError, match=message.format(name=kind.names()[0])):
        kind.load(path)
    for value in ("abc", None, 10**400, [[1.0]]):
        with pytest.raises(ParameterError, match=kind.names()[0]):
            kind(**{kind.names()[0]: value})


# --- Storage ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_and_a_folder_that_cannot_be_made_are_named(tmp_path, monkeypatch):
    for folder in ("/proc/none", "/dev/null/a"):
        with pytest.raises(StorageError, match=r"cannot write .*name another folder"):
            TrajectorySet((still(),)).save(f"{folder}/a.h5")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(StorageError, match="No space left on device"):
        write_atomically(tmp_path / "a.toml", b"1")
    assert issubclass(StorageError, SoftgymError) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "device"])
def test_what_is_no_file_is_not_written_over(tmp_path, make):
    """`--out /dev/full` replaced the device by a file, for root."""
    make(tmp_path / "a.toml")
    before = os.stat(tmp_path / "a.toml").st_ino
    with pytest.raises(StorageError, match=r"a\.toml: there is something else of that name; name another file"):
        write_atomically(tmp_path / "a.toml", b"1")
    assert os.stat(tmp_path / "a.toml").st_ino == before and len(list(tmp_path.iterdir())) == 1


def test_commands_that_cannot_write_end_in_a_sentence(tmp_path, capsys):
    """What was recorded or evaluated goes nowhere; no traceback."""
    place = tmp_path / "file"
    place.touch()
    assert run_script(load_script("scripts/record.py"), "block", "--out", place / "a.h5") == 2
    assert "error: cannot write" in capsys.readouterr().err
    policy = ROOT / "agents/policies/VineGrow-v0.npz"
    told = ("VineGrow-v0", "--episodes", 1, "--out", place / "a.json")
    assert run_script(load_script("scripts/evaluate.py"), policy, *told) == 2
    assert "error: cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("subcommand", "words", "said"),
    [
        ("record", ("block", "--count", 0), "--count is 0, expected a whole number >= 1"),
        ("record", ("block", "--budget", -5), "--budget is -5"),
        ("record", ("block", "--seed", -1), "--seed is -1, expected a whole number >= 0"),
        ("record", ("block", "--out", "y.csv"), "y.csv ends in '.csv', expected .h5 or .hdf5"),
        ("train", ("VineGrow-v0", "--seed", -1), "seed is -1"),
        ("train", ("VineGrow-v0", "--seed", 2**32), "seed is 4294967296"),
        ("evaluate", (ROOT / "agents/policies/VineGrow-v0.npz", "VineGrow-v0", "--seed", -1), "seed is -1"),
        ("speed", ("--system", "block", "--rounds", 0), "--rounds is 0"),
        ("transfer", (ROOT / "experiments/vine_grow_mpc.toml", "--seeds", 0), "seeds"),
    ],
)
def test_numbers_that_no_run_can_use_are_refused(tmp_path, capsys, monkeypatch, subcommand, words, said):
    """Tracebacks, recordings of nothing, and a study of its own number of seeds where 0 were asked for."""
    if subcommand in ("train", "evaluate"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run_script(load_script(f"scripts/{subcommand}.py"), *words) == 2
    assert said in capsys.readouterr().err and not list(tmp_path.rglob("*.h5"))


def test_a_file_without_recordings_is_named(tmp_path):
    path = TrajectorySet(()).save(tmp_path / "none.h5")
    with pytest.raises(FileFormatError, match=r"none\.h5 holds no recordings"):
        read_recordings([path])


def test_an_empty_file_is_no_recording(tmp_path):
    with pytest.raises(FileFormatError, match="is empty: it has 0 lines, expected a header and at least one row; export it"):
        read_recordings([written(tmp_path, "", "a.txt")])
