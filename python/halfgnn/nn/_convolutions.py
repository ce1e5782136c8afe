"""GCN, GraphSAGE, GIN, GAT and GATv2."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.inspector import Inspector
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from .._networks import LINEARS, isomorphism, plain_linear
from .._tensors import neutral
from ..graph import Graph
from ..ops import gat_attention, gatv2_attention, scaled_spmm, spmm
from ._common import Matrix, fall_back, graph_of, is_compiling, is_matrix, own_passing, refused, sizes, to_pyg, unsupported
from ._traced import Edges

_SUMS = ("add", "sum")
_LINEARS = (*LINEARS, pyg.Linear)
_ATTENTION = (pyg.GATConv, pyg.GATv2Conv)


class _Layer:
    """What the layers have in common: a class of PyG's that they derive from, which does what they cannot."""

    #: PyG's class.
    _pyg: Any
    #: Aggregators that halfgnn has for the layer.
    _aggregators: tuple[str, ...] = (*_SUMS, "mean", "max")

    # Typed by a comment: TorchScript reads annotations of classes.
    _own_passing = None  # type: str | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._own_passing = own_passing(cls)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        # PyG writes a `propagate` for each class of layers, from comments in its forward pass. A user's class needs its own.
        _template(self._pyg)
        if _is_users(type(self)):
            # An inspector knows sources by the names of classes, and halfgnn's have the names of PyG's.
            inspector = self.inspector  # type: ignore[attr-defined]
            for each in type(self).__mro__:
                if each.__module__.startswith("halfgnn.") or each is self._pyg:
                    inspector._source_dict[each.__name__] = inspect.getsource(self._pyg)
            super()._set_jittable_templates(raise_on_error)  # type: ignore[misc]

    def _unsupported(self) -> str | None:
        return unsupported(self, self._pyg, self._aggregators)

    def _refused(self, adjacency: Any, *features: Any, sparse: bool = False) -> str | None:
        return self._unsupported() or refused(adjacency, *features, sparse=sparse)

    def __prepare_scriptable__(self) -> Any:
        """The layer as TorchScript compiles it: with PyG's forward pass, and the same parameters."""
        kind: Any = type(self)
        if not _compiles(self._pyg):
            raise NotImplementedError(
                f"{kind.__name__}: PyG's layer does not compile in TorchScript here; take torch.export.export, or torch.jit.trace"
            )
        fall_back(self, "TorchScript has torch's own operators")
        scripted: Any = object.__new__(_scriptable(kind))
        scripted.__dict__ = self.__dict__
        return scripted


@functools.lru_cache(maxsize=None)
def _template(kind: Any) -> None:
    """Has PyG write the ``propagate`` of its class, as the first layer of that class would."""
    layer = object.__new__(kind)
    inspector = Inspector(kind)
    inspector.inspect_signature(kind.message)
    inspector.inspect_signature(kind.aggregate, exclude=[0, "aggr"])
    inspector.inspect_signature(kind.message_and_aggregate, [0])
    inspector.inspect_signature(kind.update, exclude=[0])
    inspector.inspect_signature(kind.edge_update)
    layer.__dict__.update(inspector=inspector, fuse=inspector.implements("message_and_aggregate"))
    layer._set_jittable_templates()


@functools.lru_cache(maxsize=None)
def _compiles(kind: Any) -> bool:
    """Whether PyG's own layers of attention compile in TorchScript, which depends on the versions of PyG and torch."""
    if kind not in _ATTENTION:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.script(kind(1, 1))
    except RuntimeError:
        return False
    return True


def _is_users(kind: type) -> bool:
    return not kind.__module__.startswith("halfgnn.")


@functools.lru_cache(maxsize=None)
def _scriptable(kind: Any) -> Any:
    """The class of a layer while TorchScript compiles it. TorchScript leaves such a layer in the model, so that the first call or copy of
    it makes it a layer of ``kind`` again."""
    ours = next(each for each in kind.__mro__ if not _is_users(each))

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        self.__class__ = kind
        return self(*arguments, **named)

    def reduce(self: Any, protocol: Any) -> Any:
        self.__class__ = kind
        return self.__reduce_ex__(protocol)

    members: dict[str, Any] = {"__call__": call, "__reduce_ex__": reduce}
    if kind.forward is not ours.forward:
        return type(kind.__name__, (kind,), {**members, "__module__": kind.__module__})
    # TorchScript looks for overloads of PyG's forward pass in the source of a class of that name.
    theirs = ours._pyg
    members.update(__module__=theirs.__module__, __annotations__=dict(theirs.__annotations__), forward=theirs.forward)
    return type(theirs.__name__, (kind,), members)


def _pair(x: Any) -> tuple[Any, Any]:
    return (x[0], x[1]) if isinstance(x, (tuple, list)) else (x, x)


def _adjacency(layer: object, edge_index: Any, pair: Any, size: Any = None) -> tuple[Any, Tensor | None]:
    """The graph of a layer that takes no weights of edges, and the values of a sparse tensor, which PyG's take as weights."""
    between = sizes(pair, edge_index, size)
    if isinstance(edge_index, Tensor) and edge_index.layout == torch.strided and is_compiling():
        return Edges(edge_index, *between), None
    if is_matrix(edge_index):
        matrix = Matrix(edge_index)
        return matrix.graph(), matrix.weight() if isinstance(edge_index, Tensor) else None
    graph = graph_of(edge_index, between, pair[0].device)
    if graph.weight is not None:
        raise ValueError(f"{type(layer).__name__}: the graph has weights, which it does not use; pass graph.unweighted()")
    return graph, None


def _aggregate(graph: Any, weight: Tensor | None, rows: Tensor, **options: Any) -> Tensor:
    if isinstance(graph, Edges):
        return graph.spmm(rows, **options)
    if weight is not None:
        options["weight"] = weight
    return spmm(graph, rows, **options)  # type: ignore[no-any-return]


def _reduction(layer: Any) -> Any:
    return "sum" if layer.aggr == "add" else layer.aggr


class GCNConv(_Layer, pyg.GCNConv):  # type: ignore[misc]
    """PyG's ``GCNConv``: degrees, aggregation and bias are one operator, and no matrix of edges is made."""

    _pyg = pyg.GCNConv
    _aggregators = _SUMS
    # Typed by a comment: TorchScript reads annotations of classes.
    _cached_graph = None  # type: Any

    def reset_parameters(self) -> None:
        """As PyG's."""
        super().reset_parameters()
        self._cached_graph = None

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """As PyG's. A graph's own weights are used unless others are given."""
        if isinstance(x, (tuple, list)):
            return super().forward(x, edge_index, edge_weight)
        if edge_weight is not None and not isinstance(edge_weight, Tensor):
            edge_weight = torch.as_tensor(edge_weight, device=x.device)
        reason = self._refused(edge_index, x, sparse=True) or self._not_this(edge_index, edge_weight)
        if reason is not None:
            fall_back(self, reason)
            return super().forward(x, *to_pyg(edge_index, edge_weight))  # type: ignore[no-any-return]
        # Of two linear maps the one that makes rows narrower comes first.
        first = x.layout != torch.strided or not plain_linear(self.lin, _LINEARS) or self.lin.bias is not None
        first = first or x.shape[1] >= self.out_channels
        rows, bias = (self.lin(x), self.bias) if first else (x, None)
        if is_compiling() and not isinstance(edge_index, Graph):
            out = self._traced(edge_index, edge_weight, rows, bias)
        else:
            graph, weight, scales = self._normalised(edge_index, edge_weight, rows)
            out = scaled_spmm(graph, rows, weight, scales, bias=bias)
        if first:
            return out
        out = self.lin(out)
        return out if self.bias is None else out + self.bias.to(out.dtype)  # type: ignore[no-any-return]

    def _not_this(self, edge_index: Any, edge_weight: Any) -> str | None:
        """Why halfgnn cannot normalize this graph with these weights."""
        if self.cached and self.normalize and is_compiling() and not isinstance(edge_index, Graph):
            return "cached=True keeps a graph, and edge_index is traced"
        if edge_weight is None:
            return None
        if is_matrix(edge_index):
            return "edge_weight is given as well as a sparse matrix"
        if edge_weight.dtype == torch.float64:
            return "edge_weight is torch.float64"
        return None

    def _traced(self, index: Tensor, weight: Tensor | None, rows: Tensor, bias: Tensor | None) -> Tensor:
        """The aggregation in a trace, where the number of loops in ``index`` is not known."""
        count = rows.shape[0]
        edges = Edges(index, count, count)
        none = (None, None)
        if weight is not None:
            weight = weight.reshape(-1)
        if not self.normalize:
            return edges.scaled_spmm(rows, weight, none, bias)
        if weight is None:
            edges = edges.with_loops() if self.add_self_loops else edges
            factors = _inverse_roots(edges.degrees())
            return edges.scaled_spmm(rows, None, (factors, factors), bias)
        weight = weight.float()
        source, destination = index[0].long(), index[1].long()
        own = None
        if self.add_self_loops:
            is_loop = source == destination
            own = weight.new_full((count + 1,), self._fill())
            # Edges that are no loops write behind the vertices.
            own = own.scatter(0, source.masked_fill(~is_loop, count), weight)[:count]
            weight = weight.masked_fill(is_loop, 0.0)
        degrees = weight.new_zeros(count).scatter_add(0, destination, weight)
        roots = _inverse_roots(degrees if own is None else degrees + own)
        out = edges.scaled_spmm(rows, roots[source] * weight * roots[destination], none, bias)
        return out if own is None else out + ((own * roots * roots)[:, None] * rows).to(out.dtype)

    def _normalised(
        self, edge_index: Any, edge_weight: Tensor | None, rows: Tensor
    ) -> tuple[Graph, Tensor | None, tuple[Any, Any]]:
        """The graph, weights of its edges, and factors of its rows and columns."""
        if not self.normalize:
            graph, weight = self._weighted(edge_index, edge_weight, rows)
            return graph, weight, (None, None)
        kept: Any = self._cached_edge_index  # type: ignore[has-type]
        found: Any = self._cached_graph
        if found is None and kept is not None:
            # What PyG's layer kept before it was replaced.
            index, weight = kept
            matrix = Matrix(index) if is_matrix(index) else None
            graph = Graph(index, rows.shape[0]) if matrix is None else matrix.graph()
            found = graph, weight if matrix is None else matrix.values, (None, None)
            self._cached_graph = found
        if found is not None:
            return found  # type: ignore[no-any-return]
        graph, weight = self._weighted(edge_index, edge_weight, rows)
        if weight is None:
            factors = graph._symmetric_factors()
            found = graph, None, (factors, factors)
        elif weight.requires_grad:
            # Not kept: the next step has gradients of its own.
            return graph, _over_roots(graph, weight), (None, None)
        else:
            found = graph, _over_roots_neutrally(graph, weight), (None, None)
        if self.cached and not is_compiling():
            self._cached_graph = found
            # What PyG's layer keeps, of the same meaning once this one is restored to it.
            self._cached_edge_index = _of_pyg(*found)
            if is_matrix(edge_index) and not isinstance(edge_index, Tensor):
                self._cached_adj_t = gcn_norm(edge_index, None, rows.shape[0], self.improved, self.add_self_loops, self.flow, rows.dtype)
        return found  # type: ignore[no-any-return]

    def _fill(self) -> float:
        return 2.0 if self.improved else 1.0

    def _weighted(self, edge_index: Any, edge_weight: Tensor | None, rows: Tensor) -> tuple[Graph, Tensor | None]:
        """The graph with loops where the layer adds them, and its weights."""
        loops = self.normalize and self.add_self_loops
        if is_matrix(edge_index):
            return Matrix(edge_index).looped(self._fill()) if loops else Matrix(edge_index).weighted()
        count = rows.shape[0]
        graph = graph_of(edge_index, (count, count), rows.device)
        weight: Any = graph.weight if edge_weight is None else edge_weight
        if weight is not None:
            if weight.numel() != graph.num_edges:
                raise ValueError(
                    f"edge_weight: should be {graph.num_edges}, one for each edge, is {tuple(weight.shape)}"
                )
            weight = weight.reshape(-1).float()
        if loops:
            # New loops of an edge_index without weights weigh one, also where they are improved, as PyG's do.
            looped, kept, old = graph._looped()
            if weight is not None:
                weight = graph._kind().looped(weight, kept, old, self._fill(), count)
            graph = looped
        return graph, weight


def _inverse_roots(degrees: Tensor) -> Tensor:
    roots = degrees.pow(-0.5)
    return roots.masked_fill(roots == float("inf"), 0.0)


def _over_roots(graph: Graph, weight: Tensor) -> Tensor:
    """Weights over the roots of weighted degrees of both ends, as of PyG's ``gcn_norm``."""
    source, destination = graph.edge_index
    ones = torch.ones((graph.num_src, 1), device=weight.device)
    roots = _inverse_roots(scaled_spmm(graph, ones, weight, (None, None))[:, 0])
    return roots[source] * weight * roots[destination]


_over_roots_neutrally = neutral(_over_roots)


@neutral
def _of_pyg(graph: Graph, weight: Tensor | None, scales: tuple[Any, Any]) -> tuple[Tensor, Tensor]:
    """``edge_index`` and the weights that PyG's layer has of a graph."""
    index = graph.edge_index
    if weight is None:
        weight = scales[0][index[1]] * scales[1][index[0]]
    return index, weight


class SAGEConv(_Layer, pyg.SAGEConv):  # type: ignore[misc]
    """PyG's ``SAGEConv`` with the aggregators ``mean``, ``sum`` and ``max``."""

    _pyg = pyg.SAGEConv

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = _pair(x)
        reason = self._refused(edge_index, source, destination)
        if reason is not None:
            fall_back(self, reason)
            return super().forward(x, to_pyg(edge_index)[0], size)  # type: ignore[no-any-return]
        graph, weight = _adjacency(self, edge_index, (source, destination), size)
        if self.project and hasattr(self, "lin"):
            source = self.lin(source).relu()
        reduce = _reduction(self)
        if reduce != "max" and self.out_channels < source.shape[1] and plain_linear(self.lin_l, _LINEARS):
            # Its weight alone: a bias is added to what was summed up.
            narrow = F.linear(source, self.lin_l.weight)
            out = _aggregate(graph, weight, narrow, reduce=reduce, bias=self.lin_l.bias)
        else:
            out = self.lin_l(_aggregate(graph, weight, source, reduce=reduce))
        if self.root_weight and destination is not None:
            out = out + self.lin_r(destination)
        if self.normalize:
            out = F.normalize(out, p=2.0, dim=-1)
        return out


class GINConv(_Layer, pyg.GINConv):  # type: ignore[misc]
    """PyG's ``GINConv``. Where ``nn`` begins with a product that makes rows narrower, it is done before they are summed up."""

    _pyg = pyg.GINConv

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        """As PyG's."""
        pair = _pair(x)
        reason = self._refused(edge_index, *pair)
        if reason is not None:
            fall_back(self, reason)
            return super().forward(x, to_pyg(edge_index)[0], size)  # type: ignore[no-any-return]
        graph, weight = _adjacency(self, edge_index, pair, size)
        reduce = _reduction(self)
        return isomorphism(  # type: ignore[no-any-return]
            self.nn,
            lambda rows, bias, own: _aggregate(graph, weight, rows, reduce=reduce, bias=bias, epsilon=own),
            pair[0],
            pair[1],
            self.eps,
            linear=reduce != "max",
            linears=_LINEARS,
            mlp=pyg.MLP,
        )


class GATConv(_Layer, pyg.GATConv):  # type: ignore[misc]
    """PyG's ``GATConv``, without an array of edges in either pass."""

    _pyg = pyg.GATConv
    _aggregators = _SUMS

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Any = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """As PyG's."""
        pair = _pair(x)
        reason = _no_attention(self, edge_index, pair, edge_attr, return_attention_weights)
        if reason is not None:
            fall_back(self, reason)
            index = to_pyg(edge_index)[0]
            return super().forward(x, index, edge_attr, size, return_attention_weights)
        graph = _attended(self, edge_index, pair, size)
        if self.lin is not None:
            source = self.lin(pair[0])
            destination = None if pair[1] is pair[0] else self.lin(pair[1])
        else:
            source, destination = self.lin_src(pair[0]), self.lin_dst(pair[1])
        options: dict[str, Any] = {
            "heads": self.heads,
            "negative_slope": self.negative_slope,
            "dropout": self.dropout if self.training else 0.0,
            "h_dst": destination,
        }
        if isinstance(graph, Edges):
            out = graph.attention("gat_attention", source, (self.att_dst, self.att_src), **options)
        else:
            out = gat_attention(graph, source, self.att_src, self.att_dst, **options)
        return _attention_output(self, out, pair[1])


class GATv2Conv(_Layer, pyg.GATv2Conv):  # type: ignore[misc]
    """PyG's ``GATv2Conv``, without a row of features for each edge in either pass."""

    _pyg = pyg.GATv2Conv
    _aggregators = _SUMS

    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        return_attention_weights: Any = None,
    ) -> Any:
        """As PyG's."""
        pair = _pair(x)
        reason = _no_attention(self, edge_index, pair, edge_attr, return_attention_weights)
        if reason is not None:
            fall_back(self, reason)
            index = to_pyg(edge_index)[0]
            return super().forward(x, index, edge_attr, return_attention_weights)
        graph = _attended(self, edge_index, pair, None)
        alike = self.share_weights and isinstance(x, Tensor)
        options: dict[str, Any] = {
            "heads": self.heads,
            "negative_slope": self.negative_slope,
            "dropout": self.dropout if self.training else 0.0,
        }
        source = self.lin_l(pair[0])
        options["h_dst"] = None if alike else self.lin_r(pair[1])
        if isinstance(graph, Edges):
            out = graph.attention("gatv2_attention", source, (self.att,), **options)
        else:
            out = gatv2_attention(graph, source, self.att, **options)
        return _attention_output(self, out, pair[1])


def _no_attention(layer: Any, edge_index: Any, pair: Any, edge_attr: Any, return_attention_weights: Any) -> str | None:
    """Why halfgnn has no attention of this kind."""
    reason = layer._refused(edge_index, *pair, sparse=True)
    if reason is not None:
        return reason  # type: ignore[no-any-return]
    if return_attention_weights is not None:
        return "attention weights are returned"
    if edge_attr is not None:
        return "edges have features"
    if pair[1] is None:
        return "destinations have no features"
    if layer.training and layer.dropout >= 1.0:
        return f"the dropout is {layer.dropout}"
    return None


def _attended(layer: Any, edge_index: Any, pair: Any, size: Any) -> Any:
    """The graph of a layer of attention, in which the values of a sparse matrix have no part."""
    graph, _ = _adjacency(layer, edge_index, pair, size)
    if not layer.add_self_loops:
        return graph
    return graph.with_loops() if isinstance(graph, Edges) else graph._looped()[0]


def _attention_output(layer: Any, out: Tensor, x: Tensor) -> Tensor:
    """What was aggregated, all heads or their mean, with the residual of ``x`` and the bias."""
    if not layer.concat:
        out = out.view(-1, layer.heads, layer.out_channels).mean(dim=1)
    if layer.res is not None:
        out = out + layer.res(x)
    return out if layer.bias is None else out + layer.bias.to(out.dtype)
