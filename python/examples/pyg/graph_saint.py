"""Classes of vertices on subgraphs of random walks, with GraphSAINT's norms, on made data of the shape of Flickr, smaller.

    python examples/pyg/graph_saint.py            # on halfgnn's operators
    python examples/pyg/graph_saint.py --plain    # on PyG's

Subgraphs are halfgnn's in both: PyG's GraphSAINTRandomWalkSampler needs torch-sparse.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import accuracy, classes_graph, options
from torch_geometric.nn import GraphConv

import halfgnn


class Net(torch.nn.Module):
    def __init__(self, features: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([GraphConv(features, hidden), GraphConv(hidden, hidden), GraphConv(hidden, hidden)])
        self.lin = torch.nn.Linear(3 * hidden, classes)
        self.dropout = dropout

    def forward(self, x, edge_index, edge_weight):
        outs = []
        for conv in self.convs:
            x = F.dropout(conv(x, edge_index, edge_weight).relu(), self.dropout, self.training)
            outs.append(x)
        return self.lin(torch.cat(outs, dim=-1))


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(__doc__, arguments, vertices=10000, degree=10, features=500, hidden=64, roots=600, epochs=5, dropout=0.2, lr=0.001)
    data = classes_graph(args.vertices, args.degree, args.features, 7).to(args.device)
    source, destination = data.edge_index
    # Each sum is a mean: an edge weighs one over the degree of its destination.
    mean = 1.0 / torch.bincount(destination, minlength=data.num_nodes).clamp(min=1)[destination]
    loader = halfgnn.Loader(data, f"saint-rw:{args.roots},2", input_nodes=data.train_mask, coverage=20, seed=args.seed)
    model = Net(data.num_features, args.hidden, 7, args.dropout).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for _ in range(args.epochs):
        model.train()
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.graph.edge_index, mean[batch.e_id] * batch.edge_norm)[batch.learn]
            loss = (F.cross_entropy(out, batch.y, reduction="none") * batch.node_norm).sum()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        losses.append(total)
    with torch.no_grad():
        out = model.eval()(data.x, data.edge_index, mean)
    print(f"loss {losses[-1]:.4f}, accuracy {accuracy(out[data.test_mask], data.y[data.test_mask]):.3f}")
    return losses


if __name__ == "__main__":
    main()
