"""Recordings of every system at every mismatch level, with parameters drawn by seed, in files as a laboratory has.

Noise is not stated: the command gets none. Parameters of a ground truth are drawn within a factor around
the defaults, a fit starts a factor of 3 off in each, either way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.sensors import SENSORS
from softgym_envs.systems import system
from softgym_envs.systems.box.experiments import NOISE as POSE
from softgym_envs.systems.box.experiments import thrown
from softgym_envs.systems.loop.manipulation import STILL
from softgym_envs.systems.loop.model import ARM, FRICTION
from softgym_envs.systems.loop.procedure import manipulation
from softgym_envs.systems.rigid.experiments import record
from softgym_envs.systems.rigid.procedure import CAMERA, PERIOD
from softgym_envs.systems.tensegrity.procedure import BODY
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.mujoco import MujocoVine
from softgym_envs.systems.vine.procedure import along_body

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.jitosho2021.experiments import BEAM, scene_text

FACTOR = 1.4
"""Parameters of a ground truth are within this factor of the defaults."""
OFF = 3.0
"""Factor between start and ground truth, either way."""
POINTS = 5e-4
"""[m] Noise of the camera before the vine."""
FPS = 240.0
ELBOW = {"angle": 2e-3, "rate": 2e-2, "activation": 5e-3}
"""[rad, rad/s, -]"""
BEARS = 1100.0
"""[N s/m] Cables damped more than 1130 reverse the velocities of a SUPERball's rods in every step of 1 ms: no real robot does,
and positions change by millimetres with the step, which fits to frames of a camera choose."""
SOON = 0.25
"""[s] Horizon of predictions for a thrown box: later, throws diverge."""
ANGLES, TORQUES = 2e-3, 0.2
"""[rad, N m] Noise of the loop's sensors, where a MuJoCo model has none of its own."""


@dataclass(frozen=True)
class Made:
    """A ground truth's recording, and its known parameters."""

    recordings: tuple[Trajectory, ...]
    """Recordings as a laboratory has them; of several all but the last are fitted, or the first `fitted`."""
    more: tuple[Trajectory, ...]
    """Further recordings of that ground truth, to which nothing is fitted."""
    true: dict[str, float]
    """True values of the parameters to identify."""
    start: Parameters
    miss: Callable[[Parameters], float]
    """Fitted parameters -> error of their predictions, from the true state, over the noise."""
    model: str | None = None
    """Text of a structure's file."""
    fitted: int | None = None
    """Number of fitted recordings, the first ones; the others are held out."""


def world(name: str, level: str, seed: int) -> Any:
    """The ground truth: our engine ("own"), or the MuJoCo model."""
    robot = system(name)
    return (
        robot.simulator() if level == "own" else robot.simulator(backend="mujoco", options={"level": int(level), "seed": seed})
    )


def drawn(defaults: Parameters, names: tuple[str, ...], rng: np.random.Generator) -> dict[str, float]:
    """Parameters within `FACTOR` of the defaults."""
    return {name: float(getattr(defaults, name) * FACTOR ** rng.uniform(-1.0, 1.0)) for name in names}


def off(engine: Any, true: dict[str, float], rng: np.random.Generator) -> Parameters:
    """Start of the fit."""
    specs = engine.default_parameters.specs()
    wrong = {name: float(np.clip(value * OFF ** rng.choice([-1, 1]), *specs[name].bounds)) for name, value in true.items()}
    return engine.default_parameters.replace(**wrong)


def rigid(name: str, level: str, seed: int, rng: np.random.Generator) -> Made:
    """Block and particles: positions of a camera; friction drawn between 0.1 and 0.45; held out: more falls, and launches."""
    ground_truth, engine = world(name, level, seed), system(name).simulator()
    procedure = load(system(name).procedure)
    friction = float(rng.uniform(0.1, 0.45))
    free = next(n for n in ground_truth.default_parameters.names() if n.startswith("friction"))
    parameter_values, experiment = ground_truth.default_parameters.replace(**{free: friction}), procedure.experiments[0]
    steps = experiment.steps_on(ground_truth, engine)

    def from_markers() -> Trajectory:
        found = procedure.record_one(experiment.name, ground_truth, rng, steps=steps, parameters=parameter_values)
        return found if level == "own" or name != "particles" else thinned(found, round(engine.dt / found.period))

    recording = from_markers()
    start = engine.default_parameters.replace(**{free: float(np.clip(friction * OFF ** rng.choice([-1, 1]), 0.0, 1.0))})
    # The string takes the block to its pulley in a second: one remains to predict only if it is thrown back first.
    others = tuple(
        launched(ground_truth, parameter_values, rng) if name == "block" else from_markers()
        for _ in range(13 if name == "block" else 4)
    )
    kept = 9 if name == "block" else 2

    def miss(found: Parameters) -> float:
        count = min(round(1.0 / recording.period), recording.num_steps)
        controls, ends = recording.controls[None, :count], []
        for one, parameters in ((engine, found), (ground_truth, parameter_values)):
            states, _ = one.rollout(one.initial_state(1), controls, parameters, substeps=round(recording.period / one.dt))
            ends.append(states[0, -1, [one.state_names.index(n) for n in recording.names]])
        sigma = np.array([CAMERA[n.split(".")[-1]] for n in recording.names])
        return float(np.sqrt(np.mean(((ends[0] - ends[1]) / sigma) ** 2)))

    return Made((recording, *others[:kept]), others[kept:], {free: friction}, start, miss, fitted=1)


def launched(ground_truth: Any, parameter_values: Parameters, rng: np.random.Generator) -> Trajectory:
    """The block, thrown against the pull of its string, 1.26 s."""
    state = ground_truth.initial_state(1)[0]
    for entry, value in (("vx", rng.uniform(-2.2, -1.5)), ("vy", rng.uniform(-0.2, 0.2)), ("omega", rng.uniform(-1.0, 1.0))):
        state[ground_truth.state_names.index(entry)] = value
    controls = np.zeros((round(1.26 / PERIOD), ground_truth.nu))
    return record(ground_truth, state, controls, parameter_values, noise=CAMERA, rng=rng, period=PERIOD)


def thinned(recording: Trajectory, keep: int) -> Trajectory:
    """Keep every so many rows, as a slower camera does."""
    controls = recording.controls[::keep][: len(recording.times[::keep]) - 1]
    values, times = recording.values[::keep][: len(controls) + 1], recording.times[::keep][: len(controls) + 1]
    return replace(recording, times=times, values=values, controls=controls, substeps=1)


def vine(name: str, level: str, seed: int, rng: np.random.Generator) -> Made:
    """A cantilever of 0.4 m that is let go from an arc, 240 frames/s, 21 points, 0.5 mm of noise: 0.6 s; held out, 1.75 s."""
    del name
    fine = 1.0 / (FPS * 8)
    engine = VineSimulator(BEAM, 1.0 / (FPS * 2), "linear")
    ground_truth: Any = VineSimulator(BEAM, fine, "linear")
    if level != "own":
        ground_truth = MujocoVine(BEAM, dt=fine, bending="linear", level=int(level), seed=seed)
    true = drawn(ground_truth.default_parameters, ("bending_stiffness", "bending_damping"), rng)
    parameter_values = ground_truth.default_parameters.replace(**true)
    share = np.linspace(0.0, 1.0, 21)
    names = tuple(f"point{k}.{axis}" for k in range(21) for axis in "xy")

    def swung(one: Any, parameters: Parameters, bend: float, duration: float = 0.6) -> Trajectory:
        begin, steps = one.initial_state(1), round(duration * FPS)
        begin[0, : BEAM.layout.nx] = BEAM.straight_state(curvature=bend)
        controls = np.zeros((1, steps, one.nu))
        states, _ = one.rollout(begin, controls, parameters, substeps=round(1.0 / (FPS * one.dt)))
        points = along_body(BEAM, states[0, :, : BEAM.layout.nx], share).reshape(steps + 1, -1)
        times, units = np.arange(steps + 1) / FPS, ("m",) * len(names)
        return Trajectory(times, controls[0], points, names, units, one.control_names, ("m/s",), 1, {"source": "camera"})

    bends = rng.choice([-1, 1]) * rng.uniform(0.6, 1.0, 2) * (1, -1)
    clean = [swung(ground_truth, parameter_values, bend) for bend in bends]

    def miss(found: Parameters) -> float:
        return float(np.sqrt(np.mean((swung(engine, found, bends[1]).values - clean[1].values)[-24:] ** 2))) / POINTS

    fitted = clean[0].with_noise(rng, POINTS)
    start = off(engine, true, rng).replace(linear_density=ground_truth.default_parameters.linear_density)
    arcs = rng.choice([-1, 1], 7) * rng.uniform(0.6, 1.0, 7)
    others = tuple(swung(ground_truth, parameter_values, arc, 1.75).with_noise(rng, POINTS) for arc in arcs)
    return Made((fitted, *others[:5]), others[5:], true, start, miss, scene_text(BEAM), fitted=1)


def box(name: str, level: str, seed: int, rng: np.random.Generator) -> Made:
    """A cube of 10 cm before cameras at 148 Hz: twelve throws that are fitted, and six more."""
    ground_truth, engine, procedure = world(name, level, seed), system(name).simulator(), load(system(name).procedure)
    ground_truth = replace(ground_truth, dt=engine.dt / 4) if level == "own" else ground_truth
    defaults = ground_truth.default_parameters
    true = {"friction": rng.uniform(0.1, 0.6), "inertia": rng.uniform(0.8, 1.4), "rounding": rng.uniform(1e-3, 5e-3)}
    if level == "own":
        true["restitution"] = rng.uniform(0.1, 0.6)
    true = {name: float(value) for name, value in true.items()}
    parameter_values, tossed = defaults.replace(**true), procedure.experiments[0]
    steps, ahead = tossed.steps_on(ground_truth, engine), round(SOON / engine.dt)

    def seen() -> Trajectory:
        found = procedure.record_one(tossed.name, ground_truth, rng, steps=steps, parameters=parameter_values)
        return found.for_timestep(engine.dt)

    recordings = [seen() for _ in range(18)]
    starts = np.stack([thrown(engine, rng, engine.default_parameters.replace(**true)) for _ in range(8)])

    def miss(found: Parameters) -> float:
        ends = []
        for one, parameters in ((engine, found), (ground_truth, parameter_values)):
            often = round(engine.dt / one.dt)
            begin = np.tile(one.initial_state(1), (len(starts), 1))
            begin[:, : starts.shape[1]] = starts
            ends.append(one.rollout(begin, np.zeros((len(starts), ahead, one.nu)), parameters, substeps=often)[0][:, -1, :3])
        off = np.sqrt(np.mean((ends[0] - ends[1]) ** 2, axis=1))
        return float(np.median(off)) / POSE  # a throw that just misses a corner goes another way

    start = off(engine, {name: value for name, value in true.items() if name in ("friction", "restitution")}, rng)
    return Made(tuple(recordings[:12]), tuple(recordings[12:]), true, start, miss, fitted=12)


def arm(name: str, level: str, seed: int, rng: np.random.Generator) -> Made:
    """The elbow under random excitations, twice 8 s, one held out: angle, rate and activations with noise."""
    ground_truth, engine, procedure = world(name, level, seed), system(name).simulator(), load(system(name).procedure)
    free = procedure.stages[0].free_of(engine)
    true = drawn(
        ground_truth.default_parameters, (*(n for n in free if n.endswith("force")), "damping", "rise_time", "fall_time"), rng
    )
    parameter_values = ground_truth.default_parameters.replace(**true)
    noise = dict(zip(engine.state_names, (*list(ELBOW.values())[:2], *[ELBOW["activation"]] * 2), strict=True))
    steps = procedure.experiment("excited").steps_on(ground_truth, engine)
    clean = [procedure.record_one("excited", ground_truth, rng, steps=steps, parameters=parameter_values) for _ in range(3)]
    noisy = tuple(recording.with_noise(rng, noise) for recording in clean)

    def miss(found: Parameters) -> float:
        first, ahead = np.arange(0, clean[1].num_steps - 100, 50), 100
        controls = np.stack([clean[1].controls[k : k + ahead] for k in first])
        values = clean[1].select(engine.state_names).values
        states, _ = engine.rollout(values[first], controls, found, substeps=clean[1].substeps)
        return float(np.sqrt(np.mean((states[:, -1, 0] - values[first + ahead, 0]) ** 2))) / ELBOW["angle"]

    return Made(noisy[:2], noisy[2:], true, off(engine, true, rng), miss)


def loop(name: str, level: str, seed: int, rng: np.random.Generator) -> Made:
    """A manipulation of 8 s: angles and torques with noise and bias; a MuJoCo model from level 1 on has its own."""
    ground_truth, engine = world(name, level, seed), system(name).simulator()
    true = {"theta_stiffness": float(rng.uniform(2.0, 7.0)), "psi_stiffness": float(rng.uniform(0.5, 2.5))}
    more = {"loop_damping": float(rng.uniform(0.015, 0.04)), "arm_damping": float(rng.uniform(0.4, 1.2))}
    dry = dict(zip(FRICTION, rng.uniform(0.0, 0.15, len(ARM)), strict=True)) if level in ("own", "0") else {}
    parameter_values, state = ground_truth.default_parameters.replace(**true, **more, **dry), rng.bit_generator.state
    recording = manipulation(ground_truth, rng, steps=round(8.0 / ground_truth.dt), parameters=parameter_values)
    if level in ("own", "0"):
        bias = 0.2 * rng.choice([-1.0, 1.0], len(ARM))
        torques = recording.controls + bias + TORQUES * rng.standard_normal(recording.controls.shape)
        recording = replace(recording.with_noise(rng, ANGLES), controls=torques)

    def miss(found: Parameters) -> float:
        """Error of the torques for the same motion, without their mean, over the noise."""
        clean = (
            replace(ground_truth, effects={**ground_truth.sizes, **dict.fromkeys(FLAWS, 0.0)})
            if level not in ("own", "0")
            else ground_truth
        )
        told = []
        for one, parameters in ((clean, parameter_values), (engine, found)):
            again = np.random.default_rng()
            again.bit_generator.state = state
            torques = manipulation(one, again, steps=round(8.0 / one.dt), parameters=parameters).controls
            told.append(torques[round(STILL / 0.01) + 100 :])
        left = told[0] - told[1]
        return float(np.sqrt(np.mean((left - left.mean(axis=0)) ** 2))) / TORQUES

    return Made((recording,), (), true, off(engine, true, rng), miss)


def tensegrity(name: str, level: str, seed: int, rng: np.random.Generator) -> Made:
    """A SUPERball with a rod held, driven before cameras: 120 Hz, 2 mm, gaps, outliers, 20 ms late; 2 s; held out, 2.75 s."""
    ground_truth, procedure = world(name, level, seed), load(system(name).procedure)
    engine: Any = system(name).simulator()
    true = drawn(ground_truth.default_parameters, BODY, rng)
    true["cable_damping"] /= FACTOR if true["cable_damping"] > BEARS else 1.0
    parameter_values, air = ground_truth.default_parameters.replace(**true), procedure.experiments[0].name
    exact = [
        procedure.record_one(
            air, ground_truth, rng, steps=round(duration / ground_truth.dt), parameters=parameter_values, from_markers=True
        )
        for duration in (2.0, *[2.75] * 5)
    ]
    held = replace(engine, fixed_rod=0)

    def miss(found: Parameters) -> float:
        first, ahead = np.arange(0, 1001, 250), 1000
        values = exact[1].select(engine.state_names).values
        controls = np.stack([exact[1].controls[k : k + ahead] for k in first])
        states, _ = held.rollout(values[first], controls, found)
        nodes = engine.model.node_positions(states[:, -1]) - engine.model.node_positions(values[first + ahead])
        return float(np.sqrt(np.mean(nodes**2))) / LAB.noise

    seen = tuple(LAB(recording, engine, procedure, rng) for recording in exact)
    return Made(seen[:4], seen[4:], true, off(engine, true, rng), miss, fitted=1)


LAB = SENSORS["lab"]
FLAWS = ("angle_noise", "torque_noise", "torque_bias", "torque_lag")

CASES: dict[str, Callable[[str, str, int, np.random.Generator], Made]] = {
    "particles": rigid,
    "block": rigid,
    "box": box,
    "vine": vine,
    "arm": arm,
    "loop": loop,
    "tensegrity": tensegrity,
}


def files(made: Made, folder: Path) -> dict[str, Any]:
    """Write the files of a ground truth; also the command's arguments for them."""
    TrajectorySet(made.recordings).save(folder / "run.h5")
    made.start.save(folder / "start.toml")
    more: dict[str, Any] = {}
    if made.model is not None:
        (folder / "robot.toml").write_text(made.model)
        more = {"model": str(folder / "robot.toml"), "free_motion": True, "fps": FPS}
    if made.more:
        TrajectorySet(made.more).save(folder / "more.h5")
    if made.fitted is not None:
        more["split"] = (made.fitted, 0, len(made.recordings) - made.fitted)
    return {"data": (folder / "run.h5",), "start": folder / "start.toml", "out": folder / "fit", **more}


__all__ = ["CASES", "Made", "files"]
