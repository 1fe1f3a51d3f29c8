"""Constants of the elbow: muscles, tendons, wrapping, what the hand carries."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.parameters import Parameters, param

_SLACK = "chosen: fibres are at their optimal length in the middle of the elbow's range"
_RADIUS = {"unit": "m", "scale": "log", "source": "of the cylinder about the elbow that the muscle wraps around, as in arm26"}


@dataclass(frozen=True)
class ElbowParameters(Parameters):
    """Shared by our engine and its twin; in the order that the kernels read."""

    biceps_force: float = param(
        1059.9, unit="N", bounds=(200.0, 4000.0), scale="log", source="arm26: long and short head of the biceps"
    )
    biceps_optimal: float = param(0.1157, unit="m", bounds=(0.06, 0.2), scale="log", source="arm26: BIClong")
    biceps_slack: float = param(0.148, unit="m", bounds=(0.08, 0.2), source=_SLACK)
    biceps_radius: float = param(0.022, bounds=(0.008, 0.035), **_RADIUS)  # type: ignore[arg-type]
    triceps_force: float = param(
        2047.1, unit="N", bounds=(400.0, 8000.0), scale="log", source="arm26: all three heads of the triceps"
    )
    triceps_optimal: float = param(0.134, unit="m", bounds=(0.07, 0.25), scale="log", source="arm26: TRIlong")
    triceps_slack: float = param(0.081, unit="m", bounds=(0.02, 0.14), source=_SLACK)
    triceps_radius: float = param(0.018, bounds=(0.008, 0.023), **_RADIUS)  # type: ignore[arg-type]
    damping: float = param(0.05, unit="N m s/rad", bounds=(1e-3, 2.0), scale="log", source="chosen: tissue about the elbow")
    payload: float = param(0.5, unit="kg", bounds=(0.0, 6.0), source="what the hand carries")
    rise_time: float = param(0.015, unit="s", bounds=(0.004, 0.06), scale="log", source="[DeGroote2016]: activation")
    fall_time: float = param(0.06, unit="s", bounds=(0.015, 0.25), scale="log", source="[DeGroote2016]: deactivation")
