"""Policies as ONNX files, with their contract, and a program that runs them on a robot.

    policy.onnx      float32 (B, no) "observation" -> (B, na) "action"; clipping, layers and activations are in the graph
    run_policy.py    reads the contract, keeps the rate, and needs onnxruntime and numpy only

Legend: B batch, no observation, na action.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DependencyError, OptionError, needed
from softgym_envs.core.files import write_atomically

from ..policies import Network
from .contract import PolicyContract

OPSET, IR = 17, 8
"""Versions of ONNX's operators and files: ONNX Runtime 1.13 and later read them."""
EXPORT_TOLERANCE = 1e-5
"""Largest difference of an action between ONNX Runtime and NumPy."""
CHECKED = 64
"""Random observations by which that is checked."""
OPERATORS = {"Tanh": "Tanh", "ReLU": "Relu", "ELU": "Elu"}
"""Activation of a `Network` -> operator of ONNX."""
RUNNER = "run_policy.py"
"""Name of the program beside the policy."""


def export_network(network: Network, contract: PolicyContract, out: Path) -> Path:
    """Write a policy as ONNX, and the program that runs it beside it; the written model is compared with NumPy first.

    Args:
        network: The policy.
        contract: Its contract.
        out: The .onnx file; folders are made.

    Raises:
        OptionError: Another ending, or controls that do not follow the actions one by one.
        MissingDependencyError: onnx or onnxruntime is not installed.
        DependencyError: ONNX Runtime's actions are not NumPy's.
        StorageError: The files cannot be written.
    """
    if out.suffix != ".onnx":
        raise OptionError(f"out is {out}, expected a name that ends in .onnx")
    if not contract.controls:
        raise OptionError(
            f"{network.source}: the task of {contract.id} scales actions in another way than one by one, and linear on either "
            "side of 0: a contract cannot say what a control is"
        )
    with needed("export needs onnx and onnxruntime", "onnx"):
        import onnxruntime
    low, high = limits(contract)
    written = graph(network, contract)
    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    observed = np.random.default_rng(0).standard_normal((CHECKED, contract.size)).astype(np.float32)
    found = session.run(None, {"observation": observed})[0]
    if not (worst := float(np.abs(found - network(np.clip(observed, low, high))).max())) < EXPORT_TOLERANCE:
        raise DependencyError(f"onnxruntime {onnxruntime.__version__} acts up to {worst:.1g} otherwise than {network.source}")
    write_atomically(out, written)
    runner = resources.files(__package__) / "templates" / f"{RUNNER}.txt"
    write_atomically(out.with_name(RUNNER), runner.read_bytes())
    return out


def limits(contract: PolicyContract) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Lowest and highest observed numbers (no,)."""
    known = contract.size - len(contract.observations)
    low = [*(entry.low for entry in contract.observations), *[-1.0] * known]
    high = [*(entry.high for entry in contract.observations), *[1.0] * known]
    return np.array(low, dtype=np.float32), np.array(high, dtype=np.float32)


def graph(network: Network, contract: PolicyContract) -> bytes:
    """A .onnx file: clip, layers with activations, clip or tanh; the contract is in its metadata.

    Raises:
        MissingDependencyError: onnx is not installed.
    """
    with needed("export needs onnx and onnxruntime", "onnx"):
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    low, high = limits(contract)
    arrays: dict[str, NDArray[np.float32]] = {"low": low, "high": high}
    nodes = [helper.make_node("Max", ["observation", "low"], ["above"]), helper.make_node("Min", ["above", "high"], ["layer0"])]
    last = len(network.layers) - 1
    for k, (weight, bias) in enumerate(network.layers):
        arrays |= {f"weight{k}": weight, f"bias{k}": bias}
        nodes.append(helper.make_node("Gemm", [f"layer{k}", f"weight{k}", f"bias{k}"], [f"sum{k}"], transB=1))
        if k < last:
            nodes.append(helper.make_node(OPERATORS[network.activation], [f"sum{k}"], [f"layer{k + 1}"]))
    if network.squashed:
        nodes.append(helper.make_node("Tanh", [f"sum{last}"], ["action"]))
    else:
        arrays |= {"least": np.array(-1.0, dtype=np.float32), "most": np.array(1.0, dtype=np.float32)}
        nodes.append(helper.make_node("Clip", [f"sum{last}", "least", "most"], ["action"]))
    sizes = {"observation": contract.size, "action": len(contract.actions)}
    seen, given = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]) for name, size in sizes.items())
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "policy", [seen], [given], stored),
        opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="softgym-envs",
    )  # fmt: skip
    helper.set_model_props(model, {"contract": json.dumps(contract.table(), allow_nan=False)})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def contract_with(network: Network, env_id: str) -> PolicyContract:
    """Contract of a policy, checked against an environment; of that environment if the policy's file has none.

    Raises:
        OptionError: It does not fit, or there is neither a contract nor an id.
    """
    if not env_id:
        if network.contract is None:
            raise OptionError(f"{network.source} has no contract beside it: name the environment that it was trained in")
        return network.contract
    import gymnasium as gym

    env: Any = gym.make(env_id, **network.keywords)
    try:
        contract = network.contract or PolicyContract.of(env, network.keywords)
        contract.check(env, network.source)
        network(np.zeros(env.observation_space.shape))  # raises for another size
        return contract
    finally:
        env.close()
