"""Fits on disk and as pages."""

from .files import load_distribution, save

__all__ = ["load_distribution", "save"]
