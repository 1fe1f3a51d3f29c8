"""Rest pose of a structure: form-finding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import optimize

from ...core.errors import StructureError
from ...core.files import read_toml
from ...core.parameters import GivenParameters, Parameters
from ...core.simulator import Array
from .dynamics import TensegritySimulator
from .model import TensegrityModel
from .parameters import TensegrityBody, TensegrityParameters

UNIT = 0.1
"""Length in which form-finding computes, over the mean length of the rods: its first step is about one."""
SHAKE = 1e-3
"""Standard deviation of the shaking of the guess, in that unit."""
REST_FORCE = 1e-9
"""Largest force at rest, over that of a cable stretched by one unit."""


def settle(model: TensegrityModel, parameter_values: GivenParameters | None = None) -> TensegrityModel:
    """A structure from a file in its rest pose with these parameters; those that are not named are the structure's own.

    Raises:
        FileFormatError: The file of parameters cannot be read.
        ParameterError: A parameter of the body is in another unit, or out of bounds.
        StructureError: See `find_form`.
    """
    named = TensegrityBody.names()
    if isinstance(parameter_values, (str, Path)):
        table = read_toml(parameter_values).get("parameters")
        found = {name: entry for name, entry in table.items() if name in named} if isinstance(table, dict) else {}
        own = TensegrityBody.read_table(parameter_values, found)
    elif isinstance(parameter_values, Parameters):
        row = parameter_values.row(0)
        own = {name: getattr(row, name) for name in row.names() if name in named}
    else:
        own = {name: value for name, value in (parameter_values or {}).items() if name in named}
    return find_form(model, TensegrityParameters(**{**model.parameter_values, **own}))


def find_form(model: TensegrityModel, parameters: TensegrityParameters | None = None) -> TensegrityModel:
    """The structure with its nodes moved to the pretensioned rest pose: where the cables' elastic energy is least.

    Legend: x (6 R,) the rods' ends, each rod cut or drawn to its length about its middle, in units of `UNIT`. BFGS goes down
    from the given nodes, a little shaken, since a symmetric guess may be a saddle; Levenberg-Marquardt then finds the zero of
    the gradient to rounding.

    Args:
        model: The structure; its nodes are the guess.
        parameters: Parameters (their gravity is ignored); None: the structure's own.

    Raises:
        StructureError: It finds no rest, or rests with all cables slack.
    """
    energy = _Energy(TensegritySimulator(model), parameters or TensegrityParameters(**model.parameter_values))
    initial_guess = model.nodes / energy.unit
    initial_guess += SHAKE * np.random.default_rng(0).standard_normal(initial_guess.shape)
    low = optimize.minimize(energy, initial_guess.ravel(), jac=True, method="BFGS", options={"gtol": 1e-4})
    found = optimize.least_squares(lambda x: energy(x)[1], low.x, method="lm", xtol=1e-13, ftol=1e-13, gtol=1e-13)
    nodes = energy.nodes(found.x)[0]
    state = model.state_from_nodes(nodes)[None]
    if not (energy.simulator.cable_tensions(state, energy.parameters) > 0).any():
        length = float(energy.parameters.rest_length)
        raise StructureError(f"{model.name!r} settles with all cables slack: rest_length {length} m is too long")
    if not np.abs(found.fun).max() < REST_FORCE:
        raise StructureError(
            f"{model.name!r} finds no rest pose from these nodes: has it a mechanism, or too little pretension?"
        )
    nodes = nodes - model.center_of_mass(state)[0]
    return replace(model, nodes=nodes - [0.0, 0.0, float(nodes[:, 2].min()) - model.cap_radius])


class _Energy:
    """The cables' elastic energy over k UNIT^2, and its gradient, as a function of x; see `find_form`."""

    def __init__(self, simulator: TensegritySimulator, parameters: TensegrityParameters) -> None:
        self.simulator, self.parameters, model = simulator, parameters, simulator.model
        self.unit = UNIT * float(model.rod_lengths.mean())
        self.ends = np.array(model.cables)
        self.stiffness = float(parameters.cable_stiffness) * np.array(model.stiffness_ratio or (1.0,) * model.num_cables)
        self.scale = float(parameters.cable_stiffness) * self.unit**2

    def nodes(self, x: Array) -> tuple[Array, Array, Array]:
        """Rods' ends (N, 3) [m], the rods' directions (R, 3), and half their length over that of x (R, 1)."""
        raw = self.unit * x.reshape(-1, 2, 3)
        along = raw[:, 1] - raw[:, 0]
        size = np.linalg.norm(along, axis=1, keepdims=True)
        half = 0.5 * self.simulator.model.rod_lengths[:, None] / size
        middle = raw.mean(axis=1)
        return np.stack([middle - half * along, middle + half * along], axis=1).reshape(-1, 3), along / size, half

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Energy, and its gradient (6 R,)."""
        nodes, along, half = self.nodes(x)
        tension = self.simulator.cable_tensions(self.simulator.model.state_from_nodes(nodes)[None], self.parameters)[0]
        line = nodes[self.ends[:, 1]] - nodes[self.ends[:, 0]]
        pull = tension[:, None] * line / np.maximum(np.linalg.norm(line, axis=1, keepdims=True), 1e-12)
        slope = np.zeros_like(nodes)
        np.add.at(slope, self.ends[:, 1], pull)
        np.add.at(slope, self.ends[:, 0], -pull)
        shift = 0.5 * (slope[::2] + slope[1::2])
        turn = half * (slope[1::2] - slope[::2])
        turn -= along * (along * turn).sum(axis=1, keepdims=True)
        gradient = np.stack([shift - turn, shift + turn], axis=1).ravel() * self.unit / self.scale
        return float((tension**2 / self.stiffness).sum() / 2 / self.scale), gradient
