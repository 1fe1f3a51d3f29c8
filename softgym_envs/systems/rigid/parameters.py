"""Parameters of the rigid system's scenes: particles on a plane, and the block that slides on three supports."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import cache

from ...core.parameters import Parameters, param

FRICTION = {"unit": "-", "bounds": (0.0, 1.0), "source": "[Berard2008] slides 26, 27: 0 <= mu <= 1, mu = 0.2"}


@dataclass(frozen=True)
class ParticleParameters(Parameters):
    """One particle."""

    friction: float = param(0.2, **FRICTION)  # type: ignore[arg-type]
    mass: float = param(1.0, unit="kg", bounds=(1e-3, 1e3), scale="log", source="[Berard2008] slide 27")
    gravity: float = param(9.81, unit="m/s^2", bounds=(0.0, 30.0), source="[Berard2008] slide 27")
    drag: float = param(0.0, unit="N s/m", bounds=(0.0, 100.0), source="viscous; [Berard2008] has none")
    tilt_x: float = param(0.0, unit="rad", bounds=(-0.5, 0.5), source="the ground falls towards x; [Berard2008]: level")


@cache
def particle_parameters(count: int) -> type[Parameters]:
    """Parameters of `count` particles: each has its own friction (friction0, ...), the others are shared.

    >>> particle_parameters(2).names()
    ('friction0', 'friction1', 'mass', 'gravity', 'drag', 'tilt_x')
    """
    if count == 1:
        return ParticleParameters
    specs = ParticleParameters.specs()
    own = [(f"friction{i}", float, param(0.2, **FRICTION)) for i in range(count)]  # type: ignore[arg-type]
    shared = [
        (s.name, float, param(s.default, unit=s.unit, bounds=s.bounds, scale=s.scale, source=s.source))
        for s in specs.values()
        if s.name != "friction"
    ]
    made: type[Parameters] = make_dataclass(
        f"ParticleParameters{count}",
        [*own, *shared],
        bases=(Parameters,),
        frozen=True,
        namespace={"__module__": __name__, "__doc__": "Parameters of the particles: friction of each, and what they share."},
    )
    return made


def __getattr__(name: str) -> type[Parameters]:
    """Classes of `particle_parameters`, by name: so that they can be pickled."""
    number = name.removeprefix("ParticleParameters")
    if number != name and number.isdecimal() and int(number) > 1:
        return particle_parameters(int(number))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True)
class BlockBody(Parameters):
    """Parameters of the block itself, shared with the MuJoCo model."""

    friction: float = param(0.33, unit="-", bounds=(0.0, 1.5), source="[Berard2008] slide 34: 0.3303 by MPEC")
    mass: float = param(1.0, unit="kg", bounds=(0.01, 100.0), scale="log", source="chosen: [Berard2008] gives none")
    inertia: float = param(
        0.0067, unit="kg m^2", bounds=(1e-6, 10.0), scale="log", source="about the vertical; a square of 0.2 m and 1 kg"
    )
    weight: float = param(0.5, unit="kg", bounds=(0.0, 50.0), source="mass that hangs at the string; chosen")
    gravity: float = param(9.81, unit="m/s^2", bounds=(0.1, 30.0), source="Earth")
    drag: float = param(0.0, unit="N s/m", bounds=(0.0, 100.0), source="viscous, on the centre of mass; [Berard2008] has none")
    tilt_x: float = param(0.0, unit="rad", bounds=(-0.5, 0.5), source="the table falls towards x; [Berard2008]: level")
    tilt_y: float = param(0.0, unit="rad", bounds=(-0.5, 0.5), source="and, turned about x after that, towards y")


@dataclass(frozen=True)
class BlockParameters(BlockBody):
    """Parameters of our own engine: the block itself, nothing else."""
