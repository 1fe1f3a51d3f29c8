"""A ring of links on springs becomes the closed form of the elastica as links grow in number, pressed and pulled."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

from softgym_envs.mechanics import Body, Frame, Joint, Mechanism, Tree, Weld

RADIUS, BENDING = 0.355, 0.8
"""[m], EI [N m^2]"""


def ring(count, force):
    """Links of equal length around a foot on a slide, which `force` [N] presses upwards; held at the top.

    Two angles per joint, in the plane and out of it; without gravity. -> The tree, and its height at q = 0.
    """
    length, turn = 2 * np.pi * RADIUS / count, 2 * np.pi / count
    height = length / np.tan(turn / 2)
    slide = Joint("slide", "prismatic", "world", "foot", axis=(0.0, 0.0, 1.0), offset=force)
    bodies, joints = [Body("foot", 1.0, inertia=(1e-3, 1e-3, 1e-3))], [slide]
    for side, sign in (("l", 1), ("r", -1)):
        for i in range(count // 2):
            parent, start = ("foot", (0.0, sign * length / 2, 0.0)) if i == 0 else (f"{side}{i - 1}", (0.0, 0.0, length))
            bent = (sign * (turn - np.pi / 2) if i == 0 else sign * turn, 0.0, 0.0)
            knee, link, spring = f"{side}{i}_knee", f"{side}{i}", {"stiffness": BENDING / length}
            bodies += [Body(knee), Body(link, 0.01, (0.0, 0.0, length / 2), (1e-4, 1e-4, 1e-5))]
            joints.append(Joint(f"{side}{i}_in", "revolute", parent, knee, (1.0, 0.0, 0.0), start, bent, **spring))
            joints.append(Joint(f"{side}{i}_out", "revolute", knee, link, (0.0, 1.0, 0.0), **spring))
    ends = [(f"end_{side}", f"{side}{count // 2 - 1}", sign) for side, sign in (("l", 1), ("r", -1))]
    frames = tuple(Frame(name, body, (0.0, 0.0, length / 2), (-sign * np.pi / 2, 0.0, 0.0)) for name, body, sign in ends)
    welds = tuple(Weld(f"held_{name}", name, (0.0, 0.0, height)) for name, _, _ in ends)
    return Tree("ring", tuple(bodies), tuple(joints), frames, welds, gravity=(0.0, 0.0, 0.0)), height


def height_of(count, force):
    """Of the ring of links at rest [m]."""
    tree, height = ring(count, force)
    mechanism = Mechanism(tree, 0.01)
    assert np.abs(mechanism.gaps(np.zeros((1, mechanism.n)))[0]).max() < 1e-12
    rest = mechanism.rest(np.zeros((1, mechanism.n)))
    assert rest.status[0] == 0
    return height - rest.q[0, 0]


def elastica(force):
    """Of the elastic ring between two opposite forces [m].

    A quarter of it, with the angle theta from 0 to pi / 2: EI theta'' = F / 2 cos(theta), so
    EI theta'^2 / 2 = C + F / 2 sin(theta), where C gives it its length; the curvature at rest drops out.
    """

    def along(f, constant):
        return quad(lambda angle: f(angle) / np.sqrt(2 / BENDING * (constant + force / 2 * np.sin(angle))), 0, np.pi / 2)[0]

    lowest = max(0.0, -force / 2)
    constant = brentq(lambda c: along(np.ones_like, c) - np.pi * RADIUS / 2, lowest + 1e-9, lowest + 1e3, xtol=1e-13)
    return 2 * along(np.sin, constant)


def test_the_closed_form_is_timoshenkos_where_forces_are_small():
    softness = (np.pi / 4 - 2 / np.pi) * RADIUS**3 / BENDING
    assert (elastica(-1e-3) - elastica(1e-3)) / 2e-3 == pytest.approx(softness, rel=1e-6)


@pytest.mark.parametrize("load", [2.0, -4.0])
def test_a_pressed_and_a_pulled_ring_are_the_elastica_to_second_order(load):
    """Load: force times R^2 / EI."""
    force = load * BENDING / RADIUS**2
    exact = elastica(force)
    errors = [height_of(count, force) - exact for count in (12, 24, 48)]
    assert abs(exact / (2 * RADIUS) - 1) > 0.1  # far from the circle
    ratios = [errors[0] / errors[1], errors[1] / errors[2]]
    assert ratios == pytest.approx([4.0, 4.0], rel=0.1), (errors, ratios)
    assert abs(4 * errors[2] - errors[1]) / 3 < 1e-3 * RADIUS, errors  # for links without end
