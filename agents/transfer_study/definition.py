"""A study as data: its conditions, repetitions, and the thresholds registered beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from softgym_envs.core.errors import OptionError
from softgym_envs.core.files import doubled
from softgym_envs.core.simulator import check_number


@dataclass(frozen=True)
class Condition:
    """One way to obtain a policy."""

    name: str
    label: str
    """Text for the table."""
    model: str
    """World of planning or training; see `.conditions.CONDITIONS`."""
    method: Literal["plan", "sampling", "doubled", "budgeted_plan", "nothing"] = "plan"
    data: bool = False
    """Whether it needs recordings of the ground truth."""
    budgeted: bool = False
    """Whether it depends on the budget of the ground truth's steps."""
    learns: bool = True
    """Whether it has a counterpart in reinforcement learning."""
    plans: bool = True
    """Whether it has a counterpart in planning."""
    factor: float = 1.0
    """Model "drawn": every identified parameter is the ground truth's times or over this factor, by a coin per seed."""


MOST_REPEATS = 10_000
"""Most data sets, and seeds, of a study."""


@dataclass(frozen=True)
class Threshold:
    """A registered threshold: `quantity` of `condition` will be at least `limit`.

    Raises:
        OptionError: Unknown quantity.
    """

    condition: str
    quantity: Literal["score", "improvement"]
    """score: (C_none - C) / (C_none - C_oracle) of the costs C; improvement: share of pairs of the same seed that are better
    than `versus`"""
    limit: float
    versus: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if self.quantity not in ("score", "improvement"):
            raise OptionError(f"quantity is {self.quantity!r}, allowed are 'score', 'improvement'")
        if (self.quantity == "improvement") != bool(self.versus):
            raise OptionError("versus names the other condition of an improvement, and nothing else")

    @property
    def label(self) -> str:
        """One line for people."""
        what = f"P(better than {self.versus})" if self.versus else self.quantity
        return f"{self.condition}: {what} ≥ {self.limit:g}"


@dataclass(frozen=True)
class Repeats:
    """How often everything is repeated; the table [repeats].

    Raises:
        OptionError: A count is not positive, or too large.
    """

    datasets: int = 5
    seeds: int = 5
    starts: int = 10
    """Perturbed starts (rl: episodes), the same for all."""
    seed: int = 0
    """Seed of everything."""

    def __post_init__(self) -> None:
        for name in ("datasets", "seeds", "starts"):
            check_number(name, getattr(self, name), low=1)
        for name in ("datasets", "seeds"):
            if getattr(self, name) > MOST_REPEATS:
                raise OptionError(f"{name} is {getattr(self, name)}, allowed are at most {MOST_REPEATS}")
        check_number("seed", self.seed, low=0)


@dataclass(frozen=True)
class Planning:
    """Settings of planners, the same for all conditions; the table [planning].

    Raises:
        OptionError: A value out of its range.
    """

    horizon: int = 50
    """Control steps."""
    substeps: int = 100
    """Physics steps per control step."""
    restarts: int = 3
    """Plans per run, kind "plan"; the best one in the condition's own model is kept."""
    iterations: int = 40
    """Iterations of iLQG per plan; of 40 rollouts each if it is sample-based."""
    trust: float = 0.3
    """See `agents.control.ilqg.ILQGOptions`."""
    difference_step: float | Literal["runs"] | None = 1e-2
    """See `agents.control.ilqg.ILQGOptions`; the same everywhere, so the ground truth's derivatives are no better or worse.

    0: our engine's own; the ground truth, too, is planned on with those, under the best parameters. "runs": our engine's own,
    and the ground truth's by differences of its whole runs (`agents.control.run_slopes`).
    """
    ensemble: int = 6
    """Rows of robust conditions."""
    force: float = 0.1
    """rl: random kicks [m/s] of the condition "forces"."""

    def __post_init__(self) -> None:
        for name in ("horizon", "substeps", "restarts", "iterations", "ensemble"):
            check_number(name, getattr(self, name), low=1)
        for name in ("trust", "force", *(["difference_step"] if isinstance(self.difference_step, float) else [])):
            check_number(name, getattr(self, name), low=0.0)


@dataclass(frozen=True)
class Study:
    """Everything that decides the numbers, except the case (robot, task, fit), of which it holds only the name.

    Raises:
        OptionError: No budget, or a threshold on a condition that is not part of the study.
    """

    name: str
    kind: Literal["plan", "gps", "mpc", "rl"]
    """plan: iLQG once, then run; gps: the tensegrity paper's sample-based iLQG once, run without feedback; mpc: sampling MPC
    (MPPI), replanned at every control step; rl: a learned policy."""
    conditions: tuple[str, ...]
    budgets: tuple[int, ...]
    """Physics steps of the ground truth for training; the first is the main one, the others make the budget curve."""
    curve: tuple[str, ...] = ()
    """Conditions of the budget curve."""
    repeats: Repeats = Repeats()
    planning: Planning = Planning()
    train_steps: int = 0
    """rl: control steps, the same in every condition but "ground_truth_budget" and "ground_truth_doubled"."""
    failure_cost: float = 100.0
    """Cost of a run whose simulation fails."""
    tuning_steps: int = 0
    """Steps of the ground truth that were spent on choosing the settings of this study."""
    thresholds: tuple[Threshold, ...] = ()

    def __post_init__(self) -> None:
        for name in ("train_steps", "tuning_steps"):
            check_number(name, getattr(self, name), low=0)
        for name in ("conditions", "budgets", "curve"):
            if (twice := doubled(map(str, getattr(self, name)))) is not None:
                raise OptionError(f"{name} has {twice} twice")
        if not self.budgets or min(self.budgets) < 1:
            raise OptionError(f"budgets are {self.budgets}, expected at least one, all >= 1")
        if self.kind not in ("plan", "gps", "mpc", "rl") or (self.kind == "rl" and self.train_steps < 1):
            raise OptionError(
                f"kind is {self.kind!r} with train_steps {self.train_steps}; "
                "allowed are 'plan', 'gps', 'mpc', or 'rl' with >= 1"
            )
        for condition in (*self.curve, *(name for t in self.thresholds for name in (t.condition, t.versus or t.condition))):
            if condition not in self.conditions:
                raise OptionError(f"condition {condition!r} is not part of the study; there are {', '.join(self.conditions)}")

    @property
    def budget(self) -> int:
        """Main budget."""
        return self.budgets[0]

    def jobs(self, conditions: dict[str, Condition]) -> tuple[StudyRun, ...]:
        """All runs; conditions without data run once per seed.

        Raises:
            OptionError: A condition is unknown.
        """
        found = []
        for name in self.conditions:
            if name not in conditions:
                raise OptionError(f"unknown condition {name!r}; there are {', '.join(conditions)}")
            condition = conditions[name]
            for budget in self.budgets if name in self.curve and condition.budgeted else self.budgets[:1]:
                for dataset in range(self.repeats.datasets if condition.data else 1):
                    found += [
                        StudyRun(name, budget if condition.budgeted else 0, dataset, seed) for seed in range(self.repeats.seeds)
                    ]
        return tuple(found)


GROUPS: dict[str, Any] = {"repeats": Repeats, "planning": Planning}
"""Tables of a study -> their classes."""


class StudyRun(NamedTuple):
    """One run."""

    condition: str
    budget: int
    """Physics steps of the ground truth for training; 0 if they have no effect."""
    dataset: int
    seed: int

    @property
    def name(self) -> str:
        """Name of the run's file."""
        return f"{self.condition}_b{self.budget}_d{self.dataset}_s{self.seed}"
