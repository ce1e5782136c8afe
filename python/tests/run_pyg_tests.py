"""Runs PyG's own tests with halfgnn's layers in the place of PyG's.

PyG's tests are in no package, only in its repository::

    git clone --depth 1 --branch 2.8.0.post1 https://github.com/pyg-team/pytorch_geometric
    python run_pyg_tests.py pytorch_geometric [--full] [FILE ...]

A test that fails is run once more with PyG's layers: what fails there as well is PyG's own. The others are listed; one that is not in
``KNOWN`` is an error, as is one in ``KNOWN`` that passes.

halfgnn adds in another order than PyG, so ``torch.allclose`` allows at least 1e-6 here. Each test begins with the same seed.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

#: Tests of the replaced layers, and of what is built of them.
FILES = [
    "nn/conv/test_gcn_conv.py",
    "nn/conv/test_sage_conv.py",
    "nn/conv/test_gin_conv.py",
    "nn/conv/test_gat_conv.py",
    "nn/conv/test_gatv2_conv.py",
    *(
        f"nn/conv/test_{name}.py"
        for name in (
            "agnn_conv antisymmetric_conv appnp arma_conv cheb_conv cluster_gcn_conv dir_gnn_conv dna_conv eg_conv fa_conv feast_conv "
            "gated_graph_conv gcn2_conv general_conv gmm_conv gps_conv graph_conv han_conv hgt_conv hypergraph_conv le_conv lg_conv mf_conv "
            "mixhop_conv pdn_conv pna_conv rgat_conv rgcn_conv sg_conv signed_conv simple_conv ssg_conv supergat_conv tag_conv "
            "transformer_conv wl_conv_continuous"
        ).split()
    ),
    "nn/conv/test_hetero_conv.py",
    "nn/conv/test_message_passing.py",
    "nn/conv/test_static_graph.py",
    "nn/models",
    "nn/test_compile_basic.py",
    "nn/test_compile_conv.py",
    "nn/test_compile_dynamic.py",
    "nn/test_data_parallel.py",
    "nn/test_encoding.py",
    "nn/test_model_summary.py",
    "nn/test_reshape.py",
    "nn/test_sequential.py",
    "nn/test_to_fixed_size_transformer.py",
    "nn/test_to_hetero_module.py",
    "nn/test_to_hetero_transformer.py",
    "nn/test_to_hetero_with_bases_transformer.py",
    "explain",
    "utils/test_trim_to_layer.py",
]

#: Tests that differ, and why.
KNOWN: dict[str, str] = {
    "nn/conv/test_arma_conv.py::test_arma_conv": "PyG's layer takes no sparse tensor, which the test expects, and halfgnn's does",
    "nn/models/test_basic_gnn.py::test_packaging": "torch.package wants extern('halfgnn.**'), and the test names PyG's modules alone",
}


def pytest_configure() -> None:
    """As a plugin: puts halfgnn's layers into PyG's modules before tests import them."""
    if not os.environ.get("HALFGNN_IN_PYG"):
        return
    import torch

    allclose = torch.allclose

    @functools.wraps(allclose)
    def close(one: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        return allclose(one, other, rtol=rtol, atol=max(atol, 1e-6), equal_nan=equal_nan)

    torch.allclose = close
    import torch_geometric.explain
    import torch_geometric.nn
    import torch_geometric.nn.models  # noqa: F401

    from halfgnn.nn._layer import LAYERS

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch_geometric" and module is not None:
            for attribute, value in list(vars(module).items()):
                if isinstance(value, type) and value in LAYERS:
                    setattr(module, attribute, LAYERS[value])


def pytest_runtest_setup(item: object) -> None:
    """As a plugin: seeds a test, so that its outcome does not depend on the tests before."""
    import torch

    torch.manual_seed(1)


def run(tests: Path, selected: list[str], replaced: bool, full: bool) -> dict[str, str]:
    """Outcomes by the names of tests: ``passed``, ``skipped``, or the last line of what failed."""
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary, "report.xml")
        environment = {
            **os.environ,
            "HALFGNN_IN_PYG": "1" if replaced else "",
            "FULL_TEST": "1" if full else "0",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "run_pyg_tests", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += ["-W", "ignore", "-o", "addopts=", "--rootdir", str(tests), *selected]
        subprocess.run(command, cwd=tests, env=environment, stdout=subprocess.DEVNULL, check=False)
        found = {}
        for case in xml.parse(report).iter("testcase"):
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            problem = next((case.find(kind) for kind in ("failure", "error") if case.find(kind) is not None), None)
            outcome = "skipped" if case.find("skipped") is not None else "passed"
            found[name] = outcome if problem is None else (problem.get("message") or "failed").splitlines()[0]
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clone", type=Path, help="a clone of PyG's repository, of the version that is installed")
    parser.add_argument("files", nargs="*", default=FILES, metavar="FILE", help="files and folders under test/")
    parser.add_argument("--full", action="store_true", help="with PyG's slow tests (FULL_TEST)")
    # With options between the clone and the files.
    options = parser.parse_intermixed_args()
    tests = options.clone / "test"
    if not tests.is_dir():
        parser.error(f"{tests}: no such folder; give a clone of PyG's repository")
    selected = [name for name in options.files if (tests / name).exists()]
    found = run(tests, selected, True, options.full)
    failed = {name: why for name, why in found.items() if why not in ("passed", "skipped")}
    of_pyg = {}
    if failed:
        again = sorted({name.partition("::")[0].removeprefix("test/") for name in failed})
        theirs = run(tests, [name for name in again if (tests / name).exists()], False, options.full)
        of_pyg = {name for name in failed if theirs.get(name) not in ("passed", "skipped")}
    differ = {name: why for name, why in failed.items() if name not in of_pyg}
    wrong = 0
    for name, why in differ.items():
        known = KNOWN.get(name)
        wrong += known is None
        print(f"{'differs' if known else 'DIFFERS'}: {name}: {known or why}")
    for name in KNOWN:
        if found.get(name) == "passed":
            wrong += 1
            print(f"PASSES, and is listed as one that differs: {name}")
    passed = sum(why == "passed" for why in found.values())
    print(f"{passed} of {len(found)} tests pass; {len(differ)} differ; {len(of_pyg)} fail with PyG's layers as well")
    return 1 if wrong or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
