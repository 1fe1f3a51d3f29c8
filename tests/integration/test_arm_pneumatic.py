"""Pneumatic muscles against virtual work, and the arm of hinges that they pull against closed forms of motion."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import load_script

from softgym_envs.core.errors import ShapeError
from softgym_envs.systems.arm.pneumatic import braid_force, filled

arm = load_script("experiments/pneumatic_arm_identify/mechanism.py")
H = 0.01
THREAD, TURNS = 0.3, 1.5


def test_force_is_the_work_of_the_air():
    """F = -p dV/dl by a complex step, whose imaginary part is exact; none at the angle where a braid is widest."""
    length = np.linspace(0.15, 0.29, 9)
    complex_length = length + 1e-30j
    volume = complex_length * (THREAD * THREAD - complex_length * complex_length) / (4.0 * np.pi * TURNS * TURNS)
    slope = volume.imag / 1e-30
    assert np.allclose(braid_force(2e5, length, THREAD, TURNS), -2e5 * slope, rtol=1e-13)
    assert abs(braid_force(2e5, THREAD / np.sqrt(3), THREAD, TURNS)) < 1e-9


def test_a_pulley_makes_a_quadratic():
    q = np.linspace(-1.0, 1.0, 11)
    expected = 0.02 * braid_force(1e5, 0.27 - 0.02 * q, THREAD, TURNS)
    assert np.allclose(arm.pull(1e5, q, arm.on_pulley(THREAD, TURNS, 0.27, 0.02)), expected, rtol=1e-12)


def test_filling_is_exact():
    """Two half steps are one, and a long time fills."""
    half, full = np.exp(-0.005 / 0.05), np.exp(-0.01 / 0.05)
    assert abs(filled(filled(0.2, 0.9, half), 0.9, half) - filled(0.2, 0.9, full)) < 1e-15
    assert abs(filled(0.2, 0.9, np.exp(-5.0 / 0.05)) - 0.9) < 1e-12


def bare(joints: int = 2) -> np.ndarray:
    """Parameters of an arm with nothing but inertia, whose stops are far away."""
    far = np.full(joints, 50.0)
    found = np.zeros((joints, len(arm.known(0, -far, far))))
    found[:, arm.LOWER], found[:, arm.UPPER], found[:, [arm.LAG_PULL, arm.LAG_BACK]] = -50.0, 50.0, np.log(0.05)
    return found


def moving(speed: float, joints: int = 2, pressure: float = 0.0) -> np.ndarray:
    """Past (1, 12, 3 n) of joints that arrive at 0 with that speed."""
    angles = speed * H * (np.arange(12) - 11)[:, None] + np.zeros(joints)
    return np.hstack([angles, np.full((12, 2 * joints), pressure)])[None]


def test_friction_stops_a_joint_in_v_squared_over_twice_it():
    parameter_values = bare()
    parameter_values[:, arm.FRICTION] = 10.0
    angles = arm.predicted(parameter_values, moving(2.0), np.zeros((1, 60, 4)), H)[0]
    assert np.abs(angles[-1] - 2.0**2 / 20.0).max() <= 2.0 * H  # a step's way
    assert (angles[-1] == angles[30]).all()  # and there it stays


@pytest.mark.parametrize(("pressure", "moves"), [(0.5, False), (1.1, False), (1.3, True)])
def test_a_joint_that_stands_takes_stiction_to_move(pressure, moves):
    """10 rad/s^2 of friction, a fifth more where it stands, against 10 rad/s^2 per unit of pressure."""
    parameter_values = bare()
    parameter_values[:, arm.FRICTION], parameter_values[:, arm.STICTION], parameter_values[:, arm.PULL] = 10.0, 0.2, 10.0
    valves = np.tile([pressure, 0.0, 0.0, 0.0], (1, 40, 1))
    angles = arm.predicted(parameter_values, moving(0.0, pressure=0.0), valves, H)[0]
    assert (angles[-1, 0] > 0.01) == moves and angles[-1, 1] == 0.0


def test_a_spring_swings_in_its_period():
    """Semi-implicit Euler swings with 2 asin(omega h / 2) / h, and its starting speed is the past's last."""
    parameter_values, omega, speed = bare(1), 6.0, 0.5
    parameter_values[:, arm.STIFFNESS] = omega**2
    angles = arm.predicted(parameter_values, moving(speed, 1), np.zeros((1, 200, 2)), H)[0, :, 0]
    turned = 2 * np.arcsin(omega * H / 2)
    expected = speed * H * np.sin(turned * np.arange(1, 201)) / np.sin(turned)
    assert np.abs(angles - expected).max() < 1e-10


@pytest.mark.parametrize("muscle", ["pull", "back"])
@pytest.mark.parametrize("pressure", [0.3, 1.5])
def test_a_stop_holds_a_muscle_whose_torque_grows(muscle, pressure):
    """Beyond the end of the range the muscle pulls as there, 225 p; the stop's spring carries it, up to `REACH`."""
    parameter_values, side = bare(1), 1.0 if muscle == "pull" else -1.0
    parameter_values[:, arm.LOWER], parameter_values[:, arm.UPPER], parameter_values[:, arm.DAMPING] = -0.5, 0.5, 20.0
    first = arm.PULL if side > 0 else arm.BACK
    parameter_values[:, first : first + 3] = 125.0, 200.0 * side, 0.0  # 225 at the stop
    valves = np.tile([pressure * (side > 0), pressure * (side < 0)], (1, 400, 1))
    angles = arm.predicted(parameter_values, moving(0.0, 1), valves, H)[0, :, 0]
    expected = min(pressure * 225.0 / arm.STOP_STIFFNESS, arm.REACH)
    assert abs(side * angles[-1] - (0.5 + expected)) < 2e-3  # the spring begins softly


def test_no_pressures_drive_an_arm_out_of_its_range():
    """Parameters drawn within their bounds, pressures from -0.2 to 1.3, arrivals at up to 20 rad/s: finite, within the
    stops."""
    rng = np.random.default_rng(0)
    lower, upper = np.array([-1.0, -1.6]), np.array([0.9, 1.5])
    every = [arm.known(j, lower, upper) for j in range(2)]
    for _ in range(40):
        drawn = [[np.clip(rng.normal(k.initial_guess, 3 * k.spread), k.low, k.high) for k in joint] for joint in every]
        parameter_values = np.array(drawn)
        past, valves = moving(rng.uniform(-20, 20)), rng.uniform(-0.2, 1.3, (1, 300, 4))
        angles = arm.predicted(parameter_values, past, valves, H)[0]
        assert np.isfinite(angles).all()
        assert (angles >= parameter_values[:, arm.LOWER] - arm.REACH).all() and (
            angles <= parameter_values[:, arm.UPPER] + arm.REACH
        ).all()
        outside, inside = arm.STOP_RANGE
        assert (parameter_values[:, arm.UPPER] >= upper - inside).all() and (
            parameter_values[:, arm.LOWER] >= lower - outside
        ).all()


def test_a_muscle_does_not_push():
    """A torque that its quadratic makes negative is none."""
    parameter_values = bare(1)
    parameter_values[:, arm.PULL], parameter_values[:, arm.PULL + 1] = 10.0, 100.0
    past = moving(0.0, 1)
    past[:, :, 0] = -0.5  # 10 - 50 < 0
    assert (arm.predicted(parameter_values, past, np.tile([1.0, 0.0], (1, 50, 1)), H)[0, :, 0] == -0.5).all()


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_muscle_that_shortens_does_not_pull_harder_again(side):
    """Beyond the vertex of 10 - 40 x + 40 x^2, at half a radian, it pulls as there, with nothing: a joint that stands stays."""
    parameter_values, column = bare(1), arm.PULL if side > 0 else arm.BACK
    parameter_values[0, column : column + 3] = 10.0, -40.0 * side, 40.0
    past = moving(0.0, 1)
    past[:, :, 0] = side
    valves = np.tile([float(side > 0), float(side < 0)], (1, 50, 1))
    assert (arm.predicted(parameter_values, past, valves, H)[0, :, 0] == side).all()


@pytest.mark.parametrize("sticks", [True, False])
def test_only_a_joint_that_moves_drags_another(sticks):
    """Joint 1 moves half as far as joint 0, a frame later; not at all where friction holds joint 0."""
    parameter_values = bare()
    parameter_values[0, arm.PULL], parameter_values[0, arm.FRICTION] = 10.0, 20.0 if sticks else 0.0
    parameter_values[1, arm.GRAVITY + 4] = 0.5  # the share of joint 0
    angles = arm.predicted(parameter_values, moving(0.0, pressure=1.0), np.tile([1.0, 0, 0, 0], (1, 40, 1)), H)[0]
    assert (angles[-1, 0] == 0.0) == sticks
    assert np.abs(angles[1:, 1] - 0.5 * angles[:-1, 0]).max() < 1e-12


def test_what_the_past_needed_goes_on():
    """An acceleration that no parameter explains is found in the past, and kept as long as `fading` says."""
    parameter_values = bare(1)
    parameter_values[:, arm.UNEXPLAINED], parameter_values[:, arm.FADING] = 1.0, np.log(1e9)
    times = H * (np.arange(62) - 11)
    angles = 0.5 * 3.0 * times**2 + 0.4 * times
    past = np.hstack([angles[:12, None], np.zeros((12, 2))])[None]
    found = arm.predicted(parameter_values, past, np.zeros((1, 50, 2)), H)[0, :, 0]
    weight = 1 - arm.FORGET**10  # of ten frames' worth
    assert np.abs(found - angles[12:]).max() < 0.5 * 3.0 * (1 - weight) * 0.5**2 + 2 * 3.0 * H * 0.5


def test_wrong_sizes_are_refused():
    with pytest.raises(ShapeError, match="expected"):
        arm.predicted(bare(), np.zeros((1, 12, 5)), np.zeros((1, 5, 4)), H)
