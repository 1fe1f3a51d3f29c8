"""Benchmarks that users run: lines that are not measured again stay, and two checkouts are compared."""

from dataclasses import asdict
from pathlib import Path

import pytest
from helpers import ROOT, load_script

from softgym_envs.core.errors import OptionError


def test_mechanics_only_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mechanics = load_script("benchmarks/mechanics.py")
    step, env = mechanics.Row("one step", 1.0), mechanics.Row("control step", 2.0)
    monkeypatch.setattr(mechanics, "environments", lambda args: [env])
    monkeypatch.setattr(mechanics, "compare", lambda case, args: [step])
    out = tmp_path / "mechanics.json"
    only = mechanics.Args(only_environments=True, out=out)
    mechanics.main(only)
    mechanics.main(only)
    assert mechanics.read_json(out) == {"mechanics": [], "environments": [asdict(env)]}
    mechanics.main(mechanics.Args(links=6, steps=2, out=out))
    mechanics.main(only)
    assert mechanics.read_json(out) == {"mechanics": [asdict(step)], "environments": [asdict(env)]}


def test_rows_between_two_checkouts(tmp_path: Path) -> None:
    between = load_script("benchmarks/rows_between.py")
    few = {"rows": 2, "steps": 2, "rounds": 1}
    row = between.measure("SlidingBlock-v0", between.Args(old=ROOT, new_keywords='{"control_weight": 0.02}', **few))
    assert row.old > 0 and row.new > 0 and row.ratio == pytest.approx(row.new / row.old)
    assert row.new_keywords == {"control_weight": 0.02}
    with pytest.raises(OptionError, match="no checkout"):
        between.measure("SlidingBlock-v0", between.Args(old=tmp_path, **few))
