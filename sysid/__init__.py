"""System identification: recordings -> parameters with intervals and diagnostics, for any system.

::

    data = sysid.record("vine", backend="mujoco", sensor="camera", seed=1)  # or sysid.load("run.csv")
    fit = sysid.identify("vine", data)
    print(fit.summary())
    fit.save("fit.toml")  # for gym.make(..., params="fit.toml")
    print(sysid.predict(fit, sysid.load("another.csv")).summary())

`FitProblem` and the methods (`METHODS`) are for simulators of your own. Bad recordings end in a `DataError`; parameters that
the data cannot tell apart end in a diagnostic instead of a number.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import identify, identify_online, load, predict, record, track
    from .diagnostics.predictions import Predictor
    from .diagnostics.sentences import Diagnostic
    from .fitting.mpec import mpec
    from .fitting.residual import fit_residual
    from .fitting.shooting import multiple_shooting
    from .fitting.simultaneous import simultaneous
    from .fitting.table import METHODS
    from .problem.problem import FitProblem
    from .procedure.identification import Identification
    from .procedure.prediction import Prediction

_MODULES = {
    "METHODS": "fitting.table",
    "Diagnostic": "diagnostics.sentences",
    "FitProblem": "problem.problem",
    "Identification": "procedure.identification",
    "Prediction": "procedure.prediction",
    "Predictor": "diagnostics.predictions",
    "fit_residual": "fitting.residual",
    "identify": "api",
    "identify_online": "api",
    "load": "api",
    "mpec": "fitting.mpec",
    "multiple_shooting": "fitting.shooting",
    "predict": "api",
    "record": "api",
    "simultaneous": "fitting.simultaneous",
    "track": "api",
}
"""Public name -> module, imported when the name is first used: reading a file takes no fitting."""

__all__ = [
    "METHODS",
    "Diagnostic",
    "FitProblem",
    "Identification",
    "Prediction",
    "Predictor",
    "fit_residual",
    "identify",
    "identify_online",
    "load",
    "mpec",
    "multiple_shooting",
    "predict",
    "record",
    "simultaneous",
    "track",
]


def __getattr__(name: str) -> Any:
    """The public object of this name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    return found
