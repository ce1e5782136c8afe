"""Graphs in torch tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import _core
from .device import Place, host
from .graph import Graph, check_weights, made, raw_adjacency

#: Number and elements of a 16-byte vector of each format.
FORMATS = {torch.float16: (0, 8), torch.bfloat16: (1, 8), torch.float32: (2, 4)}

#: Numbers of formats by their names.
NUMBERS = {str(dtype).removeprefix("torch."): number for dtype, (number, _) in FORMATS.items()}


_Made = TypeVar("_Made", bound=Callable[..., Any])


def neutral(make: _Made) -> _Made:
    """A function whose results carry neither the caller's autograd nor inference mode, so that they may be kept."""

    @functools.wraps(make)
    def made_neutrally(*arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return make(*arguments)
        with torch.inference_mode(False), torch.no_grad():
            return make(*arguments)

    return made_neutrally  # type: ignore[return-value]


def may_keep() -> bool:
    """Whether tensors made now may be kept: not those of a trace."""
    return not torch.compiler.is_compiling()


def address(tensor: Tensor) -> int:
    """Of the first element."""
    return tensor.data_ptr()


def place(device: torch.device) -> Place:
    """Where operators on tensors of a device run: on a GPU on torch's current stream."""
    if device.type == "cpu":
        return host()
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return (1, index, torch._C._cuda_getCurrentRawStream(index))
    raise ValueError(f"tensors on {device}; halfgnn computes on the CPU and on GPUs")


def _settle(device: torch.device) -> None:
    """Waits for the current stream: graphs are made on one of halfgnn's own."""
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "a graph cannot be made while work is captured: make it before, and call its prepare() for gradients"
            )
        torch.cuda.current_stream(device).synchronize()


def ids(what: str, values: Any) -> Tensor:
    """A list of integers."""
    values = values if isinstance(values, Tensor) else torch.as_tensor(values)
    values = values.detach().as_subclass(Tensor)
    if values.ndim != 1 or values.is_floating_point() or values.dtype == torch.bool:
        raise ValueError(
            f"edge_index: {what} should be a list of integers, are {values.dtype} of shape {tuple(values.shape)}"
        )
    return values  # type: ignore[no-any-return]


def extremes(values: Tensor) -> tuple[int, int]:
    """Smallest and largest; (0, -1) where there is none."""
    if not len(values):
        return 0, -1
    least, most = torch.stack(values.aminmax()).tolist()
    return int(least), int(most)


def _raw(values: Tensor) -> tuple[int, int]:
    return values.data_ptr(), len(values)


def _empty_on(device: torch.device) -> Callable[[Any], Tensor]:
    return lambda shape: torch.empty(shape, dtype=torch.int32, device=device)


def wide(words: Tensor) -> Tensor:
    """Words as integers of 64 bits."""
    return words.view(torch.int64)


def aligned(tensor: Tensor) -> Tensor:
    """Contiguous, at a multiple of 16 bytes."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


@neutral
def adjacency(source: Tensor, destination: Tensor, size: tuple[int, int]) -> tuple[Any, Any]:
    """Arrays in order, and which given edge each one is; None where order changes nothing."""
    device = source.device
    rows, columns = (aligned(ids.to(torch.int32)) for ids in (destination, source))
    _settle(device)
    built = _core.adjacency(place(device), (size[1], size[0]), _raw(rows), _raw(columns))
    arrays, order = made(built, _empty_on(device), address)
    return arrays, None if bool((order[1:] > order[:-1]).all()) else order


@neutral
def transposed(arrays: Any) -> tuple[Any, Tensor]:
    """The transpose, and which edge each of its is, as long as planes of edges are."""
    device = arrays[0].device
    _settle(device)
    built = _core.transposed(place(device), raw_adjacency(arrays[0], arrays[1], address))
    arrays, order = made(built, _empty_on(device), address)
    edges = len(order)
    rest = torch.arange(edges, plane(edges), dtype=torch.int32, device=device)
    return arrays, torch.cat([order, rest])


def plane(edges: int) -> int:
    """Length of a plane of numbers of edges."""
    return (edges + 7) // 8 * 8


@neutral
def inverse(order: Tensor) -> Tensor:
    """The inverse of a permutation."""
    result = torch.empty_like(order)
    result[order.long()] = torch.arange(len(order), dtype=order.dtype, device=order.device)
    return result


def edge_index(columns: Tensor, rows: Tensor, inverse: Tensor | None) -> Tensor:
    """Sources and destinations in the order that they were given in."""
    index = torch.stack([columns, rows]).long()
    return index if inverse is None else index.index_select(1, inverse)


def expand(offsets: Tensor, edges: int) -> Tensor:
    """The row of each edge."""
    counts = offsets[1:] - offsets[:-1]
    if not len(offsets) or int(offsets[0]) != 0 or bool((counts < 0).any()) or int(offsets[-1]) != edges:
        raise ValueError(f"offsets: should ascend from 0 to the number of edges, {edges}")
    return torch.repeat_interleave(torch.arange(len(counts), device=offsets.device), counts)


def weights(weight: Any, edges: int) -> Tensor:
    """Weights of edges, as floats: E, or E × heads."""
    weight = torch.as_tensor(weight)
    check_weights(tuple(weight.shape), edges)
    weight = weight.squeeze(1) if weight.shape[1:] == (1,) else weight
    weight = weight if weight.dtype in FORMATS else weight.float()
    # A graph outlives the mode that it is made in.
    return _normal(weight) if weight.is_inference() else weight


@neutral
def _normal(tensor: Tensor) -> Tensor:
    return tensor.clone()


@neutral
def loops(index: Tensor, count: int) -> tuple[Tensor, Tensor, Any]:
    """Edges with one loop at each of the first vertices; which edges are kept; loops that there were."""
    is_loop = index[0] == index[1]
    kept, old = (~is_loop).nonzero().squeeze(1), is_loop.nonzero().squeeze(1)
    loop = torch.arange(count, device=index.device)
    return torch.cat([index[:, kept], torch.stack([loop, loop])], dim=1), kept, (old, index[0][old])


def last_loops(values: Tensor, weight: Tensor, vertices: Tensor, places: Tensor) -> Tensor:
    """``values``, which are those of each vertex's last loop, with the gradients that PyG gives: all loops of a vertex have its gradient.

    Of several loops of a vertex the last one counts, on a GPU as well, where writing all their weights to one place would take any of them.
    """
    if not weight.requires_grad:
        return values
    written = values.detach().index_put((vertices,), weight.index_select(0, places))
    return values + (written - written.detach())


def looped(weight: Tensor, kept: Tensor, loops: Any, fill_value: float, count: int) -> Tensor:
    """Weights of edges with loops."""
    of_loops = weight.new_full((count, *weight.shape[1:]), fill_value)
    if len(loops[0]):
        places, vertices = loops
        last = places.new_zeros(count).scatter_reduce(0, vertices, places, "amax", include_self=False)
        of_loops = last_loops(of_loops.index_put((vertices,), weight.detach().index_select(0, last[vertices])), weight, vertices, places)
    return torch.cat([weight.index_select(0, kept), of_loops])


def counts(ids: Tensor, length: int) -> Tensor:
    """How often each id is there."""
    return torch.bincount(ids, minlength=length)


@neutral
def power(degrees: Tensor, power: float) -> Tensor:
    """Degrees, at least 1, to a power."""
    return degrees.clamp(min=1).float().pow(power)


@neutral
def masked(factors: Tensor, degrees: Tensor) -> Tensor:
    """The factors, zero where a degree is."""
    return factors * (degrees > 0)


def place_of(graph: Graph) -> Place:
    """Where batches of a graph are sampled."""
    return place(graph.device)


@neutral
def sampled(adjacency: _core.Adjacency, whole: Graph) -> tuple[Graph, Tensor | None]:
    """The graph of a batch of ``whole``, and which of its edges each one is, in its order, if that is known."""
    _settle(whole.device)
    arrays, edges = made(adjacency, _empty_on(whole.device), address)
    return Graph._of_arrays(arrays), edges


def copied(vertices: _core.Vertices, whole: Graph) -> Tensor:
    """Vertices of a batch of ``whole``, int64."""
    ids = _empty_on(whole.device)(len(vertices))
    _settle(whole.device)
    vertices.copy_to(address(ids))
    return ids.long()


def long(numbers: Tensor) -> Tensor:
    """As int64."""
    return numbers.long()


def take(values: Tensor, places: Tensor) -> Tensor:
    """The values of these places."""
    return values.index_select(0, places)


def rows(values: Any, places: Tensor) -> Tensor | None:
    """Rows of what a person gave, where the places lie, or None."""
    if values is None:
        return None
    chosen: Tensor = torch.as_tensor(values)
    return chosen.index_select(0, places.to(chosen.device)).to(places.device)


def words(numbers: Tensor) -> Tensor:
    """As words of 32 bits."""
    return aligned(numbers.to(torch.int32))


def on_host(values: Any) -> Tensor:
    """In one piece in the host's memory."""
    return torch.as_tensor(values).detach().cpu().contiguous()


def settle(whole: Graph) -> None:
    """Waits for torch's work where the graph lies: halfgnn has a stream of its own."""
    _settle(whole.device)


def output(rows: int, columns: int, number: int, whole: Graph) -> tuple[Tensor, tuple[int, int, int, int]]:
    """A matrix of a format where the graph lies, and how the extension module takes it."""
    dtype, lanes = next((dtype, lanes) for dtype, (of, lanes) in FORMATS.items() if of == number)
    stride = -(-columns // lanes) * lanes
    padded = aligned(torch.empty((rows, stride), dtype=dtype, device=whole.device))
    return padded[:, :columns], (address(padded), rows, columns, stride)


def first(count: int, whole: Graph) -> Tensor:
    """The first places, int64."""
    return torch.arange(count, device=whole.device)


def marked(places: Any, count: int, whole: Graph) -> Tensor:
    """Whether each of a number of places is one of these."""
    mask = torch.zeros(count, dtype=torch.bool)
    mask[torch.as_tensor(places.astype("int64"))] = True
    return mask.to(whole.device)


def places(mask: Tensor) -> Tensor:
    """Where it is true, int64."""
    return mask.nonzero().squeeze(1)


def beside(values: Any, whole: Graph) -> Tensor:
    """An array where the graph lies."""
    return torch.as_tensor(values).to(whole.device)


def mover(device: torch.device) -> Callable[[Any], Any]:
    """Moves arrays, which may be NumPy's or absent, to a device."""

    @neutral
    def move(value: Any) -> Any:
        return None if value is None else torch.as_tensor(value).to(device)

    return move


def moved(weight: Any, device: torch.device) -> Any:
    """Weights on a device, with the gradients of those that they are of."""
    return None if weight is None else weights(torch.as_tensor(weight).to(device), len(weight))
