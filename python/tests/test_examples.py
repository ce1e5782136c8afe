"""The examples run, and say what they should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("options", [[], ["--amp"]])
def test_one_line(options):
    run = subprocess.run(
        [sys.executable, EXAMPLES / "one_line.py", "--vertices", "400", "--epochs", "12", "--device", "cpu", *options],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "2 layers replaced" in run.stdout
    accuracies = [float(value) for value in re.findall(r"accuracy ([\d.]+)", run.stdout)]
    assert len(accuracies) == 2 and min(accuracies) > 50
    assert abs(accuracies[0] - accuracies[1]) < 3
