"""Models of several types of vertices and edges: the same rows and gradients as PyG's, replaced before and after they are made for the types."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch_geometric.data import HeteroData  # noqa: E402

from halfgnn import HGTLoader, LinkLoader, NeighborLoader, nn  # noqa: E402

USER, ITEM = "user", "item"
BUYS, BOUGHT, KNOWS = KINDS = [(USER, "buys", ITEM), (ITEM, "bought", USER), (USER, "knows", USER)]
METADATA = [USER, ITEM], KINDS
#: Numbers of users and items, and widths of their features.
SIZES, WIDTHS = {USER: 23, ITEM: 17}, {USER: 6, ITEM: 5}


def data():
    generator = torch.Generator().manual_seed(3)
    made = HeteroData()
    for kind, count in SIZES.items():
        made[kind].x = torch.randn(count, WIDTHS[kind], generator=generator)
        made[kind].time = torch.randint(9, (count,), generator=generator)
    for source, relation, destination in KINDS:
        ends = [torch.randint(SIZES[end], (70,), generator=generator) for end in (source, destination)]
        store = made[source, relation, destination]
        store.edge_index, store.edge_attr, store.edge_weight = torch.stack(ends), torch.randn(70, 3, generator=generator), torch.rand(70, generator=generator)
    return made


def run(model, x, *given):
    """Rows, and gradients of parameters and features."""
    model.zero_grad()
    x = {kind: rows.clone().requires_grad_() for kind, rows in x.items()}
    out = {kind: rows for kind, rows in model(x, *given).items() if rows is not None}
    sum((rows * torch.arange(rows.numel()).view_as(rows).sin()).sum() for rows in out.values()).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {**out, **gradients, **{f"x of {kind}": rows.grad for kind, rows in x.items()}}


def check(ours, theirs, *given):
    """That both give the same. A gradient that is not there is none in both."""
    got, expected = (run(model, *given) for model in (ours, theirs))
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert (got[name] is None) == (value is None), name
        if value is not None:
            scale = max(1.0, float(value.detach().abs().max())) if value.numel() else 1.0
            assert torch.allclose(got[name], value, rtol=0, atol=1e-5 * scale), name


# to_hetero


class Two(torch.nn.Module):
    """Two layers, which may have features or weights of edges."""

    def __init__(self, make):
        super().__init__()
        self.first, self.second = make(8), make(4)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class TwoOfEdges(Two):
    def forward(self, x, edge_index, edge):
        return self.second(self.first(x, edge_index, edge).relu(), edge_index, edge)


class Skip(torch.nn.Module):
    """Layers of several kinds, with products and norms between them."""

    def __init__(self):
        super().__init__()
        self.first, self.skip, self.norm = pyg.SAGEConv((-1, -1), 8), pyg.Linear(-1, 8), torch.nn.BatchNorm1d(8)
        self.second = pyg.GATConv((-1, -1), 4, add_self_loops=False)

    def forward(self, x, edge_index):
        return self.second(self.norm(self.first(x, edge_index) + self.skip(x)).relu(), edge_index)


BOTH, PLAIN = (-1, -1), {"add_self_loops": False}
#: How PyG's model of one type is made, how types are aggregated, and what edges have.
TO_HETERO = {
    "sage": (lambda: Two(lambda out: pyg.SAGEConv(BOTH, out)), "sum", None),
    "sage max": (lambda: Two(lambda out: pyg.SAGEConv(BOTH, out, aggr="max", normalize=True)), "mean", None),
    "gat": (lambda: Two(lambda out: pyg.GATConv(BOTH, out, heads=2, concat=False, **PLAIN)), "max", None),
    "gatv2": (lambda: Two(lambda out: pyg.GATv2Conv(BOTH, out, **PLAIN)), "sum", None),
    "graph": (lambda: TwoOfEdges(lambda out: pyg.GraphConv(BOTH, out)), "sum", "edge_weight"),
    "transformer": (lambda: Two(lambda out: pyg.TransformerConv(BOTH, out, heads=2, beta=True)), "min", None),
    "gated": (lambda: Two(lambda out: pyg.ResGatedGraphConv(BOTH, out)), "sum", None),
    "gen": (lambda: TwoOfEdges(lambda out: pyg.GENConv(BOTH, out, edge_dim=3)), "sum", "edge_attr"),
    "general": (lambda: Two(lambda out: pyg.GeneralConv(BOTH, out, attention=True)), "sum", None),
    "several": (Skip, "sum", None),
    "basic": (lambda: pyg.models.GraphSAGE(BOTH, 8, 2, 4, jk="cat", norm="batch_norm"), "sum", None),
}


@pytest.mark.parametrize("change", [nn.replace, nn.accelerate])
@pytest.mark.parametrize("name", TO_HETERO)
def test_models_of_to_hetero_are_replaced_before_and_after(name, change):
    make, aggr, of_edges = TO_HETERO[name]
    whole = data()
    given = [whole.x_dict, whole.edge_index_dict] + ([] if of_edges is None else [whole.collect(of_edges)])
    torch.manual_seed(1)
    theirs = pyg.to_hetero(make(), METADATA, aggr=aggr)
    before = make()
    assert len(change(before).replaced) == 2
    before, after = pyg.to_hetero(before, METADATA, aggr=aggr), copy.deepcopy(theirs)
    with torch.no_grad():
        for model in (theirs, before):
            model(*given)
    before.load_state_dict(theirs.state_dict())
    after = copy.deepcopy(theirs)
    report = change(after)
    assert len(report.replaced) == 6 and not report.left
    for ours in (before, after):
        check(ours, theirs, *given)


@pytest.mark.parametrize("kind", ["GATConv", "TransformerConv"])
def test_attention_with_features_of_edges_is_accelerated(kind):
    whole = data()
    given = whole.x_dict, whole.edge_index_dict, whole.collect("edge_attr")
    options = PLAIN if kind == "GATConv" else {}
    theirs = pyg.to_hetero(TwoOfEdges(lambda out: getattr(pyg, kind)(BOTH, out, edge_dim=3, **options)), METADATA)
    with torch.no_grad():
        theirs(*given)
    ours = copy.deepcopy(theirs)
    assert set(map(tuple, nn.accelerate(ours).accelerated.values())) == {("softmax", "sum")}
    check(ours, theirs, *given)


def test_bases_of_types():
    whole = data()
    for kind in (USER, ITEM):
        whole[kind].x = whole[kind].x[:, :5]
    torch.manual_seed(1)
    net = Two(lambda out: pyg.SAGEConv(5 if out == 8 else 8, out))
    theirs = pyg.to_hetero_with_bases(net, METADATA, num_bases=2, in_channels={"x": 5})
    with torch.no_grad():
        theirs(whole.x_dict, whole.edge_index_dict)
    ours = copy.deepcopy(theirs)
    # PyG's layers have hooks on their messages.
    assert len(nn.accelerate(ours).accelerated) == 4
    check(ours, theirs, whole.x_dict, whole.edge_index_dict)


# HeteroConv, HAN and HGT


class Stack(torch.nn.Module):
    def __init__(self, *convs):
        super().__init__()
        self.convs = torch.nn.ModuleList(convs)

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = {kind: rows for kind, rows in conv(x, edge_index).items() if rows is not None}
        return x


def hetero(make, aggr="sum"):
    return lambda: Stack(*(pyg.HeteroConv({kind: make(kind, out) for kind in KINDS}, aggr=aggr) for out in (8, 4)))


def of_each_kind(kind, out):
    return {
        BUYS: lambda: pyg.SAGEConv(BOTH, out),
        BOUGHT: lambda: pyg.GATConv(BOTH, out, heads=2, concat=False, **PLAIN),
        KNOWS: lambda: pyg.GCNConv(-1, out),
    }[kind]()


#: How PyG's model is made.
MODELS = {
    "HeteroConv": hetero(of_each_kind),
    "HeteroConv max": hetero(lambda kind, out: pyg.GATv2Conv(BOTH, out, **PLAIN), "max"),
    "HeteroConv mean": hetero(lambda kind, out: pyg.GraphConv(BOTH, out, aggr="mean"), "mean"),
    "HeteroConv min": hetero(lambda kind, out: pyg.TransformerConv(BOTH, out), "min"),
    "HAN": lambda: Stack(pyg.HANConv(-1, 8, METADATA, heads=2), pyg.HANConv(8, 4, METADATA)),
    "HGT": lambda: Stack(pyg.HGTConv(-1, 8, METADATA, heads=2), pyg.HGTConv(8, 4, METADATA)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_several_types_are_pygs_also_without_some_edges(name):
    whole = data()
    x, edges = whole.x_dict, whole.edge_index_dict
    torch.manual_seed(2)
    theirs, before = MODELS[name](), MODELS[name]()
    assert not nn.replace(before).left
    with torch.no_grad():
        for model in (theirs, before):
            model(x, edges)
    before.load_state_dict(theirs.state_dict())
    models = [before]
    for change in (nn.replace, nn.accelerate):
        models.append(copy.deepcopy(theirs))
        assert not change(models[-1]).left
    none = torch.zeros(2, 0, dtype=torch.long)
    for given in (edges, {**edges, BUYS: none}, {kind: index for kind, index in edges.items() if kind != KNOWS}):
        for ours in models:
            check(ours, theirs, x, given)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_several_types_take_the_loaders_batches(name):
    whole = data()
    torch.manual_seed(2)
    theirs = MODELS[name]()
    with torch.no_grad():
        theirs(whole.x_dict, whole.edge_index_dict)
    ours = copy.deepcopy(theirs)
    nn.replace(ours)
    loaders = (
        NeighborLoader(whole, [3, 2], USER, time_attr="time", batch_size=12, seed=1),
        LinkLoader(whole, [3, 2], BUYS, neg_sampling="binary", batch_size=40, seed=1),
        HGTLoader(whole, [6, 4], ITEM, batch_size=9, seed=1),
    )
    for loader in loaders:
        for batch in loader:
            check(ours, theirs, batch.x_dict, batch.edge_index_dict)


# Types of edges in one layer


@pytest.mark.parametrize(
    "make",
    [
        lambda: pyg.RGCNConv(6, 4, 3),
        lambda: pyg.RGCNConv(6, 4, 3, num_bases=2, aggr="add"),
        lambda: pyg.RGCNConv(6, 4, 3, num_blocks=2, aggr="max"),
        lambda: pyg.FastRGCNConv(6, 4, 3, num_bases=2),
        lambda: pyg.HEATConv(6, 4, 2, 3, 5, 3, 5, heads=3),
        lambda: pyg.HEATConv(6, 4, 2, 3, 5, 3, 5, concat=False, root_weight=False),
    ],
    ids=["rgcn", "rgcn bases", "rgcn blocks", "fast rgcn", "heat", "heat mean"],
)
def test_homogeneous_layers_of_typed_edges_are_pygs(make):
    made = data()
    for kind in (USER, ITEM):
        made[kind].x = torch.randn(SIZES[kind], 6, generator=torch.Generator().manual_seed(4))
    whole = made.to_homogeneous()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = make()

        def forward(self, x, *given):
            return {"all": self.conv(x["all"], *given)}

    torch.manual_seed(3)
    theirs = Model()
    given = [whole.edge_index, whole.edge_type]
    if isinstance(theirs.conv, pyg.HEATConv):
        given = [whole.edge_index, whole.node_type, whole.edge_type, whole.edge_attr]
    for change in (nn.replace, nn.accelerate):
        ours = copy.deepcopy(theirs)
        assert change(ours).replaced == ["conv"]
        check(ours, theirs, {"all": whole.x}, *given)
