"""Graphs made of another library's objects, kept for as long as the object lives and has the same contents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ._tensors import neutral
from .graph import Graph

_Made = TypeVar("_Made")


class _Kept:
    """Copies of the arrays that graphs were made of, and the graphs by what else they depend on."""

    def __init__(self, parts: tuple[Tensor, ...]) -> None:
        self.copies = tuple(part.clone(memory_format=torch.contiguous_format) for part in parts)
        self.graphs: dict[Hashable, Graph] = {}

    def is_of(self, parts: tuple[Tensor, ...]) -> bool:
        return len(parts) == len(self.copies) and all(
            copy.device == part.device and copy.dtype == part.dtype and torch.equal(copy, part)
            for copy, part in zip(self.copies, parts)
        )


_kept: Any = WeakIdKeyDictionary()


@neutral
def graph_of(owner: Any, parts: tuple[Tensor, ...], key: Hashable, make: Callable[[], Graph]) -> Graph:
    """The graph that ``make`` makes of ``owner``, which consists of ``parts``; made again where these have other contents.

    Contents are compared, since no version of a tensor moves where it is written to through NumPy, ``.data``, DLPack or in inference
    mode. The caller's modes have no effect on the graph.

    Raises:
        RuntimeError: work is being captured, which would replay the edges of the capture.
    """
    if any(part.is_cuda for part in parts) and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "a captured step would replay the edges that edge_index has now; pass halfgnn.Graph(edge_index, num_nodes).prepare(), made "
            "before the capture"
        )
    parts = tuple(part.detach().as_subclass(Tensor) for part in parts)
    found = _kept.get(owner)
    if found is None or not found.is_of(parts):
        found = _kept[owner] = _Kept(parts)
    graph = found.graphs.get(key)
    if graph is None:
        graph = found.graphs[key] = make()
    return graph  # type: ignore[no-any-return]


class Recent:
    """What was made of arrays, by their contents: the entries that were used last.

    It serves callers whose arrays are new objects with the contents of earlier ones. Copies and files of it are empty.

    Args:
        capacity: number of entries.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: list[tuple[Hashable, _Kept, Any]] = []
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Recent, (self.capacity,)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, parts: tuple[Tensor, ...], key: Hashable, make: Callable[..., _Made]) -> _Made:
        """What ``make`` made, given copies of ``parts``."""
        found: _Made = _recent(self, parts, key, make)
        return found


@neutral
def _recent(recent: Recent, parts: tuple[Tensor, ...], key: Hashable, make: Callable[..., Any]) -> Any:
    parts = tuple(part.detach().as_subclass(Tensor) for part in parts)
    with recent._lock:
        entries = recent._entries
        for at in reversed(range(len(entries))):
            if entries[at][0] == key and entries[at][1].is_of(parts):
                entries.append(entries.pop(at))
                return entries[-1][2]
        kept = _Kept(parts)
        made = make(*kept.copies)
        entries.append((key, kept, made))
        del entries[: max(len(entries) - recent.capacity, 0)]
        return made
