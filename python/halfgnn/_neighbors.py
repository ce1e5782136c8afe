"""Neighbor sampling over graphs of one or several types, by torch's operators on the device of the graph.

It is a sampler of PyG's: :class:`torch_geometric.sampler.BaseSampler`. Random numbers are hashes of a key and a counter, so that the CPU and
GPUs sample the same neighbors of the same key.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput

from .graph import Graph

#: The type of all vertices, and of all edges, of a graph that has one of each.
ONE = None
EDGES = (ONE, "to", ONE)

_MOST = 2**63 - 1

#: Attempts to sample a weighted pair that is not an edge.
_ATTEMPTS = 32

#: Arrays of a sampler's that a sample writes are shared by the threads of a process.
_lock = threading.Lock()


class Words:
    """Random integers from 0 to 2⁶³ - 1, one after the other: the hash of splitmix64 of a key and a counter.

    Args:
        key: any integer of 64 bits.
        device: where the integers are made; they are the same on all.
    """

    def __init__(self, key: int, device: torch.device) -> None:
        self._key, self._device, self._next = key, device, 0

    def take(self, count: int) -> Tensor:
        """The next ``count`` integers."""
        counter = torch.arange(self._next + 1, self._next + count + 1, device=self._device)
        self._next += count
        x = counter * _signed(0x9E3779B97F4A7C15) + self._key
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ _shifted(x, shift)) * _signed(factor)
        words: Tensor = (x ^ _shifted(x, 31)) & _MOST
        return words

    def uniform(self, count: int) -> Tensor:
        """The next ``count`` numbers from 0 to 1, 1 excluded, in float64."""
        numbers: Tensor = (self.take(count) >> 10).double() / 2**53
        return numbers


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shifted to the right, zeros in front."""
    shifted: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def distinct(words: Words, degrees: Tensor, count: int) -> Tensor:
    """Different integers below each degree, every set as likely as any other: Floyd's algorithm, Communications of the ACM 30 (1987).

    Args:
        words: source of random integers.
        degrees: integers, larger than ``count``.
        count: integers for each degree.

    Returns:
        degrees × ``count``.
    """
    random = words.take(count * len(degrees)).view(count, -1)
    chosen = torch.empty_like(random)
    for at in range(count):
        most = degrees - count + at
        pick = random[at] % (most + 1)
        chosen[at] = torch.where((chosen[:at] == pick).any(0), most, pick)
    return chosen.t()


def in_edges(graph: Graph, vertices: Tensor, fanout: int, replace: bool, words: Words) -> tuple[Tensor, Tensor]:
    """Samples edges that arrive at vertices.

    Args:
        graph: the edges of one type.
        vertices: destinations; each occurrence is sampled on its own.
        fanout: most edges of each vertex, -1 for all.
        replace: whether an edge may be sampled several times.
        words: source of random integers.

    Returns:
        For each sampled edge the index in ``vertices``, ascending, and the position in the order of the graph's adjacency.
    """
    first = graph._offsets[vertices]
    degrees = graph._offsets[vertices + 1] - first
    counts = degrees
    if fanout >= 0:
        counts = (degrees > 0) * fanout if replace else degrees.clamp(max=fanout)
    which = torch.repeat_interleave(torch.arange(len(vertices), device=vertices.device), counts)
    if fanout >= 0 and replace:
        return which, first[which] + words.take(len(which)) % degrees[which]
    position = first[which] + torch.arange(len(which), device=vertices.device) - (counts.cumsum(0) - counts)[which]
    is_cut = degrees > counts
    if fanout > 0 and bool(is_cut.any()):
        chosen = distinct(words, degrees[is_cut], fanout) + first[is_cut, None]
        position[is_cut[which]] = chosen.flatten()
    return which, position


def in_edges_by_weight(
    graph: Graph, weight: Tensor, vertices: Tensor, fanout: int, replace: bool, words: Words
) -> tuple[Tensor, Tensor]:
    """Samples edges that arrive at vertices, one after the other, each with a chance in proportion to its weight.

    Args:
        graph: the edges of one type.
        weight: a number for each edge in the order of the adjacency, float64; an edge of weight 0 is never sampled.
        vertices: destinations; each occurrence is sampled on its own.
        fanout: most edges of each vertex.
        replace: whether an edge may be sampled several times.
        words: source of random integers.

    Returns:
        As :func:`in_edges`.
    """
    which, position = in_edges(graph, vertices, -1, False, words)
    weight = weight[position]
    counts = torch.bincount(which, minlength=len(vertices))
    ends = counts.cumsum(0)
    if replace:
        sums = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
        first, last = sums[ends - counts], sums[ends]
        again = ((last > first).nonzero()[:, 0]).repeat_interleave(fanout)
        number = first[again] + words.uniform(len(again)) * (last - first)[again]
        # The first edge whose sum exceeds the number.
        at = torch.searchsorted(sums[1:], number, right=True)
        return again, position[torch.minimum(at, ends[again] - 1)]
    # The edges whose exponential times are the shortest: Efraimidis and Spirakis, Information Processing Letters 97 (2006).
    times = -torch.log1p(-words.uniform(len(which))) / weight
    order = times.argsort(stable=True)
    order = order[which[order].argsort(stable=True)]
    rank = torch.arange(len(order), device=order.device) - (ends - counts)[which]
    order = order[(rank < fanout) & (weight[order] > 0)]
    return which[order], position[order]


class NonEdges:
    """Pairs of a source and a destination that are no edge, sampled without attempts: of the sorted numbers of edges in a matrix the gaps say
    which number the n-th other pair has.

    Args:
        edges: sources and destinations, 2 × E, in any order, also several times.
        size: numbers of sources and destinations.
        loops: whether a vertex and itself are left out as well.
    """

    def __init__(self, edges: Tensor, size: tuple[int, int], loops: bool) -> None:
        self._size = sources, destinations = size
        keys = edges[0].long() * destinations + edges[1].long()
        if loops:
            vertices = torch.arange(sources, device=keys.device)
            keys = torch.cat([keys, vertices * destinations + vertices])
        self._keys = keys.unique()
        # Pairs that are no edge in front of each edge, ascending.
        self._gaps = self._keys - torch.arange(len(self._keys), device=keys.device)
        self._warned = False

    def pairs(self, count: int, words: Words, weights: tuple[Tensor | None, Tensor | None] = (None, None)) -> tuple[Tensor, Tensor]:
        """Sources and destinations of ``count`` pairs, each pair as likely as any other, or in proportion to the weights of both ends."""
        sources, destinations = self._size
        if weights != (None, None):
            return self._weighted(None, count, words, weights)
        free = sources * destinations - len(self._keys)
        if free == 0:
            self._warn(count, "all pairs are edges")
            numbers = words.take(count) % max(sources * destinations, 1)
        else:
            numbers = self._nth(words.take(count) % free)
        return numbers // destinations, numbers % destinations

    def destinations(self, source: Tensor, words: Words, weight: Tensor | None = None) -> Tensor:
        """For each source a destination that no edge leads to, each as likely as any other, or in proportion to its weight."""
        destinations = self._size[1]
        if weight is not None:
            return self._weighted(source, len(source), words, (None, weight))[1]
        first = torch.searchsorted(self._keys, source * destinations)
        free = destinations - (torch.searchsorted(self._keys, (source + 1) * destinations) - first)
        random = words.take(len(source))
        numbers = self._nth(source * destinations - first + random % free.clamp(min=1))
        is_full = free == 0
        if bool(is_full.any()):
            self._warn(int(is_full.sum()), "their sources have edges to all destinations")
        return torch.where(is_full, random, numbers) % destinations

    def _nth(self, numbers: Tensor) -> Tensor:
        """The numbers in the matrix of pairs that are counted without the edges."""
        return numbers + torch.searchsorted(self._gaps, numbers, right=True)

    def _weighted(
        self, source: Tensor | None, count: int, words: Words, weights: tuple[Tensor | None, Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        """Pairs by the weights of their ends; those that are edges are sampled again."""
        device = self._keys.device
        given, ends = source, []
        for weight, size in zip(weights, self._size, strict=True):
            weight = torch.ones(size) if weight is None else weight
            if weight.shape != (size,) or bool((weight < 0).any()) or not 0 < float(weight.sum()) < math.inf:
                raise ValueError(f"neg_sampling: weights should be {size} numbers from 0 on with a sum above 0, are {tuple(weight.shape)}")
            ends.append(weight.to(device).double().cumsum(0))

        def sampled(end: Tensor, number: int) -> Tensor:
            # A vertex without weight is never the first whose sum exceeds a number.
            return torch.searchsorted(end, words.uniform(number) * end[-1], right=True).clamp(max=len(end) - 1)

        source = sampled(ends[0], count) if given is None else given.clone()
        destination = sampled(ends[1], count)
        for _ in range(_ATTEMPTS):
            again = self._are_edges(source, destination).nonzero()[:, 0]
            if not len(again):
                return source, destination
            if given is None:
                source[again] = sampled(ends[0], len(again))
            destination[again] = sampled(ends[1], len(again))
        left = int(self._are_edges(source, destination).sum())
        if left:
            self._warn(left, f"{_ATTEMPTS} samples by weight were edges")
        return source, destination

    def _are_edges(self, source: Tensor, destination: Tensor) -> Tensor:
        if not len(self._keys):
            return torch.zeros_like(source, dtype=torch.bool)
        keys = source * self._size[1] + destination
        found: Tensor = self._keys[torch.searchsorted(self._keys, keys).clamp(max=len(self._keys) - 1)] == keys
        return found

    def _warn(self, count: int, why: str) -> None:
        """Warns once that negatives are edges."""
        if not self._warned:
            self._warned = True
            warnings.warn(f"too few pairs without an edge: {count} negatives of this batch are edges, for {why}", stacklevel=2)


class NeighborSampler(BaseSampler):  # type: ignore[misc]
    """Samples neighbors of vertices and of the ends of links, hop by hop; each vertex of a sample is sampled in the hop after the one that finds
    it.

    Args:
        graphs: the edges of each type.
        sizes: the number of vertices of each type.
        fanouts: most edges of each type that are sampled of a vertex in each hop, -1 for all.
        replace: whether an edge may be sampled several times.
        bidirectional: whether sampled edges are turned as well.
        weights: of types of edges whose chances are unequal, a weight for each edge, as it was given.
        generator: of keys, in the process of the loader; torch's own where it is None. Workers have torch's own, which their loader seeds.
        negatives: pairs to sample negative links from.
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
        bidirectional: bool,
        weights: Mapping[Any, Tensor],
        generator: torch.Generator | None,
        negatives: NonEdges | None = None,
    ) -> None:
        self._graphs, self._sizes, self._fanouts = graphs, sizes, fanouts
        self._replace, self._bidirectional = replace, bidirectional
        self._generator, self._negatives = generator, negatives
        self._device = next(iter(graphs.values())).device
        self._weights = {kind: weight if graphs[kind]._order is None else weight[graphs[kind]._order.long()] for kind, weight in weights.items()}
        #: Of each type the index of a vertex in the current sample, or -1.
        self._places: dict[Any, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_places": {}, "_generator": None}

    def _words(self) -> Words:
        generator = self._generator if torch.utils.data.get_worker_info() is None else None
        key = torch.randint(-(2**63), 2**63 - 1, (), generator=generator)
        return Words(int(key), self._device)

    def _ids(self, ids: Tensor) -> Tensor:
        return ids.to(self._device, torch.int64)

    def sample_from_nodes(self, index: Any, **_: Any) -> Any:
        """The sample of a batch of vertices, each with its own neighbors also where it is there twice."""
        out = self._sample({index.input_type: self._ids(index.node)}, self._words())
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: Any, neg_sampling: Any = None, **_: Any) -> Any:
        """The sample of both ends of a batch of links, and of negative links, each vertex once."""
        words = self._words()
        source, destination, label = self._ids(index.row), self._ids(index.col), index.label
        links = len(source)
        is_triplet = neg_sampling is not None and neg_sampling.is_triplet()
        if neg_sampling is not None:
            assert self._negatives is not None
            weights = neg_sampling.src_weight, neg_sampling.dst_weight
            if is_triplet:
                each = source.repeat_interleave(neg_sampling.amount)
                others = self._negatives.destinations(each, words, weights[1])
            else:
                count = math.ceil(links * neg_sampling.amount)
                sources, others = self._negatives.pairs(count, words, weights)
                source = torch.cat([source, sources])
                label = torch.ones(links) if label is None else label
                label = torch.cat([label, label.new_zeros((count, *label.shape[1:]))])
            destination = torch.cat([destination, others])
        types = (ONE, ONE) if index.input_type is None else (index.input_type[0], index.input_type[-1])
        if types[0] == types[1]:
            ids, places = torch.cat([source, destination]).unique(return_inverse=True)
            seeds, (source, destination) = {types[0]: ids}, places.split([len(source), len(destination)])
        else:
            seeds = {}
            seeds[types[0]], source = source.unique(return_inverse=True)
            seeds[types[1]], destination = destination.unique(return_inverse=True)
        out = self._sample(seeds, words)
        if is_triplet:
            negative = destination[links:].view(links, -1).squeeze(-1)
            out.metadata = (index.input_id, source, destination[:links], negative, index.time)
        else:
            out.metadata = (index.input_id, torch.stack([source, destination]), label, index.time)
        return out

    def _sample(self, seeds: dict[Any, Tensor], words: Words) -> Any:
        with _lock, torch.no_grad():
            try:
                sample = _Sample(self._places, (self._sizes, self._graphs), seeds, self._device)
                for hop in range(max(map(len, self._fanouts.values()), default=0)):
                    self._hop(sample, hop, words)
                nodes = sample.finish()
            except BaseException:
                # What a part of a sample has written is no index of the next.
                self._places.clear()
                raise
        rows, columns, edges = (
            {kind: torch.cat(of[at]) if of[at] else sample.none for kind, of in sample.edges.items()} for at in range(3)
        )
        counts = {kind: [len(part) for part in of[0]] for kind, of in sample.edges.items()}
        if EDGES in self._graphs:
            out = SamplerOutput(
                node=nodes[ONE],
                row=rows[EDGES],
                col=columns[EDGES],
                edge=edges[EDGES],
                num_sampled_nodes=sample.counts[ONE],
                num_sampled_edges=counts[EDGES],
            )
        else:
            out = HeteroSamplerOutput(
                node=nodes, row=rows, col=columns, edge=edges, num_sampled_nodes=sample.counts, num_sampled_edges=counts
            )
        return out.to_bidirectional(keep_orig_edges=True) if self._bidirectional else out

    def _hop(self, sample: _Sample, hop: int, words: Words) -> None:
        for kind, graph in self._graphs.items():
            vertices, start = sample.frontier[kind[-1]]
            fanout, weight = self._fanouts[kind][hop], self._weights.get(kind)
            if weight is None or fanout < 0:
                which, position = in_edges(graph, vertices, fanout, self._replace, words)
            else:
                which, position = in_edges_by_weight(graph, weight, vertices, fanout, self._replace, words)
            source = sample.place(kind[0], graph._columns[position].long())
            edge = position if graph._order is None else graph._order[position].long()
            for part, of in zip((source, which + start, edge), sample.edges[kind], strict=True):
                of.append(part)
        sample.next_hop()


class _Sample:
    """The vertices of a sample by type, in the order in which they are found, and its edges.

    Args:
        places: of each type an index for each vertex, all -1, which :meth:`finish` makes so again.
        types: the number of vertices of each type, and the types of edges.
        seeds: the first vertices.
        device: where all of it lies.
    """

    def __init__(
        self,
        places: dict[Any, Tensor],
        types: tuple[Mapping[Any, int], Iterable[Any]],
        seeds: dict[Any, Tensor],
        device: torch.device,
    ) -> None:
        sizes, kinds = types
        self.none = torch.empty(0, dtype=torch.int64, device=device)
        self._places, self._sizes = places, sizes
        #: Sources and destinations in the sample, and numbers of edges, a part for each hop.
        self.edges: dict[Any, tuple[list[Tensor], list[Tensor], list[Tensor]]] = {kind: ([], [], []) for kind in kinds}
        #: Vertices that the last hop found, and the index of the first.
        self.frontier = {kind: (seeds.get(kind, self.none), 0) for kind in sizes}
        self._nodes = {kind: [ids] for kind, (ids, _) in self.frontier.items()}
        #: Numbers of vertices that each hop found.
        self.counts = {kind: [len(ids)] for kind, (ids, _) in self.frontier.items()}
        self._total = {kind: len(ids) for kind, (ids, _) in self.frontier.items()}
        for kind, ids in seeds.items():
            self._first_of(self._place_of(kind), ids)

    def _place_of(self, kind: Any) -> Tensor:
        if kind not in self._places:
            self._places[kind] = torch.full((self._sizes[kind],), -1, dtype=torch.int32, device=self.none.device)
        return self._places[kind]

    def _first_of(self, places: Tensor, ids: Tensor) -> Tensor:
        """Gives vertices without an index that of their first occurrence in ``ids``; returns which occurrences are first."""
        order = torch.arange(len(ids), dtype=torch.int32, device=ids.device)
        places[ids] = len(ids)
        places.scatter_reduce_(0, ids, order, "amin")
        return places[ids] == order

    def place(self, kind: Any, ids: Tensor) -> Tensor:
        """The index of each vertex in the sample, where those that are new are added."""
        places = self._place_of(kind)
        new = ids[places[ids] < 0]
        if len(new):
            new = new[self._first_of(places, new)]
            total = self._total[kind]
            places[new] = torch.arange(total, total + len(new), dtype=torch.int32, device=new.device)
            self._nodes[kind].append(new)
            self._total[kind] += len(new)
        return places[ids].long()

    def next_hop(self) -> None:
        """Makes what the hop found the frontier."""
        for kind, parts in self._nodes.items():
            start = sum(self.counts[kind])
            found = self._total[kind] - start
            nodes = torch.cat(parts)
            self._nodes[kind] = [nodes]
            self.frontier[kind] = (nodes[start:], start)
            self.counts[kind].append(found)

    def finish(self) -> dict[Any, Tensor]:
        """The vertices of each type."""
        nodes = {kind: torch.cat(parts) for kind, parts in self._nodes.items()}
        for kind, ids in nodes.items():
            if kind in self._places:
                self._places[kind][ids] = -1
        return nodes


def graphs_of(data: Any) -> tuple[dict[Any, Graph], dict[Any, int]]:
    """The edges of each type of PyG's data, and the number of vertices of each type.

    Raises:
        ValueError: it has no ``edge_index``.
    """
    if isinstance(data, Data):
        stores, sizes = {EDGES: data}, {ONE: data.num_nodes}
    else:
        stores = {kind: data[kind] for kind in data.edge_types}
        sizes = {kind: data[kind].num_nodes for kind in data.node_types}
    graphs = {}
    for kind, store in stores.items():
        name = "data" if kind is EDGES else f"data[{kind!r}]"
        index = getattr(store, "edge_index", None)
        if index is None:
            raise ValueError(f"{name}: it has no edge_index" + ("; give one in place of adj_t" if "adj_t" in store else ""))
        for end in (kind[0], kind[-1]):
            if sizes.get(end) is None:
                raise ValueError(f"{name}: vertices of {end!r} have neither features nor num_nodes; set num_nodes")
        size = int(sizes[kind[0]]), int(sizes[kind[-1]])
        try:
            graphs[kind] = Graph(index.as_subclass(Tensor), size=size)
        except (IndexError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
    return graphs, {kind: int(count) for kind, count in sizes.items()}


def weights_of(data: Any, name: str | None, graphs: Mapping[Any, Graph]) -> dict[Any, Tensor]:
    """The weights of edges under a name, of the types of edges that have it, in float64.

    Raises:
        ValueError: no type has it, or it is not a number from 0 on for each edge.
    """
    if name is None:
        return {}
    found = {}
    for kind, graph in graphs.items():
        store = data if kind is EDGES else data[kind]
        if name not in store:
            continue
        weight = torch.as_tensor(store[name]).detach()
        if weight.shape not in ((graph.num_edges,), (graph.num_edges, 1)):
            raise ValueError(f"weight_attr: {name} should be {graph.num_edges}, one for each edge, is {tuple(weight.shape)}")
        weight = weight.reshape(-1).to(graph.device, torch.float64)
        if not bool(((weight >= 0) & (weight < math.inf)).all()):
            raise ValueError(f"weight_attr: {name} has a number that is negative or not finite; give numbers from 0 on")
        found[kind] = weight
    if not found:
        raise ValueError(f"weight_attr: edges have no {name!r}")
    return found
