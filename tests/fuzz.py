"""Every door under mutated files and calls: the outcome is correct or one of our errors, within time and memory.

    python tests/fuzz.py --minutes 120        # prints what it finds; test_fuzz.py runs the same doors for seconds

A door is a function of a folder and a `Draw`, which makes its input: bytes of a good file that are flipped, cut or doubled; a
good document whose entries are renamed, removed, doubled or replaced; arguments from a list of nasty values. Rooms are those of
the list.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tomli_w

import softgym_envs  # noqa: F401  (registers the ids)
from agents.study.definition import Study
from agents.study.document import read_study
from agents.study.fits import FitRecord
from agents.study.jobs import read_record, register
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import read_json, read_toml
from softgym_envs.core.recordings import read_recordings
from softgym_envs.core.room import Room
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.rooms import rooms
from sysid.report.files import load_distribution

MODELS = Path(__file__).parent / "data/models"
SECONDS, MEGABYTES = 5.0, 400
"""What one input may take: processor time, and memory beyond what the process has had before."""
ALLOWED = (SoftgymError, gym.error.Error)
NASTY: tuple[Any, ...] = (
    0, 1, -1, 2**31, 2**63 - 1, 10**400, 0.0, -0.0, 0.5, 1e-8, 1e-300, 1e300, float("nan"), float("inf"), True, False, None,
    "", "a", "nan", "\0", "x" * 3000, "../..", [], [[]], [0.0] * 3, [None], {}, {"a": 1}, [[0.0, 1.0], [1.0]], -5, 3, 1e9,
)  # fmt: skip


class Draw:
    """Choices of one input; `choose(n)` gives a number below n."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self.choose = choose

    def of(self, values: Any) -> Any:
        """One of the values."""
        return values[self.choose(len(values))]

    def nasty(self) -> Any:
        """A value that nobody expects, which may be changed."""
        return copy.deepcopy(self.of(NASTY))

    def bytes(self, seed: bytes) -> bytes:
        """A good file with up to three wounds."""
        content = bytearray(seed)
        for _ in range(1 + self.choose(3)):
            at = self.choose(len(content) + 1)
            end = min(len(content), at + 1 + self.choose(40))
            kind = self.choose(5)
            if kind == 0:
                content[at:end] = bytes(self.choose(256) for _ in range(end - at))
            elif kind == 1:
                del content[at:end]
            elif kind == 2:
                del content[at:]
            elif kind == 3:
                content[at:at] = content[at:end] * (1 + self.choose(50))
            else:
                content[at:at] = self.of((b"\xff", b"\0", b"[" * 2000, b"nan", b"1e999", b'"', b"\n", b"-", b"9" * 5000))
        return bytes(content)

    def document(self, seed: Any) -> Any:
        """A good document with up to two changes."""
        document = json.loads(json.dumps(seed))
        for _ in range(1 + self.choose(2)):
            places = list(_places(document))
            if not places:
                break
            owner, key = self.of(places)
            kind = self.choose(5)
            if kind == 0:
                del owner[key]
            elif kind == 1 and isinstance(owner, dict):
                owner[self.of((f"{key}s", str(key)[:-1], "mass", key.upper()))] = owner.pop(key)
            elif kind == 2 and isinstance(owner, list):
                owner.append(owner[key])
            elif kind == 3:
                owner[key] = {"a": owner[key]} if self.choose(2) else [owner[key]] * 3
            else:
                owner[key] = self.nasty()
        return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(table or list, key) of everything in a document."""
    for key, entry in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(entry, (dict, list)):
            yield from _places(entry)


def toml(document: Any) -> bytes:
    """A document as TOML, without what TOML cannot say."""

    def sayable(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): sayable(entry) for key, entry in value.items() if entry is not None}
        if isinstance(value, list):
            return [sayable(entry) for entry in value if entry is not None]
        return value

    return tomli_w.dumps(sayable(document)).encode("utf-8", "replace")


def wounded(draw: Draw, seed: dict[str, Any], write: Callable[[Any], bytes]) -> bytes:
    """A document changed as a document, or as bytes."""
    return write(draw.document(seed)) if draw.choose(3) else draw.bytes(write(seed))


def as_json(document: Any) -> bytes:
    """A document as JSON, NaN included."""
    return json.dumps(document).encode()


# --- doors: files -----------------------------------------------------------------------------------------------------


def drive(simulator: Any, steps: int = 2) -> None:
    """A few steps from rest; a row that fails says so."""
    state, (low, high) = simulator.initial_state(1), simulator.control_bounds
    for control in (low, high)[:steps]:
        state, status = simulator.step(state, np.array([control]))
        assert np.isfinite(state).all() or status[0], "a state that is not finite is called ok"


def model_file(room: Room, folder: Path, draw: Draw) -> None:
    """A user's robot."""
    path = folder / "model.toml"
    path.write_bytes(wounded(draw, read_toml(MODELS / f"{room.name}.toml"), toml))
    drive(room.simulator(room.model(path)))


@cache
def constants_seed(name: str) -> dict[str, Any]:
    """A file of constants of a room."""
    simulator = rooms()[name].simulator()
    with tempfile.TemporaryDirectory() as folder:
        spec = SimulatorSpec.of(simulator).table()
        return read_toml(simulator.default_parameters.save(Path(folder) / "fit.toml", simulator=spec))


def constants_file(room: Room, folder: Path, draw: Draw) -> None:
    """A file of constants, into an environment where the room has one."""
    path = folder / "fit.toml"
    path.write_bytes(wounded(draw, constants_seed(room.name), toml))
    SimulatorSpec.read(path)
    if room.tasks:
        env = gym.make(room.tasks[0].id, params=path)
        env.reset(seed=0)
        env.step(np.zeros(env.action_space.shape))


MJCF = b"""<mujoco><option timestep="0.01"/><worldbody><body><inertial pos="0 0 0" mass="0.5" diaginertia="1e-3 1e-3 1e-3"/>
<joint name="along" type="slide" axis="1 0 0"/><joint name="across" type="slide" axis="0 1 0"/><joint name="turn" axis="0 0 1"/>
</body></worldbody><actuator><motor name="ahead" joint="along"/><motor name="aside" joint="across"/></actuator></mujoco>"""
MAPPING: dict[str, Any] = {
    "mjcf": "mine.xml", "dt": 0.01, "held": {"entries": ["omega"]}, "controls": {"force_x": "ahead", "force_y": "aside"},
    "states": {"x": "qpos:along", "y": "qpos:across", "theta": {"qpos": "turn", "scale": -1.0, "offset": 0.1},
               "vx": "qvel:along", "vy": {"qvel": "across", "scale": 1.0}},
}  # fmt: skip


def truth_file(folder: Path, draw: Draw) -> None:
    """A user's own MJCF under the block's tasks, and the file that maps it."""
    (folder / "mine.xml").write_bytes(MJCF if draw.choose(4) else draw.bytes(MJCF))
    path = folder / "mine.toml"
    path.write_bytes(wounded(draw, MAPPING, toml))
    drive(rooms()["block"].simulator(backend=str(path)))


WIDE = b"time [s], tip.x [mm], tip.y [mm], control:valve [-]\n" + b"".join(
    b"%.2f, 1.5, %d, 0\n" % (0.1 * k, k) for k in range(8)
)
POINTS = b"time [ms], point, x [mm], y [mm]\n" + b"".join(
    b"%d, %d, 1.5, -2\n" % (10 * k, p) for k in range(5) for p in range(3)
)


def table_file(folder: Path, draw: Draw) -> None:
    """A recording as CSV."""
    path = folder / "recording.csv"
    path.write_bytes(draw.bytes(draw.of((WIDE, POINTS))))
    assert all(np.isfinite(found.times).all() for found in read_recordings([path]))


@cache
def hdf5_seed() -> bytes:
    """A recording in HDF5."""
    one = Trajectory(np.arange(5.0), np.zeros((4, 1)), np.ones((5, 2)), ("x", "y"), ("m", "m"), ("u",), ("N",))
    with tempfile.TemporaryDirectory() as folder:
        return TrajectorySet((one, one)).save(Path(folder) / "a.h5").read_bytes()


def hdf5_file(folder: Path, draw: Draw) -> None:
    """A recording as HDF5."""
    path = folder / "recording.h5"
    path.write_bytes(draw.bytes(hdf5_seed()))
    TrajectorySet.load(path)


STUDY: dict[str, Any] = {
    "name": "s", "kind": "plan", "conditions": ["zero", "nominal", "truth"], "budgets": [400, 200], "curve": [], "seeds": 1,
    "case": {"room": "r", "task": "t", "stages": {"a": {"b": 1}}},
    "thresholds": [{"condition": "nominal", "quantity": "share", "limit": 0.5}],
}  # fmt: skip
RECORD = {
    "cost": 1.0,
    "failed": 0,
    "truth_steps": {"train": 3},
    "measures": {"m": [1.0, 2.0]},
    "model_cost": None,
    "seconds": 1.0,
}


def study_file(folder: Path, draw: Draw) -> None:
    """A study, and what a study leaves in its folder."""
    path = folder / "study.toml"
    path.write_bytes(wounded(draw, STUDY, toml))
    (folder / "run.json").write_bytes(wounded(draw, RECORD, as_json))
    with contextlib.suppress(*ALLOWED):
        read_study(path)
    with contextlib.suppress(*ALLOWED):
        read_record(folder / "run.json")
    study = Study("s", "plan", ("zero",), (100,))
    register(study, {}, folder / "out", provenance={})
    registered = read_json(folder / "out/study.json")
    (folder / "out/study.json").write_bytes(wounded(draw, registered, as_json))
    register(study, {}, folder / "out", provenance={})


def fit_record(room: Room, folder: Path, draw: Draw) -> None:
    """A fit of a study, and the posterior of a fit."""
    default = room.simulator().default_parameters
    rows = type(default).from_vector(np.stack([default.to_vector()] * 2))
    good = FitRecord(default, rows, "", False, {"train": 1}, {"nominal": [[0.1, 1.0]]}).to_json()
    posterior = {"posterior": {"names": ["a"], "mean": [1.0], "covariance": [[1.0]], "logarithmic": [False]}}
    (folder / "posterior.json").write_bytes(wounded(draw, posterior, as_json))
    with contextlib.suppress(*ALLOWED):
        load_distribution(folder / "posterior.json")
    (folder / "fit.json").write_bytes(wounded(draw, good, as_json))
    FitRecord.from_json(read_json(folder / "fit.json"), type(default))


@cache
def policy_seed() -> bytes:
    """A policy.zip."""
    import torch

    layers = {"mlp_extractor.policy_net.0": (4, 3), "action_net": (2, 4)}
    weights = {f"{name}.weight": torch.zeros(shape) for name, shape in layers.items()}
    weights |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in layers.items()}
    buffer, inner = io.BytesIO(), io.BytesIO()
    torch.save(weights, inner)
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("policy.pth", inner.getvalue())
        archive.writestr("data", json.dumps({"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.ELU'>"}}))
    return buffer.getvalue()


def policy_file(folder: Path, draw: Draw) -> None:
    """A policy."""
    from agents.learning.policy import load_policy

    path = folder / "policy.zip"
    path.write_bytes(draw.bytes(policy_seed()))
    assert load_policy(path)(np.zeros((1, 3))).shape == (1, 2)


# --- doors: calls -----------------------------------------------------------------------------------------------------

KEYWORDS = ("backend", "model", "dt", "device", "simulator_options", "control_period", "params", "randomize", "sensor_noise")
KEYWORDS += ("action_delay", "disturbance", "obs_mode", "render_mode", "nonsense")


def keyword(env_id: str, folder: Path, draw: Draw) -> None:
    """A keyword of an environment."""
    name, value = draw.of(KEYWORDS), draw.nasty()
    if name == "render_mode" and not isinstance(value, str):
        return  # Gymnasium itself stumbles over it
    env = gym.make(env_id, **{name: value})
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape))


@cache
def made(env_id: str) -> Any:
    """An environment that several inputs use."""
    return gym.make(env_id, action_delay=1).unwrapped


def episode(env_id: str, folder: Path, draw: Draw) -> None:
    """Options of a reset, an action, and a saved state; a call that is refused changes nothing."""
    env = made(env_id)
    env.reset(seed=0)
    names = env.simulator.default_parameters.names()
    array = np.array(env.state)
    array[draw.choose(len(array))] = draw.of((np.nan, np.inf, 1e300, 1e9, 1.0))
    options = [{draw.of(("state", "constants", *env.task.option_names)): draw.nasty()}, {"state": array}]
    options += [{"constants": {draw.of(names): draw.nasty()}}]
    with contextlib.suppress(*ALLOWED):
        env.reset(seed=0, options=draw.of(options))
    with contextlib.suppress(*ALLOWED):
        action = np.zeros(env.action_space.shape)
        action[draw.choose(len(action))] = draw.of((np.nan, np.inf, 1e300, -1e300, 5.0))
        observed, reward = env.step(draw.of((action, draw.nasty())))[:2]
        assert np.isfinite(observed).all() and np.isfinite(reward)
    saved = env.get_state()
    name = draw.of(tuple(saved))
    scaled = saved[name] if name == "rng" else saved[name] * draw.of((-1.0, np.nan, 1e9, 0.5))
    broken = {**saved, name: draw.nasty() if draw.choose(2) else scaled}
    try:
        env.set_state(broken)
    except ALLOWED:
        after = env.get_state()
        assert after.pop("rng") == saved.pop("rng")
        assert all(np.array_equal(after[key], saved[key]) for key in saved), "a refused state has changed something"


def simulation(room: Room, folder: Path, draw: Draw) -> None:
    """States, controls, constants and substeps of a simulator."""
    simulator = simulator_of(room.name)
    state = simulator.initial_state(2)
    state[0, draw.choose(state.shape[1])] += draw.of((0.0, 1e-3, 1.0, 1e3, 1e9, 1e150, np.nan))
    control = np.zeros((2, simulator.nu))
    if simulator.nu:
        control[0, draw.choose(simulator.nu)] = draw.of((0.0, 1.0, 1e6, 1e300, np.inf))
    spec = draw.of(tuple(simulator.default_parameters.specs().values()))
    constants = simulator.default_parameters.replace(**{spec.name: draw.of((*spec.bounds, spec.default, np.nan))})
    substeps = draw.of((1, 3, 10, 0, 2**40, 1.5, True, None))
    end = simulator.step(state, control, constants, substeps=substeps)[0]
    assert np.isfinite(end).all(), "a state that is not finite"
    alone = simulator.step(state[1:], control[1:], constants, substeps=substeps)[0]
    assert np.array_equal(end[1:], alone), "a row depends on another one"


@cache
def simulator_of(name: str) -> Any:
    """A simulator that several inputs use."""
    return rooms()[name].simulator()


def doors() -> dict[str, Callable[[Path, Draw], None]]:
    """Every door by its name."""
    found: dict[str, Callable[[Path, Draw], None]] = {
        "recording.csv": table_file, "recording.h5": hdf5_file, "study": study_file, "policy.zip": policy_file,
        "truth.toml": truth_file,
    }  # fmt: skip
    for room in rooms().values():
        if room.read_model:
            found[f"{room.name}: model"] = partial(model_file, room)
        found[f"{room.name}: constants"] = partial(constants_file, room)
        found[f"{room.name}: fit"] = partial(fit_record, room)
        found[f"{room.name}: step"] = partial(simulation, room)
        for task in room.tasks:
            found[f"{task.id}: keywords"] = partial(keyword, task.id)
            found[f"{task.id}: episode"] = partial(episode, task.id)
    return found


# --- the verdict ------------------------------------------------------------------------------------------------------


def check(door: Callable[[Path, Draw], None], draw: Draw) -> None:
    """One input through a door.

    Raises:
        AssertionError: It took too long or too much memory, or the message is no sentence.
        Exception: Anything that is none of our errors.
    """
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            door(Path(folder), draw)
        except ALLOWED as error:
            assert 5 < len(str(error)) < 3000, f"no sentence: {str(error)[:300]}"
    took, grown = time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert took < SECONDS, f"took {took:.1f} s of the processor"
    assert grown < MEGABYTES, f"took {grown:.0f} MB"


def warm_up() -> None:
    """Compile and import everything once, so that no input has to."""
    for room in rooms().values():
        drive(simulator_of(room.name))
        if room.read_model:
            drive(room.simulator(room.model(MODELS / f"{room.name}.toml")))
        for task in room.tasks:
            env = made(task.id)
            env.reset(seed=0)
            env.step(np.zeros(env.action_space.shape))
    policy_seed()


def main(arguments: list[str]) -> int:
    """Run for some minutes; print every kind of finding once, with the number that repeats it. -> how many kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="", help="doors whose name holds this")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    chosen = {name: door for name, door in doors().items() if args.only in name}
    warm_up()
    found: set[str] = set()
    end, seed, tried = time.monotonic() + 60 * args.minutes, args.seed, Counter[str]()
    while time.monotonic() < end:
        name = list(chosen)[seed % len(chosen)]
        try:
            check(chosen[name], Draw(random.Random(seed).randrange))
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{name}: {type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            if kind not in found:
                found.add(kind)
                print(f"--seed {seed} --only {args.only!r}\n  {kind}: {str(error)[:300]}", flush=True)
        tried[name] += 1
        seed += 1
    print(f"{sum(tried.values())} inputs through {len(tried)} doors, {len(found)} kinds of finding")
    return len(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
