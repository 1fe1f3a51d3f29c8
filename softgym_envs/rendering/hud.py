"""Text, bars and the colour legend over a finished picture, with pygame's own font: the same on every machine."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pygame

from .colors import FAINT, INK, PAPER, Color, tension_colors, to_ints
from .scene import Bar, Hud, Legend

HUD_MARGIN = 10
SYSTEM = (640, 480)
"""Pixels that text and bars need; for a smaller picture they are drawn at this size and scaled down."""
LEGEND = (540, 405)
"""As `SYSTEM`, for a legend alone."""
BAR_WIDTH = 70
POSITIVE: Color = (52, 142, 108)
NEGATIVE: Color = (196, 88, 78)


@lru_cache(maxsize=8)
def _font(size: int) -> pygame.font.Font:
    pygame.font.init()
    return pygame.font.Font(None, size)


def _text(surface: pygame.Surface, text: str, position: tuple[float, float], size: int, color: Color) -> pygame.Rect:
    """One line with its upper left corner at `position`; returns where it is."""
    return surface.blit(_font(size).render(text, True, color), position)


def _panel(surface: pygame.Surface, rect: pygame.Rect, alpha: int = 205) -> None:
    """A rounded, half transparent sheet under text."""
    sheet = pygame.Surface(rect.size, pygame.SRCALPHA)
    pygame.draw.rect(sheet, (*PAPER, alpha), sheet.get_rect(), border_radius=7)
    pygame.draw.rect(sheet, (*FAINT, 50), sheet.get_rect(), width=1, border_radius=7)
    surface.blit(sheet, rect.topleft)


def draw_hud(surface: pygame.Surface, hud: Hud, legend: Legend | None) -> None:
    """Title, lines and bars at the upper left, badge at the upper right, legend and key help below."""
    size = surface.get_size()
    least = LEGEND if hud == Hud() else SYSTEM
    scale = max(1.0, least[0] / size[0], least[1] / size[1])
    if scale > 1.0:
        surface.blit(_scaled(size, scale, hud, legend), (0, 0))
    else:
        _draw(surface, hud, legend)


@lru_cache(maxsize=4)
def _scaled(size: tuple[int, int], scale: float, hud: Hud, legend: Legend | None) -> pygame.Surface:
    """Everything on a transparent sheet of `size`, drawn larger and scaled down; kept, as legends seldom change."""
    sheet = pygame.Surface([round(scale * side) for side in size], pygame.SRCALPHA)
    sheet.fill((*PAPER, 0))
    _draw(sheet, hud, legend)
    return pygame.transform.smoothscale(sheet, size)


def _draw(surface: pygame.Surface, hud: Hud, legend: Legend | None) -> None:
    _draw_table(surface, hud)
    bottom = _draw_help(surface, hud.help)
    if legend is not None:
        _draw_legend(surface, legend, bottom)
    if hud.badge:
        width = _font(20).size(hud.badge)[0]
        rect = pygame.Rect(surface.get_width() - width - 26, HUD_MARGIN, width + 16, 24)
        _panel(surface, rect)
        _text(surface, hud.badge, (rect.x + 8, rect.y + 5), 20, NEGATIVE)


def _draw_table(surface: pygame.Surface, hud: Hud) -> None:
    label = max([_font(18).size(bar.label)[0] for bar in hud.bars], default=0)
    width = max(
        [_font(22).size(hud.title)[0]]
        + [_font(18).size(line)[0] for line in hud.lines]
        + [label + BAR_WIDTH + 66 if hud.bars else 0]
    )
    height = (20 if hud.title else 0) + 16 * (len(hud.lines) + len(hud.bars)) + 12
    if width == 0:
        return
    _panel(surface, pygame.Rect(HUD_MARGIN, HUD_MARGIN, width + 18, height))
    x, y = HUD_MARGIN + 9, HUD_MARGIN + 7
    if hud.title:
        _text(surface, hud.title, (x, y), 22, INK)
        y += 20
    for line in hud.lines:
        _text(surface, line, (x, y), 18, FAINT)
        y += 16
    for bar in hud.bars:
        _draw_bar(surface, bar, x, y, label)
        y += 16


def _draw_bar(surface: pygame.Surface, bar: Bar, x: int, y: int, label: int) -> None:
    """A bar that grows from zero (or from its lower end, if zero is outside) and its number."""
    _text(surface, bar.label, (x, y), 18, FAINT)
    span = max(bar.high - bar.low, 1e-12)

    def place(value: float) -> float:
        return float(np.clip((value - bar.low) / span, 0.0, 1.0)) * BAR_WIDTH

    left = x + label + 8
    zero, end = place(min(max(0.0, bar.low), bar.high)), place(bar.value)
    pygame.draw.rect(surface, (222, 226, 231), (left, y + 2, BAR_WIDTH, 8), border_radius=3)
    color = POSITIVE if bar.value >= 0 else NEGATIVE
    pygame.draw.rect(surface, color, (left + min(zero, end), y + 2, max(abs(end - zero), 1.0), 8), border_radius=2)
    _text(surface, f"{bar.value + 0.0:+.3g}", (left + BAR_WIDTH + 6, y), 18, INK)


def _draw_help(surface: pygame.Surface, lines: tuple[str, ...]) -> int:
    """Key help along the lower edge; returns the y above it."""
    y = surface.get_height() - 7
    for line in reversed(lines):
        y -= 15
        _text(surface, line, (HUD_MARGIN, y), 17, FAINT)
    return y


def _draw_legend(surface: pygame.Surface, legend: Legend, bottom: int) -> None:
    """A colour bar with its two ends, and further colours with their meanings above it."""
    font, words = _font(17), [text for text in (legend.label, legend.note) if text]
    width = max([font.size(text)[0] + 22 for _, text in legend.entries], default=0)
    if legend.label:
        width = max(150, width, sum(font.size(text)[0] for text in words) + 12 * (len(words) - 1))
    height = 15 * len(legend.entries) + (36 if legend.label else 0)
    left, top = surface.get_width() - width - HUD_MARGIN - 10, bottom - height - 8
    _panel(surface, pygame.Rect(left - 10, top - 6, width + 20, height + 8))
    for color, text in legend.entries:
        pygame.draw.rect(surface, color, (left, top + 1, 14, 8), border_radius=2)
        _text(surface, text, (left + 22, top - 1), 17, INK)
        top += 15
    if not legend.label:
        return
    _text(surface, legend.label, (left, top - 1), 17, INK)
    if legend.note:
        _text(surface, legend.note, (left + width - font.size(legend.note)[0], top - 1), 17, FAINT)
    ramp = to_ints(tension_colors(np.linspace(0.0, 1.0, width)))
    for i in range(width):
        pygame.draw.line(surface, ramp[i], (left + i, top + 12), (left + i, top + 20))
    _text(surface, f"{legend.low:g}", (left, top + 23), 16, FAINT)
    high = f"{legend.high:g}"
    _text(surface, high, (left + width - _font(16).size(high)[0], top + 23), 16, FAINT)
