"""Embeddings without labels: ends of an edge come near one another, in batches of edges, on made data of the shape of Cora.

    python examples/pyg/graph_sage_unsup.py            # on halfgnn's operators
    python examples/pyg/graph_sage_unsup.py --plain    # on PyG's

Batches are halfgnn's in both. PyG's LinkNeighborLoader takes the same arguments where pyg-lib is installed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import auc, classes_graph, options
from torch_geometric.nn import GraphSAGE

import halfgnn
from halfgnn import LinkLoader


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(__doc__, arguments, vertices=2708, degree=4, features=1433, hidden=64, batch=256, epochs=5, dropout=0.0)
    data = classes_graph(args.vertices, args.degree, args.features, 7).to(args.device)
    loader = LinkLoader(data, num_neighbors=[10, 10], batch_size=args.batch, shuffle=True, neg_sampling_ratio=1.0, seed=args.seed)
    model = GraphSAGE(data.num_features, hidden_channels=args.hidden, num_layers=2, dropout=args.dropout).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for _ in range(args.epochs):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            h = model(batch.x, batch.edge_index)
            source, destination = batch.edge_label_index
            score = (h[source] * h[destination]).sum(dim=-1)
            loss = F.binary_cross_entropy_with_logits(score, batch.edge_label.to(score.device))
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        losses.append(total)
    print(f"loss {losses[-1]:.4f}, AUC of the last batch {auc(score.detach(), batch.edge_label.to(score.device)):.3f}")
    return losses


if __name__ == "__main__":
    main()
