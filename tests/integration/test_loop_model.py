"""The loop on Baxter's arm: counts of the paper, closure, rest."""

import numpy as np
import pytest

from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.mechanics import Mechanism
from softgym_envs.systems.loop.model import ARM, PARAMETERS, START, LoopModel


def mechanism_of(model):
    return Mechanism(model.tree, 0.01, PARAMETERS)


def at_start(model):
    q = np.zeros((1, len(model.tree.coordinates)))
    q[0, :7] = START
    return q


@pytest.mark.parametrize(("links", "coordinates", "height"), [(12, 31, 0.6858), (6, 19, 0.6149), (24, 55, 0.7039)])
def test_counts_and_closure_are_the_papers(links, coordinates, height):
    model = LoopModel(links)
    mechanism = mechanism_of(model)
    assert (mechanism.n, mechanism.m, mechanism.nu) == (coordinates, 12, 7)
    assert abs(model.height - height) < 1e-4
    q = at_start(model)
    h, G = mechanism.gaps(q, model.defaults)
    assert np.abs(h).max() < 1e-12 and np.linalg.matrix_rank(G[0]) == 12
    grip, ends = mechanism.pose("H", q)[1][0], [mechanism.pose(f"N_{side}", q)[1][0] for side in ("left", "right")]
    assert all(abs(np.linalg.norm(end - grip) - model.height) < 1e-12 for end in ends)
    assert grip[2] - ends[0][2] == pytest.approx(model.height)  # it hangs straight down
    assert sum(body.mass for body in model.tree.bodies if body.scale == "loop_scale") == pytest.approx(0.132)


def test_arm_is_baxters():
    joints = {joint.name: joint for joint in LoopModel().tree.joints}
    assert [joints[name].effort for name in ARM] == [50, 50, 50, 50, 15, 15, 15]
    assert all(joints[name].lower < value < joints[name].upper for name, value in zip(ARM, START, strict=True))
    bodies = LoopModel().arm.bodies
    assert sum(body.mass for body in bodies) == pytest.approx(20.01, abs=0.01)


def test_loop_rests_close_to_a_regular_polygon_and_stays_there_under_feedback():
    model = LoopModel()
    mechanism, parameter_values = mechanism_of(model), model.defaults
    rest = mechanism.rest(at_start(model), parameter_values=parameter_values, held=ARM)
    assert rest.status[0] == 0 and np.abs(mechanism.gaps(rest.q, parameter_values)[0]).max() < 1e-10
    sag = np.abs(rest.q[0, 7:]).max()
    assert 1e-4 < sag < 0.1, sag  # 1.3 N on springs of some N m/rad
    assert np.abs(rest.needed[0, :7]).max() < 40  # the motors can hold it
    control = rest.needed[:, :7]
    start = mechanism.rest_state(rest.q, control, parameter_values)
    gain = np.zeros((7, mechanism.nx))
    gain[:, :7] = np.diag([80.0, 92.0, 69.0, 53.0, 65.0, 40.0, 8.0])
    forward = np.repeat((control + rest.q[:, :7] @ gain[:, :7])[:, None], 500, axis=1)
    motion = mechanism.simulate(start, forward, parameter_values, gains=gain)
    assert motion.status[0] == 0
    assert np.abs(motion.states[0, :, : mechanism.n] - rest.q).max() < 1e-8
    pulled = motion.multipliers[0, -1] / mechanism.dt
    np.testing.assert_allclose(pulled, rest.multipliers[0], atol=1e-6)


def test_damped_step_map_under_feedback_is_stable_and_rank_is_50_of_62():
    model = LoopModel()
    mechanism, parameter_values = mechanism_of(model), model.defaults
    rest = mechanism.rest(at_start(model), parameter_values=parameter_values, held=ARM)
    state = mechanism.rest_state(rest.q, rest.needed[:, :7], parameter_values)
    A, B, _ = (part[0] for part in mechanism.linearize(state, rest.needed[:, :7], parameter_values))
    gain = np.zeros((7, mechanism.nx))
    gain[:, :7] = np.diag([80.0, 92.0, 69.0, 53.0, 65.0, 40.0, 8.0])
    assert np.linalg.matrix_rank(A, tol=1e-9 * np.abs(A).max()) == 50
    assert np.abs(np.linalg.eigvals(A)).max() > 1.001  # the arm alone is an inverted pendulum
    assert np.abs(np.linalg.eigvals(A - B @ gain)).max() <= 1 + 1e-9


def test_bad_structures_are_refused():
    with pytest.raises(StructureError, match="loop of 7 links"):
        LoopModel(7)
    with pytest.raises(StructureError, match="3 angles"):
        LoopModel(start=(0.0, 0.0, 0.0))
    with pytest.raises(OptionError, match="mass"):
        LoopModel(mass=0.0)
