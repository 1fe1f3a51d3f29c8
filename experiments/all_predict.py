"""Every system: identified from a recording of its MuJoCo model, or of a real box, predicts others that were not fitted.

    python experiments/all_predict.py                 # writes results/all_predict; minutes
    python experiments/all_predict.py --systems arm box

Settings are cheap: short recordings, few iterations. The table shows what `sysid.predict` says, not how well a system can do.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

import sysid
from softgym_envs.core.files import provenance, read_json, write_atomically, write_json
from sysid.diagnostics.predictions import ahead

CASES: dict[str, dict[str, Any]] = {
    "block": {}, "particles": {}, "arm": {}, "upper_body": {"steps": 400},
    "box": {"count": 2},
    "vine": {"steps": 2000},
    "tensegrity": {"experiments": ("air",), "steps": 2000},
    "loop": {"steps": 1000, "free": ("theta_stiffness", "psi_stiffness")},
}  # fmt: skip
"""System -> settings of its recordings, and free parameters."""
REAL = {"cube_tosses": ("box", "cube"), "planar_drops": ("box", "square")}
"""Real recordings of the package -> system and model. The last third is not fitted."""
ITERATIONS = 10
SHOWN = ("m", "rad")
"""Units of the table."""


@dataclass(frozen=True)
class Args:
    """Options of the table."""

    systems: tuple[str, ...] = (*CASES, *REAL)
    """Systems to run; the others stay as they are in the folder."""
    out: Path = Path("results/all_predict")


def predicted(name: str) -> dict[str, Any]:
    """Identify from recordings, and predict others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in REAL:
            system, model = REAL[name]
            real = sysid.load(name)
            fitted = 2 * len(real) // 3
            fit, new = sysid.identify(system, real[:fitted], model=model, diagnose="quick"), real[fitted:]
        else:
            given = dict(CASES[name])
            free = given.pop("free", ())
            data = sysid.record(name, backend="mujoco", seed=1, **given)
            new = sysid.record(name, backend="mujoco", seed=2, **{**given, "count": 1})
            fit = sysid.identify(name, data, free=free, max_iterations=ITERATIONS)
        found = sysid.predict(fit, new)
    print(f"--- {name}\n{found.summary()}", flush=True)
    errors = [
        {"horizon": ahead(e.horizon), "unit": e.kind, "fit": e.predicted, "still": e.still, "velocity": e.velocity}
        for e in found.errors
    ]
    coverage = [{"horizon": c.horizon, "unit": c.kind, "size": c.size, "within": c.within} for c in found.coverage]
    return {"holds": found.holds, "reasons": list(found.reasons), "errors": errors, "coverage": coverage}


def table(systems: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        "# Predictions of recordings that were not fitted", "",
        "`python experiments/all_predict.py`; RMS errors beside standing still and constant velocity. Recordings are of the",
        "system's MuJoCo model, short, and fitted with few iterations; `cube_tosses` and `planar_drops` are real. The",
        "tensegrity hangs without contact, where steps of MuJoCo equal ours: its errors are rounding.", "",
        "| system | horizon | unit | fit | standing still | constant velocity | within 90 % |",
        "|---|---|---|---:|---:|---:|---:|",
    ]  # fmt: skip
    for name in (name for name in (*CASES, *REAL) if name in systems):
        for e in (e for e in systems[name]["errors"] if e["unit"] in SHOWN):
            shares = {(f"{c['horizon']:g} s", c["unit"]): f"{100 * c['within']:.0f} %" for c in systems[name]["coverage"]}
            numbers = " | ".join(f"{e[key]:.3g}" for key in ("fit", "still", "velocity"))
            lines.append(f"| {name} | {e['horizon']} | {e['unit']} | {numbers} | {shares.get((e['horizon'], e['unit']), '')} |")
    lines += ["", *(f"- {name}: {'; '.join(found['reasons'])}." for name, found in systems.items() if found["reasons"])]
    return "\n".join(lines).rstrip() + "\n"


def main(args: Args) -> None:
    """Run the systems, and write numbers.json and table.md."""
    file = args.out / "numbers.json"
    for name in args.systems:
        known = read_json(file)["systems"] if file.exists() else {}
        systems = {**known, name: {**predicted(name), **provenance()}}
        write_json(file, {"command": "python experiments/all_predict.py", "systems": systems})
        write_atomically(args.out / "table.md", table(systems).encode())


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
