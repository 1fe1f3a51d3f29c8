"""Parameters while the mechanism moves: the filter of the batch fit, row by row."""

import numpy as np
import pytest

from reproductions.caldwell2014.kalman import OnlineEstimator
from reproductions.caldwell2014.online import online_estimator
from softgym_envs.core.errors import OptionError
from softgym_envs.mechanics import Mechanism
from softgym_envs.systems.loop.manipulation import record
from softgym_envs.systems.loop.model import ARM, PARAMETERS, LoopModel
from softgym_envs.systems.loop.parameters import LoopParameters

MODEL = LoopModel()
MECHANISM = Mechanism(MODEL.tree, 0.01, PARAMETERS)
OFFSETS = tuple(f"offset_{name}" for name in ARM)


def estimator(**changes):
    initial_guess = MODEL.defaults
    initial_guess[:2] = 5.0
    values = {
        "parameter_values": initial_guess,
        "spread": {"theta_stiffness": 1.0, "psi_stiffness": 1.0, **dict.fromkeys(OFFSETS, 1.0)},
        "linear": OFFSETS,
        "force": np.full(7, 0.05),
        "angle": np.full(7, 5e-4),
        **changes,
    }
    return OnlineEstimator(MECHANISM, **values)


@pytest.mark.parametrize("bias", [0.0, 0.2])
def test_estimates_reach_the_ground_truth_within_their_standard_deviations_while_the_arm_moves(bias):
    recording = record(MODEL, MECHANISM, MODEL.defaults, 500, scale=0.3).disturbed(
        np.random.default_rng(1), force=0.05, angle=5e-4, bias=bias
    )
    online = estimator()
    belief = online.start(recording.angles[:40])
    first = online.estimates(belief)
    for force, angle in zip(recording.forces[40:], recording.angles[40:], strict=False):
        belief = online.update(belief, force, angle)
    ground_truth = {"theta_stiffness": 4.45252, "psi_stiffness": 0.96969, **dict.fromkeys(OFFSETS, -bias)}
    for name, (value, std) in online.estimates(belief).items():
        assert abs(value - ground_truth[name]) < 4 * std, (name, value, std)
        assert std < 0.1 * first[name][1], name


def test_bad_arguments_are_named():
    with pytest.raises(OptionError, match="'mass'"):
        estimator(spread={"mass": 1.0})


def test_the_systems_estimator_is_this_one():
    recording = record(MODEL, MECHANISM, MODEL.defaults, 100, scale=0.3)
    ours = online_estimator(MODEL, LoopParameters(theta_stiffness=5.0, psi_stiffness=5.0), angle=5e-4, torque=0.05)
    found = []
    for online in (ours, estimator()):
        belief = online.start(recording.angles[:40])
        for force, angle in zip(recording.forces[40:], recording.angles[40:], strict=False):
            belief = online.update(belief, force, angle)
        found.append(online.estimates(belief))
    assert found[0] == found[1]
