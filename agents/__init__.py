"""Planners, learners and transfer studies for any environment, and trained policies; independent of robots."""

from .api import benchmark, dataset, evaluate, export, plan, train, transfer
from .control.cost import FeatureCost
from .control.ilqg import ILQGOptions, plan_ilqg
from .control.mpc import SamplingController, SamplingOptions
from .control.plan import run_closed_loop, run_policy
from .policies import pretrained

__all__ = [
    "FeatureCost",
    "ILQGOptions",
    "SamplingController",
    "SamplingOptions",
    "benchmark",
    "dataset",
    "evaluate",
    "export",
    "plan",
    "plan_ilqg",
    "pretrained",
    "run_closed_loop",
    "run_policy",
    "train",
    "transfer",
]
