"""Which edges are missing: a GCN encodes vertices, and dot products score pairs, on made data of the shape of Cora.

    python examples/pyg/link_pred.py            # on halfgnn's operators
    python examples/pyg/link_pred.py --plain    # on PyG's
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import auc, classes_graph, options
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import negative_sampling

import halfgnn


class Net(torch.nn.Module):
    def __init__(self, features: int, hidden: int, out: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(features, hidden)
        self.conv2 = GCNConv(hidden, out)

    def encode(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)

    @staticmethod
    def decode(z, pairs):
        return (z[pairs[0]] * z[pairs[1]]).sum(dim=-1)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(__doc__, arguments, vertices=2708, degree=4, features=1433, hidden=128, out=64, dropout=0.0)
    split = RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True, add_negative_train_samples=False)
    train, _, test = split(classes_graph(args.vertices, args.degree, args.features, 7))
    train, test = train.to(args.device), test.to(args.device)
    model = Net(train.num_features, args.hidden, args.out).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for _ in range(args.epochs):
        optimizer.zero_grad()
        z = model.encode(train.x, train.edge_index)
        # Other negatives in each epoch.
        negative = negative_sampling(train.edge_index, num_nodes=train.num_nodes, num_neg_samples=train.edge_label_index.shape[1])
        score = model.decode(z, torch.cat([train.edge_label_index, negative], dim=1))
        label = torch.cat([train.edge_label, train.edge_label.new_zeros(negative.shape[1])])
        loss = F.binary_cross_entropy_with_logits(score, label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        score = model.decode(model.encode(test.x, test.edge_index), test.edge_label_index)
    print(f"loss {losses[-1]:.4f}, AUC {auc(score, test.edge_label):.3f}")
    return losses


if __name__ == "__main__":
    main()
