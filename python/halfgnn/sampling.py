"""Batches of vertices and their sampled in-neighbors, on the device that the graph lies on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import _core
from ._features import Features, rows_of
from ._fields import FEATURES, TARGETS, check_keywords, check_names, given, graph_of, selected
from .graph import Graph


@dataclass(frozen=True)
class Batch:
    """What a step computes on. Arrays are of the kind and on the device of the loader's graph."""

    #: Of ``neighbor`` a bipartite graph for each layer, the one that is computed first first: its sources are the vertices of
    #: ``n_id``, its destinations the first of them, and so on; those of the last are the vertices to learn from. Of others one graph,
    #: of all layers.
    graphs: list[Graph]
    #: Which vertices of the whole graph the batch begins with, int64.
    n_id: Any
    #: Their rows of the data's ``x``; None where it has none.
    x: Any
    #: Which rows of the last layer's output are to be learnt from, int64.
    learn: Any
    #: The data's ``y`` of these; None where it has none.
    y: Any
    #: Which edge of the whole graph, in the order that it was given in, each of the graph's edges is, int64; None of ``neighbor``.
    e_id: Any
    #: Of GraphSAINT's subgraphs the factor of each edge that makes a vertex's sum that of the whole graph, in the mean; else None.
    edge_norm: Any
    #: And of each vertex of ``learn`` the factor that makes the sum of losses the mean over all vertices of the graph, in the mean;
    #: else None.
    node_norm: Any

    @property
    def graph(self) -> Graph:
        """The only graph.

        Raises:
            ValueError: there is one for each layer.
        """
        if len(self.graphs) != 1:
            raise ValueError(f"a batch of {len(self.graphs)} graphs, one for each layer; take them from graphs")
        return self.graphs[0]

    @property
    def batch_size(self) -> int:
        """Number of vertices to learn from."""
        return len(self.learn)


class Loader:
    """Batches of vertices, in another order in each epoch, with their sampled in-neighbors.

    halfgnn samples on the device that the graph lies on, without workers and copies. Samples depend on the seed, the epoch and the
    batch alone, and are the same on the CPU and on GPUs.

    .. code-block:: python

        loader = halfgnn.Loader(data, "neighbor:15,10", 1024, input_nodes=data.train_mask)
        for batch in loader:
            x = batch.x
            for layer, graph in zip(layers, batch.graphs):
                x = layer((x, x[: graph.num_dst]), graph).relu()
            loss = cross_entropy(x[batch.learn], batch.y)

    Args:
        data: a PyG ``Data``, a DGL graph, a mapping, with ``x`` and ``y`` or without; or what :meth:`Graph.of` takes. ``x`` may be
            a path instead of an array: of a folder of parts, which ``halfgnn dataset partition`` writes, with the graph's vertices
            in their order, or of a ``.npy``.
        sampler: ``neighbor:15,10,5``, the most neighbors of a vertex in each layer, that of the batch's own vertices first, -1 for
            all, or ``[15, 10, 5]``; ``neighbor-replace:15,10,5``, with replacement; ``saint-node:6000``, ``saint-edge:4000``, ``saint-rw:2000,4`` and
            ``saint-mrw:1000,8000``, GraphSAINT's subgraphs; ``cluster:1500``, clusters by Louvain's method.
        batch_size: vertices of a batch, by default 1,024, or clusters, by default 20. GraphSAINT's subgraphs say it themselves.
        input_nodes: the vertices to learn from, by default all: a mask, one truth or one 0 or 1 a vertex, of any type; or a list of
            their numbers, each once. As many zeros and ones as there are vertices are a mask.
        shuffle: whether an epoch has an order of its own (the default), or all that of ``input_nodes``.
        drop_last: whether a last batch that is not whole is left out.
        coverage: how many times the graph's vertices are sampled first to count how often each is, for GraphSAINT's norms; by default 50.
        seed: of orders and samples.
        device: where to sample and put batches, if not where the graph lies.
        features: where all rows of ``x`` are, of which a batch takes its own. ``"device"``: in a copy where the graph lies, if they are
            not there. ``"host"``: in the host's memory, of a GPU's graph in a page-locked copy, from where the GPU reads
            rows over the bus. ``"disk"``: in a file, of a path or a ``numpy.memmap`` of float16 or float32; in memory are 4 bytes
            a vertex, rows are read in the order of the file by several threads, and in a loop over the loader those of the next
            batch are read while this one is computed on. By default where they lie: a path's on disk, an array's in it. A batch's
            ``x`` has the elements that the rows are kept in.
        cached: with ``features="host"`` of a GPU's graph, of how many vertices the GPU has copies of the rows, which do not come
            over the bus then: of those that most edges leave, whose rows batches ask for most often.

    Raises:
        ValueError: a sampler that there is not, an option that it has no use for, a graph with weights where edges are sampled
            without their numbers, a name in a mapping that nothing reads, a vertex that ``input_nodes`` names twice, or an ``x``
            that is not a row for each vertex, or cannot be where ``features`` says.
        IndexError: ``input_nodes`` names no vertex.
        TypeError: there is no such argument.
        OSError: there is no file of ``x``.
        RuntimeError: of a batch, that the file of ``x`` is not as long as it was, or another.
    """

    def __init__(
        self,
        data: Any,
        sampler: str | Sequence[int],
        batch_size: int | None = None,
        *,
        input_nodes: Any = None,
        shuffle: bool | None = None,
        drop_last: bool = False,
        coverage: int | None = None,
        seed: int = 0,
        device: Any = None,
        features: Features | None = None,
        cached: int | None = None,
        **_others: Any,
    ) -> None:
        check_keywords(Loader, _others)
        check_names(data)
        check_counts(batch_size=batch_size, coverage=coverage, cached=cached)
        if not isinstance(sampler, str):
            # As PyG's NeighborLoader takes it.
            sampler = "neighbor:" + ",".join(str(count) for count in sampler)
        x, self._y = given(data, *FEATURES), given(data, *TARGETS)
        is_path = isinstance(x, (str, os.PathLike))
        graph = graph_of(data, None if x is None or is_path else len(x))
        if device is not None:
            graph = graph.to(device)
        vertices = graph.num_nodes
        self._graph = graph
        self._rows = rows_of(x, features, graph, cached)
        for name, values in (("x", self._rows), ("y", self._y)):
            if values is not None and len(values) != vertices:
                raise ValueError(f"{name}: {len(values)} rows, and the graph has {vertices} vertices")
        self._kind = graph._kind()
        inputs = _vertices(input_nodes, vertices)
        self._is_input = self._kind.marked(inputs, vertices, graph)
        self._sampler = _draws(graph, inputs, sampler, (batch_size, coverage), (shuffle, drop_last), seed)
        if self._sampler.layers() is not None and graph._without_ones().weight is not None:
            raise ValueError(
                "a graph with weights: neighbors are sampled without the numbers of their edges; give it unweighted()"
            )
        self._norms = self._factors()
        self._epoch = 0

    def _factors(self) -> Any:
        """GraphSAINT's, of all edges in the order that they were given in, and of all vertices."""
        if not self._sampler.has_norms():
            return None
        import numpy as np

        from . import _numpy

        graph = self._graph
        edges, vertices = (np.empty(count, dtype=np.float32) for count in (graph.num_edges, graph.num_nodes))
        self._sampler.copy_norms((_numpy.address(edges), edges.size), (_numpy.address(vertices), vertices.size))
        vertices /= len(vertices)
        order = graph.numpy()._in_given_order()
        edges = edges if order is None else edges[order]
        return self._kind.beside(edges, graph), self._kind.beside(vertices, graph)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._sampler)

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the next epoch."""
        epoch = self._epoch
        self._epoch += 1
        return self.epoch(epoch)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch, which are counted from 0 on."""
        if self._rows is None or not self._rows.are_read:
            for at in range(len(self)):
                yield self.batch(number, at)
            return
        drawn = self._draw(number, 0)
        for at in range(len(self)):
            batch = self._made(*drawn)
            if at + 1 < len(self):
                drawn = self._draw(number, at + 1)
                self._rows.read_ahead(drawn[1])
            yield batch

    def batch(self, epoch: int, number: int) -> Batch:
        """One batch, both counted from 0 on.

        Raises:
            IndexError: an epoch has fewer.
        """
        return self._made(*self._draw(epoch, number))

    def _draw(self, epoch: int, number: int) -> tuple[list[_core.Adjacency], Any]:
        """The graphs of a batch, and the vertices that it begins with."""
        made, ids = self._sampler.sample(epoch, number)
        return made, self._kind.copied(ids, self._graph)

    def _made(self, made: list[_core.Adjacency], n_id: Any) -> Batch:
        """The batch of what was sampled."""
        whole, kind = self._graph, self._kind
        graphs, e_id = [], None
        for adjacency in made:
            graph, edges = kind.sampled(adjacency, whole)
            if edges is not None:
                edges = kind.long(edges)
                e_id = edges if whole._order is None else kind.long(kind.take(whole._order, edges))
            graphs.append(graph)
        if self._sampler.layers() is None:
            learn = kind.places(kind.take(self._is_input, n_id))
            if whole.weight is not None:
                graphs[0] = graphs[0].with_weight(kind.take(whole.weight, e_id))
        else:
            learn = kind.first(graphs[-1].num_dst, whole)
        learnt = kind.take(n_id, learn)
        edge_norm = node_norm = None
        if self._norms is not None:
            of_edges, of_vertices = self._norms
            edge_norm, node_norm = kind.take(of_edges, e_id), kind.take(of_vertices, learnt)
        return Batch(
            graphs,
            n_id,
            None if self._rows is None else self._rows.take(n_id),
            learn,
            kind.rows(self._y, learnt),
            e_id,
            edge_norm,
            node_norm,
        )

    def __repr__(self) -> str:
        return f"Loader({self._graph!r}, {len(self)} batches)"


def check_counts(**counts: int | None) -> None:
    """That numbers that were given are some that the extension module takes."""
    for name, number in counts.items():
        if number is not None and not 1 <= number < 2**32:
            raise ValueError(f"{name} {number}; take 1 at least")


def _draws(graph: Graph, inputs: Any, sampler: str, *options: Any) -> _core.Sampler:
    import numpy as np

    from . import _numpy

    host = graph.numpy()
    # Kept by name until the arrays are copied.
    arrays = [np.ascontiguousarray(values) for values in (host._offsets, host._columns, inputs)]
    offsets, columns, vertices = ((_numpy.address(values), values.size) for values in arrays)
    return _core.Sampler(graph._kind().place_of(graph), offsets, columns, vertices, sampler, *options)


def _vertices(given: Any, vertices: int) -> Any:
    """Numbers of vertices, as words on the host."""
    import numpy as np

    if given is None:
        return np.arange(vertices, dtype=np.uint32)
    return selected("input_nodes", given, vertices)
