r"""The arm and the beam as a tree of `mechanics`, its predictions of a recording, and ring-down frequencies.

The arm's angles follow the recorded ones, the beam is rigid pieces on hinges of stiffness EI / s and damping c / s, with
the mass of its sizes. The arm's links are massless: its torques are those required by the beam's momentum,

.. math:: \tau = \dot P - L_q, \qquad P = L_v - a \dot q

with the armature a of the joints. While the arm stands still, the measured torques are these and a constant, which is
fitted as the mean of each. The model gets only q: amplitude and phase of a ring-down are predicted, too.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.signal import savgol_filter

from softgym_envs.core.simulator import Status
from softgym_envs.mechanics import Body, Frame, Joint, Mechanism, Tree

ORIGINS = (
    ((0.0, 0.0, 0.333), 0.0), ((0.0, 0.0, 0.0), -1.0), ((0.0, -0.316, 0.0), 1.0), ((0.0825, 0.0, 0.0), 1.0),
    ((-0.0825, 0.384, 0.0), -1.0), ((0.0, 0.0, 0.0), 1.0), ((0.088, 0.0, 0.0), 1.0),
)  # fmt: skip
"""Panda's joints: place in the link before [m], and its quarter turns about x. Franka's documentation, "Robot and interface
specifications: Denavit-Hartenberg parameters"."""
FLANGE = 0.107
"""[m]"""
LENGTH, WIDTH, THICKNESS = 0.52, 0.08, 0.001
"""Sizes of the beam [m]; it points away from the flange's axis, at -135 degrees about it, and is thin along it."""
YOUNG, DENSITY = 1.9e11, 7870.0
"""[Pa], [kg/m^3] The authors' values for steel."""
PIECES = 8
DT = 0.002
"""[s]"""
ARMATURE, STIFF, DAMPED = 1e3, 2.5e6, 1e5
"""[kg m^2], [N m/rad], [N m s/rad] An arm so heavy and stiff follows its angles."""
AFTER, LONG = 2.0, 4.0
"""[s] The window starts this long after the arm should stop, as it settles itself at first, and its length."""
EVERY = 5
"""Physics steps between fitted samples."""


class Recording(NamedTuple):
    """A motion at steps of `DT`, and its fitted samples."""

    name: str
    angles: np.ndarray
    """(T + 1, 7) smoothed [rad]"""
    speeds: np.ndarray
    rates: np.ndarray
    """(T + 1, 7) [rad/s^2]"""
    torques: np.ndarray
    """(N, 7) at `rows`, less their means [N m]"""
    rows: np.ndarray
    """(N,) steps within the window."""


def read(path: Path) -> Recording:
    """A file of the repository, resampled where packets were lost."""
    with path.open() as file:
        names = [name.strip() for name in next(csv.reader(file))]
    table = np.loadtxt(path, delimiter=",", skiprows=2)
    column = {name: i for i, name in enumerate(names)}
    stamps = 1e-3 * (table[:, column["duration"]] - table[0, column["duration"]])
    times = 1e-3 * np.arange(int(stamps[-1] * 1e3))

    def signals(name: str) -> np.ndarray:
        return np.stack([np.interp(times, stamps, table[:, column[f"{name}[{i}]"]]) for i in range(7)], axis=1)

    q, wanted, tau = signals("q"), signals("q_d"), signals("tau_J")
    stopped = times[np.flatnonzero(np.abs(np.diff(wanted, axis=0)).max(axis=1) > 1e-7)[-1]]
    step = round(DT / 1e-3)
    first, last = round((stopped + AFTER) / DT), round((stopped + AFTER + LONG) / DT)
    angles, speeds, rates = (savgol_filter(q, 41, 3, deriv=order, delta=1e-3, axis=0)[::step][: last + 2] for order in range(3))
    rows = np.arange(first, last, EVERY)
    calm = savgol_filter(tau, 21, 2, axis=0)[::step][rows]
    return Recording(path.stem.removeprefix("ocp_"), angles, speeds, rates, calm - calm.mean(axis=0), rows)


# --- The model --------------------------------------------------------------------------------------------------------


@cache
def mechanism() -> Mechanism:
    """Panda with the beam; parameters are stiffness and damping of a hinge."""
    bodies, joints, parent = [], [], "world"
    for i, (xyz, turn) in enumerate(ORIGINS):
        bodies.append(Body(f"link{i}"))
        joints.append(
            Joint(f"q{i}", "revolute", parent, f"link{i}", xyz=xyz, rpy=(turn * np.pi / 2, 0.0, 0.0), armature=ARMATURE)
        )
        parent = f"link{i}"
    long, whole = LENGTH / PIECES, DENSITY * LENGTH * WIDTH * THICKNESS
    for i in range(PIECES + 1):
        share = 0.5 if i in (0, PIECES) else 1.0  # hinges are in the middle of equal parts
        size, mass = share * long, share * whole / PIECES
        inertia = (mass * WIDTH**2 / 12, mass * size**2 / 12, mass * (size**2 + WIDTH**2) / 12)
        bodies.append(Body(f"piece{i}", mass, (size / 2, 0.0, 0.0), inertia))
        if i == 0:
            joints.append(Joint("clamp", "fixed", parent, "piece0", xyz=(0.0, 0.0, FLANGE), rpy=(0.0, 0.0, -3 * np.pi / 4)))
        else:
            before = 0.5 * long if i == 1 else long
            joints.append(
                Joint(
                    f"bend{i}", "revolute", f"piece{i - 1}", f"piece{i}", axis=(0.0, 1.0, 0.0), xyz=(before, 0.0, 0.0),
                    stiffness="stiffness", damping="damping",
                )
            )  # fmt: skip
    tip = Frame("tip", f"piece{PIECES}", (long / 2, 0.0, 0.0))
    tree = Tree("panda_beam", tuple(bodies), tuple(joints), (tip,), actuated=tuple(f"q{i}" for i in range(7)))
    return Mechanism(tree, DT, ("stiffness", "damping"), force_split="symmetric")


def parameter_values(theta: np.ndarray) -> np.ndarray:
    """Parameters of the tree for the logarithms of EI [N m^2] and c [N m^2 s]."""
    return np.asarray(np.exp(theta) * PIECES / LENGTH)


def predicted(recording: Recording, theta: np.ndarray) -> np.ndarray:
    """Torques (N, 7) of the arm due to the beam, less their means [N m]."""
    model, row = mechanism(), parameter_values(theta)
    q = np.zeros((1, model.n))
    q[0, :7] = recording.angles[0]
    rest = model.rest(q, parameter_values=row, held=model.tree.actuated)
    assert rest.status[0] == Status.OK, "no rest"
    gains = np.zeros((7, model.nx))
    gains[:, :7], gains[:, model.n : model.n + 7] = STIFF * np.eye(7), DAMPED / ARMATURE * np.eye(7)
    led = ARMATURE * recording.rates + STIFF * recording.angles + DAMPED * recording.speeds
    state = model.rest_state(rest.q, rest.needed[:, :7], row)
    motion = model.simulate(state, led[None, :-1], row, gains=gains)
    assert motion.status[0] == Status.OK, "the beam cannot follow"
    path = motion.path[0, :, : model.n]
    middle, speed = 0.5 * (path[1:] + path[:-1]), np.diff(path, axis=0) / DT
    slopes = model.slopes(middle, speed, np.repeat(row[None], len(middle), axis=0))
    momentum = slopes.v[:, :7] - ARMATURE * speed[:, :7]
    torque = np.diff(momentum, axis=0) / DT - 0.5 * (slopes.q[1:, :7] + slopes.q[:-1, :7])
    found = torque[recording.rows - 1]
    return np.asarray(found - found.mean(axis=0))


# --- Ring-down --------------------------------------------------------------------------------------------------------


def ringing(torques: np.ndarray, ways: np.ndarray) -> dict[str, float]:
    """Frequency [Hz], damping ratio and amplitude [N m] of torques (N, 7) along `ways` (7,), a decaying sine, and its share."""
    signal, times = torques @ ways, EVERY * DT * np.arange(len(torques))
    spectrum = np.abs(np.fft.rfft(signal * np.hanning(len(signal)), 16 * len(signal)))
    initial_guess = np.fft.rfftfreq(16 * len(signal), EVERY * DT)[np.argmax(spectrum)]

    def rows(x: np.ndarray) -> np.ndarray:
        wave, decay = 2 * np.pi * x[0] * times, np.exp(-2 * np.pi * x[0] * x[1] * times)
        return np.stack([decay * np.cos(wave), decay * np.sin(wave), np.ones_like(times)], axis=1)

    def error(x: np.ndarray) -> np.ndarray:
        matrix = rows(x)
        return np.asarray(matrix @ np.linalg.lstsq(matrix, signal, rcond=None)[0] - signal)

    found = least_squares(error, [initial_guess, 0.005], x_scale=[0.1, 0.01]).x
    weights = np.linalg.lstsq(rows(found), signal, rcond=None)[0]
    share = 1 - float(np.sum(error(found) ** 2) / np.sum(signal**2))
    amplitude = float(np.hypot(*weights[:2]))
    return {"frequency": float(found[0]), "damping": float(found[1]), "amplitude": amplitude, "share": share}


def bending_of_steel() -> float:
    """EI by sizes and Young's modulus [N m^2]."""
    return YOUNG * WIDTH * THICKNESS**3 / 12


def euler_bernoulli() -> float:
    """First frequency of the clamped beam without gravity [Hz]."""
    mass = DENSITY * WIDTH * THICKNESS
    return 1.8751**2 / (2 * np.pi) * float(np.sqrt(bending_of_steel() / (mass * LENGTH**4)))
