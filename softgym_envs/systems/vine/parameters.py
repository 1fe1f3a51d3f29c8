"""Parameters of a vine robot, none of which depends on the number of its links; shared with the MuJoCo model.

The defaults describe a tube of polyethylene film of 24 mm diameter at 10 kPa with a pair of inflated muscles along it, of the
size of the robots in [Jitosho2021] (arXiv 2011.01917).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.parameters import Parameters, param

RATE_SPEED = 0.1
"""[m/s] Growth speed at which `rate_pressure` is needed."""


@dataclass(frozen=True)
class VineBody(Parameters):
    """Parameters of the tube, its muscles, its tail and its surroundings."""

    bending_stiffness: float = param(
        0.02, unit="N m^2", bounds=(1e-6, 10.0), scale="log", source="EI = pi E t R^3; between the paper's two scenes"
    )
    bending_damping: float = param(
        2e-4, unit="N m^2 s", bounds=(1e-8, 1.0), scale="log", source="10 ms times EI: first mode at a tenth of critical"
    )
    linear_density: float = param(
        0.02, unit="kg/m", bounds=(1e-4, 10.0), scale="log", source="wall and tail, film of 0.1 mm, and muscles"
    )
    drag: float = param(0.05, unit="N s/m^2", bounds=(0.0, 100.0), source="of table and air, per length of body")
    pressure: float = param(1e4, unit="Pa", bounds=(10.0, 1e6), scale="log", source="a usual growing pressure")
    yield_pressure: float = param(2e3, unit="Pa", bounds=(0.0, 1e6), source="[Blumenschein2017]: least pressure that everts")
    rate_pressure: float = param(
        1e3, unit="Pa", bounds=(0.0, 1e6), source="[Blumenschein2017]: (v / phi)^(1/n) at v = 0.1 m/s, beyond yield_pressure"
    )
    rate_power: float = param(1.0, unit="-", bounds=(0.6, 4.0), source="[Blumenschein2017]: n; 1 is proportional to speed")
    tail_drag: float = param(0.2, unit="N/m", bounds=(0.0, 100.0), source="[Blumenschein2017]: mu w, tail on wall, per length")
    bend_drag: float = param(0.2, unit="N", bounds=(0.0, 100.0), source="[Blumenschein2017]: C, tail around bends")
    tail_friction: float = param(0.2, unit="-", bounds=(0.0, 2.0), source="[Blumenschein2017]: mu_c, per rad of bend")
    friction: float = param(0.3, unit="-", bounds=(0.0, 2.0), source="film on wood or plastic")
    steering_gain: float = param(
        4e-6, unit="m^3", bounds=(1e-9, 1e-2), scale="log", source="moment per pressure: muscle area 2e-4 m^2 at 20 mm"
    )
    steering_curvature: float = param(
        10.0, unit="1/m", bounds=(0.1, 1e3), scale="log", source="at which a muscle is fully contracted: 20 % at 20 mm"
    )
    steering_lag: float = param(0.2, unit="s", bounds=(1e-3, 10.0), scale="log", source="time to fill a muscle")
    gravity: float = param(0.0, unit="m/s^2", bounds=(0.0, 30.0), source="along -y; 0 for a robot on a table")
    gravity_angle: float = param(0.0, unit="rad", bounds=(-3.2, 3.2), source="of gravity from -y, to the left: a tilted frame")
    base_turn: float = param(0.0, unit="rad", bounds=(-0.5, 0.5), source="heading of the clamp, less the drawing's")
    clamp_length: float = param(0.0, unit="m", bounds=(0.0, 1.0), source="of body that bends inside of a clamp that gives way")
    tip_mass: float = param(0.0, unit="kg", bounds=(0.0, 10.0), source="a cap or camera at the tip, a point")
    tip_offset: float = param(0.0, unit="m", bounds=(-0.5, 0.5), source="of tip_mass and of a load, ahead of the tip")
    relaxation: float = param(0.0, unit="-", bounds=(0.0, 5.0), source="stiffness that relaxes, over the one that lasts")
    relaxation_time: float = param(
        0.03, unit="s", bounds=(1e-3, 10.0), scale="log", source="rubber: near its loss factor's peak"
    )
    creep: float = param(0.0, unit="-", bounds=(0.0, 5.0), source="as relaxation, slowly")
    creep_time: float = param(0.5, unit="s", bounds=(1e-2, 1e3), scale="log", source="as relaxation_time")
    bending_friction: float = param(0.0, unit="N m", bounds=(0.0, 1.0), source="moment that resists bending at any speed")


@dataclass(frozen=True)
class VineParameters(VineBody):
    """Parameters of our engine: contact is rigid, so there are no further ones."""
