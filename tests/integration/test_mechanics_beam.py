"""A clamped beam of rigid pieces on springs rings as Euler and Bernoulli's does, and gravity stiffens it where it hangs."""

import numpy as np
import pytest
from scipy.linalg import eigh

from softgym_envs.mechanics import Body, Joint, Mechanism, Tree

LENGTH, BENDING, LINE = 0.52, 1.27, 0.63
"""[m], EI [N m^2], mass per length [kg/m]"""


def beam(pieces, gravity):
    """Hinges in the middle of equal parts, of stiffness EI / part; along -z."""
    part, bodies, joints = LENGTH / pieces, [], []
    for i in range(pieces + 1):
        size = part * (0.5 if i in (0, pieces) else 1.0)
        mass = LINE * size
        bodies.append(
            Body(f"piece{i}", mass, (0.0, 0.0, -size / 2), (mass * size**2 / 12, mass * size**2 / 12, mass * size**2 / 24))
        )
        if i == 0:
            joints.append(Joint("clamp", "fixed", "world", "piece0"))
        else:
            place = (0.0, 0.0, -part / 2 if i == 1 else -part)
            bend = {"axis": (0.0, 1.0, 0.0), "stiffness": BENDING / part}
            joints.append(Joint(f"bend{i}", "revolute", f"piece{i - 1}", f"piece{i}", xyz=place, **bend))
    return Mechanism(Tree("beam", tuple(bodies), tuple(joints), gravity=(0.0, 0.0, gravity)), 0.001)


def square(mechanism):
    """Of the first frequency [(rad/s)^2]."""
    still = np.zeros((1, mechanism.n))
    slopes = mechanism.slopes(still, still)
    return eigh(-slopes.qq[0], slopes.vv[0], eigvals_only=True)[0]


def test_first_frequency_is_that_of_euler_and_bernoulli_to_second_order():
    expected = 1.87510407**4 * BENDING / (LINE * LENGTH**4)
    errors = [square(beam(pieces, 0.0)) / expected - 1 for pieces in (8, 16)]
    assert abs(errors[0]) < 1e-2
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.15)


def test_gravity_adds_to_the_square_of_a_hanging_beams_frequency_and_takes_from_a_standing_ones():
    """By Rayleigh's quotient with the first mode: 1.571 g / L."""
    free = square(beam(16, 0.0))
    assert (square(beam(16, -9.81)) - free) / (9.81 / LENGTH) == pytest.approx(1.571, rel=0.02)
    assert (square(beam(16, 9.81)) - free) / (9.81 / LENGTH) == pytest.approx(-1.571, rel=0.02)
