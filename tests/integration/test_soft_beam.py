"""The study of the silicone beam: recordings that are made up, and theory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, load_script

from softgym_envs.core.errors import DataError, FileFormatError
from softgym_envs.systems.vine import VineParameters

FROZEN = ROOT / "results" / "silicone_beam_identify" / "fit.toml"
STUDY = load_script("experiments/silicone_beam_identify/silicone_beam_identify.py")
GROUND_TRUTH = VineParameters(
    linear_density=0.963, gravity=9.81, drag=0.0, clamp_length=0.0027, bending_damping=1e-6, bending_stiffness=0.017,
    relaxation=0.23, relaxation_time=0.04, creep=0.07, creep_time=0.6, base_turn=0.01,
)  # fmt: skip


def from_markers(path: Path, load: float, parameters: VineParameters, bend: float = -0.02) -> Path:
    """A file as the laboratory writes it: held for half a second, then let go; 10 um of noise."""
    simulator, rng = STUDY.simulator_of(2), np.random.default_rng(1)
    held = np.array([[0.076, 0.074], [0.070, 0.045]])
    free = STUDY.predict(simulator, parameters, held, 1e-3 * load, np.array([[bend, 0.1]]), 260)[0]
    paths = np.concatenate([np.repeat(held[None], 50, axis=0), free]) + np.array([0.002, 0.001])  # put down elsewhere
    base = np.tile([-0.019467, 0.049689], (len(paths), 1, 1))
    tracks = np.concatenate([paths, base], axis=1) + 1e-5 * rng.standard_normal((len(paths), 3, 2))
    columns = [0.01 * np.arange(len(paths))]
    for k in range(3):
        columns += [tracks[:, k, 1], np.full(len(paths), 0.03), tracks[:, k, 0]]
    names = [f"{name}_{axis}" for name in ("Tip - 1", "Tip - 2", "Base - 1") for axis in "xyz"]
    np.savetxt(path, np.column_stack(columns), fmt="%.6f", delimiter=",", header=",".join(["t_s", *names]), comments="")
    return path


def test_a_load_that_was_not_fitted_is_predicted_and_other_constants_are_refused(tmp_path: Path):
    """Frequency and decay of our own engine at 72 g; a beam that is 10 % stiffer rings 5 % faster: exit code 2."""
    recording, codes = from_markers(tmp_path / "new.csv", 72.0, GROUND_TRUTH), []
    for name, stiffness in (("right", 0.017), ("wrong", 0.0187)):
        params = GROUND_TRUTH.replace(bending_stiffness=stiffness).save(tmp_path / f"{name}.toml")
        codes.append(STUDY.main(STUDY.Predict(72.0, recording, params=params, out=tmp_path / name)))
    assert codes == [0, 2]
    right, wrong = (json.loads((tmp_path / name / "numbers.json").read_text()) for name in ("right", "wrong"))
    assert abs(right["frequency_error"]) < 1e-3 and abs(right["decay_error"]) < 0.03 and right["up_mm"] < 0.1
    assert wrong["frequency_error"] == pytest.approx(0.05, abs=0.01) and "NOT PREDICTED" in wrong["diagnostic"]
    header, first = (tmp_path / "right" / "predicted.csv").read_text().splitlines()[:2]
    assert header == "t_s,Tip - 1_z,Tip - 1_x,Tip - 2_z,Tip - 2_x"
    assert np.array(first.split(",")[1:], dtype=float) == pytest.approx([0.078, 0.075, 0.072, 0.046], abs=2e-3)


def test_softening_comes_out_of_one_recording():
    """A made-up path with a frequency that rises by Payne's law, integrated row by row: softening within a tenth."""
    t, phase, heights = 0.001 * np.arange(2400), 0.0, []
    for now in t:
        amplitude = 0.008 * np.exp(-1.6 * now)
        heights.append(-0.016 - 0.001 * np.exp(-2 * now) + amplitude * np.cos(phase))
        phase += 2 * np.pi * 4.5 * (1 - 0.04 * np.sqrt(amplitude / 0.005)) * 0.001
    paths = np.stack([np.zeros(240), np.array(heights)[::10]], axis=1)[:, None]
    release = STUDY.Release("made up", 0.052, ("Tip",), 0.0, np.zeros(2), paths)
    softening, _, amplitude = STUDY.softened(release)
    assert softening == pytest.approx(0.04, rel=0.1) and amplitude == pytest.approx(0.008, rel=0.05)
    flat = STUDY.ring(STUDY.linearised(release, softening).heights).frequency
    assert flat == pytest.approx(4.5, rel=2e-3) and STUDY.ring(release.heights).frequency < 4.4


def test_the_tolerance_is_what_repeats_differ_by():
    """Student's t with two pairs, 4.30, times the pooled standard deviation of one recording."""
    assert STUDY.FREQUENCY == pytest.approx(4.303 * 0.008 / 2, rel=1e-3)
    assert STUDY.DECAY == pytest.approx(4.303 * np.hypot(0.034, 0.11) / 2, rel=1e-3)


def test_constants_come_out_of_two_loads(tmp_path: Path):
    """Stiffness within 1 % from recordings whose starts were disturbed, with the other parameters free as in the study."""
    runs = tuple(STUDY.read(from_markers(tmp_path / f"{load}.csv", load, GROUND_TRUTH), 1e-3 * load) for load in (0.0, 52.0))
    initial_guess = GROUND_TRUTH.replace(bending_stiffness=0.014, relaxation=0.15, base_turn=0.0)
    found, starts = STUDY.fit(runs, ("bending_stiffness", "relaxation", "base_turn"), initial_guess)
    assert found.bending_stiffness == pytest.approx(GROUND_TRUTH.bending_stiffness, rel=0.01)
    assert found.relaxation == pytest.approx(GROUND_TRUTH.relaxation, rel=0.05)
    assert starts.shape == (2, 2)


def test_without_a_recording_the_motion_is_written(tmp_path: Path):
    params = GROUND_TRUTH.save(tmp_path / "fit.toml")
    assert STUDY.main(STUDY.Predict(30.0, params=params, out=tmp_path / "out")) == 0
    table = np.genfromtxt(tmp_path / "out" / "predicted.csv", delimiter=",", skip_header=1)
    assert table.shape == (240, 3) and table[0, 2] > table[-1, 2] + 0.01


def test_timoshenkos_beam_is_eulers_where_it_is_thin(monkeypatch: pytest.MonkeyPatch):
    """1.8751^2 sqrt(EI / rho A L^4), within what two functions of Ritz allow; thick and loaded ones ring lower."""
    thick = STUDY.timoshenko(264e3, 0.0)
    euler = 1.8751040687**2 * np.sqrt(264e3 * 0.03**2 / 12 / 1070 / 0.1**4) / (2 * np.pi)
    assert 0.93 * euler < thick < 0.97 * euler and STUDY.timoshenko(264e3, 0.052) < 0.6 * thick
    module = load_script("experiments/silicone_beam_identify/clamped.py")
    monkeypatch.setattr(module, "HEIGHT", 1e-3)
    monkeypatch.setattr(module, "SECOND_MOMENT", 1e-12 / 12)
    assert module.timoshenko(264e3, 0.0) * 30 == pytest.approx(euler, rel=2e-3)


def test_files_that_cannot_be_used_are_refused(tmp_path: Path):
    with pytest.raises(FileFormatError, match="cannot read"):
        STUDY.read(tmp_path / "none.csv", 0.0)
    (tmp_path / "other.csv").write_text("t_s,Base - 1_x,Base - 1_y,Base - 1_z\n0,0,0,0\n0.01,0,0,0\n")
    with pytest.raises(FileFormatError, match="names begin with Tip"):
        STUDY.read(tmp_path / "other.csv", 0.0)
    for text in ("", "t_s,Tip - 1_x,Tip - 1_y,Tip - 1_z\n"):
        (tmp_path / "empty.csv").write_text(text)
        with pytest.raises(FileFormatError, match="expected columns t_s"):
            STUDY.read(tmp_path / "empty.csv", 0.0)
    head, *rows = from_markers(tmp_path / "mm.csv", 0.0, GROUND_TRUTH).read_text().splitlines()
    cells = [[float(cell) * (1e3 if k else 1.0) for k, cell in enumerate(row.split(","))] for row in rows]
    (tmp_path / "mm.csv").write_text("\n".join([head, *(",".join(map(str, row)) for row in cells)]))
    with pytest.raises(DataError, match=r"m apart, 0.096 in this beam: are its columns in m\?"):
        STUDY.read(tmp_path / "mm.csv", 0.0)
    still = from_markers(tmp_path / "still.csv", 0.0, GROUND_TRUTH).read_text().splitlines()
    (tmp_path / "still.csv").write_text("\n".join(still[:45]))
    with pytest.raises(DataError, match="must be held still"):
        STUDY.read(tmp_path / "still.csv", 0.0)


def test_markers_that_are_lost_for_a_while_are_filled_and_for_long_are_not_used(tmp_path: Path):
    path = from_markers(tmp_path / "a.csv", 0.0, GROUND_TRUTH)
    whole, lines = STUDY.read(path, 0.0), path.read_text().splitlines()
    names = lines[0].split(",")
    for marker, rows in (("Tip - 1", range(120, 123)), ("Tip - 2", range(100, 130))):
        for row in rows:
            cells = lines[row].split(",")
            lines[row] = ",".join("" if name.startswith(marker) else cell for name, cell in zip(names, cells, strict=True))
    path.write_text("\n".join(lines))
    found = STUDY.read(path, 0.0)
    assert found.labels == ("Tip - 1",) and len(found.paths) == len(whole.paths)
    np.testing.assert_allclose(found.paths[:, 0], whole.paths[:, 0], atol=1e-4)  # noise of 10 um


def test_what_the_user_got_wrong_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert STUDY.main(STUDY.Predict(72.0, tmp_path / "none.csv", out=tmp_path)) == 1
    assert "none.csv" in capsys.readouterr().err
    assert STUDY.main(STUDY.Predict(-5.0, out=tmp_path)) == 1
    assert "--load is -5" in capsys.readouterr().err


def test_the_frozen_constants_go_with_the_recordings_that_are_here(tmp_path: Path):
    """Both were fitted: this tells whether files, units and parameters belong together. With a wrong load it says so."""
    for name, load in (("gravity", 0.0), ("load52", 52.0)):
        given = STUDY.Predict(load, STUDY.FOLDER / "data" / f"{name}.csv", params=FROZEN, out=tmp_path / name)
        assert STUDY.main(given) == 0
    given = STUDY.Predict(0.0, STUDY.FOLDER / "data" / "load52.csv", params=FROZEN, out=tmp_path / "wrong")
    assert STUDY.main(given) == 2
