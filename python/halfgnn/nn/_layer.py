"""The base of the layers: what they derive from PyG's, when PyG's own forward pass runs, and how TorchScript sees them.

A layer is PyG's class and a formula over :class:`halfgnn.nn._adjacency.Adjacency`::

    class LGConv(Layer, pyg.LGConv):
        _aggregators = SUMS

        @by_operators
        def forward(self, x, edge_index, edge_weight=None):
            norm = normalized if self.normalize else weighted
            return norm(self, edge_index, edge_weight, x)(x)

:func:`by_operators` runs the formula where halfgnn has the operators, and PyG's forward pass with a warning where it has not.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.inspector import Inspector

from ..graph import Graph
from ._common import fall_back, is_compiling, is_matrix, own_passing, refused, remember, to_pyg, unsupported
from ._masks import explaining, is_explaining

#: Aggregators of layers that sum.
SUMS = ("add", "sum")

#: Aggregators that are linear maps.
LINEAR = (*SUMS, "mean")

#: Aggregators of layers that compute a message for each edge.
OF_MESSAGES = (*LINEAR, "max", "min", "var", "std", "mul", "softmax", "powermean")

#: Layers whose messages the mask of an explanation multiplies. All that they read of their neighbors are aggregations of rows of sources alone.
MASKED = frozenset(
    "GCNConv SAGEConv GINConv GATConv GATv2Conv GraphConv SimpleConv WLConvContinuous LGConv SGConv SSGConv TAGConv MixHopConv ChebConv ARMAConv "
    "APPNP GCN2Conv GatedGraphConv ClusterGCNConv FAConv LabelPropagation TransformerConv AGNNConv SuperGATConv RGATConv PDNConv MFConv "
    "FeaStConv GMMConv DNAConv".split()
)

#: halfgnn's layers, by the class of PyG's that they derive from.
LAYERS: dict[type, type] = {}

_Forward = TypeVar("_Forward", bound=Callable[..., Any])


def by_operators(forward: _Forward) -> _Forward:
    """A forward pass by halfgnn's operators, or by PyG's with the same arguments where :meth:`Layer._why_not` has a reason."""
    names = list(inspect.signature(forward).parameters)[1:]

    @functools.wraps(forward)
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        given = dict(zip(names, arguments))
        given.update(named)
        if len(given) != len(arguments) + len(named):
            # Too many arguments, or one of them twice: Python's own error.
            return forward(self, *arguments, **named)
        weight = given.get("edge_weight")
        if weight is not None and not isinstance(weight, Tensor):
            device = next((value.device for value in given.values() if isinstance(value, Tensor)), None)
            given["edge_weight"] = torch.as_tensor(weight, device=device)
        if not self._pairs and isinstance(given.get(self._features[0]), (tuple, list)):
            return self._by_pyg(given)
        reason = self._why_not(given)
        if reason is None and not (self._explain or is_explaining()):
            return forward(self, **given)
        if reason is None:
            with explaining(self) as mask:
                out = forward(self, **given)
            if mask is None or mask.is_read:
                return out
            reason = "it is explained"
        fall_back(self, reason)
        return self._by_pyg(given)

    return run  # type: ignore[return-value]


class Layer:
    """What the layers have in common: a class of PyG's that they derive from, which does what they cannot."""

    #: PyG's class: the one that a layer names after this class.
    _pyg: Any
    #: Aggregators that halfgnn has for the layer; with "std" several of them at once.
    _aggregators: tuple[str, ...] = (*LINEAR, "max", "min", "var", "std")
    #: Arguments that are adjacencies.
    _adjacencies: tuple[str, ...] = ("edge_index",)
    #: Arguments that are rows of features.
    _features: tuple[str, ...] = ("x",)
    #: Whether the formula has features of edges.
    _takes_edges = False
    #: Whether features may be sparse.
    _sparse = False
    #: Whether features may be a pair, of sources and destinations.
    _pairs = False
    #: Whether features of destinations may be left out of a pair.
    _one_sided = True
    #: Whether the adjacency may be a sparse matrix.
    _matrices = True
    #: Whether a plain ``edge_index`` may be traced: the formula has no array of edges of its own.
    _traces = True
    #: Whether a :class:`halfgnn.Graph` may be traced: the formula makes no graph.
    _traces_graphs = True
    #: Methods besides those of message passing that the formula replaces.
    _replaces: tuple[str, ...] = ()

    # Typed by comments: TorchScript reads annotations of classes.
    _own_passing = None  # type: str | None
    _cached_graph = None  # type: Any

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        theirs: Any = cls.__mro__[cls.__mro__.index(Layer) + 1]
        if not _is_users(cls) and theirs is not object:
            cls._pyg = theirs
            remember(cls._pyg, cls._replaces)
            LAYERS[cls._pyg] = cls
        cls._own_passing = own_passing(cls)

    def reset_parameters(self) -> None:
        """As PyG's."""
        super().reset_parameters()  # type: ignore[misc]
        self._cached_graph = None

    @classmethod
    def _unsupported(cls, layer: Any) -> str | None:
        """Why halfgnn cannot do what a layer, PyG's or halfgnn's, is configured to do, whatever its inputs are."""
        return unsupported(layer, cls._pyg, cls._aggregators, cls._takes_edges) or cls._lacks(layer)

    @staticmethod
    def _lacks(layer: Any) -> str | None:
        """Which option of the layer's class halfgnn has no operator for."""
        return None

    def _not_these(self, **given: Any) -> str | None:
        """Why halfgnn cannot do these arguments, by their names."""
        return None

    def _features_of(self, given: dict[str, Any]) -> list[Any]:
        return [x for name in self._features for x in _each(given.get(name))]

    def _why_not(self, given: dict[str, Any]) -> str | None:
        """Why PyG's operators are used for these arguments; None where halfgnn's are."""
        reason = self._unsupported(self)
        if reason is not None:
            return reason
        features = self._features_of(given)
        for name in self._adjacencies:
            value = given.get(name)
            for adjacency in value.values() if isinstance(value, dict) else (value,):
                reason = refused(adjacency, *features, sparse=self._sparse) or self._no_adjacency(adjacency, given)
                if reason is not None:
                    return reason
        if not self._one_sided and any(x is None for x in features):
            return "destinations have no features"
        if self._explain and not self._may_mask(given):  # type: ignore[attr-defined]
            return "it is explained"
        return self._not_these(**given)

    def _may_mask(self, given: dict[str, Any]) -> bool:
        """Whether the formula multiplies messages by the mask of an explanation."""
        layer: Any = self
        matrices = any(is_matrix(given.get(name)) for name in self._adjacencies)
        return type(layer)._pyg.__name__ in MASKED and isinstance(layer._edge_mask, Tensor) and not matrices and not is_compiling()

    def _no_adjacency(self, adjacency: Any, given: dict[str, Any]) -> str | None:
        weight = given.get("edge_weight")
        if weight is not None and weight.dtype == torch.float64:
            return "edge_weight is torch.float64"
        is_graph = isinstance(adjacency, Graph)
        if not is_graph and is_matrix(adjacency):
            if not self._matrices:
                return "the adjacency is a sparse matrix"
            if weight is not None:
                return "edge_weight is given as well as a sparse matrix"
        if not is_compiling():
            return None
        if not self._traces_graphs:
            return "it is traced"
        if not is_graph:
            if getattr(self, "cached", False) and getattr(self, "normalize", True):
                return "cached=True keeps a graph, and edge_index is traced"
            if not self._traces:
                return "a plain edge_index is traced"
            if weight is not None and self.aggr in ("max", "min"):  # type: ignore[attr-defined]
                return "a weighted maximum is traced"
        return None

    def _by_pyg(self, given: dict[str, Any]) -> Any:
        """PyG's forward pass."""
        given = dict(given)
        for name in self._adjacencies:
            adjacency = given.get(name)
            if isinstance(adjacency, dict):
                given[name] = {kind: to_pyg(each)[0] for kind, each in adjacency.items()}
                continue
            given[name], weight = to_pyg(adjacency, given.get("edge_weight"))
            if weight is not None and "edge_weight" in inspect.signature(self._pyg.forward).parameters:
                given["edge_weight"] = weight
        return self._pyg.forward(self, **given)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        # PyG writes a `propagate` for each class of layers, from comments in its forward pass. A user's class needs its own.
        _template(self._pyg)
        if _is_users(type(self)):
            # An inspector knows sources by the names of classes, and halfgnn's have the names of PyG's.
            inspector = self.inspector  # type: ignore[attr-defined]
            for each in type(self).__mro__:
                if each.__module__.startswith("halfgnn.") or each is self._pyg:
                    inspector._source_dict[each.__name__] = inspect.getsource(self._pyg)
            super()._set_jittable_templates(raise_on_error)  # type: ignore[misc]

    def __prepare_scriptable__(self) -> Any:
        """The layer as TorchScript compiles it: with PyG's forward pass, and the same parameters."""
        kind: Any = type(self)
        if not _compiles(self._pyg):
            raise NotImplementedError(
                f"{kind.__name__}: PyG's layer does not compile in TorchScript here; take torch.export.export, or torch.jit.trace"
            )
        fall_back(self, "TorchScript has torch's own operators")
        scripted: Any = object.__new__(_scriptable(kind))
        scripted.__dict__ = self.__dict__
        return scripted


def _each(value: Any) -> list[Any]:
    """The parts of a pair or of a dictionary, or the value alone."""
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (tuple, list)) else [value]


@functools.lru_cache(maxsize=None)
def _template(kind: Any) -> None:
    """Has PyG write the ``propagate`` of its class, as the first layer of that class would."""
    layer = object.__new__(kind)
    inspector = Inspector(kind)
    inspector.inspect_signature(kind.message)
    inspector.inspect_signature(kind.aggregate, exclude=[0, "aggr"])
    inspector.inspect_signature(kind.message_and_aggregate, [0])
    inspector.inspect_signature(kind.update, exclude=[0])
    inspector.inspect_signature(kind.edge_update)
    layer.__dict__.update(inspector=inspector, fuse=inspector.implements("message_and_aggregate"))
    layer._set_jittable_templates()


#: Layers whose attention returns one type or another: what PyG's need to compile differs between versions.
_OVERLOADED = {pyg.GATConv: (1, 1), pyg.GATv2Conv: (1, 1), pyg.TransformerConv: (1, 1), pyg.FAConv: (1,)}


@functools.lru_cache(maxsize=None)
def _compiles(kind: Any) -> bool:
    """Whether PyG's own layers of attention compile in TorchScript, which depends on the versions of PyG and torch."""
    if kind not in _OVERLOADED:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.jit.script(kind(*_OVERLOADED[kind]))
    except RuntimeError:
        return False
    return True


def _is_users(kind: type) -> bool:
    return not kind.__module__.startswith("halfgnn.")


@functools.lru_cache(maxsize=None)
def _scriptable(kind: Any) -> Any:
    """The class of a layer while TorchScript compiles it. TorchScript leaves such a layer in the model, so that the first call or copy of
    it makes it a layer of ``kind`` again."""
    ours = next(each for each in kind.__mro__ if not _is_users(each))

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        self.__class__ = kind
        return self(*arguments, **named)

    def reduce(self: Any, protocol: Any) -> Any:
        self.__class__ = kind
        return self.__reduce_ex__(protocol)

    members: dict[str, Any] = {"__call__": call, "__reduce_ex__": reduce}
    if kind.forward is not ours.forward:
        return type(kind.__name__, (kind,), {**members, "__module__": kind.__module__})
    # TorchScript looks for overloads of PyG's forward pass in the source of a class of that name.
    theirs = ours._pyg
    members.update(__module__=theirs.__module__, __annotations__=dict(theirs.__annotations__), forward=theirs.forward)
    return type(theirs.__name__, (kind,), members)
