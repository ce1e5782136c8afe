"""Reductions of messages, one for each edge, to rows of destinations, and PyG's functions and aggregators of them.

Sums are made in float by the SpMM of an incidence matrix, destinations × edges, whatever the format of the messages is. They use no
atomics, so that the same messages give the same bits. A result is rounded once, to the format of the messages. All have second
derivatives. Equal maxima share a gradient equally.

The functions have the signatures of ``torch_geometric.utils``, and the methods those of ``torch_geometric.nn.aggr``. They compute for
the layer that runs in the current context, :data:`current`, and are PyG's own outside of one.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch_geometric.nn as pyg
import torch_geometric.utils as utils
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils.num_nodes import maybe_num_nodes

from .. import _eager, ops
from .._cached import Recent
from .._tensors import FORMATS, extremes, neutral
from ..graph import Graph, most_vertices
from ._common import Matrix, fall_back, is_compiling, is_matrix

#: Columns from which on rows of the SpMM are whole vectors of 16 bytes.
_NARROW = 4

#: Columns up to which a softmax on a GPU is one operator, column after column.
_FUSED_COLUMNS = 8


def is_on_host(x: Tensor) -> bool:
    """Whether torch's own operators of the CPU may do a part."""
    return x.device.type == "cpu"


class Incidence:
    """Which row each of E messages belongs to.

    Args:
        index: the row of each message, integers. It must not change later.
        rows: number of rows.
    """

    def __init__(self, index: Tensor, rows: int) -> None:
        self.index, self.rows = index, rows
        self._graph: Graph | None = None
        self._valid: bool | None = None

    @property
    def graph(self) -> Graph:
        """The matrix, rows × messages.

        Raises:
            IndexError: the index has a row that does not exist.
        """
        if self._graph is None:
            self._graph = _graph(self.index, self.rows)
        return self._graph

    @property
    def is_valid(self) -> bool:
        """Whether all rows of the index exist."""
        if self._valid is None:
            least, most = extremes(self.index)
            self._valid = least >= 0 and most < self.rows
        return self._valid

    def counts(self) -> Tensor:
        """Messages of each row, float32."""
        return self.graph.in_degrees().float()  # type: ignore[no-any-return]

    def inverse_counts(self) -> Tensor:
        """One over the messages of each row, and one where there is none, float32."""
        return self.graph._factors("in", -1.0)  # type: ignore[no-any-return]

    def product(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """The sums of rows of ``x``, E × F, times ``scale``, a number for each row; without gradients."""
        if x.shape[1] == 0:
            return x.new_zeros((self.rows, 0))
        if x.shape[1] < _NARROW and is_on_host(x):
            # Torch's sums need no whole vectors. On the CPU they are made in order, of one term after the other, hence in double.
            y = x.new_zeros((self.rows, x.shape[1]), dtype=torch.float64)
            y.scatter_add_(0, self._spread(x), x.double())
            return (y if scale is None else y * scale[:, None]).to(x.dtype)
        y = _eager._product(*self.graph._a, None, None, None, x, None, scale, None, None, None, False, False, 1)
        return y.contiguous()  # type: ignore[no-any-return]

    def maxima(self, x: Tensor) -> Tensor:
        """The maxima of rows of ``x``, E × F, and zeros where a row has no message; without gradients."""
        if x.shape[1] == 0 or x.shape[0] == 0:
            return x.new_zeros((self.rows, x.shape[1]))
        if is_on_host(x):
            # A maximum has no order. Torch's takes a third of the time of ours on a CPU.
            y = x.new_zeros((self.rows, x.shape[1]))
            return y.scatter_reduce_(0, self._spread(x), x, reduce="amax", include_self=False)
        y = _eager._product(*self.graph._a, None, None, None, x, None, None, None, None, None, False, True, 1)
        return y.contiguous()  # type: ignore[no-any-return]

    def _spread(self, x: Tensor) -> Tensor:
        return self.index.long()[:, None].expand(x.shape)


@neutral
def _graph(index: Tensor, rows: int) -> Graph:
    return Graph((torch.arange(len(index), device=index.device), index), size=(len(index), rows))


# Differentiable operators on matrices, E × F or rows × F


def _apply(function: Any, *operands: Any) -> Tensor:
    y: Tensor = function.apply(*operands)
    return y


class _Sum(torch.autograd.Function):
    """Sums of messages, each row times a constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, incidence: Incidence, scale: Tensor | None) -> Tensor:
        ctx.incidence, ctx.scale = incidence, scale
        return incidence.product(x, scale)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return _apply(_Gather, dy, ctx.incidence, ctx.scale), None, None


class _Gather(torch.autograd.Function):
    """A row times a constant for each message: the transpose of :class:`_Sum`."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, incidence: Incidence, scale: Tensor | None) -> Tensor:
        ctx.incidence, ctx.scale = incidence, scale
        if scale is not None:
            y = (y.float() * scale[:, None]).to(y.dtype)
        return y.index_select(0, incidence.index)

    @staticmethod
    def backward(ctx: Any, dx: Tensor) -> Any:
        return _apply(_Sum, dx.contiguous(), ctx.incidence, ctx.scale), None, None


class _Max(torch.autograd.Function):
    """Maxima of messages, whose gradient equal ones share."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, incidence: Incidence) -> Tensor:
        ctx.incidence = incidence
        y = incidence.maxima(x)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, y = ctx.saved_tensors
        incidence = ctx.incidence
        with torch.no_grad():
            hits = x == y.index_select(0, incidence.index)
            ties = incidence.product(hits.float()).clamp_(min=1)
        share = (dy.float() / ties).to(dy.dtype)
        return _apply(_Gather, share, incidence, None) * hits, None


class _Product(torch.autograd.Function):
    """Products of messages, float."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, incidence: Incidence) -> Tensor:
        ctx.incidence = incidence
        ctx.save_for_backward(x)
        order, graph = incidence.graph._order, incidence.graph
        x = x if order is None else x.index_select(0, order)
        return torch._segment_reduce(x.contiguous(), "prod", offsets=graph._offsets, initial=1)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        incidence = ctx.incidence
        is_zero = x == 0
        with torch.no_grad():
            zeros = incidence.product(is_zero.float()).index_select(0, incidence.index)
        # What a message is multiplied by: the others, of which one may be zero.
        divisors = x.masked_fill(is_zero, 1.0)
        others = _apply(_Gather, _apply(_Product, divisors, incidence), incidence, None) / divisors
        alone = (zeros == 0) | ((zeros == 1) & is_zero)
        return _apply(_Gather, dy, incidence, None) * others.masked_fill(~alone, 0.0), None


class _Softmax(torch.autograd.Function):
    """Softmax over the messages of a row, column by column."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, incidence: Incidence) -> Tensor:
        ctx.incidence = incidence
        if x.shape[1] <= _FUSED_COLUMNS and not is_on_host(x):
            graph = incidence.graph
            planes = _eager._softmax(*graph._a, ops._planes(graph, x))
            alpha = ops._values(graph, planes, False).contiguous()
        else:
            powers = (x.float() - incidence.maxima(x).float().index_select(0, incidence.index)).exp_()
            sums = incidence.product(powers)
            alpha = powers.div_(sums.index_select(0, incidence.index)).to(x.dtype)
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Any:
        (alpha,) = ctx.saved_tensors
        products = alpha.float() * d.float()
        sums = _apply(_Sum, products, ctx.incidence, None)
        return (products - alpha.float() * _apply(_Gather, sums, ctx.incidence, None)).to(d.dtype), None


_REDUCED: dict[str, str] = {
    "sum": "sum",
    "add": "sum",
    "mean": "mean",
    "min": "min",
    "amin": "min",
    "max": "max",
    "amax": "max",
    "mul": "mul",
}


def _reduced(x: Tensor, incidence: Incidence, reduce: str) -> Tensor:
    """A reduction of a matrix, E × F."""
    if reduce == "sum":
        return _apply(_Sum, x, incidence, None)
    if reduce == "mean":
        return _apply(_Sum, x, incidence, incidence.inverse_counts())
    if reduce == "max":
        return _apply(_Max, x, incidence)
    if reduce == "min":
        return -_apply(_Max, -x, incidence)
    return _apply(_Product, x.float(), incidence).to(x.dtype)


def _along(x: Tensor, dim: int, rows: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """What ``compute`` makes of ``x`` as a matrix, of which ``dim`` is the first dimension, in the shape of ``x`` but for ``dim``."""
    x = x.movedim(dim, 0)
    rest = x.shape[1:]
    y = compute(x.reshape(x.shape[0], math.prod(rest)))
    return y.reshape(rows, *rest).movedim(0, dim)


# The layer that runs


class Call:
    """A call of a layer: what operators keep for its time, and for the next one.

    Args:
        layer: the layer.
        recent: incidences and graphs of earlier calls.
        outer: the call in which it happens.
    """

    def __init__(self, layer: Any, recent: Recent, outer: Call | None = None) -> None:
        self.layer, self.recent = layer, recent
        # Each holds the tensor that it is of, so that no other one takes its address.
        self._found: dict[Any, tuple[Tensor, Incidence]] = {} if outer is None else outer._found

    def incidence(self, index: Tensor, rows: int) -> Incidence | None:
        """The incidence of an index, as of :class:`Incidence`; None where there are more rows than a graph has."""
        return self._of(index, rows, Incidence) if self.takes(rows, len(index)) else None

    def segments(self, ptr: Tensor, messages: int) -> Incidence | None:
        """The incidence of messages in order, of which row ``i`` has those from ``ptr[i]`` to ``ptr[i + 1]``; None likewise."""
        return self._of(ptr, -1, _of_segments) if self.takes(len(ptr) - 1, messages) else None

    def takes(self, rows: int, messages: int) -> bool:
        """Whether a graph may have these numbers of vertices and edges."""
        if rows <= most_vertices(messages):
            return True
        fall_back(self.layer, f"{rows} rows have {messages} messages")
        return False

    def _of(self, index: Tensor, rows: int, make: Callable[..., Incidence]) -> Incidence:
        key: Any = None
        if not index.is_inference():
            key = index.data_ptr(), index.shape, index.stride(), index.dtype, index._version, rows
            found = self._found.get(key)
            if found is not None:
                return found[1]
        made = self.recent.get((index,), (index.shape, rows), lambda copy: make(copy, rows))
        if key is not None:
            self._found[key] = index, made
        return made


def _of_segments(ptr: Tensor, _rows: int) -> Incidence:
    rows = len(ptr) - 1
    return Incidence(torch.repeat_interleave(torch.arange(rows, device=ptr.device), ptr.diff()), rows)


#: The call that is under way in this thread or task.
current: contextvars.ContextVar[Call | None] = contextvars.ContextVar("halfgnn_layer", default=None)


@contextmanager
def calling(layer: Any, recent: Recent) -> Iterator[None]:
    """A call of a layer is under way."""
    token = current.set(Call(layer, recent, current.get()))
    try:
        yield
    finally:
        current.reset(token)


def is_active() -> bool:
    """Whether a layer runs that halfgnn computes for."""
    return not is_compiling() and current.get() is not None


def _plain(index: Any) -> Any:
    """An index as torch's tensor, where it is PyG's."""
    return index.as_tensor() if hasattr(index, "as_tensor") else index


def _call_for(x: Any, index: Any, dim: int, length: int | None = None) -> Call | None:
    """The call to compute for, or None where PyG's own function is to do it: it has the errors for operands that do not fit, and the
    formats that halfgnn has not."""
    call = None if is_compiling() else current.get()
    if call is None or not isinstance(x, Tensor) or not isinstance(index, Tensor):
        return None
    # Counts are PyG's: integers have no rounding.
    if not (x.is_floating_point() or x.is_complex()) or index.ndim != 1 or not -x.ndim <= dim < x.ndim:
        return None
    if x.layout == torch.strided and x.shape[dim] != (len(index) if length is None else length):
        return None
    reason = None
    if type(x) not in (Tensor, torch.nn.Parameter):
        reason = f"messages are a {type(x).__name__}"
    elif x.layout != torch.strided:
        reason = f"messages are {x.layout}"
    elif x.dtype not in FORMATS:
        reason = f"messages are {x.dtype}"
    elif x.device.type not in ("cpu", "cuda"):
        reason = f"messages are on {x.device}"
    elif x.is_cuda and torch.cuda.is_current_stream_capturing():
        reason = "work is captured"
    elif index.device != x.device or index.dtype not in (torch.int32, torch.int64):
        return None
    if reason is not None:
        fall_back(call.layer, reason)
        return None
    return call


# PyG's functions


def scatter(src: Tensor, index: Tensor, dim: int = 0, dim_size: int | None = None, reduce: str = "sum") -> Tensor:
    """As ``torch_geometric.utils.scatter``."""
    index = _plain(index)
    call = _call_for(src, index, dim)
    kind = _REDUCED.get(reduce)
    if call is None or kind is None:
        return utils.scatter(src, index, dim, dim_size, reduce)  # type: ignore[no-any-return]
    incidence = call.incidence(index, _rows(index, dim_size))
    if incidence is None:
        return utils.scatter(src, index, dim, dim_size, reduce)  # type: ignore[no-any-return]
    return _along(src, dim, incidence.rows, lambda x: _reduced(x, incidence, kind))


def _rows(index: Tensor, rows: int | None) -> int:
    if rows is not None:
        return int(rows)
    return int(index.max()) + 1 if len(index) else 0


def segment(src: Tensor, ptr: Tensor, reduce: str = "sum") -> Tensor:
    """As ``torch_geometric.utils.segment``."""
    incidence = None
    if reduce in ("sum", "mean", "min", "max"):
        incidence = _incidence(src, None, ptr, None, 0)
    if incidence is None:
        return utils.segment(src, ptr, reduce)  # type: ignore[no-any-return]
    return _along(src, 0, incidence.rows, lambda x: _reduced(x, incidence, reduce))


def softmax(
    src: Tensor, index: Tensor | None = None, ptr: Tensor | None = None, num_nodes: int | None = None, dim: int = 0
) -> Tensor:
    """As ``torch_geometric.utils.softmax``."""
    incidence = _incidence(src, index, ptr, None, dim, num_nodes)
    if incidence is None:
        return utils.softmax(src, index, ptr, num_nodes, dim)  # type: ignore[no-any-return]
    return _along(src, dim, src.shape[dim], lambda x: _apply(_Softmax, x, incidence))


def degree(index: Tensor, num_nodes: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """As ``torch_geometric.utils.degree``. It counts in float where ``dtype`` has 16 bits."""
    if is_active() and dtype in (torch.float16, torch.bfloat16):
        return utils.degree(index, num_nodes, torch.float32).to(dtype)  # type: ignore[no-any-return]
    return utils.degree(index, num_nodes, dtype)  # type: ignore[no-any-return]


def spmm(src: Any, other: Tensor, reduce: str = "sum") -> Tensor:
    """As ``torch_geometric.utils.spmm``."""
    kind = _REDUCED.get(reduce)
    parts: Any = None
    if is_active() and isinstance(other, Tensor) and other.ndim == 2 and kind in ("sum", "mean", "min", "max"):
        parts = _edges(src)
    if parts is None:
        return utils.spmm(src, other, reduce)  # type: ignore[no-any-return]
    columns, rows, values, size = parts
    call = _call_for(other, columns, 0, size[0])
    if call is None or (values is not None and (values.ndim != 1 or values.dtype not in FORMATS)):
        return utils.spmm(src, other, reduce)  # type: ignore[no-any-return]
    if not call.takes(max(size), len(rows)):
        return utils.spmm(src, other, reduce)  # type: ignore[no-any-return]
    graph = call.recent.get((columns, rows), ("matrix", *size), lambda *ends: Graph(ends, size=size))
    # A product of a sparse matrix is in the format of its operands, whatever autocast's is.
    with torch.autocast(other.device.type, enabled=False):
        if kind == "min":
            return -ops.spmm(graph, -other, values, reduce="max")  # type: ignore[no-any-return]
        return ops.spmm(graph, other, values, reduce=kind)  # type: ignore[no-any-return, arg-type]


def _edges(matrix: Any) -> tuple[Tensor, Tensor, Tensor | None, tuple[int, int]] | None:
    """Columns, rows and values of a sparse matrix, and numbers of columns and rows; None where it is none."""
    if isinstance(matrix, EdgeIndex):
        rows, columns = matrix.as_tensor()
        return columns, rows, None, (int(matrix.get_sparse_size(1)), int(matrix.get_sparse_size(0)))
    if not is_matrix(matrix):
        return None
    edges = Matrix(matrix)
    return edges._columns, edges._rows, edges.values, edges.size


#: PyG's functions, and those that take their place.
FUNCTIONS: dict[Any, Any] = {
    utils.scatter: scatter,
    utils.segment: segment,
    utils.softmax: softmax,
    utils.degree: degree,
    utils.spmm: spmm,
}

# PyG's aggregators


def _incidence(
    x: Tensor, index: Tensor | None, ptr: Tensor | None, dim_size: int | None, dim: int, num_nodes: int | None = None
) -> Incidence | None:
    """The incidence that an aggregator is given, or None where PyG's own is to do it."""
    if index is not None:
        index = _plain(index)
        call = _call_for(x, index, dim)
        if call is None:
            return None
        rows = _rows(index, dim_size) if num_nodes is None else maybe_num_nodes(index, num_nodes)
        return call.incidence(index, rows)
    if ptr is None or ptr.ndim != 1 or not is_active():
        return None
    call = _call_for(x, ptr, dim, int(ptr[-1]))
    return None if call is None else call.segments(ptr, x.shape[dim])


def _reduce(
    self: Any, x: Tensor, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2, reduce: str = "sum"
) -> Tensor:
    incidence, kind = _incidence(x, index, ptr, dim_size, dim), _REDUCED.get(reduce)
    if incidence is None or kind is None:
        return pyg.Aggregation.reduce(self, x, index, ptr, dim_size, dim, reduce)  # type: ignore[no-any-return]
    return _along(x, dim, incidence.rows, lambda rows: _reduced(rows, incidence, kind))


#: PyG's methods, and those that take their place.
METHODS: dict[Any, Any] = {pyg.Aggregation.reduce: _reduce}

#: A forward pass: of a module, a matrix of floats, E × F, and its incidence.
_Compute = Callable[[Any, Tensor, Incidence], Tensor]

#: Forward passes by PyG's class.
_COMPUTES: dict[type, _Compute] = {}

#: Reductions by PyG's class.
_KINDS: dict[type, str] = {
    pyg.SumAggregation: "sum",
    pyg.MeanAggregation: "mean",
    pyg.MaxAggregation: "max",
    pyg.MinAggregation: "min",
    pyg.MulAggregation: "mul",
}


def _aggregator(kind: Any) -> Callable[[_Compute], _Compute]:
    """Makes a function the forward pass of PyG's class ``kind``."""
    theirs = kind.forward

    def register(compute: _Compute) -> _Compute:
        def forward(
            self: Any, x: Tensor, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2
        ) -> Tensor:
            incidence = _incidence(x, index, ptr, dim_size, dim)
            if incidence is None:
                return theirs(self, x, index, ptr, dim_size, dim)  # type: ignore[no-any-return]
            if getattr(self, "channels", 1) != 1:
                self.assert_two_dimensional_input(x, dim)
            return _along(x, dim, incidence.rows, lambda rows: compute(self, rows.float(), incidence).to(x.dtype))

        METHODS[theirs] = forward
        _COMPUTES[kind] = compute
        return compute

    return register


def reduced_by(module: Any, x: Tensor, incidence: Incidence) -> Tensor:
    """What one of PyG's aggregators reduces a matrix to, E × F, or several of them."""
    if isinstance(module, pyg.MultiAggregation):
        return module.combine([reduced_by(each, x, incidence) for each in module.aggrs])  # type: ignore[no-any-return]
    kind: Any = getattr(type(module), "_halfgnn_kind", type(module))
    if kind in _KINDS:
        return _reduced(x, incidence, _KINDS[kind])
    return _COMPUTES[kind](module, x.float(), incidence).to(x.dtype)


def _gathered(y: Tensor, incidence: Incidence) -> Tensor:
    return _apply(_Gather, y, incidence, None)


@_aggregator(pyg.aggr.VarAggregation)
def _variance(self: Any, x: Tensor, incidence: Incidence) -> Tensor:
    # PyG's difference of two means cancels where values are large. Distances from the mean do not.
    mean = _reduced(x, incidence, "mean")
    if not self.semi_grad:
        return _reduced((x - _gathered(mean, incidence)).square(), incidence, "mean")
    with torch.no_grad():
        variance = _reduced((x - _gathered(mean, incidence)).square(), incidence, "mean")
    square = mean * mean
    return variance + (square.detach() - square)


@_aggregator(pyg.aggr.StdAggregation)
def _deviation(self: Any, x: Tensor, incidence: Incidence) -> Tensor:
    deviation = _variance(self.var_aggr, x, incidence).clamp(min=1e-5).sqrt()
    return deviation.masked_fill(deviation <= math.sqrt(1e-5), 0.0)


@_aggregator(pyg.aggr.SoftmaxAggregation)
def _weighted(self: Any, x: Tensor, incidence: Incidence) -> Tensor:
    t = self.t if self.channels == 1 else self.t.view(-1, self.channels)
    with torch.set_grad_enabled(torch.is_grad_enabled() and (self.learn or not self.semi_grad)):
        alpha = _apply(_Softmax, x if isinstance(t, (int, float)) and t == 1 else x * t, incidence)
    return _reduced(x * alpha, incidence, "sum")


@_aggregator(pyg.aggr.PowerMeanAggregation)
def _power_mean(self: Any, x: Tensor, incidence: Incidence) -> Tensor:
    p = self.p if self.channels == 1 else self.p.view(-1, self.channels)
    if isinstance(p, (int, float)) and p == 1:
        return _reduced(x, incidence, "mean")
    limits = {"min": self.min_value, "max": self.max_value}
    p = p.float() if isinstance(p, Tensor) else p
    mean = _reduced(x.clamp(**limits).pow(p), incidence, "mean")
    return mean.clamp(**limits).pow(1.0 / p)


@_aggregator(pyg.aggr.VariancePreservingAggregation)
def _variance_preserving(self: Any, x: Tensor, incidence: Incidence) -> Tensor:
    return _reduced(x, incidence, "sum") * incidence.inverse_counts().sqrt()[:, None]


def _multi(self: Any, x: Tensor, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2) -> Any:
    if not is_active():
        return pyg.MultiAggregation.forward(self, x, index, ptr, dim_size, dim)
    return self.combine([aggregator(x, index, ptr, dim_size, dim) for aggregator in self.aggrs])


def _factor(self: Any, scaler: str, degrees: Tensor) -> Tensor | None:
    """What a scaler multiplies by, float32; None for one."""
    linear, logarithmic = self.avg_deg_lin.float(), self.avg_deg_log.float()
    if scaler == "identity":
        return None
    if scaler == "amplification":
        return torch.log(degrees + 1) / logarithmic  # type: ignore[no-any-return]
    if scaler == "attenuation":
        return logarithmic / torch.log(degrees.clamp(min=1) + 1)  # type: ignore[no-any-return]
    if scaler == "linear":
        return degrees / linear  # type: ignore[no-any-return]
    if scaler == "inverse_linear":
        return linear / degrees.clamp(min=1)  # type: ignore[no-any-return]
    raise ValueError(f"Unknown scaler '{scaler}'")


def _scaled(self: Any, x: Tensor, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2) -> Any:
    incidence = None if index is None else _incidence(x, index, None, dim_size, dim)
    if incidence is None:
        return pyg.DegreeScalerAggregation.forward(self, x, index, ptr, dim_size, dim)
    out = self.aggr(x, index, ptr, dim_size, dim)
    shape = [1] * out.ndim
    shape[dim] = -1
    degrees = incidence.counts().view(shape)
    outs = []
    for scaler in self.scaler:
        factor = _factor(self, scaler, degrees)
        outs.append(out if factor is None else (out.float() * factor).to(out.dtype))
    return torch.cat(outs, dim=-1) if len(outs) > 1 else outs[0]


def _quantiles(self: Any, x: Tensor, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2) -> Tensor:
    incidence = None if index is None else _incidence(x, index, None, dim_size, dim)
    if incidence is None or len(incidence.index) == 0:
        return pyg.aggr.QuantileAggregation.forward(self, x, index, ptr, dim_size, dim)  # type: ignore[no-any-return]
    graph, q = incidence.graph, self.q.float().reshape(-1)
    given = torch.as_tensor(self._q, device=q.device).reshape(-1)
    if self.q.dtype != torch.float32 and torch.equal(given.to(self.q.dtype), self.q.reshape(-1)):
        # Quantiles that a model's conversion to 16 bits rounded.
        q = given.float()
    counts, first = graph.in_degrees(), graph._offsets[:-1]

    def one(rows: Tensor, order: Tensor, at: Tensor) -> Tensor:
        """The quantile whose places among a row's messages are these."""

        def value(place: Tensor) -> Tensor:
            places = (first + place.long()).clamp(max=len(rows) - 1)
            return rows.gather(0, order.index_select(0, places)).float()

        if self.interpolation == "lower":
            return value(at.floor())
        if self.interpolation == "higher":
            return value(at.ceil())
        if self.interpolation == "nearest":
            # PyG rounds places among all messages, and half to even.
            return value(at.floor() + torch.where(at.frac() == 0.5, (first + at.long()) % 2, at.frac() > 0.5))
        low, high = value(at.floor()), value(at.ceil())
        return low + (high - low) * at.frac()[:, None] if self.interpolation == "linear" else 0.5 * low + 0.5 * high

    def compute(rows: Tensor) -> list[Tensor]:
        # By value, and then by destination, of which the second keeps the order of the first.
        by_value = rows.detach().sort(dim=0, stable=True).indices
        by_row = incidence.index[by_value].sort(dim=0, stable=True).indices
        order = by_value.gather(0, by_row)
        places = [(each * (counts - 1)).clamp(min=0) for each in q]
        empty = (counts == 0)[:, None]
        return [one(rows, order, at).masked_fill(empty, self.fill_value).to(x.dtype) for at in places]

    dim = x.ndim + dim if dim < 0 else dim
    moved = x.movedim(dim, 0)
    rest = moved.shape[1:]
    outs = [y.reshape(-1, *rest).movedim(0, dim) for y in compute(moved.reshape(len(moved), math.prod(rest)))]
    if len(outs) == 1:
        return outs[0]
    out = torch.stack(outs, dim + 1)
    return out if dim == x.ndim - 1 else out.flatten(dim + 1, dim + 2)


METHODS[pyg.MultiAggregation.forward] = _multi
METHODS[pyg.DegreeScalerAggregation.forward] = _scaled
METHODS[pyg.aggr.QuantileAggregation.forward] = _quantiles


# Rows of vertices for each edge, whose gradients are sums


def _index_select(self: Any, src: Tensor, index: Any) -> Tensor:
    found = _lifted(self, src, _plain(index))
    return pyg.MessagePassing._index_select(self, src, index) if found is None else found


def _lift(self: Any, src: Tensor, edge_index: Any, dim: int) -> Tensor:
    found = None
    if is_active() and is_matrix(edge_index):
        edges = Matrix(edge_index)
        found = _lifted(self, src, edges._columns if dim == 0 else edges._rows)
    return pyg.MessagePassing._lift(self, src, edge_index, dim) if found is None else found


def _lifted(layer: Any, src: Tensor, index: Tensor) -> Tensor | None:
    """Rows of ``src``; None where PyG's own function is to do it."""
    dim = layer.node_dim
    if not src.requires_grad or not torch.is_grad_enabled() or index.ndim != 1 or not -src.ndim <= dim < src.ndim:
        return None
    call = _call_for(src, index, dim, src.shape[dim])
    if call is None:
        return None
    incidence = call.incidence(index, src.shape[dim])
    # PyG has the errors for ids that do not exist.
    if incidence is None or not incidence.is_valid:
        return None
    return _along(src, dim, len(index), lambda x: _apply(_Gather, x, incidence, None))


METHODS[pyg.MessagePassing._index_select] = _index_select
METHODS[pyg.MessagePassing._lift] = _lift
