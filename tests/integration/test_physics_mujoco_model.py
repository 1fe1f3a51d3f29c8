"""The MuJoCo model against closed forms, against MuJoCo's own fields and against our engine where it has the same equations.
The ground of the MuJoCo model: where it is, and that a height field is met as planes are."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from helpers import HUNG
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError, ParameterError, StructureError
from softgym_envs.core.simulator import Status
from softgym_envs.engines.mujoco.engine import MujocoEngine
from softgym_envs.systems.tensegrity.controllers import rolling
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import prism, superball, with_terrain
from softgym_envs.systems.tensegrity.mujoco import MujocoParameters, MujocoTensegrity
from softgym_envs.systems.tensegrity.mujoco_ground import FIELD_MARGIN
from softgym_envs.systems.tensegrity.parameters import TensegrityParameters
from softgym_envs.systems.tensegrity.terrain import Terrain

Array = NDArray[np.float64]

VARIANTS = ("pull_only", "two_way")
PRETENSION = 1e4 * (np.sqrt(6) / 4 * 1.684 - 0.95)  # k (l - L0) of the expanded octahedron: 812.35 N


def lifted(mujoco_model: Any, height: float = 1.0, batch: int = 1) -> Array:
    state = mujoco_model.model.move(mujoco_model.initial_state()[0], translation=np.array([0.0, 0.0, height]))
    return np.tile(state, (batch, 1))


def held_controls(simulator: Any, rng: np.random.Generator, batch: int, steps: int, limit: float = 100.0) -> Array:
    return rng.uniform(-limit, limit, size=(batch, steps, simulator.nu))


# --- the model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_model_is_the_papers_set_up(variant: str) -> None:
    mj = MujocoTensegrity(cables=variant).mj_model()
    assert (mj.opt.timestep, mj.opt.integrator, mj.opt.cone, mj.opt.solver, mj.opt.jacobian) == (1e-3, 0, 1, 2, 0)
    assert mj.body_mass[1:].tolist() == [10.0] * 6
    across, along = 10.0 * (3 * 0.031**2 + 1.684**2) / 12, 10.0 * 0.031**2 / 2
    np.testing.assert_allclose(mj.body_inertia[1:], [[across, across, along]] * 6, rtol=1e-14)
    assert (mj.nq, mj.nv, mj.na, mj.nu, mj.ntendon) == (42, 36, 24, 24, 24)
    assert (mj.geom_condim == 6).all() and (mj.geom_friction == 1.0).all() and (mj.geom_solref == [0.1, 1.0]).all()
    assert (mj.actuator_ctrlrange == [-100.0, 100.0]).all() and (mj.actuator_gainprm[:, 0] == 100.0).all()
    assert (mj.actuator_dyntype == mujoco.mjtDyn.mjDYN_FILTER).all() and (mj.actuator_dynprm[:, 0] == 1.0).all()


def test_derived_fields_follow_the_constants() -> None:
    mj = MujocoTensegrity().mj_model(MujocoParameters(rod_mass=3.0))
    assert mj.body_subtreemass[0] == pytest.approx(18.0, rel=1e-14)
    np.testing.assert_allclose(mj.body_invweight0[1:, 0], 1 / 3.0, rtol=1e-12)


def touching_bodies(mujoco_model: MujocoTensegrity, nodes: Array) -> set[tuple[int, int]]:
    mj = mujoco_model.mj_model()
    data = mujoco.MjData(mj)
    physics = mujoco_model.engine._physics(mujoco_model.model.state_from_nodes(nodes)[None])[0]
    mujoco.mj_setState(mj, data, physics, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    mujoco.mj_forward(mj, data)
    first, second = np.sort(mj.geom_bodyid[data.contact.geom], axis=1).T.tolist() if data.ncon else ([], [])
    return set(zip(first, second, strict=True))


def test_rods_collide_with_each_other_but_not_with_their_own_caps() -> None:
    """Rod 1 laid across the middle of rod 0, two radii away up to 1 mm."""
    mujoco_model = MujocoTensegrity()
    nodes = mujoco_model.model.nodes + np.array([0.0, 0.0, 2.0])
    middle, axis = nodes[:2].mean(axis=0), (nodes[1] - nodes[0]) / 1.684
    side = np.cross(axis, [0.3, 0.1, 1.0])
    side *= 0.842 / np.linalg.norm(side)
    normal = np.cross(axis, side) / 0.842
    for distance, expected in ((0.063, set()), (0.061, {(1, 2)})):
        across = nodes.copy()
        across[2:4] = middle + distance * normal - side, middle + distance * normal + side
        assert {pair for pair in touching_bodies(mujoco_model, across) if pair in {(1, 1), (2, 2), (1, 2)}} == expected
    assert touching_bodies(mujoco_model, nodes) == set()


# --- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_tension_at_rest(variant: str) -> None:
    mujoco_model = MujocoTensegrity(cables=variant)
    np.testing.assert_allclose(mujoco_model.cable_tensions(mujoco_model.initial_state(2)), PRETENSION, rtol=1e-12)
    stiff = MujocoParameters(cable_stiffness=np.array([1e4, 2e4]), rest_length=np.array([0.95, 0.9]))
    expected = [PRETENSION, 2e4 * (np.sqrt(6) / 4 * 1.684 - 0.9)]
    np.testing.assert_allclose(mujoco_model.cable_tensions(mujoco_model.initial_state(2), stiff).T, [expected] * 24, rtol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_free_fall_is_the_semi_implicit_sum(variant: str) -> None:
    """z_n = z_0 - g dt^2 n (n + 1) / 2 for the centre of mass, whatever the cables do."""
    mujoco_model = MujocoTensegrity(cables=variant)
    gravity = np.array([9.81, 0.981])
    controls = held_controls(mujoco_model, np.random.default_rng(0), 2, 5)
    states, _ = mujoco_model.rollout(lifted(mujoco_model, 3.0, 2), controls, MujocoParameters(gravity=gravity), substeps=100)
    count = 100 * np.arange(6)
    fall = states[:, :, 2::13][:, :, :6].mean(axis=2) - states[:, :1, 2::13][:, :, :6].mean(axis=2)
    np.testing.assert_allclose(fall, -0.5e-6 * gravity[:, None] * count * (count + 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_motor_is_a_first_order_filter_and_commands_are_clamped(variant: str) -> None:
    """w_n = u (1 - (1 - dt motor_speed)^n) under a constant command."""
    mujoco_model = MujocoTensegrity(cables=variant)
    speed = np.array([1.0, 4.0])
    control = np.linspace(-150.0, 150.0, 24)
    after, _ = mujoco_model.step(
        lifted(mujoco_model, 1.0, 2), np.tile(control, (2, 1)), MujocoParameters(motor_speed=speed), substeps=50
    )
    expected = np.clip(control, -100, 100) * (1 - (1 - 1e-3 * speed[:, None]) ** 50)
    np.testing.assert_allclose(after[:, 78:], expected, rtol=1e-12)


def test_slack_cables_pull_only_or_push() -> None:
    """At 0.9 of its size every cable is shorter than its rest length, by L0 - 0.9 l."""
    tension = {}
    for variant in VARIANTS:
        mujoco_model = MujocoTensegrity(superball(rod_length=0.9 * 1.684), cables=variant)
        tension[variant] = mujoco_model.cable_tensions(mujoco_model.initial_state())
        after, _ = mujoco_model.step(lifted(mujoco_model), np.zeros((1, 24)), MujocoParameters(gravity=0.0), substeps=20)
        assert (after[0, :78] == lifted(mujoco_model)[0, :78]).all() == (variant == "pull_only"), (
            "pull-only cables leave it at rest"
        )
    assert not tension["pull_only"].any()
    np.testing.assert_allclose(tension["two_way"], 1e4 * (0.9 * np.sqrt(6) / 4 * 1.684 - 0.95), rtol=1e-12)


def test_variants_agree_while_no_cable_is_slack() -> None:
    ends = []
    for variant in VARIANTS:
        mujoco_model = MujocoTensegrity(cables=variant)
        controls = held_controls(mujoco_model, np.random.default_rng(1), 1, 10)
        states, _ = mujoco_model.rollout(lifted(mujoco_model), controls, MujocoParameters(gravity=0.0), substeps=100)
        assert (mujoco_model.cable_tensions(states[0]) > 0).all()
        ends.append(states)
    assert np.abs(ends[0] - ends[1]).max() < 1e-9  # rounding only: 1e-16 per substep of O(100) N / 10 kg


def test_passive_cables_pull_too() -> None:
    """The prism drives three of nine cables; all nine pull, MuJoCo's own lengths give k (l - L0)."""
    for variant in VARIANTS:
        mujoco_model = MujocoTensegrity(prism(), cables=variant)
        state = mujoco_model.initial_state()
        expected = 1e4 * (mujoco_model.model.cable_lengths(state) - 0.95)
        np.testing.assert_allclose(mujoco_model.cable_tensions(state), expected, rtol=1e-12)
        assert (expected > 0).all() and expected.shape == (1, 9)


def test_ratios_of_single_cables() -> None:
    stiffness, rest = np.linspace(0.5, 2.0, 24), np.linspace(0.9, 1.05, 24)
    model = replace(superball(), stiffness_ratio=tuple(stiffness), rest_ratio=tuple(rest))
    state = model.state_from_nodes(model.nodes)[None]
    state[:, 78:] = 3.0
    expected = 1e4 * stiffness * (model.cable_lengths(state) - 0.95 * rest - 0.01 * 3.0)
    for variant in VARIANTS:
        tension = MujocoTensegrity(model, cables=variant).cable_tensions(state)
        np.testing.assert_allclose(tension, np.maximum(expected, 0.0) if variant == "pull_only" else expected, rtol=1e-12)


# --- against our engine, where there is no contact -------------------------------------------------------------------


@pytest.mark.parametrize("fixed_rod", [None, 0])
@pytest.mark.parametrize("structure", [superball, prism])
def test_without_contact_it_is_our_engine(structure: Any, fixed_rod: int | None) -> None:
    """The same equations in two programs: 2000 substeps with tumbling, motors and gravity differ by rounding only."""
    mujoco_model, ours = (
        MujocoTensegrity(structure(), fixed_rod=fixed_rod),
        TensegritySimulator(structure(), fixed_rod=fixed_rod),
    )
    rng = np.random.default_rng(2)
    state = lifted(mujoco_model, 40.0, 2)
    free = [r for r in range(mujoco_model.model.num_rods) if r != fixed_rod]
    for r in free:
        state[:, 13 * r + 7 : 13 * r + 13] = rng.normal(size=(2, 6)) * 0.3
    controls = held_controls(mujoco_model, rng, 2, 20)
    gravity = 0.981 if fixed_rod is None else 0.0
    a, status = mujoco_model.rollout(state, controls, MujocoParameters(gravity=gravity), substeps=100)
    b, _ = ours.rollout(state, controls, TensegrityParameters(gravity=gravity), substeps=100)
    assert not status.any() and np.abs(a[:, -1] - a[:, 0]).max() > 0.1
    assert np.abs(a - b).max() < 1e-9
    np.testing.assert_allclose(mujoco_model.cable_tensions(a[0]), ours.cable_tensions(b[0]), atol=1e-5)


def test_linearize_is_the_derivative_of_our_engine() -> None:
    """Central differences through MuJoCo against reverse mode through Warp, in air, body parameters included."""
    mujoco_model, ours = MujocoTensegrity(), TensegritySimulator()
    rng = np.random.default_rng(11)
    state = mujoco_model.retract(lifted(mujoco_model), 0.05 * rng.normal(size=(1, mujoco_model.n)))
    control = held_controls(mujoco_model, rng, 1, 1, limit=90.0)[:, 0]
    a, b = mujoco_model.linearize(state, control, substeps=20), ours.linearize(state, control, substeps=20)
    body = [MujocoParameters.index(name) for name in ("rod_mass", "cable_stiffness", "rest_length", "motor_gain", "gravity")]
    for ours_part, mujoco_model_part in ((b.A, a.A), (b.B, a.B), (b.C[..., body], a.C[..., body])):
        scale = np.abs(ours_part).max(axis=1, keepdims=True)
        assert (scale > 0).all()
        assert (np.abs(ours_part - mujoco_model_part) <= 1e-5 * scale + 1e-7).all()


def test_a_fixed_rod_stays_where_its_state_says() -> None:
    """Shifting the whole state shifts the whole trajectory: the pose of the held rod is read from the state."""
    mujoco_model = MujocoTensegrity(fixed_rod=3)
    shift = np.array([0.3, -0.2, 0.5])
    state = lifted(mujoco_model, 2.0)
    moved = mujoco_model.model.move(state[0], translation=shift)[None]
    controls = held_controls(mujoco_model, np.random.default_rng(4), 1, 5)
    states, status = mujoco_model.rollout(np.concatenate([state, moved]), np.repeat(controls, 2, axis=0), substeps=100)
    assert not status.any()
    held = states[0, :, 39:52]
    assert (held == held[0]).all()
    assert np.abs(states[0, -1, :13] - states[0, 0, :13]).max() > 1e-3
    poses = states[..., :78].reshape(2, 6, 6, 13)[..., :3]
    np.testing.assert_allclose(poses[1] - poses[0], np.broadcast_to(shift, poses[0].shape), rtol=0, atol=1e-10)


# --- the engine ------------------------------------------------------------------------------------------------------


def on_ground(mujoco_model: MujocoTensegrity, rng: np.random.Generator, batch: int) -> Array:
    state = np.tile(mujoco_model.model.place_on_ground(mujoco_model.initial_state()[0], gap=-0.003), (batch, 1))
    state[:, [7, 8, 20, 21]] += rng.normal(size=(batch, 4))
    return state


def test_bits_do_not_depend_on_threads() -> None:
    mujoco_model, rng = MujocoTensegrity(), np.random.default_rng(6)
    state, controls = on_ground(mujoco_model, rng, 11), held_controls(mujoco_model, rng, 11, 2)
    parameter_values = MujocoParameters(friction=np.linspace(0.2, 1.2, 11)).to_matrix(11)
    engines = [replace(mujoco_model.engine, num_threads=threads) for threads in (1, 2, 5)]
    results = [engine.step(state, controls[:, 0], parameter_values, 50)[0] for engine in engines]
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])
    assert len({row.tobytes() for row in results[0]}) == 11


def test_bits_do_not_depend_on_how_a_batch_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    mujoco_model, rng = MujocoTensegrity(), np.random.default_rng(6)
    state, controls = on_ground(mujoco_model, rng, 7), held_controls(mujoco_model, rng, 7, 1)
    whole, _ = mujoco_model.rollout(state, controls, substeps=30)
    monkeypatch.setattr("softgym_envs.engines.mujoco.engine._BUFFER_BYTES", 3 * 30 * 8 * 200)
    assert np.array_equal(mujoco_model.rollout(state, controls, substeps=30)[0], whole)


def test_divergence_is_contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """c dt / m = 100 is far beyond explicit Euler's limit; nothing is printed, no file is written, other rows do not notice."""
    monkeypatch.chdir(tmp_path)
    mujoco_model = MujocoTensegrity()
    state, controls = on_ground(mujoco_model, np.random.default_rng(8), 3), np.full((3, 4, 24), 50.0)
    wild = MujocoParameters(cable_damping=np.array([1e3, 1e4, 1e3]), rod_mass=np.array([10.0, 0.1, 10.0]))
    states, status = mujoco_model.rollout(state, controls, wild, substeps=100)
    assert status.tolist() == [Status.OK, Status.DIVERGED, Status.OK]
    assert np.isfinite(states).all() and np.array_equal(states[1], np.tile(state[1], (5, 1)))
    calm, _ = mujoco_model.rollout(state[[0, 2]], controls[[0, 2]], substeps=100)
    assert np.array_equal(states[[0, 2]], calm)
    alone, status = mujoco_model.step(state[1:2], controls[1:2, 0], wild.row(1), substeps=100)
    assert status[0] == Status.DIVERGED and np.array_equal(alone[0], state[1])
    printed = capfd.readouterr()
    assert printed.out == printed.err == "" and not list(tmp_path.iterdir())


def test_a_users_warning_handler_comes_back() -> None:
    mujoco_model = MujocoTensegrity()
    seen: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(seen.append)
    try:
        handler = mujoco.get_mju_user_warning()
        wild = MujocoParameters(cable_damping=1e4, rod_mass=0.1)
        assert mujoco_model.step(lifted(mujoco_model), np.full((1, 24), 50.0), wild, substeps=100)[1][0] == Status.DIVERGED
        assert mujoco.get_mju_user_warning() == handler and not seen
    finally:
        mujoco.set_mju_user_warning(before)


def test_every_contact_constant_matters() -> None:
    mujoco_model, rng = MujocoTensegrity(), np.random.default_rng(9)
    state = on_ground(mujoco_model, rng, 1)
    changes = {
        "friction": 0.3,
        "torsional_friction": 0.01,
        "rolling_friction": 0.001,
        "contact_timeconst": 0.02,
        "contact_dampratio": 0.3,
    }
    ends = [
        mujoco_model.step(state, np.zeros((1, 24)), MujocoParameters(**{k: v}), substeps=50)[0].tobytes()
        for k, v in changes.items()
    ]
    ends.append(mujoco_model.step(state, np.zeros((1, 24)), substeps=50)[0].tobytes())
    assert len(set(ends)) == len(ends)


def child(mujoco_model: MujocoTensegrity, state: Array, queue: Any) -> None:
    queue.put(mujoco_model.step(state, np.zeros((len(state), 24)), substeps=10)[0])


def test_copies_pickles_and_forks_go_on_alike() -> None:
    mujoco_model = MujocoTensegrity()
    state = on_ground(mujoco_model, np.random.default_rng(10), 4)
    after, _ = mujoco_model.step(state, np.zeros((4, 24)), substeps=10)
    for other in (copy.deepcopy(mujoco_model), pickle.loads(pickle.dumps(mujoco_model))):
        assert np.array_equal(other.step(state, np.zeros((4, 24)), substeps=10)[0], after)
    if "fork" not in multiprocessing.get_all_start_methods():
        return
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(mujoco_model, state, queue))
    process.start()  # threads do not survive a fork: a pool taken over from the parent would wait for ever
    try:
        assert np.array_equal(queue.get(timeout=HUNG), after)
    finally:
        process.kill()
        process.join()


def test_bad_input_is_named() -> None:
    with pytest.raises(OptionError, match=r"'spring'.*'pull_only'"):
        MujocoTensegrity(cables="spring")
    with pytest.raises(OptionError, match="dt is 0"):
        MujocoTensegrity(dt=0.0)
    with pytest.raises(StructureError, match="fixed_rod is 6"):
        MujocoTensegrity(fixed_rod=6)
    mujoco_model = MujocoTensegrity()
    wrong: Any = TensegrityParameters()
    with pytest.raises(ParameterError, match=r"TensegrityParameters.*MujocoParameters"):
        mujoco_model.step(mujoco_model.initial_state(), np.zeros((1, 24)), wrong)
    with pytest.raises(ParameterError, match="rolling_friction"):
        MujocoParameters(rolling_friction=-1.0)
    engine = mujoco_model.engine
    with pytest.raises(StructureError, match="state_index has 3"):
        MujocoEngine(engine.model, nx=3, nu=1, state_index=np.arange(3), write_parameters=engine.write_parameters)


def ray_heights(mj: mujoco.MjModel, x: Array, y: Array) -> Array:
    """Height of the ground under points, by MuJoCo's ray caster."""
    data, geom, bare = mujoco.MjData(mj), np.zeros(1, dtype=np.int32), np.array([1, 0, 0, 0, 0, 0], dtype=np.uint8)
    mj.geom_group[1:] = 1  # robots out of sight
    mujoco.mj_forward(mj, data)
    top, down = 50.0, np.array([0.0, 0.0, -1.0])
    reach = [mujoco.mj_ray(mj, data, np.array([a, b, top]), down, bare, 1, -1, geom) for a, b in zip(x, y, strict=True)]
    assert min(reach) > 0
    return top - np.array(reach)


TERRAINS = {
    "slope": Terrain.slope(0.2),
    "steps": Terrain.steps(size=6.0),
    "rubble": Terrain.rubble(size=6.0, seed=3),
    "rubble-on-slope": replace(Terrain.rubble(size=6.0, seed=4), angle=-0.1),
}


@pytest.mark.parametrize("name", TERRAINS)
def test_the_ground_is_the_terrain(name: str) -> None:
    """At grid points, also beyond the rim: exact but for MuJoCo's 32 bit heights; the factor on heights is a parameter."""
    terrain = TERRAINS[name]
    mujoco_model = MujocoTensegrity(with_terrain(superball(), terrain))
    rng = np.random.default_rng(5)
    reach = 0.5 * terrain.cell * (terrain.heights.shape[0] - 1) + FIELD_MARGIN - 2 * terrain.cell
    half = 0.5 * ((terrain.heights.shape[0] - 1) % 2)
    x, y = (np.round(rng.uniform(-reach, reach, 60) / terrain.cell - half) + half for _ in range(2))
    inside = 1e-6  # a ray exactly through a triangle's corner may miss
    x, y = x * terrain.cell + inside, y * terrain.cell + 0.5 * inside
    for scale in (1.0, 0.0, 2.5):
        expected = terrain.height(x, y, scale)
        assert name == "slope" or scale == 0.0 or np.ptp(expected) > 0.1
        heights = ray_heights(mujoco_model.mj_model(MujocoParameters(terrain_scale=scale)), x, y)
        np.testing.assert_allclose(heights, expected, rtol=0, atol=5e-6 + np.ptp(expected) * 2.0**-23)


@pytest.mark.parametrize("name", TERRAINS)
def test_a_dropped_robot_comes_to_lie_on_the_terrain(name: str) -> None:
    """No cap sinks in deeper than the soft contact gives, and the lowest one does touch."""
    mujoco_model = MujocoTensegrity(with_terrain(superball(), TERRAINS[name]))
    state = mujoco_model.model.place_on_ground(mujoco_model.initial_state()[0], gap=0.05)[None]
    states, status = mujoco_model.rollout(state, np.zeros((1, 20, 24)), substeps=100)
    assert not status.any()
    # At rest a = 0: depth = (1 - d) a0 / (d k), k = 1 / (dmax timeconst dampratio)^2, impedance d >= 0.9, dmax 0.95;
    # a0, the contact point's own acceleration, is at most gravity plus the pull of four cables on half a rod.
    depth = 0.1 * (9.81 + 4 * 1.5 * PRETENSION / 5.0) / (0.9 / (0.95 * 0.1) ** 2)
    assert -depth < mujoco_model.model.clearance(states[:, -1])[0] < 0.02


def field_of(rise: float) -> Terrain:
    """A height field of square cells that is a plane, but for a millionth of a millimetre at its rim."""
    x = 0.2 * (np.arange(61) - 30.0)
    heights = np.repeat(rise * x[:, None], 61, axis=1)
    heights[0, 0] += 1e-9
    return Terrain(heights=heights, cell=0.2)


def rolled(terrain: Terrain, rise: float, structure: Any = superball, fixed_rod: int | None = None) -> Array:
    """States of six robots, driven by what they would do at rest, over 0.4 s in which they roll off one face."""
    mujoco_model = MujocoTensegrity(with_terrain(structure(), terrain), fixed_rod=fixed_rod)
    model, angle = mujoco_model.model, 2 * np.pi * np.arange(6) / 6
    tilt = -np.arctan(rise)
    down = model.move(model.rest_state(), rotation=np.array([0.0, tilt, 0.0]))
    state = np.repeat(model.place_on_ground(down, gap=-0.03)[None], 6, axis=0)
    heading = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    control = model.control_limit * rolling(model, state, heading)
    states, status = mujoco_model.rollout(state, np.repeat(control[:, None], 4, axis=1), substeps=100)
    assert not status.any()
    return states


@pytest.mark.parametrize("rise", [0.0, 0.25])
@pytest.mark.parametrize(("structure", "fixed_rod"), [(superball, None), (prism, None), (superball, 2)])
def test_a_field_without_unevenness_is_a_plane(rise: float, structure: Any, fixed_rod: int | None) -> None:
    """Also where soft contacts overlap by centimetres: MuJoCo's own height fields push a cap sideways there."""
    field, plane = (
        rolled(terrain, rise, structure, fixed_rod) for terrain in (field_of(rise), Terrain.slope(float(np.arctan(rise))))
    )
    assert np.abs(plane[:, -1, :3] - plane[:, 0, :3]).max() > 0.05 or fixed_rod is not None
    np.testing.assert_allclose(field, plane, rtol=0, atol=1e-5)


def test_a_node_meets_its_own_plane_only() -> None:
    """Every cap and every end of a rod once, at the depth that our engine finds under it; the field itself touches nobody."""
    model = superball(terrain=Terrain.rubble(size=6.0, seed=3))
    mujoco_model = MujocoTensegrity(model)
    state = model.place_on_ground(model.rest_state(), gap=-0.8)
    pairs, depths = touching(mujoco_model, state)
    assert {first for first, _ in pairs} <= {f"ground{node}" for node in range(12)}
    assert all(first.removeprefix("ground") == second[3:] for first, second in pairs) and len(set(pairs)) == len(pairs)
    nodes = model.node_positions(state)
    normal = model.terrain.normal(nodes[:, 0], nodes[:, 1])
    expected = (nodes[:, 2] - model.terrain.height(nodes[:, 0], nodes[:, 1])) * normal[:, 2] - model.cap_radius
    found = {int(second[3:]): depth for (_, second), depth in zip(pairs, depths, strict=True) if second.startswith("cap")}
    assert sorted(found) == np.flatnonzero(expected < 0).tolist() and len(found) >= 6
    np.testing.assert_allclose([found[n] for n in sorted(found)], expected[expected < 0], rtol=0, atol=1e-12)


def touching(mujoco_model: MujocoTensegrity, state: Array) -> tuple[list[tuple[str, str]], list[float]]:
    """Names of geoms that touch the ground, and their gaps."""
    pairs: list[tuple[str, str]] = []
    depths: list[float] = []

    def read(mj: mujoco.MjModel, data: mujoco.MjData) -> Array:
        for contact in data.contact[: data.ncon]:
            first, second = (mj.geom(int(geom)).name for geom in contact.geom)
            if "ground" in first:
                pairs.append((first, second))
                depths.append(float(contact.dist))
        return np.zeros(1)

    mujoco_model.engine.evaluate(state[None], MujocoParameters().to_matrix(1), read)
    return pairs, depths


@pytest.mark.parametrize("name", TERRAINS)
def test_the_normal_is_that_of_the_heights(name: str) -> None:
    """By differences of 0.1 um, within cells and beyond the rim."""
    terrain, step, scale = TERRAINS[name], 1e-7, 1.5
    x, y = np.random.default_rng(0).uniform(-5.0, 5.0, (2, 200))
    rise = [
        (terrain.height(x + dx, y + dy, scale) - terrain.height(x - dx, y - dy, scale)) / (2 * step)
        for dx, dy in ((step, 0.0), (0.0, step))
    ]
    normal = terrain.normal(x, y, scale)
    np.testing.assert_allclose(-normal[:, :2].T / normal[:, 2], rise, rtol=0, atol=1e-6)
    np.testing.assert_allclose((normal**2).sum(axis=1), 1.0, rtol=1e-12)
    assert np.isnan(terrain.normal(np.array(np.nan), np.array(0.0))).any()
