"""Classes of whole graphs by a GIN of five layers, on made data of the shape of MUTAG.

    python examples/pyg/mutag_gin.py            # on halfgnn's operators
    python examples/pyg/mutag_gin.py --plain    # on PyG's
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import accuracy, molecules, options
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, MLP, global_add_pool

import halfgnn


class Net(torch.nn.Module):
    def __init__(self, features: int, hidden: int, classes: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.gnn = GIN(features, hidden, layers, dropout=dropout)
        self.classifier = MLP([hidden, hidden, classes], norm="batch_norm", dropout=dropout)

    def forward(self, x, edge_index, batch, batch_size):
        x = self.gnn(x, edge_index)
        return self.classifier(global_add_pool(x, batch, size=batch_size))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(__doc__, arguments, graphs=188, batch=128, hidden=32, layers=5, epochs=20, dropout=0.5)
    graphs = molecules(args.graphs)
    test, train = graphs[: args.graphs // 10], graphs[args.graphs // 10 :]
    loader = DataLoader(train, args.batch, shuffle=True)
    model = Net(train[0].num_features, args.hidden, 2, args.layers, args.dropout).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for _ in range(args.epochs):
        model.train()
        total = 0.0
        for batch in loader:
            batch = batch.to(args.device)
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index, batch.batch, batch.batch_size)
            loss = F.cross_entropy(out, batch.y)
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.num_graphs / len(train)
        losses.append(total)
    model.eval()
    with torch.no_grad():
        (batch,) = DataLoader(test, len(test))
        batch = batch.to(args.device)
        out = model(batch.x, batch.edge_index, batch.batch, batch.batch_size)
    print(f"loss {losses[-1]:.4f}, accuracy {accuracy(out, batch.y):.3f}")
    return losses


if __name__ == "__main__":
    main()
