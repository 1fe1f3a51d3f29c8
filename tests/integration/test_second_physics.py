"""The loop as a Cosserat rod in PyElastica: convergence to ours, rest, contact, the model's polygon. The upper body in
Pinocchio: orders of convergence, energy, the fourth order of its own steps, mismatch, missing package."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.mechanics.placement import frame_pose
from softgym_envs.systems import system
from softgym_envs.systems.loop.build import held
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.elastica import ElasticaLoop
from softgym_envs.systems.loop.model import ARM, CLAMP, LoopModel, hanging12
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.upper_body.dynamics import BodySimulator
from softgym_envs.systems.upper_body.model import BodyModel, muscled
from softgym_envs.systems.upper_body.parameters import BodyParameters
from softgym_envs.systems.upper_body.pinocchio import PinocchioUpperBody

pytest.importorskip("elastica", reason='elastica is not installed: pip install ".[elastica]"')
pytest.importorskip("pinocchio", reason='pinocchio is not installed: pip install ".[pinocchio]"')

LOOP = ElasticaLoop()


def pushed(model: LoopModel, size: float, steps: int = 5) -> np.ndarray:
    """Random torques beyond those that hold the start, new every 50 ms, (1, steps, 7)."""
    return np.asarray(model.hold + size * np.random.default_rng(1).normal(size=(1, steps, len(ARM))))


def gap(model: LoopModel, parameters: Any, size: float, dt: float) -> tuple[float, float]:
    """Largest difference of the arm's angles [rad] and of the loop's joints [m] from ours, over 0.25 s."""
    ours, theirs = LoopSimulator(model, dt=2.5e-4), ElasticaLoop(model, dt=dt)
    a, _ = ours.rollout(ours.initial_state(), pushed(model, size), parameters, substeps=200)
    b, status = theirs.rollout(theirs.initial_state(), pushed(model, size), parameters, substeps=round(0.05 / dt))
    assert status[0] == 0
    places = np.abs(model.nodes(a[0]) - model.nodes(b[0, :, : 2 * model.n])).max()
    return float(np.abs(a[0, :, :7] - b[0, :, :7]).max()), float(places)


def twisting(links: int) -> tuple[LoopModel, Any]:
    """A loop of a round rod in so many links: EI and GJ are the same for all."""
    model, k = LoopModel(links, twist=True), links / 12
    stiffness = {"theta_stiffness": 4.45 * k, "psi_stiffness": 4.45 * k, "twist_stiffness": 3.0 * k}
    return model, model.parameters_class(loop_damping=0.02 * k, twist_damping=0.02 * k, **stiffness)


def test_it_rests_where_ours_does():
    hold = np.tile(LOOP.model.hold, (1, 10, 1))
    states, status = LOOP.rollout(LOOP.initial_state(), hold, substeps=50)
    assert status[0] == 0 and np.abs(states[0, -1, :31] - states[0, 0, :31]).max() < 3e-4
    assert np.abs(states[0, -1, 31:]).max() < 1e-3


def test_finer_loops_come_closer_to_ours():
    """Measured: 1.4, 0.42, 0.41 mm; what is left at 24 links is stretch and the arm's steps."""
    gaps = [gap(*twisting(links), size=1.0, dt=2.5e-4)[1] for links in (6, 12, 24)]
    assert gaps[1] < 0.5 * gaps[0] and gaps[2] < 0.4 * gaps[0] and gaps[2] < 6e-4, gaps


def test_its_steps_are_of_first_order():
    runs = [
        ElasticaLoop(dt=dt).rollout(LOOP.initial_state(), pushed(LOOP.model, 1.0), substeps=round(0.05 / dt))[0][0, :, :7]
        for dt in (2e-3, 1e-3, 5e-4, 2.5e-4)
    ]
    errors = [np.abs(run - runs[-1]).max() for run in runs[:-1]]
    assert errors[0] > 1.7 * errors[1] > 2.5 * errors[2], errors


def test_joints_that_do_not_twist_move_as_ours_within_four_percent():
    model = LoopModel()
    assert gap(model, None, size=2.0, dt=1e-3)[0] < 0.04 * 0.34


def test_a_hanging_loop_meets_the_peg_as_ours_does():
    """Below the loop's lowest link, the peg lifts it."""
    model = hanging12()
    turn, _ = frame_pose(model.arm, "H", dict(zip(ARM, model.start, strict=True)))
    below = turn @ np.array([0.1, 0.0, 0.5 * model.height + 0.034])
    touching, free = LoopParameters(**dict(zip(CLAMP[:3], below.tolist(), strict=True))), LoopParameters()
    hold = np.tile(model.hold, (1, 6, 1))
    found = {}
    for simulator in (LoopSimulator(model, dt=1e-3), ElasticaLoop(model)):
        for name, parameters in (("touching", touching), ("free", free)):
            states, status = simulator.rollout(simulator.initial_state(), hold, parameters, substeps=50)
            assert status[0] == 0
            found[type(simulator).__name__, name] = model.nodes(states[0, -1:, : 2 * model.n])
    away = np.abs(found["LoopSimulator", "touching"] - found["LoopSimulator", "free"]).max()
    apart = np.abs(found["LoopSimulator", "touching"] - found["ElasticaLoop", "touching"]).max()
    assert away > 5e-3 and apart < 0.2 * away, (away, apart)


def test_states_of_the_model_are_states_of_the_rod():
    """Further entries are zero where the rod lies on the polygon: a task's state needs none, wherever its arm stands.

    Its strains begin at zero, and are there after some milliseconds.
    """
    model = held(LoopModel())
    loop, arm = ElasticaLoop(model), np.array(model.start) + 0.002
    q, needed = model.relax(arm[None], model.defaults[None])
    state = loop.embed(np.pad(q, ((0, 0), (0, model.n))))
    after, status = loop.step(state, needed, substeps=200)
    assert status[0] == 0 and np.abs(after[0, :31] - state[0, :31]).max() < 3e-3


def test_an_id_runs_on_it():
    env = gym.make("LoopReach-v0", backend="elastica")
    env.reset(seed=0)
    for _ in range(3):
        observation, _, terminated, _, info = env.step(np.zeros(7, dtype=np.float32))
    assert np.isfinite(observation).all() and not info["sim_failed"] and not terminated


def test_stiff_and_light_loops_are_stepped_finely():
    usual = LOOP._steps(LOOP._material([LOOP._values(row) for row in LOOP.parameter_values(None, 1)]))[0]
    hard = LOOP.parameter_values(replace(LoopParameters(), theta_stiffness=100.0, loop_scale=0.1), 1)
    assert LOOP._steps(LOOP._material([LOOP._values(row) for row in hard]))[0] > 3 * usual


def test_effects_of_a_mismatched_model_and_dry_friction_are_those_of_the_others():
    start, controls, hard = LOOP.model.rest_state()[None], pushed(LOOP.model, 1.0, 6), {"level": 2, "seed": 1}
    usual = LOOP.rollout(start, controls, substeps=50)[0][0, :, :7]
    rubbing = LoopParameters(friction_s0=0.3, friction_w1=0.2)
    for mine, theirs in (
        (ElasticaLoop(**hard).rollout(start, controls, substeps=50), MujocoLoop(**hard).rollout(start, controls, substeps=50)),
        (
            LOOP.rollout(start, controls, rubbing, substeps=50),
            LoopSimulator(dt=1e-3).rollout(start, controls, rubbing, substeps=50),
        ),
    ):
        found, wanted = mine[0][0, :, :7], theirs[0][0, :, :7]
        assert np.abs(found - wanted).max() < 0.5 * np.abs(found - usual).max()


pin = pytest.importorskip("pinocchio", reason='pinocchio is not installed: pip install ".[pinocchio]"')

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
