"""A GAT of PyG's, and the one line that makes it halfgnn's: the same model, the same loss, less memory.

    python examples/one_line.py                     # a small graph, on whatever there is
    python examples/one_line.py --vertices 230000 --degree 490 --features 602 --classes 41 --amp    # of Reddit's size, on a GPU
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch_geometric.nn.models import GAT

import halfgnn


def graph(vertices: int, degree: int, classes: int, features: int, device: str) -> tuple[torch.Tensor, ...]:
    """Vertices that mostly aggregate those of their own class, and features that say a little of it."""
    generator = torch.Generator().manual_seed(0)
    label = torch.randint(classes, (vertices,), generator=generator)
    by_class = label.argsort()
    count = vertices * degree
    target = torch.randint(vertices, (count,), generator=generator)
    near = torch.randint(vertices // classes or 1, (count,), generator=generator)
    first = torch.bincount(label, minlength=classes).cumsum(0) - torch.bincount(label, minlength=classes)
    source = by_class[(first[label[target]] + near).clamp(max=vertices - 1)]
    x = torch.randn(vertices, features, generator=generator)
    x[:, :classes] += 0.5 * F.one_hot(label, classes)[:, :features]
    return torch.stack([source, target]).to(device), x.to(device), label.to(device)


def train(model: torch.nn.Module, index: torch.Tensor, x: torch.Tensor, y: torch.Tensor, epochs: int, amp: bool) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scaler = torch.amp.GradScaler(x.device.type, enabled=amp and x.is_cuda)
    train_on = torch.arange(len(y), device=y.device) % 2 == 0
    start = time.perf_counter()
    for _ in range(epochs):
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype=torch.float16 if x.is_cuda else torch.bfloat16, enabled=amp):
            loss = F.cross_entropy(model(x, index)[train_on].float(), y[train_on])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    if x.is_cuda:
        torch.cuda.synchronize()
    ms = 1e3 * (time.perf_counter() - start) / epochs
    with torch.no_grad():
        right = (model.eval()(x, index).argmax(1) == y)[~train_on].float().mean()
    memory = f", {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if x.is_cuda else ""
    print(f"  {ms:.1f} ms an epoch, accuracy {100 * right:.1f} %{memory}")
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("vertices", 2000), ("degree", 20), ("features", 32), ("classes", 8), ("epochs", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--amp", action="store_true", help="train in mixed precision")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    index, x, y = graph(options.vertices, options.degree, options.classes, options.features, options.device)
    print(f"{options.vertices} vertices, {index.shape[1]} edges, on {options.device}")
    for ours in (False, True):
        torch.manual_seed(0)
        model = GAT(options.features, 64, 2, options.classes, heads=4, dropout=0.0).to(options.device)
        if ours:
            print("halfgnn:", halfgnn.nn.replace(model))  # the one line
        else:
            print("PyG:")
        if options.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        try:
            train(model, index, x, y, options.epochs, options.amp)
        except torch.OutOfMemoryError:
            print("  out of memory")


if __name__ == "__main__":
    main()
