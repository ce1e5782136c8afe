"""Classes of vertices without features by the types of their edges, by an R-GCN, on made data of the shape of AIFB.

    python examples/pyg/rgcn.py            # on halfgnn's operators
    python examples/pyg/rgcn.py --plain    # on PyG's
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import accuracy, options, relations_graph
from torch_geometric.nn import FastRGCNConv, RGCNConv

import halfgnn


class Net(torch.nn.Module):
    def __init__(self, kind: type, vertices: int, hidden: int, classes: int, relations: int, bases: int) -> None:
        super().__init__()
        self.conv1 = kind(vertices, hidden, relations, num_bases=bases)
        self.conv2 = kind(hidden, classes, relations, num_bases=bases)

    def forward(self, edge_index, edge_type):
        return self.conv2(self.conv1(None, edge_index, edge_type).relu(), edge_index, edge_type)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(
        __doc__, arguments, vertices=8285, edges=58086, relations=88, hidden=16, bases=30, epochs=20, dropout=0.0, fast=1
    )
    data = relations_graph(args.vertices, args.edges, args.relations, 4).to(args.device)
    kind = FastRGCNConv if args.fast else RGCNConv
    model = Net(kind, data.num_nodes, args.hidden, 4, args.relations, args.bases).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    losses = []
    for _ in range(args.epochs):
        optimizer.zero_grad()
        out = model(data.edge_index, data.edge_type)
        loss = F.cross_entropy(out[data.train_idx], data.y[data.train_idx])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        out = model(data.edge_index, data.edge_type)
    print(f"loss {losses[-1]:.4f}, accuracy {accuracy(out[data.test_idx], data.y[data.test_idx]):.3f}")
    return losses


if __name__ == "__main__":
    main()
