"""What the layers share: graphs of ``edge_index``, and what falls back to PyG."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import is_torch_sparse_tensor

import halfgnn

from .._cached import graph_of as kept_graph
from .._networks import is_observed
from .._tensors import FORMATS
from ..graph import Graph

_told: set[tuple[str, str]] = set()

#: Modules whose lines are no user's.
_LIBRARIES = ("halfgnn", "torch", "torch_geometric")

#: Methods of message passing that a class of the user's may have in place of PyG's.
_METHODS = ("message", "aggregate", "update", "edge_update", "message_and_aggregate", "explain_message")

#: Methods that PyG writes for each class of layers, unless the class has its own.
WRITTEN = ("propagate", "edge_updater")

#: PyG's methods as they were when halfgnn was imported, by their class.
_ORIGINAL: dict[type, dict[str, Any]] = {}

_AGGREGATORS: dict[str, type] = {
    "add": pyg.SumAggregation,
    "sum": pyg.SumAggregation,
    "mean": pyg.MeanAggregation,
    "max": pyg.MaxAggregation,
    "min": pyg.MinAggregation,
    "var": pyg.VarAggregation,
    "std": pyg.StdAggregation,
}

#: Aggregators that halfgnn has for messages of edges besides.
_OF_MESSAGES: dict[str, type] = {
    "mul": pyg.MulAggregation,
    "softmax": pyg.aggr.SoftmaxAggregation,
    "powermean": pyg.aggr.PowerMeanAggregation,
}

_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
    "_edge_update_forward_pre_hooks",
    "_edge_update_forward_hooks",
)


def remember(kind: type, replaces: tuple[str, ...]) -> None:
    """Keeps the methods of a class of PyG's that a layer's formula replaces: those of message passing, and others by name."""
    _ORIGINAL[kind] = {name: getattr(kind, name) for name in (*_METHODS, *replaces)}


def fall_back(layer: object, reason: str) -> None:
    """Warns, once for a kind of layer and a reason, that PyG's own operators are used."""
    warn(type(layer).__name__, reason)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def warn(name: str, reason: str) -> None:
    """The warning of :func:`fall_back`, at the user's line, without a break of a traced graph."""
    if (name, reason) not in _told:
        _told.add((name, reason))
        warnings.warn(
            f"{name}: {reason}, for which halfgnn has no operator: PyG's own are used",
            halfgnn.FallbackWarning,
            stacklevel=users_level(),
        )


def users_level() -> int:
    """The ``stacklevel`` of a warning by the caller that names the innermost line outside these libraries."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        frame, level = frame.f_back, level + 1
    return level


def unsupported(layer: Any, kind: type, aggregators: tuple[str, ...], edges: bool) -> str | None:
    """Why halfgnn cannot do what a layer is configured to do, whatever its inputs are; None where it can.

    Args:
        layer: PyG's or halfgnn's.
        kind: PyG's class of the layer.
        aggregators: those that halfgnn has for this layer; none where it aggregates by other means than its module.
        edges: whether halfgnn's layer takes features of edges.
    """
    if layer.flow != "source_to_target":
        return f"the flow is {layer.flow}"
    reason = _other_aggregator(layer, aggregators) if aggregators else None
    if reason is not None:
        return reason
    if layer.node_dim not in (0, -2):
        return f"node_dim is {layer.node_dim}"
    if not edges and getattr(layer, "lin_edge", None) is not None:
        return "edges have features (edge_dim)"
    if layer.decomposed_layers != 1:
        return "it is decomposed"
    for hooks in _HOOKS:
        if getattr(layer, hooks, None):
            return "it has hooks of message passing"
    return _overridden(layer, kind)


def _other_aggregator(layer: Any, aggregators: tuple[str, ...]) -> str | None:
    """Why halfgnn has no such aggregator. Several may be combined where a layer has all of them."""
    names, module = layer.aggr, layer.aggr_module
    if isinstance(names, str) and names in aggregators:
        return _other_module(module, names)
    if type(module) is pyg.MultiAggregation and "std" in aggregators and all(name in aggregators for name in names):
        return other_modules(module, names)
    return f"the aggregator is {names}"


def other_modules(module: Any, names: list[str]) -> str | None:
    """Why several aggregators of PyG's do not do what their names say."""
    if not is_compiling() and is_observed(module):
        return "the aggregator's module has hooks"
    return next(filter(None, map(_other_module, module.aggrs, names)), None)


def _other_module(module: Any, name: str) -> str | None:
    wanted: Any = _AGGREGATORS.get(name) or _OF_MESSAGES.get(name)
    if wanted is None:
        return f"the aggregator is {name}"
    # In a trace modules may have hooks of the tracer's, and classes that it derives from theirs.
    of: Any = getattr(type(module), "_halfgnn_kind", type(module))
    own = not isinstance(module, wanted) if is_compiling() else of is not wanted or is_observed(module)
    if own:
        return "the aggregator's module is the user's own or has hooks"
    if name in ("var", "std") and getattr(module, "var_aggr", module).semi_grad:
        return "the aggregator has half a gradient (semi_grad)"
    return None


def reduction_of(module: Any) -> str:
    """The name of what a module of PyG's reduces by."""
    return next(name for name, kind in _AGGREGATORS.items() if isinstance(module, kind))


def _overridden(layer: Any, kind: type) -> str | None:
    """Which method that the formula replaces is the user's own."""
    for name, original in _ORIGINAL[kind].items():
        if getattr(type(layer), name) is not original or name in layer.__dict__:
            return f"its {name}() is the user's own"
    # PyG writes these for each class.
    for name in WRITTEN:
        own = layer.__dict__.get(name)
        # What PyG's explanations leave on a layer is PyG's.
        if own is not None and getattr(own, "__func__", None) in (
            getattr(type(layer), f"_orig_{name}", None),
            getattr(type(layer), f"_jinja_{name}", None),
        ):
            own = None
        if getattr(layer, "_own_passing", None) == name or own is not None:
            return f"its {name}() is the user's own"
    return None


def own_passing(kind: type) -> str | None:
    """Which of :data:`WRITTEN` a class of the user's, or a class between it and halfgnn's, has itself."""
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] == "halfgnn":
            return None
        for name in WRITTEN:
            own = each.__dict__.get(name)
            if own is not None and getattr(own, "__module__", None) != f"{each.__module__}_{each.__name__}_{name}":
                return name
    return None


def is_compiling() -> bool:
    """Whether ``torch.compile`` or ``torch.export`` traces."""
    return torch.compiler.is_compiling()


def refused(adjacency: Any, *features: Any, sparse: bool = False) -> str | None:
    """Why halfgnn cannot do the inputs; ``sparse``: whether features may be."""
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return "torch.jit.trace records torch's own operators"
    if torch.onnx.is_in_onnx_export():
        return "ONNX has torch's own operators"
    if not is_compiling():
        if torch._C._are_functorch_transforms_active():
            return "torch.func transforms torch's own operators"
        if torch.autograd.forward_ad._current_level >= 0:
            return "forward-mode gradients are those of torch's own operators"
    elif not isinstance(adjacency, Graph) and not (isinstance(adjacency, Tensor) and adjacency.layout == torch.strided):
        return f"{type(adjacency).__name__} is traced"
    for x in features:
        if x is None:
            continue
        if type(x).__module__ == "numpy":
            raise TypeError("x is an array of NumPy, and layers take tensors; give torch.from_numpy(x)")
        if not isinstance(x, Tensor) or (not is_compiling() and type(x) not in (Tensor, torch.nn.Parameter)):
            return f"features are a {type(x).__name__}"
        if x.layout != torch.strided and not (sparse and is_torch_sparse_tensor(x)):
            return f"features are {x.layout}"
        if x.ndim != 2:
            return f"features have {x.ndim} dimensions"
        if x.dtype not in FORMATS:
            return f"features are {x.dtype}"
        if x.device.type not in ("cpu", "cuda"):
            return f"features are on {x.device}"
    if isinstance(adjacency, Tensor) and not is_compiling():
        if type(adjacency) not in (Tensor, EdgeIndex):
            return f"edge_index is a {type(adjacency).__name__}"
        if adjacency.layout == torch.strided and (adjacency.is_floating_point() or adjacency.ndim != 2 or adjacency.shape[0] != 2):
            return "edge_index is not 2 x E integers"
    return None


def is_matrix(adjacency: Any) -> bool:
    """Whether it is a sparse matrix, destinations × sources."""
    if isinstance(adjacency, Tensor):
        return adjacency.layout != torch.strided
    return hasattr(adjacency, "sparse_sizes") and hasattr(adjacency, "coo")


class Matrix:
    """A sparse matrix of torch's or of ``torch_sparse``, destinations × sources, as edges.

    Args:
        matrix: a sparse tensor in any layout, or a ``SparseTensor``.
    """

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix
        self._coo: tuple[Tensor, Tensor, Tensor | None]
        if isinstance(matrix, Tensor):
            coo = matrix if matrix.layout == torch.sparse_coo else matrix.to_sparse_coo()
            coo = coo if coo.is_coalesced() else coo.coalesce()
            (rows, columns), values = coo.indices(), coo.values()
            self.size = int(matrix.shape[1]), int(matrix.shape[0])
        else:
            rows, columns, values = matrix.coo()
            self.size = int(matrix.sparse_size(1)), int(matrix.sparse_size(0))
        self._rows, self._columns = rows, columns
        #: A number for each edge, or None.
        self.values = values

    def graph(self) -> Graph:
        """The unweighted graph."""
        parts = self._columns, self._rows
        return kept_graph(self._matrix, parts, self.size, lambda: Graph(parts, size=self.size))

    def weight(self) -> Tensor | None:
        """The values, where they make a difference: they are not all one, or have a gradient."""
        values = self.values
        if values is None or (not values.requires_grad and bool((values == 1).all())):
            return None
        return values if values.dtype in FORMATS else values.float()

    def weighted(self) -> tuple[Graph, Tensor | None]:
        """The unweighted graph and the weights of its edges."""
        return self.graph(), self.weight()

    def looped(self, fill: float) -> tuple[Graph, Tensor | None]:
        """The unweighted graph with loops as PyG's ``gcn_norm`` adds them, and the weights of its edges: to a tensor's a loop is added
        at each vertex, and those of a ``SparseTensor`` are replaced. A loop weighs ``fill``."""
        if self.size[0] != self.size[1]:
            raise ValueError(f"self-loops are of square matrices, and this is {self.size[1]} x {self.size[0]}")
        parts = self._columns, self._rows
        adds = isinstance(self._matrix, Tensor)
        kept = None if adds else parts[0] != parts[1]

        def make() -> Graph:
            loop = torch.arange(self.size[0], device=parts[0].device)
            columns, rows = (torch.cat([part if kept is None else part[kept], loop]) for part in parts)
            return Graph((columns, rows), size=self.size)

        graph = kept_graph(self._matrix, parts, (*self.size, "looped"), make)
        weight = self.weight()
        if weight is None and fill == 1.0:
            return graph, None
        if weight is None:
            weight = torch.ones(len(parts[0]), device=parts[0].device)
        weight = weight if kept is None else weight[kept]
        return graph, torch.cat([weight.float(), torch.full((self.size[0],), fill, device=weight.device)])


def stacked(edge_index: Any) -> Any:
    """``edge_index`` as one tensor where it is a pair, or one of NumPy's."""
    if isinstance(edge_index, (tuple, list)) and len(edge_index) == 2:
        return torch.stack([torch.as_tensor(ids) for ids in edge_index])
    if type(edge_index).__module__ == "numpy":
        return torch.as_tensor(edge_index)
    return edge_index


def graph_of(adjacency: Any, size: tuple[int, int], device: torch.device) -> Graph:
    """The graph from ``size[0]`` sources to ``size[1]`` destinations of anything but a sparse matrix."""
    if isinstance(adjacency, Tensor):
        graph = kept_graph(adjacency, (adjacency,), size, lambda: Graph(adjacency, size=size))
    elif type(adjacency).__module__ == "numpy":
        index = torch.as_tensor(adjacency)
        graph = kept_graph(adjacency, (index,), size, lambda: Graph(index, size=size))
    else:
        adjacency = stacked(adjacency)
        graph = Graph(adjacency, size=size) if isinstance(adjacency, Tensor) else Graph.of(adjacency)
        if graph.is_numpy and device.type == "cpu":
            graph = graph._in_torch()
    if (graph.num_src, graph.num_dst) != size:
        raise ValueError(
            f"features are of {size[0]} sources and {size[1]} destinations, and the graph has {graph.num_src} and {graph.num_dst}"
        )
    return graph


def to_pyg(adjacency: Any, weight: Any = None) -> tuple[Any, Any]:
    """What PyG takes in place of a graph, and the weights of its edges."""
    if isinstance(adjacency, Graph):
        adjacency = adjacency._in_torch()
        return adjacency.edge_index, adjacency.weight if weight is None else weight
    return stacked(adjacency), weight


def sizes(x: tuple[Tensor, Tensor | None], adjacency: Any, size: Any) -> tuple[int, int]:
    """Numbers of sources and of destinations."""
    if isinstance(adjacency, Graph):
        return adjacency.num_src, adjacency.num_dst
    if is_matrix(adjacency):
        rows, columns = adjacency.shape if isinstance(adjacency, Tensor) else adjacency.sparse_sizes()
        return int(columns), int(rows)
    sources = x[0].shape[0]
    destinations = sources if x[1] is None else x[1].shape[0]
    if size is None and type(adjacency) is EdgeIndex:
        size = adjacency.sparse_size()
    if size is not None:
        sources = size[0] if size[0] is not None else sources
        destinations = size[1] if size[1] is not None else destinations
    return sources, destinations
