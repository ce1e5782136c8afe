"""Classes of vertices by a GCN of two layers, on made data of the shape of Cora.

    python examples/pyg/gcn.py            # on halfgnn's operators
    python examples/pyg/gcn.py --plain    # on PyG's
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import accuracy, classes_graph, options
from torch_geometric.nn import GCNConv

import halfgnn


class GCN(torch.nn.Module):
    def __init__(self, features: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.conv1 = GCNConv(features, hidden, cached=True)
        self.conv2 = GCNConv(hidden, classes, cached=True)
        self.dropout = dropout

    def forward(self, x, edge_index, edge_weight=None):
        x = F.dropout(x, self.dropout, self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, self.dropout, self.training)
        return self.conv2(x, edge_index, edge_weight)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(__doc__, arguments, vertices=2708, degree=4, features=1433, hidden=16, dropout=0.5)
    data = classes_graph(args.vertices, args.degree, args.features, 7).to(args.device)
    model = GCN(data.num_features, args.hidden, 7, args.dropout).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(
        [{"params": model.conv1.parameters(), "weight_decay": 5e-4}, {"params": model.conv2.parameters(), "weight_decay": 0}], lr=args.lr
    )
    losses = []
    for _ in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        out = model.eval()(data.x, data.edge_index)
    print(f"loss {losses[-1]:.4f}, accuracy {accuracy(out[data.test_mask], data.y[data.test_mask]):.3f}")
    return losses


if __name__ == "__main__":
    main()
