"""What the programs here that need a GPU time: random graphs of real ones' sizes, and a training step of torch's."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F


def add_data(parser: argparse.ArgumentParser) -> None:
    """Options for :func:`random_data`: its sizes, by default Reddit's, and what its edges are."""
    sizes = {"vertices": 232_965, "edges": 114_615_892, "features": 602, "classes": 41, "training": 153_431}
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--shape", default="uniform", choices=("uniform", "rmat"), help="what edges are drawn from")


def rmat(vertices: int, edges: int) -> torch.Tensor:
    """Edges of R-MAT as those of the program's ``products-like`` and ``reddit-like``: the same quadrants, ids that wrap around, and
    hubs with low ids."""
    upper, left = 0.45 + 0.22, (0.45 / (0.45 + 0.22), 0.22 / (0.22 + 0.11))
    index = torch.zeros(2, edges, dtype=torch.int64, device="cuda")
    for _ in range((vertices - 1).bit_length()):
        lower = torch.rand(edges, device="cuda") >= upper
        right = torch.rand(edges, device="cuda") >= torch.where(lower, left[1], left[0])
        index = index.mul_(2).add_(torch.stack([lower, right]))
    return index.remainder_(vertices)


def random_data(options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """On the GPU, ``edge_index`` of random edges in both directions, features in float, and the classes of the vertices that are
    trained on, the first ones."""
    torch.manual_seed(0)
    vertices, edges = options.vertices, options.edges // 2
    index = rmat(vertices, edges) if options.shape == "rmat" else torch.randint(0, vertices, (2, edges), device="cuda")
    index = torch.cat([index, index.flip(0)], 1)
    x = torch.randn(vertices, options.features, device="cuda")
    return index, x, torch.randint(0, options.classes, (options.training,), device="cuda")


def training(
    model: torch.nn.Module, x: torch.Tensor, adjacency: object, y: torch.Tensor, half: bool, *, capturable: bool = False
) -> Callable[[], torch.Tensor]:
    """A step with Adam's (fused) and a loss of the first vertices, as many as ``y`` has, under autocast with a scaled loss where it is
    in half."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, fused=True, capturable=capturable)
    scaler = torch.amp.GradScaler("cuda", enabled=half)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        # A captured step must convert the weights anew each time.
        with torch.autocast("cuda", dtype=torch.float16, enabled=half, cache_enabled=not capturable):
            out = model(x, adjacency)
        loss = F.cross_entropy(out[: len(y)].float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def milliseconds(run: Callable[[], object], count: int) -> float:
    """The mean of ``count`` runs, one behind the other."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e3
