"""Pictures and videos as files; each appears whole or not at all. Legend: T frames, H height, W width."""

from __future__ import annotations

import io
import os
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from ..core.errors import MissingDependencyError, OptionError, ShapeError
from ..core.files import write_atomically
from .pygame_view import Image, _import_pygame

GIF_COLORS = 256
CAPTION = 18
"""Height of a caption [pixels]."""


class FrameRecorder(Sequence[Image]):
    """Frames kept compressed in memory (some 50 kB each) until they are written.

    >>> recorder = FrameRecorder()
    >>> recorder.add(np.zeros((4, 6, 3), dtype=np.uint8))
    >>> len(recorder), recorder[0].shape
    (1, (4, 6, 3))
    """

    def __init__(self) -> None:
        self._frames: list[tuple[bytes, tuple[int, ...]]] = []

    def add(self, frame: Image) -> None:
        """Append a picture (H, W, 3)."""
        check_frames([frame])
        self._frames.append((zlib.compress(frame.tobytes(), 1), frame.shape))

    def __len__(self) -> int:
        return len(self._frames)

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> list[Image]: ...
    def __getitem__(self, index: int | slice) -> Image | list[Image]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        data, shape = self._frames[index]
        return np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(shape)


def check_frames(frames: Sequence[Image]) -> None:
    """Check that there is at least one frame, and all are uint8 (H, W, 3) of one size.

    Raises:
        ShapeError: There is no frame, or one has another type or shape.
    """
    if not len(frames):
        raise ShapeError("frames is empty, expected at least one picture")
    for index, frame in enumerate(frames):
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape != frames[0].shape or frame.shape[2] != 3:
            raise ShapeError(
                f"frame {index} is {frame.dtype} {frame.shape}, expected uint8 (H, W, 3) as frame 0 {frames[0].shape}"
            )


def write_png(path: str | Path, image: Image) -> Path:
    """Write one picture (H, W, 3).

    Raises:
        ShapeError: It is no picture.
    """
    from PIL import Image as pillow

    check_frames([image])
    stream = io.BytesIO()
    pillow.fromarray(image).save(stream, format="PNG")
    write_atomically(Path(path), stream.getvalue())
    return Path(path)


def write_gif(path: str | Path, frames: Sequence[Image], fps: float, *, colors: int = GIF_COLORS) -> Path:
    """Write an endless GIF with one palette of `colors` (2 ... 256) for all frames.

    A GIF counts time in hundredths of a second: the delays are rounded so that the total length stays right.

    Raises:
        ShapeError: There are no frames, or not all of one size.
        OptionError: `fps` is not in 0 ... 50, the most that viewers play, or `colors` not in 2 ... 256.
    """
    from PIL import Image as pillow

    check_frames(frames)
    if not 0 < fps <= 50:
        raise OptionError(f"fps of a GIF is {fps}, expected 0 < fps <= 50")
    if not 2 <= colors <= GIF_COLORS:
        raise OptionError(f"colors is {colors}, expected 2 ... {GIF_COLORS}")
    palette = pillow.fromarray(_palette_sample(frames)).quantize(colors=colors, method=pillow.Quantize.MEDIANCUT)
    images = [pillow.fromarray(frame).quantize(palette=palette, dither=pillow.Dither.NONE) for frame in frames]
    ends = np.round(100.0 / fps * np.arange(len(frames) + 1)).astype(int)
    delays = [10 * int(delay) for delay in np.diff(ends)]
    stream = io.BytesIO()
    images[0].save(stream, format="GIF", save_all=True, append_images=images[1:], duration=delays, loop=0, optimize=False)
    write_atomically(Path(path), stream.getvalue())
    return Path(path)


def _palette_sample(frames: Sequence[Image]) -> Image:
    """Colours of 8 frames, a colour that n pixels have about n^0.3 times, (1, k, 3): rare ones (a red cable) must survive."""
    chosen = np.unique(np.linspace(0, len(frames) - 1, 8).astype(int))
    pixels = np.concatenate([frames[i].reshape(-1, 3) for i in chosen])
    codes = (pixels >> 2).astype(np.int64) @ np.array([1 << 12, 1 << 6, 1])
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return np.repeat(pixels[first], np.ceil(counts**0.3).astype(int), axis=0)[None]


def write_mp4(path: str | Path, frames: Sequence[Image], fps: float) -> Path:
    """Write an H.264 video; odd heights and widths lose a row or column, which the format demands.

    Raises:
        ShapeError: There are no frames, or not all of one size.
        OptionError: `fps` is not positive.
        MissingDependencyError: imageio-ffmpeg, which brings the encoder, is not installed.
    """
    check_frames(frames)
    if not fps > 0:
        raise OptionError(f"fps is {fps}, expected > 0")
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise MissingDependencyError(f"{path}: MP4 needs imageio-ffmpeg (pip install imageio-ffmpeg); GIF does not") from error
    height, width = (2 * (side // 2) for side in frames[0].shape[:2])
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp.mp4")
    os.close(handle)
    try:
        writer = imageio_ffmpeg.write_frames(name, (width, height), fps=fps, macro_block_size=1, ffmpeg_log_level="error")
        writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(frame[:height, :width]))
        writer.close()
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def write_video(path: str | Path, frames: Sequence[Image], fps: float) -> Path:
    """`write_gif` or `write_mp4`, by the ending of the name.

    Raises:
        OptionError: Another ending.
    """
    endings = {".gif": write_gif, ".mp4": write_mp4}
    if Path(path).suffix.lower() not in endings:
        raise OptionError(f"video file {path} ends with {Path(path).suffix!r}, allowed are '.gif' and '.mp4'")
    return endings[Path(path).suffix.lower()](path, frames, fps)


def side_by_side(left: Sequence[Image], right: Sequence[Image], labels: tuple[str, str]) -> list[Image]:
    """Two videos next to each other, each under its label; the shorter one repeats its last frame.

    Raises:
        ShapeError: A video has no frames, or their heights differ.
    """
    check_frames(left)
    check_frames(right)
    if left[0].shape[0] != right[0].shape[0]:
        raise ShapeError(f"left is {left[0].shape[0]} pixels high, right {right[0].shape[0]}; expected one height")
    return [
        np.concatenate(
            [captioned(side[min(i, len(side) - 1)], label) for side, label in zip((left, right), labels, strict=True)], axis=1
        )
        for i in range(max(len(left), len(right)))
    ]


def captioned(image: Image, text: str) -> Image:
    """A picture (H, W, 3) under a line of text, (H + CAPTION, W, 3): it hides nothing."""
    pygame = _import_pygame()
    from .colors import INK, PAPER

    pygame.font.init()
    strip = pygame.Surface((image.shape[1], CAPTION))
    strip.fill(PAPER)
    strip.blit(pygame.font.Font(None, CAPTION).render(text, True, INK), (6, 2))
    line = np.frombuffer(pygame.image.tobytes(strip, "RGB"), dtype=np.uint8).reshape(CAPTION, image.shape[1], 3)
    return np.concatenate([line, image])
