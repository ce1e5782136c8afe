"""The tutorial of the book runs: its blocks of Python, one after the other, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "python.md"


@pytest.mark.skipif(not PAGE.exists(), reason="the book is not part of the package")
def test_the_tutorial_runs(tmp_path):
    pytest.importorskip("torch_geometric")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    run = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("2 layers replaced")
    assert (tmp_path / "run.safetensors").exists()
