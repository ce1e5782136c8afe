"""Messages in chunks: what is computed again in the backward pass, what is stored, and what is one chunk."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from test_nn_table import CASES, M, N, OUT, assert_close, both, edges, features, fresh, mlp, reference, run  # noqa: E402, F401

from halfgnn import Graph, nn  # noqa: E402
from halfgnn.nn import _messages, _pairwise, _reductions  # noqa: E402
from halfgnn.nn._layer import LAYERS  # noqa: E402
from halfgnn.nn._pairwise import _Pairwise  # noqa: E402

#: Cases of layers that have messages and are computed in chunks: no norm over the rows of edges.
CHUNKED = [
    name
    for name, case in CASES.items()
    if issubclass(getattr(nn, case.kind), _Pairwise) and name not in ("point gnn norm", "edge norm", "gen", "gen max", "gen several", "edge product", "edge product mean")
]


@pytest.fixture
def chunks(monkeypatch):
    """Chunks of few edges; the edges that each one had."""
    seen: list[int] = []
    found = _messages._Message.of_chunk

    def of_chunk(self: Any, graph: Any, chunk: Any, operands: Any) -> Any:
        seen.append(len(chunk.source.index))
        return found(self, graph, chunk, operands)

    monkeypatch.setattr(_messages, "_limit", lambda graph, width, sources: 16)
    monkeypatch.setattr(_messages._Message, "of_chunk", of_chunk)
    return seen


@pytest.mark.parametrize("name", CHUNKED)
def test_chunks_give_what_pygs_layers_give(name, chunks):
    case = CASES[name]
    index = edges()
    theirs, ours = both(case, case.width)
    x = features(N, case.width)
    extra = case.extra(x, index)
    expected, tolerance = reference(theirs, case, x, index, **extra)
    assert_close(run(ours, case, x, index, **extra), expected, tolerance)
    assert len(chunks) > 3
    if case.bipartite and not case.graphless:
        index = edges(N, M)
        extra = case.extra(x, index)
        both_ends = x, features(M, case.width, 6)
        expected, tolerance = reference(theirs, case, both_ends, index, **extra)
        assert_close(run(ours, case, both_ends, index, **extra), expected, tolerance)


def test_a_chunk_has_whole_destinations(chunks):
    graph = Graph(edges(), N)
    found = _messages._chunks(graph, 16)
    assert found is _messages._chunks(graph, 16)
    degrees = graph.in_degrees()
    assert [chunk.rows[0] for chunk in found] == [0, *(chunk.rows[1] for chunk in found[:-1])] and found[-1].rows[1] == N
    for chunk in found:
        begin, end = chunk.rows
        count = len(chunk.source.index)
        assert count == int(degrees[begin:end].sum()) and (count <= 16 or end == begin + 1)
    assert max(len(chunk.source.index) for chunk in found) >= 90


def stored(layer: Any, case: Any, x: Any, index: Any, **extra: Any) -> int:
    """The most rows of a tensor of floats that autograd stores, inputs left out."""
    given = {tensor.data_ptr() for tensor in [x, *extra.values()] if torch.is_tensor(tensor)}
    largest = 0

    def pack(tensor: Any) -> Any:
        nonlocal largest
        if tensor.is_floating_point() and tensor.ndim and tensor.data_ptr() not in given:
            largest = max(largest, tensor.shape[0])
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        case.call(layer, x, index, **extra)
    return largest


@pytest.mark.parametrize("name", ["resgated edges", "cg edges", "gine edges", "gen edges", "film", "edge", "pointnet", "ppf", "point transformer networks", "nn", "nn max"])
def test_nothing_is_stored_for_an_edge(name, chunks):
    case = CASES[name]
    index = torch.cat([edges()] * 4, dim=1)
    theirs, ours = both(case, case.width)
    x = features(N, case.width).requires_grad_()
    extra = case.extra(x, index)
    assert stored(ours, case, x, index, **extra) <= 9 * N < index.shape[1] <= stored(theirs, case, x, index, **extra)


@pytest.mark.parametrize("name", ["cg edges", "edge sum", "point transformer", "nn"])
def test_gradients_of_gradients(name, chunks):
    case = CASES[name]
    index = edges()
    theirs, ours = both(case, case.width)
    extra = case.extra(features(N, case.width), index)
    found = []
    for layer in (theirs, ours):
        layer.zero_grad()
        leaves = [features(N, case.width).requires_grad_(), *(value.clone().requires_grad_() for value in extra.values())]
        out = case.call(layer, leaves[0], index, **dict(zip(extra, leaves[1:])))
        learned = [*leaves, *layer.parameters()]
        # Of parameters as well: an operand that is made of one must not count for it twice.
        grads = torch.autograd.grad(out.square().mean(), learned, create_graph=True)
        sum(grad.square().sum() for grad in grads).backward()
        found.append([*(grad.detach() for grad in grads), *(leaf.grad for leaf in learned)])
    assert_close(found[1], found[0], 1e-5)


def test_a_network_with_a_norm_over_edges_is_called_once(chunks):
    theirs = pyg.EdgeConv(pyg.MLP([16, 9, OUT]), aggr="mean").train()
    ours = copy.deepcopy(theirs)
    nn.replace(torch.nn.ModuleList([ours]))
    case = dataclasses.replace(CASES["edge"], call=lambda layer, x, index: layer(x, index))
    x, index = features(N, 8), edges()
    assert_close(run(ours, case, x, index), run(theirs, case, x, index), 1e-5)
    assert chunks == [index.shape[1]]
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert torch.allclose(one.float(), other.float(), atol=1e-5)
    # In an evaluation the norm is a map of each row.
    assert_close(run(ours.eval(), case, x, index), run(theirs.eval(), case, x, index), 1e-5)
    assert len(chunks) > 3


def hooked() -> Any:
    network = mlp(16)
    network[0].register_forward_hook(lambda *arguments: None)
    return network


@pytest.mark.parametrize(
    "network, by_rows",
    [
        (torch.relu, True),
        (None, True),
        (mlp(8), True),
        (pyg.MLP([8, 8, 8], norm=None), True),
        (pyg.MLP([8, 8, 8], norm=None, dropout=0.5), False),
        (pyg.MLP([8, 8, 8]), False),
        (torch.nn.Sequential(mlp(8), torch.nn.Dropout(0.5)), False),
        (torch.nn.Sequential(mlp(8), torch.nn.Dropout(0.0)), True),
        (torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)), True),
        (pyg.LayerNorm(8), False),
        (hooked(), False),
        (lambda rows: rows - rows.mean(0), False),
    ],
)
def test_what_is_known_to_compute_each_row_by_itself(network, by_rows):
    assert _messages.is_by_rows(network) == by_rows


def test_dropout_in_a_network_drops_once(chunks):
    torch.manual_seed(2)
    layer = nn.EdgeConv(torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Dropout(0.5)), aggr="add")
    out = layer(features(N, 8), edges())
    assert chunks == [edges().shape[1]]
    out.sum().backward()
    # The sum is linear in the parameters, so that they and their gradients give it where both passes dropped the same.
    product = sum((parameter * parameter.grad).sum() for parameter in layer.parameters())
    assert torch.isclose(product, out.sum(), rtol=1e-4)


def test_autocast_is_the_same_in_both_passes(chunks, monkeypatch):
    formats = []

    def reduced_by(module: Any, messages: Any, incidence: Any) -> Any:
        formats.append(messages.dtype)
        return _reductions.reduced_by(module, messages, incidence)

    monkeypatch.setattr(_pairwise, "reduced_by", reduced_by)
    theirs, ours = both(CASES["pointnet"], 8)
    for layer in (theirs, ours):
        x = features(N, 8).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            out = layer(x, 0.3 * features(N, 3, 11), edges())
        out.float().sum().backward()
    assert len(formats) > 6 and set(formats) == {torch.bfloat16}
    assert ours.local_nn[2].weight.grad.dtype == torch.float32


def test_edges_without_a_row_of_features_are_refused():
    x, index = features(N, 8), edges()
    for name in ("cg edges", "resgated edges", "gine edges", "gen edges", "nn", "heat", "spline"):
        case = CASES[name]
        _, ours = both(case, 8)
        extra = case.extra(x, index)
        with pytest.raises(ValueError, match=f"edge_attr has 3 rows, and the graph has {index.shape[1]} edges"):
            case.call(ours, x, index, **{**extra, "edge_attr": extra["edge_attr"][:3]})


def test_positions_far_from_the_origin_keep_their_differences():
    theirs, ours = both(CASES["edge sum"], 3)
    with torch.no_grad():
        # Of the difference alone, which is exact.
        theirs.nn.lins[0].weight[:, :3] = 0.0
    ours.load_state_dict(theirs.state_dict())
    x = features(N, 3) + 4e5
    assert_close([ours(x, edges())], [theirs(x, edges())], 1e-5)


def test_every_layer_with_messages_is_tested_in_chunks():
    kinds = {kind.__name__ for kind in LAYERS.values() if issubclass(kind, _Pairwise)}
    assert {CASES[name].kind for name in CHUNKED} == kinds
