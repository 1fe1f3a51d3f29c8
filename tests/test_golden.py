"""Numbers that must not change without a word: one control step of every world, derivatives of every engine (make_golden.py).

Other processors and compilers fuse and order sums differently, by some 1e-16. Within one control step nothing amplifies that
beyond 1e-12 of an array's largest value: starts moved by 1e-15, contacts included, ended within that, but for loops, whose
closed chain ties stiff constraints together: on MuJoCo starts moved by 1e-15 end within 2e-12 (LoopBend, LoopReach) and 4e-11
(LoopIdentify; 20 draws each). LoopIdentify's reward, a difference of numbers of order one, differs by 3e-12 between two
processors. Observations are float32; a difference over 1e-6 makes 1e-16 of the state 1e-10 of a derivative. Draws of NumPy's
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
AMPLIFIED = {
    ("LoopReach-v0/mujoco", "state"): 1e-11, ("LoopBend-v0/mujoco", "state"): 1e-11, ("LoopIdentify-v0/mujoco", "state"): 1e-10,
    ("LoopIdentify-v0/native", "reward"): 1e-8, ("LoopIdentify-v0/mujoco", "reward"): 1e-8,
}  # fmt: skip
"""The same of what one step amplifies, see above; of rewards of 2e-3."""


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
    for key, expected in stored.items():
        assert found[key].shape == expected.shape and found[key].dtype == expected.dtype, key
        exact = AMPLIFIED.get((name, key), EXACT)
        allowed = np.finfo(np.float32).eps if expected.dtype == np.float32 else DIFFERENCES if by_differences else exact
        np.testing.assert_allclose(found[key], expected, rtol=0, atol=allowed * np.abs(expected).max(), err_msg=key)
