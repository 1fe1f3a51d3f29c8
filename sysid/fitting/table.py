"""All methods that return a `FitResult`, behind one protocol: name, options, requirements on problem and system."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from softgym_envs.core.errors import OptionError, shown
from softgym_envs.core.procedure import Procedure
from softgym_envs.core.typed import typed

from ..diagnostics.result import FitResult
from ..problem.problem import FitProblem
from ..problem.recording_parameters import RecordingParameters
from .evolution import EvolutionOptions, cma_es
from .innovations import InnovationOptions, innovations
from .mpec import MpecOptions, mpec
from .running import Running
from .shooting import ShootingOptions, multiple_shooting, one_step, single_shooting
from .simultaneous import SimultaneousOptions, chosen_outputs, simultaneous

OFFERS = {"complementarity": "no complementarity form of its physics step", "program": "no symbolic step with measured columns"}
"""Field of a `Procedure` that a method may need -> error message without it."""


@dataclass(frozen=True)
class Method:
    """One way from a problem to a result."""

    name: str
    summary: str  # Description in one sentence.
    options: type[Any]  # Dataclass of the method's options.
    run: Callable[[FitProblem, Any, Procedure, Running], FitResult]
    needs: Literal["", "complementarity", "program"] = ""  # Field of the system's procedure that must not be None.
    known_noise: bool = False  # Whether the noise of every column must be known; else it is estimated from the recordings.
    views: bool = False
    """Whether parameters of the recordings may be free, or differ from those of a camera that is placed as drawn."""
    leaves_checkpoint: bool = False  # Whether an interrupted fit can be resumed.
    repeated: str = ""  # Method that repeats a fit from its end, with more parameters free; empty: this one.

    def takes(self, option: str) -> bool:
        """Whether the method has an option of this name."""
        return option in {f.name for f in dataclasses.fields(self.options)}

    def settings(self, given: Mapping[str, Any] | None = None) -> Any:
        """Options from plain values; a mapping where the option is a dataclass.

        >>> METHODS["one_step"].settings({"starts": 4, "levenberg": {"max_iterations": 9}}).levenberg.max_iterations
        9

        Raises:
            OptionError: An unknown option, or a value that is not allowed.
        """
        return _made(self.name, self.options, given or {})

    def check(self, procedure: Procedure) -> None:
        """Raise `OptionError` if the system does not offer what the method needs."""
        if self.needs and getattr(procedure.methods, self.needs) is None:
            raise OptionError(f"{self.name} does not suit this system: it offers {OFFERS[self.needs]}")

    def fit(
        self, problem: FitProblem, options: Any = None, procedure: Procedure | None = None, running: Running | None = None
    ) -> FitResult:
        """Solve a problem.

        Args:
            problem: What is to be identified.
            options: Instance of `self.options`; None: its defaults.
            procedure: The system's procedure, for methods that need more than a simulator.
            running: Checkpoint and progress, for methods that have them.

        Raises:
            OptionError: The system does not offer what the method needs.
            DataError: The recordings do not suit the method.
        """
        procedure = procedure or Procedure(stages=())
        self.check(procedure)
        if not self.views and (problem.view != RecordingParameters() or len(problem.own) < len(problem.free)):
            able = ", ".join(name for name, method in METHODS.items() if method.views)
            raise OptionError(
                f"{self.name} knows no parameters of recordings ({', '.join(RecordingParameters.names())}); {able} do"
            )
        if self.known_noise and problem.noise is None:
            problem = problem.with_estimated_noise()
        return self.run(problem, self.options() if options is None else options, procedure, running or Running())


def _made(method: str, kind: type[Any], given: Any) -> Any:
    """Make a dataclass of options from plain values, nested ones too."""
    if not isinstance(given, Mapping):
        raise OptionError(f"{method} is {shown(given)}, expected a table of options")
    kinds = typing.get_type_hints(kind)
    values = {}
    for name, value in given.items():
        if name not in kinds:
            raise OptionError(f"{method} has no option {name!r}; it has {', '.join(kinds)}")
        nested = dataclasses.is_dataclass(kinds[name]) and not isinstance(value, kinds[name])
        where = f"{method}: {name}"
        values[name] = _made(where, kinds[name], value) if nested else typed(where, value, kinds[name])
    return kind(**values)


def _mpec(problem: FitProblem, options: MpecOptions, procedure: Procedure, _: Running) -> FitResult:
    assert procedure.methods.complementarity is not None
    return mpec(problem, procedure.methods.complementarity(problem.simulator, problem.shared_steps), options)


def _simultaneous(problem: FitProblem, options: SimultaneousOptions, procedure: Procedure, _: Running) -> FitResult:
    assert procedure.methods.program is not None
    program = procedure.methods.program(problem.simulator, problem.split.train.names)
    chosen = tuple(program.names.index(name) for name in problem.column_names)
    return simultaneous(problem, program.form, options, observe=chosen_outputs(program.observe, chosen))


def _shooting(name: str, summary: str, fit: Callable[[FitProblem, ShootingOptions, Running], FitResult]) -> Method:
    return Method(
        name, summary, ShootingOptions, lambda p, o, _, running: fit(p, o, running), views=True, leaves_checkpoint=True
    )


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        _shooting("one_step", "every recorded step from the recorded state before it", one_step),
        _shooting("multiple_shooting", "segments of a chosen length", multiple_shooting),
        _shooting("single_shooting", "whole recordings", single_shooting),
        Method("cma_es", "an evolution strategy, without derivatives", EvolutionOptions, lambda p, o, *_: cma_es(p, o)),
        Method(
            "mpec",
            "complementarity: states and contact forces too",
            MpecOptions,
            _mpec,
            "complementarity",
            True,
            repeated="single_shooting",
        ),
        Method(
            "simultaneous",
            "states and parameters in one nonlinear program",
            SimultaneousOptions,
            _simultaneous,
            "program",
            True,
            repeated="single_shooting",
        ),
        Method(
            "innovations",
            "a recording that the model follows, with the noise of measured inputs",
            InnovationOptions,
            lambda p, o, procedure, _: innovations(p, o, procedure.methods.choices, procedure.methods.homogeneous),
            known_noise=True,
        ),
    )
}
"""Name -> method."""


def method_of(name: str) -> Method:
    """Method of this name.

    Raises:
        OptionError: There is none.
    """
    if name not in METHODS:
        raise OptionError(f"unknown method {name!r}; there are {', '.join(METHODS)}")
    return METHODS[name]
