"""Energy of a chain over many steps: the midpoint variational integrator against semi-implicit Euler."""

from __future__ import annotations

from typing import Any

import numpy as np

from softgym_envs.mechanics import Body, Frame, Joint, Mechanism, Tree


def chain() -> Mechanism:
    """Three rods on hinges with springs, swinging freely; steps of 10 ms."""
    inertia = (0.4 * 0.09 / 12, 0.4 * 0.09 / 12, 3e-5)
    bodies = tuple(Body(f"rod{i}", 0.4, (0.0, 0.0, -0.15), inertia) for i in range(3))
    axes = ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    joints = tuple(
        Joint(
            f"hinge{i}", "revolute", "world" if i == 0 else f"rod{i - 1}", f"rod{i}", axis=axes[i],
            xyz=(0.0, 0.0, -0.3 if i else 0.0), stiffness=2.0,
        )
        for i in range(3)
    )  # fmt: skip
    return Mechanism(Tree("chain", bodies, joints, (Frame("tip", "rod2", (0.0, 0.0, -0.3)),)), 0.01)


def energies(steps: int) -> dict[str, np.ndarray]:
    """Energy errors relative to the swing's energy: ours at midpoints, and semi-implicit Euler, every 20th step.

    Euler's method, v^+ = v + dt a(q, v), q^+ = q + dt v^+, is stopped where its error is a thousand times the swing's energy.
    """
    mechanism, q = chain(), np.array([[0.5, -0.4, 0.3]])
    rest = mechanism.energies(np.zeros((1, 3)), np.zeros((1, 3))).sum()
    motion = mechanism.simulate(mechanism.state(q, np.zeros((1, 3))), np.zeros((1, steps, 0)))
    path = motion.path[0, :, :3]
    some = slice(0, steps, 20)
    middle, speed = 0.5 * (path[1:] + path[:-1])[some], (np.diff(path, axis=0) / mechanism.dt)[some]
    ours, v, euler = mechanism.energies(middle, speed).sum(axis=1), np.zeros((1, 3)), []
    for k in range(steps):
        if k % 20 == 0:
            euler.append(mechanism.energies(q, v).sum())
            if not euler[-1] < euler[0] + 1e3 * (euler[0] - rest):
                break
        s = mechanism.slopes(q, v)
        v = v + mechanism.dt * np.linalg.solve(s.vv[0], s.q[0] - s.qv[0].T @ v[0])
        q = q + mechanism.dt * v
    return {"ours": (ours - ours[0]) / (ours[0] - rest), "euler": (np.array(euler) - euler[0]) / (euler[0] - rest)}


def compared(steps: int = 100_000) -> dict[str, Any]:
    """Largest errors, their mean in the last tenth, and every 260th step in percent, to be drawn."""
    found = energies(steps)
    return {
        name: {
            "steps": 20 * len(errors), "largest": np.abs(errors).max(), "last": errors[-len(errors) // 10 :].mean(),
            "seconds": 20 * 13 * 0.01 * np.arange(len(errors[::13])), "percent": 100 * errors[::13],
        }
        for name, errors in found.items()
    }  # fmt: skip
