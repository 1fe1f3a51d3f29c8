"""Trained policies that come with the package, and their networks; NumPy alone plays them.

    agents/policies/<name>.npz    float32 weights weight0, bias0, weight1, bias1, ...; and "settings", a JSON text with
                                  "observed": keywords of the environment; "activation" and "squashed" of `Network`; provenance
                                  ("trained"); "contract": see `agents.learning.contract`

The name is an environment's id, or id+option. `experiments/policies/ship.py` writes the files.

Legend: B batch, no observation, na action, L layers.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import FileFormatError, OptionError, ShapeError, shown
from softgym_envs.core.files import json_object, write_atomically

from ..learning.contract import PolicyContract, contract_in

Float32 = NDArray[np.float32]

FOLDER = Path(__file__).parent
"""Folder of the files."""
MOST_WEIGHT_BYTES = 512 * 2**20
"""Largest memory of a policy's weights."""
SETTINGS = "settings"
"""Name of the text among the arrays."""
WRITTEN = (1980, 1, 1, 0, 0, 0)
"""Date of the parts of an archive: equal weights give equal files."""


def _elu(x: Float32) -> Float32:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


ACTIVATIONS: dict[str, Callable[[Float32], Float32]] = {"Tanh": np.tanh, "ReLU": lambda x: np.maximum(x, 0), "ELU": _elu}


@dataclass(frozen=True, eq=False)
class Network:
    """The mean action of an MLP: a = clip(W_L f(... f(W_1 o + b_1) ...) + b_L), or tanh in place of clip (SAC)."""

    layers: tuple[tuple[Float32, Float32], ...]
    """Weight (out, in) and bias (out,) of every layer."""
    activation: str = "Tanh"
    """Name of f, one of `ACTIVATIONS`."""
    squashed: bool = False
    """Whether tanh is applied at the end."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the environment that it was trained for, such as action_memory."""
    source: str = "the policy"
    """Name of the file for messages."""
    contract: PolicyContract | None = None
    """Names, units, ranges, period and delay of what it takes and gives; None if its file has none."""

    def __call__(self, observation: NDArray[Any]) -> Float32:
        """Actions in [-1, 1], (na,) or (B, na), of observations (no,) or (B, no).

        Raises:
            ShapeError: The observations have another length.
        """
        x, size = np.asarray(observation, dtype=np.float32), self.layers[0][0].shape[1]
        if x.ndim not in (1, 2) or x.shape[-1] != size:
            raise ShapeError(f"{self.source} takes {size} observed numbers, the environment has shape {x.shape}")
        for weight, bias in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](x @ weight.T + bias)
        weight, bias = self.layers[-1]
        x = x @ weight.T + bias
        return np.tanh(x) if self.squashed else np.clip(x, np.float32(-1.0), np.float32(1.0))

    def check(self, env: Any) -> None:
        """Check its contract, if it has one, against an environment: see `PolicyContract.check`."""
        if self.contract is not None:
            self.contract.check(env, self.source)


def pretrained(name: str) -> Network:
    """A trained policy of an environment.

    >>> import gymnasium as gym
    >>> policy = pretrained("TensegrityRoll-v0")
    >>> env = gym.make("softgym_envs:TensegrityRoll-v0", **policy.keywords)
    >>> observation, info = env.reset(seed=0)
    >>> policy(observation).shape
    (24,)

    Args:
        name: Id of the environment, with or without "softgym_envs:" in front, or id+option, as UpperBodyReach-v0+muscles.

    Raises:
        OptionError: No policy of this name comes with the package.
    """
    names = sorted(path.stem for path in FOLDER.glob("*.npz"))
    if not isinstance(name, str) or name.rpartition(":")[2] not in names:
        raise OptionError(f"no policy comes with the package for {shown(name)}; there are {', '.join(names)}")
    return load_network(FOLDER / f"{name.rpartition(':')[2]}.npz")


def observed_keywords(where: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the environment for which a policy was made: "observed" of its settings, which stand in the file `where`.

    Raises:
        FileFormatError: That entry is no table.
    """
    found = settings.get("observed", {})
    if not isinstance(found, dict):
        raise FileFormatError(f"{where}: observed is {shown(found)}, expected a table of keywords")
    return found


def load_network(path: Path) -> Network:
    """Load a policy from its .npz; nothing in it is unpickled.

    Raises:
        FileFormatError: No such file, or it holds no network.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(part.file_size for part in archive.infolist()) > MOST_WEIGHT_BYTES:
                raise FileFormatError(f"{path}: its weights are larger than {MOST_WEIGHT_BYTES / 2**20:.0f} MB")
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except FileFormatError:
        raise
    except Exception as error:  # zipfile, lzma and NumPy raise whatever they like at a damaged file
        raise FileFormatError(f"{path} is no policy, or it is damaged ({type(error).__name__}: {error})") from None
    settings = _settings(path, found.pop(SETTINGS, None))
    count = len(found) // 2
    if not count or set(found) != {f"{part}{k}" for k in range(count) for part in ("weight", "bias")}:
        raise FileFormatError(f"{path} holds {', '.join(list(found)[:8]) or 'nothing'}, expected weight0, bias0, weight1, ...")
    layers = tuple((found[f"weight{k}"], found[f"bias{k}"]) for k in range(count))
    check_layers(path, layers)
    activation, squashed = settings.get("activation"), settings.get("squashed")
    if activation not in ACTIVATIONS or not isinstance(squashed, bool):
        raise FileFormatError(
            f"{path}: activation is {shown(activation)}, squashed is {shown(squashed)}; "
            f"allowed are {', '.join(ACTIVATIONS)}, and true or false"
        )
    contract = contract_in(path, settings, (layers[0][0].shape[1], len(layers[-1][1])))
    return Network(layers, activation, squashed, observed_keywords(path, settings), str(path), contract)


def _settings(path: Path, text: NDArray[Any] | None) -> dict[str, Any]:
    """Settings of a policy from the array of their text."""
    if text is None or text.dtype.kind != "U" or text.ndim:
        raise FileFormatError(f"{path} holds no text {SETTINGS!r}, which says what the network observes")
    return json_object(f"{path}: {SETTINGS}", str(text))


def save_network(network: Network, path: Path, trained: Mapping[str, Any]) -> Path:
    """Write the .npz of a policy, completely or not at all.

    Args:
        network: The policy.
        path: Name of the .npz file.
        trained: Provenance.
    """
    settings = {"observed": dict(network.keywords), "activation": network.activation, "squashed": network.squashed}
    contract = {"contract": network.contract.table()} if network.contract else {}
    arrays: dict[str, NDArray[Any]] = {}
    for number, (weight, bias) in enumerate(network.layers):
        arrays |= {f"weight{number}": weight, f"bias{number}": bias}
    arrays[SETTINGS] = np.array(json.dumps({**settings, "trained": dict(trained), **contract}, allow_nan=False))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            part = io.BytesIO()
            np.save(part, array, allow_pickle=False)
            archive.writestr(
                zipfile.ZipInfo(f"{name}.npy", WRITTEN), part.getvalue(), zipfile.ZIP_LZMA
            )  # mostly zeros, if shared
    write_atomically(path, buffer.getvalue())
    return path


def check_layers(path: Path, layers: tuple[tuple[NDArray[Any], NDArray[Any]], ...]) -> None:
    """Check that float32 weights are finite and fit each other.

    Raises:
        FileFormatError: They are not, or do not.
    """
    inner = layers[0][0].shape[-1] if layers[0][0].ndim else 0
    for weight, bias in layers:
        shaped = weight.shape == (bias.size, inner) and bias.ndim == 1 and weight.size
        plain = weight.dtype == bias.dtype == np.float32
        if not (shaped and plain and np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise FileFormatError(f"{path}: the weights of its layers do not fit each other, or are no finite numbers")
        inner = bias.size
