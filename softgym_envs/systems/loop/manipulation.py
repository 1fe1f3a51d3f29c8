"""The manipulation that identifies the loop: it is stretched, bent and twisted, as in the experiment of [Caldwell2014].

The paper publishes neither its motion nor its recording. This one moves the hand along three directions and turns two joints of
the wrist, each as a sine with a slow beginning and end. Legend: T control steps, n coordinates, P parameters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.errors import StructureError
from ...core.simulator import Array, Status
from ...mechanics.mechanism import Mechanism, Motion
from .model import ARM, LoopModel

STIFF = (80.0, 92.0, 69.0, 53.0, 65.0, 40.0, 8.0)
"""Gains that hold the arm on its path [N m/rad]."""
STILL = 0.5
"""[s] Time for which the hand rests at first."""
REACH = ((0.0, 0.0, 0.072), (0.072, 0.0, 0.0), (0.0, 0.09, 0.0))
"""[m] The hand moves up and down (stretch), and to both sides (bend)."""
TURN = {"w2": 0.48, "w1": 0.24}
"""[rad] The hand turns about the vertical (twist) and nods."""
CYCLES = ((3, 0.0), (2, 1.0), (4, 0.5), (5, 0.0), (3, 2.0))
"""Cycles during the manipulation, and phase [rad], of the three ways and two turns."""
SCALES = {6: 0.18, 12: 0.6}
"""Links -> factor of the manipulation that is stable at 10 ms; six links have no motion of their own and reach less far."""


class Recording(NamedTuple):
    """Baxter's measurements."""

    forces: Array
    """(T, 7) torques [N m]"""
    angles: Array
    """(T + 1, 7) [rad]"""

    def disturbed(self, rng: np.random.Generator, *, force: float, angle: float, bias: float = 0.0) -> Recording:
        """Recording with white noise of standard deviations `force` [N m], `angle` [rad], and torques `bias` [N m] too high."""
        forces = self.forces + bias + force * rng.standard_normal(self.forces.shape)
        return Recording(forces, self.angles + angle * rng.standard_normal(self.angles.shape))


class Waves(NamedTuple):
    """Five sines: the hand's three ways and two turns."""

    cycles: Array
    """(5,) cycles during the manipulation"""
    phases: Array
    """(5,) [rad]"""
    sizes: Array
    """(5,) factors of `REACH` and `TURN`"""
    offsets: Array | float = 0.0
    """(5,) distances from the start where they begin and end, as factors of `REACH` and `TURN`"""


def reference(
    model: LoopModel,
    steps: int,
    *,
    dt: float = 0.01,
    scale: float = 1.0,
    rng: np.random.Generator | None = None,
    waves: Waves | None = None,
) -> Array:
    """Angles of the arm along the manipulation.

    Args:
        model: Arm and loop.
        steps: T.
        dt: Time between angles [s].
        scale: Factor of its size.
        rng: Draws the sines' phases; None: those of `CYCLES`.
        waves: Other sines, and nothing is drawn.

    Returns:
        (T + 1, 7) [rad]
    """
    q = np.zeros((1, model.n))
    q[0, : len(ARM)] = model.start
    inverse = np.linalg.pinv(model.mechanism.point_slopes("H", q)[0, :, : len(ARM)])
    turns = [size * (np.array(ARM) == name) for name, size in TURN.items()]
    ways = np.array([*(inverse @ np.array(way) for way in REACH), *turns])
    still = round(STILL / dt)
    share = np.clip((np.arange(steps + 1) - still) / max(steps - still, 1), 0.0, 1.0)
    if waves is None:
        cycles, phases = np.array(CYCLES).T
        waves = Waves(cycles, phases if rng is None else rng.uniform(0.0, 2 * np.pi, len(CYCLES)), np.ones(len(CYCLES)))
    sines = waves.sizes * np.sin(2 * np.pi * waves.cycles * share[:, None] + waves.phases)
    return np.asarray(np.array(model.start) + scale * (waves.offsets + sines * np.sin(np.pi * share[:, None]) ** 2) @ ways)


def manipulate(
    model: LoopModel, mechanism: Mechanism, parameter_values: Array, steps: int, *, scale: float = 1.0, substeps: int = 1
) -> Motion:
    """Simulate the loop under the manipulation, from rest; the arm is held on its path by gains of 2 `STIFF`.

    Raises:
        StructureError: The loop cannot follow: it is too short for this scale, or the step too long for its stiffness.
    """
    path = reference(model, steps, dt=mechanism.dt * substeps, scale=scale)
    q = np.zeros((1, mechanism.n))
    q[0, : len(ARM)] = model.start
    rest = mechanism.rest(q, parameter_values=parameter_values, held=ARM)
    hold, gains = rest.needed[:, : len(ARM)], np.zeros((len(ARM), mechanism.nx))
    gains[:, : len(ARM)] = 2 * np.diag(STIFF)
    state = mechanism.rest_state(rest.q, hold, parameter_values)
    motion = mechanism.simulate(
        state, hold + path[None, :-1] @ gains[:, : len(ARM)].T, parameter_values, substeps=substeps, gains=gains
    )
    if motion.status[0] != Status.OK:
        raise StructureError(f"the loop cannot follow a manipulation of scale {scale:g} with a step of {mechanism.dt:g} s")
    return motion


def record(
    model: LoopModel, mechanism: Mechanism, parameter_values: Array, steps: int, *, scale: float = 1.0, substeps: int = 1
) -> Recording:
    """Torques and angles of `manipulate`, without noise."""
    motion = manipulate(model, mechanism, parameter_values, steps, scale=scale, substeps=substeps)
    return Recording(motion.applied[0], motion.states[0, :, : len(ARM)])
