"""Posterior of identified parameters: the table [posterior] of a fit.toml, and a distribution for domain randomisation.

    theta = mean + covariance^(1/2) n + null c,    n normal, c uniform as far as `ends` allow

in fit coordinates (`ParameterSpec.encode`). The data see the covariance's directions. They do not see those of `null`: draws
along these spread over the stated intervals. Legend: p parameters, k directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FileFormatError, OptionError, shown
from .files import check_entries, read_toml
from .parameters import FACTOR, Interval, Parameters
from .simulator import Array

POSTERIOR = "posterior"
"""Value of `randomize` that draws from the file given as `params`."""
SAMPLE_TRIES = 100
"""Draws of which the first within the ends is taken; else the last one is clipped."""
FLAT_VARIANCE = 1e-9
"""Share of a direction below which it does not move a parameter."""
ENTRIES = ("names", "mean", "covariance", "null", "ends")
"""Entries of the table [posterior]."""


@dataclass(frozen=True, eq=False)
class PosteriorParameters:
    """See the module docstring; a `core.parameters.ParameterDistribution`."""

    names: tuple[str, ...]
    mean: Array
    """(p,) fit coordinates."""
    covariance: Array
    """(p, p)"""
    null: Array | None = None
    """(p, k) directions that the data do not see; None: none."""
    ends: Array | None = None
    """(2, p) lowest and highest coordinates of draws; None: the parameters' bounds."""

    def sample(self, rng: np.random.Generator, nominal: Parameters) -> dict[str, float]:
        """Draw the identified parameters; others are left out and keep their nominal value."""
        nominal.check_names(self.names)
        specs = [nominal.specs()[name] for name in self.names]
        bounds = np.array([[spec.encode(end) for end in spec.bounds] for spec in specs]).T
        low, high = bounds if self.ends is None else self.ends
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        theta = self.mean
        for _ in range(SAMPLE_TRIES):
            theta = self.mean + root @ rng.standard_normal(len(root))
            if ((theta >= low) & (theta <= high)).all():
                break
        theta = np.clip(theta, low, high)
        for direction in () if self.null is None else self.null.T:
            theta = theta + direction * rng.uniform(*_reach(theta, direction, low, high))
        drawn = zip(specs, theta, strict=True)
        return {spec.name: float(np.clip(spec.decode(t), *spec.bounds)) for spec, t in drawn}

    def table(self) -> dict[str, Any]:
        """The table [posterior] of a TOML file, and the entry of a JSON file."""
        arrays = {name: getattr(self, name) for name in ENTRIES[1:]}
        return {"names": list(self.names), **{name: value.tolist() for name, value in arrays.items() if value is not None}}

    @classmethod
    def of_table(cls, where: str, table: Any) -> PosteriorParameters:
        """Inverse of `table`.

        Raises:
            FileFormatError: Entries are missing, are no numbers, or do not fit together.
        """
        given = check_entries(where, table, ENTRIES)
        try:
            names = tuple(str(name) for name in given["names"])
            p = len(names)
            shapes = {"mean": (p,), "covariance": (p, p), "null": (p, -1 if p else 0), "ends": (2, p)}
            arrays = {
                name: np.array(given[name], dtype=np.float64).reshape(shape)
                for name, shape in shapes.items()
                if name in given or name in ("mean", "covariance")
            }
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FileFormatError(f"{where} is no posterior: {error}") from error
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise FileFormatError(f"{where} is no posterior: an array holds NaN or infinity")
        return cls(names, **arrays)

    @classmethod
    def read(cls, path: str | Path) -> PosteriorParameters:
        """The posterior in a fit.toml.

        Raises:
            FileFormatError: The file cannot be read, or has none.
        """
        document = read_toml(path)
        if "posterior" not in document:
            raise FileFormatError(f"{path} has no table [posterior]: identify again, or give randomize intervals")
        return cls.of_table(f"{path}: [posterior]", document["posterior"])

    @classmethod
    def joint(cls, parts: Sequence[PosteriorParameters]) -> PosteriorParameters:
        """Independent posteriors, as of a procedure's stages, as one; the last one counts for a parameter in several."""
        last = {name: k for k, part in enumerate(parts) for name in part.names}
        kept = [[j for j, name in enumerate(part.names) if last[name] == k] for k, part in enumerate(parts)]
        sizes = np.cumsum([0, *map(len, kept)])
        covariance, null, ends = np.zeros((sizes[-1], sizes[-1])), [np.zeros((sizes[-1], 0))], list[Array]()
        for part, own, first in zip(parts, kept, sizes[:-1], strict=True):
            block = slice(first, first + len(own))
            covariance[block, block] = part.covariance[np.ix_(own, own)]
            moved = np.zeros((sizes[-1], 0)) if part.null is None else np.zeros((sizes[-1], part.null.shape[1]))
            if part.null is not None:
                moved[block] = part.null[own]
            null.append(moved[:, np.abs(moved).max(axis=0, initial=0.0) > FLAT_VARIANCE])
            ends += [] if part.ends is None else [part.ends[:, own]]
        whole = np.concatenate(ends, axis=1) if len(ends) == len(parts) else None
        names = tuple(part.names[j] for part, own in zip(parts, kept, strict=True) for j in own)
        mean = np.concatenate([part.mean[own] for part, own in zip(parts, kept, strict=True)])
        return cls(names, mean, covariance, np.concatenate(null, axis=1), whole)


def reduced(null: Array) -> Array:
    """The same directions (p, k) with as few entries as can be: in reduced echelon form, by Gauss and Jordan.

    >>> reduced(np.array([[0.6, 0.8], [0.8, -0.6], [0.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    rows, place = null.T.copy(), 0
    for column in range(rows.shape[1]):
        if place == len(rows):
            break
        best = place + int(np.argmax(np.abs(rows[place:, column])))
        if abs(rows[best, column]) <= FLAT_VARIANCE:
            continue
        rows[[place, best]] = rows[[best, place]]
        rows[place] /= rows[place, column]
        others = np.arange(len(rows)) != place
        rows[others] -= np.outer(rows[others, column], rows[place])
        place += 1
    rows = rows[:place]
    return np.where(np.abs(rows) > FLAT_VARIANCE, rows, 0.0).T


def randomize_of(words: Sequence[str]) -> dict[str, Interval] | str | None:
    """`randomize` from words of a command line: "posterior", or "name=low,high" and "name=x,low,high".

    >>> randomize_of(["friction=0.4,0.8", "mass=x,0.8,1.2"])
    {'friction': (0.4, 0.8), 'mass': ('x', 0.8, 1.2)}

    Raises:
        OptionError: A word has another form.
    """
    if tuple(words) in ((), (POSTERIOR,)):
        return words[0] if words else None
    found: dict[str, Interval] = {}
    for word in words:
        name, _, text = word.partition("=")
        first, *rest = text.split(",")
        try:
            low, high = map(float, rest if first == FACTOR else (first, *rest))
        except ValueError as error:
            expected = f"expected {POSTERIOR}, name=low,high or name={FACTOR},low,high (factors)"
            raise OptionError(f"randomize is {shown(word)}, {expected}") from error
        found[name] = (FACTOR, low, high) if first == FACTOR else (low, high)
    return found


def _reach(theta: Array, direction: Array, low: Array, high: Array) -> tuple[float, float]:
    """Least and largest c with low <= theta + c direction <= high."""
    moves = np.abs(direction) > FLAT_VARIANCE
    if not moves.any():
        return 0.0, 0.0
    ends = np.stack([low - theta, high - theta])[:, moves] / direction[moves]
    return min(float(ends.min(axis=0).max()), 0.0), max(float(ends.max(axis=0).min()), 0.0)
