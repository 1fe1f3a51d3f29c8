"""Conserved quantities of the loop's integrator, and its distance from MuJoCo's chain; the energy's error is plotted.

python experiments/loop_step_integrator/loop_step_integrator.py  # two minutes
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import tyro
from energy import compared

from softgym_envs.core.files import provenance, write_json
from softgym_envs.mechanics import Body, Frame, Joint, Mechanism, Tree
from softgym_envs.mechanics.mujoco_tree import spec_of, state_index, write_tree
from softgym_envs.systems.loop.model import ARM, PARAMETERS, LoopModel

GAINS = np.array([80.0, 92.0, 69.0, 53.0, 65.0, 40.0, 8.0])
"""Feedback on the arm's angles [N m/rad]."""


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    steps: int = 100_000
    """Steps of the chain for the energy's error."""
    out: Path = Path("results/loop_step_integrator")


def loop(steps: int = 2000) -> dict[str, float]:
    """Largest |h| after any step of arm and loop swinging by 0.1 rad for 20 s, and largest eigenvalues of the step's map.

    At the defaults, with feedback, without which the arm would fall: at rest, and at every 20th step of the motion.
    """
    model = LoopModel()
    mechanism, parameter_values = Mechanism(model.tree, 0.01, PARAMETERS), model.defaults
    q = np.pad(np.array(model.start), (0, mechanism.n - len(ARM)))[None]
    rest = mechanism.rest(q, parameter_values=parameter_values, held=ARM)
    start = mechanism.rest_state(rest.q, rest.needed[:, : len(ARM)], parameter_values)
    gain = np.pad(np.diag(GAINS), ((0, 0), (0, mechanism.nx - len(ARM))))
    wave = 0.1 * np.sin(0.02 * np.arange(steps)[:, None] * np.array([1.0, 0.8, 1.2, 0.9, 1.1, 0.7, 1.0]))
    controls = rest.needed[:, : len(ARM)] + (rest.q[:, : len(ARM)] + wave) * GAINS
    motion = mechanism.simulate(start, controls[None], parameter_values, gains=gain)
    gaps, _ = mechanism.gaps(np.ascontiguousarray(motion.states[0, 1:, : mechanism.n]), parameter_values)

    def largest(state: np.ndarray, control: np.ndarray) -> float:
        A, B, _ = mechanism.linearize(state, control, parameter_values)
        return float(np.abs(np.linalg.eigvals(A - B @ gain)).max())

    return {
        "status": int(motion.status[0]),
        "swing": float(np.ptp(motion.states[0, :, : len(ARM)], axis=0).max()),
        "gap": float(np.abs(gaps).max()),
        "eigenvalue_at_rest": largest(start, rest.needed[:, : len(ARM)]),
        "eigenvalue_in_motion": largest(motion.states[0, :-1:20], motion.applied[0, ::20]),
    }


def hanging(count: int = 6, length: float = 0.2) -> Tree:
    """Rods on hinges with springs and a little damping, whose axes alternate; the first one is driven."""
    moment = 0.4 * length**2 / 12
    bodies = tuple(Body(f"rod{i}", 0.4, (0.0, 0.0, -length / 2), (moment, moment, 0.01 * moment)) for i in range(count))
    joints = tuple(
        Joint(
            f"hinge{i}", "revolute", "world" if i == 0 else f"rod{i - 1}", f"rod{i}",
            axis=((0.0, 1.0, 0.0), (1.0, 0.0, 0.0))[i % 2], xyz=(0.0, 0.0, -length if i else 0.0), stiffness=1.0, damping=0.01,
        )
        for i in range(count)
    )  # fmt: skip
    return Tree("chain", bodies, joints, (Frame("tip", f"rod{count - 1}", (0.0, 0.0, -length)),), actuated=("hinge0",))


def chain(seconds: float = 20.0) -> dict[str, Any]:
    """Largest distance of the tip from MuJoCo's, which takes steps of 0.5 ms [m], by our step and by its integrator."""
    tree, start = hanging(), np.array([0.6, 0.5, -0.3, 0.2, 0.4, -0.2])
    found: dict[str, Any] = {}
    for kind in ("RK4", "implicitfast"):
        theirs = mujoco_angles(tree, start, seconds, kind)
        for dt in (0.005, 0.0025, 0.001):
            mechanism, steps = Mechanism(tree, dt, force_split="symmetric"), round(seconds / dt)
            torque = push(0.005 * (np.arange(steps) // round(0.005 / dt)))
            motion = mechanism.simulate(mechanism.state(start[None], np.zeros((1, 6))), torque[None, :, None])
            ours = mechanism.pose("tip", motion.states[0, :: round(0.005 / dt), :6])[1]
            apart = np.linalg.norm(ours - mechanism.pose("tip", theirs)[1], axis=1)
            found[f"{kind}, ours {1e3 * dt:g} ms"] = float(apart.max())
            found["travel"] = float(np.ptp(ours, axis=0).max())
    return found


def push(times: np.ndarray) -> np.ndarray:
    """Torque of the first hinge, new every 5 ms [N m]."""
    return np.asarray(1.5 * np.sin(5 * times))


def mujoco_angles(tree: Tree, start: np.ndarray, seconds: float, kind: str) -> np.ndarray:
    """Angles every 5 ms, (T + 1, n), in steps of 0.5 ms."""
    model = spec_of(tree, 5e-4).compile()
    write_tree(model, tree, {})
    model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{kind.upper()}")
    data, order = mujoco.MjData(model), state_index(model, tree)[: len(start)]
    data.qpos[order] = start
    found = [start]
    for k in range(round(seconds / 0.005)):
        data.ctrl[0] = push(np.array(0.005 * k))
        mujoco.mj_step(model, data, nstep=10)
        found.append(data.qpos[order].copy())
    return np.array(found)


def draw(energy: dict[str, Any], path: Path) -> None:
    """Plot the energy's errors over time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5), constrained_layout=True)
    for name, label in (("euler", "semi-implicit Euler"), ("ours", "midpoint variational (at midpoints)")):
        axes.plot(energy[name]["seconds"], energy[name]["percent"], lw=0.7, label=label)
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set(xlabel="time [s]", ylabel="energy error [% of the swing's energy]")
    axes.set_title(f"chain of three rods on springs, {energy['ours']['steps']} steps of 10 ms")
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main(args: Args) -> None:
    """Measure, write and draw."""
    energy = compared(args.steps)
    draw(energy, args.out / "picture.png")
    found = {
        "loop": rounded(loop()),
        "chain: largest distance of the tip from MuJoCo's [m]": rounded(chain()),
        "energy: errors over the swing's": {
            name: rounded({key: curve[key] for key in ("steps", "largest", "last")}) for name, curve in energy.items()
        },
    }
    command = "python experiments/loop_step_integrator/loop_step_integrator.py"
    write_json(args.out / "numbers.json", {"provenance": provenance(command=command), **found})
    print(found)


def rounded(numbers: dict[str, Any]) -> dict[str, float]:
    """Round to four digits."""
    return {name: float(f"{number:.4g}") for name, number in numbers.items()}


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
