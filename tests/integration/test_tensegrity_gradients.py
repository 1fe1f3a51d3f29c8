"""Gradients of the tensegrity engine through contact and terrain against central differences."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from softgym_envs.core.simulator import finite_differences
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import prism, superball
from softgym_envs.systems.tensegrity.parameters import CONTACT, TensegrityParameters
from softgym_envs.systems.tensegrity.terrain import Terrain

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
