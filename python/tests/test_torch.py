"""Operators on torch tensors: values, gradients, and how they live with the rest of torch."""

from __future__ import annotations

import contextlib
import copy
import io
import multiprocessing
import pickle
import warnings

import numpy as np
import pytest
from conftest import kernels

torch = pytest.importorskip("torch")

import halfgnn  # noqa: E402
from halfgnn import Graph  # noqa: E402

FORMATS = [(torch.float32, 1e-5), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)]
SEED = 11


@pytest.fixture(params=["cpu", "emulator", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    """Everywhere the same tests."""
    with contextlib.ExitStack() as stack:
        if request.param == "emulator":
            if not kernels():
                pytest.skip("no PTX in the package: build it with `cargo xtask build-ptx`")
            stack.enter_context(halfgnn.emulated())
        yield "cpu" if request.param == "emulator" else request.param


def edges(count=120, sources=19, destinations=23):
    """With parallel edges, and vertices without any."""
    generator = torch.Generator().manual_seed(SEED)
    source = torch.randint(0, sources, (count,), generator=generator)
    destination = torch.randint(0, destinations - 4, (count,), generator=generator)
    return torch.stack([source, destination])


def random(*shape, dtype=torch.float32, device="cpu", grad=True):
    generator = torch.Generator().manual_seed(SEED + len(shape) + shape[-1])
    x = torch.randn(*shape, generator=generator).to(dtype).to(device)
    return x.requires_grad_() if grad else x


def reference_spmm(index, x, weight, destinations, reduce="sum"):
    """In float64, of the same numbers."""
    x = x.double()
    messages = x[index[0]]
    if weight is not None:
        weight = weight.double()
        if weight.ndim == 2:
            weight = weight.repeat_interleave(x.shape[1] // weight.shape[1], dim=1)
            messages = messages * weight
        else:
            messages = messages * weight[:, None]
    y = torch.zeros(destinations, x.shape[1], dtype=torch.float64, device=x.device)
    if reduce == "max":
        spread = index[1][:, None].expand_as(messages)
        return y.scatter_reduce(0, spread, messages, "amax", include_self=False)
    y = y.index_add(0, index[1], messages)
    if reduce == "mean":
        y = y / torch.bincount(index[1], minlength=destinations).clamp(min=1)[:, None]
    return y


def compare(function, reference, operands, tolerance):
    """Values and all gradients."""
    y, expected = function(*operands), reference(*operands)
    scale = max(1.0, expected.abs().max().item())
    assert (y.double() - expected).abs().max().item() <= tolerance * scale
    dy = random(*y.shape, dtype=y.dtype, device=y.device, grad=False)
    wanted = [operand for operand in operands if operand.requires_grad]
    ours = torch.autograd.grad(y, wanted, dy)
    theirs = torch.autograd.grad(expected, wanted, dy.double())
    for got, correct in zip(ours, theirs, strict=True):
        assert got.dtype == correct.dtype and got.shape == correct.shape
        scale = max(1.0, correct.double().abs().max().item())
        assert (got.double() - correct.double()).abs().max().item() <= 3 * tolerance * scale


@pytest.mark.parametrize("dtype, tolerance", FORMATS)
@pytest.mark.parametrize("features", [1, 7, 41, 257])
@pytest.mark.parametrize("weighted", [False, True])
def test_spmm(device, dtype, tolerance, features, weighted):
    if features == 257 and device == "cpu" and halfgnn.device.host()[0] == 2:
        pytest.skip("257 features take the emulator a minute; a card and the CPU have them")
    index = edges().to(device)
    graph = Graph(index, size=(19, 23))
    operands = [random(19, features, dtype=dtype, device=device)]
    if weighted:
        operands.append(random(120, dtype=dtype, device=device))
    compare(
        lambda *of: halfgnn.spmm(graph, *of),
        lambda x, weight=None: reference_spmm(index, x, weight, 23),
        operands,
        tolerance,
    )


@pytest.mark.parametrize("reduce", ["mean", "max"])
@pytest.mark.parametrize("weighted", [False, True])
def test_reductions(device, reduce, weighted):
    index = edges().to(device)
    if reduce == "max":
        # Of parallel edges either may be the largest.
        index = torch.unique(index, dim=1)
    graph = Graph(index, size=(19, 23))
    operands = [random(19, 9, device=device)]
    if weighted:
        operands.append(random(index.shape[1], device=device))
    compare(
        lambda *of: halfgnn.spmm(graph, *of, reduce=reduce),
        lambda x, weight=None: reference_spmm(index, x, weight, 23, reduce),
        operands,
        1e-5,
    )


def test_ties_of_a_maximum_share_its_gradient():
    graph = Graph(torch.tensor([[0, 1, 2], [0, 0, 0]]), 3)
    x = torch.tensor([[2.0], [2.0], [1.0]], requires_grad=True)
    halfgnn.spmm(graph, x, reduce="max").sum().backward()
    assert x.grad.tolist() == [[0.5], [0.5], [0.0]]


@pytest.mark.parametrize("norm", ["left", "right", "both"])
@pytest.mark.parametrize("weighted", [False, True])
def test_norms(device, norm, weighted):
    index = edges().to(device)
    graph = Graph(index, size=(19, 23))
    into = torch.bincount(index[1], minlength=23).clamp(min=1).double()[:, None]
    out = torch.bincount(index[0], minlength=19).clamp(min=1).double()[:, None]
    factors = {"left": (1, 1 / out), "right": (1 / into, 1), "both": (into**-0.5, out**-0.5)}[norm]

    def reference(x, weight=None):
        return factors[0] * reference_spmm(index, x.double() * factors[1], weight, 23)

    operands = [random(19, 9, device=device)]
    if weighted:
        operands.append(random(120, device=device))
    compare(lambda *of: halfgnn.spmm(graph, *of, norm=norm), reference, operands, 1e-5)


@pytest.mark.parametrize("dtype, tolerance", FORMATS)
def test_bias_and_relu(device, dtype, tolerance):
    index = edges().to(device)
    graph = Graph(index, size=(19, 23))
    compare(
        lambda x, bias: halfgnn.spmm(graph, x, bias=bias, relu=True),
        lambda x, bias: (reference_spmm(index, x, None, 23) + bias.double()).relu(),
        [random(19, 7, dtype=dtype, device=device), random(7, device=device)],
        tolerance,
    )


def reference_own(index, x, epsilon, weight=None, reduce="sum"):
    return reference_spmm(index, x, weight, 23, reduce) + (1 + epsilon.double()) * x.double()


@pytest.mark.parametrize("dtype, tolerance", FORMATS)
@pytest.mark.parametrize("features", [1, 7, 41])
@pytest.mark.parametrize("kind", ["sum", "mean", "weighted", "heads", "weighted mean"])
def test_rows_themselves(device, dtype, tolerance, features, kind):
    index = edges(sources=23).to(device)
    graph = Graph(index, 23)
    reduce = "mean" if "mean" in kind else "sum"
    features = 3 * features if kind == "heads" else features
    operands = [random(23, features, dtype=dtype, device=device), random(1, device=device)]
    if kind == "heads":
        operands.append(random(120, 3, dtype=dtype, device=device))
    elif "weighted" in kind:
        operands.append(random(120, dtype=dtype, device=device))
    compare(
        lambda x, epsilon, weight=None: halfgnn.spmm(graph, x, weight, reduce=reduce, epsilon=epsilon),
        lambda x, epsilon, weight=None: reference_own(index, x, epsilon, weight, reduce),
        operands,
        tolerance,
    )


def test_rows_themselves_with_the_rest(device):
    """A bias and a ReLU behind them, in one operator; a number that is no tensor; and a second derivative."""
    index = edges(sources=23).to(device)
    graph = Graph(index, 23)
    for heads, width in [(1, 8), (3, 5)]:
        compare(
            lambda x, weight, bias: halfgnn.spmm(graph, x, weight, bias=bias, relu=True, epsilon=0.25),
            lambda x, weight, bias: (reference_own(index, x, torch.tensor(0.25), weight) + bias.double()).relu(),
            [random(23, heads * width, device=device), random(120, heads, device=device), random(heads * width, device=device)],
            1e-5,
        )
    x, epsilon = random(23, 8, device=device), random(1, device=device)

    def twice(function):
        (dx,) = torch.autograd.grad((function(x, epsilon) ** 2).sum(), x, create_graph=True)
        return torch.autograd.grad((dx**2).sum(), epsilon)[0].double()

    ours = twice(lambda x, epsilon: halfgnn.spmm(graph, x, epsilon=epsilon))
    assert torch.allclose(ours, twice(lambda x, epsilon: reference_own(index, x, epsilon)), rtol=1e-4)


def test_a_row_itself_does_not_overflow_in_half():
    """Sum and row go over the largest half, with signs that leave little."""
    graph = Graph(torch.tensor([[1, 2], [0, 0]]), 3)
    x = torch.tensor([[49152.0], [-40960.0], [-40960.0]], dtype=torch.float16)
    assert halfgnn.spmm(graph, x, epsilon=0.5)[0].item() == -8192


@pytest.mark.parametrize("heads, width", [(1, 41), (3, 5), (2, 8)])
def test_sddmm_softmax_and_heads(device, heads, width):
    index = edges().to(device)
    graph = Graph(index, size=(19, 23))
    u, v = random(23, heads * width, device=device), random(19, heads * width, device=device)

    def dots(u, v):
        return (u.double()[index[1]] * v.double()[index[0]]).view(120, heads, width).sum(2)

    def softmax(e):
        e = e.double()
        most = torch.full((23, heads), -torch.inf, dtype=torch.float64, device=e.device)
        most = most.scatter_reduce(0, index[1][:, None].expand_as(e), e.detach(), "amax")
        e = (e - most[index[1]]).exp()
        return e / torch.zeros_like(most).index_add(0, index[1], e)[index[1]]

    def shaped(e):
        return e if heads > 1 else e[:, None]

    compare(lambda u, v: shaped(halfgnn.sddmm(graph, u, v, heads=heads)), dots, [u, v], 1e-5)
    e = random(120, heads, device=device)
    compare(lambda e: halfgnn.edge_softmax(graph, e), softmax, [e], 1e-5)
    compare(
        lambda v, e: halfgnn.spmm(graph, v, e),
        lambda v, e: reference_spmm(index, v, e, 23),
        [v, e],
        1e-5,
    )


def reference_attention(index, h, h_dst, att_src, att_dst, heads, destinations):
    h, h_dst, att_src, att_dst = (x.double() for x in (h, h_dst, att_src, att_dst))
    h, h_dst = h.view(len(h), heads, -1), h_dst.view(len(h_dst), heads, -1)
    e = (h * att_src).sum(2)[index[0]] + (h_dst * att_dst).sum(2)[index[1]]
    return weighted_sum(index, h, torch.nn.functional.leaky_relu(e, 0.2), destinations)


def reference_additive(index, h, h_dst, att, heads, destinations):
    h, h_dst, att = (x.double() for x in (h, h_dst, att))
    h, h_dst = h.view(len(h), heads, -1), h_dst.view(len(h_dst), heads, -1)
    e = (torch.nn.functional.leaky_relu(h[index[0]] + h_dst[index[1]], 0.2) * att).sum(2)
    return weighted_sum(index, h, e, destinations)


def weighted_sum(index, h, e, destinations):
    """Of the sources' rows, by the softmax of the scores over the edges of each destination."""
    heads = h.shape[1]
    most = torch.full((destinations, heads), -torch.inf, dtype=torch.float64, device=e.device)
    most = most.scatter_reduce(0, index[1][:, None].expand_as(e), e.detach(), "amax")
    e = (e - most[index[1]]).exp()
    alpha = e / torch.zeros_like(most).index_add(0, index[1], e)[index[1]]
    messages = (alpha[:, :, None] * h[index[0]]).flatten(1)
    return torch.zeros(destinations, messages.shape[1], dtype=torch.float64, device=e.device).index_add(
        0, index[1], messages
    )


@pytest.mark.parametrize("dtype, tolerance", FORMATS)
@pytest.mark.parametrize("heads, width", [(1, 41), (3, 5), (2, 8)])
@pytest.mark.parametrize("bipartite", [False, True])
def test_attention(device, dtype, tolerance, heads, width, bipartite):
    index = edges(destinations=23, sources=23 if not bipartite else 19).to(device)
    sources = 19 if bipartite else 23
    graph = Graph(index, size=(sources, 23))
    operands = [random(sources, heads * width, dtype=dtype, device=device)]
    operands += [random(heads, width, dtype=dtype, device=device) for _ in range(2)]
    if bipartite:
        operands.append(random(23, heads * width, dtype=dtype, device=device))
    compare(
        lambda h, a, b, d=None: halfgnn.gat_attention(graph, h, a, b, heads=heads, h_dst=d),
        lambda h, a, b, d=None: reference_attention(index, h, h if d is None else d, a, b, heads, 23),
        operands,
        2 * tolerance,
    )


@pytest.mark.parametrize("dtype, tolerance", FORMATS)
@pytest.mark.parametrize("heads, width", [(1, 41), (3, 5), (2, 8)])
@pytest.mark.parametrize("kind", ["square", "bipartite", "alike"])
def test_additive_attention(device, dtype, tolerance, heads, width, kind):
    sources = 19 if kind == "bipartite" else 23
    index = edges(destinations=23, sources=sources).to(device)
    graph = Graph(index, size=(sources, 23))
    operands = [random(sources, heads * width, dtype=dtype, device=device)]
    operands.append(random(heads, width, dtype=dtype, device=device))
    if kind != "alike":
        operands.append(random(23, heads * width, dtype=dtype, device=device))
    compare(
        lambda h, a, d=None: halfgnn.gatv2_attention(graph, h, a, heads=heads, h_dst=d),
        lambda h, a, d=None: reference_additive(index, h, h if d is None else d, a, heads, 23),
        operands,
        2 * tolerance,
    )


def test_attention_of_a_block_whose_destinations_are_the_first_sources():
    index = torch.stack([torch.arange(12), torch.arange(12) % 5])
    graph = Graph(index, size=(12, 5))
    operands = [random(12, 16), random(2, 8), random(2, 8) + 1]
    compare(
        lambda h, a, b: halfgnn.gat_attention(graph, h, a, b, heads=2),
        lambda h, a, b: reference_attention(index, h, h[:5], a, b, 2, 5),
        [operand.detach().requires_grad_() for operand in operands],
        1e-5,
    )


def test_dropout_of_attention_keeps_the_mean_and_is_the_generators(device):
    graph = Graph(torch.stack([torch.arange(64), torch.zeros(64, dtype=torch.long)]).to(device), 64)
    h, zeros = torch.ones(64, 8, device=device), torch.zeros(1, 8, device=device)

    def run():
        return halfgnn.gat_attention(graph, h, zeros, zeros, dropout=0.5)[0, 0].item()

    torch.manual_seed(3)
    values = [run() for _ in range(6)]
    torch.manual_seed(3)
    assert values == [run() for _ in range(6)] and len(set(values)) > 1
    assert abs(np.mean(values) - 1) < 0.3


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_dropout_has_the_same_mask_in_both_passes(kind):
    index = edges(sources=23)
    graph = Graph(index, 23)
    h = random(23, 16).detach().double().float().requires_grad_()
    a, b = random(2, 8), random(2, 8)

    def run(h):
        torch.manual_seed(5)
        if kind == "gatv2":
            return halfgnn.gatv2_attention(graph, h, a, heads=2, dropout=0.4)
        return halfgnn.gat_attention(graph, h, a, b, heads=2, dropout=0.4)

    direction = torch.randn(23, 16, generator=torch.Generator().manual_seed(1))
    # A LeakyReLU of GATv2's is of each feature of an edge, and the slope turns where one changes its sign.
    step = {"gat": 1e-2, "gatv2": 3e-4}[kind]
    weights = torch.randn(23, 16, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad((run(h) * weights).sum(), h)
    with torch.no_grad():
        slope = ((run(h + step * direction) - run(h - step * direction)) * weights).sum() / (2 * step)
    assert abs((gradient * direction).sum() - slope) < 2e-2 * max(1, abs(slope))


@pytest.mark.parametrize("make", [lambda x: x[::2, 3:20], lambda x: x[:19, :17].t().contiguous().t(), lambda x: x[1:20, 1:18]])
def test_inputs_that_are_not_contiguous(device, make):
    index = edges().to(device)
    graph = Graph(index, size=(19, 23))
    base = random(38, 40, device=device)
    compare(
        lambda base: halfgnn.spmm(graph, make(base)),
        lambda base: reference_spmm(index, make(base), None, 23),
        [base],
        1e-5,
    )
    # What lies behind a row is a number of another owner.
    v, u = make(base), random(23, 17, device=device)
    expected = (u[index[1]] * v[index[0]]).sum(1)
    assert torch.allclose(halfgnn.sddmm(graph, u, v), expected, atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_maximum_has_a_second_derivative(weighted):
    torch.manual_seed(0)
    index = torch.randint(10, (2, 40))
    graph = Graph(index, 10)
    x, weight = torch.randn(10, 6), torch.rand(40) + 0.5

    def twice(function):
        operands = [each.clone().requires_grad_() for each in ((x, weight) if weighted else (x,))]
        firsts = torch.autograd.grad(function(*operands).pow(2).sum(), operands, create_graph=True)
        return torch.autograd.grad(sum(first.pow(2).sum() for first in firsts), operands)

    def reference(x, weight=None):
        rows = x[index[0]] if weight is None else weight[:, None] * x[index[0]]
        largest = torch.full((10, 6), -torch.inf).index_reduce(0, index[1], rows, "amax")
        return largest.masked_fill(largest.isinf(), 0.0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = twice(lambda x, weight=None: halfgnn.spmm(graph, x, weight=weight, reduce="max"))
    for one, other in zip(ours, twice(reference), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_second_derivatives():
    graph = Graph(edges(), size=(19, 23))
    x, weight = random(19, 3), random(120)
    y = halfgnn.spmm(graph, x, weight)
    (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    ours = torch.autograd.grad((first**2).sum(), [x, weight])
    y = reference_spmm(edges(), x, weight, 23)
    (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    theirs = torch.autograd.grad((first**2).sum(), [x, weight])
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() <= 1e-3 * b.abs().max()


def test_a_hub_of_70000_in_half_has_its_mean_and_torchs_sum_does_not():
    hub = 70_000
    index = torch.stack([torch.arange(1, hub + 1), torch.zeros(hub, dtype=torch.long)])
    x = torch.full((hub + 1, 3), 3.0, dtype=torch.float16)
    y = halfgnn.spmm(Graph(index, hub + 1), x, reduce="mean")
    assert (y[0] == 3).all()
    pyg = pytest.importorskip("torch_geometric.utils")
    theirs = pyg.scatter(x[index[0]], index[1], 0, hub + 1, "mean")
    assert not (theirs[0] == 3).all()


def operations(graph, device="cpu"):
    """Each operator with operands of the kind that the wrappers give it."""
    from halfgnn import ops

    both = ops._both(graph.prepare(), True)
    square = ops._both(Graph(edges(sources=23), 23).to(device).prepare(), True)
    epsilon = torch.nn.functional.pad(random(1, device=device, grad=False), (0, 3)).requires_grad_()
    ops_ = torch.ops.halfgnn
    x, u = random(19, 8, device=device), random(23, 8, device=device)
    planes = random(2, 120, device=device)
    vectors = random(2, 8, device=device)
    # Of four heads, so that there is no gap between parts of what attention keeps, which would hold anything.
    wide = [random(rows, 16, device=device) for rows in (19, 23, 2)]
    return [
        (ops_.spmm, (*both, x, None, None, None, None, None, False, False, 1)),
        (ops_.spmm, (*both, x, planes, None, None, random(8, device=device), None, True, False, 2)),
        (ops_.spmm, (*square, u, None, None, None, None, epsilon, False, False, 1)),
        (ops_.sddmm, (*both, u, x, 2)),
        (ops_.edge_softmax, (*both[:2], planes)),
        (ops_.gat_attention, (*both[:4], *wide, 4, 0.2, 0.0, None, True)),
        (ops_.gatv2_attention, (*both[:4], x, u, vectors[:1], 2, 0.2, 0.0, None)),
    ]


@pytest.mark.parametrize("number", range(7))
def test_opcheck(number):
    operation, operands = operations(Graph(edges(), size=(19, 23)))[number]
    torch.library.opcheck(operation.default, operands)


def test_compiled_without_a_break_and_once_for_all_sizes():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(8, 16)
            self.att = torch.nn.Parameter(torch.randn(2, 2, 8) * 0.3)
            self.epsilon = torch.nn.Parameter(torch.tensor(0.5))

        def forward(self, x, graph, weight):
            x = halfgnn.spmm(graph, self.lin(x), weight, norm="both").relu()
            x = halfgnn.gat_attention(graph, x, self.att[0], self.att[1], heads=2)
            x = halfgnn.gatv2_attention(graph, x, self.att[0], heads=2)
            e = halfgnn.edge_softmax(graph, halfgnn.sddmm(graph, x, x))
            return halfgnn.spmm(graph, x, e, reduce="mean", epsilon=self.epsilon)

    torch.manual_seed(0)
    torch._dynamo.reset()
    model = Model()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    counts = []
    for vertices, edge_count in [(20, 90), (33, 171), (51, 300)]:
        generator = torch.Generator().manual_seed(vertices)
        index = torch.randint(0, vertices, (2, edge_count), generator=generator)
        graph = Graph(index, vertices).prepare()
        graph._factors("in", -0.5), graph._factors("out", -0.5), graph._factors("in", -1.0), graph._in_given_order()
        x, weight = random(vertices, 8), random(edge_count)
        expected, got = model(x, graph, weight), compiled(x, graph, weight)
        assert torch.allclose(got, expected, atol=1e-5)
        for a, b in zip(
            torch.autograd.grad(got.sum(), [x, weight]), torch.autograd.grad(expected.sum(), [x, weight]), strict=True
        ):
            assert torch.allclose(a, b, atol=1e-4)
        counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert counts[2] == counts[1], f"compiled again: {counts}"


def test_inductor_gives_the_same():
    torch._dynamo.reset()
    graph = Graph(edges(), size=(19, 23)).prepare()
    graph._in_given_order()
    x, weight = random(19, 7), random(120)

    def step(x, weight):
        return halfgnn.spmm(graph, x * 2, weight, bias=None).relu() + 1

    compiled = torch.compile(step, fullgraph=True)
    try:
        got = compiled(x, weight)
    except torch._inductor.exc.InductorError as error:
        pytest.skip(f"inductor has no compiler here: {str(error).splitlines()[0]}")
    assert torch.allclose(got, step(x, weight), atol=1e-5)
    grads = [torch.autograd.grad(y.sum(), [x, weight]) for y in (got, step(x, weight))]
    for a, b in zip(*grads, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


def test_autocast_casts_features_and_weights_and_no_norm():
    graph = Graph(edges(), size=(19, 23))
    x, weight = random(19, 8), random(120)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = halfgnn.spmm(graph, x, weight, norm="right")
        e = halfgnn.sddmm(graph, random(23, 8), x)
        h = halfgnn.gat_attention(graph, x, random(1, 8), random(1, 8), h_dst=random(23, 8))
    assert (y.dtype, e.dtype, h.dtype) == (torch.bfloat16,) * 3
    expected = halfgnn.spmm(graph, x, weight, norm="right")
    assert torch.allclose(y.float(), expected, atol=0.1)
    y.sum().backward()
    assert x.grad.dtype == weight.grad.dtype == torch.float32


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_autocast_with_a_scaler_learns_as_floats_do(device):
    torch.manual_seed(0)
    graph = Graph(torch.randint(0, 500, (2, 4000), device=device), 500)
    x, target = torch.randn(500, 16, device=device), torch.randint(0, 4, (500,), device=device)
    losses = {}
    for amp in (False, True):
        torch.manual_seed(1)
        model = torch.nn.ModuleList([torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)]).to(device)
        optimizer, scaler = torch.optim.Adam(model.parameters(), 1e-2), torch.amp.GradScaler(device, enabled=amp)
        for _ in range(200):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.float16, enabled=amp):
                h = halfgnn.spmm(graph, model[0](x), norm="both").relu() + model[0](x)
                loss = torch.nn.functional.cross_entropy(model[1](h), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses[amp] = loss.item()
    assert losses[False] < 1.2
    assert abs(losses[True] - losses[False]) < 0.05 * max(losses[False], 0.1)


def test_graphs_from_everything():
    index = edges(sources=23)
    graph = Graph(index, 23)
    x = random(23, 4, grad=False)
    expected = halfgnn.spmm(graph, x)
    values = torch.ones(index.shape[1])
    sparse = torch.sparse_coo_tensor(index.flip(0), values, (23, 23))
    for other in (index, (index[0], index[1]), sparse):
        made = Graph.of(other, 23) if not isinstance(other, tuple) else Graph(other, 23)
        if other is sparse:
            # Parallel edges are one entry of their sum.
            assert made.weight is not None
        assert torch.allclose(halfgnn.spmm(made, x), expected, atol=1e-5)
    csr = Graph.of(sparse.coalesce().to_sparse_csr())
    assert torch.allclose(halfgnn.spmm(csr, x), expected, atol=1e-5)

    class Block:  # as DGL's
        edata = {"w": torch.arange(float(index.shape[1]))}

        def edges(self, order):
            assert order == "eid"
            return index[0], index[1]

        def num_src_nodes(self):
            return 23

        def num_dst_nodes(self):
            return 23

    assert torch.equal(halfgnn.spmm(Graph.of(Block()), x), expected)
    assert torch.equal(Graph.from_dgl(Block(), weight="w").weight, Block.edata["w"])


def test_pyg_data():
    data = pytest.importorskip("torch_geometric.data")
    index = edges(sources=23)
    weight = torch.rand(index.shape[1])
    graph = Graph.of(data.Data(edge_index=index, num_nodes=23, edge_weight=weight))
    assert graph.num_nodes == 23 and torch.equal(graph.weight, weight)
    assert torch.equal(graph.edge_index, index)


def test_numpys_graph_with_torchs_features():
    index = edges(sources=23)
    x = random(23, 4, grad=False)
    graph = Graph(index.numpy(), 23)
    assert graph.is_numpy
    assert torch.equal(halfgnn.spmm(graph, x), halfgnn.spmm(Graph(index, 23), x))
    assert (halfgnn.spmm(Graph(index, 23), x.numpy()) == halfgnn.spmm(graph, x.numpy())).all()


def test_saved_and_copied():
    graph = Graph(edges(), size=(19, 23), weight=torch.rand(120)).prepare()
    x = random(19, 4)
    expected = halfgnn.spmm(graph, x)
    file = io.BytesIO()
    torch.save(graph, file)
    file.seek(0)
    for other in (
        torch.load(file, weights_only=False),
        pickle.loads(pickle.dumps(graph)),
        copy.deepcopy(graph),
        graph.to("cpu"),
        graph.numpy().to("cpu"),
    ):
        assert torch.equal(halfgnn.spmm(other, x), expected)
        assert (other.num_src, other.num_dst, other.num_edges) == (19, 23, 120)


def _sums():
    """Of what one thread does by itself, and of what several share. Without gradients, which torch refuses a forked child once its own threads
    for them run in the parent; a trainer of ours computes some."""
    sums = []
    for count, width in ((120, 8), (3000, 64)):
        graph = Graph(edges(count), size=(19, 23))
        x, u, att = (random(rows, width, grad=False) for rows in (19, 23, 1))
        results = [
            halfgnn.spmm(graph, x),
            halfgnn.edge_softmax(graph, halfgnn.sddmm(graph, u, x)) ** 2,
            halfgnn.gat_attention(graph, x, att, att, h_dst=u),
            halfgnn.gatv2_attention(graph, x, att, h_dst=u),
        ]
        sums += [result.sum().item() for result in results]
    return sums


def _trains():
    """By a trainer, whose threads are the same."""
    index = torch.randint(0, 500, (2, 5000), generator=torch.Generator().manual_seed(3))
    x = random(500, 16, grad=False)
    mask = torch.arange(500) % 3
    masks = {name: mask == at for at, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    data = {"edge_index": index, "x": x, "y": x[:, :4].argmax(1), **masks}
    return halfgnn.train(data, "gat", device="cpu", epochs=2, hidden=8).last.loss


def _in_child(queue):
    queue.put((_sums(), _trains()))


def test_forked_workers_do_not_hang():
    here = _sums(), _trains()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    try:
        assert queue.get(timeout=60) == here
    finally:
        child.join(10)
        assert child.exitcode == 0


class _Sums(torch.utils.data.Dataset):
    def __init__(self):
        self.graph = Graph(edges(), size=(19, 23)).prepare()

    def __len__(self):
        return 4

    def __getitem__(self, at):
        # Of the parent's graph, and of one that is made here.
        x = random(19, 8, grad=False) * at
        att = random(1, 8, grad=False)
        y = halfgnn.gat_attention(Graph(edges(), size=(19, 23)), x, att, att, h_dst=random(23, 8, grad=False))
        return halfgnn.spmm(self.graph, x).sum() + y.sum()


def test_a_data_loaders_workers():
    _Sums()[0]
    context = multiprocessing.get_context("fork")
    loader = torch.utils.data.DataLoader(
        _Sums(), num_workers=2, timeout=60, multiprocessing_context=context, persistent_workers=True
    )
    expected = [_Sums()[at] for at in range(4)]
    for _ in range(2):
        assert torch.equal(torch.cat(list(loader)), torch.stack(expected))


def test_refusals():
    graph = Graph(edges(), size=(19, 23))
    square = Graph(edges(destinations=19), 19)
    x = random(19, 8)
    with pytest.raises(IndexError, match="no vertex"):
        Graph(edges(), size=(5, 23))
    for call, words in [
        (lambda: halfgnn.spmm(graph, x[:5]), "rows of x should be 19, are 5"),
        (lambda: halfgnn.spmm(graph, x.double()), "float64 is no format"),
        (lambda: halfgnn.spmm(graph, x, torch.ones(7)), "weight should be 120"),
        (lambda: halfgnn.spmm(graph, x, torch.ones(120, 3)), "weight has 3 heads"),
        (lambda: halfgnn.spmm(graph, x.to("meta")), "move it with graph.to"),
        (lambda: halfgnn.spmm(graph, x, epsilon=0.0), "this has 23 and 19"),
        (lambda: halfgnn.spmm(square, x, epsilon=torch.ones(2)), r"epsilon should be one number, is \(2,\)"),
        (lambda: halfgnn.spmm(square, x, epsilon=torch.ones(1, device="meta")), "epsilon is on meta and x on cpu"),
        (lambda: halfgnn.spmm(square, x, reduce="max", epsilon=0.0), "epsilon is of sums without a norm and of means"),
        (lambda: halfgnn.spmm(square, x, norm="left", epsilon=0.0), "epsilon is of sums without a norm and of means"),
        (lambda: halfgnn.spmm(square, x.detach().numpy(), epsilon=torch.ones(1)), "give a number"),
        (lambda: halfgnn.sddmm(graph, x, x), "rows of u should be 23, are 19"),
        (lambda: halfgnn.sddmm(graph, random(23, 8), x.to("meta")), "u is on cpu and v is on meta; move one of them"),
        (lambda: halfgnn.gat_attention(graph, x, x[0], x[0], heads=3), "cannot be cut into 3 heads"),
        (lambda: halfgnn.gat_attention(graph, x, x[0], x[0], dropout=1.0), r"should be in \[0, 1\)"),
        (lambda: halfgnn.gat_attention(graph, x, x[0], x[0]), "give h_dst"),
        (lambda: halfgnn.gat_attention(graph, x, x[0, :3], x[0]), "att_src should have 8"),
        (lambda: halfgnn.gatv2_attention(graph, x, x[0, :3]), "att should have 8"),
        (lambda: halfgnn.gatv2_attention(graph, x, x[0]), "give h_dst"),
    ]:
        with pytest.raises(ValueError, match=words) as refused:
            call()
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match=r"pass graph.unweighted\(\)"):
        halfgnn.gat_attention(graph.with_weight(torch.ones(120)), x, x[0], x[0])


@pytest.mark.cuda
class TestCards:
    """What only a GPU can show."""

    def test_a_side_stream_and_a_captured_graph_give_the_same_bits(self):
        graph = Graph(torch.randint(0, 1000, (2, 20_000), device="cuda"), 1000).prepare()
        x, w = random(1000, 64, device="cuda", dtype=torch.float16), random(20_000, device="cuda")
        a, b = random(2, 32, device="cuda"), random(2, 32, device="cuda")

        def step():
            y = halfgnn.gat_attention(graph, halfgnn.spmm(graph, x, w, norm="both"), a, b, heads=2)
            y = halfgnn.spmm(graph, y, reduce="mean")
            # Without its history, which would keep what gradients add up in on the stream of this call.
            return (y.detach(), *torch.autograd.grad(y.float().sum(), [x, w, a, b]))

        eager = step()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            side = step()
        stream.synchronize()
        assert all(torch.equal(p, q) for p, q in zip(eager, side, strict=True))
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            replayed = step()
        for tensor in replayed:
            tensor.fill_(7)
        captured.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(p, q) for p, q in zip(eager, replayed, strict=True))

    def test_dropout_differs_from_replay_to_replay(self):
        graph = Graph(torch.randint(0, 100, (2, 3000), device="cuda"), 100)
        h, a = random(100, 8, device="cuda", grad=False), random(1, 8, device="cuda", grad=False)
        halfgnn.gat_attention(graph, h, a, a, dropout=0.5)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            y = halfgnn.gat_attention(graph, h, a, a, dropout=0.5)
        results = []
        for _ in range(2):
            captured.replay()
            results.append(y.clone())
        assert not torch.equal(*results)

    def test_memory_is_torchs(self):
        graph = Graph(torch.randint(0, 1000, (2, 20_000), device="cuda"), 1000)
        x = random(1000, 512, device="cuda", grad=False)
        halfgnn.spmm(graph, x)
        before = torch.cuda.memory_allocated()
        y = halfgnn.spmm(graph, x)
        assert torch.cuda.memory_allocated() - before == y.numel() * 4

    def test_out_of_memory_is_torchs(self):
        graph = Graph(torch.zeros((2, 1), dtype=torch.long, device="cuda"), size=(1, 2**24))
        with pytest.raises(torch.OutOfMemoryError):
            halfgnn.spmm(graph, torch.ones(1, 2**16, device="cuda"))

    def test_another_card_leaves_the_current_one_alone(self):
        if torch.cuda.device_count() < 2:
            pytest.skip("one card")
        graph = Graph(torch.randint(0, 100, (2, 3000), device="cuda:1"), 100)
        y = halfgnn.spmm(graph, torch.ones(100, 8, device="cuda:1"))
        assert torch.cuda.current_device() == 0 and y.device.index == 1
        assert torch.ones(1, device="cuda").device.index == 0
