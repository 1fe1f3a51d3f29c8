"""Planners, learners and transfer studies for any environment, and trained policies; independent of robots."""

from .api import evaluate, plan, train, transfer
from .planning.cost import FeatureCost
from .planning.ilqg import ILQGOptions, plan_ilqg
from .planning.mpc import SamplingController, SamplingOptions
from .planning.plan import run_closed_loop, run_policy
from .policies import pretrained

__all__ = [
    "FeatureCost",
    "ILQGOptions",
    "SamplingController",
    "SamplingOptions",
    "evaluate",
    "plan",
    "plan_ilqg",
    "pretrained",
    "run_closed_loop",
    "run_policy",
    "train",
    "transfer",
]
