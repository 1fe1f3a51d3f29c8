"""A MuJoCo SUPERball before simulated cameras: the documented commands on markers at 120 Hz with noise, gaps and latency.

    python experiments/superball_identify_cameras.py  # 20 recordings of the MuJoCo model
    python experiments/superball_identify_cameras.py --seeds 101 102 --level 2

A ground truth is the MuJoCo model (level 0: as drawn; level 2: with mismatches), its body driven with a rod held, as the
system's procedure says, 5 s, and thrown, 5 s. `softgym-envs record tensegrity --backend mujoco --sensor lab` is what cameras
saw: 120 Hz, 2 mm, 5 % of the points lost, 1 % elsewhere, 20 ms late. `softgym-envs identify tensegrity --data FILE` starts from
the procedure's guess, a factor of 3 off in every parameter. Finished ground truths are not run again. Writes numbers.json and
table.md into results/superball_identify_cameras; times are those of a processor.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import sysid
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.data.sensors import sensor_from_text

BODY = {"cable_stiffness": 1e4, "cable_damping": 1e3, "motor_speed": 1.0, "motor_gain": 0.01}
"""True values at level 0; with mismatches the means about which its cables are spread."""
NEAR = 2e-3
"""[s] Tolerance of the latency."""
STAGES = ("seen", "begun")
"""Stages of the procedure: whole flights, or if that fit was reported as lost, the parameters and intervals of the one
before."""


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    seeds: tuple[int, ...] = tuple(range(401, 421))
    """Seeds of recordings, and of mismatched MuJoCo models."""
    level: int = 0
    """Level of the mismatched model, which has a latency of its own in addition to the sensor's."""
    sensor: tuple[str, ...] = ("lab",)
    """Sensor of `record`."""
    out: Path = Path("results/superball_identify_cameras")
    """Folder of the table."""


def one(seed: int, level: int, sensor: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Record and identify one ground truth."""
    options = {} if level == 0 else {"level": level, "seed": seed}
    data, said = sysid.record("tensegrity", backend="mujoco", options=options, sensor=sensor, seed=seed), ""
    begin = time.process_time()
    try:
        code = 2 if sysid.identify("tensegrity", data, diagnose="full", out=folder / "fit").unusable else 0
    except SoftgymError as error:
        code, said = 2, str(error)
    true = {**BODY, "latency": sensor_from_text(sensor).latency}
    row: dict[str, Any] = {"seed": seed, "level": level, "sensor": " ".join(sensor), "true": true}
    row |= {"code": code, "seconds": round(time.process_time() - begin, 1)}
    fits = {name: folder / "fit" / name / "fit.json" for name in STAGES}
    if not all(path.exists() for path in fits.values()):
        return {**row, "said": said}
    read = {name: json.loads(path.read_text()) for name, path in fits.items()}
    used = next((name for name in STAGES if read[name]["diagnostics"][0]["severity"] != "do_not_use"), STAGES[0])
    fit = read[used]
    found = {e["name"]: (float(e["value"]), [float(end) for end in e["interval"]]) for e in fit["estimates"]}
    return {
        **row,
        "used": used,
        "explained": read[STAGES[0]]["explained"],
        "headline": read[STAGES[0]]["diagnostics"][0]["sentence"],
        "chi2": round(fit["reduced_chi2"], 3),
        "values": {name: value for name, (value, _) in found.items()},
        "intervals": {name: interval for name, (_, interval) in found.items()},
        "inside": {name: interval[0] <= true[name] <= interval[1] for name, (_, interval) in found.items()},
        "diagnostics": [f"[{d['severity']}] {d['sentence']}" for d in read[STAGES[0]]["diagnostics"]],
    }


def table_of(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    head = "| MuJoCo level | sensor (simulated) | recordings | explained | exit code 0 | latency within 2 ms, largest error |"
    lines = [f"{head} error of the parameters, rms | 95 % intervals that hold the ground truth | seconds, median and most |"]
    lines.append("| --- " * 9 + "|")
    for kind in dict.fromkeys((row["level"], row["sensor"]) for row in rows):
        some = [row for row in rows if (row["level"], row["sensor"]) == kind and "values" in row]
        late = np.array([abs(row["values"]["latency"] - row["true"]["latency"]) for row in some])
        errors = {name: [row["values"][name] / BODY[name] - 1.0 for row in some] for name in BODY}
        rms = ", ".join(f"{name} {100 * np.sqrt(np.mean(np.square(e))):.2g} %" for name, e in errors.items())
        held = ", ".join(f"{name} {sum(row['inside'][name] for row in some)}" for name in (*BODY, "latency"))
        seconds = [row["seconds"] for row in some]
        explained, fine = (sum(row["explained"] for row in some), sum(row["code"] == 0 for row in some))
        lines.append(
            f"| {kind[0]} | {kind[1]} | {len(some)} | {explained} | {fine} | "
            f"{int((late <= NEAR).sum())}, {1e3 * late.max():.2g} ms | {rms} | {held} | "
            f"{np.median(seconds):.0f}, {max(seconds):.0f} |"
        )
    return "\n".join([*lines, ""])


def main(args: Args) -> None:
    """Run all ground truths."""
    path = args.out / "numbers.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    for seed in args.seeds:
        key = (seed, args.level, " ".join(args.sensor))
        if key in {(row["seed"], row["level"], row["sensor"]) for row in rows}:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append(one(seed, args.level, args.sensor, Path(folder)))
        write_atomically(path, (json.dumps({"commit": git_commit(), "rows": rows}, indent=1) + "\n").encode())
        write_atomically(args.out / "table.md", table_of(rows).encode())
    print(table_of(rows))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
