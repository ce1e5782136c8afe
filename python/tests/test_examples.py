"""The examples run, and say what they should."""

from __future__ import annotations

import importlib
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


#: Of each script of ``pyg`` small sizes, and what ``accelerate`` says.
SCRIPTS = {
    "gcn": ("--vertices 200 --features 40", "2 layers replaced: conv1, conv2"),
    "gat": ("--vertices 200 --features 40 --heads 2", "2 layers replaced: conv1, conv2"),
    "graph_sage_unsup": ("--vertices 150 --features 20 --hidden 16 --batch 200", "2 layers replaced: convs.0, convs.1"),
    "link_pred": ("--vertices 200 --features 40 --hidden 24 --out 8", "2 layers replaced: conv1, conv2"),
    "mutag_gin": (
        "--graphs 30 --batch 16 --hidden 8 --layers 3",
        "3 layers replaced: gnn.convs.0, gnn.convs.1, gnn.convs.2",
    ),
    "cluster_gcn": ("--vertices 400 --degree 8 --features 50 --hidden 16 --clusters 12 --batch 4", "2 layers replaced: convs.0, convs.1"),
    "graph_saint": (
        "--vertices 300 --degree 6 --features 20 --hidden 8 --roots 40 --lr 0.01",
        "3 layers replaced: convs.0, convs.1, convs.2",
    ),
    "ogbn_train": (
        "--vertices 400 --degree 8 --features 50 --hidden 16 --batch 100",
        "3 layers replaced: convs.0, convs.1, convs.2",
    ),
    "rgcn": ("--vertices 120 --edges 900 --relations 12 --hidden 8 --bases 4", "2 layers replaced: conv1, conv2"),
    "hetero_link_pred": (
        "--users 40 --movies 60 --ratings 600 --hidden 8",
        "4 layers replaced: encoder.conv1.user__rates__movie, encoder.conv1.movie__rev_rates__user, "
        "encoder.conv2.user__rates__movie, encoder.conv2.movie__rev_rates__user",
    ),
    "unimp": ("--vertices 200 --degree 6 --features 40 --hidden 16", "3 layers replaced: convs.0, convs.1, convs.2"),
    "graph_gps": (
        "--graphs 30 --batch 16 --hidden 16 --layers 2 --walk 6 --width 4",
        "2 layers replaced: convs.0.conv, convs.1.conv",
    ),
}


def test_every_script_of_pygs_is_tested():
    assert {path.stem for path in (EXAMPLES / "pyg").glob("*.py")} == {*SCRIPTS, "common"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_pygs_gives_the_same_losses_when_accelerated(name, monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES / "pyg")
    sizes, report = SCRIPTS[name]
    main = importlib.import_module(name).main
    options = [*sizes.split(), "--epochs", "4", "--dropout", "0", "--device", "cpu"]
    losses = main(options)
    said = capsys.readouterr().out
    assert said.startswith(report + "\n") and "left" not in said
    plain = main([*options, "--plain"])
    assert "layers" not in capsys.readouterr().out
    assert len(losses) == 4 and losses == pytest.approx(plain, rel=2e-4)
    # It learns, and other seeds give other losses.
    assert losses[-1] < losses[0]
    assert main([*options, "--seed", "1", "--epochs", "1"])[0] != pytest.approx(losses[0], rel=2e-4)
