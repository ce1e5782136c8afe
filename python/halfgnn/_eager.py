"""Operators on tensors that are at hand, neither traced nor transformed: with the gradients of :mod:`halfgnn._library`, and without the
way through Python that a dispatcher takes for formulas of gradients that are Python's.

Most of them are also operators that the extension module registers with the dispatcher itself, such as
``torch.ops.halfgnn.spmm_direct``, through the stable C interface of torch's that is loaded; where a torch has none, all goes through
Python. Such an operator refuses what is not laid out as it needs, fails, or is large, by a first result of one dimension.
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
from ._tensors import FORMATS, plane

_NAMES = (
    "_ZdlPv",
    "aoti_torch__reinterpret_tensor",
    "aoti_torch_clone",
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


#: Why there are no direct operators; None where there are.
reason = _registered()

_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled
_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
_transformed: Callable[[], bool] = torch._C._are_functorch_transforms_active
_Below = torch._C._AutoDispatchBelowAutograd


#: Bits in the lower half of the last number of a graph: whether matrices of which that is read hold zeros behind their last column, and
#: those of an operator.
_PADDED, _RELU, _MAXIMUM, _KEEP = 4, 2, 1, 1


@functools.lru_cache(maxsize=1024)
def _packed(sizes: tuple[int, int, int, int, int]) -> tuple[int, int, int]:
    rows, edges, empty, columns, longest = sizes
    return rows << 32 | columns, edges << 32 | longest, empty << 32


# What direct operators are given: a graph's arrays and three numbers, of which the last has the heads and an operator's bits, and then
# their operands. And what comes of them.


def _given_spmm(
    a: Any, sizes: Any, t: Any, turned: Any, map: Any, x: Any, weight: Any, row_scale: Any, column_scale: Any, bias: Any,
    epsilon: Any, relu: bool, maximum: bool, heads: int,
) -> tuple[Any, ...]:
    shape, edges, rest = _packed(tuple(sizes))
    rest += 8 * heads + _RELU * relu + _MAXIMUM * maximum
    return a, shape, edges, rest, x, weight, row_scale, column_scale, bias, epsilon


def _fits_spmm(a: Any, sizes: Any, t: Any, turned: Any, map: Any, x: Any, weight: Any, *others: Any) -> bool:
    row_scale, column_scale, bias, epsilon, _relu, maximum, _heads = others
    return weight is None or _library.is_read_as_it_is(x, weight, row_scale, column_scale, bias, epsilon, maximum)


def _fake_spmm(a: Any, shape: int, edges: int, rest: int, x: Any, *others: Any) -> Any:
    return _together((a, x, *others), lambda: _fake_output(x, shape >> 32, x.shape[1]))


def _given_sddmm(
    a: Any, sizes: Any, t: Any, turned: Any, map: Any, u: Any, v: Any, heads: int
) -> tuple[Any, ...]:
    shape, edges, rest = _packed(tuple(sizes))
    return a, shape, edges, rest + 8 * heads, u, v


def _fake_sddmm(a: Any, shape: int, edges: int, rest: int, u: Any, v: Any) -> Any:
    return _together((a, u, v), lambda: u.new_empty((_heads(rest), plane(edges >> 32))))


def _given_softmax(a: Any, sizes: Any, *planes: Any) -> tuple[Any, ...]:
    shape, edges, rest = _packed(tuple(sizes))
    return a, shape, edges, rest + 8 * planes[0].shape[0], *planes


def _fake_softmax(a: Any, shape: int, edges: int, rest: int, *planes: Any) -> Any:
    return _together((a, *planes), lambda: planes[-1].new_empty(planes[-1].shape))


def _given_attention(
    a: Any, sizes: Any, t: Any, turned: Any, h: Any, h_destination: Any, vectors: Any, heads: int, slope: float, dropout: float,
    seed: Any, keep: bool,
) -> tuple[Any, ...]:
    shape, edges, rest = _packed(tuple(sizes))
    return a, shape, edges, rest + 8 * heads + _KEEP * keep, h, h_destination, vectors, seed, slope, dropout


def _fake_attention(
    a: Any, shape: int, edges: int, rest: int, h: Any, h_destination: Any, vectors: Any, seed: Any, slope: float, dropout: float
) -> Any:
    def results() -> Any:
        y, positive = (_fake_output(h, shape >> 32, h.shape[1]) for _ in range(2))
        positive = positive if rest & _KEEP else h.new_empty((0, 0))
        return y, positive, _library._saved(h, _heads(rest), shape >> 32)

    return _together((a, h, h_destination, vectors, seed), results, 3)


def _given_attention_backward(
    t: Any, turned: Any, h: Any, h_destination: Any, vectors: Any, y: Any, positive: Any, dy: Any, saved: Any, heads: int,
    slope: float, dropout: float, seed: Any,
) -> tuple[Any, ...]:
    shape, edges, rest = _packed(tuple(turned))
    return t, shape, edges, rest + 8 * heads, h, h_destination, vectors, seed, y, positive, saved, dy, slope, dropout


def _fake_attention_backward(
    t: Any, shape: int, edges: int, rest: int, h: Any, h_destination: Any, vectors: Any, seed: Any, y: Any, *others: Any
) -> Any:
    def results() -> Any:
        return _library._attention_backward_fake(t, None, h, h_destination, vectors, y)

    return _together((t, h, h_destination, vectors, seed, y, *others[:3]), results, 3)


def _heads(rest: int) -> int:
    return (rest & 0xFFFFFFFF) >> 3


def _together(operands: tuple[Any, ...], results: Callable[[], Any], count: int = 1) -> Any:
    """The results, or the refusal where operands lie apart: such as one of torch's "meta" among others, of which there is nothing to
    compute with."""
    first = next(operand for operand in operands[1:] if operand is not None)
    if first.ndim == 2 and all(operand is None or operand.device == first.device for operand in operands):
        return results()
    refused = tuple(first.new_empty(0) for _ in range(count))
    return refused if count > 1 else refused[0]


class _Operator:
    """An operator, directly where the extension module has it and takes the operands as they lie, or once they were copied to lie
    so; else as the general one."""

    def __init__(
        self,
        name: str,
        given: Any = None,
        fake: Any = None,
        clean: tuple[int, ...] = (),
        matrices: tuple[int, ...] = (),
        fits: Callable[..., bool] | None = None,
    ) -> None:
        """``given``: the operands of the direct operator, of those of the general one; ``clean`` and ``matrices``: which of them are
        matrices (or planes) of which what lies behind the last column is read, and not; ``fits``: whether kernels take the general
        ones' formats."""
        self._general = getattr(_ops, name).default
        self._given = given
        self._fits = fits
        self._matrices = [*((at, True) for at in clean), *((at, False) for at in matrices)]
        self._direct: Any = _direct(f"{name}_direct", fake) if given is not None else None

    @property
    def is_direct(self) -> bool:
        return self._direct is not None

    def __call__(self, *operands: Any) -> Any:
        if self._direct is not None and (self._fits is None or self._fits(*operands)):
            given = self._given(*operands)
            for _ in range(2):
                results = self._direct(*given)
                if (results[0] if type(results) is tuple else results).ndim == 2:
                    return results
                # Mostly rows of an odd width, or too large a result.
                given = self._copied(given)
                if given is None:
                    break
        with _Below():
            return self._general(*operands)

    def _copied(self, given: tuple[Any, ...]) -> Any:
        """The operands with copies of matrices that do not lie as they should; None where all do."""
        copied: list[Any] | None = None
        for at, clean in self._matrices:
            x = given[at]
            if x is None or x.ndim != 2 or x.dtype not in FORMATS:
                continue
            if x.numel() * x.element_size() > _core.LARGE:
                # Results are as large, mostly, and those the direct operator refuses: a copy would be for nothing.
                return None
            copy = _library._rows(x, clean)[0]
            if copy is not x:
                copied = copied or list(given)
                copied[at] = copy[:, : x.shape[1]]
        if copied is not None:
            # Each of the clean ones that was not copied has whole vectors.
            copied[3] |= _PADDED
        return copied


def _direct(name: str, fake: Any) -> Any:
    """The operator of the extension module's, or None."""
    if reason is not None:
        return None
    torch.library.register_fake(f"halfgnn::{name}", fake, lib=_library._library)
    name, _, overload = name.partition(".")
    # An overload itself is a Python function around this one.
    return getattr(getattr(_ops, name), overload or "default")._op


_product = _Operator("spmm", _given_spmm, _fake_spmm, (5,), matrices=(4,), fits=_fits_spmm)
_sddmm = _Operator("sddmm", _given_sddmm, _fake_sddmm, (4, 5))
_softmax = _Operator("edge_softmax", _given_softmax, _fake_softmax, (4,))
_softmax_backward = _Operator("edge_softmax_backward", _given_softmax, _fake_softmax, (4, 5))
_attention = _Operator("gat_attention", _given_attention, _fake_attention, (4, 5, 6))
_attention_backward = _Operator(
    "gat_attention_backward", _given_attention_backward, _fake_attention_backward, (4, 5, 6, 8, 9, 11)
)
_additive = _Operator("gatv2_attention")
_additive_backward = _Operator("gatv2_attention_backward")
_dot = _Operator("dot_attention")
_dot_backward = _Operator("dot_attention_backward")
_plain: Any = _direct("spmm_direct.plain", _fake_spmm)


def called() -> list[str]:
    """How operators are called, each with a name that people know."""
    operators = {"spmm": _product, "sddmm": _sddmm, "edge_softmax": _softmax, "gat_attention": _attention, "gatv2_attention": _additive, "attention": _dot}
    if reason is not None:
        return [f"operators are called through Python: {reason}"]
    ways: dict[bool, list[str]] = {True: [], False: []}
    for name, operator in operators.items():
        ways[operator.is_direct].append(name)
    words = {True: "directly", False: "through Python"}
    return [f"called {words[way]}: {', '.join(names)}" for way, names in ways.items() if names]


def usable(x: Tensor) -> bool:
    """Whether an operator on this operand need not be one that others see through."""
    return not _compiling() and type(x) in (Tensor, torch.nn.Parameter) and not _transformed()


def quick_spmm(
    graph: Any, x: Any, row_scale: Any, column_scale: Any, bias: Any, relu: bool, maximum: bool
) -> Tensor | None:
    """The product of a graph without weights, where nothing else is to be done than to compute it: no cast, no copy and no
    complaint. Without gradients the operator itself looks whether that is so."""
    if _plain is None or _compiling() or _autocast():
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
            graph._make_transpose()
        return _Spmm.apply(  # type: ignore[no-any-return]
            a, sizes, *graph._t, graph._map, x, None, row_scale, column_scale, bias, None, relu, maximum, 1
        )
    shape, edges, rest = _packed(sizes)
    rest += 8 + _RELU * relu + _MAXIMUM * maximum
    y: Tensor
    if row_scale is None and column_scale is None and bias is None:
        y = _plain(a, shape, edges, rest, x)
    else:
        y = _product._direct(a, shape, edges, rest, x, None, row_scale, column_scale, bias, None)
    return y if y.ndim == 2 else None


def _is_bias(bias: Tensor, x: Tensor) -> bool:
    return bias.ndim == 1 and bias.shape[0] == x.shape[1] and bias.device == x.device


def _learns(*operands: Tensor | None) -> bool:
    return _grad_enabled() and any(operand is not None and operand.requires_grad for operand in operands)


def _function(name: str, run: _Operator, setup: Any, gradients: Any, twice: bool = False) -> Any:
    """An operator with gradients. ``gradients`` is given what ``setup`` kept, and is itself differentiable if ``twice`` says so."""

    def forward(ctx: Any, *inputs: Any) -> Any:
        results = run(*inputs)
        setup(ctx, inputs, results)
        # Of several results only the first is for callers.
        return results[0] if type(results) is tuple else results

    def backward(ctx: Any, gradient: Tensor) -> Any:
        # One number everywhere, which a sum's is, has no memory for each.
        return gradients(ctx, gradient.contiguous() if 0 in gradient.stride() else gradient)

    def backward_once(ctx: Any, gradient: Tensor) -> Any:
        with torch.no_grad():
            found = backward(ctx, gradient)
        if not _grad_enabled():
            return found
        # What is differentiated again is refused then, and not before.
        error = f"halfgnn's {name} has no second derivative; PyG's layers have one: halfgnn.nn.restore(model)"
        refusing: Any = torch._C._functions.DelayedError(error.encode(), len(found))
        return refusing(*(None if each is None else each.detach().requires_grad_() for each in found))

    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward if twice else backward_once)}
    return type(name, (torch.autograd.Function,), parts)


def spmm(*operands: Any) -> Tensor:
    """As ``torch.ops.halfgnn.spmm``."""
    run: Any = _Spmm.apply if _learns(operands[5], operands[6], operands[9], operands[10]) else _product
    return run(*operands)  # type: ignore[no-any-return]


def sddmm(*operands: Any) -> Tensor:
    """As ``torch.ops.halfgnn.sddmm``."""
    run: Any = _Sddmm.apply if _learns(operands[5], operands[6]) else _sddmm
    return run(*operands)  # type: ignore[no-any-return]


def edge_softmax(*operands: Any) -> Tensor:
    """As ``torch.ops.halfgnn.edge_softmax``."""
    run: Any = _Softmax.apply if _learns(operands[2]) else _softmax
    return run(*operands)  # type: ignore[no-any-return]


def gat_attention(*operands: Any) -> Any:
    """As ``torch.ops.halfgnn.gat_attention``, of whose results the first alone is for callers."""
    return _attended(_Attention, _attention, operands)


def gatv2_attention(*operands: Any) -> Any:
    """As ``torch.ops.halfgnn.gatv2_attention``, likewise."""
    return _attended(_Additive, _additive, operands)


def dot_attention(*operands: Any) -> Any:
    """As ``torch.ops.halfgnn.dot_attention``, likewise."""
    return _attended(_Dot, _dot, operands)


def _attended(learning: Any, operator: _Operator, operands: tuple[Any, ...]) -> Any:
    if _learns(operands[4], operands[5], operands[6]):
        return (learning.apply(*operands),)
    return operator(*operands)


_Spmm = _function(
    "Spmm", _product, _library._spmm_setup, lambda ctx, dy: _library._spmm_gradients(ctx, dy, spmm, sddmm, _library._max_backward), twice=True
)
_Sddmm = _function(
    "Sddmm", _sddmm, _library._sddmm_setup, lambda ctx, de: _library._sddmm_gradients(ctx, de, spmm), twice=True
)
_Softmax = _function(
    "EdgeSoftmax", _softmax, _library._softmax_setup, lambda ctx, d: _library._softmax_gradients(ctx, d, _softmax_backward)
)
_Attention = _function(
    "GatAttention",
    _attention,
    _library._attention_setup,
    lambda ctx, dy: _library._attention_gradients(ctx, dy, _attention_backward),
)
_Additive = _function(
    "Gatv2Attention",
    _additive,
    _library._additive_setup,
    lambda ctx, dy: _library._additive_gradients(ctx, dy, _additive_backward),
)
_Dot = _function(
    "DotAttention",
    _dot,
    _library._dot_setup,
    lambda ctx, dy: _library._dot_gradients(ctx, dy, _dot_backward),
)
