"""Messages that a layer computes of the rows of both ends of an edge and of the edge's own, reduced to rows of destinations.

A formula gets the gathered rows of some edges and returns their messages. :func:`aggregate` evaluates it in chunks, each with all edges of
some destinations, and evaluates it again in the backward pass. Beyond a chunk nothing is stored for an edge. Sums over edges are made in
float, without atomics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from .. import ops
from .._networks import is_observed
from .._reduced import reduced
from .._tensors import neutral
from ..graph import Graph
from ..ops import Terms
from ._adjacency import PRODUCTS
from ._reductions import Incidence, _apply, _Gather, _reduced, _Softmax

#: Numbers of the messages of a chunk: on a CPU they stay in its caches, and on a GPU they are enough work for all of it.
_NUMBERS = {"cpu": 2**20, "cuda": 2**27}

#: Rows of a chunk at most.
_ROWS = 2**24

#: Messages, or several matrices of them, of the rows of destinations, of sources and of edges, and of what all edges share.
Formula = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], Any]

#: Rows of destinations, of what a formula gives.
Reduction = Callable[[Any, Incidence], Tensor]


class _Chunk(NamedTuple):
    """All edges of some destinations that follow one another, or some edges of all destinations."""

    #: First destination, and the one behind the last.
    rows: tuple[int, int]
    #: Numbers of the edges, in the order of destinations; a slice where they are given in it.
    edges: Any
    #: The edges by their destinations, counted from the first one.
    destination: Incidence
    #: The edges by their sources.
    source: Incidence


class _Message(NamedTuple):
    """What is computed: a formula, a reduction, and how many operands of each kind there are."""

    formula: Formula
    reduce: Reduction
    #: Destinations', sources', edges' and shared ones.
    counts: tuple[int, int, int, int]

    def parts(self, operands: Sequence[Any]) -> list[Sequence[Any]]:
        """Operands by their kind. Those that follow are parameters of modules, which the formula reads itself."""
        found, at = [], 0
        for count in self.counts:
            found.append(operands[at : at + count])
            at += count
        return found

    def of_chunk(self, graph: Graph, chunk: _Chunk, operands: Sequence[Tensor]) -> Tensor:
        """The rows of a chunk's destinations, differentiable by all operands any number of times."""
        destination, source, edge, shared = self.parts(operands)
        begin, end = chunk.rows
        whole = end - begin == graph.num_dst
        return self.reduce(
            self.formula(
                [_apply(_Gather, x if whole else x[begin:end], chunk.destination, None) for x in destination],
                [_apply(_Gather, x, chunk.source, None) for x in source],
                [_of_edges(graph, chunk, x) for x in edge],
                shared,
            ),
            chunk.destination,
        )


def aggregate(
    graph: Graph,
    formula: Formula,
    reduce: Reduction,
    *,
    destination: Sequence[Tensor] = (),
    source: Sequence[Tensor] = (),
    edge: Sequence[Tensor] = (),
    shared: Sequence[Tensor] = (),
    modules: Sequence[Any] = (),
    aggregator: Any = None,
    width: int,
    in_order: bool = False,
) -> Tensor:
    """Reduces the messages of all edges to rows of the destinations.

    Args:
        graph: its weights have no part in this.
        formula: what a message is. It reads no tensor that has a gradient but its arguments and the parameters of ``modules``.
        reduce: what becomes of messages.
        destination: matrices of destinations.
        source: matrices of sources.
        edge: matrices of edges, in the order in which edges are given.
        shared: tensors that the formula reads as they are.
        modules: what the formula calls. With one whose result for a row depends on other rows or on chance (:func:`is_by_rows`), all
            messages are one chunk, which is not evaluated again.
        aggregator: PyG's module that the reduction calls, where it has parameters.
        width: numbers of one edge's widest matrix.
        in_order: whether chunks follow the order in which edges are given, so that the rows of edges are not permuted. Of a reduction to
            sums, and without rows of destinations. Each chunk then adds to all destinations.

    Returns:
        destinations × F, for F columns of a message.
    """
    counts = (len(destination), len(source), len(edge), len(shared))
    message = _Message(formula, reduce, counts)
    called = [module for module in (*modules, aggregator) if isinstance(module, torch.nn.Module)]
    learned = [parameter for module in called for parameter in module.parameters()]
    operands = (*destination, *source, *edge, *shared, *learned)
    in_order = in_order and graph._order is not None
    rows = max(graph.num_src * sum(x.shape[1] for x in source), graph.num_dst * width if in_order else 0)
    limit = _limit(graph, width, rows)
    if graph.num_edges <= limit or getattr(aggregator, "mode", None) == "attn" or not all(map(is_by_rows, modules)):
        # Where edges need not be permuted, one chunk does not either.
        whole = _chunks(graph, max(graph.num_edges, 1), True) if in_order else _chunks(graph, None)
        return message.of_chunk(graph, whole[0], operands)
    return _apply(_Chunked, message, _chunks(graph, limit, in_order), graph, *operands)


class FusedFrom(NamedTuple):
    """When :func:`fused` is faster than chunks, whose passes are torch's."""

    #: Chunks of fewer edges stay in a CPU's caches.
    fewest_edges: int = 0
    #: Activations of which torch is the faster.
    slow_acts: frozenset[str] = frozenset()


#: By kind of device; chunks on others.
FUSED = {"cuda": FusedFrom(), "cpu": FusedFrom(65_536, frozenset({"softplus"}))}

#: Devices on which :func:`fused` makes other reductions than sums; torch's are the faster on a CPU.
OTHERS: tuple[str, ...] = ("cuda",)

_ACTS = {
    torch.nn.Identity: "identity", torch.nn.ReLU: "relu", torch.nn.LeakyReLU: "leaky_relu", torch.nn.Sigmoid: "sigmoid",
    torch.nn.Tanh: "tanh", torch.nn.Softplus: "softplus",
}  # fmt: skip


def act_name(act: Any) -> str | None:
    """What :func:`halfgnn.message_sum` calls an activation; None for another."""
    if type(act) is torch.nn.LeakyReLU and act.negative_slope != 0.01:
        return None
    if type(act) is torch.nn.Softplus and (act.beta, act.threshold) != (1.0, 20.0):
        return None
    name = _ACTS.get(type(act))
    return None if name is None or is_observed(act) else name


def is_fused(graph: Graph, reduce: Any, *acts: str | None) -> bool:
    """Whether :func:`fused` reduces messages with these activations. Other reductions than sums are on a GPU alone."""
    is_sum = reduce in ("sum", "add", "mean")
    if graph.device.type not in FUSED or None in acts or not (is_sum or reduce in ops.REDUCTIONS):
        return False
    if not is_sum and graph.device.type not in OTHERS:
        return False
    on_device = FUSED[graph.device.type]
    return graph.num_edges >= on_device.fewest_edges and on_device.slow_acts.isdisjoint(acts)


def fused(graph: Graph, reduce: str, acts: tuple[str, str], a: Terms, b: Terms = (None, None, None)) -> Tensor:
    """:func:`halfgnn.message_sum`, differentiable any number of times."""
    graph = graph.unweighted()
    terms = ops.message_terms(graph, a, b)
    if reduce in ops.REDUCTIONS:
        return reduced(graph, terms[:3], acts[0], reduce, _reduced_twice)
    return _apply(_Fused, graph, "mean" if reduce == "mean" else "sum", acts, *terms)


class _Fused(torch.autograd.Function):
    """Sums of messages; their second derivative is that of torch's operators."""

    @staticmethod
    def forward(ctx: Any, graph: Graph, reduce: Any, acts: tuple[str, str], *terms: Tensor | None) -> Tensor:
        ctx.graph, ctx.reduce, ctx.acts = graph, reduce, acts
        ctx.save_for_backward(*terms)
        return ops.message_sum_of(graph, terms, acts, reduce)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        terms, needed = ctx.saved_tensors, ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            return None, None, None, *_fused_twice(ctx, terms, needed, dy)
        return None, None, None, *ops.message_sum_gradients(ctx.graph, terms, ctx.acts, ctx.reduce, dy, needed)


_FUNCTIONS_OF_ACTS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x, "relu": torch.relu, "leaky_relu": torch.nn.functional.leaky_relu, "sigmoid": torch.sigmoid,
    "tanh": torch.tanh, "softplus": torch.nn.functional.softplus,
}  # fmt: skip


def _reduced_twice(ctx: Any, terms: Any, dy: Tensor, needed: Any) -> list[Any]:
    """Gradients of a reduction that have gradients, of messages of all edges."""
    act, reduce = ctx.names
    gate = Incidence(ctx.graph.edge_index[1], ctx.graph.num_dst)
    messages = _FUNCTIONS_OF_ACTS[act](_sum_of_ends(ctx.graph, gate, terms))
    if reduce == "softmax":
        y = _reduced(messages * _apply(_Softmax, messages, gate), gate, "sum")
    elif reduce == "std":
        mean = _reduced(messages.float(), gate, "mean")
        variance = _reduced(messages.float().square(), gate, "mean") - mean.square()
        y = variance.clamp(min=1e-5).sqrt()
        y = y.masked_fill(variance <= 1e-5, 0.0).to(messages.dtype)
    else:
        y = _reduced(messages, gate, reduce)
    return _derived(y, terms, dy, needed)


def _derived(y: Tensor, terms: Any, dy: Tensor, needed: Any) -> list[Any]:
    wanted = [x for x, needs in zip(terms, needed) if needs]
    found = iter(torch.autograd.grad(y, wanted, dy, create_graph=True, allow_unused=True))
    return [next(found) if needs else None for needs in needed]


def _sum_of_ends(graph: Graph, gate: Incidence, of: Any) -> Any:
    """The sum of the rows of both ends and of the edge, a row for each edge; None of no rows."""
    rows = [
        None if of[0] is None else _apply(_Gather, of[0], gate, None),
        None if of[1] is None else _apply(_Gather, of[1], Incidence(graph.edge_index[0], graph.num_src), None),
        of[2],
    ]
    rows = [x for x in rows if x is not None]
    return sum(rows[1:], rows[0]) if rows else None


def _fused_twice(ctx: Any, terms: Any, needed: Any, dy: Tensor) -> list[Any]:
    """Gradients that have gradients, of messages of all edges."""
    graph, (f, g) = ctx.graph, (_FUNCTIONS_OF_ACTS[act] for act in ctx.acts)
    gate = Incidence(graph.edge_index[1], graph.num_dst)
    a, b = (_sum_of_ends(graph, gate, of) for of in (terms[:3], terms[3:]))
    messages = f(a) if b is None else f(a) * g(b)
    return _derived(_reduced(messages, gate, ctx.reduce), terms, dy, needed)


def _limit(graph: Graph, width: int, rows: int) -> int:
    """Edges of a chunk, a power of two: what is made for all vertices once for each chunk, ``rows`` numbers, is half of its messages."""
    edges = max(_NUMBERS["cpu" if graph.device.type == "cpu" else "cuda"], 2 * rows) // max(width, 1)
    return 1 << max(edges, 1).bit_length()


@neutral
def _chunks(graph: Graph, limit: int | None, in_order: bool = False) -> list[_Chunk]:
    """The chunks of a graph, kept with it; one of all edges without a limit."""
    key = f"chunks {limit} {in_order}"
    found: Any = graph._cache.get(key)
    if found is None:
        found = graph._cache[key] = _in_order(graph, limit) if in_order and limit is not None else _made(graph, limit)
    return found  # type: ignore[no-any-return]


def _in_order(graph: Graph, limit: int) -> list[_Chunk]:
    sources, destinations = graph.edge_index.int()
    bounds = [(begin, min(begin + limit, graph.num_edges)) for begin in range(0, graph.num_edges, limit)]
    return [
        _Chunk(
            (0, graph.num_dst),
            slice(begin, end),
            Incidence(destinations[begin:end], graph.num_dst),
            Incidence(sources[begin:end], graph.num_src),
        )
        for begin, end in bounds
    ]


def _made(graph: Graph, limit: int | None) -> list[_Chunk]:
    count = graph.num_dst
    if limit is None:
        offsets, ends = np.array([0, graph.num_edges]), [(0, count)]
        bounds = [(0, graph.num_edges)]
    else:
        offsets, ends, begin = graph._offsets.cpu().numpy(), [], 0
        while begin < count:
            # As many rows as the limit has edges for, and at least one.
            end = int(np.searchsorted(offsets, offsets[begin] + limit, side="right")) - 1
            end = min(max(end, begin + 1), begin + _ROWS, count)
            ends.append((begin, end))
            begin = end
        bounds = [(int(offsets[begin]), int(offsets[end])) for begin, end in ends]
    chunks = []
    for rows, (first, last) in zip(ends, bounds, strict=True):
        edges: Any = slice(first, last) if graph._order is None else graph._order[first:last].long()
        local = graph._rows[first:last] - rows[0]
        chunks.append(_Chunk(rows, edges, Incidence(local, rows[1] - rows[0]), Incidence(graph._columns[first:last], graph.num_src)))
    return chunks


class _Reorder(torch.autograd.Function):
    """Rows in another order, and back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.order, ctx.inverse = order, inverse
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return _apply(_Reorder, dy, ctx.inverse, ctx.order), None, None


def _of_edges(graph: Graph, chunk: _Chunk, x: Tensor) -> Tensor:
    """The rows of a chunk's edges."""
    if isinstance(chunk.edges, slice):
        return x[chunk.edges]
    if len(chunk.edges) == graph.num_edges:
        return _apply(_Reorder, x, chunk.edges, graph._in_given_order())
    return x.index_select(0, chunk.edges)


class _Chunked(torch.autograd.Function):
    """:meth:`_Message.of_chunk` of all chunks, evaluated again for gradients."""

    @staticmethod
    def forward(ctx: Any, message: _Message, chunks: list[_Chunk], graph: Graph, *operands: Tensor) -> Tensor:
        ctx.message, ctx.chunks, ctx.graph = message, chunks, graph
        ctx.autocast = _autocast(graph)
        ctx.save_for_backward(*operands)
        y: Tensor | None = None
        for chunk in chunks:
            rows = message.of_chunk(graph, chunk, operands)
            if y is None:
                y = rows.new_zeros((graph.num_dst, rows.shape[1]))
            y[chunk.rows[0] : chunk.rows[1]] += rows
        assert y is not None
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        operands, needed = ctx.saved_tensors, ctx.needs_input_grad[3:]
        with ctx.autocast():
            if torch.is_grad_enabled():
                return None, None, None, *_twice(ctx.message, ctx.graph, operands, needed, dy)
            return None, None, None, *_gradients(ctx.message, ctx.chunks, operands, needed, dy)


def _autocast(graph: Graph) -> Callable[[], Any]:
    """Makes the context in which autocast is what it is now."""
    kind = graph.device.type
    enabled, format = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    return lambda: torch.autocast(kind, dtype=format, enabled=enabled, cache_enabled=False)


class _Gate:
    """Whether gradients go through an :class:`_Operand`."""

    is_open = False


class _Operand(torch.autograd.Function):
    """A tensor as an operand, whose own history is out of reach while the gate is closed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: _Gate) -> Tensor:
        ctx.gate = gate
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> Any:
        return (dx if ctx.gate.is_open else None), None


def _twice(message: _Message, graph: Graph, operands: Any, needed: Any, dy: Tensor) -> list[Any]:
    """Gradients that have gradients."""
    # One operand may be made of another: a part of a weight, and the module's weight.
    gate, own = _Gate(), sum(message.counts)
    operands = [_apply(_Operand, x, gate) if at < own and needs else x for at, (x, needs) in enumerate(zip(operands, needed))]
    y = message.of_chunk(graph, _chunks(graph, None)[0], operands)
    wanted = [operand for operand, needs in zip(operands, needed) if needs]
    found = iter(torch.autograd.grad(y, wanted, dy, create_graph=True, allow_unused=True))
    gate.is_open = True
    return [next(found) if needs else None for needs in needed]


def _gradients(message: _Message, chunks: list[_Chunk], operands: Any, needed: Any, dy: Tensor) -> list[Any]:
    """Gradients, chunk by chunk; those that chunks have in common are added up in float."""
    destinations, sources, edges, _ = message.counts
    kinds = ["destination"] * destinations + ["source"] * sources + ["edge"] * edges
    kinds += ["shared"] * (len(operands) - len(kinds))
    own = sum(message.counts)
    results: list[Any] = [
        None if not needs else torch.empty_like(x) if kind in ("destination", "edge") else torch.zeros_like(x, dtype=torch.float32)
        for x, kind, needs in zip(operands, kinds, needed, strict=True)
    ]
    for chunk in chunks:
        begin, end = chunk.rows
        leaves: list[Tensor] = []
        for at, (x, kind, needs) in enumerate(zip(operands, kinds, needed)):
            if kind == "destination":
                x = x[begin:end]
            elif kind == "source":
                x = x.index_select(0, chunk.source.index)
            elif kind == "edge":
                x = x[chunk.edges] if isinstance(chunk.edges, slice) else x.index_select(0, chunk.edges)
            # Parameters of modules are read by the modules.
            leaves.append(x if at >= own else x.detach().requires_grad_(needs))
        with torch.enable_grad():
            of_destinations, of_sources, of_edges, shared = message.parts(leaves)
            gathered = [_apply(_Gather, x, chunk.destination, None) for x in of_destinations]
            y = message.reduce(message.formula(gathered, of_sources, of_edges, shared), chunk.destination)
        if not y.requires_grad:
            continue
        wanted = [at for at, needs in enumerate(needed) if needs]
        for at, grad in zip(wanted, torch.autograd.grad(y, [leaves[at] for at in wanted], dy[begin:end], allow_unused=True)):
            kind, result = kinds[at], results[at]
            if kind == "destination":
                result[begin:end] = 0 if grad is None else grad
            elif kind == "edge":
                grad = torch.zeros_like(leaves[at]) if grad is None else grad
                if isinstance(chunk.edges, slice):
                    result[chunk.edges] = grad
                else:
                    result.index_copy_(0, chunk.edges, grad)
            elif grad is not None:
                result += chunk.source.product(grad.float().contiguous()) if kind == "source" else grad
    return [None if result is None else result.to(x.dtype) for result, x in zip(results, operands)]


# Networks of messages

_BY_ROWS = (
    torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Identity, torch.nn.LayerNorm,
    torch.nn.ReLU, torch.nn.ReLU6, torch.nn.LeakyReLU, torch.nn.PReLU, torch.nn.ELU, torch.nn.SELU, torch.nn.CELU, torch.nn.GELU,
    torch.nn.SiLU, torch.nn.Mish, torch.nn.Sigmoid, torch.nn.LogSigmoid, torch.nn.Tanh, torch.nn.Softplus, torch.nn.Softsign,
    torch.nn.Hardtanh, torch.nn.Hardswish, torch.nn.Hardsigmoid,
)  # fmt: skip

_FUNCTIONS = (
    torch.relu, torch.sigmoid, torch.tanh, torch.nn.functional.relu, torch.nn.functional.leaky_relu, torch.nn.functional.elu,
    torch.nn.functional.selu, torch.nn.functional.gelu, torch.nn.functional.silu, torch.nn.functional.softplus, torch.nn.functional.sigmoid,
    torch.nn.functional.tanh, torch.nn.functional.mish,
)  # fmt: skip


def is_by_rows(network: Any) -> bool:
    """Whether a network is known to compute each row by itself and always the same: an MLP without a norm over rows and without dropout
    that is active."""
    if network is None or any(network is function for function in _FUNCTIONS):
        return True
    return isinstance(network, torch.nn.Module) and all(map(_is_by_rows, network.modules()))


def _is_by_rows(module: Any) -> bool:
    kind: Any = getattr(type(module), "_halfgnn_kind", type(module))
    if is_observed(module):
        return False
    if kind in _BY_ROWS or kind in PRODUCTS:
        return True
    if kind is torch.nn.Dropout:
        return not module.training or module.p == 0
    if kind is torch.nn.BatchNorm1d:
        return not module.training and module.running_mean is not None
    if kind is pyg.BatchNorm:
        return not module.training
    if kind is not pyg.MLP or not is_by_rows(module.act):
        return False
    return not module.training or not any(module.dropout)
