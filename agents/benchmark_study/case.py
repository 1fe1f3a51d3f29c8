"""One cell of the benchmark as controllers get it: its id, budget and seed, and the count of the steps that they simulate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, IntArray, Linearization, Simulator, is_exact
from softgym_envs.core.system import System, options_from_text
from softgym_envs.systems import system_of_task

from ..learning.evaluation import Controller

BoolArray = NDArray[np.bool_]
ANY = "its own choice"
"""`Row.sees` of a controller that gets the environment; what it reads is noted."""


class Unable(SoftgymError):
    """A controller cannot do a cell; the message is the reason in one sentence."""


class Cell(NamedTuple):
    """One controller on one id."""

    id: str
    """Environment, without a package in front."""
    controller: str
    budget: int = 0
    """Planners: most simulated control steps per executed one. Learners: training steps, 0: the id's own. Others: 0."""
    seed: int = 0
    """Seed of samples, or of the training; episodes have their own."""
    options: str = ""
    """Keywords of the environment as words key=value with spaces between them, in alphabetical order."""

    @property
    def keywords(self) -> dict[str, Any]:
        """Keywords of the environment, of episodes and of trainings."""
        return options_from_text(self.options.split())

    @property
    def name(self) -> str:
        """Name of the cell's file."""
        words = (self.id, self.controller, f"b{self.budget}", f"s{self.seed}", self.options)
        return "_".join("".join(c if c.isalnum() or c in ".+-=" else "-" for c in word) for word in words if word)


@dataclass(eq=False)
class CountedEngine:
    """A simulator that counts the physics steps of its rows; all else is passed on."""

    engine: Any
    default_parameters: Parameters
    """Those of the environment's keywords, and what its task fixes (the level of the ground)."""
    steps: int = 0

    def __getattr__(self, name: str) -> Any:
        """What is the same in the engine."""
        return getattr(self.__dict__["engine"], name)

    def step(self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1) -> Any:
        """`Simulator.step`, counted."""
        self.steps += len(state) * substeps
        return self.engine.step(state, control, parameters, substeps=substeps)

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """`Simulator.rollout`, counted."""
        self.steps += controls.shape[0] * controls.shape[1] * substeps
        found: tuple[Array, IntArray] = self.engine.rollout(state, controls, parameters, substeps=substeps)
        return found

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """`Simulator.linearize`; exact derivatives count as one step, differences as the steps that they are."""
        self.steps += len(state) * substeps * self.per_linearization
        found: Linearization = self.engine.linearize(state, control, parameters, substeps=substeps)
        return found

    @property
    def per_linearization(self) -> int:
        """Steps that a linearised step costs."""
        own = self.engine
        return 1 if is_exact(own) else 2 * (own.n + own.nu + len(own.default_parameters.names()))


@dataclass(eq=False)
class Case:
    """A cell while it runs."""

    cell: Cell
    alive: BoolArray
    """(E,) False where an episode has ended."""
    training_steps: int = 0
    """Control steps that a learner took."""
    training_seconds: float = 0.0
    """Processor time of the training."""
    network: Any = None
    """The policy that a learner made."""
    substeps: int = 1
    """Physics steps of the planner's engine per control step."""
    engines: list[CountedEngine] = field(default_factory=list)
    """That of plans first, then those of observers."""

    @property
    def planned(self) -> int:
        """Physics steps of plans."""
        return self.engines[0].steps if self.engines else 0

    @property
    def system(self) -> System:
        """System of the id."""
        return system_of_task(self.cell.id)

    @property
    def steps(self) -> int:
        """Control steps that planners have simulated."""
        return sum(engine.steps for engine in self.engines) // self.substeps

    def engine(self, envs: Any) -> Simulator:
        """The native engine of a vector environment's robot, whose steps are counted."""
        own, given = self.system.simulator(envs.simulator.model), envs.episodes.nominal
        known = isinstance(given, type(own.default_parameters))
        engine = CountedEngine(own, given if known else own.default_parameters)
        self.substeps = round(envs.episodes.settings.control_period / engine.dt)
        self.engines.append(engine)
        return engine

    def rng(self, row: int) -> np.random.Generator:
        """Random numbers of one row."""
        return np.random.default_rng([self.cell.seed, row])


class Row(NamedTuple):
    """One controller of the table."""

    make: Callable[[Case], tuple[Controller, Mapping[str, Any]]]
    """The controller of a case, and the environment's keywords that it needs; raises `Unable`."""
    sees: str
    """"nothing", "sensors" (the observation), or "full state"."""
    budget: str
    """"none", "planning" or "training": see `Cell.budget`."""
    text: str
    """One sentence: what it is."""
    seeds: int = 1
    """Seeds of its cells; more where it learns."""
