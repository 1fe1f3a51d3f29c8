"""A chain of hinges against MuJoCo, an independent engine with an independent integrator."""

import numpy as np
import pytest
from mechanics_systems import chain

from softgym_envs.mechanics import Mechanism

mujoco = pytest.importorskip("mujoco")


def model_of(tree, timestep):
    """The same chain as MJCF."""
    inner = ""
    for body, joint in reversed(list(zip(tree.bodies, tree.joints, strict=True))):
        numbers = {
            key: " ".join(map(str, value)) for key, value in (("pos", joint.xyz), ("axis", joint.axis), ("com", body.com))
        }
        inertia = " ".join(map(str, body.inertia))
        inner = f"""
        <body name="{body.name}" pos="{numbers["pos"]}">
          <joint name="{joint.name}" axis="{numbers["axis"]}" stiffness="{joint.stiffness}" damping="{joint.damping}"/>
          <inertial pos="{numbers["com"]}" mass="{body.mass}" diaginertia="{inertia}"/>{inner}
        </body>"""
    tip = f'<site name="tip" pos="{" ".join(map(str, tree.frames[0].xyz))}"/>'
    last = f'name="{tree.bodies[-1].name}"'
    head, tail = inner.split(last)
    inner = head + last + tail.replace("/>\n        </body>", f"/>{tip}\n        </body>", 1)
    return mujoco.MjModel.from_xml_string(f"""<mujoco>
        <option timestep="{timestep}" gravity="0 0 -9.81" integrator="implicitfast"/>
        <worldbody>{inner}</worldbody><actuator><motor joint="hinge0"/></actuator></mujoco>""")


def mujoco_tip(tree, timestep, start, torque, dt):
    """Positions of the tip every `dt`, (T + 1, 3)."""
    model = model_of(tree, timestep)
    data = mujoco.MjData(model)
    data.qpos[:] = start
    mujoco.mj_forward(model, data)
    found = [data.site("tip").xpos.copy()]
    for value in torque:
        data.ctrl[0] = value
        mujoco.mj_step(model, data, nstep=round(dt / timestep))
        mujoco.mj_kinematics(model, data)
        found.append(data.site("tip").xpos.copy())
    return np.array(found)


def test_chain_moves_as_in_mujoco():
    tree, dt, seconds = chain(6, length=0.2, stiffness=1.0, damping=0.01), 0.0025, 3.0
    mechanism = Mechanism(tree, dt, force_split="symmetric")
    steps, start = round(seconds / dt), np.array([0.6, 0.5, -0.3, 0.2, 0.4, -0.2])
    torque = 1.5 * np.sin(5 * dt * np.arange(steps))
    motion = mechanism.simulate(mechanism.state(start[None], np.zeros((1, 6))), torque[None, :, None])
    ours = mechanism.pose("tip", motion.states[0, :, :6])[1]
    coarse, fine = (mujoco_tip(tree, timestep, start, torque, dt) for timestep in (5e-4, 2.5e-4))
    assert np.ptp(ours, axis=0).max() > 0.5
    errors = [np.linalg.norm(ours - theirs, axis=1).max() for theirs in (coarse, fine, 2 * fine - coarse)]
    assert errors[0] < 4e-3 and errors[1] < 2e-3, errors  # MuJoCo's integrator is of first order
    assert errors[2] < 3e-4, errors  # without its first-order error


def test_mass_matrix_and_bias_are_mujocos():
    tree = chain(6, length=0.2, stiffness=1.0)
    mechanism, model = Mechanism(tree, 0.01), model_of(tree, 0.001)
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    q, v = rng.normal(size=(2, 6))
    data.qpos[:], data.qvel[:] = q, v
    mujoco.mj_forward(model, data)
    slopes, mass = mechanism.slopes(q[None], v[None]), np.zeros((6, 6))
    for column in range(6):
        mujoco.mj_mulM(model, data, mass[column], np.eye(6)[column])
    np.testing.assert_allclose(slopes.vv[0], mass, atol=1e-12)
    bias = slopes.qv[0].T @ v - slopes.q[0]  # d/dt L_v - L_q at zero acceleration
    np.testing.assert_allclose(bias, data.qfrc_bias - data.qfrc_passive, atol=1e-12)
