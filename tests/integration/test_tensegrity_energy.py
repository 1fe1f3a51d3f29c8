"""Energy of tensegrity robots without motors: drops and throws gain none, or `gym.make` warns."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from softgym_envs.core.errors import SimulationWarning
from softgym_envs.systems.tensegrity.dynamics import MAX_ENERGY_GAIN, TensegritySimulator
from softgym_envs.systems.tensegrity.energy import MOTIONS, mechanical_energy, passive_gain, released
from softgym_envs.systems.tensegrity.model import TensegrityModel, prism, superball
from softgym_envs.systems.tensegrity.parameters import CONTACT, TensegrityParameters, own_parameters
from softgym_envs.systems.tensegrity.statics import find_form

Array = NDArray[np.float64]


def test_energy_is_conserved_in_flight_to_the_order_of_the_step() -> None:
    """Undamped cables, no contact: what is lost of the energy shrinks with the step."""
    errors = []
    for dt in (1e-3, 2.5e-4):
        simulator = TensegritySimulator(prism(), dt=dt)
        state = released(simulator.model, np.random.default_rng(1), 2)
        layout = simulator.model.split(state)
        layout[0][..., 2] += 50.0
        layout[3][...] += 1.0  # spin
        parameter_values = TensegrityParameters(cable_damping=0.01, rest_length=0.9)
        states, status = simulator.rollout(state, np.zeros((2, 50, 3)), parameter_values, substeps=round(0.01 / dt))
        assert not status.any()
        kinetic, potential = mechanical_energy(simulator.model, states, parameter_values)
        total = kinetic + potential
        errors.append(np.ptp(total, axis=1).max() / np.ptp(potential, axis=1).max())
    assert errors[0] < 0.05 and errors[1] < 0.35 * errors[0]


def test_motors_and_factors_of_cables_count_in_the_energy() -> None:
    model = prism()
    state = model.rest_state()
    model.split(state)[-1][...] = (1.0, -2.0, 0.0)
    plain = TensegrityParameters(rest_length=1.0, motor_gain=0.01)
    own = own_parameters(9, 3)(rest_length=1.0, motor_gain=0.01, stiffness_factor6=2.0, rest_factor7=0.9, gain_factor1=3.0)
    stretch = model.cable_lengths(state) - 1.0
    stretch[6:8] -= (0.01, -0.02)
    expected = 0.5e4 * np.sum(stretch**2)
    weight = 10.0 * 9.81 * model.split(state)[0][:, 2].sum()
    assert mechanical_energy(model, state[None, None], plain)[1][0, 0] == pytest.approx(weight + expected)
    stretch[7] = model.cable_lengths(state)[7] - 0.9 + 0.06
    expected = 0.5e4 * (np.sum(stretch**2) + stretch[6] ** 2)
    assert mechanical_energy(model, state[None, None], own)[1][0, 0] == pytest.approx(weight + expected)


@pytest.mark.parametrize("contact", ["stick", "paper"])
@pytest.mark.parametrize("model", [superball(), prism()])
def test_the_usual_constants_gain_no_energy(model: TensegrityModel, contact: str) -> None:
    simulator = TensegritySimulator(model, contact=contact)
    for gravity in (9.81, 0.981):
        assert passive_gain(simulator, TensegrityParameters(gravity=gravity)) < 0.01


@pytest.mark.parametrize("name", ["TensegrityRoll-v0", "TensegrityCrawl-v0", "TensegrityTerrain-v0", "TensegrityWaypoint-v0"])
def test_environments_do_not_warn_of_their_usual_constants(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", SimulationWarning)
        gymnasium.make(name, params={}).close()


@pytest.mark.parametrize("contact", ["stick", "paper", "patch"])
def test_a_prism_of_undamped_cables_is_not_lifted(contact: str) -> None:
    """From its rest pose; `prism()` is none, and the 138 J that its cables hold more there lift it by 0.19 m."""
    model, parameter_values = find_form(prism()), TensegrityParameters(cable_damping=0.01)
    simulator = TensegritySimulator(model, contact=contact)
    start = simulator.initial_state()
    states, _ = simulator.rollout(start, np.zeros((1, 200, 3)), parameter_values, substeps=10)
    assert (model.center_of_mass(states) - model.center_of_mass(start)[:, None])[..., 2].max() < 1e-3


@pytest.mark.parametrize("contact", ["stick", "paper"])
def test_stored_energy_that_lifts_a_prism_is_none_that_contact_made(contact: str) -> None:
    simulator, parameter_values = TensegritySimulator(prism(), contact=contact), TensegrityParameters(cable_damping=0.01)
    states, _ = simulator.rollout(simulator.initial_state(), np.zeros((1, 300, 3)), parameter_values, substeps=10)
    total = sum(mechanical_energy(simulator.model, states, parameter_values))
    assert total.max() - total[0, 0] < 0.001 * (total[0, 0] - total.min())


@pytest.mark.parametrize(
    ("contact", "parameter_values"),
    [
        ("stick", {"cable_damping": 0.1, "restitution": 0.95, "contact_bias": 0.5}),
        ("paper", {"cable_damping": 0.02, "restitution": 0.9, "contact_bias": 0.2}),
        ("patch", {"cable_damping": 10.0}),
        ("stick", {"cable_damping": 3000.0}),
    ],
)
def test_contact_that_makes_energy_is_warned_of_in_every_mode(contact: str, parameter_values: dict[str, float]) -> None:
    with pytest.warns(SimulationWarning, match="without motors the robot"):
        options = {"contact": contact}
        gymnasium.make("TensegrityCrawl-v0", params={"gravity": 9.81, **parameter_values}, options=options).close()


def drawn(rng: np.random.Generator, count: int, contact: str) -> list[TensegrityParameters]:
    """Parameters of body and contact, drawn within their bounds."""
    body, specs = ("rod_mass", "cable_stiffness", "cable_damping", "rest_length", "gravity"), TensegrityParameters.specs()
    draws = []
    for _ in range(count):
        values = {}
        for name in (*body, *CONTACT[contact]):
            low, high = specs[name].bounds
            logarithmic = specs[name].scale == "log"
            values[name] = low * (high / low) ** rng.random() if logarithmic else rng.uniform(low, high)
        draws.append(TensegrityParameters(**values))
    return draws


@pytest.mark.parametrize(("contact", "count"), [("stick", 300), ("paper", 300), ("patch", 40)])
def test_what_gains_energy_is_warned_of_and_little_else(contact: str, count: int) -> None:
    """Draws of all parameters, let go in other ways than those of the check, against what `gym.make` warns of.

    A gain may be rare: of 300 draws three may gain in these motions only. A warning without a gain in any motion is of damping
    or stiffness beyond what steps bear, of cables that hang slack.
    """
    simulator = TensegritySimulator(prism(), contact=contact)
    checked = released(simulator.model, np.random.default_rng(0), MOTIONS)
    others = released(simulator.model, np.random.default_rng(7), 4)
    table = np.zeros((2, 2), dtype=int)  # gains, warned
    for parameter_values in drawn(np.random.default_rng(11), count, contact):
        limits = simulator.stability_limits(parameter_values).items()
        limited = any(getattr(parameter_values, name) > 1.01 * most for name, most in limits)
        gains = passive_gain(simulator, parameter_values, others) > MAX_ENERGY_GAIN
        told = (not limited or not gains) and passive_gain(simulator, parameter_values, checked) > MAX_ENERGY_GAIN
        table[int(gains or told), int(limited or told)] += 1
    assert table.sum() == count and table[1, 1] > 0.1 * count
    assert table[1, 0] <= 0.01 * count, table
    assert table[0, 1] <= max(0.05 * table[0].sum(), 2), table
