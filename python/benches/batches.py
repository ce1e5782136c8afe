"""Batches of sampled neighbours with their features on a GPU: ``halfgnn.Loader`` and PyG's ``NeighborLoader``, milliseconds a batch.

    python python/benches/batches.py                         # 2.4 M vertices, 124 M edges, 100 features, fanouts 15, 10, 5
    python python/benches/batches.py --workers 8             # of PyG's
    python python/benches/batches.py --features device,host,disk

Edges are uniformly random. Features lie on the GPU, and of halfgnn also where ``--features`` says; PyG samples on the host, with pyg-lib or torch-sparse, without which it is left out, and its
batches are copied. The first batches, in which workers start, are not timed.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

import halfgnn

FEATURES, BATCH, FANOUTS = 100, 1024, [15, 10, 5]


def milliseconds(label: str, batches: Iterator[Any], take: Callable[[Any], torch.Tensor], count: int, warm: int) -> None:
    """Of a batch and the rows of its features."""
    rows = 0
    for at in range(warm + count):
        if at == warm:
            torch.cuda.synchronize()
            start = time.perf_counter()
        rows += take(next(batches)).shape[0]
    torch.cuda.synchronize()
    taken = (time.perf_counter() - start) / count * 1e3
    print(f"{label:32} {taken:9.2f} ms   {rows / (warm + count):9.0f} rows of features", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=123_718_280)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--features", default="device", help="device, host and disk, with commas between them")
    options = parser.parse_args()
    torch.manual_seed(1)
    n = options.vertices
    edges = torch.randint(0, n, (2, options.edges), device="cuda")
    x = torch.randn(n, FEATURES, device="cuda").half()
    start = time.perf_counter()
    graph = halfgnn.Graph(edges, n)
    print(f"halfgnn: graph in {time.perf_counter() - start:.2f} s", flush=True)
    sampler = "neighbor:" + ",".join(map(str, FANOUTS))
    for where in options.features.split(","):
        with tempfile.TemporaryDirectory() as folder:
            given: Any = x
            if where == "disk":
                given = pathlib.Path(folder) / "x.npy"
                np.save(given, x.cpu().numpy())
            start = time.perf_counter()
            loader = halfgnn.Loader({"graph": graph, "x": given}, sampler, BATCH, features=where)
            print(f"halfgnn: loader in {time.perf_counter() - start:.2f} s", flush=True)
            label = f"halfgnn.Loader, features on {where}"
            milliseconds(label, loader.epoch(0), lambda batch: batch.x, options.batches, 5)
    del loader, graph
    start = time.perf_counter()
    peer = NeighborLoader(
        Data(edge_index=edges.cpu(), num_nodes=n),
        num_neighbors=FANOUTS,
        batch_size=BATCH,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    print(f"PyG: loader in {time.perf_counter() - start:.2f} s", flush=True)

    def take(batch: Any) -> torch.Tensor:
        batch = batch.to("cuda")
        return x.index_select(0, batch.n_id)

    try:
        milliseconds(f"PyG NeighborLoader, {options.workers} workers", iter(peer), take, options.batches, 5)
    except ImportError as missing:
        print(f"PyG: {str(missing).splitlines()[-1]}")


if __name__ == "__main__":
    main()
