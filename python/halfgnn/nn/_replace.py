"""One line for a model that is there."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch_geometric.nn as pyg

from . import _convolutions as ours

_CLASSES: dict[type, type] = {
    pyg.GCNConv: ours.GCNConv,
    pyg.SAGEConv: ours.SAGEConv,
    pyg.GINConv: ours.GINConv,
    pyg.GATConv: ours.GATConv,
    pyg.GATv2Conv: ours.GATv2Conv,
}


@dataclass
class Replaced:
    """What :func:`replace` did, by the names of modules."""

    #: Layers that are halfgnn's now.
    replaced: list[str] = field(default_factory=list)
    #: Message-passing layers that stay PyG's, and why.
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{len(self.replaced)} layers replaced"
        if self.left:
            text += "; left: " + ", ".join(f"{name} ({reason})" for name, reason in self.left.items())
        return text


def replace(model: torch.nn.Module) -> Replaced:
    """Makes PyG's ``GCNConv``, ``SAGEConv``, ``GINConv``, ``GATConv`` and ``GATv2Conv`` in a model halfgnn's, in place: parameters, buffers, hooks and
    optimisers stay what they are, and so do the keys of the ``state_dict``.

    Returns:
        What was replaced, and what was left: :func:`str` of it is a line for a person.

    >>> halfgnn.nn.replace(model)  # doctest: +SKIP
    Replaced(replaced=['conv1', 'conv2'], left={})
    """
    done = Replaced()
    for name, module in model.named_modules():
        kind = type(module)
        if kind in _CLASSES:
            module.__class__ = _CLASSES[kind]
            done.replaced.append(name)
        elif kind in _CLASSES.values():
            done.replaced.append(name)
        elif isinstance(module, pyg.MessagePassing):
            done.left[name] = f"halfgnn has no {kind.__name__}"
    return done
