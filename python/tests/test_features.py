"""Rows of batches: the same wherever the features lie, and what cannot be said in a line."""

from __future__ import annotations

import os
import pathlib
import shutil

import numpy as np
import pytest
from conftest import kernels

import halfgnn
from halfgnn import Graph, Loader

VERTICES = 60


def graph(kind=np.asarray):
    rng = np.random.default_rng(5)
    edges = np.stack([rng.integers(0, VERTICES, 500), rng.integers(0, VERTICES, 500)])
    return Graph(kind(edges), VERTICES)


def features(dtype, columns=11):
    """Numbers that are in any format what they are."""
    return np.arange(VERTICES * columns).reshape(VERTICES, columns).astype(dtype)


def same(data, x, **options):
    """That batches have the rows of ``x``, whose number of columns is odd, in its elements, and are those without features."""
    for sampler in ("neighbor:4,2", "saint-rw:6,3"):
        size = 16 if sampler[0] == "n" else None
        loader = Loader(data, sampler, size, seed=3, **options)
        batches = [*loader, loader.batch(5, 1)]
        assert len(batches) > 3
        for batch, bare in zip(batches, Loader(data["graph"], sampler, size, seed=3), strict=False):
            np.testing.assert_array_equal(batch.n_id, bare.n_id)
        for batch in batches:
            rows, expected = np.asarray(batch.x), x[np.asarray(batch.n_id)]
            assert rows.dtype == x.dtype and rows.shape == expected.shape
            np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_are_the_same_wherever_they_lie(dtype, tmp_path):
    x, whole = features(dtype), graph()
    path = tmp_path / "x.npy"
    np.save(path, x)
    mapped = np.load(path, mmap_mode="r")
    raw = np.memmap(tmp_path / "raw", dtype=dtype, mode="w+", offset=37, shape=(VERTICES + 3, 11))
    raw[3:] = x
    same({"graph": whole, "x": x}, x)
    same({"graph": whole, "x": x}, x, features="device")
    same({"graph": whole, "x": x}, x, features="host")
    same({"graph": whole, "x": path}, x)
    same({"graph": whole, "x": str(path)}, x, features="disk")
    same({"graph": whole, "x": mapped}, x, features="disk")
    same({"graph": whole, "x": mapped}, x, features="host")
    # What was written last is in the system's cache of the file, and rows may begin anywhere.
    same({"graph": whole, "x": raw[3:]}, x, features="disk")
    same({"graph": whole, "x": np.asarray(raw)[3:]}, x, features="disk")


@pytest.mark.skipif(not kernels(), reason="there are no kernels")
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_card_reads_them_from_the_hosts_memory_and_from_disk(dtype, tmp_path):
    x, whole = features(dtype, 37), graph()
    np.save(tmp_path / "x.npy", x)
    with halfgnn.emulated():
        same({"graph": whole, "x": x}, x, features="host")
        for cached in (1, 20, VERTICES, 1000):
            same({"graph": whole, "x": x}, x, features="host", cached=cached)
        same({"graph": whole, "x": tmp_path / "x.npy"}, x, features="disk")
        # Not the array that was given, which nothing but the host can read.
        loader = Loader({"graph": whole, "x": x}, "neighbor:4", 16, features="host")
        x[:] = 0
        assert next(iter(loader)).x.any()


def test_tensors_of_any_format_and_files(tmp_path):
    torch = pytest.importorskip("torch")
    x, whole = torch.from_numpy(features(np.float32, 5)), graph(torch.as_tensor)
    np.save(tmp_path / "x.npy", x.half().numpy())
    places = [(x, "host"), (x.half(), "device"), (x.bfloat16(), "host"), (tmp_path / "x.npy", "disk")]
    emulated = [(x.bfloat16(), "host"), (x, "host"), (tmp_path / "x.npy", "disk")] if kernels() else []

    def check(given, where):
        for batch in Loader({"graph": whole, "x": given}, "neighbor:4", 16, features=where):
            wanted = x.half() if where == "disk" else given
            assert isinstance(batch.x, torch.Tensor) and batch.x.dtype == wanted.dtype
            torch.testing.assert_close(batch.x, wanted[batch.n_id], rtol=0, atol=0)

    for given, where in places:
        check(given, where)
    for given, where in emulated:
        with halfgnn.emulated():
            check(given, where)


@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_a_folder_of_parts_has_the_rows_of_its_vertices(kind, tmp_path):
    """Of 6 vertices in 2 parts, in half: x[v][c] = 10 v + c, over the sum of the row, as gnn-benchmark's files are read."""
    folder = tmp_path / "six.parts"
    shutil.copytree(pathlib.Path(__file__).parent / "data/six.parts", folder)
    x = 10 * np.arange(6)[:, None] + np.arange(3)
    x = x / x.sum(1, keepdims=True)
    ring = Graph((np.arange(6), np.roll(np.arange(6), 1)), 6)
    for features in (None, "disk"):
        for batch in Loader({"graph": ring, "x": kind(folder)}, "neighbor:1", 4, features=features):
            assert batch.x.dtype == np.float16
            np.testing.assert_allclose(batch.x, x[batch.n_id], rtol=1e-3)
    with pytest.raises(ValueError, match="x: 6 rows, and the graph has 60 vertices"):
        Loader({"graph": graph(), "x": kind(folder)}, "neighbor:1")
    part = folder / "part-00001.bin"
    loader = Loader({"graph": ring, "x": kind(folder)}, "neighbor:-1", 6)
    os.truncate(part, part.stat().st_size - 1)
    with pytest.raises(RuntimeError, match="part-00001.bin: length: it is 111 bytes, and was 112"):
        loader.batch(0, 0)
    with pytest.raises(ValueError, match="part-00001.bin"):
        Loader({"graph": ring, "x": kind(folder)}, "neighbor:1")


def test_the_next_rows_are_read_while_a_batch_is_computed_on(tmp_path):
    x = features(np.float32)
    path = tmp_path / "x.npy"
    np.save(path, x)
    loader = Loader({"graph": graph(), "x": path}, "neighbor:3", 10)
    epoch = loader.epoch(0)
    first = next(epoch)
    # A batch out of turn takes none that were read for another, nor does an epoch that was left.
    for batch in (first, loader.batch(3, 2), next(epoch), *loader.epoch(1)):
        np.testing.assert_array_equal(batch.x, x[batch.n_id])


@pytest.mark.parametrize("change", ["shorter", "gone", "other"])
def test_a_file_that_changes_is_said_in_a_line(change, tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, features(np.float32))
    loader = Loader({"graph": graph(), "x": path}, "neighbor:3", 10)
    batches = iter(loader)
    next(batches)
    if change == "shorter":
        os.truncate(path, os.path.getsize(path) - 1)
    elif change == "gone":
        path.unlink()
    else:
        np.save(tmp_path / "other.npy", features(np.int32))
        os.replace(tmp_path / "other.npy", path)
    words = {"shorter": "length: it is", "gone": "cannot be read", "other": "identity: it is another file"}[change]
    with pytest.raises(RuntimeError, match=words) as raised:
        # The rows of the second may have been read before.
        for _ in range(3):
            next(batches)
    assert "x.npy" in str(raised.value) and "\n" not in str(raised.value)


def test_what_cannot_be_is_said_in_a_line(tmp_path):
    whole, x = graph(), features(np.float32)
    mapped = np.memmap(tmp_path / "raw", dtype=np.float32, mode="w+", shape=x.shape)
    mapped[:] = x
    private = np.memmap(tmp_path / "raw", dtype=np.float32, mode="c", shape=x.shape)
    np.save(tmp_path / "wide.npy", x.astype(np.float64))
    np.save(tmp_path / "swapped.npy", x.astype(">f4"))
    np.save(tmp_path / "long.npy", np.concatenate([x, x[:3]]))
    np.save(tmp_path / "columns.npy", np.asfortranarray(x))
    (tmp_path / "text.npy").write_text("a,b")
    (tmp_path / "empty.npy").touch()
    np.save(tmp_path / "cut.npy", x)
    os.truncate(tmp_path / "cut.npy", os.path.getsize(tmp_path / "cut.npy") - 1)
    (tmp_path / "folder").mkdir()
    for given, where, error, words in [
        (x, "card", ValueError, "features 'card'; take 'device', 'host' or 'disk'"),
        (None, "host", ValueError, "the data has no x"),
        (x, "disk", ValueError, "x: ndarray; features='disk' takes a path"),
        (x.astype(np.float64), "host", ValueError, "x: float64 of shape .* float16, float32"),
        (x[:, 0], "host", ValueError, "rows of float16, float32"),
        (x[:, :0], "host", ValueError, "rows of float16, float32"),
        (x[3:], "host", ValueError, "x: 57 rows, and the graph has 60 vertices"),
        (mapped[3:], "disk", ValueError, "x: 57 rows, and the graph has 60 vertices"),
        (mapped[:, 1:], "disk", ValueError, "raw: its rows do not follow one another"),
        (private, "disk", ValueError, "raw: mapped copy-on-write"),
        (tmp_path / "wide.npy", None, ValueError, "x: float64 of shape"),
        (tmp_path / "swapped.npy", None, ValueError, "x: >f4 of shape"),
        (tmp_path / "long.npy", None, ValueError, "x: 63 rows, and the graph has 60 vertices"),
        (tmp_path / "columns.npy", None, ValueError, "its rows do not follow one another"),
        (tmp_path / "text.npy", None, ValueError, "text.npy: neither a whole array"),
        (tmp_path / "empty.npy", None, ValueError, "empty.npy: neither a whole array"),
        (tmp_path / "cut.npy", None, ValueError, "cut.npy: neither a whole array"),
        (tmp_path / "none.npy", None, OSError, "none.npy"),
        (tmp_path / "folder", None, ValueError, "folder: "),
        (tmp_path / "long.npy", "host", ValueError, "a path is read with features='disk'"),
    ]:
        with pytest.raises(error, match=words) as raised:
            Loader({"graph": whole, "x": given}, "neighbor:5", features=where)
        assert "\n" not in str(raised.value)
    for where, cached, words in [
        ("device", 5, "cached 5: a GPU has copies of features='host'"),
        (None, 5, "cached 5: a GPU has copies of features='host'"),
        ("host", 5, "cached 5: all memory of a CPU is the host's"),
        ("host", 0, "cached 0; take 1 at least"),
    ]:
        with pytest.raises(ValueError, match=words):
            Loader({"graph": whole, "x": x}, "neighbor:5", features=where, cached=cached)


@pytest.mark.cuda
def test_a_cards_batches_have_the_same_rows(tmp_path):
    import torch

    x, whole = torch.from_numpy(features(np.float32, 37)), graph(torch.as_tensor)
    np.save(tmp_path / "x.npy", x.numpy())
    for given, where in [(x, "device"), (x, "host"), (x, None), (tmp_path / "x.npy", "disk")]:
        for batch in Loader({"graph": whole, "x": given}, "neighbor:4,2", 16, device="cuda", features=where):
            assert batch.x.device.type == "cuda"
            torch.testing.assert_close(batch.x.cpu(), x[batch.n_id.cpu()], rtol=0, atol=0)
    half = {"graph": whole, "x": x.half()}
    loaders = [Loader(half, "neighbor:4", 16, device="cuda", features="host", cached=cached) for cached in (None, 20)]
    for batch in (batch for loader in loaders for batch in loader):
        torch.testing.assert_close(batch.x.cpu(), x.half()[batch.n_id.cpu()], rtol=0, atol=0)
