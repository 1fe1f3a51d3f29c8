"""Committed studies still register as they were: what was written before the first run is carried over by one rule, below.

tests/registered holds the documents as they were written before the runs, word for word. Only names may differ since.
"""

import json
from pathlib import Path

import pytest

from agents.study.document import read_study
from agents.study.jobs import register

RESULTS, STUDIES = (Path(__file__).parents[1] / name for name in ("results", "studies"))
BEFORE = sorted((Path(__file__).parent / "registered").glob("*.json"))

KEYS = {"arm": "condition", "arms": "conditions"}
"""Names of entries that have changed since."""
COMMANDS = {
    "python scripts/transfer.py --study prism --mpc --datasets 1 --starts 3 --arms zero nominal identified truth_budget truth":
        "softgym-envs transfer studies/prism_mpc/study.toml",
    "python scripts/transfer.py --study superball --mpc --datasets 1 --arms zero nominal identified true_constants network "
    "truth_budget truth": "softgym-envs transfer studies/superball_mpc/study.toml",
    "python scripts/transfer.py --study superball --rl --seeds 3 --datasets 1":
        "softgym-envs transfer studies/superball_rl/study.toml",
}  # fmt: skip
"""Commands that are gone -> those of the same study, as the test of its file shows."""

SEARCHED = {"errors": "clustered", "levenberg": {"max_iterations": 100}}  # fit_iterations=100
TENSEGRITY = {
    "room": "tensegrity",
    "recorded": "TensegrityRoll-v0",  # data_from='superball'
    "control_weight": 0.0,
    "truth": {"backend": "mujoco"},
    "engine": {"contact": "patch"},
    "guess": {"cable_stiffness": 3000.0, "cable_damping": 400.0, "motor_speed": 3.0, "motor_gain": 0.03},
    "stages": {
        "body": {"method": "one_step", **SEARCHED},
        "search": {"method": "one_step", **SEARCHED, "starts": 4, "jacobian": "differences"},
        "contact": {"method": "multiple_shooting", **SEARCHED, "segment_steps": 50},  # segment=50
    },
}
CASES = {
    "TensegrityCase(robot='superball', gravity=9.81, target=(1.0, 0.0, 0.0), weights=(1.0, 0.5, 0.1), "
    "data_from='superball', segment=50, fit_iterations=100)": {
        **TENSEGRITY, "task": "TensegrityRoll-v0", "target": [1.0, 0.0, 0.0], "weights": [1.0, 0.5, 0.1], "constants": {},
    },  # 9.81 is gravity's own value
    "TensegrityCase(robot='prism', gravity=0.981, target=(0.2, 0.0, 0.0), weights=(25.0, 12.5, 2.5), "
    "data_from='superball', segment=50, fit_iterations=100)": {
        **TENSEGRITY, "task": "TensegrityCrawl-v0", "target": [0.2, 0.0, 0.0], "weights": [25.0, 12.5, 2.5],
        "constants": {"gravity": 0.981},
    },
}  # fmt: skip
"""What a case was called -> the same as data. Numbers that the name does not hold stood in the class of this name."""

REASONS = {
    "issue 3: 95 % of the oracle with 10 000 training steps":
        "ten seconds of recordings should cost at most a twentieth of what the oracle gains",
    "issue 3: no new data": "the other robot's recordings should do for this one",
}  # fmt: skip
"""Why a threshold was promised, said again for readers who never saw the list of work that it named."""


def carried_over(document):
    """A document of then in the words of now: entries have other names, the case is data, and nothing else changes."""
    if isinstance(document, dict):
        return {KEYS.get(name, name): carried_over(value) for name, value in document.items()}
    if isinstance(document, list):
        return [carried_over(value) for value in document]
    return {**CASES, **REASONS, **COMMANDS}.get(document, document)


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.stem)
def test_a_registered_study_differs_in_names_only(path):
    before, now = json.loads(path.read_text()), json.loads((RESULTS / path.stem / "study.json").read_text())
    assert carried_over(before) == now


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.stem)
def test_the_study_file_registers_as_the_committed_study(path, tmp_path):
    """The TOML file of a published study, read today, is the study whose results are committed, case and all."""
    name = path.stem.removeprefix("transfer_")
    given = read_study(STUDIES / name / "study.toml")
    register(given.study, given.case.description, tmp_path, provenance={})
    found, now = (json.loads((folder / "study.json").read_text())["study"] for folder in (tmp_path, RESULTS / path.stem))
    register(given.study, given.case.description, RESULTS / path.stem, provenance={})
    assert found == now


@pytest.mark.parametrize("path", BEFORE, ids=lambda path: path.stem)
def test_every_run_belongs_to_a_registered_condition(path):
    study = json.loads((RESULTS / path.stem / "study.json").read_text())["study"]
    runs = [json.loads(run.read_text()) for run in (RESULTS / path.stem / "runs").glob("*.json")]
    assert runs and {run["condition"] for run in runs} <= set(study["conditions"])


def test_every_committed_study_is_covered():
    assert {path.stem for path in BEFORE} == {path.parent.name for path in RESULTS.glob("*/study.json")}
