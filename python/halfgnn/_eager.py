"""Operators on tensors that are at hand, neither traced nor transformed: with the gradients of :mod:`halfgnn._library`, and without the
way through Python that a dispatcher takes for formulas of gradients that are Python's.

SpMM is also an operator that the extension module registers with the dispatcher itself, ``torch.ops.halfgnn.spmm_direct``, through the
stable C interface of torch's that is loaded; where a torch has none, all goes through Python. It refuses what is not laid out as it
wants, fails, or is large, by a result of one dimension.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _core, _library
from ._library import _fake_output, _ops
from ._tensors import FORMATS

_NAMES = (
    "_ZdlPv",
    "aoti_torch__reinterpret_tensor",
    "aoti_torch_create_cuda_guard",
    "aoti_torch_delete_cuda_guard",
    "aoti_torch_delete_tensor_object",
    "aoti_torch_device_type_cpu",
    "aoti_torch_device_type_cuda",
    "aoti_torch_dtype_bfloat16",
    "aoti_torch_dtype_float16",
    "aoti_torch_dtype_float32",
    "aoti_torch_dtype_int32",
    "aoti_torch_empty_strided",
    "aoti_torch_get_current_cuda_stream",
    "aoti_torch_get_data_ptr",
    "aoti_torch_get_device_index",
    "aoti_torch_get_device_type",
    "aoti_torch_get_dim",
    "aoti_torch_get_dtype",
    "aoti_torch_get_sizes",
    "aoti_torch_get_storage_offset",
    "aoti_torch_get_storage_size",
    "aoti_torch_get_strides",
    "aoti_torch_library_def",
    "aoti_torch_library_impl",
    "aoti_torch_library_init_fragment",
    "aoti_torch_library_init_impl",
    "aoti_torch_new_tensor_handle",
    "torch_delete_stable_ivalue",
)


def _functions() -> dict[str, int]:
    """Addresses of torch's functions, as many as it has."""
    found = {}
    for library in ("libtorch_cpu.so", "libtorch_cuda.so"):
        try:
            # The one that is loaded, wherever it lies; none is loaded here.
            loaded = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        except OSError:
            continue
        for name in _NAMES:
            if name not in found and hasattr(loaded, name):
                found[name] = ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value or 0
    return found


def _registered() -> str | None:
    """Why the dispatcher has no operator of the extension module's, or None where it has."""
    wanted = os.environ.get("HALFGNN_DISPATCH", "direct")
    if wanted not in ("direct", "python"):
        raise ValueError(f"HALFGNN_DISPATCH: {wanted!r}; direct and python are possible")
    return "HALFGNN_DISPATCH=python" if wanted == "python" else _core.register(_functions())


#: Why there is no direct operator; None where there is.
reason = _registered()

_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled
_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
_transformed: Callable[[], bool] = torch._C._are_functorch_transforms_active
_Below = torch._C._AutoDispatchBelowAutograd


@functools.lru_cache(maxsize=1024)
def _packed(sizes: tuple[int, int, int, int, int]) -> tuple[int, int, int]:
    rows, edges, empty, columns, longest = sizes
    return rows << 32 | columns, edges << 32 | longest, empty << 32


def _plain_fake(a: Any, x: Any, shape: int, edges: int, rest: int) -> Tensor:
    return _fake(a, x, None, None, None, None, shape, edges, rest)


def _fake(
    a: Any, x: Any, weight: Any, row_scale: Any, column_scale: Any, bias: Any, shape: int, edges: int, rest: int
) -> Tensor:
    operands = (a, weight, row_scale, column_scale, bias)
    if x.ndim != 2 or any(operand is not None and operand.device != x.device for operand in operands):
        # Such as one of torch's "meta" beside others, of which there is nothing to compute with.
        return x.new_empty(0)  # type: ignore[no-any-return]
    return _fake_output(x, shape >> 32, x.shape[1])


if reason is None:
    torch.library.register_fake("halfgnn::spmm_direct", _fake, lib=_library._library)
    torch.library.register_fake("halfgnn::spmm_direct.plain", _plain_fake, lib=_library._library)
    # An overload itself is a Python function around this one.
    _direct: Any = _ops.spmm_direct.default._op
    _plain: Any = _ops.spmm_direct.plain._op
else:
    _direct = _plain = None


def usable(x: Tensor) -> bool:
    """Whether an operator on this operand need not be one that others see through."""
    return not _compiling() and type(x) in (Tensor, torch.nn.Parameter) and not _transformed()


def quick_spmm(
    graph: Any, x: Any, row_scale: Any, column_scale: Any, bias: Any, relu: bool, maximum: bool
) -> Tensor | None:
    """The product of a graph without weights, where nothing else is to be done than to compute it: no cast, no copy and no
    complaint. Without gradients the operator itself looks whether that is so."""
    if _direct is None or _compiling() or _autocast():
        return None
    kind = type(x)
    if kind is not Tensor and kind is not torch.nn.Parameter:
        return None
    a, sizes = graph._a
    if type(a) is not Tensor:
        return None
    if _grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        whole = x.ndim == 2 and x.shape[0] == sizes[3] and x.dtype in FORMATS and x.device == a.device
        if not whole or _transformed() or (bias is not None and not _is_bias(bias, x)):
            return None
        if graph._t is None:
            graph.prepare()
        return _Spmm.apply(  # type: ignore[no-any-return, no-untyped-call]
            a, sizes, *graph._t, graph._map, x, None, row_scale, column_scale, bias, relu, maximum, 1
        )
    shape, edges, rest = _packed(sizes)
    rest += 4 + 2 * relu + maximum
    y: Tensor
    if row_scale is None and column_scale is None and bias is None:
        y = _plain(a, x, shape, edges, rest)
    else:
        y = _direct(a, x, None, row_scale, column_scale, bias, shape, edges, rest)
    return y if y.ndim == 2 else None


def _is_bias(bias: Tensor, x: Tensor) -> bool:
    return bias.ndim == 1 and bias.shape[0] == x.shape[1] and bias.device == x.device


def _product(
    a: Tensor,
    sizes: Any,
    t: Tensor | None,
    turned: Any,
    map: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    row_scale: Tensor | None,
    column_scale: Tensor | None,
    bias: Tensor | None,
    relu: bool,
    maximum: bool,
    heads: int,
) -> Tensor:
    """As ``torch.ops.halfgnn.spmm``, without gradients."""
    if _direct is not None:
        shape, edges, rest = _packed(tuple(sizes))
        options = rest + 4 * heads + 2 * relu + maximum
        y: Tensor = _direct(a, x, weight, row_scale, column_scale, bias, shape, edges, options)
        if y.ndim == 2:
            return y
        copy = _library._rows(x)[0]
        if copy is not x:
            # Mostly a gradient that is the same number everywhere, or rows of an odd width.
            x = copy[:, : x.shape[1]]
            y = _direct(a, x, weight, row_scale, column_scale, bias, shape, edges, options)
            if y.ndim == 2:
                return y
    with _Below():
        return _ops.spmm(  # type: ignore[no-any-return]
            a, sizes, t, turned, map, x, weight, row_scale, column_scale, bias, relu, maximum, heads
        )


def _learns(*operands: Tensor | None) -> bool:
    return _grad_enabled() and any(operand is not None and operand.requires_grad for operand in operands)


class _Spmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        y = _product(*inputs)
        _library._spmm_setup(ctx, inputs, y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _library._spmm_gradients(ctx, gradients[0], spmm, sddmm)


def spmm(*operands: Any) -> Tensor:
    """As ``torch.ops.halfgnn.spmm``."""
    if _learns(operands[5], operands[6], operands[9]):
        return _Spmm.apply(*operands)  # type: ignore[no-any-return, no-untyped-call]
    return _product(*operands)


def _below(operator: Any) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        with _Below():
            return operator(*operands)

    return call


_sddmm = _below(_ops.sddmm.default)
_softmax = _below(_ops.edge_softmax.default)
_attention = _below(_ops.gat_attention.default)
_additive = _below(_ops.gatv2_attention.default)


class _Sddmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        e = _sddmm(*inputs)
        _library._sddmm_setup(ctx, inputs, e)
        return e  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _library._sddmm_gradients(ctx, gradients[0], spmm)


def sddmm(*operands: Any) -> Tensor:
    """As ``torch.ops.halfgnn.sddmm``."""
    if _learns(operands[5], operands[6]):
        return _Sddmm.apply(*operands)  # type: ignore[no-any-return, no-untyped-call]
    return _sddmm(*operands)  # type: ignore[no-any-return]


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        alpha = _softmax(*inputs)
        _library._softmax_setup(ctx, inputs, alpha)
        return alpha  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _library._softmax_gradient(ctx, *gradients)


def edge_softmax(*operands: Any) -> Tensor:
    """As ``torch.ops.halfgnn.edge_softmax``."""
    if _learns(operands[2]):
        return _Softmax.apply(*operands)  # type: ignore[no-any-return, no-untyped-call]
    return _softmax(*operands)  # type: ignore[no-any-return]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        # Of the results only the first is anybody's.
        ctx.set_materialize_grads(False)
        output = _attention(*inputs)
        _library._attention_setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _library._attention_gradient(ctx, *gradients)


def gat_attention(*operands: Any) -> Any:
    """As ``torch.ops.halfgnn.gat_attention``."""
    run: Any = _Attention.apply if _learns(operands[4], operands[5], operands[6]) else _attention
    return run(*operands)


class _Additive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        # Of the results only the first is anybody's.
        ctx.set_materialize_grads(False)
        output = _additive(*inputs)
        _library._additive_setup(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _library._additive_gradient(ctx, *gradients)


def gatv2_attention(*operands: Any) -> Any:
    """As ``torch.ops.halfgnn.gatv2_attention``."""
    run: Any = _Additive.apply if _learns(operands[4], operands[5], operands[6]) else _additive
    return run(*operands)
