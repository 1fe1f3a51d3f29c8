r"""The beam as a vine robot that does not grow: its start, its predictions, and theory for comparison.

A released beam is straight and at rest, its dashpots too. Its holder is in its way for some hundredths of a second,
and a load on a string is slack at first, as the tip falls faster than it: so two numbers of each recording are fitted, the
bend and the rate along s (2 - s), s the share of the length, with which a beam let go at once would move as this one does
afterwards.

Rubber is softer in larger motion (Payne, 1962). A beam that swings with amplitude A about its place of rest rings slower than
in small motion, by the share `softening` (A / 5 mm)^(1/2). The engine's springs are linear, so this is an equivalent
linearisation: the linear beam's clock runs slower by that share. Where the beam comes to rest is not changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from releases import DISTURBED, LONGEST, PERIOD, Release
from scipy.integrate import cumulative_trapezoid, quad
from scipy.interpolate import CubicSpline
from scipy.linalg import eigh
from scipy.optimize import least_squares

from softgym_envs.systems.vine import VineParameters, load_scene
from softgym_envs.systems.vine.dynamics import VineSimulator

Array = NDArray[np.float64]

FOLDER = Path(__file__).parent
DT = 1e-3
"""[s]"""
HEIGHT, LENGTH, DENSITY = 0.03, 0.1, 1070.0
"""[m], [m], [kg/m^3]"""
SECOND_MOMENT = HEIGHT**4 / 12
SHEAR = 5 / 6
WINDOW = (0.15, 1.2)
"""[s] Window after the release for frequency and decay."""
SETTLED = 0.34
"""[s] From here on the softening is estimated: the rows before determine a prediction's start."""
AMPLITUDE = 0.005
"""[m] Amplitude of the mean height at which the clock is slower by `softening`."""
UNIT = np.array([0.01, 1.0])
"""[rad, rad/s] Units of the two numbers of a start."""


def simulator_of(markers: int = 3) -> VineSimulator:
    """Our engine, with the given number of markers."""
    return VineSimulator(replace(load_scene(FOLDER / "beam.toml"), num_markers=markers), dt=DT, bending="linear")


def start_state(simulator: VineSimulator, held: Array, start: Array) -> Array:
    """State of a beam with markers held at (M, 2) [m], let go with (bend [rad], rate [rad/s])."""
    model = simulator.model
    state = model.straight_state()
    parts, share = model.split(state), (np.arange(model.num_links) + 0.5) / model.num_links
    parts.markers[...] = held - model.tip(state)[:2]
    parts.theta[:] += start[0] * share * (2 - share)
    parts.omega[:] += start[1] * share * (2 - share)
    return state


def predict(
    simulator: VineSimulator, parameter_values: VineParameters, held: Array, load: float, starts: Array, rows: int
) -> Array:
    """Paths of the markers for K starts (K, 2), (K, rows, M, 2) [m]."""
    states = np.stack([start_state(simulator, held, start) for start in starts])
    controls = np.tile([0.0, load], (len(states), rows - 1, 1))
    found, status = simulator.rollout(states, controls, parameter_values, substeps=round(PERIOD / DT))
    assert (status == 0).all(), "the beam diverged"
    return simulator.model.marker_places(found)


def predict_softened(
    simulator: VineSimulator,
    parameter_values: VineParameters,
    softening: float,
    held: Array,
    load: float,
    starts: Array,
    rows: int,
) -> Array:
    """As `predict`, with a clock that runs slower in larger motion."""
    times = PERIOD * np.arange(max(rows, LONGEST))
    paths = predict(simulator, parameter_values, held, load, starts, len(times))
    rings = [ring(path[:LONGEST, :, 1].mean(axis=1)) for path in paths]
    clocks = [linear_time(times[:rows], one.amplitude, one.decay, softening) for one in rings]
    return np.stack([CubicSpline(times, path)(clock) for path, clock in zip(paths, clocks, strict=True)])


def fitted_start(
    simulator: VineSimulator, parameter_values: VineParameters, softening: float, release: Release, last: int
) -> Array:
    """(bend, rate) with which rows `DISTURBED` to `last` are predicted best."""

    def residual(numbers: Array) -> Array:
        starts = np.atleast_2d(numbers) * UNIT
        paths = predict_softened(simulator, parameter_values, softening, release.paths[0], release.load, starts, last)
        return np.asarray(1e3 * (paths - release.paths[:last])[:, DISTURBED:].reshape(len(paths), -1))

    def slopes(numbers: Array) -> Array:
        step = 1e-3 * np.eye(2)
        ends = residual(np.concatenate([numbers + step, numbers - step]))
        return np.asarray((ends[:2] - ends[2:]).T / 2e-3)

    return np.asarray(least_squares(lambda n: residual(n)[0], np.zeros(2), slopes).x * UNIT)


class Ring(NamedTuple):
    """A decaying sine."""

    frequency: float
    """[Hz]"""
    decay: float
    """[1/s]"""
    swing: float
    """Range of the heights in the window [m]."""
    amplitude: float
    """At the release [m]."""


def _sine(times: Any, clock: Any, heights: Array, frequency: float, decay: float) -> tuple[Array, float]:
    """Residual [mm], and amplitude at time 0 [mm], of c + d exp(-t / 0.5 s) + exp(-decay u) (a cos + b sin), u the clock."""
    wave = np.exp((-decay + 2j * np.pi * frequency) * clock)
    columns = np.stack([np.ones_like(times), np.exp(-2 * times), wave.real, wave.imag], axis=1)
    shares = np.linalg.lstsq(columns, 1e3 * heights, rcond=None)[0]
    return columns @ shares - 1e3 * heights, float(np.hypot(*shares[2:]))


def ring(heights: Array) -> Ring:
    """Fit heights (T,) from the release on by a decaying sine, least squares."""
    times = PERIOD * np.arange(len(heights))
    seen = (times >= WINDOW[0]) & (times <= WINDOW[1])
    t, x = times[seen], heights[seen]
    guesses = np.array([[f, 2.0] for f in np.arange(1.5, 12.0, 0.2)])
    first = min(guesses, key=lambda initial_guess: float(np.sum(_sine(t, t, x, *initial_guess)[0] ** 2)))
    best = least_squares(lambda numbers: _sine(t, t, x, *numbers)[0], first).x
    return Ring(float(best[0]), float(best[1]), float(np.ptp(x)), 1e-3 * _sine(t, t, x, *best)[1])


def linear_time(times: Any, amplitude: float, decay: float, softening: float) -> Array:
    """Times (T,) [s] of a linear beam at which it is where the softened one is at `times`; `amplitude` at the release [m]."""
    u = np.linspace(0.0, times[-1], 5 * len(times))
    rate = 1.0 - softening * np.sqrt(amplitude * np.exp(-decay * u) / AMPLITUDE)
    return np.asarray(np.interp(times, cumulative_trapezoid(1.0 / np.maximum(rate, 0.1), u, initial=0.0), u))


def softened(release: Release) -> tuple[float, float, float]:
    """(softening, decay [1/s], amplitude at the release [m]) from how the frequency rises while one recording dies down."""
    times, heights, first = PERIOD * np.arange(len(release.paths)), release.heights, ring(release.heights)
    seen = times >= SETTLED
    t, x = times[seen], heights[seen]

    def residual(numbers: Array) -> Array:
        frequency, decay, softening, size = numbers
        left, found = _sine(t, linear_time(times, np.exp(size), decay, softening)[seen], x, frequency, decay)
        return np.append(left, 10.0 * (np.log(1e-3 * found) - size))

    start = [first.frequency, first.decay, 0.03, np.log(first.amplitude)]
    best = least_squares(residual, start, x_scale=[0.1, 0.1, 0.01, 0.1]).x
    return float(best[2]), float(best[1]), float(np.exp(best[3]))


def linearised(release: Release, softening: float) -> Release:
    """The recording by a linear beam's clock."""
    _, decay, amplitude = softened(release)
    times = PERIOD * np.arange(len(release.paths))
    clock = linear_time(times, amplitude, decay, softening)
    rows = int(clock[-1] / PERIOD) + 1
    paths = CubicSpline(clock, release.paths)(PERIOD * np.arange(rows))
    paths[0] = release.paths[0]
    return release._replace(paths=paths)


def storage(parameter_values: VineParameters, frequency: float) -> float:
    """Storage modulus E' of the fitted body at a frequency [Hz] [Pa]; at 0 the long-term one."""
    total, w = 1.0, 2 * np.pi * frequency
    for share, time in (
        (parameter_values.relaxation, parameter_values.relaxation_time),
        (parameter_values.creep, parameter_values.creep_time),
    ):
        total += share * (w * time) ** 2 / (1 + (w * time) ** 2)
    return float(parameter_values.bending_stiffness * total / SECOND_MOMENT)


def timoshenko(modulus: float, load: float) -> float:
    """First frequency [Hz] of a Timoshenko cantilever with a mass at its end, by Ritz with sags under two loads.

    Deflection w and rotation of the section phi under a force at the end and under an even load, with shear and rotary inertia.
    """
    stiff, shear = modulus * SECOND_MOMENT, SHEAR * modulus / 3 * HEIGHT**2
    w = [
        lambda x: (3 * LENGTH * x**2 - x**3) / 6 / stiff + x / shear,
        lambda x: (x**4 - 4 * LENGTH * x**3 + 6 * LENGTH**2 * x**2) / 24 / stiff + (LENGTH * x - x**2 / 2) / shear,
    ]
    phi = [lambda x: (2 * LENGTH * x - x**2) / 2 / stiff, lambda x: (x**3 - 3 * LENGTH * x**2 + 3 * LENGTH**2 * x) / 6 / stiff]
    bend = [lambda x: (LENGTH - x) / stiff, lambda x: (LENGTH - x) ** 2 / 2 / stiff]
    slide = [lambda x: 1 / shear, lambda x: (LENGTH - x) / shear]
    K, M = np.zeros((2, 2)), np.zeros((2, 2))
    for i in range(2):
        for j in range(2):
            K[i, j] = quad(lambda x, i=i, j=j: stiff * bend[i](x) * bend[j](x) + shear * slide[i](x) * slide[j](x), 0, LENGTH)[
                0
            ]
            M[i, j] = (
                load * w[i](LENGTH) * w[j](LENGTH)
                + DENSITY
                * quad(lambda x, i=i, j=j: HEIGHT**2 * w[i](x) * w[j](x) + SECOND_MOMENT * phi[i](x) * phi[j](x), 0, LENGTH)[0]
            )
    return float(np.sqrt(eigh(K, M, eigvals_only=True)[0]) / (2 * np.pi))
