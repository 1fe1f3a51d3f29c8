"""The study of the pneumatic arm on recordings that are made up."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers import load_script


def swinging(path: Path) -> Path:
    """Episodes of four joints that follow their pressures with a lag, in the form of the recordings, stale rows too."""
    rng, lengths, parts = np.random.default_rng(0), np.full(5, 120), []
    for length in lengths:
        pressures = np.repeat(rng.uniform(0.2, 0.8, (length // 10 + 1, 8)), 10, axis=0)[:length]
        q, v = np.zeros((length, 4)), np.zeros((length, 4))
        for t in range(1, length):
            v[t] = v[t - 1] + 0.01 * (60 * (pressures[t - 1, 0::2] - pressures[t - 1, 1::2]) - 40 * q[t - 1] - 8 * v[t - 1])
            q[t] = q[t - 1] + 0.01 * v[t]
        q[[0, -1]] += 0.8  # of another episode
        parts.append(np.hstack([q, 0.1 * v, pressures]))
    np.savez(path, data=np.concatenate(parts).astype(np.float32), length=lengths)
    return path


def test_the_pneumatic_study_finds_a_mechanism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    study = load_script("experiments/pneumatic_arm_identify/pneumatic_arm_identify.py")
    monkeypatch.setattr("learned.ORDERS", (1, 2))
    monkeypatch.setattr("learned.RIDGES", (1.0,))
    file, out = swinging(tmp_path / "arm.npz"), tmp_path / "out"
    episodes, stale = study.load(file)
    assert {len(e) for e in episodes} == {118} and stale == 10
    study.main(study.Args("fit", file, steps=20, iterations=4, out=out))
    assert json.loads((out / "numbers.json").read_text())["fit"]["stale_frames"] == 10
    assert (out / "picture.png").stat().st_size > 5000
    study.main(study.Args("predict", file, out=out, errors=tmp_path / "errors.json"))
    found = json.loads((tmp_path / "errors.json").read_text())["errors_deg"]
    assert set(found) == {"0.1 s", "0.5 s", "1 s"}
    half = found["0.5 s"]
    assert half["pneumatic mechanism"]["all"] < 0.3 * half["stands still"]["all"]
    study.main(study.Args("folds", file, iterations=2, out=out))
    table = json.loads((out / "numbers.json").read_text())["folds"]["errors_deg"]
    assert table["1 s"]["episodes"] == 5 and set(table["1 s"]) >= {"pneumatic mechanism", "ARX", "stands still"}
    assert table["0.5 s"]["pneumatic mechanism"]["all"] < table["0.5 s"]["stands still"]["all"]


def test_the_committed_fit_predicts():
    """What results/pneumatic_arm_identify states is what its parameters give: of a file in the same form, finite angles."""
    study = load_script("experiments/pneumatic_arm_identify/pneumatic_arm_identify.py")
    with np.load("results/pneumatic_arm_identify/fit.npz", allow_pickle=False) as file:
        parameter_values = file["mechanism"]
    past = np.concatenate([np.tile([0.0, -0.8, -0.2, 0.0], (1, 12, 1)), np.full((1, 12, 8), 0.5)], axis=2)
    angles = study.predicted(parameter_values, past, np.full((1, 100, 8), 0.5), study.H)
    assert np.isfinite(angles).all() and np.abs(angles).max() < 2.5
    for name in ("errors", "errors_all"):
        stated = json.loads(Path("results/pneumatic_arm_identify/numbers.json").read_text())[name]["errors_deg"]
        for horizon in stated.values():
            assert horizon["pneumatic mechanism"]["all"] < min(horizon[other]["all"] for other in ("ARX", "stands still"))


def test_the_committed_fit_never_runs_away():
    """3 s of every muscle being empty or full end within 0.4 rad of the recorded angles: stops lie at their ends.

    None pushes back where joints were seen to move: joint 2's stop was at 0.41 rad, and 1.51 rad were recorded.
    """
    mechanism = load_script("experiments/pneumatic_arm_identify/mechanism.py")
    study = load_script("experiments/pneumatic_arm_identify/pneumatic_arm_identify.py")
    with np.load("results/pneumatic_arm_identify/fit.npz", allow_pickle=False) as file:
        parameter_values = file["mechanism"]
    assert (parameter_values[:, mechanism.UPPER] > np.array([0.88, -0.04, 1.51, 1.98]) - 0.35).all()
    assert (parameter_values[:, mechanism.LOWER] < np.array([-1.01, -1.62, -1.71, -1.95]) + 0.35).all()
    valves = np.repeat(np.array(list(product([0.0, 1.0], repeat=8)))[:, None], 300, axis=1)
    past = np.concatenate([np.tile([0.0, -0.8, -0.2, 0.0], (len(valves), 12, 1)), valves[:, :12]], axis=2)
    angles = study.predicted(parameter_values, past, valves, study.H)
    assert (angles > np.array([-1.0, -1.6, -1.7, -1.9]) - 0.4).all() and (angles < np.array([0.9, 0.0, 1.5, 2.0]) + 0.4).all()


def test_the_bound_is_below_what_a_policy_pays():
    """Of one episode that the study has not; the cost is that of the states that it went through."""
    pytest.importorskip("stable_baselines3")
    study = load_script("experiments/arm_reach_bound.py")
    (episode,) = study.episodes("ArmReach-v0", study.POLICIES["ArmReach-v0"]["PPO"], "native", 1, 7)
    paid = np.abs(episode.states[1:, 0] - episode.goal[0]).sum() + 0.025 * (episode.controls**2).sum()
    assert episode.success and abs(paid - episode.paid.sum()) < 1e-5
    bound, solved, _ = study.elbow_bound(episode, len(episode.controls))
    assert solved and 0.3 * paid < bound < paid


def test_no_policy_beats_the_committed_bounds_in_our_engine():
    tasks = json.loads(Path("results/arm_reach_bound/numbers.json").read_text())["tasks"]
    assert set(tasks) == {"ArmReach-v0", "UpperBodyReach-v0"}
    for found in tasks.values():
        bounds = np.array([one["cost"] for one in found["bounds"]])
        solved = np.array([one["solved"] for one in found["bounds"]])
        assert solved.mean() >= 0.7
        for name, costs in found["costs"].items():
            assert found["success"][name] >= 0.8 * len(costs)
            assert name.endswith("mujoco") or (np.array(costs)[: len(bounds)] > bounds)[solved].all()
