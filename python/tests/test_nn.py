"""Layers, compared with PyG's own: values, gradients and keys."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import halfgnn  # noqa: E402
from halfgnn import Graph, nn  # noqa: E402

N, IN, OUT = 40, 11, 6


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(IN, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, OUT))


LAYERS = {
    "gcn": ("GCNConv", lambda: ((IN, OUT), {})),
    "gcn wider": ("GCNConv", lambda: ((IN, 24), {})),
    "gcn without loops": ("GCNConv", lambda: ((IN, OUT), {"add_self_loops": False})),
    "gcn without norm": ("GCNConv", lambda: ((IN, OUT), {"normalize": False})),
    "gcn improved": ("GCNConv", lambda: ((IN, OUT), {"improved": True})),
    "gcn cached": ("GCNConv", lambda: ((IN, OUT), {"cached": True, "bias": False})),
    "sage": ("SAGEConv", lambda: ((IN, OUT), {})),
    "sage wider": ("SAGEConv", lambda: ((IN, 24), {"project": True})),
    "sage sum": ("SAGEConv", lambda: ((IN, OUT), {"aggr": "sum", "root_weight": False})),
    "sage max": ("SAGEConv", lambda: ((IN, OUT), {"aggr": "max", "normalize": True})),
    "gin": ("GINConv", lambda: ((mlp(),), {"eps": 0.3, "train_eps": True})),
    "gat": ("GATConv", lambda: ((IN, OUT), {})),
    "gat heads": ("GATConv", lambda: ((IN, OUT), {"heads": 3, "residual": True})),
    "gat mean": ("GATConv", lambda: ((IN, 8), {"heads": 4, "concat": False, "add_self_loops": False})),
    "gatv2": ("GATv2Conv", lambda: ((IN, OUT), {})),
    "gatv2 heads": ("GATv2Conv", lambda: ((IN, OUT), {"heads": 3, "residual": True, "negative_slope": 0.1})),
    "gatv2 mean": ("GATv2Conv", lambda: ((IN, 8), {"heads": 4, "concat": False, "add_self_loops": False})),
    "gatv2 shared": ("GATv2Conv", lambda: ((IN, OUT), {"heads": 2, "share_weights": True, "bias": False})),
}


def graph_and_features(count=230):
    generator = torch.Generator().manual_seed(4)
    # With loops and vertices without in-neighbors.
    index = torch.randint(0, N - 3, (2, count), generator=generator)
    index[:, :5] = torch.arange(5)
    return index, torch.randn(N, IN, generator=generator)


def both(name):
    """PyG's layer and ours, with the same numbers, by a strict ``load_state_dict`` in either direction."""
    kind, make = LAYERS[name]
    torch.manual_seed(1)
    arguments, options = make()
    theirs = getattr(pyg, kind)(*arguments, **options)
    torch.manual_seed(2)
    arguments, options = make()
    ours = getattr(nn, kind)(*arguments, **options)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.ndim == 1:
                parameter.uniform_(-0.5, 0.5)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return theirs, ours


def run(layer, x, *arguments):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = layer(x, *arguments)
    generator = torch.Generator().manual_seed(9)
    (y * torch.randn(y.shape, generator=generator).to(y)).sum().backward()
    return y.detach(), x.grad, *(p.grad for p in layer.parameters())


def assert_close(ours, theirs, tolerance):
    for got, wanted in zip(ours, theirs, strict=True):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        scale = max(1.0, wanted.float().abs().max().item())
        assert (got.float() - wanted.float()).abs().max().item() <= tolerance * scale


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("as_graph", [False, True])
def test_values_and_gradients_are_pygs(name, as_graph, device):
    theirs, ours = (layer.to(device) for layer in both(name))
    index, x = (tensor.to(device) for tensor in graph_and_features())
    adjacency = Graph(index, N) if as_graph else index
    for _ in range(2):
        assert_close(run(ours, x, adjacency), run(theirs, x, index), 1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LAYERS)
def test_half_is_pygs_float_to_half(name, device):
    theirs, ours = (layer.to(device) for layer in both(name))
    index, x = (tensor.to(device) for tensor in graph_and_features())
    # GATv2's LeakyReLU is of each feature of an edge: where half has another sign than float, a gradient is another one.
    in_half(theirs, ours, x, index, of_gradients=1e-2 if name.startswith("gatv2") else 5e-3)


def in_half(theirs, ours, x, index, of_gradients=5e-3):
    """Outputs and gradients of ours in half, and those of PyG's in float of the same numbers."""
    x = x.half().float()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(parameter.half())
    ours.load_state_dict(theirs.state_dict(), strict=True)
    got = run(ours.half().eval(), x.half(), index)
    expected = run(theirs.eval(), x, index)
    assert all(tensor.dtype == torch.float16 for tensor in got)
    got = [tensor.float() for tensor in got]
    assert_close(got[:1], expected[:1], 5e-3)
    assert_close(got[1:], expected[1:], of_gradients)


def networks():
    """Networks of a GIN, by what they begin with, and how wide the rows are that are summed up."""
    linear = torch.nn.Linear
    return {
        "a product": (linear(IN, OUT), OUT),
        "a product without bias": (torch.nn.Sequential(pyg.Linear(IN, OUT, bias=False), torch.nn.ReLU()), OUT),
        "a product that widens": (torch.nn.Sequential(linear(IN, 24), torch.nn.ReLU(), linear(24, OUT)), IN),
        "something else": (torch.nn.Sequential(torch.nn.ReLU(), linear(IN, OUT)), IN),
        "a network of its own": (torch.nn.Sequential(torch.nn.Sequential(linear(IN, OUT))), IN),
        "PyG's, normalised": (pyg.MLP([IN, 8, OUT]), 8),
        "PyG's, activated first": (pyg.MLP([IN, 8, 7, OUT], act="elu", act_first=True, norm="layer", plain_last=False), 8),
        "PyG's, of one product": (pyg.MLP([IN, OUT], dropout=0.5), OUT),
        "PyG's, plain": (pyg.MLP([IN, 8, OUT], act=None, norm=None, bias=[False, True]), 8),
    }


@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
@pytest.mark.parametrize("name", networks())
def test_products_of_gin_go_first_where_they_make_rows_narrower(name, aggr, monkeypatch):
    torch.manual_seed(2)
    network, width = networks()[name]
    theirs = pyg.GINConv(network, eps=0.3, train_eps=True, aggr=aggr).train()
    ours = copy.deepcopy(theirs)
    nn.replace(ours)
    index, x = graph_and_features()
    summed = []
    spmm = halfgnn.spmm
    monkeypatch.setattr(
        "halfgnn.nn._adjacency.spmm",
        lambda graph, rows, **options: summed.append((rows.shape[1], options["epsilon"])) or spmm(graph, rows, **options),
    )
    torch.manual_seed(3)
    expected = run(theirs, x, index)
    torch.manual_seed(3)
    assert_close(run(ours, x, index), expected, 1e-5)
    # Of a sum and a mean the row itself goes with them.
    assert summed == [(IN, None) if aggr == "max" else (width, ours.eps)]


@pytest.mark.parametrize("of_product", [False, True])
def test_who_listens_to_a_network_of_gin_hears_it(of_product):
    theirs = pyg.GINConv(mlp().eval())
    ours = copy.deepcopy(theirs)
    nn.replace(ours)
    index, x = graph_and_features()
    heard = []
    (ours.nn[0] if of_product else ours.nn).register_forward_hook(lambda module, given, out: heard.append(given[0]))
    assert torch.allclose(ours(x, index), theirs(x, index), atol=1e-5)
    assert [given.shape for given in heard] == [(N, IN)]


@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("gcn")])
def test_edge_weights_and_their_gradients(name):
    theirs, ours = both(name)
    index, x = graph_and_features()
    generator = torch.Generator().manual_seed(3)
    values = torch.rand(index.shape[1], generator=generator)
    grads = []
    for layer in (ours, theirs):
        weight = values.clone().requires_grad_()
        result = run(layer, x, index, weight)
        grads.append((*result, weight.grad))
    assert_close(*grads, 1e-5)
    expected = ours(x, index, values)
    assert torch.allclose(ours(x, Graph(index, N, weight=values)), expected, atol=1e-6)


@pytest.mark.parametrize(
    "kind, options",
    [
        ("SAGEConv", {}),
        ("GATConv", {"heads": 2}),
        ("GATv2Conv", {"heads": 2}),
        ("GATv2Conv", {"share_weights": True, "concat": False}),
        ("GINConv", {}),
    ],
)
def test_bipartite(kind, options):
    generator = torch.Generator().manual_seed(4)
    index = torch.stack([torch.randint(0, 30, (99,), generator=generator), torch.randint(0, 17, (99,), generator=generator)])
    x = (torch.randn(30, IN, generator=generator), torch.randn(17, IN, generator=generator))
    if kind.startswith("GAT"):
        options = {**options, "add_self_loops": False}
        arguments = (IN if options.get("share_weights") else (IN, IN), OUT)
    else:
        arguments = ((IN, IN), OUT) if kind == "SAGEConv" else (mlp().eval(),)
    theirs = getattr(pyg, kind)(*arguments, **options).eval()
    ours = getattr(nn, kind)(*copy.deepcopy(arguments), **options).eval()
    ours.load_state_dict(theirs.state_dict())
    assert torch.allclose(ours(x, index), theirs(x, index), atol=1e-5)
    if kind != "GATv2Conv":
        assert torch.allclose(ours(x, index, size=(30, 17)), theirs(x, index, size=(30, 17)), atol=1e-5)


class Own(pyg.MessagePassing):
    """A layer of the user's own."""

    def __init__(self, width, out):
        super().__init__()
        self.lin = torch.nn.Linear(width, out)

    def forward(self, x, index):
        return self.propagate(index, x=self.lin(x))

    def message(self, x_j):
        return x_j.tanh()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = pyg.GATConv(IN, 8, heads=2)
        self.norm = torch.nn.LayerNorm(16)
        self.second = pyg.GCNConv(16, 8)
        self.third = pyg.SAGEConv(8, 8)
        self.fourth = pyg.GATv2Conv(8, 8)
        self.fifth = Own(8, OUT)

    def forward(self, x, index):
        x = self.norm(self.first(x, index)).relu()
        x = self.third(self.second(x, index).relu(), index).relu()
        return self.fifth(self.fourth(x, index).relu(), index)


def test_replace_changes_layers_in_place_and_says_what_it_left():
    torch.manual_seed(0)
    model = Net()
    index, x = graph_and_features()
    expected, keys = run(model, x, index), list(model.state_dict())
    parameters = [id(p) for p in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters())
    done = nn.replace(model)
    assert done.replaced == ["first", "second", "third", "fourth"]
    assert done.left == {"fifth": "halfgnn has no Own"}
    assert str(done) == "4 layers replaced; left: fifth (halfgnn has no Own)"
    assert isinstance(model.first, nn.GATConv) and isinstance(model.first, pyg.GATConv)
    assert list(model.state_dict()) == keys and [id(p) for p in model.parameters()] == parameters
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(run(model, x, index), expected, 1e-5)
    optimizer.step()
    twin = copy.deepcopy(model)
    assert torch.equal(twin(x, index), model(x, index))
    assert nn.replace(model).replaced == ["first", "second", "third", "fourth"]


MODELS = ["GCN", "GraphSAGE", "GIN", "GAT"]


def models(kind, **options):
    """PyG's model, and one of other numbers whose layers were replaced."""
    of = pytest.importorskip("torch_geometric.nn.models")
    torch.manual_seed(0)
    theirs = getattr(of, kind)(IN, 16, 2, OUT, **options)
    torch.manual_seed(1)
    ours = getattr(of, kind)(IN, 16, 2, OUT, **options)
    assert len(nn.replace(ours).replaced) == 2
    return theirs, ours


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"jk": "cat", "norm": "layer"}])
@pytest.mark.parametrize("kind", MODELS)
def test_pygs_own_models(kind, options, device):
    theirs, ours = (model.to(device).eval() for model in models(kind, **options))
    index, x = (tensor.to(device) for tensor in graph_and_features())
    assert not torch.allclose(ours(x, index), theirs(x, index), atol=1e-3)
    # Strictly, there and back.
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert_close(run(ours, x, index), run(theirs, x, index), 1e-5)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(0.5)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    assert_close(run(ours, x, index), run(theirs, x, index), 1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", MODELS)
def test_pygs_own_models_in_half(kind, device):
    theirs, ours = (model.to(device) for model in models(kind))
    index, x = (tensor.to(device) for tensor in graph_and_features())
    in_half(theirs, ours, x, index)


def test_keys_that_are_others_are_refused():
    theirs, ours = models("GAT")
    for name in ("convs.0.att_src", "convs.1.lin.weight"):
        state = theirs.state_dict()
        del state[name]
        with pytest.raises(RuntimeError, match=name):
            ours.load_state_dict(state, strict=True)


@pytest.mark.parametrize("kind", MODELS)
def test_models_are_saved_and_copied(kind):
    index, x = graph_and_features()
    _, model = models(kind)
    model.eval()
    expected = model(x, index)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (torch.load(file, weights_only=False), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert type(other.convs[0]) is type(model.convs[0]) and type(other.convs[0]).__module__.startswith("halfgnn")
        assert torch.equal(other(x, index), expected)


@pytest.mark.parametrize(
    "kind, options, call, words",
    [
        ("GATConv", {}, {"return_attention_weights": True}, "attention weights are returned"),
        ("GATConv", {"edge_dim": 3}, {"edge_attr": torch.ones(230, 3)}, "edges have features"),
        ("GATv2Conv", {}, {"return_attention_weights": True}, "attention weights are returned"),
        ("GATv2Conv", {"edge_dim": 3}, {"edge_attr": torch.ones(230, 3)}, "edges have features"),
        ("SAGEConv", {"aggr": "median"}, {}, "the aggregator is median"),
        ("GCNConv", {"flow": "target_to_source"}, {}, "the flow is target_to_source"),
        ("GCNConv", {"aggr": "mean"}, {}, "the aggregator is mean"),
    ],
)
def test_what_halfgnn_cannot_is_pygs_with_one_warning(kind, options, call, words):
    from halfgnn.nn import _common

    _common._told.clear()
    index, x = graph_and_features()
    theirs = getattr(pyg, kind)(IN, OUT, **options)
    ours = getattr(nn, kind)(IN, OUT, **options)
    ours.load_state_dict(theirs.state_dict())
    with pytest.warns(halfgnn.FallbackWarning, match=words) as told:
        got = [ours(x, index, **call) for _ in range(2)]
    assert len(told) == 1
    expected = theirs(x, index, **call)
    first = (lambda y: y[0]) if isinstance(expected, tuple) else (lambda y: y)
    assert torch.equal(first(got[0]), first(expected))


def test_a_hook_is_called():
    index, x = graph_and_features()
    layer = nn.SAGEConv(IN, OUT)
    seen = []
    layer.register_propagate_forward_hook(lambda *of: seen.append(of) or None)
    with pytest.warns(halfgnn.FallbackWarning, match="hooks"):
        layer(x, index)
    assert seen


def test_an_edge_index_that_is_changed_is_seen():
    index, x = graph_and_features()
    layer = nn.SAGEConv(IN, OUT)
    before = layer(x, index)
    index[:, 0] = torch.tensor([3, 7])
    assert not torch.equal(layer(x, index), before)
    assert torch.equal(layer(x, index), layer(x, index.clone()))


def test_weights_that_a_layer_does_not_use_are_refused():
    index, x = graph_and_features()
    graph = Graph(index, N, weight=torch.ones(index.shape[1]))
    for layer in (nn.SAGEConv(IN, OUT), nn.GATConv(IN, OUT), nn.GINConv(mlp())):
        with pytest.raises(ValueError, match=r"pass graph.unweighted\(\)"):
            layer(x, graph)


def test_the_batches_of_a_neighbour_loader():
    data = pytest.importorskip("torch_geometric.data")
    index, x = graph_and_features()
    from torch_geometric.utils import k_hop_subgraph

    whole = data.Data(x=x, edge_index=index)
    model = Net()
    twin = copy.deepcopy(model)
    nn.replace(model)
    for seed in (0, 7, 21):
        nodes, batch, _, _ = k_hop_subgraph(seed, 2, whole.edge_index, relabel_nodes=True, num_nodes=N)
        assert torch.allclose(model(x[nodes], batch), twin(x[nodes], batch), atol=1e-4)


def test_a_compiled_layer_without_a_break():
    torch._dynamo.reset()
    index, x = graph_and_features()
    graph = Graph(index, N).prepare()
    layer = nn.SAGEConv(IN, OUT)
    expected = layer(x, graph)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, graph), expected, atol=1e-5)


def test_training_goes_as_pygs():
    index, x = graph_and_features()
    # What can be learnt; the sums are of other orders, so after many steps the two are apart by more than rounding.
    target, steps, alike = x[:, :OUT].argmax(1), 120, 20
    losses = {}
    for replaced in (False, True):
        torch.manual_seed(1)
        model = Net()
        if replaced:
            nn.replace(model)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        losses[replaced] = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x, index), target)
            loss.backward()
            optimizer.step()
            losses[replaced].append(loss.item())
    assert losses[True][:alike] == pytest.approx(losses[False][:alike], rel=1e-4)
    assert losses[True][-1] < 0.85 * losses[True][0]
