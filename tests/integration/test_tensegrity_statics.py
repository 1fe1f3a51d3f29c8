"""Form finding, stability, structure files, ground heights, and what is refused. Energy of tensegrity robots without motors:
drops and throws gain none, or `gym.make` warns."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import gymnasium
import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray
from tensegrity_systems import STRUCTURE, lifted

from softgym_envs.core.errors import OptionError, ParameterError, SimulationWarning, StructureError
from softgym_envs.systems.tensegrity.dynamics import MAX_ENERGY_GAIN, TensegritySimulator
from softgym_envs.systems.tensegrity.energy import MOTIONS, mechanical_energy, passive_gain, released
from softgym_envs.systems.tensegrity.model import TensegrityModel, prism, superball
from softgym_envs.systems.tensegrity.parameters import CONTACT, TensegrityBody, TensegrityParameters, own_parameters
from softgym_envs.systems.tensegrity.statics import find_form
from softgym_envs.systems.tensegrity.structure_file import load_structure
from softgym_envs.systems.tensegrity.terrain import Terrain

Array = NDArray[np.float64]


# --- statics and structures ------------------------------------------------------------------------------------------


def test_form_finding_finds_the_known_rest_poses() -> None:
    """SUPERball: cables of sqrt(6)/4 of the rod by symmetry. Any structure: the net force on every rod is zero."""
    model = superball()
    rng = np.random.default_rng(0)
    shaken = np.concatenate([np.tile(np.repeat([0.03, 0.05, 0.0, 0.0], 3), 6) * rng.standard_normal(72), np.zeros(24)])
    crooked = replace(model, nodes=model.node_positions(model.layout.retract(model.state_from_nodes(model.nodes), shaken)))
    found = find_form(crooked)
    lengths = found.cable_lengths(found.state_from_nodes(found.nodes))
    np.testing.assert_allclose(lengths, np.sqrt(6) / 4 * 1.684, atol=1e-6)
    np.testing.assert_allclose(found.rod_lengths, 1.684, atol=1e-9)
    settled_prism = find_form(prism())
    simulator = TensegritySimulator(settled_prism)
    force = net_forces(settled_prism, simulator.cable_tensions(simulator.initial_state())[0])
    assert np.abs(force).max() < 1e-3  # of 1e3 N of tension


def net_forces(model: TensegrityModel, tensions: Array) -> Array:
    """Sum of the cables' pulls on each rod, (R, 3)."""
    total = np.zeros((model.num_rods, 3))
    for (a, b), tension in zip(model.cables, tensions, strict=True):
        pull = tension * (model.nodes[b] - model.nodes[a]) / np.linalg.norm(model.nodes[b] - model.nodes[a])
        total[a // 2] += pull
        total[b // 2] -= pull
    return total


def eigenvalues(simulator: TensegritySimulator, parameters: TensegrityParameters) -> Array:
    """Of one step about the nodes at rest, without gravity and contact."""
    state = lifted(simulator.model, simulator.initial_state()[0])[None]
    step = simulator.linearize(state, np.zeros((1, simulator.nu)), parameters.replace(gravity=0.0))
    return np.linalg.eigvals(step.A[0])


@pytest.mark.parametrize(
    ("changes", "dt"), [({}, 1e-3), ({"cable_damping": 1500.0}, 1e-3), ({"rod_mass": 5.0}, 1e-3), ({}, 1.5e-3)]
)
def test_eigenvalues_say_what_happens(changes: dict[str, float], dt: float) -> None:
    """A pushed robot in free flight comes to rest or not, as the eigenvalues of the rest pose said."""
    simulator = TensegritySimulator(dt=dt)
    parameters = TensegrityParameters(gravity=0.0, **changes)
    # Free translations and rotations are double eigenvalues 1, which rounding spreads by its square root.
    stable = np.abs(eigenvalues(simulator, parameters)).max() < 1 + 1e-6
    model = simulator.model
    push = np.concatenate([np.tile(np.repeat([0, 0, 1e-6, 1e-6], 3), 6), np.zeros(24)])
    state = lifted(
        model,
        model.layout.retract(simulator.initial_state()[0], push * np.random.default_rng(0).standard_normal(model.layout.n)),
    )
    end, status = simulator.step(state[None], np.zeros((1, 24)), parameters, substeps=2000)
    speed = np.abs(end[0, 7:10] - model.com_velocity(end)[0]).max()
    assert (status[0] == 0 and speed < 1e-5) == stable


@pytest.mark.parametrize("make", [superball, lambda: find_form(prism())])
@pytest.mark.parametrize(("changes", "dt"), [({}, 1e-3), ({"cable_stiffness": 5e4}, 1e-3), ({"rod_mass": 3.0}, 5e-4)])
def test_what_steps_bear_is_where_the_lowest_eigenvalue_is_minus_one(make: Any, changes: dict[str, float], dt: float) -> None:
    """Of the linearised step, which the formula does not use; pretension turns cables, which it leaves out: to a percent."""
    simulator = TensegritySimulator(make(), dt=dt)
    parameters = simulator.default_parameters.replace(**changes)
    most = simulator.stability_limits(parameters)["cable_damping"]
    both = [eigenvalues(simulator, parameters.replace(cable_damping=share * most)) for share in (0.99, 1.01)]
    lowest = [values.real[np.abs(values.imag) < 1e-9].min() for values in both]
    assert lowest[0] > -1.0 > lowest[1]


def test_light_rods_bear_stiffness_so_far_only() -> None:
    """Without damping, rods of 50 g; to a tenth, since pretension, which grows with it, is left out."""
    simulator = TensegritySimulator()
    light = simulator.default_parameters.replace(rod_mass=0.05, cable_damping=0.01)
    most = simulator.stability_limits(light)["cable_stiffness"]
    radius = [np.abs(eigenvalues(simulator, light.replace(cable_stiffness=share * most))).max() for share in (0.9, 1.1)]
    assert radius[0] < 1.001 < radius[1]
    assert simulator.stability_limits(light.replace(cable_stiffness=1.1 * most))["cable_damping"] == 0.0


def test_cables_of_their_own_are_borne_as_far_as_the_stiffest() -> None:
    """All twice as stiff, and so twice as damped: half as far; one alone lowers it by less. A held rod changes nothing."""
    plain, own = TensegritySimulator(), TensegritySimulator(own_cables=True, fixed_rod=0)
    usual = own.default_parameters
    pull = 0.5 * 1e4 * 1e-3  # [N s/m] the stiffness counts as so much damping

    def most(**factors: float) -> float:
        return own.stability_limits(usual.replace(**factors))["cable_damping"] + pull

    assert most() == pytest.approx(plain.stability_limits(plain.default_parameters)["cable_damping"] + pull, rel=1e-12)
    assert most(**{f"stiffness_factor{cable}": 2.0 for cable in range(24)}) == pytest.approx(most() / 2, rel=1e-12)
    assert most() / 2 < most(stiffness_factor3=2.0) < most()


def test_a_damping_that_steps_do_not_bear_is_warned_of_and_shakes_a_robot_for_ever() -> None:
    """Nothing is commanded: at 1000 N s/m the robot comes to rest, at 1500 it does not; in half the step it does again.

    the MuJoCo model, which damps as explicitly, is warned of alike, and its implicit integrator is not.
    """

    def speed(**keywords: Any) -> float:
        """Of the fastest node after 5 s [m/s]."""
        env: Any = gym.make("softgym_envs:TensegrityRoll-v0", disable_env_checker=True, **keywords)
        env.reset(seed=0)
        for _ in range(50):
            env.step(np.zeros(24, dtype=np.float32))
        robot = env.unwrapped
        return float(np.abs(robot.simulator.model.node_velocities(robot.state)).max())

    too_much = {"cable_damping": 1500.0}
    assert speed() < 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert speed(params=too_much, dt=5e-4) < 0.05
    for backend in ("native", "mujoco"):
        with pytest.warns(SimulationWarning, match="steps of 0.001 s bear 1107"):
            assert speed(params=too_much, backend=backend) > 0.5
    implicit = {"backend": "mujoco", "options": {"effects": {"implicit": 1.0}}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert speed(params=too_much, **implicit) < 0.05
    with pytest.warns(SimulationWarning, match="up to 1500 N s/m"):
        gym.make("softgym_envs:TensegrityRoll-v0", randomize={"cable_damping": (500.0, 1500.0)}, disable_env_checker=True)


def test_structures_come_from_toml(tmp_path) -> None:
    path = tmp_path / "robot.toml"
    path.write_text(STRUCTURE)
    model = load_structure(path)
    assert (model.name, model.num_rods, model.cables, model.actuated) == ("tripod", 2, ((0, 2), (1, 3)), (0, 1))
    # Twice the stiffness pulls twice as hard.
    simulator = TensegritySimulator(model)
    tensions = simulator.cable_tensions(simulator.initial_state(), TensegrityParameters(rest_length=0.4))
    np.testing.assert_allclose(tensions[0], [0.1e4, 0.2e4], rtol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('nodes = ["a", "c"]', 'nodes = ["a", "x"]', "cable 0 dangles: node 'x' does not exist"),
        ('nodes = ["a", "c"]', 'nodes = ["a", "b"]', "cable 0 joins nodes 0 and 1 of one rod"),
        ('nodes = ["c", "d"]', 'nodes = ["c", "a"]', "node 'a' is the end of 2 rods"),
        ("d = [0.5, 0.0, 1.0]", "d = [0.5, 0.0]", r"nodes\.d is"),
        ("d = [0.5, 0.0, 1.0]", "d = [0.5, 0.0, 0.01]", "rod 1 is 0.01 m long"),
        ('actuated = ["c0", "c1"]', 'actuated = ["c7"]', "actuated cable 'c7' does not exist"),
        ('name = "tripod"', 'nmae = "tripod"', "unknown entry 'nmae'"),
        ("stiffness_ratio = 2.0", 'stiffness_ratio = "stiff"', "cables 1: stiffness_ratio is 'stiff', expected a finite"),
        ('actuated = ["c0", "c1"]', 'actuated = "c0"', "actuated is 'c0', expected a list"),
        ('actuated = ["c0", "c1"]', "rod_radius = true", "rod_radius is True, expected a finite number"),
        ("[nodes]", "[nodes", "not valid TOML"),
    ],
)
def test_bad_structures_are_refused_with_one_clear_error(tmp_path, old: str, new: str, message: str) -> None:
    path = tmp_path / "robot.toml"
    path.write_text(STRUCTURE.replace(old, new, 1))
    with pytest.raises((StructureError, ValueError), match=message):
        load_structure(path)


def test_ground_height_is_bilinear_for_few_points_and_for_many() -> None:
    """Grid points, the middle of a cell (mean of its corners), the rim goes on; both ways agree bit for bit; NaN stays NaN."""
    heights = np.random.default_rng(0).standard_normal((5, 9))
    ground = Terrain(heights=heights, cell=0.5, angle=0.1)
    x, y = np.meshgrid(0.5 * (np.arange(5) - 2), 0.5 * (np.arange(9) - 4), indexing="ij")
    np.testing.assert_allclose(ground.height(x, y, 3.0), 3.0 * heights + np.tan(0.1) * x, atol=1e-14)
    corners = heights[1:3, 2:4].mean() + np.tan(0.1) * -0.25
    np.testing.assert_allclose(ground.height(np.array([-0.25]), np.array([-0.75])), corners, atol=1e-14)
    np.testing.assert_allclose(
        ground.height(np.array([50.0]), np.array([-50.0])), heights[-1, 0] + np.tan(0.1) * 50, atol=1e-12
    )
    points = np.random.default_rng(1).uniform(-3, 3, (2, 60, 12))
    points[0, 3, 3] = points[1, 7, 5] = np.nan
    many = ground.height(*points)
    np.testing.assert_array_equal(many, [ground.height(px, py) for px, py in zip(*points, strict=True)])
    assert np.argwhere(np.isnan(many)).tolist() == [[3, 3], [7, 5]]
    assert np.isnan(Terrain.flat().height(np.array([0.0, np.nan, 0.0]), np.array([0.0, 0.0, np.nan]))).tolist() == [
        False,
        True,
        True,
    ]


def test_bad_simulators_are_refused() -> None:
    with pytest.raises(OptionError, match="contact is 'sticky', allowed are paper, stick, patch"):
        TensegritySimulator(contact="sticky")
    with pytest.raises(OptionError, match="device is 'tpu'"):
        TensegritySimulator(device="tpu")
    with pytest.raises(StructureError, match="fixed_rod is 9"):
        TensegritySimulator(fixed_rod=9)
    with pytest.raises(ParameterError, match="parameters are TensegrityBody"):
        simulator = TensegritySimulator()
        simulator.step(simulator.initial_state(), np.zeros((1, 24)), TensegrityBody())
    with pytest.raises(StructureError, match="slack"):
        find_form(superball(), TensegrityParameters(rest_length=3.0))


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
