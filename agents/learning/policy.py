"""Policies as files: the only loader of `play`, `evaluate` and `transfer`, and the files themselves.

A policy.zip is one of stable-baselines3 without any class of ours: `PPO.load(path)` opens it where this package is not
installed. A network shared by all actuators (`.shared_policy`) is written as the equal plain network. Reading
executes nothing: weights come with weights_only=True, settings from JSON. Policies that NumPy alone plays: `agents.policies`.

Legend: B batch, no observation, na action.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import FileFormatError, needed, shown
from softgym_envs.core.files import read_json, write_atomically

from ..policies import ACTIVATIONS, MOST_WEIGHT_BYTES, Network, check_layers, load_network, observed_keywords, pretrained
from .contract import contract_in

if TYPE_CHECKING:
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm

__all__ = ["PRETRAINED", "Network", "load_policy", "policy_of", "save_policy"]

Policy = Callable[[NDArray[Any]], NDArray[np.float32]]
"""Observations (B, no) -> actions (B, na) in [-1, 1], without noise."""

PRETRAINED = Path("pretrained")
"""In place of a file: the policy of the environment that comes with the package."""


SCALES = ("features_extractor.", "pi_features_extractor.", "vf_features_extractor.")
"""Beginnings of the names of a policy's scales: stable-baselines3 holds them three times."""


def load_policy(path: Path, env_id: str = "") -> Network:
    """Load the mean action of a policy: weights only, nothing in the file is executed.

    Args:
        path: A .zip of stable-baselines3 (which needs torch), a .npz of `agents.policies`, or `PRETRAINED`.
        env_id: Id of the environment, for `PRETRAINED`.

    Raises:
        FileFormatError: Not a policy of PPO, A2C or SAC with an MLP.
        MissingDependencyError: A .zip without torch.
        OptionError: No policy of this id comes with the package.
    """
    if path == PRETRAINED:
        return pretrained(env_id)
    if path.suffix == ".npz":
        return load_network(path)
    weights, settings = _read_policy(path)
    weights = folded(weights)
    if other := [name for name in weights if name.startswith("lstm") or "features_extractor." in name]:
        raise FileFormatError(f"{path} holds {other[0]}: policies with a memory (LSTM) or convolutions are not supported")
    squashed = any(name.startswith("actor.mu.") for name in weights)
    body, head = ("actor.latent_pi.", "actor.mu") if squashed else ("mlp_extractor.policy_net.", "action_net")
    inner = {name[len(body) :].split(".")[0] for name in weights if name.startswith(body)}
    places = sorted(int(place) for place in inner if place.isdecimal() and len(place) < 9)
    names = [f"{body}{place}" for place in places] + [head]
    if not all(f"{name}.{part}" in weights for name in names for part in ("weight", "bias")):
        raise FileFormatError(f"{path} holds no MLP of PPO, A2C or SAC; its weights are {', '.join(list(weights)[:8])}")
    tensors = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
    if not all(_is_plain(tensor) for layer in tensors for tensor in layer):
        raise FileFormatError(f"{path}: the weights of its layers are no plain float32 arrays")
    layers = tuple((weight.detach().numpy(), bias.detach().numpy()) for weight, bias in tensors)
    check_layers(path, layers)
    activation = _activation(settings, "ReLU" if squashed else "Tanh")
    beside = path.with_suffix(".json")
    described = read_json(beside) if beside.is_file() else {}
    contract = contract_in(beside, described, (layers[0][0].shape[1], len(layers[-1][1])))
    return Network(layers, activation, squashed, observed_keywords(beside, described), str(path), contract)


def _read_policy(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Weights by name, and settings."""
    if not path.is_file():
        raise FileFormatError(f"{path}: no such file")
    with needed(f"{path} needs torch", "learn"):
        import torch
    try:
        with zipfile.ZipFile(path) as archive:
            for part in ("policy.pth", "data"):
                if archive.getinfo(part).file_size > MOST_WEIGHT_BYTES:
                    raise FileFormatError(f"{path}: {part} is larger than {MOST_WEIGHT_BYTES / 2**20:.0f} MB")
            weights = torch.load(io.BytesIO(archive.read("policy.pth")), map_location="cpu", weights_only=True)
            settings = json.loads(archive.read("data"))
    except FileFormatError:
        raise
    except Exception as error:  # zipfile, lzma, json and torch raise whatever they like at a damaged file
        why = type(error).__name__ if "weights_only" in str(error) else f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{path} is no policy of stable-baselines3, or it is damaged ({why})") from None
    tensors = isinstance(weights, dict) and all(isinstance(value, torch.Tensor) for value in weights.values())
    if not tensors or not all(isinstance(name, str) for name in weights) or not isinstance(settings, dict):
        raise FileFormatError(f"{path} is no policy of stable-baselines3: it holds no weights by name")
    return weights, settings


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds its own float32 numbers: no terabytes that are one number in the file."""
    kind = str(tensor.dtype), str(tensor.layout)
    return kind == ("torch.float32", "torch.strided") and tensor.is_contiguous()


def _activation(settings: dict[str, Any], default: str) -> str:
    """Name of the activation that the policy was trained with."""
    kwargs = settings.get("policy_kwargs")
    kwargs = kwargs if isinstance(kwargs, dict) else {}
    named = str(kwargs.get("activation_fn", default)).rstrip("'>").rsplit(".", 1)[-1]
    if named not in ACTIVATIONS:
        raise FileFormatError(f"the policy uses the activation {shown(named)}, known are {', '.join(ACTIVATIONS)}")
    return named


def policy_of(model: BaseAlgorithm) -> Policy:
    """The mean action of a trained model."""

    def act(observation: NDArray[Any]) -> NDArray[np.float32]:
        return np.asarray(model.predict(observation, deterministic=True)[0], dtype=np.float32)

    return act


def save_policy(model: BaseAlgorithm, path: Path) -> Path:
    """Write a trained model so that its algorithm's own `load` opens it, without this package; its optimiser starts anew."""
    from stable_baselines3 import SAC
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

    from .shared_policy import SharedPolicy, plain_settings, plain_weights

    kind: Any = type(model)
    own: Any = model  # attributes that are not part of SB3's base class
    keywords, weights = dict(own.policy_kwargs), own.policy.state_dict()
    if isinstance(own.policy, SharedPolicy):
        keywords, weights = plain_settings(own.policy, keywords), plain_weights(own.policy)
    keywords.pop("features_extractor_class", None)
    weights = folded(weights)
    if isinstance(model, OnPolicyAlgorithm):
        keywords["ortho_init"] = False  # first weights that `load` overwrites need no decomposition of large matrices
    small = {"buffer_size": 1} if isinstance(model, OffPolicyAlgorithm) else {}
    if isinstance(model, SAC):
        small["target_entropy"] = own.target_entropy
    plain = kind("MlpPolicy", None, policy_kwargs=keywords, device="cpu", _init_setup_model=False, **small)
    plain.observation_space, plain.action_space, plain.n_envs = own.observation_space, own.action_space, 1
    plain._setup_model()
    plain.policy.load_state_dict(weights)
    plain.num_timesteps = own.num_timesteps
    buffer = io.BytesIO()
    plain.save(buffer)
    write_atomically(path, _squeezed(buffer))
    return path


def folded(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights of a policy with the scales of `.scaling` in its layers; without scales they are left as they are."""
    if f"{SCALES[0]}value_deviation" not in weights:
        return weights
    found = {name: value for name, value in weights.items() if not name.startswith(SCALES)}
    mean, deviation, value_mean, value_deviation = (
        weights[SCALES[0] + name] for name in ("mean", "deviation", "value_mean", "value_deviation")
    )
    for name in ("mlp_extractor.policy_net.0", "mlp_extractor.value_net.0"):
        weight = found[f"{name}.weight"] / deviation
        found[f"{name}.weight"], found[f"{name}.bias"] = weight, found[f"{name}.bias"] - weight @ mean
    found["value_net.weight"] = found["value_net.weight"] * value_deviation
    found["value_net.bias"] = found["value_net.bias"] * value_deviation + value_mean
    return found


def _squeezed(archive: io.BytesIO) -> bytes:
    """The same .zip, compressed: a shared network is mostly zeros as a plain one."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return buffer.getvalue()
