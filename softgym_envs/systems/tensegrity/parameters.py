"""Parameters of a tensegrity robot: body (cables, motors, rods, gravity), shared with the MuJoCo model, and contact.

Defaults of the body are the SI equivalent of the MuJoCo model of [Wang2020] (arXiv 2011.04929), which is in decimetres:
gain 1000 and "speed 10" there are gain 100 (motor_gain 0.01 m) and 1 m/s here.
"""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import cache

from ...core.parameters import Parameters, param


@dataclass(frozen=True)
class TensegrityBody(Parameters):
    """Parameters of the robot itself; motion determines them only up to a common factor of mass, stiffness and damping."""

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
    """Parameters of our engine: the body, and the five contact parameters of [Wang2020] IV-B."""

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


_FACTOR = {"unit": "-", "bounds": (0.1, 10.0), "scale": "log", "source": "1: as all cables"}


def factor_names(cables: int, motors: int) -> tuple[str, ...]:
    """Names of factors of every cable: on stiffness and damping, on rest length, and on the gain of every motor.

    >>> factor_names(2, 1)
    ('stiffness_factor0', 'stiffness_factor1', 'rest_factor0', 'rest_factor1', 'gain_factor0')
    """
    kinds = {"stiffness": cables, "rest": cables, "gain": motors}
    return tuple(f"{kind}_factor{number}" for kind, count in kinds.items() for number in range(count))


@cache
def own_parameters(cables: int, motors: int) -> type[TensegrityParameters]:
    """`TensegrityParameters`, followed by the factors of the given numbers of cables and motors."""
    return make_dataclass(
        f"{TensegrityParameters.__name__}{cables}x{motors}",
        [(name, float, param(1.0, **_FACTOR)) for name in factor_names(cables, motors)],  # type: ignore[arg-type]
        bases=(TensegrityParameters,),
        frozen=True,
        namespace={"__module__": __name__},
    )


def __getattr__(name: str) -> type[TensegrityParameters]:
    """Classes of `own_parameters`, by name: so that they can be pickled."""
    counts = name.removeprefix(TensegrityParameters.__name__).split("x")
    if name.startswith(TensegrityParameters.__name__) and len(counts) == 2 and all(count.isdecimal() for count in counts):
        return own_parameters(int(counts[0]), int(counts[1]))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
"""Contact mode -> the parameters that it uses."""
