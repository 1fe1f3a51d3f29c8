"""One protocol for all methods: every one is built from plain values, says what it needs, and solves the same problem."""

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.procedure import Procedure
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from sysid import METHODS, FitProblem
from sysid.fitting.innovations import InnovationOptions, _relaxed, innovations, minimised
from sysid.fitting.table import Method, method_of
from sysid.least_squares.levenberg import LevenbergOptions, StopReason

GROUND_TRUTH = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)
QUICK: dict[str, dict[str, Any]] = {"cma_es": {"generations": 60}}
SIGMA = 1e-3
FORCE = 0.1
"""[m] and [m/s], [N]: noise that `Observer` is told of."""
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)


@EVERY
def test_every_method_describes_itself_and_takes_plain_options(method: Method) -> None:
    assert METHODS[method.name] is method and method_of(method.name) is method and method.summary
    assert method.settings() == method.options()
    first = dataclasses.fields(method.options)[0].name
    assert method.takes(first) and method.settings({first: getattr(method.options(), first)}) == method.options()
    with pytest.raises(OptionError, match=f"{method.name} has no option 'colour'; it has {first}"):
        method.settings({"colour": 1})
    for value in (object(), float("nan")):
        with pytest.raises(OptionError, match=f"^{method.name}: {first} is .*, expected "):
            method.settings({first: value})


@EVERY
def test_a_method_that_needs_more_than_a_simulator_says_so(method: Method) -> None:
    if method.needs:
        with pytest.raises(OptionError, match=f"{method.name} does not suit this system: it offers no"):
            method.check(Procedure(stages=()))
    else:
        method.check(Procedure(stages=()))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not (method.needs or method.takes("tracker"))])
def test_every_method_solves_the_same_problem(name: str) -> None:
    """Least squares end at the ground truth to rounding, the others within 5 %."""
    method = METHODS[name]
    problem = FitProblem(
        Spring(), record(Spring(), GROUND_TRUTH), ("stiffness", "damping"), start=GROUND_TRUTH.replace(stiffness=30.0)
    )
    found = method.fit(problem, method.settings(QUICK.get(name)))
    assert found.parameters.stiffness == pytest.approx(45.0, rel=5e-2 if name in QUICK else 1e-8)  # type: ignore[attr-defined]
    assert found.method.startswith(name)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(OptionError, match="unknown method 'initial_guess'; there are one_step, multiple_shooting"):
        method_of("initial_guess")


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
    assert end.theta[0] >= 0.5 and end.outcome is StopReason.EDGE and not end.outcome.converged
    assert "edge" in end.outcome.message
    with pytest.raises(DataError, match="no rest"):
        minimised(cast(Any, Edge()), np.array([0.2]), LevenbergOptions())


@dataclasses.dataclass(frozen=True, eq=False)
class Observer:
    """Predictions of a spring from its start; where controls are taken for noisier than they are, from row to row."""

    simulator: Spring
    sensed: Trajectory
    rows: np.ndarray
    """(T + 1, 2) measured states."""
    forgets: bool = False

    def anchored(self, parameter_values: np.ndarray, noise: Mapping[str, float]) -> "Observer":
        return dataclasses.replace(self, forgets=noise["control:force"] > FORCE)

    def errors(self, parameter_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, controls = self.rows, self.sensed.controls
        found = np.zeros((len(parameter_values), len(rows), 1))
        for errors, maps in zip(found, self.simulator._maps(parameter_values, 1), strict=True):
            states = rows.copy()
            if self.forgets:
                states[1:], _ = self.simulator._advance(rows[:-1], controls, np.repeat(maps[None], len(controls), axis=0))
            else:
                for k in range(len(controls)):
                    states[k + 1 : k + 2], _ = self.simulator._advance(states[k : k + 1], controls[k : k + 1], maps[None])
            errors[1:, 0] = (states - rows)[1:, 1] / SIGMA
        return found, np.ones(len(parameter_values), dtype=np.bool_)

    def slopes(self, parameter_values: np.ndarray, directions: np.ndarray) -> np.ndarray:
        steps = 1e-6 * directions.T
        (ahead, _), (back, _) = self.errors(parameter_values + steps), self.errors(parameter_values - steps)
        return np.moveaxis((ahead - back) / 2e-6, 0, -1)


def test_innovations_that_explain_nothing_begin_again_with_filters_that_forget() -> None:
    """A spring out of phase over 6 s: a wrong minimum, which predictions from row to row do not have."""
    recording = record(Spring(), GROUND_TRUTH, steps=300, noise=SIGMA)[0]
    rows = np.vstack([np.zeros((1, 2)), recording.values[1:]])  # at rest, as is known

    def tracker(simulator: Spring, seen: Trajectory) -> Observer:
        return Observer(simulator, seen, rows)

    data, options = TrajectorySet((recording.select(("mass.vx",)),)).split(1, 0, 0), InnovationOptions(tracker)
    far, noise = GROUND_TRUTH.replace(stiffness=1000.0), {"mass.vx": SIGMA, "control:force": FORCE}
    given = FitProblem(Spring(), data, ("stiffness",), start=far, noise=noise, free_initial=False)
    found = innovations(given, options)
    assert found.converged and found.explained and abs(found.parameters.stiffness / GROUND_TRUTH.stiffness - 1) < 0.02
    assert found.of("second_fit")[0].facts["how"] == "forgetful"
    assert found.start == far
    near = innovations(given.replace(start=GROUND_TRUTH), options)
    assert near.explained and not near.of("second_fit")


@pytest.mark.parametrize("slope", [-0.9, -1.5, -4.0, 0.5])
def test_filters_that_lead_to_and_fro_settle(slope):
    """A linear map that comes back by `slope` of where it was: it alone runs away, or takes long."""
    theta, share, before = np.array([1.0, -2.0]), 1.0, np.zeros(2)
    for _ in range(3):
        now = slope * theta - theta
        share = _relaxed(share, before, now) if before.any() else share
        theta, before = theta + share * now, now
    limit = 1e-12 if slope < 0 else 0.5**3
    assert np.abs(theta).max() <= 2.0 * limit and 0.1 <= share <= 1.0
