"""A real beam of silicone rubber: fitted to two loads, and predicted with an unseen load [Dubied2022].

    python experiments/silicone_beam_identify/silicone_beam_identify.py fit --data DIR  # of beam_*.csv
    python experiments/silicone_beam_identify/silicone_beam_identify.py predict --load 72 --data new.csv --out out
    python experiments/silicone_beam_identify/silicone_beam_identify.py predict --load 72 --held 0 --out out

The load is in g. `predict` writes predicted.csv (markers in the camera's frame), a picture and numbers. It ends with 0 if
frequency and decay are off by no more than repeats of a recording differ (1.7 and 25 %), with 2 if not. Of the recording it
uses where the markers are held, and 0.2 s of motion (rows 14 to 34 after the release) for the two numbers of its start; "blind"
uses none of these rows.
Recordings: (c) 2021 Soft Robotics Lab, ETH Zurich, MIT licence (data/LICENSE).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from beam_plots import draw
from beam_table import table
from clamped import (
    FOLDER,
    LENGTH,
    SECOND_MOMENT,
    UNIT,
    Array,
    fitted_start,
    linearised,
    predict,
    predict_softened,
    ring,
    simulator_of,
    softened,
    start_state,
    storage,
    timoshenko,
)
from releases import DISTURBED, LONGEST, PERIOD, Release, read, to_csv
from scipy.optimize import brentq, least_squares
from scipy.stats import t as student

import sysid
from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.core.files import provenance, read_json, write_atomically, write_json
from softgym_envs.core.procedure import Stage, StageData
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.recordings import read_csv
from softgym_envs.systems.vine import VineParameters
from softgym_envs.systems.vine.procedure import PROCEDURE, infer_controls
from sysid.diagnostics.predictions import ahead
from sysid.diagnostics.result import FitResult
from sysid.procedure.stage import fit_stage
from sysid.procedure.stage_problem import stage_problem
from sysid.report.files import save

FREE = ("bending_stiffness", "relaxation", "relaxation_time", "creep", "creep_time", "base_turn", "tip_offset")
ALONE = ("bending_stiffness", "relaxation", "creep", "base_turn")
"""Parameters that recordings of one load determine, with the others as guessed."""
GUESS = {"relaxation_time": 0.036, "creep_time": 0.6}
"""[s] Guess of the others: rubber has a loss that hardly depends on frequency between 4 and 8 Hz."""
FILES = (("beam_gravity_V2_a.csv", 0.0), ("beam_gravity_V2_b.csv", 0.0), ("beam_load52_V2_a.csv", 0.052))
USED = DISTURBED + 20
"""Rows that determine a prediction's start."""
HEAVIEST = 0.1
"""[kg] Twice the fitted load: predictions beyond it are reported as extrapolated."""
REPEATS = ((0.0001, 0.034), (0.008, 0.11))
"""Relative differences in frequency and decay of two recordings with 0 g, and of two with 52 g (one of them not used here)."""
FREQUENCY, DECAY = (student.ppf(0.975, len(REPEATS)) * np.sqrt(np.mean(np.square(REPEATS), axis=0) / 2)).tolist()
"""Relative tolerances of a prediction: 95 % of repeats differ by less from their mean (t over the pairs), 1.7 and 25 %."""
LOADS = (26.0, 101.0)
"""[g] Loads that are predicted without a recording."""
LOUD = 0.3
"""[mm] Residuals beyond it count less than their squares: a marker may jump."""


COMMAND = "python experiments/silicone_beam_identify/silicone_beam_identify.py fit"


@dataclass(frozen=True)
class Fit:
    """Fit the parameters, and predict held-out recordings."""

    data: Path
    """Folder of beam_gravity_V2_a.csv, beam_gravity_V2_b.csv and beam_load52_V2_a.csv."""
    out: Path = Path("results/silicone_beam_identify")
    runs: Path = Path("runs/soft_beam")
    """Folder of the recordings in the form that `softgym-envs identify vine` reads."""


@dataclass(frozen=True)
class Predict:
    """Predict the motion of a beam with a load."""

    load: float
    """[g]"""
    data: Path | None = None
    """Recording; none: only the prediction."""
    held: float = 0.0
    """[mm] Without recording: height over the straight beam at which the tip is held."""
    params: Path = Path("results/silicone_beam_identify/fit.toml")
    softening: float | None = None
    """How much slower the beam rings at an amplitude of 5 mm; none: as in numbers.json beside the parameters, else 0."""
    out: Path = Path("runs/silicone_beam")


# --- Fit --------------------------------------------------------------------------------------------------------------


def fit(releases: tuple[Release, ...], free: tuple[str, ...], start: VineParameters) -> tuple[VineParameters, Array]:
    """Fit parameters and the two numbers of every start (R, 2), all at once by least squares with a robust loss."""
    simulator, specs, count = simulator_of(releases[0].paths.shape[1]), start.specs(), len(free)

    def parameter_values(numbers: Array) -> VineParameters:
        columns = {n: np.clip(specs[n].decode(v), *specs[n].bounds) for n, v in zip(free, numbers.T, strict=False)}
        return start.replace(**columns)

    def residual(numbers: Array) -> Array:
        given, parts = parameter_values(numbers), []
        for k, release in enumerate(releases):
            starts = numbers[:, count + 2 * k : count + 2 * k + 2] * UNIT
            paths = predict(simulator, given, release.paths[0], release.load, starts, len(release.paths))
            parts.append(1e3 * (paths - release.paths)[:, DISTURBED:].reshape(len(numbers), -1))
        return np.concatenate(parts, axis=1)

    def slopes(numbers: Array) -> Array:
        step = 1e-5 * np.eye(len(numbers))
        ends = residual(np.concatenate([numbers + step, numbers - step]))
        return np.asarray((ends[: len(numbers)] - ends[len(numbers) :]).T / 2e-5)

    first = np.concatenate([[float(specs[n].encode(getattr(start, n))) for n in free], np.zeros(2 * len(releases))])
    found = least_squares(
        lambda v: residual(v[None])[0], first, slopes, x_scale="jac", loss="soft_l1", f_scale=LOUD, max_nfev=40
    )
    ends = {n: float(v) for n, v in ((n, getattr(parameter_values(found.x[None]), n)[0]) for n in free)}
    return start.replace(**ends), found.x[count:].reshape(-1, 2) * UNIT


def judged_by_sysid(
    releases: tuple[Release, ...], starts: Array, free: tuple[str, ...], parameter_values: VineParameters, folder: Path
) -> FitResult:
    """The system's procedure on CSV files in the form of `softgym-envs identify`, from these parameters, with these starts."""
    simulator = simulator_of(releases[0].paths.shape[1])
    runs = [read_csv(to_csv(r, folder / f"{r.name}.csv")).for_timestep(simulator.dt) for r in releases]
    data = TrajectorySet(tuple(infer_controls(simulator, run) for run in runs))
    options = {"starts": 1, "errors": "clustered", "levenberg": {"cost_tolerance": 1e-6, "max_iterations": 15}}
    stage = Stage("released", "", free, "single_shooting", options, data=StageData(free_motion=True, free_initial=False))
    begun = {f"{r.name}.csv": start_state(simulator, r.paths[0], s) for r, s in zip(releases, starts, strict=True)}
    problem = stage_problem(
        PROCEDURE, stage, simulator, data, start=parameter_values, initial_state=lambda run: begun[str(run.metadata["source"])]
    )
    return fit_stage(PROCEDURE, stage, problem, folder=None, resume=False, progress=None)


def judged(release: Release, parameter_values: VineParameters, softening: float) -> dict[str, Any]:
    """Prediction of a recording, and its errors."""
    simulator, rows = simulator_of(release.paths.shape[1]), len(release.paths)
    start = fitted_start(simulator, parameter_values, softening, release, USED)
    starts = np.stack([start, np.zeros(2)])
    paths = predict_softened(simulator, parameter_values, softening, release.paths[0], release.load, starts, rows)
    found, blind = (predicted_from(release, path) for path in paths)
    real, ours = ring(release.heights), ring(paths[0, :, :, 1].mean(axis=1))
    after = found.predictions.paths[0] if found.predictions else None
    assert after is not None and blind.predictions is not None
    error = (after.predicted - after.measured)[1:].reshape(-1, *release.paths.shape[1:])
    dark = (blind.predictions.paths[0].predicted - after.measured)[1:].reshape(error.shape)
    third = np.diff(release.paths[-60:], 3, axis=0)
    return {
        "recording": release.name, "load_g": 1e3 * release.load, "start": start.tolist(),
        "frequency": [real.frequency, ours.frequency], "decay": [real.decay, ours.decay],
        "frequency_error": ours.frequency / real.frequency - 1, "decay_error": ours.decay / real.decay - 1,
        "swing_mm": 1e3 * real.swing, "sag_mm": 1e3 * float(release.heights[0] - release.heights[-20:].mean()),
        "up_mm": 1e3 * rms(error[:, :, 1]), "along_mm": 1e3 * rms(error[:, :, 0]),
        "rest_mm": 1e3 * float(error[-20:, :, 1].mean()), "blind_up_mm": 1e3 * rms(dark[:, :, 1]),
        "noise_mm": 1e3 * rms(third) / np.sqrt(20), "paths": paths, "release": release,
        "ahead_mm": {ahead(e.horizon): [1e3 * e.predicted, 1e3 * e.still, 1e3 * e.velocity] for e in found.errors},
    }  # fmt: skip


def predicted_from(release: Release, path: Array) -> sysid.Prediction:
    """`sysid.predict` by a path (T, M, 2) from its first row on: errors after the rows that determine its start."""
    rows, names = len(path), tuple(f"marker{k}.{axis}" for k in range(path.shape[1]) for axis in "xy")
    values = release.paths.reshape(rows, -1)
    recording = Trajectory(
        PERIOD * np.arange(rows, dtype=np.float64), np.zeros((rows - 1, 0)), values, names, ("m",) * len(names)
    )
    ours = path.reshape(rows, -1)
    model = sysid.Predictor(lambda _, now, steps: np.stack([ours[row : row + steps + 1] for row in now]), look=USED - 1)
    return sysid.predict(model, [recording])


def rms(values: Any) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def run_fit(args: Fit) -> int:
    """Fit, hold out, and write."""
    releases = tuple(read(args.data / name, load) for name, load in FILES)
    a, b, loaded = releases
    initial_guess, runs = VineParameters.load(FOLDER / "start.toml"), args.runs
    single, trends = initial_guess.replace(**GUESS), {r.name: softened(r)[0] for r in releases}
    cases = {
        "0 g (a) and 52 g": ((a, loaded), FREE, initial_guess, (b,)),
        "0 g (a, b)": ((a, b), ALONE, single, (loaded,)),
        "52 g": ((loaded,), ALONE, single, (a, b)),
        "all": (releases, FREE, initial_guess, ()),
    }
    lines, moduli = [], {}
    for name, (train, free, start, held_out) in cases.items():
        softening = float(np.mean([trends[r.name] for r in train]))
        linear = tuple(linearised(r, softening) for r in train)
        frozen, starts = fit(linear, free, start)
        print(name, {n: f"{getattr(frozen, n):.4g}" for n in free}, f"softening {softening:.4f}", flush=True)
        lines += [{"fitted to": name, **judged(r, frozen, softening)} for r in held_out]
    result = judged_by_sysid(linear, starts, FREE, frozen, runs)
    frozen = initial_guess.replace(**{name: getattr(result.parameters, name) for name in FREE})
    print(result.summary(), flush=True)
    known = frozen.replace(**{n: getattr(initial_guess, n) for n in ALONE})
    for r in linear:
        moduli[r.name] = fit((r,), ALONE, known)[0].bending_stiffness / SECOND_MOMENT
    save(result, args.out)
    within = [judged(r, frozen, softening) for r in releases]
    document = {"command": COMMAND, **provenance(), "softening": softening,
                "softening_alone": trends, "tolerance": [FREQUENCY, DECAY], "two_numbers": two_numbers(within, LOADS),
                "held_out": [plain(x) for x in lines], "fitted": [plain(x) for x in within],
                "modulus": modulus(frozen, moduli, within), "loads": [unseen(frozen, softening, load) for load in LOADS],
                "converged": result.converged, "diagnostics": [d.sentence() for d in result.diagnostics]}  # fmt: skip
    write_json(args.out / "numbers.json", document)
    write_atomically(args.out / "table.md", table(document).encode())
    draw(args.out / "picture.png", lines)
    print(table(document))
    return 0


def two_numbers(lines: list[dict[str, Any]], loads: tuple[float, ...]) -> list[float]:
    """Frequencies [Hz] with other loads [g] by a spring and an effective mass, which have the measured ones with 0 and 52 g."""
    bare, loaded = lines[0]["frequency"][0], lines[-1]["frequency"][0]
    mass = lines[-1]["load_g"] / ((bare / loaded) ** 2 - 1)
    return [float(bare * np.sqrt(mass / (mass + load))) for load in loads]


def unseen(parameter_values: VineParameters, softening: float, load: float) -> list[float]:
    """Load [g], and frequency [Hz] and decay [1/s] of a beam that is held straight and let go with it."""
    simulator = simulator_of(1)
    held = np.atleast_2d(simulator.model.tip(simulator.model.straight_state())[:2])
    path = predict_softened(simulator, parameter_values, softening, held, 1e-3 * load, np.zeros((1, 2)), LONGEST)[0]
    found = ring(path[:, :, 1].mean(axis=1))
    return [load, found.frequency, found.decay]


def modulus(frozen: VineParameters, alone: dict[str, float], within: list[dict[str, Any]]) -> dict[str, Any]:
    """Long-term E [Pa], with the 95 % interval of t over recordings fitted separately; E' at frequencies, with Timoshenko's."""
    values = np.array(list(alone.values()))
    half = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    lasting = storage(frozen, 0.0)
    rings = [(x["load_g"], x["frequency"][0]) for x in within]
    return {
        "lasting": lasting, "interval": [lasting - half, lasting + half], "alone": alone,
        "at_Hz": [[f, storage(frozen, f), from_frequency(f, 1e-3 * load), load] for load, f in rings],
    }  # fmt: skip


def from_frequency(frequency: float, load: float) -> float:
    """Modulus E of a Timoshenko beam that rings at this frequency with this load [kg] [Pa]."""
    return float(brentq(lambda e: timoshenko(e, load) - frequency, 1e4, 1e7))


def plain(line: dict[str, Any]) -> dict[str, Any]:
    """Drop arrays."""
    return {name: value for name, value in line.items() if name not in ("paths", "release")}


# --- Predict ----------------------------------------------------------------------------------------------------------


def run_predict(args: Predict) -> int:
    """Predict, compare, and write."""
    if not 0 <= args.load <= 1000:
        raise OptionError(f"--load is {args.load:g}, expected 0 to 1000 (g)")
    if 1e-3 * args.load > HEAVIEST:
        print(f"note: {args.load:g} g is far from the loads that were fitted, 0 and 52 g: an extrapolation")
    parameter_values, softening = VineParameters.load(args.params), args.softening
    beside = args.params.with_name("numbers.json")
    if softening is None:
        softening = float(read_json(beside)["softening"]) if beside.exists() else 0.0
    args.out.mkdir(parents=True, exist_ok=True)
    if args.data is None:
        simulator = simulator_of(1)
        held = np.atleast_2d(simulator.model.tip(simulator.model.straight_state())[:2])
        start = np.array([1e-3 * args.held / LENGTH / (2 / 3), 0.0])
        paths = predict_softened(simulator, parameter_values, softening, held, 1e-3 * args.load, start[None], LONGEST)[0]
        found = ring(paths[:, :, 1].mean(axis=1))
        write_paths(args.out / "predicted.csv", ("Tip",), paths, 0.0)
        sag = 1e3 * (held[0, 1] - paths[-1, 0, 1])
        print(f"{args.load:g} g: {found.frequency:.3f} Hz, decay {found.decay:.3f} 1/s, sag {sag:.2f} mm")
        return 0
    release = read(args.data, 1e-3 * args.load)
    line = judged(release, parameter_values, softening)
    write_paths(args.out / "predicted.csv", release.labels, line["paths"][0] + release.shift, release.began)
    draw(args.out / "picture.png", [line])
    good = abs(line["frequency_error"]) <= FREQUENCY and abs(line["decay_error"]) <= DECAY
    write_json(args.out / "numbers.json", {**plain(line), "diagnostic": diagnostic(line, good)})
    print(diagnostic(line, good))
    print(f"paths, plot, numbers: {args.out}")
    return 0 if good else 2


def diagnostic(line: dict[str, Any], good: bool) -> str:
    """Diagnostic in words."""
    (f, p), (d, q) = line["frequency"], line["decay"]
    loud = line["up_mm"] / line["noise_mm"]
    path = f"{line['up_mm']:.2f} mm up, {line['along_mm']:.2f} mm along (rms), {loud:.0f} times the markers' noise"
    ends = f"rest off by {line['rest_mm']:+.2f} of {line['sag_mm']:.1f} mm; blind {line['blind_up_mm']:.2f} mm up"
    held = "frequency and decay are predicted" if good else "NOT PREDICTED: do not use these parameters for this load"
    return (
        f"{held}: {p:.3f} Hz for {f:.3f} ({100 * line['frequency_error']:+.2f} %), decay {q:.3f} 1/s for {d:.3f} "
        f"({100 * line['decay_error']:+.1f} %)\npath of {line['swing_mm']:.1f} mm: {path}; {ends}"
    )


def write_paths(path: Path, labels: tuple[str, ...], paths: Any, began: float) -> None:
    """Predicted markers, in the camera's frame and columns."""
    names = [f"{label}_{axis}" for label in labels for axis in "zx"]
    rows = np.column_stack([began + PERIOD * np.arange(len(paths)), paths.reshape(len(paths), -1)])
    np.savetxt(path, rows, fmt="%.6f", delimiter=",", header=",".join(["t_s", *names]), comments="")


def main(args: Fit | Predict) -> int:
    """Run the command; 1 if the input is refused."""
    try:
        return run_fit(args) if isinstance(args, Fit) else run_predict(args)
    except SoftgymError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main(tyro.extras.subcommand_cli_from_dict({"fit": Fit, "predict": Predict})))
