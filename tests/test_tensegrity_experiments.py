"""The room's recordings and its side of identification, and groups of constants identified one after the other."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from softgym_envs.core.errors import OptionError
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.tensegrity import identification_setup
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.experiments import record_in_air, record_throw, thrown
from softgym_envs.tensegrity.identification import BODY
from softgym_envs.tensegrity.model import prism
from softgym_envs.tensegrity.parameters import TensegrityParameters
from sysid import FitProblem, multiple_shooting, one_step
from sysid.progressive import Stage, progressive


def test_in_the_air_one_rod_hangs_still_and_commands_are_held() -> None:
    simulator = TensegritySimulator(prism())
    recording = record_in_air(simulator, np.random.default_rng(0), duration=0.3, hold=0.1)
    assert recording.values.shape == (301, simulator.nx)
    np.testing.assert_array_equal(recording.values[:, :13], np.tile(recording.values[0, :13], (301, 1)))
    assert recording.values[:, 15].std() > 0  # another rod's height
    blocks = recording.controls.reshape(3, 100, 3)
    np.testing.assert_array_equal(blocks, np.repeat(blocks[:, :1], 100, axis=1))
    assert np.abs(blocks).max() <= 100 and np.unique(blocks).size == 9


def test_a_throw_starts_as_a_rigid_roll() -> None:
    """v = w x r about the point under the centre: that point stands still."""
    model = TensegritySimulator().model
    state = thrown(model, np.random.default_rng(4), (1.0, 1.5))
    com, velocity = model.center_of_mass(state), model.com_velocity(state)
    assert 1.0 <= np.linalg.norm(velocity) <= 1.5 and abs(velocity[2]) < 1e-12
    assert abs(float(model.clearance(state)) - 0.01) < 1e-12
    position, _, linear, *_ = model.split(state)
    rotation = np.cross([0.0, 0.0, 1.0], velocity) / com[2]
    below = com * [1, 1, 0]
    np.testing.assert_allclose(linear, np.cross(rotation, position - below), atol=1e-12)
    again = record_throw(TensegritySimulator(), np.random.default_rng(4), duration=0.01, speed=(1.0, 1.5))
    np.testing.assert_array_equal(again.values[0], state)


def test_measured_columns_are_points_of_the_robot() -> None:
    setup = identification_setup("prism,paper")
    assert setup.simulator.contact == "paper" and "spin_damping" in setup.free
    found = setup.measurement(("com.z", "rod0.x", "node3.x"))
    assert found is not None and found[1] == ("com.z", "node3.x")
    state = setup.simulator.initial_state(2)
    model = setup.simulator.model
    expected = np.stack([model.center_of_mass(state)[:, 2], model.node_positions(state)[:, 3, 0]], axis=-1)
    np.testing.assert_array_equal(found[0](state), expected)
    assert setup.measurement(("rod0.x",)) is None
    assert identification_setup("air").free == BODY and identification_setup("air").simulator.fixed_rod == 0
    with pytest.raises(OptionError, match=r"nodes are 0 \.\.\. 5"):
        setup.measurement(("node9.x",))
    with pytest.raises(OptionError, match="variant has 'ball'; allowed are air, superball, prism"):
        identification_setup("ball")


def test_progressive_identification_recovers_the_engines_own_constants() -> None:
    """[Wang2020] IV-D on data of our own engine without noise: the air shows the body, then a throw shows contact."""
    truth = TensegrityParameters(cable_stiffness=8000.0, motor_gain=0.013, friction=0.25, sliding_damping=0.7)
    engine, rng = TensegritySimulator(prism(actuated=tuple(range(9)))), np.random.default_rng(1)
    held = TensegritySimulator(engine.model, fixed_rod=0)
    air = record_in_air(engine, rng, duration=0.3, parameters=truth)
    throw = record_throw(engine, rng, duration=0.5, speed=1.5, parameters=truth)
    announced: list[str] = []
    found = progressive(
        TensegrityParameters(),
        (
            Stage(
                "body",
                lambda p: FitProblem(held, TrajectorySet((air,)), free=("cable_stiffness", "motor_gain"), start=p),
                one_step,
            ),
            Stage(
                "contact",
                lambda p: FitProblem(
                    engine, TrajectorySet((throw,)), free=("friction", "sliding_damping"), start=p, free_motion=True
                ),
                partial(multiple_shooting, segment_steps=5),
            ),
        ),
        announce=announced.append,
    )
    assert announced == ["body", "contact"]
    for name in ("cable_stiffness", "motor_gain", "friction", "sliding_damping"):
        assert getattr(found.parameters, name) == pytest.approx(getattr(truth, name), rel=1e-6), name
    with pytest.raises(OptionError, match="expected at least one"):
        progressive(truth, ())
