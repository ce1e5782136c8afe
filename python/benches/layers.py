"""Forward and backward passes of PyG's layers, and of the same after ``halfgnn.nn.accelerate``, milliseconds: the least of several rounds, in
which both take turns. On a GPU with the most memory that tensors have in a pass.

    python python/benches/layers.py                          # 2 threads of the CPU
    python python/benches/layers.py --device cuda --vertices 200000 --edges 2000000
    python python/benches/layers.py --device cuda --vertices 232965 --edges 20000000 --autocast --only GINE,ResGated,CG

Edges are random, with in-degrees as unequal as amazon's. ``accelerate`` replaces the layers that halfgnn has. It needs PyG and SciPy.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable

import torch
import torch_geometric.nn as pyg
from on_cpu import edges, least

import halfgnn


def peak(step: Callable[[], object]) -> str:
    """The most memory that tensors have in a step on the GPU; empty without one."""
    if not torch.cuda.is_initialized():
        return ""
    torch.cuda.reset_peak_memory_stats()
    step()
    return f", {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB"


def layers(features: int, rounds: int, device: str, vertices: int, count: int, autocast: bool, only: list[str]) -> None:
    torch.manual_seed(0)
    index = torch.from_numpy(edges(vertices, count, 0.5)).to(device)
    x = torch.randn(vertices, features, device=device, requires_grad=True)
    attributes = torch.randn(count, features, device=device)
    degrees = torch.bincount(torch.bincount(index[1], minlength=vertices)).cpu()

    def mlp_of(width: int, hidden: int, out: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, out))

    def mlp(width: int) -> torch.nn.Module:
        return mlp_of(width, features, features)

    table = {
        "TransformerConv, 4 heads": (pyg.TransformerConv(features, features // 4, heads=4), ()),
        "GINEConv": (pyg.GINEConv(mlp(features)), (attributes,)),
        "EdgeConv, MLP of 2": (pyg.EdgeConv(mlp(2 * features)), ()),
        "PNAConv, 4 aggregators": (
            pyg.PNAConv(features, features, ["mean", "max", "min", "std"], ["identity", "amplification", "attenuation"], degrees),
            (),
        ),
        "GENConv, softmax": (pyg.GENConv(features, features), ()),
        "GENConv, softmax, edge features": (pyg.GENConv(features, features, edge_dim=features), (attributes,)),
        "SAGEConv, max": (pyg.SAGEConv(features, features, aggr="max"), ()),
        "ResGatedGraphConv": (pyg.ResGatedGraphConv(features, features), ()),
        "CGConv": (pyg.CGConv(features, features), (attributes,)),
        "FiLMConv": (pyg.FiLMConv(features, features), ()),
        "NNConv": (pyg.NNConv(features, 8, mlp_of(4, 8, 8 * features)), (attributes[:, :4],)),
    }
    print(f"forward and backward of layers: {vertices} vertices, {count} edges, F = {features}")
    for name, (theirs, others) in table.items():
        if not any(part in name for part in only):
            continue
        theirs = theirs.to(device)
        ours = copy.deepcopy(theirs)
        report = halfgnn.nn.accelerate(ours)
        with torch.no_grad():
            # A gradient of about 1 an element: that of a mean is below the range of half, that of squares above it.
            weight = torch.randn_like(theirs(x, index, *others))

        def step(
            layer: torch.nn.Module, others: tuple[torch.Tensor, ...] = others, weight: torch.Tensor = weight
        ) -> None:
            with torch.autocast(device, dtype=torch.float16 if device == "cuda" else torch.bfloat16, enabled=autocast):
                y = layer(x, index, *others)
            (y.float() * weight).sum().backward()
            if index.is_cuda:
                torch.cuda.synchronize()

        def gradients(layer: torch.nn.Module, step: Callable[[torch.nn.Module], None] = step) -> torch.Tensor:
            x.grad = None
            step(layer)
            assert x.grad is not None
            return x.grad

        of_ours, of_theirs = gradients(ours), gradients(theirs)
        both = of_ours.isfinite() & of_theirs.isfinite()
        assert both.any(), f"{name}: no element of the gradient is finite in both"
        difference = ((of_ours - of_theirs)[both].norm() / of_theirs[both].norm()).item()
        assert difference < (0.1 if autocast else 1e-3), f"{name}: the gradient is {difference} from PyG's"
        infinite = {"PyG": (~of_theirs.isfinite()).sum().item(), "ours": (~of_ours.isfinite()).sum().item()}
        runs = {"PyG": lambda: step(theirs), "ours": lambda: step(ours)}
        taken, memory = least(runs, rounds), {label: peak(run) for label, run in runs.items()}
        if any(infinite.values()):
            print(f"  {name}: elements of the gradient that are not finite: {infinite}")
        how = "replaced" if report.replaced else ", ".join(*report.accelerated.values())
        print(
            f"  {name:26} PyG {taken['PyG']:9.2f} ms{memory['PyG']}, ours {taken['ours']:9.2f} ms{memory['ours']}, PyG's / ours {taken['PyG'] / taken['ours']:.2f} ({how})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    for name, default in (("threads", 2), ("rounds", 15), ("features", 64), ("vertices", 20_000), ("edges", 200_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--autocast", action="store_true", help="in half on a GPU, in bfloat16 on a CPU")
    parser.add_argument("--only", default="", help="parts of the names of layers, several with commas")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    halfgnn.set_num_threads(options.threads)
    print(f"{options.threads} threads, torch {torch.__version__}")
    layers(options.features, options.rounds, options.device, options.vertices, options.edges, options.autocast, options.only.split(","))


if __name__ == "__main__":
    main()
