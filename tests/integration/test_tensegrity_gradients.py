"""Gradients of the tensegrity engine through contact and terrain against central differences. Cables with factors of their own
among the parameters: against structures that have them, by differences, and from a file. Velocities of the rods' ends
against differences of their positions. The learned correction of contact: its derivatives, what it must not do at rest, its
symmetry, its training, its file."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.experiments import record_throw, thrown
from softgym_envs.systems.tensegrity.model import prism, superball
from softgym_envs.systems.tensegrity.parameters import CONTACT, TensegrityParameters, factor_names
from softgym_envs.systems.tensegrity.procedure import PROCEDURE
from softgym_envs.systems.tensegrity.residual import COEFFICIENTS, NUM_WEIGHTS, UNITS, random_weights
from softgym_envs.systems.tensegrity.terrain import Terrain
from sysid import fit_residual
from sysid.fitting.residual import ResidualOptions

Array = NDArray[np.float64]


# --- gradients -------------------------------------------------------------------------------------------------------


ALL_CONTACT = set().union(*CONTACT.values())
PRESSED = TensegrityParameters(restitution=-0.3, sliding_damping=0.5, friction=0.8, spin_damping=0.3, contact_bias=1e-3)
"""Overlap decays slowly, so that contacts which begin closed stay closed: the motion is differentiable."""


def pressed(simulator: TensegritySimulator) -> Array:
    """Settled, then pushed 5 mm into the ground and shaken: at rest, where approach turns into separation, e has a kink."""
    model = simulator.model
    state = model.place_on_ground(simulator.initial_state()[0])[None]
    state, _ = simulator.step(state, np.zeros((1, model.nu)), substeps=2000)
    shake = np.concatenate([np.tile(np.repeat([0.0, 1e-3, 0.02, 0.02], 3), model.num_rods), np.ones(model.nu)])
    state = model.layout.retract(state, shake * np.random.default_rng(8).standard_normal((1, model.layout.n)))
    return model.move(state[0], translation=np.array([0.0, 0.0, -5e-3]))[None]


def error_of(exact: float, f, size: float) -> float:
    """Difference to the best of a range of fourth-order differences: rounding limits small steps, curvature large ones."""
    steps = size * np.logspace(-9, -2, 22)
    return min(abs((8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h) - exact) for h in steps)


@pytest.mark.parametrize("contact", ["stick", "paper", "patch"])
@pytest.mark.parametrize("make", [superball, prism])
def test_reverse_mode_through_500_substeps_of_contact_equals_central_differences(make, contact: str) -> None:
    """Every parameter, and random directions of state and controls, to 1e-5 relative."""
    simulator = TensegritySimulator(make(), contact=contact)
    model, rng = simulator.model, np.random.default_rng(2)
    state = pressed(simulator)
    controls = rng.uniform(-20, 20, (1, 5, model.nu))
    weight = rng.standard_normal((1, 6, model.layout.nx))
    weight[:, :-1] = 0
    parameters = PRESSED
    gradient = simulator.vjp(state, controls, weight, parameters, substeps=100)
    assert (model.clearance(gradient.states) < -1e-4).all(), "the robot must stay in contact"

    def value(x: Array, u: Array, p: TensegrityParameters) -> float:
        return float((simulator.rollout(x, u, p, substeps=100)[0] * weight).sum())

    def agrees(terms: Array, f, size: float) -> None:
        """A directional derivative is a sum that may cancel: its rounding is relative to the sum of |terms|."""
        assert error_of(float(terms.sum()), f, size) <= 1e-5 * np.abs(terms).sum()

    dx = rng.standard_normal((1, model.layout.n))
    du = rng.standard_normal(controls.shape)
    in_tangent = gradient.state[0] @ model.layout.retract_jacobian(state)[0]
    agrees(in_tangent * dx[0], lambda h: value(model.layout.retract(state, h * dx), controls, parameters), 1e-2)
    agrees(gradient.controls * du, lambda h: value(state, controls + h * du, parameters), 10.0)
    for index, name in enumerate(parameters.names()):
        exact = float(gradient.parameter_values[0, index])
        if name == "terrain_scale" or (name in ALL_CONTACT and name not in CONTACT[contact]):
            assert exact == 0.0
            continue
        size = abs(getattr(parameters, name))

        def moved(h: float, name: str = name) -> float:
            return value(state, controls, parameters.replace(**{name: getattr(parameters, name) + h}))

        agrees(np.array([exact]), moved, size)


@pytest.mark.parametrize("contact", ["stick", "paper", "patch"])
@pytest.mark.parametrize("make", [superball, prism])
def test_linearize_in_contact_equals_central_differences(make, contact: str) -> None:
    """One control step of 100 ms on the ground: every column to 1e-5 of its largest entry, the best of several widths.

    Beside that, the rounding of a difference: the last digits of the state, over a hundred steps, over the width.
    """
    simulator = TensegritySimulator(make(), contact=contact)
    state = pressed(simulator)
    control = np.random.default_rng(2).uniform(-20, 20, (1, simulator.nu))
    exact = simulator.linearize(state, control, PRESSED, substeps=100)
    assert float(simulator.model.clearance(state)[0]) < -1e-3, "the robot must be in contact"
    scales = [abs(getattr(PRESSED, name)) or 1.0 for name in PRESSED.names()]
    widths = (np.ones(simulator.n), np.ones(simulator.nu), np.array(scales))
    excess = [np.full(matrix.shape[2], np.inf) for matrix in exact]
    for epsilon in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        differences = finite_differences(simulator, state, control, PRESSED, substeps=100, epsilon=epsilon)
        for index, (a, b, width) in enumerate(zip(exact, differences, widths, strict=True)):
            rounding = 100 * np.finfo(float).eps * np.abs(state).max() / (epsilon * width)
            error = np.abs(a[0] - b[0]).max(axis=0) - rounding
            excess[index] = np.minimum(excess[index], error / np.maximum(np.abs(a[0]).max(axis=0), 1e-300))
    for name, errors in zip("ABC", excess, strict=True):
        assert errors.max() <= 1e-5, (name, errors.argmax(), errors.max())


def test_gradient_over_rubble_sees_the_terrain_scale() -> None:
    simulator = TensegritySimulator(superball(terrain=Terrain.rubble(seed=1)))
    state = pressed(simulator)
    controls = np.zeros((1, 2, 24))
    weight = np.zeros((1, 3, simulator.nx))
    weight[:, -1, 2] = 1.0
    gradient = simulator.vjp(state, controls, weight, PRESSED, substeps=50)
    exact = gradient.parameter_values[0, TensegrityParameters.index("terrain_scale")]

    def height(h: float) -> float:
        return float(simulator.rollout(state, controls, PRESSED.replace(terrain_scale=1 + h), substeps=50)[0][0, -1, 2])

    assert exact != 0.0 and error_of(float(exact), height, 1.0) <= 1e-5 * abs(exact)


def test_gradient_in_pieces_equals_gradient_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long rollouts are recorded control step by control step."""
    simulator, rng = TensegritySimulator(), np.random.default_rng(0)
    state, controls = np.repeat(pressed(simulator), 3, axis=0), rng.uniform(-50, 50, (3, 4, 24))
    weight = rng.standard_normal((3, 5, simulator.nx))
    whole = simulator.vjp(state, controls, weight, substeps=10)
    monkeypatch.setattr("softgym_envs.engines.warp.engine.RECORD_BYTES", 0)
    pieces = simulator.vjp(state, controls, weight, substeps=10)
    for a, b in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12 * np.abs(a).max())


RNG = np.random.default_rng(5)
STIFFNESS, REST = (tuple(1.0 + spread * RNG.uniform(-1.0, 1.0, 24)) for spread in (0.2, 0.02))
FACTORS = dict(zip(factor_names(24, 24), (*STIFFNESS, *REST, *(1.0,) * 24), strict=True))


@pytest.mark.parametrize("contact", ["stick", "patch"])
@pytest.mark.parametrize("learned", [False, True])
def test_factors_do_what_the_structure_does(contact: str, learned: bool) -> None:
    """Three rows that roll over the ground, one beside the other: the same numbers to rounding, and tensions too."""
    weights = tuple(random_weights(np.random.default_rng(1)) + 0.05) if learned else ()
    own = TensegritySimulator(contact=contact, own_cables=True, residual=weights)
    built = TensegritySimulator(
        replace(superball(), stiffness_ratio=STIFFNESS, rest_ratio=REST), contact=contact, residual=weights
    )
    controls = np.random.default_rng(2).uniform(-50.0, 50.0, (3, 4, 24))
    state = built.initial_state(3)
    parameters = own.default_parameters.replace(**FACTORS)
    for one, other in (
        (own.rollout(state, controls, parameters, substeps=50)[0], built.rollout(state, controls, substeps=50)[0]),
        (own.cable_tensions(state, parameters), built.cable_tensions(state)),
    ):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    alike = TensegritySimulator(contact=contact, residual=weights)
    same = own.rollout(state, controls, substeps=50)[0]
    assert (same == alike.rollout(state, controls, substeps=50)[0]).all()  # factors of 1


def test_a_factor_on_the_gain_is_one_on_the_motor() -> None:
    """One motor commanded by 10 that pulls 1.3 times as much is one commanded by 13."""
    own = TensegritySimulator(own_cables=True, contact="patch")
    controls = np.zeros((2, 5, 24))
    controls[0, :, 7], controls[1, :, 7] = 10.0, 13.0
    factors = np.ones(2)
    factors[0] = 1.3
    parameters = own.default_parameters.replace(gain_factor7=factors)
    states = own.rollout(own.initial_state(2), controls, parameters, substeps=40)[0]
    body = states[..., : 6 * 13]
    np.testing.assert_allclose(body[0], body[1], atol=1e-9)


def test_their_gradients_are_those_of_differences() -> None:
    simulator = TensegritySimulator(prism(), contact="patch", own_cables=True)
    names = simulator.default_parameters.names()
    rng = np.random.default_rng(3)
    controls, cotangent = rng.uniform(-1.0, 1.0, (1, 3, simulator.nu)), rng.standard_normal((1, 4, simulator.nx))
    state = simulator.initial_state(1)
    state[:, 2::13] += 1.0  # in the air
    found = simulator.vjp(state, controls, cotangent, substeps=20).parameter_values[0]
    for name in ("gain_factor1", "stiffness_factor0", f"stiffness_factor{simulator.model.num_cables - 1}", "rest_factor4"):
        ends = []
        for step in (-1e-5, 1e-5):
            moved = simulator.default_parameters.replace(**{name: 1.0 + step})
            ends.append(float((simulator.rollout(state, controls, moved, substeps=20)[0] * cotangent).sum()))
        assert found[names.index(name)] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-4, abs=1e-7)


def test_their_class_is_kept() -> None:
    parameter_values = TensegritySimulator(own_cables=True).default_parameters.replace(rest_factor3=1.01)
    assert pickle.loads(pickle.dumps(parameter_values)) == parameter_values
    with pytest.raises(OptionError, match="own_cables is 1, allowed are True and False"):
        TensegritySimulator(own_cables=1)  # type: ignore[arg-type]


def after_ten_steps(env: gym.Env[Any, Any], parameter_values: dict[str, float]) -> Any:
    """What is observed after a reset with such parameters."""
    env.reset(seed=0, options={"parameters": parameter_values})
    return [env.step(np.zeros(24))[0] for _ in range(10)][-1]


def test_a_fit_of_them_opens_as_an_environment(tmp_path: Path) -> None:
    simulator = TensegritySimulator(own_cables=True, contact="patch")
    parameter_values = simulator.default_parameters.replace(rest_factor3=1.01)
    file = parameter_values.save(tmp_path / "fit.toml", simulator=SimulatorSpec.of(simulator).table())
    with gym.make("softgym_envs:TensegrityRoll-v0", params=file) as env:
        opened = env.unwrapped.simulator  # type: ignore[attr-defined]
        assert opened.own_cables and opened.parameters_class is type(parameter_values)
        ends = [
            after_ten_steps(env, {}),
            after_ten_steps(env, {"rest_factor3": 1.01}),
            after_ten_steps(env, {"rest_factor3": 1.0}),
        ]
        assert (ends[0] == ends[1]).all() and (ends[0] != ends[2]).any()  # the file's own value acts


def test_the_procedure_frees_them_with_what_is_known_of_cables() -> None:
    for robot, some in ((TensegritySimulator(own_cables=True), 72), (TensegritySimulator(), 0)):
        for name in ("refine", "seen"):
            stage = PROCEDURE.stage(name)
            known = stage.prior_of(stage.free_of(robot))
            assert len(known) == some and set(known) == (set(factor_names(24, 24)) if some else set())


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
