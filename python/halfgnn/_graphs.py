"""What samplers read of PyG's data: edges, weights and times, by type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from .graph import Graph

#: The type of all vertices, and of all edges, of a graph that has one of each.
ONE = None
EDGES = (ONE, "to", ONE)


class Times(NamedTuple):
    """Times of vertices or of edges, by type; types without times are sampled whatever the time is."""

    vertices: dict[Any, Tensor]
    #: As the edges were given.
    edges: dict[Any, Tensor]
    #: Of all times: int64 or float64.
    dtype: torch.dtype

    def of(self, kind: Any, graph: Graph) -> Tensor | None:
        """The times that edges of a type are compared by: their own or their sources'."""
        if kind in self.edges:
            return self.edges[kind]
        return self.vertices[kind[0]][graph.edge_index[0]] if kind[0] in self.vertices else None


def graphs_of(data: Any) -> tuple[dict[Any, Graph], dict[Any, int]]:
    """The edges of each type of PyG's data, and the number of vertices of each type.

    Raises:
        ValueError: it has no ``edge_index``.
    """
    if isinstance(data, Data):
        stores, sizes = {EDGES: data}, {ONE: data.num_nodes}
    else:
        stores = {kind: data[kind] for kind in data.edge_types}
        sizes = {kind: data[kind].num_nodes for kind in data.node_types}
    graphs = {}
    for kind, store in stores.items():
        name = "data" if kind is EDGES else f"data[{kind!r}]"
        index = getattr(store, "edge_index", None)
        if index is None:
            raise ValueError(f"{name}: it has no edge_index" + ("; give one in place of adj_t" if "adj_t" in store else ""))
        for end in (kind[0], kind[-1]):
            if sizes.get(end) is None:
                raise ValueError(f"{name}: vertices of {end!r} have neither features nor num_nodes; set num_nodes")
        size = int(sizes[kind[0]]), int(sizes[kind[-1]])
        try:
            graphs[kind] = Graph(index.as_subclass(Tensor), size=size)
        except (IndexError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
    return graphs, {kind: int(count) for kind, count in sizes.items()}


def weights_of(data: Any, name: str | None, graphs: Mapping[Any, Graph]) -> dict[Any, Tensor]:
    """The weights of edges under a name, of the types of edges that have it, in float64.

    Raises:
        ValueError: no type has it, or it is not a number from 0 on for each edge.
    """
    if name is None:
        return {}
    found = {}
    for kind, graph in graphs.items():
        store = data if kind is EDGES else data[kind]
        if name not in store:
            continue
        weight = torch.as_tensor(store[name]).detach()
        if weight.shape not in ((graph.num_edges,), (graph.num_edges, 1)):
            raise ValueError(f"weight_attr: {name} should be {graph.num_edges}, one for each edge, is {tuple(weight.shape)}")
        weight = weight.reshape(-1).to(graph.device, torch.float64)
        if not bool(((weight >= 0) & (weight < math.inf)).all()):
            raise ValueError(f"weight_attr: {name} has a number that is negative or not finite; give numbers from 0 on")
        found[kind] = weight
    if not found:
        raise ValueError(f"weight_attr: edges have no {name!r}")
    return found


def times_of(data: Any, name: str, graphs: Mapping[Any, Graph], sizes: Mapping[Any, int], given: Tensor | None) -> Times:
    """The times under a name, of the types of vertices or of edges that have them.

    Args:
        data: PyG's ``Data`` or ``HeteroData``.
        name: of the times.
        graphs: the edges of each type.
        sizes: the number of vertices of each type.
        given: times of seeds, whose format counts as well.

    Raises:
        ValueError: nothing has them, vertices as well as edges have them, or they are not a number for each.
    """
    vertices: dict[Any, Tensor]
    edges: dict[Any, Tensor]
    if isinstance(data, Data):
        is_there = isinstance(data.get(name), Tensor)
        vertices = {ONE: data[name]} if is_there and data.is_node_attr(name) else {}
        edges = {EDGES: data[name]} if is_there and data.is_edge_attr(name) else {}
    else:
        vertices = {kind: data[kind][name] for kind in sizes if name in data[kind]}
        edges = {kind: data[kind][name] for kind in graphs if name in data[kind]}
    if vertices and edges:
        raise ValueError(f"time_attr: vertices and edges have {name!r}; name the times of one of them")
    if not vertices and not edges:
        raise ValueError(f"time_attr: neither vertices nor edges have {name!r}, a number for each")
    vertices = {kind: checked_times(f"time_attr: {name}", time, sizes[kind]) for kind, time in vertices.items()}
    edges = {kind: checked_times(f"time_attr: {name}", time, graphs[kind].num_edges) for kind, time in edges.items()}
    every = [*vertices.values(), *edges.values()] + ([] if given is None else [given])
    dtype = torch.float64 if any(time.is_floating_point() for time in every) else torch.int64
    device = next(iter(graphs.values())).device
    vertices, edges = ({kind: time.to(device, dtype) for kind, time in of.items()} for of in (vertices, edges))
    return Times(vertices, edges, dtype)


def checked_times(name: str, time: Any, count: int) -> Tensor:
    """Times as a list.

    Raises:
        ValueError: they are not a number for each, or one is NaN.
    """
    time = torch.as_tensor(time).detach()
    if time.shape not in ((count,), (count, 1)) or time.dtype == torch.bool or time.is_complex():
        raise ValueError(f"{name} should be {count} numbers, one for each, is {time.dtype} of shape {tuple(time.shape)}")
    if bool(time.isnan().any()):
        raise ValueError(f"{name} has a NaN; give each a time, such as -inf for always")
    flat: Tensor = time.reshape(-1)
    return flat
