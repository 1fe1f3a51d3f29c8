"""HDF5 files of trajectories: one group each, and a hash of all numbers; damaged or too large files are refused."""

from __future__ import annotations

import io
import json
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from ..core.errors import FileFormatError
from ..core.files import write_atomically

if TYPE_CHECKING:
    from ..core.trajectory import Trajectory

FORMAT = "softgym_envs trajectories 1"
HEAPS = (b"HEAP\0\0\0\0", b"GCOL\1\0\0\0")
"""Beginnings of HDF5's local and global heaps; their size follows as 8 bytes."""
MOST_BYTES, INFLATION = 64 * 2**20, 100
"""Memory that a recording may take: `MOST_BYTES` plus `INFLATION` times the size of its file."""
ARRAYS, LABELS = ("times", "controls", "values"), ("names", "units", "control_names", "control_units")
"""Fields of a trajectory that are numbers, and those that are text."""
SOME = ("before", "commanded", "offsets")
"""Fields that only some trajectories have."""


def write(path: Path, sha256: str, trajectories: Sequence[Trajectory]) -> Path:
    """Write a file; it appears whole or not at all."""
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file.attrs["format"] = FORMAT
        file.attrs["sha256"] = sha256
        for index, trajectory in enumerate(trajectories):
            group = file.create_group(f"trajectory_{index:06d}")
            for name in ARRAYS:
                group.create_dataset(name, data=getattr(trajectory, name))
            for name in SOME:
                if len(getattr(trajectory, name)):
                    group.create_dataset(name, data=getattr(trajectory, name))
            for name in LABELS:
                group.create_dataset(name, data=list(getattr(trajectory, name)), dtype=h5py.string_dtype())
            group.attrs["substeps"] = int(trajectory.substeps)
            group.create_dataset("metadata", data=json.dumps(dict(trajectory.metadata)), dtype=h5py.string_dtype())
    write_atomically(path, stream.getvalue())
    return path


def read(path: Path) -> tuple[list[dict[str, Any]], str]:
    """Fields of every trajectory of a file, and the hash that the file states.

    Raises:
        FileFormatError: No such file, not HDF5, not in this form, or damaged.
    """
    if not path.is_file():
        raise FileFormatError(f"cannot read {path}: no such file")
    try:
        _check_heaps(path)
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise FileFormatError(
                    f"{path}: format is {file.attrs.get('format')!r}, expected {FORMAT!r}; write the arrays of another program "
                    "with np.savez, or as CSV with a header 'time [s], x [mm]'"
                )
            most = MOST_BYTES + INFLATION * path.stat().st_size
            return [_fields(file[name], most) for name in sorted(file)], str(file.attrs["sha256"])
    except FileFormatError:
        raise
    except (OSError, KeyError, AttributeError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise FileFormatError(f"{path} is no HDF5 file of trajectories, or it is damaged: {error}") from error


def _check_heaps(path: Path) -> None:
    """Refuse a file with a heap that claims to be larger than the file: the HDF5 library would reserve its memory."""
    size = path.stat().st_size
    if not size:
        raise FileFormatError(f"{path} is empty")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for kind in HEAPS:
            place = content.find(kind)
            while place >= 0:
                claimed = int.from_bytes(content[place + 8 : place + 16], "little")
                if claimed > size:
                    raise FileFormatError(
                        f"{path} is damaged: a part of it claims to have {claimed} bytes, the file has {size}"
                    )
                place = content.find(kind, place + 8)


def _fields(group: Any, most: int) -> dict[str, Any]:
    """Fields of one trajectory; `most` bytes of memory are allowed."""
    if (size := sum(part.size * part.dtype.itemsize for part in group.values())) > most:
        raise FileFormatError(
            f"{group.file.filename}: {group.name} would take {size / 2**30:.3g} GB of memory, far more than it has"
        )
    there = (*ARRAYS, *(name for name in SOME if name in group))
    arrays = {name: np.asarray(group[name][()], dtype=np.float64) for name in there}
    labels = {name: tuple(str(label) for label in group[name].asstr()[()]) for name in LABELS}
    metadata = json.loads(group["metadata"].asstr()[()])
    return {**arrays, **labels, "substeps": int(group.attrs["substeps"]), "metadata": metadata}
