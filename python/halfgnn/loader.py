"""Loaders of PyG's that sample by halfgnn: the same arguments and batches, without pyg-lib or torch-sparse."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

try:
    import torch_geometric.loader as pyg
except ImportError as error:
    raise ImportError(
        "halfgnn.NeighborLoader and halfgnn.LinkLoader need torch_geometric: pip install 'halfgnn[pyg]', or use halfgnn.Loader"
    ) from error
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling, NumNeighbors

from ._fields import unknown
from ._neighbors import EDGES, ONE, NeighborSampler, NonEdges, graphs_of, weights_of

#: Arguments of PyG's loaders that are refused, the value that asks for nothing, and what to do.
_REFUSED: dict[str, tuple[Any, str]] = {
    "input_time": (None, "times are not compared while sampling"),
    "edge_label_time": (None, "times are not compared while sampling"),
    "time_attr": (None, "times are not compared while sampling"),
    "temporal_strategy": ("uniform", "times are not compared while sampling"),
    "disjoint": (False, "seeds share a sample"),
    "neighbor_sampler": (None, "halfgnn samples itself"),
    "directed": (True, "subgraph_type is its successor"),
    "collate_fn": (None, "batches are made by halfgnn"),
    "dataset": (None, "data is sampled"),
}


class NeighborLoader(pyg.NeighborLoader):  # type: ignore[misc]
    """PyG's ``NeighborLoader`` over halfgnn's sampler: the same arguments, and batches that PyG's models take as they are.

    .. code-block:: python

        loader = halfgnn.NeighborLoader(data, [15, 10], input_nodes=data.train_mask, batch_size=1024, shuffle=True)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]

    A batch is PyG's ``Data`` or ``HeteroData``: each tensor of vertices and edges, sliced, and ``n_id``, ``e_id``, ``input_id``,
    ``batch_size``, ``num_sampled_nodes`` and ``num_sampled_edges``. It lies where the data lies. Neighbors are sampled on the device of the
    ``edge_index``, by torch's operators. The CPU and GPUs sample the same of the same seed.

    Args:
        data: a PyG ``Data`` or ``HeteroData`` with an ``edge_index`` for each type of edges.
        num_neighbors: most neighbors of a vertex in each hop, -1 for all: a list, or of ``HeteroData`` a list for each type of edges.
        input_nodes: the seeds: a mask, a list of vertices, or None for all; of ``HeteroData`` a type, or a type and one of these.
        replace: whether neighbors are sampled with replacement.
        subgraph_type: ``"directional"``, or ``"bidirectional"`` for sampled edges in both directions.
        weight_attr: the name of weights of edges, from 0 on, in proportion to which neighbors are sampled; types of edges without them are
            sampled uniformly.
        transform: a function of each batch.
        transform_sampler_output: a function of PyG's ``SamplerOutput``.
        seed: of the order and of the samples; without it they follow ``generator``, or ``torch.manual_seed``.
        options: those of PyG's loader and of ``torch.utils.data.DataLoader``, such as ``batch_size``, ``shuffle``, ``drop_last``,
            ``sampler``, ``generator``, ``is_sorted`` (which changes nothing) and ``num_workers`` (which data on the CPU may have).

    Raises:
        ValueError: an argument that asks for what halfgnn does not sample: times, ``disjoint`` and others.
        IndexError: ``input_nodes`` or the ``edge_index`` names no vertex.
        TypeError: ``data`` is something else, or there is no such argument.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        *,
        replace: bool = False,
        subgraph_type: Any = "directional",
        weight_attr: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        _check(type(self), data, options)
        types = _types_of(data)
        options["generator"] = _generator(seed, options)
        _check_workers(data, options)
        graphs, sizes = graphs_of(data)
        if isinstance(data, HeteroData) and input_nodes is None:
            raise ValueError(f"input_nodes: of several types of vertices name one: {', '.join(map(repr, data.node_types))}")
        sampler = NeighborSampler(
            graphs,
            sizes,
            _fanouts(num_neighbors, types),
            replace=replace,
            bidirectional=_is_bidirectional(subgraph_type),
            weights=weights_of(data, weight_attr, graphs),
            generator=options["generator"],
        )
        kind, ids = _nodes(data, input_nodes)
        _check_ids("input_nodes", ids, sizes[kind])
        super().__init__(
            data,
            num_neighbors=num_neighbors,
            input_nodes=input_nodes,
            replace=replace,
            subgraph_type=subgraph_type,
            weight_attr=weight_attr,
            neighbor_sampler=sampler,
            **options,
        )


class LinkLoader(pyg.LinkNeighborLoader):  # type: ignore[misc]
    """PyG's ``LinkNeighborLoader`` over halfgnn's sampler: batches of links, with what both of their ends aggregate.

    .. code-block:: python

        loader = halfgnn.LinkLoader(data, [15, 10], neg_sampling="binary", batch_size=1024, shuffle=True)
        for batch in loader:
            h = model(batch.x, batch.edge_index)
            source, destination = batch.edge_label_index
            loss = bce((h[source] * h[destination]).sum(-1), batch.edge_label)

    Negatives are no edges, neither of the ``edge_index`` nor of ``edge_label_index``, and no vertex with itself. Where the ``edge_index`` has
    each edge in both directions, links count in both as well. Each such pair is as likely as any other, or in proportion to
    ``src_weight`` and ``dst_weight``. Where there is none, negatives are any pairs, and one warning says so.

    Args:
        data: a PyG ``Data`` or ``HeteroData``.
        num_neighbors: as of :class:`NeighborLoader`.
        edge_label_index: the links: 2 × L, or None for all edges; of ``HeteroData`` a type of edges, or a type and links.
        edge_label: a label for each link.
        neg_sampling: ``"binary"``, ``"triplet"`` or PyG's ``NegativeSampling``, with an ``amount`` of negatives for each link.
        neg_sampling_ratio: an amount of binary negatives.
        replace: as of :class:`NeighborLoader`; so are ``subgraph_type``, ``weight_attr``, ``seed`` and ``options``.

    A batch has ``input_id``, and ``edge_label_index`` and ``edge_label``, by the indices of its own vertices; of triplets ``src_index``,
    ``dst_pos_index`` and ``dst_neg_index``.

    Raises:
        ValueError, IndexError, TypeError: as of :class:`NeighborLoader`.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        *,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        weight_attr: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        _check(type(self), data, options)
        types = _types_of(data)
        options["generator"] = _generator(seed, options)
        _check_workers(data, options)
        if neg_sampling is not None and neg_sampling_ratio is not None:
            raise ValueError("neg_sampling and neg_sampling_ratio at once; give one of them")
        if neg_sampling_ratio:
            neg_sampling = NegativeSampling("binary", neg_sampling_ratio)
        negative = NegativeSampling.cast(neg_sampling)
        graphs, sizes = graphs_of(data)
        kind, links = _links(data, edge_label_index)
        count = len(links[0])
        for name, ids, end in (("sources", links[0], kind[0]), ("destinations", links[1], kind[-1])):
            _check_ids(f"edge_label_index: {name}", ids, sizes[end])
        if edge_label is not None and len(edge_label) != count:
            raise ValueError(f"edge_label: {len(edge_label)} labels of {count} links; each link has one")
        sampler = NeighborSampler(
            graphs,
            sizes,
            _fanouts(num_neighbors, types),
            replace=replace,
            bidirectional=_is_bidirectional(subgraph_type),
            weights=weights_of(data, weight_attr, graphs),
            generator=options["generator"],
            negatives=None if negative is None else _non_edges(graphs[kind], links, kind),
        )
        super().__init__(
            data,
            num_neighbors=num_neighbors,
            edge_label_index=edge_label_index,
            edge_label=edge_label,
            neg_sampling=negative,
            replace=replace,
            subgraph_type=subgraph_type,
            weight_attr=weight_attr,
            neighbor_sampler=sampler,
            **options,
        )


def _check(kind: Any, data: Any, options: dict[str, Any]) -> None:
    """That halfgnn can do what is asked for.

    Raises:
        ValueError: an option that it cannot.
        TypeError: an option that there is not, or another kind of data.
    """
    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(f"data is a {type(data).__name__}; give a PyG Data or HeteroData, or use halfgnn.Loader")
    theirs = inspect.signature(kind.__mro__[1].__init__).parameters
    torchs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    known = [*inspect.signature(kind.__init__).parameters, *theirs, *torchs]
    for name, value in options.items():
        if name not in known or name in ("self", "kwargs", "options"):
            raise TypeError(unknown(name, known))
        nothing, why = _REFUSED.get(name, (value, ""))
        if value is not nothing and value != nothing:
            raise ValueError(f"{name}: {why}; leave it out, or use PyG's own loader")


def _check_workers(data: Any, options: Mapping[str, Any]) -> None:
    """That processes of workers can sample the data."""
    if options.get("num_workers") and data.is_cuda:
        raise ValueError("num_workers: data on a GPU is sampled there, in this process; leave it out")


def _generator(seed: int | None, options: Mapping[str, Any]) -> torch.Generator | None:
    given = options.get("generator")
    if seed is None:
        return given
    if given is not None:
        raise ValueError("seed and generator at once; give one of them")
    return torch.Generator().manual_seed(seed)


def _is_bidirectional(subgraph_type: Any) -> bool:
    name = str(getattr(subgraph_type, "value", subgraph_type))
    if name not in ("directional", "bidirectional"):
        raise ValueError(f"subgraph_type {name!r}; take 'directional' or 'bidirectional'")
    return name == "bidirectional"


def _types_of(data: Any) -> list[Any]:
    return [EDGES] if isinstance(data, Data) else list(data.edge_types)


def _fanouts(given: Any, types: list[Any]) -> dict[Any, list[int]]:
    """Most neighbors in each hop, for each type of edges."""
    values = given.values if isinstance(given, NumNeighbors) else given
    default = given.default if isinstance(given, NumNeighbors) else None
    if isinstance(values, Mapping):
        if types == [EDGES]:
            raise ValueError("num_neighbors: by types of edges, and the data has one; give a list")
        named = {"__".join(kind): kind for kind in types}
        by_type: dict[Any, Any] = {}
        for name, fanouts in values.items():
            # NumNeighbors has the types' names in one text.
            kind = named.get(name) if isinstance(name, str) else tuple(name)
            if kind not in types:
                raise ValueError(f"num_neighbors: {unknown(name, map(str, types))}")
            by_type[kind] = fanouts
        for kind in types:
            if by_type.setdefault(kind, default) is None:
                raise ValueError(f"num_neighbors: none are given for {kind!r}")
    else:
        by_type = dict.fromkeys(types, values)
    found = {}
    for kind, fanouts in by_type.items():
        if not isinstance(fanouts, (list, tuple)) or not all(isinstance(count, int) and count >= -1 for count in fanouts):
            raise ValueError(f"num_neighbors: should be a list of integers from -1 on, is {fanouts!r}")
        found[kind] = list(fanouts)
    if len({len(fanouts) for fanouts in found.values()}) > 1:
        raise ValueError("num_neighbors: all types of edges should have as many hops")
    return found


def _nodes(data: Any, given: Any) -> tuple[Any, Tensor | None]:
    """The type of the seeds, and the seeds; None for all.

    Raises:
        ValueError: there is no such type, or a mask is not one for each vertex.
    """
    kind = ONE
    if isinstance(data, HeteroData):
        is_pair = isinstance(given, (list, tuple)) and len(given) == 2 and isinstance(given[0], str)
        kind, given = given if is_pair else (given, None)
        if kind not in data.node_types:
            raise ValueError(f"input_nodes: {unknown(kind, data.node_types)}")
    if given is None:
        return kind, None
    ids = torch.as_tensor(given)
    vertices = int(data.num_nodes if kind is ONE else data[kind].num_nodes)
    if ids.dtype == torch.bool and ids.shape != (vertices,):
        raise ValueError(f"input_nodes: a mask should be {vertices}, is {tuple(ids.shape)}")
    return kind, ids.nonzero()[:, 0] if ids.dtype == torch.bool else ids


def _links(data: Any, given: Any) -> tuple[Any, Tensor]:
    """The type of the links, and the links, 2 × L."""
    kind = EDGES
    if isinstance(data, HeteroData):
        if given is None:
            raise ValueError(f"edge_label_index: of several types of edges name one: {', '.join(map(repr, data.edge_types))}")
        kind, given = (given, None) if isinstance(given[0], str) else given
        try:
            kind = data._to_canonical(*kind)
        except KeyError:
            pass
        if kind not in data.edge_types:
            raise ValueError(f"edge_label_index: {unknown(kind, map(str, data.edge_types))}")
    links = given if given is not None else (data if kind is EDGES else data[kind]).edge_index
    if not isinstance(links, Tensor) or links.ndim != 2 or links.shape[0] != 2:
        raise ValueError(f"edge_label_index: should be 2 x L, sources and destinations, is {tuple(getattr(links, 'shape', ()))}")
    return kind, links.as_subclass(Tensor)


def _check_ids(name: str, ids: Tensor | None, vertices: int) -> None:
    if ids is None:
        return
    if ids.ndim != 1 or ids.is_floating_point() or ids.is_complex():
        raise ValueError(f"{name}: should be a list of integers or a mask, is {ids.dtype} of shape {tuple(ids.shape)}")
    if len(ids):
        least, most = (int(value) for value in ids.aminmax())
        if least < 0 or most >= vertices:
            raise IndexError(f"{name}: {least if least < 0 else most} is no vertex: ids are 0 to {vertices - 1}")


def _non_edges(graph: Any, links: Tensor, kind: Any) -> NonEdges:
    """Pairs that are neither edges nor links."""
    edges, is_one = graph.edge_index, kind[0] == kind[-1]
    links = links.to(edges.device)
    if is_one and _is_symmetric(edges, graph.num_src):
        links = torch.cat([links, links.flip(0)], dim=1)
    return NonEdges(torch.cat([edges, links], dim=1), (graph.num_src, graph.num_dst), loops=is_one)


def _is_symmetric(edges: Tensor, vertices: int) -> bool:
    """Whether each edge is there in both directions."""
    forward, backward = ((one * vertices + other).unique() for one, other in (edges, edges.flip(0)))
    return torch.equal(forward, backward)
