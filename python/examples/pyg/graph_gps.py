"""A number for each whole graph by GraphGPS: message passing and attention between all vertices, on made data of the shape of ZINC.

    python examples/pyg/graph_gps.py            # on halfgnn's operators
    python examples/pyg/graph_gps.py --plain    # on PyG's
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from common import molecules, options
from torch.nn import BatchNorm1d, Embedding, Linear, ModuleList, ReLU, Sequential
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool
from torch_geometric.utils import to_dense_adj

import halfgnn


def walks(data, length: int):
    """The chances that random walks of each length end where they begin."""
    step = to_dense_adj(data.edge_index, max_num_nodes=data.num_nodes)[0]
    step = step / step.sum(1, keepdim=True).clamp(min=1)
    chances, power = [], step
    for _ in range(length):
        power = power @ step
        chances.append(power.diagonal())
    data.pe = torch.stack(chances, dim=1)
    return data


class GPS(torch.nn.Module):
    def __init__(self, kinds: int, bonds: int, hidden: int, walk: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.kinds, self.bonds = Embedding(kinds, hidden - width), Embedding(bonds, hidden)
        self.norm, self.walks = BatchNorm1d(walk), Linear(walk, width)
        self.convs = ModuleList()
        for _ in range(layers):
            network = Sequential(Linear(hidden, hidden), ReLU(), Linear(hidden, hidden))
            self.convs.append(GPSConv(hidden, GINEConv(network), heads=4, dropout=dropout, attn_type="multihead"))
        self.head = Sequential(Linear(hidden, hidden // 2), ReLU(), Linear(hidden // 2, 1))

    def forward(self, kind, pe, edge_index, bond, batch):
        x = torch.cat([self.kinds(kind), self.walks(self.norm(pe))], dim=1)
        bond = self.bonds(bond)
        for conv in self.convs:
            x = conv(x, edge_index, batch, edge_attr=bond)
        return self.head(global_add_pool(x, batch)).view(-1)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(__doc__, arguments, graphs=500, batch=32, hidden=64, width=8, walk=20, layers=4, epochs=5, dropout=0.0, lr=0.001)
    graphs = [walks(graph, args.walk) for graph in molecules(args.graphs, kinds=28)]
    test, train = graphs[: args.graphs // 10], graphs[args.graphs // 10 :]
    loader = DataLoader(train, args.batch, shuffle=True)
    model = GPS(28, 4, args.hidden, args.walk, args.width, args.layers, args.dropout).to(args.device)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    losses = []
    for _ in range(args.epochs):
        model.train()
        total = 0.0
        for batch in loader:
            batch = batch.to(args.device)
            optimizer.zero_grad()
            out = model(batch.kind, batch.pe, batch.edge_index, batch.bond, batch.batch)
            loss = (out - batch.value).abs().mean()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.num_graphs / len(train)
        losses.append(total)
    model.eval()
    with torch.no_grad():
        (batch,) = DataLoader(test, len(test))
        batch = batch.to(args.device)
        out = model(batch.kind, batch.pe, batch.edge_index, batch.bond, batch.batch)
    print(f"loss {losses[-1]:.4f}, mean absolute error {float((out - batch.value).abs().mean()):.3f}")
    return losses


if __name__ == "__main__":
    main()
