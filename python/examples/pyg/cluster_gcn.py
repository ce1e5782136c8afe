"""Classes of vertices on clusters of a graph, by a GraphSAGE, on made data of the shape of Reddit, smaller.

    python examples/pyg/cluster_gcn.py            # on halfgnn's operators
    python examples/pyg/cluster_gcn.py --plain    # on PyG's

Clusters are halfgnn's in both: PyG's ClusterData needs METIS, by pyg-lib or torch-sparse.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import accuracy, classes_graph, options
from torch_geometric.nn import SAGEConv

import halfgnn


class Net(torch.nn.Module):
    def __init__(self, features: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(features, hidden), SAGEConv(hidden, classes)])
        self.dropout = dropout

    def forward(self, x, edge_index):
        x = F.dropout(self.convs[0](x, edge_index).relu(), self.dropout, self.training)
        return self.convs[1](x, edge_index)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(
        __doc__, arguments, vertices=20000, degree=30, features=602, hidden=128, clusters=150, batch=20, epochs=5, dropout=0.5, lr=0.005
    )
    data = classes_graph(args.vertices, args.degree, args.features, 41).to(args.device)
    loader = halfgnn.Loader(data, f"cluster:{args.clusters}", args.batch, input_nodes=data.train_mask, seed=args.seed)
    model = Net(data.num_features, args.hidden, 41, args.dropout).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for _ in range(args.epochs):
        model.train()
        total, seen = 0.0, 0
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.graph.edge_index)[batch.learn]
            loss = F.cross_entropy(out, batch.y)
            loss.backward()
            optimizer.step()
            total, seen = total + loss.item() * batch.batch_size, seen + batch.batch_size
        losses.append(total / seen)
    with torch.no_grad():
        out = model.eval()(data.x, data.edge_index)
    print(f"loss {losses[-1]:.4f}, accuracy {accuracy(out[data.test_mask], data.y[data.test_mask]):.3f}")
    return losses


if __name__ == "__main__":
    main()
