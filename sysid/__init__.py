"""System identification for any `softgym_envs.core.simulator.Simulator`: problem -> method -> result -> report.

::

    problem = FitProblem(simulator, recordings.split(3, 1, 1), free=("cable_stiffness", "cable_damping"))
    result = one_step(problem)
    print(result.summary())
    save(result, "runs/fit")  # fit.toml, fit.json, report.html

`METHODS` lists the methods; `run_recipe` runs a room's recipe stage by stage.

Bad recordings end in a `DataError`; constants that the data cannot tell apart end in a verdict instead of a number.
"""

from .api import identify, identify_online, load, record
from .data.noise import noise_of
from .data.problem import FitProblem, Measurement
from .data.view import View
from .judgement.result import Estimate, FitResult
from .judgement.sentences import Diagnostic
from .judgement.uncertainty import Combination, JointParameters, PosteriorParameters
from .judgement.validation import HorizonError, open_loop
from .least_squares.levenberg import IterLog, LevenbergOptions
from .methods import METHODS, Method
from .methods.adam import AdamOptions, adam
from .methods.evolution import EvolutionOptions, cma_es
from .methods.innovations import InnovationOptions, innovations
from .methods.mpec import MpecOptions, mpec
from .methods.online import HorizonOptions, HorizonResult, online
from .methods.particle import FilterResult, ParticleOptions, bootstrap_filter
from .methods.residual import ResidualFit, ResidualOptions, fit_residual
from .methods.shooting import ShootingOptions, multiple_shooting, one_step, single_shooting
from .methods.simultaneous import SimultaneousOptions, simultaneous
from .recipe import Identification, StageResult, run_recipe
from .report import save

__all__ = [
    "METHODS",
    "AdamOptions",
    "Combination",
    "Diagnostic",
    "Estimate",
    "EvolutionOptions",
    "FilterResult",
    "FitProblem",
    "FitResult",
    "HorizonError",
    "HorizonOptions",
    "HorizonResult",
    "Identification",
    "InnovationOptions",
    "IterLog",
    "JointParameters",
    "LevenbergOptions",
    "Measurement",
    "Method",
    "MpecOptions",
    "ParticleOptions",
    "PosteriorParameters",
    "ResidualFit",
    "ResidualOptions",
    "ShootingOptions",
    "SimultaneousOptions",
    "StageResult",
    "View",
    "adam",
    "bootstrap_filter",
    "cma_es",
    "fit_residual",
    "identify",
    "identify_online",
    "innovations",
    "load",
    "mpec",
    "multiple_shooting",
    "noise_of",
    "one_step",
    "online",
    "open_loop",
    "record",
    "run_recipe",
    "save",
    "simultaneous",
    "single_shooting",
]
