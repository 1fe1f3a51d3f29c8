"""Numbers that must not change without a word: one control step of every world, derivatives of every engine (make_golden.py).

Other processors and compilers fuse and order sums differently, by some 1e-16. Starts moved by 1e-15 of an array's largest
value, contacts included, end within 1e-12 of it after one control step, but for loops on MuJoCo, whose stiff constraints make
that 2e-12, and 4e-11 with the estimate of LoopIdentify (20 draws each): 1e-10 is allowed. A reward is a difference of numbers
of order one.
Observations are float32; a difference over 1e-6 makes 1e-16 of the state 1e-10 of a derivative. Draws of NumPy's PCG64 are
assumed to be the same everywhere, MuJoCo only within its version.
"""

import json

import numpy as np
import pytest
from make_golden import FILE, everything

mujoco = pytest.importorskip("mujoco")
MAKERS = everything()
EXACT, DIFFERENCES = 1e-10, 1e-6
"""Allowed error, relative to the largest value of an array: computed, or by differences over 1e-6."""


@pytest.fixture(scope="module")
def golden():
    with np.load(FILE) as stored:
        return dict(stored)


def test_the_file_is_small_and_says_where_it_comes_from(golden):
    assert FILE.stat().st_size < 300_000
    origins = {name.removesuffix("/made"): json.loads(str(text)) for name, text in golden.items() if name.endswith("/made")}
    assert origins.keys() == MAKERS.keys(), "python tests/make_golden.py adds what is missing"
    assert all(len(origin["commit"]) == 40 and len(origin["date"]) == 10 and origin["mujoco"] for origin in origins.values())


@pytest.mark.parametrize("name", MAKERS)
def test_numbers_are_those_of_the_file(golden, name):
    stored = {key.removeprefix(f"{name}/"): value for key, value in golden.items() if key.startswith(f"{name}/")}
    origin = json.loads(str(stored.pop("made")))
    if name.endswith("/mujoco") and origin["mujoco"] != mujoco.__version__:
        pytest.skip(f"made with MuJoCo {origin['mujoco']}, this is {mujoco.__version__}")
    found = MAKERS[name]()
    assert found.keys() == stored.keys()
    by_differences = "A" in found and "vjp.state" not in found
    for key, expected in stored.items():
        assert found[key].shape == expected.shape and found[key].dtype == expected.dtype, key
        allowed = np.finfo(np.float32).eps if expected.dtype == np.float32 else DIFFERENCES if by_differences else EXACT
        size = max(np.abs(expected).max(), 1.0 if key == "reward" else 0.0)
        np.testing.assert_allclose(found[key], expected, rtol=0, atol=allowed * size, err_msg=key)
