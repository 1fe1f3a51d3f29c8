"""Copies of environments, and their specs in a form that JSON can hold.

A simulator holds compiled kernels and buffers, which cannot be copied: a copy is built anew from the same arguments, and then
continues from the same episodes with the same random numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from ..core.parameters import Parameters
from ..core.simulator import Simulator
from ..core.task import Task
from .episodes import Episodes


def frozen(env: Any) -> dict[str, Any]:
    """State from which an environment is copied: build arguments, spec, generators, and the state of its episodes."""
    return {
        "built": env.built,
        "spec": env.spec,
        "seed": env._np_random_seed,
        "generator": env._np_random,
        "rngs": env.episodes.rngs,
        "begun": env.episodes.begun,
        "saved": env.get_state(),
    }


def thaw(env: Any, state: Mapping[str, Any]) -> None:
    """Continue in a newly built environment from a state of `frozen`."""
    env.spec = state["spec"]
    if state["begun"]:  # before the first reset there is no state yet
        env.set_state(state["saved"])
    env.episodes.rngs = state["rngs"]
    env._np_random, env._np_random_seed = state["generator"], state["seed"]


class Copied:
    """An environment that can be copied, and whose spec JSON can hold: a mixin, before Gymnasium's own class."""

    episodes: Episodes
    built: dict[str, Any]
    """Arguments that it was made with."""
    _spec: EnvSpec | None = None

    def __getstate__(self) -> dict[str, Any]:
        return frozen(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["built"])  # type: ignore[misc]
        thaw(self, state)

    @property
    def task(self) -> Task:
        """The task."""
        return self.episodes.task

    @property
    def simulator(self) -> Simulator:
        """The simulator under the task."""
        return self.episodes.simulator

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's spec, in a form that `EnvSpec.to_json` can write."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        self._spec = plain_spec(spec, self.episodes.task.parameter_values)


def plain_spec(spec: EnvSpec | None, fixed: Mapping[str, float]) -> EnvSpec | None:
    """The spec with keywords that JSON can hold: parameters as {name: value}, paths as text, arrays as lists.

    An object of parameters becomes a mapping without those that the task fixes: a mapping would override them.
    """
    if spec is None:
        return None
    spec = copy.copy(spec)
    given = spec.kwargs.get("params")
    spec.kwargs = _plain(spec.kwargs)
    if isinstance(given, Parameters):
        spec.kwargs["params"] = {name: value for name, value in spec.kwargs["params"].items() if name not in fixed}
    return spec


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Parameters):
        return {name: _plain(getattr(value, name)) for name in value.names()}
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
