"""Reductions of messages as a differentiable function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _library, ops
from .graph import Graph

#: Makes gradients that have gradients: of the matrices, the output and which are wanted.
Twice = Callable[[Any, Any, Tensor, Any], "list[Any]"]


def reduced(graph: Graph, terms: Any, act: str, reduce: str, twice: Twice | None = None) -> Tensor:
    """:func:`halfgnn.message_reduce` of matrices in one format, unchecked; ``twice`` makes gradients that have gradients."""
    found: Tensor = _Reduced.apply(graph, act, reduce, twice, *terms)  # type: ignore[no-untyped-call]
    return found


class _Reduced(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: Graph, act: str, reduce: str, twice: Any, *terms: Tensor | None) -> Tensor:
        ctx.graph, ctx.twice, ctx.names = graph, twice, (act, reduce)
        ctx.kind = ops.ACTS.index(act), ops.REDUCTIONS.index(reduce)
        learns = any(ctx.needs_input_grad[4:])
        *both, _ = ops._both(graph, learns)
        order = None if terms[2] is None else graph._order
        y, share, kept = _library._ops.reduce_messages(*both[:2], order, *ctx.kind, learns, *terms)
        ctx.save_for_backward(y, share, kept, *terms)
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        y, share, kept, *terms = ctx.saved_tensors
        wanted = ctx.needs_input_grad[4:]
        if torch.is_grad_enabled():
            if ctx.twice is None:
                raise RuntimeError("message_reduce: a reduction of messages has one derivative; leave create_graph out")
            return None, None, None, None, *ctx.twice(ctx, terms, dy, wanted)
        graph = ctx.graph
        *both, which = ops._both(graph, True)
        order, back = (None, None) if terms[2] is None else ops._rows_of_edges(graph, which)
        d = (dy * share).to(y.dtype)
        found = _library._ops.reduce_messages_backward(*both, order, back, *ctx.kind, list(wanted), d, y, kept, *terms)
        return None, None, None, None, *(x if needs else None for x, needs in zip(found, wanted))
