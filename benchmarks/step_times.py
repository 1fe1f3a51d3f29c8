"""Times of an environment's control steps, and of the physics in them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray


def step_times(env: Any, actions: Any, rounds: int) -> NDArray[np.float64]:
    """Best times of every control step of an environment and of its physics, over many rounds from one reset, (2, steps) [s].

    `env` is without wrappers and has been stepped before: the first control is checked.
    """
    episodes, simulator = env.episodes, env.episodes.simulator
    spent = np.full((2, rounds, len(actions)), np.inf)

    def timed(*arguments: Any) -> Any:
        begin = time.perf_counter()
        found = simulator.advance(*arguments)
        spent[1, turn, k] = time.perf_counter() - begin
        return found

    for turn in range(rounds):
        env.reset(seed=0)
        episodes.simulator = SimpleNamespace(advance=timed, retract=simulator.retract, n=simulator.n)
        for k, action in enumerate(actions):
            begin = time.perf_counter()
            env.step(action)
            spent[0, turn, k] = time.perf_counter() - begin
        episodes.simulator = simulator
    return np.asarray(spent.min(axis=1))
