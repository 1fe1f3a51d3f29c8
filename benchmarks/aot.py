"""Compile the kernels of a device for CUDA on a machine without one: registers, stack and seconds of each.

python benchmarks/aot.py --out results/gpu_compilation/numbers.json       # sm_89 and sm_90; some minutes
python benchmarks/aot.py --kernels patch                                  # takes longer

The larger the stack of a thread, the more of a step goes through memory; more than 168 registers leave fewer than three blocks
of 128 threads on a multiprocessor.
"""

from __future__ import annotations

import multiprocessing
import resource
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import tyro
import warp as wp

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.files import write_json
from softgym_envs.engines.timing import machine
from softgym_envs.engines.warp.float32 import as_float32

KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "SUPERball, stick": ("TensegrityRoll-v0", {}),
    "SUPERball, patch": ("TensegrityRoll-v0", {"options": {"contact": "patch"}}),
    "vine in the open": ("VineGrow-v0", {}),
    "vine with obstacles": ("VineNavigate-v0", {}),
    "SUPERball, stick, float32": ("TensegrityRoll-v0", {}),
    "vine in the open, float32": ("VineGrow-v0", {}),
    "vine with obstacles, float32": ("VineNavigate-v0", {}),
    "control step": ("", {}),
    "tensegrity tasks": ("TensegrityTerrain-v0", {}),
    "vine tasks": ("VineNavigate-v0", {}),
}
"""Words -> id and keywords of an environment that has the physics, or the task."""
ATTRIBUTES = {"registers": 0x2F, "stack": 0x11}
"""Attributes of a kernel in an ELF file of CUDA: number of registers, bytes of stack per thread."""


@dataclass(frozen=True)
class Args:
    """Options of the measurement."""

    kernels: tuple[str, ...] = ("stick", "vine in", "vine with", "control", "tasks")
    """Parts of the names of the modules that are compiled; without "patch", which takes long."""
    arch: tuple[int, ...] = (89, 90)
    """Architectures: 89 is an RTX 4090, 90 an H100 or H200."""
    limit: int = 400
    """Processor seconds after which a compilation is given up."""
    out: Path | None = None
    """JSON file for the figures, too."""


def attributes(path: Path) -> Iterator[tuple[int, int]]:
    """(attribute, value) of the functions in an ELF file of CUDA."""
    data = path.read_bytes()
    first, (size, count, names) = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, first + k * size) for k in range(count)]
    start = sections[names][4]

    def name(offset: int) -> str:
        return data[start + offset : data.index(b"\0", start + offset)].decode()

    for section in sections:
        if name(section[0]) != ".nv.info":
            continue
        place, end = section[4], section[4] + section[5]
        while place < end:
            kind, attribute, length = struct.unpack_from("<BBH", data, place)
            if kind == 4 and attribute in ATTRIBUTES.values():
                yield attribute, struct.unpack_from("<I", data, place + 8)[0]
            place += 4 + (length if kind == 4 else 0)


def module_of(words: str) -> Any:
    """The module of Warp with the kernels of these words."""
    from softgym_envs.envs import device_kernels

    task_id, keywords = KERNELS[words]
    if not task_id:
        return device_kernels.act.module
    env: Any = gym.make(task_id, **keywords).unwrapped
    if "tasks" in words:
        return env.task.kernels().reward.kernel.module
    simulator = as_float32(env.simulator) if "float32" in words else env.simulator
    return simulator.engine.program.forward.module


def compile_one(words: str, arch: int, limit: int, result: Any) -> None:
    """Compile into an empty folder, in a process of its own; sends {seconds, registers, stack}."""
    module = module_of(words)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    resource.setrlimit(resource.RLIMIT_CPU, (int(before) + limit, int(before) + limit))
    with tempfile.TemporaryDirectory() as folder:
        wp.compile_aot_module(module, device=None, arch=arch, module_dir=folder, use_ptx=False)
        seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
        found = [entry for path in Path(folder).glob("*.cubin") for entry in attributes(path)]
    most = {name: max(value for kind, value in found if kind == code) for name, code in ATTRIBUTES.items()}
    result.send({"seconds": round(seconds, 1), **most})


def measured(words: str, arch: int, limit: int) -> dict[str, Any]:
    """The figures of one module; {} if its compilation takes longer than the limit."""
    here, there = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=compile_one, args=(words, arch, limit, there))
    process.start()
    there.close()
    try:
        return dict(here.recv())
    except EOFError:
        return {}
    finally:
        process.join()


def main(args: Args) -> None:
    """Compile, print, save."""
    found: dict[str, Any] = {"machine": machine("warp-lang"), "kernels": {}}
    print("| kernels | architecture | registers | stack [B] | seconds |\n|---|---|---:|---:|---:|")
    for words in (words for words in KERNELS if any(part in words for part in args.kernels)):
        for arch in args.arch:
            row = measured(words, arch, args.limit)
            found["kernels"][f"{words}, sm_{arch}"] = row
            shown = [row.get(name, "-") for name in (*ATTRIBUTES, "seconds")] if row else ["-", "-", f"over {args.limit}"]
            print(f"| {words} | sm_{arch} | {' | '.join(map(str, shown))} |", flush=True)
            if args.out is not None:
                write_json(args.out, found)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
