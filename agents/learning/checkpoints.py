"""Checkpoints of a training by reinforcement learning: the run of each, and which are complete.

    folder/policy_<N>_steps.zip    weights and optimiser after N control steps, and `RUN`: the training and its seed

Files are written completely or not at all; a damaged one (a disk that was full, a copy cut short) is skipped. Reading executes
nothing.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import sys
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from softgym_envs.core.errors import FileFormatError, OptionError, needed
from softgym_envs.core.files import write_atomically
from softgym_envs.core.spec import plain, short

with needed("agents.learning.checkpoints needs stable-baselines3", "learn"):
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

RUN = "run.json"
"""Name of the file in a checkpoint that identifies its run."""
DAMAGED = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""Errors raised by a damaged .zip."""


def save_checkpoint(model: BaseAlgorithm, folder: Path, run: Mapping[str, str]) -> Path:
    """Write policy_<N>_steps.zip, from which the run resumes; completely or not at all, and without a class of ours."""
    path, buffer = folder / f"policy_{model.num_timesteps}_steps.zip", io.BytesIO()
    model.save(buffer, exclude=("policy_class", "policy_kwargs"))
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(RUN, json.dumps(run, indent=1))
    write_atomically(path, buffer.getvalue())
    return path


def load_checkpoint(path: Path, model: BaseAlgorithm) -> None:
    """Load weights, optimiser and count of steps into a fresh model; nothing in the file is unpickled.

    Raises:
        FileFormatError: No such file, or it does not fit the model's networks.
    """
    try:
        model.set_parameters(str(path), exact_match=True, device="cpu")
    except Exception as error:  # whatever zipfile, torch and SB3 raise at a file that is damaged or of another network
        why = type(error).__name__ if "weights_only" in str(error) else error
        raise FileFormatError(f"{path} does not fit the networks of this training: {why}") from None
    model.num_timesteps = steps_of(path)
    if isinstance(model, OffPolicyAlgorithm):
        model.learning_starts += model.num_timesteps  # its replay buffer is filled anew


def steps_of(checkpoint: Path) -> int:
    """Control steps of a checkpoint, from its name; -1 for another file."""
    found = re.fullmatch(r"policy_(\d+)_steps\.zip", checkpoint.name)
    return int(found[1]) if found else -1


def newest_checkpoint(folder: Path) -> Path:
    """The complete checkpoint with the most steps.

    Raises:
        FileFormatError: There is none.
    """
    return _newest(folder)[0]


def checkpoint_of(folder: Path, run: Mapping[str, str]) -> Path:
    """The newest complete checkpoint, which must be one of `run`; warns on stderr of each newer one that is damaged.

    Raises:
        FileFormatError: There is none, or it belongs to another run.
    """
    path, damaged = _newest(folder)
    require_run(path, run)
    for other in damaged:
        print(f"softgym_envs: {other} is damaged, going on from {path.name}", file=sys.stderr)
    return path


def device_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints model_<N>.pt of rsl-rl-lib, the newest one last: N + 1 updates were made."""
    found = [path for path in folder.glob("model_*.pt") if path.stem.removeprefix("model_").isdigit()]
    return sorted(found, key=lambda path: int(path.stem.removeprefix("model_")))


def kept(folder: Path) -> str:
    """Message on how to continue an interrupted training."""
    try:
        newest = (device_checkpoints(folder) or [newest_checkpoint(folder)])[-1]
        return f"the same command with --resume goes on from {newest.name}"
    except FileFormatError:
        return "nothing was learned yet: the same command begins anew"


def require_unused(folder: Path) -> None:
    """Refuse a folder in which a training would mix with another one.

    Raises:
        OptionError: It holds a checkpoint or a policy.
    """
    used = sorted((path for path in folder.glob("policy_*_steps.zip") if steps_of(path) >= 0), key=steps_of)
    used += [*device_checkpoints(folder), *(path for path in (folder / "policy.zip", folder / "policy.npz") if path.exists())]
    if used:
        raise OptionError(f"{folder} holds a training already ({used[-1].name}): resume that one, or give another folder")


def _newest(folder: Path) -> tuple[Path, list[Path]]:
    """The newest complete checkpoint, and the damaged ones that are newer."""
    damaged: list[Path] = []
    for path in sorted(folder.glob("policy_*_steps.zip"), key=steps_of, reverse=True):
        if steps_of(path) >= 0:
            if _is_whole(path):
                return path, damaged
            damaged.append(path)
    names = f"; damaged are {', '.join(path.name for path in damaged)}" if damaged else ""
    raise FileFormatError(f"{folder} holds no checkpoint policy_<N>_steps.zip to go on from{names}")


def _is_whole(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:  # one that lacks its end opens as the last archive of weights within it
            return archive.testzip() is None and "policy.pth" in archive.namelist()
    except DAMAGED:
        return False


# --- what a run is ---------------------------------------------------------------------------------------------------


def described(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Values as comparable text, long ones as their hash, with the names of nested mappings joined by dots.

    >>> described({"seed": 0, "keywords": {"backend": "native"}})
    {'seed': '0', 'keywords.backend': '"native"'}
    """
    found: dict[str, str] = {}
    for name, value in plain(values).items():
        found |= described(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: short(value)}
    return found


def require_run(path: Path, run: Mapping[str, str]) -> None:
    """Compare the run of a checkpoint with `run`.

    Raises:
        FileFormatError: They differ, or the checkpoint has none.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = dict(json.loads(archive.read(RUN)))
    except (KeyError, ValueError, TypeError) as error:
        raise FileFormatError(
            f"{path} does not say which run it belongs to (no {RUN} in it): train anew, without resume"
        ) from error
    require_equal(path, found, run)


def require_equal(path: Path, found: Mapping[str, Any], run: Mapping[str, str]) -> None:
    """Compare the run that a file holds with `run`.

    Raises:
        FileFormatError: They differ.
    """
    for name in (*run, *found):
        there, here = found.get(name, "not set"), run.get(name, "not set")
        if there != here:
            raise FileFormatError(
                f"{path} belongs to another run: its {name} is {there}, expected is {here}; give another folder"
            )
