"""Classes of vertices in batches of sampled neighbors, by a GraphSAGE or a GAT, on made data of the shape of ogbn-products, smaller.

    python examples/pyg/ogbn_train.py            # on halfgnn's operators
    python examples/pyg/ogbn_train.py --plain    # on PyG's

Batches are halfgnn's in both. PyG's NeighborLoader takes the same arguments where pyg-lib is installed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import accuracy, classes_graph, options
from torch_geometric.nn import GAT, GraphSAGE

import halfgnn
from halfgnn import NeighborLoader


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(
        __doc__, arguments, vertices=50000, degree=25, features=100, hidden=128, batch=1024, epochs=3, dropout=0.5, lr=0.003, model="sage"
    )
    data = classes_graph(args.vertices, args.degree, args.features, 47).to(args.device)
    loader = NeighborLoader(
        data, num_neighbors=[15, 10, 5], input_nodes=data.train_mask, batch_size=args.batch, shuffle=True, seed=args.seed
    )
    evaluated = NeighborLoader(data, num_neighbors=[-1] * 3, input_nodes=data.test_mask, batch_size=args.batch)
    kind = {"sage": GraphSAGE, "gat": GAT}[args.model]
    model = kind(data.num_features, args.hidden, num_layers=3, out_channels=47, dropout=args.dropout).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for _ in range(args.epochs):
        model.train()
        total, seen = 0.0, 0
        for batch in loader:
            optimizer.zero_grad()
            # Layers leave out the edges and vertices of hops that no later layer reads.
            out = model(
                batch.x,
                batch.edge_index,
                num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                num_sampled_edges_per_hop=batch.num_sampled_edges,
            )[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total, seen = total + loss.item() * batch.batch_size, seen + batch.batch_size
        losses.append(total / seen)
    model.eval()
    right = 0.0
    with torch.no_grad():
        for batch in evaluated:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            right += accuracy(out, batch.y[: batch.batch_size]) * batch.batch_size
    print(f"loss {losses[-1]:.4f}, accuracy {right / int(data.test_mask.sum()):.3f}")
    return losses


if __name__ == "__main__":
    main()
