"""What a labelled graph has, by the names that frameworks have for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .graph import Graph

FEATURES = ("x", "feat", "features")
TARGETS = ("y", "label", "labels")


def given(data: Any, *names: str) -> Any:
    """The first of these that it has: an attribute, an entry of a mapping, or one of ``ndata``; None where it has none."""
    for name in names:
        if isinstance(data, Mapping):
            value = data.get(name)
        elif hasattr(data, "ndata"):
            value = data.ndata[name] if name in data.ndata else None
        else:
            value = getattr(data, name, None)
        if value is not None:
            return value
    return None


def graph_of(data: Any, vertices: int | None = None) -> Graph:
    """Its graph, with the weights of its edges."""
    if not isinstance(data, Mapping):
        return Graph.of(data)
    graph = Graph.of(data.get("graph", data.get("edge_index")), vertices)
    weight = data.get("edge_weight")
    return graph if weight is None or graph.weight is not None else graph.with_weight(weight)
