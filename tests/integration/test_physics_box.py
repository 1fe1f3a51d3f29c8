"""The box against closed forms, another integrator, conserved quantities and differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from softgym_envs.core import lie
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.core.simulator import Status, finite_differences
from softgym_envs.systems.box.dynamics import BoxSimulator
from softgym_envs.systems.box.experiments import thrown
from softgym_envs.systems.box.model import BoxModel, cube, square
from softgym_envs.systems.box.mujoco import MujocoBox
from softgym_envs.systems.box.parameters import BoxParameters

Array = NDArray[np.float64]
G = 9.81


def run(simulator: BoxSimulator, start: Array, rows: int, parameters: BoxParameters | None = None) -> Array:
    states, status = simulator.rollout(start[None], np.zeros((1, rows, simulator.nu)), parameters)
    assert status.tolist() == [0]
    return np.asarray(states[0])


@pytest.mark.parametrize("dt", [1 / 100, 1 / 296, 1 / 1000])
def test_flight_is_a_parabola_whatever_the_step(dt: float) -> None:
    simulator = BoxSimulator(dt=dt)
    start = simulator.initial_state()[0]
    start[2], start[7:10], start[10:] = 2.0, (0.3, -0.2, 1.0), (2.0, -1.0, 3.0)
    end = run(simulator, start, round(0.3 / dt))[-1]
    t = round(0.3 / dt) * dt
    np.testing.assert_allclose(end[:3], [0.3 * t, -0.2 * t, 2.0 + t - 0.5 * G * t**2], atol=1e-12)
    np.testing.assert_allclose(end[10:], [2.0, -1.0, 3.0], atol=1e-12)  # a cube keeps its angular velocity


@pytest.mark.parametrize("restitution", [0.0, 0.3, 0.8])
def test_a_face_that_falls_flat_bounces_by_newtons_law_at_the_moment_of_the_strike(restitution: float) -> None:
    simulator = BoxSimulator(square(), dt=0.01)
    start = simulator.initial_state()[0]
    start[1] += 0.2
    states = run(simulator, start, 60, BoxParameters(restitution=restitution, friction=0.5))
    t0, v = np.sqrt(2 * 0.2 / G), np.sqrt(2 * 0.2 * G)
    times = 0.01 * np.arange(61)
    up = (times > t0) & (times < t0 + 2 * restitution * v / G)
    late = times[up] - t0
    np.testing.assert_allclose(states[up, 1], 0.03 + restitution * v * late - 0.5 * G * late**2, atol=1e-9)
    np.testing.assert_allclose(states[:, 2], 0.0, atol=1e-9)


@pytest.mark.parametrize("friction", [0.1, 0.4])
def test_a_face_slides_as_far_as_coulomb_says(friction: float) -> None:
    simulator = BoxSimulator(dt=1e-3)
    start = simulator.initial_state()[0]
    start[7:9] = 0.6, 0.8  # 1 m/s
    end = run(simulator, start, 2000, BoxParameters(friction=friction))[-1]
    way = 0.5 / (friction * G)
    np.testing.assert_allclose(end[:2], [0.6 * way, 0.8 * way], atol=2e-3 * way)  # of first order in dt: v h / way
    np.testing.assert_allclose(end[7:], 0.0, atol=1e-6)


def test_a_box_on_its_corner_falls_as_a_pendulum_does() -> None:
    """Without slip the square turns about its corner: I_c theta'' = m g r cos(angle of the centre over the corner)."""
    simulator = BoxSimulator(square(), dt=2e-4)
    tilt = 0.6  # over the left corner, towards the right
    start = simulator.initial_state()[0]
    start[2] = tilt
    start[1] = -simulator.model.corners(start)[:, 2].min() + start[1]
    r, inertia = np.hypot(0.03, 0.03), (2 * 0.03**2) / 3.0 + 2 * 0.03**2
    # the lowest corner is the one at (+x, -z) turned; the centre stands over it at the angle phi from the horizontal
    lowest = simulator.model.corners(start)[np.argmin(simulator.model.corners(start)[:, 2])]
    phi = np.arctan2(start[1] - lowest[2], start[0] - lowest[0])
    answer = solve_ivp(lambda t, y: [y[1], -G * r * np.cos(y[0]) / inertia], (0.0, 0.06), [phi, 0.0], rtol=1e-10, atol=1e-12)
    end = run(simulator, start, 300, BoxParameters(friction=1.5))[-1]
    assert end[2] - tilt == pytest.approx(answer.y[0, -1] - phi, abs=2e-4)


def test_an_impact_at_one_corner_is_the_closed_form() -> None:
    """Without friction lambda = -(1 + e) v_n / (n' M^-1 n), and it turns the square by lambda a_x / k^2."""
    simulator, e = BoxSimulator(square(), dt=1e-3), 0.4
    start = simulator.initial_state()[0]
    start[2], start[4] = 0.5, -1.0
    lowest = simulator.model.corners(start)[:, 2].min()
    start[1] += 1e-9 - lowest
    arm = simulator.model.corners(start)[np.argmin(simulator.model.corners(start)[:, 2])][0] - start[0]
    k2 = 2 * 0.03**2 / 3.0
    impulse = (1 + e) * 1.0 / (1.0 + arm**2 / k2)
    end = run(simulator, start, 1, BoxParameters(friction=0.0, restitution=e, gravity=0.0))[-1]
    np.testing.assert_allclose(end[3:], [0.0, impulse - 1.0, impulse * arm / k2], atol=1e-8)


def struck(friction: float, e: float, tilt: float, slip: float, parts: int) -> tuple[Array, float, float]:
    """Velocities of the square after a strike that it begins turned, at -1 m/s and `slip`; arm and height of its centre."""
    simulator = BoxSimulator(square(), dt=1e-7, strike_parts=parts)
    start = simulator.initial_state()[0]
    start[2], start[4] = tilt, -1.0
    corners = simulator.model.corners(start)
    start[1] += 1e-9 - corners[:, 2].min()
    start[3] = slip
    end = run(simulator, start, 1, BoxParameters(friction=friction, restitution=e, gravity=0.0))[-1]
    return end[3:], float(corners[np.argmin(corners[:, 2]), 0] - start[0]), float(start[1])


def routh(friction: float, e: float, arm: float, height: float, slip: float) -> tuple[Array, float, str]:
    """Velocities after a strike at (arm, -height) from the centre by [Routh 1905]; its normal impulse; what became of slip.

    Per normal impulse P and friction F: vx' = F, vz' = 1, w' = (arm + height F) / k^2; with slip s, F = -mu sign(s), and where
    s gets to zero the F that holds it if the cone does, else -mu sign(s) of the slip that begins.
    """
    k2, v, total, became = 2 * 0.03**2 / 3.0, np.array([slip, -1.0, 0.0]), 0.0, "goes on"

    def phase(F: float) -> tuple[Array, float, float]:
        rate = np.array([F, 1.0, (arm + height * F) / k2])
        return rate, rate[0] + height * rate[2], rate[1] + arm * rate[2]  # of slip, of the normal velocity

    F = -friction * np.sign(slip)
    rate, of_slip, of_normal = phase(F)
    until = (1.0 + e) / of_normal
    stops = -slip / of_slip if of_slip * slip < 0 else np.inf
    if stops < until:
        v, total = v + stops * rate, stops
        hold = -(arm * height / k2) / (1.0 + height**2 / k2)
        became = "sticks" if abs(hold) <= friction else "reverses"
        rate, _, of_normal = phase(hold if abs(hold) <= friction else friction * np.sign(hold))
        until = (e - (v[1] + arm * v[2])) / of_normal
    return v + until * rate, total + until, became


STRIKES = [
    (0.1, 0.5, 0.5, 3.0, "goes on"),
    (0.9, 0.5, 0.5, 0.3, "sticks"),
    (0.15, 0.5, 0.3, 0.05, "reverses"),
    (0.1, 0.5, 0.5, 1.0, "reverses"),
]


@pytest.mark.parametrize(("friction", "e", "tilt", "slip", "became"), STRIKES)
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_strike_is_rouths(friction: float, e: float, tilt: float, slip: float, became: str, side: float) -> None:
    """All parts but the one in which slip stops are exact, so the error is of first order in a part; none where slip ends."""
    errors = {}
    for parts in (1, 2, 8, 32, 128, 1024):
        found, arm, height = struck(friction, e, side * tilt, side * slip, parts)
        exact, impulse, happened = routh(friction, e, arm, height, side * slip)
        assert happened == became
        errors[parts] = np.abs(found - exact)
        k2 = 2 * 0.03**2 / 3.0
        off = 2.0 * friction * impulse / parts  # of the friction of one part, at most; the rest answers it in kind
        assert (errors[parts] <= 2.0 * off * np.array([1.0, 1.0, height / k2]) + 1e-7).all(), parts
    if became == "reverses":
        assert errors[1].max() > 20 * errors[1024].max()
    else:
        assert max(error.max() for error in errors.values()) < 1e-7


def in_space(state: Array) -> Array:
    """Velocities (6,), both in the world's axes."""
    return np.concatenate([state[7:10], lie.rotate(state[3:7], state[10:])])


def routh_in_space(before: Array, arm: Array, inertia: float, friction: float, e: float) -> Array | None:
    """Velocities (6,) of a cube of mass 1 after a strike of one corner, integrated along its impulse; None where slip stops."""

    def slip(v: Array) -> Array:
        return np.asarray(v[:3] + np.cross(v[3:], arm))

    def rate(_: float, v: Array) -> Array:
        s = slip(v)
        force = np.append(-friction * s[:2] / np.linalg.norm(s[:2]), 1.0)
        return np.concatenate([force, np.cross(arm, force) / inertia])

    v = in_space(before)
    bounced = -e * slip(v)[2]
    ends = [lambda _, v: slip(v)[2] - bounced, lambda _, v: np.linalg.norm(slip(v)[:2]) - 0.02]
    for end in ends:
        end.terminal = True  # type: ignore[attr-defined]
    found = solve_ivp(rate, (0.0, 10.0), v, events=ends, rtol=1e-11, atol=1e-12)
    return found.y[:, -1] if len(found.t_events[0]) else None


def test_a_strike_in_space_is_rouths_to_second_order() -> None:
    """Where slip turns and does not stop: four times as many parts leave a sixteenth of the error, rounding of steps apart."""
    simulator, starts = throws(cube(), 120, dt=1e-3)
    parameters = BoxParameters(friction=0.3, restitution=0.6, gravity=0.0)
    states, _ = simulator.rollout(starts, np.zeros((120, 400, 3)), parameters)
    errors, turned = [], []
    for row in states:
        hit = int(np.argmax(np.diff(row[:, 9]) > 0.05))
        corners = simulator.model.corners(row[hit])
        lowest = int(np.argmin(corners[:, 2]))
        if hit == 0 or np.sort(corners[:, 2])[1] - corners[lowest, 2] < 5e-3:
            continue
        before = row[hit].copy()
        before[2] -= corners[lowest, 2] - 1e-9
        arm = corners[lowest] - row[hit, :3]
        exact = routh_in_space(before, arm, 2.0 / 3.0 * simulator.model.half_size[0] ** 2, 0.3, 0.6)
        if exact is None:
            continue
        ends = [run(replace(simulator, strike_parts=k, dt=1e-7), before, 1, parameters)[-1] for k in (2, 8, 32)]
        errors.append([np.linalg.norm(in_space(end) - exact) for end in ends])
        one, other = (v[:2] + np.cross(v[3:], arm)[:2] for v in (in_space(before), exact))
        turned.append(np.degrees(np.arccos(one @ other / np.linalg.norm(one) / np.linalg.norm(other))))
    coarse, middle, fine = np.median(errors, axis=0)
    assert len(errors) > 20 and max(turned) > 10.0  # or else parts would not matter
    assert 8.0 < coarse / middle < 32.0 and 8.0 < middle / fine < 32.0


def throws(model: BoxModel, count: int, dt: float = 1 / 296) -> tuple[BoxSimulator, Array]:
    simulator = BoxSimulator(model, dt=dt)
    rng = np.random.default_rng(5)
    return simulator, np.array([thrown(simulator, rng) for _ in range(count)])


@pytest.mark.parametrize("model", [cube(), square(), BoxModel((0.05, 0.03, 0.02))])
@pytest.mark.parametrize(("friction", "restitution"), [(0.0, 0.5), (0.2, 0.12), (0.8, 0.6), (0.5, 0.95), (1.5, 0.3)])
def test_nothing_fails_nor_gets_through_nor_wins_energy(model: BoxModel, friction: float, restitution: float) -> None:
    simulator, starts = throws(model, 40)
    parameters = BoxParameters(friction=friction, restitution=restitution)
    states, status = simulator.rollout(starts, np.zeros((40, 300, simulator.nu)), parameters)
    assert (status == 0).all()
    assert model.corners(states)[..., 2].min() > -3e-5  # `TOUCHING` is 2e-5
    nq, height = simulator.scene.nq, 1 if model.planar else 2
    energy = 0.5 * np.sum(simulator.scene.uniform * states[..., nq:] ** 2, axis=-1) + G * states[..., height]
    assert np.diff(energy, axis=1).max() < G * 2e-5 + 1e-9 + (2e-4 if len(set(model.half_size)) > 1 else 0.0)


@pytest.mark.parametrize("friction", [0.3, 1.4])
def test_impacts_keep_to_coulombs_cone(friction: float) -> None:
    """What a strike gives sideways is at most mu times what it gives upwards (one corner strikes)."""
    simulator, starts = throws(cube(), 80, dt=1e-3)
    parameters, checked = BoxParameters(friction=friction, restitution=0.3, gravity=0.0), 0
    states, _ = simulator.rollout(starts, np.zeros((80, 400, 3)), parameters)
    change = np.diff(states[..., 7:10], axis=1)
    up, side = change[..., 2], np.linalg.norm(change[..., :2], axis=-1)
    struck = up > 1e-6
    checked = int(struck.sum())
    assert checked > 40
    assert (side[struck] <= friction * up[struck] + 1e-9).all()
    assert (side[~struck] <= 1e-9).all()


def test_the_free_spin_of_a_brick_keeps_energy_and_momentum_to_second_order() -> None:
    model, errors = BoxModel((0.05, 0.03, 0.02)), []
    for dt in (2e-3, 1e-3):
        simulator = BoxSimulator(model, dt=dt)
        start = simulator.initial_state()[0]
        start[2], start[10:] = 50.0, (1.0, 6.0, 0.5)
        end = run(simulator, start, round(0.4 / dt), BoxParameters(gravity=0.0))[-1]
        moments = model.uniform_inertia
        errors.append(abs(moments @ end[10:] ** 2 - moments @ start[10:] ** 2))
    assert errors[0] / errors[1] > 3.0


def test_what_comes_after_a_strike_is_smooth_in_what_was_before() -> None:
    """Derivatives of 12 steps with a strike in them, its moment included, against central differences."""
    simulator, starts = throws(cube(), 30)
    states, _ = simulator.rollout(starts, np.zeros((30, 60, 3)))
    low = simulator.model.corners(states)[..., 2].min(axis=2)
    rows = []
    for throw in range(30):
        first = int(np.argmax(np.diff(states[throw, :, 9]) > 1e-3))
        if first > 3 and low[throw, first - 2] > 1e-3:
            rows.append(states[throw, first - 2])
    x = np.array(rows)
    assert len(x) > 15
    u = np.zeros((len(x), 3))
    ours, theirs = simulator.linearize(x, u, substeps=4), finite_differences(simulator, x, u, substeps=4, epsilon=1e-7)
    error = np.abs(ours.A - theirs.A).max(axis=(1, 2)) / np.abs(theirs.A).max(axis=(1, 2))
    assert np.quantile(error, 0.8) < 1e-5  # the others strike twice, or begin to slip, within a difference


def sliding(model: BoxModel, seed: int) -> Array:
    """State (nx,) of a box that slides on a face and spins."""
    rng = np.random.default_rng(seed)
    state, way = model.rest_state(), rng.uniform(0.0, 2.0 * np.pi)
    state[3:7] = lie.exp(np.array([0.0, 0.0, rng.uniform(0.0, 2.0 * np.pi)]))
    state[7:9], state[12] = rng.uniform(0.2, 1.0) * np.array([np.cos(way), np.sin(way)]), rng.uniform(-15.0, 15.0)
    return state


@pytest.mark.parametrize("model", [cube(), BoxModel((0.05, 0.03, 0.02))])
def test_derivatives_are_exact_where_a_face_slides_and_spins(model: BoxModel) -> None:
    simulator, parameters = BoxSimulator(model), BoxParameters(friction=0.3)
    starts = np.array([sliding(model, seed) for seed in range(6)])
    states, _ = simulator.rollout(starts, np.zeros((6, 5, 3)), parameters)
    x = np.concatenate([starts, states[:, -1]])
    assert (np.abs(x[:, 12]) > 0.1).all()
    for substeps in (1, 2):
        ours = simulator.linearize(x, np.zeros((12, 3)), parameters, substeps=substeps)
        theirs = finite_differences(simulator, x, np.zeros((12, 3)), parameters, substeps=substeps, epsilon=2e-7)
        for one, other in zip((ours.A, ours.B, ours.C), (theirs.A, theirs.B, theirs.C), strict=True):
            size = np.abs(other).max(axis=1)
            error = np.abs(one - other).max(axis=1) / np.maximum(size, 1e-3 * size.max(axis=1, keepdims=True))
            assert error.max() < 3e-3  # impulses are solved to 1e-11 m/s, which differences of 2e-7 see


@pytest.mark.parametrize("model", [cube(), BoxModel((0.05, 0.03, 0.02))])
def test_motion_does_not_depend_on_how_corners_are_numbered(model: BoxModel) -> None:
    """A face that slides and spins, and throws until their second strikes: later ones amplify rounding."""
    rng, parameters, ends = np.random.default_rng(0), BoxParameters(friction=0.3), []
    simulator, starts = throws(model, 12)
    controls = np.zeros((12, 60, 3))
    for _ in range(5):
        renumbered = replace(model)
        renumbered.__dict__["signs"] = model.signs[rng.permutation(8)]
        simulator = BoxSimulator(renumbered)
        slid, _ = simulator.rollout(np.array([sliding(model, seed) for seed in range(12)]), controls, parameters)
        thrown_, _ = simulator.rollout(starts, controls, parameters)
        ends.append((slid[:, -1], thrown_[:, 40]))
    assert np.linalg.norm(ends[0][0][:, :2], axis=1).max() > 0.1  # [m]
    assert max(np.abs(slid - ends[0][0]).max() for slid, _ in ends) < 1e-9
    assert max(np.quantile(np.abs(tossed - ends[0][1]).max(axis=1), 0.75) for _, tossed in ends) < 1e-6


def test_the_mujoco_model_flies_alike_and_lands_alike() -> None:
    simulator, starts = throws(cube(), 20)
    mujoco_model = MujocoBox()
    ours, _ = simulator.rollout(starts, np.zeros((20, 30, 3)), substeps=2)
    theirs, _ = mujoco_model.rollout(starts, np.zeros((20, 30, 3)), substeps=10)
    apart = np.linalg.norm(ours[..., :3] - theirs[..., :3], axis=-1)
    flying = ours[..., 2] > 0.0524 * np.sqrt(3) + 2e-3
    assert apart[flying].max() < G * 0.2 * mujoco_model.dt  # Euler's error of a fall
    assert np.median(apart[:, -1]) < 0.1 * 0.1048  # widths, 0.2 s later: soft contact against rigid


def test_forces_push_and_constants_move_the_table() -> None:
    simulator = BoxSimulator()
    start = simulator.initial_state()
    start[0, 2] += 0.1
    parameters = BoxParameters(mass=0.5, table=0.1, friction=0.2)
    states, _ = simulator.rollout(start, np.tile([5.0, 0.0, 0.0], (1, 30, 1)), parameters)
    t, pushed = 30 / 296, 5.0 / 0.5 - 0.2 * G
    assert states[0, -1, 0] == pytest.approx(0.5 * pushed * t**2, rel=1e-6)
    assert states[0, -1, 2] == pytest.approx(0.1524, abs=1e-6)


def test_a_box_without_an_attitude_fails_and_stays_where_it_is() -> None:
    simulator = BoxSimulator()
    start = simulator.initial_state(2)
    start[0, 3:7] = 0.0
    states, status = simulator.rollout(start, np.zeros((2, 3, 3)))
    assert status[0] == Status.DIVERGED and status[1] == Status.OK
    np.testing.assert_array_equal(states[0], np.repeat(start[:1], 4, axis=0))


def test_bad_boxes_are_refused() -> None:
    with pytest.raises(StructureError, match="half_size"):
        BoxModel((0.1,))
    with pytest.raises(OptionError, match="half_size"):
        BoxModel((0.1, -0.1))
    with pytest.raises(OptionError, match="dt"):
        BoxSimulator(dt=0.0)
    with pytest.raises(OptionError, match="strike_parts"):
        BoxSimulator(strike_parts=0)
