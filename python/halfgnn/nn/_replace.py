"""One line for a model that is there, and one that undoes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch_geometric.nn as pyg

from ._layer import LAYERS

#: What a replaced layer has in its ``__dict__``, so that copies and files of it know.
_MARK = "_halfgnn_replaced"


@dataclass
class Replaced:
    """What :func:`replace` did, by the names of modules."""

    #: Layers that run on halfgnn's operators.
    replaced: list[str] = field(default_factory=list)
    #: Message-passing layers that run on PyG's operators, and why.
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        count = len(self.replaced)
        text = f"{count} layer{'' if count == 1 else 's'} replaced"
        if self.left:
            text += "; left: " + ", ".join(f"{name} ({reason})" for name, reason in self.left.items())
        return text


def replace(model: torch.nn.Module) -> Replaced:
    """Makes PyG's layers in a model halfgnn's of the same name, in place, where :mod:`halfgnn.nn` has one.

    Parameters, buffers, hooks, optimizers and the keys of the ``state_dict`` stay what they are. A layer whose configuration halfgnn
    has no operator for is left: edge features of attention (``edge_dim``), another aggregator, the reverse flow, a class of the user's own.
    :func:`restore` undoes it.

    Returns:
        What was replaced, and what was left and why: :func:`str` of it is a line for a person.

    >>> from torch_geometric.nn import GAT
    >>> print(halfgnn.nn.replace(GAT(8, 16, num_layers=2, out_channels=3, heads=4)))
    2 layers replaced
    """
    done = Replaced()
    for name, module in model.named_modules():
        if not isinstance(module, pyg.MessagePassing):
            continue
        kind = type(module)
        base = _base(kind)
        if base is None:
            done.left[name] = f"halfgnn has no {kind.__name__}"
            continue
        replacement: Any = LAYERS[base]
        known = kind is base or isinstance(module, replacement)
        reason = replacement._unsupported(module)
        if known and reason is None:
            if kind is base:
                module.__class__ = replacement
                module.__dict__[_MARK] = True
            done.replaced.append(name)
        else:
            done.left[name] = reason or f"its class {kind.__name__} derives from PyG's {base.__name__}, not from halfgnn's"
    return done


def restore(model: torch.nn.Module) -> list[str]:
    """Undoes :func:`replace`, in place: the layers that it replaced are PyG's again, with the same parameters, buffers and hooks. Layers
    that were made as halfgnn's stay.

    Returns:
        The names of the layers that were restored.
    """
    restored = []
    for name, module in model.named_modules():
        if module.__dict__.pop(_MARK, False):
            module.__class__ = type(module)._pyg
            module.__dict__.pop("_cached_graph", None)
            restored.append(name)
    return restored


def _base(kind: type) -> type | None:
    """The class of PyG's of which halfgnn has a layer: the nearest that a class derives from."""
    return next((each for each in kind.__mro__ if each in LAYERS), None)
