"""Files of other programs: which format a file has, by its first bytes, and the table that it holds.

Each format has a module that reads it, imported when it is used, or a sentence that says what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...core.errors import FileFormatError
from ...core.task import load
from ..tables import Table

HEAD = 1 << 16
"""Bytes from which a format is known."""
_HERE = "softgym_envs.data.formats"


@dataclass(frozen=True)
class Format:
    """A format of files."""

    name: str
    matches: Callable[[bytes, str], bool]
    """(first bytes, the same as text) -> whether a file has it."""
    reader: str = ""
    """Function path -> table."""
    remedy: str = ""
    """What to do with files that have no reader."""


def _begins(*signs: bytes) -> Callable[[bytes, str], bool]:
    return lambda head, text: head.startswith(signs)


def _looks(pattern: str) -> Callable[[bytes, str], bool]:
    return lambda head, text: re.match(pattern, text) is not None


RECORDINGS = Format("HDF5", _begins(b"\x89HDF\r\n\x1a\n"))
"""Files of `TrajectorySet.save`, which `TrajectorySet.load` reads."""
PLAIN = Format("table of text", lambda head, text: True, f"{_HERE}.delimited:read")
"""Any other text."""

FORMATS: tuple[Format, ...] = (
    Format(
        "DeepLabCut HDF5",
        lambda head, text: head.startswith(b"\x89HDF") and (b"df_with_missing" in head or b"pandas_type" in head),
        remedy="its names are pickled, which is never read: use the CSV that DeepLabCut writes beside it (save_as_csv=True)",
    ),
    RECORDINGS,
    Format("MATLAB .mat 7.3", _begins(b"MATLAB 7.3 MAT-file"), f"{_HERE}.arrays:read_mat73"),
    Format("MATLAB .mat", _begins(b"MATLAB 5.0 MAT-file"), f"{_HERE}.arrays:read_mat"),
    Format("NumPy .npy", _begins(b"\x93NUMPY"), f"{_HERE}.arrays:read_npy"),
    Format(
        "Excel workbook",
        lambda head, text: head.startswith(b"PK\x03\x04") and (b"xl/" in head or b"[Content_Types]" in head),
        remedy="save its sheet as `CSV UTF-8`, with a header 'time [s], x [mm]'",
    ),
    Format("Excel 97 workbook", _begins(b"\xd0\xcf\x11\xe0"), remedy="save its sheet as `CSV UTF-8`"),
    Format("NumPy .npz", lambda head, text: head.startswith(b"PK\x03\x04") and b".npy" in head, f"{_HERE}.arrays:read_npz"),
    Format("zip archive", _begins(b"PK\x03\x04"), remedy="unpack it, and give the files in it"),
    Format("gzip archive", _begins(b"\x1f\x8b"), remedy="unpack it with gunzip, and give the file in it"),
    Format("ROS 1 bag", _begins(b"#ROSBAG V2.0"), f"{_HERE}.ros:read_bag"),
    Format("ROS 1 bag of an old version", _begins(b"#ROS"), remedy="`rosbag fix` makes a bag of version 2.0"),
    Format("ROS 2 bag", _begins(b"\x89MCAP0\r\n", b"SQLite format 3\0"), f"{_HERE}.ros:read_bag"),
    Format("Parquet", _begins(b"PAR1"), remedy="in Python, `pandas.read_parquet(...).to_csv('run.csv', index=False)`"),
    Format("pickle", _begins(b"\x80\x03", b"\x80\x04", b"\x80\x05"), remedy="nothing is unpickled: save arrays with np.savez"),
    Format("PDF", _begins(b"%PDF"), remedy="give the numbers as CSV, with a header 'time [s], x [mm]'"),
    Format(
        "film",
        lambda head, text: (
            head[4:8] == b"ftyp" or (head[:4] == b"RIFF" and head[8:12] == b"AVI ") or head.startswith(b"\x1a\x45\xdf\xa3")
        ),
        remedy="`softgym-envs track` makes tracked points of it",
    ),
    Format(
        "C3D",
        lambda head, text: len(head) >= 512 and head[1] == 0x50 and 2 <= head[0] < 128 and b"\0" in head,
        f"{_HERE}.c3d:read",
    ),
    Format("Motive CSV", _looks(r'"?Format Version"?[,;\t]'), f"{_HERE}.motive:read"),
    Format(
        "Vicon CSV",
        _looks(r'"?(Trajectories|Segments|Objects|Joints|Devices|Model Outputs|Events)"?[,;\t ]*\n'),
        f"{_HERE}.vicon:read",
    ),
    Format("Qualisys TSV", _looks(r"NO_OF_FRAMES\t"), f"{_HERE}.qualisys:read"),
    Format("DeepLabCut CSV", _looks(r'"?scorer"?,'), f"{_HERE}.deeplabcut:read"),
    Format("OpenSim .trc", _looks(r"PathFileType\s"), f"{_HERE}.opensim:read_trc"),
    Format(
        "OpenSim .mot or .sto",
        lambda head, text: re.search(r"(?im)^endheader\s*$", text) is not None,
        f"{_HERE}.opensim:read_motion",
    ),
    Format("rostopic CSV", _looks(r"%?time,(.*,)?field\."), f"{_HERE}.ros:read_csv"),
    Format("JSON", _looks(r"\s*[\[{]\s*[\"\[{\d\]}-]"), remedy="write its columns as CSV, with a header 'time [s], x [mm]'"),
    Format("XML or HTML", _looks(r"\s*<[?!a-zA-Z]"), remedy="write its columns as CSV, with a header 'time [s], x [mm]'"),
    Format(
        "binary file of no known format",
        lambda head, text: b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff"),
        remedy="export it as CSV, with a header 'time [s], x [mm]'",
    ),
    PLAIN,
)
"""All formats, in the order in which they are tried; the last one takes any text."""


def format_of(path: Path) -> Format:
    """The format of a file, or of the folder of a ROS 2 bag, by what it holds.

    Raises:
        FileFormatError: No such file, it is empty, or it is another folder.
    """
    if path.is_dir():
        if (path / "metadata.yaml").exists():
            return Format("ROS 2 bag", lambda head, text: True, f"{_HERE}.ros:read_bag")
        raise FileFormatError(f"cannot read {path}: it is a folder, and no ROS 2 bag (metadata.yaml); give the files in it")
    try:
        special, head = path.exists() and not path.is_file(), b""
        if not special:
            with path.open("rb") as file:
                head = file.read(HEAD)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if special:
        raise FileFormatError(f"cannot read {path}: it is no file")
    if not head:
        raise FileFormatError(f"{path} is empty: it has 0 lines, expected a header and at least one row; export it again")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = head[: len(head) // 2 * 2].decode("utf-16", errors="replace")
    else:
        text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return next(form for form in FORMATS if form.matches(head, text))


def read_table(path: str | Path, names: Sequence[str] = (), *, numbered: bool = False) -> Table:
    """The table of a file of any format with a reader.

    Args:
        path: The file, or the folder of a ROS 2 bag.
        names: Names of the columns of a text file without header.
        numbered: Whether the columns of such a file are called column0, column1, ... instead, and a count of rows or a clock
            what they are.

    Raises:
        FileFormatError: It cannot be read; the message names the format, and what to do.
    """
    form = format_of(Path(path))
    if not form.reader:
        remedy = form.remedy or "`softgym-envs record` and `TrajectorySet.save` write such files for `sysid.load`"
        raise FileFormatError(f"{path} ({form.name}) has no reader here: {remedy}")
    if form is PLAIN:
        found: Table = load(form.reader)(Path(path), names, numbered=numbered)
    elif names:
        raise FileFormatError(f"{path} is a {form.name} file, which has names of its own: leave `names` out of the mapping")
    else:
        found = load(form.reader)(Path(path))
    return found if found.source != Path() else replace(found, source=Path(path))
