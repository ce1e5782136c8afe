"""Reductions of messages of both ends and of the edge, against torch's operators."""

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

from test_message_sum import DESTINATIONS, EDGES, FUNCTIONS, SOURCES, edge_index, graph, terms

REDUCTIONS = ["max", "min", "softmax", "std"]


def expected(a: Any, act: str, reduce: str) -> Tensor:
    source, destination = edge_index()
    rows = [x if kind == "e" else x[{"d": destination, "s": source}[kind]] for x, kind in zip(a, "dse") if x is not None]
    messages = FUNCTIONS[act](sum(rows[1:], rows[0]))
    parts = []
    for row in range(DESTINATIONS):
        of = messages[destination == row]
        if len(of) == 0:
            parts.append(messages.new_zeros(messages.shape[1]))
        elif reduce == "softmax":
            parts.append((of * of.softmax(0)).sum(0))
        elif reduce == "std":
            variance = of.square().mean(0) - of.mean(0).square()
            root = variance.clamp(min=1e-5).sqrt()
            parts.append(root.masked_fill(variance <= 1e-5, 0.0))
        else:
            parts.append(of.amax(0) if reduce == "max" else of.amin(0))
    return torch.stack(parts)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("act", ["identity", "relu", "sigmoid"])
@pytest.mark.parametrize("given", [(0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1)], ids=["copy", "pair", "edges", "all"])
def test_reductions_and_gradients(given: tuple[int, ...], act: str, reduce: str) -> None:
    torch.manual_seed(0)
    for width in (1, 5, 8):
        operands = terms((*map(bool, given), False, False, False), width)[:3]
        mine = [None if x is None else x.clone().requires_grad_() for x in operands]
        theirs = [None if x is None else x.clone().requires_grad_() for x in operands]
        y = halfgnn.message_reduce(graph(), tuple(mine), act=act, reduce=reduce)
        other = expected(theirs, act, reduce)
        torch.testing.assert_close(y, other, rtol=1e-5, atol=1e-5)
        dy = torch.randn_like(y)
        y.backward(dy)
        other.backward(dy)
        for x, z in zip(mine, theirs):
            if x is not None and z is not None:
                torch.testing.assert_close(x.grad, z.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_numbers_stay_in_range(dtype: torch.dtype, reduce: str) -> None:
    x = torch.full((SOURCES, 4), 60_000.0, dtype=dtype)
    y = halfgnn.message_reduce(graph(), (None, x, None), reduce=reduce)
    assert y.dtype == dtype
    value = 0.0 if reduce == "std" else float(x[0, 0])
    torch.testing.assert_close(y[: DESTINATIONS - 1].float(), torch.full((DESTINATIONS - 1, 4), value))


def test_gradients_of_gradients_are_those_of_torch() -> None:
    torch.manual_seed(0)
    for reduce, width in itertools.product(REDUCTIONS, (3,)):
        rows = [torch.randn(count, width) for count in (DESTINATIONS, SOURCES, EDGES)]
        found = []
        for run in (
            lambda given, reduce=reduce: _messages.fused(graph(), reduce, ("sigmoid", "identity"), given),
            lambda given, reduce=reduce: expected(given, "sigmoid", reduce),
        ):
            given = [x.clone().requires_grad_() for x in rows]
            first = torch.autograd.grad(run(tuple(given)).square().sum(), given, create_graph=True)
            sum(x.square().sum() for x in first).backward()
            found.append([x.grad for x in given])
        for mine, theirs in zip(*found):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_a_second_derivative_is_refused_in_one_line() -> None:
    x = torch.randn(SOURCES, 3, requires_grad=True)
    y = halfgnn.message_reduce(graph(), (None, x, None))
    with pytest.raises(RuntimeError, match="has one derivative; leave create_graph out"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_what_does_not_fit_is_refused() -> None:
    x = torch.zeros(SOURCES, 3)
    with pytest.raises(ValueError, match="message_reduce: the matrix of destinations should be"):
        halfgnn.message_reduce(graph(), (x, x, None))
    with pytest.raises(ValueError, match="reduce should be one of max, min, softmax, std, is median"):
        halfgnn.message_reduce(graph(), (None, x, None), reduce="median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="act should be one of identity"):
        halfgnn.message_reduce(graph(), (None, x, None), act="swish")
    with pytest.raises(ValueError, match="a has no matrix"):
        halfgnn.message_reduce(graph(), (None, None, None))


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_the_gradient_of_a_maximum_of_rows_is_shared(reduce: str) -> None:
    index = torch.tensor([[0, 1, 0, 2], [0, 0, 1, 1]])
    x = torch.tensor([[1.0], [1.0], [1.0]], requires_grad=True)
    rows = x if reduce == "max" else -x
    y = halfgnn.spmm(halfgnn.Graph(index, size=(3, 2)), rows, reduce="max")
    y.sum().backward()
    sign = 1.0 if reduce == "max" else -1.0
    assert x.grad is not None
    torch.testing.assert_close(x.grad, sign * torch.tensor([[1.0], [0.5], [0.5]]))


@pytest.mark.parametrize("aggr", ["softmax", "max", "std", "mean"])
@pytest.mark.parametrize("edges", [False, True])
def test_generalized_convolutions_are_pygs(aggr: str, edges: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_messages.FUSED, "cpu", _messages.FusedFrom())
    monkeypatch.setattr(_messages, "OTHERS", ("cpu", "cuda"))
    torch.manual_seed(0)
    theirs = pyg.GENConv(6, 4, aggr=aggr, edge_dim=3 if edges else None)
    holder = torch.nn.ModuleList([copy.deepcopy(theirs)])
    halfgnn.nn.replace(holder)
    mine = holder[0]
    assert isinstance(mine, halfgnn.nn.GENConv)
    index = torch.randint(9, (2, 40))
    attr = torch.randn(40, 3) if edges else None
    found = []
    for model in (mine, theirs):
        x = torch.linspace(-1, 1, 54).view(9, 6).sin().requires_grad_()
        y = model(x, index, attr)
        y.square().sum().backward()
        found.append((y.detach(), x.grad))
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
