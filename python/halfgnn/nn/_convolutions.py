"""GCN, GraphSAGE, GIN, GAT and GATv2."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor

from .._networks import LINEARS, isomorphism
from ..graph import Graph
from ..ops import gat_attention, gatv2_attention, scaled_spmm, spmm
from ._common import fall_back, graph_of, refused, sizes, to_pyg


class _Untemplated:
    """PyG writes a ``propagate`` for each class of layers, from comments in its forward pass: those of the classes here are PyG's."""

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        pass


class GCNConv(_Untemplated, pyg.GCNConv):  # type: ignore[misc]
    """PyG's ``GCNConv``: degrees, aggregation and bias are one operator, and no matrix of edges is made."""

    _cached_graph: Any = None

    def reset_parameters(self) -> None:
        """As PyG's."""
        super().reset_parameters()
        self._cached_graph = None

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's. A graph's own weights are used unless others are given."""
        if isinstance(x, (tuple, list)):
            return super().forward(x, edge_index, edge_weight)
        reason = refused(self, x)
        if reason is None and self.aggr not in ("add", "sum"):
            reason = f"the aggregator is {self.aggr}"
        if reason is not None:
            fall_back(self, reason)
            return super().forward(x, *to_pyg(edge_index, edge_weight))  # type: ignore[no-any-return]
        graph, weight, scales = self._normalised(edge_index, edge_weight, x.shape[0])
        # Of two linear maps the one that makes rows narrower comes first.
        if self.in_channels < self.out_channels:
            x = self.lin(scaled_spmm(graph, x, weight, scales))
            return x if self.bias is None else x + self.bias.to(x.dtype)
        return scaled_spmm(graph, self.lin(x), weight, scales, bias=self.bias)  # type: ignore[no-any-return]

    def _normalised(
        self, edge_index: Any, edge_weight: Tensor | None, count: int
    ) -> tuple[Graph, Tensor | None, tuple[Any, Any]]:
        """The graph, weights of its edges, and factors of its rows and columns."""
        if self._cached_graph is not None:
            return self._cached_graph  # type: ignore[no-any-return]
        graph = graph_of(edge_index, (count, count))
        weight = cast("Tensor | None", graph.weight if edge_weight is None else edge_weight)
        scales: tuple[Any, Any] = (None, None)
        if self.normalize:
            if weight is not None:
                # Loops of 2 are of weighted edges alone, as PyG's are.
                fill = 2.0 if self.improved else 1.0
                graph, weight = _weighted(graph, weight, self.add_self_loops, fill)
            else:
                graph = graph.with_self_loops() if self.add_self_loops else graph
                factors = graph._factors("in", -0.5)
                if not self.add_self_loops:
                    # A vertex that hears from nobody is heard by nobody.
                    factors = factors * (graph.in_degrees() > 0)
                scales = (factors, factors)
        found = graph, weight, scales
        if self.cached:
            self._cached_graph = found
        return found


def _weighted(graph: Graph, weight: Tensor, loops: bool, fill: float) -> tuple[Graph, Tensor]:
    """The graph with loops, and its weights over the roots of weighted degrees, as PyG's ``gcn_norm``."""
    weight = weight.float()
    if loops:
        weighted = graph.with_weight(weight).with_self_loops(fill)
        assert weighted.weight is not None
        graph, weight = weighted.unweighted(), weighted.weight  # type: ignore[assignment]
    source, destination = graph.edge_index
    ones = torch.ones((graph.num_src, 1), device=weight.device)
    degrees = scaled_spmm(graph, ones, weight, (None, None))[:, 0]
    roots = degrees.pow(-0.5)
    roots = roots.masked_fill(roots == float("inf"), 0.0)
    return graph, roots[source] * weight * roots[destination]


class SAGEConv(_Untemplated, pyg.SAGEConv):  # type: ignore[misc]
    """PyG's ``SAGEConv`` with the aggregators ``mean``, ``sum`` and ``max``."""

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """As PyG's."""
        pair = (x, x) if isinstance(x, Tensor) else tuple(x)
        reason = refused(self, *pair)
        if reason is None and self.aggr not in ("mean", "add", "sum", "max"):
            reason = f"the aggregator is {self.aggr}"
        if reason is not None:
            fall_back(self, reason)
            return super().forward(x, to_pyg(edge_index)[0], size)  # type: ignore[no-any-return]
        graph = _unweighted(self, graph_of(edge_index, sizes(pair, edge_index, size)))
        reduce: Any = "sum" if self.aggr == "add" else self.aggr
        source, destination = pair
        if self.project and hasattr(self, "lin"):
            source = self.lin(source).relu()
        if reduce != "max" and self.out_channels < source.shape[1] and type(self.lin_l).__name__ == "Linear":
            out = spmm(graph, F.linear(source, self.lin_l.weight), reduce=reduce, bias=self.lin_l.bias)
        else:
            out = self.lin_l(spmm(graph, source, reduce=reduce))
        if self.root_weight and destination is not None:
            out = out + self.lin_r(destination)
        if self.normalize:
            out = F.normalize(out, p=2.0, dim=-1)
        return out  # type: ignore[no-any-return]


class GINConv(_Untemplated, pyg.GINConv):  # type: ignore[misc]
    """PyG's ``GINConv``. Where ``nn`` begins with a product that makes rows narrower, it is done before they are summed up."""

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """As PyG's."""
        pair = (x, x) if isinstance(x, Tensor) else tuple(x)
        reason = refused(self, *pair)
        if reason is None and self.aggr not in ("add", "sum", "mean", "max"):
            reason = f"the aggregator is {self.aggr}"
        if reason is not None:
            fall_back(self, reason)
            return super().forward(x, to_pyg(edge_index)[0], size)  # type: ignore[no-any-return]
        graph = _unweighted(self, graph_of(edge_index, sizes(pair, edge_index, size)))
        reduce: Any = "sum" if self.aggr == "add" else self.aggr
        return isomorphism(  # type: ignore[no-any-return]
            self.nn,
            lambda rows, bias, own: spmm(graph, rows, reduce=reduce, bias=bias, epsilon=own),
            pair[0],
            pair[1],
            self.eps,
            linear=reduce != "max",
            linears=(*LINEARS, pyg.Linear),
            mlp=pyg.MLP,
        )


class GATConv(_Untemplated, pyg.GATConv):  # type: ignore[misc]
    """PyG's ``GATConv``, without an array of edges in either pass."""

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Any = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """As PyG's."""
        pair = (x, x) if isinstance(x, Tensor) else tuple(x)
        reason = _no_attention(self, pair, edge_attr, return_attention_weights)
        if reason is not None:
            fall_back(self, reason)
            index = to_pyg(edge_index)[0]
            return super().forward(x, index, edge_attr, size, return_attention_weights)
        graph = _unweighted(self, graph_of(edge_index, sizes(pair, edge_index, size)))
        if self.add_self_loops:
            graph = graph._looped()[0]
        if self.lin is not None:
            source = self.lin(pair[0])
            destination = None if pair[1] is pair[0] else self.lin(pair[1])
        else:
            source, destination = self.lin_src(pair[0]), self.lin_dst(pair[1])
        out = gat_attention(
            graph,
            source,
            self.att_src,
            self.att_dst,
            heads=self.heads,
            negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
            h_dst=destination,
        )
        return _attention_output(self, out, pair[1])


class GATv2Conv(_Untemplated, pyg.GATv2Conv):  # type: ignore[misc]
    """PyG's ``GATv2Conv``, without a row of features for each edge in either pass."""

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """As PyG's."""
        pair = (x, x) if isinstance(x, Tensor) else tuple(x)
        reason = _no_attention(self, pair, edge_attr, return_attention_weights)
        if reason is not None:
            fall_back(self, reason)
            index = to_pyg(edge_index)[0]
            return super().forward(x, index, edge_attr, return_attention_weights)
        graph = _unweighted(self, graph_of(edge_index, sizes(pair, edge_index, None)))
        if self.add_self_loops:
            graph = graph._looped()[0]
        alike = self.share_weights and pair[1] is pair[0]
        out = gatv2_attention(
            graph,
            self.lin_l(pair[0]),
            self.att,
            heads=self.heads,
            negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
            h_dst=None if alike else self.lin_r(pair[1]),
        )
        return _attention_output(self, out, pair[1])


def _no_attention(layer: Any, pair: Any, edge_attr: Any, return_attention_weights: Any) -> str | None:
    """Why halfgnn has no attention of this kind."""
    reason = refused(layer, *pair)
    if reason is not None:
        return reason
    if return_attention_weights is not None:
        return "attention weights are returned"
    if edge_attr is not None and layer.lin_edge is not None:
        return "edges have features"
    if pair[1] is None:
        return "destinations have no features"
    if layer.aggr not in ("add", "sum"):
        return f"the aggregator is {layer.aggr}"
    if layer.training and layer.dropout >= 1.0:
        return f"the dropout is {layer.dropout}"
    return None


def _attention_output(layer: Any, out: Tensor, x: Tensor) -> Tensor:
    """What was heard, all heads or their mean, with the residual of ``x`` and the bias."""
    if not layer.concat:
        out = out.view(-1, layer.heads, layer.out_channels).mean(dim=1)
    if layer.res is not None:
        out = out + layer.res(x)
    return out if layer.bias is None else out + layer.bias.to(out.dtype)


def _unweighted(layer: object, graph: Graph) -> Graph:
    """Refuses weights that the layer has no use for."""
    if graph.weight is not None:
        raise ValueError(f"{type(layer).__name__}: the graph has weights, which it does not use; pass graph.unweighted()")
    return graph
