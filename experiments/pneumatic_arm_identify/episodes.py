"""Recordings of the pneumatic arm: episodes without stale frames, their split, and stretches to predict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import FileFormatError

Array = NDArray[np.float64]
H = 0.01
"""[s] Length of a frame; the source does not state it."""
RATES = np.array([0.1063, 0.0974, 0.1022, 0.0819])
"""[rad] Motion of a joint in a frame at a recorded rate of one, by least squares over frames that move less than 0.15 rad."""
STALE = 0.05
"""[rad] A frame that deviates by more from the recorded rates belongs to another episode."""
ROBUST = 0.15
"""[rad] Errors of a fit beyond this count linearly."""
PAST = 12
"""Frames before the start that predictors see."""


def load(path: Path) -> tuple[list[Array], int]:
    """Episodes (T, 12): 4 angles [rad], 8 pressures; and the number of stale frames.

    Stale are the first row of an episode, and all but the longest stretch without a jump that the recorded rates contradict.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            data, lengths = file["data"].astype(np.float64), file["length"].astype(int)
    except (OSError, KeyError, ValueError) as error:
        raise FileFormatError(f"{path}: {error}; expected an npz file with `data` (frames, 16) and `length`") from None
    if data.ndim != 2 or data.shape[1] != 16 or lengths.sum() != len(data):
        raise FileFormatError(f"{path}: data is {data.shape}, lengths add up to {lengths.sum()}; expected (that many, 16)")
    if not np.isfinite(data).all():
        raise FileFormatError(
            f"{path}: row {int(np.argmin(np.isfinite(data).all(axis=1)))} of data is not finite; leave it out"
        )
    episodes, stale = [], 0
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        frames = data[end - length + 1 : end]
        moved, said = np.diff(frames[:, :4], axis=0), RATES * frames[:, 4:8]
        odd = np.minimum(np.abs(moved - said[1:]), np.abs(moved - said[:-1])).max(axis=1) > STALE
        cuts = [0, *(np.flatnonzero(odd) + 1), len(frames)]
        longest = int(np.argmax(np.diff(cuts)))
        kept = frames[cuts[longest] : cuts[longest + 1]]
        stale += int(length) - len(kept)
        episodes.append(kept[:, [0, 1, 2, 3, *range(8, 16)]])
    return episodes, stale


def split(episodes: list[Array], seed: int) -> dict[str, list[Array]]:
    """Split into 60 % training, 20 % validation, 20 % test."""
    order = np.random.default_rng(seed).permutation(len(episodes))
    cuts = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    return {name: [episodes[i] for i in cut] for name, cut in zip(("train", "validation", "test"), cuts, strict=True)}


def windows(episodes: list[Array], horizon: int, stride: int = 5) -> tuple[Array, Array, Array, NDArray[np.int64]]:
    """Past (n, PAST, 12), pressures (n, horizon, 8), angles (n, horizon, 4) of stretches, and their episodes' indices (n,)."""
    starts = [range(0, len(e) - PAST - horizon + 1, stride) for e in episodes]
    parts = [e[s : s + PAST + horizon] for e, each in zip(episodes, starts, strict=True) for s in each]
    whole = np.array(parts).reshape(-1, PAST + horizon, 12)
    owner = np.repeat(np.arange(len(episodes)), [len(each) for each in starts])
    return whole[:, :PAST], whole[:, PAST - 1 : -1, 4:], whole[:, PAST:, :4], owner
