"""Reports of fits: files and pages."""

from ..diagnostics.sentences import as_flags
from .beat import Beat
from .files import save
from .rows import rows_in_words, save_rows
from .seldom import Seldom

__all__ = ["Beat", "Seldom", "as_flags", "rows_in_words", "save", "save_rows"]
