"""Arrays without units: MATLAB .mat (5 and 7.3), NumPy .npz and .npy. Nothing is unpickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import FileFormatError
from ..tables import Table
from .delimited import of_quaternions, usual_names
from .text import name_and_unit


def read_mat(path: Path) -> Table:
    """Numeric arrays of a .mat file, also those in structs, as `data.q`."""
    from scipy.io import loadmat

    try:
        content = loadmat(path, simplify_cells=True)
    except Exception as error:  # scipy raises many for a damaged file
        raise FileFormatError(f"{path} (MATLAB .mat) cannot be read: {error}; save it again with `save -v7`") from error
    found = {name: value for name, value in content.items() if not name.startswith("__")}
    return table_of_arrays(
        path, "MATLAB .mat", _flat(found), "save times and columns as plain arrays, not as a table or object"
    )


def read_mat73(path: Path) -> Table:
    """Numeric arrays of a .mat file of version 7.3, which is HDF5 with axes in reverse order."""
    import h5py

    found: dict[str, Any] = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub" and not name.startswith("#"):
            found[name.replace("/", ".")] = np.asarray(item).T

    try:
        with h5py.File(path) as file:
            file.visititems(keep)
    except OSError as error:
        raise FileFormatError(f"{path} (MATLAB .mat 7.3) cannot be read: {error}; save it again with `save -v7`") from error
    return table_of_arrays(path, "MATLAB .mat 7.3", found, "save times and columns as plain arrays, not as a table or object")


def read_npz(path: Path) -> Table:
    """Numeric arrays of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, NotImplementedError, zlib.error, KeyError) as error:
        hint = "save arrays of numbers, not objects" if "pickle" in str(error) else "save it again with np.savez"
        raise FileFormatError(f"{path} (NumPy .npz) cannot be read: {error}; {hint}") from error
    return table_of_arrays(path, "NumPy .npz", found, "save it with np.savez(path, time=..., x=...)")


def read_npy(path: Path) -> Table:
    """One array of an .npy file; an array with names has these."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileFormatError(f"{path} (NumPy .npy) cannot be read: {error}; save arrays of numbers, not objects") from error
    arrays = {name: found[name] for name in found.dtype.names} if found.dtype.names else {"data": found}
    return table_of_arrays(path, "NumPy .npy", arrays, "save an array (rows, columns)")


def table_of_arrays(path: Path, kind: str, arrays: Mapping[str, Any], hint: str) -> Table:
    """Table of all arrays with one entry, or row, for each time: `q[0]`, `q[1]` of an array `q` with two columns.

    The number of times is that of the array whose name is a time, else the largest length that two arrays share.

    Raises:
        FileFormatError: There are none.
    """
    where = f"{path} ({kind})"
    plain = {
        name: _tall(value) for name, value in arrays.items() if isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
    }
    plain = {name: value for name, value in plain.items() if value.ndim == 2 and value.size > 1}
    usual = usual_names([name_and_unit(where, name)[0].rpartition(".")[2] for name in plain])
    clock = [name for name, known in zip(plain, usual, strict=True) if known == "time"]
    rows = len(plain[clock[0]]) if clock else max((len(value) for value in plain.values()), default=0)
    names, columns = [], []
    for name, value in plain.items():
        value = value if len(value) == rows else value.T
        if len(value) == rows:
            width = value.shape[1]
            names += [name if width == 1 else f"{name}[{k}]" for k in range(width)]
            columns += list(value.T.astype(np.float64))
    if rows < 2:
        there = ", ".join(f"{name} ({type(value).__name__})" for name, value in list(arrays.items())[:6]) or "nothing"
        raise FileFormatError(f"{where} has no columns of numbers, but {there}: {hint}")
    split = [name_and_unit(where, name) for name in names]
    found = usual_names([name for name, _ in split])
    if clock and "time" not in found:
        found[names.index(clock[0])] = "time"
    units = of_quaternions(found, [unit for _, unit in split])
    return Table(where, tuple(found), tuple(units), range(1, rows + 1), tuple(columns), source=path)


def _tall(value: Any) -> Any:
    """An array as columns: a vector is one."""
    value = np.squeeze(value)
    return value[:, None] if value.ndim == 1 else value


def _flat(content: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Entries of nested structs under the names that MATLAB uses."""
    found: dict[str, Any] = {}
    for name, value in content.items():
        found.update(_flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value})
    return found
