"""Hill curves, closed-form wrapping and discrete geodesics: closed forms, order of convergence, MuJoCo's tendons."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from reproductions.penner2020.geodesics import discrete_geodesic
from softgym_envs.core.errors import FileFormatError, OptionError, StructureError
from softgym_envs.muscles.arm_file import load_muscles
from softgym_envs.muscles.muscle import activated, activation_rate, around_circle, passive_force, speed_force, tension
from softgym_envs.muscles.paths import Muscle, Muscles, around_cylinder, around_sphere
from softgym_envs.muscles.surfaces import Surface

STILL = (np.eye(3), np.zeros(3))


def test_curves_pass_through_what_the_model_promises():
    assert abs(tension(1.0, 1.0, 0.0) - passive_force(1.0) - 1.0) < 0.01  # sum of Gaussians: 1 within a percent
    assert abs(passive_force(0.2)) < 1e-15 and abs(passive_force(1.6) - 1.0) < 1e-12
    assert abs(speed_force(-1.0)) < 0.02 and abs(speed_force(0.0) - 1.0) < 0.01 and 1.4 < speed_force(1.0) < 1.9
    v = np.linspace(-1, 1, 200)
    assert (np.diff(speed_force(v)) > 0).all()  # lengthening is held by more force


def test_activation_is_of_second_order_and_stays_between():
    from scipy.integrate import solve_ivp

    for a0, e in ((0.1, 0.9), (0.9, 0.05)):
        ground_truth = solve_ivp(
            lambda t, a, e: activation_rate(a, e, 0.015, 0.06) * (e - a), (0, 0.04), [a0], args=(e,), rtol=1e-12, atol=1e-13
        )
        errors = []
        for count in (8, 16, 32):
            a = a0
            for _ in range(count):
                a = activated(a, e, 0.015, 0.06, 0.04 / count)[1]
            errors.append(abs(a - ground_truth.y[0, -1]))
        assert (np.log2(np.array(errors[:-1]) / errors[1:]) > 1.7).all()
    assert 0.0 <= activated(0.0, 1.0, 0.015, 0.06, 10.0)[1] <= 1.0


def test_around_a_circle_by_hand():
    length, arm, touching = around_circle(2.0, 2.0, np.pi, 1.0)  # opposite points
    assert np.allclose([length, arm, touching], [2 * np.sqrt(3) + np.pi / 3, 1.0, np.pi / 3])
    for delta in (0.5, 2.05, 2.15, 3.0):  # free, free, wrapped, wrapped: the moment arm is the length's derivative
        length = around_circle(2.0, 1.5, delta + 1e-30j, 1.0)[0]
        assert abs(length.imag / 1e-30 - around_circle(2.0, 1.5, delta, 1.0)[1]) < 1e-12


@pytest.mark.parametrize("height", [0.0, 0.05])
def test_geodesics_converge_to_the_cylinders_closed_form(height: float):
    cylinder = Surface("c", "cylinder", "world", (0.02,))
    a, b, side = np.array([0.03, 0.25, 0.0]), np.array([0.01, -0.04, height]), (0.1, 0.0, 0.0)
    ground_truth = float(around_cylinder(a, b, side, 0.02))
    errors = [
        abs(discrete_geodesic([cylinder], [STILL], (a, b), [side], count).length - ground_truth) for count in (20, 40, 80)
    ]
    assert errors[-1] < 2e-5 and (np.array(errors[:-1]) / errors[1:] > 2.0).all(), errors


def test_geodesics_on_a_sphere_in_second_order():
    """Ends on the sphere: all nodes touch, the path is an arc of a great circle."""
    sphere = Surface("s", "sphere", "world", (0.1,))
    angle = 2.0
    ends = np.array([0.1, 0.0, 0.0]), 0.1 * np.array([np.cos(angle), np.sin(angle), 0.0])
    side = (0.1 * np.cos(1.0), 0.1 * np.sin(1.0), 0.02)
    errors = []
    for count in (8, 16, 32):
        found = discrete_geodesic([sphere], [STILL], ends, [side], count)
        errors.append(0.1 * angle - found.length)
        steps = np.linalg.norm(np.diff(found.nodes, axis=0), axis=1)
        assert np.ptp(steps) < 1e-8 and (found.pressures > 0).all()
    assert (np.log2(np.array(errors[:-1]) / errors[1:]) > 1.95).all()


def test_limits_of_ellipsoid_and_capsule():
    """An ellipsoid with equal axes is a sphere; a long capsule a cylinder, a short one nearly a sphere."""
    ends, side = (np.array([0.0, 0.25, 0.01]), np.array([0.01, -0.2, -0.01])), (0.1, 0.0, 0.0)

    def length(kind: str, *size: float) -> float:
        return discrete_geodesic([Surface("s", kind, "world", size)], [STILL], ends, [side], 30).length

    assert abs(length("ellipsoid", 0.05, 0.05, 0.05) - length("sphere", 0.05)) < 1e-7
    assert abs(length("capsule", 0.05, 1.0) - length("cylinder", 0.05)) < 1e-7
    assert abs(length("capsule", 0.05, 1e-6) - length("sphere", 0.05)) < 1e-6
    assert length("ellipsoid", 0.05, 0.05, 0.2) > length("sphere", 0.05) - 1e-9


TENDON = """<mujoco><worldbody>
<site name="a" pos="{a}"/><site name="side" pos="{side}"/>
<geom name="round" type="{kind}" size="{size}" contype="0" conaffinity="0"/>
<body><joint name="hinge" axis="0 0 1"/><geom size="0.001" mass="1" contype="0" conaffinity="0"/>
<site name="b" pos="{b}"/></body></worldbody>
<tendon><spatial name="t"><site site="a"/><geom geom="round" sidesite="side"/><site site="b"/></spatial></tendon></mujoco>"""


@pytest.mark.parametrize("height", [0.0, 0.03])
def test_length_and_moment_arm_are_those_of_mujocos_tendon(height: float):
    """Over the elbow's whole range, with a helical path too."""
    a, b, side, radius = np.array([-0.02, 0.2, 0.0]), np.array([-0.025, -0.03, height]), np.array([-0.15, -0.15, 0.0]), 0.022
    text = {name: " ".join(map(str, value)) for name, value in (("a", a), ("b", b), ("side", side))}
    model = mujoco.MjModel.from_xml_string(TENDON.format(kind="cylinder", size=f"{radius} 1", **text))
    data = mujoco.MjData(model)
    wrapped = 0
    for q in np.linspace(0.0, 2.5, 26):
        data.qpos[0] = q
        mujoco.mj_forward(model, data)

        def length(angle: float) -> float:
            turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
            return float(around_cylinder(a, turn @ b, side, radius))

        assert abs(length(q) - data.ten_length[0]) < 1e-9
        arm = (length(q + 1e-6) - length(q - 1e-6)) / 2e-6
        assert abs(arm - data.ten_J.ravel()[0]) < 1e-6
        wrapped += int(data.ten_wrapnum[0] > 2)
    assert wrapped > 15


def test_geodesics_are_near_mujocos_tendon_around_a_sphere():
    a, b, side = np.array([0.0, 0.2, 0.01]), np.array([0.01, -0.15, 0.02]), np.array([0.1, 0.0, 0.0])
    text = {name: " ".join(map(str, value)) for name, value in (("a", a), ("b", b), ("side", side))}
    model = mujoco.MjModel.from_xml_string(TENDON.format(kind="sphere", size="0.04", **text))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    found = discrete_geodesic([Surface("s", "sphere", "world", (0.04,))], [STILL], (a, b), [side], 100)
    assert abs(found.length - data.ten_length[0]) < 2e-5 and data.ten_wrapnum[0] > 2


def test_bad_descriptions_are_named(tmp_path: Path):
    with pytest.raises(StructureError, match="kind is 'cube'"):
        Surface("s", "cube", "world", (1.0,))
    with pytest.raises(StructureError, match="numbers > 0"):
        Surface("s", "sphere", "world", (-1.0,))
    with pytest.raises(StructureError, match="contains the end"):
        discrete_geodesic([Surface("s", "sphere", "world", (1.0,))], [STILL], (np.zeros(3), np.ones(3) * 2), [(0, 0, 1)], 10)
    with pytest.raises(OptionError, match="count"):
        discrete_geodesic([], [], (np.zeros(3), np.ones(3)), [], 1)
    with pytest.raises(StructureError, match="sides"):
        Muscle("m", "a", (0.0, 0.0, 0.0), "b", (1.0, 0.0, 0.0), ("s",))
    with pytest.raises(StructureError, match="unknown"):
        Muscles((), (Muscle("m", "a", (0.0, 0.0, 0.0), "b", (1.0, 0.0, 0.0), ("s",), ((0.0, 0.0, 1.0),)),))
    for text, message in (
        ("x = 1", "unknown entry 'x'"),
        ('[[surface]]\nname = "s"', "is missing"),
        ("surface = 3", "array of tables"),
    ):
        (tmp_path / "m.toml").write_text(text)
        with pytest.raises(FileFormatError, match=message):
            load_muscles(tmp_path / "m.toml")


def test_a_rounded_path_has_no_kink_and_is_exact_elsewhere():
    """Around a sphere, by the angle between its ends: d2 length jumps at the first touch; rounded, it goes over."""
    width, radius, far, near = 0.05, 0.03, 0.1, 0.06
    touch = sum(np.arccos(radius / distance) for distance in (far, near))
    angles = touch + np.linspace(-0.2, 0.2, 8001)
    ends = (near * np.cos(angles), near * np.sin(angles), 0.0 * angles)
    sharp, soft = (around_sphere((far, 0.0, 0.0), ends, radius, rounding) for rounding in (0.0, width))
    outside = np.abs(angles - touch) > width
    np.testing.assert_array_equal(soft[outside], sharp[outside])
    assert 0 < np.abs(soft - sharp).max() < 0.05 * radius * width**2
    jumps = [np.abs(np.diff(length, 3)).max() / np.diff(angles).mean() ** 2 for length in (sharp, soft)]
    assert jumps[1] < 0.02 * jumps[0], jumps
