"""How block and particles are recorded and identified: positions that a camera sees, and their friction.

A recording holds "x", "y" and "theta" of the block in the table's frame, "x" and "y" of a particle ("particle0.x", ... if there
are several). Without control columns no force was applied but weight and string.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..core.complementarity import ComplementarityForm
from ..core.parameters import Parameters
from ..core.recipe import Experiment, Recipe, Stage
from ..core.trajectory import Trajectory
from .experiments import record
from .model import BlockModel

COARSE = 8
"""Edges of the friction cone in the complementarity form: enough to come near; the simulator's own decide in the end."""
FINE = 128
"""Edges of a friction cone that is nearly round."""
CAMERA = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
"""[m, m, rad] Standard deviation of a camera's noise."""
PERIOD, SHORT_PERIOD = 0.02, 0.01
"""[s] Between two frames; of particles on a world with shorter steps."""
PUSH = 5.0
"""[N] On a particle."""


def pulled(truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """The block, from rest, under the weight on its string."""
    controls = np.zeros((max(round(steps * truth.dt / PERIOD), 1), truth.nu))
    return record(truth, truth.initial_state()[0], controls, parameters, noise=CAMERA, rng=rng, period=PERIOD)


def slid(truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Particles, from rest, under a constant push; a frame per physics step, or per some short ones."""
    period = max(truth.dt, SHORT_PERIOD)
    controls = np.full((max(round(steps * truth.dt / period), 1), truth.nu), PUSH)
    return record(truth, truth.initial_state()[0], controls, parameters, noise=CAMERA, rng=rng, period=period)


def frictions(simulator: Any) -> tuple[str, ...]:
    """The friction of every body."""
    return tuple(name for name in simulator.default_parameters.names() if name.startswith("friction"))


def infer_controls(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """No force where none is recorded."""
    if trajectory.control_names:
        return trajectory
    still = np.zeros((trajectory.num_steps, simulator.nu))
    return trajectory.with_controls(still, simulator.control_names, ("N",) * simulator.nu)


def complementarity(simulator: Any) -> ComplementarityForm:
    """The physics step for `sysid.mpec`; the block's with a cone of at most `COARSE` edges.

    Raises:
        MissingDependencyError: CasADi is not installed.
    """
    from .symbolic import complementarity_form

    if isinstance(simulator.model, BlockModel):
        model = replace(simulator.model, num_directions=min(COARSE, simulator.model.num_directions))
        simulator = replace(simulator, model=model)
    return complementarity_form(simulator)


def finer(simulator: Any) -> Any:
    """Half the step, and a friction cone that is nearly round."""
    model = simulator.model
    if isinstance(model, BlockModel):
        model = replace(model, num_directions=max(FINE, model.num_directions))
    return replace(simulator, model=model, dt=0.5 * simulator.dt)


def _recipe(experiment: Experiment) -> Recipe:
    """Both scenes move by themselves, so constant controls are no objection to a recording."""
    return Recipe(
        experiments=(experiment,),
        stages=(Stage("friction", experiment.name, frictions, "mpec", free_motion=True),),
        laboratory=Stage("laboratory", "", frictions, "mpec", free_motion=True),
        infer_controls=infer_controls,
        complementarity=complementarity,
        finer=finer,
    )


BLOCK = _recipe(Experiment("pulled", pulled, 80))
PARTICLES = _recipe(Experiment("slid", slid, 100))
