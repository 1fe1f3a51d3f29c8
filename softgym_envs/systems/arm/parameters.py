"""Parameters of the elbow: muscles, tendons, wrapping, the hand's load."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.parameters import Parameters, param

_FRICTION = {
    "unit": "N m",
    "bounds": (-0.2, 5.0),
    "source": "dry friction of the elbow; an estimate of none may be below 0 by chance",
}
_SLACK = "chosen: fibres are at their optimal length in the middle of the elbow's range"
_RADIUS = {"unit": "m", "scale": "log", "source": "of the cylinder about the elbow that the muscle wraps around, as in arm26"}


@dataclass(frozen=True)
class ElbowParameters(Parameters):
    """Parameters of our engine and its MuJoCo model, in the order of the kernels."""

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
    friction: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]


_THREAD = {"unit": "m", "bounds": (0.05, 0.8), "scale": "log"}
_TURNS = {"unit": "-", "bounds": (0.3, 10.0), "scale": "log", "source": "radius 8 mm where its threads stand at 20 degrees"}
_TENDON = {"unit": "m", "bounds": (0.0, 0.4), "source": "chosen: so long where the elbow stretches the muscle most"}


@dataclass(frozen=True)
class PneumaticElbowParameters(Parameters):
    """Parameters of an elbow with pneumatic muscles, placed as in `ElbowParameters`: threads' turns, length for force, fibres.

    A muscle of length l and radius r, whose threads stand at an angle alpha to it, has threads of l / cos(alpha), and
    l tan(alpha) / (2 pi r) turns.
    """

    biceps_turns: float = param(1.7378, **_TURNS)  # type: ignore[arg-type]
    biceps_thread: float = param(0.2554, source="0.24 m at 20 degrees", **_THREAD)  # type: ignore[arg-type]
    biceps_slack: float = param(0.057, **_TENDON)  # type: ignore[arg-type]
    biceps_radius: float = param(0.022, bounds=(0.008, 0.035), **_RADIUS)  # type: ignore[arg-type]
    triceps_turns: float = param(1.3033, **_TURNS)  # type: ignore[arg-type]
    triceps_thread: float = param(0.19155, source="0.18 m at 20 degrees", **_THREAD)  # type: ignore[arg-type]
    triceps_slack: float = param(0.062, **_TENDON)  # type: ignore[arg-type]
    triceps_radius: float = param(0.018, bounds=(0.008, 0.023), **_RADIUS)  # type: ignore[arg-type]
    damping: float = param(0.5, unit="N m s/rad", bounds=(1e-3, 5.0), scale="log", source="chosen: braids rub on themselves")
    payload: float = param(0.5, unit="kg", bounds=(0.0, 6.0), source="what the hand carries")
    lag: float = param(0.05, unit="s", bounds=(0.003, 1.0), scale="log", source="chosen: of a valve and its hose")
    friction: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]
