r"""Derivatives of a world along one run, by differences of whole runs: for worlds whose states cannot be perturbed freely.

Moving one joint of a closed chain opens it, and its closing is no derivative. Controls can be perturbed: runs with one
control changed at step s give \(S_{t,s} = \partial x_t / \partial u_s\) of reachable changes only, and

.. math:: B_t = S_{t+1,t}, \qquad A_t S_{t,s} = S_{t+1,s} \quad (s < t)

determines A on all changes that earlier controls can make (least norm beyond them): all that a planner of controls needs.
Legend: T control steps, nx state, n tangent, nu control.
"""

from __future__ import annotations

import numpy as np

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array

from .plan import CountedSimulator, control_scale

SMALLEST = 1e-6
"""Singular value of reachable changes, over the largest, below which a direction counts as not reachable."""


def run_slopes(
    simulator: CountedSimulator, states: Array, controls: Array, parameters: Parameters | None, width: float
) -> tuple[Array, Array]:
    """A (T, n, n) and B (T, n, nu) along a run with states (T+1, nx) and controls (T, nu).

    Args:
        simulator: The world; runs T (T + 1) / 2 nu control steps.
        states: States of the run, as `simulator` makes them.
        controls: Controls of the run.
        parameters: Parameters, one row.
        width: Change of a control, in half ranges, to the side with more system: differences are one-sided.
    """
    world, (horizon, nu) = simulator.simulator, controls.shape
    low, high = world.control_bounds
    step = width * control_scale(world) * np.where(high - controls >= controls - low, 1.0, -1.0)
    S = np.zeros((horizon + 1, horizon, world.n, nu))  # dx_t / du_s
    for s in range(horizon):
        moved = np.repeat(controls[None, s:], nu, axis=0)
        moved[np.arange(nu), 0, np.arange(nu)] += step[s]
        found, status = simulator.rollout(np.repeat(states[s][None], nu, axis=0), moved, parameters)
        change = world.difference(found, np.broadcast_to(states[s:], found.shape)) / step[s][:, None, None]
        change[status != 0] = np.nan
        S[s:, s] = np.moveaxis(change, 0, -1)
    A = np.zeros((horizon, world.n, world.n))
    for t in range(1, horizon):
        before, after = (np.moveaxis(S[k, :t], 1, 0).reshape(world.n, -1) for k in (t, t + 1))
        if np.isfinite(after).all() and np.isfinite(before).all():
            A[t] = after @ np.linalg.pinv(before, rcond=SMALLEST)
        else:
            A[t] = np.nan
    return A, np.stack([S[t + 1, t] for t in range(horizon)])
