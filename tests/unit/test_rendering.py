"""Pictures: geometry against pinhole optics, order of depth, colours against CIE lightness, files against other readers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pygame
import pytest
from PIL import Image

from softgym_envs.core.errors import MissingDependencyError, OptionError, ShapeError
from softgym_envs.rendering import (
    Bar,
    Camera,
    Hud,
    PygameRenderer,
    Scene,
    default_camera,
    side_by_side,
    video,
    write_gif,
    write_mp4,
    write_png,
    write_video,
)
from softgym_envs.rendering.colors import PAPER, tension_colors
from softgym_envs.rendering.ground import hidden_by_ground
from softgym_envs.rendering.picture import check_hints, shown
from softgym_envs.rendering.scene import Arrow, GroundGrid, Legend, Marker, Prism, Segment, Sphere, Trail
from softgym_envs.rendering.teleop import keyed_action

RED, BLUE = (210, 30, 30), (30, 30, 210)
SIZE = (320, 240)


def picture(*primitives, camera=None, size=SIZE):
    return PygameRenderer(size).rgb(Scene(primitives, np.zeros(3), 1.0), camera or Camera())


def everything():
    """A scene with a primitive of each kind."""
    ground = GroundGrid(lambda x, y: 0.1 * np.sin(x) * np.cos(y), (0.0, 0.0), 4.0)
    walk = np.column_stack([np.linspace(-1, 0, 9), np.zeros((9, 2))])
    parts = (
        ground,
        Prism(np.array([[1.0, 1.0], [1.4, 1.0], [1.4, 1.3], [1.0, 1.3]]), 0.3, BLUE),
        Segment(np.array([-0.5, 0.0, 0.2]), np.array([0.5, 0.2, 0.9]), 0.05, RED),
        Segment(np.array([0.5, 0.0, 0.2]), np.array([-0.5, 0.2, 0.9]), 0.02, BLUE, dashed=True),
        Sphere(np.array([0.0, 0.5, 0.3]), 0.2, RED),
        Trail(walk, 0.05, BLUE),
        Arrow(np.zeros(3), np.array([0.6, 0.3, 0.0]), 0.1, BLUE),
        Marker(np.array([0.8, -0.5, 0.0]), 0.2, RED),
    )
    return Scene(parts, np.array([0.0, 0.0, 0.4]), 1.5, Legend("tension [N]", 0.0, 2000.0))


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
    expected = np.pi * (radius * camera.focal_length(SIZE) / depth) ** 2
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


def test_a_goal_is_seen_through_what_hides_it_up_to_its_front():
    camera = Camera(distance=4.0, azimuth=0.0, elevation=0.0)
    for front, seen in ((0.0, False), (0.3, False), (0.5, True)):
        image = picture(
            Sphere(np.zeros(3), 0.1, RED, front=front), Sphere(np.array([0.4, 0, 0]), 0.3, BLUE), camera=camera
        ).astype(int)
        assert (image[120, 160, 0] > image[120, 160, 2]) == seen


def test_what_lies_behind_a_hill_is_hidden():
    ground = GroundGrid(lambda x, y: np.where(np.abs(x - 1.0) < 0.2, 2.0, 0.0), (0.0, 0.0), 4.0)
    camera = Camera(distance=5.0, azimuth=0.0, elevation=0.1)
    points = np.array([[0.0, 0.0, 0.3], [1.8, 0.0, 0.3], [0.0, 0.0, 2.6]])
    assert hidden_by_ground(points, ground, camera).tolist() == [True, False, False]


# --- colours -----------------------------------------------------------------------------------------------------------


def test_the_tension_map_is_ordered_and_even_in_lightness():
    rgb = tension_colors(np.linspace(0, 1, 33)) / 255.0
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIE L*
    steps = np.diff(lightness)
    assert (steps < 0).all()
    assert np.abs(steps).max() < 3 * np.abs(steps).mean()
    assert lightness.max() < 116 * np.cbrt(0.85) - 16 - 10  # stands out from the light background


# --- renderer ----------------------------------------------------------------------------------------------------------


def test_pictures_are_fresh_contiguous_equal_for_equal_states_and_need_no_display():
    pygame.display.quit()
    renderer = PygameRenderer(SIZE)
    first, second = (renderer.rgb(everything()) for _ in range(2))
    assert first.dtype == np.uint8 and first.shape == (240, 320, 3)
    assert first.flags.c_contiguous and first.flags.writeable and not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, second)
    assert not pygame.display.get_init()
    assert (first != np.array(PAPER)).any(axis=-1).mean() > 0.3  # there is something to see


def test_text_is_drawn_with_a_hud_only():
    scene, renderer = replace(everything(), legend=None), PygameRenderer(SIZE)
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
    scene = everything()
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
    with pytest.raises(OptionError, match="colors is 1, expected 2"):
        write_gif(tmp_path / "a.gif", frames(1), 10, colors=1)
    with pytest.raises(OptionError, match=r"allowed are '\.gif' and '\.mp4'"):
        write_video(tmp_path / "a.avi", frames(1), 10)


def test_side_by_side_holds_the_shorter_video_and_keeps_both_pictures():
    left, right = frames(2), frames(4)
    joined = side_by_side(left, right, ("engine", "mujoco_model"))
    assert len(joined) == 4 and joined[0].shape == (64 + video.CAPTION, 192, 3)
    np.testing.assert_array_equal(joined[3][video.CAPTION :, :96], left[1])
    np.testing.assert_array_equal(joined[3][video.CAPTION :, 96:], right[3])
    for label in (joined[0][: video.CAPTION, :96], joined[0][: video.CAPTION, 96:]):
        assert np.ptp(label) > 100  # text
    with pytest.raises(ShapeError, match="expected one height"):
        side_by_side(left, [frames(1)[0][:-2]], ("a", "b"))


def test_a_recorder_gives_back_what_it_got():
    recorder, made = video.FrameRecorder(), frames(3)
    for frame in made:
        recorder.add(frame)
    assert len(recorder) == 3
    for kept, frame in zip(recorder, made, strict=True):
        np.testing.assert_array_equal(kept, frame)
    np.testing.assert_array_equal(recorder[1:][1], made[2])


# --- driving by hand ---------------------------------------------------------------------------------------------------


class Cart:
    """A picture of a cart with a force along x and one along y, at rest with -0.5."""

    def heading_action(self, model, state, heading):
        return np.array([*heading, 0.0])

    def rest_action(self, model):
        return np.array([0.0, 0.0, -0.5])


@pytest.mark.parametrize(
    "pressed, expected",
    [
        (set(), (0.0, 0.0, -0.5)),
        ({"up"}, (0.0, 1.0, 0.0)),
        ({"left"}, (-1.0, 0.0, 0.0)),
        ({"up", "right"}, (0.5**0.5, 0.5**0.5, 0.0)),
        ({"up", "down"}, (0.0, 0.0, -0.5)),
        ({"up", "2"}, (0.0, 0.0, 0.0)),
        ({"3", "h"}, (0.0, 0.0, -1.0)),
        ({"up", "space", "1"}, (0.0, 0.0, -0.5)),
    ],
)
def test_keys_ask_for_a_heading_seen_by_the_viewer_and_for_groups(pressed, expected):
    """The viewer looks along +y: up is +y, left is -x."""
    np.testing.assert_allclose(keyed_action(Cart(), None, np.zeros(1), pressed, np.pi / 2), expected, atol=1e-12)


def test_hints_are_known_and_a_picture_takes_what_it_shows():
    hints = {"goal": np.zeros(3), "trail": np.zeros((2, 3))}
    assert check_hints(None) == {} and check_hints(hints) == hints
    assert list(shown(hints, "trail", "pose")) == ["trail"]
    with pytest.raises(OptionError, match="unknown hint 'target'"):
        check_hints({"target": np.zeros(3)})


def test_without_a_display_the_error_says_what_to_do(monkeypatch):
    renderer = PygameRenderer((160, 120), mode="human")

    def refuse(size):
        raise pygame.error("No available video device")

    monkeypatch.setattr(pygame.display, "set_mode", refuse)
    with pytest.raises(OptionError, match=r"no window can be opened here \(No available video device\).*--headless-frames"):
        renderer._open()
    renderer.close()


def test_a_window_that_nobody_sees_is_none(monkeypatch):
    """Without a display SDL draws into memory: `play` went on for ever, and said nothing."""
    renderer = PygameRenderer((160, 120), mode="human")
    monkeypatch.delenv("SDL_VIDEODRIVER")
    monkeypatch.setattr(pygame.display, "get_driver", lambda: "offscreen")
    monkeypatch.setattr(pygame.display, "init", lambda: None)
    with pytest.raises(OptionError, match=r"no window can be opened here \(no display.*--headless-frames"):
        renderer._open()
