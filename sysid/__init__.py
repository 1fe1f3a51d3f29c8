"""System identification: recordings -> parameters with intervals and diagnostics, for any system.

::

    data = sysid.record("vine", backend="mujoco", sensor="camera", seed=1)  # or sysid.load("run.csv")
    fit = sysid.identify("vine", data)
    print(fit.summary())
    fit.save("fit.toml")  # for gym.make(..., params="fit.toml")

`FitProblem` and the methods (`METHODS`) are for simulators of your own. Bad recordings end in a `DataError`; parameters that
the data cannot tell apart end in a diagnostic instead of a number.
"""

from .api import identify, identify_online, load, record
from .diagnostics.sentences import Diagnostic
from .fitting import METHODS
from .fitting.mpec import mpec
from .fitting.residual import fit_residual
from .fitting.shooting import multiple_shooting
from .fitting.simultaneous import simultaneous
from .problem.problem import FitProblem
from .procedure import Identification

__all__ = [
    "METHODS",
    "Diagnostic",
    "FitProblem",
    "Identification",
    "fit_residual",
    "identify",
    "identify_online",
    "load",
    "mpec",
    "multiple_shooting",
    "record",
    "simultaneous",
]
