"""Layers whose messages are functions of both ends and of the edge: gates, MLPs, and a matrix for each edge.

Products of the rows of an end are made once for each vertex. Messages are computed in chunks (:mod:`halfgnn.nn._messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.index import index2ptr
from torch_geometric.nn.conv.ppf_conv import point_pair_features

from .._networks import first_product, is_observed
from .._tensors import FORMATS
from ..graph import Graph
from ._adjacency import PRODUCTS, Adjacency, is_product, pair, structure, unit_rows
from ._common import refused
from ._layer import LINEAR, OF_MESSAGES, SUMS, Layer, by_operators
from ._messages import act_name, aggregate, fused, is_by_rows, is_fused
from ._reductions import Incidence, _apply, _reduced, _Softmax, reduced_by

#: Columns up to which differences of both ends are made before their product, whose terms would cancel: those of positions.
_POSITIONS = 16


def edge_reason(edge_attr: Any) -> str | None:
    """Why halfgnn cannot do these features of edges."""
    if not isinstance(edge_attr, Tensor) or edge_attr.layout != torch.strided:
        return f"features of edges are a {type(edge_attr).__name__}"
    if edge_attr.ndim != 2:
        return f"features of edges have {edge_attr.ndim} dimensions"
    return None if edge_attr.dtype in FORMATS else f"features of edges are {edge_attr.dtype}"


def check_edges(layer: object, graph: Graph, edge_attr: Tensor) -> None:
    """Of features of edges.

    Raises:
        ValueError: there is not a row for each edge.
    """
    if edge_attr.shape[0] != graph.num_edges:
        raise ValueError(f"{type(layer).__name__}: edge_attr has {edge_attr.shape[0]} rows, and the graph has {graph.num_edges} edges")


def _by_module(layer: Any) -> Callable[[Tensor, Incidence], Tensor]:
    """The reduction of a layer's aggregator."""
    return lambda messages, incidence: reduced_by(layer.aggr_module, messages, incidence)


def _widest(*networks: Any) -> int:
    """Columns of the widest product of networks."""
    products = [p for network in networks if isinstance(network, torch.nn.Module) for p in network.parameters() if p.ndim == 2]
    return max((p.shape[0] for p in products), default=1)


def _fixed_softmax(layer: Any) -> str | None:
    """``softmax`` where a layer aggregates by the softmax of messages as they are."""
    module = layer.aggr_module
    if type(module) is not pyg.aggr.SoftmaxAggregation or is_observed(module):
        return None
    is_plain = not module.learn and not module.semi_grad and module.channels == 1 and module.t == 1
    return "softmax" if is_plain else None


class _Pairwise(Layer):
    """What layers have in common whose edges have messages."""

    _aggregators: tuple[str, ...] = OF_MESSAGES
    _takes_edges = True
    _pairs = True
    _one_sided = False
    _matrices = False
    _traces = False
    _traces_graphs = False

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        return None if edge_attr is None else edge_reason(edge_attr)

    def _aggregate(self, graph: Graph, formula: Any, **operands: Any) -> Tensor:
        """The messages of a formula, by the layer's aggregator."""
        module = self.aggr_module  # type: ignore[attr-defined]
        return aggregate(graph, formula, _by_module(self), aggregator=module, **operands)

    def _aggregate_wide(self: Any, graph: Graph, formula: Any, source: Tensor, edge: Tensor) -> Tensor:
        """The same of messages as wide as what each edge has. Sums need not bring these into the order of destinations."""
        operands: dict[str, Any] = {"source": (source,), "edge": (edge,), "width": source.shape[1]}
        if self.aggr not in LINEAR:
            return self._aggregate(graph, formula, **operands)  # type: ignore[no-any-return]

        def sums(messages: Tensor, incidence: Incidence) -> Tensor:
            return _reduced(messages.float(), incidence, "sum")

        out = aggregate(graph, formula, sums, in_order=True, **operands)
        if self.aggr == "mean":
            out = out * graph._factors("in", -1.0)[:, None]
        return out.to(torch.promote_types(source.dtype, edge.dtype))

    def _aggregate_added(self, graph: Graph, act: Callable[[Tensor], Tensor], source: Tensor, edge: Tensor, lin: Any) -> Tensor:
        """``act`` of the sum of a source's row and what ``lin``, where there is one, makes of an edge. The product of a plain ``lin`` is made
        where the message is; ``act`` may write over its argument."""
        shared: tuple[Tensor, ...] = ()
        if lin is not None and is_product(lin):
            shared = (lin.weight,) if lin.bias is None else (lin.weight, lin.bias)
        elif lin is not None:
            edge = lin(edge)

        def formula(d: Any, s: Any, e: Any, w: Any) -> Tensor:
            return act(s[0] + (F.linear(e[0], *w) if w else e[0]))

        if not shared:
            return self._aggregate_wide(graph, formula, source, edge)
        return self._aggregate(graph, formula, source=(source,), edge=(edge,), shared=shared, width=source.shape[1])


class ResGatedGraphConv(_Pairwise, pyg.ResGatedGraphConv):  # type: ignore[misc]
    """PyG's ``ResGatedGraphConv``. Products of features of edges are made for them alone, not for each end again.

    ``y[i] = W_s x[i] + Σ_j sigmoid(W_k x[i] + W_q x[j]) * W_v x[j]``.
    """

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        lins = layer.lin_key, layer.lin_query, layer.lin_value
        return None if layer.edge_dim is None or all(map(is_product, lins)) else "its products have hooks"

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        if (edge_attr is None) != (self.edge_dim is None):
            return "features of edges are missing" if edge_attr is None else "edges have features, and edge_dim is None"
        return super()._not_these(edge_attr=edge_attr, **given)

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x)
        width, act = self.out_channels, self.act
        edge: tuple[Tensor, ...] = ()
        shared: tuple[Tensor, ...] = ()
        if edge_attr is None:
            key, query, value = self.lin_key(destination), self.lin_query(source), self.lin_value(source)
        else:
            check_edges(self, graph, edge_attr)
            lins = self.lin_key, self.lin_query, self.lin_value
            ends = destination, source, source
            key, query, value = (F.linear(rows, lin.weight[:, : rows.shape[1]], lin.bias) for lin, rows in zip(lins, ends))
            of_key, of_query, of_value = (lin.weight[:, rows.shape[1] :] for lin, rows in zip(lins, ends))
            # The gate adds what key and query have of an edge.
            edge, shared = (edge_attr,), (torch.cat([of_key + of_query, of_value]),)

        name = act_name(act)
        if is_fused(graph, self.aggr, name):
            of_edges = F.linear(edge_attr, shared[0]).split(width, dim=1) if edge_attr is not None else (None, None)
            gate, values = (key, query, of_edges[0]), (None, value, of_edges[1])
            return self._with_root(fused(graph, self.aggr, (str(name), "identity"), gate, values), destination)

        def formula(d: Any, s: Any, e: Any, w: Any) -> Tensor:
            gates, values = s[0].split(width, dim=1)
            gates = gates + d[0]
            if e:
                own, more = F.linear(e[0], w[0]).split(width, dim=1)
                gates, values = gates + own, values + more
            return act(gates) * values  # type: ignore[no-any-return]

        sources = torch.cat([query, value], dim=1)
        operands = {"destination": (key,), "source": (sources,), "edge": edge, "shared": shared, "modules": (act,)}
        return self._with_root(self._aggregate(graph, formula, width=2 * width, **operands), destination)

    def _with_root(self, out: Tensor, destination: Tensor) -> Tensor:
        if self.root_weight:
            out = out + self.lin_skip(destination)
        return out if self.bias is None else out + self.bias.to(out.dtype)


class CGConv(_Pairwise, pyg.CGConv):  # type: ignore[misc]
    """PyG's ``CGConv``: products of both ends are made for each vertex.

    ``y[i] = x[i] + Σ_j sigmoid(W_f z + b_f) * softplus(W_s z + b_s)`` with ``z = [x[i], x[j], e[j, i]]``.
    """

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        return None if is_product(layer.lin_f) and is_product(layer.lin_s) else "its products have hooks"

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        if (edge_attr is None) != (self.dim == 0):
            return "features of edges are missing" if edge_attr is None else "edges have features, and dim is 0"
        return super()._not_these(edge_attr=edge_attr, **given)

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x)
        weight = torch.cat([self.lin_f.weight, self.lin_s.weight])
        bias = None if self.lin_f.bias is None else torch.cat([self.lin_f.bias, self.lin_s.bias])
        of_destination, of_source, of_edge = weight.split([destination.shape[1], source.shape[1], self.dim], dim=1)
        edge: tuple[Tensor, ...] = ()
        if edge_attr is not None:
            check_edges(self, graph, edge_attr)
            edge = (edge_attr,)

        def formula(d: Any, s: Any, e: Any, w: Any) -> Tensor:
            rows = d[0] + s[0]
            rows = rows + F.linear(e[0], w[0]) if e else rows
            gate, value = rows.chunk(2, dim=1)
            return gate.sigmoid() * F.softplus(value)  # type: ignore[no-any-return]

        of_destinations, of_sources = F.linear(destination, of_destination, bias), F.linear(source, of_source)
        if is_fused(graph, self.aggr, "softplus"):
            rows = [of_destinations, of_sources, F.linear(edge_attr, of_edge) if edge_attr is not None else None]
            gate, value = zip(*((None, None) if x is None else x.chunk(2, dim=1) for x in rows))
            out = fused(graph, self.aggr, ("sigmoid", "softplus"), gate, value)
        else:
            out = self._aggregate(
                graph,
                formula,
                destination=(of_destinations,),
                source=(of_sources,),
                edge=edge,
                shared=(of_edge,) if edge else (),
                width=weight.shape[0],
            )
        out = out if self.bn is None else self.bn(out)
        return out + destination  # type: ignore[no-any-return]


class GINEConv(_Pairwise, pyg.GINEConv):  # type: ignore[misc]
    """PyG's ``GINEConv``. The product of an edge's features is made where its message is.

    ``y[i] = nn((1 + eps) x[i] + Σ_j relu(x[j] + e[j, i]))``.
    """

    _one_sided = True

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        return "edges have no features" if edge_attr is None else edge_reason(edge_attr)

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x, size)
        assert edge_attr is not None
        check_edges(self, graph, edge_attr)
        if self.lin is None and edge_attr.shape[1] != source.shape[1]:
            raise ValueError(
                f"GINEConv: edges have {edge_attr.shape[1]} features and vertices {source.shape[1]}; give the layer edge_dim"
            )
        if is_fused(graph, self.aggr):
            of_edges = edge_attr if self.lin is None else self.lin(edge_attr)
            out = fused(graph, self.aggr, ("relu", "identity"), (None, source, of_edges))
        else:
            out = self._aggregate_added(graph, torch.relu_, source, edge_attr, self.lin)
        if destination is not None:
            out = (out + (1 + self.eps.float()) * destination).to(out.dtype)
        return self.nn(out)  # type: ignore[no-any-return]


class GENConv(_Pairwise, pyg.GENConv):  # type: ignore[misc]
    """PyG's ``GENConv``. Without features of edges a message is a row of its source.

    ``y[i] = mlp(x[i] + aggr_j (relu(x[j] + e[j, i]) + eps))``.
    """

    _one_sided = True

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        norm = getattr(layer, "msg_norm", None)
        own = norm is not None and (type(norm) is not pyg.MessageNorm or is_observed(norm))
        return "the norm of messages is the user's own or has hooks" if own else None

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x, size)
        rows = self.lin_src(source) if hasattr(self, "lin_src") else source
        out = self._received(graph, rows, edge_attr)
        if hasattr(self, "lin_aggr_out"):
            out = self.lin_aggr_out(out)
        if hasattr(self, "msg_norm"):
            # In float, so that rows of zeros and large ones have lengths in formats of 16 bits.
            length = (rows if destination is None else destination).float().norm(p=2, dim=-1, keepdim=True)
            out = (unit_rows(out.float()) * length * self.msg_norm.scale.float()).to(out.dtype)
        if destination is not None:
            out = out + (self.lin_dst(destination) if hasattr(self, "lin_dst") else destination)
        return self.mlp(out)  # type: ignore[no-any-return]

    def _received(self, graph: Graph, rows: Tensor, edge_attr: Tensor | None) -> Tensor:
        eps = self.eps
        if edge_attr is not None:
            check_edges(self, graph, edge_attr)
        aggr = _fixed_softmax(self) or self.aggr
        if is_fused(graph, aggr) and aggr not in (LINEAR if edge_attr is None else ()):
            lin = getattr(self, "lin_edge", None)
            of_edges = edge_attr if lin is None or edge_attr is None else lin(edge_attr)
            out = fused(graph, aggr, ("relu", "identity"), (None, rows, of_edges))
            # What is added to each message is added to the reduction of a destination that has edges, and to no deviation.
            if aggr == "std":
                return out
            times = Adjacency(graph).degrees()[:, None]
            shifted: Tensor = out + eps * (times if aggr in SUMS else times.clamp(max=1.0))
            return shifted.to(out.dtype)
        if edge_attr is None:
            rows = rows.relu() + eps
            names = [self.aggr] if isinstance(self.aggr, str) else self.aggr
            if set(names) <= set(Layer._aggregators):
                return Adjacency(graph).aggregate(rows, self)
            return self._aggregate(graph, lambda d, s, e, w: s[0], source=(rows,), width=rows.shape[1])
        return self._aggregate_added(graph, lambda rows: rows.relu() + eps, rows, edge_attr, getattr(self, "lin_edge", None))


def _of_pairs(layer: Any, graph: Graph, source: Tensor, destination: Tensor) -> Tensor:
    """What ``nn`` makes of a destination's row and its difference to the source's, by the layer's aggregator."""
    network, width = layer.nn, source.shape[1]
    begun = first_product(network, PRODUCTS, pyg.MLP)
    widest = max(_widest(network), 2 * width)
    if begun is None:

        def whole(d: Any, s: Any, e: Any, w: Any) -> Any:
            return network(torch.cat([d[0], s[0] - d[0]], dim=-1))

        return layer._aggregate(graph, whole, destination=(destination,), source=(source,), modules=(network,), width=widest)  # type: ignore[no-any-return]
    product, rest = begun
    own, other = product.weight.split(width, dim=1)
    if width <= _POSITIONS:
        rows = F.linear(destination, own, product.bias)

        def narrow(d: Any, s: Any, e: Any, w: Any) -> Any:
            return rest(d[0] + F.linear(s[0] - d[1], w[0]))

        ends = (rows, destination)
        return layer._aggregate(  # type: ignore[no-any-return]
            graph, narrow, destination=ends, source=(source,), shared=(other,), modules=(network,), width=widest
        )
    with torch.autocast(source.device.type, enabled=False):
        # In float: their difference may be smaller than the rounding of either in a format of 16 bits.
        bias = None if product.bias is None else product.bias.float()
        of_destination = F.linear(destination.float(), own.float() - other.float(), bias)
        of_source = F.linear(source.float(), other.float())
    if network is product or (type(network) is torch.nn.Sequential and len(network) == 1):
        if layer.aggr in (*LINEAR, "max", "min"):
            return _plus_own(graph, of_source, of_destination, layer.aggr).to(product.weight.dtype)
    format = source.dtype

    def split(d: Any, s: Any, e: Any, w: Any) -> Any:
        return rest((d[0] + s[0]).to(format))

    return layer._aggregate(graph, split, destination=(of_destination,), source=(of_source,), modules=(network,), width=widest)  # type: ignore[no-any-return]


def _plus_own(graph: Graph, other: Tensor, own: Tensor, reduce: str) -> Tensor:
    """Sums of a row of each end, reduced: the destination's counts for each edge in a sum, and once in what is none."""
    degrees = Adjacency(graph).degrees()[:, None]
    return Adjacency(graph)(other, reduce) + own * (degrees if reduce in SUMS else degrees.clamp(max=1.0))


class EdgeConv(_Pairwise, pyg.EdgeConv):  # type: ignore[misc]
    """PyG's ``EdgeConv``: the product that ``nn`` begins with is made for each vertex.

    ``y[i] = max_j nn([x[i], x[j] - x[i]])``, or another aggregator.
    """

    @by_operators
    def forward(self, x: Any, edge_index: Any) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        return _of_pairs(self, structure(self, edge_index, x), source, destination)


class _Nearest(_Pairwise):
    """What layers have in common that make a graph of the nearest neighbours of features."""

    _adjacencies = ()

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        return None if hasattr(torch.ops.pyg, "knn") else "neighbours are not found by pyg-lib"

    def _not_these(self, *, x: Any = None, **given: Any) -> str | None:
        return refused(None, *pair(x))

    def _graph(self, source: Tensor, destination: Tensor, batch: Any) -> Graph:
        """From the nearest sources of each destination."""
        batches = batch if isinstance(batch, (tuple, list)) else (batch, batch)
        ptrs = [None if each is None else index2ptr(each) for each in batches]
        found = torch.ops.pyg.knn(source, destination, ptrs[0], ptrs[1], self.k, False, 1)  # type: ignore[attr-defined]
        return Graph(found.flip([0]), size=(len(source), len(destination)))


class DynamicEdgeConv(_Nearest, pyg.DynamicEdgeConv):  # type: ignore[misc]
    """PyG's ``DynamicEdgeConv``: neighbours are found by ``pyg-lib``, as PyG's, and the rest is :class:`EdgeConv`.

    ``y[i] = max_j nn([x[i], x[j] - x[i]])`` over the k nearest neighbors.
    """

    @by_operators
    def forward(self, x: Any, batch: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        return _of_pairs(self, self._graph(source, destination, batch), source, destination)


class GravNetConv(_Nearest, pyg.GravNetConv):  # type: ignore[misc]
    """PyG's ``GravNetConv``: neighbours are found by ``pyg-lib``, as PyG's.

    Mean and maximum over the k nearest neighbors in a learned space, weighted by the distance.
    """

    @by_operators
    def forward(self, x: Any, batch: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        rows, of_source = self.lin_h(source), self.lin_s(source)
        of_destination = of_source if isinstance(x, Tensor) else self.lin_s(destination)
        graph = self._graph(of_source, of_destination, batch)

        def formula(d: Any, s: Any, e: Any, w: Any) -> Tensor:
            distances = (s[1].float() - d[0].float()).square().sum(dim=-1, keepdim=True)
            return s[0] * torch.exp(-10.0 * distances).to(s[0].dtype)  # type: ignore[no-any-return]

        out = self._aggregate(graph, formula, destination=(of_destination,), source=(rows, of_source), width=rows.shape[1])
        return self.lin_out1(destination) + self.lin_out2(out)  # type: ignore[no-any-return]


class _Points(_Pairwise):
    """What layers of point clouds have in common."""

    _features: tuple[str, ...] = ("x", "pos")
    _one_sided = True

    def _local(self: Any, graph: Graph, x: Tensor | None, width: int, geometry: Any, operands: dict[str, Any]) -> Tensor:
        """What ``local_nn`` makes of the source's features and of what an edge has of ``geometry``, ``width`` numbers."""
        network = self.local_nn
        columns = width if x is None else width + x.shape[1]
        widest = max(_widest(network), columns)
        begun = None if network is None else first_product(network, PRODUCTS, pyg.MLP)
        if begun is None:
            sources = operands["source"] if x is None else (*operands["source"], x)

            def whole(d: Any, s: Any, e: Any, w: Any) -> Any:
                rows = geometry(d, s)
                rows = rows if x is None else torch.cat([s[-1], rows], dim=1)
                return rows if network is None else network(rows)

            operands = {**operands, "source": sources}
            return self._aggregate(graph, whole, modules=(network,), width=widest, **operands)  # type: ignore[no-any-return]
        product, rest = begun
        of_source, of_geometry = product.weight.split([product.weight.shape[1] - width, width], dim=1)
        shared = (of_geometry,) if product.bias is None else (of_geometry, product.bias)
        if x is not None:
            operands = {**operands, "source": (*operands["source"], F.linear(x, of_source))}

        def split(d: Any, s: Any, e: Any, w: Any) -> Any:
            rows = F.linear(geometry(d, s), *w)
            return rest(rows if x is None else rows + s[-1])

        return self._aggregate(graph, split, shared=shared, modules=(network,), width=widest, **operands)  # type: ignore[no-any-return]


def _sources(x: Any) -> Any:
    """The features of sources, where there are any."""
    return x[0] if isinstance(x, (tuple, list)) else x


class PointNetConv(_Points, pyg.PointNetConv):  # type: ignore[misc]
    """PyG's ``PointNetConv``: the product of features that ``local_nn`` begins with is made for each vertex.

    ``y[i] = global_nn(max_j local_nn([x[j], p[j] - p[i]]))``.
    """

    @by_operators
    def forward(self, x: Any, pos: Any, edge_index: Any) -> Tensor:
        """As PyG's."""
        source, destination = pair(pos)
        graph = structure(self, edge_index, pos, loops=self.add_self_loops)
        operands = {"destination": (destination,), "source": (source,)}
        out = self._local(graph, _sources(x), source.shape[1], lambda d, s: s[0] - d[0], operands)
        return out if self.global_nn is None else self.global_nn(out)


class PPFConv(_Points, pyg.PPFConv):  # type: ignore[misc]
    """PyG's ``PPFConv``: the product of features that ``local_nn`` begins with is made for each vertex. Distances and angles are floats.

    ``y[i] = global_nn(max_j local_nn([x[j], ppf(i, j)]))``, with a distance and three angles.
    """

    _features = ("x", "pos", "normal")

    @by_operators
    def forward(self, x: Any, pos: Any, normal: Any, edge_index: Any) -> Tensor:
        """As PyG's."""
        (source, destination), (of_source, of_destination) = pair(pos), pair(normal)
        graph = structure(self, edge_index, pos, loops=self.add_self_loops)

        def geometry(d: Any, s: Any) -> Tensor:
            found = point_pair_features(d[0].float(), s[0].float(), d[1].float(), s[1].float())
            return found.to(s[0].dtype)  # type: ignore[no-any-return]

        operands = {"destination": (destination, of_destination), "source": (source, of_source)}
        out = self._local(graph, _sources(x), 4, geometry, operands)
        return out if self.global_nn is None else self.global_nn(out)


class PointTransformerConv(_Points, pyg.PointTransformerConv):  # type: ignore[misc]
    """PyG's ``PointTransformerConv``: the softmax is of each column.

    ``y[i] = Σ_j softmax_j(attn_nn(W_dst x[i] - W_src x[j] + d[i, j])) * (W x[j] + d[i, j])``, ``d[i, j] =
    pos_nn(p[i] - p[j])``.
    """

    _one_sided = False

    @by_operators
    def forward(self, x: Any, pos: Any, edge_index: Any) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        of_source, of_destination = pair(pos)
        graph = structure(self, edge_index, pos, loops=self.add_self_loops)
        own, other, value = self.lin_dst(destination), self.lin_src(source), self.lin(source)
        width, pos_nn, attn_nn = self.out_channels, self.pos_nn, self.attn_nn

        def formula(d: Any, s: Any, e: Any, w: Any) -> Any:
            delta = pos_nn(d[1] - s[1])
            keys, values = s[0].split(width, dim=1)
            scores = d[0] - keys + delta
            return scores if attn_nn is None else attn_nn(scores), values + delta

        def reduce(found: Any, incidence: Incidence) -> Tensor:
            scores, values = found
            return reduced_by(self.aggr_module, _apply(_Softmax, scores, incidence) * values, incidence)

        return aggregate(
            graph,
            formula,
            reduce,
            destination=(own, of_destination),
            source=(torch.cat([other, value], dim=1), of_source),
            modules=(pos_nn, attn_nn),
            aggregator=self.aggr_module,
            width=max(_widest(pos_nn, attn_nn), 2 * width),
        )


class PointGNNConv(_Points, pyg.PointGNNConv):  # type: ignore[misc]
    """PyG's ``PointGNNConv``: offsets, and the product of features that ``mlp_f`` begins with, are made for each vertex.

    ``y[i] = x[i] + mlp_g(max_j mlp_f([p[j] - p[i] + mlp_h(x[i]), x[j]]))``.
    """

    _pairs = False

    @by_operators
    def forward(self, x: Tensor, pos: Tensor, edge_index: Any) -> Tensor:
        """As PyG's."""
        graph = structure(self, edge_index, x)
        width, mlp_h, mlp_f = pos.shape[1], self.mlp_h, self.mlp_f
        widest = max(_widest(mlp_h, mlp_f), x.shape[1] + width)
        begun = first_product(mlp_f, PRODUCTS, pyg.MLP)
        modules = mlp_h, mlp_f
        if begun is None or not is_by_rows(mlp_h):

            def whole(d: Any, s: Any, e: Any, w: Any) -> Any:
                return mlp_f(torch.cat([s[0] - d[0] + mlp_h(d[1]), s[1]], dim=-1))

            out = self._aggregate(graph, whole, destination=(pos, x), source=(pos, x), modules=modules, width=widest)
            return x + self.mlp_g(out)  # type: ignore[no-any-return]
        product, rest = begun
        of_position, of_features = product.weight.split([width, product.weight.shape[1] - width], dim=1)

        def split(d: Any, s: Any, e: Any, w: Any) -> Any:
            return rest(F.linear(s[0] - d[0] + d[1], w[0]) + s[1])

        out = self._aggregate(
            graph,
            split,
            destination=(pos, mlp_h(x)),
            source=(pos, F.linear(x, of_features, product.bias)),
            shared=(of_position,),
            modules=modules,
            width=widest,
        )
        return x + self.mlp_g(out)  # type: ignore[no-any-return]


class NNConv(_Pairwise, pyg.NNConv):  # type: ignore[misc]
    """PyG's ``NNConv``. Where ``nn`` ends with a product and messages are summed up, no edge has a matrix: rows are summed up for each
    column of the product's input, and the product comes behind.

    ``y[i] = W x[i] + Σ_j x[j] nn(e[j, i]) + b``, where ``nn`` gives a matrix.
    """

    _one_sided = True

    def _not_these(self, *, edge_attr: Any = None, **given: Any) -> str | None:
        return "edges have no features" if edge_attr is None else edge_reason(edge_attr)

    @by_operators
    def forward(self, x: Any, edge_index: Any, edge_attr: Tensor | None = None, size: Any = None) -> Tensor:
        """As PyG's."""
        source, destination = pair(x)
        graph = structure(self, edge_index, x, size)
        assert edge_attr is not None
        check_edges(self, graph, edge_attr)
        ended = _last_product(self.nn) if self.aggr in LINEAR else None
        if ended is None:
            out = self._of_matrices(graph, source, edge_attr)
        else:
            out = self._of_columns(graph, source, edge_attr, *ended)
        if destination is not None and self.root_weight:
            out = out + self.lin(destination)
        return out if self.bias is None else out + self.bias.to(out.dtype)

    def _of_matrices(self, graph: Graph, source: Tensor, edge_attr: Tensor) -> Tensor:
        network, shape = self.nn, (-1, self.in_channels_l, self.out_channels)

        def formula(d: Any, s: Any, e: Any, w: Any) -> Tensor:
            return torch.bmm(s[0][:, None], network(e[0]).view(shape))[:, 0]

        width = max(_widest(network), shape[1] * shape[2])
        return self._aggregate(graph, formula, source=(source,), edge=(edge_attr,), modules=(network,), width=width)

    def _of_columns(self, graph: Graph, source: Tensor, edge_attr: Tensor, product: Any, before: list[Any]) -> Tensor:
        inputs, outputs, reduce = self.in_channels_l, self.out_channels, "mean" if self.aggr == "mean" else "sum"
        # Columns of the product's input, and one for its bias; columns × inputs × outputs.
        matrices = product.weight.view(inputs, outputs, -1).permute(2, 0, 1)
        if product.bias is not None:
            matrices = torch.cat([matrices, product.bias.view(1, inputs, outputs)])
        biased = product.bias is not None

        def formula(d: Any, s: Any, e: Any, w: Any) -> Any:
            rows = e[0]
            for module in before:
                rows = module(rows)
            rows = F.pad(rows.float(), (0, 1), value=1.0) if biased else rows.float()
            return (rows[:, :, None] * s[0].float()[:, None]).flatten(1), w[0]

        def products(found: Any, incidence: Incidence) -> Tensor:
            rows, weight = found
            with torch.autocast(rows.device.type, enabled=False):
                return (_reduced(rows, incidence, reduce) @ weight.float().flatten(0, 1)).to(weight.dtype)  # type: ignore[no-any-return]

        return aggregate(
            graph,
            formula,
            products,
            source=(source,),
            edge=(edge_attr,),
            shared=(matrices,),
            modules=before,
            width=max(_widest(*before), matrices.shape[0] * inputs),
        )


def _last_product(network: Any) -> tuple[Any, list[Any]] | None:
    """The product that a network ends with, of itself or a ``Sequential``, and what is before it."""
    if is_product(network):
        return network, []
    if type(network) is torch.nn.Sequential and len(network) > 0 and not is_observed(network) and is_product(network[-1]):
        return network[-1], list(network)[:-1]
    return None
