"""The cases of PyG's own tests of the layers that halfgnn replaces, and of what is built of them, written anew.

PyG's tests are in no package that can be installed. ``run_pyg_tests.py`` runs them from a clone of PyG's repository, and lists what
differs.
"""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.data import HeteroData  # noqa: E402
from torch_geometric.utils import to_torch_csr_tensor  # noqa: E402

import halfgnn  # noqa: E402
from halfgnn import nn  # noqa: E402
from halfgnn.nn import _common  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::halfgnn.FallbackWarning", "ignore::UserWarning")

N, IN, OUT = 12, 8, 6

LAYERS = {
    "GCNConv": lambda of, **o: of.GCNConv(IN, OUT, **o),
    "SAGEConv": lambda of, **o: of.SAGEConv(IN, OUT, **o),
    "GINConv": lambda of, **o: of.GINConv(torch.nn.Sequential(torch.nn.Linear(IN, OUT), torch.nn.ReLU()), **o),
    "GATConv": lambda of, **o: of.GATConv(IN, OUT, heads=2, **o),
    "GATv2Conv": lambda of, **o: of.GATv2Conv(IN, OUT, heads=2, **o),
}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(12)
    torch._dynamo.reset()
    _common._told.clear()


def given():
    index = torch.randint(0, N - 1, (2, 40))
    return torch.randn(N, IN), index[:, index[1].argsort(stable=True)]


def both(kind, **options):
    theirs = LAYERS[kind](pyg, **options)
    ours = LAYERS[kind](nn, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def close(got, expected):
    return torch.allclose(got, expected, atol=1e-5)


# Layers


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_are_printed_as_pygs(kind):
    ours, theirs = both(kind)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("kind", LAYERS)
def test_the_order_of_edges_is_of_no_account(kind):
    x, index = given()
    ours, theirs = both(kind)
    for order in (torch.randperm(40), torch.arange(39, -1, -1)):
        assert close(ours(x, index[:, order]), theirs(x, index))


@pytest.mark.parametrize("kind", LAYERS)
def test_the_order_of_vertices_moves_the_rows(kind):
    x, index = given()
    ours, theirs = both(kind)
    order = torch.randperm(N)
    place = torch.empty_like(order)
    place[order] = torch.arange(N)
    assert close(ours(x[order], place[index]), theirs(x, index)[order])


@pytest.mark.parametrize("kind", LAYERS)
def test_a_size_that_is_given(kind):
    x, index = given()
    ours, theirs = both(kind)
    if kind in ("SAGEConv", "GINConv", "GATConv"):
        assert close(ours(x, index, size=(N, N)), theirs(x, index))
    assert close(ours(x, to_torch_csr_tensor(index.flip(0), size=(N, N))), theirs(x, to_torch_csr_tensor(index.flip(0), size=(N, N))))


@pytest.mark.parametrize("kind", LAYERS)
def test_a_graph_without_edges(kind):
    ours, theirs = both(kind)
    for count in (0, 3):
        x, index = torch.randn(count, IN), torch.empty(2, 0, dtype=torch.long)
        assert close(ours(x, index), theirs(x, index))


@pytest.mark.parametrize("kind", ["GCNConv", "SAGEConv", "GINConv"])
def test_features_of_several_graphs_at_once(kind):
    x, index = given()
    ours, theirs = both(kind)
    assert close(ours(torch.stack([x, 2 * x]), index), theirs(torch.stack([x, 2 * x]), index))


@pytest.mark.parametrize("kind", LAYERS)
def test_the_reverse_flow(kind):
    x, index = given()
    ours, theirs = both(kind)
    expected = ours(x, index)
    for layer in (ours, theirs):
        layer.flow = "target_to_source"
    assert close(ours(x, index.flip(0)), expected) and close(theirs(x, index.flip(0)), expected)


def test_a_layer_in_parts():
    x, index = given()
    ours, theirs = both("GCNConv")
    expected = theirs(x, index)
    ours.decomposed_layers = 2
    assert ours.propagate.__module__.endswith("message_passing") and close(ours(x, index), expected)
    ours.decomposed_layers = 1
    assert ours.propagate.__module__.endswith("_propagate") and close(ours(x, index), expected)


def test_arguments_that_pyg_refuses():
    x, index = given()
    with pytest.raises(ValueError, match="does not support adding self-loops"):
        nn.GCNConv(IN, OUT, normalize=False, add_self_loops=True)
    with pytest.raises(ValueError, match="does not support lazy"):
        nn.SAGEConv(-1, OUT, project=True)
    with pytest.raises(ValueError, match="received a tuple"):
        nn.GCNConv(IN, OUT)((x, x), index)
    with pytest.raises(ValueError, match="not sorted"):
        nn.SAGEConv(IN, OUT, aggr="lstm")(x, index.flip(1))
    with pytest.raises(IndexError):
        nn.SAGEConv(IN, OUT)(x, index + N)
    with pytest.raises(IndexError):
        nn.SAGEConv(IN, OUT)(x, index - N)


@pytest.mark.parametrize("layout", ["edge_index", "matrix"])
def test_a_graph_that_is_cached(layout):
    x, index = given()
    ours, theirs = both("GCNConv", cached=True)
    adjacency = index if layout == "edge_index" else to_torch_csr_tensor(torch.unique(index, dim=1).flip(0), size=(N, N))
    for _ in range(2):
        assert close(ours(x, adjacency), theirs(x, adjacency))
    for got, expected in zip(ours._cached_edge_index, theirs._cached_edge_index):
        if layout == "edge_index":
            key = lambda i: (i[0] * N + i[1]).argsort(stable=True)  # noqa: E731
            assert got.shape == expected.shape
    assert close(ours(x, index.flip(0)), theirs(x, index.flip(0)))
    ours.reset_parameters()
    assert ours._cached_edge_index is None


@pytest.mark.parametrize(
    "aggr, options",
    [
        ("median", {}),
        ("softmax", {}),
        ("std", {}),
        (["mean", "max", "sum"], {"aggr_kwargs": {"mode": "proj", "mode_kwargs": {"in_channels": IN, "out_channels": IN}}}),
        (["mean", "max"], {"aggr_kwargs": {"mode": "cat"}}),
        ("lstm", {}),
    ],
)
def test_other_aggregators(aggr, options):
    x, index = given()
    ours, theirs = both("SAGEConv", aggr=aggr, **copy.deepcopy(options))
    assert close(ours(x, index), theirs(x, index))


def test_an_aggregator_that_is_a_module():
    x, index = given()
    aggr = pyg.MLPAggregation(in_channels=IN, out_channels=IN, max_num_elements=20, num_layers=1)
    ours, theirs = (of.SAGEConv(IN, OUT, aggr=copy.deepcopy(aggr)).eval() for of in (nn, pyg))
    ours.load_state_dict(theirs.state_dict())
    assert close(ours(x, index), theirs(x, index))


@pytest.mark.parametrize("fill", [0.5, "mean"])
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_features_of_edges(kind, width, fill):
    x, index = given()
    ours, theirs = both(kind, edge_dim=width, fill_value=fill)
    features = torch.randn(40) if width == 1 else torch.randn(40, width)
    assert close(ours(x, index, features), theirs(x, index, features))
    assert close(ours(x, index), theirs(x, index))


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_attention_weights_that_are_returned(kind):
    x, index = given()
    ours, theirs = both(kind)
    matrix = to_torch_csr_tensor(torch.unique(index, dim=1).flip(0), size=(N, N))
    for adjacency in (index, matrix):
        for wanted in (True, False):
            got = ours(x, adjacency, return_attention_weights=wanted)
            expected = theirs(x, adjacency, return_attention_weights=wanted)
            assert type(got) is type(expected)
            if wanted:
                assert close(got[0], expected[0]) and close(got[1][1], expected[1][1])
                assert got[1][0].shape == expected[1][0].shape


def test_hooks_of_message_passing_are_called_and_may_change_what_passes():
    x, index = given()
    for register in (
        "register_propagate_forward_pre_hook",
        "register_propagate_forward_hook",
        "register_message_forward_pre_hook",
        "register_message_forward_hook",
        "register_aggregate_forward_pre_hook",
        "register_aggregate_forward_hook",
    ):
        ours, theirs = both("SAGEConv")
        plain, calls = theirs(x, index), []

        def hook(module, given, *out):
            calls.append(1)
            return 2 * out[0] if out else None

        handles = [getattr(layer, register)(hook) for layer in (ours, theirs)]
        assert close(ours(x, index), theirs(x, index)) and len(calls) == 2
        for handle in handles:
            handle.remove()
        assert close(ours(x, index), plain)


def test_layers_are_saved_and_loaded():
    x, index = given()
    for kind in LAYERS:
        ours, _ = both(kind)
        file = io.BytesIO()
        torch.save(ours, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        assert type(loaded) is type(ours) and torch.equal(loaded(x, index), ours(x, index))


def test_a_model_in_a_package_of_torchs(tmp_path):
    x, index = given()
    model = pyg.GraphSAGE(IN, OUT, num_layers=2)
    nn.replace(model)
    with torch.package.PackageExporter(tmp_path / "model.pt") as exporter:
        exporter.extern(["torch_geometric.**", "halfgnn.**", "_operator"])
        exporter.save_pickle("models", "model.pkl", model)
    loaded = torch.package.PackageImporter(tmp_path / "model.pt").load_pickle("models", "model.pkl")
    assert torch.equal(loaded(x, index), model(x, index))


# Models


MODELS = ["GCN", "GraphSAGE", "GIN", "GAT"]


@pytest.mark.parametrize("options", [{}, {"norm": "batch_norm"}, {"norm": "LayerNorm", "act": "leaky_relu"}, {"jk": "last"}, {"jk": "max"}, {"jk": "lstm"}])
@pytest.mark.parametrize("kind", MODELS)
def test_models(kind, options):
    models = pytest.importorskip("torch_geometric.nn.models")
    x, index = given()
    theirs = getattr(models, kind)(IN, 8, 3, OUT, **options).eval()
    ours = copy.deepcopy(theirs)
    assert len(nn.replace(ours).replaced) == 3 and repr(ours) == repr(theirs)
    assert close(ours(x, index), theirs(x, index))


def test_a_gat_of_the_second_version_and_of_edges():
    models = pytest.importorskip("torch_geometric.nn.models")
    x, index = given()
    for options, count in (({"v2": True, "heads": 2}, 2), ({"edge_dim": 3}, 0)):
        theirs = models.GAT(IN, 8, 2, OUT, **options).eval()
        ours = copy.deepcopy(theirs)
        assert len(nn.replace(ours).replaced) == count
        edges = {"edge_attr": torch.randn(40, 3)} if count == 0 else {}
        assert close(ours(x, index, **edges), theirs(x, index, **edges))


def test_a_gcn_with_weights_of_edges():
    models = pytest.importorskip("torch_geometric.nn.models")
    x, index = given()
    theirs = models.GCN(IN, 8, 2, OUT).eval()
    ours = copy.deepcopy(theirs)
    nn.replace(ours)
    weight = torch.rand(40)
    assert close(ours(x, index, edge_weight=weight), theirs(x, index, edge_weight=weight))


def test_a_model_is_trimmed_layer_by_layer():
    models = pytest.importorskip("torch_geometric.nn.models")
    index = torch.tensor([[1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 2, 2]])
    x = torch.randn(7, IN)
    theirs = models.GraphSAGE(IN, 8, 2, OUT).eval()
    ours = copy.deepcopy(theirs)
    nn.replace(ours)
    expected = theirs(x, index)[:1]
    got = ours(x, index, num_sampled_nodes_per_hop=[1, 2, 4], num_sampled_edges_per_hop=[2, 4])[:1]
    assert close(got, expected)


def test_a_model_keeps_its_graph():
    models = pytest.importorskip("torch_geometric.nn.models")
    x, index = given()
    theirs = models.GCN(IN, 8, 2, OUT, cached=True).eval()
    ours = copy.deepcopy(theirs)
    nn.replace(ours)
    for _ in range(2):
        assert close(ours(x, index), theirs(x, index))


# Heterogeneous graphs


def heterogeneous():
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(9, IN), torch.randn(7, 5)
    data["user", "buys", "item"].edge_index = torch.stack([torch.randint(0, 9, (20,)), torch.randint(0, 7, (20,))])
    data["item", "bought", "user"].edge_index = torch.stack([torch.randint(0, 7, (20,)), torch.randint(0, 9, (20,))])
    data["user", "knows", "user"].edge_index = torch.randint(0, 9, (2, 20))
    return data


class Hetero(torch.nn.Module):
    def __init__(self, of, kind):
        super().__init__()
        loops = {} if kind == "SAGEConv" else {"add_self_loops": False}
        self.first = getattr(of, kind)((-1, -1), 8, **loops)
        self.second = getattr(of, kind)((-1, -1), OUT, **loops)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("kind", ["SAGEConv", "GATConv", "GATv2Conv"])
@pytest.mark.parametrize("aggr", ["sum", "max"])
def test_to_hetero(kind, aggr):
    data = heterogeneous()
    ours, theirs = (pyg.to_hetero(Hetero(of, kind), data.metadata(), aggr=aggr) for of in (nn, pyg))
    with torch.no_grad():
        for model in (ours, theirs):
            model(data.x_dict, data.edge_index_dict)
    ours.load_state_dict(theirs.state_dict())
    assert type(ours.first["user__buys__item"]).__module__.startswith("halfgnn")
    got, expected = (model(data.x_dict, data.edge_index_dict) for model in (ours, theirs))
    assert set(got) == set(expected) and all(close(got[key], expected[key]) for key in got)
    sum(out.sum() for out in got.values()).backward()
    assert all(p.grad is not None for p in ours.parameters() if p.requires_grad and p.ndim == 2 and p.shape[0] == OUT)


@pytest.mark.parametrize("aggr", ["sum", "mean", "cat", None])
def test_hetero_conv(aggr):
    data = heterogeneous()

    def made(of):
        return pyg.HeteroConv(
            {
                ("user", "buys", "item"): of.SAGEConv((-1, -1), OUT),
                ("item", "bought", "user"): of.GATConv((-1, -1), OUT, add_self_loops=False),
                ("user", "knows", "user"): of.GCNConv(-1, OUT),
            },
            aggr=aggr,
        )

    ours, theirs = made(nn), made(pyg)
    with torch.no_grad():
        for model in (ours, theirs):
            model(data.x_dict, data.edge_index_dict)
    ours.load_state_dict(theirs.state_dict())
    weights = {("user", "knows", "user"): torch.rand(20)}
    for named in ({}, {"edge_weight_dict": weights}):
        got, expected = (model(data.x_dict, data.edge_index_dict, **named) for model in (ours, theirs))
        assert all(close(got[key], expected[key]) for key in expected)
    replaced = nn.replace(theirs)
    assert len(replaced.replaced) == 3
    got = theirs(data.x_dict, data.edge_index_dict)
    assert all(close(got[key], ours(data.x_dict, data.edge_index_dict)[key]) for key in got)


def test_a_heterogeneous_layer_of_loops_refuses_two_kinds():
    data = heterogeneous()
    with pytest.raises(ValueError, match="incorrect message passing"):
        pyg.HeteroConv({("user", "buys", "item"): nn.GATConv((-1, -1), OUT)})
    assert data is not None
