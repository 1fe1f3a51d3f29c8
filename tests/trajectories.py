"""A trajectory that is made up, for tests."""

import re

import numpy as np
import pytest

from softgym_envs.core.trajectory import Trajectory


def raises(error, message):
    return pytest.raises(error, match=re.escape(message))


def make(seed=0, **changes):
    rng = np.random.default_rng(seed)
    fields = {
        "times": 0.1 * np.arange(6),
        "controls": rng.standard_normal((5, 2)),
        "values": rng.standard_normal((6, 3)),
        "names": ("a", "b", "c"),
        "units": ("m", "rad", "N"),
        "control_names": ("left", "right"),
        "control_units": ("-", "V"),
        "substeps": 4,
        "metadata": {"robot": "made up"},
    }
    return Trajectory(**{**fields, **changes})
