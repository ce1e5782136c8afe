"""GCN, GraphSAGE, GIN, GAT and GATv2."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor

from .._networks import isomorphism
from ._adjacency import PRODUCTS, gat_attention, gatv2_attention, is_product, normalized, pair, structure, unit_rows, unweighted, weighted
from ._layer import LINEAR, SUMS, Layer, by_operators
from ._traced import Edges


class GCNConv(Layer, pyg.GCNConv):  # type: ignore[misc]
    """PyG's ``GCNConv``: degrees, aggregation and bias are one operator, and no matrix of edges is made.

    ``y[i] = b + Σ_j W x[j] / sqrt(d[i] d[j])``, over the in-neighbors and the vertex itself.
    """

    _aggregators = SUMS
    _sparse = True

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's. A graph's own weights are used unless others are given."""
        if self.normalize:
            adjacency = normalized(self, edge_index, edge_weight, x, improved=self.improved, loops=self.add_self_loops)
        else:
            adjacency = weighted(self, edge_index, edge_weight, x)
        # Of two linear maps the one that makes rows narrower comes first.
        first = x.layout != torch.strided or not is_product(self.lin) or self.lin.bias is not None
        if first or x.shape[1] >= self.out_channels:
            return adjacency(self.lin(x), bias=self.bias)
        out = self.lin(adjacency(x))
        return out if self.bias is None else out + self.bias.to(out.dtype)  # type: ignore[no-any-return]


class SAGEConv(Layer, pyg.SAGEConv):  # type: ignore[misc]
    """PyG's ``SAGEConv``. A sum or mean of narrower rows comes behind their product.

    ``y[i] = W_l mean_j x[j] + W_r x[i] + b``, or another aggregator in place of the mean.
    """

    _pairs = True

    @by_operators
    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        adjacency = unweighted(self, edge_index, x, size)
        if self.project and hasattr(self, "lin"):
            source = self.lin(source).relu()
        if self.aggr in LINEAR and self.out_channels < source.shape[1] and is_product(self.lin_l):
            # Its weight alone: a bias is added to what was summed up.
            out = adjacency(F.linear(source, self.lin_l.weight), self.aggr, bias=self.lin_l.bias)
        else:
            out = self.lin_l(adjacency.aggregate(source, self))
        if self.root_weight and destination is not None:
            out = out + self.lin_r(destination)
        return unit_rows(out) if self.normalize else out


class GINConv(Layer, pyg.GINConv):  # type: ignore[misc]
    """PyG's ``GINConv``. Where ``nn`` begins with a product that makes rows narrower, it is done before they are summed up.

    ``y[i] = nn((1 + eps) x[i] + Σ_j x[j])``.
    """

    _pairs = True

    @by_operators
    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        adjacency = unweighted(self, edge_index, x, size)
        return isomorphism(  # type: ignore[no-any-return]
            self.nn,
            lambda rows, bias, own: adjacency.aggregate(rows, self, bias, own),
            source,
            destination,
            self.eps,
            linear=self.aggr in LINEAR,
            linears=PRODUCTS,
            mlp=pyg.MLP,
        )


class _Attention(Layer):
    """What GAT and GATv2 have in common."""

    _aggregators = SUMS
    _sparse = True
    _pairs = True
    _one_sided = False

    def _not_these(self, *, edge_attr: Any = None, return_attention_weights: Any = None, **given: Any) -> str | None:
        if return_attention_weights is not None:
            return "attention weights are returned"
        if edge_attr is not None:
            return "edges have features"
        if self.training and self.dropout >= 1.0:  # type: ignore[attr-defined]
            return f"the dropout is {self.dropout}"  # type: ignore[attr-defined]
        return None

    def _options(self, h_dst: Tensor | None) -> dict[str, Any]:
        layer: Any = self
        dropout = layer.dropout if layer.training else 0.0
        return {"heads": layer.heads, "negative_slope": layer.negative_slope, "dropout": dropout, "h_dst": h_dst}

    def _output(self, out: Tensor, x: Tensor) -> Tensor:
        """What was aggregated, all heads or their mean, with the residual of ``x`` and the bias."""
        layer: Any = self
        if not layer.concat:
            out = out.view(-1, layer.heads, layer.out_channels).mean(dim=1)
        if layer.res is not None:
            out = out + layer.res(x)
        return out if layer.bias is None else out + layer.bias.to(out.dtype)


class GATConv(_Attention, pyg.GATConv):  # type: ignore[misc]
    """PyG's ``GATConv``, without an array of edges in either pass.

    ``y[i] = Σ_j softmax_j(LeakyReLU(a_dst · W x[i] + a_src · W x[j])) W x[j]``, head by head.
    """

    @by_operators
    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Any = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """As PyG's."""
        both = pair(x)
        graph = structure(self, edge_index, x, size, loops=self.add_self_loops)
        if self.lin is not None:
            source = self.lin(both[0])
            destination = None if both[1] is both[0] else self.lin(both[1])
        else:
            source, destination = self.lin_src(both[0]), self.lin_dst(both[1])
        if isinstance(graph, Edges):
            out = graph.attention("gat_attention", source, (self.att_dst, self.att_src), **self._options(destination))
        else:
            out = gat_attention(graph, source, self.att_src, self.att_dst, **self._options(destination))
        return self._output(out, both[1])


class GATv2Conv(_Attention, pyg.GATv2Conv):  # type: ignore[misc]
    """PyG's ``GATv2Conv``, without a row of features for each edge in either pass.

    ``y[i] = Σ_j softmax_j(a · LeakyReLU(W_r x[i] + W_l x[j])) W_l x[j]``, head by head.
    """

    @by_operators
    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """As PyG's."""
        both = pair(x)
        graph = structure(self, edge_index, x, loops=self.add_self_loops)
        alike = self.share_weights and isinstance(x, Tensor)
        source = self.lin_l(both[0])
        options = self._options(None if alike else self.lin_r(both[1]))
        if isinstance(graph, Edges):
            out = graph.attention("gatv2_attention", source, (self.att,), **options)
        else:
            out = gatv2_attention(graph, source, self.att, **options)
        return self._output(out, both[1])
