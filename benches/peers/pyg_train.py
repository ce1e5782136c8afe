"""Full-graph training by PyTorch Geometric on the graphs and shapes of `halfgnn bench train`, for its `--against`.

    python3 pyg_train.py GRAPH.csr:FEATURES:CLASSES… > pyg.jsonl
    halfgnn bench train --graph GRAPH.csr --features FEATURES --classes CLASSES --model gcn,gin,gat --against pyg.jsonl

A graph is a raw CSR file: i64 vertices, i64 edges, i32 offsets[vertices + 1], i32 columns[edges]. Features and labels are
random, every vertex is trained on, layers are 64 wide. Every model is run in float and in float16 under autocast with a
scaled loss, each with the adjacency as a sparse matrix and as a list of edges, one line each; what fails or runs out of
memory is reported on stderr. MODELS=gcn,gin,gat and PRECISIONS=float,autocast narrow it down.
"""

import itertools
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.nn import GATConv, GCNConv, GINConv

WIDTH = 64
LAYERS = {"gcn": 2, "gin": 5, "gat": 3}


def load(path):
    """Vertices, offsets and columns of a raw CSR file, on the GPU."""
    with open(path, "rb") as file:
        vertices, edges = (int(x) for x in np.fromfile(file, np.int64, 2))
        offsets = torch.from_numpy(np.fromfile(file, np.int32, vertices + 1)).long()
        columns = torch.from_numpy(np.fromfile(file, np.int32, edges)).long()
    return vertices, offsets.cuda(), columns.cuda()


def convolution(model, inputs, outputs):
    if model == "gcn":
        return GCNConv(inputs, outputs, cached=True)
    if model == "gat":
        return GATConv(inputs, outputs, heads=1, add_self_loops=False)
    linear = torch.nn.Linear
    mlp = torch.nn.Sequential(linear(inputs, outputs), torch.nn.ReLU(), linear(outputs, outputs))
    return GINConv(mlp, aggr="mean")


class Net(torch.nn.Module):
    def __init__(self, model, features, classes):
        super().__init__()
        widths = [features] + [WIDTH] * (LAYERS[model] - 1) + [classes]
        pairs = zip(widths, widths[1:])
        self.layers = torch.nn.ModuleList(convolution(model, a, b) for a, b in pairs)

    def forward(self, x, adjacency):
        for index, layer in enumerate(self.layers):
            x = layer(x, adjacency)
            if index + 1 < len(self.layers):
                x = F.relu(x)
        return x


def adjacency_of(kind, vertices, offsets, columns):
    if kind == "csr":
        ones = torch.ones(columns.numel(), device="cuda")
        return torch.sparse_csr_tensor(offsets, columns, ones, (vertices, vertices))
    rows = torch.repeat_interleave(torch.arange(vertices, device="cuda"), offsets.diff())
    return torch.stack([columns, rows])


def measure(model, kind, precision, graph, features, classes):
    """Milliseconds an epoch and the peak of the allocator in GiB."""
    half = precision == "autocast"
    vertices = graph[0]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    adjacency = adjacency_of(kind, *graph)
    x = torch.randn(vertices, features, device="cuda")
    labels = torch.randint(0, classes, (vertices,), device="cuda")
    net = Net(model, features, classes).cuda()
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", enabled=half)

    def epoch():
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16, enabled=half):
            loss = F.cross_entropy(net(x, adjacency), labels)
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()

    for _ in range(3):
        epoch()
    epochs = 50 if vertices < 10_000 else 5
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(epochs):
        epoch()
    torch.cuda.synchronize()
    ms = (time.perf_counter() - start) / epochs * 1e3
    return ms, torch.cuda.max_memory_allocated() / 2**30


def chosen(variable, default):
    return os.environ.get(variable, default).split(",")


def main():
    for argument in sys.argv[1:]:
        path, features, classes = argument.rsplit(":", 2)
        graph, label = load(path), os.path.splitext(os.path.basename(path))[0]
        runs = itertools.product(
            chosen("MODELS", "gcn,gin,gat"), chosen("PRECISIONS", "float,autocast"), ("csr", "coo")
        )
        for model, precision, kind in runs:
            try:
                ms, gib = measure(model, kind, precision, graph, int(features), int(classes))
            except RuntimeError as error:
                reason = str(error).splitlines()[0]
                print(f"{label} {model} {precision} {kind}: {reason}", file=sys.stderr, flush=True)
                continue
            name = f"PyG {torch_geometric.__version__}, {precision}"
            line = {"name": name, "model": model, "graph": label, "ms": ms, "gib": gib}
            print(json.dumps(line | {"adjacency": kind}), flush=True)


if __name__ == "__main__":
    main()
