"""Where operators run, as the extension module takes it: ``(kind, ordinal, stream)``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import _core

Place = tuple[int, int, int]

_CPU: Place = (0, 0, 0)
_EMULATOR: Place = (2, 0, 0)
_host: Place = _CPU


def host() -> Place:
    """The place of memory of the host: the CPU, or the emulator within :func:`emulated`."""
    return _host


@contextmanager
def emulated() -> Iterator[None]:
    """Has operators on arrays and tensors of the CPU run the GPU's kernels on the PTX emulator, every access checked: for tests.

    Slow: some thousand edges take seconds. For all threads of the process.
    """
    global _host
    _core.load(_EMULATOR)
    before, _host = _host, _EMULATOR
    _core.emulate(True)
    try:
        yield
    finally:
        _host = before
        _core.emulate(before == _EMULATOR)
