"""Checkpoints of least squares as JSON: finished minimisations and the state of the one under way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.core.files import read_json, write_atomically
from softgym_envs.core.simulator import Array
from softgym_envs.core.spec import SimulatorSpec

from ..least_squares.levenberg import FitIteration, LevenbergState, StopReason


@dataclass(frozen=True, eq=False)
class Journal:
    """Progress of a fit between iterations: the content of a checkpoint."""

    phase: int  # Number of the minimisation: first the starts, then the reweighted ones.
    sigma: Array
    done: tuple[LevenbergState, ...]  # Final states of the earlier phases.
    state: LevenbergState | None  # State of the phase under way.


def save(path: Path, identity: str, spec: SimulatorSpec, journal: Journal) -> None:
    """Write the checkpoint of a fit, as a whole or not at all."""
    document = {
        "identity": identity,
        "simulator": spec.table(),
        "phase": journal.phase,
        "sigma": journal.sigma.tolist(),
        "done": [_state_to_json(state) for state in journal.done],
        "state": None if journal.state is None else _state_to_json(journal.state),
    }
    write_atomically(path, json.dumps(document).encode())


def read(path: Path, identity: str, spec: SimulatorSpec) -> Journal:
    """Read the checkpoint at `path`.

    Raises:
        FileFormatError: No such file, or no checkpoint.
        OptionError: It belongs to another fit.
    """
    document = read_json(path)
    try:
        if document["identity"] != identity:
            differs = SimulatorSpec(**{"system": "", **document["simulator"]}).mismatch(spec)
            why = f"its parameters: {differs}" if differs else "data, parameters, method or options differ"
            raise OptionError(f"{path} belongs to another fit: {why}")
        done = tuple(_state_from_json(entry) for entry in document["done"])
        state = None if document["state"] is None else _state_from_json(document["state"])
        return Journal(int(document["phase"]), np.array(document["sigma"], dtype=np.float64), done, state)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, OptionError):
            raise
        raise FileFormatError(f"{path} is no checkpoint: {error!r}") from error


def _state_to_json(state: LevenbergState) -> dict[str, Any]:
    arrays = {name: getattr(state, name).tolist() for name in ("theta", "blocks", "scale", "block_scale")}
    shapes = {"block_scale_shape": list(state.block_scale.shape)}
    numbers = {"cost": state.cost, "damping": state.damping, "growth": state.growth, "edge": state.edge}
    return {
        **arrays,
        **shapes,
        **numbers,
        "log": [{name: value if np.isfinite(value) else str(value) for name, value in asdict(e).items()} for e in state.log],
        "outcome": state.outcome and state.outcome.value,
    }


def _entry_from_json(line: dict[str, Any]) -> FitIteration:
    """Read one line of a log; "nan" and "-inf" are words, as JSON has no such numbers."""
    given: dict[str, Any] = {name: float(value) if isinstance(value, str) else value for name, value in line.items()}
    return FitIteration(**given)


def _state_from_json(entry: dict[str, Any]) -> LevenbergState:
    arrays = {name: np.array(entry[name], dtype=np.float64) for name in ("theta", "blocks", "scale", "block_scale")}
    arrays["block_scale"] = arrays["block_scale"].reshape(entry["block_scale_shape"])
    return LevenbergState(
        **arrays,
        cost=float(entry["cost"]),
        damping=float(entry["damping"]),
        growth=float(entry["growth"]),
        edge=bool(entry["edge"]),
        log=tuple(_entry_from_json(line) for line in entry["log"]),
        outcome=None if entry["outcome"] is None else StopReason(entry["outcome"]),
    )
