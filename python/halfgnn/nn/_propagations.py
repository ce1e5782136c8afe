"""Layers that copy rows along edges, weighted or normalized, once or several times."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.utils import one_hot

from .._cached import graph_of as kept_graph
from .._networks import is_observed
from ..graph import Graph
from ..ops import edge_softmax
from ._adjacency import (
    Adjacency,
    edge_dots,
    edge_sums,
    is_product,
    normalized,
    pair,
    refuse_weights,
    structure,
    unweighted,
    weighted,
)
from ._common import Matrix, graph_of, is_matrix, other_modules, reduction_of
from ._layer import LINEAR, SUMS, Layer, by_operators


def _with_bias(out: Tensor, bias: Tensor | None) -> Tensor:
    return out if bias is None else out + bias.to(out.dtype)


class GraphConv(Layer, pyg.GraphConv):  # type: ignore[misc]
    """PyG's ``GraphConv``. A sum or mean of narrower rows comes behind their product.

    ``y[i] = W_root x[i] + W_rel Σ_j e[j, i] x[j]``.
    """

    _pairs = True

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        adjacency = weighted(self, edge_index, edge_weight, x, size)
        if self.aggr in LINEAR and self.out_channels < source.shape[1] and is_product(self.lin_rel):
            out = adjacency(F.linear(source, self.lin_rel.weight), self.aggr, bias=self.lin_rel.bias)
        else:
            out = self.lin_rel(adjacency.aggregate(source, self))
        return out if destination is None else out + self.lin_root(destination)


class SimpleConv(Layer, pyg.SimpleConv):  # type: ignore[misc]
    """PyG's ``SimpleConv``.

    ``y[i] = Σ_j e[j, i] x[j]``, or another aggregator. It has no parameters.
    """

    _pairs = True

    def _not_these(self, *, edge_index: Any = None, **given: Any) -> str | None:
        if self.combine_root != "self_loop":
            return None
        if torch.compiler.is_compiling():
            return "self-loops are added in a trace"
        # PyG's adds the values of loops that are there, and counts them as one edge.
        return "loops are added to a sparse matrix of no sum" if is_matrix(edge_index) and self.aggr not in SUMS else None

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        if self.combine_root == "self_loop":
            if not isinstance(x, Tensor) or (size is not None and size[0] != size[1]):
                raise ValueError("Cannot use `combine_root='self_loop'` for bipartite message passing")
            return _with_more_loops(self, edge_index, edge_weight, x).aggregate(x, self)
        source, destination = pair(x)
        out = weighted(self, edge_index, edge_weight, x, size).aggregate(source, self)
        if destination is None or self.combine_root is None:
            return out
        return out + destination if self.combine_root == "sum" else torch.cat([destination, out], dim=-1)


def _with_more_loops(layer: Any, edge_index: Any, edge_weight: Tensor | None, x: Tensor) -> Adjacency:
    """The adjacency with a loop of weight 1 at each vertex besides the loops that there are."""
    if is_matrix(edge_index):
        return Adjacency(*Matrix(edge_index).looped(1.0))
    graph, weight, *_ = weighted(layer, edge_index, edge_weight, x)
    found = graph._cache.get("more loops")
    if found is None:
        index, loop = graph.edge_index, torch.arange(x.shape[0], device=x.device)
        found = graph._cache["more loops"] = Graph(torch.cat([index, torch.stack([loop, loop])], dim=1), x.shape[0])
    return Adjacency(found, None if weight is None else torch.cat([weight, weight.new_ones(x.shape[0])]))


class WLConvContinuous(Layer, pyg.WLConvContinuous):  # type: ignore[misc]
    """PyG's ``WLConvContinuous``.

    ``y[i] = (x[i] + mean_j e[j, i] x[j]) / 2``. It has no parameters.
    """

    _aggregators = SUMS
    _pairs = True
    # PyG's reads the second row of a matrix for its destinations.
    _matrices = False

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        adjacency = weighted(self, edge_index, edge_weight, x, size)
        if adjacency.weight is None:
            out = adjacency(source, "mean")
        else:
            factors = adjacency.degrees().reciprocal()
            factors = factors.masked_fill(factors == float("inf"), 0.0)[:, None]
            # In float: a weighted sum may exceed the format of what it is divided to.
            out = (adjacency(source.float()) * factors).to(source.dtype)
        return out if destination is None else torch.add(0.5 * out, destination, alpha=0.5)


class LEConv(Layer, pyg.LEConv):  # type: ignore[misc]
    """PyG's ``LEConv``: the sum of differences is the difference of sums, in float.

    ``y[i] = W_3 x[i] + Σ_j e[j, i] (W_1 x[j] - W_2 x[i])``.
    """

    _aggregators = SUMS
    _pairs = True
    _one_sided = False

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        adjacency = weighted(self, edge_index, edge_weight, x)
        a, b, own = self.lin1(source), self.lin2(destination), self.lin3(destination)
        differences = _in_float(adjacency, a) - adjacency.degrees()[:, None] * b.float()
        return (differences + own.float()).to(a.dtype)  # type: ignore[no-any-return]


def _in_float(adjacency: Adjacency, x: Tensor, reduce: str = "sum", weight: Tensor | None = None) -> Tensor:
    """What an adjacency aggregates, before it is rounded to a format of 16 bits."""
    with torch.autocast(x.device.type, enabled=False):
        return adjacency(x.float(), reduce, weight)


class LGConv(Layer, pyg.LGConv):  # type: ignore[misc]
    """PyG's ``LGConv``.

    ``y[i] = Σ_j e[j, i] x[j] / sqrt(d[i] d[j])``. It has no parameters.
    """

    _aggregators = SUMS

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        return (normalized if self.normalize else weighted)(self, edge_index, edge_weight, x)(x)


class SGConv(Layer, pyg.SGConv):  # type: ignore[misc]
    """PyG's ``SGConv``. Where the product makes rows narrower it comes first, unless what was propagated is cached.

    ``Y = S^K X W + b``. ``S`` is ``D^-1/2 (A + I) D^-1/2``.
    """

    _aggregators = SUMS

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        if self._cached_x is not None:  # type: ignore[has-type]
            return self.lin(self._cached_x.detach())  # type: ignore[has-type, no-any-return]
        adjacency = normalized(self, edge_index, edge_weight, x, loops=self.add_self_loops)
        first = not self.cached and self.out_channels < x.shape[1] and is_product(self.lin)
        rows = F.linear(x, self.lin.weight) if first else x
        for _ in range(self.K):
            rows = adjacency(rows)
        if first:
            return _with_bias(rows, self.lin.bias)
        if self.cached and self.K > 0:
            self._cached_x = rows
        return self.lin(rows)  # type: ignore[no-any-return]


class SSGConv(Layer, pyg.SSGConv):  # type: ignore[misc]
    """PyG's ``SSGConv``. Where the product makes rows narrower it comes first, unless what was propagated is cached.

    ``Y = (alpha X + (1 - alpha) / K Σ_k S^k X) W + b``, k from 1 to K. ``S`` is ``D^-1/2 (A + I) D^-1/2``.
    """

    _aggregators = SUMS

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        if self._cached_h is not None:  # type: ignore[has-type]
            return self.lin(self._cached_h.detach())  # type: ignore[has-type, no-any-return]
        adjacency = normalized(self, edge_index, edge_weight, x, loops=self.add_self_loops)
        first = not self.cached and self.out_channels < x.shape[1] and is_product(self.lin)
        rows = F.linear(x, self.lin.weight) if first else x
        out = rows * self.alpha
        for _ in range(self.K):
            rows = adjacency(rows)
            out = torch.add(out, rows, alpha=(1 - self.alpha) / self.K)
        if first:
            return _with_bias(out, self.lin.bias)
        if self.cached:
            self._cached_h = out
        return self.lin(out)  # type: ignore[no-any-return]


class TAGConv(Layer, pyg.TAGConv):  # type: ignore[misc]
    """PyG's ``TAGConv``. Where the products make rows narrower, the polynomial is evaluated by Horner's rule, of narrow rows.

    ``Y = Σ_k S^k X W_k + b``, k from 0 to K. ``S`` is ``D^-1/2 A D^-1/2``.
    """

    _aggregators = SUMS

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        adjacency = (normalized if self.normalize else weighted)(self, edge_index, edge_weight, x)
        if self.out_channels < x.shape[1] and all(is_product(lin) for lin in self.lins):
            out = self.lins[-1](x)
            for lin in list(self.lins)[-2::-1]:
                out = lin(x) + adjacency(out)
            return _with_bias(out, self.bias)
        out = self.lins[0](x)
        for lin in list(self.lins)[1:]:
            x = adjacency(x)
            out = out + lin(x)
        return _with_bias(out, self.bias)


class MixHopConv(Layer, pyg.MixHopConv):  # type: ignore[misc]
    """PyG's ``MixHopConv``.

    ``S^p X W_p`` for each power p, column by column next to one another. ``S`` is ``D^-1/2 (A + I) D^-1/2``.
    """

    _aggregators = SUMS

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        adjacency = normalized(self, edge_index, edge_weight, x, loops=self.add_self_loops)
        outs = [self.lins[0](x)]
        for lin in list(self.lins)[1:]:
            x = adjacency(x)
            outs.append(lin(x))
        return _with_bias(torch.cat([outs[power] for power in self.powers], dim=-1), self.bias)


class ChebConv(Layer, pyg.ChebConv):  # type: ignore[misc]
    """PyG's ``ChebConv``: the scaled Laplacian is the graph with loops, of which a weight an edge is kept with the graph.

    ``Y = Σ_k T_k(L) X W_k + b``, with Chebyshev's polynomials of the scaled Laplacian.
    """

    _aggregators = SUMS
    _matrices = False
    _traces = False
    _replaces = ("__norm__",)

    @by_operators
    def forward(
        self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None, batch: Tensor | None = None, lambda_max: Any = None
    ) -> Tensor:
        """As PyG's."""
        laplacian = self._laplacian(edge_index, edge_weight, x, batch, lambda_max)
        before, rows = x, x
        out = self.lins[0](x)
        for power, lin in enumerate(list(self.lins)[1:]):
            hop = laplacian(rows)
            # One rounding: twice a row may exceed a format of 16 bits.
            before, rows = rows, hop if power == 0 else torch.sub(before, hop, alpha=2.0).neg()
            out = out + lin(rows)
        return _with_bias(out, self.bias)

    def _laplacian(self, edge_index: Any, edge_weight: Tensor | None, x: Tensor, batch: Tensor | None, lambda_max: Any) -> Adjacency:
        graph, weight, *_ = weighted(self, edge_index, edge_weight, x)
        looped = graph._looped()[0]
        keeps = weight is None and not isinstance(lambda_max, Tensor)
        key = f"Laplacian {self.normalization} {lambda_max}"
        values = graph._cache.get(key) if keeps else None
        if values is None:
            # PyG's, in float: the edges that are no loops, and one loop at each vertex behind them.
            weight = None if weight is None else weight.float()
            lambda_max = lambda_max.float() if isinstance(lambda_max, Tensor) else lambda_max
            count = x.shape[0]
            values = self.__norm__(graph.edge_index, count, weight, self.normalization, lambda_max, dtype=torch.float32, batch=batch)[1]
            if keeps and not torch.compiler.is_compiling():
                graph._cache[key] = values
        return Adjacency(looped, values)


class ARMAConv(Layer, pyg.ARMAConv):  # type: ignore[misc]
    """PyG's ``ARMAConv``: the rows of all stacks lie side by side.

    The mean over the stacks of ``X' = act(S X W + X_0 V + b)``, layer by layer. ``S`` is
    ``D^-1/2 A D^-1/2``.
    """

    _aggregators = SUMS

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        adjacency = normalized(self, edge_index, edge_weight, x)
        out: Tensor = torch.einsum("nf,kfo->nko", x, self.init_weight)
        for layer in range(self.num_layers):
            at = 0 if self.shared_weights else layer
            if layer > 0:
                out = torch.einsum("nki,kio->nko", out, self.weight[0 if self.shared_weights else layer - 1])
            root = F.dropout(x, p=self.dropout, training=self.training)
            out = adjacency(out) + torch.einsum("nf,kfo->nko", root, self.root_weight[at])
            if self.bias is not None:
                out = out + self.bias[at, :, 0].to(out.dtype)
            if self.act is not None:
                out = self.act(out)
        return out.mean(dim=1)


class APPNP(Layer, pyg.APPNP):  # type: ignore[misc]
    """PyG's ``APPNP``.

    ``Z' = (1 - alpha) S Z + alpha X``, K times. It has no parameters. ``S`` is ``D^-1/2 (A + I) D^-1/2``.
    """

    _aggregators = SUMS

    def _not_these(self, *, edge_index: Any = None, edge_weight: Tensor | None = None, **given: Any) -> str | None:
        if not self.training or self.dropout <= 0.0:
            return None
        if torch.compiler.is_compiling():
            return "edges that are dropped are traced"
        unweighted = edge_weight is None and not is_matrix(edge_index) and not (isinstance(edge_index, Graph) and edge_index.weight is not None)
        return "edges are dropped that have no weights" if unweighted and not self.normalize else None

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        if self.normalize:
            adjacency = normalized(self, edge_index, edge_weight, x, loops=self.add_self_loops)
        else:
            adjacency = weighted(self, edge_index, edge_weight, x)
        rows = x
        for _ in range(self.K):
            if self.training:
                adjacency = adjacency.dropped(self.dropout)
            rows = torch.add((1 - self.alpha) * adjacency(rows), x, alpha=self.alpha)
        return rows


class GCN2Conv(Layer, pyg.GCN2Conv):  # type: ignore[misc]
    """PyG's ``GCN2Conv``.

    ``Y = P ((1 - beta) I + beta W)`` with ``P = (1 - alpha) S X + alpha X_0``. ``S`` is ``D^-1/2 (A + I) D^-1/2``.
    """

    _aggregators = SUMS
    _features = ("x", "x_0")

    @by_operators
    def forward(self, x: Tensor, x_0: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        if self.normalize:
            adjacency = normalized(self, edge_index, edge_weight, x, loops=self.add_self_loops)
        else:
            adjacency = weighted(self, edge_index, edge_weight, x)
        x = (1 - self.alpha) * adjacency(x)
        x_0 = self.alpha * x_0[: x.shape[0]]
        factors = {"beta": 1.0 - self.beta, "alpha": self.beta}
        if self.weight2 is None:
            x = x + x_0
            return torch.addmm(x, x, self.weight1, **factors)
        return torch.addmm(x, x, self.weight1, **factors) + torch.addmm(x_0, x_0, self.weight2, **factors)


class GatedGraphConv(Layer, pyg.GatedGraphConv):  # type: ignore[misc]
    """PyG's ``GatedGraphConv``.

    ``h' = GRU(Σ_j e[j, i] W_l h[j], h)``, layer by layer.
    """

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        missing = self.out_channels - x.shape[-1]
        if missing < 0:
            raise ValueError("The number of input channels is not allowed to be larger than the number of output channels")
        adjacency = weighted(self, edge_index, edge_weight, x)
        x = F.pad(x, (0, missing))
        for layer in range(self.num_layers):
            x = self.rnn(adjacency.aggregate(x @ self.weight[layer], self), x)
        return x


class SignedConv(Layer, pyg.SignedConv):  # type: ignore[misc]
    """PyG's ``SignedConv``.

    Means over positive and over negative edges, each next to the vertex's own features, with a product each.
    """

    _adjacencies = ("pos_edge_index", "neg_edge_index")
    _pairs = True
    _one_sided = False

    @by_operators
    def forward(self, x: Any, pos_edge_index: Any, neg_edge_index: Any) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        positive, negative = (unweighted(self, index, x) for index in (pos_edge_index, neg_edge_index))
        if self.first_aggr:
            received = positive.aggregate(source, self), negative.aggregate(source, self)
            own = destination, destination
        else:
            # Rows are what is positive and what is negative, side by side.
            width = self.in_channels
            by_positive, by_negative = positive.aggregate(source, self), negative.aggregate(source, self)
            friends, foes = (by_positive[:, :width], by_positive[:, width:]), (by_negative[:, :width], by_negative[:, width:])
            received = torch.cat([friends[0], foes[1]], dim=-1), torch.cat([friends[1], foes[0]], dim=-1)
            own = destination[:, :width], destination[:, width:]
        return torch.cat(
            [self.lin_pos_l(received[0]) + self.lin_pos_r(own[0]), self.lin_neg_l(received[1]) + self.lin_neg_r(own[1])], dim=-1
        )


class ClusterGCNConv(Layer, pyg.ClusterGCNConv):  # type: ignore[misc]
    """PyG's ``ClusterGCNConv``: a mean, and a part of the vertex itself.

    ``Y = (B + lambda diag(B)) X W_out + X W_root`` with ``B = (D + I)^-1 (A + I)``.
    """

    _aggregators = SUMS

    def _not_these(self, **given: Any) -> str | None:
        if is_matrix(given["edge_index"]) and not isinstance(given["edge_index"], Tensor):
            return "the adjacency is a SparseTensor"
        return None if self.add_self_loops else "the loops are those of the graph (add_self_loops=False)"

    @by_operators
    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """As PyG's."""
        adjacency = Adjacency(structure(self, edge_index, x, loops=True))
        out = adjacency(x, "mean")
        if self.diag_lambda != 0.0:
            out = out + x * (self.diag_lambda / adjacency.degrees()[:, None]).to(x.dtype)
        return self.lin_out(out) + self.lin_root(x)  # type: ignore[no-any-return]


class FAConv(Layer, pyg.FAConv):  # type: ignore[misc]
    """PyG's ``FAConv``: of an edge one number is stored.

    ``y[i] = eps x_0[i] + Σ_j tanh(a_l · x[j] + a_r · x[i]) x[j] / sqrt(d[i] d[j])``.
    """

    _aggregators = SUMS
    _features = ("x", "x_0")
    _traces = False

    def _not_these(
        self, *, edge_index: Any = None, edge_weight: Tensor | None = None, return_attention_weights: Any = None, **given: Any
    ) -> str | None:
        if return_attention_weights is not None:
            return "attention weights are returned"
        if self.normalize and edge_weight is not None:
            return "edge_weight is given as well as normalize=True"
        has_weights = edge_weight is not None or is_matrix(edge_index) or (isinstance(edge_index, Graph) and edge_index.weight is not None)
        return None if self.normalize or has_weights else "edges have no weights, and normalize=False"

    @by_operators
    def forward(
        self, x: Tensor, x_0: Tensor, edge_index: Any, edge_weight: Tensor | None = None, return_attention_weights: Any = None
    ) -> Any:
        """As PyG's."""
        if self.normalize:
            refuse_weights(self, edge_index)
            adjacency = normalized(self, edge_index, None, x, loops=self.add_self_loops)
        else:
            adjacency = weighted(self, edge_index, edge_weight, x)
        scores = edge_sums(adjacency.graph, self.att_r(x), self.att_l(x)).tanh().squeeze(-1)
        scores = F.dropout(scores, p=self.dropout, training=self.training)
        out = adjacency(x, weight=scores if adjacency.weight is None else scores * adjacency.weight)
        return out if self.eps == 0.0 else torch.add(out, x_0, alpha=self.eps)


class LabelPropagation(Layer, pyg.LabelPropagation):  # type: ignore[misc]
    """PyG's ``LabelPropagation``.

    ``Y' = alpha S Y + (1 - alpha) Y_0``, layer by layer. It has no parameters. ``S`` is ``D^-1/2 A D^-1/2``.
    """

    _aggregators = SUMS
    _features = ("y",)

    def _features_of(self, given: dict[str, Any]) -> list[Any]:
        # Classes are made into features.
        return [] if _are_classes(given["y"]) else [given["y"]]

    @torch.no_grad()
    @by_operators
    def forward(
        self, y: Tensor, edge_index: Any, mask: Tensor | None = None, edge_weight: Tensor | None = None, post_step: Any = None
    ) -> Tensor:
        """As PyG's."""
        if _are_classes(y):
            y = one_hot(y.view(-1))
        out = y
        if mask is not None:
            out = torch.zeros_like(y)
            out[mask] = y[mask]
        adjacency = (normalized if _has_no_weights(edge_index, edge_weight) else weighted)(self, edge_index, edge_weight, y)
        own = (1 - self.alpha) * out
        for _ in range(self.num_layers):
            out = torch.add(own, adjacency(out), alpha=self.alpha)
            out = out.clamp_(0.0, 1.0) if post_step is None else post_step(out)
        return out


def _are_classes(y: Any) -> bool:
    return isinstance(y, Tensor) and y.dtype == torch.long and y.shape[0] == y.numel()


def _has_no_weights(edge_index: Any, edge_weight: Tensor | None) -> bool:
    """Whether PyG's label propagation normalizes: a sparse tensor of torch's, whatever its values are, and edges without weights."""
    if isinstance(edge_index, Graph):
        return edge_weight is None and edge_index.weight is None
    if is_matrix(edge_index) and not isinstance(edge_index, Tensor):
        return not edge_index.has_value()
    return edge_weight is None


class HypergraphConv(Layer, pyg.HypergraphConv):  # type: ignore[misc]
    """PyG's ``HypergraphConv``: a mean over vertices, and a mean over hyperedges, along the same edges.

    ``Y = D^-1 H W B^-1 H^T X Θ``, with the incidence ``H`` and the degrees of vertices and hyperedges.
    """

    _aggregators = SUMS
    _adjacencies = ("hyperedge_index",)
    _matrices = False
    _traces = False
    _traces_graphs = False

    def _not_these(self, *, hyperedge_weight: Tensor | None = None, hyperedge_attr: Tensor | None = None, **given: Any) -> str | None:
        if hyperedge_weight is not None and hyperedge_weight.dtype == torch.float64:
            return "hyperedge_weight is torch.float64"
        return "there are no features of hyperedges to attend to" if self.use_attention and hyperedge_attr is None else None

    @by_operators
    def forward(
        self,
        x: Tensor,
        hyperedge_index: Any,
        hyperedge_weight: Tensor | None = None,
        hyperedge_attr: Tensor | None = None,
        num_edges: int | None = None,
    ) -> Tensor:
        """As PyG's."""
        graph = self._graph(hyperedge_index, x, num_edges)
        back = graph._turned()
        rows = self.lin(x).view(-1, self.heads, self.out_channels)
        alpha = None
        if self.use_attention:
            edges = self.lin(hyperedge_attr)[: graph.num_dst].view(-1, self.heads, self.out_channels)
            of_vertex, of_edge = self.att.chunk(2, dim=-1)
            scores = edge_sums(graph, (edges * of_edge).sum(-1, dtype=torch.float32), (rows * of_vertex).sum(-1, dtype=torch.float32))
            scores = F.leaky_relu(scores, self.negative_slope)
            alpha = edge_softmax(graph if self.attention_mode == "node" else back, scores)
            alpha = F.dropout(alpha, p=self.dropout, training=self.training)
        out = Adjacency(graph, alpha)(rows, "mean")
        if hyperedge_weight is None:
            out = Adjacency(back, alpha)(out, "mean")
        else:
            sums = Adjacency(back)(hyperedge_weight.float()[: graph.num_dst, None])[:, :, None]
            factors = sums.reciprocal().masked_fill(sums == 0, 0.0)
            out = (_in_float(Adjacency(back, alpha), out) * factors).to(out.dtype)
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        return _with_bias(out, self.bias)

    def _graph(self, index: Any, x: Tensor, num_edges: int | None) -> Graph:
        """From vertices to hyperedges."""
        if isinstance(index, Tensor) and num_edges is None:

            def make() -> Graph:
                return Graph(index, size=(x.shape[0], int(index[1].max()) + 1 if index.numel() else 0))

            return kept_graph(index, (index,), (x.shape[0], None), make)
        if num_edges is None:
            num_edges = index.num_dst if isinstance(index, Graph) else int(torch.as_tensor(index[1]).max()) + 1
        graph = graph_of(index, (x.shape[0], num_edges), x.device)
        refuse_weights(self, graph)
        return graph


class PDNConv(Layer, pyg.PDNConv):  # type: ignore[misc]
    """PyG's ``PDNConv``.

    GCN with weights that an MLP makes of the features of edges.
    """

    _aggregators = SUMS
    # PyG's leaves the features of edges out of a matrix.
    _matrices = False

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        """As PyG's."""
        refuse_weights(self, edge_index)
        weight = None if edge_attr is None else self.mlp(edge_attr).squeeze(-1)
        if self.normalize:
            adjacency = normalized(self, edge_index, weight, x, loops=self.add_self_loops)
        else:
            adjacency = weighted(self, edge_index, weight, x)
        return adjacency(self.lin(x), bias=self.bias)


class MFConv(Layer, pyg.MFConv):  # type: ignore[misc]
    """PyG's ``MFConv``.

    ``y[i] = W_l Σ_j x[j] + W_r x[i] + b``, with matrices for each degree.
    """

    _pairs = True
    _matrices = False
    _traces = False

    @by_operators
    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        adjacency = unweighted(self, edge_index, x, size)
        rows = adjacency.aggregate(source, self)
        degrees = adjacency.graph.in_degrees().clamp(max=self.max_degree)
        out = rows.new_empty((rows.shape[0], self.out_channels))
        for degree, (of_source, of_destination) in enumerate(zip(self.lins_l, self.lins_r)):
            at = (degrees == degree).nonzero().view(-1)
            part = of_source(rows.index_select(0, at))
            if destination is not None:
                part = part + of_destination(destination.index_select(0, at))
            out = out.index_copy(0, at, part.to(out.dtype))
        return out


class FeaStConv(Layer, pyg.FeaStConv):  # type: ignore[misc]
    """PyG's ``FeaStConv``: of an edge a number a head is stored.

    ``y[i] = mean_j Σ_h softmax_h(u_h · (x[j] - x[i]) + c_h) W_h x[j] + b``.
    """

    _pairs = True
    _one_sided = False
    _aggregators = LINEAR
    _traces = False

    @by_operators
    def forward(self, x: Any, edge_index: Any) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x, loops=self.add_self_loops)
        shares = edge_sums(graph, self.c.float() - self.u(destination).float(), self.u(source)).softmax(dim=-1)
        rows = self.lin(source).view(-1, self.heads, self.out_channels)
        out = _in_float(Adjacency(graph), rows, self.aggr, shares).sum(dim=1).to(rows.dtype)
        return _with_bias(out, self.bias)


class EGConv(Layer, pyg.EGConv):  # type: ignore[misc]
    """PyG's ``EGConv``: reductions of the bases, one after the other.

    ``y[i, h] = Σ_b w[i, h, b] aggr_j W_b x[j] + b``, with weights ``w`` that are a product of ``x[i]``.
    """

    # The layer's own.
    _aggregators = ()
    _traces = False
    _traces_graphs = False

    def _not_these(self, *, edge_index: Any = None, **given: Any) -> str | None:
        if is_matrix(edge_index) and self.aggregators != ["symnorm"]:
            return "a sparse matrix has aggregators besides symnorm"
        return None

    @by_operators
    def forward(self, x: Tensor, edge_index: Any) -> Tensor:
        """As PyG's."""
        adjacency = self._adjacency(edge_index, x)
        plain = Adjacency(adjacency.graph)
        bases = self.bases_lin(x)
        outs = [adjacency(bases) if name == "symnorm" else self._reduced(plain, bases, name) for name in self.aggregators]
        aggregated = torch.stack(outs, dim=1).view(-1, len(outs) * self.num_bases, self.out_channels // self.num_heads)
        shares = self.comb_lin(x).view(-1, self.num_heads, self.num_bases * len(outs))
        return _with_bias((shares @ aggregated).view(-1, self.out_channels), self.bias)

    @staticmethod
    def _reduced(adjacency: Adjacency, bases: Tensor, name: str) -> Tensor:
        # PyG's standard deviation here is never 0.
        return adjacency.variance(bases).clamp(min=1e-5).sqrt().to(bases.dtype) if name == "std" else adjacency(bases, name)

    def _adjacency(self, edge_index: Any, x: Tensor) -> Adjacency:
        refuse_weights(self, edge_index)
        if "symnorm" in self.aggregators:
            return normalized(self, edge_index, None, x, loops=self.add_self_loops)
        if self.cached and self._cached_graph is None and self._cached_edge_index is not None:  # type: ignore[has-type]
            # What PyG's layer kept before it was replaced.
            self._cached_graph = Adjacency(Graph(self._cached_edge_index[0], x.shape[0]))  # type: ignore[has-type]
        if self.cached and self._cached_graph is not None:
            return self._cached_graph  # type: ignore[no-any-return]
        found = Adjacency(structure(self, edge_index, x))
        if self.add_self_loops:
            graph = found.graph
            looped = graph._cache.get("loops of ids")
            if looped is None:
                # As PyG's here: vertices behind the largest id have none.
                index = graph.edge_index
                count = int(index.max()) + 1 if index.numel() else 0
                looped = Graph(graph._kind().loops(index, count)[0], x.shape[0])
                graph._cache["loops of ids"] = looped
            found = Adjacency(looped)
        if self.cached:
            self._cached_graph = found
            self._cached_edge_index = found.graph.edge_index, None
        return found


class PNAConv(Layer, pyg.PNAConv):  # type: ignore[misc]
    """PyG's ``PNAConv`` of one layer before the aggregation: its product of both ends is a row of each, so that edges have none.

    Several aggregators of the messages, each times scalers of the degree, and a product of ``x[i]`` and all of
    them.
    """

    # The layer's own.
    _aggregators = ()
    _traces = False

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        if layer.edge_dim is not None:
            return "edges have features (edge_dim)"
        if type(layer.aggr_module) is not pyg.DegreeScalerAggregation or is_observed(layer.aggr_module):
            return "the aggregator's module is the user's own or has hooks"
        several = layer.aggr_module.aggr
        reason = other_modules(several, [_name_of(each) for each in several.aggrs])
        if reason is not None:
            return reason
        if any(len(network) != 1 for network in layer.pre_nns):
            return "there are several layers before the aggregation (pre_layers)"
        observed = any(is_observed(network) or not is_product(network[0]) for network in layer.pre_nns)
        return "the products before the aggregation have hooks" if observed else None

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        return None if edge_attr is None else "edges have features"

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        """As PyG's."""
        adjacency = Adjacency(structure(self, edge_index, x))
        rows = x.view(-1, self.towers, self.F_in) if self.divide_input else x[:, None].expand(-1, self.towers, -1)
        own, other = (self._of_ends(rows, end) for end in (0, 1))
        degrees = adjacency.degrees()[:, None]
        parts = []
        for name in [reduction_of(each) for each in self.aggr_module.aggr.aggrs]:
            part = adjacency(other, name)
            if name not in ("var", "std"):
                # The destination's own part: of every edge in a sum, once in a mean or an extreme, and of no edge nothing.
                part = (part + own * (degrees if name in SUMS else degrees.clamp(max=1.0))).to(own.dtype)
            parts.append(part)
        out = torch.stack(parts, dim=1).view(-1, len(parts), self.towers, self.F_in).transpose(1, 2).flatten(2)
        scaled = [out * factor.to(out.dtype) for factor in self._scales(degrees[:, :, None])]
        out = torch.cat([rows, *scaled], dim=-1)
        return self.lin(torch.cat([network(out[:, tower]) for tower, network in enumerate(self.post_nns)], dim=1))  # type: ignore[no-any-return]

    def _of_ends(self, rows: Tensor, end: int) -> Tensor:
        """What the products make of one end of an edge, of all towers side by side; the bias goes with the destination's."""
        parts = []
        for tower, (product,) in enumerate(self.pre_nns):
            weight = product.weight[:, end * self.F_in : (end + 1) * self.F_in]
            parts.append(F.linear(rows[:, tower], weight, product.bias if end == 0 else None))
        return torch.cat(parts, dim=1)

    def _scales(self, degrees: Tensor) -> list[Tensor]:
        module = self.aggr_module
        logarithm, least = (degrees + 1).log(), degrees.clamp(min=1.0)
        scales = {
            "identity": torch.ones_like(degrees),
            "amplification": logarithm / module.avg_deg_log,
            "attenuation": module.avg_deg_log / (least + 1).log(),
            "linear": degrees / module.avg_deg_lin,
            "inverse_linear": module.avg_deg_lin / least,
        }
        return [scales[name] for name in module.scaler]


def _name_of(module: Any) -> str:
    """The name of an aggregator of PyG's, or of its class where halfgnn has none."""
    try:
        return reduction_of(module)
    except StopIteration:
        return type(module).__name__


class GMMConv(Layer, pyg.GMMConv):  # type: ignore[misc]
    """PyG's ``GMMConv`` whose kernels are shared: of an edge a number a kernel is stored.

    ``y[i] = mean_j 1 / K Σ_k w_k(e[j, i]) W_k x[j]``, with Gaussians ``w_k`` of the features of edges.
    """

    _aggregators = LINEAR
    _pairs = True
    _matrices = False
    _traces = False

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        return "each input has its own kernels (separate_gaussians)" if layer.separate_gaussians else None

    def _not_these(self, *, edge_attr: Tensor | None = None, **given: Any) -> str | None:
        return "edges have no coordinates" if edge_attr is None else None

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        adjacency = unweighted(self, edge_index, x, size)
        assert edge_attr is not None
        offsets = edge_attr.float()[:, None] - self.mu.float()
        kernels = (-0.5 * offsets.square() / (1e-15 + self.sigma.float().square())).sum(dim=-1).exp()
        rows = (source @ self.g).view(-1, self.kernel_size, self.out_channels)
        out = _in_float(adjacency, rows, self.aggr, kernels).sum(dim=1).to(rows.dtype)
        if destination is not None and self.root_weight:
            out = out + self.root(destination)
        return _with_bias(out, self.bias)


class DNAConv(Layer, pyg.DNAConv):  # type: ignore[misc]
    """PyG's ``DNAConv``: of an edge a number a head and earlier layer is stored.

    Each destination attends to the earlier layers' outputs of each source. Then GCN's sum follows.
    """

    _aggregators = SUMS
    _traces = False

    def _features_of(self, given: dict[str, Any]) -> list[Any]:
        x = given["x"]
        return [x.flatten(1) if isinstance(x, Tensor) and x.ndim == 3 else x]

    def _not_these(self, *, x: Any = None, **given: Any) -> str | None:
        if x.ndim != 3:
            return f"features have {x.ndim} dimensions"
        return "its attention has hooks" if is_observed(self.multi_head) else None

    @by_operators
    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's."""
        if self.normalize:
            adjacency = normalized(self, edge_index, edge_weight, x, loops=self.add_self_loops)
        else:
            adjacency = weighted(self, edge_index, edge_weight, x)
        many = self.multi_head
        count, layers, heads = x.shape[0], x.shape[1], many.heads
        width = many.out_channels // heads
        query = many.lin_q(x[:, -1:]).view(count, 1, heads, width)
        key, value = (lin(x).view(count, layers * heads, width) for lin in (many.lin_k, many.lin_v))
        scores = edge_dots(adjacency.graph, query.expand(-1, layers, -1, -1).reshape(count, layers * heads, width), key)
        scores = scores.view(-1, layers, heads) / width**0.5
        # The softmax over layers has a further term of score 0.
        largest = scores.amax(dim=1, keepdim=True).clamp(min=0.0)
        scores = (scores - largest).exp()
        scores = scores / (scores.sum(dim=1, keepdim=True) + (-largest).exp())
        scores = F.dropout(scores, p=many.dropout, training=many.training)
        weights = scores.flatten(1) * adjacency.edge_weights()[:, None]
        out = _in_float(Adjacency(adjacency.graph), value, "sum", weights)
        return out.view(count, layers, many.out_channels).sum(dim=1).to(x.dtype)
