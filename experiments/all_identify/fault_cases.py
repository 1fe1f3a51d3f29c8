"""The thirteen ground truths with formerly wrong diagnostics: recordings as a laboratory has them, and the command's arguments.

Noise is not stated. A given start is a factor of 3 off in every parameter to identify, either way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cases import drawn, off
from numpy.typing import NDArray

from softgym_envs.core import lie
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.procedure import EXPERIMENT
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.data.sensors import Sensor
from softgym_envs.systems import system
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.experiments import record
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.rigid.mujoco import MujocoBlock
from softgym_envs.systems.rigid.parameters import BlockParameters
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.experiments import record_in_air
from softgym_envs.systems.tensegrity.mujoco import MujocoTensegrity, native_constants
from softgym_envs.systems.tensegrity.parameters import CONTACT
from softgym_envs.systems.tensegrity.procedure import BODY
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.mujoco import MujocoVine
from softgym_envs.systems.vine.procedure import BODY as VINE
from softgym_envs.systems.vine.procedure import TUBE, along_body

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.jitosho2021.experiments import BEAM, scene_text

Array = NDArray[np.float64]

CAMERA = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
POINTS, FPS = 5e-4, 240.0
"""[m] noise of the camera before the vine; [1/s]"""
FRICTION = 0.33
POOR = (5e-3, np.radians(1.0), 50)
"""[m], [rad], [1/s]: noise and rate of a tracker of rods."""
STATES = {"m": 1e-3, "-": 1e-3, "m/s": 1e-2, "rad/s": 1e-2}
"""Unit -> noise of recorded states."""


@dataclass(frozen=True)
class Asked:
    """A ground truth's known parameters, and the inputs of the documented command."""

    system: str
    recordings: tuple[Trajectory, ...]
    true: dict[str, float]
    start: Parameters | None = None
    words: tuple[str, ...] = ()
    """Further arguments of the command."""
    stages: tuple[str, ...] = ()
    """Stages of the procedure to run one after another, each from the parameters before; none: those of the command."""
    model: str | None = None
    """Text of the structure's file."""
    csv: bool = True
    """Whether the file is a laboratory's CSV; else HDF5, as `record` writes."""


class Row(NamedTuple):
    """Recordings of one kind."""

    text: str
    make: Callable[[int], Asked]
    """Seed -> ground truth."""
    seeds: int


# --- tensegrity --------------------------------------------------------------------------------------------------------


def flights(ground_truth: Any, seed: int, steps: int, parameter_values: Parameters | None = None, **more: Any) -> Trajectory:
    """Flights with a rod held and motors driven, one row of states per millisecond."""
    return load(system("tensegrity").procedure).record_one(
        "air", ground_truth, np.random.default_rng(seed), steps=steps, parameters=parameter_values, **more
    )


def hand_built(seed: int) -> Asked:
    """The whole procedure on a robot with gains within 15 % and rest lengths within 2 %."""
    ground_truth = MujocoTensegrity(effects={"gain_spread": 0.15, "rest_spread": 0.02}, seed=seed)
    procedure, rng = load(system("tensegrity").procedure), np.random.default_rng(seed)
    data = (
        procedure.record_one("air", ground_truth, rng, steps=5000),
        *(procedure.record_one("throws", ground_truth, rng, steps=1000) for _ in "123"),
    )
    return Asked("tensegrity", data, body_of(ground_truth), csv=False)


def body_of(ground_truth: Any) -> dict[str, float]:
    """The ground truth's parameters of the body."""
    return {name: float(getattr(ground_truth.default_parameters, name)) for name in BODY}


def by_states(ground_truth: Any, seed: int, steps: int, true: dict[str, float] | None = None, **noise: Any) -> Asked:
    """States in the air, through the procedure's two stages of the body."""
    engine, rng = system("tensegrity").simulator(), np.random.default_rng(seed)
    true = true or body_of(ground_truth)
    data = flights(ground_truth, seed, steps, ground_truth.default_parameters.replace(**true))
    if noise:
        data = data.with_noise(
            rng, {n: noise["by"][u] for n, u in zip(data.names, data.units, strict=True) if u in noise["by"]}
        )
    return Asked("tensegrity", (data,), true, off(engine, true, rng), stages=("body", "refine"), csv=False)


def exact_motors(seed: int) -> Asked:
    """The nominal MuJoCo model: our engine's model of its motors is exact."""
    return by_states(MujocoTensegrity(), seed, 1000)


def late(seed: int) -> Asked:
    """Commands act 30 ms late; states are recorded, with the motors at zero for the first 0.1 s."""
    ground_truth, rng = MujocoTensegrity(effects={"latency": 0.03}), np.random.default_rng(seed)
    asked = by_states(ground_truth, seed, 1000)
    data = record_in_air(ground_truth, rng, duration=1.0, hold=ground_truth.dt, quiet=100)
    return replace(asked, recordings=(replace(data, metadata={**data.metadata, EXPERIMENT: "air"}),))


def late_filmed(seed: int) -> Asked:
    """Commands act 30 ms late, before cameras: 120 Hz, 2 mm, commands of 0.1 s."""
    ground_truth, procedure = MujocoTensegrity(effects={"latency": 0.03}), load(system("tensegrity").procedure)
    exact, rng = flights(ground_truth, seed, 2000, from_markers=True), np.random.default_rng(seed)
    seen = Sensor(rate=120.0, noise=2e-3)(exact, system("tensegrity").simulator(), procedure, rng)
    return Asked("tensegrity", (seen,), {**body_of(ground_truth), "latency": 0.03}, csv=False)


def poor(seed: int) -> Asked:
    """Three throws of 1 s: places to 5 mm, turns to a degree, 50 Hz, velocities by differences; seven parameters of contact."""
    engine, rng = TensegritySimulator(contact="patch"), np.random.default_rng(seed)
    names, specs = CONTACT["patch"], engine.default_parameters.specs()
    middle = native_constants()
    true = {n: float(np.clip(getattr(middle, n) * 1.2 ** rng.uniform(-1, 1), *specs[n].bounds)) for n in names}
    parameter_values = engine.default_parameters.replace(**true)
    procedure = load(system("tensegrity").procedure)
    data = [procedure.record_one("throws", engine, rng, steps=1000, parameters=parameter_values) for _ in range(3)]
    wrong = {n: float(np.clip(v * 1.5 ** rng.choice([-1, 1]), *specs[n].bounds)) for n, v in true.items()}
    seen, start = tuple(tracked(engine.model, one, rng) for one in data), engine.default_parameters.replace(**wrong)
    return Asked("tensegrity", seen, true, start, ("--stage", "contact", "--free-motion"))


def tracked(model: Any, recording: Trajectory, rng: np.random.Generator) -> Trajectory:
    """States from a tracker of rods at a low rate, rates by differences."""
    place, turn, rate = POOR
    every = round(1.0 / (rate * recording.period))
    values = recording.values[::every].copy()
    times = recording.times[::every][: len(values)]
    for row in values:
        position, quaternion, *_ = model.split(row)
        position += place * rng.standard_normal(position.shape)
        for q in quaternion:
            q[:] = lie.multiply(q, lie.exp(turn * rng.standard_normal(3)))
    places, turns = (np.array([np.copy(model.split(row)[k]) for row in values]) for k in (0, 1))
    speed = np.gradient(places, times, axis=0)
    for k, row in enumerate(values):
        _, _, moves, spins, _ = model.split(row)
        a, b = max(k - 1, 0), min(k + 1, len(values) - 1)
        moves[:] = speed[k]
        for rod, spin in enumerate(spins):
            spin[:] = lie.log(lie.multiply(lie.conjugate(turns[a, rod]), turns[b, rod])) / (times[b] - times[a])
    return replace(recording, times=times, values=values, controls=recording.controls[::every][: len(values) - 1], substeps=1)


def unknown_noise(seed: int) -> Asked:
    """Our own engine, its states with unknown noise."""
    engine = system("tensegrity").simulator()
    true = drawn(engine.default_parameters, BODY, np.random.default_rng([seed, 1]))
    return by_states(engine, seed, 600, true, by=STATES)


# --- vine --------------------------------------------------------------------------------------------------------------


def swung(
    seed: int,
    *,
    turn: float = 0.0,
    noise: float = POINTS,
    start: dict[str, float] | None = None,
    friction: float = 0.0,
    **effects: float,
) -> Asked:
    """A cantilever let go from an arc, 21 points at 240 frames/s; base (even seeds) or camera are turned by `turn` [rad].

    `friction` [N m] is dry and hard, the effect "hysteresis" as soft as MuJoCo's usual one.
    """
    rng = np.random.default_rng(seed)
    model = replace(BEAM, base=(0.0, 0.0, turn)) if seed % 2 == 0 else BEAM
    ground_truth: Any = MujocoVine(model, dt=1.0 / (FPS * 8), bending="linear", effects=effects, seed=seed)
    true, steps = drawn(ground_truth.default_parameters, TUBE, rng), round(0.6 * FPS)
    begin = ground_truth.initial_state(1)
    begin[0, : model.layout.nx] = model.straight_state(curvature=rng.choice([-1, 1]) * rng.uniform(0.6, 1.0))
    parameter_values = ground_truth.default_parameters.replace(**true, bending_friction=friction)
    states, _ = ground_truth.rollout(begin, np.zeros((1, steps, ground_truth.nu)), parameter_values, substeps=8)
    points = along_body(model, states[0, :, : model.layout.nx], np.linspace(0.0, 1.0, 21)).reshape(steps + 1, -1)
    names = tuple(f"point{k}.{axis}" for k in range(21) for axis in "xy")
    units, none = ("m",) * len(names), np.zeros((steps, ground_truth.nu))
    exact = Trajectory(np.arange(steps + 1) / FPS, none, points, names, units, ground_truth.control_names, ("m/s",), 1)
    engine = VineSimulator(BEAM, 1.0 / (FPS * 2), "linear")
    seen = Sensor(noise=noise, turn=turn if seed % 2 else 0.0)(exact, engine, load(system("vine").procedure), rng)
    seen = replace(seen, values=np.round(seen.values, 6))  # files of trackers have micrometres
    given = off(engine, true, rng).replace(**(start or {}))
    return Asked("vine", (seen,), true, given, ("--fps", f"{FPS:g}", "--free-motion"), model=scene_text(BEAM))


def grown(seed: int) -> Asked:
    """The procedure's growth under random pressures, wrinkling body with muscles, states of the MuJoCo model."""
    ground_truth = system("vine").simulator(backend="mujoco")
    procedure, rng = load(system("vine").procedure), np.random.default_rng(seed)
    steps = procedure.experiments[0].steps_on(ground_truth, system("vine").simulator())
    data = tuple(procedure.record_one("pressures", ground_truth, rng, steps=steps) for _ in range(2))
    return Asked("vine", data, {name: float(getattr(ground_truth.default_parameters, name)) for name in VINE}, csv=False)


# --- block and particles -------------------------------------------------------------------------------------------------


def pulled(world: Any, seed: int, **changes: float) -> Asked:
    """The block under its weight for 0.8 s, at 50 Hz."""
    parameter_values = world.default_parameters.replace(friction=FRICTION, **changes)
    rng, rest = np.random.default_rng(seed), world.initial_state()[0]
    return block(seed, record(world, rest, np.zeros((40, 2)), parameter_values, noise=CAMERA, rng=rng, period=0.02))


def block(seed: int, recording: Trajectory) -> Asked:
    """Inputs of the command for it."""
    start = float(np.clip(FRICTION * 3.0 ** np.random.default_rng(seed).choice([-1, 1]), 0.0, 1.0))
    return Asked("block", (recording,), {"friction": FRICTION}, BlockParameters(friction=start))


def faster_slides(seed: int) -> Asked:
    """Friction falls with speed, by a third over 0.1 m/s; the parameter to identify is the mean over the visited speeds."""
    data, used = stepwise(lambda _, speed: FRICTION * (1.0 + 0.5 * float(np.exp(-speed / 0.1))), seed)
    return replace(block(seed, data), true={"friction": float(np.mean(used))})


def stepwise(friction: Callable[[float, float], float], seed: int) -> tuple[Trajectory, list[float]]:
    """A block whose friction is a function of time [s] and speed [m/s], and its values at every physics step."""
    rng, state, used = np.random.default_rng(seed), FINE.initial_state(1), []
    rows, names, own = [state[0]], FINE.state_names, FINE.default_parameters
    for k in range(160):
        speed = float(np.hypot(state[0, names.index("vx")], state[0, names.index("vy")]))
        used.append(friction(k * FINE.dt, speed))
        states, _ = FINE.rollout(state, np.zeros((1, 1, 2)), own.replace(friction=used[-1]), substeps=1)
        state = states[:, -1]
        rows.append(state[0])
    picks, units = [names.index(name) for name in CAMERA], ("m", "m", "rad")
    values = np.array(rows)[::4, picks] + rng.standard_normal((41, 3)) * list(CAMERA.values())
    times, none = np.linspace(0.0, 0.8, 41), np.zeros((40, 2))
    return Trajectory(times, none, values, tuple(CAMERA), units, FINE.control_names, ("N", "N"), 4), used


def modulo(seed: int) -> Asked:
    """Angles in a tracker's format, 0 ... 360 degrees: they jump around the block's first angle, which is 0."""
    asked = pulled(BlockSimulator(), seed)
    values = asked.recordings[0].values.copy()
    values[:, 2] %= 2 * np.pi
    return replace(asked, recordings=(replace(asked.recordings[0], values=values),))


def sticks(seed: int) -> Asked:
    """A particle falls 3 m, pushed sideways, and sticks where it lands."""
    simulator, rng = ParticleSimulator(), np.random.default_rng(seed)
    friction = float(rng.uniform(0.6, 0.95))
    own = simulator.default_parameters
    falling, noise = np.array([0.0, 3.0, 0.0, 0.0]), {"x": 1e-3, "y": 1e-3}
    data = record(simulator, falling, np.full((100, 1), 5.0), own.replace(friction=friction), noise=noise, rng=rng)
    start = float(np.clip(friction * 3.0 ** np.random.default_rng(seed).choice([-1, 1]), 0.0, 1.0))
    return Asked("particles", (data,), {"friction": friction}, own.replace(friction=start))


FINE = BlockSimulator(BlockModel(num_directions=128), dt=0.005)

ROWS = {
    "superball": Row("SUPERball, gains within 15 %, rest lengths within 2 %", hand_built, 1),
    "motors": Row("SUPERball, motors predicted exactly", exact_motors, 3),
    "late": Row("SUPERball, 30 ms latency, states", late, 3),
    "late_filmed": Row("SUPERball, 30 ms latency, markers", late_filmed, 1),
    "poor": Row("SUPERball thrown: 5 mm, 1 degree, 50 Hz, differences", poor, 3),
    "noise": Row(
        "SUPERball, start a factor of 3 off, noise unknown",
        unknown_noise,
        5,
    ),
    "turned3": Row(
        "vine, base or camera turned by 3 degrees",
        lambda s: swung(s, turn=np.radians(3)),
        3,
    ),
    "turned1": Row("vine, base or camera turned by 1 degree", lambda s: swung(s, turn=np.radians(1)), 3),
    "drag": Row("vine, drag ignored", lambda s: swung(s, start={"drag": 0.0}), 3),
    "hysteresis": Row("vine, friction of its joints, as soft as MuJoCo's usual one", lambda s: swung(s, hysteresis=5e-4), 3),
    "dry": Row("vine, dry friction in its body, as hard as steps bear", lambda s: swung(s, friction=5e-4), 3),
    "soft_end": Row("vine, outer half softer by 30 %", lambda s: swung(s, soft_end=0.3), 3),
    "muscles": Row("vine, wrinkling body with muscles, states", grown, 3),
    "clean": Row("vine, clean points", lambda s: swung(s, noise=0.0), 5),
    "fine": Row(
        "block, true physics: 128 edges at 5 ms, fitted at 32 and 10 ms",
        lambda s: pulled(FINE, s),
        3,
    ),
    "heavier": Row("block, weight 4 % heavier than said", lambda s: pulled(FINE, s, weight=0.52), 3),
    "feet": Row(
        "block of MuJoCo, feet of unlike friction (20 %)",
        lambda s: pulled(MujocoBlock(effects={"foot_spread": 0.2}, seed=s), s),
        3,
    ),
    "speed": Row("block, friction falls with speed", faster_slides, 3),
    "sticks": Row("particle that sticks on landing, friction 0.6 ... 0.95", sticks, 20),
    "modulo": Row("block filmed with angles modulo 360 degrees", modulo, 3),
}
"""The issue's rows, in its order; some in parts."""

__all__ = ["CAMERA", "FINE", "FRICTION", "ROWS", "Asked", "Row", "block", "stepwise", "swung"]
