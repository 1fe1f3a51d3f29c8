"""Every policy that comes with the package goes through the commands that take one."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import load_script, run_main

from softgym_envs.core.files import read_json
from softgym_envs.envs.player import PlayOptions
from softgym_envs.systems import tasks

ROOT = Path(__file__).parents[2]
POLICIES = sorted((ROOT / "agents/policies").glob("*.npz"))


def id_of(path: Path) -> str:
    """Of the environment that it drives."""
    return path.stem.partition("+")[0]


def test_every_id_has_a_policy() -> None:
    assert {id_of(path) for path in POLICIES} == {task.id for task in tasks()}


@pytest.mark.parametrize("path", POLICIES, ids=id_of)
def test_a_policy_is_played_and_evaluated(tmp_path: Path, path: Path) -> None:
    """What it observes stands in the JSON beside it."""
    play, evaluate = load_script("scripts/play.py"), load_script("scripts/evaluate.py")
    shown = PlayOptions(output=tmp_path, size=(160, 120), headless_frames=4, record=tmp_path / "a.gif")
    assert run_main(play, play.Args(id_of(path), policy=path, options=shown)) == 0
    out = tmp_path / "found.json"
    assert run_main(evaluate, evaluate.Args(path, id_of(path), episodes=1, out=out)) == 0
    found = read_json(out)
    assert all(found[backend]["failed_simulations"] == 0 for backend in ("native", "mujoco"))
