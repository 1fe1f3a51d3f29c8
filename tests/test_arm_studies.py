"""The study of the pneumatic arm on recordings that are made up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from helpers import load_script


def swinging(path: Path) -> Path:
    """15 episodes of four joints that follow their pressures with a lag, in the form of the recordings."""
    rng, lengths, parts = np.random.default_rng(0), np.full(10, 130), []
    for length in lengths:
        pressures = np.repeat(rng.uniform(0.2, 0.8, (length // 10 + 1, 8)), 10, axis=0)[:length]
        q, v = np.zeros((length, 4)), np.zeros(4)
        for t in range(1, length):
            v = v + 0.01 * (60 * (pressures[t - 1, 0::2] - pressures[t - 1, 1::2]) - 40 * q[t - 1] - 8 * v)
            q[t] = q[t - 1] + 0.01 * v
        parts.append(np.hstack([q, np.zeros((length, 4)), pressures]))
    np.savez(path, data=np.concatenate(parts).astype(np.float32), length=lengths)
    return path


def test_the_pneumatic_study_finds_a_mechanism(tmp_path: Path):
    study = load_script("studies/arm_pneumatic/arm_pneumatic.py")
    study.ORDERS, study.RIDGES = (1, 2), (1.0,)
    study.main(study.Args(swinging(tmp_path / "arm.npz"), steps=40, out=tmp_path / "out"))
    found = json.loads((tmp_path / "out" / "pneumatic.json").read_text())["errors_deg"]
    assert set(found) == {"0.1 s", "0.5 s", "1 s"} and (tmp_path / "out" / "pneumatic.png").stat().st_size > 5000
    half = found["0.5 s"]
    assert np.mean(half["pneumatic"]["rms"]) < 0.7 * np.mean(half["stands still"]["rms"])
