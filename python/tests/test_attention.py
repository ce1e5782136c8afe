"""Attention by dot products against float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import halfgnn  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
FORMATS = [torch.float16, torch.bfloat16, torch.float32]


def reference(edge_index, q, k, v, scale, sizes):
    """In float64, by torch's own operators; heads are a dimension of the operands."""
    source, destination = edge_index
    scores = scale * (q[destination] * k[source]).sum(-1)
    largest = torch.full((sizes, q.shape[1]), -torch.inf, dtype=q.dtype).index_reduce(0, destination, scores, "amax")
    weights = (scores - largest[destination]).exp()
    sums = torch.zeros(sizes, q.shape[1], dtype=q.dtype).index_add(0, destination, weights)
    weights = weights / sums[destination]
    return torch.zeros_like(q).index_add(0, destination, weights[..., None] * v[source])


def case(heads, width, dtype, device, sources=37, destinations=29, edges=300):
    generator = torch.Generator().manual_seed(7)
    edge_index = torch.stack([
        torch.randint(sources, (edges,), generator=generator),
        torch.randint(destinations - 2, (edges,), generator=generator),
    ])
    shapes = [(destinations, heads, width), (sources, heads, width), (sources, heads, width), (destinations, heads, width)]
    q, k, v, dy = (torch.randn(shape, generator=generator).to(dtype).to(device) for shape in shapes)
    graph = halfgnn.Graph(edge_index.to(device), size=(sources, destinations))
    return edge_index, graph, q, k, v, dy


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("heads", "width"), [(1, 8), (1, 5), (4, 16), (3, 7), (8, 64), (1, 256), (2, 600)])
def test_output_and_gradients_follow_float64(device, dtype, heads, width):
    edge_index, graph, q, k, v, dy = case(heads, width, dtype, device)
    wide = [x.detach().cpu().double().requires_grad_() for x in (q, k, v)]
    expected = reference(edge_index, *wide, width**-0.5, len(q))
    gradients = torch.autograd.grad(expected, wide, dy.cpu().double())
    operands = [x.requires_grad_() for x in (q, k, v)]
    y = halfgnn.attention(graph, *operands)
    assert y.shape == q.shape
    assert y.dtype == dtype
    # Destinations without edges.
    assert (y[-2:] == 0).all()
    found = torch.autograd.grad(y, operands, dy)
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5}[dtype]
    for what, a, b in zip("yqkv", (y, *found), (expected, *gradients), strict=True):
        assert a.dtype == dtype, what
        error = (a.detach().cpu().double() - b.detach()).abs().max() / b.detach().abs().max()
        assert error < tolerance, (what, error)


def test_heads_are_columns_or_a_dimension():
    _, graph, q, k, v, _ = case(4, 16, torch.float32, "cpu")
    whole = halfgnn.attention(graph, q, k, v)
    flat = halfgnn.attention(graph, q.flatten(1), k.flatten(1), v.flatten(1), heads=4)
    assert torch.equal(whole.flatten(1), flat)
    plain = halfgnn.attention(graph, q, k, v, scale=16**-0.5)
    assert torch.equal(whole, plain)


def test_operands_of_several_formats_keep_theirs():
    _, graph, q, k, v, dy = case(2, 8, torch.float32, "cpu")
    operands = [q.half().requires_grad_(), k.requires_grad_(), v.bfloat16().requires_grad_()]
    y = halfgnn.attention(graph, *operands)
    assert y.dtype == torch.float16
    y.backward(dy.half())
    assert [x.grad.dtype for x in operands] == [torch.float16, torch.float32, torch.bfloat16]
    expected = halfgnn.attention(graph, *(x.detach().float() for x in operands))
    assert torch.equal(y, expected.half())


def test_dropout_keeps_sums_in_the_mean():
    edge_index = torch.stack([torch.arange(1_000), torch.zeros(1_000, dtype=torch.long)])
    graph = halfgnn.Graph(edge_index, size=(1_000, 1))
    ones = torch.ones(1_000, 8)
    torch.manual_seed(1)
    dropped = halfgnn.attention(graph, torch.zeros(1, 8), torch.zeros(1_000, 8), ones, dropout=0.5)
    assert 0.9 < dropped.mean() < 1.1
    assert dropped.mean() != 1.0


def test_gradient_of_dropout_is_that_of_its_mask():
    _, graph, q, k, v, dy = case(2, 8, torch.float32, "cpu")
    v = v.requires_grad_()
    y = halfgnn.attention(graph, q, k, v, dropout=0.5)
    (dv,) = torch.autograd.grad(y, v, dy)
    # The output is linear in the values.
    assert torch.allclose((dv * v).sum(), (dy * y).sum(), rtol=1e-4)


def test_traced():
    _, graph, q, k, v, _ = case(2, 8, torch.float32, "cpu")
    graph.prepare()
    run = torch.compile(lambda q, k, v: halfgnn.attention(graph, q, k, v) * 2, fullgraph=True, backend="aot_eager")
    assert torch.allclose(run(q, k, v), halfgnn.attention(graph, q, k, v) * 2)


def test_misfits_are_refused():
    _, graph, q, k, v, _ = case(2, 8, torch.float32, "cpu")
    for arguments, options, words in [
        ((q, k[:-1], v), {}, "attention: rows of k should be 37, are 36"),
        ((q, k, v[..., :4]), {}, "attention: v has 8 columns and q has 16; they should be as many"),
        ((q, k.reshape(37, 4, 4), v), {}, "attention: k has 4 heads and q has 2; they should be as many"),
        ((q.flatten(1), k.flatten(1), v.flatten(1)), {"heads": 3}, "attention: 16 columns cannot be cut into 3 heads"),
        ((q, k, v), {"dropout": 1.0}, r"attention: dropout should be in \[0, 1\), is 1.0"),
        ((q, k.double(), v), {}, "attention: torch.float64 is no format of halfgnn's"),
    ]:
        with pytest.raises(ValueError, match=words):
            halfgnn.attention(graph, *arguments, **options)
