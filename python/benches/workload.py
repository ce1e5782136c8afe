"""What the programs here that want a card time: random graphs of real ones' sizes, and a training step of torch's."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Options for the four sizes of :func:`random_data`, by default Reddit's."""
    for name, default in (("vertices", 232_965), ("edges", 114_615_892), ("features", 602), ("classes", 41)):
        parser.add_argument(f"--{name}", type=int, default=default)


def random_data(vertices: int, edges: int, features: int, classes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """On the card, ``edge_index`` of uniformly random edges in both directions, features in float, and classes."""
    torch.manual_seed(0)
    index = torch.randint(0, vertices, (2, edges // 2), device="cuda")
    index = torch.cat([index, index.flip(0)], 1)
    return index, torch.randn(vertices, features, device="cuda"), torch.randint(0, classes, (vertices,), device="cuda")


def training(
    model: torch.nn.Module, x: torch.Tensor, adjacency: object, y: torch.Tensor, half: bool, *, capturable: bool = False
) -> Callable[[], torch.Tensor]:
    """A step on all vertices with Adam's (fused), under autocast with a scaled loss where it is in half."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, fused=True, capturable=capturable)
    scaler = torch.amp.GradScaler("cuda", enabled=half)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        # A captured step must convert the weights anew each time.
        with torch.autocast("cuda", dtype=torch.float16, enabled=half, cache_enabled=not capturable):
            out = model(x, adjacency)
        loss = F.cross_entropy(out.float(), y)
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
