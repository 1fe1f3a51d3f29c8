"""Physics of the rigid system against closed forms, invariants, a second formulation, enumeration and MuJoCo."""

from __future__ import annotations

import itertools
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from rigid_ground_truth import jumping, slide

from softgym_envs.core.errors import OptionError, ParameterError, StructureError
from softgym_envs.core.simulator import Status, finite_differences
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.lcp import pivot
from softgym_envs.systems.rigid.model import BlockModel, ParticleModel
from softgym_envs.systems.rigid.mujoco import MujocoBlock, MujocoParticles, mujoco_particle_parameters
from softgym_envs.systems.rigid.parameters import BlockParameters, particle_parameters
from softgym_envs.systems.rigid.symbolic import complementarity_form

SYMMETRIC = tuple((0.06 * np.cos(a), 0.06 * np.sin(a)) for a in 2 * np.pi / 3 * np.arange(3))
FREE = BlockModel(pulley=None)


# --- Lemke's method -----------------------------------------------------------------------------------------------------


def enumerated(M, q):
    """All solutions, by trying every set of basic pairs."""
    found = []
    for basic in itertools.product((False, True), repeat=len(q)):
        basic = np.array(basic)
        z = np.zeros(len(q))
        if basic.any():
            block = M[np.ix_(basic, basic)]
            if abs(np.linalg.det(block)) < 1e-12:
                continue
            z[basic] = np.linalg.solve(block, -q[basic])
        if (z >= -1e-12).all() and (M @ z + q >= -1e-12).all():
            found.append(z)
    return found


@pytest.mark.parametrize("size", [1, 3, 6])
def test_lcp_against_enumeration(size):
    rng = np.random.default_rng(size)
    for _ in range(40):
        root = rng.normal(size=(size, size))
        skew = rng.normal(size=(size, size))
        M, q = root @ root.T + 0.1 * np.eye(size) + skew - skew.T, rng.normal(size=size)
        z = np.zeros(size)
        solved = pivot(M, q, np.zeros(size, dtype=np.bool_), z)
        (expected,) = enumerated(M, q)  # positive definite: exactly one
        assert solved
        np.testing.assert_allclose(z, expected, rtol=0, atol=1e-9 * (1 + np.abs(expected).max()))


def test_lcp_without_solution_says_so():
    assert not pivot(np.array([[-1.0]]), np.array([-1.0]), np.zeros(1, dtype=np.bool_), np.zeros(1))


# --- The step solves its problem ----------------------------------------------------------------------------------------


def random_block(rng, rows):
    """Poses anywhere, from rest to fast, loads from nothing to several times what friction holds."""
    state = rng.normal(size=(rows, 6)) * np.array([0.1, 0.1, 3.0, 0.3, 0.3, 3.0])
    state[:, 3:] *= 10.0 ** rng.uniform(-6, 0.5, (rows, 1))
    state[rng.random(rows) < 0.2, 3:] = 0.0
    control = rng.uniform(-10, 10, (rows, 2)) * 10.0 ** rng.uniform(-4, 0, (rows, 1))
    control[rng.random(rows) < 0.1] = 0.0
    table = {"friction": (0, 1.5), "mass": (0.1, 10), "inertia": (1e-3, 0.1), "weight": (0, 2), "gravity": (1, 20)}
    return state, control, BlockParameters(**{name: rng.uniform(*ends, rows) for name, ends in table.items()})


def dragged_block(rng, rows):
    """The same on tables that are not level, with drag."""
    state, control, parameters = random_block(rng, rows)
    table = {"drag": (0, 10), "tilt_x": (-0.5, 0.5), "tilt_y": (-0.5, 0.5)}
    return state, control, parameters.replace(**{name: rng.uniform(*ends, rows) for name, ends in table.items()})


def random_particle(rng, rows):
    """On the ground, over it, a little in it; moving in all directions."""
    state = rng.normal(size=(rows, 4)) * np.array([1.0, 0.1, 1.0, 1.0])
    state[:, 1] = np.where(rng.random(rows) < 0.5, 0.0, np.abs(state[:, 1]))
    state[rng.random(rows) < 0.2, 2:] = 0.0
    table = {"friction": (0, 1), "mass": (0.1, 10), "gravity": (0, 20), "drag": (0, 10), "tilt_x": (-0.5, 0.5)}
    kind = particle_parameters(1)
    return state, rng.uniform(-10, 10, (rows, 1)), kind(**{name: rng.uniform(*ends, rows) for name, ends in table.items()})


@pytest.mark.parametrize(
    ("simulator", "draw", "rows"),
    [
        (ParticleSimulator(), random_particle, 100_000),
        (BlockSimulator(BlockModel(num_directions=8)), random_block, 30_000),
        (BlockSimulator(BlockModel(num_directions=64), dt=0.1), random_block, 5_000),
        (BlockSimulator(BlockModel(num_directions=8)), dragged_block, 10_000),
    ],
    ids=["particle", "block", "many-edges", "dragged"],
)
def test_complementarity_residual_over_random_steps(simulator, draw, rows):
    """g = 0 and 0 <= z ⊥ f >= 0 in the paper's own form and units, written down a second time in CasADi."""
    pytest.importorskip("casadi")
    state, control, parameters = draw(np.random.default_rng(0), rows)
    after, status = simulator.step(state, control, parameters)
    assert (status == Status.OK).all()
    form = complementarity_form(simulator)
    z = simulator.pair_values(state, control, parameters)
    assert form.residual(state, control, parameters.to_matrix(rows), after, z).max() <= 1e-10


def test_several_particles_are_single_ones_side_by_side():
    rng = np.random.default_rng(1)
    state, control, _ = random_particle(rng, 3)
    friction = rng.uniform(0, 0.5, 3)
    together = ParticleSimulator(ParticleModel(3))
    parameter_values = together.parameters_class(**{f"friction{i}": f for i, f in enumerate(friction)})
    controls = np.repeat(control.reshape(1, 1, 3), 30, axis=1)
    states, _ = together.rollout(state.reshape(1, -1), controls, parameter_values)
    alone, _ = ParticleSimulator().rollout(state, controls[0].T[..., None], particle_parameters(1)(friction=friction))
    np.testing.assert_array_equal(states.reshape(31, 3, 4), np.swapaxes(alone, 0, 1))


# --- Closed forms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["particle", "block"])
def test_stopping_distance(kind):
    """v falls by mu g h in every step: the distance is h sum_k (v0 - k mu g h), and tends to v0^2 / (2 mu g) as h does to 0."""
    friction, v0, errors = 0.3, 1.0, []
    for h in (0.02, 0.01, 0.005):
        if kind == "particle":
            simulator, state, column = ParticleSimulator(dt=h), np.array([[0.0, 0.0, v0, 0.0]]), 2
        else:
            simulator, state, column = BlockSimulator(FREE, dt=h), np.array([[0.0, 0.0, 0.0, v0, 0.0, 0.0]]), 3
        parameters = simulator.parameters_class(friction=friction)
        states, _ = simulator.rollout(state, np.zeros((1, round(0.5 / h), simulator.nu)), parameters)
        assert abs(states[0, -1, column]) < 1e-15  # at rest, to rounding
        speeds = np.maximum(v0 - friction * 9.81 * h * np.arange(1, round(0.5 / h) + 1), 0.0)
        assert states[0, -1, 0] == pytest.approx(h * speeds.sum(), rel=1e-12)
        errors.append(abs(states[0, -1, 0] - v0**2 / (2 * friction * 9.81)))
    assert np.log2(errors[0] / errors[2]) / 2 == pytest.approx(1.0, abs=0.15)  # first order


def test_fall_is_free_and_impact_is_plastic():
    simulator = ParticleSimulator(dt=0.01)
    states, _ = simulator.rollout(np.array([[0.0, 1.0, 0.5, 0.0]]), np.zeros((1, 100, 1)))
    k = np.arange(40)  # h k (k + 1) / 2: sum of the velocities at the ends of the steps
    np.testing.assert_allclose(states[0, k, 1], 1.0 - 9.81 * 1e-4 * k * (k + 1) / 2, atol=1e-12)
    assert (states[0, :, 1] >= -1e-12).all()
    assert np.abs(states[0, -1, 1]) < 1e-12 and np.abs(states[0, -1, 3]) < 1e-12


def test_straight_pull_has_the_acceleration_of_two_bodies_and_a_string():
    """(m + m_w) a = m_w g - mu m g, exactly, in every step."""
    simulator = BlockSimulator(BlockModel(attachment=(0.1, 0.0), pulley=(5.0, 0.0)))
    parameters = BlockParameters(friction=0.33, weight=0.5)
    states, _ = simulator.rollout(simulator.initial_state(), np.zeros((1, 50, 2)), parameters)
    a = (0.5 - 0.33) * 9.81 / 1.5
    np.testing.assert_allclose(np.diff(states[0, :, 3]) / simulator.dt, a, rtol=1e-10)
    np.testing.assert_allclose(states[0, :, [1, 2, 4, 5]], 0.0, atol=1e-12)


def test_a_slide_down_a_slope_with_drag():
    """(m + h c) v+ = m v + h m g (sin a - mu cos a): by first order in h to the exponential that the equation has."""
    slope, drag, friction, v0, errors = 0.2, 2.0, 0.3, 1.0, []
    push = 9.81 * (np.sin(slope) - friction * np.cos(slope))
    for h in (0.01, 0.005, 0.0025):
        for axis, tilt in ((3, "tilt_x"), (4, "tilt_y")):
            simulator, state = BlockSimulator(FREE, dt=h), np.zeros((1, 6))
            state[0, axis] = v0
            parameter_values = BlockParameters(friction=friction, drag=drag, **{tilt: slope})
            states, _ = simulator.rollout(state, np.zeros((1, round(0.2 / h), 2)), parameter_values)
            speed = (v0 - push / drag) * (1 + h * drag) ** -np.arange(round(0.2 / h) + 1.0) + push / drag
            np.testing.assert_allclose(states[0, :, axis], speed, rtol=1e-10)
        errors.append(abs(states[0, -1, 4] - ((v0 - push / drag) * np.exp(-drag * 0.2) + push / drag)))
    assert np.log2(errors[0] / errors[2]) / 2 == pytest.approx(1.0, abs=0.15)


def test_a_particle_falls_and_slides_on_ground_that_is_not_level_with_drag():
    """(m + h c) v+ = m v + h (F + m g (sin a - mu cos a)), without mu in the air, where m g cos a pulls it down."""
    mass, drag, friction, slope, push, h = 2.0, 3.0, 0.3, 0.15, 5.0, 0.01
    parameter_values = particle_parameters(1)(friction=friction, mass=mass, drag=drag, tilt_x=slope)
    begin = np.array([[0.0, 0.0, 1.0, 0.0], [0.0, 9.0, 1.0, 0.0]])  # on the ground, and high above it
    states, _ = ParticleSimulator(dt=h).rollout(begin, np.full((2, 50, 1), push), parameter_values)
    held = friction * np.cos(slope) * np.array([1.0, 0.0])
    ends = (push + mass * 9.81 * (np.sin(slope) - held)) / drag
    left = (1 + h * drag / mass) ** -np.arange(51.0)
    np.testing.assert_allclose(states[:, :, 2], (1.0 - ends)[:, None] * left + ends[:, None], rtol=1e-10)
    np.testing.assert_allclose(states[1, :, 3], mass * 9.81 * np.cos(slope) / drag * (left - 1.0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("tilt_x", "slides"), [(0.28, False), (0.30, True)])
def test_a_block_slides_by_itself_where_the_slope_is_steeper_than_friction(tilt_x, slides):
    """tan a > mu, with mu = 0.3: a = 0.2915."""
    states, _ = BlockSimulator(FREE).rollout(
        np.zeros((1, 6)), np.zeros((1, 50, 2)), BlockParameters(friction=0.3, tilt_x=tilt_x)
    )
    assert bool(states[0, -1, 3] > 1e-6) == slides


def test_a_light_weight_moves_nothing():
    simulator = BlockSimulator()
    state = np.tile(np.array([0.1, -0.2, 0.7, 0.0, 0.0, 0.0]), (5, 1))
    weights = BlockParameters(friction=0.5, weight=np.linspace(0.0, 0.3, 5))
    states, _ = simulator.rollout(state, np.zeros((5, 20, 2)), weights)
    np.testing.assert_allclose(states, np.repeat(state[:, None], 21, axis=1), rtol=0, atol=1e-14)


def test_spin_on_symmetric_supports_stops_by_the_moment_of_friction():
    """I d omega/dt = -mu m g r, up to the cone's edges: their force is at most pi/d off the sliding direction."""
    model = BlockModel(supports=SYMMETRIC, pulley=None, num_directions=64)
    simulator = BlockSimulator(model, dt=1e-3)
    states, _ = simulator.rollout(np.array([[0.0, 0.0, 0.2, 0.0, 0.0, 8.0]]), np.zeros((1, 100, 2)))
    c = simulator.default_parameters
    expected = c.friction * c.mass * c.gravity * 0.06 / c.inertia
    slowing = (8.0 - states[0, -1, 5]) / 0.1
    assert np.cos(np.pi / 64) * expected <= slowing <= expected
    np.testing.assert_allclose(states[0, -1, :2], 0.0, atol=1e-4)


# --- Invariants ---------------------------------------------------------------------------------------------------------


def test_energy_never_grows():
    rng = np.random.default_rng(2)
    state, _, parameters = random_particle(rng, 2000)
    states, _ = ParticleSimulator().rollout(state, np.zeros((2000, 40, 1)), parameters)
    c = parameters.to_matrix(2000)[:, None]
    height = states[..., 1] * np.cos(c[..., 4]) - states[..., 0] * np.sin(c[..., 4])
    energy = 0.5 * c[..., 1] * (states[..., 2:] ** 2).sum(axis=-1) + c[..., 1] * c[..., 2] * height
    assert (np.diff(energy, axis=1) <= 1e-12 * (1 + np.abs(energy[:, :-1]))).all()
    state, _, parameters = random_block(rng, 2000)
    states, _ = BlockSimulator(FREE).rollout(state, np.zeros((2000, 40, 2)), parameters)
    c = parameters.to_matrix(2000)[:, None]
    energy = 0.5 * c[..., 1] * (states[..., 3:5] ** 2).sum(axis=-1) + 0.5 * c[..., 2] * states[..., 5] ** 2
    assert (np.diff(energy, axis=1) <= 1e-12 * (1 + energy[:, :-1])).all()


def test_pulled_block_neither_gains_nor_loses_without_friction():
    """Energy of block and weight is conserved up to the integrator: its error falls with h, at first order."""
    errors = []
    model = BlockModel()
    for h in (0.01, 0.005, 0.0025):
        simulator = BlockSimulator(model, dt=h)
        parameters = BlockParameters(friction=0.0)
        states, _ = simulator.rollout(simulator.initial_state(), np.zeros((1, round(0.5 / h), 2)), parameters)
        length = np.linalg.norm(np.array(model.pulley) - model.to_table(states[0], model.attachment), axis=-1)
        speed = -np.diff(length) / h
        v = states[0, 1:, 3:]
        kinetic = 0.5 * (v[:, 0] ** 2 + v[:, 1] ** 2) + 0.5 * parameters.inertia * v[:, 2] ** 2 + 0.25 * speed**2
        drop = 0.5 * 9.81 * (length[0] - length[1:])
        errors.append(np.abs(kinetic - drop).max() / drop.max())
    assert errors[0] > errors[1] > errors[2]
    assert np.log2(errors[0] / errors[2]) / 2 == pytest.approx(1.0, abs=0.3)


def test_friction_opposes_and_stays_in_its_cone():
    rng = np.random.default_rng(3)
    simulator = BlockSimulator(FREE)
    state, control, parameters = random_block(rng, 3000)
    z = simulator.pair_values(state, control, parameters)
    d = simulator.model.num_directions
    c = parameters.to_matrix(len(state))
    loads = c[:, 1:2] * c[:, 4:5] * simulator.model.shares
    total = z[:, : 3 * d].reshape(-1, 3, d).sum(axis=2)
    assert (z >= 0).all() and (total <= c[:, :1] * loads * (1 + 1e-10)).all()


# --- Derivatives --------------------------------------------------------------------------------------------------------


def test_what_sticks_has_no_derivative_by_the_control():
    simulator = BlockSimulator(FREE)
    found = simulator.linearize(np.zeros((1, 6)), np.zeros((1, 2)), substeps=5)
    np.testing.assert_allclose(found.B, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.A[0, 3:, 3:], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.A[0, :3, :3], np.eye(3), atol=1e-12)


def test_derivatives_of_random_steps_are_those_of_differences():
    rng = np.random.default_rng(4)
    tilted = BlockParameters(drag=2.0, tilt_x=0.1, tilt_y=-0.2)
    for simulator, draw, parameter_values in (
        (ParticleSimulator(), random_particle, None), (BlockSimulator(), random_block, None),
        (ParticleSimulator(), random_particle, particle_parameters(1)(drag=2.0, tilt_x=0.1)),
        (BlockSimulator(), random_block, tilted),
    ):  # fmt: skip
        state, control, _ = draw(rng, 300)
        exact = simulator.linearize(state, control, parameter_values)
        differences = finite_differences(simulator, state, control, parameter_values, epsilon=1e-7)
        for a, b in zip(exact, differences, strict=True):
            error = np.abs(a - b).reshape(300, -1).max(axis=1) / (1 + np.abs(b).reshape(300, -1).max(axis=1))
            # States at rest or at touch are corners, where differences average two pieces.
            assert (error < 1e-5).mean() > 0.75


# --- Against MuJoCo -----------------------------------------------------------------------------------------------------


def test_block_against_mujoco():
    """0.8 s under the string: round cone and body in space there, polygons in the plane here. End within 2 % of the way."""
    native, mujoco_model = BlockSimulator(BlockModel(num_directions=64), dt=0.0025), MujocoBlock(height=0.006)
    ours, _ = native.rollout(native.initial_state(), np.zeros((1, 80, 2)), substeps=4)
    theirs, _ = mujoco_model.rollout(mujoco_model.initial_state(), np.zeros((1, 80, 2)), substeps=10)
    way = np.linalg.norm(theirs[0, -1, :2])
    assert way > 0.3
    assert np.linalg.norm(ours[0, -1, :2] - theirs[0, -1, :2]) < 0.02 * way
    assert np.abs(ours[0, :, 2] - theirs[0, :, 2]).max() < 0.05


def test_a_block_on_a_slope_with_drag_against_mujoco():
    """Both tilts at once, a turning block without string: within 2 % of the way after 0.6 s."""
    native, mujoco_model = BlockSimulator(replace(FREE, num_directions=64), dt=0.0025), MujocoBlock(FREE, height=0.006)
    told = {"friction": 0.25, "drag": 1.0, "tilt_x": 0.1, "tilt_y": -0.15}
    ends = []
    for simulator, substeps in ((native, 4), (mujoco_model, 10)):
        start = simulator.initial_state()
        start[0, 3:6] = (0.8, 0.5, 3.0)
        states, _ = simulator.rollout(
            start, np.zeros((1, 60, 2)), simulator.default_parameters.replace(**told), substeps=substeps
        )
        ends.append(states[0, -1, :3])
    way = np.linalg.norm(ends[1][:2])
    assert way > 0.15
    assert np.linalg.norm(ends[0][:2] - ends[1][:2]) < 0.02 * way
    assert abs(ends[0][2] - ends[1][2]) < 0.05


@pytest.mark.parametrize(("friction", "tips"), [(0.35, False), (0.5, False), (0.75, True), (1.2, True)])
def test_the_mujoco_model_tips_where_statics_says(friction, tips):
    """Friction at the table pitches a sliding block about its foot in front, 0.06 m ahead, once friction * height > 0.06 m."""
    mujoco_model = MujocoBlock(FREE, height=0.1)
    start = mujoco_model.initial_state()
    start[0, 3] = 1.5
    parameter_values = mujoco_model.default_parameters.replace(friction=friction)
    states, _ = mujoco_model.rollout(start, np.zeros((1, 12, 2)), parameter_values, substeps=10)
    assert bool(np.abs(states[0, :, 7]).max() > 0.05) == tips


def test_the_mujoco_models_centre_of_mass_is_as_high_as_said():
    mj = MujocoBlock(FREE, height=0.07).mj_model()
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    np.testing.assert_allclose(data.xipos[1], [0.0, 0.0, 0.07], atol=1e-12)


@pytest.mark.parametrize("told", [{}, {"drag": 0.5, "tilt_x": -0.1}])
def test_particles_against_mujoco(told):
    native, mujoco_model = ParticleSimulator(ParticleModel(2), dt=1e-3), MujocoParticles(ParticleModel(2))
    controls = np.tile(np.array([5.0, -3.0]), (1, 40, 1))
    ours, theirs = (
        one.rollout(one.initial_state(), controls, one.default_parameters.replace(**told), substeps=50)[0]
        for one in (native, mujoco_model)
    )
    np.testing.assert_allclose(ours[0, -1, [0, 4]], theirs[0, -1, [0, 4]], rtol=0.01)
    np.testing.assert_allclose(ours[0, -1, [1, 5]], theirs[0, -1, [1, 5]], atol=5e-3)  # MuJoCo's contact gives way


# --- Bad input ----------------------------------------------------------------------------------------------------------


def test_bad_structure_is_named():
    for keywords, message in (
        ({"supports": ((0.1, 0.0), (0.2, 0.1), (0.2, -0.1))}, "centre of mass"),
        ({"supports": ((0.1, 0.0), (0.0, 0.0), (-0.1, 0.0))}, "centre of mass"),
        ({"supports": ((0.1, 0.0), (0.2, 0.1))}, "supports is"),
        ({"attachment": (np.nan, 0.0)}, "attachment"),
        ({"pulley": (0.1, 0.04)}, "pulley"),
        ({"num_directions": 9}, "even"),
    ):
        with pytest.raises(StructureError, match=message):
            BlockModel(**keywords)
    for make, message in (
        (lambda: BlockModel(num_directions=2), "num_directions"),
        (lambda: ParticleModel(0), "count is 0"),
        (lambda: BlockSimulator(dt=0.0), "dt is 0"),
        (lambda: ParticleSimulator(dt=float("nan")), "dt is nan"),
        (lambda: MujocoParticles(dt=-1.0), "dt is -1"),
        (lambda: MujocoBlock(height=0.0), "height is 0"),
    ):
        with pytest.raises(OptionError, match=message):
            make()
    with pytest.raises(ParameterError, match=r"BlockParameters.*ParticleParameters"):
        ParticleSimulator().step(np.zeros((1, 4)), np.zeros((1, 1)), BlockParameters())


def test_a_block_at_the_pulley_is_a_failure():
    simulator = BlockSimulator(BlockModel(attachment=(0.0, 0.0), pulley=(0.1, 0.0)))
    _, status = simulator.step(np.array([[0.0999, 0.0, 0, 0, 0, 0]]), np.zeros((1, 2)))
    assert status.tolist() == [Status.DIVERGED]


def test_constants_of_many_particles_go_through_files(tmp_path):
    for kind in (particle_parameters(2), mujoco_particle_parameters(2)):
        path = kind(friction1=0.4).save(tmp_path / "fit.toml")
        assert kind.load(path).friction1 == 0.4


def test_a_pushed_block_comes_to_its_differential_equation_by_the_first_power_of_the_step():
    """Forces that jump act half a step early; the reference is another formulation, in steps of 0.02 ms."""
    forces = jumping(np.random.default_rng(3), 0.8)
    exact = slide(0.8, 0.3, lambda t: forces[int(t / 0.2 + 1e-9)], dt=2e-5)[::1000, :3]
    controls = np.repeat(forces[:4], 10, axis=0)[None]

    def error(dt):
        simulator = BlockSimulator(BlockModel(pulley=None, num_directions=512), dt)
        states, _ = simulator.rollout(np.zeros((1, 6)), controls, BlockParameters(friction=0.3), substeps=round(0.02 / dt))
        return np.abs(states[0, :, :3] - exact).max(axis=0)

    coarse, half, fine = error(0.01), error(0.005), error(0.001)
    assert (coarse > 4e-3).all(), "or steps of 10 ms would do"
    assert (np.abs(coarse / half - 2.0) < 0.2).all()
    assert (np.abs(coarse / fine - 10.0) < 2.0).all()


@pytest.mark.parametrize("count", [6, 32, 128, 512])
def test_a_block_is_solved_for_the_whole_cone_though_few_edges_are_looked_at(count):
    """Residuals of all pairs, at rest, pushed, sliding and turning about a support."""
    rng, simulator = np.random.default_rng(count), BlockSimulator(BlockModel(pulley=None, num_directions=count))
    states = rng.normal(size=(60, 6)) * [0.05, 0.05, 1.0, 0.3, 0.3, 3.0]
    states[::3, 3:] = 0.0
    states[1::6, 3:5] = 0.0
    controls = rng.normal(size=(60, 2)) * np.where(rng.random((60, 1)) < 0.5, 4.0, 0.5)
    after, status = simulator.step(states, controls)
    assert (status == Status.OK).all()
    parameter_values = np.repeat(BlockParameters().to_vector()[None], 60, axis=0)
    pairs = simulator.pair_values(states, controls)
    assert complementarity_form(simulator).residual(states, controls, parameter_values, after, pairs).max() < 1e-9
