"""ROS: CSV of `rostopic echo -p`, and bags of ROS 1 and ROS 2, read by rosbags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import FileFormatError, needed
from ..tables import Table
from .text import cells_of, columns_of, lines_of

POSE = (
    (r"(.*?)(?:pose\.)*(?:position|translation|point)\.([xyz])", "m", ""),
    (r"(.*?)(?:pose\.)*(?:orientation|rotation)\.([wxyz])", "-", "q"),
)
"""Pattern of a message's field -> the unit of ROS (REP 103), and what stands before the axis in our names."""
ASIDE = (
    (r".*linear_acceleration\.[xyz]|.*accel\.linear\.[xyz]", "m/s^2"),
    (r".*angular_velocity\.[xyz]|.*angular\.[xyz]|(?:.*\.)?velocity(\[\d+\]|\..+)", "rad/s"),
    (r".*linear\.[xyz]", "m/s"),
    (r".*force\.[xyz]", "N"),
    (r".*torque\.[xyz]|(?:.*\.)?effort(\[\d+\]|\..+)", "N m"),
    (r"(?:.*\.)?position(\[\d+\]|\..+)", "rad"),
)
"""Pattern of a field that is read only if a mapping names it -> its unit in ROS."""


def read_csv(path: Path) -> Table:
    """Poses of a CSV of `rostopic echo -p`; all other fields are aside. Times are those of the header, where it has some."""
    lines, where = lines_of(path), f"{path} (rostopic CSV)"
    rows = [(number, cells_of(where, number, line, ",")) for number, line in enumerate(lines, 1) if line.strip()]
    header = rows[0][1]
    for number, row in rows[1:]:
        if len(row) != len(header):
            raise FileFormatError(f"{where}, line {number} has {len(row)} cells, the header has {len(header)}: record it again")
    columns = columns_of(where, [row for _, row in rows[1:]], ",") or ((),) * len(header)
    fields = [re.sub(r"([a-z])(\d+)(?=\.|$)", r"\1[\2]", name.removeprefix("field.")) for name in header]
    return _table(path, where, dict(zip(fields, columns, strict=True)), [number for number, _ in rows[1:]])


def read_bag(path: Path) -> Table:
    """Poses of the only topic with numbers, or of all under the topics' names; a row for each message.

    Raises:
        FileFormatError: It cannot be read, or holds no messages with numbers.
        MissingDependencyError: rosbags is not installed.
    """
    with needed(f"{path} is a ROS bag, which needs rosbags", "formats"):
        from rosbags.highlevel import AnyReader, AnyReaderError
        from rosbags.typesys import Stores, get_typestore
    if path.is_file() and path.suffix != ".bag":
        if not (path.parent / "metadata.yaml").exists():
            raise FileFormatError(
                f"{path} (ROS 2 bag) has no metadata.yaml beside it: `ros2 bag reindex {path.parent}` writes one"
            )
        path = path.parent
    topics: dict[str, tuple[list[int], list[dict[str, float]]]] = {}
    try:
        with AnyReader([path], default_typestore=get_typestore(Stores.ROS2_HUMBLE)) as reader:
            for connection, received, raw in reader.messages():
                fields: dict[str, float] = {}
                message = reader.deserialize(raw, connection.msgtype)
                _flatten(message, "", fields)
                fields = _with_joints(fields, getattr(message, "name", None))
                stamps, rows = topics.setdefault(connection.topic, ([], []))
                stamps.append(_stamp(message) or received)
                rows.append(fields)
    except AnyReaderError as error:
        raise FileFormatError(f"{path} (ROS bag) cannot be read: {error}; `rosbag reindex` may mend it") from error
    except KeyError as error:
        raise FileFormatError(f"{path} (ROS bag) has messages of unknown type {error}: record their numbers as CSV") from error
    found = {topic: part for topic, part in topics.items() if any(part[1])}
    if not found:
        raise FileFormatError(f"{path} (ROS bag) has no messages with numbers: record poses or joint states")
    return _merged(path, found)


def _merged(path: Path, topics: Mapping[str, tuple[list[int], list[dict[str, float]]]]) -> Table:
    """One table of all topics: a row for each time, NaN where a topic has no message."""
    stamps = np.unique(np.concatenate([np.array(times, dtype=np.int64) for times, _ in topics.values()]))
    columns: dict[str, Any] = {"%time": [str(stamp) for stamp in stamps.tolist()]}
    for topic, (times, rows) in topics.items():
        places = np.searchsorted(stamps, np.array(times, dtype=np.int64))
        before = "" if len(topics) == 1 else topic.strip("/").replace("/", ".") + "."
        for field in dict.fromkeys(name for row in rows for name in row):
            column = np.full(len(stamps), np.nan)
            column[places] = [row.get(field, np.nan) for row in rows]
            columns[before + field] = column
    return _table(path, f"{path} (ROS bag)", columns, range(1, len(stamps) + 1))


def _flatten(value: Any, name: str, fields: dict[str, float]) -> None:
    """Numbers of a message under the names of their fields; texts and stamps are left out."""
    if isinstance(value, (bool, int, float, np.number)):
        fields[name] = float(value)
    elif isinstance(value, (list, tuple, np.ndarray)):
        for place, entry in enumerate(value if len(value) <= 100 else ()):
            _flatten(entry, f"{name}[{place}]", fields)
    elif hasattr(value, "__dataclass_fields__") and not name.endswith("stamp"):
        for field in value.__dataclass_fields__:
            if field not in ("header", "__msgtype__"):
                _flatten(getattr(value, field), f"{name}.{field}".lstrip("."), fields)


def _with_joints(fields: dict[str, float], joints: Any) -> dict[str, float]:
    """Fields of a message of joint states under the names of its joints."""
    named = {}
    for field, value in fields.items():
        entry = re.fullmatch(r"(position|velocity|effort)\[(\d+)\]", field)
        named[f"{entry[1]}.{joints[int(entry[2])]}" if entry and joints else field] = value
    return named


def _stamp(message: Any) -> int:
    """Time of the header [ns]; 0 if there is none."""
    stamp = getattr(getattr(message, "header", None), "stamp", None)
    return 0 if stamp is None else int(stamp.sec) * 10**9 + int(stamp.nanosec)


def _table(path: Path, where: str, columns: Mapping[str, Sequence[str]], lines: Sequence[int]) -> Table:
    """Table of fields, with our names of poses."""
    if not len(lines):
        raise FileFormatError(f"{where} has no messages: record it again")
    clock = next((n for n in ("header.stamp", "%time", "time") if n in columns and str(columns[n][0]) not in ("0", "")), None)
    if clock is None:
        raise FileFormatError(f"{where} has no times (%time or header.stamp): record it again")
    named = {field: ("time", "ns", False) if field == clock else _named(field) for field in columns}
    names, units, asides = zip(*named.values(), strict=True)
    aside = frozenset(name for name, apart in zip(names, asides, strict=True) if apart)
    return Table(where, names, units, lines, tuple(columns.values()), aside=aside, source=path)


def _named(field: str) -> tuple[str, str, bool]:
    """Our name of a message's field, its unit, and whether it is aside."""
    for pattern, unit, before in POSE:
        if pose := re.fullmatch(pattern, field):
            body = re.sub(r"(^|\.)transform\.$", r"\1", pose[1]).strip(".")
            return f"{body}.{before}{pose[2]}".lstrip("."), unit, False
    return field, next((unit for pattern, unit in ASIDE if re.fullmatch(pattern, field)), ""), True
