"""What the first call of a process takes on a GPU, in seconds.

    python python/benches/first_call.py              # by the machine code of the package, where it has that of the GPU
    python python/benches/first_call.py --ptx FOLDER   # by PTX alone, from a copy of the kernels' folder without *.cubin

Each figure is of a new process, with the driver's cache (``~/.nv``) removed before it. CUDA's own start is timed apart, by torch.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

START = """
import time, torch
torch.zeros(1, device="cuda"); torch.cuda.synchronize()
begin = time.perf_counter()
"""
END = """
torch.cuda.synchronize()
print(time.perf_counter() - begin)
"""
IMPORT = """
import time, torch
begin = time.perf_counter()
import halfgnn
print(time.perf_counter() - begin)
"""
SPMM = """
import halfgnn
graph = halfgnn.Graph(torch.randint(2_708, (2, 10_556), device="cuda"), 2_708)
halfgnn.spmm(graph, torch.rand(2_708, 64, device="cuda", dtype=torch.half))
"""
EPOCH = """
import halfgnn
index = torch.randint(2_708, (2, 10_556))
x, y = torch.rand(2_708, 1_433), torch.randint(7, (2_708,))
data = {"edge_index": index, "x": x, "y": y, "train_mask": torch.ones(2_708, dtype=torch.bool)}
halfgnn.Trainer(data, "MODEL", device="cuda", epochs=1).fit()
"""


def seconds(code: str, folder: Path | None) -> float:
    shutil.rmtree(Path.home() / ".nv", ignore_errors=True)
    kernels = {} if folder is None else {"HALFGNN_PTX_DIR": str(folder)}
    run = subprocess.run([sys.executable, "-c", code], env=os.environ | kernels, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    return float(run.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptx", type=Path, metavar="FOLDER", help="folder of kernels, as HALFGNN_PTX_DIR names it")
    options = parser.parse_args()
    print(f"import halfgnn          {seconds(IMPORT, options.ptx):.4f}")
    print(f"first spmm              {seconds(START + SPMM + END, options.ptx):.2f}")
    for model in ("gcn", "gat", "gin", "sage"):
        code = START + EPOCH.replace("MODEL", model) + END
        print(f"first epoch of {model:8} {seconds(code, options.ptx):.2f}")


if __name__ == "__main__":
    main()
