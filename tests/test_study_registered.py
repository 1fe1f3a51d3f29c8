"""Committed studies still register as they were: what was written before the first run is carried over by one rule, below.

tests/registered holds the documents as they were written before the runs, word for word. Only names may differ since.
"""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"
BEFORE = sorted((Path(__file__).parent / "registered").glob("*.json"))

KEYS = {"arm": "condition", "arms": "conditions"}
"""Names of entries that have changed since."""


def carried_over(document):
    """A document of then in the words of now: entries have other names, and nothing else changes."""
    if isinstance(document, dict):
        return {KEYS.get(name, name): carried_over(value) for name, value in document.items()}
    if isinstance(document, list):
        return [carried_over(value) for value in document]
    return document


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.stem)
def test_a_registered_study_differs_in_names_only(path):
    before, now = json.loads(path.read_text()), json.loads((RESULTS / path.stem / "study.json").read_text())
    assert carried_over(before) == now


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.stem)
def test_every_run_belongs_to_a_registered_condition(path):
    study = json.loads((RESULTS / path.stem / "study.json").read_text())["study"]
    runs = [json.loads(run.read_text()) for run in (RESULTS / path.stem / "runs").glob("*.json")]
    assert runs and {run["condition"] for run in runs} <= set(study["conditions"])


def test_every_committed_study_is_covered():
    assert {path.stem for path in BEFORE} == {path.parent.name for path in RESULTS.glob("*/study.json")}
