"""Set before any test module is imported: no window, no sound, one thread per library."""

import os

os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"
os.environ.setdefault("OMP_NUM_THREADS", "1")
from collections.abc import Generator

import pytest

from softgym_envs.core.task import EXTRAS

LEFT_OUT = ("elastica", "pinocchio")
"""Packages that `make test` does not install everywhere."""


def _skipped() -> Generator[None, object, object]:
    """Skip a test for which one of these packages is missing."""
    try:
        return (yield)
    except ImportError as error:
        cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        missing = (getattr(cause, "name", None) or "").split(".")[0]
        if missing not in LEFT_OUT:
            raise
        pytest.skip(f'{missing} is not installed: pip install ".[{EXTRAS[missing]}]"')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from _skipped())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _skipped())
