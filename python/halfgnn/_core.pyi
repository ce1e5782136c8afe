"""The extension module: what it takes are addresses and sizes."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

__version__: str

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
    def copy_to(self, words: int, order: int) -> None: ...

def adjacency(place: _Place, shape: tuple[int, int], rows: _Array, columns: _Array) -> Adjacency: ...
def transposed(place: _Place, a: _Adjacency) -> Adjacency: ...
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
def kernels_in(folder: str | PathLike[str]) -> None: ...
def load(place: _Place) -> None: ...
def survey() -> list[str]: ...
def set_threads(threads: int) -> None: ...
def threads() -> int: ...
