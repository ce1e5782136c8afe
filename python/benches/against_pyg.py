"""PyG's own models on a GPU, before and after ``halfgnn.nn.replace``: milliseconds a training step, and peaks of memory.

    python python/benches/against_pyg.py                     # reddit-like: 232,965 vertices, 114.6 M edges, 602 features
    python python/benches/against_pyg.py --vertices 2449029 --edges 123718280 --features 100 --classes 47 --training 196615   # of products' size
    python python/benches/against_pyg.py --shape rmat                        # edges as the program's `reddit-like` has them
    python python/benches/against_pyg.py --edges 20000000 --only GAT         # what PyG's GAT has memory for
    python python/benches/against_pyg.py --calls             # microseconds of the host a call instead

Edges are random, uniformly or by R-MAT (``--shape``), and in both directions; ``--training`` is the number of vertices that have classes to learn.
A step is a forward and a backward pass and Adam's (fused); two steps are not timed.
Peaks are torch's; *before* is what lay there before the step: features, and the graph in each form.
"""

from __future__ import annotations

import argparse
import copy
import gc
import time

import torch
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

import halfgnn
from halfgnn import Graph
from workload import add_data, milliseconds, random_data, training


def measure(label: str, model: torch.nn.Module, x: torch.Tensor, adjacency: object, y: torch.Tensor, half: bool, count: int) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    try:
        step = training(model, x, adjacency, y, half)
        step(), step()
        taken = f"{milliseconds(step, count):9.2f} ms"
    except torch.OutOfMemoryError:
        taken = "out of memory"
    peak = torch.cuda.max_memory_allocated()
    print(f"  {label:34} {taken}, peak {peak / 2**30:.2f} GiB, before {before / 2**30:.2f}", flush=True)


def models(options: argparse.Namespace) -> None:
    index, x, y = random_data(options)
    vertices, features, classes = options.vertices, options.features, options.classes
    graph = Graph(index, vertices).prepare()
    graph._looped()[0].prepare()
    ones = torch.ones(index.shape[1], device="cuda")
    matrix = torch.sparse_coo_tensor(index, ones, (vertices, vertices)).coalesce().to_sparse_csr()
    kinds = {
        "GCN": lambda: GCN(features, 64, 2, classes, cached=True),
        "GAT, 4 heads": lambda: GAT(features, 64, 2, classes, heads=4),
        "GIN": lambda: GIN(features, 64, 2, classes),
        "GraphSAGE": lambda: GraphSAGE(features, 64, 2, classes),
    }
    for name, make in kinds.items():
        if not name.startswith(options.only):
            continue
        print(name)
        torch.manual_seed(1)
        theirs = make().cuda()
        ours = copy.deepcopy(theirs)
        halfgnn.nn.replace(ours)
        measure("halfgnn, autocast to half", ours, x, graph, y, True, 10)
        measure("halfgnn, float", ours, x, graph, y, False, 5)
        measure("PyG, edge_index, autocast to half", copy.deepcopy(theirs), x, index, y, True, 3)
        measure("PyG, edge_index, float", copy.deepcopy(theirs), x, index, y, False, 3)
        if not name.startswith("GAT"):
            measure("PyG, torch.sparse CSR, float", copy.deepcopy(theirs), x, matrix, y, False, 3)


def calls() -> None:
    graph = Graph(torch.randint(0, 100, (2, 500), device="cuda"), 100).prepare()
    x = torch.randn(100, 64, device="cuda", dtype=torch.float16)
    learnt, att = x.clone().requires_grad_(), torch.randn(1, 64, device="cuda")
    scores = torch.randn(500, device="cuda", dtype=torch.float16)
    halfgnn.show_config()
    operands = (*graph._a, None, None, None, x, None, None, None, None, None, False, False, 1)
    runs = {
        "x + x": lambda: x + x,
        "spmm": lambda: halfgnn.spmm(graph, x),
        "torch.ops.halfgnn.spmm, the general operator": lambda: torch.ops.halfgnn.spmm(*operands),
        "spmm, mean": lambda: halfgnn.spmm(graph, x, reduce="mean"),
        "sddmm": lambda: halfgnn.sddmm(graph, x, x),
        "edge_softmax": lambda: halfgnn.edge_softmax(graph, scores),
        "gat_attention": lambda: halfgnn.gat_attention(graph, x, att, att),
        "spmm with gradients": lambda: halfgnn.spmm(graph, learnt),
        "spmm and its backward pass": lambda: halfgnn.spmm(graph, learnt).sum().backward(),
        "sddmm and its backward pass": lambda: halfgnn.sddmm(graph, learnt, learnt).sum().backward(),
        "gat_attention and its backward pass": lambda: halfgnn.gat_attention(graph, learnt, att, att).sum().backward(),
        "x * 2 and its backward pass": lambda: (learnt * 2).sum().backward(),
    }
    for name, run in runs.items():
        milliseconds(run, 50)
        start = time.perf_counter()
        for _ in range(1000):
            run()
        print(f"{name:46} {(time.perf_counter() - start) * 1e3:.1f} us", flush=True)
        torch.cuda.synchronize()
    index = torch.randint(0, 50_000, (2, 100_000), device="cuda")
    Graph(index, 50_000)
    print(f"{'a graph of 100,000 edges':46} {milliseconds(lambda: Graph(index, 50_000), 20) * 1e3:.0f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="microseconds of the host a call")
    add_data(parser)
    parser.add_argument("--only", default="", choices=("GCN", "GAT", "GIN", "GraphSAGE"), help="one model")
    options = parser.parse_args()
    if options.calls:
        calls()
    else:
        models(options)


if __name__ == "__main__":
    main()
