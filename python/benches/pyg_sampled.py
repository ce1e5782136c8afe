"""Training on sampled neighbours by PyTorch Geometric, on one GPU or on several by ``DistributedDataParallel``: the baseline of `halfgnn bench sampling` and
`halfgnn train --sampler neighbor:… --devices …`.

    python python/benches/pyg_sampled.py                                            # ogbn-products' size: fanouts 15, 10, 5, three layers of 256
    python python/benches/pyg_sampled.py --ranks 4 --vertices 232965 --edges 114615892 --features 602 --classes 41 --training 153431 \\
        --fanouts 25,10 --hidden 128                                                # Reddit's, on four GPUs

Edges are uniformly random. Features lie on each GPU, in half; weights are float and products run under autocast to half. Neighbours are sampled on the host by pyg-lib or
torch-sparse, by `--workers` processes a GPU. Reported are milliseconds a step, and an epoch of as many steps as the training vertices make, of all ranks together. The first
steps, in which workers start, are not timed. Each layer runs over all that was sampled, as PyG's examples for GraphSAGE do it; `trim_to_layer`, which
needs pyg-lib, is not used.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import index_sort


class Sage(torch.nn.Module):
    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(SAGEConv(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.layers):
            x = layer(x, edges)
            if at + 1 < len(self.layers):
                x = F.relu(x)
        return x


def train(rank: int, options: argparse.Namespace, edges: torch.Tensor) -> None:
    torch.cuda.set_device(rank)
    torch.manual_seed(rank)
    if options.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
        dist.init_process_group("nccl", rank=rank, world_size=options.ranks)
    n = options.vertices
    fanouts = [int(fanout) for fanout in options.fanouts.split(",")]
    x = torch.randn(n, options.features, device="cuda", dtype=torch.half)
    labels = torch.randint(0, options.classes, (n,), device="cuda")
    own = torch.arange(rank, options.training, options.ranks)
    loader = NeighborLoader(
        Data(edge_index=edges, num_nodes=n),
        num_neighbors=fanouts,
        input_nodes=own,
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        is_sorted=True,
    )
    widths = [options.features] + [options.hidden] * (len(fanouts) - 1) + [options.classes]
    model: torch.nn.Module = Sage(widths).cuda()
    if options.ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler()
    times: list[float] = []
    while len(times) < options.steps + options.warm:
        start = time.perf_counter()
        for batch in loader:
            ids = batch.n_id.cuda(non_blocking=True)
            edge_index = batch.edge_index.cuda(non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.half):
                logits = model(x[ids], edge_index)[: batch.batch_size]
                loss = F.cross_entropy(logits, labels[ids[: batch.batch_size]])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e3)
            if len(times) == options.steps + options.warm:
                break
            start = time.perf_counter()
    if rank == 0:
        timed = times[options.warm :]
        steps = -(-options.training // (options.batch * options.ranks))
        mean = statistics.mean(timed)
        print(
            f"PyG, {options.ranks} ranks, {options.workers} workers each: {mean:.2f} ms a step (median {statistics.median(timed):.2f}), "
            f"{mean * steps / 1e3:.3f} s an epoch of {steps} steps",
            flush=True,
        )
    # Workers still sample ahead, and the other ranks their last steps: nothing is left to wait for.
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=123_718_280)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--classes", type=int, default=47)
    parser.add_argument("--training", type=int, default=196_615, help="vertices to train on")
    parser.add_argument("--fanouts", default="15,10,5")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1024, help="vertices of a batch, of each rank")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--warm", type=int, default=10, help="steps before those that are timed")
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    torch.manual_seed(1)
    n = options.vertices
    # By destination once, for all ranks.
    to = index_sort(torch.randint(0, n, (options.edges,), device="cuda"), n)[0]
    edges = torch.stack([torch.randint(0, n, (options.edges,), device="cuda"), to]).cpu().share_memory_()
    del to
    torch.cuda.empty_cache()
    if options.ranks == 1:
        train(0, options, edges)
    else:
        mp.spawn(train, (options, edges), options.ranks)


if __name__ == "__main__":
    main()
