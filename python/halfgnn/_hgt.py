"""HGT's sampling: of each type of vertices as many in a hop, by budgets. Hu et al., Heterogeneous Graph Transformer, WWW 2020, algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput

from ._edges import InEdges, in_edges
from ._sample import Sample, Table, lock
from ._words import Words, by_weight, new_words
from .graph import Graph

#: Edges of a vertex and a type that are counted, as in PyG; of more a sample is.
MOST_EDGES = 50

#: Budgets are integers, multiples of this share of one, so that their sums are the same in any order.
_SHARE = 2.0**-40


class HGTSampler(BaseSampler):  # type: ignore[misc]
    """Samples vertices of each type in proportion to the squares of their budgets.

    Args:
        graphs: the edges of each type.
        sizes: the number of vertices of each type.
        counts: of each type of vertices how many are sampled in each hop.
        generator: of keys, as of :class:`halfgnn._neighbors.NeighborSampler`.
    """

    #: PyG's loaders look for it: edges have the numbers that they were given with.
    edge_permutation = None

    def __init__(
        self, graphs: Mapping[Any, Graph], sizes: Mapping[Any, int], counts: Mapping[Any, Sequence[int]], generator: torch.Generator | None
    ) -> None:
        self._sizes, self._counts, self._generator = sizes, counts, generator
        self._device = next(iter(graphs.values())).device
        self._edges = {kind: InEdges(graph) for kind, graph in graphs.items()}
        self._tables: dict[Any, Table] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": {}, "_generator": None}

    def sample_from_nodes(self, index: Any, **_: Any) -> Any:
        """The sample of a batch of vertices."""
        words = new_words(self._generator, self._device)
        seeds = {index.input_type: index.node.to(self._device, torch.int64)}
        with lock, torch.no_grad():
            try:
                out = self._sample(seeds, words)
            except BaseException:
                # What a part of a sample has written is no index of the next.
                self._tables.clear()
                raise
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """There is none, as in PyG."""
        raise NotImplementedError("HGT's sampler has no batches of links; use halfgnn.LinkLoader")

    def _sample(self, seeds: dict[Any, Tensor], words: Words) -> HeteroSamplerOutput:
        sample = Sample(self._tables, self._sizes, seeds, self._device)
        budgets = {kind: (sample.none, sample.none) for kind in self._sizes}
        for hop in range(max(map(len, self._counts.values()), default=0)):
            self._add_to(budgets, sample, words)
            for kind, (ids, budget) in budgets.items():
                chosen = by_weight((budget * _SHARE).square(), words)[: self._counts[kind][hop]]
                sample.place(kind, ids[chosen])
                is_left = torch.ones_like(ids, dtype=torch.bool)
                is_left[chosen] = False
                budgets[kind] = ids[is_left], budget[is_left]
            sample.next_hop()
        found = sample.edges_of(self._edges)
        for kind, edges in self._edges.items():
            first, degrees = edges.of(sample.keys(kind[-1]))
            sample.keep(found, kind, edges, *in_edges(first, degrees, MOST_EDGES, False, words))
        nodes, _ = sample.finish()
        rows, columns, numbers = ({kind: of[at][0] for kind, of in found.items()} for at in range(3))
        return HeteroSamplerOutput(node=nodes, row=rows, col=columns, edge=numbers, batch=None)

    def _add_to(self, budgets: dict[Any, tuple[Tensor, Tensor]], sample: Sample, words: Words) -> None:
        """Adds the shares of the edges of the vertices that the last hop found, whose sources are not in the sample."""
        for kind, edges in self._edges.items():
            first, degrees = edges.of(sample.frontier[kind[-1]][0])
            which, position = in_edges(first, degrees, MOST_EDGES, False, words)
            source = edges.columns[position].long()
            is_new = sample.find(kind[0], source) < 0
            share = torch.round(1 / (degrees.clamp(max=MOST_EDGES)[which[is_new]].double() * _SHARE)).long()
            ids, budget = budgets[kind[0]]
            ids, inverse = torch.cat([ids, source[is_new]]).unique(return_inverse=True)
            total = torch.zeros_like(ids).index_add_(0, inverse, torch.cat([budget, share]))
            budgets[kind[0]] = ids, total
