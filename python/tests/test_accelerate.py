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

import torch_geometric.utils as pyg_utils  # noqa: E402
from torch import nn as tnn  # noqa: E402
from torch_geometric.nn import MessagePassing  # noqa: E402
from torch_geometric.utils import scatter, segment, spmm  # noqa: E402
from torch_geometric.utils import softmax as softened  # noqa: E402

import halfgnn  # noqa: E402
from halfgnn import nn  # noqa: E402
from halfgnn.nn import _accelerate, _common, _reductions, _rewritten  # noqa: E402

N, E, F, R, D = 40, 300, 6, 3, 4


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(3)
    _common._told.clear()


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
    "SuperGATConv": (lambda: pyg.SuperGATConv(F, 5, heads=2, edge_sample_ratio=0.0), lambda m, d: m(d.x, d.index)),
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
            scatter(inputs, index, 0, dim_size, reduce="mean"),
            pyg_utils.scatter(inputs.t(), index, -1, dim_size, "max").t(),
            segment(inputs[order], ptr, reduce="min"),
        ]
        return torch.cat(parts, 1)

    def update(self, inputs, x):
        return inputs + x.repeat(1, 3)


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
    assert report.accelerated, report
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
    expected = results(theirs, call, Data())
    close(results(ours, call, Data()), expected, 1e-5, name)
    # And again, with what is kept of the edges.
    close(results(ours, call, Data()), expected, 1e-5, name)


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_inputs_give_the_same_bits(name):
    ours, _, call = pair(name)
    first, second = (results(ours, call, Data()) for _ in range(2))
    assert all(torch.equal(first[each], second[each]) for each in first)


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("RGCNConv", "PPFConv")])
def test_half_is_that_of_float64_but_for_rounding(name):
    ours, theirs, call = pair(name)
    ours.half(), theirs.half()
    expected = results(theirs.double(), call, Data(torch.float64))
    found = results(ours, call, Data(torch.float16))
    close({"out": found["out"]}, {"out": expected["out"]}, STEEP.get(name, 1e-2), name)
