"""The edges of one type as samplers read them, and samples of those that arrive at vertices."""

from __future__ import annotations

import torch
from torch import Tensor

from ._words import Words, by_weight, distinct
from .graph import Graph


class InEdges:
    """The edges of one type in the order in which a sampler reads them: by destination, and where they have times the earliest first.

    Args:
        graph: the edges.
        weight: a number for each edge, or None.
        times: a time for each edge, or None.
    """

    def __init__(self, graph: Graph, weight: Tensor | None = None, times: Tensor | None = None) -> None:
        self._offsets: Tensor = graph._offsets
        #: Source of each edge.
        self.columns: Tensor = graph._columns
        #: The number that each edge was given with; None where that is its position.
        self.numbers: Tensor | None = graph._order
        self._instants: Tensor | None = None
        if times is not None:
            # Of equal times the edge that was given first.
            columns, rows = graph.edge_index
            numbers = times.argsort(stable=True)
            numbers = numbers[rows[numbers].argsort(stable=True)]
            self.columns, self.numbers = columns[numbers], numbers
            self._instants, rank = times[numbers].unique(return_inverse=True)
            # Ascending: an edge's destination, and the number of its time.
            self._keys = rows[numbers] * (len(self._instants) + 1) + rank
        #: A number for each edge, or None.
        self.weight = weight if weight is None or self.numbers is None else weight[self.numbers.long()]

    def of(self, vertices: Tensor, until: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of each vertex the position of its first edge, and the number of its edges that are not later than ``until``."""
        first = self._offsets[vertices]
        if self._instants is None:
            return first, self._offsets[vertices + 1] - first
        assert until is not None
        keys = vertices * (len(self._instants) + 1) + torch.searchsorted(self._instants, until, right=True)
        return first, torch.searchsorted(self._keys, keys) - first

    def given(self, position: Tensor) -> Tensor:
        """The numbers that edges were given with."""
        return position if self.numbers is None else self.numbers[position].long()


def first_edges(first: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """As many edges of each vertex as ``counts`` says: for each the index of the vertex, ascending, and the position of the edge."""
    which = torch.repeat_interleave(torch.arange(len(first), device=first.device), counts)
    return which, first[which] + torch.arange(len(which), device=first.device) - (counts.cumsum(0) - counts)[which]


def in_edges(first: Tensor, degrees: Tensor, fanout: int, replace: bool, words: Words) -> tuple[Tensor, Tensor]:
    """Samples edges that arrive at vertices.

    Args:
        first: the position of the first edge of each vertex; each occurrence of a vertex is sampled on its own.
        degrees: the number of edges of each vertex.
        fanout: most edges of each vertex, -1 for all.
        replace: whether an edge may be sampled several times.
        words: source of random integers.

    Returns:
        As :func:`first_edges`.
    """
    counts = degrees
    if fanout >= 0:
        counts = (degrees > 0) * fanout if replace else degrees.clamp(max=fanout)
    which, position = first_edges(first, counts)
    if fanout >= 0 and replace:
        return which, first[which] + words.take(len(which)) % degrees[which]
    is_cut = degrees > counts
    if fanout > 0 and bool(is_cut.any()):
        chosen = distinct(words, degrees[is_cut], fanout) + first[is_cut, None]
        position[is_cut[which]] = chosen.flatten()
    return which, position


def in_edges_by_weight(
    first: Tensor, degrees: Tensor, weight: Tensor, fanout: int, replace: bool, words: Words
) -> tuple[Tensor, Tensor]:
    """Samples edges that arrive at vertices, one after the other, each with a chance in proportion to its weight.

    Args:
        first: as of :func:`in_edges`.
        degrees: as of :func:`in_edges`.
        weight: a number for each edge, float64; an edge of weight 0 is never sampled.
        fanout: most edges of each vertex.
        replace: whether an edge may be sampled several times.
        words: source of random integers.

    Returns:
        As :func:`first_edges`.
    """
    which, position = first_edges(first, degrees)
    weight = weight[position]
    ends = degrees.cumsum(0)
    if replace:
        sums = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
        least, most = sums[ends - degrees], sums[ends]
        again = ((most > least).nonzero()[:, 0]).repeat_interleave(fanout)
        number = least[again] + words.uniform(len(again)) * (most - least)[again]
        # The first edge whose sum exceeds the number.
        at = torch.searchsorted(sums[1:], number, right=True)
        return again, position[torch.minimum(at, ends[again] - 1)]
    order = by_weight(weight, words)
    order = order[which[order].argsort(stable=True)]
    rank = torch.arange(len(order), device=order.device) - (ends - degrees)[which]
    order = order[(rank < fanout) & (weight[order] > 0)]
    return which[order], position[order]
