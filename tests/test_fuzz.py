"""The doors of fuzz.py for seconds, by hypothesis: it shrinks what it finds. `python tests/fuzz.py` runs them for hours."""

import pytest

hypothesis = pytest.importorskip("hypothesis")
import fuzz  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from softgym_envs.rooms import rooms  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def warm():
    fuzz.warm_up()


@pytest.mark.parametrize("name", fuzz.doors())
def test_a_door_gives_what_is_right_or_one_of_our_errors(name):
    door = fuzz.doors()[name]

    @settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data):
        fuzz.check(door, fuzz.Draw(lambda count: data.draw(st.integers(0, count - 1))))

    run()


def test_every_room_that_reads_models_has_a_good_one():
    for room in rooms().values():
        if room.read_model:
            fuzz.drive(room.simulator(room.model(fuzz.MODELS / f"{room.name}.toml")))
