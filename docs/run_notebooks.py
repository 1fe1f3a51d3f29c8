"""Run the notebooks and keep what they print and draw: python docs/run_notebooks.py [NAME ...]."""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).resolve().parent / "notebooks"


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook with new outputs, run by this Python in a folder.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=600, resources=place, record_timing=False, coalesce_streams=True).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # progress of compilers differs from run to run
            cell.outputs = [smaller(output) for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)
    return notebook


def smaller(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """An output; of a picture only its PNG is kept, in 64 colours."""
    if "image/png" in output.get("data", {}):
        small = io.BytesIO()
        picture = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))).convert("RGB")
        picture.quantize(64, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
        output.data = nbformat.from_dict({"image/png": base64.b64encode(small.getvalue()).decode()})
    return output


def main() -> None:
    """Run those that the command line names, or all."""
    for path in [FOLDER / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, Path(folder)), path)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
