"""Benchmarks that users run: lines that are not measured again stay, and two checkouts are compared."""

from dataclasses import asdict
from pathlib import Path

import pytest
from helpers import load_script


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


@pytest.mark.parametrize("system", ["block", "vine"])
def test_a_system_explains_what_its_own_engine_recorded(system: str) -> None:
    """As its page says: `record`, then `identify`; of all systems by hand: benchmarks/own_data.py."""
    if system == "block":
        pytest.importorskip("casadi")
    row = load_script("benchmarks/own_data.py").run(system)
    assert row.usable and row.adequate and row.hold == row.intervals > 0 and row.seconds < 60
