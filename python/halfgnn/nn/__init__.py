"""PyG's layers over halfgnn's operators: the same signatures, the same ``state_dict``, the same results.

Each class derives from PyG's of the same name, and is a formula over halfgnn's operators. What halfgnn has no operator for (edge features
of attention, other aggregators, hooks of message passing, the reverse flow, methods that a subclass overrides) is done by PyG's own
forward pass, with one :class:`halfgnn.FallbackWarning` that names the caller's line. ``torch.jit``, ``torch.func`` and ONNX get PyG's operators too.

``edge_index`` may be what PyG takes, a pair, a NumPy array, or a :class:`halfgnn.Graph`. Of a tensor or a sparse matrix a graph is made at
its first use. It is kept while the tensor lives, and made again where the tensor's contents are others: they are compared at each call,
which a :class:`halfgnn.Graph` saves. For captured graphs pass a :class:`halfgnn.Graph` that is :meth:`prepared <halfgnn.Graph.prepare>`;
``torch.compile`` takes either.

:func:`replace` makes a model's layers of these classes halfgnn's. :func:`accelerate` does that as well, and puts halfgnn's operators behind
the aggregators, softmaxes and sums of every other layer of message passing. :func:`restore` undoes both.
"""

from __future__ import annotations

try:
    import torch_geometric as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        "halfgnn.nn has PyG's layers and wants torch_geometric: pip install 'halfgnn[pyg]', or take halfgnn.dgl or the operators"
    ) from error

from ._accelerate import Accelerated, accelerate, restore
from ._attentions import AGNNConv, GeneralConv, HANConv, HEATConv, HGTConv, SuperGATConv, TransformerConv
from ._convolutions import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv
from ._pairwise import (
    CGConv,
    DynamicEdgeConv,
    EdgeConv,
    GENConv,
    GINEConv,
    GravNetConv,
    NNConv,
    PointGNNConv,
    PointNetConv,
    PointTransformerConv,
    PPFConv,
    ResGatedGraphConv,
)
from ._propagations import (
    APPNP,
    ARMAConv,
    ChebConv,
    ClusterGCNConv,
    DNAConv,
    EGConv,
    FAConv,
    FeaStConv,
    GatedGraphConv,
    GCN2Conv,
    GMMConv,
    GraphConv,
    HypergraphConv,
    LabelPropagation,
    LEConv,
    LGConv,
    MFConv,
    MixHopConv,
    PDNConv,
    PNAConv,
    SGConv,
    SignedConv,
    SimpleConv,
    SSGConv,
    TAGConv,
    WLConvContinuous,
)
from ._relations import FastRGCNConv, FiLMConv, RGATConv, RGCNConv, SplineConv
from ._replace import Replaced, replace

__all__ = [
    "AGNNConv",
    "APPNP",
    "ARMAConv",
    "Accelerated",
    "CGConv",
    "ChebConv",
    "ClusterGCNConv",
    "DNAConv",
    "DynamicEdgeConv",
    "EGConv",
    "EdgeConv",
    "FAConv",
    "FastRGCNConv",
    "FeaStConv",
    "FiLMConv",
    "GATConv",
    "GATv2Conv",
    "GCN2Conv",
    "GCNConv",
    "GENConv",
    "GINConv",
    "GINEConv",
    "GMMConv",
    "GatedGraphConv",
    "GeneralConv",
    "GraphConv",
    "GravNetConv",
    "HANConv",
    "HEATConv",
    "HGTConv",
    "HypergraphConv",
    "LEConv",
    "LGConv",
    "LabelPropagation",
    "MFConv",
    "MixHopConv",
    "NNConv",
    "PDNConv",
    "PNAConv",
    "PPFConv",
    "PointGNNConv",
    "PointNetConv",
    "PointTransformerConv",
    "RGATConv",
    "RGCNConv",
    "Replaced",
    "ResGatedGraphConv",
    "SAGEConv",
    "SGConv",
    "SSGConv",
    "SignedConv",
    "SimpleConv",
    "SplineConv",
    "SuperGATConv",
    "TAGConv",
    "TransformerConv",
    "WLConvContinuous",
    "accelerate",
    "replace",
    "restore",
]
