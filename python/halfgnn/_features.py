"""Where the features lie of which batches take rows, and how they take them."""

from __future__ import annotations

import os
from typing import Any, Literal, Protocol, get_args

from . import _core
from .graph import Graph

Features = Literal["device", "host", "disk"]


class Rows(Protocol):
    """A row of features for each vertex of a graph."""

    def __len__(self) -> int: ...

    def take(self, n_id: Any) -> Any:
        """Those of vertices of a batch, on its device."""

    def read_ahead(self, n_id: Any) -> None:
        """Says which vertices are asked for next."""

    @property
    def are_read(self) -> bool:
        """Whether it is of use to say so."""


class _Array:
    """Rows of an array where it lies."""

    are_read = False

    def __init__(self, x: Any, kind: Any) -> None:
        self._x, self._kind = x, kind

    def __len__(self) -> int:
        return len(self._x)

    def take(self, n_id: Any) -> Any:
        return self._kind.rows(self._x, n_id)

    def read_ahead(self, n_id: Any) -> None:
        pass


class _Elsewhere:
    """Rows that are in memory of the host which a GPU reads, or on disk."""

    def __init__(self, rows: _core.Rows, shape: tuple[int, int], number: int, graph: Graph) -> None:
        self._rows, self._shape, self._number, self._graph = rows, shape, number, graph
        self._kind = graph._kind()
        self.are_read = False

    def __len__(self) -> int:
        return self._shape[0]

    def take(self, n_id: Any) -> Any:
        words = self._kind.words(n_id)
        x, raw = self._kind.output(len(n_id), self._shape[1], self._number, self._graph)
        self._kind.settle(self._graph)
        self._rows.take((self._kind.address(words), len(words)), raw)
        return x

    def read_ahead(self, n_id: Any) -> None:
        words = self._kind.on_host(self._kind.words(n_id))
        self._rows.read_ahead((self._kind.address(words), len(words)))


def rows_of(x: Any, features: Features | None, graph: Graph, cached: int | None) -> Rows | None:
    """The rows of ``x`` for batches of a graph, of which a GPU has copies of ``cached``.

    Raises:
        ValueError: ``features`` are nowhere, or ``x`` is nothing that can lie there; ``cached`` is of rows that no GPU reads.
    """
    if cached is not None and features != "host":
        raise ValueError(f"cached {cached}: a GPU has copies of features='host'; for {features!r} leave it out")
    if features is not None and features not in get_args(Features):
        raise ValueError(f"features {features!r}; take 'device', 'host' or 'disk'")
    if x is None:
        if features is not None:
            raise ValueError(f"features {features!r}: the data has no x to lie there; leave them out")
        return None
    kind = graph._kind()
    if isinstance(x, (str, os.PathLike)):
        if features not in (None, "disk"):
            raise ValueError(f"x: a path is read with features='disk'; for {features!r} give an array, such as numpy.load's")
        return _on_disk(_of_path(x), graph)
    if features == "disk":
        return _on_disk(_of_map(x), graph)
    if features == "device":
        return _Array(kind.beside(x, graph), kind)
    if features is None:
        return _Array(x, kind)
    number, x = _number(x, kind), kind.on_host(x)
    place = kind.place_of(graph)
    if place == (0, 0, 0):
        # All memory of the CPU is the host's.
        if cached is not None:
            raise ValueError(f"cached {cached}: all memory of a CPU is the host's, and no GPU has copies; leave it out")
        return _Array(x, kind)
    rows = _core.Rows.host(place, number, (kind.address(x), *x.shape, x.shape[1]))
    if cached is not None:
        _cache(rows, graph, min(cached, len(x)))
    return _Elsewhere(rows, tuple(x.shape), number, graph)


def _cache(rows: _core.Rows, graph: Graph, count: int) -> None:
    """Has copies of the rows of a number of vertices, those that most edges leave."""
    import numpy as np

    from . import _numpy

    degrees = _numpy.on_host(graph.out_degrees())
    # The extension module looks whether each is a row, for there may be more vertices than rows, or fewer.
    vertices = np.argsort(-degrees, kind="stable")[:count].astype(np.uint32)
    rows.cache((_numpy.address(vertices), vertices.size))


def _on_disk(stored: _core.Stored, graph: Graph) -> Rows:
    number = stored.format()
    rows = _core.Rows.stored(graph._kind().place_of(graph), number, stored)
    taken = _Elsewhere(rows, stored.shape(), number, graph)
    taken.are_read = True
    return taken


def _number(x: Any, kind: Any) -> int:
    """Of the format of a matrix."""
    name = str(getattr(x, "dtype", type(x).__name__)).removeprefix("torch.")
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) != 2 or 0 in shape[1:] or name not in kind.NUMBERS:
        raise ValueError(
            f"x: {name} of shape {shape}, where rows of {', '.join(kind.NUMBERS)} are taken, one for each vertex; convert it"
        )
    return int(kind.NUMBERS[name])


def _of_path(path: str | os.PathLike[str]) -> _core.Stored:
    """Rows of a folder of parts, or of an array of NumPy's in a file of its own."""
    if os.path.isdir(path):
        return _core.Stored.open(path)
    import numpy as np

    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"{os.fspath(path)}: neither a whole array by numpy.save nor a folder of parts by `halfgnn dataset partition` ({error})"
        ) from None
    return _of_map(array)


def _of_map(array: Any) -> _core.Stored:
    """Rows of the file that lies behind a memory map, or behind rows of one."""
    import numpy as np

    from . import _numpy

    root = array
    while isinstance(root, np.ndarray) and isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None:
        raise ValueError(
            f"x: {type(array).__name__}; features='disk' takes a path, of a folder of parts or of a .npy, or a numpy.memmap of a file"
        )
    number = _number(array, _numpy)
    if root.mode == "c":
        raise ValueError(f"{root.filename}: mapped copy-on-write: what is written to it is not in the file; map it with mode 'r'")
    if not array.flags.c_contiguous:
        raise ValueError(f"{root.filename}: its rows do not follow one another; give all columns of it, in C's order")
    start = root.offset + _numpy.address(array) - _numpy.address(root)
    return _core.Stored.of_file(root.filename, start, array.shape, number)
