"""Attention by dot products on a GPU, milliseconds and extra GiB of one call: the fused operator and ``sddmm``, ``edge_softmax`` and ``spmm``.

    python python/benches/attention.py                                  # 232,965 vertices, 20 M edges of R-MAT
    python python/benches/attention.py --edges 114615892 --heads 1x64,4x16

The bound is the time of the passes' gathers alone: two rows for each edge in each of the three walks, as sums over neighbours take it
(``spmm`` without weights, twice forward and six times with the gradients). Every figure is the median of seven.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch

import halfgnn


def rmat(vertices: int, edges: int) -> torch.Tensor:
    """Edges by R-MAT (.45 .22 .22 .11), each once, in the order of their destinations."""
    generator = torch.Generator("cuda").manual_seed(1)
    bits = (vertices - 1).bit_length()
    keys = torch.empty(0, dtype=torch.long, device="cuda")
    while len(keys) < edges:
        count = edges // 4 + 1
        row, column = torch.zeros(2, count, dtype=torch.long, device="cuda")
        for _ in range(bits):
            draw = torch.rand(count, device="cuda", generator=generator)
            row, column = 2 * row + (draw >= 0.67), 2 * column + (((draw >= 0.45) & (draw < 0.67)) | (draw >= 0.89))
        inside = (row < vertices) & (column < vertices)
        keys = torch.unique(torch.cat([keys, row[inside] * vertices + column[inside]]))
    keys = keys[torch.randperm(len(keys), device="cuda", generator=generator)[:edges]].sort().values
    return torch.stack([keys % vertices, keys // vertices])


def milliseconds(run: Callable[[], object]) -> float:
    times = []
    for attempt in range(9):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if attempt >= 2:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def gibibytes(run: Callable[[], object]) -> float:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = run()
    torch.cuda.synchronize()
    del kept
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def unfused(graph: halfgnn.Graph, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = halfgnn.edge_softmax(graph, halfgnn.sddmm(graph, q, k) * q.shape[-1] ** -0.5)
    return halfgnn.spmm(graph, v, weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=232_965)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--heads", default="1x64,4x16,8x64", help="heads x columns of a head, several with commas")
    parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16", "float32"])
    parser.add_argument("--fused-alone", action="store_true")
    options = parser.parse_args()
    index = rmat(options.vertices, options.edges)
    graph = halfgnn.Graph(index, options.vertices).prepare()
    print(f"{options.vertices} vertices, {index.shape[1]} edges, {options.dtype}; forward / both passes")
    for heads in options.heads.split(","):
        shape = (options.vertices, *map(int, heads.split("x")))
        dtype = getattr(torch, options.dtype)
        operands = [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
        gradient = torch.randn(shape, device="cuda", dtype=dtype)
        plain = operands[0].detach().flatten(1)
        with torch.no_grad():
            sums = milliseconds(lambda: halfgnn.spmm(graph, plain))
        print(f"{heads:7} bound             {2 * sums:7.3f} / {6 * sums:7.3f}")
        ways = {"fused": halfgnn.attention} | ({} if options.fused_alone else {"step by step": unfused})
        results = {}
        for name, way in ways.items():

            def forward() -> torch.Tensor:
                with torch.no_grad():
                    return way(graph, *operands)

            def both() -> tuple[torch.Tensor, ...]:
                return torch.autograd.grad(way(graph, *operands), operands, gradient)

            times = milliseconds(forward), milliseconds(both)
            print(f"{heads:7} {name:16}  {times[0]:7.3f} / {times[1]:7.3f} ms   {gibibytes(forward):.2f} / {gibibytes(both):.2f} GiB")
            results[name] = [forward(), *both()]
        if len(results) == 2:
            fused, steps = results.values()
            off = [((a - b).float().norm() / b.float().norm()).item() for a, b in zip(fused, steps)]
            print(f"{heads:7} differ by         {', '.join(f'{part:.1e}' for part in off)} (y, dq, dk, dv)")


if __name__ == "__main__":
    main()
