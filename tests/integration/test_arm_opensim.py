"""Muscle paths against OpenSim: numbers that it gave, and, where it is installed, what it gives now.

The second test needs OPENSIM_PYTHON, an interpreter with `opensim`, and ARM26_OSIM, the path of its arm26.osim.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import load_script

from reproductions.penner2020.geodesics import discrete_length
from softgym_envs.core.errors import StructureError
from softgym_envs.mechanics.tree_file import load_tree
from softgym_envs.muscles.arm_file import load_muscles
from softgym_envs.muscles.paths import Muscle
from softgym_envs.muscles.routes import Routes

STUDY = load_script("experiments/arm_paths_opensim/arm_paths_opensim.py")
LENGTH, ARM = 1e-4, 3e-4
"""[m] A tenth, and a third, of what was asked for: OpenSim's helix around a cylinder is not quite the shortest."""


def test_paths_are_opensims_over_the_elbows_whole_range():
    kept = json.loads(Path("results/arm_paths_opensim/numbers.json").read_text())["paths"]
    rows = np.arange(0, len(kept["angles"]), 4)
    ours = STUDY.our_paths(np.array(kept["angles"])[rows])
    assert set(ours) == set(kept["opensim"]) and kept["angles"][-1] > 2.26 and kept["angles"][0] == 0.0
    for name, theirs in kept["opensim"].items():
        for what, tolerance in (("length", LENGTH), ("arm", ARM)):
            assert np.abs(np.array(ours[name][what]) - np.array(theirs[what])[rows]).max() < tolerance, (name, what)


@pytest.mark.skipif(not {"OPENSIM_PYTHON", "ARM26_OSIM"} <= set(os.environ), reason="OpenSim is not here")
def test_opensim_says_so_now():
    found = STUDY.compared(Path(os.environ["OPENSIM_PYTHON"]), Path(os.environ["ARM26_OSIM"]), 12)
    for name, apart in found["largest_difference_mm"].items():
        assert apart["length"] < 1e3 * LENGTH and apart["arm"] < 1e3 * ARM, name


def test_moment_arms_are_slopes_of_lengths_and_discrete_paths_agree():
    routes = STUDY.arm26()
    closed = Routes(routes.tree, type(routes.muscles)(routes.muscles.surfaces, routes.muscles.muscles[:3]))
    for angle in (0.3, 1.6):
        lengths, arms = closed.lengths([[angle - 1e-6], [angle], [angle + 1e-6]])
        np.testing.assert_allclose(arms[1, :, 0], -(lengths[2] - lengths[0]) / 2e-6, atol=1e-8)
        assert abs(discrete_length(closed, "TRImed", [angle], 60) - lengths[1, 2]) < 1e-5


def test_bad_muscles_are_named(tmp_path: Path):
    origin, end = (0.0, 0.0, 0.0), (0.1, 0.0, 0.0)
    for more, message in (
        ({"via": (("a", 0.0, 0.0),)}, "expected a body and three numbers"),
        ({"surfaces": ("s",), "sides": ((0.0, 0.0, 1.0),), "spans": (1,)}, "expected a piece, 0 to 0"),
        ({"force": -1.0}, "below 0"),
    ):
        with pytest.raises(StructureError, match=message):
            Muscle("m", "a", origin, "b", end, **more)
    routes = STUDY.arm26()
    with pytest.raises(StructureError, match="more than one cylinder or sphere"):
        routes.lengths([[0.1]])
    file = tmp_path / "m.toml"
    text = (STUDY.FOLDER / "arm26_muscles.toml").read_text()
    file.write_text(text.replace('insertion_body = "forearm"', 'insertion_body = "hand"'))
    with pytest.raises(StructureError, match="hand"):
        Routes(load_tree(STUDY.FOLDER / "arm26.toml"), load_muscles(file))
