"""System identification for any `softgym_envs.core.simulator.Simulator`: problem -> method -> result -> report.

::

    problem = FitProblem(simulator, recordings.split(3, 1, 1), free=("cable_stiffness", "cable_damping"))
    result = one_step(problem)
    print(result.summary())
    save(result, "runs/fit")  # fit.toml, fit.json, report.html

`METHODS` lists the methods; `run_procedure` runs a system's procedure stage by stage.

Bad recordings end in a `DataError`; parameters that the data cannot tell apart end in a diagnostic instead of a number.
"""

from .api import identify, identify_online, load, record
from .diagnostics.result import Estimate, FitResult
from .diagnostics.sentences import Diagnostic
from .diagnostics.uncertainty import Combination, JointParameters, PosteriorParameters
from .diagnostics.validation import HorizonError, open_loop
from .fitting import METHODS, Method
from .fitting.evolution import EvolutionOptions, cma_es
from .fitting.innovations import InnovationOptions, innovations
from .fitting.mpec import MpecOptions, mpec
from .fitting.online import HorizonOptions, HorizonResult, online
from .fitting.residual import ResidualFit, ResidualOptions, fit_residual
from .fitting.shooting import ShootingOptions, multiple_shooting, one_step, single_shooting
from .fitting.simultaneous import SimultaneousOptions, simultaneous
from .least_squares.levenberg import IterLog, LevenbergOptions
from .problem.noise import noise_of
from .problem.problem import FitProblem, Measurement
from .problem.recording_parameters import RecordingParameters
from .procedure import Identification, StageResult, run_procedure
from .report import save

__all__ = [
    "METHODS",
    "Combination",
    "Diagnostic",
    "Estimate",
    "EvolutionOptions",
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
    "PosteriorParameters",
    "RecordingParameters",
    "ResidualFit",
    "ResidualOptions",
    "ShootingOptions",
    "SimultaneousOptions",
    "StageResult",
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
    "run_procedure",
    "save",
    "simultaneous",
    "single_shooting",
]
