"""A user's own MJCF as a ground truth of a system: a TOML file maps its joints, bodies and actuators to our state.

See docs/how-to/ground_truths.md for the form of the file. States of the MJCF beyond ours are hidden state, entries
"unseen_mjcf.qpos3", ..., which recordings leave out. Entries of ours may be sums of joints, lengths of tendons or positions of
sites; these follow from the hidden state, y = h(x). Where ours were changed from outside, the hidden joints move by the
smallest step that agrees with them (Gauss-Newton). Legend: B batch, nx state, k readings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from ...core.errors import FileFormatError, StructureError
from ...core.files import check_entries, doubled, number_in, read_toml
from ...core.layout import Field
from ...core.mismatch import UNSEEN
from ...core.parameters import Parameters
from ...core.simulator import MAX_DT, Array, IntArray
from ...core.spec import hashed
from .engine import Index, MujocoEngine, MujocoSimulator

TABLES = {"mjcf": str, "dt": (int, float), "states": dict, "controls": dict, "held": dict}
"""Entries of a file -> their types."""

MAX_SCALE = 1e6
"""Largest scale and offset of an entry."""


def identity(path: Path) -> str:
    """Hash of a mapping and of what MuJoCo compiles of its MJCF, if it names one.

    Raises:
        FileFormatError: The mapping or the MJCF cannot be read.
    """
    found, content = read_toml(path), np.zeros(0, np.uint8)
    if isinstance(found.get("mjcf"), str):
        compiled = _loaded(path, found["mjcf"])
        content = np.zeros(mujoco.mj_sizeModel(compiled), np.uint8)
        mujoco.mj_saveModel(compiled, None, content)
    return hashed(json.dumps(found, sort_keys=True, default=str).encode() + content.tobytes())


def _loaded(path: Path, mjcf: str) -> mujoco.MjModel:
    source = Path(path).parent / mjcf
    try:
        return mujoco.MjModel.from_xml_path(str(source))
    except (ValueError, OSError) as error:
        raise FileFormatError(f"{path}: MuJoCo cannot load {source}: {error}") from error


@dataclass(frozen=True)
class NoParameters(Parameters):
    """No parameters: the world is as it was built."""


@dataclass(frozen=True)
class Place:
    """Place of one of our entries in MuJoCo's physics state [qpos, qvel, act]: ours = scale * theirs + offset."""

    index: int
    scale: float = 1.0
    offset: float = 0.0


SIMPLE = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
AXES = ("x", "y", "z")
TERMS = ("qpos", "qvel", "act", "tendon", "tendonvel", "site", "sitevel")
"""Terms of a reading: entries of MuJoCo's state, length and speed of a tendon, position and velocity of a site."""
CLOSE, ROUNDS, WIDTH, SINGULAR = 1e-9, 20, 1e-6, 1e-3
"""Largest error of a reading; most Gauss-Newton steps, width of their differences, and least share of a singular value used."""


@dataclass(frozen=True)
class Reading:
    """An entry of ours that follows from hidden state: ours = scale * (sum of terms) + offset."""

    terms: tuple[tuple[str, int, int], ...]
    """Kind, its index in MuJoCo (of [qpos, qvel, act], of a tendon or a site), and the axis of a site."""
    scale: float = 1.0
    offset: float = 0.0

    def value(self, model: mujoco.MjModel, data: mujoco.MjData) -> float:
        """Its value after mj_forward."""
        return self.scale * sum(_term(model, data, *term) for term in self.terms) + self.offset


def _term(model: mujoco.MjModel, data: mujoco.MjData, kind: str, index: int, axis: int) -> float:
    if kind == "tendon":
        return float(data.ten_length[index])
    if kind == "tendonvel":
        return float(data.ten_velocity[index])
    if kind == "site":
        return float(data.site_xpos[index, axis])
    if kind == "sitevel":
        velocity = np.zeros(6)  # rotation rate, then velocity, in the world's axes
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_SITE, index, velocity, 0)
        return float(velocity[3 + axis])
    return float(np.concatenate([data.qpos, data.qvel, data.act])[index])


@dataclass(frozen=True, eq=False)
class MjcfGroundTruth(MujocoSimulator):
    """See the module docstring; a subclass may define `document`, `compiled` and `write` in Python, without a file.

    Raises:
        FileFormatError: The file cannot be read, or has entries of the wrong kind.
        StructureError: The MJCF has no such joint, body or actuator, or an entry of ours is neither mapped nor held.
    """

    parameters_class = NoParameters

    model: Any
    """The system's model: its layout and controls."""
    system: str  # type: ignore[misc]  # here it belongs to the value, not to the class
    """Name of the system."""
    path: Path
    """Path of the mapping."""
    dt: float = 0.0
    """Physics step [s]; 0: the file's, else the MJCF's own."""
    extra_fields: tuple[Field, ...] = field(default=(), init=False)  # type: ignore[misc]

    def __post_init__(self) -> None:
        compiled = self.compiled
        object.__setattr__(self, "dt", float(self.dt or self._own_dt or compiled.opt.timestep))
        if not 0 < self.dt <= MAX_DT:
            raise FileFormatError(f"{self.path}: the MJCF's timestep is {self.dt:g} s, allowed is > 0 and <= {MAX_DT:g}")
        compiled.opt.timestep = self.dt
        size, taken = compiled.nq + compiled.nv + compiled.na, {place.index for place in self._places.values()}
        rest = [index for index in range(size) if index not in taken]
        names = " ".join(_label(compiled, index) for index in rest)
        object.__setattr__(self, "extra_fields", (Field(f"{UNSEEN}mjcf", None, (names, "-")),) if rest else ())
        _ = self._actuators

    @property
    def extra_rest(self) -> Array:
        """Values of the MJCF's initial pose for entries that are not ours."""
        compiled = self.compiled
        first = np.concatenate([compiled.qpos0, np.zeros(compiled.nv + compiled.na)])
        return np.asarray(first[self._rest])

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping, in MuJoCo's own coordinates."""
        return MujocoEngine(
            self.compiled,
            nx=self.nx,
            nu=self.nu,
            state_index=self._state_index,
            control_index=self._actuators,
            write_parameters=self.write,
        )

    def write(self, compiled: mujoco.MjModel, row: Array) -> None:
        """Write parameters (P,) into a compiled model; a mapped MJCF has none."""

    def _held(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        lifted = self._lifted(state, parameter_values)
        theirs, status = self.engine.step((lifted - self._offset) / self._scale, control, parameter_values, substeps)
        after = theirs * self._scale + self._offset
        if self._read_columns:
            after[:, self._read_columns] = self._readings(after, parameter_values)
            after = np.where(status[:, None] == 0, after, state)
        return after, status

    # --- hidden state ----------------------------------------------------------------------------------------------

    def embed(self, state: Array) -> Array:
        """See `BaseSimulator.embed`; hidden joints move from rest so that sums of them are ours."""
        whole = super().embed(state)
        flat = whole.reshape(-1, self.nx)
        return self._lifted(flat, self.parameter_values(None, len(flat))).reshape(whole.shape)

    @cached_property
    def _read_columns(self) -> list[int]:
        return [self.model.layout.names.index(name) for name in self._entries[1]]

    @cached_property
    def _movable(self) -> list[int]:
        """Columns of our state that are hidden hinges and slides, their speeds, and activations."""
        compiled, names = self.compiled, len(self.model.layout.names)
        joints = [j for j in range(compiled.njnt) if mujoco.mjtJoint(compiled.jnt_type[j]) in SIMPLE]
        own = {int(compiled.jnt_qposadr[j]) for j in joints} | {int(compiled.nq + compiled.jnt_dofadr[j]) for j in joints}
        own |= set(range(compiled.nq + compiled.nv, compiled.nq + compiled.nv + compiled.na))
        return [names + k for k, index in enumerate(self._rest) if int(index) in own]

    def _readings(self, state: Array, parameter_values: Array) -> Array:
        """Values of the readings, (B, k)."""
        readings = self._entries[1].values()
        theirs = (state - self._offset) / self._scale
        if self._weights is not None:
            return (theirs[:, None] * self._weights).sum(axis=2) + np.array([reading.offset for reading in readings])
        return self.engine.evaluate(
            theirs, parameter_values, lambda m, d: np.array([reading.value(m, d) for reading in readings])
        )

    @cached_property
    def _weights(self) -> Array | None:
        """Readings = weights (k, nx) * entries in MuJoCo's units, row by row; None where tendons or sites are read."""
        readings, weights = list(self._entries[1].values()), np.zeros((len(self._entries[1]), self.nx))
        for row, reading in zip(weights, readings, strict=True):
            for kind, index, _ in reading.terms:
                if kind not in TERMS[:3]:
                    return None
                row[self._state_index[index]] += reading.scale
        return weights

    def _lifted(self, state: Array, parameter_values: Array) -> Array:
        """States whose hidden entries agree with ours, as far as they can."""
        if not self._read_columns:
            return state
        found, wanted, columns = state.copy(), state[:, self._read_columns], self._movable
        errors = wanted - self._readings(found, parameter_values)
        if self._weights is not None:
            shares = np.linalg.pinv(self._weights[:, columns])
            found[:, columns] += (np.where(np.abs(errors) > CLOSE, errors, 0.0)[:, None] * shares).sum(axis=2)
            return found
        for row in np.flatnonzero(np.isfinite(errors).all(axis=1) & (np.abs(errors).max(axis=1) > CLOSE)):
            x, error, repeated = found[row], errors[row], np.repeat(parameter_values[row : row + 1], len(columns), axis=0)
            for _ in range(ROUNDS):
                moved = np.tile(x, (len(columns), 1))
                moved[np.arange(len(columns)), columns] += WIDTH
                slopes = (self._readings(moved, repeated) - (wanted[row] - error)) / WIDTH
                x[columns] += np.linalg.lstsq(slopes.T, error, rcond=SINGULAR)[0]
                error = wanted[row] - self._readings(x[None], parameter_values[row : row + 1])[0]
                if np.abs(error).max() <= CLOSE:
                    break
        return found

    # --- the mapping -----------------------------------------------------------------------------------------------

    @cached_property
    def document(self) -> dict[str, Any]:
        """The mapping."""
        document = read_toml(self.path)
        for name, value in document.items():
            if name not in TABLES:
                raise FileFormatError(f"{self.path}: unknown entry {name!r}; allowed are {', '.join(TABLES)}")
            if not isinstance(value, TABLES[name]) or isinstance(value, bool):  # type: ignore[arg-type]
                raise FileFormatError(f"{self.path}: {name} is {value!r}")
        for name in ("mjcf", "states", "controls"):
            if name not in document:
                raise FileFormatError(f"{self.path}: {name} is missing; see docs/how-to/ground_truths.md")
        return document

    @cached_property
    def compiled(self) -> mujoco.MjModel:
        """The MJCF as MuJoCo compiles it."""
        return _loaded(self.path, self.document["mjcf"])

    @property
    def _own_dt(self) -> float:
        """Physics step in the file [s]; 0: none given."""
        dt = number_in(f"{self.path}: dt", self.document.get("dt", 0.0))
        if not 0 <= dt <= MAX_DT or (dt == 0 and "dt" in self.document):
            raise FileFormatError(f"{self.path}: dt is {dt:g}, expected a number [s] > 0 and <= {MAX_DT:g}")
        return dt

    @property
    def _held_entries(self) -> list[str]:
        table = check_entries(f"{self.path}: held", self.document.get("held", {}), ("entries",))
        names = table.get("entries", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FileFormatError(f"{self.path}: entries of [held] is {names!r}, expected a list of names")
        return names

    @property
    def _places(self) -> dict[str, Place]:
        """Entry of ours -> its place in MuJoCo's state."""
        return self._entries[0]

    @cached_property
    def _entries(self) -> tuple[dict[str, Place], dict[str, Reading]]:
        """Places and readings of every entry of the model's layout that is not held."""
        found: dict[str, Place | Reading] = {}
        for name, where in self.document["states"].items():
            found.update(self._read(name, where))
        names, held = self.model.layout.names, self._held_entries
        for name in (*found, *held):
            if name not in names:
                raise StructureError(f"{self.path}: {name!r} is no state entry of {self.system}; there are {_some(names)}")
        missing = [name for name in names if name not in found and name not in held]
        if missing:
            raise StructureError(f"{self.path}: state entry {missing[0]!r} is neither mapped nor held ({len(missing)} missing)")
        twice = doubled((*found, *held))
        if twice is not None:
            raise StructureError(f"{self.path}: state entry {twice!r} is both mapped and held, or held twice")
        owner: dict[int, str] = {}
        places = {name: place for name, place in found.items() if isinstance(place, Place)}
        for name, place in places.items():
            if owner.setdefault(place.index, name) != name:
                raise StructureError(f"{self.path}: {owner[place.index]} and {name} are the same place of the MJCF")
        return places, {name: reading for name, reading in found.items() if isinstance(reading, Reading)}

    def _read(self, name: str, where: Any) -> Mapping[str, Place | Reading]:
        """Places of one line of [states]."""
        scale, offset = 1.0, 0.0
        if isinstance(where, list):
            where = {"sum": where}
        if isinstance(where, Mapping):
            given = dict(where)
            scale, offset = (
                number_in(f"{self.path}: {what} of {name}", given.pop(what, usual))
                for what, usual in (("scale", 1.0), ("offset", 0.0))
            )
            if abs(offset) > MAX_SCALE or not 1 / MAX_SCALE <= abs(scale) <= MAX_SCALE:
                raise FileFormatError(
                    f"{self.path}: {name} has scale {scale:g} and offset {offset:g}, allowed are sizes of {1 / MAX_SCALE:g} to "
                    f"{MAX_SCALE:g} and up to {MAX_SCALE:g}"
                )
            kind, target = next(iter(given.items())) if len(given) == 1 else ("", "")
        else:
            kind, _, target = str(where).partition(":")
        if kind == "body":
            return self._free_body(name, str(target))
        if kind in TERMS[3:] or (kind == "sum" and isinstance(target, list) and target):
            terms = target if kind == "sum" else [f"{kind}:{target}"]
            return {name: Reading(tuple(self._read_term(name, str(term)) for term in terms), scale, offset)}
        if kind not in TERMS[:3]:
            raise FileFormatError(
                f"{self.path}: {name} is {where!r}, expected 'qpos:joint', 'qvel:joint', 'act:actuator', 'body:name', "
                "'tendon:name', 'tendonvel:name', 'site:name.x', 'sitevel:name.x', or a list of them: their sum"
            )
        return {name: Place(self._address(kind, str(target)), scale, offset)}

    def _read_term(self, name: str, term: str) -> tuple[str, int, int]:
        """A term of a reading: "qpos:joint", "tendon:name", "site:name.x", ...; see `Reading.terms`."""
        kind, _, target = term.partition(":")
        if kind in TERMS[:3]:
            return kind, self._address(kind, target), 0
        if kind not in TERMS:
            raise FileFormatError(f"{self.path}: {name} has the term {term!r}, expected one of {', '.join(TERMS)}")
        body, _, axis = target.rpartition(".") if kind.startswith("site") else (target, "", "x")
        what = mujoco.mjtObj.mjOBJ_SITE if kind.startswith("site") else mujoco.mjtObj.mjOBJ_TENDON
        index = mujoco.mj_name2id(self.compiled, what, body)
        if index < 0 or axis not in AXES:
            known = "tendon" if kind.startswith("tendon") else "site with an axis, as 'site:tip.x',"
            raise StructureError(f"{self.path}: {name}: the MJCF has no {known} {target!r}")
        return kind, index, AXES.index(axis)

    def _address(self, kind: str, target: str) -> int:
        """Finds the place of a hinge or slide joint, or of an actuator with activation, in [qpos, qvel, act]."""
        compiled = self.compiled
        what = mujoco.mjtObj.mjOBJ_ACTUATOR if kind == "act" else mujoco.mjtObj.mjOBJ_JOINT
        index = mujoco.mj_name2id(compiled, what, target)
        if index < 0:
            raise StructureError(f"{self.path}: the MJCF has no {'actuator' if kind == 'act' else 'joint'} {target!r}")
        if kind == "act":
            if compiled.actuator_actadr[index] < 0:
                raise StructureError(f"{self.path}: actuator {target!r} has no activation")
            return int(compiled.nq + compiled.nv + compiled.actuator_actadr[index])
        if mujoco.mjtJoint(compiled.jnt_type[index]) not in SIMPLE:
            raise StructureError(f"{self.path}: joint {target!r} is no hinge or slide; map a free body as 'body:name'")
        address = compiled.jnt_qposadr[index] if kind == "qpos" else compiled.nq + compiled.jnt_dofadr[index]
        return int(address)

    def _free_body(self, name: str, target: str) -> dict[str, Place]:
        """Position, quaternion, velocity and rotation rate of a free body, for the field with the prefix `name`.

        A robot that is one free body has entries without prefix: then for all of them, whatever `name` is.
        """
        compiled = self.compiled
        body = mujoco.mj_name2id(compiled, mujoco.mjtObj.mjOBJ_BODY, target)
        joint = int(compiled.body_jntadr[body]) if body >= 0 else -1
        if joint < 0 or mujoco.mjtJoint(compiled.jnt_type[joint]) != mujoco.mjtJoint.mjJNT_FREE:
            raise StructureError(f"{self.path}: the MJCF has no free body {target!r}")
        names = self.model.layout.names
        prefix = f"{name}." if any("." in entry for entry in names) else ""
        ours = [entry for entry in names if entry.startswith(prefix)]
        if len(ours) != 13:
            raise StructureError(f"{self.path}: {name} has {len(ours)} entries of ours, a free body has 13")
        q, v = int(compiled.jnt_qposadr[joint]), int(compiled.nq + compiled.jnt_dofadr[joint])
        return {entry: Place(index) for entry, index in zip(ours, (*range(q, q + 7), *range(v, v + 6)), strict=True)}

    @cached_property
    def _actuators(self) -> Index:
        """Actuator of every control of ours."""
        found: list[int] = []
        check_entries(f"{self.path}: controls", self.document["controls"], self.model.control_names)
        for name in self.model.control_names:
            if name not in self.document["controls"]:
                raise StructureError(f"{self.path}: control {name!r} is not mapped; ours are {_some(self.model.control_names)}")
            index = mujoco.mj_name2id(self.compiled, mujoco.mjtObj.mjOBJ_ACTUATOR, str(self.document["controls"][name]))
            if index < 0:
                raise StructureError(f"{self.path}: the MJCF has no actuator {self.document['controls'][name]!r}")
            if index in found:
                raise StructureError(f"{self.path}: actuator {self.document['controls'][name]!r} has two of our controls")
            found.append(index)
        return np.array(found, dtype=np.intp)

    @cached_property
    def _rest(self) -> Index:
        """Indices of MuJoCo's physics state that are not mapped to our state."""
        taken = {place.index for place in self._places.values()}
        compiled = self.compiled
        return np.array([i for i in range(compiled.nq + compiled.nv + compiled.na) if i not in taken], dtype=np.intp)

    @cached_property
    def _state_index(self) -> Index:
        """Index in our state of each entry of MuJoCo's physics state."""
        compiled, names = self.compiled, self.model.layout.names
        found = np.zeros(compiled.nq + compiled.nv + compiled.na, dtype=np.intp)
        for name, place in self._places.items():
            found[place.index] = names.index(name)
        found[self._rest] = len(names) + np.arange(len(self._rest))
        return found

    @cached_property
    def _scale(self) -> Array:
        return self._per_entry("scale", 1.0)

    @cached_property
    def _offset(self) -> Array:
        return self._per_entry("offset", 0.0)

    def _per_entry(self, what: str, default: float) -> Array:
        values = np.full(self.nx, default)
        for name, place in self._places.items():
            values[self.model.layout.names.index(name)] = getattr(place, what)
        return values


def _label(compiled: mujoco.MjModel, index: int) -> str:
    """Name of an entry of MuJoCo's physics state, as qpos3, qvel2 or act0."""
    if index < compiled.nq:
        return f"qpos{index}"
    return f"qvel{index - compiled.nq}" if index < compiled.nq + compiled.nv else f"act{index - compiled.nq - compiled.nv}"


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
