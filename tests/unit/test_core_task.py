"""`load`: a path that names nothing is a bad option; an error inside the module it names is that error."""

import sys

import pytest

from softgym_envs.core.errors import OptionError
from softgym_envs.core.task import load


@pytest.fixture
def package(monkeypatch, tmp_path):
    def write(text):
        (tmp_path / "made_up_system.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "made_up_system", raising=False)
        return "made_up_system:Task"

    return write


def test_it_loads(package):
    assert load(package("Task = 3")) == 3


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("import math\nmath.no_such_function", AttributeError, "no_such_function"),
        ("import no_such_library", ModuleNotFoundError, "no_such_library"),
        ("import made_up_system_of_others", ModuleNotFoundError, "made_up_system_of_others"),
        ("int('x')", ValueError, "invalid literal"),
    ],
)
def test_errors_inside_the_module_are_passed_on(package, text, error, message):
    with pytest.raises(error, match=message) as caught:
        load(package(text))
    assert not isinstance(caught.value, OptionError)


@pytest.mark.parametrize(
    "path",
    ["made_up_system:task", "no_such_package:Task", "made_up_system.part:Task", "made_up_system", ":Task", "", ".system:Task"],
)
def test_bad_paths(package, path):
    package("Task = 3")
    with pytest.raises(OptionError, match="is not the path of an object, expected 'package"):
        load(path)
