"""Pairs of vertices without an edge, sampled for the negative links of a batch."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from ._words import Words

#: Attempts to sample a pair by weight or time that is not an edge, before what is left is sampled from all such pairs.
_ATTEMPTS = 32


class NonEdges:
    """Pairs of a source and a destination that are no edge, sampled without attempts: of the sorted numbers of edges in a matrix the gaps say
    which number the n-th other pair has.

    Args:
        edges: sources and destinations, 2 × E, in any order, also several times.
        size: numbers of sources and destinations.
        loops: whether a vertex and itself are left out as well.
        times: times of the sources and of the destinations, or None where they have none. Vertices are then ordered by time, so that those up to
            a time come first.
    """

    def __init__(
        self, edges: Tensor, size: tuple[int, int], loops: bool, times: tuple[Tensor | None, Tensor | None] = (None, None)
    ) -> None:
        self._size = sources, destinations = size
        device = edges.device
        #: Of both ends the vertices and their times, the earliest first; None where ends have no times.
        self._orders: list[tuple[Tensor, Tensor] | None] = []
        ends = [end.long() for end in edges]
        if loops:
            ends = [torch.cat([end, torch.arange(sources, device=device)]) for end in ends]
        for at, time in enumerate(times):
            if time is None:
                self._orders.append(None)
                continue
            instants, order = time.to(device).sort(stable=True)
            self._orders.append((order, instants))
            rank = torch.empty_like(order)
            rank[order] = torch.arange(len(order), device=device)
            ends[at] = rank[ends[at]]
        self._keys = (ends[0] * destinations + ends[1]).unique()
        # Pairs that are no edge in front of each edge, ascending.
        self._gaps = self._keys - torch.arange(len(self._keys), device=device)
        self._warned: set[str] = set()

    def pairs(
        self,
        count: int,
        words: Words,
        weights: tuple[Tensor | None, Tensor | None] = (None, None),
        until: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Sources and destinations of ``count`` pairs, each pair as likely as any other, or in proportion to the weights of both ends; of
        ends that have times none is later than ``until``, a time for each pair."""
        sources, destinations = self._size
        if weights != (None, None) or self._is_timed(until):
            return self._by_attempts(None, count, words, weights, until)
        free = sources * destinations - len(self._keys)
        if free == 0:
            self._warn_of_edges(count, "all pairs are edges")
            numbers = words.take(count) % max(sources * destinations, 1)
        else:
            numbers = self._nth(words.take(count) % free)
        return numbers // destinations, numbers % destinations

    def destinations(self, source: Tensor, words: Words, weight: Tensor | None = None, until: Tensor | None = None) -> Tensor:
        """For each source a destination that no edge leads to, each as likely as any other, or in proportion to its weight, and none later
        than ``until``."""
        destinations = self._size[1]
        if weight is not None or self._is_timed(until):
            return self._by_attempts(source, len(source), words, (None, weight), until)[1]
        first = torch.searchsorted(self._keys, source * destinations)
        free = destinations - (torch.searchsorted(self._keys, (source + 1) * destinations) - first)
        random = words.take(len(source))
        numbers = self._nth(source * destinations - first + random % free.clamp(min=1))
        is_full = free == 0
        if bool(is_full.any()):
            self._warn_of_edges(int(is_full.sum()), "their sources have edges to all destinations")
        return torch.where(is_full, random, numbers) % destinations

    def _is_timed(self, until: Tensor | None) -> bool:
        return until is not None and self._orders != [None, None]

    def _nth(self, numbers: Tensor) -> Tensor:
        """The numbers in the matrix of pairs that are counted without the edges."""
        return numbers + torch.searchsorted(self._gaps, numbers, right=True)

    def _by_attempts(
        self, given: Tensor | None, count: int, words: Words, weights: tuple[Tensor | None, Tensor | None], until: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Pairs by the weights of their ends, or up to a time; those that are edges are sampled again."""
        device = self._keys.device
        # Of each pair the number of vertices that each end may be, and of each end the sums of weights.
        limits, sums = [], []
        for weight, size, order in zip(weights, self._size, self._orders, strict=True):
            if weight is not None:
                if weight.shape != (size,) or bool((weight < 0).any()) or not 0 < float(weight.sum()) < math.inf:
                    raise ValueError(
                        f"neg_sampling: weights should be {size} numbers from 0 on with a sum above 0, are {tuple(weight.shape)}"
                    )
                weight = weight.to(device).double()
            else:
                weight = torch.ones(size, dtype=torch.float64, device=device)
            if order is not None:
                weight = weight[order[0]]
            limit = torch.full((count,), size, device=device)
            if order is not None and until is not None:
                limit = torch.searchsorted(order[1], until, right=True)
            sums.append(torch.cat([weight.new_zeros(1), weight.cumsum(0)]))
            limits.append(limit)
        if given is not None:
            # Sources are links' own: only destinations have to be early.
            limits[0] = torch.full_like(limits[0], self._size[0])
            order = self._orders[0]
            if order is not None:
                rank = torch.empty_like(order[0])
                rank[order[0]] = torch.arange(len(rank), device=device)
                given = rank[given]
        for limit, of in zip(limits, sums, strict=True):
            is_none = of[limit] == 0
            if bool(is_none.any()):
                self._warn(int(is_none.sum()), "later than their links", "no vertex is early enough")
            # The earliest vertex with a weight.
            limit[is_none] = int(torch.searchsorted(of, 0.0, right=True))

        def sampled(end: int, which: Tensor) -> Tensor:
            most = limits[end][which]
            numbers = words.uniform(len(which)) * sums[end][most]
            # A vertex without weight is never the first whose sum exceeds a number.
            return torch.minimum(torch.searchsorted(sums[end][1:], numbers, right=True), most - 1)

        everything = torch.arange(count, device=device)
        source = sampled(0, everything) if given is None else given.clone()
        destination = sampled(1, everything)
        again = self._are_edges(source, destination).nonzero()[:, 0]
        for _ in range(_ATTEMPTS):
            if not len(again):
                break
            if given is None:
                source[again] = sampled(0, again)
            destination[again] = sampled(1, again)
            again = again[self._are_edges(source[again], destination[again])]
        if len(again):
            self._of_all(again, source, destination, given is None, limits, sums, words)
        ends = [source, destination]
        for at, order in enumerate(self._orders):
            if order is not None:
                ends[at] = order[0][ends[at]]
        return ends[0], ends[1]

    def _of_all(
        self,
        again: Tensor,
        source: Tensor,
        destination: Tensor,
        both: bool,
        limits: list[Tensor],
        sums: list[Tensor],
        words: Words,
    ) -> None:
        """Samples pairs that attempts did not find from all pairs that there are; where there is none, they stay edges."""
        sources, destinations = self._size
        rows, columns = self._keys // destinations, self._keys % destinations
        weights = [of.diff() for of in sums]
        has_weight = (weights[1] > 0).long()
        numbers = torch.cat([has_weight.new_zeros(1), has_weight.cumsum(0)])
        left = 0
        limit = torch.stack([limits[0][again], limits[1][again]], dim=1)
        for most in limit.unique(dim=0):
            which = again[(limit == most).all(dim=1)]
            early = columns < most[1]
            of_edges = torch.zeros(sources, dtype=torch.float64, device=rows.device)
            of_edges.index_add_(0, rows[early], weights[1][columns[early]])
            # Counts are exact, where differences of sums are not.
            count = numbers[most[1]] - torch.bincount(rows[early], has_weight[columns[early]].double(), sources).long()
            free = torch.where(count > 0, (sums[1][most[1]] - of_edges).clamp(min=0), 0)
            if both:
                chance = free * weights[0]
                chance[most[0] :] = 0
                ends = chance.cumsum(0)
                if float(ends[-1]) == 0:
                    left += len(which)
                    continue
                found = torch.searchsorted(ends, words.uniform(len(which)) * ends[-1], right=True)
                source[which] = found.clamp(max=int(chance.nonzero()[-1]))
            for at in which.tolist():
                row = source[at]
                if int(count[row]) == 0:
                    left += 1
                    continue
                chance = weights[1].clone()
                chance[most[1] :] = 0
                first, last = torch.searchsorted(rows, torch.stack([row, row + 1])).tolist()
                chance[columns[first:last]] = 0
                ends = chance.cumsum(0)
                found = torch.searchsorted(ends, words.uniform(1) * ends[-1], right=True)
                destination[at] = found.clamp(max=int(chance.nonzero()[-1]))[0]
        if left:
            self._warn_of_edges(left, "all pairs that weights and times allow are edges")

    def _are_edges(self, source: Tensor, destination: Tensor) -> Tensor:
        if not len(self._keys):
            return torch.zeros_like(source, dtype=torch.bool)
        keys = source * self._size[1] + destination
        found: Tensor = self._keys[torch.searchsorted(self._keys, keys).clamp(max=len(self._keys) - 1)] == keys
        return found

    def _warn_of_edges(self, count: int, why: str) -> None:
        self._warn(count, "edges", why)

    def _warn(self, count: int, what: str, why: str) -> None:
        """Warns once that negatives are what they should not be."""
        if what not in self._warned:
            self._warned.add(what)
            lead = "too few pairs without an edge: " if what == "edges" else ""
            warnings.warn(f"{lead}{count} negatives of this batch are {what}, for {why}", stacklevel=2)
