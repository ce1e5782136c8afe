"""Training from Python: what it learns, how it ends, and what it shares with the program and with PyG."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import kernels

import halfgnn
from halfgnn import Epoch, Trainer


def dataset(vertices=200, classes=3, seed=0):
    """Neighbours are mostly of one class, and features say a little of it."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, vertices)
    a, b = rng.integers(0, vertices, (2, 4000))
    same = ((y[a] == y[b]) | (rng.random(4000) < 0.05)) & (a != b)
    edges = np.stack([a[same], b[same]])
    x = np.eye(classes, 12)[y] * 0.7 + rng.standard_normal((vertices, 12))
    order = rng.permutation(vertices)
    masks = {}
    for name, part in zip(("train_mask", "val_mask", "test_mask"), np.split(order, (60, 120)), strict=True):
        masks[name] = np.zeros(vertices, dtype=bool)
        masks[name][part] = True
    both = np.concatenate([edges, edges[::-1]], axis=1)
    return {"edge_index": both, "x": x.astype(np.float32), "y": y, **masks}


@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gin"])
@pytest.mark.parametrize("precision", ["half", "float"])
def test_it_learns(model, precision):
    run = halfgnn.train(dataset(), model, precision=precision, device="cpu", epochs=40, hidden=16)
    assert run.status == "finished" and len(run.history) == 40
    assert run.last is not None and run.last.loss < 0.7 * run.history[0].loss
    assert run.test > 60 and run.best.metric == "accuracy"


def test_options_are_used_or_refused():
    trainer = Trainer(
        dataset(), "gat", device="cpu", epochs=2, heads=2, hidden=16, layers=3, dropout=0.1, residual=True,
        optimizer="adamw", lr=0.02, weight_decay=0.1, schedule="cosine", early_stopping=5, metric="macro-f1", seed=3,
    )
    run = trainer.fit()
    assert run.last.metric == "macro-f1" and run.last.learning_rate < 0.02
    for options, words in [
        ({"model": "gcnn"}, "take one of gcn"),
        ({"heads": 2}, "heads is no option of gcn"),
        ({"model": "gat", "heads": 0}, "heads=0 of gat"),
        ({"precision": "int8"}, "half, bfloat16 or float"),
        ({"optimizer": "lion"}, "adam, adamw or sgd"),
        ({"momentum": 0.9}, "momentum is of sgd"),
        ({"lr": float("nan")}, "from 0 on"),
        ({"schedule": "linear"}, "schedule"),
        ({"loss": "mae"}, "of values"),
        ({"metric": "mse"}, "mse"),
        ({"device": "tpu"}, "auto, cpu, cuda"),
        ({"activation": "swish"}, "relu, elu, leaky-relu"),
        ({"hidden_norm": "instance"}, "batch, layer, pair, graph"),
        ({"jumping": "lstm"}, "cat, max, all"),
        ({"sampler": "neighbours:5,5"}, "is no sampler"),
        ({"sampler": "neighbor:5"}, "1 fanouts, and 2 layers"),
        ({"sampler": "saint-node:20", "batch_size": 5}, "batch_size: saint-node:20 has no use for it"),
        ({"sampler": "neighbor:5,5", "coverage": 5}, "coverage: neighbor:5,5 has no use for it"),
        ({"sampler": "neighbor:5,5", "batch_size": 0}, "batch_size 0; take 1 at least"),
        ({"batch_size": 16}, "nothing says which neighbours a batch samples"),
        ({"coverage": 16}, "nothing is drawn"),
    ]:
        with pytest.raises(ValueError, match=words) as refused:
            Trainer(dataset(), **{"device": "cpu", **options})
        assert "\n" not in str(refused.value)


def test_hidden_layers_are_as_they_are_asked_for():
    data, losses = dataset(), []
    for options in (
        {},
        {"activation": "elu"},
        {"activation": "none"},
        {"hidden_norm": "batch"},
        {"hidden_norm": "layer"},
        {"hidden_norm": "pair"},
        {"hidden_norm": "graph"},
        {"jumping": "cat"},
        {"jumping": "max"},
        {"jumping": "all"},
    ):
        run = halfgnn.train(data, "sage", device="cpu", epochs=3, hidden=8, layers=3, dropout=0.0, precision="float", **options)
        losses.append(run.last.loss)
        assert run.last.loss < run.history[0].loss
    assert len(set(losses)) == len(losses)
    relu = halfgnn.train(data, "sage", device="cpu", epochs=3, hidden=8, layers=3, dropout=0.0, precision="float", activation="relu")
    assert relu.last.loss == losses[0]


@pytest.mark.parametrize("sampler", ["neighbor:8,4", "saint-rw:20,2", "cluster:4"])
def test_batches_are_learnt_from_and_a_run_of_them_goes_on(sampler, tmp_path):
    data = dataset()
    size = {"neighbor:8,4": 16, "cluster:4": 2}.get(sampler)
    options = {"device": "cpu", "hidden": 16, "layers": 2, "sampler": sampler, "batch_size": size, "seed": 4}
    whole = Trainer(data, "sage", epochs=12, **options)
    run = whole.fit()
    assert not whole.is_recorded
    assert run.last.loss < 0.7 * run.history[0].loss and run.test > 60
    first = Trainer(data, "sage", epochs=5, **options)
    first.fit(save=tmp_path / "run.safetensors")
    rest = Trainer.load(tmp_path / "run.safetensors", data, device="cpu", epochs=12)
    assert [epoch.loss for epoch in rest.epochs()] == [epoch.loss for epoch in run.history[5:]]
    plain = halfgnn.train(data, "sage", device="cpu", hidden=16, layers=2, epochs=1, seed=4)
    assert plain.last.loss != run.history[0].loss


def test_neighbours_of_weighted_edges_are_refused():
    data = dataset()
    data["edge_weight"] = np.ones(data["edge_index"].shape[1], dtype=np.float32) * 2
    with pytest.raises(ValueError, match="draws edges without their weights"):
        Trainer(data, "gcn", device="cpu", sampler="neighbor:5,5", layers=2)
    assert halfgnn.train(data, "gcn", device="cpu", sampler="saint-rw:20,2", epochs=2).status == "finished"


def test_arrays_that_do_not_fit_are_refused():
    good = dataset()
    for change, words in [
        ({"x": good["x"][:5]}, "no vertex"),
        ({"x": good["x"][:, 0]}, "vertices x features"),
        ({"y": good["y"][:5]}, "200 rows"),
        ({"y": good["y"] - 5}, "classes at most, numbered from 0"),
        ({"y": np.where(np.arange(200) == 3, 2**32 + 1, good["y"])}, r"y\[3\] is 4294967297"),
        ({"y": good["y"].astype("U1")}, "should be numbers"),
        ({"num_nodes": 201}, "num_nodes: 201, and x has 200 rows"),
        ({"train_mask": np.array([3, 3])}, "name a vertex once"),
        ({"train_mask": np.array([200])}, "200 is no vertex"),
        ({"train_mask": good["train_mask"][:7]}, "a mask should be 200"),
        ({"valid_msk": good["val_mask"]}, "is 'valid_mask' meant"),
        ({"edge_attr": np.ones(4)}, "there is no 'edge_attr'"),
        ({"train": good["train_mask"]}, "train_mask and train are names of the same"),
        ({"train_mask": np.ones((200, 2), bool)}, "of several splits choose one"),
        ({"val_mask": good["train_mask"]}, "train"),
        ({"x": None}, "no x or no y"),
    ]:
        with pytest.raises((ValueError, IndexError), match=words) as refused:
            Trainer({**good, **change}, device="cpu")
        assert "\n" not in str(refused.value)


def test_labels_and_values():
    data = dataset()
    data["y"] = np.eye(3)[data["y"]].astype(bool)
    assert halfgnn.train(data, device="cpu", epochs=20, hidden=8).last.metric == "micro-f1"
    data["y"] = data["x"][:, :1].copy()
    for loss in (None, "mse", "mae"):
        run = halfgnn.train(data, "sage", device="cpu", epochs=30, hidden=8, loss=loss)
        assert run.last.metric == "mae" and run.last.loss < run.history[0].loss


def losses(data, **options):
    return [epoch.loss for epoch in halfgnn.train(data, device="cpu", epochs=3, hidden=8, **options).history]


def test_splits_have_other_names_and_types():
    data = dataset()
    expected = losses(data)
    masks = [data.pop(name) for name in ("train_mask", "val_mask", "test_mask")]
    assert len(set(expected)) > 1
    for dtype in (np.uint8, np.int8, np.int16, np.int32, np.int64, np.float32):
        typed = [mask.astype(dtype) for mask in masks]
        assert losses({**data, **dict(zip(("train_mask", "val_mask", "test_mask"), typed, strict=True))}) == expected
    lists = [np.flatnonzero(mask) for mask in masks]
    ogb = dict(zip(("train", "valid", "test"), lists, strict=True))
    assert losses({**data, **ogb}) == expected
    assert losses(data, **ogb) == expected
    assert losses(data, train_mask=masks[0].astype(int), valid=lists[1], test=masks[2]) == expected
    validation = Trainer(data, device="cpu", **ogb).evaluate()["accuracy"]["validation"]
    assert not np.isnan(validation)


def test_names_that_there_are_not_are_refused_with_the_nearest():
    for options, words in [
        ({"hiden": 16}, "hiden is no option of gcn.*; is hidden meant"),
        ({"early_stoping": 3}, "is early_stopping meant"),
        ({"vallid": [1]}, "is valid meant"),
    ]:
        with pytest.raises(ValueError, match=words) as refused:
            Trainer(dataset(), device="cpu", **options)
        assert "\n" not in str(refused.value)


def test_whole_numbers_of_every_type_are_classes():
    data = dataset(classes=2)
    expected = losses(data)
    for dtype in (bool, np.uint8, np.int32, np.float32, np.float64):
        for y in (data["y"].astype(dtype), data["y"].astype(dtype)[:, None]):
            assert losses({**data, "y": y}) == expected, dtype
    whole = {**data, "y": data["y"].astype(np.float32)}
    assert halfgnn.train(whole, device="cpu", epochs=1).last.metric == "accuracy"
    for options in ({"loss": "mse"}, {"metric": "rmse"}):
        assert halfgnn.train(whole, device="cpu", epochs=1, **options).last.metric in ("mae", "rmse")
    fractions = {**data, "y": data["y"] + 1e-9}
    assert halfgnn.train(fractions, device="cpu", epochs=1).last.metric == "mae"
    with pytest.raises(ValueError, match="loss mse is of values"):
        Trainer(data, device="cpu", loss="mse")


def test_tensors_of_any_layout_and_format_are_read():
    torch = pytest.importorskip("torch")
    sparse = pytest.importorskip("scipy.sparse")
    data = dataset()
    x = data["x"].round(1)
    expected = losses({**data, "x": torch.from_numpy(x).bfloat16().float()})
    assert losses({**data, "x": torch.from_numpy(x).bfloat16(), "y": torch.from_numpy(data["y"]).bfloat16()}) == expected
    x = np.where(x > 0, x, 0)
    expected = losses({**data, "x": x})
    for other in (torch.from_numpy(x).to_sparse(), torch.from_numpy(x).to_sparse_csr(), sparse.csr_matrix(x)):
        assert losses({**data, "x": other}) == expected


def test_unknown_entries_of_labels_are_left_out_as_ogb_leaves_them_out():
    data = dataset()
    y = np.eye(3)[data["y"]]
    unknown = np.random.default_rng(3).random(y.shape) < 0.3
    unknown[5] = True  # nothing is known of one in training
    unknown[:, 2] |= ~data["train_mask"]
    data["train_mask"][5] = True
    data["val_mask"][5] = data["test_mask"][5] = False
    results = []
    for wrong in (np.nan, -1):
        given = {**data, "y": np.where(unknown, wrong, y)}
        trainer = Trainer(given, "sage", device="cpu", hidden=8, epochs=1, dropout=0.0, precision="float")
        logits = trainer.predict().astype(np.float64)
        trainer.step()
        chosen = data["train_mask"][:, None] & ~unknown
        terms = np.logaddexp(0, logits) - y * logits
        assert trainer.loss == pytest.approx(terms[chosen].mean(), rel=1e-5)
        # Column 2 has no known entry in validation: the mean of areas is of the others.
        area = Trainer(given, "sage", device="cpu", metric="roc-auc", epochs=1).evaluate()["roc-auc"]
        assert not np.isnan(area["validation"])
        results.append(losses(given, sampler="neighbor:5,5", layers=2))
    assert results[0] == results[1] and not np.isnan(results[0]).any()


def test_a_vertex_without_a_label_is_in_no_split():
    data = dataset()
    data["y"] = np.where(np.arange(200) == np.flatnonzero(data["train_mask"])[0], -1, data["y"])
    with pytest.raises(ValueError, match="a vertex without a label"):
        Trainer(data, device="cpu")


def test_sizes_are_bounded_as_the_programs_are():
    for options, words in [
        ({"layers": 10**9}, "layers 1000000000; take a whole number from 1 to 1000"),
        ({"layers": 0}, "layers 0"),
        ({"layers": 2.5}, "layers 2.5"),
        ({"hidden": 10**12}, "hidden 1000000000000; take a whole number from 1 to 4294967295"),
        ({"hidden": [8, -1]}, "hidden -1"),
        ({"epochs": 2**32}, "epochs 4294967296"),
        ({"seed": -1}, "seed -1"),
    ]:
        with pytest.raises(ValueError, match=words) as refused:
            Trainer(dataset(), device="cpu", **options)
        assert "\n" not in str(refused.value)
    with pytest.raises((ValueError, MemoryError), match="memory") as refused:
        Trainer(dataset(), device="cpu", hidden=2**32 - 1)
    assert "\n" not in str(refused.value)


def test_callbacks_see_each_epoch_and_end_the_run():
    seen = []

    def callback(epoch):
        seen.append(epoch)
        return epoch.epoch < 4

    run = Trainer(dataset(), device="cpu", epochs=50, hidden=8).fit(callbacks=[callback])
    assert [epoch.epoch for epoch in seen] == [1, 2, 3, 4] and run.status == "stopped"
    assert all(isinstance(epoch, Epoch) for epoch in seen) and run.history == seen


def test_a_loop_of_ones_own():
    trainer = Trainer(dataset(), device="cpu", epochs=5, hidden=8)
    for epoch in trainer.epochs():
        if epoch.epoch == 2:
            break
    trainer.step()
    assert np.isfinite(trainer.loss)
    assert set(trainer.evaluate()["accuracy"]) == {"train", "validation", "test"}
    assert trainer.predict().shape == (200, 3)
    assert trainer.summary().last.epoch == 2
    assert trainer.peak_bytes > 0 and "CPU" in trainer.device and "200 vertices" in repr(trainer)


def test_accuracy_is_that_of_the_predictions():
    data = dataset()
    trainer = Trainer(data, device="cpu", epochs=10, hidden=8)
    trainer.fit()
    right = trainer.predict().argmax(1) == data["y"]
    expected = 100 * right[data["test_mask"]].mean()
    assert trainer.evaluate()["accuracy"]["test"] == pytest.approx(expected)


def test_a_run_that_is_put_aside_goes_on_with_the_same_bits(tmp_path):
    whole = Trainer(dataset(), device="cpu", epochs=12, hidden=8)
    whole.fit()
    part = Trainer(dataset(), device="cpu", epochs=12, hidden=8)
    part.fit(callbacks=[lambda epoch: epoch.epoch < 5], save=tmp_path / "run.safetensors")
    rest = Trainer.load(tmp_path / "run.safetensors", dataset(), device="cpu")
    run = rest.fit()
    assert run.history[0].epoch == 6 and (rest.predict() == whole.predict()).all()
    with pytest.raises(ValueError, match="it was trained on"):
        Trainer.load(tmp_path / "run.safetensors", dataset(vertices=150), device="cpu")
    with pytest.raises(OSError, match="cannot be read"):
        Trainer.load(tmp_path / "none.safetensors", dataset(), device="cpu")


@pytest.mark.parametrize("options", [{}, {"sampler": "neighbor:5,5", "layers": 2, "batch_size": 64}])
def test_ctrl_c_ends_fit_and_keeps_what_was_learnt(options, tmp_path):
    script = textwrap.dedent(
        """
        import signal, sys
        # A shell that runs the tests in the background has them ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.path.insert(0, sys.argv[1])
        from test_train import dataset
        from halfgnn import Trainer
        trainer = Trainer(dataset(2000), device="cpu", epochs=1_000_000, hidden=32, **eval(sys.argv[3]))
        def report(epoch):
            if epoch.epoch == 3:
                print("go", flush=True)
        run = trainer.fit(callbacks=[report], save=sys.argv[2])
        print(run.status, run.last.epoch >= 3, trainer.predict().shape)
        # It goes on, here and from what was kept.
        print(next(trainer.epochs()).epoch == run.last.epoch + 1)
        print(next(Trainer.load(sys.argv[2], dataset(2000), device="cpu", epochs=1_000_000).epochs()).epoch == run.last.epoch + 1)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, os.path.dirname(__file__), tmp_path / "run.safetensors", repr(options)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "go\n"
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert output == "stopped True (2000, 3)\nTrue\nTrue\n" and process.returncode == 0


def test_what_a_run_says_is_copied_and_sent_to_other_processes():
    trainer = Trainer(dataset(), device="cpu", epochs=2, hidden=8)
    run = trainer.fit()
    for other in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        assert other == run and other.history == run.history and other is not run
    # A trainer is kept by `save`.
    for what in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot pickle"):
            what(trainer)


def test_the_emulator_trains_as_the_cpu():
    if not kernels():
        pytest.skip("no PTX in the package: build it with `cargo xtask build-ptx`")
    data = dataset(vertices=40)
    expected = halfgnn.train(data, device="cpu", precision="float", epochs=2, hidden=8, dropout=0.0)
    with halfgnn.emulated():
        run = halfgnn.train(data, device="cpu", precision="float", epochs=2, hidden=8, dropout=0.0)
    for a, b in zip(run.history, expected.history, strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-4)


def test_pygs_data_and_weights_there_and_back():
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("torch_geometric.nn.models")
    from torch_geometric.data import Data

    arrays = dataset()
    data = Data(**{name: torch.as_tensor(value) for name, value in arrays.items()})
    trainer = Trainer(data, "gcn", device="cpu", precision="float", epochs=20, hidden=16, layers=2)
    trainer.fit()
    model = models.GCN(12, 16, 2, 3).eval()
    model.load_state_dict(trainer.to_pyg(), strict=True)
    other = Trainer(data, "gcn", device="cpu", precision="float", epochs=1, hidden=16, layers=2)
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    assert np.abs(other.predict() - expected.numpy()).max() < 1e-4
    with pytest.raises(ValueError):
        other.load_state_dict({"convs.0.lin.weight": torch.ones(3, 3)})


@pytest.mark.cuda
def test_a_card_trains_and_replays():
    trainer = Trainer(dataset(), "gat", device="cuda", epochs=40, hidden=16)
    run = trainer.fit()
    assert trainer.is_recorded and run.test > 60


def without_validation():
    data = dataset()
    data["test_mask"] |= data["val_mask"]
    data["val_mask"][:] = False
    return data


def test_without_validation_the_last_epoch_is_kept_and_said(tmp_path):
    trainer = Trainer(without_validation(), device="cpu", epochs=30, hidden=8, precision="float")
    with pytest.warns(UserWarning, match="the last epoch is kept") as said:
        run = trainer.fit(save=tmp_path / "run.safetensors")
    assert said[0].filename == __file__
    assert run.best is None and run.kept.epoch == 30 and run.test == run.last.test
    assert np.isnan(run.last.validation)
    # What is saved under the plain names is the last epoch's as well.
    kept = Trainer.load(tmp_path / "run.safetensors", without_validation(), device="cpu")
    np.testing.assert_array_equal(kept.predict(), trainer.predict())
    for name, tensor in kept.state_dict().items():
        assert (tensor == trainer.state_dict()[name]).all()


def test_what_follows_validation_is_refused_without_any():
    for option in ({"early_stopping": 3}, {"schedule": "plateau:3,0.5"}):
        with pytest.raises(ValueError, match="follows the validation score"):
            Trainer(without_validation(), device="cpu", **option)


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    data = dataset()
    Trainer(data, device="cpu", epochs=2, hidden=8).fit(save=tmp_path / "run.safetensors")
    Trainer.load(tmp_path / "run.safetensors", data, device="cpu")
    features = {**data, "x": data["x"] + np.eye(len(data["x"]), data["x"].shape[1], dtype=np.float32)}
    with pytest.raises(ValueError, match="with other features than"):
        Trainer.load(tmp_path / "run.safetensors", features, device="cpu")


def test_sizes_have_bounds():
    with pytest.raises(ValueError, match="from 1 to 1000"):
        Trainer(dataset(), device="cpu", layers=10**9)


def test_threads_are_limited_and_said():
    with pytest.warns(UserWarning, match="2000 threads: takes"):
        halfgnn.set_num_threads(2000)
    assert 0 < halfgnn.get_num_threads() <= 4 * len(os.sched_getaffinity(0))
    halfgnn.set_num_threads(0)
    said = subprocess.run(
        [sys.executable, "-c", "import halfgnn; print(halfgnn.get_num_threads())"],
        env={**os.environ, "RAYON_NUM_THREADS": "2000"}, capture_output=True, text=True, check=True,
    )
    assert "RAYON_NUM_THREADS=2000: takes" in said.stderr and 0 < int(said.stdout) <= 4 * len(os.sched_getaffinity(0))
