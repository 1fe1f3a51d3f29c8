"""Every entry point under mutated files and calls: the outcome is correct or one of our errors, within time and memory.

    python tests/fuzz.py --minutes 120        # prints what it finds; test_fuzz.py runs the same entry points for seconds

An entry point is a function of a folder and a `Draw`, which makes its input: bytes of a good file that are flipped, cut or
doubled; a good document whose entries are renamed, removed, doubled or replaced; arguments from a list of nasty values. Systems
are those of the list.
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
from xml.etree import ElementTree

import gymnasium as gym
import numpy as np
import tomli_w
from helpers import urdf
from sysid_systems import START, Spring, problem

import softgym_envs  # noqa: F401  (registers the ids)
from agents.transfer_study.conditions import CONDITIONS
from agents.transfer_study.definition import Repeats, Study, Threshold
from agents.transfer_study.document import read_study
from agents.transfer_study.fits import FitRecord
from agents.transfer_study.jobs import read_record, register
from agents.transfer_study.planned import read_replay
from agents.transfer_study.report import write_report
from agents.transfer_study.run import bundled, chosen
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import read_json, read_toml
from softgym_envs.core.procedure import EXPERIMENT, Stage
from softgym_envs.core.spec import ROBOT, SimulatorSpec
from softgym_envs.core.system import System
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.inspection import inspect_file
from softgym_envs.data.recordings import read_recordings
from softgym_envs.mechanics.tree_file import load_tree
from softgym_envs.systems import systems
from softgym_envs.systems.loop.model import ARM, ARM_FILE
from sysid.fitting import checkpoint
from sysid.fitting.checkpoint import Journal
from sysid.fitting.shooting import one_step
from sysid.least_squares.levenberg import FitIteration, LevenbergState, StopReason
from sysid.procedure.job import Job
from sysid.procedure.run import _earlier

MODELS = Path(__file__).parent / "data/models"
LEARNED = "SlidingBlock-v0"
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

    def xml(self, seed: bytes) -> bytes:
        """A good XML file with up to two changes, as a document or as bytes."""
        if not self.choose(3):
            return self.bytes(seed)
        root = ElementTree.fromstring(seed)
        for _ in range(1 + self.choose(2)):
            owner = self.of(tuple(element for element in root.iter() if len(element)))
            element, kind = self.of(tuple(owner)), self.choose(5)
            if kind == 0:
                owner.remove(element)
            elif kind == 1:
                owner.append(copy.deepcopy(element))
            elif kind == 2:
                element.tag = self.of(("mimic", "link", "joint", "robot", "origin"))
            elif element.attrib:
                name, words = (
                    self.of(tuple(element.attrib)),
                    ("", "a", "nan", "1e999", "-1", "1 2", "world", "base", "9" * 5000),
                )
                element.set(name, self.of(words)) if kind == 3 else element.attrib.pop(name)
        return ElementTree.tostring(root)

    def archive(self, seed: bytes) -> bytes:
        """A good .zip with a wound: anywhere, or in a member whose check sum is right, or a member that is gone."""
        if not self.choose(4):
            return self.bytes(seed)
        with zipfile.ZipFile(io.BytesIO(seed)) as source:
            members = {name: source.read(name) for name in source.namelist()}
        name = self.of(tuple(members))
        content, kind = members.pop(name), self.choose(5)
        if kind:
            if zipfile.is_zipfile(io.BytesIO(content)):
                members[name] = self.archive(content)
            else:
                members[name] = wounded(self, json.loads(content), as_json) if content[:1] == b"{" else self.bytes(content)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as target:
            for name, content in members.items():
                target.writestr(name, content)
        return buffer.getvalue()


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


# --- entry points: files -----------------------------------------------------------------------------------------------------


def drive(simulator: Any, steps: int = 2) -> None:
    """A few steps from rest; a row that fails says so."""
    state, (low, high) = simulator.initial_state(1), simulator.control_bounds
    for control in (low, high)[:steps]:
        state, status = simulator.step(state, np.array([control]))
        assert np.isfinite(state).all() or status[0], "a state that is not finite is called ok"


def model_file(system: System, folder: Path, draw: Draw) -> None:
    """A user's robot."""
    path = folder / "model.toml"
    path.write_bytes(wounded(draw, read_toml(MODELS / f"{system.name}.toml"), toml))
    drive(system.simulator(system.model(path)))


@cache
def constants_seed(name: str) -> dict[str, Any]:
    """A file of parameters of a system."""
    simulator = systems()[name].simulator()
    with tempfile.TemporaryDirectory() as folder:
        spec = SimulatorSpec.of(simulator).table()
        return read_toml(simulator.default_parameters.save(Path(folder) / "fit.toml", simulator=spec))


def constants_file(system: System, folder: Path, draw: Draw) -> None:
    """A file of parameters, into an environment where the system has one."""
    path = folder / "fit.toml"
    path.write_bytes(wounded(draw, constants_seed(system.name), toml))
    SimulatorSpec.read(path)
    if system.tasks:
        env = gym.make(system.tasks[0].id, params=path)
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


def ground_truth_file(folder: Path, draw: Draw) -> None:
    """A user's own MJCF under the block's tasks, and the file that maps it."""
    (folder / "mine.xml").write_bytes(MJCF if draw.choose(4) else draw.bytes(MJCF))
    path = folder / "mine.toml"
    path.write_bytes(wounded(draw, MAPPING, toml))
    drive(systems()["block"].simulator(backend=str(path)))


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


OTHERS = (
    b"Format Version,1.23,Export Frame Rate,100,Rotation Type,Quaternion,Length Units,Meters\n\n,,Rigid Body,Rigid Body\n"
    b",,a,a\n,,1,1\n,,Rotation,Position\nFrame,Time (Seconds),W,X\n0,0.0,1,2\n1,0.1,1,2\n",
    b"Trajectories\n100\n;;a:M1;;\nFrame;Sub Frame;X;Y;Z\n;;mm;mm;mm\n1;0;1,5;2;3\n2;0;1;2;3\n",
    b"NO_OF_FRAMES\t2\nFREQUENCY\t100\nDATA_INCLUDED\t3D\nMARKER_NAMES\ta\n1\t2\t3\n1\t2\t3\n",
    b"scorer,n,n,n\nbodyparts,a,a,a\ncoords,x,y,likelihood\n0,1,2,0.9\n1,1,2,0.9\n",
    b"PathFileType\t4\ta.trc\nDataRate\tUnits\n100\tmm\nFrame#\tTime\tM1\n\t\tX1\tY1\tZ1\n\n1\t0.0\t1\t2\t3\n2\t0.1\t1\t2\t3\n",
    b"Coordinates\ninDegrees=yes\nendheader\ntime\telbow\n0.0\t1\n0.1\t2\n",
    b"%time,field.header.stamp,field.pose.position.x\n1764309600123456789,1764309600123456789,1\n1764309600133456789,0,2\n",
    b"# time [s] x_mm\n0 1,5\n1 2\n",
)
"""Files of Motive, Vicon, Qualisys, DeepLabCut, OpenSim (two), rostopic, and a log without header."""


@cache
def npz_seed() -> bytes:
    """Arrays in .npz; a damaged .mat is no input here, as it may end scipy's reader in C with a segmentation fault."""
    with tempfile.TemporaryDirectory() as folder:
        arrays = {"time": np.arange(5.0), "x [m]": np.ones((5, 2))}
        np.savez(Path(folder) / "a.npz", **arrays)
        return (Path(folder) / "a.npz").read_bytes()


def other_file(folder: Path, draw: Draw) -> None:
    """A recording of another program, inspected and loaded."""
    path = folder / "recording.dat"
    path.write_bytes(draw.bytes(draw.of((*OTHERS, npz_seed()))))
    assert inspect_file(path).mapping()
    assert all(np.isfinite(found.times).all() for found in read_recordings([path], fps=100.0, meters_per_pixel=None))


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
    "name": "s", "kind": "plan", "conditions": ["zero", "nominal", "ground_truth"], "budgets": [400, 200], "curve": [],
    "repeats": {"seeds": 1},
    "case": {"system": "r", "task": "t", "stages": {"a": {"b": 1}}},
    "thresholds": [{"condition": "nominal", "quantity": "score", "limit": 0.5}],
}  # fmt: skip
RECORD = {
    "cost": 1.0,
    "failed": 0,
    "ground_truth_steps": {"train": 3},
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


FOLDER = Study("s", "plan", ("zero", "nominal", "identified", "ground_truth"), (100,), repeats=Repeats(1, 2), thresholds=(
    Threshold("identified", "score", 0.5), Threshold("identified", "improvement", 0.5, "nominal"),
))  # fmt: skip


def study_folder(folder: Path, draw: Draw) -> None:
    """What a study leaves, and its report."""
    register(FOLDER, {}, folder, provenance={"commit": "c"})
    jobs = FOLDER.jobs(CONDITIONS)
    files = {f"runs/{job.name}.json": {**RECORD, **job._asdict(), "cost": 9.0 - k} for k, job in enumerate(jobs)}
    fit = {"names": ["a"], "note": "", "failed": False, "errors": {"nominal": [[0.1, 1.0], [0.5, 2.0]]}}
    files |= {"fits/b100_d0.json": fit, "study.json": read_json(folder / "study.json")}
    hurt = draw.of(tuple(files))
    for name, document in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(wounded(draw, document, as_json) if name == hurt else as_json(document))
    register(FOLDER, {}, folder, provenance={})
    write_report(FOLDER, folder)


def replay_file(folder: Path, draw: Draw) -> None:
    """What a study keeps for its film."""
    path = folder / "replay.json"
    path.write_bytes(wounded(draw, {"states": [[0.0] * 3] * 2, "controls": [[0.0]]}, as_json))
    assert read_replay(path, 3).ndim == 2


def transfer_file(folder: Path, draw: Draw) -> None:
    """A study of a system, up to its first run."""
    path = folder / "study.toml"
    path.write_bytes(wounded(draw, read_toml(draw.of(tuple(bundled().values()))), toml))
    study, case = chosen(path)
    register(study, case.description, folder / "out", provenance={})
    assert study.jobs(CONDITIONS) and case.native().nx <= case.ground_truth().nx


IDENTITY, SPEC = "data method", SimulatorSpec("block", 0.01)


@cache
def checkpoint_seed() -> dict[str, Any]:
    """Where an interrupted fit stands."""
    log = (FitIteration(0, 1.0, 1e-3, float("nan"), 0.0, True, 1.0),)
    state = LevenbergState(np.ones(2), np.ones((1, 2)), 1.0, 1e-3, 2.0, np.ones(2), np.ones((1, 2)), log, StopReason.COST)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Path(folder) / "a.json", IDENTITY, SPEC, Journal(1, np.ones(3), (state,), state))
        return read_json(Path(folder) / "a.json")


def fit_checkpoint(folder: Path, draw: Draw) -> None:
    """Where an interrupted fit stands."""
    path = folder / "checkpoint.json"
    path.write_bytes(wounded(draw, checkpoint_seed(), as_json))
    checkpoint.read(path, IDENTITY, SPEC)


@cache
def fit_seed() -> dict[str, Any]:
    """What is saved of a fit."""
    return {**one_step(problem()).to_json(), "provenance": {"identity": IDENTITY}}


def stage_folder(folder: Path, draw: Draw) -> None:
    """What an earlier run left of a stage; nothing is taken from what is damaged."""
    kind, fit = START, fit_seed()
    hurt = draw.choose(2)
    (folder / "fit.json").write_bytes(wounded(draw, fit, as_json) if hurt else as_json(fit))
    parameter_values = read_toml(START.save(folder / "fit.toml", simulator=SimulatorSpec.of(Spring()).table()))
    (folder / "fit.toml").write_bytes(toml(parameter_values) if hurt else wounded(draw, parameter_values, toml))
    _earlier(Stage("s", "e", ("mass",), "shooting"), folder, IDENTITY, kind)


def recorded_robot(folder: Path, draw: Draw) -> None:
    """What a recording says of its robot and its experiment."""
    simulator = simulator_of("block")
    robot = SimulatorSpec.of(simulator, "one").table()
    metadata = {ROBOT: wounded(draw, robot, as_json).decode("utf-8", "replace"), EXPERIMENT: draw.of(("pulled", "", "x"))}
    shape = ((4, simulator.nu), (5, simulator.nx))
    one = Trajectory(
        np.arange(5.0), np.zeros(shape[0]), np.ones(shape[1]), simulator.state_names, simulator.state_units,
        simulator.control_names, ("N",) * simulator.nu, metadata=metadata,
    )  # fmt: skip
    found = read_recordings([TrajectorySet((one,)).save(folder / "a.h5")])
    Job("block", found)._compare_robots(simulator, found)


@cache
def arm_seed() -> bytes:
    """An arm as URDF."""
    return urdf(load_tree(ARM_FILE)).encode()


def arm_file(folder: Path, draw: Draw) -> None:
    """A user's arm under the loop, as URDF or TOML."""
    name, hurt = draw.of(("arm.urdf", "arm.toml")), draw.choose(4)
    good = {"links": 6, "arm": {"file": name, "hand": "gripper", "hand_xyz": [0.0] * 3, "joints": list(ARM)}}
    (folder / "loop.toml").write_bytes(toml(good) if hurt else wounded(draw, good, toml))
    (folder / "arm.urdf").write_bytes(draw.xml(arm_seed()) if hurt else arm_seed())
    (folder / "arm.toml").write_bytes(wounded(draw, read_toml(ARM_FILE), toml) if hurt else toml(read_toml(ARM_FILE)))
    model = systems()["loop"].model(folder / "loop.toml")
    assert np.isfinite(model.rest_state()).all()


def fit_record(system: System, folder: Path, draw: Draw) -> None:
    """A fit of a study."""
    default = system.simulator().default_parameters
    rows = type(default).from_vector(np.stack([default.to_vector()] * 2))
    good = FitRecord(default, rows, "", False, {"train": 1}, {"nominal": [[0.1, 1.0]]}).to_json()
    (folder / "fit.json").write_bytes(wounded(draw, good, as_json))
    FitRecord.from_json(read_json(folder / "fit.json"), type(default))


@cache
def policy_seed() -> bytes:
    """A policy.zip of `LEARNED`."""
    import torch

    env = made(LEARNED)
    layers = {"mlp_extractor.policy_net.0": (4, *env.observation_space.shape), "action_net": (*env.action_space.shape, 4)}
    weights = {f"{name}.weight": torch.zeros(shape) for name, shape in layers.items()}
    weights |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in layers.items()}
    buffer, inner = io.BytesIO(), io.BytesIO()
    torch.save(weights, inner)
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("policy.pth", inner.getvalue())
        archive.writestr("data", json.dumps({"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.ELU'>"}}))
    return buffer.getvalue()


@cache
def policy_contract() -> dict[str, Any]:
    """Contract of that policy."""
    from agents.learning.contract import PolicyContract

    return PolicyContract.of(made(LEARNED)).table()


def policy_file(folder: Path, draw: Draw) -> None:
    """A policy, and the file beside it that says what it observes, in an episode."""
    from agents.learning.evaluation import evaluate
    from agents.learning.policy import load_policy

    path, wound = folder / "policy.zip", draw.choose(3)
    path.write_bytes(draw.archive(policy_seed()) if wound else policy_seed())
    observed = {"observed": {"action_memory": 0, "obs_mode": "full"}, "contract": policy_contract()}
    (folder / "policy.json").write_bytes(as_json(observed) if wound else wounded(draw, observed, as_json))
    policy = load_policy(path)
    found = evaluate(policy, f"softgym_envs:{LEARNED}", episodes=1, seed=0, keywords=policy.keywords)
    assert np.isfinite(found.returns).all()


@cache
def trained() -> tuple[Any, dict[str, bytes]]:
    """A short training, and what it leaves in its folder."""
    from agents.learning.rl import Training, train

    small = {"n_steps": 4, "policy_kwargs": {"net_arch": [4]}}
    training = Training(f"softgym_envs:{LEARNED}", 16, num_envs=2, checkpoint_every=8, overrides=small)
    with tempfile.TemporaryDirectory() as folder:
        train(training, Path(folder))
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir() if "tfevents" not in path.name}
    return training, files


def training_folder(folder: Path, draw: Draw) -> None:
    """The folder of a training that is to go on."""
    from agents.learning.curve import draw_curve
    from agents.learning.rl import begun, train

    training, files = trained()
    hurt = draw.of(tuple(sorted(files)))
    for name, content in files.items():
        if name == hurt:
            kinds = {".zip": draw.archive, ".json": lambda good: wounded(draw, json.loads(good), as_json)}
            content = kinds.get(Path(name).suffix, draw.bytes)(content)
        (folder / name).write_bytes(content)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        begun(training, folder, print)
        draw_curve(folder, {})
        train(training, folder, resume=True)


# --- entry points: calls -----------------------------------------------------------------------------------------------------

KEYWORDS = ("backend", "model", "dt", "device", "options", "control_period", "params", "randomize", "sensor_noise")
KEYWORDS += (
    "action_latency",
    "observation_latency",
    "observation_rate",
    "sensor_bias",
    "sensor_gain",
    "disturbance",
    "obs_mode",
    "render_mode",
    "nonsense",
)


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
    return gym.make(env_id, action_latency=0.07, observation_latency=0.03).unwrapped


def episode(env_id: str, folder: Path, draw: Draw) -> None:
    """Options of a reset, an action, and a saved state; a call that is refused changes nothing."""
    env = made(env_id)
    env.reset(seed=0)
    names = env.simulator.default_parameters.names()
    array = np.array(env.state)
    array[draw.choose(len(array))] = draw.of((np.nan, np.inf, 1e300, 1e9, 1.0))
    options = [{draw.of(("state", "parameters", *env.task.option_names)): draw.nasty()}, {"state": array}]
    options += [{"parameters": {draw.of(names): draw.nasty()}}]
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


PATHS = (
    "math:pi",
    "builtins:dict",
    "numpy:array",
    "os:path",
    "no:such",
    "a b:c",
    "a\0b:c",
    ":",
    "..:x",
    "softgym_envs:systems",
)


def backend_path(folder: Path, draw: Draw) -> None:
    """A world by its path."""
    found, entry = tuple(systems().values()), draw.of(tuple(systems().values()))
    paths = tuple(path for other in found for path in (other.engine, *other.ground_truths.values()))
    simulator = entry.simulator(backend=draw.of((*PATHS, *paths)))
    assert type(simulator).system == entry.name


def simulation(system: System, folder: Path, draw: Draw) -> None:
    """States, controls, parameters and substeps of a simulator."""
    simulator = simulator_of(system.name)
    state = simulator.initial_state(2)
    state[0, draw.choose(state.shape[1])] += draw.of((0.0, 1e-3, 1.0, 1e3, 1e9, 1e150, np.nan))
    control = np.zeros((2, simulator.nu))
    if simulator.nu:
        control[0, draw.choose(simulator.nu)] = draw.of((0.0, 1.0, 1e6, 1e300, np.inf))
    spec = draw.of(tuple(simulator.default_parameters.specs().values()))
    parameter_values = simulator.default_parameters.replace(**{spec.name: draw.of((*spec.bounds, spec.default, np.nan))})
    substeps = draw.of((1, 3, 10, 0, 2**40, 1.5, True, None))
    end = simulator.step(state, control, parameter_values, substeps=substeps)[0]
    assert np.isfinite(end).all(), "a state that is not finite"
    alone = simulator.step(state[1:], control[1:], parameter_values, substeps=substeps)[0]
    assert np.array_equal(end[1:], alone), "a row depends on another one"


@cache
def simulator_of(name: str) -> Any:
    """A simulator that several inputs use."""
    return systems()[name].simulator()


def entry_points() -> dict[str, Callable[[Path, Draw], None]]:
    """Every entry point by its name."""
    found: dict[str, Callable[[Path, Draw], None]] = {
        "recording.dat": other_file, "recording.csv": table_file, "recording.h5": hdf5_file, "study": study_file,
        "policy.zip": policy_file,
        "ground_truth.toml": ground_truth_file, "arm": arm_file, "training": training_folder, "study folder": study_folder,
        "replay": replay_file, "transfer": transfer_file, "fit checkpoint": fit_checkpoint, "stage folder": stage_folder,
        "recorded robot": recorded_robot, "backend": backend_path,
    }  # fmt: skip
    for system in systems().values():
        if system.read_model:
            found[f"{system.name}: model"] = partial(model_file, system)
        found[f"{system.name}: parameters"] = partial(constants_file, system)
        found[f"{system.name}: fit"] = partial(fit_record, system)
        found[f"{system.name}: step"] = partial(simulation, system)
        for task in system.tasks:
            found[f"{task.id}: keywords"] = partial(keyword, task.id)
            found[f"{task.id}: episode"] = partial(episode, task.id)
    return found


# --- checking one input ---------------------------------------------------------------------------------------------------


def check(entry_point: Callable[[Path, Draw], None], draw: Draw) -> None:
    """One input through an entry point.

    Raises:
        AssertionError: It took too long or too much memory, or the message is no sentence.
        Exception: Anything that is none of our errors.
    """
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            entry_point(Path(folder), draw)
        except ALLOWED as error:
            assert 5 < len(str(error)) < 3000, f"no sentence: {str(error)[:300]}"
    took, grown = time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert took < SECONDS, f"took {took:.1f} s of the processor"
    assert grown < MEGABYTES, f"took {grown:.0f} MB"


def warm_up() -> None:
    """Compile and import everything once, so that no input has to."""
    for system in systems().values():
        drive(simulator_of(system.name))
        if system.read_model:
            drive(system.simulator(system.model(MODELS / f"{system.name}.toml")))
        for task in system.tasks:
            env = made(task.id)
            env.reset(seed=0)
            env.step(np.zeros(env.action_space.shape))
    for entry_point in (policy_file, training_folder, arm_file, study_folder):
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(*ALLOWED):
            entry_point(Path(folder), Draw(lambda count: count - 1))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("arm.urdf", arm_seed()), ("loop.toml", toml({"arm": {"file": "arm.urdf", "hand": "gripper"}}))):
            (Path(folder) / name).write_bytes(content)
        systems()["loop"].model(Path(folder) / "loop.toml").rest_state()


def main(arguments: list[str]) -> int:
    """Run for some minutes; print every kind of finding once, with the number that repeats it. -> how many kinds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="", help="entry points whose name holds this")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    chosen = {name: entry_point for name, entry_point in entry_points().items() if args.only in name}
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
    print(f"{sum(tried.values())} inputs through {len(tried)} entry points, {len(found)} kinds of finding")
    return len(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
