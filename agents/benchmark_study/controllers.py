"""The rows of the benchmark: name -> controller. A new controller is one entry of `ROWS`."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from softgym_envs.core.errors import OptionError

from ..control.observer import Observer
from ..control.task_mpc import TaskMpc
from ..learning.evaluation import Controller, controller_of, uniform, zero
from ..learning.policy import load_policy
from ..policies import pretrained
from . import learners, planners
from .case import ANY, Case, Row, Unable

FEWEST, MOST = {1: 16, 3: 12}, 1024
"""Samples of one round: fewest by the number of rounds, and most."""
SEEDS = 3
"""Seeds of learners."""
ELITES = 4
"""The cross-entropy method keeps one of so many samples."""


def declared(case: Case) -> tuple[Controller, Mapping[str, Any]]:
    """The heuristic or planner that the system declares for the id."""
    found = case.system.controllers_of(case.cell.id)
    name = next((name for name in ("heuristic", "planner") if name in found), None)
    if name is None:
        raise Unable("The system declares no controller for this id.")
    return found[name], {}


def sampling(case: Case, rounds: int, sensors: bool = False) -> tuple[Controller, Mapping[str, Any]]:
    """Sampling MPC: as many samples as the budget allows, replanned as often as the fewest allow."""
    own = TaskMpc(**case.system.planning_of(case.cell.id))
    horizon, budget = own.horizon, case.cell.budget
    every = max(1, -(-FEWEST[rounds] * rounds * horizon // budget))
    if every > horizon // 2:
        raise Unable(f"{FEWEST[rounds]} samples of {horizon} control steps take more than the budget.")
    samples = min(MOST, budget * every // (rounds * horizon))
    settings = TaskMpc(
        horizon, own.knots, samples, own.noise, rounds, 1.0, every, own.temperature,
        elites=max(2, samples // ELITES) if rounds > 1 else 0, discount=own.discount,
    )  # fmt: skip
    seed = case.cell.seed

    def opened(envs: Any) -> Any:
        engine = case.engine(envs)
        if not sensors:
            return settings.controller(envs, engine, seed=seed, alive=case.alive)
        observer = Observer(envs, case.engine(envs), seed=seed, alive=case.alive)
        return observer.policy(settings.controller(observer, engine, seed=seed, alive=case.alive))

    return opened, {}


def shipped(case: Case) -> tuple[Controller, Mapping[str, Any]]:
    """The policy that comes with the package."""
    try:
        return network(pretrained(case.cell.id))
    except OptionError:
        raise Unable("No policy of this id comes with the package.") from None


def network(policy: Any) -> tuple[Controller, Mapping[str, Any]]:
    """A network as a controller, checked against the environment."""

    def opened(envs: Any) -> Any:
        policy.check(envs)
        return policy

    return opened, policy.keywords


def own(case: Case) -> tuple[Controller, Mapping[str, Any]]:
    """The user's controller: "package.module:function", or a policy file."""
    name = case.cell.controller
    return network(load_policy(Path(name))) if is_file(name) else (controller_of(name), {})


def is_file(name: str) -> bool:
    """Whether a controller's name is that of a policy file."""
    return name.endswith((".zip", ".npz"))


def source_of(name: str) -> str:
    """Hash of the file of a user's controller, a module or a policy; "" for the others, and where there is none."""
    if name in ROWS:
        return ""
    origin: str | None = name
    if not is_file(name):
        try:
            spec = importlib.util.find_spec(name.partition(":")[0])
        except (ImportError, ValueError):
            return ""
        origin = spec.origin if spec else None
    path = Path(origin or "")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


ROWS: dict[str, Row] = {
    "zero": Row(lambda case: (zero, {}), "nothing", "none", "No action."),
    "random": Row(lambda case: (uniform, {}), "nothing", "none", "Uniform random actions."),
    "heuristic": Row(declared, ANY, "none", "The heuristic or planner that the system declares."),
    "policy": Row(shipped, "sensors", "none", "The trained policy that comes with the package."),
    "mppi": Row(partial(sampling, rounds=1), "full state", "planning", "Sampling MPC with exponential weights (`TaskMpc`)."),
    "mppi_sensors": Row(
        partial(sampling, rounds=1, sensors=True), "sensors", "planning",
        "`mppi` on what an ensemble Kalman filter makes of the observations (`Observer`), whose steps do not count as budget.",
    ),
    "cem": Row(partial(sampling, rounds=3), "full state", "planning", "Cross-entropy method, three rounds (`TaskMpc`)."),
    "ilqg": Row(lambda case: (planners.ilqg(case), {}), "full state", "planning", "iLQG-MPC (`ILQGController`)."),
    "linear": Row(
        lambda case: (planners.linear(case), {}), "full state", "planning",
        f"Linear MPC by OSQP; an action changes by {planners.RATE:g} per control step at most.",
    ),
    "gps": Row(
        lambda case: (planners.gps(case), {}), "full state", "planning",
        "Sample-based iLQG [Wang2020]: plans the whole episode when it begins, from no action (`zero`), by "
        f"{planners.ROLLOUTS} rollouts an iteration. The paper's 20 iterations take a budget of 801. "
        "Where episodes end early, more than the budget is counted.",
    ),
    "optimal": Row(
        lambda case: (planners.optimal(case), {}), "full state", "none",
        "Optimal control by direct transcription: a motion of half an episode, replayed open loop; its last control is held.",
    ),
    "ppo": Row(partial(learners.trained, algorithm="ppo"), "sensors", "training", "PPO from scratch.", SEEDS),
    "sac": Row(partial(learners.trained, algorithm="sac"), "sensors", "training", "SAC from scratch.", SEEDS),
    "imitation": Row(
        learners.imitated, "sensors", "planning", "Behaviour cloning of the better of `mppi` and `cem` of this budget.", SEEDS
    ),
}  # fmt: skip
"""Name -> row, in the order of the table."""


def row_of(name: str) -> Row:
    """The row of a name, or of the user's own controller.

    Raises:
        OptionError: There is no such controller.
    """
    if name in ROWS:
        return ROWS[name]
    if ":" in name or is_file(name):
        return Row(own, "sensors" if is_file(name) else ANY, "none", "A controller of the user's own.")
    raise OptionError(
        f"controller is {name!r}, allowed are {', '.join(ROWS)}, 'package.module:function' of your own, or a policy file"
    )
