"""Points in films of analytic curves: their pixels are known without any renderer of ours."""

from pathlib import Path

import numpy as np
import pytest

import sysid
from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.rendering import write_mp4

cv2 = pytest.importorskip("cv2")
pytest.importorskip("skimage")

GROUND, BODY = (205, 208, 214), (230, 150, 40)
SIZE = (480, 360)
METERS = 1e-3
"""[m] of a pixel."""
rng = np.random.default_rng(0)


def drawn(lines: list[np.ndarray], *, width: float = 18.0, dark: bool = False) -> np.ndarray:
    """A frame with lines (k, 2), four times as large and scaled down: blurred, noisy, with a shadow."""
    big = np.full((4 * SIZE[1], 4 * SIZE[0], 3), GROUND, dtype=np.uint8)
    shifted = [np.rint(4 * (line + 0.5) + (40, 60)).astype(np.int32) for line in lines]
    for line in shifted:
        cv2.polylines(big, [line[:, None]], False, (150, 153, 160), round(4 * width))
    for line in lines:
        inner = np.rint(4 * (line + 0.5) - 0.5).astype(np.int32)
        cv2.polylines(big, [inner[:, None]], False, (60, 60, 60) if dark else BODY, round(4 * width))
    small = cv2.GaussianBlur(cv2.resize(big, SIZE, interpolation=cv2.INTER_AREA), (0, 0), 0.8)
    return np.clip(small + rng.normal(0.0, 6.0, small.shape), 0, 255).astype(np.uint8)


def arc(bend: float, length: float = 300.0, count: int = 301) -> np.ndarray:
    """A circle's arc from (60, 180) to the right, of `bend` [rad] in all, upwards in the picture, (count, 2)."""
    s = np.linspace(0.0, 1.0, count) * bend
    return np.array([60.0, 180.0]) + length / bend * np.stack([np.sin(s), np.cos(s) - 1.0], axis=1)


def test_points_along_an_arc_are_right_within_a_pixel(tmp_path: Path) -> None:
    bends = np.linspace(0.3, 1.2, 4)
    film = write_mp4(tmp_path / "arc.mp4", [drawn([arc(bend)]) for bend in bends], fps=30.0)
    found = sysid.track(film, "vine", base=(60, 180), ruler=(60, 180, 260, 180, 200 * METERS), points=7)
    expected = np.array([arc(bend, count=7) for bend in bends])
    off = np.linalg.norm(found.pixels - expected, axis=2)
    assert off.max() < 1.0 and off.mean() < 0.4
    assert found.confidence.min() > 0.7
    seen = sysid.load(found.save(tmp_path / "arc.csv"))[0]
    assert seen.names[:3] == ("point0.x", "point0.y", "point1.x") and np.isclose(seen.period, 1 / 30, rtol=1e-3)
    metres = METERS * (expected - (60, 180)) * (1, -1)
    np.testing.assert_allclose(seen.values.reshape(metres.shape), metres, atol=METERS)


def test_hidden_part_leaves_gaps_and_other_points_right(tmp_path: Path) -> None:
    frames = [drawn([arc(0.8)]) for _ in range(4)]
    x, y = arc(0.8, count=7)[4].round().astype(int)
    cv2.circle(frames[2], (int(x), int(y)), 22, (60, 70, 200), -1)
    found = sysid.track(
        write_mp4(tmp_path / "hidden.mp4", frames, fps=30.0), "vine", base=(60, 180), ruler=(0, 0, 100, 0, 0.1), points=7
    )
    assert found.confidence[2, 4] < 0.5 < found.confidence[1].min()
    off = np.linalg.norm(found.pixels - arc(0.8, count=7), axis=2)
    assert off[found.confidence > 0.5].max() < 1.5


def test_loop_counts_from_its_base_counterclockwise(tmp_path: Path) -> None:
    angle = np.linspace(0.0, 2 * np.pi, 401)
    ring = np.array([240.0, 180.0]) + np.stack([120 * np.sin(angle), 120 * np.cos(angle)], axis=1)  # from below
    film = write_mp4(tmp_path / "ring.mp4", [drawn([ring], width=12.0)] * 3, fps=50.0)
    found = sysid.track(film, "loop", base=(240, 300), ruler=(240, 60, 240, 300, 0.24), points=8)
    assert np.linalg.norm(found.pixels - ring[:-1:50], axis=2).max() < 1.0
    assert found.axes == ("x", "z")


def test_markers_of_two_colours_pass_each_other(tmp_path: Path) -> None:
    begin, end = np.array([[[100, 100], [350, 150], [100, 260]], [[350, 130], [100, 150], [350, 260]]])
    paths = begin + np.linspace(0.0, 1.0, 21)[:, None, None] * (end - begin)
    frames = []
    for row in paths:
        big = np.full((4 * SIZE[1], 4 * SIZE[0], 3), GROUND, dtype=np.uint8)
        for (x, y), color in zip(row, ((200, 40, 40), (200, 40, 40), (30, 90, 200)), strict=True):
            cv2.circle(big, (round(4 * x + 1.5), round(4 * y + 1.5)), 28, color, -1)
        frames.append(cv2.resize(big, SIZE, interpolation=cv2.INTER_AREA))
    film = write_mp4(tmp_path / "markers.mp4", frames, fps=60.0)
    found = sysid.track(film, "tensegrity", base=(0, 359), ruler=(0, 359, 100, 359, 0.1), markers=paths[0].ravel().tolist())
    off = np.linalg.norm(found.pixels - paths, axis=2)
    assert off[found.confidence > 0.5].max() < 0.8 and (found.confidence > 0.5).mean() > 0.9
    assert sysid.load(found.save(tmp_path / "nodes.csv"))[0].names[:2] == ("node0.x", "node0.z")


def test_lens_is_undone(tmp_path: Path) -> None:
    frame = drawn([arc(0.8)])
    focal, k1 = 500.0, -0.2
    matrix = np.array([[focal, 0, SIZE[0] / 2], [0, focal, SIZE[1] / 2], [0, 0, 1.0]])
    y, x = np.mgrid[: SIZE[1], : SIZE[0]].astype(np.float64)
    pinhole = cv2.undistortPoints(np.stack([x, y], -1).reshape(-1, 1, 2), matrix, np.array([k1, 0, 0, 0.0]), P=matrix)
    bent = cv2.remap(frame, *pinhole.reshape(SIZE[1], SIZE[0], 2).astype(np.float32).transpose(2, 0, 1), cv2.INTER_LINEAR)
    film = write_mp4(tmp_path / "lens.mp4", [bent] * 2, fps=30.0)
    r2 = ((60 - 240) ** 2) / focal**2
    base = (240 - 180 * (1 + k1 * r2), 180.0)
    found = sysid.track(film, "vine", base=base, ruler=(200, 180, 280, 180, 0.08), points=7, lens=(focal, k1, 0.0))
    assert np.linalg.norm(found.pixels - arc(0.8, count=7), axis=2).max() < 1.0


def test_wrong_films_end_in_a_sentence(tmp_path: Path) -> None:
    given = {"base": (60, 180), "ruler": (60, 180, 260, 180, 0.2)}
    film = write_mp4(tmp_path / "arc.mp4", [drawn([arc(0.8)])] * 2, fps=30.0)
    (tmp_path / "text.mp4").write_text("no film")
    plain = write_mp4(tmp_path / "plain.mp4", [drawn([])] * 2, fps=30.0)
    with pytest.raises(FileFormatError, match="is missing"):
        sysid.track(tmp_path / "none.mp4", "vine", **given)
    with pytest.raises(FileFormatError, match="no film that OpenCV can read"):
        sysid.track(tmp_path / "text.mp4", "vine", **given)
    with pytest.raises(DataError, match="nothing stands out from the ground"):
        sysid.track(plain, "vine", **given)
    with pytest.raises(OptionError, match=r"color.*\(0, 200, 0\).*the colour that stands out is \(2\d\d, 1[45]\d, \d\d\)"):
        sysid.track(film, "vine", color=(0, 200, 0), **given)
    with pytest.raises(OptionError, match="which is the ground's"):
        sysid.track(film, "vine", color=GROUND, **given)
    with pytest.raises(OptionError, match="expected vine, loop, tensegrity"):
        sysid.track(film, "block", **given)
    with pytest.raises(OptionError, match=r"marker 0 at pixel .* does not stand out"):
        sysid.track(film, "tensegrity", markers=(400, 300), **given)
    with pytest.raises(OptionError, match="not in the picture"):
        sysid.track(film, "vine", base=(900, 20), ruler=given["ruler"])
