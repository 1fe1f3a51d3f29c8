"""Contract tests of a whole system: its declaration, simulators, environments and procedure; see `core.conformance`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial
from itertools import chain
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

from ..core.base import RobotModel
from ..core.conformance import PROMISES, Case, Inputs, around_rest, case_of, require
from ..core.contract import check_members
from ..core.objective import Objective
from ..core.procedure import Procedure
from ..core.simulator import Status
from ..core.system import NATIVE, System
from ..core.task import load
from ..rendering.picture import Picture
from ..rendering.scene import Scene
from ..systems import system
from .registry import add_system

TRIES = ((0.1, 1.0), (0.01, 0.3), (1e-3, 0.1))
"""Spread of states around rest, and share of the largest controls: the first pair under which no row fails is used."""
STEPS = 200
"""Physics steps of an experiment that is tried."""
USUAL = ("already has a registered", "Overriding environment")
"""Warnings of Gymnasium's checker that are no fault."""


def check_system(name: str, *, recording: Collection[str] = (), methods: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Run every test of a system.

    Args:
        name: Its name, or "package:SYSTEM".
        recording: Parameters of recordings that a procedure may name beside the robot's.
        methods: Methods of identification that a procedure may name.

    Yields:
        What is tested, and the fault in a sentence; "" if there is none.

    Raises:
        OptionError: There is no such system.
    """
    found = add_system(name) if ":" in name else system(name)
    tests: list[tuple[str, Callable[[], Any]]] = [("declaration: paths lead to what they say", partial(declaration, found))]
    if found.procedure:
        tests.append(("procedure: names and methods exist", partial(procedure, found, recording, methods)))
        tests += [
            (f"experiment {e.name}: is recorded", partial(recorded, found, e.name)) for e in load(found.procedure).experiments
        ]
    for backend in found.installed:
        case = cache(partial(usual_case, partial(found.simulator, backend=backend)))
        tests += [(f"{backend}: {summary(promise)}", lambda p=promise, c=case: p(c())) for promise in PROMISES]  # type: ignore[misc]
    for entry in found.tasks:
        for backend in found.installed:
            tests += [(f"{entry.id}, {backend}: {summary(rule)}", partial(rule, entry.id, backend)) for rule in RULES]
    for what, test in tests:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                test()
        except Exception as error:
            yield what, f"{type(error).__name__}: {error}"
        else:
            yield what, ""


def summary(function: Callable[..., Any]) -> str:
    """First line of a docstring."""
    return (function.__doc__ or "").splitlines()[0].rstrip(".")


def usual_case(make: Callable[[], Any]) -> Case:
    """Inputs around rest under which no row fails; if there are none, the first of `TRIES`."""
    cases = [case_of(make, Inputs(states=partial(around_rest, spread=spread), share=share)) for spread, share in TRIES]
    return next((case for case in cases if (case.run()[1] == Status.OK).all()), cases[0])


# --- the declaration --------------------------------------------------------------------------------------------------


def declaration(found: System) -> None:
    """Every path leads to what its field says, and every id is one of the tasks."""
    for name in found.models:
        check_members(f"model {name!r}", found.model(name), RobotModel)
    simulator, ids = found.simulator(), [entry.id for entry in found.tasks]
    kinds: list[tuple[str, Any]] = [(found.procedure, Procedure), (found.picture, Picture)]
    for path, kind in [*kinds, *((path, Objective) for path in found.objectives.values())]:
        if path and not isinstance(value := load(path), kind):
            require(False, f"{path} is {type(value).__name__}, expected a {kind.__name__}")
    rest = found.simulator().initial_state(1)
    for path in found.objectives.values():
        objective = load(path)
        shape = np.shape(objective.features(simulator.model, rest))  # type: ignore[attr-defined]
        expected = (1, len(objective.weights))
        require(shape == expected, f"{path}: features have shape {shape}, expected {expected}, one per weight")
    if found.picture:
        scene = load(found.picture).scene(simulator, rest[0], {}, simulator.default_parameters)
        require(isinstance(scene, Scene), f"{found.picture}: scene returned {type(scene).__name__}, expected a Scene")
    for path in filter(None, (found.study, found.learning, found.controllers)):
        wrong = [key for key in load(path) if key not in ids]
        require(not wrong, f"{path} has {', '.join(wrong)}; the ids of {found.name} are {', '.join(ids)}")
    if found.study:
        wrong = [s.objective for s in load(found.study).values() if s.objective not in found.objectives]
        require(not wrong, f"{found.study} names the objective {', '.join(wrong)}; there are {', '.join(found.objectives)}")


def procedure(found: System, recording: Collection[str], methods: Collection[str]) -> None:
    """Parameters and methods that a procedure names exist, and its guesses are within bounds."""
    procedure, engine = load(found.procedure), found.simulator()
    default = engine.default_parameters
    known = (*default.names(), *recording)
    for stage in procedure.all_stages:
        said = f"{found.procedure}, stage {stage.name!r}"
        require(not methods or stage.method in methods, f"{said}: method {stage.method!r}; there are {', '.join(methods)}")
        named = {
            "free": stage.free_of(engine), "begin": stage.begin_of(default),
            "candidate_causes": chain(*stage.causes.candidates.values()), "doubtful": stage.causes.doubtful,
            "idle_without": chain(*stage.causes.idle_without.items()),
        }  # fmt: skip
        for what, names in named.items():
            wrong = [name for name in names if name not in known]
            require(not wrong, f"{said}: {what} names {', '.join(wrong)}; {type(default).__name__} has {', '.join(known)}")
        default.replace(**{name: value for name, value in stage.begin_of(default).items() if name not in recording})
    default.replace(**procedure.initial_guess_of(engine))


def recorded(found: System, experiment: str) -> None:
    """An experiment is recorded on the first ground truth."""
    ground_truth = found.simulator(backend=found.ground_truth() if found.ground_truths else NATIVE)
    recording = load(found.procedure).record_one(experiment, ground_truth, np.random.default_rng(0), steps=STEPS)
    finite = np.isfinite(recording.values).all() and recording.num_steps > 0
    require(finite, f"{found.procedure}, experiment {experiment!r}: the recording is empty or not finite")


# --- environments -----------------------------------------------------------------------------------------------------


def gymnasium_rules(env_id: str, backend: str) -> None:
    """Gymnasium's own checker finds nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gym.make(env_id, backend=backend).unwrapped, skip_render_check=True)
    messages = [str(w.message) for w in caught if not any(usual in str(w.message) for usual in USUAL)]
    require(not messages, f"{env_id}: {'; '.join(messages)}")


def seeds(env_id: str, backend: str, **keywords: Any) -> None:
    """The same seed gives the same episode, another seed another one."""
    first, again, other = (np.concatenate(episode(env_id, backend, seed, **keywords)) for seed in (3, 3, 4))
    require(np.array_equal(first, again), f"{env_id}: seed 3 gives two different episodes: draw from the generators of `start`")
    require(np.abs(first - other).max() > 1e-3, f"{env_id}: seeds 3 and 4 give the same episode: `reset` draws nothing")


def batches(env_id: str, backend: str, **keywords: Any) -> None:
    """A row of a vector environment is the single environment, bit for bit."""
    envs = gym.make_vec(env_id, num_envs=2, vectorization_mode="vector_entry_point", backend=backend, **keywords)
    rows = [envs.reset(seed=3)[0][0]]
    for action in actions_of(envs.single_action_space, 3):
        observation, reward, *_ = envs.step(np.stack([action, -action]))
        rows.append(np.append(observation[0], reward[0]))
    single = np.concatenate(episode(env_id, backend, 3, **keywords))
    require(np.array_equal(single, np.concatenate(rows)), f"{env_id}: row 0 of a batch differs from the single environment")


def replays(env_id: str, backend: str, **keywords: Any) -> None:
    """A saved state gives the same future: state and context hold all that a task needs."""
    env, other = (gym.make(env_id, backend=backend, **keywords).unwrapped for _ in range(2))
    env.reset(seed=2)
    actions = actions_of(env.action_space, 6)
    for action in actions[:3]:
        env.step(action)
    saved: Any = env.get_state()  # type: ignore[attr-defined]
    arrays = all(isinstance(value, np.ndarray) for name, value in saved.items() if name != "rng")
    require(arrays, f"{env_id}: get_state holds other things than arrays and generators")
    other.set_state({**saved, "rng": json.loads(json.dumps(saved["rng"]))})  # type: ignore[attr-defined]
    for action in actions[3:]:
        now, then = env.step(action), other.step(action)
        same = np.array_equal(now[0], then[0]) and now[1:4] == then[1:4] and now[4].keys() == then[4].keys()
        same = same and all(np.array_equal(now[4][name], then[4][name]) for name in now[4] if name != "parameters")
        same = same and now[4].get("parameters") == then[4].get("parameters")
        require(same, f"{env_id}: a restored episode goes on otherwise: the task keeps something outside of its context")
    require(np.array_equal(env.reset()[0], other.reset()[0]), f"{env_id}: the episode after a restored one is another one")


def episode(env_id: str, backend: str, seed: int, **keywords: Any) -> list[Any]:
    """Observations and rewards of three steps."""
    env = gym.make(env_id, backend=backend, **keywords)
    found = [env.reset(seed=seed)[0]]
    for action in actions_of(env.action_space, 3):
        observation, reward, *_ = env.step(action)
        found.append(np.append(observation, np.float64(reward)))
    return found


def actions_of(space: Any, count: int, seed: int = 0) -> Any:
    """Random actions (count, na)."""
    return np.random.default_rng(seed).uniform(-1, 1, (count, *space.shape)).astype(np.float32)


RULES = (gymnasium_rules, seeds, batches, replays)
"""Every rule of an environment."""
