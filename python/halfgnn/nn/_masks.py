"""Masks of edges, by which PyG's explanations multiply messages: weights of what a layer aggregates.

PyG's explainers set ``explain`` and ``_edge_mask`` on each layer, and its ``explain_message`` multiplies messages by the mask. A formula of
halfgnn's that reads its neighbors by :class:`halfgnn.nn._adjacency.Adjacency` has the mask there, as a factor of the weights of edges.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ._common import is_compiling


class _Mask:
    """The mask of the layer that runs, and whether its formula has read it."""

    def __init__(self, layer: Any) -> None:
        self.layer, self.is_read = layer, False

    def of(self, graph: Any) -> Tensor:
        """A number for each edge of a graph, by the rules of PyG's ``explain_message``: loops that a layer adds are not masked."""
        self.is_read = True
        mask: Tensor = self.layer._edge_mask.sigmoid() if self.layer._apply_sigmoid else self.layer._edge_mask
        if len(mask) != graph.num_edges:
            mask = mask[self.layer._loop_mask]
            mask = torch.cat([mask, mask.new_ones(graph.num_dst)])
        if mask.shape != (graph.num_edges,):
            raise ValueError(f"{type(self.layer).__name__}: the mask has {mask.shape[0]} numbers, and the layer {graph.num_edges} edges")
        return mask


_mask: contextvars.ContextVar[_Mask | None] = contextvars.ContextVar("halfgnn_mask", default=None)


@contextmanager
def explaining(layer: Any) -> Iterator[Any]:
    """While it lasts the mask of a layer multiplies what is aggregated; of a layer that is not explained none does."""
    mask = _Mask(layer) if layer._explain else None
    token = _mask.set(mask)
    try:
        yield mask
    finally:
        _mask.reset(token)


def is_explaining() -> bool:
    """Whether a layer runs that is explained."""
    return not is_compiling() and _mask.get() is not None


def masked(graph: Any, weight: Tensor | None) -> Tensor | None:
    """Weights of edges, E or E × heads, or none, times the mask of the layer that runs."""
    mask = None if is_compiling() else _mask.get()
    if mask is None:
        return weight
    values = mask.of(graph)
    if weight is None:
        return values
    return weight * (values if weight.ndim == 1 else values[:, None])
