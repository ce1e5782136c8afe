"""What this installation has."""

from __future__ import annotations

import importlib.util

from . import _core


def show_config() -> None:
    """Prints what there is: the CPU's architecture, vectors and threads, GPUs, kernels inside the package, and which operators torch calls
    directly, and which through Python, as all are where its version has no other way. Imports torch where it is installed."""
    print("\n".join(_lines()))


def _lines() -> list[str]:
    lines = [f"halfgnn {_core.__version__}", f"CPU: {_core.processor()}, {_core.threads()} threads"]
    try:
        cards = _core.survey()
        lines += [f"cuda:{number}: {card}" for number, card in enumerate(cards)]
        if not cards:
            lines.append("no GPU")
    except Exception as error:
        lines.append(f"no GPU: {error}")
    lines += _core.kernels()
    if importlib.util.find_spec("torch") is None:
        lines.append("torch: not installed")
        return lines
    import torch

    from . import _eager

    return [*lines, f"torch {torch.__version__}", *_eager.called()]
