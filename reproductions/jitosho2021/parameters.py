"""Parameters of the model of [Jitosho2021]."""

from __future__ import annotations

from dataclasses import dataclass

from softgym_envs.core.parameters import Parameters, param


@dataclass(frozen=True)
class PaperParameters(Parameters):
    """Parameters of a body and a pin, whatever their number (so a robot of more bodies is heavier and softer)."""

    body_mass: float = param(1e-3, unit="kg", bounds=(1e-6, 10.0), scale="log", source="authors' program, m = 1e-3")
    body_inertia: float = param(2e-4, unit="kg m^2", bounds=(1e-10, 1.0), scale="log", source="authors' program, J = 200")
    joint_stiffness: float = param(0.5, unit="N m/rad", bounds=(1e-6, 100.0), scale="log", source="authors' program, k = 5e5")
    joint_damping: float = param(3e-5, unit="N m s/rad", bounds=(0.0, 10.0), source="authors' program, c = 30")
