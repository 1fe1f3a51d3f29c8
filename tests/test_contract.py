"""Every simulator and every promise of `softgym_envs.core.simulator`.

Engines, truths and models come from the list of rooms: a new room is covered as it is. WAYS says where a room's states are
interesting; SPECIAL are options and structures that the list does not name.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import absurd
from numpy.typing import NDArray

import softgym_envs
from reproductions.jitosho2021.model import PaperModel
from reproductions.jitosho2021.simulator import PaperSimulator
from softgym_envs.core.base import BaseSimulator
from softgym_envs.core.errors import OptionError, ParameterError, ShapeError
from softgym_envs.core.mjcf import MjcfTruth
from softgym_envs.core.room import NATIVE
from softgym_envs.core.simulator import Differentiable, Simulator, Status, Symbolic, finite_differences, is_exact
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.core.units import SI_UNITS
from softgym_envs.loop.dynamics import LoopSimulator
from softgym_envs.loop.model import LoopModel
from softgym_envs.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.rigid.model import BlockModel, ParticleModel
from softgym_envs.rigid.mujoco import BlockTwin
from softgym_envs.rooms import rooms
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.model import superball
from softgym_envs.tensegrity.mujoco import TensegrityTwin
from softgym_envs.tensegrity.residual import NUM_WEIGHTS
from softgym_envs.vine.dynamics import VineSimulator
from softgym_envs.vine.model import VineModel
from softgym_envs.vine.mujoco import VineTwin
from softgym_envs.vine.obstacles import circle, polygon, rectangle, wall

Array = NDArray[np.float64]


def any_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Around rest, moving."""
    state = simulator.initial_state(batch)
    return np.asarray(simulator.retract(state, 0.1 * rng.normal(size=(batch, simulator.n))))


def as_they_are(simulator: Any, states: Array) -> Array:
    return states


class Ways(NamedTuple):
    """What a room gives: states that a simulator visits, where it has derivatives, and what to vary."""

    states: Callable[[Any, np.random.Generator, int], Array] = any_states
    smooth: Callable[[Any, Array], Array] = as_they_are
    """The same states where no contact opens or closes within a difference."""
    varied: str = ""
    """A constant that changes every motion; "": the first positive one."""
    substeps: int = 20
    """Physics steps of a control step."""
    share: float = 1.0
    """Share of the largest controls; less where no robot bears them for long."""
    rounding: float = 1.0
    """How much larger than that of a state the rounding of a step is: 10 / dt where speeds are differences."""
    solved: Callable[[Any], float] = lambda simulator: 1e-11
    """Share of the largest derivative up to which two ways through the same steps agree."""


def tensegrity_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Overlapping the ground by a few mm, turned, moving, motors anywhere."""
    model = simulator.model
    rest = model.move(model.state_from_nodes(model.nodes), rotation=rng.normal(size=3))
    state = np.tile(model.place_on_ground(rest, gap=-0.003), (batch, 1))
    rods = np.tile(np.repeat([0.002, 0.01, 0.3, 0.3], 3), model.num_rods)
    spread = np.concatenate([rods, np.full(model.nu, 5.0)])
    moved: Array = simulator.embed(model.layout.retract(state, spread * rng.normal(size=(batch, model.layout.n))))
    return moved


def in_air(simulator: Any, states: Array) -> Array:
    return np.stack([simulator.model.move(x, translation=np.array([0.0, 0.0, 1.0])) for x in states])


def sliding_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Particles that slide on the ground, or a block that slides and turns on its table."""
    names = [name.split(".")[-1] for name in simulator.state_names]
    spread = {"x": 0.1, "y": 0.0 if "theta" not in names else 0.1, "theta": 0.3, "vx": 0.5, "vy": 0.0, "omega": 1.0}
    state = np.tile(simulator.initial_state(1), (batch, 1))
    for column, name in enumerate(names):
        if name in spread:
            state[:, column] = spread[name] * rng.normal(size=batch) + (2.0 if name == "vx" else 0.0)
    return state


def vine_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Bent, growing, muscles anywhere; the first ones lean on the obstacles."""
    model = simulator.model
    state = np.stack(
        [model.straight_state(length, bend) for length, bend in zip((0.4, 0.5, 0.61, 0.45, 0.7), (0, 0, 0, 2, -2), strict=True)]
    )
    parts = model.split(state[:batch])
    parts.omega[:] = 0.1 * rng.normal(size=parts.omega.shape)
    parts.growth[:] = 0.05
    parts.pressure[:] = 5e3 * rng.random(parts.pressure.shape)
    return np.asarray(simulator.embed(model.tidy(state[:batch])))


def vine_apart(simulator: Any, state: Array) -> Array:
    """Obstacles far away, and no tip about to divide."""
    moved = state.copy()
    parts = simulator.model.split(moved)
    parts.obstacles[..., :2] += 5.0 * np.sign(parts.obstacles[..., :2] - np.array([0.6, 0.0]))
    parts.length[:] = 0.41
    return np.asarray(simulator.model.tidy(moved))


def loop_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Moving, 0.1 s after random torques began to bend the loop: where the loop is closed."""
    torques = simulator.model.hold + 2.0 * rng.normal(size=(batch, 7))
    moved: Array = simulator.step(simulator.initial_state(batch), torques, substeps=round(0.1 / simulator.dt))[0]
    return moved


def loop_solved(simulator: Any) -> float:
    """Loops are closed to a fixed length, 1e-11 m: of small ones that is a larger share."""
    return 1e-11 * max(1.0, LoopModel().radius / float(simulator.model.radius))


def paper_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Straight, with random rates: every pin begins to bend."""
    state = np.tile(simulator.initial_state(1), (batch, 1))
    _, v = simulator.model.split(state)
    v[:] = 0.2 * rng.normal(size=v.shape)
    return state


def cluttered() -> VineModel:
    """A circle touched by a straight robot of 0.5 m, a prism and a box beyond, a wall at 0.72 m."""
    corners = ((0.6, -0.3), (0.8, -0.2), (0.6, -0.1))
    around = (circle(0.55, 0.072, 0.06), polygon(corners), rectangle(0.5, -0.2, 0.1, 0.05, 0.3), wall(0.72, 0.0, np.pi))
    return VineModel(num_links=20, obstacles=around)


WAYS = {
    "tensegrity": Ways(tensegrity_states, in_air, "cable_stiffness"),
    "vine": Ways(vine_states, vine_apart, "bending_stiffness"),
    "loop": Ways(loop_states, substeps=5, share=0.2, rounding=4000.0, solved=loop_solved),
    "upper_body": Ways(substeps=5, share=0.3, rounding=4000.0),
    "block": Ways(sliding_states),
    "particles": Ways(sliding_states),
    "box": Ways(varied="gravity"),
}
PAPER = Ways(paper_states, varied="joint_stiffness")
SPECIAL: dict[str, tuple[Ways, Callable[[], Any]]] = {
    "superball-paper": (WAYS["tensegrity"], lambda: TensegritySimulator(contact="paper")),
    "superball-patch": (WAYS["tensegrity"], lambda: TensegritySimulator(contact="patch")),
    "superball-residual": (
        WAYS["tensegrity"],
        lambda: TensegritySimulator(contact="patch", residual=tuple(0.1 * np.random.default_rng(0).normal(size=NUM_WEIGHTS))),
    ),
    "superball-twin-two-way": (WAYS["tensegrity"], lambda: TensegrityTwin(cables="two_way")),
    "superball-twin-fixed": (WAYS["tensegrity"], lambda: TensegrityTwin(superball(), fixed_rod=2)),
    "superball-twin-hard": (WAYS["tensegrity"], lambda: TensegrityTwin(level=3, seed=1, effects={"latency": 0.003})),
    "three-particles": (Ways(sliding_states, varied="friction1"), lambda: ParticleSimulator(ParticleModel(3))),
    "block-pushed": (WAYS["block"], lambda: BlockSimulator(BlockModel(pulley=None, num_directions=8))),
    "loop-held": (
        WAYS["loop"],
        lambda: LoopSimulator(LoopModel(6, servo_stiffness=(60.0,) * 7, servo_damping=3.0), dt=0.0025),
    ),
    "vine-cluttered": (WAYS["vine"], lambda: VineSimulator(cluttered())),
    "vine-linear": (WAYS["vine"], lambda: VineSimulator(VineModel(num_links=12), bending="linear")),
    "vine-paper": (PAPER, lambda: PaperSimulator(PaperModel(8, 0.02, max_growth=0.1))),
    "vine-twin-cluttered": (WAYS["vine"], lambda: VineTwin(cluttered())),
    "vine-twin-hard": (WAYS["vine"], lambda: VineTwin(cluttered(), level=3, seed=1, effects={"latency": 0.01})),
    "block-twin-hard": (WAYS["block"], lambda: BlockTwin(level=3, seed=1, effects={"latency": 0.003})),
}
LISTED: dict[str, tuple[Ways, Callable[[], Any]]] = {
    f"{room.name}-{model}-{backend}": (WAYS.get(room.name, Ways()), partial(room.simulator, model, backend=backend))
    for room in rooms().values()
    for k, model in enumerate(room.models)
    for backend in (NATIVE, *(tuple(room.truths) if k == 0 else tuple(room.truths)[:1]))
}
"""Every model in our engine and in the first truth; further truths with the first model."""
SIMULATORS = LISTED | SPECIAL
B, T = 5, 3


class Setup(NamedTuple):
    """A simulator with inputs of a batch."""

    ways: Ways
    make: Callable[[], Any]
    simulator: Any
    state: Array
    controls: Array
    parameters: Any


@pytest.fixture(params=SIMULATORS, scope="module")
def setup(request: pytest.FixtureRequest) -> Setup:
    ways, make = SIMULATORS[request.param]
    simulator = make()
    rng = np.random.default_rng(7)
    lower, upper = simulator.control_bounds
    controls = ways.share * rng.uniform(lower, upper, size=(B, T, simulator.nu))
    default = simulator.default_parameters
    name = ways.varied or next(name for name in default.names() if getattr(default, name) > 0)
    varied = default.replace(**{name: getattr(default, name) * np.linspace(0.8, 1.0, B)})
    return Setup(ways, make, simulator, ways.states(simulator, rng, B), controls, varied)


def run(setup: Setup, rows: Any = slice(None), simulator: Any = None) -> tuple[Array, Array]:
    parameters = type(setup.parameters).from_vector(setup.parameters.to_matrix(B)[rows])
    states, status = (simulator or setup.simulator).rollout(
        setup.state[rows], setup.controls[rows], parameters, substeps=setup.ways.substeps
    )
    return states, status


def test_is_a_simulator_with_names_and_bounds(setup: Setup) -> None:
    sim = setup.simulator
    assert isinstance(sim, Simulator)
    assert len(sim.state_names) == len(set(sim.state_names)) == sim.nx
    assert len(sim.control_names) == len(set(sim.control_names)) == sim.nu
    assert len(sim.state_units) == sim.nx and len(sim.control_units) == sim.nu
    assert {*sim.state_units, *sim.control_units} <= set(SI_UNITS) - {"SI"}
    lower, upper = sim.control_bounds
    assert lower.shape == upper.shape == (sim.nu,) and (lower < upper).all()
    assert sim.initial_state(3).shape == (3, sim.nx)
    assert sim.dt > 0


def test_results_have_shapes_dtypes_and_start_at_the_state(setup: Setup) -> None:
    states, status = run(setup)
    assert states.shape == (B, T + 1, setup.simulator.nx) and states.dtype == np.float64
    assert status.shape == (B,) and status.dtype == np.int32 and (status == Status.OK).all()
    assert np.array_equal(states[:, 0], setup.state)
    assert (states[:, -1] != states[:, 0]).any(axis=1).all()


def test_is_pure(setup: Setup) -> None:
    inputs = (setup.state.copy(), setup.controls.copy(), setup.parameters.to_vector())
    first, _ = run(setup)
    kept = first.copy()
    setup.simulator.step(setup.state, setup.controls[:, 1], setup.parameters, substeps=3)
    second, _ = run(setup)
    assert np.array_equal(first, kept), "a later call wrote into an earlier result"
    assert np.array_equal(first, second)
    for before, now in zip(inputs, (setup.state, setup.controls, setup.parameters.to_vector()), strict=True):
        assert np.array_equal(before, now)


def test_another_instance_gives_the_same_bits(setup: Setup) -> None:
    assert np.array_equal(run(setup)[0], run(setup, simulator=setup.make())[0])


def test_rows_are_independent_of_the_batch(setup: Setup) -> None:
    states, _ = run(setup)
    for row in range(B):
        assert np.array_equal(run(setup, [row])[0][0], states[row]), f"row {row} alone differs from row {row} of the batch"
    order = [3, 0, 4, 2, 1]
    assert np.array_equal(run(setup, order)[0], states[order])


def test_the_constant_of_a_row_is_its_own(setup: Setup) -> None:
    shared = setup.simulator.rollout(setup.state, setup.controls, substeps=setup.ways.substeps)[0]
    states, _ = run(setup)
    assert not np.array_equal(shared[0], states[0])
    assert np.array_equal(shared[-1], states[-1]), "the last row has the default constants"


def test_rollout_is_repeated_step_and_a_state_is_complete(setup: Setup) -> None:
    states, _ = run(setup)
    fresh = setup.make()
    for t in range(T):
        after, status = fresh.step(states[:, t].copy(), setup.controls[:, t], setup.parameters, substeps=setup.ways.substeps)
        assert np.array_equal(after, states[:, t + 1])
        assert (status == Status.OK).all()


def test_retract_and_difference_are_inverse(setup: Setup) -> None:
    sim, rng = setup.simulator, np.random.default_rng(3)
    dx = 0.3 * rng.normal(size=(B, sim.n))
    moved = sim.retract(setup.state, dx)
    assert moved.shape == setup.state.shape
    np.testing.assert_allclose(sim.difference(moved, setup.state), dx, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sim.retract(setup.state, sim.difference(moved, setup.state)), moved, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sim.difference(setup.state, setup.state), 0.0, atol=1e-15)


def test_the_layout_is_that_of_the_state(setup: Setup) -> None:
    sim = setup.simulator
    assert (sim.layout.nx, sim.layout.n, sim.layout.names, sim.layout.units) == (
        sim.nx,
        sim.n,
        sim.state_names,
        sim.state_units,
    )
    own = sim.model.layout
    assert sim.layout.fields[: len(own.fields)] == own.fields
    assert np.array_equal(sim.embed(setup.state[:, : own.nx])[:, : own.nx], setup.state[:, : own.nx])
    assert np.array_equal(sim.embed(sim.model.rest_state()), sim.initial_state(1)[0])


def test_recordings_carry_the_units(setup: Setup) -> None:
    sim, states = setup.simulator, run(setup)[0]
    recording = Trajectory.from_rollout(sim, states[0], setup.controls[0], substeps=setup.ways.substeps)
    assert (recording.units, recording.control_units) == (sim.state_units, sim.control_units)


def test_a_pickled_copy_gives_the_same_bits(setup: Setup) -> None:
    run(setup)  # an engine that has been used must not travel
    copy = pickle.loads(pickle.dumps(setup.simulator))
    assert np.array_equal(pickle.loads(pickle.dumps(setup.parameters)).to_vector(), setup.parameters.to_vector())
    assert copy.dt == setup.simulator.dt and copy.options == setup.simulator.options
    assert np.array_equal(run(setup)[0], run(setup, simulator=copy)[0])


def test_constants_of_another_simulator_are_refused(setup: Setup) -> None:
    for other in (room.simulator(backend=backend) for room in rooms().values() for backend in (NATIVE, *room.truths)):
        if not isinstance(other.default_parameters, setup.simulator.parameters_class):
            with pytest.raises(ParameterError, match=type(setup.simulator).__name__):
                setup.simulator.step(setup.state, setup.controls[:, 0], other.default_parameters)


def test_a_pull_back_is_the_transposed_linearization(setup: Setup) -> None:
    """Over two control steps, in tangent coordinates; the sum over the rows of a batch is that of each row."""
    sim = setup.simulator
    if not isinstance(sim, Differentiable):
        assert not is_exact(sim)
        return
    assert sim.exact
    state, controls = setup.ways.smooth(sim, setup.state[:2]), 0.5 * setup.controls[:2, :2]
    cotangent = np.random.default_rng(5).normal(size=(2, 3, sim.nx))
    found = sim.vjp(state, controls, cotangent, substeps=5)
    x0, x1, x2 = np.swapaxes(found.states, 0, 1)
    first, second = (sim.linearize(x, controls[:, t], substeps=5) for t, x in enumerate((x0, x1)))
    pulled = [np.einsum("bxn,bx->bn", sim.layout.retract_jacobian(x), cotangent[:, t]) for t, x in enumerate((x0, x1, x2))]
    late = pulled[1] + np.einsum("bnm,bn->bm", second.A, pulled[2])
    expected = (
        pulled[0] + np.einsum("bnm,bn->bm", first.A, late),
        np.stack([np.einsum("bnu,bn->bu", s.B, g) for s, g in ((first, late), (second, pulled[2]))], axis=1),
        np.einsum("bnp,bn->bp", first.C, late) + np.einsum("bnp,bn->bp", second.C, pulled[2]),
    )
    dx = np.einsum("bxn,bx->bn", sim.layout.retract_jacobian(state), found.state)
    for got, wanted in zip((dx, found.controls, found.constants), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=setup.ways.solved(sim) * np.abs(wanted).max())
    failing = setup.state[:2].copy()
    failing[1] = absurd(sim, failing[1])
    gradient = sim.vjp(failing, controls, cotangent)
    assert np.isfinite(gradient.state[0]).all() and np.isnan(gradient.state[1]).all()


def test_a_symbolic_step_is_the_step(setup: Setup) -> None:
    sim = setup.simulator
    if not isinstance(sim, Symbolic):
        return
    try:
        form = sim.symbolic_step()
    except OptionError:
        return  # a structure that the second formulation does not know
    sizes = [form.step.size1_in(k) for k in range(4)]
    assert sizes == [sim.nx, sim.nu, len(sim.default_parameters.names()), sim.nx]


def test_linearize_has_shapes_and_is_the_derivative(setup: Setup) -> None:
    sim = setup.simulator
    parameters, control = sim.default_parameters, 0.5 * setup.controls[:2, 0]
    state = setup.ways.smooth(sim, setup.state[:2])  # a contact that opens within the difference would have no derivative
    derivatives = sim.linearize(state, control, parameters, substeps=setup.ways.substeps)
    assert [m.shape for m in derivatives] == [(2, sim.n, sim.n), (2, sim.n, sim.nu), (2, sim.n, len(parameters.names()))]
    epsilon = 1e-6
    differences = finite_differences(sim, state, control, parameters, substeps=setup.ways.substeps, epsilon=epsilon)
    widths = [max(abs(spec.default), 1e-3 * (spec.bounds[1] - spec.bounds[0])) for spec in parameters.specs().values()]
    rounding = setup.ways.rounding * 8 * np.finfo(float).eps * np.abs(state).max()
    noise = rounding / epsilon  # of a difference: rounding over its width
    for name, a, b, width in zip("ABC", derivatives, differences, (np.ones(1), np.ones(1), np.array(widths)), strict=True):
        a, b = a * width, b * width
        assert np.abs(a).max() > 1e-3
        assert (np.abs(a - b) <= 1e-6 * np.abs(b).max(axis=1, keepdims=True) + noise).all(), name


def test_linearize_is_finite_at_the_initial_state(setup: Setup) -> None:
    """Where symmetric robots have parallel rods, zero velocities and other corners of square roots."""
    sim = setup.simulator
    assert all(np.isfinite(m).all() for m in sim.linearize(sim.initial_state(1), np.zeros((1, sim.nu)), substeps=2))


def test_a_failure_is_a_status_and_sticks(setup: Setup) -> None:
    sim = setup.simulator
    state = setup.state.copy()
    state[1] = absurd(sim, state[1])
    states, status = sim.rollout(state, setup.controls, setup.parameters, substeps=setup.ways.substeps)
    assert status.tolist() == [0, Status.DIVERGED, 0, 0, 0]
    assert np.array_equal(states[1], np.tile(state[1], (T + 1, 1))), "a failed row keeps its last good state"
    healthy = [0, 2, 3, 4]
    assert np.array_equal(states[healthy], run(setup)[0][healthy])
    after, status = sim.step(state, setup.controls[:, 0], setup.parameters, substeps=setup.ways.substeps)
    assert status[1] == Status.DIVERGED and np.array_equal(after[1], state[1])


def test_bad_input_is_named(setup: Setup) -> None:
    sim, state, control = setup.simulator, setup.state, setup.controls[:, 0]
    nan = np.full_like
    for bad in (state[0], state[:, 1:], nan(state, np.nan)):
        with pytest.raises(ShapeError, match="state"):
            sim.step(bad, control)
        with pytest.raises(ShapeError, match="state"):
            sim.rollout(bad, setup.controls)
    for bad in (control[0], control[:, 1:], nan(control, np.inf)):
        with pytest.raises(ShapeError, match="control"):
            sim.step(state, bad)
    with pytest.raises(ShapeError, match="controls"):
        sim.rollout(state, control)
    with pytest.raises(ShapeError, match="control"):
        sim.step(state[:2], control)
    with pytest.raises(OptionError, match="substeps"):
        sim.step(state, control, substeps=0)
    with pytest.raises(ParameterError, match="rows"):
        sim.step(state[:2], control[:2], setup.parameters)


def test_no_simulator_of_the_package_is_left_out() -> None:
    """But for a user's MJCF (test_tutorial.py)."""
    modules = [importlib.import_module(info.name) for info in pkgutil.walk_packages(softgym_envs.__path__, "softgym_envs.")]
    found = {
        kind
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, BaseSimulator) and not inspect.isabstract(kind) and name[0] != "_"
    }
    assert found - {type(make()) for _, make in SIMULATORS.values()} <= {MjcfTruth}
