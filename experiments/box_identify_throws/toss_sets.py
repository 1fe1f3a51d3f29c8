"""Contents of the two sets of real throws, and their readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems.box.flight import FLIGHT_ROWS
from softgym_envs.systems.box.model import cube, square


@dataclass(frozen=True)
class Set:
    """One set of throws."""

    model: str
    rate: float
    """[Hz]"""
    dt: float
    """Physics step of ours, and of the MuJoCo model [s]."""
    mujoco_model_dt: float
    poses: int
    width: float
    """[m] Unit of errors of place."""
    turned: float
    """[rad] Recorded angle at rest on a face, due to the marker's mounting; 0 if attitudes are quaternions."""
    literature: Mapping[str, float]
    """Known parameters of it."""
    stages: tuple[str, ...]
    """Stages of the procedure to run one by one; none: the procedure, then `slid`."""


KNOWN = {"friction": 0.18, "restitution": 0.125, "inertia": 1.196}
SETS = {
    "cube": Set("cube", 148.0, 1 / 296, 1 / 1480, 7, 0.1048, 0.0, KNOWN, ()),
    "square": Set("square", 250.0, 1 / 500, 1 / 2500, 3, 0.06, -0.0334, {}, ("strike", "slid")),
}


def read(path: Path, kind: Set) -> list[Trajectory]:
    """Poses of every throw, in the order of their names' numbers.

    Raises:
        DataError: No such file, or an array that is no throw of this set.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], dtype=np.float64) for name in file.files}
    except (OSError, ValueError, EOFError):
        raise DataError(f"{path} is no npz file of arrays of numbers, or cannot be read") from None
    names = sorted(arrays, key=lambda name: (len(name), name))
    return [_throw(path, name, arrays[name], kind) for name in names]


def _throw(path: Path, name: str, rows: np.ndarray, kind: Set) -> Trajectory:
    if rows.ndim != 2 or rows.shape[1] < kind.poses or len(rows) <= FLIGHT_ROWS or not np.isfinite(rows[:, : kind.poses]).all():
        raise DataError(
            f"{path}: {name} has shape {rows.shape}, expected more than {FLIGHT_ROWS} rows of {kind.poses} columns or more"
        )
    model = cube() if kind.model == "cube" else square()
    poses, layout = rows[:, : kind.poses].copy(), model.layout
    if kind.turned:
        poses[:, 2] -= kind.turned
    else:
        turns = poses[:, 3:]
        turns *= np.cumprod(np.concatenate([[1.0], np.where((turns[1:] * turns[:-1]).sum(axis=1) < 0, -1.0, 1.0)]))[:, None]
    return Trajectory(
        times=np.arange(len(poses)) / kind.rate,
        controls=np.zeros((len(poses) - 1, len(model.control_names))),
        values=poses,
        names=layout.names[: kind.poses],
        units=layout.units[: kind.poses],
        control_names=model.control_names,
        control_units=model.control_units,
        substeps=round(1.0 / (kind.rate * kind.dt)),
    )
