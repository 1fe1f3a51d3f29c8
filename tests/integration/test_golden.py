"""Numbers that must not change without a word: one control step of every world, derivatives of every engine (make_golden.py).

Other processors and compilers fuse and order sums differently, by some 1e-16. Within one control step nothing amplifies that
beyond 1e-12 of an array's largest value, but for loops, whose closed chain ties stiff constraints together. How much a step
amplifies is measured where a number is farther off: starts are moved by 1e-15, and `MARGIN` times as far as these end apart is
allowed. Observations are float32; a difference over 1e-6 makes 1e-16 of the state 1e-10 of a derivative. Draws of NumPy's
PCG64 are assumed to be the same everywhere, MuJoCo only within its version.
"""

import json

import numpy as np
import pytest
from make_golden import FILE, everything

mujoco = pytest.importorskip("mujoco")
MAKERS = everything()
EXACT, DIFFERENCES = 1e-12, 1e-6
"""Allowed error, relative to the largest value of an array: computed, or by differences over 1e-6."""
OF_SLOPES = {("LoopIdentify-v0/native", "reward"), ("LoopIdentify-v0/mujoco", "reward")}
"""Gains of information, 2e-3 out of one, from slopes of a first state by differences over 1e-5: 2e-11 of one is rounding."""
SLOPES = 1e-7
"""The same of `OF_SLOPES`."""
ROUNDING, DRAWS, MARGIN, CEILING = 1e-15, 8, 10.0, 1e-8
"""Relative size and number of moves of a start, the allowed multiple of what they come to, and the most that is allowed."""


@pytest.fixture(scope="module")
def golden():
    with np.load(FILE) as stored:
        return dict(stored)


def test_the_file_is_small_and_says_where_it_comes_from(golden):
    assert FILE.stat().st_size < 300_000
    origins = json.loads(str(golden["made"]))
    assert origins.keys() == MAKERS.keys(), "python tests/make_golden.py adds what is missing"
    assert all(len(origin["commit"]) == 40 and len(origin["date"]) == 10 and origin["mujoco"] for origin in origins.values())


@pytest.mark.parametrize("name", MAKERS)
def test_numbers_are_those_of_the_file(golden, name):
    stored = {key.removeprefix(f"{name}/"): value for key, value in golden.items() if key.startswith(f"{name}/")}
    origin = json.loads(str(golden["made"]))[name]
    if name.endswith("/mujoco") and origin["mujoco"] != mujoco.__version__:
        pytest.skip(f"made with MuJoCo {origin['mujoco']}, this is {mujoco.__version__}")
    found = MAKERS[name]()
    assert found.keys() == stored.keys()
    by_differences = "A" in found and "vjp.state" not in found
    spread: dict[str, float] = {}
    for key, expected in stored.items():
        assert found[key].shape == expected.shape and found[key].dtype == expected.dtype, key
        exact = DIFFERENCES if by_differences else SLOPES if (name, key) in OF_SLOPES else EXACT
        allowed = np.finfo(np.float32).eps if expected.dtype == np.float32 else exact
        limit = allowed * np.abs(expected).max()
        if np.abs(found[key] - expected).max() > limit and "state" in stored:  # a world, no derivatives
            spread = spread or amplified(name, found)
            limit = max(limit, min(MARGIN * spread[key], CEILING * float(np.abs(expected).max())))
        np.testing.assert_allclose(found[key], expected, rtol=0, atol=limit, err_msg=key)


def amplified(name, found):
    """Key -> how far apart a step ends from starts that are moved by rounding."""
    moved = [MAKERS[name](moved=ROUNDING, draw=draw) for draw in range(DRAWS)]
    return {key: max(float(np.abs(other[key] - found[key]).max()) for other in moved) for key in found}


def test_a_step_amplifies_rounding_little():
    name = "LoopPeg-v0/mujoco"
    found = MAKERS[name]()
    assert 0.0 < amplified(name, found)["state"] < 1e-9 * np.abs(found["state"]).max()
