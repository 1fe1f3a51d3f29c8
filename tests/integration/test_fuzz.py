"""The entry points of fuzz.py for seconds, by hypothesis: it shrinks what it finds. `python tests/fuzz.py` runs them for
hours."""

import pytest

hypothesis = pytest.importorskip("hypothesis")
import fuzz  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from softgym_envs.systems import systems  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def warm():
    fuzz.warm_up()


@pytest.mark.parametrize("name", fuzz.entry_points())
def test_an_entry_point_gives_what_is_right_or_one_of_our_errors(name):
    entry_point = fuzz.entry_points()[name]

    @settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data):
        fuzz.check(entry_point, fuzz.Draw(lambda count: data.draw(st.integers(0, count - 1))))

    run()


def test_every_system_that_reads_models_has_a_good_one():
    for system in systems().values():
        if system.read_model:
            fuzz.drive(system.simulator(system.model(fuzz.MODELS / f"{system.name}.toml")))
