"""The examples of docstrings run."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

import halfgnn

#: Of the whole package, where examples of torch are skipped without it; PyG's layers; DGL's; and metrics.
MODULES = {"halfgnn": None, "halfgnn.nn": "torch_geometric", "halfgnn.dgl": "torch", "halfgnn.metrics": None}


def examples(module: str) -> list[doctest.DocTest]:
    """The examples of a module's public names and of their methods."""
    if (needed := MODULES[module]) is not None:
        pytest.importorskip(needed)
    scope = importlib.import_module(module)
    names = [name for name in getattr(scope, "__all__", vars(scope)) if not name.startswith("_") and name not in ("nn", "dgl", "metrics")]
    found: list[doctest.DocTest] = []
    finder = doctest.DocTestFinder()
    for name in names:
        value = getattr(scope, name)
        if callable(value) and inspect.getmodule(value) is not None and inspect.getmodule(value).__name__.startswith("halfgnn"):
            # What is tested is public in `module`, wherever it is defined.
            found += finder.find(value, f"{module}.{name}", module=False, globs={**vars(scope), "halfgnn": halfgnn})
    return [test for test in found if test.examples]


@pytest.mark.parametrize("module", MODULES)
def test_examples_give_what_they_say(module):
    tests = examples(module)
    assert tests
    for test in tests:
        if any("torch" in example.source for example in test.examples):
            pytest.importorskip("torch")
        words: list[str] = []
        result = doctest.DocTestRunner(verbose=False).run(test, out=words.append)
        assert result.attempted and not result.failed, "".join(words)
