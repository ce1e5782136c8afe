"""Ratings of movies by users: a GraphSAGE of two types of vertices, and a decoder of pairs, on made data of the shape of MovieLens.

    python examples/pyg/hetero_link_pred.py            # on halfgnn's operators
    python examples/pyg/hetero_link_pred.py --plain    # on PyG's
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from common import options, ratings
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.transforms import RandomLinkSplit, ToUndirected

import halfgnn

PAIR = ("user", "rates", "movie")


class Encoder(torch.nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.conv1 = SAGEConv((-1, -1), hidden)
        self.conv2 = SAGEConv((-1, -1), hidden)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class Net(torch.nn.Module):
    def __init__(self, hidden: int, metadata: tuple[list[str], list[tuple[str, str, str]]]) -> None:
        super().__init__()
        self.encoder = to_hetero(Encoder(hidden), metadata, aggr="sum")
        self.decoder = torch.nn.Sequential(torch.nn.Linear(2 * hidden, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))

    def forward(self, x_dict, edge_index_dict, pairs):
        z = self.encoder(x_dict, edge_index_dict)
        return self.decoder(torch.cat([z["user"][pairs[0]], z["movie"][pairs[1]]], dim=-1)).view(-1)


def main(arguments: Sequence[str] | None = None) -> list[float]:
    args = options(__doc__, arguments, users=610, movies=9742, ratings=100836, hidden=32, epochs=30, dropout=0.0)
    data = ToUndirected()(ratings(args.users, args.movies, args.ratings))
    # Labels of the other direction.
    del data["movie", "rev_rates", "user"].edge_label
    split = RandomLinkSplit(
        num_val=0.1, num_test=0.1, neg_sampling_ratio=0.0, edge_types=[PAIR], rev_edge_types=[("movie", "rev_rates", "user")]
    )
    train, _, test = (part.to(args.device) for part in split(data))
    model = Net(args.hidden, train.metadata()).to(args.device)
    with torch.no_grad():
        # Layers learn the widths of their inputs from the first.
        model.encoder(train.x_dict, train.edge_index_dict)
    if not args.plain:
        print(halfgnn.nn.accelerate(model))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    # Rare ratings weigh more.
    counts = torch.bincount(train[PAIR].edge_label)
    weight = counts.max() / counts.clamp(min=1)

    def error(part):
        target = part[PAIR].edge_label
        out = model(part.x_dict, part.edge_index_dict, part[PAIR].edge_label_index)
        return out, (weight[target] * (out - target).square()).mean()

    losses = []
    for _ in range(args.epochs):
        optimizer.zero_grad()
        _, loss = error(train)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        out, _ = error(test)
    rmse = (out.clamp(0, 4) - test[PAIR].edge_label).square().mean().sqrt()
    print(f"loss {losses[-1]:.4f}, root of the mean square error {float(rmse):.3f}")
    return losses


if __name__ == "__main__":
    main()
