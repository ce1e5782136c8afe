"""Graphs and operators in NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _core
from .device import Place, host
from .graph import Graph, check_weights, is_tensor, made, raw_adjacency

_FORMATS = {np.dtype(np.float16): (0, 8), np.dtype(np.float32): (2, 4)}

#: Numbers of formats by their names.
NUMBERS = {str(dtype): number for dtype, (number, _) in _FORMATS.items()}


def address(array: Any) -> int:
    """Of the first element."""
    return int(array.__array_interface__["data"][0])


def ids(what: str, values: Any) -> Any:
    """A list of integers."""
    values = np.asarray(values)
    if values.ndim != 1 or not (np.issubdtype(values.dtype, np.integer) or values.size == 0):
        raise ValueError(f"edge_index: {what} should be a list of integers, are {values.dtype} of shape {values.shape}")
    return values


def extremes(values: Any) -> tuple[int, int]:
    """Smallest and largest; (0, -1) where there is none."""
    return (int(values.min()), int(values.max())) if len(values) else (0, -1)


def _empty(shape: Any) -> Any:
    return aligned(np.empty(shape, dtype=np.int32))


def wide(words: Any) -> Any:
    """Words as integers of 64 bits."""
    return words.view(np.int64)


def _raw(values: Any) -> tuple[int, int]:
    return address(values), len(values)


def _order(order: Any) -> Any:
    """None where it changes nothing."""
    return None if (order[1:] > order[:-1]).all() else order


def adjacency(source: Any, destination: Any, size: tuple[int, int]) -> tuple[Any, Any]:
    """Arrays in order, and which given edge each one is."""
    rows, columns = (aligned(values.astype(np.uint32, copy=False)) for values in (destination, source))
    built = _core.adjacency(host(), (size[1], size[0]), _raw(rows), _raw(columns))
    arrays, order = made(built, _empty, address)
    return arrays, _order(order)


def transposed(arrays: Any) -> tuple[Any, Any]:
    """The transpose, and which edge each of its is, as long as planes of edges are."""
    built = _core.transposed(host(), raw_adjacency(arrays[0], arrays[1], address))
    arrays, order = made(built, _empty, address)
    return arrays, np.concatenate([order, np.arange(len(order), plane(len(order)), dtype=np.int32)])


def plane(edges: int) -> int:
    """Length of a plane of numbers of edges."""
    return -(-edges // 8) * 8


def aligned(values: Any) -> Any:
    """Contiguous, at a multiple of 16 bytes."""
    values = np.ascontiguousarray(values)
    if address(values) % 16 == 0:
        return values
    room = np.empty(values.nbytes + 16, dtype=np.uint8)
    start = -address(room) % 16
    copy = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def inverse(order: Any) -> Any:
    """The inverse of a permutation."""
    result = np.empty_like(order)
    result[order] = np.arange(len(order), dtype=order.dtype)
    return result


def edge_index(columns: Any, rows: Any, inverse: Any) -> Any:
    """Sources and destinations in the order that they were given in."""
    index = np.stack([columns, rows]).astype(np.int64)
    return index if inverse is None else index[:, inverse]


def expand(offsets: Any, edges: int) -> Any:
    """The row of each edge."""
    offsets = np.asarray(offsets)
    counts = np.diff(offsets)
    if len(offsets) == 0 or offsets[0] != 0 or (counts < 0).any() or offsets[-1] != edges:
        raise ValueError(f"offsets: should ascend from 0 to the number of edges, {edges}")
    return np.repeat(np.arange(len(counts)), counts)


def weights(weight: Any, edges: int) -> Any:
    """Weights of edges, as floats: E, or E × heads."""
    weight = np.asarray(weight)
    check_weights(weight.shape, edges)
    weight = weight[:, 0] if weight.shape[1:] == (1,) else weight
    return weight if weight.dtype in _FORMATS else weight.astype(np.float32)


def loops(index: Any, count: int) -> tuple[Any, Any, Any]:
    """Edges with one loop at each of the first vertices; which edges are kept; loops that there were."""
    is_loop = index[0] == index[1]
    kept, old = np.flatnonzero(~is_loop), np.flatnonzero(is_loop)
    loop = np.arange(count)
    return np.concatenate([index[:, kept], np.stack([loop, loop])], axis=1), kept, (old, index[0][old])


def looped(weight: Any, kept: Any, loops: Any, fill_value: float, count: int) -> Any:
    """Weights of edges with loops."""
    of_loops = np.full((count, *weight.shape[1:]), fill_value, dtype=weight.dtype)
    of_loops[loops[1]] = weight[loops[0]]
    return np.concatenate([weight[kept], of_loops])


def counts(ids: Any, length: int) -> Any:
    """How often each id is there."""
    return np.bincount(ids, minlength=length)


def power(degrees: Any, power: float) -> Any:
    """Degrees, at least 1, to a power."""
    return aligned(np.maximum(degrees, 1).astype(np.float32) ** np.float32(power))


def masked(factors: Any, degrees: Any) -> Any:
    """The factors, zero where a degree is."""
    return aligned(factors * (degrees > 0))


def may_keep() -> bool:
    """Whether arrays made now may be kept."""
    return True


def place_of(graph: Graph) -> Place:
    """Where batches of a graph are sampled."""
    return host()


def sampled(adjacency: _core.Adjacency, whole: Graph) -> tuple[Graph, Any]:
    """The graph of a batch of ``whole``, and which of its edges each one is, in its order, if that is known."""
    arrays, edges = made(adjacency, _empty, address)
    return Graph._of_arrays(arrays), edges


def copied(vertices: _core.Vertices, whole: Graph) -> Any:
    """Vertices of a batch of ``whole``, int64."""
    ids = _empty(len(vertices))
    vertices.copy_to(address(ids))
    return ids.astype(np.int64)


def long(numbers: Any) -> Any:
    """As int64."""
    return numbers.astype(np.int64, copy=False)


def take(values: Any, places: Any) -> Any:
    """The values of these places."""
    return values[places]


def rows(values: Any, places: Any) -> Any:
    """Rows of what a person gave, or None."""
    return None if values is None else np.asarray(values)[places]


def words(numbers: Any) -> Any:
    """As words of 32 bits."""
    return aligned(numbers.astype(np.uint32))


def on_host(values: Any) -> Any:
    """In one piece in the host's memory."""
    return np.ascontiguousarray(values.detach().cpu().numpy() if is_tensor(values) else values)


def settle(whole: Graph) -> None:
    """There is nothing to wait for."""


def output(rows: int, columns: int, number: int, whole: Graph) -> tuple[Any, tuple[int, int, int, int]]:
    """A matrix of a format where the graph lies, and how the extension module takes it."""
    dtype, lanes = next((dtype, lanes) for dtype, (of, lanes) in _FORMATS.items() if of == number)
    return _output(rows, columns, lanes, dtype)


def first(count: int, whole: Graph) -> Any:
    """The first places, int64."""
    return np.arange(count)


def marked(places: Any, count: int, whole: Graph) -> Any:
    """Whether each of a number of places is one of these."""
    mask = np.zeros(count, dtype=bool)
    mask[places] = True
    return mask


def places(mask: Any) -> Any:
    """Where it is true, int64."""
    return np.flatnonzero(mask)


def beside(values: Any, whole: Graph) -> Any:
    """An array where the graph lies."""
    return values


def _format(name: str, values: Any) -> tuple[int, int]:
    found = _FORMATS.get(values.dtype)
    if found is None:
        raise ValueError(f"{name}: {values.dtype} is no format of halfgnn's in NumPy; use float16 or float32 (x.astype(...))")
    return found


def _rows(values: Any, lanes: int) -> tuple[Any, tuple[int, int, int, int]]:
    """A matrix whose rows begin at multiples of 16 bytes and end in zeros, and how the extension module takes it."""
    rows, columns = values.shape
    stride = -(-columns // lanes) * lanes
    if stride != columns:
        padded = np.zeros((rows, stride), dtype=values.dtype)
        padded[:, :columns] = values
        values = padded
    values = aligned(values)
    return values, (address(values), rows, columns, stride)


def _output(rows: int, columns: int, lanes: int, dtype: Any) -> tuple[Any, tuple[int, int, int, int]]:
    stride = -(-columns // lanes) * lanes
    whole = aligned(np.empty((rows, stride), dtype=dtype))
    return whole[:, :columns], (address(whole), rows, columns, stride)


def _no_workspace(_bytes: int) -> tuple[object, int]:
    raise AssertionError("the host lends no workspace")


def _planes(graph: Graph, values: Any) -> Any:
    """Values of edges, E × heads in the given order, as planes in that of the adjacency."""
    if graph._order is not None:
        values = values[graph._order]
    planes = np.zeros((values.shape[1], plane(graph.num_edges)), dtype=values.dtype)
    planes[:, : len(values)] = values.T
    return aligned(planes)


def _values(graph: Graph, planes: Any) -> Any:
    values = planes[:, : graph.num_edges].T
    inverse = graph._in_given_order()
    return np.ascontiguousarray(values if inverse is None else values[inverse])


def _flat(planes: Any) -> tuple[int, int]:
    return address(planes), planes.size


def spmm(
    graph: Graph,
    x: Any,
    weight: Any,
    heads: int,
    scales: tuple[Any, Any],
    bias: Any,
    epsilon: float | None,
    relu: bool,
    maximum: bool,
) -> Any:
    """The operator on arrays whose shapes were checked; ``x`` is sources × F."""
    graph = graph.numpy()
    _format("spmm", x)
    result, columns, width = x.dtype, x.shape[1], x.shape[1] // heads
    row_scale, column_scale = scales
    planes = None if weight is None else _planes(graph, _of_a_format(weight))
    # A maximum of products is rounded to their format before anything is added to it or multiplied by it.
    is_rounded = maximum and x.dtype != np.float32 and any(part is not None for part in (row_scale, bias, epsilon))
    if planes is not None and (planes.dtype != x.dtype or column_scale is not None or is_rounded):
        # Kernels read rows and weights in one format, and either weights or factors of columns. In float neither loses anything.
        x, planes = x.astype(np.float32), planes.astype(np.float32)
        if column_scale is not None:
            planes[:, : graph.num_edges] *= column_scale[graph._columns]
            column_scale = None
        planes = aligned(planes)
    number, lanes = _format("spmm", x)
    is_widened = heads > 1 and width % lanes != 0
    if is_widened:
        x, bias = _widened(x, heads, lanes), None if bias is None else _widened(bias[None], heads, lanes)[0]
    kept, x_raw = _rows(x, lanes)
    y, y_raw = _output(graph.num_dst, x.shape[1], lanes, x.dtype)
    bias_kept = None if bias is None else _rows(bias.astype(np.float32)[None], 4)
    own = None if epsilon is None else aligned(np.array([epsilon, 0, 0, 0], dtype=np.float32))
    _core.spmm(
        host(),
        _no_workspace,
        number,
        raw_adjacency(graph._a[0], graph._a[1], address),
        x_raw,
        y_raw,
        None if planes is None else _flat(planes),
        heads,
        None if row_scale is None else _raw(row_scale),
        None if column_scale is None else _raw(column_scale),
        None if bias_kept is None else bias_kept[1],
        None if own is None else _raw(own),
        relu,
        maximum,
    )
    del kept
    if is_widened:
        y = y.reshape(len(y), heads, -1)[..., :width].reshape(len(y), columns)
    # Too large a result is infinite, as the kernels' own.
    with np.errstate(over="ignore"):
        return y.astype(result, copy=False)


def _of_a_format(values: Any) -> Any:
    """As it is, or in float where its format is none of the operators', such as of integers and doubles."""
    return values if values.dtype in _FORMATS else values.astype(np.float32)


def _widened(x: Any, heads: int, lanes: int) -> Any:
    """Heads of whole vectors."""
    width = x.shape[1] // heads
    pad = ((0, 0), (0, 0), (0, -width % lanes))
    return np.pad(x.reshape(len(x), heads, width), pad).reshape(len(x), -1)


def sddmm(graph: Graph, u: Any, v: Any, heads: int) -> Any:
    """The operator on arrays whose shapes were checked: E × heads."""
    graph = graph.numpy()
    for values in (u, v):
        _format("sddmm", values)
    if u.dtype != v.dtype:
        u, v = u.astype(np.float32), v.astype(np.float32)
    number, lanes = _format("sddmm", u)
    if heads > 1 and u.shape[1] // heads % lanes:
        u, v = _widened(u, heads, lanes), _widened(v, heads, lanes)
    (u, u_raw), (v, v_raw) = _rows(u, lanes), _rows(v, lanes)
    planes = aligned(np.empty((heads, plane(graph.num_edges)), dtype=u.dtype))
    _core.sddmm(
        host(),
        _no_workspace,
        number,
        raw_adjacency(graph._a[0], graph._a[1], address),
        u_raw,
        v_raw,
        _flat(planes),
        heads,
    )
    return _values(graph, planes)


def edge_softmax(graph: Graph, e: Any) -> Any:
    """The operator on an array whose shape was checked: E × heads."""
    graph = graph.numpy()
    number, _ = _format("edge_softmax", e)
    planes = _planes(graph, e)
    heads = planes.shape[0]
    rows = aligned(np.empty(heads * graph.num_dst, dtype=np.float32))
    _core.edge_softmax(
        host(),
        _no_workspace,
        number,
        raw_adjacency(graph._a[0], graph._a[1], address),
        _flat(planes),
        _raw(rows),
        heads,
    )
    return _values(graph, planes)
