"""The ladder of hard truths: the documented command is judged rightly on the model's own class."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import load_script

LADDER = load_script("studies/hard_truths/ladder.py")


@pytest.mark.parametrize("name", ["vine", "arm"])
def test_a_truth_of_the_models_own_class_is_explained_and_no_number_is_false(name: str, tmp_path: Path) -> None:
    """Two faults that the ladder showed: a vine in steps of 2 ms on a finer truth, noisy states that predictions begin from."""
    row = LADDER.one(name, "own", 31, tmp_path)
    assert row["code"] == 0 and row["explains"] and row["miss"] < 1.0
    # Intervals of 95 %: three half widths are left by one of 10^8.
    assert not row["false"] and sum(row["inside"].values()) >= len(row["inside"]) - 1
    assert row["room"] in LADDER.table_of([row])
