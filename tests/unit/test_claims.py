"""Published figures: every text equals its results, and every quotation is there."""

from pathlib import Path

import pytest
from helpers import load_script

ROOT = Path(__file__).parents[2]
CLAIMS = load_script("experiments/claims.py")
ENTRIES = {name: entry for name, entry in CLAIMS.claims().items() if name != "about"}


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_published_figures_are_those_of_the_results(name: str) -> None:
    numbers, entry = CLAIMS.numbers_of(name), ENTRIES[name]
    wrong = [CLAIMS.differs(figure, numbers) for figure in entry["figures"]]
    for figure in entry["figures"]:
        for file, words in figure.get("quoted", {}).items():
            wrong += [CLAIMS.differs(figure | {"text": words}, numbers)]
            wrong += [f"{file} does not quote {words!r}"] * (words not in (ROOT / file).read_text(encoding="utf-8"))
    assert not [text for text in wrong if text]
    assert entry["figures"] and all(len(figure["what"]) <= 80 for figure in entry["figures"])
    assert all((ROOT / module).exists() for module in entry["modules"])
    assert entry["seconds"] <= 60 or "OUT" not in entry["command"]


def test_the_page_is_written_from_the_claims_and_runs_take_15_minutes_in_all() -> None:
    assert sum(entry["seconds"] for entry in ENTRIES.values() if "OUT" in entry["command"]) <= 15 * 60
    assert CLAIMS.PAGE.read_text(encoding="utf-8") == CLAIMS.page(), "make claims"


def test_a_text_that_is_not_the_value_is_told() -> None:
    figure = {"what": "score", "text": "101 % [98, 103]", "value": '[100 * x for x in n["score"]]'}
    assert CLAIMS.differs(figure, {"score": [1.0054, 0.9802, 1.0307]}) == ""
    assert "results [99.0, 98.0, 103.0]" in CLAIMS.differs(figure, {"score": [0.99, 0.98, 1.03]})
    assert CLAIMS.differs(figure, {"score": [0.99, 0.98, 1.03]}, tolerance=0.03) == ""
    assert [number for number, _ in CLAIMS.told("10 000 steps, -9 % [-24, 5], 3e-14, mismatch2")] == [10000, -9, -24, 5, 3e-14]


def test_names_and_comments_do_not_make_a_figure_stale_and_arithmetic_does(tmp_path: Path) -> None:
    def digest(source: str) -> str:
        (tmp_path / "module.py").write_text(source, encoding="utf-8")
        return CLAIMS.digest([str(tmp_path)])

    given = digest('"""Sum."""\nfrom a import b\n\ndef f(x, y):\n    return x + 2.0 * y\n')
    assert digest("from c import d\n\ndef g(u, v):  # other names\n    return u + 2.0 * v\n") == given
    assert digest("def f(x, y):\n    return x + 2.5 * y\n") != given != digest("def f(x, y):\n    return y + 2.0 * x\n")
