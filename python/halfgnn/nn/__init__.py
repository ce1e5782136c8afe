"""PyG's layers over halfgnn's operators: the same signatures, the same ``state_dict``, the same results.

Each class derives from PyG's of the same name. What halfgnn has no operator for (edge features, other aggregators, hooks and
explanations, the reverse flow) is done by PyG's own forward pass, with one :class:`halfgnn.FallbackWarning`.

``edge_index`` may be what PyG takes, or a :class:`halfgnn.Graph`. Of a tensor a graph is made at its first use, and kept while the
tensor lives and is not changed; in ``torch.compile`` and captured graphs pass a :class:`halfgnn.Graph` that is
:meth:`prepared <halfgnn.Graph.prepare>`.
"""

from __future__ import annotations

try:
    import torch_geometric as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        "halfgnn.nn has PyG's layers and wants torch_geometric: pip install 'halfgnn[pyg]', or take halfgnn.dgl or the operators"
    ) from error

from ._convolutions import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv
from ._replace import Replaced, replace

__all__ = ["GATConv", "GATv2Conv", "GCNConv", "GINConv", "Replaced", "SAGEConv", "replace"]
