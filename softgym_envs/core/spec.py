"""Spec of the simulator that parameters belong to: system, structure, options and physics step, saved with fits.

Parameters that were fitted to one structure, timestep or contact mode mean nothing, or something else, in another. A spec is a
table [simulator] in a file of parameters; `gym.make(..., params=file)`, `identify --resume` and the fingerprint of a fit
compare it with the simulator at hand, and refuse a mismatch in one sentence.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import FileFormatError, shown
from .files import number_in, read_toml
from .parameters import Option

ROBOT = "robot"
"""Key of a recording's metadata: the spec of our engine of the recorded robot, as JSON."""
MAX_WRITTEN_CHARACTERS = 60
"""Characters of a field's value that are written out; a longer one is written as its hash."""
HASHED = "sha256:"
"""Prefix of a hash."""


@dataclass(frozen=True)
class SimulatorSpec:
    """See the module docstring."""

    system: str
    dt: float
    """Physics step [s]."""
    options: dict[str, Option] = field(default_factory=dict)
    """The simulator's `options`: structural choices such as the mode of contact."""
    structure: dict[str, str] = field(default_factory=dict)
    """Field of the model -> its value as JSON, or the hash of it."""
    model: str = ""
    """Name of the model in the system, or its file, which may also lie beside the file of parameters."""

    @classmethod
    def of(cls, simulator: Any, model: str = "") -> SimulatorSpec:
        """The spec of a simulator with attributes `dt`, `model`, and perhaps `system` and `options`."""
        structure = (
            {f.name: short(getattr(simulator.model, f.name)) for f in fields(simulator.model)}
            if (is_dataclass(getattr(simulator, "model", None)))
            else {}
        )
        options = dict(getattr(simulator, "options", {}))
        return cls(str(getattr(simulator, "system", "")), float(simulator.dt), options, structure, model)

    @classmethod
    def read(cls, path: str | Path) -> SimulatorSpec | None:
        """The spec in a file of parameters; None if the file has none.

        Raises:
            FileFormatError: The file cannot be read, or its [simulator] is not in this form.
        """
        table = read_toml(path).get("simulator")
        if table is None:
            return None
        if not isinstance(table, dict):
            raise FileFormatError(f"{path}: simulator is {shown(table)}, expected a table [simulator]")
        allowed = [f.name for f in fields(cls)]
        for name in table:
            if name not in allowed:
                raise FileFormatError(
                    f"{path}: [simulator] has {shown(name)}; allowed are {', '.join(allowed)}. A file from before specs were "
                    "written: put its entries into [simulator.options] and add system and dt, or identify again"
                )
        kinds = {"system": str, "dt": (int, float), "options": dict, "structure": dict, "model": str}
        for name, kind in kinds.items():
            if name in table and (not isinstance(table[name], kind) or isinstance(table[name], bool)):  # type: ignore[arg-type]
                raise FileFormatError(f"{path}: [simulator] {name} is {shown(table[name])}")
        for name, value in table.get("structure", {}).items():
            if not isinstance(value, str):
                raise FileFormatError(f"{path}: [simulator.structure] {name} is {shown(value)}, expected text")
        if not {"system", "dt"} <= set(table):
            raise FileFormatError(f"{path}: [simulator] needs system and dt")
        model = str(table.get("model", ""))
        if model.endswith(".toml") and not Path(model).is_file() and (near := Path(path).parent / Path(model).name).is_file():
            model = str(near)
        return cls(**{**table, "model": model, "dt": number_in(f"{path}: [simulator] dt", table["dt"])})

    @classmethod
    def recorded(cls, metadata: Mapping[str, str]) -> SimulatorSpec | None:
        """The spec in a recording's metadata; None if they have none that can be read."""
        try:
            found = cls(**json.loads(metadata[ROBOT]))
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        tables = isinstance(found.options, dict) and isinstance(found.structure, dict)
        return found if tables and all(isinstance(value, str) for value in found.structure.values()) else None

    def table(self) -> dict[str, Any]:
        """The table of a TOML file."""
        return {name: value for name, value in asdict(self).items() if name != "model" or value}

    def mismatch(self, other: SimulatorSpec, *, free: tuple[str, ...] = (), slack: float = 1e-9) -> str:
        """Why parameters of this spec cannot be used in `other`, as half a sentence; "" if they can.

        Args:
            other: Spec of the simulator at hand.
            free: Fields of the structure that the parameters do not depend on.
            slack: Share by which the physics steps may differ.
        """
        if self.system != other.system:
            return f"they were identified for system {self.system!r}, this is {other.system!r}"
        if abs(self.dt - other.dt) > slack * self.dt:
            return f"they were identified with dt = {self.dt:g} s, this simulator has {other.dt:g} s"
        for name in sorted({*self.options, *other.options}):
            if self.options.get(name) != other.options.get(name):
                return f"they were identified with {name} = {self.options.get(name)!r}, here it is {other.options.get(name)!r}"
        for name in self.structure:
            if other.structure and name not in other.structure:
                return f"[simulator.structure] has {name!r}, the model here has {', '.join(sorted(other.structure))}"
        for name in sorted(set(self.structure) & set(other.structure) - set(free)):
            if self.structure[name] != other.structure[name]:
                named = f" (model {self.model})" if self.model else ""
                values = _pair(self.structure[name], other.structure[name])
                return f"they were identified for another value of {name}{named}{values}"
        return ""

    def differences(self, other: SimulatorSpec) -> str:
        """Fields of the structure that differ, with this one's value and the other's where they are short."""
        names = [name for name in self.structure if self.structure[name] != other.structure.get(name)]
        pairs = {name: (self.structure[name], other.structure.get(name, "nothing")) for name in names}
        return ", ".join(
            name if any(value.startswith(HASHED) for value in pair) else f"{name} {' -> '.join(pair)}"
            for name, pair in pairs.items()
        )


def changes(one: Any, other: Any) -> str:
    """Differences between two simulators of one class: in the structure of their models, and in their own numbers and names.

    >>> from softgym_envs.systems.vine.dynamics import VineSimulator
    >>> changes(VineSimulator(bending="linear"), VineSimulator(bending="wrinkling", dt=0.005))
    'dt 0.01 -> 0.005, bending linear -> wrinkling'
    """
    pairs = {f.name: (getattr(one, f.name), getattr(other, f.name)) for f in fields(one)}
    told = [f"{name} {a:g} -> {b:g}" if isinstance(a, float) else f"{name} {a} -> {b}"
            for name, (a, b) in pairs.items() if isinstance(a, str | int | float) and a != b]  # fmt: skip
    return ", ".join(part for part in (SimulatorSpec.of(one).differences(SimulatorSpec.of(other)), *told) if part)


def short(value: Any) -> str:
    """JSON of a value made `plain`, or its hash where that is long."""
    text = json.dumps(plain(value), sort_keys=True)
    return text if len(text) <= MAX_WRITTEN_CHARACTERS else hashed(text.encode())


def _pair(its: str, here: str) -> str:
    """Both values of a field if they are written out; "" for hashes."""
    return "" if its.startswith(HASHED) or here.startswith(HASHED) else f": {its}, here {here}"


def hashed(content: bytes) -> str:
    """A short hash of contents."""
    return HASHED + hashlib.sha256(content).hexdigest()[:16]


def plain(value: Any) -> Any:
    """Convert to numbers, strings, lists and mappings, equal in every process; a file becomes the hash of its contents.

    >>> plain({"n_steps": (16, np.float64(0.5)), "kind": int})
    {'n_steps': [16, 0.5], 'kind': "<class 'int'>"}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, Path):
        return hashed(value.read_bytes()) if value.is_file() else str(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))  # an address differs from process to process
