"""What the layers share: graphs of ``edge_index``, and what falls back."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

import halfgnn

from .._tensors import FORMATS
from ..graph import Graph

_graphs: Any = WeakIdKeyDictionary()
_told: set[tuple[str, str]] = set()


def fall_back(layer: object, reason: str) -> None:
    """Says, once for a kind of layer and a reason, that PyG does the work."""
    name = type(layer).__name__
    if (name, reason) not in _told:
        _told.add((name, reason))
        warnings.warn(
            f"{name}: {reason}, for which halfgnn has no operator: PyG's own are used",
            halfgnn.FallbackWarning,
            stacklevel=4,
        )


def graph_of(adjacency: Any, size: tuple[int, int]) -> Graph:
    """The graph from ``size[0]`` sources to ``size[1]`` destinations."""
    if isinstance(adjacency, Graph):
        if (adjacency.num_src, adjacency.num_dst) != size:
            raise ValueError(
                f"features are of {size[0]} sources and {size[1]} destinations, and the graph has {adjacency.num_src} and "
                f"{adjacency.num_dst}"
            )
        return adjacency
    return _kept(adjacency, size)  # type: ignore[no-any-return]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _kept(adjacency: Any, size: tuple[int, int]) -> Graph:
    """The graph of an ``edge_index`` that is not changed meanwhile."""
    version = getattr(adjacency, "_version", 0) if not _is_inference(adjacency) else 0
    found = _graphs.get(adjacency)
    if found is not None and found[0] == version and size in found[1]:
        return found[1][size]  # type: ignore[no-any-return]
    if isinstance(adjacency, Tensor) and adjacency.layout == torch.strided:
        graph = Graph(adjacency, size=size)
    else:
        graph = Graph.of(adjacency)
        if (graph.num_src, graph.num_dst) != size:
            raise ValueError(f"features are of {size[0]} sources and {size[1]} destinations, and the matrix is {graph.shape}")
    if found is None or found[0] != version:
        found = (version, {})
        _graphs[adjacency] = found
    found[1][size] = graph
    return graph


def _is_inference(adjacency: Any) -> bool:
    return isinstance(adjacency, Tensor) and adjacency.is_inference()


def to_pyg(adjacency: Any, weight: Any = None) -> tuple[Any, Any]:
    """What PyG takes in place of a graph, and the weights of its edges."""
    if isinstance(adjacency, Graph):
        return adjacency.edge_index, adjacency.weight if weight is None else weight
    return adjacency, weight


def refused(layer: Any, *features: Any) -> str | None:
    """Why no layer of halfgnn's can do what this is asked to."""
    if layer.flow != "source_to_target":
        return f"the flow is {layer.flow}"
    if getattr(layer, "_explain", None) or layer.decomposed_layers != 1:
        return "it is explained or decomposed"
    for hooks in (
        layer._propagate_forward_pre_hooks,
        layer._propagate_forward_hooks,
        layer._message_forward_pre_hooks,
        layer._message_forward_hooks,
        layer._aggregate_forward_pre_hooks,
        layer._aggregate_forward_hooks,
        layer._edge_update_forward_pre_hooks,
        layer._edge_update_forward_hooks,
    ):
        if hooks:
            return "it has hooks of message passing"
    for x in features:
        if x is None:
            continue
        if x.ndim != 2:
            return f"features have {x.ndim} dimensions"
        if x.dtype not in FORMATS:
            return f"features are {x.dtype}"
    return None


def sizes(x: tuple[Tensor, Tensor | None], adjacency: Any, size: Any) -> tuple[int, int]:
    """Numbers of sources and of destinations."""
    if isinstance(adjacency, Graph):
        return adjacency.num_src, adjacency.num_dst
    sources = x[0].shape[0]
    if size is not None:
        sources = size[0] if size[0] is not None else sources
        if size[1] is not None:
            return sources, size[1]
    return sources, sources if x[1] is None else x[1].shape[0]
