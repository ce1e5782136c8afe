"""Classes of vertices by UniMP: graph transformers that read the labels of other vertices, on made data of the shape of ogbn-arxiv, smaller.

    python examples/pyg/unimp.py            # on halfgnn's operators
    python examples/pyg/unimp.py --plain    # on PyG's
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from common import accuracy, classes_graph, options
from torch_geometric.nn import MaskLabel, TransformerConv
from torch_geometric.utils import index_to_mask

import halfgnn


class UniMP(torch.nn.Module):
    def __init__(self, features: int, classes: int, hidden: int, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.labels = MaskLabel(classes, features)
        self.convs, self.norms = torch.nn.ModuleList(), torch.nn.ModuleList()
        for layer in range(1, layers + 1):
            last = layer == layers
            out = classes if last else hidden // heads
            self.convs.append(TransformerConv(features, out, heads, concat=not last, beta=True, dropout=dropout))
            if not last:
                self.norms.append(torch.nn.LayerNorm(hidden))
            features = hidden

    def forward(self, x, y, edge_index, label_mask):
        x = self.labels(x, y, label_mask)
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x, edge_index)).relu()
        return self.convs[-1](x, edge_index)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(
        __doc__, arguments, vertices=10000, degree=14, features=128, hidden=64, heads=2, layers=3, epochs=20, dropout=0.3, lr=0.001
    )
    data = classes_graph(args.vertices, args.degree, args.features, 40).to(args.device)
    model = UniMP(data.num_features, 40, args.hidden, args.layers, args.heads, args.dropout).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    train = data.train_mask.nonzero().view(-1)
    losses = []
    for _ in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        # Of the training vertices a part shows its labels, and the others are learned from.
        shown = torch.rand(len(train)).to(train.device) < 0.65
        shows = index_to_mask(train[shown], size=data.num_nodes)
        learnt = train[~shown]
        out = model(data.x, data.y, data.edge_index, shows)
        loss = F.cross_entropy(out[learnt], data.y[learnt])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        out = model.eval()(data.x, data.y, data.edge_index, data.train_mask)
    print(f"loss {losses[-1]:.4f}, accuracy {accuracy(out[data.test_mask], data.y[data.test_mask]):.3f}")
    return losses


if __name__ == "__main__":
    main()
