"""Set before any test module is imported: no window, no sound, one thread per library."""

import os

os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"
os.environ.setdefault("OMP_NUM_THREADS", "1")
from collections.abc import Generator
from types import ModuleType

import pytest

from softgym_envs.core.task import EXTRAS

LEFT_OUT = ("elastica", "pinocchio")
"""Packages that `make test` does not install everywhere."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of `sysid` in the middle, where the second of two workers begins, while the first compiles kernels.

    Most are of small simulators in NumPy. Where both workers begin with robots, each compiles nearly every kernel.
    """
    few, many, half = list[pytest.Item](), list[pytest.Item](), len(items) // 2
    for item in items:
        (few if item.path.name.startswith("test_sysid") else many).append(item)
    items[:] = [*many[:half], *few, *many[half:]]


@pytest.fixture(scope="session")
def script() -> ModuleType:
    """The subcommand `identify`."""
    from helpers import load_script

    return load_script("scripts/identify.py")


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
