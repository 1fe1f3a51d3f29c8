"""Velocities of the rods' ends against differences of their positions."""

import numpy as np

from softgym_envs.systems.tensegrity.model import superball


def test_node_velocities_are_those_of_the_node_positions():
    """Central differences along the motion that the state's own velocities and rates are."""
    model, rng, step = superball(), np.random.default_rng(0), 1e-6
    size = model.layout.tangent_slices[0].stop
    tangent = np.zeros((1, size + model.nu))
    tangent[:, :size] = 0.3 * rng.normal(size=(1, size))
    state = model.layout.retract(model.rest_state()[None], tangent)
    _, _, velocity, spin, _ = model.split(state)
    moved = np.zeros((1, model.num_rods, 12))
    moved[..., :3], moved[..., 3:6] = velocity, spin
    along = np.concatenate([moved.reshape(1, -1), np.zeros((1, model.nu))], axis=1)
    ahead, behind = (model.node_positions(model.layout.retract(state, sign * step * along)) for sign in (1.0, -1.0))
    np.testing.assert_allclose(model.node_velocities(state), (ahead - behind) / (2 * step), atol=1e-8)
