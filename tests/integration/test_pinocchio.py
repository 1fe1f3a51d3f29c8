"""The upper body in Pinocchio: orders of convergence, energy, the fourth order of its own steps, mismatch, missing package."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from softgym_envs.systems import system
from softgym_envs.systems.upper_body.dynamics import BodySimulator
from softgym_envs.systems.upper_body.model import BodyModel, muscled
from softgym_envs.systems.upper_body.parameters import BodyParameters

pin = pytest.importorskip("pinocchio", reason='pinocchio is not installed: pip install ".[pinocchio]"')

from softgym_envs.systems.upper_body.pinocchio import PinocchioUpperBody  # noqa: E402

MODEL = BodyModel()
MOTION = 0.1
"""[s]"""


def motion(model: BodyModel) -> tuple[np.ndarray, np.ndarray]:
    """A first state and controls of five control steps of 20 ms."""
    rng, (low, high), (least, most) = np.random.default_rng(6), model.limits, model.control_bounds
    q, v = low + (high - low) * rng.uniform(0.3, 0.7, model.n), rng.uniform(-1, 1, model.n)
    controls = 0.5 * (least + most) + 0.15 * (most - least) * rng.uniform(-1, 1, (1, 5, len(least)))
    return np.concatenate([q, v, np.full(len(model.muscle_names), 0.05)])[None], controls


@pytest.mark.parametrize("model", [MODEL, muscled(MODEL)], ids=["torques", "muscles"])
def test_native_meets_it_in_first_order(model: BodyModel) -> None:
    """Measured: 2.9, 1.5, 0.7 mrad with torques, 4.2, 2.1, 1.1 mrad with muscles."""
    start, controls = motion(model)
    exact, _ = PinocchioUpperBody(model, dt=5e-4).rollout(start, controls, substeps=40)
    gaps = []
    for dt in (1e-3, 5e-4, 2.5e-4):
        states, _ = BodySimulator(model, dt=dt).rollout(start, controls, substeps=round(0.02 / dt))
        gaps.append(np.abs(states - exact)[..., : model.n].max())
    orders = np.log2(np.array(gaps[:-1]) / gaps[1:])
    assert gaps[-1] < 1.5e-3 and (abs(orders - 1.0) < 0.1).all(), (gaps, orders)


def test_its_steps_are_of_fourth_order() -> None:
    start, controls = motion(MODEL)
    runs = [PinocchioUpperBody(dt=dt).rollout(start, controls, substeps=round(0.02 / dt))[0] for dt in (4e-3, 2e-3, 1e-3, 5e-4)]
    gaps = [np.abs(run - runs[-1])[..., :12].max() for run in runs[:-1]]
    assert np.log2(gaps[0] / gaps[1]) > 3.7 and np.log2(gaps[1] / gaps[2]) > 3.7, gaps


def test_energy_is_kept_without_dampers() -> None:
    """Within 1e-7 of what moves, over a second in which the arms swing freely."""
    free = replace(
        MODEL, tree=replace(MODEL.tree, joints=tuple(replace(j, damping=0.0, stop_stiffness=1e-9) for j in MODEL.tree.joints))
    )
    simulator, start = PinocchioUpperBody(free, dt=1e-3), motion(free)[0]
    tree = simulator.tree(free.defaults)
    states, status = simulator.rollout(start, np.zeros((1, 10, 12)), substeps=100)
    data = tree.model.createData()

    def energy(x: np.ndarray) -> tuple[float, float]:
        moving = pin.computeKineticEnergy(tree.model, data, x[:12], x[12:]) + 0.5 * tree.model.armature @ x[12:] ** 2
        return moving, pin.computePotentialEnergy(tree.model, data, x[:12]) + 0.5 * tree.stiffness @ (x[:12] - tree.rest) ** 2

    found = np.array([energy(x) for x in states[0]])
    total = found.sum(axis=1)
    assert status[0] == 0 and np.abs(total - total[0]).max() < 1e-7 * found[:, 0].max(), total


def test_effects_of_a_mismatched_model_are_those_of_mujoco() -> None:
    """Factors of springs, dampers and masses are the same draws; a latency waits."""
    hard, control = {"level": 2, "seed": 3}, 0.3 * MODEL.effort[None]
    mine, theirs = PinocchioUpperBody(**hard), system("upper_body").simulator(backend="mujoco", options=hard)
    for effect in ("mass_spread", "stiffness_spread"):
        np.testing.assert_array_equal(mine.spread(effect, 12), theirs.spread(effect, 12))
    ends = [s.step(s.initial_state(), control, substeps=round(0.1 / s.dt))[0][0, :12] for s in (mine, theirs)]
    usual = PinocchioUpperBody()
    nominal = usual.step(usual.initial_state(), control, substeps=50)[0][0, :12]
    assert np.abs(ends[0] - ends[1]).max() < 0.1 * np.abs(ends[0] - nominal).max()


def test_parameters_act() -> None:
    simulator = PinocchioUpperBody()
    heavier = simulator.step(simulator.initial_state(), np.zeros((1, 12)), BodyParameters(payload=2.0), substeps=50)[0]
    assert np.abs(heavier - simulator.initial_state()).max() > 0.05
