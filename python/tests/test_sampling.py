"""Batches: that they are parts of the graph, the same ones of the same seed, and what is computed on them."""

from __future__ import annotations

import numpy as np
import pytest
from test_train import dataset

import halfgnn
from halfgnn import Graph, Loader, spmm

VERTICES = 60


def graph(weighted=False):
    """Edges in no order, some of them several times; the last ten vertices have no in-neighbors."""
    rng = np.random.default_rng(5)
    edges = np.stack([rng.integers(0, VERTICES, 500), rng.integers(0, VERTICES - 10, 500)])
    return Graph(edges, VERTICES, weight=rng.random(500).astype(np.float32) if weighted else None)


def pairs(graph, vertices):
    """The edges of a batch's graph by the numbers that the vertices have in the whole."""
    source, destination = graph.edge_index
    return list(zip(vertices[source].tolist(), vertices[destination].tolist(), strict=True))


def test_neighbours_are_of_the_graph_and_no_more_than_the_fanout():
    whole = graph()
    loader = Loader(whole, "neighbor:4,2", 16, input_nodes=np.arange(40), seed=3)
    assert len(loader) == 3
    edges = {}
    for pair in pairs(whole, np.arange(VERTICES)):
        edges[pair] = edges.get(pair, 0) + 1
    seen = []
    for batch in loader:
        seen.extend(batch.n_id[batch.learn].tolist())
        assert batch.batch_size == batch.graphs[1].num_dst == len(batch.learn)
        assert batch.graphs[0].num_src == len(batch.n_id) == len(set(batch.n_id.tolist()))
        assert batch.graphs[0].num_dst == batch.graphs[1].num_src
        assert (batch.x, batch.y, batch.e_id, batch.node_norm) == (None,) * 4
        for part, fanout in zip(batch.graphs, (2, 4), strict=True):
            vertices = batch.n_id[: part.num_dst]
            wanted = np.minimum(whole.in_degrees()[vertices], fanout)
            np.testing.assert_array_equal(part.in_degrees(), wanted)
            drawn = pairs(part, batch.n_id)
            assert all(drawn.count(pair) <= edges.get(pair, 0) for pair in set(drawn))
        with pytest.raises(ValueError, match="one for each layer"):
            _ = batch.graph
    assert sorted(seen) == list(range(40)) and seen != list(range(40))


def test_all_neighbours_are_the_whole_graphs_sums(rng):
    whole = graph()
    x = rng.standard_normal((VERTICES, 8)).astype(np.float32)
    expected = spmm(whole, spmm(whole, x, reduce="mean"), reduce="mean")
    for batch in Loader({"graph": whole, "x": x, "y": np.arange(VERTICES)}, "neighbor:-1,-1", 7):
        y = batch.x
        for part in batch.graphs:
            y = spmm(part, y, reduce="mean")
        np.testing.assert_allclose(y[batch.learn], expected[batch.y], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(batch.n_id[batch.learn], batch.y)


def test_a_seed_an_epoch_and_a_number_are_a_batch():
    def batches(seed, epoch):
        loader = Loader(graph(), "neighbor-replace:5", 20, seed=seed)
        return [(batch.n_id.tolist(), pairs(batch.graph, batch.n_id)) for batch in loader.epoch(epoch)]

    first = batches(1, 0)
    assert first == batches(1, 0)
    assert first != batches(2, 0) and first != batches(1, 1)
    loader = Loader(graph(), "neighbor-replace:5", 20, seed=1)
    assert loader.batch(0, 2).n_id.tolist() == first[2][0]
    assert [batch.n_id.tolist() for batch in loader] == [ids for ids, _ in first]
    # Each time a loader is gone through it is another epoch.
    assert [batch.n_id.tolist() for batch in loader] != [ids for ids, _ in first]
    ordered = Loader(graph(), "neighbor:1", 25, shuffle=False, drop_last=True)
    assert [batch.n_id[batch.learn].tolist() for batch in ordered] == [list(range(25)), list(range(25, 50))]
    with pytest.raises(IndexError, match="batch 2 of an epoch that has 2"):
        ordered.batch(0, 2)


@pytest.mark.parametrize("sampler", ["saint-node:20", "saint-edge:12", "saint-rw:6,3", "saint-mrw:5,20", "cluster:4"])
def test_subgraphs_have_all_edges_between_their_vertices(sampler):
    whole = graph(weighted=True)
    learnt = np.zeros(VERTICES, dtype=bool)
    learnt[5:35] = True
    size = 2 if sampler.startswith("cluster") else None
    loader = Loader({"graph": whole, "y": np.arange(VERTICES)}, sampler, size, input_nodes=learnt)
    source, destination = whole.edge_index
    for batch in loader:
        chosen = np.isin(np.arange(VERTICES), batch.n_id)
        inside = np.flatnonzero(chosen[source] & chosen[destination])
        assert sorted(batch.e_id.tolist()) == inside.tolist()
        ours = batch.n_id[batch.graph.edge_index]
        np.testing.assert_array_equal(ours, np.stack([source, destination])[:, batch.e_id])
        np.testing.assert_array_equal(batch.graph.weight, whole.weight[batch.e_id])
        np.testing.assert_array_equal(batch.n_id[batch.learn], batch.n_id[learnt[batch.n_id]])
        np.testing.assert_array_equal(batch.y, batch.n_id[batch.learn])
        assert (batch.node_norm is None) == (size is not None)


def test_the_norms_make_sums_of_subgraphs_those_of_the_graph(rng):
    """GraphSAINT §3.2: in the mean over many subgraphs a vertex's sum, of the subgraphs that it is in, and a loss are the graph's."""
    whole = graph()
    x = rng.standard_normal((VERTICES, 4)).astype(np.float32)
    # Vertices of many out-edges cost more, and walks come to them more often.
    cost = whole.out_degrees().astype(np.float32)
    expected, mean = spmm(whole, x), cost.mean()
    loader = Loader({"graph": whole, "x": x}, "saint-rw:12,2", coverage=2000, seed=9)
    sums, plain, counts, losses, missed = np.zeros_like(expected), np.zeros_like(expected), np.zeros(VERTICES), [], []
    for epoch in range(1000):
        for batch in loader.epoch(epoch):
            sums[batch.n_id] += spmm(batch.graph, batch.x, batch.edge_norm)
            plain[batch.n_id] += spmm(batch.graph, batch.x)
            counts[batch.n_id] += 1
            of_batch = cost[batch.n_id[batch.learn]]
            losses.append((of_batch * batch.node_norm).sum())
            missed.append(of_batch.mean())

    def apart(sums):
        return np.linalg.norm(sums / counts[:, None] - expected) / np.linalg.norm(expected)

    assert counts.min() > 500
    assert apart(sums) < 0.05 and apart(plain) > 0.3
    assert abs(np.mean(losses) / mean - 1) < 0.01 and abs(np.mean(missed) / mean - 1) > 0.02


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (("neighbours:5",), {}, ValueError, "is no sampler"),
        (("neighbor:0",), {}, ValueError, "fanout"),
        (("graphs",), {}, ValueError, "draws no neighbours"),
        (("neighbor:5", 0), {}, ValueError, "batch_size 0; take 1 at least"),
        (("neighbor:5",), {"coverage": 3}, ValueError, "coverage: neighbor:5 has no use for it"),
        (("saint-node:5", 7), {}, ValueError, "batch_size: saint-node:5 has no use"),
        (("saint-node:5",), {"shuffle": True}, ValueError, "shuffle: saint-node:5 has no use"),
        (("saint-node:5",), {"drop_last": True}, ValueError, "drop_last: saint-node:5 has no use"),
        (("saint-node:5",), {"coverage": 0}, ValueError, "coverage 0; take 1 at least"),
        (("neighbor:5",), {"input_nodes": [1, VERTICES]}, IndexError, f"{VERTICES} is no vertex"),
        (("neighbor:5",), {"input_nodes": [-1]}, IndexError, "-1 is no vertex"),
        (("neighbor:5",), {"input_nodes": [0.5]}, ValueError, "a list of integers or a mask"),
        (("neighbor:5",), {"input_nodes": np.ones(3, dtype=bool)}, ValueError, f"a mask should be {VERTICES}"),
        (("neighbor:5",), {"input_nodes": []}, ValueError, "list one at least"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(arguments, options, error, words):
    with pytest.raises(error, match=words) as raised:
        Loader(graph(), *arguments, **options)
    assert "\n" not in str(raised.value)


def test_vertices_that_are_there_twice_weights_and_misfits():
    with pytest.raises(ValueError, match=r"input_nodes\[1\] is 4, which is asked for twice, at 0 already"):
        Loader(graph(), "neighbor:5", input_nodes=[4, 4])
    with pytest.raises(ValueError, match="unweighted"):
        Loader(graph(weighted=True), "neighbor:5")
    with pytest.raises(ValueError, match="y: 3 rows"):
        Loader({"graph": graph(), "y": np.zeros(3)}, "neighbor:5")
    with pytest.raises(ValueError, match="no one number of vertices"):
        Loader(Graph(([0], [1]), size=(3, 2)), "neighbor:5")


def test_a_list_of_numbers_is_a_number_of_neighbours_a_layer():
    lists, words = (Loader(graph(), sampler, 16, shuffle=False) for sampler in ([5, -1], "neighbor:5,-1"))
    for one, other in zip(lists, words, strict=True):
        assert np.array_equal(one.n_id, other.n_id)
    with pytest.raises(ValueError, match="list: should be an array, or lists of the same length"):
        Loader(graph(), [5], 16, input_nodes=[[1, 2], [3]])


def test_zeros_and_ones_for_each_vertex_are_a_mask():
    mask = np.arange(VERTICES) % 3 == 1
    seeds = {"input_nodes": mask, "shuffle": False}

    def asked(**options):
        batches = Loader(graph(), "neighbor:5", VERTICES, **{**seeds, **options})
        return [np.asarray(batch.n_id)[np.asarray(batch.learn)].tolist() for batch in batches]

    expected = [np.flatnonzero(mask).tolist()]
    assert asked() == expected
    for dtype in (np.uint8, np.int8, np.int32, np.int64, np.float32):
        assert asked(input_nodes=mask.astype(dtype)) == expected
    assert asked(input_nodes=mask.astype(int).tolist()) == expected
    assert asked(input_nodes=np.flatnonzero(mask)) == expected
    assert asked(input_nodes=[1, 0]) == [[1, 0]]
    # Two vertices' zeros and ones are a mask, too.
    two = Loader({"edge_index": np.array([[0, 1], [1, 0]])}, "neighbor:1", 2, input_nodes=np.array([0, 1]))
    assert [batch.batch_size for batch in two] == [1]


def test_a_mapping_has_the_vertices_that_it_says():
    loader = Loader({"edge_index": np.array([[0, 1], [1, 0]]), "num_nodes": 5}, "neighbor:-1", 5, shuffle=False)
    assert [batch.batch_size for batch in loader] == [5]
    with pytest.raises(ValueError, match="there is no 'num_node'; is 'num_nodes' meant"):
        Loader({"edge_index": np.array([[0, 1], [1, 0]]), "num_node": 5}, "neighbor:-1")
    with pytest.raises(TypeError, match="there is no 'input_node'; is 'input_nodes' meant"):
        Loader(graph(), "neighbor:5", input_node=[1])


def test_a_model_of_torchs_learns_from_batches():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    data = {name: torch.as_tensor(values) for name, values in dataset().items()}
    torch.manual_seed(1)
    layers = torch.nn.ModuleList([halfgnn.nn.SAGEConv(12, 16), halfgnn.nn.SAGEConv(16, 3)])
    optimizer = torch.optim.Adam(layers.parameters(), 0.01)
    loader = Loader(data, "neighbor:10,5", 16, input_nodes=data["train_mask"])

    def forward(batch):
        x = batch.x
        for layer, part in zip(layers, batch.graphs, strict=True):
            x = layer((x, x[: part.num_dst]), part)
            x = x.relu() if layer is layers[0] else x
        return x[batch.learn]

    for _ in range(12):
        for batch in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(forward(batch), batch.y).backward()
            optimizer.step()
    everyone = Loader(data, "neighbor:-1,-1", 200, input_nodes=data["test_mask"], shuffle=False)
    right = [(forward(batch).argmax(1) == batch.y).float().mean() for batch in everyone]
    assert len(right) == 1 and right[0] > 0.6
    assert batch.n_id.dtype == torch.int64 and isinstance(batch.graphs[0].device, torch.device)


@pytest.mark.cuda
def test_a_card_draws_what_the_cpu_draws():
    import torch

    whole = graph()
    data = {"graph": whole, "x": torch.arange(VERTICES)[:, None].float()}
    for sampler in ("neighbor:4,2", "saint-rw:6,3", "cluster:4"):
        host = Loader(data, sampler, seed=3, device="cpu")
        card = Loader(data, sampler, seed=3, device="cuda")
        for a, b in zip(host, card, strict=True):
            assert b.x.device.type == "cuda"
            torch.testing.assert_close(a.x, b.x.cpu())
            torch.testing.assert_close(a.n_id, b.n_id.cpu())
            for one, other in zip(a.graphs, b.graphs, strict=True):
                torch.testing.assert_close(one.edge_index, other.edge_index.cpu())
            for one, other in ((a.node_norm, b.node_norm), (a.edge_norm, b.edge_norm)):
                assert (one is None) == (other is None)
                if one is not None:
                    torch.testing.assert_close(one, other.cpu())
