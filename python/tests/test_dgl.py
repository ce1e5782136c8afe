"""DGL's layers, without DGL: their formulas, and their keys."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from halfgnn import Graph, dgl  # noqa: E402

N, IN, OUT = 30, 7, 5


def graph_and_features():
    generator = torch.Generator().manual_seed(4)
    index = torch.cat([torch.randint(0, N, (2, 150), generator=generator), torch.arange(N).repeat(2, 1)], dim=1)
    return Graph(index, N), torch.randn(N, IN, generator=generator)


def dense(graph):
    a = torch.zeros(N, N)
    source, destination = graph.edge_index
    return a.index_put_((destination, source), torch.ones(graph.num_edges), accumulate=True)


@pytest.mark.parametrize("norm", ["none", "both", "left", "right"])
@pytest.mark.parametrize("width", [OUT, 12])
def test_graph_conv(norm, width):
    graph, x = graph_and_features()
    layer = dgl.GraphConv(IN, width, norm=norm, activation=torch.tanh)
    assert set(layer.state_dict()) == {"weight", "bias"} and layer.weight.shape == (IN, width)
    torch.nn.init.uniform_(layer.bias)
    a = dense(graph)
    into, out = a.sum(1, keepdim=True), a.sum(0, keepdim=True)
    a = {"none": a, "both": a / (into * out).sqrt(), "left": a / out, "right": a / into}[norm]
    assert torch.allclose(layer(graph, x), (a @ x @ layer.weight + layer.bias).tanh(), atol=1e-5)


@pytest.mark.parametrize("kind", ["mean", "gcn", "pool"])
@pytest.mark.parametrize("width", [OUT, 12])
def test_sage_conv(kind, width):
    graph, x = graph_and_features()
    layer = dgl.SAGEConv(IN, width, kind)
    a = dense(graph)
    into = a.sum(1, keepdim=True)
    if kind == "mean":
        assert set(layer.state_dict()) == {"fc_self.weight", "fc_self.bias", "fc_neigh.weight"}
        expected = layer.fc_self(x) + layer.fc_neigh(a @ x / into)
    elif kind == "gcn":
        expected = layer.fc_neigh((a @ x + x) / (into + 1)) + layer.bias
    else:
        h = layer.fc_pool(x).relu()
        largest = torch.stack([h[row > 0].amax(0) for row in a])
        expected = layer.fc_self(x) + layer.fc_neigh(largest)
    assert torch.allclose(layer(graph, x), expected, atol=1e-5)


def test_gin_conv():
    graph, x = graph_and_features()
    layer = dgl.GINConv(torch.nn.Linear(IN, OUT), init_eps=0.5, learn_eps=True)
    assert set(layer.state_dict()) == {"eps", "apply_func.weight", "apply_func.bias"}
    expected = layer.apply_func(1.5 * x + dense(graph) @ x)
    assert torch.allclose(layer(graph, x), expected, atol=1e-5)
    # What makes rows wider comes after the sum, and so does what is no product.
    for network in (torch.nn.Linear(IN, 2 * IN), torch.nn.Tanh(), None):
        layer = dgl.GINConv(network, init_eps=0.5)
        total = 1.5 * x + dense(graph) @ x
        assert torch.allclose(layer(graph, x), total if network is None else network(total), atol=1e-5)


def test_gat_conv():
    graph, x = graph_and_features()
    layer = dgl.GATConv(IN, OUT, num_heads=3, residual=True)
    assert set(layer.state_dict()) == {"fc.weight", "attn_l", "attn_r", "bias", "res_fc.weight"}
    source, destination = graph.edge_index
    h = layer.fc(x).view(N, 3, OUT)
    e = (h * layer.attn_l).sum(2)[source] + (h * layer.attn_r).sum(2)[destination]
    e = torch.nn.functional.leaky_relu(e, 0.2).exp()
    alpha = e / torch.zeros(N, 3).index_add(0, destination, e)[destination]
    y = torch.zeros(N, 3, OUT).index_add(0, destination, alpha[:, :, None] * h[source])
    expected = y + (layer.res_fc(x) + layer.bias).view(N, 3, OUT)
    assert torch.allclose(layer(graph, x), expected, atol=1e-5)


def test_a_block_takes_features_of_its_sources():
    graph = Graph((torch.arange(12), torch.arange(12) % 5), size=(12, 5))
    x = torch.randn(12, IN)
    for layer in (dgl.SAGEConv(IN, OUT, "mean"), dgl.GATConv(IN, OUT, 2), dgl.GINConv(torch.nn.Linear(IN, OUT))):
        whole, pair = layer(graph, x), layer(graph, (x, x[:5]))
        assert whole.shape[0] == 5 and torch.allclose(whole, pair, atol=1e-6)


def test_refusals():
    graph = Graph(torch.tensor([[0], [1]]), 2)
    x = torch.ones(2, IN)
    for call, words in [
        (lambda: dgl.GraphConv(IN, OUT)(graph, x), "allow_zero_in_degree=True"),
        (lambda: dgl.GATConv(IN, OUT, 1)(graph, x), "allow_zero_in_degree=True"),
        (lambda: dgl.SAGEConv(IN, OUT, "lstm"), "mean, gcn or pool"),
        (lambda: dgl.GATConv(IN, OUT, 1, allow_zero_in_degree=True)(graph, x, get_attention=True), "take DGL's own"),
        (lambda: dgl.GraphConv(IN, OUT, norm="x"), "none, both, right or left"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
    assert dgl.GraphConv(IN, OUT, allow_zero_in_degree=True)(graph, x).shape == (2, OUT)
