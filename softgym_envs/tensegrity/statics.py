"""Rest pose and stability of a structure: form-finding, and the check that dt is small enough for the cables' damping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.errors import StructureError
from .dynamics import TensegritySimulator
from .model import TensegrityModel
from .parameters import TensegrityParameters
from .structure_file import load_structure

Array = NDArray[np.float64]

SETTLED_SPEED = 1e-8
"""[m/s, rad/s] A peak of motion below this ends the relaxation."""


@dataclass(frozen=True)
class Stability:
    """Linear stability of the rest pose, without gravity and contact, under semi-implicit Euler."""

    spectral_radius: float
    """Largest |eigenvalue| of one step; above 1 small motions grow."""
    lowest_eigenvalue: float
    """Smallest real eigenvalue; explicit damping overshoots as it nears -1 (the SUPERball's is -0.81)."""
    damping_number: float
    """c dt / m, the number that drives it there."""
    stable: bool
    """Whether no eigenvalue lies outside the unit circle (to 1e-6, for the free motions at exactly 1)."""

    def __str__(self) -> str:
        verdict = "stable" if self.stable else "unstable"
        advice = "" if self.stable else ": use a smaller dt or cable_damping, or a larger rod_mass"
        return f"{verdict}: c dt/m = {self.damping_number:.3g}, eigenvalues down to {self.lowest_eigenvalue:.3g}{advice}"


def stability(simulator: TensegritySimulator, parameters: TensegrityParameters | None = None) -> Stability:
    """Eigenvalues of one step about the structure's nodes at rest, lifted off the ground.

    The rest pose must be an equilibrium: see `find_form`.
    """
    parameters = (parameters or TensegrityParameters()).replace(gravity=0.0)
    state = _lifted(simulator.model, simulator.initial_state()[0])[None]
    A = simulator.linearize(state, np.zeros((1, simulator.nu)), parameters).A[0]
    values = np.linalg.eigvals(A)
    radius = float(np.abs(values).max())
    real = values.real[np.abs(values.imag) < 1e-9]
    number = float(parameters.cable_damping) * simulator.dt / float(parameters.rod_mass)
    # Free translations and rotations are double eigenvalues 1, which rounding spreads by its square root.
    return Stability(radius, float(real.min()), number, radius < 1 + 1e-6)


def find_form(
    model: TensegrityModel, parameters: TensegrityParameters | None = None, *, dt: float = 1e-3, duration: float = 60.0
) -> TensegrityModel:
    """The structure with its nodes moved to the pretensioned rest pose, by dynamic relaxation with kinetic damping.

    The engine itself runs without gravity, contact and cable damping from the given nodes; whenever the kinetic energy has
    passed a peak, which it does near an equilibrium, all velocities are set to zero (Barnes 1999, Int. J. Space Struct. 14).

    Args:
        model: The structure; its nodes are the guess.
        parameters: Constants (their gravity is ignored).
        dt: Physics step [s].
        duration: How long it may take [s].

    Raises:
        StructureError: It diverges (the message gives c dt/m), does not settle, or settles with all cables slack.
    """
    parameters = parameters or TensegrityParameters()
    relaxing = parameters.replace(gravity=0.0, cable_damping=parameters.specs()["cable_damping"].bounds[0])
    simulator = TensegritySimulator(model, dt=dt)
    state = _lifted(model, simulator.initial_state()[0])[None]
    center = model.center_of_mass(state)[0]
    moving = np.array([name.split(".")[-1] in ("vx", "vy", "vz", "wx", "wy", "wz") for name in simulator.state_names])
    energy = 0.0
    for _ in range(int(np.ceil(duration / (10 * dt)))):
        state, status = simulator.step(state, np.zeros((1, model.nu)), relaxing, substeps=10)
        if status[0]:
            raise StructureError(f"{model.name!r} diverges while finding its form: dt = {dt} s is too large for its stiffness")
        previous, energy = energy, float((state[:, moving] ** 2).sum())
        if energy <= previous:
            if previous < SETTLED_SPEED**2:
                break
            state[:, moving], energy = 0.0, 0.0
    else:
        raise StructureError(f"{model.name!r} still moves after {duration} s: it has a mechanism, or too little pretension")
    if not (simulator.cable_tensions(state, parameters) > 0).any():
        length = float(parameters.rest_length)
        raise StructureError(f"{model.name!r} settles with all cables slack: rest_length {length} m is too long")
    nodes = model.node_positions(state)[0] - center
    found = replace(model, nodes=nodes)
    return replace(found, nodes=nodes - [0.0, 0.0, float(nodes[:, 2].min()) - model.cap_radius])


def load_robot(path: str | Path) -> TensegrityModel:
    """A user's structure from a TOML file, in its pretensioned rest pose.

    Raises:
        FileFormatError: See `structure_file.load_structure`.
        StructureError: It makes no sense, or has no rest pose; see `find_form`.
    """
    return find_form(load_structure(path))


def _lifted(model: TensegrityModel, state: Array) -> Array:
    """Far above any terrain."""
    return model.move(state, translation=np.array([0.0, 0.0, 1e4]))
