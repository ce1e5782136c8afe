"""What layers keep of an ``edge_index``: never longer than its contents, and never the caller's modes."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from halfgnn import Graph, dgl, nn  # noqa: E402

N, IN, OUT = 12, 6, 4

LAYERS = {
    "GCNConv": lambda of: of.GCNConv(IN, OUT),
    "SAGEConv": lambda of: of.SAGEConv(IN, OUT),
    "GINConv": lambda of: of.GINConv(torch.nn.Linear(IN, OUT)),
    "GATConv": lambda of: of.GATConv(IN, OUT, heads=2),
    "GATv2Conv": lambda of: of.GATv2Conv(IN, OUT, heads=2),
}


def given():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(N, IN, generator=generator), torch.randint(0, N, (2, 50), generator=generator)


def made(kind):
    torch.manual_seed(5)
    return LAYERS[kind](nn)


def through_numpy():
    array = np.random.default_rng(2).integers(0, N, (2, 50))
    index = torch.from_numpy(array)

    def write():
        array[:, 0] = array[:, 0] + 1

    array[:, 0] = 3, 4
    return index, write


def through_data():
    _, index = given()

    def write():
        index.data[:, 0] = torch.tensor([7, 8])

    index[:, 0] = torch.tensor([1, 2])
    return index, write


def through_dlpack():
    _, index = given()
    index[:, 0] = torch.tensor([1, 2])

    def write():
        torch.utils.dlpack.from_dlpack(index)[:, 0] = torch.tensor([7, 8])

    return index, write


def in_inference_mode():
    with torch.inference_mode():
        index = given()[1].clone()
        index[:, 0] = torch.tensor([1, 2])

    def write():
        with torch.inference_mode():
            index[:, 0] = torch.tensor([7, 8])

    return index, write


@pytest.mark.parametrize("make", [through_numpy, through_data, through_dlpack, in_inference_mode])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_write_that_moves_no_version_is_seen(kind, make):
    x, _ = given()
    layer = made(kind).eval()
    index, write = make()
    with torch.no_grad():
        before = layer(x, index)
        write()
        after, expected = layer(x, index), layer(x, index.clone())
    assert not torch.equal(before, expected)
    assert torch.equal(after, expected)


@pytest.mark.parametrize("layout", ["to_sparse_csr", "to_sparse_coo"])
def test_a_write_to_a_sparse_matrix_is_seen(layout):
    x, _ = given()
    layer = nn.GCNConv(IN, OUT, improved=True)
    dense = torch.eye(N) + torch.eye(N).roll(1, 0)
    matrix = getattr(dense, layout)()
    before = layer(x, matrix)
    values = matrix.values() if layout == "to_sparse_csr" else matrix._values()
    values.data[:3] = 5.0
    expected = layer(x, getattr(matrix.to_dense(), layout)())
    assert not torch.allclose(before, expected)
    assert torch.allclose(layer(x, matrix), expected, atol=1e-6)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("as_graph", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_what_inference_made_trains(kind, as_graph, mode):
    x, index = given()
    layer, fresh = made(kind), made(kind)
    expected = fresh(x, index.clone())
    expected.sum().backward()
    with mode():
        adjacency = Graph(index, N) if as_graph else index
        layer(x, adjacency)
    out = layer(x, adjacency)
    out.sum().backward()
    assert torch.equal(out, expected)
    for got, wanted in zip(layer.parameters(), fresh.parameters()):
        assert torch.equal(got.grad, wanted.grad)


def test_a_graph_with_weights_made_in_inference_mode_trains():
    x, index = given()
    layer = nn.GCNConv(IN, OUT)
    for weight in (torch.arange(1, 51), torch.rand(50)):
        with torch.inference_mode():
            graph = Graph(index, N, weight=weight.clone()).prepare()
            layer(x, graph)
        layer(x.clone().requires_grad_(), graph).sum().backward()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_cached_layer_trains_after_inference(weighted):
    x, index = given()
    layer = nn.GCNConv(IN, OUT, cached=True)
    theirs = pyg.GCNConv(IN, OUT, cached=True)
    theirs.load_state_dict(layer.state_dict())
    weight = torch.rand(50) if weighted else None
    with torch.inference_mode():
        layer(x, index, weight)
        theirs(x, index, weight)
    assert layer._cached_edge_index is not None
    layer(x, index, weight).sum().backward()
    expected = pyg.GCNConv(IN, OUT)
    expected.load_state_dict(layer.state_dict())
    expected(x, index, weight).sum().backward()
    assert torch.allclose(layer.lin.weight.grad, expected.lin.weight.grad, atol=1e-5)
    # The first graph stays, as it does in PyG's.
    other = torch.randint(0, N, (2, 50))
    with torch.no_grad():
        assert torch.allclose(layer(x, other), theirs(x, other), atol=1e-5)


def test_a_cached_layer_learns_weights_step_after_step():
    x, index = given()
    layer = nn.GCNConv(IN, OUT, cached=True)
    fresh = pyg.GCNConv(IN, OUT)
    fresh.load_state_dict(layer.state_dict())
    weight = torch.rand(50, requires_grad=True)
    for _ in range(2):
        weight.grad = None
        layer(x, index, weight).sum().backward()
        got, weight.grad = weight.grad, None
        fresh(x, index, weight).sum().backward()
        assert torch.allclose(got, weight.grad, atol=1e-5)
        with torch.no_grad():
            weight.mul_(1.5)


def test_a_graph_is_made_once_while_nothing_changes(monkeypatch):
    import halfgnn._tensors as tensors

    count = [0]
    adjacency = tensors.adjacency
    monkeypatch.setattr(tensors, "adjacency", lambda *of: count.__setitem__(0, count[0] + 1) or adjacency(*of))
    x, index = given()
    layer = nn.SAGEConv(IN, OUT)
    for _ in range(3):
        layer(x, index)
    assert count == [1]
    index[0, 0] = (index[0, 0] + 1) % N
    layer(x, index)
    layer(x, index)
    assert count == [2]


def test_a_copied_layer_shares_no_graph_that_is_cached():
    x, index = given()
    layer = nn.GCNConv(IN, OUT, cached=True)
    expected = layer(x, index)
    assert torch.equal(copy.deepcopy(layer)(x, index), expected)
    layer.reset_parameters()
    assert layer._cached_graph is None and layer._cached_edge_index is None


class Dgl:
    """What halfgnn reads of a graph of DGL's."""

    def __init__(self, index):
        self.index = index

    def edges(self, order):
        assert order == "eid"
        return self.index[0], self.index[1]

    def num_src_nodes(self):
        return N

    num_dst_nodes = num_src_nodes


def test_a_graph_of_dgls_that_is_given_edges_is_seen():
    x, index = given()
    layer = dgl.SAGEConv(IN, OUT, "mean")
    graph = Dgl(index)
    with torch.inference_mode():
        before = layer(graph, x)
    graph.index = torch.cat([index, torch.tensor([[1, 2], [3, 3]])], dim=1)
    after = layer(graph, x)
    assert not torch.equal(after, before) and torch.equal(after, layer(Dgl(graph.index), x))
    after.sum().backward()


def test_a_graph_in_numpy_arrays_is_turned_into_tensors_once():
    x, index = given()
    graph = Graph(index.numpy(), N)
    assert graph._in_torch() is graph._in_torch()
    for kind in LAYERS:
        layer = made(kind)
        out = layer(x, graph)
        out.sum().backward()
        assert torch.allclose(out, layer(x, index), atol=1e-6)
