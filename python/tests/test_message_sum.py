"""Sums of messages of both ends and of the edge, against torch's operators, and PyG's layers that are made of them."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import halfgnn
from halfgnn.nn import _messages

SOURCES, DESTINATIONS, EDGES = 7, 5, 23

FUNCTIONS: dict[str, Any] = {
    "identity": lambda x: x,
    "relu": torch.relu,
    "leaky_relu": torch.nn.functional.leaky_relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": torch.nn.functional.softplus,
}


def edge_index() -> Tensor:
    """Edges in no order, one of them twice, and a destination without any."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(SOURCES, (EDGES,), generator=generator)
    destination = torch.randint(DESTINATIONS - 1, (EDGES,), generator=generator)
    source[1], destination[1] = source[0], destination[0]
    return torch.stack([source, destination])


def graph() -> halfgnn.Graph:
    return halfgnn.Graph(edge_index(), size=(SOURCES, DESTINATIONS))


def expected(a: Any, b: Any, acts: Any, reduce: str) -> Tensor:
    source, destination = edge_index()

    def total(terms: Any) -> Any:
        rows = [x if kind == "e" else x[{"d": destination, "s": source}[kind]] for x, kind in zip(terms, "dse") if x is not None]
        return sum(rows[1:], rows[0]) if rows else None

    message = FUNCTIONS[acts[0]](total(a))
    if total(b) is not None:
        message = message * FUNCTIONS[acts[1]](total(b))
    y = message.new_zeros((DESTINATIONS, message.shape[1])).index_add(0, destination, message)
    if reduce == "mean":
        y = y / torch.bincount(destination, minlength=DESTINATIONS).clamp(min=1)[:, None]
    return y


def terms(given: tuple[bool, ...], width: int, dtype: torch.dtype = torch.float32) -> list[Tensor | None]:
    counts = (DESTINATIONS, SOURCES, EDGES) * 2
    return [torch.randn(count, width, dtype=dtype) if is_given else None for count, is_given in zip(counts, given)]


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("acts", [("relu", "identity"), ("sigmoid", "softplus"), ("tanh", "leaky_relu")])
@pytest.mark.parametrize(
    "given", [(0, 1, 1, 0, 0, 0), (1, 1, 0, 0, 1, 0), (1, 0, 0, 0, 0, 1), (1, 1, 1, 1, 1, 1)], ids=["gine", "gated", "two", "all"]
)
def test_sums_and_gradients(given: tuple[int, ...], acts: tuple[str, str], reduce: str) -> None:
    torch.manual_seed(0)
    for width in (1, 5, 8):
        operands = terms(tuple(map(bool, given)), width)
        mine = [None if x is None else x.clone().requires_grad_() for x in operands]
        theirs = [None if x is None else x.clone().requires_grad_() for x in operands]
        y = halfgnn.message_sum(graph(), tuple(mine[:3]), tuple(mine[3:]), acts=acts, reduce=reduce)
        other = expected(theirs[:3], theirs[3:], acts, reduce)
        torch.testing.assert_close(y, other, rtol=1e-5, atol=1e-5)
        dy = torch.randn_like(y)
        y.backward(dy)
        other.backward(dy)
        for x, z in zip(mine, theirs):
            if x is not None and z is not None:
                torch.testing.assert_close(x.grad, z.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_means_of_large_numbers_stay_in_range(dtype: torch.dtype) -> None:
    x = torch.full((SOURCES, 4), 60_000.0, dtype=dtype)
    y = halfgnn.message_sum(graph(), (None, x, None), reduce="mean")
    assert y.dtype == dtype
    torch.testing.assert_close(y[: DESTINATIONS - 1].float(), x[: DESTINATIONS - 1].float())
    assert (y[DESTINATIONS - 1] == 0).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": (None, None, None)}, "a has no matrix"),
        ({"a": (torch.zeros(4, 2), None, None)}, r"the matrix of destinations should be \(5, 2\), is \(4, 2\)"),
        ({"b": (None, None, torch.zeros(EDGES, 3))}, r"the matrix of edges should be \(23, 2\), is \(23, 3\)"),
        ({"acts": ("relu", "gelu")}, "acts should be two of identity, relu, leaky_relu, sigmoid, tanh, softplus, are relu, gelu"),
        ({"reduce": "max"}, "reduce should be sum or mean, is max"),
        ({"graph": graph().with_weight(torch.ones(EDGES))}, "the graph has weights"),
    ],
)
def test_misfits_are_refused(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"graph": graph(), "a": (None, torch.zeros(SOURCES, 2), None), **change}
    with pytest.raises(ValueError, match=words):
        halfgnn.message_sum(**given)


def layers() -> Any:
    torch.manual_seed(0)
    mlp = torch.nn.Linear(6, 4)
    yield "gine", pyg.GINEConv(mlp, edge_dim=3), True
    yield "gine mean", pyg.GINEConv(mlp, edge_dim=3, aggr="mean"), True
    for edge_dim, act in itertools.product((None, 3), (torch.nn.Sigmoid(), torch.nn.Tanh())):
        yield f"gated {edge_dim} {act}", pyg.ResGatedGraphConv(6, 4, act=act, edge_dim=edge_dim), edge_dim is not None
    yield "cg", pyg.CGConv(6), False
    yield "cg edges", pyg.CGConv(6, dim=3), True


@pytest.mark.parametrize(("layer", "has_edges"), [pytest.param(*case[1:], id=case[0]) for case in layers()])
def test_layers_are_pygs(layer: Any, has_edges: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operator, with second derivatives."""
    monkeypatch.setattr(_messages, "FUSED", {"cpu": _messages.FusedFrom()})
    calls = []
    fused = _messages._Fused.forward
    monkeypatch.setattr(_messages._Fused, "forward", staticmethod(lambda *operands: (calls.append(1), fused(*operands))[1]))
    torch.manual_seed(1)
    index = torch.randint(9, (2, 40))
    results = []
    model = torch.nn.ModuleList([copy.deepcopy(layer)])
    halfgnn.nn.replace(model)
    for model in (layer, model[0]):
        torch.manual_seed(2)
        x = torch.randn(9, 6).requires_grad_()
        edge_attr = torch.randn(40, 3).requires_grad_()
        others = (edge_attr,) if has_edges else ()
        y = model(x, index, *others)
        (dx,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        gradients = torch.autograd.grad(dx.pow(2).sum(), [x, *others, *model.parameters()], allow_unused=True)
        first = torch.autograd.grad(model(x, index, *others).square().sum(), [x, *others, *model.parameters()], allow_unused=True)
        results.append([y, dx, *gradients, *first])
    assert calls
    for mine, theirs in zip(results[1], results[0]):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gine", "gated"])
def test_layers_learn_under_autocast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rows of vertices are float and those of edges are not."""
    monkeypatch.setattr(_messages, "FUSED", {"cpu": _messages.FusedFrom()})
    torch.manual_seed(4)
    layer = pyg.GINEConv(torch.nn.Linear(6, 4), edge_dim=3) if name == "gine" else pyg.ResGatedGraphConv(6, 4, edge_dim=3)
    model = torch.nn.ModuleList([copy.deepcopy(layer)])
    halfgnn.nn.replace(model)
    x, index, edge_attr = torch.randn(9, 6), torch.randint(9, (2, 40)), torch.randn(40, 3)
    gradients = []
    for of, enabled in ((layer, False), (model[0], True)):
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y = of(leaf, index, edge_attr)
        y.float().square().sum().backward()
        gradients.append([leaf.grad, *(p.grad for p in of.parameters())])
    for mine, theirs in zip(gradients[1], gradients[0]):
        assert mine is not None and theirs is not None
        assert (mine - theirs).abs().max() <= 0.06 * theirs.abs().max()


def test_formats_are_not_mixed() -> None:
    """Of operands that the dispatcher gets as they are."""
    a, sizes = graph()._a
    x = torch.zeros(SOURCES, 2)
    edges = torch.zeros(EDGES, 2, dtype=torch.float16)
    operands = (a, sizes, None, None, None, None, None, 1, 0, None, x, edges, None, None, None)
    with pytest.raises(ValueError, match="a_of_sources is torch.float32 and a_of_edges is torch.float16"):
        torch.ops.halfgnn.message_sums(*operands)
    q = torch.zeros(DESTINATIONS, 2, dtype=torch.float16)
    with pytest.raises(ValueError, match="q is torch.float16 and k is torch.float32"):
        torch.ops.halfgnn.dot_attention(a, sizes, None, None, q, x, x, 1, 1.0, 0.0, None)
