"""Parameters of the upper body: masses, the hand's load, springs and dampers of the joints."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.parameters import Parameters, param

_SCALE = {"unit": "-", "bounds": (0.3, 3.0), "scale": "log"}


@dataclass(frozen=True)
class BodyParameters(Parameters):
    """Parameters of our engine and its MuJoCo model, for both arms; named as in the tree's file."""

    upper_arm_scale: float = param(1.0, source="factor of the upper arms' mass and inertia", **_SCALE)  # type: ignore[arg-type]
    forearm_scale: float = param(1.0, source="factor of the forearms' mass and inertia", **_SCALE)  # type: ignore[arg-type]
    payload: float = param(0.3, unit="kg", bounds=(0.0, 5.0), source="what the right hand carries")
    shoulder_stiffness: float = param(10.0, unit="N m/rad", bounds=(0.1, 60.0), scale="log", source="chosen")
    elbow_stiffness: float = param(4.0, unit="N m/rad", bounds=(0.1, 40.0), scale="log", source="chosen")
    forearm_stiffness: float = param(0.6, unit="N m/rad", bounds=(0.02, 10.0), scale="log", source="chosen")
    wrist_stiffness: float = param(1.5, unit="N m/rad", bounds=(0.05, 15.0), scale="log", source="chosen")
    shoulder_damping: float = param(2.0, unit="N m s/rad", bounds=(0.05, 20.0), scale="log", source="chosen")
    elbow_damping: float = param(0.6, unit="N m s/rad", bounds=(0.02, 10.0), scale="log", source="chosen")
    forearm_damping: float = param(0.08, unit="N m s/rad", bounds=(2e-3, 2.0), scale="log", source="chosen")
    wrist_damping: float = param(0.12, unit="N m s/rad", bounds=(3e-3, 2.0), scale="log", source="chosen")
    armature: float = param(
        0.02, unit="kg m^2", bounds=(0.0, 0.5), source="chosen: of each shoulder axis, which two of them need where they meet"
    )
