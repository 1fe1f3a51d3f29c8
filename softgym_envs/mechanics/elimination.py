"""Order in which the unknowns of a step are eliminated, and entries of its matrix that stay zero throughout.

Coordinates go from the leaves to the root. A constraint follows the coordinates that no other constraint touches, if they are
as many as its rows: so each branch of a closed chain is finished before the next one begins, and only what both depend on
remains. The order cannot spoil a result: pivots are checked as numbers (`linear.factor`).
Legend: n coordinates, m constraint rows, N = n + m.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.uint64]


class Elimination(NamedTuple):
    """See the module docstring. Right of the diagonal, and below it, only two ranges of row k can differ from zero."""

    slot: Places
    """(N,) indices in the matrix of the coordinates and then the constraint rows."""
    near: Places
    """(N,) end of the first range, which begins after the diagonal."""
    far: Places
    """(N,) start of the second range, more than three entries after the first; it ends with the matrix."""
    left: Places
    """(N,) first entry of row k left of the diagonal that can differ from zero."""


def eliminate(parent: Sequence[int], row: Sequence[int], ends: Sequence[Sequence[int]]) -> Elimination:
    """Order of a tree with `parent` (n,); constraints begin in rows `row` (nc + 1,) and hold the joints `ends` (nc, 2)."""
    n, paths = len(parent), [set().union(*(_path(parent, int(end)) for end in pair)) for pair in ends]
    unknowns = _leaves_to_root(parent)
    for c, path in enumerate(paths):
        rows = [n + r for r in range(row[c], row[c + 1])]
        own = path.difference(*(other for k, other in enumerate(paths) if k != c))
        after = 1 + max(unknowns.index(i) for i in own) if len(own) >= len(rows) else len(unknowns)
        unknowns[after:after] = rows
    slot = np.empty(len(unknowns), dtype=np.uint64)
    slot[unknowns] = np.arange(len(unknowns))
    return Elimination(slot, *_ranges(_pattern(parent, row, paths)[np.ix_(unknowns, unknowns)]))


def _path(parent: Sequence[int], joint: int) -> set[int]:
    """A joint and its ancestors; empty for the world."""
    found = set()
    while joint >= 0:
        found.add(joint)
        joint = int(parent[joint])
    return found


def _leaves_to_root(parent: Sequence[int]) -> list[int]:
    """All joints, each after those that it carries, branch after branch."""
    children: dict[int, list[int]] = {}
    for i, j in enumerate(parent):
        children.setdefault(int(j), []).append(i)
    order, waiting = [], [-1]
    while waiting:
        joint = waiting.pop()
        order.append(joint)
        waiting += children.get(joint, [])
    return order[:0:-1]


def _pattern(parent: Sequence[int], row: Sequence[int], paths: Sequence[set[int]]) -> NDArray[np.bool_]:
    """(N, N): a coordinate meets its ancestors, a constraint the coordinates that it depends on."""
    n = len(parent)
    found = np.eye(n + row[-1], dtype=np.bool_)
    for i in range(n):
        found[i, list(_path(parent, i))] = True
    for c, path in enumerate(paths):
        for r in range(row[c], row[c + 1]):
            found[n + r, list(path)] = True
    return found | found.T


def _ranges(pattern: NDArray[np.bool_]) -> tuple[Places, Places, Places]:
    """near, far, left of a pattern (N, N), including the entries that elimination fills in."""
    size, filled = len(pattern), pattern.copy()
    near, far, left = np.empty((3, size), dtype=np.uint64)
    for k in range(size):
        after = k + 1 + np.flatnonzero(filled[k, k + 1 :])
        filled[np.ix_(after, after)] = True
        edges = np.concatenate([[k], after, [size]])
        gap = int(np.argmax(np.diff(edges)))
        near[k], far[k] = (edges[gap] + 1, edges[gap + 1]) if edges[gap + 1] > edges[gap] + 4 else (k + 1, k + 1)
        left[k] = np.flatnonzero(filled[k])[0]
    return near, far, left
