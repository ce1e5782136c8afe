"""Layers whose products differ by the type of the edge.

Rows are aggregated to, or gathered from, the pairs of a vertex and a type that occur, in the order of the types, so that each type's
product is one matrix product. There are at most as many pairs as edges, and as vertices times types.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.conv import spline_conv

from .._cached import graph_of
from ..graph import Graph
from ..ops import edge_softmax
from ._adjacency import Adjacency, edge_dots, edge_sums, pair, structure
from ._layer import LINEAR, SUMS, Layer, by_operators
from ._pairwise import _Pairwise, check_edges, edge_reason


class _Pairs(NamedTuple):
    """The pairs of a vertex and a type that occur, in the order of the types."""

    #: Of each edge.
    of_edge: Tensor
    #: Vertex of each pair.
    vertex: Tensor
    #: Type of each pair.
    type: Tensor
    #: First pair of each type, and their number.
    bounds: list[int]

    @classmethod
    def of(cls, ends: Tensor, types: Tensor, vertices: int, relations: int) -> _Pairs:
        ids, of_edge = torch.unique(types.long() * vertices + ends, return_inverse=True)
        first = torch.searchsorted(ids, torch.arange(relations + 1, device=ids.device) * vertices)
        return cls(of_edge, ids % max(vertices, 1), ids // max(vertices, 1), first.tolist())

    def products(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Each pair's row times the matrix of its type; relations × in × out, or relations × blocks × in × out."""
        parts = []
        for relation, (begin, end) in enumerate(zip(self.bounds, self.bounds[1:])):
            part, factor = rows[begin:end], weight[relation]
            if factor.ndim == 3:
                parts.append(torch.einsum("nbi,bio->nbo", part.view(-1, *factor.shape[:2]), factor).flatten(1))
            elif end > begin:
                parts.append(part @ factor)
        return torch.cat(parts) if parts else rows.new_zeros((0, weight.shape[-1]))


def _to_pairs(index: Tensor, types: Tensor, size: tuple[int, int], relations: int) -> Any:
    """The pairs of a destination and a type, the graph from the sources to them, and that from them to the destinations."""
    pairs = _Pairs.of(index[1], types, size[1], relations)
    count = len(pairs.vertex)
    merged = Graph((torch.arange(count, device=index.device), pairs.vertex), size=(count, size[1]))
    return pairs, Graph((index[0], pairs.of_edge), size=(size[0], count)), merged


def _between_pairs(index: Tensor, types: Tensor, size: tuple[int, int], relations: int) -> Any:
    """The pairs of a source and a type, those of a destination and a type, and the graphs from the former to the destinations and to the
    latter, with the same edges."""
    sources, destinations = (_Pairs.of(ends, types, count, relations) for ends, count in zip(index, size))
    count = len(sources.vertex)
    to_vertices = Graph((sources.of_edge, index[1]), size=(count, size[1]))
    return sources, destinations, to_vertices, Graph((sources.of_edge, destinations.of_edge), size=(count, len(destinations.vertex)))


def _are_ids(x: Any) -> bool:
    """Whether they are ids of vertices, or absent, rather than features."""
    return x is None or (isinstance(x, Tensor) and not x.is_floating_point())


class _Typed(Layer):
    """What layers have in common whose edges have types."""

    _matrices = False
    _traces = False
    _traces_graphs = False

    def _not_these(self, *, edge_type: Any = None, **given: Any) -> str | None:
        return None if isinstance(edge_type, Tensor) else "edges have no types"

    def _kept(self, name: Any, make: Any, edge_index: Any, edge_type: Any, x: Any, size: Any, *others: Tensor) -> Any:
        """What ``make(index, types, size, relations)`` makes of the edges, kept while they, their types and ``others`` are the same."""
        relations: int = self.num_relations  # type: ignore[attr-defined]
        if not isinstance(edge_index, Tensor):
            edge_index = structure(self, edge_index, x, size).edge_index
        between = (len(x[0]), len(x[1])) if size is None else (int(size[0]), int(size[1]))
        index = edge_index.as_subclass(Tensor)
        if edge_type.shape != (index.shape[1],):
            raise ValueError(f"edge_type: should be {index.shape[1]}, one for each edge, is {tuple(edge_type.shape)}")

        def checked() -> Any:
            wrong = edge_type[(edge_type < 0) | (edge_type >= relations)]
            if len(wrong):
                raise ValueError(f"edge_type: {int(wrong[0])} is no type: types are 0 to {relations - 1}")
            return make(index, edge_type, between, relations)

        return graph_of(edge_type, (edge_type, index, *others), (name, *between, relations), checked)


class _RGCN(_Typed):
    """One aggregation to the pairs of a destination and a type, and a product a type."""

    _pairs = True
    _aggregators: tuple[str, ...] = (*LINEAR, "max", "min")

    def _features_of(self, given: dict[str, Any]) -> list[Any]:
        # Ids of vertices, or nothing, stand for rows of the weights.
        return [x for x in super()._features_of(given) if not _are_ids(x)]

    def _not_these(self, *, x: Any = None, **given: Any) -> str | None:
        ids = [_are_ids(each) for each in pair(x)]
        if any(ids) and self.num_blocks is not None:  # type: ignore[attr-defined]
            return "blocks are of features, and there are ids"
        return "ids are on one side alone" if ids[0] != ids[1] else super()._not_these(**given)

    @by_operators
    def forward(self: Any, x: Any, edge_index: Any, edge_type: Tensor | None = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        if source is None:
            source = torch.arange(self.in_channels_l, device=self.weight.device)
        destination = source if destination is None else destination
        both = source, destination
        weight = self.weight
        if self.num_bases is not None:
            weight = (self.comp @ weight.flatten(1)).view(self.num_relations, self.in_channels_l, self.out_channels)
        if _are_ids(source):
            rows = weight.flatten(0, 1)

            def of_ids(index: Tensor, types: Tensor, size: tuple[int, int], relations: int) -> Any:
                pairs, _, merged = _to_pairs(index, types, size, relations)
                ids = types.long() * weight.shape[1] + source[index[0]]
                return Graph((ids, pairs.of_edge), size=(len(rows), len(pairs.vertex))), merged

            to_pairs, merged = self._kept(f"rows of {len(rows)}", of_ids, edge_index, edge_type, both, None, source)
            out = Adjacency(merged)(Adjacency(to_pairs)(rows, self.aggr))
        else:
            pairs, to_pairs, merged = self._kept("to pairs", _to_pairs, edge_index, edge_type, both, None)
            rows = Adjacency(to_pairs)(source, self.aggr)
            out = Adjacency(merged)(pairs.products(rows, weight.to(rows.dtype)))
        if self.root is not None:
            out = out + (self.root[destination] if _are_ids(destination) else destination @ self.root)
        return out if self.bias is None else out + self.bias.to(out.dtype)


class RGCNConv(_RGCN, pyg.RGCNConv):  # type: ignore[misc]
    """PyG's ``RGCNConv``. Its result has the format of the features, where PyG's of half features is float.

    ``y[i] = W_root x[i] + Σ_r mean_j W_r x[j]``, with the in-neighbors by edges of each type r.
    """


class FastRGCNConv(_RGCN, pyg.FastRGCNConv):  # type: ignore[misc]
    """PyG's ``FastRGCNConv``, without a matrix for each edge.

    ``y[i] = W_root x[i] + Σ_r mean_j W_r x[j]``, with the in-neighbors by edges of each type r.
    """

    _aggregators = LINEAR

    def _not_these(self, *, x: Any = None, **given: Any) -> str | None:
        if isinstance(x, Tensor) and _are_ids(x):
            return "ids are given, and PyG's layer reads the numbers of the vertices"
        return super()._not_these(x=x, **given)


class RGATConv(_Typed, pyg.RGATConv):  # type: ignore[misc]
    """PyG's ``RGATConv`` without edge features: of an edge a number a head is stored, and no matrix.

    GAT's attention with a matrix for each type of edges.
    """

    _aggregators = SUMS

    def _not_these(self, *, edge_attr: Any = None, return_attention_weights: Any = None, **given: Any) -> str | None:
        if return_attention_weights is not None:
            return "attention weights are returned"
        return "edges have features" if edge_attr is not None else super()._not_these(**given)

    @by_operators
    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        edge_type: Tensor | None = None,
        edge_attr: Tensor | None = None,
        size: Any = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """As PyG's."""
        found: Any = self._kept("between pairs", _between_pairs, edge_index, edge_type, (x, x), size)
        sources, destinations, graph, between = found
        weight = self._matrices_of_types()
        rows = sources.products(x.index_select(0, sources.vertex), weight.to(x.dtype))
        # Scores of all destinations and types are few numbers each.
        queries = torch.einsum("nf,rfk->nrk", x, (weight @ self.q).to(x.dtype))[destinations.vertex, destinations.type]
        keys = rows @ self.k
        if self.attention_mode == "additive-self-attention":
            scores = F.leaky_relu(edge_sums(between, queries, keys), self.negative_slope)
        else:
            scores = edge_dots(between, queries[:, :, None], keys[:, :, None])
        scores = edge_softmax(between if self.attention_mechanism == "within-relation" else graph, scores)
        if self.mod == "f-additive":
            scores = torch.where(scores > 0, scores + 1, scores)
        elif self.mod is None and self.training:
            scores = F.dropout(scores, p=self.dropout)
        return self._finished(self._aggregated(graph, rows.view(-1, self.heads, self.out_channels), scores))

    def _matrices_of_types(self) -> Tensor:
        """relations × in × (heads · out)."""
        if self.num_bases is not None:
            return torch.einsum("rb,bio->rio", self.att, self.basis)
        weight: Tensor = self.weight
        return weight if self.num_blocks is None else torch.stack([torch.block_diag(*blocks) for blocks in weight])

    def _aggregated(self, graph: Graph, rows: Tensor, scores: Tensor) -> Tensor:
        """destinations × heads × dim × out."""
        adjacency = Adjacency(graph)
        parts = scores.view(len(scores), self.heads, self.dim).unbind(dim=2)
        out = torch.stack([adjacency(rows, weight=part.contiguous()) for part in parts], dim=2)
        degrees = graph.in_degrees().float()
        if self.mod == "additive":
            out = out + (adjacency(rows) * self.w)[:, :, None]
        elif self.mod == "scaled":
            factors = self.activation(degrees[:, None] @ self.l1.float() + self.b1.float()) @ self.l2.float() + self.b2.float()
            out = (out * factors[:, None, None]).to(out.dtype)
        elif self.mod == "f-scaled":
            out = (out * degrees[:, None, None, None]).to(out.dtype)
        return out

    def _finished(self, out: Tensor) -> Tensor:
        out = out.flatten(1) if self.concat else out.mean(dim=1).flatten(1)
        return out if self.bias is None else out + self.bias.to(out.dtype)


class FiLMConv(_Typed, _Pairwise, pyg.FiLMConv):  # type: ignore[misc]
    """PyG's ``FiLMConv``: the edges of each type are a graph of their own, which is kept.

    ``y[i] = Σ_r mean_j act(g_r[i] * W_r x[j] + b_r[i])``, with factors and offsets that are products
    of ``x[i]``, plus such a term of the vertex itself.
    """

    def _not_these(self, *, edge_type: Any = None, **given: Any) -> str | None:
        # Of one type PyG's reads none.
        return None if self.num_relations <= 1 else super()._not_these(edge_type=edge_type, **given)

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_type: Tensor | None = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        act, width = self.act, self.out_channels

        def modulated(film: Tensor, rows: Tensor) -> Tensor:
            out = torch.addcmul(film[:, :width], film[:, width:], rows)
            return out if act is None else act(out)

        def formula(d: Any, s: Any, e: Any, w: Any) -> Tensor:
            return modulated(d[0], s[0])

        out = modulated(self.film_skip(destination), self.lin_skip(destination))
        graphs: Any = [structure(self, edge_index, x)]
        if self.num_relations > 1:
            graphs = self._kept("of types", _of_types, edge_index, edge_type, (source, destination), None)
        for graph, lin, film in zip(graphs, self.lins, self.films, strict=True):
            operands = {"destination": (film(destination),), "source": (lin(source),), "modules": (act,)}
            out = out + self._aggregate(graph, formula, width=width, **operands)
        return out


def _of_types(index: Tensor, types: Tensor, size: tuple[int, int], relations: int) -> Any:
    """The graph of the edges of each type."""
    return [Graph(index[:, types == relation], size=size) for relation in range(relations)]


class SplineConv(Layer, pyg.SplineConv):  # type: ignore[misc]
    """PyG's ``SplineConv``: one aggregation to the pairs of a destination and a kernel, and a product a kernel. Which kernels an edge has,
    and with which weights, is found by ``pyg-lib``, as PyG's layer finds it.

    ``y[i] = mean_j x[j] W(e[j, i]) + W_root x[i] + b``, with B-splines of the features of edges.
    """

    _aggregators = LINEAR
    _pairs = True
    _matrices = False
    _traces = False
    _traces_graphs = False

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        return "kernels are found by pyg-lib, which is not there" if spline_conv.spline_basis is None else None

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        return "edges have no coordinates" if edge_attr is None else edge_reason(edge_attr)

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x, size)
        assert edge_attr is not None
        check_edges(self, graph, edge_attr)
        shares, kernels = spline_conv.spline_basis(edge_attr, self.kernel_size, self.is_open_spline, self.degree)
        index = graph.edge_index
        ends = index.repeat_interleave(kernels.shape[1], dim=1)
        between = graph.num_src, graph.num_dst
        found: Any = graph_of(
            edge_attr, (kernels, index), ("kernels", *between, self.K), lambda: _to_pairs(ends, kernels.flatten(), between, self.K)
        )
        pairs, to_pairs, merged = found
        if self.aggr == "mean":
            # Before they are summed up: sums may exceed a format of 16 bits.
            shares = shares.float() * graph._factors("in", -1.0)[index[1], None]
        rows = Adjacency(to_pairs)(source, "sum", shares.flatten())
        out = Adjacency(merged)(pairs.products(rows, self.weight.to(rows.dtype)))
        if destination is not None and self.root_weight:
            out = out + self.lin(destination)
        return out if self.bias is None else out + self.bias.to(out.dtype)
