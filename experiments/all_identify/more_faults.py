"""Diagnostics of the documented command on five ground truths that are no mismatch level, each as a user would bring them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
from cases import CASES, ELBOW
from fault_cases import FRICTION, Asked, Row, block, stepwise, swung

from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems.arm.mujoco import MujocoElbow
from softgym_envs.systems.arm.procedure import excited

BITS = 2.0 * np.pi / 256
"""[rad] A step of an encoder of 8 bits."""
DRIFT = 1.005
"""Seconds of the recorder's clock per true second."""
SWAPPED = 0.1
"""Share of frames in which a tracker mixes up two neighbours."""
BOB = (0.5, 0.15)
"""[kg], [m] Mass and length of the weight that swings from the hand."""


def from_ladder(system: str, change: Callable[[Trajectory], Trajectory]) -> Callable[[int], Asked]:
    """Our own engine's recordings of the ladder, changed by a function."""

    def make(seed: int) -> Asked:
        made = CASES[system](system, "own", seed, np.random.default_rng(seed))
        return Asked(system, tuple(change(one) for one in made.recordings), made.true, made.start, csv=False)

    return make


def drifting(recording: Trajectory) -> Trajectory:
    """Times of a fast clock, as in a file."""
    return replace(recording, times=recording.times * DRIFT, substeps=1, metadata={"source": "file"})


def rough(recording: Trajectory) -> Trajectory:
    """Round angles to encoders of 8 bits."""
    angle = np.array([unit == "rad" for unit in recording.units])
    return replace(recording, values=np.where(angle, np.round(recording.values / BITS) * BITS, recording.values))


def swapped(seed: int) -> Asked:
    """A vine whose tracker mixes up neighbouring points in one of ten frames."""
    asked, rng = swung(seed), np.random.default_rng(seed)
    values = asked.recordings[0].values.copy()
    for row in values[rng.random(len(values)) < SWAPPED]:
        k = 2 * int(rng.integers(0, 20))
        row[k : k + 4] = row[[k + 2, k + 3, k, k + 1]]
    return replace(asked, recordings=(replace(asked.recordings[0], values=values),))


def halfway(seed: int) -> Asked:
    """The table is twice as rough from 0.4 s on; the parameter to identify is the smooth half's friction."""
    smooth = 0.6 * FRICTION
    data, _ = stepwise(lambda time, _: smooth if time < 0.4 else 2.0 * smooth, seed)
    return replace(block(seed, data), true={"friction": smooth})


def swinging(seed: int) -> Asked:
    """An elbow with a weight swinging from its hand, in MuJoCo; all parameters are nominal, the file states no payload."""
    mujoco_model, rng = MujocoElbow(), np.random.default_rng(seed)
    mass, length = BOB
    inertial = f'<inertial pos="0 0 {-length}" mass="{mass}" diaginertia="1e-5 1e-5 1e-5"/>'
    bob = f'<body><joint axis="0 -1 0"/>{inertial}</body></body></body>'
    world = mujoco.MjModel.from_xml_string(mujoco_model._xml().replace("</body>\n</body>", bob))
    mujoco_model._write(world, mujoco_model.parameter_values(None, 1)[0])
    data = tuple(
        _moved(world, excited(mujoco_model, rng, steps=round(8.0 / mujoco_model.dt))).with_noise(rng, _noise(mujoco_model))
        for _ in range(2)
    )
    own: Any = mujoco_model.default_parameters
    free = [n for n in own.names() if n.endswith("force") or n in ("damping", "rise_time", "fall_time")]
    return Asked("arm", data, {name: float(getattr(own, name)) for name in free}, csv=False)


def _noise(mujoco_model: Any) -> dict[str, float]:
    return dict(zip(mujoco_model.state_names, (ELBOW["angle"], ELBOW["rate"], *[ELBOW["activation"]] * 2), strict=True))


def _moved(world: mujoco.MjModel, recording: Trajectory) -> Trajectory:
    """Simulate two joints and two muscles under a recording's excitations, from its start, the weight at rest."""
    data, values = mujoco.MjData(world), recording.values.copy()
    data.qpos[0], data.qpos[1] = values[0, 0], -values[0, 0]
    substeps = round(recording.period / world.opt.timestep)
    for k, control in enumerate(recording.controls):
        data.ctrl[:] = control
        mujoco.mj_step(world, data, substeps)
        values[k + 1] = [data.qpos[0], data.qvel[0], *data.act[:2]]
    return replace(recording, values=values)


OTHERS = {
    "clock": Row("elbow, the recorder's clock 0.5 % too fast", from_ladder("arm", drifting), 2),
    "bits": Row("loop, angles of 8 bits", from_ladder("loop", rough), 2),
    "swapped": Row("vine, two markers' names swapped in a tenth of the frames", swapped, 3),
    "halfway": Row("block, the table twice as rough from halfway on", halfway, 2),
    "swinging": Row("elbow, 0.5 kg swing from the hand on 0.15 m", swinging, 2),
}
