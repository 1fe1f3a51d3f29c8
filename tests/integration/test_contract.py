"""Every simulator and every promise of `softgym_envs.core.simulator`.

Engines, ground truths and models come from the list of systems: a new system is covered as it is. INPUTS says where a system's
states are interesting; SPECIAL are options and structures that the list does not name.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import softgym_envs
from reproductions.jitosho2021.model import PaperModel
from reproductions.jitosho2021.simulator import PaperSimulator
from softgym_envs.core.base import BaseSimulator
from softgym_envs.core.conformance import PROMISES, Case, Inputs, case_of
from softgym_envs.core.system import NATIVE
from softgym_envs.engines.mujoco.mjcf import MjcfGroundTruth
from softgym_envs.systems import systems
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import LoopModel
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.model import BlockModel, ParticleModel
from softgym_envs.systems.rigid.mujoco import MujocoBlock
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import superball
from softgym_envs.systems.tensegrity.mujoco import MujocoTensegrity
from softgym_envs.systems.tensegrity.residual import NUM_WEIGHTS
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.mujoco import MujocoVine
from softgym_envs.systems.vine.obstacles import circle, polygon, rectangle, wall

Array = NDArray[np.float64]


def tensegrity_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Overlapping the ground by a few mm, turned, moving, motors anywhere."""
    model = simulator.model
    rest = model.move(model.state_from_nodes(model.nodes), rotation=rng.normal(size=3))
    state = np.tile(model.place_on_ground(rest, gap=-0.003), (batch, 1))
    rods = np.tile(np.repeat([0.002, 0.01, 0.3, 0.3], 3), model.num_rods)
    spread = np.concatenate([rods, np.full(model.nu, 5.0)])
    moved: Array = simulator.embed(model.layout.retract(state, spread * rng.normal(size=(batch, model.layout.n))))
    return moved


def in_air(simulator: Any, states: Array) -> Array:
    return np.stack([simulator.model.move(x, translation=np.array([0.0, 0.0, 1.0])) for x in states])


def sliding_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Particles that slide on the ground, or a block that slides and turns on its table."""
    names = [name.split(".")[-1] for name in simulator.state_names]
    spread = {"x": 0.1, "y": 0.0 if "theta" not in names else 0.1, "theta": 0.3, "vx": 0.5, "vy": 0.0, "omega": 1.0}
    state = np.tile(simulator.initial_state(1), (batch, 1))
    for column, name in enumerate(names):
        if name in spread:
            state[:, column] = spread[name] * rng.normal(size=batch) + (2.0 if name == "vx" else 0.0)
    return state


def vine_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Bent, growing, muscles anywhere; the first ones lean on the obstacles."""
    model = simulator.model
    state = np.stack(
        [model.straight_state(length, bend) for length, bend in zip((0.4, 0.5, 0.61, 0.45, 0.7), (0, 0, 0, 2, -2), strict=True)]
    )
    parts = model.split(state[:batch])
    parts.omega[:] = 0.1 * rng.normal(size=parts.omega.shape)
    parts.growth[:] = 0.05
    parts.pressure[:] = 5e3 * rng.random(parts.pressure.shape)
    return np.asarray(simulator.embed(model.tidy(state[:batch])))


def vine_apart(simulator: Any, state: Array) -> Array:
    """Obstacles far away, and no tip about to divide."""
    moved = state.copy()
    parts = simulator.model.split(moved)
    parts.obstacles[..., :2] += 5.0 * np.sign(parts.obstacles[..., :2] - np.array([0.6, 0.0]))
    parts.length[:] = 0.41
    return np.asarray(simulator.model.tidy(moved))


def loop_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Moving, 0.1 s after random torques began to bend the loop: where the loop is closed."""
    torques = simulator.model.hold + 2.0 * rng.normal(size=(batch, 7))
    moved: Array = simulator.step(simulator.initial_state(batch), torques, substeps=round(0.1 / simulator.dt))[0]
    return moved


def loop_solved(simulator: Any) -> float:
    """Loops are closed to a fixed length, 1e-11 m: of small ones that is a larger share."""
    return 1e-11 * max(1.0, LoopModel().radius / float(simulator.model.radius))


def paper_states(simulator: Any, rng: np.random.Generator, batch: int) -> Array:
    """Straight, with random rates: every pin begins to bend."""
    state = np.tile(simulator.initial_state(1), (batch, 1))
    _, v = simulator.model.split(state)
    v[:] = 0.2 * rng.normal(size=v.shape)
    return state


def cluttered() -> VineModel:
    """A circle touched by a straight robot of 0.5 m, a prism and a box beyond, a wall at 0.72 m."""
    corners = ((0.6, -0.3), (0.8, -0.2), (0.6, -0.1))
    around = (circle(0.55, 0.072, 0.06), polygon(corners), rectangle(0.5, -0.2, 0.1, 0.05, 0.3), wall(0.72, 0.0, np.pi))
    return VineModel(num_links=20, obstacles=around)


INPUTS = {
    "tensegrity": Inputs(tensegrity_states, in_air, "cable_stiffness"),
    "vine": Inputs(vine_states, vine_apart, "bending_stiffness"),
    "loop": Inputs(loop_states, substeps=5, share=0.2, rounding=4000.0, solved=loop_solved),
    "upper_body": Inputs(substeps=5, share=0.3, rounding=4000.0),
    "block": Inputs(sliding_states),
    "particles": Inputs(sliding_states),
    "box": Inputs(varied="gravity"),
}
PAPER = Inputs(paper_states, varied="joint_stiffness")
SPECIAL: dict[str, tuple[Inputs, Callable[[], Any]]] = {
    "superball-paper": (INPUTS["tensegrity"], lambda: TensegritySimulator(contact="paper")),
    "superball-patch": (INPUTS["tensegrity"], lambda: TensegritySimulator(contact="patch")),
    "superball-residual": (
        INPUTS["tensegrity"],
        lambda: TensegritySimulator(contact="patch", residual=tuple(0.1 * np.random.default_rng(0).normal(size=NUM_WEIGHTS))),
    ),
    "superball-mujoco_model-two-way": (INPUTS["tensegrity"], lambda: MujocoTensegrity(cables="two_way")),
    "superball-mujoco_model-fixed": (INPUTS["tensegrity"], lambda: MujocoTensegrity(superball(), fixed_rod=2)),
    "superball-mujoco_model-hard": (
        INPUTS["tensegrity"],
        lambda: MujocoTensegrity(level=3, seed=1, effects={"latency": 0.003}),
    ),
    "three-particles": (Inputs(sliding_states, varied="friction1"), lambda: ParticleSimulator(ParticleModel(3))),
    "block-pushed": (INPUTS["block"], lambda: BlockSimulator(BlockModel(pulley=None, num_directions=8))),
    "loop-held": (
        INPUTS["loop"],
        lambda: LoopSimulator(LoopModel(6, servo_stiffness=(60.0,) * 7, servo_damping=3.0), dt=0.0025),
    ),
    "vine-cluttered": (INPUTS["vine"], lambda: VineSimulator(cluttered())),
    "vine-linear": (INPUTS["vine"], lambda: VineSimulator(VineModel(num_links=12), bending="linear")),
    "vine-paper": (PAPER, lambda: PaperSimulator(PaperModel(8, 0.02, max_growth=0.1))),
    "vine-mujoco_model-cluttered": (INPUTS["vine"], lambda: MujocoVine(cluttered())),
    "vine-mujoco_model-hard": (INPUTS["vine"], lambda: MujocoVine(cluttered(), level=3, seed=1, effects={"latency": 0.01})),
    "block-mujoco_model-hard": (INPUTS["block"], lambda: MujocoBlock(level=3, seed=1, effects={"latency": 0.003})),
}
LISTED: dict[str, tuple[Inputs, Callable[[], Any]]] = {
    f"{system.name}-{model}-{backend}": (INPUTS.get(system.name, Inputs()), partial(system.simulator, model, backend=backend))
    for system in systems().values()
    for k, model in enumerate(system.models)
    for backend in (NATIVE, *(tuple(system.ground_truths) if k == 0 else tuple(system.ground_truths)[:1]))
}
"""Every model in our engine and in the first ground truth; further ground truths with the first model."""
SIMULATORS = LISTED | SPECIAL


@pytest.fixture(params=SIMULATORS, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    inputs, make = SIMULATORS[request.param]
    return case_of(make, inputs)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_promise(promise: Callable[[Case], None], case: Case) -> None:
    promise(case)


def test_no_simulator_of_the_package_is_left_out() -> None:
    """But for a user's MJCF (test_tutorial.py)."""
    modules = [importlib.import_module(info.name) for info in pkgutil.walk_packages(softgym_envs.__path__, "softgym_envs.")]
    found = {
        kind
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, BaseSimulator) and not inspect.isabstract(kind) and name[0] != "_"
    }
    assert found - {type(make()) for _, make in SIMULATORS.values()} <= {MjcfGroundTruth}
