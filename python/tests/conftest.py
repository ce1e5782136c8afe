"""What the tests share."""

from __future__ import annotations

import os

import numpy as np
import pytest

import halfgnn

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]
else:
    # Tensors of tests are small: threads of torch's would wait for one another, and take a third more of the processor.
    torch.set_num_threads(1)

try:
    import torch_geometric.nn as pyg
except ImportError:
    pass
else:
    # PyG writes the `propagate` of a class as the first layer of it needs it: without sums over sparse matrices, where that layer's aggregator
    # has none. All later layers have it then.
    pyg.SAGEConv(1, 1)
    pyg.SimpleConv()
    pyg.GraphConv(1, 1)
    pyg.GINConv(torch.nn.Linear(1, 1))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of torch and of GPUs say why they are skipped where there is none."""
    for item in items:
        if item.get_closest_marker("cuda") and (torch is None or not torch.cuda.is_available()):
            item.add_marker(pytest.mark.skip(reason="no GPU"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def kernels() -> bool:
    folder = os.environ.get("HALFGNN_PTX_DIR") or os.path.join(os.path.dirname(halfgnn.__file__), "ptx")
    return os.path.isdir(folder) and any(name.endswith((".kernels.zip", ".manifest.json")) for name in os.listdir(folder))
