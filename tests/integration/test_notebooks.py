"""The notebooks: they run, and are kept with what they print and draw."""

import pytest
from helpers import ROOT, load_script

nbformat = pytest.importorskip("nbformat")
SCRIPT = load_script("docs/run_notebooks.py")
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
LARGEST = 150_000
"""[bytes] Size of a notebook."""


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert 8 <= len(notebook.cells) <= 14 and path.stat().st_size < LARGEST
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "python docs/run_notebooks.py"
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    assert not [output for output in outputs(notebook) if output.output_type == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    """From its first cell, in an empty folder; pictures and prints of the same cells as those that are kept."""
    kept, fresh = nbformat.read(path, as_version=4), SCRIPT.executed(path, tmp_path)
    for before, now in zip(kept.cells, fresh.cells, strict=True):
        kinds = [[output.output_type for output in cell.get("outputs", ())] for cell in (before, now)]
        assert kinds[0] == kinds[1], before.source
