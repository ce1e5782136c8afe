"""What the examples share: options, made data of the shapes of the usual data sets, and metrics."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import seed_everything
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import to_undirected


def options(doc: str | None, arguments: Sequence[str] | None, **defaults: Any) -> argparse.Namespace:
    """The options of an example: those that all have, and its own by their defaults. The seed is set."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true", help="run the model on PyG's own operators")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, default in {"seed": 0, "lr": 0.01, "epochs": 50, **defaults}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"default {default}")
    chosen = parser.parse_args(arguments)
    # PyG samples negatives by Python's random numbers.
    seed_everything(chosen.seed)
    return chosen


def classes_graph(vertices: int, degree: int, features: int, classes: int, directed: bool = False) -> Data:
    """Vertices that mostly have edges within their class, and features that say a little of it; half of them to train on."""
    label = torch.randint(classes, (vertices,))
    by_class, sizes = label.argsort(), torch.bincount(label, minlength=classes)
    first = sizes.cumsum(0) - sizes
    target = torch.randint(vertices, (vertices * degree // (1 if directed else 2),))
    near = first[label[target]] + torch.rand(len(target)).mul(sizes[label[target]]).long()
    source = torch.where(torch.rand(len(target)) < 0.8, by_class[near.clamp(max=vertices - 1)], torch.randint(vertices, (len(target),)))
    index = torch.stack([source, target])
    x = torch.randn(vertices, features)
    x[:, :classes] += F.one_hot(label, classes)[:, :features]
    part = torch.rand(vertices)
    return Data(
        x=x,
        y=label,
        edge_index=index if directed else to_undirected(index, num_nodes=vertices),
        train_mask=part < 0.5,
        val_mask=(part >= 0.5) & (part < 0.75),
        test_mask=part >= 0.75,
    )


def molecules(count: int, kinds: int = 7, bonds: int = 4) -> list[Data]:
    """Rings and chains of atoms with bonds in both directions. A ring is of class 1; the value counts atoms of the first kind."""
    graphs = []
    for at in range(count):
        atoms = int(torch.randint(8, 24, ()))
        chain = torch.stack([torch.arange(atoms - 1), torch.arange(1, atoms)])
        is_ring = at % 2
        if is_ring:
            chain = torch.cat([chain, torch.tensor([[atoms - 1], [0]])], dim=1)
        kind, bond = torch.randint(kinds, (atoms,)), torch.randint(bonds, (chain.shape[1],))
        value = (kind == 0).float().mean() + 0.1 * is_ring
        graphs.append(
            Data(
                x=F.one_hot(kind, kinds).float(),
                kind=kind,
                bond=torch.cat([bond, bond]),
                edge_index=torch.cat([chain, chain.flip(0)], dim=1),
                y=torch.tensor([is_ring]),
                value=value.view(1),
            )
        )
    return graphs


def relations_graph(vertices: int, edges: int, relations: int, classes: int) -> Data:
    """Vertices without features, as of AIFB: the type of an edge says the class of its destination."""
    label = torch.randint(classes, (vertices,))
    index = torch.randint(vertices, (2, edges))
    spread = torch.randint(relations // classes, (edges,))
    kind = torch.where(torch.rand(edges) < 0.8, label[index[1]] * (relations // classes) + spread, torch.randint(relations, (edges,)))
    order = torch.randperm(vertices)
    return Data(edge_index=index, edge_type=kind, y=label, num_nodes=vertices, train_idx=order[: vertices // 2], test_idx=order[vertices // 2 :])


def ratings(users: int, movies: int, count: int) -> HeteroData:
    """Users without features who rate movies from 0 to 4, as of MovieLens: both have tastes, and near ones rate high."""
    tastes, genres = torch.randn(users, 4), torch.randn(movies, 4)
    pairs = torch.stack([torch.randint(users, (count,)), torch.randint(movies, (count,))]).unique(dim=1)
    data = HeteroData()
    data["user"].x = torch.cat([tastes + 0.5 * torch.randn(users, 4), torch.ones(users, 1)], dim=1)
    data["movie"].x = torch.cat([genres + 0.5 * torch.randn(movies, 4), torch.ones(movies, 1)], dim=1)
    data["user", "rates", "movie"].edge_index = pairs
    data["user", "rates", "movie"].edge_label = ((tastes[pairs[0]] * genres[pairs[1]]).sum(1) + 2).round().clamp(0, 4).long()
    return data


def accuracy(out: Tensor, y: Tensor) -> float:
    """The share of rows whose largest entry is that of their class."""
    return float((out.argmax(-1) == y).float().mean()) if len(y) else 0.0


def auc(score: Tensor, label: Tensor) -> float:
    """The share of pairs of a positive and a negative of which the positive's score is the larger; equal ones count half."""
    positive, negative = score[label > 0], score[label <= 0].sort().values
    below = torch.searchsorted(negative, positive) + torch.searchsorted(negative, positive, right=True)
    return float(below.double().mean() / (2 * len(negative)))
