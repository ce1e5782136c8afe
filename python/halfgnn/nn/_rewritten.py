"""Copies of functions, for which names of PyG's functions mean halfgnn's.

A copy has the code of its function. Its globals look each name up in those of the function when it is read, so that later changes of a
module are seen, and give a substitute for what PyG's functions of :data:`~halfgnn.nn._reductions.FUNCTIONS` are: under any name, as an
attribute of ``torch_geometric.utils``, in a closure, or in functions that are called and use one. No function and no module is changed.
"""

from __future__ import annotations

import builtins
import dis
import types
import weakref
from typing import Any

from ._reductions import FUNCTIONS

#: Modules through which PyG's functions are reached by attributes.
_MODULES = ("torch_geometric", "torch_geometric.utils")

#: Packages whose functions use none of PyG's.
_OTHERS = ("torch", "halfgnn", "numpy", "scipy", "typing", "builtins")

_used: Any = weakref.WeakKeyDictionary()
_copies: Any = weakref.WeakKeyDictionary()


class _Globals(dict[str, Any]):
    """Globals of a copy. CPython looks names up in a derived class of ``dict`` by its methods."""

    def __init__(self, of: dict[str, Any]) -> None:
        super().__init__(__builtins__=of.get("__builtins__", builtins), __name__=of.get("__name__"))
        self._of = of

    def __missing__(self, name: str) -> Any:
        return substitute(self._of[name])


class _Namespace:
    """A module of PyG's whose functions are substituted."""

    def __init__(self, module: types.ModuleType) -> None:
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        return substitute(getattr(self._module, name))


def substitute(value: Any) -> Any:
    """What a value is for a copy: itself, unless it is one of PyG's functions, or a function or module that leads to one."""
    if isinstance(value, types.FunctionType):
        ours = FUNCTIONS.get(value)
        if ours is not None:
            return ours
        return copied(value) if used(value) else value
    if isinstance(value, types.ModuleType) and _leads(value):
        return _Namespace(value)
    return value


def used(function: types.FunctionType) -> frozenset[str]:
    """Names of PyG's functions that a function uses, itself or in functions that it calls by name."""
    return _search(function, frozenset())[0]


def named(function: types.FunctionType) -> frozenset[str]:
    """As :func:`used`, without those that only PyG's utilities of graphs use, such as ``add_self_loops``, which mostly do not."""
    return _search(function, frozenset())[1]


def _search(function: types.FunctionType, above: frozenset[Any]) -> tuple[frozenset[str], frozenset[str]]:
    """What :func:`used` and :func:`named` are."""
    module = function.__module__ or ""
    if module.partition(".")[0] in _OTHERS:
        return frozenset(), frozenset()
    found = _used.get(function)
    if found is not None:
        return found  # type: ignore[no-any-return]
    names = _names(function.__code__)
    above = above | {function}
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    everything: set[str] = set()
    apparent: set[str] = set()
    for value in [*values, *_contents(function)]:
        of: tuple[Any, Any] = ((), ())
        if isinstance(value, types.FunctionType):
            if value in FUNCTIONS:
                of = {value.__name__}, {value.__name__}
            elif value not in above:
                of = _search(value, above)
        elif isinstance(value, types.ModuleType) and _leads(value):
            reached = {theirs.__name__ for theirs in FUNCTIONS if theirs.__name__ in names}
            of = reached, reached
        everything.update(of[0])
        apparent.update(of[1])
    if module.startswith("torch_geometric.utils"):
        apparent = set()
    result = frozenset(everything), frozenset(apparent)
    if len(above) == 1:
        # Of functions that call one another only the outermost search is whole.
        _used[function] = result
    return result


def _leads(module: types.ModuleType) -> bool:
    return module.__name__ in _MODULES or module.__name__.startswith("torch_geometric.utils.")


def _names(code: types.CodeType) -> set[str]:
    """Names that a code and those inside of it look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _contents(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            # The function's own definition is under way.
            continue
    return found


def refusal(function: types.FunctionType) -> str | None:
    """Why a function cannot be copied, or None where it can."""
    if _writes(function.__code__):
        return f"{function.__qualname__} writes to its module's globals"
    return None


def _writes(code: types.CodeType) -> bool:
    if any(step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for step in dis.get_instructions(code)):
        return True
    return any(_writes(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))


def copied(function: types.FunctionType) -> types.FunctionType:
    """The copy of a function; itself where it cannot be copied."""
    found = _copies.get(function)
    if found is not None and found.__code__ is function.__code__:
        return found  # type: ignore[no-any-return]
    if refusal(function) is not None:
        return function
    closure = function.__closure__
    copy = types.FunctionType(
        function.__code__,
        _Globals(function.__globals__),
        function.__name__,
        function.__defaults__,
        None if closure is None else tuple(_cell(cell) for cell in closure),
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__, copy.__doc__, copy.__annotations__ = function.__qualname__, function.__doc__, function.__annotations__
    _copies[function] = copy
    return copy


def _cell(cell: Any) -> Any:
    """The cell itself, unless a substitute takes the place of what it holds."""
    try:
        value = cell.cell_contents
    except ValueError:
        return cell
    substituted = substitute(value)
    return cell if substituted is value else types.CellType(substituted)
