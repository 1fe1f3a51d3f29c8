"""One exception tree: every error raised on purpose by this package is a `SoftgymError`.

The message says what was given, what is allowed and, where it helps, what to do. Inside a batch nothing
raises: a failed row carries a status instead (see `softgym_envs.core.simulator.Status`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MAX_SHOWN_CHARACTERS = 200
"""Characters of a value that a message shows."""


LONGEST_MESSAGE = 2000


def shown(value: object) -> str:
    """Text of a value for a message: shortened where it is long, its type where it has no text.

    >>> shown("abc"), len(shown("abc" * 1000)), shown(10**5000)
    ("'abc'", 203, 'a value of type int')
    """
    try:
        text = repr(value)
    except Exception:  # any object may raise; Python's integers have no text beyond 4300 digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


class SoftgymError(Exception):
    """Base class of all errors of softgym_envs, sysid and agents."""

    def __str__(self) -> str:
        """The message; a very long one loses its middle."""
        text = super().__str__()
        return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE // 2]} ... {text[-LONGEST_MESSAGE // 2 :]}"


class ShapeError(SoftgymError, ValueError):
    """An array has the wrong shape or holds NaN or infinity."""


class ParameterError(SoftgymError, ValueError):
    """A parameter is unknown, out of bounds, not finite or of the wrong robot."""


class StructureError(SoftgymError, ValueError):
    """A robot, terrain or scene is described wrongly (dangling cable, zero-length rod, ...)."""


class FileFormatError(SoftgymError, ValueError):
    """A file cannot be read as what it should be."""


class OptionError(SoftgymError, ValueError):
    """An option or keyword is unknown or has a value that is not allowed."""


class KeywordError(OptionError, TypeError):
    """A keyword of an environment is unknown: a TypeError as of any Python function, since libraries probe for keywords so."""


class DataError(SoftgymError, ValueError):
    """Recorded data cannot be used for the task (too short, constant, NaN rows, ...)."""


class StorageError(SoftgymError, OSError):
    """A file cannot be written: no permission, no space, no such folder."""


class MissingDependencyError(SoftgymError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    @classmethod
    def of(cls, what: str, extra: str) -> MissingDependencyError:
        """The error of what needs a package that an extra of this one brings.

        >>> print(MissingDependencyError.of("evolution needs cma", "sysid"))
        evolution needs cma: pip install ".[sysid]" in a clone of the repository
        """
        return cls(f'{what}: pip install ".[{extra}]" in a clone of the repository')


@contextmanager
def needed(what: str, extra: str) -> Iterator[None]:
    """Imports of packages that an extra brings; one that is missing is a `MissingDependencyError` of `what`."""
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError.of(what, extra) from error


class SimulationWarning(UserWarning):
    """A simulation failed, and the environment continues with the penalty of a failure; or its step is too long."""


class FitWarning(UserWarning):
    """A file of parameters says that they must not be used, or that their model does not explain the data."""


class ContractError(SoftgymError, TypeError):
    """A method of a system or a task returned what it must not, or wrote into its arguments; the message names it."""


class DependencyError(SoftgymError, RuntimeError):
    """A library is installed in a version that does not do what this package relies on."""
