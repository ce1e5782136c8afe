"""GraphConv, SAGEConv, GINConv and GATConv."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .._cached import graph_of
from .._networks import isomorphism
from ..graph import Graph
from ..ops import _on, gat_attention, scaled_spmm, spmm

Activation = Callable[[Tensor], Tensor]


def _graph(graph: Any, device: torch.device) -> Graph:
    if isinstance(graph, Graph):
        return graph
    return _made(graph, device)  # type: ignore[no-any-return]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _made(graph: Any, device: torch.device) -> Graph:
    source, destination = graph.edges(order="eid")
    size = (int(graph.num_src_nodes()), int(graph.num_dst_nodes()))
    # DGL's graphs may be given more edges in place.
    return graph_of(graph, (source, destination), (*size, device), lambda: Graph((source, destination), size=size).to(device))


def _pair(graph: Graph, feat: Any) -> tuple[Tensor, Tensor]:
    """Features of sources and of destinations: of a block, whose destinations are the first sources, one tensor will do."""
    if isinstance(feat, tuple):
        return feat
    return feat, feat[: graph.num_dst] if graph.num_dst < feat.shape[0] else feat


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight``, each read in its own format, in that of ``x``."""
    if x.dtype == weight.dtype:
        return x @ weight
    common = torch.promote_types(x.dtype, weight.dtype)
    return (x.to(common) @ weight.to(common)).to(x.dtype)


def _check_degrees(layer: str, graph: Graph, allowed: bool) -> None:
    """As DGL refuses vertices without in-neighbors."""
    if allowed or torch.compiler.is_compiling():
        return
    lonely = graph._cache.get("lonely")
    if lonely is None:
        lonely = graph._cache["lonely"] = bool((graph.in_degrees() == 0).any())
    if lonely:
        raise ValueError(
            f"{layer}: some vertices have no edge that arrives, so that their outputs are zero; add self-loops "
            "(graph.with_self_loops()), or set allow_zero_in_degree=True"
        )


class GraphConv(nn.Module):
    """DGL's ``GraphConv``: ``y[i] = b + Σ_j e[j, i] x[j] W / sqrt(d[i] d[j])``.

    Args:
        in_feats: features of a source.
        out_feats: features of a result.
        norm: ``both`` as in the formula; ``right`` divides by ``d[i]`` alone, ``left`` by ``d[j]`` alone, ``none`` by nothing.
        weight: whether there is a ``W``.
        bias: whether there is a ``b``.
        activation: a function of the result.
        allow_zero_in_degree: whether vertices without in-neighbors are allowed.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> halfgnn.dgl.GraphConv(8, 4)(graph, torch.ones(3, 8)).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        norm: str = "both",
        weight: bool = True,
        bias: bool = True,
        activation: Activation | None = None,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        if norm not in ("none", "both", "right", "left"):
            raise ValueError(f"GraphConv: norm should be none, both, right or left, is {norm!r}")
        self._in_feats, self._out_feats, self._norm = in_feats, out_feats, norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.weight = nn.Parameter(torch.empty(in_feats, out_feats)) if weight else None
        self.bias = nn.Parameter(torch.empty(out_feats)) if bias else None
        self._activation = activation
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's weights, no bias."""
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Whether vertices without in-neighbors are allowed."""
        self._allow_zero_in_degree = set_value

    def forward(self, graph: Any, feat: Any, weight: Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        """As DGL's layer, of a :class:`halfgnn.Graph` or a DGL graph."""
        source = feat[0] if isinstance(feat, tuple) else feat
        graph = _graph(graph, source.device)
        _check_degrees("GraphConv", graph, self._allow_zero_in_degree)
        if weight is not None and self.weight is not None:
            raise ValueError("GraphConv: a weight is given and the layer has its own; build it with weight=False")
        weight = self.weight if weight is None else weight
        options: dict[str, Any] = {"norm": self._norm}
        if weight is not None and self._in_feats > self._out_feats:
            options["bias"] = self.bias
            out = spmm(graph, _product(source, weight), edge_weight, **options)
        else:
            out = spmm(graph, source, edge_weight, **options)
            out = out if weight is None else _product(out, weight)
            out = out if self.bias is None else (out + self.bias).to(out.dtype)
        return out if self._activation is None else self._activation(out)


class SAGEConv(nn.Module):
    """DGL's ``SAGEConv``: ``y[i] = W_self x[i] + W_neigh aggr_j x[j] + b``.

    Args:
        in_feats: features of a vertex, or a pair: of a source and of a destination.
        out_feats: features of a result.
        aggregator_type: ``mean``; ``gcn``, a mean over the vertex itself as well, without ``W_self``; or ``pool``, a maximum of
            ``relu(W_pool x[j] + b)``. DGL's ``lstm`` is refused.
        feat_drop: probability that a feature is dropped.
        bias: whether there is a ``b``.
        norm: a function of the result, behind the activation.
        activation: a function of the result.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> halfgnn.dgl.SAGEConv(8, 4, "mean")(graph, torch.ones(3, 8)).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        in_feats: Any,
        out_feats: int,
        aggregator_type: str,
        feat_drop: float = 0.0,
        bias: bool = True,
        norm: Callable[[Tensor], Tensor] | None = None,
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        if aggregator_type not in ("mean", "gcn", "pool"):
            raise ValueError(f"SAGEConv: aggregator_type should be mean, gcn or pool, is {aggregator_type!r}; take DGL's own")
        source, destination = in_feats if isinstance(in_feats, tuple) else (in_feats, in_feats)
        self._in_src_feats, self._in_dst_feats, self._out_feats = source, destination, out_feats
        self._aggre_type, self.norm, self.activation = aggregator_type, norm, activation
        self.feat_drop = nn.Dropout(feat_drop)
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(source, source)
        if aggregator_type != "gcn":
            self.fc_self = nn.Linear(destination, out_feats, bias=bias)
        elif bias:
            self.bias = nn.Parameter(torch.zeros(out_feats))
        else:
            self.register_buffer("bias", None)
        self.fc_neigh = nn.Linear(source, out_feats, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's weights, for a ReLU behind them."""
        gain = nn.init.calculate_gain("relu")
        for name in ("fc_pool", "fc_self", "fc_neigh"):
            layer = getattr(self, name, None)
            if layer is not None:
                nn.init.xavier_uniform_(layer.weight, gain=gain)

    def forward(self, graph: Any, feat: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As DGL's layer, of a :class:`halfgnn.Graph` or a DGL graph."""
        first = feat[0] if isinstance(feat, tuple) else feat
        graph = _graph(graph, first.device)
        source, destination = _pair(graph, feat)
        dropped = self.feat_drop(source)
        # DGL drops the two apart where they are two.
        destination = dropped[: len(destination)] if not isinstance(feat, tuple) else self.feat_drop(destination)
        source = dropped
        if self._aggre_type == "mean":
            narrow = self._in_src_feats > self._out_feats
            aggregated = spmm(graph, self.fc_neigh(source) if narrow else source, edge_weight, reduce="mean")
            out = self.fc_self(destination) + (aggregated if narrow else self.fc_neigh(aggregated))
        elif self._aggre_type == "gcn":
            narrow = self._in_src_feats > self._out_feats
            source, own = (self.fc_neigh(source), self.fc_neigh(destination)) if narrow else (source, destination)
            # Factors go with the sum, which alone may be more than its format holds.
            graph = _on(graph, source)
            factors = 1 / (graph.in_degrees() + 1).float()
            weight = graph.weight if edge_weight is None else edge_weight
            aggregated = scaled_spmm(graph, source, weight, (factors, None))
            out = (aggregated + factors[:, None] * own).to(aggregated.dtype)
            out = out if narrow else self.fc_neigh(out)
            out = out if self.bias is None else (out + self.bias).to(out.dtype)
        else:
            aggregated = spmm(graph, self.fc_pool(source).relu(), edge_weight, reduce="max")
            out = self.fc_self(destination) + self.fc_neigh(aggregated)
        out = out if self.activation is None else self.activation(out)
        return out if self.norm is None else self.norm(out)


class GINConv(nn.Module):
    """DGL's ``GINConv``: ``y[i] = f((1 + eps) x[i] + Σ_j e[j, i] x[j])``.

    Where ``apply_func`` begins with a product that makes rows narrower, the product comes before the sum.

    Args:
        apply_func: ``f``, a module; by default nothing.
        aggregator_type: ``sum``, ``mean`` or ``max``.
        init_eps: ``eps`` at the beginning.
        learn_eps: whether ``eps`` is a parameter.
        activation: a function of the result.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> halfgnn.dgl.GINConv(torch.nn.Linear(8, 4))(graph, torch.ones(3, 8)).shape
    torch.Size([3, 4])
    """

    eps: Tensor

    def __init__(
        self,
        apply_func: Callable[[Tensor], Tensor] | None = None,
        aggregator_type: str = "sum",
        init_eps: float = 0.0,
        learn_eps: bool = False,
        activation: Activation | None = None,
    ) -> None:
        super().__init__()
        if aggregator_type not in ("sum", "max", "mean"):
            raise ValueError(f"GINConv: aggregator_type should be sum, max or mean, is {aggregator_type!r}")
        self.apply_func, self._aggregator_type, self.activation = apply_func, aggregator_type, activation
        eps = torch.tensor([float(init_eps)])
        if learn_eps:
            self.eps = nn.Parameter(eps)
        else:
            self.register_buffer("eps", eps)

    def forward(self, graph: Any, feat: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As DGL's layer, of a :class:`halfgnn.Graph` or a DGL graph."""
        first = feat[0] if isinstance(feat, tuple) else feat
        graph = _graph(graph, first.device)
        source, destination = _pair(graph, feat)
        reduce: Any = self._aggregator_type
        out = isomorphism(
            self.apply_func,
            lambda rows, bias, own: spmm(graph, rows, edge_weight, reduce=reduce, bias=bias, epsilon=own),
            source,
            destination,
            self.eps,
            linear=reduce != "max",
        )
        return out if self.activation is None else self.activation(out)


class GATConv(nn.Module):
    """DGL's ``GATConv``, without an array of edges in either pass.

    ``y[i] = Σ_j softmax_j(LeakyReLU(a_l · W x[j] + a_r · W x[i])) W x[j] + b``, head by head: destinations × heads × ``out_feats``.

    Args:
        in_feats: features of a vertex, or a pair: of a source and of a destination.
        out_feats: features of a head of the result.
        num_heads: number of heads.
        feat_drop: probability that a feature is dropped.
        attn_drop: probability that a weight is dropped.
        negative_slope: of the LeakyReLU below zero.
        residual: whether ``x[i]``, or a product of it, is added.
        activation: a function of the result.
        allow_zero_in_degree: whether vertices without in-neighbors are allowed.
        bias: whether there is a ``b``.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> halfgnn.dgl.GATConv(8, 4, num_heads=2)(graph, torch.ones(3, 8)).shape
    torch.Size([3, 2, 4])
    """

    def __init__(
        self,
        in_feats: Any,
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = False,
        activation: Activation | None = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        source, destination = in_feats if isinstance(in_feats, tuple) else (in_feats, in_feats)
        self._num_heads, self._out_feats, self._negative_slope = num_heads, out_feats, negative_slope
        self._allow_zero_in_degree, self._attn_drop = allow_zero_in_degree, attn_drop
        width = num_heads * out_feats
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(source, width, bias=False)
            self.fc_dst = nn.Linear(destination, width, bias=False)
        else:
            self.fc = nn.Linear(source, width, bias=False)
        self.attn_l = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.attn_r = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.feat_drop = nn.Dropout(feat_drop)
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None
        self.res_fc: nn.Module | None = None
        if residual:
            self.res_fc = nn.Identity() if destination == width else nn.Linear(destination, width, bias=False)
        self.activation = activation
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's weights, for a ReLU behind them, no bias."""
        gain = nn.init.calculate_gain("relu")
        layers = [getattr(self, name, None) for name in ("fc", "fc_src", "fc_dst", "res_fc")]
        for layer in layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight, gain=gain)
        nn.init.xavier_normal_(self.attn_l, gain=gain)
        nn.init.xavier_normal_(self.attn_r, gain=gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Whether vertices without in-neighbors are allowed."""
        self._allow_zero_in_degree = set_value

    def forward(self, graph: Any, feat: Any, edge_weight: Tensor | None = None, get_attention: bool = False) -> Tensor:
        """As DGL's, but for edge weights and returned attention."""
        if edge_weight is not None or get_attention:
            raise ValueError("GATConv: edge weights and returned attention want arrays of edges, which are not made; take DGL's own")
        first = feat[0] if isinstance(feat, tuple) else feat
        graph = _graph(graph, first.device).unweighted()
        _check_degrees("GATConv", graph, self._allow_zero_in_degree)
        apart = isinstance(feat, tuple)
        source, destination = _pair(graph, feat)
        source = self.feat_drop(source)
        destination = self.feat_drop(destination) if apart else source[: graph.num_dst]
        if hasattr(self, "fc"):
            h = self.fc(source)
            h_dst = self.fc(destination) if apart else None
        else:
            h, h_dst = self.fc_src(source), self.fc_dst(destination)
        out = gat_attention(
            graph,
            h,
            self.attn_l,
            self.attn_r,
            heads=self._num_heads,
            negative_slope=self._negative_slope,
            dropout=self._attn_drop if self.training else 0.0,
            h_dst=h_dst,
        )
        if self.res_fc is not None:
            out = out + self.res_fc(destination)
        out = out if self.bias is None else (out + self.bias).to(out.dtype)
        out = out.view(-1, self._num_heads, self._out_feats)
        return out if self.activation is None else self.activation(out)
