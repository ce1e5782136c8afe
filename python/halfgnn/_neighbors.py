"""Neighbor sampling over graphs of one or several types, by torch's operators on the device of the graph.

It is a sampler of PyG's: :class:`torch_geometric.sampler.BaseSampler`. Random numbers are hashes of a key and a counter, so that the CPU and
GPUs sample the same neighbors of the same key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput

from ._edges import InEdges, in_edges, in_edges_by_weight
from ._graphs import EDGES, ONE, Times
from ._negatives import NonEdges
from ._sample import Edges, Sample, Table, induced, lock
from ._words import Words, new_words
from .graph import Graph


class NeighborSampler(BaseSampler):  # type: ignore[misc]
    """Samples neighbors of vertices and of the ends of links, hop by hop; each vertex of a sample is sampled in the hop after the one that finds
    it.

    Args:
        graphs: the edges of each type.
        sizes: the number of vertices of each type.
        fanouts: most edges of each type that are sampled of a vertex in each hop, -1 for all.
        replace: whether an edge may be sampled several times.
        subgraph: ``"directional"`` for the sampled edges, ``"bidirectional"`` for these in both directions, ``"induced"`` for all edges between
            the vertices of a sample.
        weights: of types of edges whose chances are unequal, a weight for each edge, as it was given.
        generator: of keys, in the process of the loader; torch's own where it is None. Workers have torch's own, which their loader seeds.
        disjoint: whether each seed has a sample of its own.
        times: times of vertices or edges, of which none is sampled that is later than the seed; samples are then disjoint.
        last: whether the last neighbors of a vertex are taken, in place of a sample of those that are not later.
    """

    #: PyG's loaders look for it: edges have the numbers that they were given with.
    edge_permutation = None

    def __init__(
        self,
        graphs: Mapping[Any, Graph],
        sizes: Mapping[Any, int],
        fanouts: Mapping[Any, Sequence[int]],
        *,
        replace: bool,
        subgraph: str,
        weights: Mapping[Any, Tensor],
        generator: torch.Generator | None,
        disjoint: bool = False,
        times: Times | None = None,
        last: bool = False,
    ) -> None:
        self._sizes, self._fanouts = sizes, fanouts
        self._replace, self._subgraph, self._last = replace, subgraph, last
        self._generator = generator
        self._device = next(iter(graphs.values())).device
        self._disjoint, self.times = disjoint or times is not None, times
        #: Pairs to sample negative links from.
        self.negatives: NonEdges | None = None
        self._edges = {
            kind: InEdges(graph, weights.get(kind), None if times is None else times.of(kind, graph)) for kind, graph in graphs.items()
        }
        #: Of each type the indices of vertices in the current sample.
        self._tables: dict[Any, Table] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tables": {}, "_generator": None}

    def sample_from_nodes(self, index: Any, **_: Any) -> Any:
        """The sample of a batch of vertices, each with its own neighbors also where it is there twice."""
        ids = index.node.to(self._device, torch.int64)
        until = None
        if self.times is not None:
            until = self.times.vertices[index.input_type][ids] if index.time is None else self._given(index.time)
        out = self._sample({index.input_type: ids}, new_words(self._generator, self._device), until)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: Any, neg_sampling: Any = None, **_: Any) -> Any:
        """The sample of both ends of a batch of links, and of negative links: each vertex once, or of disjoint samples each end by itself."""
        words = new_words(self._generator, self._device)
        source, destination = (ids.to(self._device, torch.int64) for ids in (index.row, index.col))
        label, time = index.label, index.time
        until = None if self.times is None else self._given(time)
        links = len(source)
        # The link of each source and of each destination.
        of_source = of_destination = torch.arange(links, device=self._device)
        is_triplet = neg_sampling is not None and neg_sampling.is_triplet()
        if neg_sampling is not None:
            assert self.negatives is not None
            weights = neg_sampling.src_weight, neg_sampling.dst_weight
            if is_triplet:
                of_others = of_source.repeat_interleave(neg_sampling.amount)
                others = self.negatives.destinations(
                    source[of_others], words, weights[1], None if until is None else until[of_others]
                )
            else:
                count = math.ceil(links * neg_sampling.amount)
                of_others = torch.arange(count, device=self._device) % max(links, 1)
                sources, others = self.negatives.pairs(count, words, weights, None if until is None else until[of_others])
                source, of_source = torch.cat([source, sources]), torch.cat([of_source, of_others])
                label = torch.ones(links) if label is None else label
                label = torch.cat([label, label.new_zeros((count, *label.shape[1:]))])
                time = None if time is None else time[of_source.to(time.device)]
            destination, of_destination = torch.cat([destination, others]), torch.cat([of_destination, of_others])
        types = (ONE, ONE) if index.input_type is None else (index.input_type[0], index.input_type[-1])
        ends, of_ends = torch.cat([source, destination]), torch.cat([of_source, of_destination])
        both = [len(source), len(destination)]
        if self._disjoint:
            seeds: dict[Any, Tensor] = {types[0]: ends} if types[0] == types[1] else {types[0]: source, types[1]: destination}
            out = self._sample(seeds, words, None if until is None else until[of_ends], of_ends)
            source, destination = torch.arange(sum(both), device=self._device).split(both)
            destination = destination if types[0] == types[1] else destination - both[0]
        elif types[0] == types[1]:
            ids, places = ends.unique(return_inverse=True)
            out = self._sample({types[0]: ids}, words)
            source, destination = places.split(both)
        else:
            seeds = {}
            seeds[types[0]], source = source.unique(return_inverse=True)
            seeds[types[1]], destination = destination.unique(return_inverse=True)
            out = self._sample(seeds, words)
        if is_triplet:
            negative = destination[links:].view(links, -1).squeeze(-1)
            out.metadata = (index.input_id, source, destination[:links], negative, time)
        else:
            out.metadata = (index.input_id, torch.stack([source, destination]), label, time)
        return out

    def _given(self, time: Tensor) -> Tensor:
        assert self.times is not None
        return time.to(self._device, self.times.dtype).flatten()

    def _sample(self, seeds: dict[Any, Tensor], words: Words, until: Tensor | None = None, of_tree: Tensor | None = None) -> Any:
        """The sample of seeds.

        Args:
            seeds: vertices by type.
            words: source of random integers.
            until: a time for each seed, in their order.
            of_tree: what ``batch`` says of the vertices of each seed; the number of the seed where it is None.
        """
        with lock, torch.no_grad():
            try:
                sample = Sample(self._tables, self._sizes, seeds, self._device, self._disjoint)
                edges = sample.edges_of(self._edges)
                for hop in range(max(map(len, self._fanouts.values()), default=0)):
                    self._hop(sample, edges, hop, words, until)
                if self._subgraph == "induced":
                    edges = induced(sample, self._edges, until)
                nodes, trees = sample.finish()
            except BaseException:
                # What a part of a sample has written is no index of the next.
                self._tables.clear()
                raise
        batch = None
        if self._disjoint:
            batch = {kind: tree if of_tree is None else of_tree[tree] for kind, tree in trees.items()}
        return self._output(sample, edges, nodes, batch)

    def _output(self, sample: Sample, edges: Edges, nodes: dict[Any, Tensor], batch: dict[Any, Tensor] | None) -> Any:
        rows, columns, numbers = (
            {kind: torch.cat(of[at]) if of[at] else sample.none for kind, of in edges.items()} for at in range(3)
        )
        # Edges of an induced subgraph are not those of hops.
        is_by_hop = self._subgraph != "induced"
        counts = {kind: [len(part) for part in of[0]] for kind, of in edges.items()}
        if EDGES in self._edges:
            out = SamplerOutput(
                node=nodes[ONE],
                row=rows[EDGES],
                col=columns[EDGES],
                edge=numbers[EDGES],
                batch=None if batch is None else batch[ONE],
                num_sampled_nodes=sample.counts[ONE] if is_by_hop else None,
                num_sampled_edges=counts[EDGES] if is_by_hop else None,
            )
        else:
            out = HeteroSamplerOutput(
                node=nodes,
                row=rows,
                col=columns,
                edge=numbers,
                batch=batch,
                num_sampled_nodes=sample.counts if is_by_hop else None,
                num_sampled_edges=counts if is_by_hop else None,
            )
        return out.to_bidirectional(keep_orig_edges=True) if self._subgraph == "bidirectional" else out

    def _hop(self, sample: Sample, found: Edges, hop: int, words: Words, until: Tensor | None) -> None:
        for kind, edges in self._edges.items():
            keys, start = sample.frontier[kind[-1]]
            vertices, trees = sample.split(kind[-1], keys)
            first, degrees = edges.of(vertices, None if until is None else until[trees])
            fanout = self._fanouts[kind][hop]
            if self._last and fanout >= 0:
                first, degrees = first + (degrees - fanout).clamp(min=0), degrees.clamp(max=fanout)
            if edges.weight is None or fanout < 0:
                which, position = in_edges(first, degrees, fanout, self._replace, words)
            else:
                which, position = in_edges_by_weight(first, degrees, edges.weight, fanout, self._replace, words)
            source = sample.place(kind[0], edges.columns[position].long(), None if trees is None else trees[which])
            for part, of in zip((source, which + start, edges.given(position)), found[kind], strict=True):
                of.append(part)
        sample.next_hop()
