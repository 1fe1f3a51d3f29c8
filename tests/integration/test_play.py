"""Playing: keys, frames, recordings and files of the player; bad arguments of scripts/play.py."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pygame
import pytest
from helpers import load_script, run_main
from PIL import Image

from softgym_envs.core.errors import OptionError
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.envs.player import Player, PlayOptions


@pytest.fixture(scope="module")
def play():
    return load_script("scripts/play.py")


def press(key, kind=pygame.KEYDOWN):
    pygame.event.post(pygame.event.Event(kind, key=key, mod=0, unicode="", scancode=0))


class Script:
    """Posts keys before given frames of a player, and notes what the player did at every frame."""

    def __init__(self, player, keys, last):
        self.player, self.keys, self.last, self.notes = player, keys, last, []
        self.draw, player.draw = player.draw, self
        player.renderer.fps = None
        player.renderer._open()  # events can be posted to an open window only

    def __call__(self, state):
        for key in self.keys.get(self.player.frames, ()):
            press(*key) if isinstance(key, tuple) else press(key)
        if self.player.frames >= self.last:
            press(pygame.K_ESCAPE)
        self.draw(state)
        self.notes.append((len(self.player.episode.controls), self.player.episode.seed, self.player.paused))


def make_player(tmp_path, name="TensegrityRoll-v0", **options):
    return Player(gym.make(f"softgym_envs:{name}"), PlayOptions(output=tmp_path / "out", size=(160, 120), **options))


def test_keys_drive_play_for_50_frames(tmp_path):
    player = make_player(tmp_path, seed=4, dataset=tmp_path / "data.h5")
    keys = {
        0: [pygame.K_UP],
        12: [(pygame.K_UP, pygame.KEYUP), pygame.K_1, pygame.K_h, pygame.K_c],
        20: [(pygame.K_1, pygame.KEYUP), pygame.K_SPACE, pygame.K_s, pygame.K_v],
        29: [(pygame.K_SPACE, pygame.KEYUP), pygame.K_p],
        36: [pygame.K_PERIOD],
        42: [pygame.K_v, pygame.K_n],
        46: [pygame.K_p],
    }
    script = Script(player, keys, 50)
    player.run()
    steps, seeds, paused = (np.array(column) for column in zip(*script.notes, strict=True))
    assert 50 <= len(steps) <= 52 and player.quit and player.renderer.closed
    assert paused[32] and steps[35] == steps[32]  # paused: frames, but no steps
    assert steps[40] == steps[35] + 1  # "." makes one
    assert seeds[0] == 4 and seeds[-1] == 5
    assert not player.hud_shown and not player.following
    first, second = TrajectorySet.load(tmp_path / "data.h5")
    assert first.metadata["seed"] == "4" and second.metadata["seed"] == "5"
    assert np.abs(first.controls[:3]).max() > 10  # rolling
    pulled = first.controls[5]
    assert pulled[:4].mean() < pulled[4:].mean() - 5  # key 1 pulls the first four cables
    names = sorted(p.suffix for p in (tmp_path / "out").iterdir())
    assert names == [".gif", ".png"]
    with Image.open(next((tmp_path / "out").glob("*.gif"))) as gif:
        assert gif.size == (160, 120) and gif.n_frames > 5


def test_a_policy_drives_until_tab_is_pressed(tmp_path):
    def policy(rows):
        return np.full((len(rows), 2), 0.25, np.float32)

    player = Player(gym.make("softgym_envs:SlidingBlock-v0"), PlayOptions(size=(160, 120)), policy)
    script = Script(player, {6: [pygame.K_TAB], 20: [pygame.K_TAB]}, 30)
    player.run()
    pushed = np.array(player.episode.controls)[:, 0]
    assert pushed[0] == pushed[-1] > 0 and pushed.min() < 0.5 * pushed[0]  # let go in between
    assert len(script.notes) >= 30


def test_a_policy_that_observes_its_last_actions_is_played_without_being_told(play, tmp_path):
    """What it observes stands in the .json beside it."""
    policy = Path(__file__).parents[2] / "agents/policies/TensegrityRoll-v0.npz"
    options = PlayOptions(output=tmp_path, size=(160, 120), headless_frames=12, record=tmp_path / "a.gif")
    assert run_main(play, play.Args("TensegrityRoll-v0", policy=policy, options=options)) == 0


def test_a_recorded_episode_is_what_the_simulator_does(tmp_path):
    """Without noise and delay, the recorded controls replayed from the recorded start give the recorded states."""
    player = make_player(tmp_path, headless_frames=20, dataset=tmp_path / "data.h5")
    player.pressed = {"left", "3"}
    player.run()
    recorded = TrajectorySet.load(tmp_path / "data.h5")[0]
    simulator = player.simulator
    states, _ = simulator.rollout(
        recorded.values[:1], recorded.controls[None], player.inner.episodes.parameters, substeps=recorded.substeps
    )
    np.testing.assert_allclose(states[0], recorded.values, atol=1e-9)
    assert recorded.period == pytest.approx(player.period)


def test_frames_between_steps_lie_on_the_way(tmp_path):
    player = make_player(tmp_path, headless_frames=1)
    control = np.linspace(-100, 100, 24)
    states = [player.state, *player.between(player.state, control)]
    substeps = round(player.period / player.simulator.dt)
    end, _ = player.simulator.step(states[0][None], control[None], player.inner.episodes.parameters, substeps=substeps)
    assert len(states) == player.frames_per_step == 3
    path = [np.linalg.norm(player.simulator.difference(s, states[0])) for s in [*states, end[0]]]
    assert (np.diff(path) > 0).all()
    player.finish()


def test_files_that_could_not_be_written_are_refused_before_the_first_step(play, tmp_path, capsys):
    for arguments, message in (
        ({"record": tmp_path / "roll.avi"}, r"record is .*roll\.avi, expected .* \.gif or \.mp4"),
        ({"dataset": tmp_path / "roll.csv"}, r"dataset is .*roll\.csv, expected .* \.h5"),
        ({"headless_frames": -4}, "headless_frames is -4"),
    ):
        with pytest.raises(OptionError, match=message):
            play.main(play.Args("TensegrityRoll-v0", options=PlayOptions(**arguments)))
    assert (
        run_main(play, play.Args("TensegrityRoll-v0", options=PlayOptions(headless_frames=-4))) == 2
        and "error: headless" in capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == []


def test_the_packages_prefix_is_taken_as_in_gym_make(play, tmp_path):
    path = tmp_path / "new" / "roll.h5"
    options = PlayOptions(headless_frames=4, size=(160, 120), dataset=path)
    assert not run_main(play, play.Args("softgym_envs:TensegrityRoll-v0", options=options))
    assert len(TrajectorySet.load(path)) == 1


def test_keywords_of_the_task_are_played(play, tmp_path, capsys):
    options = PlayOptions(headless_frames=2, size=(160, 120), dataset=tmp_path / "grow.h5")
    assert not run_main(play, play.Args("VineNavigate-v0", keyword=("level=3",), options=options))
    refused = {"level": "keyword is 'level', expected key=value", "model=x": "keyword model is the command's own"}
    for word, message in refused.items():
        assert run_main(play, play.Args("VineNavigate-v0", keyword=(word,), options=options)) == 2
        assert message in capsys.readouterr().err
    assert run_main(play, play.Args("VineNavigate-v0", keyword=("level=77",), options=options)) == 2


def test_an_unknown_environment_is_answered_with_the_known_ones(play):
    with pytest.raises(OptionError, match=r"unknown environment 'TensegrityRol-v0'; is it TensegrityRoll-v0\? \(there"):
        play.main(play.Args(env="softgym_envs:TensegrityRol-v0"))
