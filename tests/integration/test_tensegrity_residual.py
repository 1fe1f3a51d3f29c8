"""The learned correction of contact: its derivatives, what it must not do at rest, its symmetry, its training, its file."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.tensegrity import TensegrityParameters
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.experiments import record_throw, thrown
from softgym_envs.systems.tensegrity.model import prism
from softgym_envs.systems.tensegrity.residual import COEFFICIENTS, NUM_WEIGHTS, UNITS, random_weights
from sysid import fit_residual
from sysid.fitting.residual import ResidualOptions

ENGINE = TensegritySimulator(prism(), contact="patch")


def some_weights(seed: int = 0, size: float = 0.5) -> np.ndarray:
    """A correction that is well visible: output weights of the given size."""
    rng = np.random.default_rng(seed)
    weights = random_weights(rng)
    weights[-UNITS * COEFFICIENTS - COEFFICIENTS :] = rng.normal(0.0, size, UNITS * COEFFICIENTS + COEFFICIENTS)
    return weights


def rolling(count: int, steps: int = 300) -> np.ndarray:
    """States in the middle of a throw."""
    starts = np.stack([thrown(ENGINE.model, np.random.default_rng(i), 1.0) for i in range(count)])
    return ENGINE.step(starts, np.zeros((count, ENGINE.nu)), substeps=steps)[0]


def test_gradient_of_the_weights_equals_differences():
    weights, rng = some_weights(), np.random.default_rng(1)
    states, controls = rolling(3), np.zeros((3, 20, ENGINE.nu))
    cotangent = rng.normal(size=(3, 21, ENGINE.nx))
    _, status, rows = replace(ENGINE, residual=weights).residual_vjp(states, controls, cotangent)
    assert status.tolist() == [0, 0, 0] and rows.shape == (3, NUM_WEIGHTS)
    direction = rng.normal(size=NUM_WEIGHTS)

    def value(offset: float) -> float:
        simulator = replace(ENGINE, residual=weights + offset * direction)
        return float(np.sum(cotangent * simulator.rollout(states, controls)[0]))

    h = 1e-6
    assert rows.sum(axis=0) @ direction == pytest.approx((value(h) - value(-h)) / (2 * h), rel=1e-5)


def test_untrained_it_changes_nothing_and_trained_it_does():
    states, controls = rolling(2), np.zeros((2, 50, ENGINE.nu))
    plain = ENGINE.rollout(states, controls)[0]
    untrained = replace(ENGINE, residual=random_weights(np.random.default_rng(0))).rollout(states, controls)[0]
    np.testing.assert_allclose(untrained, plain, atol=1e-12)
    assert np.abs(replace(ENGINE, residual=some_weights()).rollout(states, controls)[0] - plain).max() > 1e-3


@pytest.mark.parametrize("seed", [0, 1])
def test_at_rest_it_vanishes(seed):
    """What rests under the contact law rests with any correction; 5 s with weights far larger than training gives."""
    rest = ENGINE.model.place_on_ground(ENGINE.initial_state()[0])[None]
    still = np.zeros((1, ENGINE.nu))
    state, _ = ENGINE.step(rest, still, substeps=30_000)
    corrected = replace(ENGINE, residual=some_weights(seed, size=2.0))
    moved, status = corrected.step(state, still, substeps=5000)
    nodes = ENGINE.model.node_positions
    assert status[0] == 0
    assert np.abs(nodes(moved) - nodes(state)).max() < 1e-6


def test_the_scene_may_be_turned():
    """Turning a start about the vertical turns the motion: the network sees only what does not change with direction."""
    simulator, controls = replace(ENGINE, residual=some_weights()), np.zeros((1, 100, ENGINE.nu))
    state, turn = rolling(1)[0], np.array([0.0, 0.0, 1.1])
    plain = simulator.rollout(state[None], controls)[0][0]
    turned = simulator.rollout(_turned(state, turn)[None], controls)[0][0]
    np.testing.assert_allclose(turned, np.stack([_turned(x, turn) for x in plain]), atol=1e-8)


def _turned(state: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """Positions, quaternions and velocities turned about the vertical axis through the origin; w is in the rods' frames."""
    c, s, half = np.cos(rotation[2]), np.sin(rotation[2]), 0.5 * rotation[2]
    R = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    out = state.copy()
    for r in range(ENGINE.model.num_rods):
        rod = out[13 * r : 13 * r + 13]
        w, x, y, z = rod[3:7]
        rod[:3], rod[7:10] = R @ rod[:3], R @ rod[7:10]
        rod[3:7] = np.cos(half) * np.array([w, x, y, z]) + np.sin(half) * np.array([-z, -y, x, w])
    return out


def test_training_finds_a_correction_that_exists():
    """Recordings of an engine with a correction: another network, from other weights, must predict an unseen throw better."""
    ground_truth = replace(ENGINE, residual=some_weights(7, size=0.7))
    throws = TrajectorySet(
        tuple(record_throw(ground_truth, np.random.default_rng(i), duration=1.0, speed=1.5) for i in range(3))
    )
    start = random_weights(np.random.default_rng(0))
    options = ResidualOptions(block=100, iterations=60)
    fit = fit_residual(ENGINE, throws, TensegrityParameters(), start, options=options)
    assert fit.used and fit.after < 0.5 * fit.before
    unseen = record_throw(ground_truth, np.random.default_rng(99), duration=0.4, speed=1.5)
    errors = {}
    for name, simulator in (("plain", ENGINE), ("fitted", fit.simulator)):
        states, _ = simulator.rollout(unseen.values[:1], unseen.controls[None])
        errors[name] = np.linalg.norm(ENGINE.difference(states[0], unseen.values), axis=-1).mean()
    assert errors["fitted"] < 0.8 * errors["plain"]


def test_where_there_is_nothing_to_correct_none_is_used():
    """Recordings of the engine itself: no correction can predict them better than none."""
    throws = TrajectorySet((record_throw(ENGINE, np.random.default_rng(0), duration=0.4),))
    options = ResidualOptions(block=50, iterations=3)
    fit = fit_residual(ENGINE, throws, TensegrityParameters(), random_weights(np.random.default_rng(0)), options=options)
    assert not fit.used and fit.simulator.residual == () and "no correction" in fit.summary()


def test_a_file_of_constants_brings_its_correction(tmp_path):
    weights = some_weights()
    simulator = replace(ENGINE, residual=weights)
    path = TensegrityParameters(friction=0.6).save(tmp_path / "fit.toml", simulator=SimulatorSpec.of(simulator).table())
    env = gym.make("softgym_envs:TensegrityCrawl-v0", params=path, disable_env_checker=True)
    made = env.unwrapped.episodes.simulator
    assert made.contact == "patch" and np.array_equal(made.residual, weights)
    env.close()


@pytest.mark.parametrize("weights", [[1.0, 2.0], [np.nan] * NUM_WEIGHTS, "none", [[0.0]]])
def test_bad_weights_are_named(weights):
    with pytest.raises(OptionError, match="residual"):
        TensegritySimulator(residual=weights)


def test_bad_recordings_are_named():
    throw = record_throw(ENGINE, np.random.default_rng(0), duration=0.1)
    start, parameter_values = np.zeros(NUM_WEIGHTS), TensegrityParameters()
    with pytest.raises(DataError, match="too few"):
        fit_residual(ENGINE, TrajectorySet((throw,)), parameter_values, start)
    part = throw.select(throw.names[:5])
    with pytest.raises(DataError, match="lacks"):
        fit_residual(ENGINE, TrajectorySet((part,)), parameter_values, start)
    with pytest.raises(OptionError, match="held_out"):
        ResidualOptions(held_out=1)
