"""Fits of a spring whose parameters are known, for tests."""

from __future__ import annotations

from typing import Any

from sysid_systems import Spring, SpringParameters, record

from sysid import FitProblem
from sysid.diagnostics.result import FitResult

GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)
START = SpringParameters(mass=3.0)
FREE = ("stiffness", "damping", "gain")


def problem(**changes: Any) -> FitProblem:
    split = record(Spring(), GROUND_TRUTH, count=3).split(1, 1, 1)
    return FitProblem(Spring(), **{"data": split, "free": FREE, "start": START, **changes})


def errors(result: FitResult, ground_truth: Any = GROUND_TRUTH) -> list[float]:
    return [abs(getattr(result.parameters, name) / getattr(ground_truth, name) - 1) for name in result.free]


def severities(result: FitResult, code: str, parameter: str = "") -> list[str]:
    return [d.severity for d in result.of(code) if parameter in ("", d.parameter)]
