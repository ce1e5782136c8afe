"""SpMM and a GCN's training step on the CPU: HalfGNN and SciPy, PyTorch and PyTorch Geometric, in one run, in turns.

    python3 cpu.py path/to/halfgnn [cora.npz]

Times are milliseconds, the best of several rounds in which everybody has a turn, on RAYON_NUM_THREADS threads (2 by default; SciPy's
product has one). Graphs: as many vertices and edges as Squirrel (5,201 and 397 k), an eighth of amazon-like, both R-MAT with its quadrants,
and 1 M random edges among 65,536 vertices. FEATURES=64 chooses another width, ROUNDS=5 how many rounds there are.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

THREADS = os.environ.setdefault("RAYON_NUM_THREADS", "2")
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = THREADS
FEATURES = int(os.environ.get("FEATURES", 64))
ROUNDS = int(os.environ.get("ROUNDS", 5))
SECONDS = 0.5

import scipy.sparse
import torch

torch.set_num_threads(int(THREADS))


def rmat(rng, vertices, edges, quadrants=(0.45, 0.22, 0.22, 0.11)):
    """Rows and columns of an R-MAT graph."""
    rows, columns, kept = [], [], 0
    levels = int(np.ceil(np.log2(vertices)))
    while kept < edges:
        row = np.zeros(edges, np.int64)
        column = np.zeros(edges, np.int64)
        for _ in range(levels):
            quadrant = rng.choice(4, edges, p=quadrants)
            row, column = row * 2 + quadrant // 2, column * 2 + quadrant % 2
        inside = (row < vertices) & (column < vertices)
        rows.append(row[inside])
        columns.append(column[inside])
        kept += int(inside.sum())
    return np.concatenate(rows)[:edges], np.concatenate(columns)[:edges]


def csr(vertices, rows, columns):
    order = np.lexsort((columns, rows))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=vertices))))
    return vertices, offsets.astype(np.int32), columns[order].astype(np.int32)


def graphs():
    rng = np.random.default_rng(0)
    yield "squirrel-sized", csr(5201, *rmat(rng, 5201, 397_000))
    yield "amazon-like/8", csr(50_091, *rmat(rng, 50_091, 800_110))
    yield "random", csr(65_536, rng.integers(0, 65_536, 1_000_000), rng.integers(0, 65_536, 1_000_000))


def best(function):
    """Milliseconds of the fastest call within SECONDS."""
    fastest, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        function()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest * 1e3


def ours(program, path):
    command = [program, "bench", "spmm", "--graph", path, "--features", str(FEATURES), "--device", "cpu"]
    command += ["--precision", "half", "--precision", "float", "--precision", "bf16", "--runs", "51"]
    command += ["--policy", "discretized-float", "--json", "-"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [row for row in map(json.loads, lines) if row["event"] == "spmm"]
    return {f"ours {row['precision']}": row["ms_fastest"] for row in rows}


def spmm(program):
    for name, (vertices, offsets, columns) in graphs():
        with tempfile.NamedTemporaryFile(suffix=".csr") as file:
            np.array([vertices, len(columns)], np.int64).tofile(file)
            offsets.tofile(file)
            columns.tofile(file)
            file.flush()
            x = np.random.default_rng(1).random((vertices, FEATURES), np.float32)
            ones = np.ones(len(columns), np.float32)
            by_scipy = scipy.sparse.csr_matrix((ones, columns, offsets), (vertices, vertices))
            by_torch = torch.sparse_csr_tensor(
                torch.from_numpy(offsets), torch.from_numpy(columns), torch.from_numpy(ones), (vertices, vertices)
            )
            x_torch, times = torch.from_numpy(x), {}
            for _ in range(ROUNDS):
                turn = {"scipy": best(lambda: by_scipy @ x), "torch": best(lambda: by_torch @ x_torch)}
                for who, ms in {**turn, **ours(program, file.name)}.items():
                    times[who] = min(ms, times.get(who, ms))
        against = times["ours float"]
        print(name, f"{len(columns)} edges, F = {FEATURES}:", {who: round(ms, 2) for who, ms in times.items()})
        print(f"  float over torch {times['torch'] / against:.2f}, over scipy {times['scipy'] / against:.2f};",
              f"half over float {against / times['ours half']:.2f}")


def gcn(program, path):
    """A step of a GCN of 2 layers of 64 with dropout of one half, on the graph and features of a gnn-benchmark's `.npz`."""
    import torch_geometric
    from torch_geometric.nn import GCNConv

    with np.load(path, allow_pickle=True) as data:
        adjacency = scipy.sparse.csr_matrix(
            (data["adj_data"], data["adj_indices"], data["adj_indptr"]), data["adj_shape"]
        )
        features = scipy.sparse.csr_matrix(
            (data["attr_data"], data["attr_indices"], data["attr_indptr"]), data["attr_shape"]
        )
        labels = torch.from_numpy(data["labels"].astype(np.int64))
    both = adjacency.tocoo()
    edges = torch.from_numpy(np.stack([both.row, both.col]).astype(np.int64))
    x = torch.from_numpy(features.toarray().astype(np.float32))

    class Gcn(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GCNConv(x.shape[1], 64, cached=True)
            self.second = GCNConv(64, int(labels.max()) + 1, cached=True)

        def forward(self, x):
            x = torch.nn.functional.dropout(x, 0.5, self.training)
            x = self.first(x, edges).relu()
            return self.second(torch.nn.functional.dropout(x, 0.5, self.training), edges)

    model = Gcn().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    train = torch.arange(140)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x)[train], labels[train])
        loss.backward()
        optimizer.step()

    step()
    times = {}
    for _ in range(ROUNDS):
        turn = {"pyg": best(step)}
        for precision in ["half", "float"]:
            command = [program, "train", "--dataset", path, "--model", "gcn", "--hidden", "64", "--dropout", "0.5"]
            command += ["--device", "cpu", "--epochs", "60", "--precision", precision, "--json", "-"]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            summary = next(row for row in map(json.loads, lines) if row["event"] == "summary")
            turn[f"ours {precision}"] = summary["ms_per_epoch"]
        for who, ms in turn.items():
            times[who] = min(ms, times.get(who, ms))
    print(f"GCN on {os.path.basename(path)}, PyG {torch_geometric.__version__}:", {k: round(v, 2) for k, v in times.items()})
    print(f"  PyG over half {times['pyg'] / times['ours half']:.2f}, over float {times['pyg'] / times['ours float']:.2f}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    spmm(sys.argv[1])
    if len(sys.argv) == 3:
        gcn(sys.argv[1], sys.argv[2])
