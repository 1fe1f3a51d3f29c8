"""Pictures: geometry against pinhole optics, order of depth, colours against CIE lightness, files against other readers."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pygame
import pytest
from PIL import Image

from softgym_envs.core.errors import FileFormatError, MissingDependencyError, OptionError, ShapeError
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.rendering import (
    Bar,
    Camera,
    Hud,
    PygameRenderer,
    Scene,
    default_camera,
    render_state,
    scene_of,
    side_by_side,
    tensegrity_scene,
    video,
    write_gif,
    write_mp4,
    write_png,
    write_video,
)
from softgym_envs.rendering.colors import PAPER, SLACK, tension_colors
from softgym_envs.rendering.ground import _mesh, hidden_by_ground
from softgym_envs.rendering.scene import GroundGrid, Segment, Sphere
from softgym_envs.rendering.teleop import followed_point, heading_action, ramp
from softgym_envs.rooms import tasks
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.model import prism, superball
from softgym_envs.tensegrity.terrain import Terrain

RED, BLUE = (210, 30, 30), (30, 30, 210)
SIZE = (320, 240)


def resting(model):
    return model.place_on_ground(model.state_from_nodes(model.nodes))


def superball_scene(model=None, **keywords):
    model = model or superball()
    return tensegrity_scene(model, resting(model), np.linspace(0.0, 2000.0, model.num_cables), max_tension=2000.0, **keywords)


def picture(*primitives, camera=None, size=SIZE):
    return PygameRenderer(size).rgb(Scene(primitives, np.zeros(3), 1.0), camera or Camera())


def is_reddish(image):
    return (image[..., 0].astype(int) - image[..., 2]) > 40


# --- camera ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("azimuth, elevation", [(0.3, 0.2), (-2.0, 1.2), (3.0, -0.03)])
def test_the_target_is_in_the_middle_and_the_field_of_view_ends_at_the_rim(azimuth, elevation):
    camera = Camera(target=(1.0, -2.0, 0.5), distance=4.0, azimuth=azimuth, elevation=elevation)
    pixels, depth = camera.project(np.array(camera.target), SIZE)
    np.testing.assert_allclose(pixels, [160.0, 120.0], atol=1e-9)
    assert depth == pytest.approx(4.0)
    right, up, forward = camera.axes
    np.testing.assert_allclose(camera.axes @ camera.axes.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.cross(right, forward), up, atol=1e-12)  # right-handed: no mirrored pictures
    assert up[2] > 0 and right[2] == 0
    rim = camera.position + 2.0 * (np.cos(camera.field_of_view / 2) * forward + np.sin(camera.field_of_view / 2) * up)
    assert camera.project(rim, SIZE)[0][1] == pytest.approx(0.0, abs=1e-9)


def test_camera_stands_where_its_angles_say():
    camera = Camera(azimuth=np.pi / 2, elevation=0.0, distance=3.0)
    np.testing.assert_allclose(camera.position, [0.0, 3.0, 0.0], atol=1e-12)
    x_axis = camera.project(np.array([0.1, 0.0, 0.0]), SIZE)[0]
    assert x_axis[0] < 160  # seen from +y, +x is on the left


@pytest.mark.parametrize("bad", [{"distance": 0.0}, {"elevation": 2.0}, {"field_of_view": 4.0}, {"azimuth": float("nan")}])
def test_bad_cameras_are_refused(bad):
    with pytest.raises(OptionError, match=f"camera {next(iter(bad))} is"):
        Camera(**bad)


# --- pixels ------------------------------------------------------------------------------------------------------------


def test_a_ball_is_where_optics_puts_it_and_as_large():
    camera = Camera(distance=5.0)
    center, radius = np.array([0.4, 0.3, 0.2]), 0.25
    mask = is_reddish(picture(Sphere(center, radius, RED), camera=camera))
    (x, y), depth = camera.project(center, SIZE)
    rows, columns = np.nonzero(mask)
    assert abs(columns.mean() + 0.5 - x) < 1.0 and abs(rows.mean() + 0.5 - y) < 1.0
    expected = np.pi * (radius * camera.focal_length(SIZE[1]) / depth) ** 2
    rim = 2 * np.sqrt(np.pi * expected)  # half a pixel along the rim either way
    assert abs(mask.sum() - expected) < rim


@pytest.mark.parametrize("swap", [False, True])
def test_near_things_hide_far_things_in_any_order(swap):
    camera = Camera(distance=4.0, azimuth=0.0, elevation=0.0)  # looks along -x
    balls = [Sphere(np.array([1.0, 0, 0]), 0.2, RED), Sphere(np.array([-1.0, 0, 0]), 0.5, BLUE)]
    image = picture(*(reversed(balls) if swap else balls), camera=camera)
    red, _, blue = image[120, 160].astype(int)
    assert red > blue + 40


def test_crossing_bars_hide_each_other_where_each_is_nearer():
    camera = Camera(distance=6.0, azimuth=0.0, elevation=0.0)
    tilted = Segment(np.array([1.0, -1.0, 0.0]), np.array([-1.0, 1.0, 0.0]), 0.2, RED)  # near on the left, far on the right
    posts = [Segment(np.array([0.0, y, -0.5]), np.array([0.0, y, 0.5]), 0.2, BLUE) for y in (-0.6, 0.6)]
    image = picture(tilted, *posts, camera=camera).astype(int)
    for y, red_is_near in ((-0.6, True), (0.6, False)):
        (column, row), _ = camera.project(np.array([0.0, y, 0.0]), SIZE)
        red, _, blue = image[int(row), int(column)]
        assert (red > blue) == red_is_near


def test_what_lies_behind_a_hill_is_hidden():
    ground = GroundGrid(lambda x, y: np.where(np.abs(x - 1.0) < 0.2, 2.0, 0.0), (0.0, 0.0), 4.0)
    camera = Camera(distance=5.0, azimuth=0.0, elevation=0.1)
    points = np.array([[0.0, 0.0, 0.3], [1.8, 0.0, 0.3], [0.0, 0.0, 2.6]])
    assert hidden_by_ground(points, ground, camera).tolist() == [True, False, False]


@pytest.mark.parametrize("terrain", [Terrain.steps(), Terrain.rubble(seed=3), Terrain.slope(0.2)])
def test_the_drawn_ground_is_the_ground_of_the_physics(terrain):
    scene = superball_scene(superball(terrain=terrain), terrain_scale=1.5)
    ground = next(p for p in scene.primitives if isinstance(p, GroundGrid))
    mesh = _mesh(ground)
    drawn = [p for i in range(0, len(mesh.x) - 1, 3) for p in _sides(mesh, i)]
    middle = np.array([0.5 * (a + b) for a, b in drawn])
    np.testing.assert_allclose(middle[:, 2], terrain.height(middle[:, 0], middle[:, 1], 1.5), atol=1e-9)


def _sides(mesh, i):
    """Edges of quads along x: straight lines in the picture, and so in a ground that bends at grid lines only."""
    return [(mesh.points[i, j], mesh.points[i + 1, j]) for j in range(len(mesh.y))]


# --- the robot ---------------------------------------------------------------------------------------------------------


def test_the_tension_map_is_ordered_and_even_in_lightness():
    rgb = tension_colors(np.linspace(0, 1, 33)) / 255.0
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIE L*
    steps = np.diff(lightness)
    assert (steps < 0).all()
    assert np.abs(steps).max() < 3 * np.abs(steps).mean()
    assert lightness.max() < 116 * np.cbrt(0.85) - 16 - 10  # stands out from the light background


def test_slack_cables_are_dashed_and_gray_and_tight_ones_are_not():
    model = superball()
    tensions = np.full(model.num_cables, 500.0)
    tensions[[3, 7]] = 0.0
    bars = [
        p for p in tensegrity_scene(model, resting(model), tensions, max_tension=2000.0).primitives if isinstance(p, Segment)
    ]
    cables = [bar for bar in bars if bar.width < 2 * model.rod_radius]
    assert [i for i, cable in enumerate(cables) if cable.dashed] == [3, 7]
    assert {cable.color for cable in cables if cable.dashed} == {SLACK}
    assert {cable.color for cable in cables if not cable.dashed} == {tuple(tension_colors(np.array([0.25]))[0].tolist())}


def test_rods_and_caps_are_where_the_state_says():
    model = prism()
    state = model.move(resting(model), rotation=np.array([0.3, 0.2, 0.9]), translation=np.array([3.0, -1.0, 0.4]))
    scene = superball_scene_of(model, state)
    centers = np.array([p.center for p in scene.primitives if isinstance(p, Sphere)])
    np.testing.assert_allclose(centers, model.node_positions(state))


def superball_scene_of(model, state):
    return tensegrity_scene(model, state, np.ones(model.num_cables), max_tension=2000.0)


@pytest.mark.parametrize(
    "bad, error",
    [
        ({"state": np.zeros(5)}, "state has shape"),
        ({"tensions": np.zeros(3)}, "tensions has shape"),
        ({"goal": np.zeros(2)}, "goal has shape"),
    ],
)
def test_bad_arguments_of_a_scene(bad, error):
    model = superball()
    arguments = {"state": resting(model), "tensions": np.zeros(24), **bad}
    with pytest.raises(ShapeError, match=error):
        tensegrity_scene(model, max_tension=1.0, **arguments)


# --- renderer ----------------------------------------------------------------------------------------------------------


def test_pictures_are_fresh_contiguous_equal_for_equal_states_and_need_no_display():
    pygame.display.quit()
    renderer = PygameRenderer(SIZE)
    first, second = (renderer.rgb(superball_scene()) for _ in range(2))
    assert first.dtype == np.uint8 and first.shape == (240, 320, 3)
    assert first.flags.c_contiguous and first.flags.writeable and not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, second)
    assert not pygame.display.get_init()
    assert (first != np.array(PAPER)).any(axis=-1).mean() > 0.3  # there is something to see


def test_render_state_shows_the_robot_moving_and_leaves_the_state_alone():
    simulator = TensegritySimulator()
    state = simulator.model.place_on_ground(simulator.initial_state()[0])
    renderer, before = PygameRenderer(SIZE), state.copy()
    hints = {"goal": np.array([1.0, 1.0, 0.0]), "velocity": np.array([1.0, 0.0, 0.0]), "trail": np.zeros((5, 3))}
    image = render_state(simulator, state, hints, renderer)
    np.testing.assert_array_equal(state, before)
    after, _ = simulator.step(state[None], np.linspace(-100, 100, 24)[None], substeps=300)
    assert (render_state(simulator, after[0], hints, renderer) != image).any()
    assert (render_state(simulator, state, {}, renderer) != image).any()
    with pytest.raises(OptionError, match="unknown hint 'target'"):
        scene_of(simulator, state, {"target": np.zeros(3)})


def test_a_model_nobody_can_draw_is_named():
    class Stranger:
        model, default_parameters = object(), None

    with pytest.raises(OptionError, match="cannot draw a model of type object"):
        scene_of(Stranger(), np.zeros(3))


def test_text_is_drawn_with_a_hud_only():
    scene, renderer = superball_scene(), PygameRenderer(SIZE)
    hud = Hud("title", ("a line",), (Bar("term", -0.5, -1.0, 1.0),), ("help",), "paused")
    changed = (renderer.rgb(scene, hud=hud) != renderer.rgb(scene)).any(axis=-1)
    assert changed[:80, :100].any() and changed[-15:, :60].any() and changed[:30, -60:].any()
    assert not changed[100:150, 120:200].any()


@pytest.mark.parametrize("bad", [{"size": (8, 100)}, {"size": (10.5, 100)}, {"mode": "ansi"}, {"fps": 0}])
def test_bad_renderers_are_refused(bad):
    with pytest.raises(OptionError, match=f"{next(iter(bad))} is"):
        PygameRenderer(**bad)


@pytest.fixture
def window():
    renderer = PygameRenderer(SIZE, mode="human", fps=None)
    yield renderer
    renderer.close()


def test_a_window_is_turned_zoomed_and_closed_by_the_mouse(window):
    scene = superball_scene()
    straight = window.show(scene)
    np.testing.assert_array_equal(straight, window.rgb(scene))
    pygame.event.post(pygame.event.Event(pygame.MOUSEMOTION, buttons=(1, 0, 0), rel=(40, 10), pos=(0, 0)))
    turned = window.show(scene)
    np.testing.assert_array_equal(turned, window.rgb(scene, default_camera(scene).orbit(-0.32, 0.08)))
    pygame.event.post(pygame.event.Event(pygame.MOUSEWHEEL, x=0, y=2, flipped=False))
    assert (window.show(scene) != turned).any()
    assert window.draw(scene) is None and not window.closed
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    assert window.show(scene) is None and window.closed
    assert window.show(scene) is None
    window.close()
    window.close()
    assert not pygame.display.get_init()


def test_importing_rendering_does_not_import_pygame():
    code = "import softgym_envs.rendering, sys; sys.exit(bool({'pygame', 'PIL', 'mujoco', 'warp', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- files -------------------------------------------------------------------------------------------------------------


def frames(count=5):
    camera = Camera(distance=6.0)
    return [picture(Sphere(np.array([0.0, 0.2 * i, 0.0]), 0.4, RED), camera=camera, size=(96, 64)) for i in range(count)]


def test_gifs_keep_frames_time_and_colours(tmp_path):
    made = frames(7)
    path = write_gif(tmp_path / "deep" / "a.gif", made, fps=15)
    with Image.open(path) as gif:
        assert gif.n_frames == 7 and gif.size == (96, 64) and gif.info["loop"] == 0
        durations = []
        for i, frame in enumerate(made):
            gif.seek(i)
            durations.append(gif.info["duration"])
            error = np.abs(np.asarray(gif.convert("RGB")).astype(int) - frame)
            assert error.mean() < 2.0
    assert sum(durations) == pytest.approx(7000 / 15, abs=5)
    assert [p.name for p in path.parent.iterdir()] == ["a.gif"]


def test_files_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    for write in (lambda p: write_gif(p, frames(2), 10), lambda p: write_png(p, frames(1)[0])):
        with pytest.raises(OSError, match="disk full"):
            write(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_mp4_or_a_clear_error(tmp_path):
    try:
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        with pytest.raises(MissingDependencyError, match="imageio-ffmpeg"):
            write_mp4(tmp_path / "a.mp4", frames(), 10)
        assert list(tmp_path.iterdir()) == []
    else:
        assert write_mp4(tmp_path / "a.mp4", frames(), 10).stat().st_size > 500


def test_png_keeps_every_pixel(tmp_path):
    image = frames(1)[0]
    with Image.open(write_png(tmp_path / "a.png", image)) as read:
        np.testing.assert_array_equal(np.asarray(read), image)


def test_bad_videos_are_refused(tmp_path):
    with pytest.raises(ShapeError, match="frames is empty"):
        write_gif(tmp_path / "a.gif", [], 10)
    with pytest.raises(ShapeError, match="frame 1 is uint8"):
        write_gif(tmp_path / "a.gif", [frames(1)[0], frames(1)[0][:-1]], 10)
    with pytest.raises(OptionError, match="fps of a GIF is 60"):
        write_gif(tmp_path / "a.gif", frames(1), 60)
    with pytest.raises(OptionError, match=r"allowed are '\.gif' and '\.mp4'"):
        write_video(tmp_path / "a.avi", frames(1), 10)


def test_side_by_side_holds_the_shorter_video_and_keeps_both_pictures():
    left, right = frames(2), frames(4)
    joined = side_by_side(left, right, ("engine", "twin"))
    assert len(joined) == 4 and joined[0].shape == (64, 192, 3)
    np.testing.assert_array_equal(joined[3][44:, :96], left[1][44:])
    np.testing.assert_array_equal(joined[3][44:, 96:], right[3][44:])
    assert (joined[0][:30, :90] != left[0][:30, :90]).any()  # the label
    with pytest.raises(ShapeError, match="expected one height"):
        side_by_side(left, [frames(1)[0][:-2]], ("a", "b"))


def test_a_recorder_gives_back_what_it_got():
    recorder, made = video.Recorder(), frames(3)
    for frame in made:
        recorder.add(frame)
    assert len(recorder) == 3
    for kept, frame in zip(recorder, made, strict=True):
        np.testing.assert_array_equal(kept, frame)
    np.testing.assert_array_equal(recorder[1:][1], made[2])


# --- driving by hand ---------------------------------------------------------------------------------------------------


def test_heading_turns_with_the_robot():
    model, angle = superball(), 1.1
    state = model.move(resting(model), rotation=np.array([0.4, -0.2, 0.7]))
    turned = model.move(state, rotation=np.array([0.0, 0.0, angle]))
    heading = np.array([0.6, 0.8])
    c, s = np.cos(angle), np.sin(angle)
    np.testing.assert_allclose(
        heading_action(model, state, heading), heading_action(model, turned, np.array([[c, -s], [s, c]]) @ heading), atol=1e-12
    )


def test_arrows_roll_the_superball_where_they_point():
    """In 4 s it must leave its own footprint, i.e. go farther than half a rod, towards each of six headings."""
    simulator = TensegritySimulator()
    model, angles = simulator.model, np.pi / 3 * np.arange(6) + 0.2
    headings = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    states = np.tile(resting(model), (6, 1))
    start, actions = model.center_of_mass(states), np.zeros((6, 24))
    for _ in range(40):
        wanted = np.array([heading_action(model, state, heading) for state, heading in zip(states, headings, strict=True)])
        actions = ramp(actions, wanted, 0.1)
        states, status = simulator.step(states, 100.0 * actions, substeps=100)
        assert not status.any()
    moved = (model.center_of_mass(states) - start)[:, :2]
    assert ((moved * headings).sum(axis=1) > 0.5 * model.rod_lengths.max()).all()


# --- scripts/play.py ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def play():
    path = Path(__file__).parents[1] / "scripts" / "play.py"
    spec = importlib.util.spec_from_file_location("play_script", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["play_script"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


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


def make_player(play, tmp_path, **arguments):
    args = play.Args(output=tmp_path / "out", size=(160, 120), **arguments)
    env = gym.make(f"softgym_envs:{args.env}")
    return play.Player(args, env)


def test_keys_drive_play_for_50_frames(play, tmp_path):
    player = make_player(play, tmp_path, seed=4, dataset=tmp_path / "data.h5")
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


@pytest.mark.parametrize("name", [entry.id for entry in tasks()])
def test_every_environment_is_played_and_its_trail_is_within_its_picture(play, tmp_path, name):
    """The point that leaves the trail is on the robot: no farther from the middle of the picture than the picture is wide."""
    player = make_player(play, tmp_path, env=name, headless_frames=7)
    player.pressed.add("up")
    player.run()
    assert player.frames == 7 and np.isfinite(player.action).all() and np.abs(player.action).max() > 0.1
    scene = scene_of(player.simulator, player.state, {}, parameters=player.inner.episodes.parameters)
    assert all(np.linalg.norm(point - scene.look_at) < scene.extent for point in player.trail)


def test_a_pushed_block_goes_where_the_arrow_points(play, tmp_path):
    """From rest, however it is turned, the handle's side of the block goes along the heading first."""
    player = make_player(play, tmp_path, env="SlidingBlock-v0")
    model, heading = player.simulator.model, np.array([0.6, -0.8])
    for theta in (0.0, 1.0, -2.5):
        state = player.state
        state[:6] = [0.1, -0.2, theta, 0.0, 0.0, 0.0]
        control = player.task.scale_action(heading_action(model, state, heading)[None])
        after = player.simulator.step(state[None], control, player.inner.episodes.parameters, substeps=5)[0][0]
        assert np.dot(model.to_table(after, model.handle) - model.to_table(state, model.handle), heading) > 0
        np.testing.assert_allclose(followed_point(model, state), [0.1, -0.2, 0.0])
    player.finish()


def test_models_that_nobody_can_follow_or_drive_are_named():
    for function in (followed_point, lambda *given: heading_action(*given, np.ones(2))):
        with pytest.raises(OptionError, match="model of type int"):
            function(3, np.zeros(2))


def test_a_recorded_episode_is_what_the_simulator_does(play, tmp_path):
    """Without noise and delay, the recorded controls replayed from the recorded start give the recorded states."""
    player = make_player(play, tmp_path, headless_frames=20, dataset=tmp_path / "data.h5")
    player.pressed = {"left", "3"}
    player.run()
    recorded = TrajectorySet.load(tmp_path / "data.h5")[0]
    simulator = player.simulator
    states, _ = simulator.rollout(
        recorded.values[:1], recorded.controls[None], player.inner.episodes.parameters, substeps=recorded.substeps
    )
    np.testing.assert_allclose(states[0], recorded.values, atol=1e-9)
    assert recorded.period == pytest.approx(player.period)


def test_frames_between_steps_lie_on_the_way(play, tmp_path):
    player = make_player(play, tmp_path, headless_frames=1)
    control = np.linspace(-100, 100, 24)
    states = [player.state, *player.between(player.state, control)]
    substeps = round(player.period / player.simulator.dt)
    end, _ = player.simulator.step(states[0][None], control[None], player.inner.episodes.parameters, substeps=substeps)
    assert len(states) == player.frames_per_step == 3
    path = [np.linalg.norm(player.simulator.difference(s, states[0])) for s in [*states, end[0]]]
    assert (np.diff(path) > 0).all()
    player.finish()


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_a_saved_policy_drives_as_stable_baselines3_would(play, tmp_path, algorithm):
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    env = gym.make("softgym_envs:TensegrityRoll-v0")
    options = {"net_arch": [16, 8], "activation_fn": torch.nn.ELU}
    small = {"buffer_size": 10} if algorithm == "SAC" else {}
    model = getattr(sb3, algorithm)("MlpPolicy", env, policy_kwargs=options, device="cpu", seed=1, **small)
    model.save(tmp_path / "policy.zip")
    policy = play.load_policy(tmp_path / "policy.zip")
    for _ in range(3):
        observation = env.observation_space.sample() * 0.01
        expected = model.predict(observation, deterministic=True)[0]
        np.testing.assert_allclose(policy(observation[None])[0], expected, atol=1e-5)


def test_files_that_are_no_policy_are_refused(play, tmp_path):
    (tmp_path / "text.zip").write_text("not a zip")
    for name in ("text.zip", "missing.zip"):
        with pytest.raises(FileFormatError, match="is no policy of stable-baselines3"):
            play.load_policy(tmp_path / name)


def test_files_that_could_not_be_written_are_refused_before_the_first_step(play, tmp_path):
    for arguments, message in (
        ({"record": tmp_path / "roll.avi"}, r"--record is .*roll\.avi, expected .* \.gif or \.mp4"),
        ({"dataset": tmp_path / "roll.csv"}, r"--dataset is .*roll\.csv, expected .* \.h5"),
        ({"headless_frames": -4}, "--headless-frames is -4"),
    ):
        with pytest.raises(OptionError, match=message):
            play.main(play.Args(**arguments))
    assert list(tmp_path.iterdir()) == []


def test_the_packages_prefix_is_taken_as_in_gym_make(play, tmp_path):
    path = tmp_path / "new" / "roll.h5"
    play.main(play.Args(env="softgym_envs:TensegrityRoll-v0", headless_frames=4, size=(160, 120), dataset=path))
    assert len(TrajectorySet.load(path)) == 1


def test_a_policy_of_another_environment_is_refused(play, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    sb3.PPO("MlpPolicy", gym.make("softgym_envs:TensegrityCrawl-v0"), device="cpu").save(tmp_path / "crawl.zip")
    policy = play.load_policy(tmp_path / "crawl.zip")
    with pytest.raises(ShapeError, match=r"takes 43 observed numbers, the environment has shape \(1, 100\)"):
        policy(np.zeros((1, 100), dtype=np.float32))


def test_without_a_display_the_error_says_what_to_do(monkeypatch):
    renderer = PygameRenderer((160, 120), mode="human")

    def refuse(size):
        raise pygame.error("No available video device")

    monkeypatch.setattr(pygame.display, "set_mode", refuse)
    with pytest.raises(OptionError, match=r"no window can be opened here \(No available video device\).*--headless-frames"):
        renderer._open()
    renderer.close()


def test_an_unknown_environment_is_answered_with_the_known_ones(play):
    with pytest.raises(OptionError, match=r"unknown environment 'Roll'; there are .*TensegrityRoll-v0"):
        play.main(play.Args(env="Roll"))
