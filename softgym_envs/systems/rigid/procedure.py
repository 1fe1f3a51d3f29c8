"""Recording and identification of block and particles: positions that a camera sees, and their friction.

A recording holds "x", "y" and "theta" of the block in the table's frame, "x" and "y" of a particle ("particle0.x", ... if there
are several). Without control columns no forces were applied other than weight and string.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.complementarity import ComplementarityForm
from ...core.parameters import Parameters
from ...core.procedure import (
    Causes,
    Experiment,
    InitialState,
    MethodData,
    Procedure,
    Recorded,
    Stage,
    StageData,
    StageSimulator,
    Steps,
    in_usual_steps,
)
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from .experiments import record
from .model import BlockModel

COARSE = 8
"""Edges of the friction cone in the complementarity form: enough to come near; the simulator's own decide in the end."""
FINE_CONE_EDGES = 512
"""Edges of a friction cone that is nearly round: a block that turned was off by 1.5 mm with 128, by 0.2 mm with these."""
ROUNDER = 128
"""Edges that are tried first where fewer do not explain a recording."""
CAMERA = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
"""[m, m, rad] Standard deviation of a camera's noise."""
PERIOD, SHORT_PERIOD = 0.02, 0.01
"""Time between two frames [s]; the second for particles in simulators with shorter steps."""
FINE_STEP = 2e-4
"""[s] Physics step to fit a laboratory's particles: with 10 ms a slide is off by up to 18 mm."""
PUSHED_STEP = 2.5e-4
"""[s] Physics step to fit a block that is pushed: forces that jump act half a step early, with 10 ms 7 mm after 1.4 s. With
1 ms three of six correct recordings (0.5 mm, 3 mrad) were not explained, with this step all were."""
PARTICLE_FORCE = 5.0
"""[N] Force on a particle."""
RATES = {"x": "vx", "y": "vy", "theta": "omega"}
"""Measured entry -> its rate."""
BEGIN, ROWS = 0.15, 6
"""Duration of a recording from which its initial state is estimated [s], and least rows."""
BLOCK_CANDIDATE_CAUSES = {
    "forces that act late": ("latency",), "drag": ("drag",), "a table that is not level": ("tilt_x", "tilt_y"),
    "lengths on another scale": ("scale",), "another weight at the string": ("weight",), "another mass": ("mass",),
}  # fmt: skip
PARTICLE_CANDIDATE_CAUSES = {
    "another mass": ("mass",), "lengths on another scale": ("scale",), "forces that act late": ("latency",), "drag": ("drag",),
    "ground that is not level": ("tilt_x",),
}  # fmt: skip
"""See `Causes.candidates`."""
MIN_DEVIATIONS = 6.0
"""Standard deviations by which a speed must differ from zero: a start at rest is better guessed as such than from noise."""


def pulled(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Record the block from rest under the weight on its string."""
    controls = np.zeros((max(round(steps * ground_truth.dt / PERIOD), 1), ground_truth.nu))
    return record(ground_truth, ground_truth.initial_state()[0], controls, parameters, noise=CAMERA, rng=rng, period=PERIOD)


def slid(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Record particles from rest under a constant push; one frame per physics step, or per several short ones."""
    period = max(ground_truth.dt, SHORT_PERIOD)
    controls = np.full((max(round(steps * ground_truth.dt / period), 1), ground_truth.nu), PARTICLE_FORCE)
    return record(ground_truth, ground_truth.initial_state()[0], controls, parameters, noise=CAMERA, rng=rng, period=period)


def exactly(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """The same motions in exact poses at every physics step: for a camera, which adds its own noise."""
    force = 0.0 if isinstance(ground_truth.model, BlockModel) else PARTICLE_FORCE
    controls, exact = np.full((steps, ground_truth.nu), force), dict.fromkeys(CAMERA, 0.0)
    return record(ground_truth, ground_truth.initial_state()[0], controls, parameters, noise=exact, rng=rng)


def frictions(simulator: Any) -> tuple[str, ...]:
    """Names of the frictions of all bodies."""
    return tuple(name for name in simulator.default_parameters.names() if name.startswith("friction"))


def infer_controls(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """Set forces to zero where none is recorded."""
    if trajectory.control_names:
        return trajectory
    still = np.zeros((trajectory.num_steps, simulator.nu))
    return trajectory.with_controls(still, simulator.control_names, ("N",) * simulator.nu)


def first_state(simulator: Any, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
    """Recording -> pose and velocity (nx,) by a parabola through its first rows, as throws start in motion.

    A line where rows are few; at rest where no speed differs from zero (`MIN_DEVIATIONS`); None where no position is measured.
    """
    there = [name for name in names if name in simulator.state_names and name.split(".")[-1] in RATES]
    places = {name: simulator.state_names.index(name) for name in there}
    rates = {name: simulator.state_names.index(_rate(name)) for name in places}
    if not places:
        return None

    def initial_guess(trajectory: Trajectory) -> Array:
        rest: Array = simulator.initial_state(1)[0].copy()
        rows = max(round(BEGIN / trajectory.period) + 1, ROWS)
        times, values = trajectory.times[:rows] - trajectory.times[0], trajectory.select(tuple(places)).values[:rows]
        moving, moves = rest.copy(), False
        for name, column in zip(places, values.T, strict=True):
            if np.isfinite(column[0]):
                rest[places[name]] = moving[places[name]] = column[0]
            seen = np.isfinite(column)
            if seen.sum() > 1:
                place, speed, error = _begun(times[seen], column[seen])
                moving[places[name]], moving[rates[name]] = place, speed
                moves = moves or abs(speed) > MIN_DEVIATIONS * error
        return moving if moves else rest

    return initial_guess


def _begun(times: Array, column: Array) -> tuple[float, float, float]:
    """Position and speed at time zero, and the standard deviation of the speed; zero where no row is left to estimate it."""
    powers = np.vander(times, 3 if len(times) >= ROWS else 2, increasing=True)
    found, *_ = np.linalg.lstsq(powers, column, rcond=None)
    spare = len(times) - powers.shape[1]
    variance = float(np.sum((column - powers @ found) ** 2)) / spare if spare else 0.0
    return float(found[0]), float(found[1]), float(np.sqrt(variance * np.linalg.inv(powers.T @ powers)[1, 1]))


def _rate(name: str) -> str:
    """Name of a position's rate: "particle0.x" -> "particle0.vx"."""
    body, dot, entry = name.rpartition(".")
    return f"{body}{dot}{RATES[entry]}"


def complementarity(simulator: Any, substeps: int = 1) -> ComplementarityForm:
    """The physics step for `sysid.fitting.mpec`; a block's cone has at most `COARSE` edges, its steps are merged.

    Args:
        simulator: A simulator of this system.
        substeps: Its physics steps per frame; a whole part of them may be merged into one.

    Raises:
        MissingDependencyError: CasADi is not installed.
    """
    from .symbolic import complementarity_form

    if not isinstance(simulator.model, BlockModel):
        return complementarity_form(simulator)
    parts = [n for n in range(1, substeps + 1) if substeps % n == 0 and n * simulator.dt <= type(simulator).dt * (1 + 1e-9)]
    model = replace(simulator.model, num_directions=min(COARSE, simulator.model.num_directions))
    steps = max(parts, default=1)
    return replace(complementarity_form(replace(simulator, model=model, dt=steps * simulator.dt)), substeps=steps)


def finer(simulator: Any) -> Any:
    """Halve the step, and make the friction cone rounder."""
    model = simulator.model
    if isinstance(model, BlockModel):
        edges = ROUNDER if model.num_directions < ROUNDER else max(FINE_CONE_EDGES, model.num_directions)
        model = replace(model, num_directions=edges)
    return replace(simulator, model=model, dt=0.5 * simulator.dt)


def rounder(simulator: Any) -> Any:
    """Give a block a nearly round friction cone, unless its file specifies another: no table has edges."""
    model = simulator.model
    if not isinstance(model, BlockModel) or model.num_directions != BlockModel.num_directions:
        return simulator
    return replace(simulator, model=replace(model, num_directions=FINE_CONE_EDGES))


def _procedure(experiment: Experiment, candidate_causes: Mapping[str, tuple[str, ...]], **steps: float) -> Procedure:
    """Procedure of a scene; both move by themselves, so recordings with constant controls are accepted."""
    moving, causes = StageData(free_motion=True), Causes(candidate_causes)
    return Procedure(
        experiments=(experiment,),
        stages=(Stage("friction", experiment.name, frictions, "mpec", data=moving, causes=causes),),
        from_recordings=Stage(
            "from_recordings",
            "",
            frictions,
            "mpec",
            {"intervals": {"half_step": True}},
            simulator=StageSimulator(adapt=rounder, fallback=in_usual_steps),
            data=moving,
            causes=causes,
        ),
        steps=Steps(finer=finer, **steps),
        recorded=Recorded(infer_controls=infer_controls),
        initial=InitialState(first_state),
        methods=MethodData(complementarity=complementarity),
    )


BLOCK = _procedure(Experiment("pulled", pulled, 100, from_markers=exactly), BLOCK_CANDIDATE_CAUSES, driven=PUSHED_STEP)
PARTICLES = _procedure(Experiment("slid", slid, 100, from_markers=exactly), PARTICLE_CANDIDATE_CAUSES, longest=FINE_STEP)
