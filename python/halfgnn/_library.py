"""The operators in torch's dispatcher, as ``torch.ops.halfgnn``: functions of tensors alone, with what autograd, ``torch.compile`` and
captured graphs want of them. :mod:`halfgnn.ops` is what people call.

A graph is a tensor and five sizes (:func:`halfgnn.graph.made`), ``a`` and ``sizes``, and transposed ``t`` and ``turned``; ``map`` is
which edge each transposed one is. Values of edges are planes, heads × :func:`halfgnn._tensors.plane`, in the graph's own order, zero
behind the last edge. That tensors are those of a graph is not checked: indices are followed as they are.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _core
from ._tensors import FORMATS, address, place, plane
from .graph import raw_adjacency

_ops: Any = torch.ops.halfgnn

#: Address and length, and address, rows, columns and stride: as the extension module takes arrays and matrices.
_Array = tuple[int, int]
_Matrix = tuple[int, int, int, int]

_library = torch.library.Library("halfgnn", "DEF")


def _guard(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Another GPU than the current one is current while operators are called, and no longer."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)


def _allocator(device: torch.device) -> Callable[[int], tuple[object, int]]:
    """Gives operators their workspace: torch's memory, on the current stream."""

    def allocate(size: int) -> tuple[object, int]:
        memory = torch.empty(size, dtype=torch.uint8, device=device)
        return memory, memory.data_ptr()

    return allocate


def _call(operator: Callable[..., None], device: torch.device, *arguments: Any) -> None:
    try:
        with _guard(device):
            operator(place(device), _allocator(device), *arguments)
    except _core.DeviceOutOfMemoryError as error:
        raise torch.OutOfMemoryError(str(error)) from None


def _rows(x: Tensor, clean: bool = False, gathered: bool = False) -> tuple[Tensor, tuple[int, int, int, int]]:
    """A matrix as the extension module takes it: itself where its rows begin at multiples of 16 bytes, else a copy. ``clean``: what
    lies behind its last column is read; ``gathered``: each row is read for each of its edges, so that copies are far enough apart to
    be read fast."""
    rows, columns = x.shape
    lanes = FORMATS[x.dtype][1]
    stride = (columns + lanes - 1) // lanes * lanes
    whole = stride == columns
    fits = x.stride(1) == 1 or columns <= 1
    if rows > 1:
        apart = x.stride(0)
        # The CPU takes rows that follow one another; products on a GPU also others.
        fits = fits and (apart == stride if x.device.type == "cpu" or clean else apart >= stride and apart % lanes == 0)
    fits = fits and x.data_ptr() % 16 == 0
    if fits and (whole or (not clean and _has_padding(x, stride))):
        apart = x.stride(0) if rows > 1 else stride
        return x, (x.data_ptr(), rows, columns, apart)
    if gathered and x.device.type == "cuda":
        stride = _core.gathered_stride(FORMATS[x.dtype][0], columns)
    copy = x.new_zeros((rows, stride)) if clean and not whole else x.new_empty((rows, stride))
    copy[:, :columns] = x
    return copy, (copy.data_ptr(), rows, columns, stride)


def _expect_one_format(operator: str, **operands: Tensor | None) -> None:
    """That matrices have one format, as which the extension module reads them all."""
    (first, like), *others = [(name, x.dtype) for name, x in operands.items() if x is not None]
    for name, format in others:
        if format != like:
            raise ValueError(f"{operator}: {first} is {like} and {name} is {format}; the operator in the dispatcher takes one format")


def _has_padding(x: Tensor, stride: int) -> bool:
    """Whether the memory behind the last row's last column is the tensor's."""
    end = x.storage_offset() + (x.shape[0] - 1) * x.stride(0) + stride
    return end * x.element_size() <= x.untyped_storage().nbytes()


def _output(like: Tensor, rows: int, columns: int, dtype: torch.dtype | None = None) -> Tensor:
    """A matrix whose rows begin at multiples of 16 bytes, of any content; what lies behind a row is written as well."""
    dtype = dtype or like.dtype
    lanes = FORMATS[dtype][1]
    stride = (columns + lanes - 1) // lanes * lanes
    whole = like.new_empty((rows, stride), dtype=dtype)
    return whole if stride == columns else whole[:, :columns]


def _fake_output(like: Tensor, rows: Any, columns: Any, dtype: torch.dtype | None = None) -> Tensor:
    dtype = dtype or like.dtype
    lanes = FORMATS[dtype][1]
    stride = (columns + lanes - 1) // lanes * lanes
    return like.new_empty_strided((rows, columns), (stride, 1), dtype=dtype)


def _raw(x: Tensor) -> tuple[int, int]:
    return x.data_ptr(), x.numel()


def _optional(x: Tensor | None) -> tuple[int, int] | None:
    return None if x is None else _raw(x)


def _matrix(x: Tensor) -> tuple[int, int, int, int]:
    """An output as the extension module takes it."""
    rows, columns = x.shape
    lanes = FORMATS[x.dtype][1]
    return x.data_ptr(), rows, columns, (columns + lanes - 1) // lanes * lanes


def _aligned(x: Tensor | None) -> Tensor | None:
    if x is None or (x.is_contiguous() and x.data_ptr() % 16 == 0):
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _define(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    name = schema.partition("(")[0]
    _library.define(schema)
    for key in ("CPU", "CUDA"):
        _library.impl(name, run, key)
    torch.library.register_fake(f"halfgnn::{name}", fake, lib=_library)


def _parts(a: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Columns and rows of the edges."""
    rows, edges = sizes[0], sizes[1]
    first = (2 * (rows + 1) + 3) // 4 * 4
    second = first + (edges + 3) // 4 * 4
    return a[first : first + edges], a[second : second + edges]


#: Elements that a gradient written in torch's operators takes at a time.
_CHUNK = 1 << 22

# SpMM


def _of_edges(a: Tensor, sizes: Sequence[int], row_scale: Tensor | None, column_scale: Tensor | None) -> Tensor:
    """The product of the factors of each edge's ends, of which there is one at least, float, as long as a plane."""
    columns, rows = _parts(a, sizes)
    parts = [scale.index_select(0, ends) for scale, ends in ((row_scale, rows), (column_scale, columns)) if scale is not None]
    return torch.nn.functional.pad(functools.reduce(torch.mul, parts), (0, plane(sizes[1]) - sizes[1]))


def _of_edges_fake(a: Any, sizes: Any, *_scales: Any) -> Tensor:
    return a.new_empty(plane(sizes[1]), dtype=torch.float32)  # type: ignore[no-any-return]


_define(
    "edge_factors(Tensor a, SymInt[] sizes, Tensor? row_scale, Tensor? column_scale) -> Tensor",
    _of_edges,
    _of_edges_fake,
)


def is_read_as_it_is(
    x: Any, weight: Any, row_scale: Any, column_scale: Any, bias: Any, epsilon: Any, maximum: bool
) -> bool:
    """Whether kernels take rows and weights as they are: in one format, without factors of columns. A maximum of products is rounded to
    their format before anything is added to it or multiplied by it."""
    if weight.dtype != x.dtype or column_scale is not None:
        return False
    is_last = row_scale is None and bias is None and epsilon is None
    return not maximum or is_last or x.dtype == torch.float32


def _spmm(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor | None,
    turned: Sequence[int] | None,
    map: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    row_scale: Tensor | None,
    column_scale: Tensor | None,
    bias: Tensor | None,
    epsilon: Tensor | None,
    relu: bool,
    maximum: bool,
    heads: int,
) -> Tensor:
    y = _output(x, sizes[0], x.shape[1])
    if weight is not None and not is_read_as_it_is(x, weight, row_scale, column_scale, bias, epsilon, maximum):
        # In float no operand loses anything, and the result is rounded once.
        weight = weight.float()
        weight = weight if column_scale is None else weight * _of_edges(a, sizes, None, column_scale)
        x, column_scale = x.float(), None
    result = y if x.dtype == y.dtype else _output(x, sizes[0], x.shape[1])
    x, x_raw = _rows(x, gathered=True)
    weight, row_scale, column_scale, epsilon = _aligned(weight), _aligned(row_scale), _aligned(column_scale), _aligned(epsilon)
    kept, bias_raw = (None, None) if bias is None else _rows(bias.float()[None])
    _call(
        _core.spmm,
        x.device,
        FORMATS[x.dtype][0],
        raw_adjacency(a, sizes, address),
        x_raw,
        _matrix(result),
        _optional(weight),
        heads,
        _optional(row_scale),
        _optional(column_scale),
        bias_raw,
        _optional(epsilon),
        relu,
        maximum,
    )
    del kept
    return y if result is y else y.copy_(result)


def _spmm_fake(a: Any, sizes: Any, t: Any, turned: Any, map: Any, x: Any, *_others: Any) -> Tensor:
    return _fake_output(x, sizes[0], x.shape[1])


_define(
    "spmm(Tensor a, SymInt[] sizes, Tensor? t, SymInt[]? turned, Tensor? map, Tensor x, Tensor? weight, Tensor? row_scale, Tensor? column_scale, Tensor? bias, "
    "Tensor? epsilon, bool relu, bool maximum, int heads) -> Tensor",
    _spmm,
    _spmm_fake,
)


def _spmm_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    a, sizes, t, turned, map, x, weight, row_scale, column_scale, bias, epsilon, relu, maximum, heads = inputs
    ctx.relu, ctx.maximum, ctx.heads, ctx.format = relu, maximum, heads, x.dtype
    reads_x = maximum or (weight is not None and ctx.needs_input_grad[6]) or ctx.needs_input_grad[10]
    x = x if reads_x else None
    y = output if relu else None
    ctx.sizes, ctx.turned = sizes, turned
    ctx.save_for_backward(a, t, map, x, weight, row_scale, column_scale, epsilon, y)


def _spmm_backward(ctx: Any, dy: Tensor) -> Any:
    return _spmm_gradients(ctx, dy, _ops.spmm, _ops.sddmm, _ops.spmm_max_backward)


def _spmm_gradients(ctx: Any, dy: Tensor, spmm: Any, sddmm: Any, max_backward: Any) -> Any:
    """The gradients, by these operators, each in the format of its operand."""
    a, t, map, x, weight, row_scale, column_scale, epsilon, y = ctx.saved_tensors
    sizes, turned, heads = ctx.sizes, ctx.turned, ctx.heads
    wants_x, wants_weight, wants_bias = ctx.needs_input_grad[5], ctx.needs_input_grad[6], ctx.needs_input_grad[9]
    dx = dweight = dbias = depsilon = None
    if ctx.relu:
        dy = torch.where(y > 0, dy, torch.zeros((), dtype=dy.dtype, device=dy.device))
    if wants_bias:
        dbias = dy.sum(0, dtype=torch.float32)
    if ctx.maximum:
        if wants_x or wants_weight:
            if turned is not None and _is_plain_maximum(weight, row_scale, column_scale):
                dx, dweight = _plain_max_backward(a, sizes, t, turned, x, dy), None
            else:
                dx, dweight = max_backward(a, sizes, x, weight, row_scale, column_scale, dy, heads)
            if epsilon is not None:
                dx = dx + (1 + epsilon[0]) * dy.float()
            dx = dx.to(ctx.format)
    else:
        if wants_x:
            planes = None if weight is None else weight.index_select(1, map)
            back = _turned_map(map)
            # What is added of a row itself goes with the sum.
            dx = spmm(
                t, turned, a, sizes, back, dy, planes, column_scale, row_scale, None, epsilon, False, False, heads
            )
        if wants_weight:
            is_scaled = row_scale is not None or column_scale is not None
            factors = _ops.edge_factors(a, sizes, row_scale, column_scale) if is_scaled else None
            u, v = (dy, x) if factors is None and weight.dtype == x.dtype else (dy.float(), x.float())
            dweight = sddmm(a, sizes, t, turned, map, u, v, heads)
            dweight = dweight if factors is None else dweight * factors
    if weight is not None and dweight is not None:
        dweight = dweight.to(weight.dtype)
    if ctx.needs_input_grad[10]:
        depsilon = torch.nn.functional.pad(_dot(dy, x).reshape(1), (0, len(epsilon) - 1))
    dx, dweight = dx if wants_x else None, dweight if wants_weight else None
    return None, None, None, None, None, dx, dweight, None, None, dbias, depsilon, None, None, None


def _is_plain_maximum(weight: Any, row_scale: Any, column_scale: Any) -> bool:
    """Whether the gradient of a maximum is that of an operator, which has no second derivative."""
    return weight is None and row_scale is None and column_scale is None and not torch.is_grad_enabled()


def _plain_max_backward(a: Tensor, sizes: Any, t: Tensor, turned: Any, x: Tensor, dy: Tensor) -> Tensor:
    """The gradient of a maximum of rows as they are, by gathers: the result is made again, with how many edges have it. It is float, so that
    it is rounded once."""
    x, dy = x.float(), dy.float()
    y, share, kept = _ops.reduce_messages(a, sizes, None, 0, 0, True, None, x, None)
    wanted = [False, True, False]
    made = _ops.reduce_messages_backward(a, sizes, t, turned, None, None, 0, 0, wanted, dy * share, y, kept, None, x, None)
    return made[1]  # type: ignore[no-any-return]


def _dot(u: Tensor, v: Tensor) -> Tensor:
    """The sum of all products, in float; some rows at a time, so that no matrix of floats is made."""
    step = max(1, _CHUNK // max(u.shape[1], 1))
    parts = [(some.float() * others.float()).sum() for some, others in zip(u.split(step), v.split(step))]
    return torch.stack(parts).sum()


def _turned_map(map: Tensor | None) -> Tensor | None:
    """The map of the other direction: its inverse, which a second derivative alone asks for."""
    if map is None or not torch.is_grad_enabled():
        return map
    inverse = torch.empty_like(map)
    return inverse.scatter(0, map.long(), torch.arange(len(map), dtype=map.dtype, device=map.device))


torch.library.register_autograd(
    "halfgnn::spmm", _spmm_backward, setup_context=_spmm_setup, lib=_library
)

# The gradient of a maximum goes to the edges that have it, in equal parts where there are several: torch's own operators, some
# edges at a time, so that no matrix of all edges is made. Which edges have it is seen before factors of rows, bias and activation.


def _max_backward(
    a: Tensor,
    sizes: Sequence[int],
    x: Tensor,
    weight: Tensor | None,
    row_scale: Tensor | None,
    column_scale: Tensor | None,
    dy: Tensor,
    heads: int,
) -> tuple[Tensor, Tensor]:
    columns, rows = _parts(a, sizes)
    edges, width = len(columns), x.shape[1]
    step = max(1, _CHUNK // max(width, 1))
    x, dy = x.float(), dy.float()
    factors = None if weight is None or column_scale is None else _of_edges(a, sizes, None, column_scale)
    if weight is not None:
        weight, column_scale = weight.float(), None
        weight = weight if factors is None else weight * factors
    # In float, so that what differs before a rounding is no tie.
    largest = _spmm(a, sizes, None, None, None, x, weight, None, column_scale, None, None, False, True, heads)

    def products(begin: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        part = slice(begin, min(begin + step, edges))
        row, column = rows[part], columns[part]
        source = x.index_select(0, column)
        spread = None
        if weight is not None:
            spread = weight[:, part].t().repeat_interleave(width // heads, dim=1)
        elif column_scale is not None:
            spread = column_scale.index_select(0, column)[:, None]
        product = source if spread is None else spread * source
        return row, column, (product == largest.index_select(0, row)).float(), spread

    ties = torch.zeros_like(dy)
    for begin in range(0, edges, step):
        row, _, hits, _ = products(begin)
        ties.index_add_(0, row, hits)
    share = dy / ties.clamp_(min=1)
    share = share if row_scale is None else share * row_scale[:, None]
    dx = torch.zeros_like(x, memory_format=torch.contiguous_format)
    dweight = x.new_zeros((heads, plane(edges)) if weight is not None else (0, 0))
    for begin in range(0, edges, step):
        row, column, hits, spread = products(begin)
        # Not in place: a second derivative reads what a product was made of.
        shared = hits * share.index_select(0, row)
        if weight is not None:
            part = shared * x.index_select(0, column)
            sums = part.view(len(row), heads, width // heads).sum(2)
            dweight[:, begin : begin + len(row)] = sums.t()
        dx.index_add_(0, column, shared if spread is None else shared * spread)
    return dx, dweight if factors is None else dweight * factors


def _max_backward_fake(
    a: Any, sizes: Any, x: Any, weight: Any, row_scale: Any, column_scale: Any, dy: Any, heads: Any
) -> Any:
    shape = (heads, plane(sizes[1])) if weight is not None else (0, 0)
    return x.new_empty(x.shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.float32)


_define(
    "spmm_max_backward(Tensor a, SymInt[] sizes, Tensor x, Tensor? weight, Tensor? row_scale, Tensor? column_scale, Tensor dy, int heads) "
    "-> (Tensor, Tensor)",
    _max_backward,
    _max_backward_fake,
)


# SDDMM


def _sddmm(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor | None,
    turned: Sequence[int] | None,
    map: Tensor | None,
    u: Tensor,
    v: Tensor,
    heads: int,
) -> Tensor:
    _expect_one_format("sddmm", u=u, v=v)
    planes = u.new_empty((heads, plane(sizes[1])))
    (u, u_raw), (v, v_raw) = _rows(u, clean=True), _rows(v, clean=True)
    _call(
        _core.sddmm,
        u.device,
        FORMATS[u.dtype][0],
        raw_adjacency(a, sizes, address),
        u_raw,
        v_raw,
        _raw(planes),
        heads,
    )
    return planes


def _sddmm_fake(a: Any, sizes: Any, t: Any, turned: Any, map: Any, u: Any, v: Any, heads: Any) -> Tensor:
    return u.new_empty((heads, plane(sizes[1])))  # type: ignore[no-any-return]


_define(
    "sddmm(Tensor a, SymInt[] sizes, Tensor? t, SymInt[]? turned, Tensor? map, Tensor u, Tensor v, int heads) -> Tensor",
    _sddmm,
    _sddmm_fake,
)


def _sddmm_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    a, sizes, t, turned, map, u, v, heads = inputs
    ctx.heads, ctx.sizes, ctx.turned = heads, sizes, turned
    ctx.save_for_backward(a, t, map, u, v)


def _sddmm_backward(ctx: Any, de: Tensor) -> Any:
    return _sddmm_gradients(ctx, de, _ops.spmm)


def _sddmm_gradients(ctx: Any, de: Tensor, spmm: Any) -> Any:
    a, t, map, u, v = ctx.saved_tensors
    sizes, turned = ctx.sizes, ctx.turned
    heads, none = ctx.heads, (None, None, None, None, False, False)
    du = dv = None
    if ctx.needs_input_grad[5]:
        du = spmm(a, sizes, t, turned, map, v, de, *none, heads)
    if ctx.needs_input_grad[6]:
        planes = de.index_select(1, map)
        dv = spmm(t, turned, a, sizes, _turned_map(map), u, planes, *none, heads)
    return None, None, None, None, None, du, dv, None


torch.library.register_autograd(
    "halfgnn::sddmm", _sddmm_backward, setup_context=_sddmm_setup, lib=_library
)


# Softmax over the edges of a destination


def _softmax(a: Tensor, sizes: Sequence[int], e: Tensor) -> Tensor:
    alpha = e.clone(memory_format=torch.contiguous_format)
    heads = alpha.shape[0]
    rows = e.new_empty(heads * sizes[0], dtype=torch.float32)
    _call(
        _core.edge_softmax,
        e.device,
        FORMATS[e.dtype][0],
        raw_adjacency(a, sizes, address),
        _raw(alpha),
        _raw(rows),
        heads,
    )
    return alpha


def _same(a: Any, sizes: Any, e: Any, *_others: Any) -> Tensor:
    return e.new_empty(e.shape)  # type: ignore[no-any-return]


_define("edge_softmax(Tensor a, SymInt[] sizes, Tensor e) -> Tensor", _softmax, _same)


def _softmax_backward(a: Tensor, sizes: Sequence[int], alpha: Tensor, d: Tensor) -> Tensor:
    de = d.clone(memory_format=torch.contiguous_format)
    heads = de.shape[0]
    rows = d.new_empty(heads * sizes[0], dtype=torch.float32)
    alpha = alpha.contiguous()
    _call(
        _core.edge_softmax_backward,
        d.device,
        FORMATS[d.dtype][0],
        raw_adjacency(a, sizes, address),
        _raw(alpha),
        _raw(de),
        _raw(rows),
        heads,
    )
    return de


_define(
    "edge_softmax_backward(Tensor a, SymInt[] sizes, Tensor alpha, Tensor d) -> Tensor",
    _softmax_backward,
    _same,
)


def _softmax_setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    a, ctx.sizes, _e = inputs
    ctx.save_for_backward(output, a)


def _softmax_gradient(ctx: Any, d: Tensor) -> Any:
    return _softmax_gradients(ctx, d, _ops.edge_softmax_backward)


def _softmax_gradients(ctx: Any, d: Tensor, backward: Any) -> Any:
    """The gradients, by this operator."""
    alpha, a = ctx.saved_tensors
    return None, None, backward(a, ctx.sizes, alpha, d)


torch.library.register_autograd(
    "halfgnn::edge_softmax", _softmax_gradient, setup_context=_softmax_setup, lib=_library
)


# GAT's attention


class _Layer:
    """What both passes of attention are given, as the extension module reads it."""

    heads: int
    slope: float
    dropout: float
    seed: _Array | None
    h: _Matrix
    h_destination: _Matrix | None
    vectors: _Matrix
    saved: _Array
    scratch: _Array


class _Gradients:
    """What the backward pass writes, and is given besides."""

    y: _Matrix
    positive: _Matrix
    dy: _Matrix
    dh: _Matrix
    dh_destination: _Matrix | None
    lent: _Matrix
    d_vectors: _Matrix
    d_vectors_part: _Matrix | None


def _layer(
    h: Tensor,
    h_destination: Tensor | None,
    vectors: Tensor,
    saved: Tensor,
    heads: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
    scratch: int,
) -> tuple[_Layer, list[Any]]:
    """The layer, and what must live until it was used."""
    layer = _Layer()
    h, layer.h = _rows(h, clean=True)
    layer.h_destination = None
    if h_destination is not None:
        h_destination, layer.h_destination = _rows(h_destination, clean=True)
    vectors, layer.vectors = _rows(vectors, clean=True)
    layer.heads, layer.slope, layer.dropout = heads, slope, dropout
    seed = _aligned(seed)
    layer.seed = _optional(seed)
    saved = saved if saved.data_ptr() % 16 == 0 else saved.clone()
    layer.saved = _raw(saved)
    room = h.new_empty(scratch + 16, dtype=torch.float32)
    layer.scratch = _raw(room)
    return layer, [h, h_destination, vectors, seed, room, saved]


def _attention(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor | None,
    turned: Sequence[int] | None,
    h: Tensor,
    h_destination: Tensor | None,
    vectors: Tensor,
    heads: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    destinations, sources = sizes[0], h.shape[0]
    y = _output(h, destinations, h.shape[1])
    positive = _output(h, destinations, h.shape[1]) if keep else h.new_empty((0, 0))
    saved = _saved(h, heads, destinations)
    scratch = 0 if h_destination is None else heads * (destinations + sources)
    layer, kept = _layer(h, h_destination, vectors, saved, heads, slope, dropout, seed, scratch)
    _call(
        _core.gat_forward,
        h.device,
        FORMATS[h.dtype][0],
        raw_adjacency(a, sizes, address),
        layer,
        _matrix(y),
        _matrix(positive) if keep else None,
    )
    del kept
    return y, positive, saved


def _saved(h: Any, heads: Any, destinations: Any) -> Tensor:
    """Memory for the floats that the backward pass needs of the forward one, as ``saved`` of the extension module's attention counts
    them: scores of both ends, two statistics and a share a head, each as long as whole vectors."""
    sources = (heads * h.shape[0] + 3) // 4 * 4
    ends, pairs = (heads * destinations + 3) // 4 * 4, (2 * heads * destinations + 3) // 4 * 4
    return h.new_empty(sources + 2 * ends + pairs, dtype=torch.float32)  # type: ignore[no-any-return]


def _attention_fake(
    a: Any,
    sizes: Any,
    t: Any,
    turned: Any,
    h: Any,
    h_destination: Any,
    vectors: Any,
    heads: Any,
    slope: Any,
    dropout: Any,
    seed: Any,
    keep: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    destinations = sizes[0]
    return (
        _fake_output(h, destinations, h.shape[1]),
        _fake_output(h, destinations, h.shape[1]) if keep else h.new_empty((0, 0)),
        _saved(h, heads, destinations),
    )


_define(
    "gat_attention(Tensor a, SymInt[] sizes, Tensor? t, SymInt[]? turned, Tensor h, Tensor? h_destination, Tensor vectors, int heads, float slope, "
    "float dropout, Tensor? seed, bool keep) -> (Tensor, Tensor, Tensor)",
    _attention,
    _attention_fake,
)


def _attention_backward(
    t: Tensor,
    turned: Sequence[int],
    h: Tensor,
    h_destination: Tensor | None,
    vectors: Tensor,
    y: Tensor,
    positive: Tensor,
    dy: Tensor,
    saved: Tensor,
    heads: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    destinations, sources = y.shape[0], h.shape[0]
    scratch = 2 * heads * (destinations + sources)
    layer, kept = _layer(h, h_destination, vectors, saved, heads, slope, dropout, seed, scratch)
    of = _Gradients()
    (y, of.y), (positive, of.positive), (dy, of.dy) = (
        _rows(x, clean=True) for x in (y, positive, dy)
    )
    dh, lent = _output(h, sources, h.shape[1]), _output(h, sources, h.shape[1])
    d_vectors = _output(h, 2, h.shape[1], torch.float32)
    of.dh, of.lent, of.d_vectors = _matrix(dh), _matrix(lent), _matrix(d_vectors)
    dh_destination, part = h.new_empty((0, 0)), None
    of.dh_destination = of.d_vectors_part = None
    if h_destination is not None:
        dh_destination = _output(h, destinations, h.shape[1])
        part = _output(h, 2, h.shape[1], torch.float32)
        of.dh_destination, of.d_vectors_part = _matrix(dh_destination), _matrix(part)
    _call(
        _core.gat_backward,
        h.device,
        FORMATS[h.dtype][0],
        raw_adjacency(t, turned, address),
        layer,
        of,
    )
    del kept, part
    return dh, dh_destination, d_vectors


def _attention_backward_fake(
    t: Any, turned: Any, h: Any, h_destination: Any, vectors: Any, y: Any, *_others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    apart = h.new_empty((0, 0)) if h_destination is None else _fake_output(h, y.shape[0], h.shape[1])
    return (
        _fake_output(h, h.shape[0], h.shape[1]),
        apart,
        _fake_output(h, 2, h.shape[1], torch.float32),
    )


_define(
    "gat_attention_backward(Tensor t, SymInt[] turned, Tensor h, Tensor? h_destination, Tensor vectors, Tensor y, Tensor positive, Tensor dy, "
    "Tensor saved, int heads, float slope, float dropout, Tensor? seed) -> (Tensor, Tensor, Tensor)",
    _attention_backward,
    _attention_backward_fake,
)


def _attention_setup(ctx: Any, inputs: Any, output: Any) -> None:
    _a, _sizes, t, turned, h, h_destination, vectors, heads, slope, dropout, seed, _keep = inputs
    ctx.options, ctx.turned = (heads, slope, dropout), turned
    ctx.save_for_backward(t, h, h_destination, vectors, seed, *output)


def _attention_gradient(ctx: Any, dy: Tensor, *_others: Any) -> Any:
    return _attention_gradients(ctx, dy, _ops.gat_attention_backward)


def _attention_gradients(ctx: Any, dy: Tensor, backward: Any) -> Any:
    """The gradients, by this operator."""
    t, h, h_destination, vectors, seed, y, positive, saved = ctx.saved_tensors
    dh, dh_destination, d_vectors = backward(
        t, ctx.turned, h, h_destination, vectors, y, positive, dy, saved, *ctx.options, seed
    )
    apart = None if h_destination is None else dh_destination
    return None, None, None, None, dh, apart, d_vectors.to(vectors.dtype), None, None, None, None, None


torch.library.register_autograd(
    "halfgnn::gat_attention", _attention_gradient, setup_context=_attention_setup, lib=_library
)


# GATv2's attention


class _AdditiveLayer:
    """What both passes of additive attention are given, as the extension module reads it."""

    heads: int
    slope: float
    dropout: float
    seed: _Array | None
    sources: _Matrix
    destinations: _Matrix | None
    vector: _Matrix
    statistics: _Array
    zeros: tuple[_Array, _Array]
    scores: _Array


class _AdditiveGradients:
    """What the backward pass writes, and is given besides."""

    y: _Matrix
    dy: _Matrix
    d_destinations: _Matrix
    d_sources: _Matrix
    d_vector: _Matrix
    inner: _Array
    d: _Array
    products: _Array
    of_destinations: _Matrix
    of_sources: _Matrix


def _additive_layer(
    sizes: Sequence[int],
    h: Tensor,
    h_destination: Tensor | None,
    vector: Tensor,
    statistics: Tensor,
    heads: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
) -> tuple[_AdditiveLayer, list[Any]]:
    """The layer, and what must live until it was used."""
    layer = _AdditiveLayer()
    layer.heads, layer.slope, layer.dropout = heads, slope, dropout
    seed = _aligned(seed)
    layer.seed = _optional(seed)
    h, layer.sources = _rows(h, clean=True)
    layer.destinations = None
    if h_destination is not None:
        h_destination, layer.destinations = _rows(h_destination, clean=True)
    vector, layer.vector = _rows(vector, clean=True)
    layer.statistics = _raw(statistics)
    zeros = [h.new_zeros(heads * count, dtype=torch.float32) for count in (sizes[0], h.shape[0])]
    layer.zeros = _raw(zeros[0]), _raw(zeros[1])
    scores = h.new_empty((heads, plane(sizes[1])), dtype=torch.float32)
    layer.scores = _raw(scores)
    return layer, [seed, h, h_destination, vector, statistics, zeros, scores]


def _additive(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor | None,
    turned: Sequence[int] | None,
    h: Tensor,
    h_destination: Tensor | None,
    vector: Tensor,
    heads: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    y = _output(h, sizes[0], h.shape[1])
    statistics = h.new_empty(2 * heads * sizes[0], dtype=torch.float32)
    options = heads, slope, dropout, seed
    layer, kept = _additive_layer(sizes, h, h_destination, vector, statistics, *options)
    graph = raw_adjacency(a, sizes, address)
    _call(_core.gatv2_forward, h.device, FORMATS[h.dtype][0], graph, layer, _matrix(y))
    del kept
    return y, statistics


def _additive_fake(
    a: Any, sizes: Any, t: Any, turned: Any, h: Any, h_destination: Any, vector: Any, heads: Any, *_others: Any
) -> tuple[Tensor, Tensor]:
    return _fake_output(h, sizes[0], h.shape[1]), h.new_empty(2 * heads * sizes[0], dtype=torch.float32)


_define(
    "gatv2_attention(Tensor a, SymInt[] sizes, Tensor? t, SymInt[]? turned, Tensor h, Tensor? h_destination, Tensor vector, int heads, float slope, "
    "float dropout, Tensor? seed) -> (Tensor, Tensor)",
    _additive,
    _additive_fake,
)


def _additive_backward(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor,
    turned: Sequence[int],
    h: Tensor,
    h_destination: Tensor | None,
    vector: Tensor,
    y: Tensor,
    statistics: Tensor,
    dy: Tensor,
    heads: int,
    slope: float,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    options = heads, slope, dropout, seed
    layer, kept = _additive_layer(sizes, h, h_destination, vector, statistics, *options)
    of = _AdditiveGradients()
    (y, of.y), (dy, of.dy) = _rows(y, clean=True), _rows(dy, clean=True)
    destinations, sources, width = sizes[0], h.shape[0], h.shape[1]
    d_destinations, d_sources = _output(h, destinations, width), _output(h, sources, width)
    d_vector = _output(h, 1, width, torch.float32)
    of.d_destinations, of.d_sources, of.d_vector = map(_matrix, (d_destinations, d_sources, d_vector))
    lent = _output(h, destinations, width), _output(h, sources, width)
    of.of_destinations, of.of_sources = map(_matrix, lent)
    edges = (heads, plane(sizes[1]))
    inner = h.new_empty(heads * destinations, dtype=torch.float32)
    d, products = h.new_empty(edges, dtype=torch.float32), h.new_empty(edges)
    of.inner, of.d, of.products = map(_raw, (inner, d, products))
    graphs = raw_adjacency(a, sizes, address), raw_adjacency(t, turned, address)
    _call(_core.gatv2_backward, h.device, FORMATS[h.dtype][0], *graphs, layer, of)
    del kept, lent
    return d_destinations, d_sources, d_vector


def _additive_backward_fake(
    a: Any, sizes: Any, t: Any, turned: Any, h: Any, *_others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    width = h.shape[1]
    return (
        _fake_output(h, sizes[0], width),
        _fake_output(h, h.shape[0], width),
        _fake_output(h, 1, width, torch.float32),
    )


_define(
    "gatv2_attention_backward(Tensor a, SymInt[] sizes, Tensor t, SymInt[] turned, Tensor h, Tensor? h_destination, Tensor vector, Tensor y, "
    "Tensor statistics, Tensor dy, int heads, float slope, float dropout, Tensor? seed) -> (Tensor, Tensor, Tensor)",
    _additive_backward,
    _additive_backward_fake,
)


def _additive_setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, sizes, t, turned, h, h_destination, vector, heads, slope, dropout, seed = inputs
    ctx.options, ctx.sizes, ctx.turned = (heads, slope, dropout), sizes, turned
    ctx.save_for_backward(a, t, h, h_destination, vector, seed, *output)


def _additive_gradient(ctx: Any, dy: Tensor, *_others: Any) -> Any:
    return _additive_gradients(ctx, dy, _ops.gatv2_attention_backward)


def _additive_gradients(ctx: Any, dy: Tensor, backward: Any) -> Any:
    """The gradients, by this operator."""
    a, t, h, h_destination, vector, seed, y, statistics = ctx.saved_tensors
    d_destinations, dh, d_vector = backward(
        a, ctx.sizes, t, ctx.turned, h, h_destination, vector, y, statistics, dy, *ctx.options, seed
    )
    apart = d_destinations
    if h_destination is None:
        dh, apart = dh + d_destinations, None
    return None, None, None, None, dh, apart, d_vector.to(vector.dtype), None, None, None, None


torch.library.register_autograd(
    "halfgnn::gatv2_attention", _additive_gradient, setup_context=_additive_setup, lib=_library
)


class _DotInputs:
    """The inputs of both passes of attention by dot products, as the extension module reads them."""

    heads: int
    scale: float
    dropout: float
    seed: _Array | None
    q: _Matrix
    k: _Matrix
    v: _Matrix
    statistics: _Array


class _DotGradients:
    """What the backward pass reads besides, and writes."""

    y: _Matrix
    dy: _Matrix
    dq: _Matrix
    dk: _Matrix
    dv: _Matrix


def _dot_inputs(
    q: Tensor, k: Tensor, v: Tensor, statistics: Tensor, heads: int, scale: float, dropout: float, seed: Tensor | None
) -> tuple[_DotInputs, list[Any]]:
    """The inputs, and what must live until they were used."""
    _expect_one_format("dot_attention", q=q, k=k, v=v)
    inputs = _DotInputs()
    inputs.heads, inputs.scale, inputs.dropout = heads, scale, dropout
    seed = _aligned(seed)
    inputs.seed = _optional(seed)
    (q, inputs.q), (k, inputs.k), (v, inputs.v) = (_rows(x, clean=True) for x in (q, k, v))
    inputs.statistics = _raw(statistics)
    return inputs, [seed, q, k, v, statistics]


def _dot_attention(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor | None,
    turned: Sequence[int] | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: int,
    scale: float,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    y = _output(q, sizes[0], q.shape[1])
    statistics = q.new_empty(2 * heads * sizes[0], dtype=torch.float32)
    inputs, kept = _dot_inputs(q, k, v, statistics, heads, scale, dropout, seed)
    graph = raw_adjacency(a, sizes, address)
    _call(_core.dot_forward, q.device, FORMATS[q.dtype][0], graph, inputs, _matrix(y))
    del kept
    return y, statistics


def _dot_attention_fake(
    a: Any, sizes: Any, t: Any, turned: Any, q: Any, k: Any, v: Any, heads: Any, *_others: Any
) -> tuple[Tensor, Tensor]:
    return _fake_output(q, sizes[0], q.shape[1]), q.new_empty(2 * heads * sizes[0], dtype=torch.float32)


_define(
    "dot_attention(Tensor a, SymInt[] sizes, Tensor? t, SymInt[]? turned, Tensor q, Tensor k, Tensor v, int heads, float scale, "
    "float dropout, Tensor? seed) -> (Tensor, Tensor)",
    _dot_attention,
    _dot_attention_fake,
)


def _dot_backward(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor,
    turned: Sequence[int],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    statistics: Tensor,
    dy: Tensor,
    heads: int,
    scale: float,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    # The operator writes to them, and operators of torch's change no operand.
    statistics = statistics.clone()
    inputs, kept = _dot_inputs(q, k, v, statistics, heads, scale, dropout, seed)
    _expect_one_format("dot_attention_backward", q=q, y=y, dy=dy)
    of = _DotGradients()
    (y, of.y), (dy, of.dy) = _rows(y, clean=True), _rows(dy, clean=True)
    gradients = tuple(_output(x, *x.shape) for x in (q, k, v))
    of.dq, of.dk, of.dv = map(_matrix, gradients)
    graphs = raw_adjacency(a, sizes, address), raw_adjacency(t, turned, address)
    _call(_core.dot_backward, q.device, FORMATS[q.dtype][0], *graphs, inputs, of)
    del kept
    return gradients[0], gradients[1], gradients[2]


def _dot_backward_fake(
    a: Any, sizes: Any, t: Any, turned: Any, q: Any, k: Any, v: Any, *_others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return _fake_output(q, *q.shape), _fake_output(k, *k.shape), _fake_output(v, *v.shape)


_define(
    "dot_attention_backward(Tensor a, SymInt[] sizes, Tensor t, SymInt[] turned, Tensor q, Tensor k, Tensor v, Tensor y, "
    "Tensor statistics, Tensor dy, int heads, float scale, float dropout, Tensor? seed) -> (Tensor, Tensor, Tensor)",
    _dot_backward,
    _dot_backward_fake,
)


def _dot_setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, sizes, t, turned, q, k, v, heads, scale, dropout, seed = inputs
    ctx.options, ctx.sizes, ctx.turned = (heads, scale, dropout), sizes, turned
    ctx.save_for_backward(a, t, q, k, v, seed, *output)


def _dot_gradient(ctx: Any, dy: Tensor, *_others: Any) -> Any:
    return _dot_gradients(ctx, dy, _ops.dot_attention_backward)


def _dot_gradients(ctx: Any, dy: Tensor, backward: Any) -> Any:
    """The gradients, by this operator."""
    a, t, q, k, v, seed, y, statistics = ctx.saved_tensors
    gradients = backward(a, ctx.sizes, t, ctx.turned, q, k, v, y, statistics, dy, *ctx.options, seed)
    return None, None, None, None, *gradients, None, None, None, None


torch.library.register_autograd("halfgnn::dot_attention", _dot_gradient, setup_context=_dot_setup, lib=_library)


# Sums of messages


class _Messaging:
    """The inputs of both passes of sums of messages, as the extension module reads them."""

    terms: tuple[_Matrix | None, ...]
    acts: tuple[int, int]
    order: _Array | None
    scale: _Array | None


class _MessageOutputs:
    """What the backward pass reads besides, and writes."""

    dy: _Matrix
    gradients: tuple[_Matrix | None, ...]
    back: _Array | None


_TERMS = [f"{term}_of_{kind}" for term in "ab" for kind in ("destinations", "sources", "edges")]

#: The same in the schemas of operators.
_MATRICES = ", ".join(f"Tensor? {term}" for term in _TERMS)


def _messaging(
    terms: Sequence[Tensor | None], order: Tensor | None, scale: Tensor | None, acts: tuple[int, int]
) -> tuple[_Messaging, list[Any]]:
    """The inputs, and what must live until they were used."""
    _expect_one_format("message_sums", **dict(zip(_TERMS, terms, strict=True)))
    inputs = _Messaging()
    rows = [None if x is None else _rows(x, clean=True) for x in terms]
    inputs.terms = tuple(None if row is None else row[1] for row in rows)
    order, scale = _aligned(order), _aligned(scale)
    inputs.acts, inputs.order, inputs.scale = acts, _optional(order), _optional(scale)
    return inputs, [rows, order, scale]


def _first(terms: Sequence[Any]) -> Any:
    return next(x for x in terms[:3] if x is not None)


def _message_sums(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor | None,
    turned: Sequence[int] | None,
    order: Tensor | None,
    back: Tensor | None,
    scale: Tensor | None,
    f: int,
    g: int,
    *terms: Tensor | None,
) -> Tensor:
    like = _first(terms)
    y = _output(like, sizes[0], like.shape[1])
    inputs, kept = _messaging(terms, order, scale, (f, g))
    _call(_core.messages_forward, like.device, FORMATS[like.dtype][0], raw_adjacency(a, sizes, address), inputs, _matrix(y))
    del kept
    return y


def _message_sums_fake(a: Any, sizes: Any, *others: Any) -> Tensor:
    like = _first(others[7:])
    return _fake_output(like, sizes[0], like.shape[1])


_define(
    "message_sums(Tensor a, SymInt[] sizes, Tensor? t, SymInt[]? turned, Tensor? order, Tensor? back, Tensor? scale, int f, int g, "
    f"{_MATRICES}) -> Tensor",
    _message_sums,
    _message_sums_fake,
)


def _message_sums_backward(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor,
    turned: Sequence[int],
    order: Tensor | None,
    back: Tensor | None,
    scale: Tensor | None,
    f: int,
    g: int,
    wanted: Sequence[bool],
    dy: Tensor,
    *terms: Tensor | None,
) -> list[Tensor]:
    _expect_one_format("message_sums_backward", dy=dy, like=_first(terms))
    inputs, kept = _messaging(terms, order, scale, (f, g))
    outputs = _MessageOutputs()
    gradients = [None if x is None or not is_wanted else _output(x, *x.shape) for x, is_wanted in zip(terms, wanted)]
    outputs.gradients = tuple(None if x is None else _matrix(x) for x in gradients)
    dy, outputs.dy = _rows(dy, clean=True)
    back = _aligned(back)
    outputs.back = _optional(back)
    graphs = raw_adjacency(a, sizes, address), raw_adjacency(t, turned, address)
    _call(_core.messages_backward, dy.device, FORMATS[dy.dtype][0], *graphs, inputs, outputs)
    del kept
    return [dy.new_empty(0) if x is None else x for x in gradients]


def _message_sums_backward_fake(*operands: Any) -> list[Tensor]:
    wanted, dy, terms = operands[9], operands[10], operands[11:]
    return [
        dy.new_empty(0) if x is None or not is_wanted else _fake_output(x, *x.shape) for x, is_wanted in zip(terms, wanted)
    ]


_define(
    "message_sums_backward(Tensor a, SymInt[] sizes, Tensor t, SymInt[] turned, Tensor? order, Tensor? back, Tensor? scale, int f, "
    f"int g, bool[] wanted, Tensor dy, {_MATRICES}) -> Tensor[]",
    _message_sums_backward,
    _message_sums_backward_fake,
)


def _message_sums_setup(ctx: Any, inputs: Any, output: Any) -> None:
    a, sizes, t, turned, order, back, scale, f, g, *terms = inputs
    ctx.acts, ctx.sizes, ctx.turned = (f, g), sizes, turned
    ctx.save_for_backward(a, t, order, back, scale, *terms)


def _message_sums_gradient(ctx: Any, dy: Tensor) -> Any:
    a, t, order, back, scale, *terms = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[9:])
    operands = (a, ctx.sizes, t, ctx.turned, order, back, scale, *ctx.acts, wanted, dy, *terms)
    gradients = _ops.message_sums_backward(*operands)
    return *(None,) * 9, *(x if needs else None for x, needs in zip(gradients, wanted))


torch.library.register_autograd(
    "halfgnn::message_sums", _message_sums_gradient, setup_context=_message_sums_setup, lib=_library
)


# Other reductions of messages


class _Reducing:
    """The inputs of both passes of a reduction of messages, as the extension module reads them."""

    terms: tuple[_Matrix | None, ...]
    act: int
    reduction: int
    order: _Array | None


class _ReduceOutputs:
    """What the backward pass reads besides, and writes."""

    d: _Matrix
    made: tuple[_Matrix | None, _Matrix | None]
    gradients: tuple[_Matrix | None, ...]
    back: _Array | None


#: The schema of the matrices of a reduction.
_ROWS = "Tensor? of_destinations, Tensor? of_sources, Tensor? of_edges"

#: Numbers of the reductions of ``ops.REDUCTIONS`` whose gradients read the result, and of those whose gradients read what else is kept.
_READ_RESULT, _READ_KEPT = (0, 1, 2), (2, 3)


def _reducing(
    terms: Sequence[Tensor | None], order: Tensor | None, act: int, reduction: int
) -> tuple[_Reducing, list[Any]]:
    """The inputs, and what must live until they were used."""
    _expect_one_format("reduce_messages", **dict(zip(("destinations", "sources", "edges"), terms, strict=True)))
    inputs = _Reducing()
    rows = [None if x is None else _rows(x, clean=True) for x in terms]
    inputs.terms = tuple(None if row is None else row[1] for row in rows)
    order = _aligned(order)
    inputs.act, inputs.reduction, inputs.order = act, reduction, _optional(order)
    return inputs, [rows, order]


def _reduce_messages(
    a: Tensor, sizes: Sequence[int], order: Tensor | None, act: int, reduction: int, learns: bool, *terms: Tensor | None
) -> list[Tensor]:
    like = _first(terms)
    wanted = (True, learns, learns and reduction in _READ_KEPT)
    outputs = [_output(like, sizes[0], like.shape[1]) if is_wanted else None for is_wanted in wanted]
    inputs, kept = _reducing(terms, order, act, reduction)
    raw = tuple(None if x is None else _matrix(x) for x in outputs)
    _call(_core.reduce_forward, like.device, FORMATS[like.dtype][0], raw_adjacency(a, sizes, address), inputs, raw)
    del kept
    return [like.new_empty(0) if x is None else x for x in outputs]


def _reduce_messages_fake(a: Any, sizes: Any, order: Any, act: int, reduction: int, learns: bool, *terms: Any) -> list[Tensor]:
    like = _first(terms)
    wanted = (True, learns, learns and reduction in _READ_KEPT)
    return [_fake_output(like, sizes[0], like.shape[1]) if is_wanted else like.new_empty(0) for is_wanted in wanted]


_define(
    f"reduce_messages(Tensor a, SymInt[] sizes, Tensor? order, int act, int reduction, bool learns, {_ROWS}) -> Tensor[]",
    _reduce_messages,
    _reduce_messages_fake,
)


def _reduce_messages_backward(
    a: Tensor,
    sizes: Sequence[int],
    t: Tensor,
    turned: Sequence[int],
    order: Tensor | None,
    back: Tensor | None,
    act: int,
    reduction: int,
    wanted: Sequence[bool],
    d: Tensor,
    y: Tensor,
    kept: Tensor,
    *terms: Tensor | None,
) -> list[Tensor]:
    _expect_one_format("reduce_messages_backward", d=d, y=y, like=_first(terms))
    inputs, alive = _reducing(terms, order, act, reduction)
    outputs = _ReduceOutputs()
    gradients = [None if x is None or not is_wanted else _output(x, *x.shape) for x, is_wanted in zip(terms, wanted)]
    outputs.gradients = tuple(None if x is None else _matrix(x) for x in gradients)
    d, outputs.d = _rows(d, clean=True)
    read = [_rows(x, clean=True) if reduction in of else None for x, of in ((y, _READ_RESULT), (kept, _READ_KEPT))]
    outputs.made = tuple(None if x is None else x[1] for x in read)  # type: ignore[assignment]
    back = _aligned(back)
    outputs.back = _optional(back)
    graphs = raw_adjacency(a, sizes, address), raw_adjacency(t, turned, address)
    _call(_core.reduce_backward, d.device, FORMATS[d.dtype][0], *graphs, inputs, outputs)
    del alive, read
    return [d.new_empty(0) if x is None else x for x in gradients]


def _reduce_messages_backward_fake(*operands: Any) -> list[Tensor]:
    wanted, d, terms = operands[8], operands[9], operands[12:]
    return [
        d.new_empty(0) if x is None or not is_wanted else _fake_output(x, *x.shape) for x, is_wanted in zip(terms, wanted)
    ]


_define(
    "reduce_messages_backward(Tensor a, SymInt[] sizes, Tensor t, SymInt[] turned, Tensor? order, Tensor? back, int act, int reduction, "
    f"bool[] wanted, Tensor d, Tensor y, Tensor kept, {_ROWS}) -> Tensor[]",
    _reduce_messages_backward,
    _reduce_messages_backward_fake,
)
