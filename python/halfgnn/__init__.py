"""Graph neural networks in half precision: operators, layers and training.

Operators take NumPy arrays, or torch tensors on the CPU and on GPUs; layers (:mod:`halfgnn.nn`, :mod:`halfgnn.dgl`) are
torch modules. Importing this package imports neither torch nor NumPy, and opens no device.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from . import dgl, metrics, nn
    from .config import show_config
    from .device import emulated
    from .graph import Graph
    from .loader import HGTLoader, LinkLoader, NeighborLoader
    from .ops import attention, edge_softmax, gat_attention, gatv2_attention, message_reduce, message_sum, sddmm, spmm
    from .sampling import Batch, Loader
    from .training import Epoch, Run, Trainer, train

__version__: str = _core.__version__

__all__ = [
    "Batch",
    "Epoch",
    "FallbackWarning",
    "Graph",
    "HGTLoader",
    "LinkLoader",
    "Loader",
    "NeighborLoader",
    "Run",
    "Trainer",
    "__version__",
    "attention",
    "dgl",
    "edge_softmax",
    "emulated",
    "gat_attention",
    "gatv2_attention",
    "message_reduce",
    "message_sum",
    "get_num_threads",
    "metrics",
    "nn",
    "sddmm",
    "set_num_threads",
    "show_config",
    "spmm",
    "train",
]

# The kernels are files of the package: the program that runs is the interpreter, which has none next to it.
_core.kernels_in(os.path.join(os.path.dirname(__file__), "ptx"))


class FallbackWarning(UserWarning):
    """A layer does with PyG's or torch's own operators what halfgnn's cannot: the result is the same."""


def set_num_threads(threads: int) -> None:
    """Has operators of the CPU run on this number of threads, at most four for each core; 0 for a thread a core. Results have the same bits for any
    number."""
    if threads < 0:
        raise ValueError(f"{threads} threads; give a number from 0 on")
    _core.set_threads(threads)


def get_num_threads() -> int:
    """The number of threads that operators of the CPU run on."""
    return _core.threads()


_PLACES = {
    "Batch": "sampling",
    "Epoch": "training",
    "Graph": "graph",
    "HGTLoader": "loader",
    "LinkLoader": "loader",
    "Loader": "sampling",
    "NeighborLoader": "loader",
    "Run": "training",
    "Trainer": "training",
    "attention": "ops",
    "dgl": "",
    "edge_softmax": "ops",
    "emulated": "device",
    "gat_attention": "ops",
    "gatv2_attention": "ops",
    "message_reduce": "ops",
    "message_sum": "ops",
    "metrics": "",
    "nn": "",
    "sddmm": "ops",
    "show_config": "config",
    "spmm": "ops",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{place or name}", __name__)
    value = getattr(module, name) if place else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
