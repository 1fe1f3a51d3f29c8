"""Constants of a tensegrity robot: body (cables, motors, rods, gravity), shared with the MuJoCo twin, and contact.

Defaults of the body are the SI equivalent of the MuJoCo model of [Wang2020] (arXiv 2011.04929), which is in decimetres:
gain 1000 and "speed 10" there are gain 100 (motor_gain 0.01 m) and 1 m/s here.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.parameters import Parameters, param


@dataclass(frozen=True)
class TensegrityBody(Parameters):
    """What describes the robot itself; seen from motion only up to a common factor of mass, stiffness and damping."""

    rod_mass: float = param(10.0, unit="kg", bounds=(0.01, 100.0), scale="log", source="[Wang2020] V")
    cable_stiffness: float = param(1e4, unit="N/m", bounds=(1.0, 1e5), scale="log", source="[Wang2020] V")
    cable_damping: float = param(1e3, unit="N s/m", bounds=(0.01, 1e4), scale="log", source="[Wang2020] V")
    rest_length: float = param(0.95, unit="m", bounds=(0.05, 5.0), source="[Wang2020] V")
    motor_speed: float = param(1.0, unit="1/s", bounds=(0.01, 100.0), scale="log", source="[Wang2020] V: a = speed dt = 1e-3")
    motor_gain: float = param(0.01, unit="m", bounds=(1e-5, 1.0), scale="log", source="[Wang2020] V: b = gain/k, in SI")
    gravity: float = param(9.81, unit="m/s^2", bounds=(0.0, 30.0), source="Earth; [Wang2020] V-D uses a tenth")
    terrain_scale: float = param(1.0, unit="-", bounds=(0.0, 10.0), source="factor on the terrain's heights")


@dataclass(frozen=True)
class TensegrityParameters(TensegrityBody):
    """Constants of our engine: the body, and the five contact constants of [Wang2020] IV-B."""

    contact_bias: float = param(0.2, unit="-", bounds=(1e-6, 1.0), scale="log", source="[Wang2020] eq. (1), beta")
    restitution: float = param(-0.2, unit="-", bounds=(-0.999, 0.999), source="[Wang2020] eq. (1), e")
    sliding_damping: float = param(0.4, unit="-", bounds=(0.0, 0.999), source="[Wang2020] eq. (3), gamma")
    friction: float = param(0.8, unit="-", bounds=(0.0, 2.0), source="[Wang2020] eq. (4), mu")
    spin_damping: float = param(0.01, unit="-", bounds=(0.0, 1.0), source="[Wang2020] eq. (5), epsilon")
    contact_compliance: float = param(
        0.005, unit="1/kg", bounds=(1e-5, 1.0), scale="log", source="patch contact, rho: MuJoCo's impedance 0.95, 10 kg rod"
    )
    pivot_damping: float = param(0.98, unit="-", bounds=(0.0, 1.0), source="patch contact: as gamma, for turning")
    pivot_friction: float = param(
        1.0, unit="m", bounds=(1e-3, 5.0), scale="log", source="patch contact, l: largest moment over normal force"
    )


CONTACT = {
    "paper": ("contact_bias", "restitution", "sliding_damping", "friction", "spin_damping"),
    "stick": ("contact_bias", "restitution", "sliding_damping", "friction", "spin_damping"),
    "patch": (
        "contact_bias",
        "restitution",
        "sliding_damping",
        "friction",
        "contact_compliance",
        "pivot_damping",
        "pivot_friction",
    ),
}
"""Contact mode -> the constants that it uses."""
