"""Layers do what PyG's do: modules are called, what a user overrides is used, and what PyG takes is taken."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor  # noqa: E402

import halfgnn  # noqa: E402
from halfgnn import Graph, nn  # noqa: E402
from halfgnn.nn import _common  # noqa: E402

N, IN, OUT = 12, 6, 4

KINDS = ["GCNConv", "SAGEConv", "GINConv", "GATConv", "GATv2Conv"]


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(12)
    _common._told.clear()


def arguments(kind):
    return (torch.nn.Linear(IN, OUT),) if kind == "GINConv" else (IN, OUT)


def both(kind, *args, **options):
    theirs = getattr(pyg, kind)(*(args or arguments(kind)), **options)
    ours = getattr(nn, kind)(*copy.deepcopy(args or arguments(kind)), **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def given(loops=True):
    generator = torch.Generator().manual_seed(3)
    index = torch.randint(0, N - 2, (2, 50), generator=generator)
    index = index[:, : 50 if loops else 40]
    if loops:
        index[:, :3] = torch.tensor([0, 1, 1])
    else:
        index = torch.unique(index[:, index[0] != index[1]], dim=1)
    return torch.randn(N, IN, generator=generator), index


def same(ours, theirs, *call, **named):
    """Outputs and gradients of a call, without a warning that PyG does the work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", halfgnn.FallbackWarning)
        results = []
        for layer in (ours, theirs):
            layer.zero_grad()
            out = layer(*call, **named)
            (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
            results.append([out.detach(), *(p.grad for p in layer.parameters())])
    for got, expected in zip(*results, strict=True):
        if expected is None:
            assert got is None
        else:
            assert torch.allclose(got, expected, atol=3e-5 * max(1.0, expected.abs().max().item())), (got - expected).abs().max()


# What a user gives


@pytest.mark.parametrize("options", [{}, {"normalize": False}, {"improved": True}, {"add_self_loops": False}])
@pytest.mark.parametrize("as_graph", [False, True])
def test_a_column_of_edge_weights(options, as_graph):
    x, index = given()
    ours, theirs = both("GCNConv", **options)
    adjacency = Graph(index, N) if as_graph else index
    weight = torch.rand(index.shape[1], 1, requires_grad=True)
    out = ours(x, adjacency, weight)
    out.square().sum().backward()
    got, weight.grad = weight.grad, None
    expected = theirs(x, index, weight)
    expected.square().sum().backward()
    assert torch.allclose(out, expected, atol=1e-5) and torch.allclose(got, weight.grad, atol=1e-4)


def test_edge_weights_of_another_number_are_refused():
    x, index = given()
    for weight in (torch.rand(index.shape[1], 2), torch.rand(3)):
        with pytest.raises(ValueError, match="edge_weight: should be 50, one for each edge"):
            nn.GCNConv(IN, OUT)(x, index, weight)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("improved", [False, True])
def test_a_sparse_adjacency_of_gcn(improved, loops, ones, layout):
    x, index = given(loops)
    index = torch.unique(index, dim=1)
    values = torch.ones(index.shape[1]) if ones else torch.rand(index.shape[1])
    make = to_torch_coo_tensor if layout == torch.sparse_coo else to_torch_csr_tensor
    adjacency = make(index.flip(0), values, size=(N, N))
    for options in ({"improved": improved}, {"improved": improved, "add_self_loops": False}, {"normalize": False}):
        same(*both("GCNConv", **options), x, adjacency)


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("kind", ["SAGEConv", "GINConv"])
def test_a_weighted_sparse_adjacency(kind, aggr, layout):
    dense = torch.rand(N, N) * (torch.rand(N, N) < 0.3)
    if aggr == "max" and layout == "to_sparse_csr":
        x = torch.rand(N, IN)
    else:
        x = torch.randn(N, IN)
    adjacency = getattr(dense, layout)()
    if aggr == "max":
        ours, theirs = both(kind, aggr=aggr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.allclose(ours(x, adjacency), theirs(x, adjacency), atol=1e-5)
    else:
        same(*both(kind, aggr=aggr), x, adjacency)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_a_weighted_sparse_adjacency_of_attention(kind):
    x, index = given(loops=False)
    adjacency = to_torch_csr_tensor(index.flip(0), torch.rand(index.shape[1]), size=(N, N))
    same(*both(kind), x, adjacency)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("first", [1.0, 0.5])
@pytest.mark.parametrize("kind, options", [("GCNConv", {}), ("GCNConv", {"normalize": False}), ("SAGEConv", {"aggr": "sum"})])
def test_values_of_a_sparse_adjacency_have_gradients(kind, options, first, layout):
    x, index = given(loops=False)
    order = (index[1] * N + index[0]).argsort()
    index = index[:, order]
    ours, theirs = both(kind, **options)
    weight = torch.linspace(first, 1, index.shape[1]).requires_grad_()
    if layout == "coo":
        adjacency = torch.sparse_coo_tensor(index.flip(0), weight, (N, N)).coalesce()
    else:
        offsets = torch.searchsorted(index[1].contiguous(), torch.arange(N + 1))
        adjacency = torch.sparse_csr_tensor(offsets, index[0].contiguous(), weight, (N, N))
    out = ours(x, adjacency)
    out.square().sum().backward()
    got, weight.grad = weight.grad, None
    if kind == "GCNConv":
        expected = theirs(x, index, weight)
    else:
        sums = torch.zeros(N, N).index_put((index[1], index[0]), weight) @ x
        expected = theirs.lin_l(sums) + theirs.lin_r(x)
    expected.square().sum().backward()
    assert torch.allclose(out, expected, atol=1e-5) and torch.allclose(got, weight.grad, atol=1e-3, rtol=1e-4)


def test_a_bipartite_sparse_adjacency_without_destinations():
    index = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])
    x = torch.randn(4, IN)
    for adjacency in (
        to_torch_csr_tensor(index.flip(0), size=(2, 4)),
        to_torch_coo_tensor(index.flip(0), torch.rand(4), size=(2, 4)),
    ):
        for destination in (None, torch.randn(2, IN)):
            same(*both("SAGEConv"), (x, destination), adjacency)
            same(*both("GINConv"), (x, destination), adjacency)
    same(*both("GATConv"), (x, torch.randn(2, IN)), to_torch_csr_tensor(index.flip(0), size=(2, 4)))


def test_a_source_alone_with_a_size():
    index = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 1]])
    x = torch.randn(4, IN)
    for kind in ("SAGEConv", "GINConv"):
        same(*both(kind), (x, None), index, size=(4, 2))
        same(*both(kind), [x, torch.randn(2, IN)], index)


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
@pytest.mark.parametrize("kind", ["GCNConv", "GATConv", "GATv2Conv"])
def test_sparse_features(kind, layout):
    x, index = given()
    x = (x * (x > 0.3)).__getattribute__(layout)()
    same(*both(kind), x, index)
    same(*both(kind, IN, 2 * IN), x, index)


@pytest.mark.parametrize("kind", KINDS)
def test_an_edge_index_as_a_pair_or_an_array_or_a_graph_of_arrays(kind):
    x, index = given()
    layer = getattr(nn, kind)(*arguments(kind))
    expected = layer(x, index)
    given_as = [tuple(index), list(index), index.numpy(), Graph(index.numpy(), N), index.int(), index.t().contiguous().t()]
    for adjacency in given_as:
        out = layer(x, adjacency)
        assert torch.equal(out, expected)
        out.sum().backward()


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_of_arrays_falls_back_as_well(kind):
    x, index = given()
    ours, theirs = both(kind)
    for adjacency in (Graph(index.numpy(), N), tuple(index), index.numpy()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.allclose(ours.double()(x.double(), adjacency), theirs.double()(x.double(), index))


@pytest.mark.parametrize("kind", KINDS)
def test_an_edge_index_of_pygs(kind):
    EdgeIndex = pytest.importorskip("torch_geometric").EdgeIndex
    x, index = given()
    order = (index[1] * N + index[0]).argsort()
    ours, theirs = both(kind)
    edges = EdgeIndex(index[:, order], sparse_size=(N, N), sort_order="col")
    assert torch.allclose(ours(x, edges), theirs(x, index), atol=1e-5)


def test_features_that_halfgnn_has_no_operator_for_are_pygs():
    x, index = given()
    for features, words in [
        (x.double(), "float64"),
        (x[None].repeat(2, 1, 1), "3 dimensions"),
        (x.to("meta"), "meta"),
    ]:
        ours, theirs = both("GCNConv", add_self_loops=False)
        for layer in (ours, theirs):
            layer.to(features.device).to(features.dtype)
        edges = index.to(features.device)
        with pytest.warns(halfgnn.FallbackWarning, match=words):
            got = ours(features, edges)
        expected = theirs(features, edges)
        assert got.shape == expected.shape and got.dtype == expected.dtype
        assert got.is_meta or torch.equal(got, expected)


def test_double_weights_are_pygs():
    x, index = given()
    ours, theirs = both("GCNConv")
    weight = torch.rand(50, dtype=torch.float64)
    with pytest.warns(halfgnn.FallbackWarning, match="edge_weight is torch.float64"):
        got = ours(x, index, weight)
    assert torch.equal(got, theirs(x, index, weight))


def test_a_gatv2_without_edge_features_refuses_them_as_pygs():
    x, index = given()
    for layer in both("GATv2Conv"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(AssertionError):
                layer(x, index, torch.rand(50, 2))


# Modules are called


def apply_spectral_norm(module):
    torch.manual_seed(1)
    torch.nn.utils.parametrizations.spectral_norm(module)


def apply_old_spectral_norm(module):
    torch.manual_seed(1)
    torch.nn.utils.spectral_norm(module)


def apply_weight_norm(module):
    torch.nn.utils.parametrizations.weight_norm(module)


LINEARS = [
    ("SAGEConv", "lin_l", {}),
    ("SAGEConv", "lin_r", {}),
    ("GCNConv", "lin", {}),
    ("GATConv", "lin", {}),
    ("GATv2Conv", "lin_l", {}),
    ("GINConv", "nn", {}),
]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("apply", [apply_spectral_norm, apply_old_spectral_norm, apply_weight_norm])
@pytest.mark.parametrize("kind, name, options", LINEARS)
def test_parametrized_weights(kind, name, options, apply, wide):
    x, index = given()
    args = (torch.nn.Linear(IN, 2 * IN if wide else OUT),) if kind == "GINConv" else (IN, 2 * IN if wide else OUT)
    ours, theirs = both(kind, *args, **options)
    for layer in (ours, theirs):
        apply(getattr(layer, name))
        layer.eval()
    same(ours, theirs, x, index)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind, name, options", LINEARS)
def test_hooks_of_linear_maps_see_what_pygs_see(kind, name, options, wide):
    x, index = given()
    args = (torch.nn.Linear(IN, 2 * IN if wide else OUT),) if kind == "GINConv" else (IN, 2 * IN if wide else OUT)
    ours, theirs = both(kind, *args, **options)
    seen = {}
    for layer in (ours, theirs):
        calls = seen[layer] = []
        getattr(layer, name).register_forward_pre_hook(lambda module, given, calls=calls: calls.append(given[0].detach()))
        getattr(layer, name).register_forward_hook(lambda module, given, out: 2 * out)
    same(ours, theirs, x, index)
    assert len(seen[ours]) == len(seen[theirs])
    for got, expected in zip(seen[ours], seen[theirs]):
        assert torch.allclose(got, expected, atol=1e-5)


def test_a_hook_of_every_module_is_called():
    x, index = given()
    for kind in KINDS:
        ours, theirs = both(kind)
        names: list[str] = []
        handle = torch.nn.modules.module.register_module_forward_hook(lambda module, given, out: names.append(type(module).__name__))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours(x, index)
            got, names[:] = list(names), []
            theirs(x, index)
        finally:
            handle.remove()
        assert got == names


@pytest.mark.parametrize("kind, name", [("GCNConv", "lin"), ("SAGEConv", "lin_l"), ("GATConv", "lin"), ("GINConv", "nn")])
def test_a_linear_map_that_is_replaced(kind, name):
    x, index = given()
    ours, theirs = both(kind)
    for layer in (ours, theirs):
        torch.manual_seed(4)
        setattr(layer, name, torch.nn.Sequential(torch.nn.Linear(IN, 9), torch.nn.Tanh(), torch.nn.Linear(9, OUT)))
    same(ours, theirs, x, index)
    for layer in (ours, theirs):
        torch.manual_seed(4)
        setattr(layer, name, torch.nn.Linear(IN, OUT))
    same(ours, theirs, x, index)


@pytest.mark.parametrize("kind", ["GCNConv", "SAGEConv", "GATConv", "GATv2Conv"])
def test_lazy_layers(kind):
    x, index = given()
    pairs = [-1] if kind == "GCNConv" else [-1, (-1, -1)]
    for channels in pairs:
        for wide in (OUT, 2 * IN):
            ours, theirs = getattr(nn, kind)(channels, wide), getattr(pyg, kind)(channels, wide)
            torch.manual_seed(1)
            ours(x, index)
            torch.manual_seed(1)
            theirs(x, index)
            for got, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
                assert got.shape == expected.shape
            theirs.load_state_dict(ours.state_dict())
            same(ours, theirs, x, index)
            if channels != -1 and kind != "GATConv":
                continue


# What a user overrides


def overriding(base):
    class Doubled(base):
        def message(self, x_j):
            return 2 * x_j

    class Updated(base):
        def update(self, inputs):
            return inputs + 1

    class Aggregated(base):
        def aggregate(self, inputs, index, ptr=None, dim_size=None):
            return super().aggregate(inputs, index, ptr, dim_size) * 3

    class Fused(base):
        def message_and_aggregate(self, adj_t, x):
            return torch.zeros(adj_t.shape[0], IN if isinstance(x, tuple) else x.shape[1])

    found = {"message": Doubled, "update": Updated, "aggregate": Aggregated, "message_and_aggregate": Fused}
    for kind in found.values():
        # PyG takes classes of one name in one module for one class.
        kind.__name__ += base.__name__ + base.__module__.partition(".")[0]
    return found


@pytest.mark.parametrize("method", ["message", "update", "aggregate", "message_and_aggregate"])
@pytest.mark.parametrize("kind", ["GCNConv", "SAGEConv", "GINConv"])
def test_a_method_of_message_passing_that_is_overridden_is_used(kind, method):
    x, index = given(loops=False)
    ours, theirs = (overriding(getattr(of, kind))[method](*arguments(kind)) for of in (nn, pyg))
    ours.load_state_dict(theirs.state_dict())
    adjacency = to_torch_csr_tensor(index.flip(0), size=(N, N)) if method == "message_and_aggregate" else index
    with pytest.warns(halfgnn.FallbackWarning, match=rf"its {method}\(\) is the user's own") as caught:
        got = ours(x, adjacency)
    assert caught[0].filename == __file__
    assert torch.allclose(got, theirs(x, adjacency), atol=1e-6)
    assert not torch.allclose(got, getattr(pyg, kind).forward(both(kind)[1], x, index), atol=1e-2)


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_an_edge_update_that_is_overridden_is_used(kind):
    def made(base):
        class Uniform(base):
            def edge_update(self, alpha_j, alpha_i, index, ptr, dim_size):
                return torch.ones_like(alpha_j)

        class Uniform2(base):
            def edge_update(self, x_j, x_i, index, ptr, dim_size):
                return torch.ones(x_j.shape[:2])

        return (Uniform if kind == "GATConv" else Uniform2)(IN, OUT)

    x, index = given()
    ours, theirs = made(getattr(nn, kind)), made(getattr(pyg, kind))
    ours.load_state_dict(theirs.state_dict())
    with pytest.warns(halfgnn.FallbackWarning, match=r"its edge_update\(\)"):
        got = ours(x, index)
    assert torch.allclose(got, theirs(x, index), atol=1e-6)


def test_a_method_of_one_layer_is_used():
    x, index = given()
    ours, theirs = both("SAGEConv")
    for layer in (ours, theirs):
        layer.message = lambda x_j: 2 * x_j
    with pytest.warns(halfgnn.FallbackWarning, match=r"its message\(\)"):
        got = ours(x, index)
    assert torch.equal(got, theirs(x, index))


@pytest.mark.parametrize("how", ["class", "between", "instance"])
@pytest.mark.parametrize("kind, name", [("GCNConv", "propagate"), ("GATConv", "propagate"), ("GATConv", "edge_updater")])
def test_message_passing_itself_may_be_overridden(kind, name, how):
    def made(base):
        def passing(self, *args, **named):
            return 2 * getattr(base, name)(self, *args, **named)

        if how == "instance":
            layer = base(IN, OUT)
            inner = getattr(layer, name)
            setattr(layer, name, lambda *args, **named: 2 * inner(*args, **named))
            return layer
        if how == "class":
            return type("Doubled", (base,), {name: passing, "__module__": __name__})(IN, OUT)
        mixin = type("Mixin", (), {name: passing, "__module__": __name__})
        return type("Doubled", (mixin, base), {"__module__": __name__})(IN, OUT)

    x, index = given()
    ours, theirs = made(getattr(nn, kind)), getattr(pyg, kind)(IN, OUT)
    ours.load_state_dict(theirs.state_dict())
    with pytest.warns(halfgnn.FallbackWarning, match=rf"its {name}\(\) is the user's own"):
        got = ours(x, index)
    inner = getattr(theirs, name)
    setattr(theirs, name, lambda *args, **named: 2 * inner(*args, **named))
    assert torch.allclose(got, theirs(x, index), atol=1e-6)


@pytest.mark.parametrize("kind", ["GCNConv", "SAGEConv", "GATConv", "GATv2Conv"])
def test_features_in_an_array_are_refused_in_one_line(kind):
    x, index = given()
    with pytest.raises(TypeError, match=r"x is an array of NumPy, .* torch\.from_numpy"):
        getattr(nn, kind)(IN, OUT)(x.numpy(), index)


def test_weights_of_edges_may_be_an_array_or_a_list():
    x, index = given()
    ours, theirs = both("GCNConv")
    weight = torch.rand(index.shape[1])
    expected = theirs(x, index, weight)
    for given_weight in (weight.numpy(), weight.tolist()):
        assert torch.allclose(ours(x, index, given_weight), expected, atol=1e-6)


def test_a_subclass_that_overrides_nothing_of_message_passing_is_fast():
    class Deep(nn.GCNConv):
        def forward(self, x, edge_index):
            return super().forward(x, edge_index).relu()

    x, index = given()
    layer = Deep(IN, OUT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = layer(x, index)
    assert torch.allclose(out, pyg.GCNConv.forward(layer, x, index).relu(), atol=1e-5)


def test_an_aggregation_module_of_the_users_own_is_used():
    class Triple(pyg.MeanAggregation):
        def forward(self, *args, **named):
            return 3 * super().forward(*args, **named)

    x, index = given()
    ours, theirs = both("SAGEConv")
    ours.aggr_module = theirs.aggr_module = Triple()
    with pytest.warns(halfgnn.FallbackWarning, match="aggregator's module"):
        got = ours(x, index)
    assert torch.equal(got, theirs(x, index))


# replace and restore


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gcn = pyg.GCNConv(IN, 8)
        self.edges = pyg.GATConv(8, 8, edge_dim=3)
        self.lstm = pyg.SAGEConv(8, 8, aggr="lstm")
        self.reverse = pyg.GCNConv(8, 8, flow="target_to_source")
        self.gin = pyg.GINConv(torch.nn.Linear(8, 8))
        self.own = overriding(pyg.SAGEConv)["message"](8, OUT)
        self.other = pyg.MeshCNNConv(OUT, OUT)


def test_replace_counts_what_is_accelerated_alone():
    model = Net()
    kinds = {name: type(module) for name, module in model.named_modules()}
    done = nn.replace(model)
    assert done.replaced == ["gcn", "gin"]
    assert done.left == {
        "edges": "edges have features (edge_dim)",
        "lstm": "the aggregator is lstm",
        "reverse": "the flow is target_to_source",
        "own": "its message() is the user's own",
        "other": "halfgnn has no MeshCNNConv",
    }
    assert str(done).startswith("2 layers replaced; left: edges (edges have features (edge_dim)), lstm (")
    assert all(type(getattr(model, name)) is kinds[name] for name in done.left)


def test_replace_says_of_halfgnns_own_what_is_accelerated():
    model = torch.nn.ModuleList([nn.GATConv(IN, OUT, edge_dim=3), nn.GATConv(IN, OUT), nn.SAGEConv(IN, OUT, aggr="median")])
    done = nn.replace(model)
    assert done.replaced == ["1"] and done.left == {
        "0": "edges have features (edge_dim)",
        "2": "the aggregator is median",
    }


def test_a_class_of_the_users_own_is_left_with_its_reason():
    class Mine(pyg.GCNConv):
        pass

    done = nn.replace(torch.nn.Sequential(Mine(IN, OUT)))
    assert done.left == {"0": "its class Mine derives from PyG's GCNConv, not from halfgnn's"}


def test_restore_undoes_replace():
    x, index = given()
    model = torch.nn.ModuleDict({"first": pyg.GCNConv(IN, 8, cached=True), "second": pyg.GATConv(8, OUT), "ours": nn.GCNConv(IN, OUT)})
    before = {name: (id(module), type(module), set(module.__dict__)) for name, module in model.named_modules()}
    parameters = [id(p) for p in model.parameters()]
    calls = []
    model["first"].register_forward_hook(lambda *of: calls.append(1))
    expected = model["first"](x, index)
    assert nn.replace(model).replaced == ["first", "second", "ours"]
    replaced = model["first"](x, index)
    assert torch.allclose(replaced, expected, atol=1e-5)
    twin = copy.deepcopy(model)
    for each in (model, twin):
        assert nn.restore(each) == ["first", "second"]
        assert type(each["first"]) is pyg.GCNConv and type(each["second"]) is pyg.GATConv and type(each["ours"]) is nn.GCNConv
        assert torch.allclose(each["first"](x, index), expected, atol=1e-6)
        assert nn.restore(each) == []
    assert {name: (id(module), type(module), set(module.__dict__)) for name, module in model.named_modules()} == before
    assert [id(p) for p in model.parameters()] == parameters
    assert len(calls) == 4


def test_what_a_layer_kept_goes_over_with_replace_and_restore():
    x, index = given()
    other = torch.randint(0, N, (2, 30))
    model = torch.nn.Sequential(pyg.GCNConv(IN, OUT, cached=True))
    expected = model[0](x, index)
    nn.replace(model)
    assert torch.allclose(model[0](x, other), expected, atol=1e-5)
    nn.restore(model)
    assert torch.equal(model[0](x, other), expected)
    model[0].reset_parameters()
    nn.replace(model)
    expected = model[0](x, index)
    nn.restore(model)
    assert torch.allclose(model[0](x, other), expected, atol=1e-5)


def test_warnings_name_the_users_line():
    x, index = given()
    model = torch.nn.Sequential()
    model.add_module("conv", nn.SAGEConv(IN, OUT, aggr="median"))
    wrapped = pyg.Sequential("x, index", [(nn.SAGEConv(IN, OUT, aggr="lstm"), "x, index -> x")])
    order = index[1].argsort()
    for call in (lambda: model.conv(x, index), lambda: wrapped(x, index[:, order])):
        with pytest.warns(halfgnn.FallbackWarning) as caught:
            call()
        assert [each.filename for each in caught if each.category is halfgnn.FallbackWarning] == [__file__]
