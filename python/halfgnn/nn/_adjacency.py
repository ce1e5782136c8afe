"""What a layer aggregates over: a graph, weights of its edges, and factors of its rows and columns."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from .._networks import LINEARS, plain_linear
from .._tensors import FORMATS, last_loops, neutral
from ..graph import Graph
from .. import ops
from ..ops import edge_softmax, scaled_spmm, sddmm, spmm
from ._common import Matrix, graph_of, is_compiling, is_matrix, reduction_of, sizes
from ._masks import is_explaining, masked
from ._traced import Edges

#: Classes that are a product and a bias.
PRODUCTS = (*LINEARS, pyg.Linear)

_NONE = (None, None)


class Adjacency(NamedTuple):
    """A linear map of rows of sources to rows of destinations, or a maximum of the same products."""

    #: Without weights; in a trace edges.
    graph: Any
    #: A number for each edge, E or E × heads.
    weight: Tensor | None = None
    #: Floats for the rows and for the columns.
    scales: tuple[Any, Any] = _NONE
    #: A weight of each vertex's own row, which is added to a sum.
    own: Tensor | None = None

    def __call__(
        self, x: Tensor, reduce: str = "sum", weight: Tensor | None = None, bias: Tensor | None = None, epsilon: Tensor | None = None
    ) -> Tensor:
        """Aggregates the rows of the sources.

        Args:
            x: sources × F.
            reduce: ``sum``, ``add``, ``mean``, ``max``, ``min``, ``var`` or ``std``. A destination without edges has zeros.
            weight: in place of the adjacency's own.
            bias: added to each row.
            epsilon: ``1 + epsilon`` times a vertex's own row is added, of sums and means.
        """
        return self._reduced(x, reduce, masked(self.graph, self.weight if weight is None else weight), bias, epsilon)

    def _reduced(
        self, x: Tensor, reduce: str, weight: Tensor | None, bias: Tensor | None = None, epsilon: Tensor | None = None
    ) -> Tensor:
        """Aggregates by these weights and no others."""
        if reduce in ("max", "min", "std") and weight is None and epsilon is None and self._is_plain(x):
            from ._messages import fused

            out = fused(self.graph, reduce, ("identity", "identity"), (None, x, None))
            return out if bias is None else out + bias.to(out.dtype)
        if reduce in ("var", "std"):
            return self._spread(x, reduce, weight)
        reduce = "sum" if reduce == "add" else reduce
        if reduce == "min":
            out = -self._reduced(-x, "max", weight)
            return out if bias is None else out + bias.to(out.dtype)
        if x.ndim == 3 and isinstance(self.graph, Edges):
            out = self._reduced(x.flatten(1), reduce, weight)
            return out.view(-1, *x.shape[1:])
        if self.own is not None:
            # In float, so that only the whole sum is rounded.
            rows = x.float()
            out = (self._replace(own=None)._reduced(rows, reduce, weight) + self.own[:, None] * rows).to(x.dtype)
            return out if bias is None else out + bias.to(out.dtype)
        options: dict[str, Any] = {"bias": bias}
        if self.scales[0] is not None or self.scales[1] is not None:
            if isinstance(self.graph, Edges):
                return self.graph.scaled_spmm(x, weight, self.scales, **options)
            return scaled_spmm(self.graph, x, weight, self.scales, **options)  # type: ignore[no-any-return]
        options.update(weight=weight, reduce=reduce, epsilon=epsilon)
        if isinstance(self.graph, Edges):
            return self.graph.spmm(x, **options)
        return spmm(self.graph, x, **options)  # type: ignore[no-any-return]

    def _spread(self, x: Tensor, reduce: str, weight: Tensor | None) -> Tensor:
        """The variance or its root, from means and squares in float: squares of 16-bit rows may exceed their format."""
        variance = self.variance(x, weight)
        if reduce == "var":
            return variance.to(x.dtype)
        root = variance.clamp(min=1e-5).sqrt()
        return root.masked_fill(root <= math.sqrt(1e-5), 0.0).to(x.dtype)

    def _is_plain(self, x: Tensor) -> bool:
        """Whether rows are aggregated as they are, on a GPU, by the operators of messages."""
        is_graph = isinstance(self.graph, Graph) and self.own is None and self.scales == _NONE
        return is_graph and x.ndim == 2 and x.device.type == "cuda" and x.dtype in FORMATS

    def variance(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """The variance of the products, in float; no mask multiplies them."""
        weight = self.weight if weight is None else weight
        with torch.autocast(x.device.type, enabled=False):
            rows = x.float()
            mean = self._reduced(rows, "mean", weight)
            return self._reduced(rows.square(), "mean", None if weight is None else weight.float().square()) - mean.square()

    def aggregate(self, x: Tensor, layer: Any, bias: Tensor | None = None, epsilon: Tensor | None = None) -> Tensor:
        """Aggregates the rows of the sources by the aggregator of a layer, which may be several."""
        module = layer.aggr_module
        if isinstance(module, pyg.MultiAggregation):
            return module.combine([self(x, reduction_of(each)) for each in module.aggrs])  # type: ignore[no-any-return]
        return self(x, layer.aggr, bias=bias, epsilon=epsilon)

    def degrees(self) -> Tensor:
        """The sum of the weights of each destination's edges, or their number, as floats."""
        if self.weight is not None:
            ones = torch.ones((self.graph.num_src, 1), device=self.weight.device)
            return self._reduced(ones, "sum", self.weight.float())[:, 0]
        degrees: Tensor = self.graph.degrees() if isinstance(self.graph, Edges) else self.graph.in_degrees().float()
        return degrees

    def dropped(self, probability: float) -> Adjacency:
        """With edges dropped at random, the others scaled up; of a graph, not of a trace."""
        if probability <= 0.0:
            return self
        weight = self.weight
        if weight is None:
            weight = torch.ones(self.graph.num_edges, device=self.graph.device)
        return self._replace(weight=torch.nn.functional.dropout(weight, probability))

    def edge_weights(self) -> Tensor:
        """A float for each edge: the products of weights and factors."""
        index = self.graph.edge_index
        weight = torch.ones(index.shape[1], device=index.device) if self.weight is None else self.weight.float()
        for scale, ends in zip(self.scales, (index[1], index[0])):
            weight = weight if scale is None else weight * scale[ends]
        return weight


def pair(x: Any) -> tuple[Any, Any]:
    """Features of sources and of destinations."""
    return (x[0], x[1]) if isinstance(x, (tuple, list)) else (x, x)


def unweighted(layer: object, edge_index: Any, x: Any, size: Any = None) -> Adjacency:
    """The adjacency of a layer that takes no weights of edges, and the values of a sparse tensor, which PyG's take as weights."""
    both = pair(x)
    between = sizes(both, edge_index, size)
    if _is_traced(edge_index):
        return Adjacency(Edges(edge_index, *between))
    if is_matrix(edge_index):
        matrix = Matrix(edge_index)
        return Adjacency(matrix.graph(), matrix.weight() if isinstance(edge_index, Tensor) else None)
    graph = graph_of(edge_index, between, both[0].device)
    refuse_weights(layer, graph)
    return Adjacency(graph)


def refuse_weights(layer: object, adjacency: Any) -> None:
    """Of a graph with weights, for a layer that does not use them.

    Raises:
        ValueError: it has weights.
    """
    if isinstance(adjacency, Graph) and adjacency.weight is not None:
        raise ValueError(f"{type(layer).__name__}: the graph has weights, which it does not use; pass graph.unweighted()")


def structure(layer: object, edge_index: Any, x: Any, size: Any = None, *, loops: bool = False) -> Any:
    """The graph alone, of which values of a sparse matrix are no part; ``loops``: with one loop at each vertex."""
    graph = unweighted(layer, edge_index, x, size).graph
    if not loops:
        return graph
    return graph.with_loops() if isinstance(graph, Edges) else graph._looped()[0]


def weighted(layer: object, edge_index: Any, edge_weight: Tensor | None, x: Any, size: Any = None) -> Adjacency:
    """The adjacency of a layer that takes weights of edges: those given, those of a graph, or the values of a sparse matrix."""
    both = pair(x)
    between = sizes(both, edge_index, size)
    if _is_traced(edge_index):
        return Adjacency(Edges(edge_index, *between), None if edge_weight is None else edge_weight.reshape(-1))
    if is_matrix(edge_index):
        return Adjacency(*Matrix(edge_index).weighted())
    graph = graph_of(edge_index, between, both[0].device)
    return Adjacency(graph.unweighted(), _weight_of(graph, edge_weight))


def normalized(
    layer: Any, edge_index: Any, edge_weight: Tensor | None, x: Tensor, *, improved: bool = False, loops: bool = False
) -> Adjacency:
    """The adjacency over the roots of the degrees of both ends, as of PyG's ``gcn_norm``. It is kept with the graph, and with a layer
    that has ``cached=True`` the way PyG's is.

    Args:
        layer: whose cache is used, where it has one for adjacencies.
        edge_index: as a layer takes it.
        edge_weight: a number for each edge.
        x: features of the vertices.
        improved: whether new loops of weighted edges weigh 2.
        loops: whether a loop is added at each vertex that has none.
    """
    fill = 2.0 if improved else 1.0
    if _is_traced(edge_index):
        return _traced(edge_index, edge_weight, x.shape[0], fill if loops else None)
    caches = hasattr(layer, "_cached_edge_index")
    found: Any = layer._cached_graph if caches else None
    if caches and found is None and layer._cached_edge_index is not None:
        # What PyG's layer kept before it was replaced.
        index, weight = layer._cached_edge_index
        matrix = Matrix(index) if is_matrix(index) else None
        graph = Graph(index, x.shape[0]) if matrix is None else matrix.graph()
        layer._cached_graph = found = Adjacency(graph, weight if matrix is None else matrix.values)
    if found is not None:
        return found  # type: ignore[no-any-return]
    graph, weight = _with_loops(edge_index, edge_weight, x, fill) if loops else weighted(layer, edge_index, edge_weight, x)[:2]
    if weight is None:
        factors = graph._symmetric_factors()
        found = Adjacency(graph, None, (factors, factors))
    elif weight.requires_grad:
        # Not kept: the next step has gradients of its own.
        return Adjacency(graph, _over_roots(graph, weight.float()))
    else:
        found = Adjacency(graph, _over_roots_neutrally(graph, weight.float()))
    if caches and layer.cached and not is_compiling():
        layer._cached_graph = found
        # What PyG's layer keeps, of the same meaning once this one is restored to it.
        layer._cached_edge_index = graph.edge_index, _kept_weights(found)
        if is_matrix(edge_index) and not isinstance(edge_index, Tensor):
            layer._cached_adj_t = gcn_norm(edge_index, None, x.shape[0], improved, loops, layer.flow, x.dtype)
    return found  # type: ignore[no-any-return]


def _is_traced(edge_index: Any) -> bool:
    return isinstance(edge_index, Tensor) and edge_index.layout == torch.strided and is_compiling()


def _weight_of(graph: Graph, edge_weight: Tensor | None) -> Tensor | None:
    weight: Any = graph.weight if edge_weight is None else edge_weight
    if weight is None:
        return None
    if weight.numel() != graph.num_edges:
        raise ValueError(f"edge_weight: should be {graph.num_edges}, one for each edge, is {tuple(weight.shape)}")
    return weight.reshape(-1)  # type: ignore[no-any-return]


def _with_loops(edge_index: Any, edge_weight: Tensor | None, x: Tensor, fill: float) -> tuple[Graph, Tensor | None]:
    """The graph with a loop at each vertex, and its weights."""
    if is_matrix(edge_index):
        return Matrix(edge_index).looped(fill)
    count = x.shape[0]
    graph = graph_of(edge_index, (count, count), x.device)
    weight = _weight_of(graph, edge_weight)
    looped, kept, old = graph._looped()
    if weight is not None:
        # New loops of an edge_index without weights weigh one, also where they are improved, as PyG's do.
        weight = graph._kind().looped(weight.float(), kept, old, fill, count)
    return looped, weight


def _traced(index: Tensor, weight: Tensor | None, count: Any, fill: float | None) -> Adjacency:
    """:func:`normalized` in a trace, where the number of loops in ``index`` is not known."""
    edges = Edges(index, count, count)
    if weight is None:
        edges = edges if fill is None else edges.with_loops()
        factors = _inverse_roots(edges.degrees())
        return Adjacency(edges, None, (factors, factors))
    weight = weight.reshape(-1).float()
    source, destination = index[0].long(), index[1].long()
    own = None
    if fill is not None:
        is_loop = source == destination
        # Edges that are no loops write behind the vertices.
        vertices = source.masked_fill(~is_loop, count)
        places = torch.arange(weight.shape[0], device=weight.device)
        last = places.new_full((count + 1,), -1).scatter_reduce(0, vertices, places, "amax")
        values = torch.where(last < 0, weight.new_full((), fill), weight.detach()[last.clamp(min=0)])
        own = last_loops(values, weight, vertices, places)[:count]
        weight = weight.masked_fill(is_loop, 0.0)
    degrees = weight.new_zeros(count).scatter_add(0, destination, weight)
    roots = _inverse_roots(degrees if own is None else degrees + own)
    return Adjacency(edges, roots[source] * weight * roots[destination], _NONE, None if own is None else own * roots * roots)


def _inverse_roots(degrees: Tensor) -> Tensor:
    roots = degrees.pow(-0.5)
    return roots.masked_fill(roots == float("inf"), 0.0)


def _over_roots(graph: Graph, weight: Tensor) -> Tensor:
    """Weights over the roots of weighted degrees of both ends, as of PyG's ``gcn_norm``."""
    source, destination = graph.edge_index
    roots = _inverse_roots(Adjacency(graph, weight).degrees())
    return roots[source] * weight * roots[destination]


_over_roots_neutrally = neutral(_over_roots)
_kept_weights = neutral(Adjacency.edge_weights)

# Numbers of edges


def edge_sums(graph: Graph, destination: Tensor, source: Tensor) -> Tensor:
    """The sum of a number of each edge's destination and one of its source, in float, by gathers in both passes.

    Args:
        graph: from sources to destinations.
        destination: destinations × heads.
        source: sources × heads.

    Returns:
        E × heads.
    """
    u = torch.stack([destination.float(), torch.ones_like(destination, dtype=torch.float32)], dim=-1)
    v = torch.stack([torch.ones_like(source, dtype=torch.float32), source.float()], dim=-1)
    with torch.autocast(source.device.type, enabled=False):
        return sddmm(graph, u, v)  # type: ignore[no-any-return]


def edge_dots(graph: Graph, destination: Tensor, source: Tensor) -> Tensor:
    """The dot products of each edge's ends, head by head, in float.

    Args:
        graph: from sources to destinations.
        destination: destinations × heads × D.
        source: sources × heads × D.

    Returns:
        E × heads.
    """
    if destination.dtype == source.dtype != torch.float32:
        # Products of 16-bit rows may exceed their format: one operand in float gives floats.
        destination = destination.float()
    with torch.autocast(source.device.type, enabled=False):
        return sddmm(graph, destination, source)  # type: ignore[no-any-return]


def unit_rows(x: Tensor) -> Tensor:
    """Rows of length one, in the format of ``x``. Lengths are floats: those of 16-bit rows may exceed their format."""
    return torch.nn.functional.normalize(x.float(), p=2.0, dim=-1).to(x.dtype)


def is_product(module: Any) -> bool:
    """Whether reading a module's weight and bias gives what a call of it gives."""
    return plain_linear(module, PRODUCTS)


# Attention, step by step where a mask multiplies its weights


def attention(graph: Graph, q: Tensor, k: Tensor, v: Tensor, *, heads: int = 1, scale: float | None = None, dropout: float = 0.0) -> Tensor:
    """:func:`halfgnn.attention`, with the mask of the layer that is explained."""
    if not is_explaining():
        return ops.attention(graph, q, k, v, heads=heads, scale=scale, dropout=dropout)
    heads = q.shape[1] if q.ndim == 3 else heads
    query, key, value = (_by_heads(x, heads) for x in (q, k, v))
    scale = query.shape[2] ** -0.5 if scale is None else scale
    return _attended(graph, edge_dots(graph, query, key) * scale, value, dropout).view(-1, *v.shape[1:])


def gat_attention(
    graph: Graph,
    h: Tensor,
    att_src: Tensor,
    att_dst: Tensor,
    *,
    heads: int = 1,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    h_dst: Tensor | None = None,
) -> Tensor:
    """:func:`halfgnn.gat_attention`, with the mask of the layer that is explained."""
    if not is_explaining():
        options = {"heads": heads, "negative_slope": negative_slope, "dropout": dropout, "h_dst": h_dst}
        return ops.gat_attention(graph, h, att_src, att_dst, **options)  # type: ignore[arg-type]
    rows = _by_heads(h, heads)
    own = rows[: graph.num_dst] if h_dst is None else _by_heads(h_dst, heads)
    of_ends = ((x * att.view(1, heads, -1)).sum(-1, dtype=torch.float32) for x, att in ((own, att_dst), (rows, att_src)))
    scores = torch.nn.functional.leaky_relu(edge_sums(graph, *of_ends), negative_slope)
    return _attended(graph, scores, rows, dropout).flatten(1)


def gatv2_attention(
    graph: Graph,
    h: Tensor,
    att: Tensor,
    *,
    heads: int = 1,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    h_dst: Tensor | None = None,
) -> Tensor:
    """:func:`halfgnn.gatv2_attention`, with the mask of the layer that is explained, for which a row of each edge is made."""
    if not is_explaining():
        options = {"heads": heads, "negative_slope": negative_slope, "dropout": dropout, "h_dst": h_dst}
        return ops.gatv2_attention(graph, h, att, **options)  # type: ignore[arg-type]
    rows = _by_heads(h, heads)
    own = rows[: graph.num_dst] if h_dst is None else _by_heads(h_dst, heads)
    source, destination = graph.edge_index
    sums = torch.nn.functional.leaky_relu(rows.index_select(0, source).float() + own.index_select(0, destination).float(), negative_slope)
    return _attended(graph, (sums * att.float().view(1, heads, -1)).sum(-1), rows, dropout).flatten(1)


def _by_heads(x: Tensor, heads: int) -> Tensor:
    return x.view(len(x), heads, x.shape[1] // heads) if x.ndim == 2 else x


def _attended(graph: Graph, scores: Tensor, rows: Tensor, dropout: float) -> Tensor:
    """Rows of sources, vertices × heads × D, weighted by the softmax of the scores, which a mask multiplies."""
    shares = torch.nn.functional.dropout(edge_softmax(graph, scores), dropout)
    return Adjacency(graph)(rows, weight=shares)
