"""Reports of fits: files and pages."""

from ..judgement.sentences import as_flags
from .beat import Beat
from .files import load_distribution, save
from .rows import rows_in_words, save_rows
from .seldom import Seldom

__all__ = ["Beat", "Seldom", "as_flags", "load_distribution", "rows_in_words", "save", "save_rows"]
