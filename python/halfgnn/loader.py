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
        "halfgnn.NeighborLoader, LinkLoader and HGTLoader need torch_geometric: pip install 'halfgnn[pyg]', or use halfgnn.Loader"
    ) from error
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling, NumNeighbors

from ._fields import unknown
from ._graphs import EDGES, ONE, Times, checked_times, graphs_of, times_of, weights_of
from ._hgt import HGTSampler
from ._negatives import NonEdges
from ._neighbors import NeighborSampler

#: Arguments of PyG's loaders that are refused, the value that asks for nothing, and what to do.
_REFUSED: dict[str, tuple[Any, str]] = {
    "neighbor_sampler": (None, "halfgnn samples itself"),
    "directed": (True, "subgraph_type is its successor"),
    "custom_cls": (None, "it is the class of batches of remote data, and data is not remote"),
    "collate_fn": (None, "batches are made by halfgnn"),
    "dataset": (None, "data is sampled"),
}

_REFUSED_OF_HGT = {**_REFUSED, "input_time": (None, "this sampler compares no times")}

#: Parameters of constructors that are no arguments of a loader.
_INTERNAL = ("self", "args", "kwargs", "options", "node_sampler", "link_sampler")

_SUBGRAPHS = ("directional", "bidirectional", "induced")


class NeighborLoader(pyg.NeighborLoader):  # type: ignore[misc]
    """PyG's ``NeighborLoader`` over halfgnn's sampler: the same arguments, and batches that PyG's models take as they are.

    .. code-block:: python

        loader = halfgnn.NeighborLoader(data, [15, 10], input_nodes=data.train_mask, batch_size=1024, shuffle=True)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]

    A batch is PyG's ``Data`` or ``HeteroData``: each tensor of vertices and edges, sliced, and ``n_id``, ``e_id``, ``input_id``,
    ``batch_size``, ``num_sampled_nodes`` and ``num_sampled_edges``. It lies where the data lies. Neighbors are sampled on the device of the
    ``edge_index``, by torch's operators. The CPU and GPUs sample the same of the same seed.

    With ``time_attr`` no sampled neighbor is later than its seed: neither its vertex, where vertices have the times, nor its edge, where edges
    have them. Types without times are sampled as ever. Samples are then disjoint: each seed has its own, and ``batch`` has the number of the
    seed of each vertex.

    Args:
        data: a PyG ``Data`` or ``HeteroData`` with an ``edge_index`` for each type of edges.
        num_neighbors: most neighbors of a vertex in each hop, -1 for all: a list, or of ``HeteroData`` a list for each type of edges.
        input_nodes: the seeds: a mask, a list of vertices, or None for all; of ``HeteroData`` a type, or a type and one of these.
        input_time: a time for each seed, in place of that of its vertex. Times of edges need it.
        replace: whether neighbors are sampled with replacement.
        subgraph_type: ``"directional"``; ``"bidirectional"`` for sampled edges in both directions; or ``"induced"`` for all edges between the
            sampled vertices, which have no ``num_sampled_nodes`` and ``num_sampled_edges``.
        disjoint: whether each seed has a sample of its own, with ``batch`` as of times.
        temporal_strategy: ``"uniform"`` for a sample of the neighbors that are not later than the seed, ``"last"`` for the last of them.
        time_attr: the name of times of vertices or of edges, integers or floats.
        weight_attr: the name of weights of edges, from 0 on, in proportion to which neighbors are sampled; types of edges without them are
            sampled uniformly.
        transform: a function of each batch.
        transform_sampler_output: a function of PyG's ``SamplerOutput``.
        seed: of the order and of the samples; without it they follow ``generator``, or ``torch.manual_seed``.
        options: those of PyG's loader and of ``torch.utils.data.DataLoader``, such as ``batch_size``, ``shuffle``, ``drop_last``,
            ``sampler``, ``generator``, ``input_id``, ``is_sorted`` (which changes nothing) and ``num_workers`` (which data on the CPU may
            have).

    Raises:
        ValueError: an argument that asks for what halfgnn does not sample, or arguments that do not agree.
        IndexError: ``input_nodes`` or the ``edge_index`` names no vertex.
        TypeError: ``data`` is something else, or there is no such argument.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        *,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        _check(type(self), data, options)
        options["generator"] = _generator(seed, options)
        _check_workers(data, options)
        graphs, sizes = graphs_of(data)
        kind, ids = _nodes(data, input_nodes)
        _check_ids("input_nodes", ids, sizes[kind])
        count = sizes[kind] if ids is None else len(ids)
        _check_input_id(options, count)
        if input_time is not None:
            if time_attr is None:
                raise ValueError("input_time: it is compared with the times that time_attr names; give time_attr as well")
            input_time = checked_times("input_time:", input_time, count)
        sampling = {
            "replace": replace,
            "subgraph_type": subgraph_type,
            "disjoint": disjoint,
            "temporal_strategy": temporal_strategy,
            "time_attr": time_attr,
            "weight_attr": weight_attr,
        }
        sampler = _sampler(data, num_neighbors, (graphs, sizes), input_time, options["generator"], **sampling)
        if input_time is None and sampler.times is not None and kind not in sampler.times.vertices:
            raise ValueError(f"input_time: {'seeds' if kind is ONE else f'vertices of {kind!r}'} have no {time_attr!r}; give each seed a time")
        super().__init__(
            data,
            num_neighbors=num_neighbors,
            input_nodes=input_nodes,
            input_time=input_time,
            neighbor_sampler=sampler,
            **sampling,
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

    With ``time_attr`` no neighbor is later than its link, as of :class:`NeighborLoader`. A negative has the time of a link, and its vertices
    are not later either, where vertices have times. Each end of a link has a sample of its own, and ``batch`` has the number of the link.

    Args:
        data: a PyG ``Data`` or ``HeteroData``.
        num_neighbors: as of :class:`NeighborLoader`.
        edge_label_index: the links: 2 × L, or None for all edges; of ``HeteroData`` a type of edges, or a type and links.
        edge_label: a label for each link.
        edge_label_time: a time for each link, which ``time_attr`` needs.
        neg_sampling: ``"binary"``, ``"triplet"`` or PyG's ``NegativeSampling``, with an ``amount`` of negatives for each link.
        neg_sampling_ratio: an amount of binary negatives.
        replace, subgraph_type, disjoint, temporal_strategy, time_attr, weight_attr, seed, options: as of :class:`NeighborLoader`.

    A batch has ``input_id``, and ``edge_label_index`` and ``edge_label``, by the indices of its own vertices; of triplets ``src_index``,
    ``dst_pos_index`` and ``dst_neg_index``. Times are in ``edge_label_time``, of triplets in ``seed_time``.

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
        edge_label_time: Any = None,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        _check(type(self), data, options)
        options["generator"] = _generator(seed, options)
        _check_workers(data, options)
        if neg_sampling is not None and neg_sampling_ratio is not None:
            raise ValueError("neg_sampling and neg_sampling_ratio at once; give one of them")
        if neg_sampling_ratio:
            neg_sampling = NegativeSampling("binary", neg_sampling_ratio)
        negative = NegativeSampling.cast(neg_sampling)
        if (edge_label_time is None) != (time_attr is None):
            given, missing = ("edge_label_time", "time_attr") if time_attr is None else ("time_attr", "edge_label_time")
            raise ValueError(f"{given}: times of links are compared with those of the graph; give {missing} as well")
        graphs, sizes = graphs_of(data)
        kind, links = _links(data, edge_label_index)
        count = len(links[0])
        for name, ids, end in (("sources", links[0], kind[0]), ("destinations", links[1], kind[-1])):
            _check_ids(f"edge_label_index: {name}", ids, sizes[end])
        if edge_label is not None and len(edge_label) != count:
            raise ValueError(f"edge_label: {len(edge_label)} labels of {count} links; each link has one")
        _check_input_id(options, count)
        if edge_label_time is not None:
            edge_label_time = checked_times("edge_label_time:", edge_label_time, count)
        sampling = {
            "replace": replace,
            "subgraph_type": subgraph_type,
            "disjoint": disjoint,
            "temporal_strategy": temporal_strategy,
            "time_attr": time_attr,
            "weight_attr": weight_attr,
        }
        sampler = _sampler(data, num_neighbors, (graphs, sizes), edge_label_time, options["generator"], **sampling)
        if negative is not None:
            sampler.negatives = _non_edges(graphs[kind], links, kind, sampler.times)
        super().__init__(
            data,
            num_neighbors=num_neighbors,
            edge_label_index=edge_label_index,
            edge_label=edge_label,
            edge_label_time=edge_label_time,
            neg_sampling=negative,
            neighbor_sampler=sampler,
            **sampling,
            **options,
        )


class HGTLoader(pyg.HGTLoader):  # type: ignore[misc]
    """PyG's ``HGTLoader`` over halfgnn's sampler: of each type of vertices as many are sampled in a hop, so that batches are dense and their
    types balanced. Hu et al., Heterogeneous Graph Transformer, WWW 2020.

    .. code-block:: python

        loader = halfgnn.HGTLoader(data, [512] * 4, ("paper", data["paper"].train_mask), batch_size=128)
        for batch in loader:
            out = model(batch.x_dict, batch.edge_index_dict)["paper"][: batch["paper"].batch_size]

    A vertex outside of the sample has a budget: the sum over its edges to sampled vertices of one over the degree of the sampled vertex by that
    type of edges. Vertices are sampled without replacement, in proportion to the squares of their budgets. A batch has all edges between its
    vertices. Of a vertex with more than 50 edges of a type, a sample of 50 counts, for budgets and for the batch, as in PyG.

    Args:
        data: a PyG ``HeteroData`` with an ``edge_index`` for each type of edges.
        num_samples: vertices that are sampled of each type in each hop: a list, or a list for each type of vertices.
        input_nodes: the type of the seeds, or a type and a mask, a list of vertices or None for all.
        transform: a function of each batch.
        transform_sampler_output: a function of PyG's ``SamplerOutput``.
        seed, options: as of :class:`NeighborLoader`.

    Raises:
        ValueError, IndexError, TypeError: as of :class:`NeighborLoader`.
    """

    def __init__(self, data: Any, num_samples: Any, input_nodes: Any, *, seed: int | None = None, **options: Any) -> None:
        _check(type(self), data, options, (HeteroData,), _REFUSED_OF_HGT)
        options["generator"] = _generator(seed, options)
        _check_workers(data, options)
        graphs, sizes = graphs_of(data)
        kind, ids = _nodes(data, input_nodes)
        _check_ids("input_nodes", ids, sizes[kind])
        _check_input_id(options, sizes[kind] if ids is None else len(ids))
        sampler = HGTSampler(graphs, sizes, _samples(num_samples, data.node_types), options["generator"])
        # It sorts the edges anyway.
        options.pop("is_sorted", None)
        # PyG's own constructor makes a sampler of torch-sparse's.
        super(pyg.HGTLoader, self).__init__(data, node_sampler=sampler, input_nodes=input_nodes, **options)


def _sampler(
    data: Any,
    num_neighbors: Any,
    whole: tuple[dict[Any, Any], dict[Any, int]],
    given: Tensor | None,
    generator: torch.Generator | None,
    *,
    replace: bool,
    subgraph_type: Any,
    disjoint: bool,
    temporal_strategy: str,
    time_attr: str | None,
    weight_attr: str | None,
) -> NeighborSampler:
    """The sampler that a loader's arguments ask for.

    Raises:
        ValueError: arguments do not agree, or name what there is not.
    """
    graphs, sizes = whole
    subgraph = str(getattr(subgraph_type, "value", subgraph_type))
    if subgraph not in _SUBGRAPHS:
        raise ValueError(f"subgraph_type {subgraph!r}; take {', '.join(map(repr, _SUBGRAPHS))}")
    if temporal_strategy not in ("uniform", "last"):
        raise ValueError(f"temporal_strategy {temporal_strategy!r}; take 'uniform' or 'last'")
    last = temporal_strategy == "last"
    if last and time_attr is None:
        raise ValueError("temporal_strategy 'last' is of the times that time_attr names; give time_attr as well")
    if last and weight_attr is not None:
        raise ValueError("temporal_strategy 'last' samples nothing by weight; leave weight_attr out, or take 'uniform'")
    return NeighborSampler(
        graphs,
        sizes,
        _fanouts(num_neighbors, _types_of(data)),
        replace=replace,
        subgraph=subgraph,
        weights=weights_of(data, weight_attr, graphs),
        generator=generator,
        disjoint=disjoint,
        times=None if time_attr is None else times_of(data, time_attr, graphs, sizes, given),
        last=last,
    )


def _check(kind: Any, data: Any, options: dict[str, Any], takes: Any = (Data, HeteroData), refused: Any = _REFUSED) -> None:
    """That halfgnn can do what is asked for.

    Raises:
        ValueError: an option that it cannot.
        TypeError: an option that there is not, or another kind of data.
    """
    if not isinstance(data, takes):
        names = " or ".join(each.__name__ for each in takes)
        raise TypeError(f"data is a {type(data).__name__}; give a PyG {names}, or use halfgnn.Loader")
    known: list[str] = []
    for each in kind.__mro__:
        known += [] if each is object else inspect.signature(each.__init__).parameters
        if each is torch.utils.data.DataLoader:
            break
    for name, value in options.items():
        if name not in known or name in _INTERNAL:
            raise TypeError(unknown(name, [each for each in known if each not in _INTERNAL]))
        nothing, why = refused.get(name, (value, ""))
        if value is not nothing and value != nothing:
            raise ValueError(f"{name}: {why}; leave it out, or use PyG's own loader")


def _check_input_id(options: Mapping[str, Any], count: int) -> None:
    """That each seed has a number, where numbers are given."""
    given = options.get("input_id")
    if given is not None and (not isinstance(given, Tensor) or given.shape != (count,)):
        raise ValueError(f"input_id: should be a tensor of {count} numbers, one for each seed, is {tuple(getattr(given, 'shape', ()))}")


def _samples(given: Any, types: list[str]) -> dict[str, list[int]]:
    """Vertices that are sampled in each hop, for each type of vertices."""
    by_type = dict(given) if isinstance(given, Mapping) else dict.fromkeys(types, given)
    for kind in by_type:
        if kind not in types:
            raise ValueError(f"num_samples: {unknown(kind, types)}")
    for kind in types:
        counts = by_type.get(kind)
        if not isinstance(counts, (list, tuple)) or not all(isinstance(count, int) and count >= 0 for count in counts):
            raise ValueError(f"num_samples: should be a list of integers from 0 on for each type of vertices, is {counts!r} for {kind!r}")
    if len({len(counts) for counts in by_type.values()}) > 1:
        raise ValueError("num_samples: all types of vertices should have as many hops")
    return {kind: list(counts) for kind, counts in by_type.items()}


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
        if given is None:
            raise ValueError(f"input_nodes: of several types of vertices name one: {', '.join(map(repr, data.node_types))}")
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


def _non_edges(graph: Any, links: Tensor, kind: Any, times: Times | None) -> NonEdges:
    """Pairs that are neither edges nor links."""
    edges, is_one = graph.edge_index, kind[0] == kind[-1]
    links = links.to(edges.device)
    if is_one and _is_symmetric(edges, graph.num_src):
        links = torch.cat([links, links.flip(0)], dim=1)
    of_ends = (None, None) if times is None else (times.vertices.get(kind[0]), times.vertices.get(kind[-1]))
    return NonEdges(torch.cat([edges, links], dim=1), (graph.num_src, graph.num_dst), loops=is_one, times=of_ends)


def _is_symmetric(edges: Tensor, vertices: int) -> bool:
    """Whether each edge is there in both directions."""
    forward, backward = ((one * vertices + other).unique() for one, other in (edges, edges.flip(0)))
    return torch.equal(forward, backward)
