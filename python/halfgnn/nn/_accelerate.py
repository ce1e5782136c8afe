"""halfgnn's operators behind the layers that it has no replacement for, PyG's and the user's own.

An accelerated layer gets a class of its own, derived from its class: for each method that uses one of PyG's functions, the derived
class has a copy of the method for which the function's name means halfgnn's (:mod:`halfgnn.nn._rewritten`). The copies stand in the order
of resolution directly before the class that the method is of, so that ``super()`` finds them as well. The layer's aggregators get such
classes too. PyG's methods that aggregate are replaced by halfgnn's (:mod:`halfgnn.nn._reductions`).

Why this and nothing else: PyG's functions are imported by name into each module of layers. To change them where they are, even for the
time of a forward pass, is seen by other threads, and by the guards of compiled models. A ``TorchFunctionMode`` sees the operators of torch
that a softmax or a mean consists of, of which the first has overflowed in half before the last is called. A class of a layer's own is seen
by no other caller. A context variable says which layer runs, so that an aggregator that two models share is halfgnn's in one of them alone.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch_geometric.nn as pyg

from .._cached import Recent
from . import _replace
from ._common import fall_back, is_compiling, refused
from ._reductions import METHODS, calling, is_active
from ._rewritten import copied, named, refusal, used
from ._replace import replace

#: What an accelerated layer or aggregator has in its ``__dict__``: what its operators keep from call to call.
_MARK = "_halfgnn_recent"

#: Graphs that are kept for each accelerated layer, of those that were used last.
_FOR_EACH_LAYER = 4

#: Aggregators that consist of others.
_CONTAINERS = (pyg.MultiAggregation, pyg.DegreeScalerAggregation)


@dataclass
class Accelerated:
    """What :func:`accelerate` did, by the names of modules."""

    #: Layers that became halfgnn's layers.
    replaced: list[str] = field(default_factory=list)
    #: Layers of PyG or of the user, and which of their operators are halfgnn's.
    accelerated: dict[str, list[str]] = field(default_factory=dict)
    #: Layers, and aggregators of accelerated layers, that run on PyG's operators, and why.
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{_counted(self.replaced)} replaced{_listed(self.replaced)}"]
        if self.accelerated:
            of = [f"{name} ({', '.join(operators)})" for name, operators in self.accelerated.items()]
            lines.append(f"{_counted(of)} accelerated{_listed(of)}")
        if self.left:
            lines.append("left" + _listed([f"{name} ({reason})" for name, reason in self.left.items()]))
        return "\n".join(lines)


def _counted(layers: list[str]) -> str:
    return f"{len(layers)} layer{'' if len(layers) == 1 else 's'}"


def _listed(names: list[str]) -> str:
    return ": " + ", ".join(names) if names else ""


def accelerate(model: torch.nn.Module) -> Accelerated:
    """Puts halfgnn's operators behind all message passing of a model, in place.

    It calls :func:`replace` first. In each other ``MessagePassing`` layer, PyG's or the user's own, halfgnn then computes what the layer
    does by its aggregators (sum, mean, max, min, mul, var, std, softmax, powermean, median, quantile, several of them), and by
    ``torch_geometric.utils.softmax``, ``scatter``, ``segment``, ``spmm`` and ``degree``, called in its methods or in functions that they
    call. Rows of vertices that PyG copies to edges have their gradients added up likewise.

    Sums are made in float, without atomics, and rounded once. The same inputs give the same bits. Parameters, buffers, hooks, optimizers
    and the keys of the ``state_dict`` stay what they are; other models and other threads see nothing of it. :func:`restore` undoes it.

    PyG's own operators do float64, and what ``torch.compile``, ``torch.jit``, ``torch.func`` and ONNX trace, with one
    :class:`halfgnn.FallbackWarning` for each kind of layer. Equal maxima share a gradient equally; torch's own also count a maximum
    of exactly zero once more.

    Returns:
        What was replaced, accelerated and left, and why: :func:`str` of it is lines for a person.

    >>> from torch_geometric.nn import GCNConv, PANConv, Sequential
    >>> model = Sequential("x, edge_index", [(GCNConv(8, 16), "x, edge_index -> x"), (PANConv(16, 3, 2), "x, edge_index -> x")])
    >>> print(halfgnn.nn.accelerate(model))
    1 layer replaced: module_0
    1 layer accelerated: module_1 (spmm, sum)
    """
    replaced = replace(model)
    done = Accelerated(replaced=replaced.replaced)
    layers = {name: module for name, module in model.named_modules() if name in replaced.left}
    recent = _shared(layers.values())
    for name, layer in layers.items():
        reason, operators = _reason(layer), _operators(layer)
        if reason is None and not operators:
            reason = "it uses no operator that halfgnn has"
        if reason is None:
            reason = _give(layer, recent)
        if reason is not None:
            done.left[name] = reason
            continue
        done.accelerated[name] = operators
        for inner, aggregator in _aggregators(layer):
            reason = None if _covers(aggregator) else f"halfgnn has no {type(aggregator).__name__}"
            reason = _give(aggregator, recent) if reason is None else reason
            if reason is not None:
                done.left[f"{name}.{inner}".lstrip(".")] = reason
    recent.capacity = max(_FOR_EACH_LAYER * len(done.accelerated), 2 * _FOR_EACH_LAYER)
    return done


def restore(model: torch.nn.Module) -> list[str]:
    """Undoes :func:`replace` and :func:`accelerate`, in place: layers are PyG's or the user's again, with the same parameters, buffers and
    hooks. Layers that were made as halfgnn's stay.

    Returns:
        The names of the layers that were restored.

    >>> from torch_geometric.nn import GCN
    >>> model = GCN(8, 16, num_layers=2, out_channels=3)
    >>> halfgnn.nn.replace(model).replaced
    ['convs.0', 'convs.1']
    >>> halfgnn.nn.restore(model)
    ['convs.0', 'convs.1']
    """
    restored = set()
    for name, module in model.named_modules():
        if module.__dict__.pop(_MARK, None) is not None:
            module.__class__ = type(module)._halfgnn_kind
            if isinstance(module, pyg.MessagePassing):
                restored.add(name)
    restored.update(_replace.restore(model))
    return [name for name, _ in model.named_modules() if name in restored]


def _shared(layers: Any) -> Recent:
    """What operators of a model keep: that of its layers that are accelerated already, or a new one."""
    for layer in layers:
        found = layer.__dict__.get(_MARK)
        if isinstance(found, Recent):
            return found
    return Recent(2 * _FOR_EACH_LAYER)


def _kind(module: Any) -> Any:
    """The class of a module, without what was derived from it here."""
    return getattr(type(module), "_halfgnn_kind", type(module))


# What a layer uses


def _aggregators(layer: Any) -> Iterator[tuple[str, Any]]:
    """The aggregators of a layer, but those that PyG fused out of others, and those of other layers inside of it."""
    for name, module in layer.named_children():
        if isinstance(module, pyg.MessagePassing) or (name == "fused_aggr" and isinstance(layer, pyg.MultiAggregation)):
            continue
        if isinstance(module, pyg.Aggregation):
            yield name, module
        yield from ((f"{name}.{inner}", aggregator) for inner, aggregator in _aggregators(module))


def _covers(aggregator: Any) -> bool:
    """Whether an aggregator computes by halfgnn's operators."""
    kind: Any = _kind(aggregator)
    if any(each.__dict__.get("forward") in METHODS for each in kind.__mro__ if "forward" in each.__dict__):
        return True
    names = set().union(*(function.__code__.co_names for _, _, function in _functions(kind)))
    return "reduce" in names or any(named(function) for _, _, function in _functions(kind))


def _functions(kind: Any) -> Iterator[tuple[Any, str, types.FunctionType]]:
    """Classes, names and functions of the methods of a class that are neither PyG's base classes' nor torch's."""
    for each in kind.__mro__:
        if each in (pyg.MessagePassing, pyg.Aggregation, torch.nn.Module):
            return
        for name, member in each.__dict__.items():
            function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
            if isinstance(function, types.FunctionType):
                yield each, name, function


def _operators(layer: Any) -> list[str]:
    """Names of a layer's operators that are halfgnn's."""
    kind = _kind(layer)
    names: set[str] = set()
    for _, name, function in _functions(kind):
        if name != "message_and_aggregate" or layer.fuse:
            names |= named(function)
    if _aggregates_by_module(kind):
        for _, aggregator in _aggregators(layer):
            if _covers(aggregator) and not isinstance(aggregator, _CONTAINERS):
                name = _kind(aggregator).__name__
                names.add(name.removesuffix("Aggregation").lower() or name)
    return sorted(names)


def _aggregates_by_module(kind: Any) -> bool:
    """Whether a class of layers aggregates as PyG's base class does, by its ``aggr_module``."""
    if kind.aggregate is pyg.MessagePassing.aggregate:
        return True
    names = set().union(*(function.__code__.co_names for _, name, function in _functions(kind) if name == "aggregate"))
    return bool({"aggr_module", "aggregate"} & names) or not isinstance(kind.aggregate, types.FunctionType)


def _reason(layer: Any) -> str | None:
    """Why a layer cannot be accelerated, or None where it can."""
    kind = _kind(layer)
    for _, name, function in _functions(kind):
        if name in layer.__dict__ and used(function):
            return f"its {name}() is set on the layer itself"
        reason = refusal(function) if used(function) else None
        if reason is not None:
            return reason
    return None


# Classes


#: Derived classes by the classes that they derive from. Instances keep them.
_classes: Any = weakref.WeakValueDictionary()


def _give(module: Any, recent: Recent) -> str | None:
    """Gives a module its derived class; why it cannot have one, or None."""
    try:
        module.__class__ = _derived(_kind(module))
    except TypeError as error:
        return f"no class derives from {type(module).__name__}: {error}"
    module.__dict__[_MARK] = recent
    return None


def _derived(kind: Any) -> Any:
    """The derived class of a class of layers or aggregators."""
    found = _classes.get(kind)
    if found is None:
        found = _classes[kind] = _derive(kind)
    return found


def _derive(kind: Any) -> Any:
    bases: list[Any] = []
    for each in kind.__mro__:
        members = _members(each)
        if members:
            bases.append(type(each.__name__, (), {**members, "__module__": each.__module__}))
        if members or each is kind:
            bases.append(each)
    derived: Any = types.new_class(kind.__name__, tuple(bases), exec_body=lambda names: names.update(_names_of(kind)))

    def reduce(self: Any, protocol: Any) -> Any:
        self.__class__ = kind
        try:
            make, arguments, *rest = self.__reduce_ex__(protocol)
        finally:
            self.__class__ = derived
        return _made, (make, arguments), *rest

    def prepare(self: Any) -> Any:
        plain = object.__new__(kind)
        plain.__dict__ = self.__dict__
        if hasattr(kind, "__prepare_scriptable__"):
            return plain.__prepare_scriptable__()
        if isinstance(self, pyg.MessagePassing):
            fall_back(self, "TorchScript has torch's own operators")
        plain.__class__ = _scriptable(kind, derived)
        return plain

    derived.__reduce_ex__, derived.__prepare_scriptable__ = reduce, prepare
    if not issubclass(kind, pyg.MessagePassing):
        return derived

    @functools.wraps(kind.forward)
    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        if is_compiling():
            fall_back(self, "torch.compile traces torch's own operators")
            return super(derived, self).forward(*arguments, **named)
        reason = refused(None)
        if reason is not None:
            fall_back(self, reason)
            return super(derived, self).forward(*arguments, **named)
        with calling(self, self.__dict__[_MARK]):
            return super(derived, self).forward(*arguments, **named)

    def write(self: Any, raise_on_error: bool = False) -> None:
        # PyG writes methods for a class of layers, which are those of the layer's own class.
        self.__class__ = kind
        try:
            self._set_jittable_templates(raise_on_error)
        finally:
            self.__class__ = derived

    derived.forward, derived._set_jittable_templates = forward, write
    return derived


def _names_of(kind: Any) -> dict[str, Any]:
    return {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__, "_halfgnn_kind": kind}


def _members(kind: Any) -> dict[str, Any]:
    """Methods that stand before those of a class in the order of resolution."""
    members: dict[str, Any] = {}
    for name, member in list(kind.__dict__.items()):
        wrapper = type(member) if isinstance(member, (staticmethod, classmethod)) else None
        function = member.__func__ if wrapper is not None else member
        if not isinstance(function, types.FunctionType):
            continue
        is_base = kind in (pyg.MessagePassing, pyg.Aggregation, torch.nn.Module)
        if function in METHODS or (not is_base and used(function)):
            method = _method(kind, name, function)
            members[name] = method if wrapper is None else wrapper(method)
    return members


def _method(kind: Any, name: str, function: types.FunctionType) -> Any:
    """The method of a class while a layer runs that halfgnn computes for, and the class's own otherwise."""

    @functools.wraps(function)
    def method(*arguments: Any, **named: Any) -> Any:
        if is_compiling():
            return function(*arguments, **named)
        # Of the class as it is now.
        member = kind.__dict__.get(name, function)
        own: Any = getattr(member, "__func__", member)
        if is_active() and isinstance(own, types.FunctionType):
            own = METHODS[own] if own in METHODS else copied(own)
        return own(*arguments, **named)

    return method


def _made(make: Any, arguments: Any) -> Any:
    """A module of a derived class, before its state is set."""
    module = make(*arguments)
    module.__class__ = _derived(type(module))
    return module


def _scriptable(kind: Any, derived: Any) -> Any:
    """The class of a module while TorchScript compiles it. TorchScript leaves such a module in the model, so that the first call or copy
    of it makes it one of the derived class again."""

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        self.__class__ = derived
        return self(*arguments, **named)

    def reduce(self: Any, protocol: Any) -> Any:
        self.__class__ = derived
        return self.__reduce_ex__(protocol)

    members = {"__call__": call, "__reduce_ex__": reduce, "forward": kind.forward, "__annotations__": dict(kind.__annotations__)}
    return type(kind.__name__, (kind,), {**_names_of(kind), **members})
