"""Reports of fits: files and pages."""

from ..diagnostics.sentences import as_flags
from .files import rows_in_words, save, save_rows
from .progress import Beat, Seldom

__all__ = ["Beat", "Seldom", "as_flags", "rows_in_words", "save", "save_rows"]
