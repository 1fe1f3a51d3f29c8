"""Contract tests of simulators, one function per promise of `core.simulator`; `softgym-envs check` and the tests run them.

A promise raises a `ContractError` whose sentence names what breaks it. Legend: B batch, T horizon, nx state, n tangent.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .contract import check_simulator
from .errors import ContractError, OptionError, ParameterError, ShapeError, SoftgymError
from .parameters import Parameters, param
from .simulator import Array, Differentiable, Status, Symbolic, finite_differences, is_exact
from .trajectory import Trajectory

B, T = 5, 3
ABSURD_SPEED = 1e9
"""[m/s] or [rad/s]: no simulator can go on from here."""


def around_rest(simulator: Any, rng: np.random.Generator, batch: int, spread: float = 0.1) -> Array:
    """States around rest, moving, (B, nx)."""
    state = simulator.initial_state(batch)
    return np.asarray(simulator.retract(state, spread * rng.normal(size=(batch, simulator.n))))


class Inputs(NamedTuple):
    """Inputs of the tests of a system: states that it visits, where it has derivatives, and what to vary."""

    states: Callable[[Any, np.random.Generator, int], Array] = around_rest
    smooth: Callable[[Any, Array], Array] = lambda simulator, states: states
    """The same states where no contact opens or closes within a difference."""
    varied: str = ""
    """A parameter that changes every motion; "": the first positive one."""
    substeps: int = 20
    """Physics steps of a control step."""
    share: float = 1.0
    """Share of the largest controls; less where no robot bears them for long."""
    rounding: float = 1.0
    """How much larger than that of a state the rounding of a step is: 10 / dt where speeds are differences."""
    solved: Callable[[Any], float] = lambda simulator: 1e-11
    """Share of the largest derivative up to which two ways through the same steps agree."""


class Case(NamedTuple):
    """A simulator with inputs of a batch."""

    inputs: Inputs
    make: Callable[[], Any]
    simulator: Any
    state: Array
    """(B, nx)"""
    controls: Array
    """(B, T, nu)"""
    parameters: Any
    """One value per row of the varied parameter; the last row has the default."""

    def run(self, rows: Any = slice(None), simulator: Any = None) -> tuple[Array, Array]:
        """Rollout of some rows: states (k, T+1, nx), status (k,)."""
        parameters = type(self.parameters).from_vector(self.parameters.to_matrix(B)[rows])
        chosen, substeps = simulator or self.simulator, self.inputs.substeps
        states, status = chosen.rollout(self.state[rows], self.controls[rows], parameters, substeps=substeps)
        return states, status

    @property
    def name(self) -> str:
        """Name of the simulator's class."""
        return type(self.simulator).__name__


def case_of(make: Callable[[], Any], inputs: Inputs) -> Case:
    """The case of a simulator that `make` makes."""
    simulator, rng = make(), np.random.default_rng(7)
    lower, upper = simulator.control_bounds
    controls = inputs.share * rng.uniform(lower, upper, size=(B, T, simulator.nu))
    default = simulator.default_parameters
    name = inputs.varied or next((n for n in default.names() if getattr(default, n) > 0), "")
    varied = default.replace(**{name: getattr(default, name) * np.linspace(0.8, 1.0, B)}) if name else default
    return Case(inputs, make, simulator, inputs.states(simulator, rng, B), controls, varied)


def require(good: Any, sentence: str) -> None:
    """Raise a `ContractError` with this sentence unless `good`."""
    if not good:
        raise ContractError(sentence)


def close(found: Array, wanted: Array, atol: float, sentence: str, rtol: float = 0.0) -> None:
    """As `require`, with the largest difference."""
    worst = float(np.abs(found - wanted).max(initial=0.0))
    require(np.allclose(found, wanted, rtol=rtol, atol=atol), f"{sentence}; they differ by up to {worst:.3g}")


# --- promises ---------------------------------------------------------------------------------------------------------


def names_and_bounds(case: Case) -> None:
    """Names, units, bounds and the rest state have the sizes of state and control."""
    sim = case.simulator
    check_simulator(sim)
    require(sim.initial_state(3).shape == (3, sim.nx), f"{case.name}.initial_state(3) is not of shape (3, {sim.nx})")
    require(sim.dt > 0, f"{case.name}.dt is {sim.dt}, expected a number of seconds > 0")


def results(case: Case) -> None:
    """A rollout begins at the given state, moves, and ends well."""
    states, status = case.run()
    shape = (B, T + 1, case.simulator.nx)
    require(states.shape == shape and states.dtype == np.float64, f"{case.name}.rollout returned {states.dtype} {states.shape}")
    require(status.shape == (B,) and status.dtype == np.int32, f"{case.name}.rollout: status is {status.dtype} {status.shape}")
    require((status == Status.OK).all(), f"{case.name}.rollout fails near rest under random controls: status {status.tolist()}")
    require(np.isfinite(states).all(), f"{case.name}.step returns NaN with status 0; a row that fails keeps its state")
    require(np.array_equal(states[:, 0], case.state), f"{case.name}.rollout: the first state is not the given one")
    moved = (states[:, -1] != states[:, 0]).any(axis=1).all()
    require(moved, f"{case.name}.step: nothing moves under random controls")


def purity(case: Case) -> None:
    """Arguments and earlier results stay as they are, and equal arguments give equal results."""
    inputs = (case.state.copy(), case.controls.copy(), case.parameters.to_vector())
    first, _ = case.run()
    kept = first.copy()
    case.simulator.step(case.state, case.controls[:, 1], case.parameters, substeps=3)
    second, _ = case.run()
    require(np.array_equal(first, kept), f"{case.name}.step wrote into an earlier result: return fresh arrays")
    require(np.array_equal(first, second), f"{case.name}.step gives other numbers at a second call: it has a memory of its own")
    now = (case.state, case.controls, case.parameters.to_vector())
    for what, before, after in zip(("state", "control", "parameters"), inputs, now, strict=True):
        require(np.array_equal(before, after), f"{case.name}.step writes into its argument {what!r}: work on a copy")


def instances(case: Case) -> None:
    """Another instance, and a pickled copy, give the same bits."""
    states = case.run()[0]
    require(np.array_equal(states, case.run(simulator=case.make())[0]), f"another {case.name} gives other numbers")
    copy = pickle.loads(pickle.dumps(case.simulator))
    kept = pickle.loads(pickle.dumps(case.parameters)).to_vector()
    require(np.array_equal(kept, case.parameters.to_vector()), f"a pickled {type(case.parameters).__name__} is another one")
    same = copy.dt == case.simulator.dt and copy.options == case.simulator.options
    require(same and np.array_equal(states, case.run(simulator=copy)[0]), f"a pickled {case.name} gives other numbers")


def rows(case: Case) -> None:
    """A row does not depend on the other rows, and its parameters are its own."""
    states, _ = case.run()
    for row in range(B):
        alone = case.run([row])[0][0]
        require(np.array_equal(alone, states[row]), f"{case.name}.step: row {row} alone differs from row {row} of the batch")
    order = [3, 0, 4, 2, 1]
    require(np.array_equal(case.run(order)[0], states[order]), f"{case.name}.step: rows depend on their order")
    if case.parameters.batch:
        shared = case.simulator.rollout(case.state, case.controls, substeps=case.inputs.substeps)[0]
        own = not np.array_equal(shared[0], states[0]) and np.array_equal(shared[-1], states[-1])
        require(
            own, f"{case.name}.step does not use the parameters of each row: rows of `parameter_values` are those of the batch"
        )


def completeness(case: Case) -> None:
    """A rollout is repeated steps: the state holds all that the next step needs."""
    states, fresh = case.run()[0], case.make()
    for t in range(T):
        given = states[:, t].copy(), case.controls[:, t], case.parameters
        after, status = fresh.step(*given, substeps=case.inputs.substeps)
        same = np.array_equal(after, states[:, t + 1]) and (status == Status.OK).all()
        require(same, f"{case.name}.rollout differs from repeated steps: the state is not all that the next step needs")


def manifold(case: Case) -> None:
    """`retract` and `difference` are inverse, and the layout is that of the state."""
    sim = case.simulator
    dx = 0.3 * np.random.default_rng(3).normal(size=(B, sim.n))
    moved = sim.retract(case.state, dx)
    require(moved.shape == case.state.shape, f"{case.name}.retract returned shape {moved.shape}, expected {case.state.shape}")
    close(sim.difference(moved, case.state), dx, 1e-12, f"{case.name}.difference does not undo retract")
    again = sim.retract(case.state, sim.difference(moved, case.state))
    close(again, moved, 1e-12, f"{case.name}.retract does not undo difference")
    close(sim.difference(case.state, case.state), np.zeros_like(dx), 1e-15, f"{case.name}.difference of equal states is not 0")
    if hasattr(sim, "layout"):
        said = (sim.layout.nx, sim.layout.n, sim.layout.names, sim.layout.units)
        require(said == (sim.nx, sim.n, sim.state_names, sim.state_units), f"{case.name}.layout is not that of its states")
        own = sim.model.layout
        require(sim.layout.fields[: len(own.fields)] == own.fields, f"{case.name}: states do not begin as those of its model")
        short = case.state[:, : own.nx]
        require(np.array_equal(sim.embed(short)[:, : own.nx], short), f"{case.name}.embed changes the model's entries")
        rest = sim.embed(sim.model.rest_state())
        require(np.array_equal(rest, sim.initial_state(1)[0]), f"{case.name}.initial_state is not the model's rest state")


def recordings(case: Case) -> None:
    """A recording of a rollout carries the units."""
    sim = case.simulator
    found = Trajectory.from_rollout(sim, case.run()[0][0], case.controls[0], substeps=case.inputs.substeps)
    same = (found.units, found.control_units) == (sim.state_units, sim.control_units)
    require(same, f"a recording of {case.name} has other units than its states and controls")


@dataclass(frozen=True)
class _Foreign(Parameters):
    """Parameters of no simulator."""

    nothing: float = param(0.0, unit="-", bounds=(0.0, 1.0))


def refusals(case: Case) -> None:
    """Wrong arguments are refused with an error that names them."""
    sim, state, controls, control = case.simulator, case.state, case.controls, case.controls[:, 0]
    nan, inf = np.full_like(state, np.nan), np.full_like(control, np.inf)
    tries: list[tuple[str, type[SoftgymError], Callable[[], Any]]] = [
        *(("state", ShapeError, partial(sim.step, bad, control)) for bad in (state[0], state[:, 1:], nan)),
        *(("state", ShapeError, partial(sim.rollout, bad, controls)) for bad in (state[0], state[:, 1:], nan)),
        *(("control", ShapeError, partial(sim.step, state, bad)) for bad in (control[0], control[:, 1:], inf, control[:2])),
        ("controls", ShapeError, partial(sim.rollout, state, control)),
        ("substeps", OptionError, partial(sim.step, state, control, substeps=0)),
        (case.name, ParameterError, partial(sim.step, state, control, _Foreign())),
    ]
    if case.parameters.batch:
        tries.append(("rows", ParameterError, partial(sim.step, state[:2], control[:2], case.parameters)))
    for word, kind, attempt in tries:
        try:
            attempt()
            said = "no error"
        except kind as error:
            said = "" if word in str(error) else f"an error without {word!r}: {error}"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        require(not said, f"{case.name}: a wrong argument gives {said}; expected a {kind.__name__} that names {word!r}")


def failures(case: Case) -> None:
    """A failure is a status of its row, which keeps its last good state; other rows go on."""
    sim, state = case.simulator, case.state.copy()
    state[1] = absurd(sim, state[1])
    states, status = sim.rollout(state, case.controls, case.parameters, substeps=case.inputs.substeps)
    expected = [0, int(Status.DIVERGED), 0, 0, 0]
    said = f"speeds of {ABSURD_SPEED:g} in row 1"
    require(status.tolist() == expected, f"{case.name}.rollout: {said} give status {status.tolist()}, expected {expected}")
    kept = np.array_equal(states[1], np.tile(state[1], (T + 1, 1)))
    require(kept, f"{case.name}.rollout: a row that fails must keep its last good state")
    healthy = [0, 2, 3, 4]
    same = np.array_equal(states[healthy], case.run(healthy)[0])
    require(same, f"{case.name}.rollout: {said} change the other rows")
    after, status = sim.step(state, case.controls[:, 0], case.parameters, substeps=case.inputs.substeps)
    good = status[1] == Status.DIVERGED and np.array_equal(after[1], state[1])
    require(good, f"{case.name}.step: a row that fails must keep its state, with status 1")


def absurd(simulator: Any, state: Array) -> Array:
    """Finite states (..., nx) from which no simulator can go on: every rate is absurd."""
    broken = state.copy()
    broken[..., np.isin(simulator.state_units, ["m/s", "rad/s"])] = ABSURD_SPEED
    return broken


def derivatives(case: Case) -> None:
    """`linearize` is the derivative of `step`, and finite at rest."""
    sim, substeps = case.simulator, case.inputs.substeps
    parameters, control = sim.default_parameters, 0.5 * case.controls[:2, 0]
    state = case.inputs.smooth(sim, case.state[:2])  # a contact that opens within the difference would have no derivative
    found = sim.linearize(state, control, parameters, substeps=substeps)
    shapes = [m.shape for m in found]
    expected = [(2, sim.n, k) for k in (sim.n, sim.nu, len(parameters.names()))]
    require(shapes == expected, f"{case.name}.linearize returned shapes {shapes}, expected {expected}")
    epsilon = 1e-6
    wanted = finite_differences(sim, state, control, parameters, substeps=substeps, epsilon=epsilon)
    widths = [max(abs(spec.default), 1e-3 * (spec.bounds[1] - spec.bounds[0])) for spec in parameters.specs().values()]
    noise = case.inputs.rounding * 8 * np.finfo(float).eps * np.abs(state).max() / epsilon  # rounding over a difference's width
    for name, a, b, width in zip("ABC", found, wanted, (np.ones(1), np.ones(1), np.array(widths)), strict=True):
        if not a.size:
            continue
        a, b = a * width, b * width
        require(np.abs(a).max() > 1e-3, f"{case.name}.linearize: {name} is zero")
        near = (np.abs(a - b) <= 1e-6 * np.abs(b).max(axis=1, keepdims=True) + noise).all()
        worst = np.abs(a - b).max()
        require(near, f"{case.name}.linearize: {name} is not the derivative of step; it differs by up to {worst:.3g}")
    rest = sim.linearize(sim.initial_state(1), np.zeros((1, sim.nu)), substeps=2)
    require(all(np.isfinite(m).all() for m in rest), f"{case.name}.linearize is not finite at the rest state")


def gradients(case: Case) -> None:
    """A pull-back is the transposed linearization, over two control steps, in tangent coordinates."""
    sim = case.simulator
    if not isinstance(sim, Differentiable):
        return require(not is_exact(sim), f"{case.name} says that its derivatives are exact, but has no vjp")
    require(sim.exact, f"{case.name}.exact is False, though it has a vjp")
    state, controls = case.inputs.smooth(sim, case.state[:2]), 0.5 * case.controls[:2, :2]
    cotangent = np.random.default_rng(5).normal(size=(2, 3, sim.nx))
    found = sim.vjp(state, controls, cotangent, substeps=5)
    layout: Any = sim.layout  # type: ignore[attr-defined]
    x0, x1, x2 = np.swapaxes(found.states, 0, 1)
    first, second = (sim.linearize(x, controls[:, t], substeps=5) for t, x in enumerate((x0, x1)))
    pulled = [np.einsum("bxn,bx->bn", layout.retract_jacobian(x), cotangent[:, t]) for t, x in enumerate((x0, x1, x2))]
    late = pulled[1] + np.einsum("bnm,bn->bm", second.A, pulled[2])
    expected = (
        pulled[0] + np.einsum("bnm,bn->bm", first.A, late),
        np.stack([np.einsum("bnu,bn->bu", s.B, g) for s, g in ((first, late), (second, pulled[2]))], axis=1),
        np.einsum("bnp,bn->bp", first.C, late) + np.einsum("bnp,bn->bp", second.C, pulled[2]),
    )
    dx = np.einsum("bxn,bx->bn", layout.retract_jacobian(state), found.state)
    for got, wanted in zip((dx, found.controls, found.parameter_values), expected, strict=True):
        atol = case.inputs.solved(sim) * float(np.abs(wanted).max(initial=0.0))
        close(got, wanted, atol, f"{case.name}.vjp is not the transposed linearize", rtol=1e-9)
    failing = case.state[:2].copy()
    failing[1] = absurd(sim, failing[1])
    gradient = sim.vjp(failing, controls, cotangent)
    good = np.isfinite(gradient.state[0]).all() and np.isnan(gradient.state[1]).all()
    require(good, f"{case.name}.vjp: the gradient of a row that fails must be NaN, and of no other")


def symbolic(case: Case) -> None:
    """A symbolic step has the inputs of the step."""
    sim = case.simulator
    if not isinstance(sim, Symbolic):
        return
    try:
        form = sim.symbolic_step()
    except OptionError:
        return  # a structure that the second formulation does not know
    sizes = [form.step.size1_in(k) for k in range(4)]
    expected = [sim.nx, sim.nu, len(sim.default_parameters.names()), sim.nx]
    require(sizes == expected, f"{case.name}.symbolic_step takes inputs of sizes {sizes}, expected {expected}")


PROMISES = (
    names_and_bounds, results, purity, instances, rows, completeness, manifold, recordings, refusals, failures, derivatives,
    gradients, symbolic,
)  # fmt: skip
"""Every promise of a simulator."""
