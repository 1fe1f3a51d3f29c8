"""Planners and learners on any `softgym_envs.core.simulator.Simulator`, and trained policies; independent of robots."""

from .planning.backward import box_qp
from .planning.cost import Cost, Expansion, FeatureCost
from .planning.gps import GPSOptions, plan_gps
from .planning.ilqg import ILQGOptions, plan_ilqg
from .planning.mpc import ILQGController, PlanningTimes, SamplingController, SamplingOptions
from .planning.plan import (
    IterLog,
    Outcome,
    Plan,
    Policy,
    Run,
    StepCount,
    UnstablePlanError,
    random_controls,
    run_closed_loop,
    run_open_loop,
    run_policy,
)
from .policies import pretrained

__all__ = [
    "Cost",
    "Expansion",
    "FeatureCost",
    "GPSOptions",
    "ILQGController",
    "ILQGOptions",
    "IterLog",
    "Outcome",
    "Plan",
    "PlanningTimes",
    "Policy",
    "Run",
    "SamplingController",
    "SamplingOptions",
    "StepCount",
    "UnstablePlanError",
    "box_qp",
    "plan_gps",
    "plan_ilqg",
    "pretrained",
    "random_controls",
    "run_closed_loop",
    "run_open_loop",
    "run_policy",
]
