"""The extension module: what it takes are addresses and sizes."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

__version__: str
#: Bytes of a result from which on the direct operators leave it to the general ones.
LARGE: int

__all__ = [
    "Adjacency",
    "Data",
    "DeviceOutOfMemoryError",
    "LARGE",
    "Rows",
    "Sampler",
    "Stored",
    "Trainer",
    "Vertices",
    "__version__",
    "adjacency",
    "dot_backward",
    "dot_forward",
    "messages_backward",
    "messages_forward",
    "reduce_backward",
    "reduce_forward",
    "edge_softmax",
    "edge_softmax_backward",
    "emulate",
    "gat_backward",
    "gat_forward",
    "gathered_stride",
    "gatv2_backward",
    "gatv2_forward",
    "is_mask",
    "kernels",
    "kernels_in",
    "limits",
    "load",
    "nearest",
    "processor",
    "register",
    "sddmm",
    "set_threads",
    "spmm",
    "survey",
    "threads",
    "transposed",
]

_Place = tuple[int, int, int]
_Array = tuple[int, int]
_Matrix = tuple[int, int, int, int]
_Adjacency = tuple[int, int, int, int, int, int]
_Allocate = Callable[[int], tuple[object, int]]

class DeviceOutOfMemoryError(MemoryError): ...

@final
class Adjacency:
    def shape(self) -> list[int]: ...
    def words(self) -> int: ...
    def is_mapped(self) -> bool: ...
    def copy_to(self, words: int, order: int) -> None: ...

_Tensors = dict[str, tuple[list[int], list[float]]]

@final
class Data:
    def __new__(
        cls,
        name: str,
        offsets: _Array,
        columns: _Array,
        weights: _Array | None,
        features: _Array,
        targets: tuple[str, int, _Array],
        train: _Array,
        validation: _Array,
        test: _Array,
    ) -> Data: ...
    @staticmethod
    def open(name: str | PathLike[str]) -> Data: ...
    def counts(self) -> list[int]: ...

@final
class Trainer:
    def __new__(cls, place: _Place, format: int, data: Data, options: Any) -> Trainer: ...
    @staticmethod
    def load(
        place: _Place, path: str | PathLike[str], data: Data, epochs: int | None
    ) -> Trainer: ...
    def step(self) -> None: ...
    def loss(self) -> float: ...
    def next_epoch(self) -> str | None: ...
    def evaluate(self) -> str: ...
    def logits(self) -> tuple[int, int, list[float]]: ...
    def summary(self) -> tuple[str, float, str, str]: ...
    def save(self, path: str | PathLike[str]) -> None: ...
    def state_dict(self, dgl: bool) -> tuple[_Tensors, list[str]]: ...
    def load_state_dict(self, dgl: bool, tensors: _Tensors) -> None: ...
    def state(self) -> tuple[str, int, bool, float]: ...

@final
class Vertices:
    def __len__(self) -> int: ...
    def copy_to(self, address: int) -> None: ...

@final
class Stored:
    @staticmethod
    def open(folder: str | PathLike[str]) -> Stored: ...
    @staticmethod
    def of_file(
        path: str | PathLike[str], start: int, shape: tuple[int, int], format: int
    ) -> Stored: ...
    def shape(self) -> tuple[int, int]: ...
    def format(self) -> int: ...

@final
class Rows:
    @staticmethod
    def stored(place: _Place, format: int, stored: Stored) -> Rows: ...
    @staticmethod
    def host(place: _Place, format: int, matrix: _Matrix) -> Rows: ...
    def take(self, vertices: _Array, to: _Matrix) -> None: ...
    def cache(self, vertices: _Array) -> None: ...
    def read_ahead(self, vertices: _Array) -> None: ...

@final
class Sampler:
    def __new__(
        cls,
        place: _Place,
        offsets: _Array,
        columns: _Array,
        vertices: _Array,
        policy: str,
        size: tuple[int | None, int | None],
        order: tuple[bool | None, bool],
        seed: int,
    ) -> Sampler: ...
    def __len__(self) -> int: ...
    def layers(self) -> int | None: ...
    def sample(self, epoch: int, number: int) -> tuple[list[Adjacency], Vertices]: ...
    def has_norms(self) -> bool: ...
    def copy_norms(self, edges: _Array, vertices: _Array) -> None: ...

def adjacency(place: _Place, shape: tuple[int, int], rows: _Array, columns: _Array) -> Adjacency: ...
def transposed(place: _Place, a: _Adjacency) -> Adjacency: ...
def gathered_stride(format: int, columns: int) -> int: ...
def spmm(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    x: _Matrix,
    y: _Matrix,
    weights: _Array | None,
    heads: int,
    row_scale: _Array | None,
    column_scale: _Array | None,
    bias: _Matrix | None,
    epsilon: _Array | None,
    relu: bool,
    maximum: bool,
) -> None: ...
def sddmm(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    u: _Matrix,
    v: _Matrix,
    e: _Array,
    heads: int,
) -> None: ...
def edge_softmax(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    e: _Array,
    rows: _Array,
    heads: int,
) -> None: ...
def edge_softmax_backward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    alpha: _Array,
    d: _Array,
    rows: _Array,
    heads: int,
) -> None: ...
def gat_forward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    layer: Any,
    y: _Matrix,
    positive: _Matrix | None,
) -> None: ...
def gat_backward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    transposed: _Adjacency,
    layer: Any,
    gradients: Any,
) -> None: ...
def dot_forward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    inputs: Any,
    y: _Matrix,
) -> None: ...
def dot_backward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    transposed: _Adjacency,
    inputs: Any,
    gradients: Any,
) -> None: ...
def messages_forward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    inputs: Any,
    y: _Matrix,
) -> None: ...
def messages_backward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    transposed: _Adjacency,
    inputs: Any,
    outputs: Any,
) -> None: ...
def reduce_forward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    inputs: Any,
    outputs: tuple[_Matrix | None, ...],
) -> None: ...
def reduce_backward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    transposed: _Adjacency,
    inputs: Any,
    outputs: Any,
) -> None: ...
def gatv2_forward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    layer: Any,
    y: _Matrix,
) -> None: ...
def gatv2_backward(
    place: _Place,
    allocate: _Allocate,
    format: int,
    a: _Adjacency,
    transposed: _Adjacency,
    layer: Any,
    gradients: Any,
) -> None: ...
def emulate(wanted: bool) -> None: ...
def is_mask(name: str, kind: int, numbers: _Array, vertices: int) -> bool: ...
def kernels_in(folder: str | PathLike[str]) -> None: ...
def limits() -> dict[str, int]: ...
def load(place: _Place) -> None: ...
def nearest(given: str, known: list[str]) -> str | None: ...
def register(functions: dict[str, int]) -> str | None: ...
def kernels() -> list[str]: ...
def processor() -> str: ...
def survey() -> list[str]: ...
def set_threads(threads: int) -> None: ...
def threads() -> int: ...
