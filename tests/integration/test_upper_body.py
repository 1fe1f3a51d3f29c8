"""The upper body: director coordinates and MuJoCo as steps go to zero; its task, its identification, bad files. Muscles of the
upper body's right arm: kernels against symbols and against MuJoCo's tendons; engine, task, bad files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import casadi as ca
import gymnasium as gym
import mujoco
import numpy as np
import pytest
from helpers import success
from scipy.optimize import lsq_linear

from reproductions.penner2020.director_steps import DirectorSteps
from reproductions.penner2020.directors import Directors
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.core.task import Start
from softgym_envs.mechanics import Mechanism
from softgym_envs.muscles.muscle import tension
from softgym_envs.muscles.paths import Muscles
from softgym_envs.muscles.routes import Routes
from softgym_envs.systems.upper_body.controllers import blind, reach
from softgym_envs.systems.upper_body.dynamics import BodySimulator
from softgym_envs.systems.upper_body.model import FILE, PARAMETERS, BodyModel, muscled, read_body
from softgym_envs.systems.upper_body.mujoco import MujocoUpperBody
from softgym_envs.systems.upper_body.muscle_control import held_pose
from softgym_envs.systems.upper_body.muscle_kernels import lengths_and_arms
from softgym_envs.systems.upper_body.parameters import BodyParameters
from softgym_envs.systems.upper_body.picture import PICTURE
from softgym_envs.systems.upper_body.procedure import PROCEDURE
from softgym_envs.systems.upper_body.sharing import LITTLE, bounded, share
from softgym_envs.systems.upper_body.tasks import UpperBodyReach
from sysid.procedure.run import run_procedure

MODEL = BodyModel()
BARE = {name: 0.0 if name.endswith(("stiffness", "damping")) or name == "armature" else 1.0 for name in PARAMETERS}
"""Parameters without springs, dampers and armatures: what director coordinates know of."""


def pose(seed: int) -> np.ndarray:
    """Angles away from where the shoulder's axes meet."""
    rng, (low, high) = np.random.default_rng(seed), MODEL.limits
    return low + (high - low) * rng.uniform(0.3, 0.7, MODEL.n)


def test_the_null_space_is_that_of_the_constraints():
    directors = Directors(MODEL.tree, BARE)
    q = ca.SX.sym("q", directors.size)
    slope = ca.Function("slope", [q], [ca.jacobian(directors.constraints(q), q)])
    for seed in range(5):
        where = directors.configuration(np.random.default_rng(seed).uniform(-2.5, 2.5, MODEL.n))
        P, G = np.array(directors.null_space(where)), np.array(slope(where))
        assert np.abs(np.array(directors.constraints(where))).max() < 1e-12
        assert np.abs(P.T @ G.T).max() < 1e-12 and np.linalg.matrix_rank(P) == 12


def test_director_coordinates_move_as_the_tree_in_second_order():
    parameter_values = np.array([BARE[name] for name in PARAMETERS])
    start, velocity, horizon = pose(1), np.random.default_rng(2).uniform(-1, 1, 12), 0.08
    torque = 0.05 * MODEL.effort * np.random.default_rng(3).uniform(-1, 1, 12)
    fine = Mechanism(MODEL.tree, 1e-4, PARAMETERS, force_split="symmetric")
    steps = round(horizon / 1e-4)
    first = fine.state([start], [velocity], torque[None], parameter_values)
    ground_truth = fine.simulate(first, np.tile(torque, (1, steps, 1)), parameter_values).states[0, -1, :12]
    errors = []
    for h in (0.02, 0.01, 0.005):
        directors, count = DirectorSteps(Directors(MODEL.tree, BARE), h), round(horizon / h)
        errors.append(
            np.abs(directors.simulate(start, velocity, np.tile(h * torque, (count, 1))).theta[-1] - ground_truth).max()
        )
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 1.8).all() and errors[-1] < 2e-3, (errors, orders)


def test_reduced_and_full_steps_of_the_body_agree():
    steps = DirectorSteps(Directors(MODEL.tree, BARE), 0.01)
    motion = steps.simulate(pose(4), np.random.default_rng(5).uniform(-1, 1, 12), np.zeros((3, 12)))
    for n in (1, 2):
        after = steps.full_step(motion.q[n - 1], motion.q[n], np.zeros(12))
        mass = np.repeat([body.mass > 0 for body in MODEL.tree.bodies], 12)  # a frame without mass is told by its joint alone
        np.testing.assert_allclose(after[mass], motion.q[n + 1][mass], atol=1e-9)


def test_engine_and_mujoco_model_meet_in_first_order():
    """Both are of first order where torques act; the gap between them halves with their steps."""
    start = np.concatenate([pose(6), np.random.default_rng(7).uniform(-1, 1, 12)])[None]
    torques = 0.3 * MODEL.effort * np.random.default_rng(8).uniform(-1, 1, (1, 5, 12))
    gaps = []
    for ours, theirs in ((2e-3, 4e-4), (1e-3, 2e-4), (5e-4, 1e-4)):
        a, _ = BodySimulator(dt=ours).rollout(start, torques, substeps=round(0.02 / ours))
        b, _ = MujocoUpperBody(dt=theirs).rollout(start, torques, substeps=round(0.02 / theirs))
        gaps.append(np.abs(a - b)[..., :12].max())
    assert gaps[2] < 2e-3 and gaps[1] < 0.6 * gaps[0] and gaps[2] < 0.6 * gaps[1], gaps


def test_the_symbolic_step_is_the_step():
    simulator, rng = BodySimulator(), np.random.default_rng(9)
    state = np.hstack([np.stack([pose(seed) for seed in range(5)]), rng.normal(size=(5, 12))])
    control = MODEL.effort * rng.uniform(-1, 1, (5, 12))
    after, _ = simulator.step(state, control)
    form = simulator.symbolic_step()
    assert form.residual(state, control, np.tile(MODEL.defaults, (5, 1)), after, np.zeros((5, 0))).max() < 1e-10


def test_energy_is_kept_without_torques_and_dampers():
    parameter_values = np.where(["damping" in name for name in PARAMETERS], 0.0, MODEL.defaults)
    spans = []
    for dt in (0.002, 0.001):
        mechanism = Mechanism(MODEL.tree, dt, PARAMETERS)
        first = mechanism.state([pose(10)], np.zeros((1, 12)), parameter_values=parameter_values)
        q = mechanism.simulate(first, np.zeros((1, round(0.8 / dt), 12)), parameter_values).states[0, :, :12]
        kinetic, potential = mechanism.energies(0.5 * (q[1:] + q[:-1]), np.diff(q, axis=0) / dt, parameter_values).T
        spans.append(np.ptp(kinetic + potential) / kinetic.max())
    assert spans[1] < 0.35 * spans[0] and spans[1] < 0.02, spans  # second order


def test_stops_hold_every_joint_against_its_torque_and_are_those_of_mujoco():
    """From rest by the full torque, to either side."""
    torque = np.concatenate([np.diag(MODEL.effort), -np.diag(MODEL.effort)])
    controls, pushed, (low, high) = np.repeat(torque[:, None], 150, axis=1), np.arange(24) % 12, MODEL.limits
    ends = []
    for simulator, substeps in ((BodySimulator(), 4), (MujocoUpperBody(), 20)):
        states, status = simulator.rollout(simulator.initial_state(24), controls, substeps=substeps)
        excess = np.maximum(states[..., :12] - high, low - states[..., :12])[np.arange(24), :, pushed]
        assert not status.any() and (excess[:, -1] > 0.0).all()
        assert excess[:, -1].max() < 0.07 and excess.max() < 0.25 and states[..., :12].max() < np.pi + 0.2
        ends.append(states[:, -1, :12])
    np.testing.assert_allclose(ends[0], ends[1], atol=2e-3)


def test_energy_does_not_grow_at_stops():
    """Thrown into them, with hardly any damping. Energy is taken at the middle of a step, whose speed a state has."""
    least = {
        name: field.metadata["bounds"][0] for name, field in BodyParameters.__dataclass_fields__.items() if "damping" in name
    }
    parameter_values, (low, high) = BodyParameters(**least), MODEL.limits
    start = np.concatenate([np.tile(0.5 * (low + high), (16, 1)), 4.0 * np.random.default_rng(3).normal(size=(16, 12))], axis=1)
    peaks = []
    for dt in (0.005, 0.0025):
        simulator = BodySimulator(dt=dt)
        columns = simulator.tree_constants(parameter_values, 16)
        states, status = simulator.rollout(start, np.zeros((16, 50, 12)), parameter_values, substeps=round(0.02 / dt))
        energy = [
            simulator.mechanism.energies(x[:, :12] - 0.5 * dt * x[:, 12:], x[:, 12:], columns) for x in states.swapaxes(0, 1)
        ]
        assert not status.any() and ((states[..., :12] > high) | (states[..., :12] < low)).any(axis=(1, 2)).all()
        peaks.append(((np.sum(energy[1:], axis=-1) - energy[0].sum(axis=-1)) / energy[0][:, 0]).max())
    assert peaks[0] < 0.1 and peaks[1] < 0.5 * peaks[0]


def test_derivatives_and_symbols_are_those_of_the_step_beyond_the_stops():
    simulator, rng, (low, high) = BodySimulator(), np.random.default_rng(4), MODEL.limits
    side = rng.integers(0, 2, (4, 12)).astype(bool)
    beyond = rng.uniform(0.03, 0.08, (4, 12))
    state = np.hstack([np.where(side, high + beyond, low - beyond), rng.normal(size=(4, 12))])
    control = MODEL.effort * rng.uniform(-1, 1, (4, 12))
    exact, numeric = simulator.linearize(state, control), finite_differences(simulator, state, control)
    for a, b in zip(exact, numeric, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6 * np.abs(b).max())
    after, _ = simulator.step(state, control)
    form = simulator.symbolic_step()
    assert form.residual(state, control, np.tile(MODEL.defaults, (4, 1)), after, np.zeros((4, 0))).max() < 1e-10


def test_goals_and_starts_are_within_the_limits():
    task, (low, high) = gym.make("softgym_envs:UpperBodyReach-v0").unwrapped.task, MODEL.limits
    state, _ = task.reset(Start([np.random.default_rng(k) for k in range(20)], {}, {}, lambda state, control, seconds: state))
    assert (state[:, :12] >= low).all() and (state[:, :12] <= high).all()


def test_inverse_kinematics_finds_poses_within_the_limits():
    rng, (low, high) = np.random.default_rng(11), MODEL.limits
    points = MODEL.hand(low + (high - low) * rng.uniform(0.1, 0.9, (60, 12)))
    q, left = MODEL.reaching(points)
    assert (q >= low).all() and (q <= high).all() and np.mean(left < 5e-3) >= 0.95
    assert MODEL.reaching(np.array([[3.0, 0.0, 0.0]]))[1][0] > 2.0  # out of reach: it says how far


def test_a_controller_does_it_and_nothing_does_not():
    for backend in ("native", "mujoco"):
        assert success("UpperBodyReach-v0", reach, backend=backend) >= 0.9
    assert success("UpperBodyReach-v0", reach, sensor_noise=0.02, action_latency=0.04) >= 0.9
    rng = np.random.default_rng(0)
    assert success("UpperBodyReach-v0", lambda envs: lambda o: np.zeros((len(o), 12))) < 0.05
    assert success("UpperBodyReach-v0", lambda envs: lambda o: rng.uniform(-1, 1, (len(o), 12))) < 0.2
    assert success("UpperBodyReach-v0", blind) < 0.3


def test_constants_are_found_in_recordings_of_ones_own_and_of_the_mujoco_model():
    for ground_truth, steps, tolerance in ((BodySimulator(), 600, 1e-6), (MujocoUpperBody(dt=BodySimulator().dt), 1000, 0.1)):
        data = PROCEDURE.record(ground_truth, np.random.default_rng(0), steps=steps, tests=1)
        found = run_procedure(PROCEDURE, BodySimulator(), data).parameters
        values = np.array([float(getattr(found, name)) for name in PARAMETERS])
        np.testing.assert_allclose(values, MODEL.defaults, rtol=tolerance, atol=tolerance * 0.02)


def test_bad_trees_are_named(tmp_path: Path):
    text = FILE.read_text()
    for change, message in (
        (("effort = 40.0", "effort = -1.0"), "effort"),
        (('"right_wrist",\n', "\n"), "control for every joint"),
        (('"armature"', '"mystery"'), "mystery"),
        (('[[frame]]\nname = "right_hand"', '[[frame]]\nname = "fist"'), "right_hand"),
    ):
        path = tmp_path / "body.toml"
        path.write_text(text.replace(*change))
        with pytest.raises(StructureError, match=message):
            read_body(path)


def test_a_users_arm_reaches_too():
    """Two joints in a plane, from a file."""
    path = Path(__file__).parents[1] / "data/models/upper_body.toml"
    for backend in ("native", "mujoco"):
        assert success("UpperBodyReach-v0", reach, backend=backend, rows=16, model=str(path)) >= 0.8


def test_goals_are_as_far_and_as_light_as_asked_or_refused():
    """Also where few poses will do; the task says what it cannot meet when it is made."""
    task = gym.make("softgym_envs:UpperBodyReach-v0", goal_effort=0.2, goal_distance=0.3).unwrapped.task
    for seed in range(10):
        assert np.linalg.norm(task._goal(np.random.default_rng(seed)) - task.hanging) >= 0.3
    for keywords, message in (
        ({"goal_effort": 0.01}, "goal_effort 0.01: .*none is held at all"),
        ({"goal_distance": 3.0}, "goal_distance is 3 m and .* the farthest that is held is 1"),
    ):
        with pytest.raises(OptionError, match=message):
            gym.make("softgym_envs:UpperBodyReach-v0", **keywords)


MUSCULAR = muscled(BodyModel())
N, M = MUSCULAR.n, len(MUSCULAR.muscle_names)


def poses(count: int, seed: int) -> np.ndarray:
    """Angles within the limits."""
    low, high = MUSCULAR.limits
    return low + (high - low) * np.random.default_rng(seed).uniform(0.05, 0.95, (count, N))


def test_lengths_and_moment_arms_are_those_of_the_symbols():
    assert MUSCULAR.muscles is not None
    q = poses(30, 0)
    lengths, arms = lengths_and_arms(MUSCULAR.routes, q)
    expected = Routes(MUSCULAR.tree, MUSCULAR.muscles).lengths(q)
    np.testing.assert_allclose(lengths, expected[0], atol=1e-12)
    np.testing.assert_allclose(arms, expected[1], atol=1e-12)
    assert not arms[:, :, 6:].any() and (np.abs(arms).max(axis=(0, 2)) > 2e-3).all()


def test_lengths_and_moment_arms_are_those_of_mujocos_tendons():
    mujoco_model = MujocoUpperBody(model=MUSCULAR)
    compiled = mujoco_model.engine.models(MUSCULAR.defaults[None])[0]
    data, names = mujoco.MjData(compiled), [compiled.joint(i).name for i in range(N)]
    order, q = [MUSCULAR.tree.coordinates.index(name) for name in names], poses(40, 1)
    lengths, arms = lengths_and_arms(MUSCULAR.routes, q)
    for k, row in enumerate(q):
        data.qpos[:] = row[order]
        mujoco.mj_forward(compiled, data)
        np.testing.assert_allclose(data.ten_length[:M], lengths[k], atol=TENDON)
        found = np.zeros((len(data.ten_length), N))
        mujoco.mju_sparse2dense(found, data.ten_J.ravel(), compiled.ten_J_rownnz, compiled.ten_J_rowadr, compiled.ten_J_colind)
        np.testing.assert_allclose(-found[:M], arms[k][:, order], atol=TENDON)


TENDON = 1e-6
"""[m]"""


def moving() -> tuple[BodySimulator, np.ndarray, np.ndarray]:
    """The engine, states (3, nx) on the way, and controls (3, nu)."""
    simulator, rng = BodySimulator(model=MUSCULAR), np.random.default_rng(2)
    low, high = simulator.control_bounds
    control = 0.5 * (low + (high - low) * rng.uniform(0.2, 0.8, (3, simulator.nu)))
    states, status = simulator.rollout(simulator.initial_state(3), np.repeat(control[:, None], 6, axis=1), substeps=4)
    assert not status.any()
    return simulator, states[:, -1], control


def test_the_symbolic_step_is_the_engines_and_derivatives_are_exact():
    simulator, state, control = moving()
    after, _ = simulator.step(state, control)
    form = simulator.symbolic_step()
    assert form.residual(state, control, np.tile(MUSCULAR.defaults, (3, 1)), after, np.zeros((3, 0))).max() < 1e-10
    exact, differences = (
        way(state, control, substeps=2) for way in (simulator.linearize, lambda *a, **k: finite_differences(simulator, *a, **k))
    )
    for a, b in zip(exact, differences, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(np.abs(b).max(), 1.0))


def test_the_body_rests_and_muscles_pull():
    simulator = BodySimulator(model=MUSCULAR)
    still, _ = simulator.rollout(simulator.initial_state(), np.zeros((1, 20, simulator.nu)), substeps=4)
    assert np.abs(still[0, -1] - still[0, 0]).max() < 1e-8
    bent = np.zeros((1, 20, simulator.nu))
    bent[0, :, MUSCULAR.muscle_names.index("brachialis")] = 0.5
    states, _ = simulator.rollout(simulator.initial_state(), bent, substeps=4)
    assert states[0, -1, MUSCULAR.tree.coordinates.index("right_elbow")] > states[0, 0, 3] + 0.3


def test_muscles_share_torques_as_bounded_least_squares():
    rng = np.random.default_rng(3)
    pulls, needed, found = 30.0 * rng.standard_normal((5, 6, M)), 20.0 * rng.standard_normal((5, 6)), np.zeros((5, M))
    bounded(pulls, needed, LITTLE, found)
    for row in range(5):
        stacked, wanted = np.vstack([pulls[row], LITTLE * np.eye(M)]), np.append(needed[row], np.zeros(M))
        expected = lsq_linear(stacked, wanted, (0.0, 1.0), tol=1e-12)
        cost = 0.5 * ((stacked @ found[row] - wanted) ** 2).sum()
        assert cost <= expected.cost + 0.5 * GAP**2 and found[row].min() >= 0 and found[row].max() <= 1


GAP = 0.5
"""[N m] Of torques that are 50 N m in all: one activation after the other comes slowly to the very end."""


def test_shared_torques_and_missing_ones_are_all_of_them():
    q = poses(6, 3)
    torque = MUSCULAR.holding(q)
    found = share(MUSCULAR, q, np.zeros_like(q), torque)
    force, optimal, slack = MUSCULAR.routes.numbers.T
    lengths, arms = lengths_and_arms(MUSCULAR.routes, q)
    fibre = (lengths - slack) / optimal
    pull = force * tension(found.activations, fibre, np.zeros_like(fibre))
    done = np.einsum("bmn,bm->bn", arms, pull)[:, :6]
    np.testing.assert_allclose(done + found.missing, torque[:, :6], atol=1e-9)


def test_goals_with_muscles_can_be_held():
    task = UpperBodyReach(MUSCULAR)
    goals = np.array([task._goal(np.random.default_rng(k)) for k in range(6)])
    pose = held_pose(MUSCULAR, goals)
    assert np.linalg.norm(MUSCULAR.hand(pose) - goals, axis=1).max() < 0.01
    assert np.abs(share(MUSCULAR, pose, np.zeros_like(pose), MUSCULAR.holding(pose)).missing).max() < 1.0


def test_the_picture_shows_muscles_and_its_keys_pull():
    state = MUSCULAR.rest_state()
    bodies = BodySimulator(MUSCULAR), BodySimulator()
    more, bare = (len(PICTURE.scene(body, state[: body.nx], {}, body.default_parameters).primitives) for body in bodies)
    assert more > bare + M
    assert (PICTURE.rest_action(MUSCULAR)[:M] == -1).all() and PICTURE.heading_action(MUSCULAR, state, np.array([1.0, 0.0]))[
        0
    ] > -1
    points = MUSCULAR.muscle_points(MUSCULAR.rest[None])
    assert len(points) == M and abs(np.linalg.norm(points[7][0]) - np.linalg.norm([0.026, -0.182, 0.02])) < 1e-12


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_a_controller_reaches_with_muscles(backend):
    envs = gym.make_vec("softgym_envs:UpperBodyReach-v0", num_envs=8, muscles=True, backend=backend)
    observation, _ = envs.reset(seed=5)
    assert observation.shape == (8, 2 * N + M + 6) and envs.single_action_space.shape == (M + 6,)
    policy, done, reached = reach(envs.unwrapped), np.zeros(8, dtype=bool), np.zeros(8, dtype=bool)
    for _ in range(150):
        observation, _, terminated, truncated, info = envs.step(policy(observation))
        reached |= info["is_success"] & ~done
        done |= terminated | truncated
        if done.all():
            break
    assert reached.mean() >= SHARE, reached


SHARE = 0.75
"""It reaches 48 of 48 in either world."""


def test_muscles_that_make_no_sense_are_named():
    assert MUSCULAR.muscles is not None
    first = MUSCULAR.muscles.muscles[0]
    with pytest.raises(StructureError, match=f"muscle '{first.name}' has no force"):
        BodyModel(MUSCULAR.tree, Muscles(MUSCULAR.muscles.surfaces, (replace(first, force=None),))).routes  # noqa: B018
    with pytest.raises(StructureError, match="nobody"):
        BodyModel(MUSCULAR.tree, Muscles(MUSCULAR.muscles.surfaces, (replace(first, origin_body="nobody"),))).routes  # noqa: B018
    deltoid = replace(first, origin=(0.005, -0.19, 0.0))
    with pytest.raises(StructureError, match="'deltoid_front' goes through surface 'head'"):
        BodyModel(MUSCULAR.tree, Muscles(MUSCULAR.muscles.surfaces, (deltoid,))).routes  # noqa: B018
    with pytest.raises(StructureError, match="has no muscles"):
        BodyModel().routes  # noqa: B018
