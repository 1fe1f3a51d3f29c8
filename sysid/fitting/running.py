"""How a fit runs: its checkpoint and its progress, which do not change its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from softgym_envs.core.errors import OptionError


@dataclass(frozen=True)
class Running:
    """Files and streams of a fit under way.

    Raises:
        OptionError: `resume` without `checkpoint`.
    """

    checkpoint: Path | None = None
    """JSON file written after iterations and when interrupted, removed at the end."""
    resume: bool = False
    """Whether to continue from `checkpoint`."""
    progress: TextIO | None = None
    """Stream for iteration lines and a progress bar; None: no output."""

    def __post_init__(self) -> None:
        if self.resume and self.checkpoint is None:
            raise OptionError("resume needs checkpoint, the file to go on from")

    @property
    def without_file(self) -> Running:
        """The same for a fit within another, whose checkpoint it must not write."""
        return Running(progress=self.progress)
