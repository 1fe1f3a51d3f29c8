"""One protocol for all methods: every one is built from plain values, says what it needs, and solves the same problem."""

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.recipe import Recipe
from sysid import METHODS, FitProblem
from sysid.least_squares.levenberg import LevenbergOptions, Outcome
from sysid.methods import Method, method_of
from sysid.methods.innovations import minimised

TRUTH = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)
QUICK: dict[str, dict[str, Any]] = {"adam": {"epochs": 30}, "cma_es": {"generations": 60}}
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)


@EVERY
def test_every_method_describes_itself_and_takes_plain_options(method: Method) -> None:
    assert METHODS[method.name] is method and method_of(method.name) is method and method.summary
    assert method.settings() == method.options()
    first = dataclasses.fields(method.options)[0].name
    assert method.takes(first) and method.settings({first: getattr(method.options(), first)}) == method.options()
    with pytest.raises(OptionError, match=f"{method.name} has no option 'colour'; it has {first}"):
        method.settings({"colour": 1})


@EVERY
def test_a_method_that_needs_more_than_a_simulator_says_so(method: Method) -> None:
    if method.needs:
        with pytest.raises(OptionError, match=f"{method.name} does not suit this room: it offers no"):
            method.check(Recipe(stages=()))
    else:
        method.check(Recipe(stages=()))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not (method.needs or method.takes("tracker"))])
def test_every_method_solves_the_same_problem(name: str) -> None:
    """Least squares end at the truth to rounding, the others within 5 %."""
    method = METHODS[name]
    problem = FitProblem(Spring(), record(Spring(), TRUTH), ("stiffness", "damping"), start=TRUTH.replace(stiffness=30.0))
    found = method.fit(problem, method.settings(QUICK.get(name)))
    assert found.parameters.stiffness == pytest.approx(45.0, rel=5e-2 if name in QUICK else 1e-8)  # type: ignore[attr-defined]
    assert found.method.startswith(name)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(OptionError, match="unknown method 'guess'; there are one_step, multiple_shooting"):
        method_of("guess")


class Edge:
    """Residual theta (1,), smallest at 0, of a model that has no derivatives below 0.5."""

    segments = SimpleNamespace(
        starts=np.zeros((1, 0)), problem=SimpleNamespace(theta_bounds=(np.full(1, -9.0), np.full(1, 9.0)))
    )

    def cost(self, theta: np.ndarray, blocks: np.ndarray) -> float:
        return 0.5 * float(theta[0] ** 2)

    def compress(self, theta: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        if theta[0] < 0.5:
            raise DataError("no rest")
        return np.array([[[1.0, theta[0]]]])

    def move(self, blocks: np.ndarray, step: np.ndarray) -> np.ndarray:
        return blocks


def test_a_minimisation_ends_before_the_edge_of_the_model_and_says_so() -> None:
    end = minimised(cast(Any, Edge()), np.array([2.0]), LevenbergOptions())
    assert end.theta[0] >= 0.5 and end.outcome is Outcome.EDGE and not end.outcome.converged
    assert "edge" in end.outcome.message
    with pytest.raises(DataError, match="no rest"):
        minimised(cast(Any, Edge()), np.array([0.2]), LevenbergOptions())
