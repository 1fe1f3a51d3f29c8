"""The two experiments of [Jitosho2021] IV-B, recorded from the MuJoCo model as points that a camera would track."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.files import write_atomically
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems.vine.model import VineModel, with_obstacles
from softgym_envs.systems.vine.mujoco import MujocoVine, MujocoVineParameters
from softgym_envs.systems.vine.obstacles import wall
from softgym_envs.systems.vine.procedure import along_body

Array = NDArray[np.float64]

BEAM = VineModel(num_links=12, max_length=0.4, initial_length=0.4, num_sections=0)
"""A cantilever of 0.4 m for oscillations."""
GROWER = VineModel(num_links=20, max_length=0.8, initial_length=0.4, num_sections=0, max_growth=0.1)
"""A robot that grows from 0.4 m."""


def record_oscillation(
    parameters: MujocoVineParameters, rng: np.random.Generator, *, bend: float = 0.8, seconds: float = 0.6, fps: float = 240.0
) -> Trajectory:
    """A cantilever released from an arc of curvature `bend` [1/m], under a fast camera."""
    mujoco_model = MujocoVine(BEAM, dt=1.0 / (fps * 8), bending="linear")
    return _record(mujoco_model, BEAM.straight_state(curvature=bend), 0.0, parameters, rng, seconds, fps)


def record_wall(
    parameters: MujocoVineParameters,
    rng: np.random.Generator,
    *,
    distance: float = 0.42,
    tilt: float = 0.5,
    growth: float = 0.08,
    seconds: float = 2.0,
    fps: float = 30.0,
) -> tuple[Trajectory, VineModel]:
    """A robot that grows into a wall at `distance` [m], `tilt` [rad] from a right angle; and the model with that wall."""
    model = with_obstacles(GROWER, (wall(distance, 0.0, np.pi - tilt),))
    mujoco_model = MujocoVine(model, dt=1.0 / (fps * 16), bending="linear")
    return _record(mujoco_model, model.straight_state(), growth, parameters, rng, seconds, fps), model


def _record(
    mujoco_model: MujocoVine,
    state: Array,
    growth: float,
    parameters: MujocoVineParameters,
    rng: np.random.Generator,
    seconds: float,
    fps: float,
) -> Trajectory:
    """Points along the body at every frame, with 0.5 mm of noise, of which 3 % are lost."""
    substeps, steps = round(1.0 / (fps * mujoco_model.dt)), round(seconds * fps)
    controls = np.zeros((1, steps, mujoco_model.nu))
    controls[:, :, 0] = growth
    states, _ = mujoco_model.rollout(state[None], controls, parameters, substeps=substeps)
    points = along_body(mujoco_model.model, states[0], np.linspace(0.0, 1.0, NUM_POINTS))
    points += NOISE * rng.normal(size=points.shape)
    points[rng.random(points.shape[:2]) < LOST] = np.nan
    names = tuple(f"point{k}.{axis}" for k in range(NUM_POINTS) for axis in "xy")
    flat = points.reshape(steps + 1, -1)
    units, times = ("m",) * flat.shape[1], np.arange(steps + 1) / fps
    return Trajectory(
        times, controls[0], flat, names, units, mujoco_model.control_names, ("m/s",), substeps, {"robot": "vine MuJoCo model"}
    )


NUM_POINTS = 21
NOISE = 5e-4
"""[m] Standard deviation of a tracked coordinate."""
LOST = 0.03
"""Share of points that the tracker does not find."""


def write_points(trajectory: Trajectory, path: Path) -> Path:
    """A recording as the file that a tracker would write: `time [s], point, x [mm], y [mm]`; lost points have no line."""
    values = trajectory.values.reshape(len(trajectory.times), -1, 2)
    lines = ["time [s],point,x [mm],y [mm]"]
    for time, row in zip(trajectory.times, values, strict=True):
        lines += [f"{time:.6f},{k},{1e3 * x:.3f},{1e3 * y:.3f}" for k, (x, y) in enumerate(row) if np.isfinite(x + y)]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    return path


def scene_text(model: VineModel) -> str:
    """The TOML scene of a robot with at most walls around it, for `scene_file.load_scene`."""
    keys = ("num_links", "max_length", "radius", "initial_length", "num_sections", "max_growth")
    lines = ["[robot]", *(f"{key} = {getattr(model, key)}" for key in keys)]
    for x, y, angle in model.poses:
        lines += ["[[obstacles]]", f"wall = {{ point = [{x}, {y}], angle = {angle} }}"]
    return "\n".join(lines) + "\n"
