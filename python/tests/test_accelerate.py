"""``halfgnn.nn.accelerate``: layers without a replacement, PyG's and users' own, against unaccelerated copies."""

from __future__ import annotations

import copy
import io
import pickle
import threading
import warnings

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch_geometric  # noqa: E402
import torch_geometric.utils as pyg_utils  # noqa: E402
from torch import nn as tnn  # noqa: E402
from torch_geometric.nn import MessagePassing  # noqa: E402
from torch_geometric.utils import scatter, segment, spmm  # noqa: E402
from torch_geometric.utils import softmax as softened  # noqa: E402

import halfgnn  # noqa: E402
from halfgnn import nn  # noqa: E402
from halfgnn.nn import _accelerate, _common, _reductions, _replace, _rewritten  # noqa: E402

N, E, F, R, D = 40, 300, 6, 3, 4


def none_replaced(model):
    """As ``replace`` of a halfgnn that has no layers, so that these tests are of all of PyG's, whichever have a replacement."""
    names = [name for name, module in model.named_modules() if isinstance(module, MessagePassing)]
    return nn.Replaced(left=dict.fromkeys(names, "halfgnn has none"))


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    torch.manual_seed(3)
    _common._told.clear()
    monkeypatch.setattr(_accelerate, "replace", none_replaced)


@pytest.fixture
def replacing(monkeypatch):
    """With the layers that halfgnn has."""
    monkeypatch.setattr(_accelerate, "replace", _replace.replace)


def edges() -> torch.Tensor:
    """Rows of 0, 1 and many edges, edges that occur twice, loops, and vertices without any edge."""
    index = torch.randint(0, N - 6, (2, E), generator=torch.Generator().manual_seed(2))
    index[1, :90] = 5
    index[1][index[1] == 7] = 8
    once = torch.tensor([[3, 4, 4, 9], [7, 11, 11, 9]])
    return torch.cat([index, once], 1)


class Data:
    """Inputs of all layers."""

    def __init__(self, dtype=torch.float32):
        generator = torch.Generator().manual_seed(11)

        def normal(*shape):
            # Numbers that half has.
            return torch.randn(*shape, generator=generator).half().to(dtype)

        self.index = edges()
        count = self.index.shape[1]
        self.x, self.x0, self.pos, self.normal = normal(N, F), normal(N, F), normal(N, 3), normal(N, 3)
        self.weight, self.edge, self.pseudo = normal(count).abs(), normal(count, D), normal(count, 2).abs()
        self.wide = normal(count, F)
        self.kind = torch.randint(0, R, (count,), generator=generator)
        self.vertex_kind = torch.randint(0, 2, (N,), generator=generator)
        self.half = [self.index[:, ::2], self.index[:, 1::2]]
        self.hyper = torch.stack([self.index[0], self.index[1] % 17])
        self.hyper_edge = normal(17, F)


def mlp(a, b):
    return tnn.Sequential(tnn.Linear(a, 8), tnn.SiLU(), tnn.Linear(8, b))


DEGREES = torch.tensor([4.0, 9.0, 12.0, 8.0, 3.0, 2.0])
AGGREGATORS = ["sum", "mean", "max", "min", "std", "var", "median"]

# name: (layer, its output of Data). Layers that `replace` knows are here with options that it leaves.
PYGS = {
    "GATConv": (lambda: pyg.GATConv(F, 5, heads=2, edge_dim=D), lambda m, d: m(d.x, d.index, d.edge)),
    "GATv2Conv": (lambda: pyg.GATv2Conv(F, 5, heads=2, edge_dim=D), lambda m, d: m(d.x, d.index, d.edge)),
    "SAGEConv": (lambda: pyg.SAGEConv(F, 5, aggr=["mean", "max", "std"]), lambda m, d: m(d.x, d.index)),
    "GINConv": (lambda: pyg.GINConv(mlp(F, 5), aggr="min"), lambda m, d: m(d.x, d.index)),
    "TransformerConv": (lambda: pyg.TransformerConv(F, 5, heads=2, edge_dim=D), lambda m, d: m(d.x, d.index, d.edge)),
    "SuperGATConv": (lambda: pyg.SuperGATConv(F, 5, heads=2), lambda m, d: m.eval()(d.x, d.index)),
    "AGNNConv": (lambda: pyg.AGNNConv(), lambda m, d: m(d.x, d.index)),
    "EdgeConv": (lambda: pyg.EdgeConv(mlp(2 * F, 5)), lambda m, d: m(d.x, d.index)),
    "PNAConv": (
        lambda: pyg.PNAConv(F, 6, AGGREGATORS, ["identity", "amplification", "attenuation", "linear", "inverse_linear"], DEGREES, edge_dim=D, towers=2),
        lambda m, d: m(d.x, d.index, d.edge),
    ),
    "GENConv": (lambda: pyg.GENConv(F, 5, learn_t=True), lambda m, d: m(d.x, d.index)),
    "GENConv, powermean": (lambda: pyg.GENConv(F, 5, aggr="powermean", learn_p=True, p=2.0), lambda m, d: m(d.x, d.index)),
    "GENConv, softmax_sg": (lambda: pyg.GENConv(F, 5, aggr="softmax_sg", t=0.5), lambda m, d: m(d.x, d.index)),
    "ResGatedGraphConv": (lambda: pyg.ResGatedGraphConv(F, 5, edge_dim=D), lambda m, d: m(d.x, d.index, d.edge)),
    "CGConv": (lambda: pyg.CGConv(F, D, aggr="mean"), lambda m, d: m(d.x, d.index, d.edge)),
    "NNConv": (lambda: pyg.NNConv(F, 5, mlp(D, F * 5), aggr="mean"), lambda m, d: m(d.x, d.index, d.edge)),
    "GMMConv": (lambda: pyg.GMMConv(F, 5, dim=2, kernel_size=3), lambda m, d: m(d.x, d.index, d.pseudo)),
    "PointNetConv": (lambda: pyg.PointNetConv(mlp(F + 3, 5)), lambda m, d: m(d.x, d.pos, d.index)),
    "PointTransformerConv": (lambda: pyg.PointTransformerConv(F, 5), lambda m, d: m(d.x, d.pos, d.index)),
    "PointGNNConv": (lambda: pyg.PointGNNConv(mlp(F, 3), mlp(F + 3, 5), mlp(5, F)), lambda m, d: m(d.x, d.pos, d.index)),
    "PPFConv": (lambda: pyg.PPFConv(mlp(F + 4, 5)), lambda m, d: m(d.x, d.pos, d.normal, d.index)),
    "GINEConv": (lambda: pyg.GINEConv(mlp(F, 5), edge_dim=D), lambda m, d: m(d.x, d.index, d.edge)),
    "FiLMConv": (lambda: pyg.FiLMConv(F, 5, num_relations=R), lambda m, d: m(d.x, d.index, d.kind)),
    "RGCNConv": (lambda: pyg.RGCNConv(F, 5, R, num_bases=2), lambda m, d: m(d.x, d.index, d.kind)),
    "FastRGCNConv": (lambda: pyg.FastRGCNConv(F, 5, R), lambda m, d: m(d.x, d.index, d.kind)),
    "RGATConv": (lambda: pyg.RGATConv(F, 5, R, heads=2, edge_dim=D, mod="f-scaled"), lambda m, d: m(d.x, d.index, d.kind, d.edge)),
    "HEATConv": (lambda: pyg.HEATConv(F, 5, 2, R, 3, D, 3, heads=2), lambda m, d: m(d.x, d.index, d.vertex_kind, d.kind, d.edge)),
    "HypergraphConv": (
        lambda: pyg.HypergraphConv(F, 5, use_attention=True, heads=2),
        lambda m, d: m(d.x, d.hyper, hyperedge_attr=d.hyper_edge, num_edges=17),
    ),
    "GraphConv": (lambda: pyg.GraphConv(F, 5, aggr="max"), lambda m, d: m(d.x, d.index, d.weight)),
    "TAGConv": (lambda: pyg.TAGConv(F, 5, K=2), lambda m, d: m(d.x, d.index, d.weight)),
    "SGConv": (lambda: pyg.SGConv(F, 5, K=2), lambda m, d: m(d.x, d.index, d.weight)),
    "SSGConv": (lambda: pyg.SSGConv(F, 5, 0.2, K=2), lambda m, d: m(d.x, d.index, d.weight)),
    "ChebConv": (lambda: pyg.ChebConv(F, 5, K=3), lambda m, d: m(d.x, d.index, d.weight)),
    "ARMAConv": (lambda: pyg.ARMAConv(F, 5, num_stacks=2), lambda m, d: m(d.x, d.index, d.weight)),
    "APPNP": (lambda: pyg.APPNP(3, 0.1), lambda m, d: m(d.x, d.index, d.weight)),
    "GCN2Conv": (lambda: pyg.GCN2Conv(F, 0.2), lambda m, d: m(d.x, d.x0, d.index, d.weight)),
    "LGConv": (lambda: pyg.LGConv(), lambda m, d: m(d.x, d.index, d.weight)),
    "SimpleConv": (lambda: pyg.SimpleConv(aggr="mul"), lambda m, d: m(d.x * 0.1 + 1, d.index)),
    "MixHopConv": (lambda: pyg.MixHopConv(F, 5), lambda m, d: m(d.x, d.index, d.weight)),
    "LEConv": (lambda: pyg.LEConv(F, 5), lambda m, d: m(d.x, d.index, d.weight)),
    "SignedConv": (lambda: pyg.SignedConv(F, 5, first_aggr=True), lambda m, d: m(d.x, *d.half)),
    "ClusterGCNConv": (lambda: pyg.ClusterGCNConv(F, 5), lambda m, d: m(d.x, d.index)),
    "FAConv": (lambda: pyg.FAConv(F), lambda m, d: m(d.x, d.x0, d.index)),
    "FeaStConv": (lambda: pyg.FeaStConv(F, 5, heads=2), lambda m, d: m(d.x, d.index)),
    "EGConv": (
        lambda: pyg.EGConv(F, 8, aggregators=["symnorm", "mean", "std", "var", "max", "min"], num_heads=2),
        lambda m, d: m(d.x, d.index),
    ),
    "PDNConv": (lambda: pyg.PDNConv(F, 5, D, 8), lambda m, d: m(d.x, d.index, d.edge)),
    "GeneralConv": (lambda: pyg.GeneralConv(F, 6, D, attention=True, heads=2), lambda m, d: m(d.x, d.index, d.edge)),
    "GatedGraphConv": (lambda: pyg.GatedGraphConv(F, 2), lambda m, d: m(d.x, d.index, d.weight)),
    "DNAConv": (lambda: pyg.DNAConv(F, heads=2), lambda m, d: m(torch.stack([d.x, d.x0], 1), d.index)),
    "MFConv": (lambda: pyg.MFConv(F, 5, max_degree=6), lambda m, d: m(d.x, d.index)),
    "WLConvContinuous": (lambda: pyg.WLConvContinuous(), lambda m, d: m(d.x, d.index, d.weight)),
    "GPSConv": (lambda: pyg.GPSConv(F, pyg.GINEConv(mlp(F, F)), heads=2, norm=None), lambda m, d: m(d.x, d.index, edge_attr=d.wide)),
}


# Layers of users


def normalized(scores, index, count):
    """A function of the user's that calls PyG's under another name."""
    return softened(scores, index, num_nodes=count)


class Own(MessagePassing):
    """A layer whose methods use PyG's functions by names, attributes and other functions."""

    def __init__(self):
        super().__init__(aggr=None, node_dim=0)
        self.lin = tnn.Linear(F, 5)
        self.att = tnn.Linear(5, 1)

    def forward(self, x, index):
        return self.propagate(index, x=self.lin(x))

    def message(self, x_i, x_j, index, size_i):
        return normalized(self.att(x_i * x_j), index, size_i) * x_j

    def aggregate(self, inputs, index, dim_size):
        order = index.argsort(stable=True)
        ptr = torch.cat([index.new_zeros(1), index.bincount(minlength=dim_size).cumsum(0)])
        parts = [
            scatter(inputs, index, 0, dim_size, reduce="min"),
            pyg_utils.scatter(inputs.t(), index, -1, dim_size, "max").t(),
            segment(inputs[order], ptr, reduce="mean"),
        ]
        return torch.cat(parts, 1)

    def update(self, inputs, x):
        return inputs + x.repeat(1, 3)


class ByModule(pyg.SimpleConv):
    """A layer that reaches PyG's functions by modules."""

    def message(self, x_j, index, size_i):
        return x_j * pyg_utils.softmax(x_j, index, num_nodes=size_i)

    def aggregate(self, inputs, index, dim_size):
        return torch_geometric.utils.scatter(inputs, index, self.node_dim, dim_size, "sum")


class Derived(pyg.TransformerConv):
    """A layer that derives from PyG's and calls its methods."""

    def message(self, query_i, key_j, value_j, edge_attr, index, ptr, size_i):
        return 2 * super().message(query_i, key_j, value_j, edge_attr, index, ptr, size_i)


class Neighbours(pyg.EdgeConv):
    """``DynamicEdgeConv`` with nearest neighbours by torch, which needs no other package."""

    def forward(self, x):
        nearest = torch.cdist(x.detach().float(), x.detach().float()).topk(4, largest=False).indices
        index = torch.stack([nearest.reshape(-1), torch.arange(len(x)).repeat_interleave(4)])
        return super().forward(x, index)


class Halved(pyg.aggr.Aggregation):
    """An aggregator of the user's."""

    def forward(self, x, index=None, ptr=None, dim_size=None, dim=-2):
        return self.reduce(x, index, ptr, dim_size, dim, reduce="sum") / 2 + scatter(x.square(), index, dim, dim_size, "mean")


def closure():
    from torch_geometric.utils import softmax

    class Inner(pyg.SimpleConv):
        def message(self, x_j, index, size_i):
            return softmax(x_j, index, num_nodes=size_i)

    return Inner()


class Sparse(MessagePassing):
    """A layer that multiplies by a sparse matrix."""

    def forward(self, x, index):
        adjacency = torch.sparse_coo_tensor(index.flip(0), torch.ones(index.shape[1], dtype=x.dtype), (N, N)).coalesce()
        return torch.cat([spmm(adjacency, x, reduce=reduce) for reduce in ("sum", "mean")], 1)


USERS = {
    "Own": (Own, lambda m, d: m(d.x, d.index)),
    "ByModule": (ByModule, lambda m, d: m(d.x, d.index)),
    "Derived": (lambda: Derived(F, 5, heads=2), lambda m, d: m(d.x, d.index)),
    "Neighbours": (lambda: Neighbours(mlp(2 * F, 5)), lambda m, d: m(d.x)),
    "Halved": (lambda: pyg.SimpleConv(aggr=Halved()), lambda m, d: m(d.x, d.index)),
    "closure": (closure, lambda m, d: m(d.x, d.index)),
    "Sparse": (Sparse, lambda m, d: m(d.x, d.index)),
    "reverse flow": (lambda: pyg.SAGEConv(F, 5, flow="target_to_source"), lambda m, d: m(d.x, d.index)),
    "several": (
        lambda: pyg.SimpleConv(aggr=pyg.aggr.MultiAggregation(["mean", "max", "std"], mode="proj", mode_kwargs={"in_channels": F, "out_channels": 5})),
        lambda m, d: m(d.x, d.index),
    ),
}
LAYERS = {**PYGS, **USERS}

#: Layers whose rows in half are so small, or whose functions are so steep, that rounding of the layer's own matters.
STEEP = {"PNAConv": 3e-2, "SimpleConv": 3e-2, "EGConv": 5e-2, "GENConv, powermean": 2e-2}


def pair(name):
    """An accelerated layer and its unaccelerated copy, whose parameters differ from those that layers begin with."""
    make, call = LAYERS[name]
    theirs = tnn.Sequential(make())
    if isinstance(theirs[0], tnn.Module):
        for parameter in theirs.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    ours = copy.deepcopy(theirs)
    report = nn.accelerate(ours)
    assert report.accelerated or report.replaced, report
    return ours[0], theirs[0], call


def results(layer, call, data, seed=5):
    """An output and all gradients."""
    torch.manual_seed(seed)
    leaves = {name: getattr(data, name) for name in ("x", "pos", "edge", "weight", "wide")}
    for name, leaf in leaves.items():
        setattr(data, name, leaf.detach().clone().requires_grad_())
    out = call(layer, data)
    out = out[0] if isinstance(out, tuple) else out
    factors = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (out.float() * factors).sum().backward()
    found = {name: getattr(data, name).grad for name in leaves}
    found.update({name: parameter.grad for name, parameter in layer.named_parameters()})
    layer.zero_grad()
    return {"out": out.detach(), **{name: gradient for name, gradient in found.items() if gradient is not None}}


def close(got, expected, tolerance, what):
    assert got.keys() == expected.keys(), what
    for name, value in expected.items():
        scale = max(1.0, float(value.abs().max()))
        error = float((got[name].double() - value.double()).abs().max()) if value.numel() else 0.0
        assert error <= tolerance * scale, f"{what}: {name} differs by {error} of {scale}"


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_it_did_and_its_gradients(name):
    ours, theirs, call = pair(name)
    found = results(ours, call, Data())
    close(found, results(theirs, call, Data()), 1e-5, name)
    # And again, with what is kept of the edges, to the same bits.
    again = results(ours, call, Data())
    assert all(torch.equal(again[each], found[each]) for each in found)


@pytest.mark.parametrize("name", ["TransformerConv", "PNAConv", "GENConv", "EdgeConv", "SimpleConv", "Own"])
def test_operators_of_gpus_compute_the_same(name, monkeypatch):
    monkeypatch.setattr(_reductions, "is_on_host", lambda x: False)
    ours, theirs, call = pair(name)
    close(results(ours, call, Data()), results(theirs, call, Data()), 1e-5, name)


# ClusterGCNConv multiplies by degrees in float, which its products in half refuse, and PPFConv's angles are those of float alone.
@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("ClusterGCNConv", "PPFConv")])
def test_half_is_that_of_float64_but_for_rounding(name):
    ours, theirs, call = pair(name)
    ours.half(), theirs.half()
    expected = results(theirs.double(), call, Data(torch.float64))
    found = results(ours, call, Data(torch.float16))
    close({"out": found["out"]}, {"out": expected["out"]}, STEEP.get(name, 1e-2), name)


# Reductions


REDUCTIONS = ["sum", "add", "mean", "min", "max", "mul"]


class Around:
    """Calls a function as from within an accelerated layer."""

    def __init__(self):
        self.recent = halfgnn._cached.Recent(8)

    def __call__(self, function, *operands, **named):
        with _reductions.calling(self, self.recent):
            return function(*operands, **named)


def grouped(dtype=torch.float32, columns=5):
    index = edges()[1]
    return torch.randn(len(index), columns, generator=torch.Generator().manual_seed(0)).to(dtype), index


@pytest.mark.parametrize("shape, dim", [((), 0), ((7,), 0), ((3, 2), 0), ((4,), 1), ((4,), -1), ((2, 3), 1), ((0,), 0)])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_takes_any_shape_and_dimension(reduce, shape, dim):
    index = edges()[1]
    at = dim + len(shape) + 1 if dim < 0 else dim
    src = torch.randn(*shape[:at], len(index), *shape[at:])
    got, expected = Around()(_reductions.scatter, src, index, dim, N, reduce), scatter(src, index, dim, N, reduce)
    assert got.shape == expected.shape and torch.allclose(got, expected, atol=1e-5)
    assert got.is_contiguous() or not expected.is_contiguous() or dim != 0


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_of_nothing(reduce):
    none = torch.zeros(0, dtype=torch.long)
    assert torch.equal(Around()(_reductions.scatter, torch.zeros(0, 3), none, 0, 4, reduce), scatter(torch.zeros(0, 3), none, 0, 4, reduce))
    assert Around()(_reductions.scatter, torch.zeros(0, 3), none, 0, None, reduce).shape == (0, 3)


def test_softmax_along_any_dimension_and_of_segments():
    x, index = grouped()
    call = Around()
    for dim in (0, 1):
        src = x if dim == 0 else x.t()
        got, expected = call(_reductions.softmax, src, index, num_nodes=N, dim=dim), softened(src, index, num_nodes=N, dim=dim)
        assert torch.allclose(got, expected, atol=1e-6)
    ptr = torch.tensor([0, 3, 3, 100, len(x)])
    assert torch.allclose(call(_reductions.softmax, x, None, ptr), softened(x, None, ptr), atol=1e-6)
    for reduce in ("sum", "mean", "min", "max"):
        assert torch.allclose(call(_reductions.segment, x, ptr, reduce), segment(x, ptr, reduce), atol=1e-5)


AGGREGATIONS = {
    "var": lambda: pyg.aggr.VarAggregation(),
    "var, semi": lambda: pyg.aggr.VarAggregation(semi_grad=True),
    "std": lambda: pyg.aggr.StdAggregation(),
    "softmax": lambda: pyg.aggr.SoftmaxAggregation(t=0.3, learn=True, channels=5),
    "powermean": lambda: pyg.aggr.PowerMeanAggregation(p=3.0, learn=True),
    "median": lambda: pyg.aggr.MedianAggregation(fill_value=-1.0),
    "quantiles": lambda: pyg.aggr.QuantileAggregation([0.1, 0.5, 0.9]),
    "midpoint": lambda: pyg.aggr.QuantileAggregation(0.3, interpolation="midpoint"),
    "nearest": lambda: pyg.aggr.QuantileAggregation(0.3, interpolation="nearest"),
    "preserving": lambda: pyg.aggr.VariancePreservingAggregation(),
    "degrees": lambda: pyg.aggr.DegreeScalerAggregation(["sum", "std"], ["amplification", "linear"], DEGREES, train_norm=True),
    "several": lambda: pyg.aggr.MultiAggregation(["sum", "mean", "max", "min", "mul", "std", "var", "median"]),
    "set2set": lambda: pyg.aggr.Set2Set(5, 2),
    "attention": lambda: pyg.aggr.AttentionalAggregation(tnn.Linear(5, 1)),
}


def aggregated(module):
    """The aggregator as that of a layer, accelerated."""
    layer = tnn.Sequential(pyg.SimpleConv(aggr=module))
    nn.accelerate(layer)
    return layer[0].aggr_module


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_aggregators_and_their_gradients(name):
    theirs = AGGREGATIONS[name]()
    ours = aggregated(copy.deepcopy(theirs))
    x, index = grouped()
    x = x * 0.3 + 1

    def run(module, call):
        leaf = x.clone().requires_grad_()
        out = call(module, leaf, index, dim_size=N)
        (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(4))).sum().backward()
        return {"out": out.detach(), "x": leaf.grad, **{name: parameter.grad for name, parameter in module.named_parameters()}}

    if name in ("var", "std"):
        # PyG's difference of means has errors of 1e-4 in float.
        theirs, x = theirs.double(), x.double()
    expected = run(theirs, lambda module, *a, **n: module(*a, **n))
    x = x.float()
    close(run(ours, Around()), expected, 2e-5, name)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_aggregators_in_half_are_those_of_float64(name):
    theirs = AGGREGATIONS[name]().half()
    ours = aggregated(copy.deepcopy(theirs))
    x, index = grouped(torch.float16)
    x = (x.float() * 0.3 + 1).half()
    for each in [*theirs.modules()]:
        if isinstance(each, pyg.aggr.QuantileAggregation):
            # Half has none of these quantiles; ours takes those that were asked for.
            each.q = torch.tensor(each._q, dtype=torch.float64).reshape(-1, 1)
    expected = theirs.double()(x.double(), index, dim_size=N)
    got = Around()(ours, x, index, dim_size=N)
    assert got.dtype == torch.float16
    # Several steps of rounding where an aggregator consists of layers of its own.
    steps = 20 if name in ("set2set", "attention", "degrees") else 1
    assert torch.allclose(got.double(), expected, rtol=steps * 6e-4, atol=steps * 2e-3), (got.double() - expected).abs().max()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_70_000_messages_in_half(dtype):
    count = 70_000
    index = torch.zeros(count, dtype=torch.long)
    call = Around()
    for columns in (1, 3, 8, 17):
        big = torch.full((count, columns), 65_504.0, dtype=dtype)
        assert torch.equal(call(_reductions.scatter, big, index, 0, 2, "mean")[0], big[0])
        assert torch.equal(call(_reductions.scatter, -big, index, 0, 2, "min")[0], -big[0])
    ones = torch.full((count, 8), 0.5, dtype=dtype)
    assert torch.equal(call(_reductions.scatter, ones, index, 0, 2, "sum")[0], torch.full((8,), 35_000.0).to(dtype))
    alpha = call(_reductions.softmax, ones, index, num_nodes=1)
    assert torch.equal(alpha[:9], torch.full((9, 8), 1 / count).to(dtype))
    assert call(_reductions.degree, index[:3000], 1, dtype).item() == torch.tensor(3000.0).to(dtype).item()
    for name, expected in (("std", 0.0), ("var", 0.0), ("preserving", None)):
        module = aggregated(AGGREGATIONS[name]())
        values = torch.full((count, 4), 100.0, dtype=dtype)
        got = call(module, values, index, dim_size=1)
        wanted = 100.0 * count**0.5 if expected is None else expected
        assert torch.allclose(got.float(), torch.full((1, 4), wanted), rtol=1e-2, atol=1e-3), name
    # Squares of these overflow half, and their deviation does not.
    far = torch.tensor([[30_000.0], [-30_000.0]], dtype=dtype)
    got = call(aggregated(AGGREGATIONS["std"]()), far, index[:2], dim_size=1)
    assert torch.allclose(got.float(), torch.tensor([[30_000.0]]), rtol=1e-2)


def test_gradients_of_many_edges_in_half_are_added_up_in_float():
    layer = tnn.Sequential(pyg.EdgeConv(tnn.Identity(), aggr="sum"))
    nn.accelerate(layer)
    count = 5_000
    x = torch.ones(2, 4, dtype=torch.float16, requires_grad=True)
    index = torch.stack([torch.zeros(count, dtype=torch.long), torch.ones(count, dtype=torch.long)])
    layer[0](x, index).float().sum().backward()
    # Of the source: 1 for each edge. Of the destination: 1 - 1.
    assert torch.equal(x.grad[0], torch.full((4,), 5_000.0, dtype=torch.float16))
    assert torch.equal(x.grad[1], torch.zeros(4, dtype=torch.float16))


@pytest.mark.parametrize("columns", [2, 5])
def test_second_derivatives(columns):
    index = torch.tensor([0, 0, 1, 1, 1, 3])
    for name, run in {
        **{reduce: lambda src, call, reduce=reduce: call(src, index, 0, 4, reduce) for reduce in REDUCTIONS},
        "softmax": lambda src, call: call(src, index, num_nodes=4),
    }.items():
        found = []
        for ours in (True, False):
            src = torch.randn(6, columns, generator=torch.Generator().manual_seed(2)).add(3).requires_grad_()
            function = {"softmax": _reductions.softmax}.get(name, _reductions.scatter)
            theirs = {"softmax": softened}.get(name, scatter)
            call = (lambda *a, **n: Around()(function, *a, **n)) if ours else theirs
            (first,) = torch.autograd.grad(run(src, call).square().sum(), src, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), src)
            found.append(second)
        assert torch.allclose(*found, rtol=1e-3, atol=1e-4), name


def test_the_gradient_of_a_product_with_zeros():
    index = torch.tensor([0, 0, 0, 1, 1, 2])
    values = torch.tensor([[2.0, 0.0], [3.0, 0.0], [0.0, 4.0], [0.0, 5.0], [7.0, 6.0], [0.0, 1.0]])
    found = []
    for call in (Around(), lambda function, *a: scatter(*a)):
        src = values.clone().requires_grad_()
        call(_reductions.scatter, src, index, 0, 4, "mul").sum().backward()
        found.append(src.grad)
    assert torch.equal(*found)


def nodes(tensor):
    """Names of all steps of a gradient."""
    found, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting.extend(before for before, _ in node.next_functions)
    return {node.name() for node in found}


@pytest.mark.parametrize("name", ["TransformerConv", "PNAConv", "GINEConv", "NNConv", "GATConv", "PointTransformerConv"])
def test_gradients_have_no_sums_of_torchs_over_edges(name):
    ours, theirs, call = pair(name)
    data = Data()
    data.x.requires_grad_(), data.pos.requires_grad_()
    sums = {"IndexSelectBackward0", "GatherBackward0", "IndexBackward0"}
    assert nodes(call(theirs, data)) & sums
    # A median takes each message once.
    expected = {"GatherBackward0"} if name == "PNAConv" else set()
    assert nodes(call(ours, data)) & sums == expected


def test_errors_are_pygs():
    layer = tnn.Sequential(pyg.EdgeConv(mlp(2 * F, 5)))
    nn.accelerate(layer)
    x = Data().x
    for bad, message in ((torch.tensor([[0], [N]]), "larger than"), (torch.tensor([[-1], [0]]), "negative")):
        for each in (x, x.clone().requires_grad_()):
            with pytest.raises(IndexError, match=message):
                layer[0](each, bad)
    with pytest.raises(ValueError, match="dim_size"):
        Around()(aggregated(pyg.SumAggregation()), torch.ones(2, 5), torch.tensor([0, 4]), dim_size=3)
    with pytest.raises(ValueError, match="one-dimensional"):
        Around()(_reductions.scatter, torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.long))


# What it changes, and what it does not


def test_the_report_names_what_was_done(replacing):
    class Model(tnn.Module):
        def __init__(self):
            super().__init__()
            self.first = pyg.GCNConv(F, F)
            self.second = Derived(F, F)
            self.third = pyg.SimpleConv(aggr=["mean", "lstm"], aggr_kwargs={"aggrs_kwargs": [{}, {"in_channels": F, "out_channels": F}]})
            self.fourth = pyg.SimpleConv(aggr="lstm", aggr_kwargs={"in_channels": F, "out_channels": F})
            self.fifth = Loud()

    model = Model()
    report = nn.accelerate(model)
    assert report.replaced == ["first"]
    assert report.accelerated == {"second": ["softmax", "sum"], "third": ["mean"]}
    assert report.left == {
        "third.aggr_module.aggrs.1": "halfgnn has no LSTMAggregation",
        "fourth": "it uses no operator that halfgnn has",
        "fifth": "Loud.message writes to its module's globals",
    }
    assert str(report).splitlines() == [
        "1 layer replaced: first",
        "2 layers accelerated: second (softmax, sum), third (mean)",
        "left: third.aggr_module.aggrs.1 (halfgnn has no LSTMAggregation), fourth (it uses no operator that halfgnn has), "
        "fifth (Loud.message writes to its module's globals)",
    ]
    assert str(nn.accelerate(tnn.Linear(2, 2))) == "0 layers replaced"


_counter = 0


class Loud(pyg.SimpleConv):
    def message(self, x_j, index, size_i):
        global _counter
        _counter += 1
        return softened(x_j, index, num_nodes=size_i)


def test_accelerate_twice_is_accelerate_once(replacing):
    model = tnn.Sequential(Neighbours(mlp(2 * F, 5)), pyg.GCNConv(F, F))
    first = nn.accelerate(model)
    kind = type(model[0])
    assert nn.accelerate(model) == first and type(model[0]) is kind


def test_restore_undoes_it(replacing):
    aggregator = pyg.aggr.DegreeScalerAggregation(["mean", "std"], ["identity", "linear"], DEGREES)
    model = tnn.Sequential(Plain(aggr=aggregator), pyg.GCNConv(F, F), Derived(F, F))
    before = [(type(module), set(module.__dict__)) for module in model.modules()]
    state = copy.deepcopy(model.state_dict())
    nn.accelerate(model)
    assert [type(module) for module in model.modules()] != [kind for kind, _ in before]
    for each in (model, copy.deepcopy(model)):
        assert nn.restore(each) == ["0", "1", "2"]
        assert [(type(module), set(module.__dict__)) for module in each.modules()] == before
        assert all(torch.equal(value, state[name]) for name, value in each.state_dict().items())
        assert nn.restore(each) == []


def test_layers_stay_instances_with_their_names_signatures_and_keys():
    ours, theirs, _ = pair("TransformerConv")
    assert isinstance(ours, pyg.TransformerConv) and repr(ours) == repr(theirs)
    assert type(ours).__name__ == "TransformerConv" and ours.state_dict().keys() == theirs.state_dict().keys()
    import inspect

    assert inspect.signature(ours.forward) == inspect.signature(theirs.forward)


def test_nothing_of_pyg_changes():
    watched = [pyg_utils, pyg_utils._scatter, pyg_utils._softmax, pyg.conv.transformer_conv, pyg.aggr.base, pyg.aggr.basic]
    kinds = [pyg.TransformerConv, pyg.PNAConv, MessagePassing, pyg.aggr.Aggregation, pyg.aggr.SoftmaxAggregation, Own, Derived]
    seen = []

    class Watching(tnn.Module):
        def forward(self, x):
            seen.append([dict(module.__dict__) for module in watched] + [dict(kind.__dict__) for kind in kinds])
            seen.append([(function, function.__code__) for function in (scatter, softened, segment, spmm)])
            return x

    data = Data()
    layer = tnn.Sequential(pyg.EdgeConv(tnn.Sequential(tnn.Linear(2 * F, F), Watching())))
    layer[0](data.x, data.index)
    nn.accelerate(layer)
    nn.accelerate(tnn.ModuleList([pyg.TransformerConv(F, F), Own(), Derived(F, F), pyg.GENConv(F, F)]))
    layer[0](data.x, data.index)
    assert len(seen) == 4 and seen[0] == seen[2] and seen[1] == seen[3]


def ours_were_called(monkeypatch):
    """Counts calls of halfgnn's reductions."""
    calls = []
    original = _reductions.Call.incidence
    monkeypatch.setattr(_reductions.Call, "incidence", lambda self, *a: calls.append(threading.get_ident()) or original(self, *a))
    return calls


def test_other_models_are_pygs_also_within_a_layer_and_in_other_threads(monkeypatch):
    calls = ours_were_called(monkeypatch)
    data = Data()
    shared = pyg.aggr.SoftmaxAggregation()
    other = pyg.SimpleConv(aggr=shared)
    found = []

    def elsewhere():
        found.append(other(data.x, data.index))
        found.append(scatter(data.edge, data.index[1], 0, N))

    class Spawning(pyg.SimpleConv):
        def message(self, x_j):
            thread = threading.Thread(target=elsewhere)
            thread.start(), thread.join()
            return x_j

    model = tnn.Sequential(Spawning(aggr=shared))
    expected = other(data.x, data.index)
    nn.accelerate(model)
    assert not calls
    out = model[0](data.x, data.index)
    # The aggregator that both share is halfgnn's in one of them alone.
    assert set(calls) == {threading.get_ident()}
    assert torch.equal(found[0], expected) and torch.allclose(out, expected, atol=1e-6)
    calls.clear()
    assert torch.equal(other(data.x, data.index), expected) and not calls


def test_threads_that_run_one_model_do_not_disturb_one_another():
    ours, theirs, call = pair("TransformerConv")
    data = Data()
    inputs = [torch.cat([data.index, torch.randint(0, N, (2, at))], 1) for at in range(4)]
    layers = [ours, theirs]
    expected = [theirs(data.x, index, torch.zeros(index.shape[1], D)) for index in inputs]
    wrong = []

    def work(at):
        for _ in range(10):
            for layer in layers:
                out = layer(data.x, inputs[at], torch.zeros(inputs[at].shape[1], D))
                if not torch.allclose(out, expected[at], atol=1e-5):
                    wrong.append(at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert not wrong


def test_an_edge_index_that_is_written_to_is_seen():
    ours, theirs, call = pair("EdgeConv")
    data = Data()
    for _ in range(3):
        assert torch.allclose(ours(data.x, data.index), theirs(data.x, data.index), atol=1e-5)
        data.index.numpy()[1, :20] += 1


def test_edges_are_sorted_once_and_not_kept_for_ever(monkeypatch):
    made = []
    original = _reductions._graph
    monkeypatch.setattr(_reductions, "_graph", lambda index, rows: made.append(rows) or original(index, rows))
    model = tnn.ModuleList([pyg.EdgeConv(mlp(2 * F, F), aggr="sum") for _ in range(3)])
    nn.accelerate(model)
    data = Data()
    for _ in range(3):
        x = data.x
        for layer in model:
            # A new tensor of the same contents, as layers make that add loops.
            x = layer(x, data.index.clone())
    assert len(made) == 1
    recent = model[0].__dict__[_accelerate._MARK]
    for at in range(40):
        model[0](data.x, torch.randint(0, N, (2, 50 + at)))
    assert len(recent) <= recent.capacity == 12


def test_a_function_that_changes_later_is_seen(monkeypatch):
    ours, theirs, call = pair("Own")
    module = __import__(__name__)
    data = Data()
    before = ours(data.x, data.index)
    monkeypatch.setitem(globals(), "normalized", lambda scores, index, count: torch.ones_like(scores))
    after = ours(data.x, data.index)
    assert not torch.allclose(before, after) and torch.allclose(after, theirs(data.x, data.index), atol=1e-5)
    monkeypatch.setattr(Own, "update", lambda self, inputs: 0 * inputs)
    assert not Own.update(None, torch.ones(1)).any() and module is not None


@pytest.mark.parametrize("name", ["TransformerConv", "PNAConv", "Own", "Derived", "GENConv"])
def test_copies_and_files_are_accelerated(name, monkeypatch):
    ours, _, call = pair(name)
    data = Data()
    expected = call(ours, data)
    buffer = io.BytesIO()
    torch.save(ours, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(ours), copy.copy(ours), pickle.loads(pickle.dumps(ours)), torch.load(buffer, weights_only=False)]
    for protocol in (0, 1):
        copies.append(pickle.loads(pickle.dumps(ours, protocol)))
    for each in copies:
        assert type(each) is type(ours)
        calls = ours_were_called(monkeypatch)
        assert torch.equal(call(each, data), expected) and calls
        assert nn.restore(each) == [""] and type(each) in (getattr(pyg, name, None), globals().get(name))


def test_a_file_is_read_where_no_layer_of_the_class_was_made_before():
    import os
    import subprocess
    import sys

    ours, _, call = pair("TransformerConv")
    data = Data()
    expected = call(ours, data)
    program = (
        "import sys, pickle, torch, halfgnn.nn\n"
        "layer, operands, expected = pickle.load(sys.stdin.buffer)\n"
        "assert torch.equal(layer(*operands), expected)\n"
    )
    folder = os.path.dirname(os.path.dirname(halfgnn.__file__))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
    given = pickle.dumps((ours, (data.x, data.index, data.edge), expected.detach()))
    subprocess.run([sys.executable, "-c", program], input=given, check=True, env=environment)


# What is not computed by halfgnn's operators


def test_float64_is_pygs_with_one_warning():
    ours, theirs, call = pair("TransformerConv")
    ours.double(), theirs.double()
    data = Data(torch.float64)
    with pytest.warns(halfgnn.FallbackWarning, match="TransformerConv: messages are torch.float64") as caught:
        found = [call(ours, data) for _ in range(2)]
    assert len(caught) == 1 and caught[0].filename == __file__
    assert torch.equal(found[0], call(theirs, data))


def test_integers_are_counted_without_a_warning():
    index = edges()[1]
    assert torch.equal(Around()(_reductions.scatter, torch.ones_like(index), index, 0, N), index.bincount(minlength=N))


@pytest.mark.parametrize("name", ["EdgeConv", "TransformerConv", "PNAConv", "Own"])
def test_compiled_models_are_pygs(name):
    torch._dynamo.reset()
    ours, theirs, call = pair(name)
    data = Data()
    with pytest.warns(halfgnn.FallbackWarning, match="torch.compile"):
        out = call(torch.compile(ours, backend="aot_eager", fullgraph=name in ("EdgeConv", "TransformerConv")), data)
    assert torch.allclose(out, call(theirs, data), atol=1e-5)
    # The same layer outside of it is halfgnn's.
    assert torch.allclose(call(ours, data), call(theirs, data), atol=1e-5)


def test_scripted_models_are_pygs_and_the_model_stays_accelerated():
    model = tnn.Sequential(pyg.EdgeConv(mlp(2 * F, 5)))
    theirs = copy.deepcopy(model)
    nn.accelerate(model)
    kind = type(model[0])
    data = Data()
    with pytest.warns(halfgnn.FallbackWarning, match="TorchScript"):
        scripted = torch.jit.script(model[0])
    assert torch.allclose(scripted(data.x, data.index), theirs[0](data.x, data.index), atol=1e-5)
    assert torch.allclose(model[0](data.x, data.index), theirs[0](data.x, data.index), atol=1e-5)
    assert type(model[0]) is kind and all(not hasattr(type(each), "__halfgnn") for each in model.modules())


@pytest.mark.parametrize("transform", ["vmap", "grad", "trace", "forward"])
def test_transformed_models_are_pygs(transform):
    ours, theirs, call = pair("EdgeConv")
    data = Data()

    def run(layer):
        if transform == "vmap":
            return torch.func.vmap(lambda x: layer(x, data.index), randomness="same")(torch.stack([data.x, data.x0]))
        if transform == "grad":
            return torch.func.grad(lambda x: layer(x, data.index).sum())(data.x)
        if transform == "trace":
            return torch.jit.trace(layer, (data.x, data.index))(data.x, data.index)
        return torch.func.jvp(lambda x: layer(x, data.index), (data.x,), (data.x0,))[1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        expected = run(theirs)
        with pytest.warns(halfgnn.FallbackWarning):
            found = run(ours)
    assert torch.allclose(found, expected, atol=1e-5)


def test_under_autocast_messages_keep_their_format():
    ours, theirs, call = pair("TransformerConv")
    data = Data()
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = call(ours, data), call(theirs, data)
    assert found.dtype == expected.dtype
    assert torch.allclose(found.float(), expected.float(), atol=5e-2)


def test_inference_mode_and_checkpoints():
    ours, theirs, call = pair("PNAConv")
    data = Data()
    with torch.inference_mode():
        assert torch.allclose(call(ours, data), call(theirs, data), atol=1e-4)
    from torch.utils.checkpoint import checkpoint

    found = []
    for layer in (ours, theirs):
        x = data.x.clone().requires_grad_()
        checkpoint(lambda x, layer=layer: layer(x, data.index, data.edge), x, use_reentrant=False).square().mean().backward()
        found.append(x.grad)
    assert torch.allclose(*found, atol=1e-5)


def test_explanations_mask_messages():
    ours, theirs, call = pair("TransformerConv")
    data = Data()
    mask = torch.rand(data.index.shape[1])
    found = []
    for layer in (ours, theirs):
        layer.explain, layer._edge_mask, layer._apply_sigmoid = True, mask.clone().requires_grad_(), False
        out = call(layer, data)
        out.square().sum().backward()
        found.append((out.detach(), layer._edge_mask.grad))
        layer.explain = False
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*found)) and found[0][1].any()


def test_hooks_of_message_passing_are_called():
    ours, theirs, call = pair("GINEConv")
    data = Data()
    for layer in (ours, theirs):
        layer.register_message_forward_hook(lambda layer, given, out: 2 * out)
        layer.register_aggregate_forward_hook(lambda layer, given, out: out + 1)
    assert torch.allclose(call(ours, data), call(theirs, data), atol=1e-5)


def test_an_edge_index_of_pyg_and_sparse_matrices():
    from torch_geometric import EdgeIndex

    data = Data()
    index = data.index[:, data.index[1].argsort(stable=True)]
    sparse = torch.sparse_coo_tensor(index.flip(0), torch.rand(index.shape[1]), (N, N)).coalesce()
    for make in (lambda: pyg.GraphConv(F, 5), lambda: pyg.EdgeConv(mlp(2 * F, 5)), lambda: pyg.GraphConv(F, 5, aggr="max")):
        theirs = make()
        ours = copy.deepcopy(theirs)
        nn.accelerate(ours)
        for adjacency in (EdgeIndex(index, sparse_size=(N, N), sort_order="col"), sparse, sparse.to_sparse_csr()):
            found = []
            for layer in (ours, theirs):
                x = data.x.clone().requires_grad_()
                out = layer(x, adjacency)
                out.square().sum().backward()
                found.append((out.detach(), x.grad))
            assert all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in zip(*found)), (make, type(adjacency))


@pytest.mark.parametrize(
    "name, functions",
    [
        ("TransformerConv", {"softmax"}),
        ("HypergraphConv", {"softmax", "scatter"}),
        ("SGConv", {"scatter"}),
        ("EGConv", {"scatter"}),
        ("Own", {"softmax", "scatter", "segment"}),
        ("ByModule", {"softmax", "scatter"}),
        ("Derived", {"softmax"}),
        ("Halved", {"scatter"}),
        ("closure", {"softmax"}),
        ("Sparse", {"spmm"}),
    ],
)
def test_functions_are_halfgnns_wherever_a_layer_calls_them(name, functions, monkeypatch):
    called = set()
    for theirs, ours in list(_reductions.FUNCTIONS.items()):

        def spy(*operands, _ours=ours, **named):
            called.add(_ours.__name__)
            return _ours(*operands, **named)

        monkeypatch.setitem(_reductions.FUNCTIONS, theirs, spy)
    ours, theirs, call = pair(name)
    call(theirs, Data())
    assert not called
    call(ours, Data())
    assert called == functions


def test_what_functions_use_is_found():
    def outer(x):
        return normalized(x, x, 3)

    def none(x):
        return torch.nn.functional.softmax(x, 0)

    assert _rewritten.used(outer) == {"softmax"} and _rewritten.used(none) == frozenset()
    assert _rewritten.used(Own.aggregate) == {"scatter", "segment"}
    assert _rewritten.used(pyg.conv.gcn_conv.gcn_norm) >= {"scatter"}


def test_more_rows_than_a_graph_has_are_pygs():
    src, index = torch.ones(2, 4), torch.tensor([0, 17_000_000])
    with pytest.warns(halfgnn.FallbackWarning, match="17000001 rows have 2 messages"):
        out = Around()(_reductions.scatter, src, index, 0, None, "sum")
    assert len(out) == 17_000_001 and torch.equal(out[index], src)


def test_layers_that_derive_from_halfgnns():
    class Scored(nn.GATConv):
        def message(self, x_j, alpha):
            return 2 * super().message(x_j, alpha)

    torch.manual_seed(0)
    theirs = Scored(F, 5)
    ours = copy.deepcopy(theirs)
    assert nn.accelerate(ours).accelerated == {"": ["softmax", "sum"]}
    data = Data()
    with pytest.warns(halfgnn.FallbackWarning, match="message"):
        assert torch.allclose(ours(data.x, data.index), theirs(data.x, data.index), atol=1e-5)
    assert nn.restore(ours) == [""] and type(ours) is Scored


def test_a_class_that_no_class_derives_from_is_left():
    class Closed(pyg.EdgeConv):
        def __init_subclass__(cls, password, **options):
            super().__init_subclass__(**options)

    layer = Closed(mlp(2 * F, 5))
    report = nn.accelerate(layer)
    assert not report.accelerated and "no class derives from Closed" in report.left[""]
    assert type(layer) is Closed and nn.restore(layer) == []


def test_methods_that_are_set_on_a_layer_stay():
    layer = pyg.TransformerConv(F, 5)
    layer.message = lambda **given: given["value_j"]
    theirs = copy.copy(layer)
    assert nn.accelerate(layer).left == {"": "its message() is set on the layer itself"}
    data = Data()
    assert torch.equal(layer(data.x, data.index), theirs(data.x, data.index))


class Plain(pyg.SimpleConv):
    """A user's layer."""


def test_an_aggregator_that_a_replaced_layer_shares_does_not_disturb_it(replacing):
    model = tnn.ModuleList([pyg.SAGEConv(F, F), Plain(aggr="mean")])
    model[1].aggr_module = model[0].aggr_module
    theirs = copy.deepcopy(model)
    report = nn.accelerate(model)
    assert report.replaced == ["0"] and list(report.accelerated) == ["1"]
    data = Data()
    # Without a warning: the replaced layer does not fall back.
    for ours, each in zip(model, theirs):
        assert torch.allclose(ours(data.x, data.index), each(data.x, data.index), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_models_of_several_types_of_vertices(dtype):
    metadata = ["a", "b"], [("a", "to", "b"), ("b", "back", "a"), ("a", "self", "a")]
    data = Data(dtype)
    xs = {"a": data.x, "b": data.x0}
    index = {kind: data.index[:, at * 90 : at * 90 + 90] for at, kind in enumerate(metadata[1])}
    models = {
        "HGTConv": lambda: pyg.HGTConv(F, 8, metadata, heads=2),
        "HANConv": lambda: pyg.HANConv(F, 8, metadata, heads=2),
        "HeteroConv": lambda: pyg.HeteroConv({kind: pyg.TransformerConv((F, F), 8, aggr="max") for kind in metadata[1]}, aggr="sum"),
    }
    for name, make in models.items():
        torch.manual_seed(1)
        theirs = make().to(dtype)
        ours = copy.deepcopy(theirs)
        assert nn.accelerate(ours).accelerated, name
        theirs = theirs.double()
        expected = theirs({kind: x.double() for kind, x in xs.items()}, index)
        for kind, out in ours(xs, index).items():
            assert out.dtype == dtype
            assert torch.allclose(out.double(), expected[kind], atol=1e-5 if dtype == torch.float32 else 1e-2), (name, kind)


def test_whole_models_learn_as_pygs():
    data = Data()
    torch.manual_seed(0)
    theirs = pyg.models.PNA(F, 8, 2, 4, aggregators=["mean", "std", "max"], scalers=["identity", "linear"], deg=DEGREES)
    ours = copy.deepcopy(theirs)
    report = nn.accelerate(ours)
    assert list(report.accelerated) == ["convs.0", "convs.1"] and not report.left
    losses = []
    for model in (ours, theirs):
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(data.x, data.index), data.vertex_kind)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
