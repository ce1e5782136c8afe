"""Every layer next to PyG's own: outputs, gradients, keys, formats, and what it takes for a graph."""

from __future__ import annotations

import copy
import dataclasses
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch_geometric  # noqa: E402
from torch_geometric.nn.conv import spline_conv  # noqa: E402
from torch_geometric.utils import to_torch_csr_tensor  # noqa: E402

import halfgnn  # noqa: E402
from halfgnn import Graph, nn  # noqa: E402
from halfgnn.nn import _common  # noqa: E402
from halfgnn.nn._layer import LAYERS, Layer  # noqa: E402

N, M, OUT, TYPES = 34, 21, 6, 3
WIDTHS = [1, 7, 64, 300]


@dataclass
class Case:
    """A layer with options.

    Args:
        kind: its name.
        make: its arguments and options for rows of a width.
        width: of the rows, of tests of one width.
        weighted: whether it takes ``edge_weight``.
        bipartite: whether it takes a pair of features.
        matrix: whether it takes a sparse matrix.
        extra: further arguments by their names, from the features and the edges.
        call: what is called; the layer, the features, the edges and further arguments by default.
        spread: whether it has standard deviations, whose gradients are wrong by more than 1e-5 in float where they are small.
        kinks: whether gradients in half are of other edges where messages are rounded: those of a maximum or of a ReLU.
        graphless: whether it makes its graph itself.
        half: how far outputs and gradients in half may be off.
        largest: whether the largest numbers of half stay in its range, with products by a fourth.
    """

    kind: str
    make: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]
    width: int = 8
    weighted: bool = False
    bipartite: bool = False
    matrix: bool = True
    extra: Callable[[Any, Any], dict[str, Any]] = lambda x, index: {}
    call: Callable[..., Any] = lambda layer, x, index, **extra: layer(x, index, **extra)
    largest: bool = False
    spread: bool = False
    kinks: bool = False
    graphless: bool = False
    half: float = 8e-3
    widths: list[int] = field(default_factory=lambda: WIDTHS)

def sized(*options_of: Any, **options: Any) -> Any:
    """Arguments ``(width, OUT, ...)``."""
    return lambda width: ((width, OUT, *options_of), dict(options))


def plain(*arguments: Any, **options: Any) -> Any:
    """Arguments that do not depend on the width."""
    return lambda width: (arguments, dict(options))


def first_features(x: Any, index: Any) -> dict[str, Any]:
    return {"x_0": 0.5 * x.detach().flip(0)}


def of_features(layer: Any, x: Any, index: Any, **extra: Any) -> Any:
    return layer(x, extra.pop("x_0"), index, **extra)


def signed(layer: Any, x: Any, index: Any) -> Any:
    if isinstance(index, Graph):
        given = index.edge_index
        return layer(x, Graph(given[:, ::2], N), Graph(given[:, 1::2], N))
    return layer(x, index[:, ::2], index[:, 1::2])


def hyper(layer: Any, x: Any, index: Any, **extra: Any) -> Any:
    """Every vertex's number modulo 7 is a hyperedge."""
    source, destination = index.edge_index if isinstance(index, Graph) else index
    return layer(x, torch.stack([source, destination % 7]), num_edges=9, **extra)


def stacked_features(layer: Any, x: Any, index: Any, **extra: Any) -> Any:
    return layer(torch.stack([x, x.flip(1), 0.5 * x], dim=1), index, **extra)


METADATA = (["paper", "author"], [("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "has", "author")])


def by_type(layer: Any, x: Any, index: Any) -> Any:
    """Papers that cite, and the first of them as authors."""
    rows = {"paper": x, "author": 2 * x[:M]}

    def part(source: int, destination: int) -> Any:
        given = index.edge_index if isinstance(index, Graph) else index
        kept = given[:, (given[0] < source) & (given[1] < destination)]
        return Graph(kept, size=(source, destination)) if isinstance(index, Graph) else kept

    if isinstance(index, torch.Tensor) and index.layout != torch.strided:
        return layer({"paper": x, "author": 2 * x[:M]}, {METADATA[1][0]: index})
    return layer(rows, {METADATA[1][0]: index, METADATA[1][1]: part(M, N), METADATA[1][2]: part(N, M)})


def typed(kind: str, make: Any, **options: Any) -> Case:
    """A layer whose edges have types, the last edge's the largest."""

    def types(x: Any, index: Any) -> dict[str, Any]:
        count = index.num_edges if isinstance(index, Graph) else index.shape[1]
        return {"edge_type": (torch.arange(count) * 7 // 3) % TYPES}

    return Case(kind, make, matrix=False, extra=types, **options)


def without_features(layer: Any, x: Any, index: Any, **extra: Any) -> Any:
    return layer(None, index, **extra)


def mlp(width: int, out: int = OUT) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(width, 9), torch.nn.ReLU(), torch.nn.Linear(9, out))


def with_edges(width: int) -> Any:
    """Features of edges."""
    return lambda x, index: {"edge_attr": edge_features(index, width)}


def with_wide_edges(x: Any, index: Any) -> dict[str, Any]:
    return {"edge_attr": edge_features(index, x.shape[1])}


def with_positions(x: Any, index: Any) -> dict[str, Any]:
    return {"pos": 0.3 * features(x.shape[0], 3, 11)}


def with_normals(x: Any, index: Any) -> dict[str, Any]:
    return {**with_positions(x, index), "normal": features(x.shape[0], 3, 12)}


def points(layer: Any, x: Any, index: Any, **geometry: Any) -> Any:
    """Positions, and what else there is, of the vertices; those of destinations are others."""
    if isinstance(x, tuple):
        geometry = {name: (rows, 0.5 + rows[: len(x[1])]) for name, rows in geometry.items()}
        x = x if isinstance(layer, pyg.PointTransformerConv) else (x[0], None)
    return layer(x, *geometry.values(), index)


def of_positions(layer: Any, x: Any, index: Any, **geometry: Any) -> Any:
    return points(layer, None, index, **geometry)


def of_heat(x: Any, index: Any) -> dict[str, Any]:
    attributes = edge_features(index, 5)
    return {"node_type": torch.arange(len(x)) % 3, "edge_type": torch.arange(len(attributes)) * 5 // 3 % TYPES, "edge_attr": attributes}


def nearest(layer: Any, x: Any, index: Any) -> Any:
    """The nearest of the vertices of two graphs, of which one may be of destinations alone."""
    if isinstance(x, tuple):
        return layer(x, tuple(torch.arange(len(rows)) // 20 for rows in x))
    return layer(x, torch.arange(len(x)) // 20)


def knn(x: Any, y: Any, ptr_x: Any, ptr_y: Any, k: int, cosine: bool, num_workers: int) -> Any:
    """As pyg-lib's, whose place it takes where there is none."""
    found = []
    for first, last, begin, end in zip(ptr_x, ptr_x[1:], ptr_y, ptr_y[1:]):
        if end > begin and last > first:
            places = torch.cdist(y[begin:end].double(), x[first:last].double()).topk(min(k, int(last - first)), largest=False).indices
            found.append(torch.stack([torch.arange(int(begin), int(end)).repeat_interleave(places.shape[1]), (places + first).flatten()]))
    return torch.cat(found, dim=1)


if not hasattr(torch.ops.pyg, "knn"):
    _pyg_lib = torch.library.Library("pyg", "FRAGMENT")
    _pyg_lib.define("knn(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, int k, bool cosine, int num_workers) -> Tensor")
    _pyg_lib.impl("knn", knn, "CompositeImplicitAutograd")
    torch_geometric.typing.WITH_KNN = True


def spline_basis(pseudo: Any, sizes: Any, is_open: Any, degree: int) -> Any:
    """As pyg-lib's of degree 1, whose place it takes where there is none: weights of the kernels at the corners of an edge's cell."""
    assert degree == 1
    at = pseudo * (sizes - is_open.long()).to(pseudo.dtype)
    low = at.detach().floor()
    share, kernels = at.new_ones(len(at), 1), torch.zeros(len(at), 1, dtype=torch.long)
    step = 1
    for axis, size in enumerate(sizes.tolist()):
        high = (at - low)[:, axis : axis + 1]
        place = low[:, axis : axis + 1].long()
        share = torch.cat([share * (1 - high), share * high], dim=1)
        kernels = torch.cat([kernels + place % size * step, kernels + (place + 1) % size * step], dim=1)
        step *= size
    return share, kernels


def spline_weighting(x: Any, weight: Any, share: Any, kernels: Any) -> Any:
    return sum(share[:, each : each + 1] * torch.bmm(x[:, None], weight[kernels[:, each]])[:, 0] for each in range(share.shape[1]))


if spline_conv.spline_basis is None:
    spline_conv.spline_basis, spline_conv.spline_weighting = spline_basis, spline_weighting


def with_coordinates(columns: int) -> Any:
    def coordinates(x: Any, index: Any) -> dict[str, Any]:
        # Between the kernels, where shares have derivatives.
        return {"edge_attr": edge_features(index, columns).sigmoid() * 0.98 + 0.01}

    return coordinates


CASES = {
    "gcn": Case("GCNConv", sized(), weighted=True, largest=True),
    "sage": Case("SAGEConv", sized(), bipartite=True),
    "sage min": Case("SAGEConv", sized(aggr="min", normalize=True), bipartite=True),
    "gin": Case("GINConv", lambda width: ((torch.nn.Linear(width, OUT),), {"train_eps": True}), bipartite=True),
    "gat": Case("GATConv", sized(heads=2), bipartite=True),
    "gatv2": Case("GATv2Conv", sized(heads=2), bipartite=True),
    "graph": Case("GraphConv", sized(), weighted=True, bipartite=True),
    "graph wider": Case("GraphConv", lambda width: ((width, width + 3), {}), weighted=True, bipartite=True),
    "graph mean": Case("GraphConv", sized(aggr="mean", bias=False), weighted=True, bipartite=True, matrix=False, largest=True),
    "graph max": Case("GraphConv", sized(aggr="max"), weighted=True, bipartite=True, matrix=False),
    "graph min": Case("GraphConv", sized(aggr="min"), weighted=True, bipartite=True, matrix=False),
    "simple": Case("SimpleConv", plain(), weighted=True, bipartite=True),
    "simple mean": Case("SimpleConv", plain(aggr="mean", combine_root="sum"), weighted=True, bipartite=True, matrix=False),
    "simple max": Case("SimpleConv", plain(aggr="max", combine_root="cat"), weighted=True, bipartite=True, matrix=False),
    "simple loops": Case("SimpleConv", plain(aggr="mean", combine_root="self_loop"), weighted=True, matrix=False, largest=True),
    "wl": Case("WLConvContinuous", plain(), weighted=True, bipartite=True, matrix=False, largest=True),
    "le": Case("LEConv", sized(), weighted=True, bipartite=True),
    "lg": Case("LGConv", plain(), weighted=True, largest=True),
    "lg without norm": Case("LGConv", plain(normalize=False), weighted=True),
    "sg": Case("SGConv", sized(K=2), weighted=True, largest=True),
    "sg without loops": Case("SGConv", lambda width: ((width, width + 2), {"add_self_loops": False, "bias": False}), weighted=True),
    "ssg": Case("SSGConv", sized(0.2, K=3), weighted=True, largest=True),
    "ssg wider": Case("SSGConv", lambda width: ((width, width + 2, 0.1), {"K": 2}), weighted=True),
    "tag": Case("TAGConv", sized(), weighted=True, largest=True),
    "tag wider": Case("TAGConv", lambda width: ((width, width + 2), {"K": 2}), weighted=True, largest=True),
    "tag without norm": Case("TAGConv", sized(K=1, normalize=False, bias=False), weighted=True),
    "mixhop": Case("MixHopConv", sized(powers=[0, 2, 3]), weighted=True, largest=True),
    "cheb": Case("ChebConv", sized(3), weighted=True, matrix=False),
    "cheb rw": Case("ChebConv", sized(2, normalization="rw"), weighted=True, matrix=False, largest=True),
    "cheb none": Case(
        "ChebConv", sized(4, normalization=None, bias=False), weighted=True, matrix=False, extra=lambda x, index: {"lambda_max": 90.0}
    ),
    "cheb one": Case("ChebConv", sized(1), weighted=True, matrix=False),
    "arma": Case("ARMAConv", sized(num_stacks=3, num_layers=2), weighted=True, matrix=False, largest=True),
    "arma shared": Case(
        "ARMAConv", sized(num_layers=3, shared_weights=True, act=None, bias=False), weighted=True, matrix=False
    ),
    "appnp": Case("APPNP", plain(5, 0.1), weighted=True, largest=True),
    "appnp without loops": Case("APPNP", plain(2, 0.5, add_self_loops=False), weighted=True),
    "appnp without norm": Case("APPNP", plain(2, 0.5, normalize=False), weighted=True),
    "gcn2": Case("GCN2Conv", lambda width: ((width, 0.3), {"theta": 0.5, "layer": 2}), weighted=True, extra=first_features, call=of_features),
    "gcn2 apart": Case(
        "GCN2Conv", lambda width: ((width, 0.3), {"shared_weights": False}), weighted=True, extra=first_features, call=of_features
    ),
    "gated": Case("GatedGraphConv", lambda width: ((width + 2, 2), {}), weighted=True),
    "gated mean": Case("GatedGraphConv", lambda width: ((width, 2), {"aggr": "mean"}), weighted=True, matrix=False),
    "signed": Case("SignedConv", sized(True), call=signed, matrix=False),
    "signed second": Case(
        "SignedConv", lambda width: ((width // 2, OUT, False), {"bias": False}), call=signed, matrix=False, widths=[2, 8, 64]
    ),
    "cluster": Case("ClusterGCNConv", sized(), largest=True),
    "cluster lambda": Case("ClusterGCNConv", sized(diag_lambda=0.7)),
    "fa": Case("FAConv", lambda width: ((width,), {}), extra=first_features, call=of_features, matrix=False, largest=True),
    "hypergraph": Case("HypergraphConv", sized(), call=hyper, matrix=False, largest=True),
    "hypergraph weights": Case(
        "HypergraphConv", sized(), call=hyper, matrix=False, extra=lambda x, index: {"hyperedge_weight": torch.linspace(0.2, 2, 9)}
    ),
    "hypergraph attention": Case(
        "HypergraphConv",
        sized(use_attention=True, heads=2),
        call=hyper,
        matrix=False,
        extra=lambda x, index: {"hyperedge_attr": x.detach()[:9].clone(), "hyperedge_weight": torch.linspace(0.2, 2, 9)},
    ),
    "hypergraph edges": Case(
        "HypergraphConv",
        sized(use_attention=True, heads=2, concat=False, attention_mode="edge", bias=False),
        call=hyper,
        matrix=False,
        extra=lambda x, index: {"hyperedge_attr": x.detach()[:9].clone()},
    ),
    "labels": Case("LabelPropagation", plain(3, 0.8), weighted=True),
    "transformer": Case("TransformerConv", sized(heads=2, beta=True), bipartite=True),
    "transformer mean": Case("TransformerConv", sized(heads=3, concat=False, beta=True, bias=False), bipartite=True),
    "transformer alone": Case("TransformerConv", lambda width: ((width, width), {"root_weight": False}), bipartite=True, largest=True),
    "agnn": Case("AGNNConv", plain(), largest=True),
    "agnn without loops": Case("AGNNConv", plain(requires_grad=False, add_self_loops=False)),
    "supergat": Case("SuperGATConv", sized(heads=2)),
    "supergat products": Case("SuperGATConv", sized(heads=2, concat=False, attention_type="SD", add_self_loops=False)),
    "general": Case("GeneralConv", sized(heads=2), bipartite=True),
    "general both ends": Case("GeneralConv", sized(heads=2, directed_msg=False, l2_normalize=True), bipartite=True),
    "general mean": Case("GeneralConv", sized(aggr="mean", directed_msg=False), bipartite=True),
    "general max": Case("GeneralConv", sized(aggr="max", directed_msg=False), bipartite=True),
    "general additive": Case("GeneralConv", sized(heads=2, attention=True), bipartite=True),
    "general additive ends": Case("GeneralConv", sized(heads=2, attention=True, directed_msg=False), bipartite=True),
    "general products": Case("GeneralConv", sized(heads=2, attention=True, attention_type="dot_product"), bipartite=True),
    "general products ends": Case(
        "GeneralConv", sized(heads=2, attention=True, attention_type="dot_product", directed_msg=False), bipartite=True
    ),
    "rgcn": typed("RGCNConv", sized(TYPES + 1), bipartite=True),
    "rgcn bases": typed("RGCNConv", sized(TYPES, num_bases=2, aggr="add", bias=False), bipartite=True),
    "rgcn blocks": typed("RGCNConv", sized(TYPES, num_blocks=2, root_weight=False), widths=[2, 8, 64], bipartite=True),
    "rgcn max": typed("RGCNConv", sized(TYPES, aggr="max"), bipartite=True),
    "rgcn ids": typed("RGCNConv", plain(N, OUT, TYPES, num_bases=2), call=without_features),
    "fast rgcn": typed("FastRGCNConv", sized(TYPES), bipartite=True),
    "fast rgcn bases": typed("FastRGCNConv", sized(TYPES, num_bases=2, aggr="add"), bipartite=True),
    "fast rgcn blocks": typed("FastRGCNConv", sized(TYPES, num_blocks=2, aggr="mean"), widths=[2, 8, 64], bipartite=True),
    "fast rgcn ids": typed("FastRGCNConv", plain(N, OUT, TYPES), call=without_features),
    "rgat": typed("RGATConv", sized(TYPES, heads=2)),
    "rgat within": typed("RGATConv", sized(TYPES, num_bases=2, attention_mechanism="within-relation", mod="f-scaled")),
    "rgat products": typed(
        "RGATConv",
        sized(TYPES, num_blocks=2, attention_mode="multiplicative-self-attention", heads=2, dim=3, mod="additive"),
        widths=[2, 8, 64],
    ),
    "rgat scaled": typed("RGATConv", sized(TYPES, heads=2, concat=False, mod="scaled", bias=False)),
    "rgat scaled products": typed(
        "RGATConv", sized(TYPES, attention_mode="multiplicative-self-attention", dim=2, mod="scaled", concat=False)
    ),
    "rgat additive": typed("RGATConv", sized(TYPES, mod="additive", heads=2)),
    "rgat raised": typed("RGATConv", sized(TYPES, mod="f-additive")),
    "han": Case("HANConv", lambda width: ((width, 6, METADATA), {"heads": 2}), call=by_type),
    "hgt": Case("HGTConv", lambda width: ((width, 8, METADATA), {"heads": 2}), call=by_type),
    "pdn": Case("PDNConv", sized(4, 5), matrix=False, extra=lambda x, index: {"edge_attr": edge_features(index, 4)}),
    "pdn without norm": Case(
        "PDNConv", sized(4, 5, normalize=False, add_self_loops=False), matrix=False, extra=lambda x, index: {"edge_attr": edge_features(index, 4)}
    ),
    "mf": Case("MFConv", sized(max_degree=4), bipartite=True, matrix=False),
    "mf max": Case("MFConv", sized(max_degree=2, aggr="max", bias=False), bipartite=True, matrix=False),
    "feast": Case("FeaStConv", sized(heads=3), bipartite=True),
    "feast sum": Case("FeaStConv", sized(heads=2, add_self_loops=False, aggr="add"), bipartite=True),
    "eg": Case("EGConv", lambda width: ((width, 8), {"num_heads": 4, "num_bases": 3})),
    "eg many": Case(
        "EGConv",
        lambda width: ((width, 8), {"num_heads": 2, "aggregators": ["symnorm", "mean", "max", "min", "var", "std", "sum"]}),
        matrix=False,
    ),
    "eg without symnorm": Case("EGConv", lambda width: ((width, 8), {"num_heads": 2, "aggregators": ["mean", "max"]}), matrix=False),
    "sage several": Case("SAGEConv", sized(aggr=["mean", "max", "std", "min"]), bipartite=True, matrix=False, spread=True),
    "gin several": Case(
        "GINConv", lambda width: ((torch.nn.Linear(width, OUT),), {"aggr": "std"}), bipartite=True, matrix=False, spread=True
    ),
    "graph var": Case("GraphConv", sized(aggr="var"), weighted=True, bipartite=True, matrix=False),
    "simple several": Case("SimpleConv", plain(aggr=["sum", "std", "var", "min"]), weighted=True, bipartite=True, matrix=False, spread=True),
    "pna": Case(
        "PNAConv",
        sized(["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"], torch.tensor([4, 3, 9, 2, 0, 6])),
        matrix=False,
        spread=True,
        half=2e-2,
    ),
    "pna towers": Case(
        "PNAConv",
        sized(
            ["sum", "var", "mean"],
            ["linear", "inverse_linear"],
            torch.tensor([4, 3, 9, 2]),
            towers=2,
            divide_input=True,
            post_layers=2,
            train_norm=True,
        ),
        matrix=False,
        spread=True,
        widths=[2, 8, 64],
    ),
    "resgated": Case("ResGatedGraphConv", sized(), bipartite=True),
    "resgated edges": Case(
        "ResGatedGraphConv", sized(edge_dim=4, act=torch.tanh, root_weight=False, aggr="mean"), bipartite=True, extra=with_edges(4)
    ),
    "resgated max": Case("ResGatedGraphConv", sized(aggr="max", bias=False, act=torch.nn.SiLU()), bipartite=True, kinks=True),
    "cg": Case("CGConv", lambda width: ((width,), {}), bipartite=True, half=2e-2),
    "cg edges": Case(
        "CGConv", lambda width: ((width, 4), {"aggr": "mean", "batch_norm": True, "bias": False}), bipartite=True, extra=with_edges(4)
    ),
    "cg several": Case("CGConv", lambda width: ((width, 4), {"aggr": "std"}), extra=with_edges(4), spread=True, half=2e-2),
    "gine": Case("GINEConv", lambda width: ((mlp(width),), {"train_eps": True}), bipartite=True, extra=with_wide_edges, half=2e-2),
    "gine edges": Case(
        "GINEConv", lambda width: ((mlp(width),), {"edge_dim": 4, "aggr": "mean"}), bipartite=True, extra=with_edges(4), kinks=True
    ),
    "gine mean": Case("GINEConv", lambda width: ((mlp(width),), {"aggr": "mean"}), bipartite=True, extra=with_wide_edges, kinks=True),
    "gine softmax": Case(
        "GINEConv",
        lambda width: ((mlp(width),), {"edge_dim": 4, "aggr": ["softmax", "powermean"], "aggr_kwargs": {"mode": "sum"}}),
        extra=with_edges(4),
        kinks=True,
    ),
    "gine mul": Case(
        "GINEConv", lambda width: ((mlp(width),), {"edge_dim": 1, "aggr": "mul"}), extra=with_edges(1), kinks=True
    ),
    "gen": Case("GENConv", sized(norm="layer"), bipartite=True, kinks=True),
    "gen edges": Case(
        "GENConv", sized(edge_dim=4, learn_t=True, t=0.7, msg_norm=True, learn_msg_scale=True), bipartite=True, extra=with_edges(4), kinks=True
    ),
    "gen half a gradient": Case("GENConv", sized(aggr="softmax_sg", num_layers=1, bias=True), bipartite=True, kinks=True),
    "gen power": Case("GENConv", sized(aggr="powermean", p=1.7, learn_p=True, norm="layer"), bipartite=True, kinks=True),
    "gen sum": Case("GENConv", sized(aggr="add", edge_dim=OUT), bipartite=True, extra=with_edges(OUT), kinks=True, half=2e-2),
    "gen max": Case("GENConv", lambda width: ((width, width), {"aggr": "max"}), bipartite=True, kinks=True),
    "gen several": Case("GENConv", sized(aggr=["mean", "max", "std"], norm="layer"), bipartite=True, spread=True, kinks=True),
    "film": Case("FiLMConv", sized(), bipartite=True, kinks=True),
    "film types": typed("FiLMConv", sized(TYPES, act=torch.nn.Tanh()), bipartite=True),
    "film network": typed(
        "FiLMConv", lambda width: ((width, OUT, TYPES + 1), {"nn": mlp(width, 2 * OUT), "act": None, "aggr": "max"}), bipartite=True, kinks=True
    ),
    "heat": Case("HEATConv", sized(3, TYPES, 4, 5, 6, heads=2), extra=of_heat),
    "heat mean": Case("HEATConv", sized(3, TYPES, 4, 5, 6, heads=3, concat=False, bias=False, aggr="mean"), extra=of_heat),
    "heat alone": Case("HEATConv", sized(3, TYPES, 4, 5, 6, root_weight=False, concat=False, negative_slope=0.1), extra=of_heat),
    "edge": Case("EdgeConv", lambda width: ((mlp(2 * width),), {}), bipartite=True, kinks=True),
    "edge sum": Case("EdgeConv", lambda width: ((pyg.MLP([2 * width, 9, OUT], norm=None),), {"aggr": "add"}), bipartite=True, half=3e-2),
    "edge product": Case("EdgeConv", lambda width: ((torch.nn.Linear(2 * width, OUT),), {}), bipartite=True, kinks=True),
    "edge product mean": Case("EdgeConv", lambda width: ((torch.nn.Linear(2 * width, OUT),), {"aggr": "mean"}), bipartite=True, half=2e-2),
    "edge norm": Case(
        "EdgeConv", lambda width: ((pyg.MLP([2 * width, 9, OUT]),), {"aggr": "mean"}), bipartite=True, kinks=True, half=2e-2
    ),
    "edge other": Case(
        "EdgeConv", lambda width: ((torch.nn.Sequential(torch.nn.Tanh(), mlp(2 * width)),), {"aggr": "mean"}), bipartite=True, kinks=True
    ),
    "dynamic edge": Case(
        "DynamicEdgeConv", lambda width: ((mlp(2 * width), 5), {}), bipartite=True, call=nearest, graphless=True, kinks=True
    ),
    "gravnet": Case("GravNetConv", sized(2, 7, 5), bipartite=True, call=nearest, graphless=True, kinks=True, half=0.1),
    "pointnet": Case(
        "PointNetConv", lambda width: ((mlp(width + 3), torch.nn.Linear(OUT, 4)), {}), bipartite=True, extra=with_positions, call=points, kinks=True
    ),
    "pointnet alone": Case("PointNetConv", lambda width: ((), {"add_self_loops": False, "aggr": "mean"}), extra=with_positions, call=points),
    "pointnet positions": Case(
        "PointNetConv",
        lambda width: ((mlp(3),), {"aggr": "mean"}),
        extra=with_positions,
        call=of_positions,
        kinks=True,
    ),
    "pointnet norm": Case(
        "PointNetConv",
        lambda width: ((torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(width + 3, OUT)),), {"aggr": "std"}),
        bipartite=True,
        extra=with_positions,
        call=points,
        spread=True,
        half=2e-2,
    ),
    "ppf": Case(
        "PPFConv", lambda width: ((mlp(width + 4), torch.nn.Linear(OUT, 4)), {}), bipartite=True, extra=with_normals, call=points, kinks=True
    ),
    "ppf positions": Case(
        "PPFConv",
        lambda width: ((torch.nn.Linear(4, OUT),), {"add_self_loops": False, "aggr": "mean"}),
        extra=with_normals,
        call=of_positions,
        half=3e-2,
    ),
    "point transformer": Case("PointTransformerConv", sized(), bipartite=True, extra=with_positions, call=points),
    "point transformer networks": Case(
        "PointTransformerConv",
        lambda width: ((width, OUT, mlp(3), mlp(OUT)), {"add_self_loops": False, "aggr": "mean"}),
        bipartite=True,
        extra=with_positions,
        call=points,
        kinks=True,
    ),
    "point gnn": Case(
        "PointGNNConv",
        lambda width: ((mlp(width, 3), mlp(width + 3, 5), torch.nn.Linear(5, width)), {}),
        extra=with_positions,
        call=points,
        kinks=True,
    ),
    "point gnn norm": Case(
        "PointGNNConv",
        lambda width: ((pyg.MLP([width, 7, 3]), pyg.MLP([width + 3, 7, 5]), torch.nn.Linear(5, width)), {"aggr": "mean"}),
        extra=with_positions,
        call=points,
        kinks=True,
    ),
    "nn": Case("NNConv", lambda width: ((width, OUT, mlp(4, width * OUT)), {}), bipartite=True, extra=with_edges(4), half=2e-2),
    "nn mean": Case(
        "NNConv",
        lambda width: ((width, OUT, torch.nn.Linear(3, width * OUT, bias=False)), {"aggr": "mean", "root_weight": False, "bias": False}),
        bipartite=True,
        extra=with_edges(3),
    ),
    "nn max": Case(
        "NNConv", lambda width: ((width, OUT, mlp(4, width * OUT)), {"aggr": "max"}), bipartite=True, extra=with_edges(4), kinks=True
    ),
    "nn other": Case(
        "NNConv",
        lambda width: ((width, OUT, torch.nn.Sequential(torch.nn.Linear(4, width * OUT), torch.nn.Tanh())), {"aggr": "mean"}),
        bipartite=True,
        extra=with_edges(4),
    ),
    "spline": Case("SplineConv", sized(2, 5), bipartite=True, extra=with_coordinates(2)),
    "spline closed": Case(
        "SplineConv",
        sized(3, [3, 2, 4], is_open_spline=False, aggr="add", root_weight=False, bias=False),
        bipartite=True,
        extra=with_coordinates(3),
        half=2e-2,
    ),
    "gmm": Case("GMMConv", sized(2, 3), bipartite=True, matrix=False, extra=lambda x, index: {"edge_attr": edge_features(index, 2)}),
    "dna": Case("DNAConv", lambda width: ((width,), {}), weighted=True, call=stacked_features, matrix=False),
    "dna heads": Case(
        "DNAConv", lambda width: ((width,), {"heads": 4, "groups": 2}), weighted=True, call=stacked_features, matrix=False, widths=[8, 64]
    ),
}


def edge_features(index: Any, width: int) -> Any:
    generator = torch.Generator().manual_seed(6)
    count = index.num_edges if isinstance(index, Graph) else index.shape[1]
    return torch.randn(count, width, generator=generator)


@pytest.fixture(autouse=True)
def fresh():
    _common._told.clear()


def edges(sources: int = N, destinations: int = N) -> Any:
    """Rows of no, one and many edges, edges that occur again, self-loops, and vertices without any."""
    generator = torch.Generator().manual_seed(4)
    many = torch.stack([torch.randint(0, sources - 2, (90,), generator=generator), torch.full((90,), 2)])
    others = torch.stack([torch.randint(0, sources - 3, (70,), generator=generator), torch.randint(4, destinations - 3, (70,), generator=generator)])
    one = torch.tensor([[3, 5], [0, 3]])
    loops = torch.tensor([[1, 6, 6], [1, 6, 6]])
    index = torch.cat([others, one, many, loops], dim=1)
    return index[:, torch.randperm(index.shape[1], generator=generator)]


def distinct() -> Any:
    """Edges without self-loops and without those that occur again, which PyG's sparse matrices take otherwise than its edges."""
    index = edges()
    return torch.unique(index[:, index[0] != index[1]], dim=1)


def with_options(case: Case, **options: Any) -> Case:
    """The case with further options of its layer."""
    return dataclasses.replace(case, make=lambda width: (case.make(width)[0], {**case.make(width)[1], **options}))


def of_format(extra: dict[str, Any], format: Any) -> dict[str, Any]:
    """Arguments in a format of floats."""
    return {key: value.to(format) if torch.is_tensor(value) and value.is_floating_point() else value for key, value in extra.items()}


def features(rows: int, width: int, seed: int = 5) -> Any:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def both(case: Case, width: int) -> Any:
    """PyG's layer and ours with the same parameters, by a strict ``load_state_dict`` in either direction."""
    made = []
    for of in (pyg, nn):
        torch.manual_seed(3)
        arguments, options = case.make(width)
        made.append(getattr(of, case.kind)(*arguments, **options).eval())
    theirs, ours = made
    with torch.no_grad():
        for key, parameter in theirs.named_parameters():
            # PyG leaves RGATConv's `l2` as it is allocated.
            if (parameter.ndim == 1 or key == "l2") and "avg_deg" not in key:
                parameter.uniform_(-0.5, 0.5)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return theirs, ours


def tensors(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return [value for value in result.values() if value is not None]
    return list(result) if isinstance(result, (tuple, list)) else [result]


def run(layer: Any, case: Case, x: Any, index: Any, **extra: Any) -> list[Any]:
    """Outputs, and the gradients of features, of further arguments and of parameters."""
    layer.zero_grad()
    leaves = []

    def leaf(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        leaves.append(value.clone().requires_grad_())
        return leaves[-1]

    given = tuple(leaf(each) for each in x) if isinstance(x, tuple) else leaf(x)
    outputs = tensors(case.call(layer, given, index, **{name: leaf(value) for name, value in extra.items()}))
    generator = torch.Generator().manual_seed(9)
    total = sum((out * torch.randn(out.shape, generator=generator).to(out)).sum() for out in outputs)
    if total.requires_grad:
        total.backward()
    return [*(out.detach() for out in outputs), *(value.grad for value in [*leaves, *layer.parameters()])]


def assert_close(got: list[Any], expected: list[Any], tolerance: float) -> None:
    for one, other in zip(got, expected, strict=True):
        if one is None or other is None:
            # Operators give no gradient where PyG's give zeros, and the reverse.
            assert all(value is None or not value.any() for value in (one, other))
            continue
        assert one.shape == other.shape
        scale = max(1.0, other.double().abs().max().item() if other.numel() else 0.0)
        assert one.isfinite().all()
        assert (one.double() - other.double()).abs().max().item() <= tolerance * scale if one.numel() else True


def reference(layer: Any, case: Case, x: Any, index: Any, **extra: Any) -> tuple[list[Any], float]:
    """What PyG's layer computes, and how far another may be off; of standard deviations in float64, as far as PyG's in float."""
    expected = run(layer, case, x, index, **extra)
    if not case.spread:
        return expected, 1e-5
    rows = tuple(each.double() for each in x) if isinstance(x, tuple) else x.double()
    exact = run(copy.deepcopy(layer).double(), case, rows, index, **extra)
    off = [(one - other).abs().max().item() / max(1.0, other.abs().max().item()) for one, other in zip(expected, exact) if one is not None]
    return exact, max(1e-5, 4 * max(off))


@pytest.mark.parametrize("as_graph", [False, True], ids=["edge_index", "Graph"])
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients(name, as_graph):
    case = CASES[name]
    index = edges()
    for width in case.widths if not as_graph else [case.width]:
        theirs, ours = both(case, width)
        x = features(N, width)
        extra = case.extra(x, index)
        expected, tolerance = reference(theirs, case, x, index, **extra)
        adjacency = Graph(index, N) if as_graph else index
        # Twice: what the first call keeps serves the second.
        for _ in range(2):
            assert_close(run(ours, case, x, adjacency, **extra), expected, tolerance)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.weighted])
def test_edge_weights_and_their_gradients(name):
    case = CASES[name]
    index = edges()
    theirs, ours = both(case, case.width)
    x = features(N, case.width)
    weight = 0.1 + torch.rand(index.shape[1], generator=torch.Generator().manual_seed(2))
    extra = case.extra(x, index)
    expected = run(theirs, case, x, index, edge_weight=weight, **extra)
    assert_close(run(ours, case, x, index, edge_weight=weight, **extra), expected, 1e-5)
    of_graph = tensors(case.call(ours, x, Graph(index, N, weight=weight), **extra))
    assert_close([out.detach() for out in of_graph], expected[: len(of_graph)], 1e-5)
    with pytest.raises(ValueError, match="should be"):
        case.call(ours, x, index, edge_weight=weight[:-1], **extra)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not (case.weighted or case.graphless or case.call is signed)])
def test_weights_of_a_graph_that_a_layer_does_not_use_are_refused(name):
    case = CASES[name]
    _, ours = both(case, case.width)
    x, index = features(N, case.width), edges()
    weight = torch.rand(index.shape[1])
    graph, call = Graph(index, N, weight=weight), case.call
    if call is by_type:
        call = lambda layer, x, index: layer({"paper": x}, {METADATA[1][0]: index})
    elif call is hyper:
        graph, call = Graph(index, size=(N, N), weight=weight), lambda layer, x, index, **extra: layer(x, index, **{**extra, "num_edges": N})
    with pytest.raises(ValueError, match="the graph has weights, which it does not use"):
        call(ours, x, graph, **case.extra(x, index))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.bipartite])
def test_pairs_of_features(name):
    case = CASES[name]
    index = edges(N, M)
    theirs, ours = both(case, case.width)
    x = features(N, case.width), features(M, case.width, 6)
    extra = case.extra(x[0], index)
    expected = run(theirs, case, x, index, **extra)
    assert_close(run(ours, case, x, index, **extra), expected, 1e-5)
    assert_close(run(ours, case, x, Graph(index, size=(N, M)), **extra), expected, 1e-5)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.matrix and getattr(nn, case.kind)._matrices])
def test_a_sparse_adjacency(name):
    case = CASES[name]
    index = distinct()
    theirs, ours = both(case, case.width)
    x = features(N, case.width)
    extra = case.extra(x, index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", halfgnn.FallbackWarning)
        adjacency = to_torch_csr_tensor(index.flip(0), size=(N, N))
        assert_close(run(ours, case, x, adjacency, **extra), run(theirs, case, x, adjacency, **extra), 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_graph_without_edges(name):
    case = CASES[name]
    index = torch.zeros((2, 0), dtype=torch.long)
    theirs, ours = both(case, case.width)
    x = features(N, case.width)
    extra = case.extra(x, index)
    try:
        expected = run(theirs, case, x, index, **extra)
    except (RuntimeError, IndexError):
        # PyG's own does not take it.
        return
    assert_close(run(ours, case, x, index, **extra), expected, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_half_is_within_its_rounding_of_float64(name):
    case = CASES[name]
    index = edges()
    theirs, ours = both(case, case.width)
    x = features(N, case.width).half()
    extra = of_format(case.extra(x.float(), index), torch.float16)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(parameter.half())
    ours.load_state_dict(theirs.state_dict(), strict=True)
    expected = run(theirs.double(), case, x.double(), index, **of_format(extra, torch.float64))
    got = run(ours.half(), case, x, index, **extra)
    assert all(value is None or value.dtype == torch.float16 for value in got)
    if case.kinks:
        # Of outputs alone.
        count = len(tensors(case.call(ours, x, index, **extra)))
        expected, got = expected[:count], got[:count]
    assert_close(got, expected, case.half)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.largest])
def test_the_largest_numbers_of_half(name):
    case = CASES[name]
    # Six edges arrive at each vertex, so that a sum over the roots of degrees is a mean.
    vertices = torch.arange(N)
    index = torch.cat([torch.stack([vertices, (vertices + step) % N]) for step in range(1, 7)], dim=1)
    theirs, ours = both(case, case.width)
    with torch.no_grad():
        for key, parameter in theirs.named_parameters():
            parameter.zero_()
            # Of scores of 10⁹ the softmax in float is another one than in float64: they are zeros.
            if parameter.ndim >= 2 and not key.startswith(("lin_key", "lin_query")):
                short = min(parameter.shape[-2:])
                parameter[..., range(short), range(short)] = 0.25
    ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.where(features(N, case.width) > -0.5, 65504.0, -65504.0).half()
    extra = case.extra(x, index)
    with torch.no_grad():
        expected = tensors(case.call(theirs.double(), x.double(), index, **of_format(extra, torch.float64)))
        got = tensors(case.call(ours.half(), x, index, **extra))
    for one, other in zip(got, expected, strict=True):
        fits = other.abs() < 65504
        assert fits.float().mean() > 0.5
        assert not one.isnan().any() and one[fits].isfinite().all()
        assert ((one.double() - other)[fits].abs() <= 4e-3 * 65504).all()


@pytest.mark.parametrize("name", CASES)
def test_replace_and_restore(name):
    case = CASES[name]
    index = edges()
    theirs, ours = both(case, case.width)
    model = torch.nn.ModuleDict({"layer": copy.deepcopy(theirs)})
    x = features(N, case.width)
    extra = case.extra(x, index)
    done = nn.replace(model)
    assert done.replaced == ["layer"] and type(model["layer"]) is type(ours)
    assert list(model["layer"].state_dict()) == list(theirs.state_dict())
    expected, tolerance = reference(theirs, case, x, index, **extra)
    assert_close(run(model["layer"], case, x, index, **extra), expected, tolerance)
    assert nn.restore(model) == ["layer"] and type(model["layer"]) is type(theirs)
    assert_close(run(model["layer"], case, x, index, **extra), expected, tolerance)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.graphless and case.kind not in ("HypergraphConv", "LabelPropagation")])
def test_another_flow_is_pygs(name):
    case = CASES[name]
    # Of square graphs alone, which have a reverse.
    if case.call is by_type:
        case = dataclasses.replace(case, call=lambda layer, x, index: layer({"paper": x}, {METADATA[1][0]: index}))
    index = edges()
    theirs, ours = both(with_options(case, flow="target_to_source"), case.width)
    x = features(N, case.width)
    extra = case.extra(x, index)
    expected = run(theirs, case, x, index, **extra)
    with pytest.warns(halfgnn.FallbackWarning, match="flow is target_to_source"):
        assert_close(run(ours, case, x, index, **extra), expected, 1e-6)


def test_the_readme_lists_every_layer():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    section = readme.partition("### Layers")[2].partition("- Aggregators")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert named >= {kind.__name__ for kind in LAYERS}
    # What PyG has besides stands there with its reason.
    assert named >= {name for name in pyg.conv.__all__ if name != "MessagePassing"}
    left = set(re.findall(r"`(\w+)`", section.partition("| not replaced |")[2]))
    assert not left & {kind.__name__ for kind in LAYERS}


def test_every_layer_is_in_the_table_and_is_exported():
    assert {case.kind for case in CASES.values()} == {kind.__name__ for kind in LAYERS}
    exported = {name for name in nn.__all__ if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), Layer)}
    assert {kind.__name__ for kind in LAYERS} == exported


# Options that the table's tests do not reach


def seeded(layer: Any, *arguments: Any, **named: Any) -> Any:
    torch.manual_seed(17)
    return layer(*arguments, **named)


@pytest.mark.parametrize(
    "name, options",
    [("appnp", {"dropout": 0.4}), ("arma", {"dropout": 0.3}), ("fa", {"dropout": 0.3}), ("supergat", {"dropout": 0.3})],
)
def test_dropout_drops_what_pygs_drops(name, options):
    case = with_options(CASES[name], **options)
    theirs, ours = (layer.train() for layer in both(case, case.width))
    x, index = features(N, case.width), edges()
    extra = case.extra(x, index)
    expected, got = (seeded(lambda: case.call(layer, x, index, **extra)) for layer in (theirs, ours))
    assert torch.allclose(got, expected, atol=1e-5)
    assert not torch.allclose(got, case.call(ours.eval(), x, index, **extra), atol=1e-2)


@pytest.mark.parametrize("name", ["transformer", "han"])
def test_dropout_of_attention_leaves_out_weights_at_random(name):
    case = with_options(CASES[name], dropout=0.5)
    _, ours = both(case, case.width)
    x, index = features(N, case.width), edges()
    expected = tensors(case.call(ours, x, index))[0]
    ours.train()
    first, again, other = (
        tensors(seeded(lambda: (torch.manual_seed(seed), case.call(ours, x, index))[1]))[0] for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.allclose(first, other, atol=1e-3)
    assert not torch.allclose(first, expected, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"edge_sample_ratio": 0.6}, {"attention_type": "SD", "is_undirected": True}])
def test_supergat_learns_edges_as_pygs(options):
    case = with_options(CASES["supergat"], **options)
    theirs, ours = (layer.train() for layer in both(case, case.width))
    x, index = features(N, case.width), edges()
    negative = torch.stack([torch.arange(N), torch.arange(N).flip(0)])
    results = []
    for layer in (theirs, ours):
        leaf = x.clone().requires_grad_()
        out = seeded(layer, leaf, index, negative)
        (out.square().mean() + layer.get_attention_loss()).backward()
        results.append([out.detach(), layer.att_y, layer.att_x.detach(), leaf.grad, layer.lin.weight.grad])
    assert_close(results[1], results[0], 1e-5)
    seeded(ours, x, index)
    assert ours.att_y.sum() < len(ours.att_y)


@pytest.mark.parametrize("kind", ["SGConv", "SSGConv", "APPNP", "GCN2Conv", "FAConv", "EGConv", "DNAConv"])
def test_what_is_cached_is_what_pygs_caches(kind):
    name = next(name for name, case in CASES.items() if case.kind == kind)
    case = with_options(CASES[name], cached=True)
    theirs, ours = both(case, case.width)
    x, index, other = features(N, case.width), edges(), edges().flip(0)
    extra = case.extra(x, index)
    model = torch.nn.ModuleDict({"layer": copy.deepcopy(theirs)})
    expected = case.call(theirs, x, index, **extra)
    assert torch.allclose(case.call(theirs, x, other, **extra), expected)
    for _ in range(2):
        assert torch.allclose(case.call(ours, x, index, **extra), expected, atol=1e-5)
    assert torch.allclose(case.call(ours, x, other, **extra), expected, atol=1e-5)
    # What either keeps goes over with replace and restore.
    case.call(model["layer"], x, index, **extra)
    nn.replace(model)
    assert torch.allclose(case.call(model["layer"], x, other, **extra), expected, atol=1e-5)
    nn.restore(model)
    assert torch.allclose(case.call(model["layer"], x, other, **extra), expected, atol=1e-5)
    ours.reset_parameters()
    ours.load_state_dict(theirs.state_dict())
    assert not torch.allclose(case.call(ours, x, other, **extra), expected, atol=1e-3)


def test_a_gps_layer_runs_on_the_layer_inside():
    torch.manual_seed(4)
    theirs = pyg.GPSConv(8, pyg.TransformerConv(8, 4, heads=2), heads=2).eval()
    ours = copy.deepcopy(theirs)
    assert nn.replace(ours).replaced == ["conv"]
    x, index, batch = features(N, 8), edges(), torch.arange(N) // 20
    case = Case("GPSConv", plain(), call=lambda layer, x, index: layer(x, index, batch=batch))
    expected = run(theirs, case, x, index)
    for adjacency in (index, Graph(index, N)):
        assert_close(run(ours, case, x, adjacency), expected, 2e-5)


def test_a_hetero_layer_runs_on_the_layers_inside():
    torch.manual_seed(4)
    convs = {METADATA[1][0]: pyg.GraphConv(8, OUT), METADATA[1][1]: pyg.SAGEConv((8, 8), OUT), METADATA[1][2]: pyg.TransformerConv(8, OUT)}
    theirs = pyg.HeteroConv(convs).eval()
    ours = copy.deepcopy(theirs)
    assert len(nn.replace(ours).replaced) == 3
    case = Case("HeteroConv", plain(), call=by_type)
    for adjacency in (edges(), Graph(edges(), N)):
        assert_close(run(ours, case, features(N, 8), adjacency), run(theirs, case, features(N, 8), edges()), 1e-5)


@pytest.mark.parametrize(
    "make, names",
    [
        (lambda: pyg.DirGNNConv(pyg.GCNConv(8, OUT)), ["conv_in", "conv_out"]),
        (lambda: pyg.AntiSymmetricConv(8, num_iters=2), ["phi"]),
    ],
    ids=["DirGNNConv", "AntiSymmetricConv"],
)
def test_layers_of_layers_run_on_those_inside(make, names):
    torch.manual_seed(4)
    theirs = make().eval()
    ours = copy.deepcopy(theirs)
    assert nn.replace(ours).replaced == names
    case = Case("", plain())
    assert_close(run(ours, case, features(N, 8), edges()), run(theirs, case, features(N, 8), edges()), 1e-5)


def test_correct_and_smooth_runs_on_the_layers_inside():
    theirs = pyg.CorrectAndSmooth(3, 0.7, 2, 0.6, autoscale=False)
    ours = copy.deepcopy(theirs)
    assert nn.replace(ours).replaced == ["prop1", "prop2"]
    index, mask = edges(), torch.arange(N) % 3 == 0
    soft, true = features(N, 4).softmax(-1), torch.arange(N)[mask] % 4
    expected = theirs.smooth(theirs.correct(soft.clone(), true, mask, index), true, mask, index)
    assert torch.allclose(ours.smooth(ours.correct(soft.clone(), true, mask, index), true, mask, index), expected, atol=1e-5)
    classes = torch.arange(N) % 4
    assert torch.allclose(ours.prop1(classes, index, mask), theirs.prop1(classes, index, mask), atol=1e-6)


def test_a_chebyshev_filter_takes_eigenvalues_of_graphs():
    x, batch = features(N, 8), torch.arange(N) // 20
    index = edges()
    index = index[:, batch[index[0]] == batch[index[1]]]
    theirs, ours = both(CASES["cheb"], 8)
    largest = torch.tensor([1.7, 1.9])
    for given in ({"lambda_max": 1.8}, {"lambda_max": torch.tensor(1.8)}, {"lambda_max": largest, "batch": batch}):
        for _ in range(2):
            assert torch.allclose(ours(x, index, **given), theirs(x, index, **given), atol=1e-5)


#: Layers whose results at a vertex of very many edges fit half.
MANY = ["graph mean", "wl", "lg", "sg", "ssg", "appnp", "arma", "cheb", "cluster lambda", "mf", "eg", "feast", "general mean"]
MANY += ["general additive ends", "agnn", "transformer", "supergat", "hypergraph", "rgcn", "fast rgcn", "rgat", "han", "hgt", "gatv2", "fa", "dna", "pdn", "gated mean"]
MANY += ["gine mean", "gen", "gen power", "resgated edges", "cg edges", "film", "heat mean", "edge", "edge product mean", "pointnet positions", "ppf positions"]
MANY += ["point transformer", "nn mean", "spline"]


@pytest.mark.parametrize("name", MANY)
def test_a_vertex_of_70000_edges_in_half(name):
    case = CASES[name]
    many = torch.stack([torch.arange(70_000) % (N - 3), torch.full((70_000,), 2)])
    index = torch.cat([edges(), many], dim=1)
    theirs, ours = both(case, case.width)
    x = features(N, case.width).half()
    extra = of_format(case.extra(x.float(), index), torch.float16)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(parameter.half())
        ours.load_state_dict(theirs.state_dict(), strict=True)
        expected = tensors(case.call(theirs.double(), x.double(), index, **of_format(extra, torch.float64)))
        got = tensors(case.call(ours.half(), x, index, **extra))
    assert_close(got, expected, 8e-3)


@pytest.mark.parametrize("name, largest", [("agnn", 65504.0), ("sage min", 9000.0)])
def test_lengths_of_rows_in_half_are_floats(name, largest):
    theirs, ours = both(CASES[name], 8)
    if name != "agnn":
        # Rows of zeros come out as zeros: in half the least length that PyG divides by is 0.
        with torch.no_grad():
            theirs.lin_l.bias.zero_()
        ours.load_state_dict(theirs.state_dict())
    x = features(N, 8).half()
    # A length beyond half's largest number, and vertices of length 0.
    x[2], x[-6:] = largest * x[2].sign(), 0.0
    expected = theirs.double()(x.double(), edges())
    assert_close([ours.half()(x, edges())], [expected], 4e-3)


def test_self_loops_of_a_sparse_matrix_are_replaced():
    index = torch.cat([distinct(), torch.tensor([[3, 4], [3, 4]])], dim=1)
    adjacency = to_torch_csr_tensor(index.flip(0), size=(N, N))
    x = features(N, 8)
    for name in ("cluster", "cluster lambda", "agnn"):
        theirs, ours = both(CASES[name], 8)
        assert torch.allclose(ours(x, adjacency), theirs(x, index), atol=1e-5)


def test_types_of_edges_are_checked():
    x, index = features(N, 8), edges()
    _, ours = both(CASES["rgcn"], 8)
    with pytest.raises(ValueError, match="edge_type: 7 is no type: types are 0 to 3"):
        ours(x, index, torch.full((index.shape[1],), 7))
    with pytest.raises(ValueError, match=f"edge_type: should be {index.shape[1]}, one for each edge"):
        ours(x, index, torch.zeros(3, dtype=torch.long))
    types = torch.zeros(index.shape[1], dtype=torch.long)
    first = ours(x, index, types)
    types[:40] = 2
    assert not torch.allclose(ours(x, index, types), first, atol=1e-3)


def test_ids_of_vertices_choose_rows_of_weights():
    theirs, ours = both(CASES["rgcn ids"], 8)
    index = edges()
    types = torch.arange(index.shape[1]) % TYPES
    for ids in (torch.arange(N), torch.arange(N).flip(0), torch.arange(N) // 2):
        assert torch.allclose(ours(ids, index, types), theirs(ids, index, types), atol=1e-5)


FALLBACKS = [
    ("transformer", {"edge_dim": 3}, "edges have features"),
    ("rgat", {"edge_dim": 3}, "edges have features"),
    ("general", {"in_edge_channels": 3}, "edges have features"),
    ("gmm", {"separate_gaussians": True}, "separate_gaussians"),
    ("graph", {"aggr": "median"}, "the aggregator is median"),
    ("simple", {"aggr": ["mean", "median"]}, "the aggregator is"),
    ("sage", {"aggr": "var", "aggr_kwargs": {"semi_grad": True}}, "semi_grad"),
    ("pna", {"pre_layers": 2}, "pre_layers"),
    ("pna", {"edge_dim": 3}, "edges have features"),
    ("general additive", {"aggr": "mean"}, "the aggregator is mean, of attention"),
]


@pytest.mark.parametrize("name, options, words", FALLBACKS)
def test_options_without_an_operator_are_left_and_fall_back(name, options, words):
    case = with_options(CASES[name], **options)
    theirs, ours = both(case, case.width)
    done = nn.replace(torch.nn.ModuleDict({"a": theirs, "b": ours}))
    assert done.replaced == [] and all(words in reason for reason in done.left.values())
    x, index = features(N, case.width), edges()
    extra = case.extra(x, index)
    if any(key in options for key in ("edge_dim", "in_edge_channels")):
        extra["edge_attr"] = edge_features(index, 3)
    with pytest.warns(halfgnn.FallbackWarning, match=words.partition("(")[0]):
        got = case.call(ours, x, index, **extra)
    assert torch.allclose(got, case.call(theirs, x, index, **extra), atol=1e-6)


@pytest.mark.parametrize("name", ["transformer", "fa", "rgat"])
def test_attention_weights_that_are_returned_are_pygs(name):
    case = CASES[name]
    theirs, ours = both(case, case.width)
    x, index = features(N, case.width), edges()
    extra = case.extra(x, index)
    expected = case.call(theirs, x, index, return_attention_weights=True, **extra)
    with pytest.warns(halfgnn.FallbackWarning, match="attention weights are returned"):
        got = case.call(ours, x, index, return_attention_weights=True, **extra)
    assert torch.equal(got[1][1], expected[1][1])


@pytest.mark.parametrize("kind, method", [("ChebConv", "__norm__"), ("SuperGATConv", "get_attention"), ("GeneralConv", "message_basic")])
def test_a_method_that_a_formula_replaces_is_used_where_it_is_the_users(kind, method):
    name = next(name for name, case in CASES.items() if case.kind == kind)
    base = getattr(nn, kind)

    def own(self: Any, *arguments: Any, **named: Any) -> Any:
        return getattr(base, method)(self, *arguments, **named)

    mine = type(f"Mine{kind}", (base,), {method: own, "__module__": __name__})
    arguments, options = CASES[name].make(8)
    with pytest.warns(halfgnn.FallbackWarning, match=rf"its {method}\(\) is the user's own"):
        mine(*arguments, **options).eval()(features(N, 8), edges())


#: Layers with arrays of edges, which a graph that is prepared has in a trace.
COMPILED_OF_GRAPHS = ["transformer", "agnn", "general", "general products", "fa", "feast", "gmm", "dna", "graph var", "appnp", "cluster"]


@pytest.mark.parametrize("name", COMPILED_OF_GRAPHS)
def test_a_compiled_layer_takes_a_prepared_graph(name):
    case = CASES[name]
    theirs, ours = both(case, case.width)
    x, index = features(N, case.width), edges()
    extra = case.extra(x, index)
    expected = run(theirs, case, x, index, **extra)
    torch._dynamo.reset()
    call = torch.compile(lambda layer, x, index, **extra: case.call(layer, x, index, **extra), backend="eager", fullgraph=True)
    assert_close(run(ours, dataclasses.replace(case, call=call), x, Graph(index, N).prepare(), **extra), expected, 1e-5)


COMPILED = ["graph", "sg", "tag", "arma", "appnp", "lg", "simple mean", "mixhop", "gcn2", "wl", "cluster", "signed"]


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_layer_has_no_graph_break(name):
    case = CASES[name]
    theirs, ours = both(case, case.width)
    x, index = features(N, case.width), edges()
    extra = case.extra(x, index)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, index, **extra: case.call(ours, x, index, **extra), backend="eager", fullgraph=True)
    expected = tensors(case.call(theirs, x, index, **extra))
    assert_close([out.detach() for out in tensors(compiled(x, index, **extra))], [out.detach() for out in expected], 1e-5)
    if case.weighted:
        weight = 0.1 + torch.rand(index.shape[1])
        expected = tensors(case.call(theirs, x, index, edge_weight=weight, **extra))
        got = tensors(compiled(x, index, edge_weight=weight, **extra))
        assert_close([out.detach() for out in got], [out.detach() for out in expected], 1e-5)
