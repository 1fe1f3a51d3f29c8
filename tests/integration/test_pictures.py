"""Every rule of pictures over every id, backend and system: drawn, followed, driven by keys, played."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.task import load
from softgym_envs.envs.drawing import overlay_scene, picture_of, render_state, scene_of
from softgym_envs.envs.player import Player, PlayOptions
from softgym_envs.rendering import Camera, Hud, Picture, PointOverlay, PygameRenderer, default_camera
from softgym_envs.rendering import hud as huds
from softgym_envs.rendering.camera import VIEWS
from softgym_envs.rendering.colors import CAP, OBSTACLE, PAPER, ROD
from softgym_envs.rendering.scene import GroundGrid, Segment, Sphere
from softgym_envs.systems import systems, tasks

SIZE = (160, 120)
IDS = [task.id for task in tasks()]
WORLDS = [
    (task.id, backend)
    for system in systems().values()
    for task in system.tasks
    for backend in ("native", *tuple(system.ground_truths)[:1])
]
HEADINGS = [np.array([np.cos(angle), np.sin(angle)]) for angle in (0.0, 1.0, 2.5, -1.8)]


def make(name, backend):
    env = gym.make(f"softgym_envs:{name}", backend=backend).unwrapped
    env.reset(seed=1)
    return env


@pytest.mark.parametrize("system", systems().values(), ids=lambda system: system.name)
def test_a_system_has_a_picture_that_says_which_keys_do_what(system):
    picture = load(system.picture)
    assert isinstance(picture, Picture)
    assert "arrows" in picture.keys and all(key and what for key, what in picture.keys.items())


@pytest.mark.parametrize("name, backend", WORLDS)
def test_a_state_is_drawn_and_left_alone(name, backend):
    env, renderer = make(name, backend), PygameRenderer(SIZE)
    state = env.state
    hints = {**env.task.draw_hints(env.context), "trail": np.linspace(0.0, 0.3, 12).reshape(4, 3)}
    image = render_state(env.simulator, state, hints, renderer)
    np.testing.assert_array_equal(state, env.state)
    np.testing.assert_array_equal(image, render_state(env.simulator, state, hints, renderer))
    assert (image != np.array(PAPER)).any(axis=-1).mean() > 0.3  # there is something to see
    assert (image != render_state(env.simulator, state, {}, renderer)).any()  # hints are seen
    for _ in range(4):
        env.step(env.action_space.high)
    assert (image != render_state(env.simulator, env.state, hints, renderer)).any()  # motion is seen
    with pytest.raises(OptionError, match="unknown hint 'target'"):
        scene_of(env.simulator, state, {"target": np.zeros(3)})
    with pytest.raises(ShapeError):
        scene_of(env.simulator, state, {"trail": np.zeros(3)})


@pytest.mark.parametrize("name, backend", WORLDS)
def test_keys_give_actions_and_the_followed_point_is_in_the_picture(name, backend):
    env = make(name, backend)
    picture, model = picture_of(env.simulator), env.simulator.model
    state = env.state
    scene = scene_of(env.simulator, state)
    point = picture.followed(model, state)
    assert point.shape == (3,) and np.linalg.norm(point - scene.look_at) < scene.extent
    for action in (picture.rest_action(model), *(picture.heading_action(model, state, heading) for heading in HEADINGS)):
        assert action.shape == env.action_space.shape and np.abs(action).max() <= 1.0
    np.testing.assert_array_equal(state, env.state)


@pytest.mark.parametrize("name", IDS)
def test_every_environment_is_played_and_its_trail_is_within_its_picture(name):
    """The point that leaves the trail is on the robot: no farther from the middle of the picture than the picture is wide."""
    player = Player(gym.make(f"softgym_envs:{name}"), PlayOptions(headless_frames=7, size=SIZE))
    player.pressed.add("up")
    player.run()
    assert player.frames == 7 and np.isfinite(player.action).all() and np.abs(player.action).max() > 0.1
    scene = scene_of(player.simulator, player.state, {}, parameters=player.inner.episodes.parameters)
    assert all(np.linalg.norm(point - scene.look_at) < scene.extent for point in player.trail)
    assert all(f"{key} {what}" in player.hud().help[0] for key, what in player.picture.keys.items())


@pytest.mark.parametrize("name", IDS)
def test_the_robot_stays_in_the_picture(name):
    """Whatever it does: actions at their limits, changed now and then; every bar and ball, of LoopPeg all but arm and peg."""
    env, rng = make(name, "native"), np.random.default_rng(0)
    for step in range(160):
        if step % 40 == 0:
            action = rng.choice([-1.0, 1.0], env.action_space.shape) if step else env.action_space.high
        _, _, terminated, _, _ = env.step(action)
        if step % 4 == 0:
            scene = scene_of(env.simulator, env.state, env.task.draw_hints(env.context))
            near = (ROD, CAP, OBSTACLE) if name == "LoopPeg-v0" else ()
            bodies = [part for part in scene.primitives if getattr(part, "color", None) not in near]
            points = [end for part in bodies if isinstance(part, Segment) for end in (part.start, part.end)]
            points += [part.center for part in bodies if isinstance(part, Sphere)]
            pixels, _ = default_camera(scene).project(np.array(points), SIZE)
            assert (pixels > 0).all() and (pixels < np.array(SIZE)).all()
        if terminated:
            env.reset()


@pytest.mark.parametrize("name", IDS)
def test_what_is_to_be_reached_is_in_the_picture_and_grids_are_as_fine_as_the_robot(name):
    """Goals, poses and ways at the beginning of ten episodes; a grid line every 1/20 of the picture to every picture's half."""
    env = make(name, "native")
    for seed in range(10):
        env.reset(seed=seed)
        hints = env.task.draw_hints(env.context)
        scene = scene_of(env.simulator, env.state, hints)
        points = [hints["goal"]] if "goal" in hints else []
        points += [np.append(hints["pose"][:2], 0.0)] if "pose" in hints else []
        points += list(hints.get("way", ()))
        if points:
            pixels, _ = default_camera(scene).project(np.array(points), SIZE)
            assert (pixels > 0).all() and (pixels < np.array(SIZE)).all()
    (grid,) = (part for part in scene.primitives if isinstance(part, GroundGrid))
    assert 0.05 < grid.spacing / scene.extent < 1.0


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("size", [(320, 240), (640, 480)])
def test_text_of_players_is_whole_and_overprints_nothing(name, size, monkeypatch):
    """Nothing in the outermost columns: a line that is cut ends there. Numbers, legend and key help lie apart."""
    player = Player(gym.make(f"softgym_envs:{name}"), PlayOptions(headless_frames=2, size=size))
    player.run()
    scene, hud, renderer = scene_of(player.simulator, player.state), player.hud(), PygameRenderer(size)
    nothing = replace(scene, legend=None)
    bare = renderer.rgb(nothing)
    alone = [(nothing, replace(hud, help=())), (scene, Hud(help=(" ",) * len(hud.help))), (nothing, Hud(help=hud.help))]
    masks = [(renderer.rgb(what, hud=text) != bare).any(axis=-1) for what, text in alone]
    write, places = huds._text, []
    huds._scaled.cache_clear()
    monkeypatch.setattr(huds, "_text", lambda *given: places.append(write(*given)) or places[-1])
    renderer.rgb(scene, hud=hud)
    assert len(places) > 6 and not any(a.colliderect(b) for a, b in combinations(places, 2))  # legend and its note, too
    assert not any(mask[:, [0, 1, -2, -1]].any() for mask in masks)
    assert not any((a & b).any() for a, b in combinations(masks, 2))


@pytest.mark.parametrize("name, backend", [world for world in WORLDS if world[1] != "native"])
def test_every_ground_truth_is_played(name, backend):
    player = Player(gym.make(f"softgym_envs:{name}", backend=backend), PlayOptions(headless_frames=2, size=SIZE))
    player.run()
    assert player.frames == 2 and player.last_image is not None and player.last_image.shape == (*SIZE[::-1], 3)


@pytest.mark.parametrize("name", IDS)
def test_tracked_points_are_drawn_or_refused(name):
    simulator = make(name, "native").simulator
    points = np.linspace(0.0, 0.4, 10).reshape(5, 2)
    if isinstance(picture_of(simulator), PointOverlay):
        assert overlay_scene(simulator, points, points + 0.01).primitives
    else:
        with pytest.raises(OptionError, match="cannot draw tracked points"):
            overlay_scene(simulator, points, points)


@pytest.mark.parametrize("name, backend", WORLDS)
def test_pictures_of_one_and_of_many_are_as_asked_for(name, backend):
    """Size, view and overlay; row i of a vector environment shows what a single one with seed + i shows."""
    keywords = {"render_mode": "rgb_array", "backend": backend, "width": 96, "height": 72}
    env = gym.make(f"softgym_envs:{name}", **keywords)
    env.reset(seed=3)
    image = env.render()
    assert image.shape == (72, 96, 3) and image.dtype == np.uint8
    bare = gym.make(f"softgym_envs:{name}", **keywords, overlay=False)
    bare.reset(seed=3)
    assert (bare.render() != image).any()
    envs = gym.make_vec(f"softgym_envs:{name}", 2, **keywords)
    envs.reset(seed=3)
    first, second = envs.render()
    np.testing.assert_array_equal(first, image)
    assert second.shape == image.shape


@pytest.mark.parametrize("name", IDS)
def test_named_views_differ_and_show_the_robot(name):
    shots = {}
    for view in VIEWS:
        env = gym.make(f"softgym_envs:{name}", render_mode="rgb_array", width=80, height=80, camera=view, overlay=False)
        env.reset(seed=0)
        shots[view] = env.render()
        assert (shots[view] != np.array(PAPER)).any(axis=-1).mean() > 0.2
    assert all((shots[a] != shots[b]).any() for a, b in combinations(VIEWS, 2))


@pytest.mark.parametrize(
    "bad, text",
    [
        ({"width": 8}, r"width is 8, expected a whole number \[pixels\] in \[16, 4096\]"),
        ({"height": 5000}, r"height is 5000, expected .* in \[16, 4096\]"),
        ({"width": 99.5}, "width is 99.5"),
        ({"camera": "behind"}, "camera is 'behind', allowed are default, side, front, top, follow"),
        ({"camera": 3}, "camera is 3, allowed are default"),
        ({"overlay": "no"}, "overlay is 'no', allowed are True and False"),
    ],
)
@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
def test_bad_keywords_of_pictures_are_named(make, bad, text):
    with pytest.raises(OptionError, match=text):
        make("softgym_envs:ArmReach-v0", **bad)


def test_narrow_pictures_show_as_much_from_left_to_right():
    camera, points = Camera(), np.array([[0.4, 0.3, 0.1], [-0.2, 0.5, 0.0]])
    wide, narrow = (camera.project(points, (80, height))[0][:, 0] for height in (60, 160))
    np.testing.assert_allclose(wide, narrow)


def test_a_simulator_of_no_system_is_named():
    class Stranger:
        model, default_parameters = object(), None

    with pytest.raises(OptionError, match="Stranger says of no system"):
        scene_of(Stranger(), np.zeros(3))


def test_importing_pictures_does_not_import_pygame():
    modules = ["softgym_envs.rendering", "softgym_envs.envs.drawing"]
    modules += [system.picture.split(":")[0] for system in systems().values()]
    heavy = {"pygame", "PIL", "mujoco", "warp", "torch"}
    code = f"import sys, {', '.join(modules)}; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
