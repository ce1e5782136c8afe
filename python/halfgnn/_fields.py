"""What a labelled graph has, by the names that frameworks have for it, and how its arrays are read.

The rules are the program's, in Rust: a number that is a class, an array that selects vertices. ``docs/data.md`` has them under
"How values are read".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _core
from .graph import Graph, is_tensor

FEATURES = ("x", "feat", "features")
TARGETS = ("y", "label", "labels")
#: Of each split, the names of a mask or a list of vertices: PyG's first, then OGB's and others.
SPLITS = (
    ("train_mask", "train", "train_idx"),
    ("val_mask", "val", "valid", "validation", "valid_mask", "validation_mask", "val_idx", "valid_idx"),
    ("test_mask", "test", "test_idx"),
)
_EDGES = ("edge_index", "graph", "adj_t")
_OTHERS = ("edge_weight", "num_nodes", "name")
_NAMES = (*FEATURES, *TARGETS, *_EDGES, *_OTHERS, *(name for names in SPLITS for name in names))


def given(data: Any, *names: str) -> Any:
    """What it has under these names: an attribute, an entry of a mapping, or one of ``ndata``; None where it has none.

    Raises:
        ValueError: a mapping has several of them.
    """
    found = {name: value for name in names if (value := _entry(data, name)) is not None}
    if len(found) > 1 and isinstance(data, Mapping):
        first, second, *_ = found
        raise ValueError(f"{first} and {second} are names of the same; give one of them")
    return next(iter(found.values()), None)


def _entry(data: Any, name: str) -> Any:
    if isinstance(data, Mapping):
        return data.get(name)
    if hasattr(data, "ndata"):
        return data.ndata[name] if name in data.ndata else None
    return getattr(data, name, None)


def check_names(data: Any) -> None:
    """That a mapping has no name that nothing reads.

    Raises:
        ValueError: it has one.
    """
    if isinstance(data, Mapping):
        for name in data:
            if name not in _NAMES:
                raise ValueError(f"{unknown(name, _NAMES)}; names are {', '.join(_NAMES[:9])} and those of splits")


def unknown(name: object, known: Iterable[str]) -> str:
    """What to say of a name that there is not."""
    near = _core.nearest(str(name), list(known))
    return f"there is no {name!r}" + ("" if near is None else f"; is {near!r} meant?")


def check_keywords(of: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
    """That no keyword is left of those that a function takes.

    Raises:
        TypeError: one is.
    """
    for name in keywords:
        known = [own for own, it in inspect.signature(of).parameters.items() if it.kind is not it.VAR_KEYWORD]
        raise TypeError(unknown(name, known))


def graph_of(data: Any, vertices: int | None = None) -> Graph:
    """Its graph, with the weights of its edges. It has ``vertices``, or as many as it says."""
    if not isinstance(data, Mapping):
        return Graph.of(data)
    edges = given(data, *_EDGES)
    if edges is None:
        raise ValueError("there is no edge_index")
    count = data.get("num_nodes")
    if count is not None:
        count = int(count)
        if vertices is not None and count != vertices:
            raise ValueError(f"num_nodes: {count}, and x has {vertices} rows")
    graph = Graph.of(edges, vertices if count is None else count)
    if count is not None and graph.num_nodes != count:
        raise ValueError(f"num_nodes: {count}, and the graph has {graph.num_nodes}")
    weight = data.get("edge_weight")
    return graph if weight is None or graph.weight is not None else graph.with_weight(weight)


def on_host(values: Any) -> Any:
    """A NumPy array of what is given."""
    import numpy as np

    if is_tensor(values):
        values = values.detach().cpu()
        if str(values.layout) != "torch.strided":
            values = values.to_dense()
        # NumPy has no such numbers.
        return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    if hasattr(values, "toarray"):
        # One of SciPy's.
        values = values.toarray()
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(f"{type(values).__name__}: should be an array, or lists of the same length") from None


def selected(name: str, values: Any, vertices: int) -> Any:
    """The vertices that an array selects, a mask or a list, as words on the host.

    Raises:
        ValueError: it is neither.
        IndexError: it names what is no vertex.
    """
    import numpy as np

    from . import _numpy

    values = on_host(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(f"{name}: should be a mask of {vertices} or a list of integers, is {values.shape}; of several splits choose one")
    kinds = ((np.bool_, 0), (np.integer, 1), (np.floating, 2))
    kind = next((kind for of, kind in kinds if np.issubdtype(values.dtype, of)), None)
    if values.size == 0:
        kind = 1
    if kind is None:
        raise ValueError(f"{name}: should be a mask of {vertices} or a list of integers, is {values.dtype}")
    if kind == 0 and len(values) != vertices:
        raise ValueError(f"{name}: a mask should be {vertices}, is {values.shape}")
    numbers = np.ascontiguousarray(values, dtype=np.float64)
    if _core.is_mask(name, kind, (_numpy.address(numbers), numbers.size), vertices):
        values = np.flatnonzero(values)
    return np.ascontiguousarray(values, dtype=np.uint32)
