"""Complementary pairs and contact schedules of rollouts of our engine, for the joint fit of [Jitosho2021] III.

Legend: K steps, nz pairs, as in `softgym_envs.systems.vine.symbolic`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.parameters import VineParameters
from softgym_envs.systems.vine.symbolic import PER_CONTACT, complementarity_form

Array = NDArray[np.float64]

STICKS = 1e-3
"""A contact sticks where friction is below its bound by more than this share of it."""


def engine_pairs(
    simulator: VineSimulator, states: Array, growth: Array, parameters: VineParameters
) -> tuple[Array, NDArray[np.bool_]]:
    """Pairs of K steps of the engine among walls, and their contact schedule.

    Args:
        simulator: The engine.
        states: States of a rollout with one physics step per row (K+1, nx).
        growth: Growth speed commands (K,) [m/s].
        parameters: Its parameters.

    Returns:
        z (K, nz); and True where f = 0 (K, nz), the `schedule` of `sysid.simultaneous`.

    Raises:
        OptionError: As for `complementarity_form`.
    """
    form, model, before = complementarity_form(simulator), simulator.model, states[:-1]
    if not model.obstacles:
        return np.zeros((len(before), 0)), np.zeros((len(before), 0), dtype=np.bool_)
    found, total, mu = simulator.contact_forces(before, growth, parameters), model.num_links, parameters.friction
    slips = np.zeros((len(before), len(model.obstacles), total, PER_CONTACT))
    for k, c in zip(*np.nonzero(found.active), strict=True):
        push, rub = found.normal[k, c], found.tangent[k, c]
        slips[k, found.obstacle[k, c], found.link[k, c], :2] = push, max(mu * push + rub, 0.0)
    z = np.concatenate([slips.reshape(len(before), -1), np.zeros((len(before), 2))], axis=1)
    controls = np.concatenate([growth[:, None], np.zeros((len(before), model.nu - 1))], axis=1)
    g, f = form.evaluate(before, controls, np.tile(parameters.to_vector(), (len(before), 1)), states[1:], z)
    here = np.tile(np.arange(total) < form.modes(before), (1, len(model.obstacles)))
    normal, shifted = z[:, 0:-2:PER_CONTACT], z[:, 1:-2:PER_CONTACT]
    z[:, 2:-2:PER_CONTACT] = np.where(here, np.maximum(-f[:, 1:-2:PER_CONTACT], 0.0), 0.0)
    rest = g[:, 2 * total + 1] / simulator.dt  # b - a
    z[:, -2], z[:, -1] = np.maximum(-rest, 0.0), np.maximum(rest, 0.0)
    schedule = z > 0
    schedule[:, 1:-2:PER_CONTACT] = shifted > STICKS * mu * normal
    schedule[:, 2:-2:PER_CONTACT] = here & (shifted >= (2.0 - STICKS) * mu * normal)
    return z, schedule
