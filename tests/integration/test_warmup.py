"""The command `warmup` plays and fits systems, and says how far it is."""

from typing import Any

import gymnasium as gym
import pytest
from helpers import load_script


def test_a_system_is_played_and_fitted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    warmup, done = load_script("scripts/warmup.py"), list[str]()
    identify, make = warmup.identify, gym.make

    def named(work: Any, name: str, *given: Any, **more: Any) -> Any:
        done.append(name)
        return work(name, *given, **more)

    monkeypatch.setattr(warmup, "identify", lambda *given, **more: named(identify, *given, **more))
    monkeypatch.setattr(gym, "make", lambda *given, **more: named(make, *given, **more))
    assert warmup.main(warmup.Args(("block",))) == 0 and done == ["softgym_envs:SlidingBlock-v0", "block"]
    said = capsys.readouterr().out.split("\r")
    assert said[1].startswith("compiling SlidingBlock-v0: 1 of 2, about 48 s") and "2 of 2 compiled" in said[-1]
