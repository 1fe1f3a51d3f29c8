"""Parameters of arm and loop: those that the paper identifies, and nuisance parameters."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import cache

from ...core.parameters import Parameters, param
from .springs import factor_names

_PAPER = "[Caldwell2014], section V: identified on Baxter with 12 links"
_OFFSET = {
    "unit": "N m",
    "bounds": (-5.0, 5.0),
    "source": "added to what a torque sensor says; 0.2 N m spoil psi_stiffness by a quarter",
}
_FRICTION = {"unit": "N m", "bounds": (-0.2, 10.0), "source": "dry friction; an estimate of none may be below 0 by chance"}
_SHIFT = {
    "unit": "m",
    "bounds": (-0.5, 0.5),
    "source": "of the clamp from below the gripper; of a peg from the loop's middle",
}
_TURN = {
    "unit": "rad",
    "bounds": (-0.5, 0.5),
    "source": "of the clamp from the gripper's rotation at the start, as roll, pitch, yaw",
}


@dataclass(frozen=True)
class LoopParameters(Parameters):
    """Parameters of our engine and its MuJoCo models, in the order of `model.PARAMETERS`, then those of recordings only."""

    theta_stiffness: float = param(4.45252, unit="N m/rad", bounds=(0.05, 100.0), scale="log", source=_PAPER)
    psi_stiffness: float = param(0.96969, unit="N m/rad", bounds=(0.05, 100.0), scale="log", source=_PAPER)
    loop_damping: float = param(
        0.02, unit="N m s/rad", bounds=(1e-4, 1.0), scale="log", source="chosen: twice what steps of 10 ms need at rest"
    )
    loop_scale: float = param(1.0, unit="-", bounds=(0.1, 10.0), scale="log", source="factor of the loop's mass and inertia")
    arm_damping: float = param(0.7, unit="N m s/rad", bounds=(0.01, 20.0), scale="log", source="baxter_description")
    friction_s0: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]
    friction_s1: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]
    friction_e0: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]
    friction_e1: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]
    friction_w0: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]
    friction_w1: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]
    friction_w2: float = param(0.0, **_FRICTION)  # type: ignore[arg-type]
    offset_s0: float = param(0.0, **_OFFSET)  # type: ignore[arg-type]
    offset_s1: float = param(0.0, **_OFFSET)  # type: ignore[arg-type]
    offset_e0: float = param(0.0, **_OFFSET)  # type: ignore[arg-type]
    offset_e1: float = param(0.0, **_OFFSET)  # type: ignore[arg-type]
    offset_w0: float = param(0.0, **_OFFSET)  # type: ignore[arg-type]
    offset_w1: float = param(0.0, **_OFFSET)  # type: ignore[arg-type]
    offset_w2: float = param(0.0, **_OFFSET)  # type: ignore[arg-type]
    clamp_x: float = param(0.0, **_SHIFT)  # type: ignore[arg-type]
    clamp_y: float = param(0.0, **_SHIFT)  # type: ignore[arg-type]
    clamp_z: float = param(0.0, **_SHIFT)  # type: ignore[arg-type]
    clamp_roll: float = param(0.0, **_TURN)  # type: ignore[arg-type]
    clamp_pitch: float = param(0.0, **_TURN)  # type: ignore[arg-type]
    clamp_yaw: float = param(0.0, **_TURN)  # type: ignore[arg-type]
    gravity: float = param(9.81, unit="m/s^2", bounds=(0.0, 30.0), source="Earth")
    torque_delay: float = param(
        0.0, unit="s", bounds=(-0.02, 0.1), source="of recorded torques behind angles (`tracking`); a simulation has none"
    )
    torque_gain: float = param(
        1.0, unit="-", bounds=(0.5, 2.0), scale="log", source="of recorded torques over those that act (`tracking`)"
    )


DELAY, GAIN = (LoopParameters.names().index(name) for name in ("torque_delay", "torque_gain"))
"""Indices of the parameters that are not in the tree."""
_FACTOR = {"unit": "-", "bounds": (0.05, 20.0), "scale": "log", "source": "1: as stiff as the loop"}


@dataclass(frozen=True)
class TwistParameters(LoopParameters):
    """Parameters of a loop whose links also twist."""

    twist_stiffness: float = param(1.0, unit="N m/rad", bounds=(0.05, 100.0), scale="log", source="a guess")
    twist_damping: float = param(0.02, unit="N m s/rad", bounds=(1e-4, 1.0), scale="log", source="as loop_damping")


def loop_parameters(parts: int, twist: bool = False) -> type[LoopParameters]:
    """`LoopParameters` or `TwistParameters`, followed by the factors of sides of the given number of parts; see `springs`."""
    base = TwistParameters if twist else LoopParameters
    return _with_factors(base, parts) if parts else base


@cache
def _with_factors(base: type[LoopParameters], parts: int) -> type[LoopParameters]:
    return make_dataclass(
        f"{base.__name__}{parts}",
        [(name, float, param(1.0, **_FACTOR)) for name in factor_names(parts)],  # type: ignore[arg-type]
        bases=(base,),
        frozen=True,
        namespace={"__module__": __name__},
    )


def __getattr__(name: str) -> type[LoopParameters]:
    """Look up classes of `loop_parameters` by name, so that they can be pickled."""
    for base in (LoopParameters, TwistParameters):
        number = name.removeprefix(base.__name__)
        if number != name and number.isdecimal() and int(number) > 0:
            return loop_parameters(int(number), base is TwistParameters)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
