"""The vertices of a sample while it grows, by type."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ._edges import InEdges, first_edges

#: Arrays of a sampler's that a sample writes are shared by the threads of a process.
lock = threading.Lock()

#: Of each type of edges sources and destinations in the sample, and numbers of edges, a part for each hop.
Edges = dict[Any, tuple[list[Tensor], list[Tensor], list[Tensor]]]


class Table:
    """Indices of vertices in a sample: an array with one for each vertex of a type, which is made once and cleaned after each sample."""

    def __init__(self, size: int, device: torch.device) -> None:
        self._of = torch.full((size,), -1, dtype=torch.int32, device=device)

    def find(self, keys: Tensor) -> Tensor:
        """The index of each, or -1."""
        return self._of[keys].long()

    def seed(self, keys: Tensor) -> None:
        """Gives each the index of its first occurrence."""
        self._of[keys] = len(keys)
        self._of.scatter_reduce_(0, keys, torch.arange(len(keys), dtype=torch.int32, device=keys.device), "amin")

    def add(self, keys: Tensor, total: int) -> Tensor:
        """Gives keys without an index the next from ``total`` on, in the order of their first occurrences, which are returned."""
        self.seed(keys)
        first = keys[self._of[keys] == torch.arange(len(keys), device=keys.device)]
        self._of[first] = torch.arange(total, total + len(first), dtype=torch.int32, device=keys.device)
        return first

    def clear(self, keys: Tensor) -> None:
        """Forgets keys."""
        self._of[keys] = -1


class _SortedTable:
    """Indices of pairs of a seed and a vertex, of which there may be more than fit an array: sorted keys. As :class:`Table`."""

    def __init__(self, device: torch.device) -> None:
        self._keys = self._index = torch.empty(0, dtype=torch.int64, device=device)

    def find(self, keys: Tensor) -> Tensor:
        if not len(self._keys):
            return torch.full_like(keys, -1)
        at = torch.searchsorted(self._keys, keys).clamp(max=len(self._keys) - 1)
        return torch.where(self._keys[at] == keys, self._index[at], -1)

    def seed(self, keys: Tensor) -> None:
        self._insert(keys, torch.arange(len(keys), device=keys.device))

    def add(self, keys: Tensor, total: int) -> Tensor:
        each, inverse = keys.unique(return_inverse=True)
        first = torch.full_like(each, len(keys))
        first.scatter_reduce_(0, inverse, torch.arange(len(keys), device=keys.device), "amin")
        found = keys[first.sort().values]
        self._insert(found, torch.arange(total, total + len(found), device=keys.device))
        return found

    def _insert(self, keys: Tensor, index: Tensor) -> None:
        self._keys, order = torch.cat([self._keys, keys]).sort()
        self._index = torch.cat([self._index, index])[order]


class Sample:
    """The vertices of a sample by type, in the order in which they are found.

    A vertex is a key: its number, or in disjoint samples the number of its seed times the vertices of the type, and its own.

    Args:
        tables: of each type the indices of vertices, empty, which :meth:`finish` makes so again.
        sizes: the number of vertices of each type.
        seeds: the first vertices.
        device: where all of it lies.
        disjoint: whether each seed has vertices of its own.
    """

    def __init__(
        self, tables: dict[Any, Table], sizes: Mapping[Any, int], seeds: dict[Any, Tensor], device: torch.device, disjoint: bool = False
    ) -> None:
        self.none = torch.empty(0, dtype=torch.int64, device=device)
        self._given, self._sizes, self._disjoint = tables, sizes, disjoint
        self._tables: dict[Any, Table | _SortedTable] = {}
        of_seeds, first = {}, 0
        for kind, ids in seeds.items():
            trees = torch.arange(first, first + len(ids), device=device) if disjoint else None
            first += len(ids)
            of_seeds[kind] = self._key(kind, ids, trees)
        #: Vertices that the last hop found, and the index of the first.
        self.frontier = {kind: (of_seeds.get(kind, self.none), 0) for kind in sizes}
        self._keys = {kind: [keys] for kind, (keys, _) in self.frontier.items()}
        #: Numbers of vertices that each hop found.
        self.counts = {kind: [len(keys)] for kind, (keys, _) in self.frontier.items()}
        self._total = {kind: len(keys) for kind, (keys, _) in self.frontier.items()}
        for kind, keys in of_seeds.items():
            self._table(kind).seed(keys)

    def _table(self, kind: Any) -> Table | _SortedTable:
        if kind not in self._tables:
            if self._disjoint:
                self._tables[kind] = _SortedTable(self.none.device)
            else:
                if kind not in self._given:
                    self._given[kind] = Table(self._sizes[kind], self.none.device)
                self._tables[kind] = self._given[kind]
        return self._tables[kind]

    def _key(self, kind: Any, ids: Tensor, trees: Tensor | None) -> Tensor:
        return ids if trees is None else trees * self._sizes[kind] + ids

    def split(self, kind: Any, keys: Tensor) -> tuple[Tensor, Tensor | None]:
        """Vertices, and the numbers of their seeds; None where samples are not disjoint."""
        if not self._disjoint:
            return keys, None
        size = max(self._sizes[kind], 1)
        return keys % size, keys // size

    def find(self, kind: Any, ids: Tensor, trees: Tensor | None = None) -> Tensor:
        """The index of each vertex in the sample, or -1."""
        return self._table(kind).find(self._key(kind, ids, trees))

    def place(self, kind: Any, ids: Tensor, trees: Tensor | None = None) -> Tensor:
        """The index of each vertex in the sample, where those that are new are added."""
        keys, table = self._key(kind, ids, trees), self._table(kind)
        found = table.find(keys)
        new = keys[found < 0]
        if not len(new):
            return found
        new = table.add(new, self._total[kind])
        self._keys[kind].append(new)
        self._total[kind] += len(new)
        return table.find(keys)

    def next_hop(self) -> None:
        """Makes what the hop found the frontier."""
        for kind, counts in self.counts.items():
            start = sum(counts)
            self.frontier[kind] = (self.keys(kind)[start:], start)
            counts.append(self._total[kind] - start)

    def keys(self, kind: Any) -> Tensor:
        """All vertices of a type."""
        if len(self._keys[kind]) > 1:
            self._keys[kind] = [torch.cat(self._keys[kind])]
        return self._keys[kind][0]

    @staticmethod
    def edges_of(kinds: Iterable[Any]) -> Edges:
        """No edges of these types."""
        return {kind: ([], [], []) for kind in kinds}

    def keep(self, found: Edges, kind: Any, edges: InEdges, which: Tensor, position: Tensor, trees: Tensor | None = None) -> None:
        """Adds the edges whose sources are in the sample, at destinations ``which``."""
        source = self.find(kind[0], edges.columns[position].long(), None if trees is None else trees[which])
        is_there = source >= 0
        for part, of in zip((source, which, edges.given(position)), found[kind], strict=True):
            of.append(part[is_there])

    def finish(self) -> tuple[dict[Any, Tensor], dict[Any, Tensor]]:
        """The vertices of each type, and of disjoint samples the numbers of their seeds."""
        nodes, trees = {}, {}
        for kind in self._keys:
            keys = self.keys(kind)
            nodes[kind], of_tree = self.split(kind, keys)
            if of_tree is not None:
                trees[kind] = of_tree
            table = self._tables.get(kind)
            if isinstance(table, Table):
                table.clear(keys)
        return nodes, trees


def induced(sample: Sample, all_edges: Mapping[Any, InEdges], until: Tensor | None = None) -> Edges:
    """All edges between the vertices of a sample; of disjoint samples between those of the same seed, and none later than it."""
    found = sample.edges_of(all_edges)
    for kind, edges in all_edges.items():
        vertices, trees = sample.split(kind[-1], sample.keys(kind[-1]))
        first, degrees = edges.of(vertices, None if until is None else until[trees])
        which, position = first_edges(first, degrees)
        sample.keep(found, kind, edges, which, position, trees)
    return found
