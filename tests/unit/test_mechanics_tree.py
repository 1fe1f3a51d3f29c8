"""Descriptions of trees: what is refused and why, TOML and URDF. Sines of many angles, the order of unknowns, and factors that
look at its ranges only: against NumPy."""

import numba
import numpy as np
import pytest
from mechanics_systems import chain, rod

import softgym_envs.mechanics as mechanics
from softgym_envs.core.errors import FileFormatError, StructureError
from softgym_envs.mechanics import Body, Frame, Joint, Mechanism, Pin, Tree, Weld
from softgym_envs.mechanics.elimination import eliminate
from softgym_envs.mechanics.linear import SPARE, factor, factor_any, solve
from softgym_envs.mechanics.tree_file import load_tree
from softgym_envs.mechanics.urdf import load_urdf
from softgym_envs.mechanics.vectors import turns
from softgym_envs.systems.loop.model import LoopModel

HINGE = Joint("hinge", "revolute", "world", "rod")


def test_public_names_are_there():
    assert all(hasattr(mechanics, name) for name in mechanics.__all__)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Body("b", mass=-1.0), "mass is -1.0"),
        (lambda: Body("b", mass=float("nan")), "mass is nan"),
        (lambda: Body("", mass=1.0), "nonempty"),
        (lambda: Body("b", inertia=(1.0, 1.0, 1.0)), "inertia but no mass"),
        (lambda: Body("b", 1.0, inertia=(1.0, 1.0, 3.0)), "no rigid body"),
        (lambda: Body("b", 1.0, inertia=(1.0, 1.0)), "2 numbers"),
        (lambda: Joint("j", "ball", "world", "b"), "kind is 'ball'"),
        (lambda: Joint("j", "revolute", "world", "b", axis=(0.0, 0.0, 0.0)), "axis is zero"),
        (lambda: Joint("j", "revolute", "world", "b", axis=(0.0, 1.0)), "axis has 2"),
        (lambda: Joint("j", "revolute", "world", "b", lower=1.0, upper=0.0), "lower <= upper"),
        (lambda: Joint("j", "revolute", "world", "b", damping=-0.1), "damping is -0.1"),
        (lambda: Joint("j", "revolute", "world", "b", stiffness=True), "stiffness is True"),
        (lambda: Tree("t", (rod("rod"),), (Joint("hinge", "revolute", "earth", "rod"),)), "parent of joint 'hinge' is 'earth'"),
        (
            lambda: Tree("t", (rod("rod"),), (Joint("hinge", "revolute", "world", "stick"),)),
            "child of joint 'hinge' is 'stick'",
        ),
        (lambda: Tree("t", (rod("rod"), rod("rod")), (HINGE,)), "stands there 2 times"),
        (lambda: Tree("t", (rod("world"),), (HINGE,)), "name of the ground"),
        (lambda: Tree("t", (rod("rod"), rod("other")), (HINGE,)), "child of 0 joints"),
        (lambda: Tree("t", (rod("rod"),), (HINGE, Joint("two", "revolute", "world", "rod"))), "child of 2 joints"),
        (lambda: Tree("t", (rod("rod"),), (Joint("hinge", "fixed", "world", "rod"),)), "no joint that moves"),
        (lambda: Tree("t", (rod("rod"),), (HINGE,), actuated=("knee",)), "actuated joint is 'knee'"),
        (lambda: Tree("t", (rod("rod"),), (HINGE,), (Frame("f", "stick"),)), "body of frame 'f'"),
        (lambda: Tree("t", (rod("rod"),), (HINGE,), (), (Weld("w", "f"),)), "frame of constraint 'w'"),
        (lambda: Tree("t", (rod("rod"),), (HINGE,), gravity=(0.0, float("inf"), 0.0)), "gravity is inf"),
        (lambda: Tree("t", (rod("rod"),), (HINGE,)).frame("tip"), "frame is 'tip'"),
    ],
)
def test_nonsense_is_refused_by_name(build, message):
    with pytest.raises(StructureError, match=message):
        build()


def test_a_circle_of_joints_is_refused_and_constraints_are_suggested():
    joints = (HINGE, Joint("a", "revolute", "two", "one"), Joint("b", "revolute", "one", "two"))
    with pytest.raises(StructureError, match="one -> two -> one; close a loop by a constraint"):
        Tree("t", (rod("rod"), rod("one"), rod("two")), joints)


def test_a_circle_at_the_end_of_a_long_chain_is_found():
    names = [f"rod{i}" for i in range(1500)]
    joints = [Joint(f"to_{b}", "revolute", a, b) for a, b in zip(("world", *names), names, strict=False)]
    chain = Tree("chain", tuple(map(Body, names)), tuple(joints))
    assert len(chain.coordinates) == 1500
    joints[-2:] = [Joint("a", "revolute", names[-1], names[-2]), Joint("b", "revolute", names[-2], names[-1])]
    with pytest.raises(StructureError, match="rod1498 -> rod1499 -> rod1498; close"):
        Tree("chain", chain.bodies, tuple(joints))


def test_whether_masses_are_alike_does_not_depend_on_their_size():
    light = Body("rod", 1e-300, com=(0.0, 0.0, -0.5))
    tip = Body("tip", 1e-300, com=(0.0, 0.0, -0.5))
    tree = Tree("t", (light, tip), (HINGE, Joint("knee", "revolute", "rod", "tip", axis=(0.0, 1.0, 0.0), xyz=(0.0, 0.0, -1.0))))
    assert Mechanism(tree, 0.01, ()).n == 2


def test_order_of_the_description_does_not_matter():
    tree = chain(4)
    turned = Tree("turned", tree.bodies[::-1], tree.joints[::-1], tree.frames, actuated=tree.actuated)
    q, v = np.random.default_rng(0).normal(size=(2, 1, 4))
    assert turned.coordinates == tree.coordinates
    for a, b in zip(Mechanism(tree, 0.01).slopes(q, v), Mechanism(turned, 0.01).slopes(q, v), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-14)


FILE = """
name = "leg"
actuated = ["hip"]
[[body]]
name = "thigh"
mass = 2.0
com = [0.0, 0.0, -0.2]
inertia = [0.02, 0.02, 0.002]
[[body]]
name = "shank"
mass = 1.0
com = [0.0, 0.0, -0.2]
scale = "shank_scale"
[[joint]]
name = "hip"
kind = "revolute"
parent = "world"
child = "thigh"
axis = [0.0, 1.0, 0.0]
damping = "friction"
[[joint]]
name = "knee"
kind = "revolute"
parent = "thigh"
child = "shank"
axis = [0.0, 1.0, 0.0]
xyz = [0.0, 0.0, -0.4]
upper = 2.0
[[frame]]
name = "foot"
body = "shank"
xyz = [0.0, 0.0, -0.4]
[[frame]]
name = "spot"
body = "world"
xyz = [0.0, 0.0, -0.8]
[[pin]]
name = "stand"
first = "foot"
second = "spot"
"""


def test_tree_from_toml(tmp_path):
    path = tmp_path / "leg.toml"
    path.write_text(FILE)
    tree = load_tree(path)
    assert tree.coordinates == ("hip", "knee") and tree.parameter_names == ("friction", "shank_scale")
    assert tree.joints[1].upper == 2.0 and tree.constraints == (Pin("stand", "foot", "spot"),)
    h, _ = Mechanism(tree, 0.01, tree.parameter_names).gaps(np.zeros((1, 2)), [0.1, 1.0])
    assert np.abs(h).max() < 1e-15


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "leg"', 'nome = "leg"', "unknown entry 'nome'"),
        ("mass = 2.0", "weight = 2.0", "body 0: unknown entry 'weight'"),
        ("mass = 2.0", "mass = [2.0]", "mass is"),
        ("mass = 2.0", "mass = true", "mass is True"),
        ("axis = [0.0, 1.0, 0.0]", "axis = 1.0", "axis is 1.0"),
        ('kind = "revolute"', "", "joint 0: .*kind"),
        ("[[frame]]", "[[frame", "not valid TOML"),
    ],
)
def test_bad_toml_is_refused_by_place(tmp_path, old, new, message):
    path = tmp_path / "leg.toml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(FileFormatError, match=message):
        load_tree(path)


URDF = """<?xml version="1.0"?>
<robot name="arm">
  <link name="base"/>
  <link name="upper">
    <inertial><origin xyz="0.1 0 -0.2" rpy="0.3 -0.2 0.5"/><mass value="2"/>
      <inertia ixx="0.02" iyy="0.03" izz="0.025" ixy="0.001" ixz="0" iyz="0.002"/></inertial>
    <visual><geometry><mesh filename="nowhere.stl"/></geometry></visual>
  </link>
  <link name="tool"><inertial><mass value="0.5"/>
    <inertia ixx="0.001" iyy="0.001" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 1" rpy="0 0 0.4"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="2" effort="50" velocity="1.5"/><dynamics damping="0.7"/></joint>
  <joint name="flange" type="fixed"><parent link="upper"/><child link="tool"/><origin xyz="0 0 -0.4"/></joint>
</robot>
"""


def test_tree_from_urdf(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(URDF)
    tree = load_urdf(path, frames=(Frame("tip", "tool"),))
    joint = tree.moving[0]
    assert tree.actuated == ("shoulder",) and (joint.lower, joint.upper, joint.effort, joint.velocity) == (-1, 2, 50, 1.5)
    assert joint.damping == 0.7
    mechanism = Mechanism(tree, 0.01)
    from scipy.spatial.transform import Rotation

    turn = Rotation.from_euler("xyz", [0.3, -0.2, 0.5]).as_matrix()
    inertia = turn @ np.array([[0.02, 0.001, 0], [0.001, 0.03, 0.002], [0, 0.002, 0.025]]) @ turn.T
    expected = inertia[1, 1] + 2 * (0.1**2 + 0.2**2) + 0.001 + 0.5 * 0.4**2
    np.testing.assert_allclose(mechanism.slopes([[0.3]], [[0.0]]).vv, expected, rtol=1e-12)
    np.testing.assert_allclose(
        mechanism.pose("tip", [[np.pi / 2]])[1][0], [-0.4 * np.cos(0.4), -0.4 * np.sin(0.4), 1.0], atol=1e-12
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('<?xml version="1.0"?>', '<!DOCTYPE robot [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>', "document type declaration"),
        ("</robot>", "", "not valid XML"),
        ('type="revolute"', 'type="planar"', "type 'planar'"),
        ('<axis xyz="0 1 0"/>', '<axis xyz="0 one 0"/>', "expected 3 finite numbers"),
        ('<parent link="base"/>', "", "<parent> of joint 'shoulder'"),
        ('<link name="base"/>', '<link name="base"/><link name="other"/>', "2 links have no parent"),
        ("<dynamics", '<mimic joint="flange"/><dynamics', "mimics"),
        ('robot name="arm"', 'machine name="arm"', "not valid XML"),
    ],
)
def test_bad_urdf_is_refused(tmp_path, old, new, message):
    path = tmp_path / "arm.urdf"
    path.write_text(URDF.replace(old, new))
    with pytest.raises(FileFormatError, match=message):
        load_urdf(path)
    with pytest.raises(FileFormatError, match="cannot read"):
        load_urdf(tmp_path / "nowhere.urdf")
    for encoding in ("no-such", "big5"):
        path.write_text(f'<?xml version="1.0" encoding="{encoding}"?><robot/>')
        with pytest.raises(FileFormatError, match="is not valid XML"):
            load_urdf(path)
    with pytest.raises(FileFormatError, match="cannot read"):
        load_urdf("/dev/zero")


BRANCHED = ([-1, 0, 1, 1, 3, 4, 1, 6, 7], [0, 2, 4], [[5, -1], [8, -1]])
"""Two branches beyond joint 1, each held by two rows, and joint 2."""


@numba.njit
def turned(x):
    c, s = np.empty(len(x)), np.empty(len(x))
    turns(x, c, s)
    return c, s


@numba.njit
def solved(K, near, far, left, b, exchange):
    A, order, x = K.copy(), np.zeros(len(K), np.int64), b.copy()
    good = factor_any(A, order) if exchange else factor(A, order, near, far, left)
    if good:
        solve(A, order, near, far, left, x)
    return good, x


def test_sines_and_cosines_are_numpys_to_rounding():
    x = np.concatenate([np.random.default_rng(0).uniform(-1e4, 1e4, 20_000), np.pi / 4 * np.arange(-40, 41), [0.0]])
    c, s = turned(x)
    assert np.abs(c - np.cos(x)).max() < 3e-16 and np.abs(s - np.sin(x)).max() < 3e-16


def system(parent, row, ends, rng, share=1.0):
    """A matrix with the pattern of a step, in the order of elimination, and that order."""
    order, n = eliminate(parent, row, ends), len(parent)
    K = np.zeros((n + row[-1], n + row[-1] + SPARE))

    def path(i):
        return [] if i < 0 else [i, *path(parent[i])]

    for i in range(n):
        for j in path(i):
            a, b = order.slot[i], order.slot[j]
            K[a, b], K[b, a] = rng.normal(size=2)
        K[order.slot[i], order.slot[i]] = 8.0 * share
    for c, (first, _) in enumerate(ends):
        for r in range(row[c], row[c + 1]):
            for j in path(first):
                a, b = order.slot[n + r], order.slot[j]
                K[a, b], K[b, a] = rng.normal(size=2)
    return K, order


@pytest.mark.parametrize("exchange", [False, True])
def test_factors_solve_what_numpy_solves(exchange):
    rng = np.random.default_rng(1)
    for parent, row, ends in (BRANCHED, ([-1, 0, 1], [0, 2], [[2, -1]]), ([-1, 0, 0], [0], [])):
        K, order = system(parent, row, ends, rng)
        b = rng.normal(size=len(K))
        good, x = solved(K, *order[1:], b, exchange)
        assert good
        np.testing.assert_allclose(x, np.linalg.solve(K[:, : len(K)], b), atol=1e-10)


def test_small_pivots_are_refused_and_exchanged():
    K, order = system(*BRANCHED, np.random.default_rng(2), share=0.0)
    b = np.ones(len(K))
    assert not solved(K, *order[1:], b, False)[0]
    good, x = solved(K, *order[1:], b, True)
    assert good
    np.testing.assert_allclose(x, np.linalg.solve(K[:, : len(K)], b), atol=1e-9)


def test_branches_of_the_loop_are_done_with_one_after_the_other():
    """Left of a branch's rows stands nothing of the other branch, and each constraint follows its own branch."""
    structure = LoopModel(12).mechanism.structure
    arm, first, second = np.split(np.arange(31), [7, 19])
    slot = structure.slot.astype(int)
    for branch, rows in ((first, slice(31, 37)), (second, slice(37, 43))):
        assert sorted([*slot[branch], *slot[rows]]) == list(range(slot[branch].min(), slot[branch].min() + 18))
    assert slot[arm].min() == 36
    last = max(slot[first].max(), slot[31:37].max()) + 1 if slot[first[0]] > slot[second[0]] else None
    later = first if last else second
    assert all(structure.left[a] == 18 for a in slot[later])
