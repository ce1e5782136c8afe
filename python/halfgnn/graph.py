"""Graphs, from whatever people have them in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    Array = npt.NDArray[Any] | torch.Tensor

_MOST = 2**31 - 1

#: Vertices that a graph may have whatever its edges are, and for each of its edges: as the program's of an archive. A graph of which
#: nearly all vertices are alone is mostly a wrong id or number, and is paid for in memory.
_FEW, _FOR_EACH_EDGE = 2**24, 512


#: Torch's class, once one of its tensors was seen.
_Tensor: Any = None


def is_tensor(value: object) -> bool:
    """Whether it is torch's, without importing torch."""
    global _Tensor
    if _Tensor is not None:
        return isinstance(value, _Tensor)
    for base in type(value).__mro__:
        if base.__module__ == "torch" and base.__name__ == "Tensor":
            _Tensor = base
            return True
    return False


class Graph:
    """A directed graph, from sources to destinations, of one kind of vertices or of two.

    >>> import numpy as np, halfgnn
    >>> graph = halfgnn.Graph(np.array([[0, 1, 2], [1, 2, 1]]))  # 0 → 1, 1 → 2, 2 → 1
    >>> graph.num_nodes, graph.num_edges
    (3, 3)

    Destination ``i`` aggregates the row of source ``j`` over the edge ``j → i``. Edges keep their order: arrays with a value for each
    edge, such as weights, are in that order. The same edge may be there several times.

    The graph lies in NumPy arrays or in torch tensors, on one device, like what it is made of. An operator on a GPU takes a graph on
    that GPU. A graph is immutable, and keeps derived graphs once they are made. It can be pickled, copied, and saved by ``torch.save``.

    Args:
        edge_index: sources and destinations, 2 × E, integers (PyG's ``edge_index``); or a pair of them. Ids are from 0 on.
        num_nodes: number of vertices; by default one more than the largest id.
        size: ``(sources, destinations)`` of a bipartite graph, in place of ``num_nodes``.
        weight: a number for each edge, E, E × 1 or E × heads, which operators use unless they are given others.

    Raises:
        IndexError: an id is negative or has no vertex.
        ValueError: sizes do not agree, or are more than 2³¹ − 1; or vertices are more than 2²⁴ and than 512 for each edge.
    """

    __slots__ = (
        "__weakref__",
        "_a",
        "_cache",
        "_inverse",
        "_map",
        "_order",
        "_t",
        "weight",
    )

    #: Weights of the edges, or None.
    weight: Array | None

    def __init__(
        self,
        edge_index: Any,
        num_nodes: int | None = None,
        *,
        size: tuple[int, int] | None = None,
        weight: Any = None,
    ) -> None:
        if num_nodes is not None and size is not None:
            raise ValueError("num_nodes and size at once; give one of them")
        if num_nodes is not None:
            size = (num_nodes, num_nodes)
        if isinstance(edge_index, (tuple, list)) and len(edge_index) == 2:
            source, destination = edge_index
        else:
            if getattr(edge_index, "ndim", 0) != 2 or edge_index.shape[0] != 2:
                shape = tuple(getattr(edge_index, "shape", ()))
                raise ValueError(f"edge_index: should be 2 x E, sources and destinations, is {shape}")
            source, destination = edge_index[0], edge_index[1]
        self._make(source, destination, size, weight)

    def _make(
        self, source: Any, destination: Any, size: tuple[int, int] | None, weight: Any
    ) -> None:
        if is_tensor(source):
            from . import _tensors as kind
        else:
            from . import _numpy as kind  # type: ignore[no-redef]
        source, destination = kind.ids("sources", source), kind.ids("destinations", destination)
        if len(source) != len(destination):
            raise ValueError(
                f"edge_index: {len(source)} sources and {len(destination)} destinations; each edge has one of each"
            )
        if len(source) > _MOST:
            raise ValueError(f"{len(source)} edges; up to {_MOST} are possible")
        ends = [kind.extremes(source), kind.extremes(destination)]
        if size is None:
            size = (max(ends[0][1], ends[1][1]) + 1,) * 2
        size = _count("sources", size[0]), _count("destinations", size[1])
        possible = most_vertices(len(source))
        for (least, most), count, what in zip(ends, size, ("source", "destination"), strict=True):
            if not 0 <= count <= _MOST:
                raise ValueError(f"{count} vertices; 0 to {_MOST} are possible")
            if least < 0 or most >= count:
                bad = least if least < 0 else most
                raise IndexError(f"edge_index: {what} {bad} is no vertex: ids are 0 to {count - 1}")
            if count > possible:
                raise ValueError(
                    f"{count} vertices with {len(source)} edges; up to {possible} are possible, {_FEW} or {_FOR_EACH_EDGE} for each "
                    "edge: number the vertices from 0 on without gaps"
                )
        self._a, self._order = kind.adjacency(source, destination, size)
        self._inverse: Any = None
        self._t: Any = None
        self._map: Any = None
        self._cache: dict[str, Any] = {}
        self.weight = None if weight is None else kind.weights(weight, self.num_edges)

    @classmethod
    def _of_arrays(cls, arrays: Any) -> Graph:
        """Of what :func:`made` gives, whose edges are numbered in its order."""
        graph = object.__new__(cls)
        graph._a, graph._order, graph.weight = arrays, None, None
        graph._inverse, graph._t, graph._map, graph._cache = None, None, None, {}
        return graph

    @classmethod
    def of(cls, graph: Any, num_nodes: int | None = None) -> Graph:
        """A graph of another, an ``edge_index``, a PyG ``Data`` or ``SparseTensor``, a sparse tensor of torch, a
        SciPy matrix, a DGL or a NetworkX graph."""
        name = f"{type(graph).__module__}.{type(graph).__name__}"
        if isinstance(graph, Graph):
            return graph
        if is_tensor(graph):
            if graph.layout.__repr__() != "torch.strided":
                return cls.from_sparse(graph)
            return cls(graph, num_nodes)
        if name.startswith("scipy.sparse"):
            return cls.from_scipy(graph)
        if name.startswith("networkx."):
            return cls.from_networkx(graph)
        if name.startswith("dgl.") or hasattr(graph, "num_dst_nodes"):
            return cls.from_dgl(graph)
        if hasattr(graph, "coo") and hasattr(graph, "sparse_sizes"):
            return cls.from_sparse(graph)
        if hasattr(graph, "edge_index") or hasattr(graph, "adj_t"):
            return cls.from_pyg(graph)
        return cls(graph, num_nodes)

    @classmethod
    def from_scipy(cls, matrix: Any, *, weighted: bool = True) -> Graph:
        """A SciPy sparse matrix, destinations × sources: the entry (i, j) is an edge from j to i, and its value the edge's weight,
        whatever it is, unless ``weighted`` is false or the matrix is of booleans. In NumPy arrays."""
        coo = matrix.tocoo()
        rows, columns = coo.shape
        weight = coo.data if weighted and coo.data.dtype != bool else None
        return cls((coo.col, coo.row), size=(columns, rows), weight=weight)

    @classmethod
    def from_csr(
        cls, offsets: Any, columns: Any, num_columns: int | None = None, *, weight: Any = None
    ) -> Graph:
        """A graph of row offsets and columns: row ``i`` aggregates the columns from ``offsets[i]`` to ``offsets[i + 1]``."""
        if is_tensor(offsets):
            from . import _tensors as kind
        else:
            from . import _numpy as kind  # type: ignore[no-redef]
        rows = len(offsets) - 1
        size = (rows if num_columns is None else num_columns, rows)
        return cls((columns, kind.expand(offsets, len(columns))), size=size, weight=weight)

    @classmethod
    def from_networkx(cls, graph: Any, weight: str | None = None) -> Graph:
        """A NetworkX graph, its vertices numbered in its order; of an undirected one each edge in both directions. ``weight`` names
        the attribute of edges that are their weights. In NumPy arrays."""
        import numpy as np

        number = {vertex: at for at, vertex in enumerate(graph)}
        edges = [(number[a], number[b], attributes) for a, b, attributes in graph.edges(data=True)]
        if not graph.is_directed():
            edges += [(b, a, attributes) for a, b, attributes in edges if a != b]
        ends = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2)
        weights = None
        if weight is not None:
            weights = np.array([edge[2].get(weight, 1.0) for edge in edges], dtype=np.float32)
        return cls((ends[:, 0], ends[:, 1]), len(number), weight=weights)

    @classmethod
    def from_dgl(cls, graph: Any, weight: str | None = None) -> Graph:
        """A DGL graph or block, of one type of edges. ``weight`` names the feature of edges that is their weight."""
        source, destination = graph.edges(order="eid")
        size = (int(graph.num_src_nodes()), int(graph.num_dst_nodes()))
        values = None if weight is None else graph.edata[weight]
        return cls((source, destination), size=size, weight=values)

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """A PyG ``Data``: its ``edge_index`` (or ``adj_t``), number of nodes, and ``edge_weight`` where it has one."""
        adjacency = getattr(data, "adj_t", None)
        if adjacency is not None and getattr(data, "edge_index", None) is None:
            return cls.from_sparse(adjacency)
        weight = getattr(data, "edge_weight", None)
        return cls(data.edge_index, int(data.num_nodes), weight=weight)

    @classmethod
    def from_sparse(cls, adjacency: Any, *, weighted: bool = True) -> Graph:
        """A sparse tensor of torch, or PyG's ``SparseTensor``: destinations × sources, as PyG's ``adj_t``. Its values are weights,
        whatever they are, unless ``weighted`` is false or they are booleans; gradients of the weights are gradients of the values."""
        if hasattr(adjacency, "coo"):
            rows, columns, values = adjacency.coo()
            shape = tuple(adjacency.sparse_sizes())
        else:
            coo = adjacency.to_sparse_coo()
            coo = coo if coo.is_coalesced() else coo.coalesce()
            (rows, columns), values = coo.indices(), coo.values()
            shape = tuple(adjacency.shape)
        if values is not None and (not weighted or str(values.dtype) == "torch.bool"):
            values = None
        return cls((columns, rows), size=(shape[1], shape[0]), weight=values)

    @property
    def num_src(self) -> int:
        """Number of sources."""
        return int(self._a[1][3])

    @property
    def num_dst(self) -> int:
        """Number of destinations."""
        return int(self._a[1][0])

    @property
    def num_nodes(self) -> int:
        """Number of vertices of a graph of one kind.

        Raises:
            ValueError: there are other numbers of sources and destinations.
        """
        if self.num_src != self.num_dst:
            raise ValueError(
                f"a graph from {self.num_src} sources to {self.num_dst} destinations has no one number of vertices"
            )
        return self.num_dst

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return int(self._a[1][1])

    @property
    def shape(self) -> tuple[int, int]:
        """``(destinations, sources)``, as of the matrix."""
        return self.num_dst, self.num_src

    @property
    def is_numpy(self) -> bool:
        """Whether it lies in NumPy arrays."""
        return not is_tensor(self._a[0])

    @property
    def device(self) -> Any:
        """The torch device; that of the CPU for NumPy arrays."""
        if self.is_numpy:
            import torch

            return torch.device("cpu")
        return self._a[0].device

    @property
    def edge_index(self) -> Any:
        """Sources and destinations, 2 × E, int64, in the order that they were given in."""
        return self._kind().edge_index(self._columns, self._rows, self._in_given_order())

    @property
    def _offsets(self) -> Any:
        """First edge of each destination, int64."""
        return self._kind().wide(self._a[0][: 2 * (self.num_dst + 1)])

    @property
    def _columns(self) -> Any:
        """Source of each edge, int32."""
        first = _rounded(2 * (self.num_dst + 1))
        return self._a[0][first : first + self.num_edges]

    @property
    def _rows(self) -> Any:
        """Destination of each edge, int32, ascending."""
        first = _rounded(2 * (self.num_dst + 1)) + _rounded(self.num_edges)
        return self._a[0][first : first + self.num_edges]

    def _kind(self) -> Any:
        if self.is_numpy:
            from . import _numpy

            return _numpy
        from . import _tensors

        return _tensors

    def _in_given_order(self) -> Any:
        """Of each given edge its place in the order of the adjacency; None where that is its number."""
        if self._order is not None and self._inverse is None:
            inverse = self._kind().inverse(self._order)
            if not self._kind().may_keep():
                return inverse
            self._inverse = inverse
        return self._inverse

    def prepare(self, *, self_loops: bool = True) -> Graph:
        """Makes all that operators and layers need of the graph: the transpose, along which gradients flow, norms of degrees, and the
        same of the graph with self-loops. The first operator makes what it needs otherwise. Inside ``torch.compile`` and captured
        graphs all must be there before.

        Args:
            self_loops: whether the graph with self-loops is made as well, which takes as much memory as the graph. Layers that
                add self-loops need it, such as ``GCNConv`` and ``GATConv``.

        Returns:
            The graph itself.
        """
        self._make_transpose()
        self._in_given_order()
        for side in ("in", "out"):
            for power in (-1.0, -0.5):
                self._factors(side, power)
        self._symmetric_factors()
        if self_loops:
            self._looped()[0].prepare(self_loops=False)
        return self

    def _make_transpose(self) -> None:
        if self._t is None:
            self._t, self._map = self._kind().transposed(self._a)

    def _turned(self) -> Graph:
        """The unweighted graph with all edges turned, in the same order, of the arrays that :meth:`_make_transpose` makes."""
        found = self._cache.get("turned")
        if found is None:
            self._make_transpose()
            found = object.__new__(Graph)
            found._a, found._t = self._t, self._a
            found._map = self._kind().inverse(self._map)
            order = self._map[: self.num_edges]
            found._order = order if self._order is None else self._kind().take(self._order, order)
            found._inverse, found._cache, found.weight = None, {}, None
            self._cache["turned"] = found
        return found

    def transpose(self) -> Graph:
        """The graph with all edges turned, in the same order."""
        index = self.edge_index
        return Graph((index[1], index[0]), size=(self.num_dst, self.num_src), weight=self.weight)

    def unweighted(self) -> Graph:
        """The graph without its weights."""
        if self.weight is None:
            return self
        return self._with(weight=None)

    def _without_ones(self) -> Graph:
        """The graph without weights that are all 1 and learn nothing: for what has no use for weights, and loses none in them."""
        weight: Any = self.weight
        if weight is None or getattr(weight, "requires_grad", False) or not bool((weight == 1).all()):
            return self
        return self.unweighted()

    def with_weight(self, weight: Any) -> Graph:
        """The graph with other weights of its edges."""
        return self._with(weight=self._kind().weights(weight, self.num_edges))

    def _with(self, weight: Any) -> Graph:
        graph = object.__new__(Graph)
        for slot in ("_a", "_order", "_inverse", "_t", "_map", "_cache"):
            setattr(graph, slot, getattr(self, slot))
        graph.weight = weight
        return graph

    def with_self_loops(self, fill_value: float = 1.0) -> Graph:
        """The graph with one loop at each vertex, behind all other edges: those that it has are moved there, of several at one
        vertex the last. New loops weigh ``fill_value`` where edges have weights. As PyG's ``add_remaining_self_loops``.

        Raises:
            ValueError: the graph has other numbers of sources and destinations.
        """
        graph, kept, loops = self._looped()
        if self.weight is None:
            return graph
        return graph.with_weight(self._kind().looped(self.weight, kept, loops, fill_value, graph.num_nodes))

    def _looped(self) -> tuple[Graph, Any, Any]:
        """The unweighted graph with loops, which edges are kept as they are, and which loops there were, with their vertices."""
        found = self._cache.get("looped")
        if found is None:
            count = min(self.num_src, self.num_dst)
            kind = self._kind()
            if not kind.may_keep():
                raise RuntimeError("inside torch.compile a graph must have its self-loops: call graph.prepare() before")
            index, kept, loops = kind.loops(self.edge_index, count)
            found = (Graph(index, size=(self.num_src, self.num_dst)), kept, loops)
            self._cache["looped"] = found
        return found

    def in_degrees(self) -> Any:
        """Edges that arrive at each destination, int64."""
        offsets = self._offsets
        return offsets[1:] - offsets[:-1]

    def out_degrees(self) -> Any:
        """Edges that leave each source, int64."""
        return self._kind().counts(self._columns, self.num_src)

    def _factors(self, side: str, power: float) -> Any:
        """A float for each vertex of a side: its degree, at least 1, to a power."""
        key = f"{side}{power}"
        found = self._cache.get(key)
        if found is None:
            degrees = self.in_degrees() if side == "in" else self.out_degrees()
            found = self._kind().power(degrees, power)
            if self._kind().may_keep():
                self._cache[key] = found
        return found

    def _symmetric_factors(self) -> Any:
        """A float for each destination: its degree to the power -1/2, and zero where no edge arrives."""
        found = self._cache.get("symmetric")
        if found is None:
            found = self._kind().masked(self._factors("in", -0.5), self.in_degrees())
            if self._kind().may_keep():
                self._cache["symmetric"] = found
        return found

    def _in_torch(self) -> Graph:
        """The graph in torch tensors, on the CPU where it lies in NumPy arrays."""
        if not self.is_numpy:
            return self
        found = self._cache.get("torch")
        if found is None:
            found = self._cache["torch"] = self.unweighted().to("cpu")
            found._make_transpose()
        return found if self.weight is None else found.with_weight(self.weight)

    def to(self, device: Any) -> Graph:
        """The graph in torch tensors on a device; itself where it is there."""
        import torch

        from . import _tensors

        device = torch.device(device)
        if not self.is_numpy and self.device == device:
            return self
        move = _tensors.mover(device)
        graph = object.__new__(Graph)
        graph._a = move(self._a[0]), self._a[1]
        graph._order, graph._inverse = move(self._order), move(self._inverse)
        graph._t = None if self._t is None else (move(self._t[0]), self._t[1])
        graph._map = move(self._map)
        graph._cache = {}
        graph.weight = _tensors.moved(self.weight, device)
        return graph

    def cpu(self) -> Graph:
        """:meth:`to` the CPU."""
        return self.to("cpu")

    def cuda(self, device: int | None = None) -> Graph:
        """A copy on a GPU, by default the current one; see :meth:`to`."""
        return self.to("cuda" if device is None else f"cuda:{device}")

    def numpy(self) -> Graph:
        """The graph in NumPy arrays, which it shares with one of the CPU's tensors."""
        if self.is_numpy:
            return self

        def move(value: Any) -> Any:
            return None if value is None else value.detach().cpu().numpy()

        graph = object.__new__(Graph)
        graph._a = move(self._a[0]), self._a[1]
        graph._order, graph._inverse, graph._map = map(move, (self._order, self._inverse, self._map))
        graph._t = None if self._t is None else (move(self._t[0]), self._t[1])
        graph._cache = {}
        graph.weight = move(self.weight)
        return graph

    def __getstate__(self) -> dict[str, Any]:
        slots = ("_a", "_order", "_inverse", "_t", "_map", "weight")
        return {slot: getattr(self, slot) for slot in slots}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for slot, value in state.items():
            setattr(self, slot, value)
        self._cache = {}

    def __copy__(self) -> Graph:
        return self._with(weight=self.weight)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        # Nothing of it changes but what derives from it, so that a copy may share it; a weight may learn.
        import copy

        graph = self._with(weight=copy.deepcopy(self.weight, memo))
        graph._cache = {}
        memo[id(self)] = graph
        return graph

    def __repr__(self) -> str:
        where = "numpy" if self.is_numpy else str(self.device)
        size = str(self.num_nodes) if self.num_src == self.num_dst else f"{self.num_src} -> {self.num_dst}"
        weighted = "" if self.weight is None else ", weighted"
        return f"Graph({size}, {self.num_edges} edges{weighted}, {where})"


def most_vertices(edges: int) -> int:
    """How many vertices of a side a graph of a number of edges may have."""
    return min(max(_FEW, _FOR_EACH_EDGE * edges), _MOST)


def _count(what: str, value: Any) -> int:
    """A number of vertices."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"size: {what} should be an integer, are {value!r}") from None


def check_weights(shape: tuple[int, ...], edges: int) -> None:
    """That weights are one for each edge, or one for each edge and head."""
    if len(shape) not in (1, 2) or shape[0] != edges or 0 in shape[1:]:
        raise ValueError(f"weight: should be {edges}, one for each edge, or that times heads, is {shape}")


def _rounded(words: int) -> int:
    """Arrays of an adjacency begin at multiples of 16 bytes."""
    return (words + 3) // 4 * 4


#: Rows, edges, rows without edges, columns, and the longest row.
Sizes = tuple[int, int, int, int, int]


def raw_adjacency(
    words: Any, sizes: Sequence[int], address: Callable[[Any], int]
) -> tuple[int, int, int, int, int, int]:
    """What the extension module takes for an adjacency."""
    rows, edges, empty, columns, longest = sizes
    return address(words), rows, edges, empty, columns, longest


def made(
    adjacency: _core.Adjacency, empty: Any, address: Any
) -> tuple[tuple[Any, Sizes], Any]:
    """An adjacency as an array that has all its parts, one after the other, and their sizes; and which given edge each of its edges
    is, if that is known. ``empty(shape)`` makes an array of int32."""
    rows, edges, without, columns, longest = adjacency.shape()
    words, order = empty(adjacency.words()), empty(edges if adjacency.is_mapped() else 0)
    adjacency.copy_to(address(words), address(order))
    return (words, (rows, edges, without, columns, longest)), order if adjacency.is_mapped() else None


__all__ = ["Graph"]
