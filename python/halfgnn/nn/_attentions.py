"""Layers whose edges have weights that depend on both ends: attention by dot products and its kin."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor

from .._cached import graph_of as kept_graph
from ..graph import Graph
from ..ops import edge_softmax
from ._adjacency import Adjacency, attention, edge_dots, edge_sums, gat_attention, is_product, pair, structure, unit_rows
from ._common import is_matrix
from ._layer import LINEAR, SUMS, Layer, by_operators
from ._messages import aggregate
from ._pairwise import check_edges, edge_reason
from ._reductions import Incidence, _reduced


class TransformerConv(Layer, pyg.TransformerConv):  # type: ignore[misc]
    """PyG's ``TransformerConv`` without edge features: nothing is stored for an edge.

    ``y[i] = W_s x[i] + Σ_j softmax_j(W_q x[i] · W_k x[j] / sqrt(D)) W_v x[j]``, head by head.
    """

    _aggregators = SUMS
    _pairs = True
    _one_sided = False
    _traces = False

    def _not_these(self, *, edge_attr: Any = None, return_attention_weights: Any = None, **given: Any) -> str | None:
        if return_attention_weights is not None:
            return "attention weights are returned"
        if edge_attr is not None:
            return "edges have features"
        return f"the dropout is {self.dropout}" if self.training and self.dropout >= 1.0 else None

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, return_attention_weights: Any = None) -> Any:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x)
        dropout = self.dropout if self.training else 0.0
        query, key, value = self.lin_query(destination), self.lin_key(source), self.lin_value(source)
        out = attention(graph, query, key, value, heads=self.heads, dropout=dropout)
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(dim=1)
        if not self.root_weight:
            return out
        own = self.lin_skip(destination)
        if self.lin_beta is None:
            return out + own
        beta = self.lin_beta(torch.cat([out, own, out - own], dim=-1)).sigmoid()
        return beta * own + (1 - beta) * out


class AGNNConv(Layer, pyg.AGNNConv):  # type: ignore[misc]
    """PyG's ``AGNNConv``: nothing is stored for an edge.

    ``y[i] = Σ_j softmax_j(beta cos(x[i], x[j])) x[j]``.
    """

    _aggregators = SUMS
    _traces = False

    @by_operators
    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """As PyG's."""
        graph = structure(self, edge_index, x, loops=self.add_self_loops)
        rows = unit_rows(x)
        return attention(graph, self.beta.to(rows.dtype) * rows, rows, x, scale=1.0)


class SuperGATConv(Layer, pyg.SuperGATConv):  # type: ignore[misc]
    """PyG's ``SuperGATConv``: of an edge a number a head is stored. Positive and negative edges are sampled by PyG's methods.

    GAT's layer, with a loss by which attention also learns which edges there are.
    """

    _aggregators = SUMS
    _traces = False
    _traces_graphs = False
    _replaces = ("get_attention",)

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, neg_edge_index: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """As PyG's."""
        graph = structure(self, edge_index, x, loops=self.add_self_loops)
        rows = self.lin(x).view(-1, self.heads, self.out_channels)
        logits = self._logits(graph, rows)
        scores = logits
        if self.attention_type == "MX":
            own, other = ((rows * vector).sum(-1, dtype=torch.float32) for vector in (self.att_r, self.att_l))
            scores = edge_sums(graph, own, other) * logits.sigmoid()
        scores = edge_softmax(graph, F.leaky_relu(scores, self.negative_slope))
        scores = F.dropout(scores, p=self.dropout, training=self.training)
        out = Adjacency(graph)(rows, weight=scores)
        if self.training:
            self._supervise(graph, rows, logits, neg_edge_index, batch)
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def _logits(self, graph: Graph, rows: Tensor) -> Tensor:
        dots = edge_dots(graph, rows, rows)
        return dots if self.attention_type == "MX" else dots / math.sqrt(self.out_channels)

    def _supervise(self, graph: Graph, rows: Tensor, logits: Tensor, negative: Tensor | None, batch: Tensor | None) -> None:
        """The logits and labels of the loss that predicts edges."""
        count, index = len(rows), graph.edge_index
        positive = self.positive_sampling(index)
        if positive.shape[1] != index.shape[1]:
            logits = self._logits(Graph(positive, count), rows)
        if negative is None:
            negative = self.negative_sampling(index, count, batch)
        self.att_x = torch.cat([logits, self._logits(Graph(negative, count), rows)]).to(rows.dtype)
        self.att_y = self.att_x.new_zeros(self.att_x.shape[0])
        self.att_y[: positive.shape[1]] = 1.0


class GeneralConv(Layer, pyg.GeneralConv):  # type: ignore[misc]
    """PyG's ``GeneralConv`` without edge features: messages are sums of a row of each end, which needs no row of an edge.

    Sums of products of both ends' features, weighted by attention on request, plus the vertex's own.
    """

    _pairs = True
    _one_sided = False
    _aggregators = (*LINEAR, "max", "min")
    _traces = False
    _replaces = ("message_basic",)

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        if layer.in_edge_channels is not None:
            return "edges have features (in_edge_channels)"
        return f"the aggregator is {layer.aggr}, of attention" if layer.attention and layer.aggr not in SUMS else None

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        return None if edge_attr is None else "edges have features"

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x, size)
        own = None if self.directed_msg else self.lin_msg_i(destination)
        rows = self.lin_msg(source)
        if self.attention:
            out = self._attend(graph, rows, own, source, destination)
        else:
            out = Adjacency(graph)(rows, self.aggr)
        if own is not None:
            degrees = graph.in_degrees()[:, None]
            # Once for each edge in a sum, and once for all of a vertex in what is no sum.
            times = degrees if self.aggr in SUMS and not self.attention else degrees.clamp(max=1)
            out = (out + own * times.float()).to(out.dtype)
        out = out.view(-1, self.heads, self.out_channels).mean(dim=1) + self.lin_self(destination)
        return unit_rows(out) if self.normalize_l2 else out

    def _attend(self, graph: Graph, rows: Tensor, own: Tensor | None, source: Tensor, destination: Tensor) -> Tensor:
        """The rows of the sources, weighted by the softmax of the scores of whole messages."""
        shape = (-1, self.heads, self.out_channels)
        if self.attention_type == "additive":
            att = self.att_msg
            if own is not None:
                return gat_attention(graph, rows, att, att, heads=self.heads, h_dst=own)
            return gat_attention(graph, rows, att, torch.zeros_like(att), heads=self.heads, h_dst=rows.new_zeros(graph.num_dst, rows.shape[1]))
        # Of the message that goes back along the edge.
        back, forth = self.lin_msg(destination).view(shape), rows.view(shape)
        if own is None:
            scores = edge_dots(graph, back, forth)
        else:
            mine, others = own.view(shape), self.lin_msg_i(source).view(shape)
            scores = edge_dots(graph, torch.cat([back, mine], dim=2), torch.cat([forth, others], dim=2))
            ends = ((one * other).sum(-1, dtype=torch.float32) for one, other in ((back, mine), (forth, others)))
            scores = scores + edge_sums(graph, *ends)
        scores = edge_softmax(graph, F.leaky_relu(scores / self.scaler.float(), 0.2))
        return Adjacency(graph)(forth, weight=scores).flatten(1)


class HANConv(Layer, pyg.HANConv):  # type: ignore[misc]
    """PyG's ``HANConv``: attention along each type of edges is one operator.

    Attention over the in-neighbors by each type of edges, then over these types.
    """

    _aggregators = SUMS
    _adjacencies = ("edge_index_dict",)
    _features = ("x_dict",)
    _traces = False

    def _not_these(self, **given: Any) -> str | None:
        return f"the dropout is {self.dropout}" if self.training and self.dropout >= 1.0 else None

    @by_operators
    def forward(self, x_dict: Any, edge_index_dict: Any, return_semantic_attention_weights: bool = False) -> Any:
        """As PyG's."""
        rows = {kind: self.proj[kind](x) for kind, x in x_dict.items()}
        received: dict[str, list[Tensor]] = {kind: [] for kind in x_dict}
        for (source, relation, destination), edge_index in edge_index_dict.items():
            name = f"{source}__{relation}__{destination}"
            graph = structure(self, edge_index, (rows[source], rows[destination]))
            out = gat_attention(
                graph,
                rows[source],
                self.lin_src[name],
                self.lin_dst[name],
                heads=self.heads,
                negative_slope=self.negative_slope,
                dropout=self.dropout if self.training else 0.0,
                h_dst=rows[destination],
            )
            received[destination].append(out.relu())
        grouped = {kind: _semantic(outs, self.q, self.k_lin) for kind, outs in received.items()}
        result = {kind: out for kind, (out, _) in grouped.items()}
        if return_semantic_attention_weights:
            return result, {kind: weights for kind, (_, weights) in grouped.items()}
        return result


def _semantic(outs: list[Tensor], q: Tensor, k_lin: Any) -> tuple[Tensor | None, Tensor | None]:
    """What a type of vertices has of its types of edges, weighted by attention between them."""
    if not outs:
        return None, None
    stacked = torch.stack(outs)
    if stacked.numel() == 0:
        return stacked.view(0, stacked.shape[-1]), None
    weights = (q * k_lin(stacked).tanh().mean(1)).sum(-1).softmax(dim=0)
    return (weights.view(-1, 1, 1) * stacked).sum(dim=0), weights


class HGTConv(Layer, pyg.HGTConv):  # type: ignore[misc]
    """PyG's ``HGTConv``: attention over all types of edges at once, with nothing stored for an edge.

    Attention with queries, keys and values of each type of vertices, and matrices of each type of edges.
    """

    _aggregators = SUMS
    _adjacencies = ("edge_index_dict",)
    _features = ("x_dict",)
    _traces = False
    _traces_graphs = False

    @by_operators
    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        """As PyG's."""
        heads, width = self.heads, self.out_channels // self.heads
        keys, queries, values = {}, {}, {}
        for kind, rows in self.kqv_lin(x_dict).items():
            keys[kind], queries[kind], values[kind] = (part.reshape(-1, heads, width) for part in rows.tensor_split(3, dim=1))
        query, first = self._cat(queries)
        key, value, _ = self._construct_src_node_feat(keys, values, edge_index_dict)
        # The scores of a type of edges have a factor, which the keys of its sources take.
        factors = [self.p_rel["__".join(kind)].expand(len(keys[kind[0]]), -1) for kind in edge_index_dict]
        key = key * torch.cat(factors)[:, :, None]
        graph = self._graph(edge_index_dict, keys, first, len(key), len(query))
        received = attention(graph, query, key, value)
        outs = {
            kind: received[start : start + len(queries[kind])].flatten(1)
            for kind, start in first.items()
            if kind in self.dst_node_types
        }
        projected = self.out_lin({kind: F.gelu(out) for kind, out in outs.items()})
        for kind in outs:
            out = projected[kind]
            if out.shape[-1] == x_dict[kind].shape[-1]:
                share = self.skip[kind].sigmoid()
                out = share * out + (1 - share) * x_dict[kind]
            outs[kind] = out
        return outs

    def _graph(self, edge_index_dict: Any, keys: Any, first: Any, sources: int, destinations: int) -> Graph:
        """From the sources of each type of edges, one type after the other, to all destinations."""
        parts, offset = [], 0
        for (source, _, destination), given in edge_index_dict.items():
            if isinstance(given, Tensor) and not is_matrix(given):
                index = given.as_subclass(Tensor)
            else:
                index = structure(self, given, (keys[source], keys[destination])).edge_index
            parts.append((index, offset, first[destination]))
            offset += len(keys[source])

        def make() -> Graph:
            ends = [torch.stack([index[0] + of_source, index[1] + of_destination]) for index, of_source, of_destination in parts]
            return Graph(torch.cat(ends, dim=1), size=(sources, destinations))

        owner = next(iter(edge_index_dict.values()))
        key = ("types", sources, destinations, *(part[1:] for part in parts))
        return kept_graph(owner, tuple(part[0] for part in parts), key, make)


class HEATConv(Layer, pyg.HEATConv):  # type: ignore[misc]
    """PyG's ``HEATConv``: of an edge its embedded features and a number a head are stored. Products of both ends are made for each
    vertex, and those of features behind their sum.

    GAT's attention over features of vertices, of edges and of their types.
    """

    _aggregators = LINEAR
    _matrices = False
    _traces = False
    _traces_graphs = False

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        return None if is_product(layer.att) and is_product(layer.lin) else "its products have hooks"

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        return "edges have no features" if edge_attr is None else edge_reason(edge_attr)

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, node_type: Tensor, edge_type: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """As PyG's."""
        graph = structure(self, edge_index, x)
        assert edge_attr is not None
        check_edges(self, graph, edge_attr)
        if edge_type.shape != (graph.num_edges,):
            raise ValueError(f"edge_type: should be {graph.num_edges}, one for each edge, is {tuple(edge_type.shape)}")
        slope, width = self.negative_slope, self.out_channels
        rows = self.hetero_lin(x, node_type)
        of_type = F.leaky_relu(self.edge_type_emb.weight, slope)
        attributes = F.leaky_relu(self.edge_attr_emb(edge_attr), slope)
        own, other, typed, featured = self.att.weight.split([width, width, of_type.shape[1], attributes.shape[1]], dim=1)
        scores = edge_sums(graph, F.linear(rows, own), F.linear(rows, other))
        scores = scores + F.linear(of_type, typed).float()[edge_type] + F.linear(attributes, featured).float()
        alpha = edge_softmax(graph, F.leaky_relu(scores, slope))
        alpha = F.dropout(alpha, p=self.dropout, training=self.training)
        of_rows, of_attributes = self.lin.weight.split([width, attributes.shape[1]], dim=1)
        values = F.linear(rows, of_rows, self.lin.bias)
        adjacency, reduce = Adjacency(graph), "mean" if self.aggr == "mean" else "sum"
        out = torch.stack([adjacency(values, reduce, share.contiguous()) for share in alpha.unbind(dim=1)], dim=1)

        def formula(d: Any, s: Any, e: Any, w: Any) -> Tensor:
            return (e[0][:, :, None] * e[1].float()[:, None]).flatten(1)  # type: ignore[no-any-return]

        def sums(found: Tensor, incidence: Incidence) -> Tensor:
            return _reduced(found, incidence, reduce)

        received = aggregate(graph, formula, sums, edge=(alpha, attributes), width=self.heads * attributes.shape[1])
        received = received.view(-1, self.heads, attributes.shape[1]).to(out.dtype)
        out = out + F.linear(received, of_attributes)
        # The mean over heads of what is added to each is the vertex's own row as well.
        out = out + rows[:, None] if self.root_weight else out
        return out.flatten(1) if self.concat else out.mean(dim=1)
