"""Operators on a plain ``edge_index`` inside ``torch.compile`` and ``torch.export``.

They take ``edge_index`` itself, so that nothing in a traced graph has a size that depends on its contents. Each looks up the graph of
the tensor that it runs on, which is made once while the tensor has the same contents.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _library, ops
from .._cached import graph_of
from .._library import _define, _fake_output, _ops
from .._tensors import FORMATS
from ..graph import Graph


class Edges:
    """A graph in a trace.

    Args:
        index: ``edge_index``.
        sources: number of sources.
        destinations: number of destinations.
        loops: whether there is one loop at each vertex in place of the loops in ``index``.
    """

    def __init__(self, index: Tensor, sources: Any, destinations: Any, loops: bool = False) -> None:
        self.index, self.num_src, self.num_dst, self.loops = index, sources, destinations, loops

    def with_loops(self) -> Edges:
        """With one loop at each vertex."""
        return Edges(self.index, self.num_src, self.num_dst, True)

    def degrees(self) -> Tensor:
        """Edges that arrive at each destination, float32."""
        source, destination = self.index[0].long(), self.index[1].long()
        if not self.loops:
            ones = torch.ones(destination.shape, device=destination.device)
            zeros: Tensor = ones.new_zeros(self.num_dst)
            return zeros.scatter_add(0, destination, ones)
        count = (source != destination).to(torch.float32)
        looped = torch.arange(self.num_dst, device=source.device) < self.num_src
        degrees: Tensor = count.new_zeros(self.num_dst).scatter_add(0, destination, count) + looped.to(torch.float32)
        return degrees

    def scaled_spmm(
        self, x: Tensor, weight: Tensor | None, scales: tuple[Any, Any], bias: Tensor | None = None, maximum: bool = False
    ) -> Tensor:
        """As :func:`halfgnn.ops.scaled_spmm`; ``weight`` is a number for each edge of ``edge_index``, of which there are no loops to add."""
        x = ops._format("spmm", x)
        y: Tensor = _ops.indexed_spmm(self.index, self.num_src, self.num_dst, self.loops, False, x, weight, *scales, maximum)
        return y if bias is None else y + bias.to(y.dtype)

    def spmm(
        self, x: Tensor, weight: Tensor | None = None, reduce: str = "sum", bias: Tensor | None = None, epsilon: Tensor | None = None
    ) -> Tensor:
        """As :func:`halfgnn.spmm`."""
        scale = self.degrees().clamp(min=1).reciprocal() if reduce == "mean" else None
        y = self.scaled_spmm(x, weight, (scale, None), None, reduce == "max")
        if epsilon is not None:
            y = y + ((1 + epsilon) * x).to(y.dtype)
        return y if bias is None else y + bias.to(y.dtype)

    def attention(
        self,
        name: str,
        h: Tensor,
        vectors: tuple[Tensor, ...],
        *,
        heads: int,
        negative_slope: float,
        dropout: float,
        h_dst: Tensor | None,
    ) -> Tensor:
        """As :func:`halfgnn.gat_attention` and :func:`halfgnn.gatv2_attention`, by the operator's name."""
        h = ops._format(name, h)
        result = h.dtype
        operands = [h, *vectors] if h_dst is None else [h, h_dst, *vectors]
        # Kernels read all in one format: in float, where there are several, none loses anything.
        if any(operand.dtype != result for operand in operands):
            operands = [operand.float() for operand in operands]
        learns = ops._gradients(*operands)
        stacked = torch.stack([vector.reshape(-1) for vector in operands[-len(vectors) :]])
        lanes = FORMATS[stacked.dtype][1]
        stacked = ops._widened(stacked, heads, lanes)[0]
        h, width = ops._widened(operands[0], heads, lanes)
        h_dst = None if h_dst is None else ops._widened(operands[1], heads, lanes)[0]
        seed = None
        if dropout > 0.0:
            seed = torch.randint(-(2**31), 2**31 - 1, (1,), dtype=torch.int32, device=h.device)
        given = self.index, self.num_src, self.num_dst, self.loops, h, h_dst, stacked, heads, negative_slope, dropout, seed
        if name == "gat_attention":
            y = _ops.indexed_gat(*given, learns)[0]
        else:
            y = _ops.indexed_gatv2(*given)[0]
        return ops._narrowed(y, heads, width).to(result)


def _graph(index: Tensor, sources: int, destinations: int, loops: bool, turned: bool = False) -> Graph:
    size = (sources, destinations)
    graph = graph_of(index, (index,), size, lambda: Graph(index, size=size))
    graph = graph._looped()[0] if loops else graph
    return graph._turned() if turned else graph


# Sums, means and maxima


def _spmm(
    index: Tensor,
    sources: int,
    destinations: int,
    loops: bool,
    turned: bool,
    x: Tensor,
    weight: Tensor | None,
    row_scale: Tensor | None,
    column_scale: Tensor | None,
    maximum: bool,
) -> Tensor:
    graph = _graph(index, sources, destinations, loops, turned)
    y: Tensor = ops.scaled_spmm(graph, x, weight, (row_scale, column_scale), maximum=maximum)
    return y


def _spmm_fake(
    index: Any, sources: Any, destinations: Any, loops: bool, turned: bool, x: Any, *_others: Any
) -> Tensor:
    return _fake_output(x, sources if turned else destinations, x.shape[1])


_define(
    "indexed_spmm(Tensor index, SymInt sources, SymInt destinations, bool loops, bool turned, Tensor x, Tensor? weight, "
    "Tensor? row_scale, Tensor? column_scale, bool maximum) -> Tensor",
    _spmm,
    _spmm_fake,
)


def _spmm_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    index, ctx.sources, ctx.destinations, ctx.loops, ctx.turned, x, weight, row_scale, column_scale, ctx.maximum = inputs
    reads_x = ctx.maximum or ctx.needs_input_grad[6]
    ctx.save_for_backward(index, x if reads_x else None, weight, row_scale, column_scale, output if ctx.maximum else None)


def _spmm_backward(ctx: Any, dy: Tensor) -> Any:
    index, x, weight, row_scale, column_scale, y = ctx.saved_tensors
    graph = index, ctx.sources, ctx.destinations, ctx.loops
    dx = dweight = None
    if ctx.maximum:
        dx = _ops.indexed_maximum_backward(*graph, x, y, dy)
    else:
        if ctx.needs_input_grad[5]:
            dx = _ops.indexed_spmm(*graph, not ctx.turned, dy, weight, column_scale, row_scale, False)
        if ctx.needs_input_grad[6]:
            source, destination = (index[1], index[0]) if ctx.turned else (index[0], index[1])
            dweight = _ops.indexed_sddmm(*graph, ctx.turned, dy.to(weight.dtype), x.to(weight.dtype))
            for scale, ends in ((row_scale, destination), (column_scale, source)):
                if scale is not None:
                    dweight = dweight * scale.index_select(0, ends)
            dweight = dweight.to(weight.dtype)
    return None, None, None, None, None, dx, dweight, None, None, None


torch.library.register_autograd("halfgnn::indexed_spmm", _spmm_backward, setup_context=_spmm_setup, lib=_library._library)


def _sddmm(
    index: Tensor, sources: int, destinations: int, loops: bool, turned: bool, u: Tensor, v: Tensor
) -> Tensor:
    dots: Tensor = ops.sddmm(_graph(index, sources, destinations, loops, turned), u, v)
    return dots.clone()


def _sddmm_fake(index: Any, sources: Any, destinations: Any, loops: bool, turned: bool, u: Any, v: Any) -> Tensor:
    return u.new_empty((index.shape[1],))  # type: ignore[no-any-return]


_define(
    "indexed_sddmm(Tensor index, SymInt sources, SymInt destinations, bool loops, bool turned, Tensor u, Tensor v) -> Tensor",
    _sddmm,
    _sddmm_fake,
)


class _Context:
    """What the formulas of gradients of :mod:`halfgnn._library` read of a context."""

    #: Of the operands of ``spmm`` the features alone.
    needs_input_grad = tuple(at == 5 for at in range(14))
    saved_tensors: tuple[Any, ...]

    def save_for_backward(self, *saved: Any) -> None:
        self.saved_tensors = saved


def _maximum_backward(
    index: Tensor, sources: int, destinations: int, loops: bool, x: Tensor, y: Tensor, dy: Tensor
) -> Tensor:
    graph = _graph(index, sources, destinations, loops)
    context, none = _Context(), (None, None, None, None, None)
    _library._spmm_setup(context, (*graph._a, None, None, None, x, *none, False, True, 1), y)
    dx: Tensor = _library._spmm_gradients(context, dy, None, None, _library._max_backward)[5]
    return dx.contiguous()


def _maximum_backward_fake(index: Any, sources: Any, destinations: Any, loops: bool, x: Any, *_others: Any) -> Tensor:
    return x.new_empty(x.shape)  # type: ignore[no-any-return]


_define(
    "indexed_maximum_backward(Tensor index, SymInt sources, SymInt destinations, bool loops, Tensor x, Tensor y, Tensor dy) -> Tensor",
    _maximum_backward,
    _maximum_backward_fake,
)

# Attention: the operators of :mod:`halfgnn._library`, which are given the graph's arrays here.

_OF_INDEX = "Tensor index, SymInt sources, SymInt destinations, bool loops, Tensor h, Tensor? h_destination, Tensor vectors"
_OPTIONS = "int heads, float slope, float dropout, Tensor? seed"


def _gat(index: Tensor, sources: int, destinations: int, loops: bool, *others: Any) -> Any:
    return _ops.gat_attention.default(*_graph(index, sources, destinations, loops)._a, None, None, *others)


def _gat_fake(index: Any, sources: Any, destinations: Any, loops: bool, *others: Any) -> Any:
    return _library._attention_fake(None, (destinations,), None, None, *others)


_define(f"indexed_gat({_OF_INDEX}, {_OPTIONS}, bool keep) -> (Tensor, Tensor, Tensor)", _gat, _gat_fake)


def _gat_backward(index: Tensor, sources: int, destinations: int, loops: bool, *others: Any) -> Any:
    graph = _graph(index, sources, destinations, loops)
    graph._make_transpose()
    return _ops.gat_attention_backward.default(*graph._t, *others)


def _gat_backward_fake(index: Any, sources: Any, destinations: Any, loops: bool, *others: Any) -> Any:
    return _library._attention_backward_fake(None, None, *others)


_define(
    f"indexed_gat_backward({_OF_INDEX}, Tensor y, Tensor positive, Tensor dy, Tensor saved, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    _gat_backward,
    _gat_backward_fake,
)


def _gatv2(index: Tensor, sources: int, destinations: int, loops: bool, *others: Any) -> Any:
    return _ops.gatv2_attention.default(*_graph(index, sources, destinations, loops)._a, None, None, *others)


def _gatv2_fake(index: Any, sources: Any, destinations: Any, loops: bool, *others: Any) -> Any:
    return _library._additive_fake(None, (destinations,), None, None, *others)


_define(f"indexed_gatv2({_OF_INDEX}, {_OPTIONS}) -> (Tensor, Tensor)", _gatv2, _gatv2_fake)


def _gatv2_backward(index: Tensor, sources: int, destinations: int, loops: bool, *others: Any) -> Any:
    graph = _graph(index, sources, destinations, loops)
    graph._make_transpose()
    return _ops.gatv2_attention_backward.default(*graph._a, *graph._t, *others)


def _gatv2_backward_fake(index: Any, sources: Any, destinations: Any, loops: bool, *others: Any) -> Any:
    return _library._additive_backward_fake(None, (destinations,), None, None, *others)


_define(
    f"indexed_gatv2_backward({_OF_INDEX}, Tensor y, Tensor statistics, Tensor dy, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    _gatv2_backward,
    _gatv2_backward_fake,
)


def _attention_setup(ctx: Any, inputs: Any, output: Any) -> None:
    index, sources, destinations, loops, h, h_destination, vectors, *options = inputs
    *ctx.options, seed = options[:4]
    ctx.size = sources, destinations, loops
    ctx.save_for_backward(index, h, h_destination, vectors, seed, *output)


def _gat_gradient(ctx: Any, dy: Tensor, *_others: Any) -> Any:
    index, h, h_destination, vectors, seed, y, positive, saved = ctx.saved_tensors
    dh, dh_destination, d_vectors = _ops.indexed_gat_backward(
        index, *ctx.size, h, h_destination, vectors, y, positive, dy, saved, *ctx.options, seed
    )
    apart = None if h_destination is None else dh_destination
    return None, None, None, None, dh, apart, d_vectors.to(vectors.dtype), None, None, None, None, None


def _gatv2_gradient(ctx: Any, dy: Tensor, *_others: Any) -> Any:
    index, h, h_destination, vectors, seed, y, statistics = ctx.saved_tensors
    apart, dh, d_vectors = _ops.indexed_gatv2_backward(
        index, *ctx.size, h, h_destination, vectors, y, statistics, dy, *ctx.options, seed
    )
    if h_destination is None:
        dh, apart = dh + apart, None
    return None, None, None, None, dh, apart, d_vectors.to(vectors.dtype), None, None, None, None


for _name, _gradient in (("gat", _gat_gradient), ("gatv2", _gatv2_gradient)):
    torch.library.register_autograd(
        f"halfgnn::indexed_{_name}", _gradient, setup_context=_attention_setup, lib=_library._library
    )
