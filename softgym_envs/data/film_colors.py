"""How much a pixel looks like a body in front of a plain ground: 0 as the ground, 1 as the body, in the colour space CIE Lab.

Shadows and uneven light change lightness most, so hue and saturation decide where body and ground differ in them.
Legend: H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.errors import DataError, OptionError
from ..core.simulator import Array

Image = NDArray[np.uint8]
"""Red, green, blue, (H, W, 3)."""
COLORFUL, BRIGHT = 12.0, 15.0
"""Distance from the ground in hue and saturation, or in lightness (0 ... 100), from which on something stands out."""
DARKNESS = 0.15
"""Weight of lightness where hue and saturation differ."""
LIKE_COLOR = 20.0
"""Distance in Lab within which a pixel has a given colour."""
FEWEST_PIXELS = 20
"""Pixels that a body has at least."""
OTHER_HUE, HUE_OFF = 0.7, 0.25
"""What a distance from the line between ground and body takes off the score, and from where on."""
BLUR = 1.0
"""Standard deviation of the blur before colours are compared [px]."""


@dataclass(frozen=True, eq=False)
class Contrast:
    """Score of pixels between the ground and a body."""

    ground: Array
    """(3,), Lab"""
    body: Array
    """(3,), Lab"""

    @property
    def weights(self) -> Array:
        """Weights of lightness, a and b, (3,)."""
        colorful = np.linalg.norm(self.body[1:] - self.ground[1:]) >= COLORFUL
        return np.array([DARKNESS, 1.0, 1.0]) if colorful else np.array([1.0, 0.5, 0.5])

    def score(self, frame: Image) -> Array:
        """0 at the ground, 1 at the body, (H, W); of a blurred frame, as noise would look like another hue."""
        import cv2

        blurred = cv2.GaussianBlur(frame.astype(np.float32), (0, 0), BLUR)
        along = self.weights * (self.body - self.ground)
        size = float(np.linalg.norm(along))
        lab = np.asarray(cv2.cvtColor(np.asarray(blurred, dtype=np.float32) / 255.0, cv2.COLOR_RGB2LAB))  # type: ignore[arg-type]
        off = (lab - self.ground.astype(np.float32)) * np.float32(self.weights / size)
        share = off @ np.float32(along / size)
        aside = np.sqrt(np.maximum(np.einsum("ijk,ijk->ij", off, off) - share**2, 0.0))
        return np.asarray(np.clip(share - OTHER_HUE * np.maximum(aside - HUE_OFF, 0.0), -0.5, 1.2), dtype=np.float64)


def lab_of(frame: Image) -> Array:
    """Colours in CIE Lab, (H, W, 3) float64."""
    import cv2

    return np.asarray(cv2.cvtColor(frame.astype(np.float32) / 255.0, cv2.COLOR_RGB2LAB), dtype=np.float64)


def ground_of(frame: Image) -> Array:
    """Lab of the ground, (3,): the median, as most of the picture is ground."""
    return np.asarray(np.median(lab_of(frame).reshape(-1, 3), axis=0))


def standing_out(frame: Image) -> Contrast:
    """The body that stands out from the ground: the most colourful, else the brightest.

    Raises:
        DataError: Nothing does.
    """
    lab, ground = lab_of(frame).reshape(-1, 3), ground_of(frame)
    hue, light = np.linalg.norm(lab[:, 1:] - ground[1:], axis=1), lab[:, 0] - ground[0]
    for contrast, least in ((hue, COLORFUL), (light, BRIGHT)):
        top = float(np.sort(contrast)[-FEWEST_PIXELS])
        if top >= least:
            return Contrast(ground, np.median(lab[contrast > 0.6 * top], axis=0))
    raise DataError(
        f"nothing stands out from the ground in the first frame: the largest contrast in hue is {hue.max():.0f}, in lightness "
        f"{light.max():.0f}, at least {COLORFUL:.0f} or {BRIGHT:.0f} is needed. Film before another plain ground, or "
        "give `color`"
    )


def picked(frame: Image, color: tuple[int, ...]) -> Contrast:
    """The body of a colour that is given as red, green, blue.

    Raises:
        OptionError: No such colour is in the picture, or it is the ground's.
    """
    if not all(0 <= part <= 255 for part in color):
        raise OptionError(f"`color` is {color}, expected red, green, blue in 0 ... 255")
    body = lab_of(np.array([[color]], dtype=np.uint8))[0, 0]
    found = Contrast(ground_of(frame), body)
    near = np.linalg.norm(found.weights * (lab_of(frame) - body), axis=-1) < LIKE_COLOR
    if near.mean() > 0.5:
        raise OptionError(f"`color` is {color}, which is the ground's: give the colour of the body")
    if near.sum() < FEWEST_PIXELS:
        try:
            other = f"; the colour that stands out is {rgb_of(standing_out(frame).body)}"
        except DataError:
            other = ""
        raise OptionError(f"`color` is {color}, which {near.sum()} pixels of the first frame have{other}")
    return Contrast(found.ground, np.median(lab_of(frame)[near], axis=0))


def rgb_of(lab: Array) -> tuple[int, ...]:
    """Red, green, blue in 0 ... 255 of a colour in Lab (3,)."""
    import cv2

    found = cv2.cvtColor(lab.astype(np.float32).reshape(1, 1, 3), cv2.COLOR_LAB2RGB)
    return tuple(np.clip(np.rint(255.0 * np.asarray(found)), 0, 255).astype(int).ravel().tolist())
