"""State layouts: names and units, views, and the axioms of the manifold. Quaternions against scipy's rotations, and the axioms
of a group with its tangent space."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from reproductions.jitosho2021.model import PaperModel
from softgym_envs.core import lie
from softgym_envs.core.errors import ShapeError, StructureError
from softgym_envs.core.layout import QUATERNION, VECTOR, Field, StateLayout
from softgym_envs.systems.rigid.model import BlockModel, ParticleModel
from softgym_envs.systems.tensegrity.model import TensegrityModel, prism, superball
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.obstacles import circle, wall

Array = NDArray[np.float64]

RODS = Field("rod", 2, ("x y z", "m"), ("qw qx qy qz", "-", QUATERNION), ("vx vy vz", "m/s"), ("wx wy wz", "rad/s"))
MIXED = StateLayout(RODS, Field("", (3, 5), ("motor", "-")), Field("base", None, ("q0 q1 q2 q3", "-", QUATERNION)))
LAYOUTS = {
    "mixed": MIXED,
    "superball": superball().layout,
    "prism": prism().layout,
    "vine": VineModel(num_links=3, max_length=0.3, obstacles=(circle(0.5, 0.1, 0.1), wall(1.0, 0.0, 0.0))).layout,
    "vine-bare": VineModel(num_links=3, max_length=0.3, num_sections=0).layout,
    "vine-paper": PaperModel(2).layout,
    "block": BlockModel().layout,
    "particles": ParticleModel(3).layout,
}


def states(layout: StateLayout, count: int = 5) -> Array:
    """Random states on the manifold."""
    rng = np.random.default_rng(1)
    state = rng.normal(size=(count, layout.nx))
    entries = [e for f in layout.fields for e in f.entries]
    for part, entry in zip(layout.split(state), entries, strict=True):
        if entry.kind is QUATERNION:
            part /= np.linalg.norm(part, axis=-1, keepdims=True)
    return state


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> StateLayout:
    return LAYOUTS[request.param]


def test_names_and_units_have_one_entry_per_number(layout: StateLayout) -> None:
    assert len(set(layout.names)) == len(layout.units) == layout.nx
    assert len(set(layout.tangent_names)) == len(layout.tangent_units) == layout.n
    assert [layout.offsets[name] for name in layout.names] == list(range(layout.nx))


def test_parts_are_views_that_cover_the_state(layout: StateLayout) -> None:
    for split, blocks, size in ((layout.split, layout.blocks, layout.nx),):
        for shape in ((size,), (2, size), (4, 3, size)):
            counted = np.zeros(shape)
            for part in (*split(counted), *blocks(counted)):
                part += 1.0
            assert (counted == 2.0).all()


def test_axioms_of_retract_and_difference(layout: StateLayout) -> None:
    x, rng = states(layout), np.random.default_rng(2)
    dx = 0.5 * rng.normal(size=(5, layout.n))
    y = layout.retract(x, dx)
    np.testing.assert_allclose(layout.difference(y, x), dx, rtol=0, atol=1e-12)
    np.testing.assert_allclose(layout.retract(x, layout.difference(y, x)), y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(layout.retract(x, 0 * dx), x, rtol=0, atol=1e-15)
    np.testing.assert_allclose(layout.difference(x, x), 0.0, atol=1e-15)
    assert np.array_equal(layout.retract(x[:, None], dx[None])[3, 1], layout.retract(x[3], dx[1])), "axes in front broadcast"
    assert np.array_equal(layout.difference(y[:, None], x[None])[3, 1], layout.difference(y[3], x[1]))


def test_jacobians_are_the_derivatives(layout: StateLayout) -> None:
    x, h = states(layout), 1e-6
    into, out_of = layout.retract_jacobian(x), layout.difference_jacobian(x)
    for k, direction in enumerate(np.eye(layout.n)):
        found = (layout.retract(x, h * direction) - layout.retract(x, -h * direction)) / (2 * h)
        np.testing.assert_allclose(into[:, :, k], found, atol=1e-9)
    for k, direction in enumerate(np.eye(layout.nx)):
        ahead, behind = (layout.difference(x + s * h * direction, x) for s in (1, -1))
        np.testing.assert_allclose(out_of[:, :, k], (ahead - behind) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(out_of @ into, np.broadcast_to(np.eye(layout.n), (5, layout.n, layout.n)), atol=1e-12)


def test_mixed_is_written_by_hand() -> None:
    x, rng = states(MIXED), np.random.default_rng(3)
    dx = 0.3 * rng.normal(size=(5, MIXED.n))
    y = MIXED.retract(x, dx)
    assert (MIXED.nx, MIXED.n, RODS.width, RODS.tangent_width, RODS.offset("wx")) == (32, 29, 13, 12, 10)
    assert MIXED.names[0] == "rod0.x" and MIXED.names[26:] == ("motor3", "motor5", "base.q0", "base.q1", "base.q2", "base.q3")
    assert MIXED.tangent_names[3:6] == ("rod0.rx", "rod0.ry", "rod0.rz") and MIXED.tangent_units[3] == "rad"
    np.testing.assert_array_equal(y[:, 13:16], x[:, 13:16] + dx[:, 12:15])
    np.testing.assert_array_equal(y[:, 16:20], lie.retract(x[:, 16:20], dx[:, 15:18]))
    np.testing.assert_array_equal(y[:, 20:28], x[:, 20:28] + dx[:, 18:26])
    np.testing.assert_array_equal(y[:, 28:], lie.retract(x[:, 28:], dx[:, 26:]))
    np.testing.assert_array_equal(MIXED.difference(y, x)[:, 26:], lie.difference(y[:, 28:], x[:, 28:]))


def test_layouts_are_values() -> None:
    assert prism().layout == prism().layout != superball().layout
    assert hash(BlockModel().layout) == hash(BlockModel().layout)


def test_names_of_the_systems() -> None:
    def ends(model: TensegrityModel | VineModel | PaperModel | BlockModel | ParticleModel) -> str:
        return " ".join((*model.layout.names[:2], *model.layout.names[-2:]))

    assert ends(prism(actuated=(6, 8))) == "rod0.x rod0.y motor6 motor8"
    assert ends(VineModel(num_links=3, max_length=0.3)) == "theta0 theta1 left1 right1"
    assert ends(PaperModel(2)) == "body0.x body0.y body3.vy body3.omega"
    assert ends(ParticleModel(2)) == "particle0.x particle0.y particle1.vx particle1.vy"
    assert BlockModel().layout.names == ("x", "y", "theta", "vx", "vy", "omega")


def test_what_is_no_layout_is_refused() -> None:
    with pytest.raises(StructureError, match="'cm'"):
        Field("", 1, ("x", "cm"))
    with pytest.raises(StructureError, match="four names"):
        Field("", 1, ("x y z", "-", QUATERNION))
    with pytest.raises(StructureError, match="'x0'"):
        StateLayout(Field("", 2, ("x", "m")), Field("", 1, ("x", "m")))


def test_a_quaternion_is_taken_as_a_whole() -> None:
    flags = np.zeros(MIXED.nx, dtype=np.bool_)
    flags[[0, MIXED.offsets["rod1.qz"]]] = True
    found = MIXED.whole(flags)
    assert [MIXED.names[i] for i in np.flatnonzero(found)] == ["rod0.x", "rod1.qw", "rod1.qx", "rod1.qy", "rod1.qz"]


def test_quaternions_are_made_unit_where_they_are_nearly_so() -> None:
    x = states(MIXED)
    assert np.array_equal(MIXED.unit("x", x), x), "bit for bit"
    off = x.copy()
    off[2, 28:] *= 1.0 + 1e-6
    found = MIXED.unit("x", off)
    np.testing.assert_allclose(found, x, rtol=0, atol=1e-15)
    assert np.array_equal(np.delete(found, 2, axis=0), np.delete(x, 2, axis=0))
    off[3, 28:] *= 0.5
    with pytest.raises(ShapeError, match=r"my state: the quaternion base.q0 to base.q3 has length 0.5, expected 1"):
        MIXED.unit("my state", off)


def test_ranges_of_entries_stand_where_the_entries_do():
    layout = StateLayout(Field("joint", 2, ("q", "rad"), ("a b", "-", VECTOR, (0.0, 1.0))), Field("", None, ("x", "m")))
    low, high = layout.limits
    assert low.tolist() == [-np.inf, 0.0, 0.0, -np.inf, 0.0, 0.0, -np.inf]
    assert high.tolist() == [np.inf, 1.0, 1.0, np.inf, 1.0, 1.0, np.inf]


EPS = np.finfo(np.float64).eps


def scipy_rotation(q):
    return Rotation.from_quat(np.roll(q, -1, axis=-1))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def unit(rng):
    """50 random unit quaternions and another 50."""
    q = rng.standard_normal((2, 50, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-8, 1e-4, 1.0, 3.0])
def test_exp_is_the_matrix_exponential(rng, size):
    phi = rng.standard_normal(3)
    phi *= size / np.linalg.norm(phi)
    hat = np.array([[0, -phi[2], phi[1]], [phi[2], 0, -phi[0]], [-phi[1], phi[0], 0]])
    np.testing.assert_allclose(scipy_rotation(lie.exp(phi)).as_matrix(), expm(hat), atol=20 * EPS)


@pytest.mark.parametrize("size", [1e-12, 1e-8, 1e-4, 1.0, 3.0, np.pi - 1e-9])
def test_log_inverts_exp(rng, size):
    phi = rng.standard_normal((20, 3))
    phi *= size / np.linalg.norm(phi, axis=1, keepdims=True)
    np.testing.assert_allclose(lie.log(lie.exp(phi)), phi, rtol=0, atol=20 * EPS * max(size, 1e-3))


def test_log_is_the_same_for_both_signs(unit):
    np.testing.assert_array_equal(lie.log(unit[0]), lie.log(-unit[0]))
    assert (np.linalg.norm(lie.log(unit[0]), axis=1) <= np.pi).all()


def test_product_and_inverse_agree_with_scipy(unit):
    p, q = unit
    expected = (scipy_rotation(p) * scipy_rotation(q)).as_matrix()
    np.testing.assert_allclose(scipy_rotation(lie.multiply(p, q)).as_matrix(), expected, atol=20 * EPS)
    one = lie.multiply(p, lie.conjugate(p))
    np.testing.assert_allclose(one, np.tile([1.0, 0, 0, 0], (50, 1)), atol=10 * EPS)


def test_rotate_agrees_with_scipy(rng, unit):
    v = rng.standard_normal((50, 3))
    np.testing.assert_allclose(lie.rotate(unit[0], v), scipy_rotation(unit[0]).apply(v), atol=40 * EPS)


def test_difference_inverts_retract(rng, unit):
    phi = rng.standard_normal((50, 3))
    phi *= rng.uniform(0, 3.1, (50, 1)) / np.linalg.norm(phi, axis=1, keepdims=True)
    q = unit[0]
    np.testing.assert_allclose(lie.difference(lie.retract(q, phi), q), phi, atol=100 * EPS)
    back = lie.retract(q, lie.difference(unit[1], q))
    np.testing.assert_allclose(scipy_rotation(back).as_matrix(), scipy_rotation(unit[1]).as_matrix(), atol=100 * EPS)


def test_tangent_is_in_the_body_frame(unit):
    """Retracting by phi turns about the body's own axes: R(q) exp(phi^), not exp(phi^) R(q)."""
    q, phi = unit[0, :1], np.array([[0.3, -0.2, 0.5]])
    expected = (scipy_rotation(q) * Rotation.from_rotvec(phi)).as_matrix()
    np.testing.assert_allclose(scipy_rotation(lie.retract(q, phi)).as_matrix(), expected, atol=20 * EPS)


def test_retract_stays_on_the_sphere(unit):
    q = 1.001 * unit[0]
    np.testing.assert_allclose(np.linalg.norm(lie.retract(q, np.full((50, 3), 0.7)), axis=1), 1.0, atol=4 * EPS)


def test_from_matrix(unit):
    matrices = scipy_rotation(unit[0]).as_matrix()
    np.testing.assert_allclose(scipy_rotation(lie.from_matrix(matrices)).as_matrix(), matrices, atol=20 * EPS)


def test_from_z_axis(rng):
    z = np.concatenate([rng.standard_normal((50, 3)), [[0, 0, 2.0], [0, 0, -2.0], [1e-7, 0, -1.0]]])
    q = lie.from_z_axis(z)
    got = lie.rotate(q, np.tile([0.0, 0, 1], (len(z), 1)))
    unit_z = z / np.linalg.norm(z, axis=1, keepdims=True)
    np.testing.assert_allclose(got, unit_z, atol=1e-6)
    np.testing.assert_allclose(got[:50], unit_z[:50], atol=1e-12)
    angle = np.linalg.norm(lie.log(q[:50]), axis=1)
    np.testing.assert_allclose(angle, np.arccos(unit_z[:50, 2]), atol=1e-7)  # no turn about z is added
