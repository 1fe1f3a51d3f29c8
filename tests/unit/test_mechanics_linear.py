"""Sines of many angles, the order of unknowns, and factors that look at its ranges only: against NumPy."""

import numba
import numpy as np
import pytest

from softgym_envs.mechanics.elimination import eliminate
from softgym_envs.mechanics.linear import SPARE, factor, factor_any, solve
from softgym_envs.mechanics.turns import turns
from softgym_envs.systems.loop.model import LoopModel

BRANCHED = ([-1, 0, 1, 1, 3, 4, 1, 6, 7], [0, 2, 4], [[5, -1], [8, -1]])
"""Two branches beyond joint 1, each held by two rows, and joint 2."""


@numba.njit
def turned(x):
    c, s = np.empty(len(x)), np.empty(len(x))
    turns(x, c, s)
    return c, s


@numba.njit
def solved(K, near, far, left, b, exchange):
    A, order, x = K.copy(), np.zeros(len(K), np.int64), b.copy()
    good = factor_any(A, order) if exchange else factor(A, order, near, far, left)
    if good:
        solve(A, order, near, far, left, x)
    return good, x


def test_sines_and_cosines_are_numpys_to_rounding():
    x = np.concatenate([np.random.default_rng(0).uniform(-1e4, 1e4, 20_000), np.pi / 4 * np.arange(-40, 41), [0.0]])
    c, s = turned(x)
    assert np.abs(c - np.cos(x)).max() < 3e-16 and np.abs(s - np.sin(x)).max() < 3e-16


def system(parent, row, ends, rng, share=1.0):
    """A matrix with the pattern of a step, in the order of elimination, and that order."""
    order, n = eliminate(parent, row, ends), len(parent)
    K = np.zeros((n + row[-1], n + row[-1] + SPARE))

    def path(i):
        return [] if i < 0 else [i, *path(parent[i])]

    for i in range(n):
        for j in path(i):
            a, b = order.slot[i], order.slot[j]
            K[a, b], K[b, a] = rng.normal(size=2)
        K[order.slot[i], order.slot[i]] = 8.0 * share
    for c, (first, _) in enumerate(ends):
        for r in range(row[c], row[c + 1]):
            for j in path(first):
                a, b = order.slot[n + r], order.slot[j]
                K[a, b], K[b, a] = rng.normal(size=2)
    return K, order


@pytest.mark.parametrize("exchange", [False, True])
def test_factors_solve_what_numpy_solves(exchange):
    rng = np.random.default_rng(1)
    for parent, row, ends in (BRANCHED, ([-1, 0, 1], [0, 2], [[2, -1]]), ([-1, 0, 0], [0], [])):
        K, order = system(parent, row, ends, rng)
        b = rng.normal(size=len(K))
        good, x = solved(K, *order[1:], b, exchange)
        assert good
        np.testing.assert_allclose(x, np.linalg.solve(K[:, : len(K)], b), atol=1e-10)


def test_small_pivots_are_refused_and_exchanged():
    K, order = system(*BRANCHED, np.random.default_rng(2), share=0.0)
    b = np.ones(len(K))
    assert not solved(K, *order[1:], b, False)[0]
    good, x = solved(K, *order[1:], b, True)
    assert good
    np.testing.assert_allclose(x, np.linalg.solve(K[:, : len(K)], b), atol=1e-9)


def test_branches_of_the_loop_are_done_with_one_after_the_other():
    """Left of a branch's rows stands nothing of the other branch, and each constraint follows its own branch."""
    structure = LoopModel(12).mechanism.structure
    arm, first, second = np.split(np.arange(31), [7, 19])
    slot = structure.slot.astype(int)
    for branch, rows in ((first, slice(31, 37)), (second, slice(37, 43))):
        assert sorted([*slot[branch], *slot[rows]]) == list(range(slot[branch].min(), slot[branch].min() + 18))
    assert slot[arm].min() == 36
    last = max(slot[first].max(), slot[31:37].max()) + 1 if slot[first[0]] > slot[second[0]] else None
    later = first if last else second
    assert all(structure.left[a] == 18 for a in slot[later])
