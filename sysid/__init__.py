"""System identification for any `softgym_envs.core.simulator.Simulator`: problem -> method -> result -> report.

::

    problem = FitProblem(simulator, recordings.split(3, 1, 1), free=("cable_stiffness", "cable_damping"))
    result = one_step(problem)
    print(result.summary())
    result.save("results/fit")  # fit.toml, fit.json, report.html

Bad recordings end in a `DataError`; constants that the data cannot tell apart end in a verdict instead of a number.
"""

from .data.noise import noise_of
from .data.problem import FitProblem, IdentificationSetup, Measurement, OffersComplementarity, OffersProgram
from .judgement.result import Estimate, FitResult, Verdict, load_distribution
from .judgement.uncertainty import Combination, PosteriorParameters
from .judgement.validation import HorizonError, open_loop
from .methods.adam import AdamOptions, adam
from .methods.evolution import EvolutionOptions, cma_es
from .methods.horizon import HorizonOptions, HorizonResult, moving_horizon
from .methods.levenberg import IterLog, LevenbergOptions
from .methods.mpec import MpecOptions, mpec
from .methods.particle import FilterResult, ParticleOptions, bootstrap_filter
from .methods.residual import ResidualFit, ResidualOptions, fit_residual
from .methods.shooting import ShootingOptions, multiple_shooting, one_step, single_shooting
from .methods.simultaneous import SimultaneousOptions, simultaneous

__all__ = [
    "AdamOptions",
    "Combination",
    "Estimate",
    "EvolutionOptions",
    "FilterResult",
    "FitProblem",
    "FitResult",
    "HorizonError",
    "HorizonOptions",
    "HorizonResult",
    "IdentificationSetup",
    "IterLog",
    "LevenbergOptions",
    "Measurement",
    "MpecOptions",
    "OffersComplementarity",
    "OffersProgram",
    "ParticleOptions",
    "PosteriorParameters",
    "ResidualFit",
    "ResidualOptions",
    "ShootingOptions",
    "SimultaneousOptions",
    "Verdict",
    "adam",
    "bootstrap_filter",
    "cma_es",
    "fit_residual",
    "load_distribution",
    "moving_horizon",
    "mpec",
    "multiple_shooting",
    "noise_of",
    "one_step",
    "open_loop",
    "simultaneous",
    "single_shooting",
]
