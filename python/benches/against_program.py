"""What a training step takes from Python and in the program, on a GPU, milliseconds.

    python python/benches/against_program.py                          # layers of PyG and Trainer: GAT on reddit-like
    halfgnn dataset convert reddit-like:1 reddit.npz
    python python/benches/against_program.py --program halfgnn --dataset reddit.npz        # and Trainer and the program

Of the first, both are GATs of three layers, 64 wide, on the same 232,965 vertices and 114.6 M uniformly random edges with 602 features:
PyG's model after ``halfgnn.nn.replace`` under autocast to half, with Adam (fused) and a GradScaler, its step launched from Python and
captured once with ``torch.cuda.graph``; and ``halfgnn.Trainer``, recorded. Of the second, both train on the same dataset, in turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch_geometric.nn.models import GAT

import halfgnn
from halfgnn import Graph
from workload import add_data, milliseconds, random_data, training

HIDDEN, LAYERS = 64, 3


def least(run: Callable[[], object]) -> float:
    """The least of three means of ten runs, since the machine does other things as well."""
    return min(milliseconds(run, 10) for _ in range(3))


def layers_beside_trainer(options: argparse.Namespace) -> None:
    index, x, y = random_data(options)
    vertices, features, classes = options.vertices, options.features, options.classes
    graph = Graph(index, vertices).prepare()
    graph._looped()[0].prepare()

    model = GAT(features, HIDDEN, LAYERS, classes, heads=1).cuda()
    halfgnn.nn.replace(model)
    step = training(model, x, graph, y, True, capturable=True)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step(), step()
    torch.cuda.current_stream().wait_stream(stream)
    launched = least(step)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    replayed = least(captured.replay)
    del captured, step, model
    torch.cuda.empty_cache()

    # One vertex each to validate and to test on.
    masks = torch.zeros(3, vertices, dtype=torch.bool)
    masks[0, : len(y)] = masks[1, -1] = masks[2, -2] = True
    classes_of = F.pad(y, (0, vertices - len(y)))
    data = {
        "edge_index": index.cpu().numpy(), "x": x.cpu().numpy(), "y": classes_of.cpu().numpy(),
        "train_mask": masks[0].numpy(), "val_mask": masks[1].numpy(), "test_mask": masks[2].numpy(),
    }  # fmt: skip
    trainer = halfgnn.Trainer(
        data, "gat", hidden=HIDDEN, layers=LAYERS, dropout=0.0, attention_dropout=0.0, activation="relu", device="cuda"
    )
    trainer.step(), trainer.step()
    whole = least(trainer.step)
    print(f"GAT's layers, step launched   {launched:8.2f} ms, {launched / whole:.3f} of Trainer's")
    print(f"GAT's layers, step captured   {replayed:8.2f} ms, {replayed / whole:.3f}")
    print(f"Trainer                       {whole:8.2f} ms", flush=True)


def trainer_beside_program(program: str, dataset: str, model: str, epochs: int) -> None:
    command = [program, "train", "--dataset", dataset, "--model", model, "--epochs", str(epochs), "--device", "cuda", "--json", "-"]
    taken: dict[str, list[float]] = {"program": [], "Trainer": []}
    for _ in range(2):
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        taken["program"] += [event["ms_per_epoch"] for line in lines if "ms_per_epoch" in (event := json.loads(line))]
        taken["Trainer"].append(halfgnn.Trainer(dataset, model, epochs=epochs, device="cuda").fit().ms_per_epoch)
    ours, theirs = min(taken["Trainer"]), min(taken["program"])
    print(f"{model} on {dataset}: Trainer {ours:.3f} ms, the program {theirs:.3f}, {ours / theirs:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--program", help="the program halfgnn, of the same version")
    parser.add_argument("--dataset", help="a file or folder that Trainer and the program train on")
    options = parser.parse_args()
    if (options.program is None) != (options.dataset is None):
        parser.error("--program and --dataset go together")
    layers_beside_trainer(options)
    if options.program:
        for model in ("gcn", "gat"):
            trainer_beside_program(options.program, options.dataset, model, 20)


if __name__ == "__main__":
    main()
