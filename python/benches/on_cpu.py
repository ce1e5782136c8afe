"""Products and a GCN on the CPU, ours and torch's, SciPy's and PyG's, milliseconds: the least of several rounds, in which all take turns.

    python python/benches/on_cpu.py                          # 2 threads
    python python/benches/on_cpu.py --threads 8 --rounds 30
    python python/benches/on_cpu.py --only products         # one part of it

Graphs are of the sizes and degrees of squirrel (5,201 vertices, 397,000 edges), of an eighth of amazon, and uniformly random with a
million edges. SciPy's product runs on one thread. The GCN is PyG's example of Cora, 16 hidden columns, a training step with Adam's, on a
graph of Cora's size whose features have as many non-zero values: PyG's model, the same after ``halfgnn.nn.replace``, and
``halfgnn.Trainer``. It needs PyG and SciPy. ``layers.py`` times single layers.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse
import torch
from torch_geometric.nn.models import GCN

import halfgnn
from halfgnn import Graph

#: Vertices, edges, and how unequal in-degrees are: the exponent of weights of vertices, 0 for uniform ones.
GRAPHS = {
    "squirrel-sized": (5_201, 397_000, 0.7),
    "amazon-like / 8": (50_424, 423_000, 0.5),
    "random, 1 M edges": (100_000, 1_000_000, 0.0),
}


def edges(vertices: int, count: int, exponent: float) -> np.ndarray:
    """Sources and destinations, each pair once; vertices of large degree have any number."""
    rng = np.random.default_rng(7)
    weights = (np.arange(vertices) + 10.0) ** -exponent
    cumulated = np.cumsum(weights / weights.sum())
    names = rng.permutation(vertices)
    draw = np.minimum(np.searchsorted(cumulated, rng.random((2, 2 * count))), vertices - 1)
    pairs = np.unique(draw[0] * vertices + draw[1])
    pairs = rng.permutation(pairs)[:count]
    assert len(pairs) == count, f"{len(pairs)} of {count} edges"
    return names[np.stack([pairs // vertices, pairs % vertices])]


def least(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of each, taking turns so that all see the same machine."""
    for run in runs.values():
        run(), run()
    taken = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            taken[name] = min(taken[name], (time.perf_counter() - start) * 1e3)
    return taken


def products(features: int, rounds: int) -> None:
    for name, (vertices, count, exponent) in GRAPHS.items():
        index = edges(vertices, count, exponent)
        graph = Graph(torch.from_numpy(index), vertices)
        matrix = scipy.sparse.csr_matrix((np.ones(count, np.float32), (index[1], index[0])), (vertices, vertices))
        csr = torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr).long(), torch.from_numpy(matrix.indices).long(), torch.from_numpy(matrix.data),
            (vertices, vertices),
        )  # fmt: skip
        x = torch.randn(vertices, features)
        half, array = x.half(), x.numpy()
        difference = (halfgnn.spmm(graph, x) - csr @ x).abs().max().item()
        assert difference < 1e-2, f"{name}: {difference} from torch's product"
        taken = least(
            {
                "halfgnn, float": lambda: halfgnn.spmm(graph, x),
                "halfgnn, half": lambda: halfgnn.spmm(graph, half),
                "torch, CSR, float": lambda: csr @ x,
                "SciPy, CSR, float": lambda: matrix @ array,
            },
            rounds,
        )
        print(f"{name}: {vertices} vertices, {count} edges, F = {features}")
        for label, milliseconds in taken.items():
            print(f"  {label:20} {milliseconds:9.3f} ms")
        ours = taken["halfgnn, float"]
        print(
            f"  torch's / our float {taken['torch, CSR, float'] / ours:.2f} (wanted 1.3), SciPy's / our float "
            f"{taken['SciPy, CSR, float'] / ours:.2f} (2), our float / our half {ours / taken['halfgnn, half']:.2f} (1.3)",
            flush=True,
        )


def gcn(rounds: int) -> None:
    vertices, classes, width = 2_708, 7, 1_433
    torch.manual_seed(0)
    index = torch.from_numpy(edges(vertices, 5_278, 0.4))
    index = torch.cat([index, index.flip(0)], 1)
    x = (torch.rand(vertices, width) < 0.0127).float()
    y = torch.randint(0, classes, (vertices,))
    mask = torch.arange(vertices) < 140
    theirs = GCN(width, 16, 2, classes, dropout=0.5, cached=True)
    ours = copy.deepcopy(theirs)
    halfgnn.nn.replace(ours)
    graph = Graph(index, vertices).prepare()

    def training(model: torch.nn.Module, adjacency: object) -> Callable[[], object]:
        optimizer = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=5e-4)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(x, adjacency)[mask], y[mask]).backward()
            optimizer.step()

        return step

    # As many to validate and to test as Cora has.
    places = torch.arange(vertices)
    masks = {"train_mask": mask, "val_mask": (places >= 140) & (places < 640), "test_mask": places >= vertices - 1000}
    data = {"edge_index": index, "x": x, "y": y, **masks}
    runs = {"PyG": training(theirs, index), "after nn.replace": training(ours, graph)}
    for precision in ("float", "half"):
        trainer = halfgnn.Trainer(
            data, "gcn", precision=precision, device="cpu", hidden=16, layers=2, dropout=0.5, epochs=10**6
        )
        runs[f"Trainer, {precision}"] = trainer.step
    taken = least(runs, rounds)
    print(f"GCN of Cora's size: {vertices} vertices, {index.shape[1]} edges, {width} features, a step")
    for label, milliseconds in taken.items():
        print(f"  {label:20} {milliseconds:9.3f} ms, PyG's / this {taken['PyG'] / milliseconds:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("threads", 2), ("rounds", 15), ("features", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", nargs="*", choices=("products", "gcn"), help="these parts alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    halfgnn.set_num_threads(options.threads)
    print(f"{options.threads} threads, torch {torch.__version__}")
    parts = {"products": lambda: products(options.features, options.rounds), "gcn": lambda: gcn(options.rounds)}
    for part in options.only or parts:
        parts[part]()


if __name__ == "__main__":
    main()
