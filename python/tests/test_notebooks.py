"""The notebooks run: their cells, one after the other, in a process of their own. What they show is asserted in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"

#: Runs the cells of a notebook as one program.
RUN = """
import json, sys
cells = json.load(open(sys.argv[1], encoding="utf-8"))["cells"]
for at, cell in enumerate(cells):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"{sys.argv[1]}, cell {at}", "exec"))
"""


def code(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize("name", ["own_tables", "accelerate_pyg", "mini_batches"])
def test_a_notebook_runs(name, tmp_path):
    notebook = NOTEBOOKS / f"{name}.ipynb"
    text = code(notebook)
    assert "assert " in text
    if "torch" in text:
        pytest.importorskip("torch_geometric")
    run = subprocess.run([sys.executable, "-c", RUN, notebook], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_all_notebooks_are_run():
    names = sorted(notebook.stem for notebook in NOTEBOOKS.glob("*.ipynb"))
    assert names == ["accelerate_pyg", "mini_batches", "own_tables"]
