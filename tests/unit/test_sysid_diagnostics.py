"""Every code of a diagnostic is in the table, and every entry of the table can be found."""

import ast
import json
import re
from pathlib import Path

from sysid import Diagnostic
from sysid.diagnostics import sentences
from sysid.diagnostics.sentences import CODES, as_flags

PACKAGE = Path(sentences.__file__).parents[1]
MAKERS = ("Diagnostic", "with_diagnostic", "with_reservation")


def test_codes_that_are_found_are_in_the_table_and_vice_versa() -> None:
    sources = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py") if path.name != "sentences.py"}
    named = set()
    for text in sources.values():
        for node in ast.walk(ast.parse(text)):
            maker = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in MAKERS
            if maker and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
                named.add(node.args[0].value)
    assert named and named <= set(CODES)
    whole = "\n".join(sources.values())
    assert [code for code in CODES if f'"{code}"' not in whole] == []


def test_arguments_in_hints_and_sentences_are_flags_on_the_command_line() -> None:
    said = Diagnostic("noisy_starts", "warning").sentence()
    assert "`free_initial=True`" in said and as_flags(said).endswith("with --free-initial True")
    assert not any(re.search(r"--\w", code.hint) for code in CODES.values())


def test_a_diagnostic_comes_back_from_its_file() -> None:
    facts = {"sign": ">=", "unit": " m", "adequate": True}
    found = Diagnostic("one_sided", "warning", "length", 0.5, None, facts)
    assert Diagnostic.from_json(json.loads(json.dumps(found.to_json()))) == found
