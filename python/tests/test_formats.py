"""Each operand keeps its own format, forward and in its gradient: 2,000 random cases against float64, and the cases of bug reports.

An error is bounded element by element. A result is rounded once to its format; sums are float, whose error grows with the sum of the terms'
magnitudes. References are torch's own operators in float64, on the numbers that the operands hold.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import halfgnn  # noqa: E402
from halfgnn import Graph  # noqa: E402

HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32
FORMATS = [HALF, BFLOAT, FLOAT]
#: Half a unit in the last place of 1, and of the smallest number.
ROUNDOFF = {HALF: 2.0**-11, BFLOAT: 2.0**-8, FLOAT: 2.0**-24}
SMALLEST = {HALF: 2.0**-25, BFLOAT: 2.0**-134, FLOAT: 2.0**-150}


@dataclass
class Case:
    """A graph, and what is done with it."""

    rng: random.Random
    generator: torch.Generator
    index: torch.Tensor = field(init=False)
    size: tuple[int, int] = field(init=False)
    kind: str = field(init=False)
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: int) -> Case:
        case = cls(random.Random(seed), torch.Generator().manual_seed(seed))
        case.options["seed"] = seed
        return case

    def graph(self, square: bool | None = None) -> Graph:
        """With vertices that have no edges, loops, parallel edges, one destination of all edges, or no edge at all."""
        rng = self.rng
        square = rng.random() < 0.5 if square is None else square
        sources = rng.randint(1, 12)
        destinations = sources if square else rng.randint(1, 12)
        self.size, self.kind = (sources, destinations), rng.choice(["any", "any", "any", "hub", "parallel", "loops", "empty"])
        count = 0 if self.kind == "empty" else rng.randint(1, 60)
        source = torch.randint(sources, (count,), generator=self.generator)
        destination = torch.randint(destinations, (count,), generator=self.generator)
        if self.kind == "hub":
            destination[:] = destinations - 1
        elif self.kind == "parallel":
            source[count // 2 :] = source[: count - count // 2].clone()
            destination[count // 2 :] = destination[: count - count // 2].clone()
        elif self.kind == "loops":
            source = destination = destination % min(sources, destinations)
        self.index = torch.stack([source, destination])
        self.options |= {"kind": self.kind, "size": self.size, "edges": count}
        return Graph(self.index, size=self.size)

    def operand(self, *shape: int, dtype: Any, scale: float = 1.0) -> torch.Tensor:
        values = torch.randn(*shape, generator=self.generator) * scale
        return values.to(dtype).requires_grad_()

    def choose(self, name: str, values: list[Any]) -> Any:
        self.options[name] = self.rng.choice(values)
        return self.options[name]


def doubles(*operands: Any, absolute: bool = False) -> list[Any]:
    """The same numbers, or their magnitudes, as leaves in float64."""
    values = [None if operand is None else operand.detach().double() for operand in operands]
    return [None if value is None else (value.abs() if absolute else value).requires_grad_() for value in values]


def check(what: str, case: Case, got: torch.Tensor, expected: torch.Tensor, dtype: Any, error: torch.Tensor) -> None:
    """``got`` is ``expected`` rounded once to its format, with an error of sums in float before that."""
    assert got.dtype == dtype and got.shape == expected.shape, (what, got.dtype, got.shape, expected.shape, case.options)
    got, most = got.double(), torch.finfo(dtype).max
    allowed = error + ROUNDOFF[dtype] * (expected.abs() + error) + SMALLEST[dtype]
    is_large = expected.abs() + allowed > most
    fits = ((got - expected).abs() <= allowed) | (is_large & (got == expected.sign() * float("inf")))
    fits |= is_large & (got.abs() <= most) & (expected.abs() - allowed <= most)
    assert fits.all(), (what, case.options, got[~fits][:4], expected[~fits][:4], allowed[~fits][:4])


def compare(case: Case, operands: dict[str, Any], got: Any, expected: Any, bound: Any, error: Any, dtype: Any, doubt: Any = None) -> None:
    """The result, and the gradients of all operands.

    ``expected`` and ``bound`` are the reference on the operands and a function of no smaller magnitude on theirs, each a result and its
    leaves; ``error`` is what a unit of the bound may be off. No gradient is asked of results in ``doubt``.
    """
    (expected, leaves), (bound, magnitudes) = expected, bound
    check("result", case, got.detach(), expected.detach(), dtype, error * bound.detach())
    dy = torch.randn(*got.shape, generator=case.generator).to(dtype)
    hidden = expected.abs() + 1e-3 * bound > torch.finfo(dtype).max
    dy[hidden if doubt is None else hidden | doubt] = 0
    names = [name for name, operand in operands.items() if operand is not None]
    given = [operands[name] for name in names]
    ours = torch.autograd.grad(got, given, dy)
    theirs = torch.autograd.grad(expected, [leaves[name] for name in names], dy.double())
    bounds = torch.autograd.grad(bound, [magnitudes[name] for name in names], dy.double().abs())
    for name, operand, mine, right, magnitude in zip(names, given, ours, theirs, bounds, strict=True):
        check(f"gradient of {name}", case, mine, right, operand.dtype, error * magnitude)


# SpMM


def aggregated(case: Case, x: Any, weight: Any, factors: Any, heads: int, shares: Any = None) -> torch.Tensor:
    """The sum of the edges' products, destinations × F, with factors of both ends and of each product."""
    source, destination = case.index
    spread = 1.0 if weight is None else weight.reshape(len(source), heads).repeat_interleave(x.shape[1] // heads, dim=1)
    products = spread * factors[1][source][:, None] * x[source]
    products = products if shares is None else products * shares
    return factors[0][:, None] * torch.zeros(case.size[1], x.shape[1], dtype=torch.float64).index_add(0, destination, products)


def shares_of_maxima(case: Case, x: Any, weight: Any, heads: int) -> torch.Tensor:
    """Of each edge and column its part in the maximum: equal maxima share it, as PyG's do."""
    source, destination = case.index
    products = x[source]
    if weight is not None:
        products = products * weight.reshape(len(source), heads).repeat_interleave(x.shape[1] // heads, dim=1)
    rows = destination[:, None].expand_as(products)
    zeros = torch.zeros(case.size[1], x.shape[1], dtype=torch.float64)
    largest = zeros.scatter_reduce(0, rows, products, "amax", include_self=False)
    hits = (products == largest[destination]).double()
    return hits / zeros.index_add(0, destination, hits)[destination]


def factors_of(case: Case, reduce: str, norm: str) -> tuple[torch.Tensor, torch.Tensor]:
    into = torch.bincount(case.index[1], minlength=case.size[1]).clamp(min=1).double()
    out = torch.bincount(case.index[0], minlength=case.size[0]).clamp(min=1).double()
    norm = "right" if reduce == "mean" else norm
    powers = {"none": (0, 0), "left": (0, -1), "right": (-1, 0), "both": (-0.5, -0.5)}[norm]
    return into ** powers[0], out ** powers[1]


def spmm_case(seed: int, numpy: bool = False) -> None:
    case = Case.of(seed)
    reduce = case.choose("reduce", ["sum", "sum", "mean", "max"])
    norm = case.choose("norm", ["none", "left", "right", "both"]) if reduce == "sum" else "none"
    has_epsilon = reduce != "max" and norm == "none" and case.choose("epsilon", [False, True])
    graph = case.graph(square=True if has_epsilon else None)
    formats = [HALF, FLOAT] if numpy else FORMATS
    heads = case.choose("heads", [1, 1, 1, 2, 3])
    width = heads * case.choose("width", [1, 3, 8, 11])
    dtype = case.choose("format", formats)
    # Of several powers of two, up to where half overflows and below where it has numbers.
    scale = 2.0 ** case.choose("scale", [-12, -4, 0, 0, 0, 6, 12])
    x = case.operand(case.size[0], width, dtype=dtype, scale=scale)
    weight = bias = epsilon = None
    if heads > 1 or case.choose("weighted", [False, True, True]):
        of_weight = case.choose("weight's format", formats)
        against = 2.0 ** case.choose("weight's scale", [-12, 0, 0, 8]) if of_weight == HALF else 1 / scale
        shape = (graph.num_edges, heads) if heads > 1 or case.choose("column", [False, True]) else (graph.num_edges,)
        weight = case.operand(*shape, dtype=of_weight, scale=against)
    if case.choose("bias", [False, True]):
        bias = case.operand(width, dtype=case.choose("bias's format", formats), scale=3.0)
    if has_epsilon:
        epsilon = case.operand(1, dtype=case.choose("epsilon's format", formats))
    relu = case.choose("relu", [False, True])
    options: dict[str, Any] = {"reduce": reduce, "norm": norm, "relu": relu}

    factors = factors_of(case, reduce, norm)
    operands = {"x": x, "weight": weight, "bias": bias, "epsilon": epsilon}
    shares = shares_of_maxima(case, *doubles(x, weight), heads) if reduce == "max" else None

    def reference(absolute: bool) -> tuple[torch.Tensor, dict[str, Any]]:
        leaves = dict(zip(operands, doubles(*operands.values(), absolute=absolute), strict=True))
        y = aggregated(case, leaves["x"], leaves["weight"], factors, heads, shares)
        y = y if bias is None else y + leaves["bias"]
        return y if epsilon is None else y + (1 + leaves["epsilon"]) * leaves["x"], leaves

    (before, leaves), bound = reference(False), reference(True)
    expected = before.relu() if relu else before
    # A sum of float has at most this number of terms; factors and the epilogue are a few more roundings.
    error = (max(graph.num_edges, width * max(case.size)) + 16) * 2.0**-24
    if numpy:
        with torch.no_grad():
            arrays = {name: None if operand is None else operand.numpy() for name, operand in operands.items()}
            own = None if epsilon is None else float(arrays["epsilon"][0])
            y = halfgnn.spmm(graph.numpy(), arrays["x"], arrays["weight"], bias=arrays["bias"], epsilon=own, **options)
        check("result", case, torch.from_numpy(np.ascontiguousarray(y)), expected.detach(), dtype, error * bound[0].detach())
        return
    y = halfgnn.spmm(graph, x, weight, bias=bias, epsilon=epsilon, **options)
    # What rounds to zero has no side of the activation.
    doubt = before.abs() <= error * bound[0] + 2 * SMALLEST[dtype] if relu else None
    compare(case, operands, y, (expected, leaves), bound, error, dtype, doubt)


# SDDMM and softmax


def sddmm_case(seed: int, numpy: bool = False) -> None:
    case = Case.of(seed)
    graph = case.graph()
    formats = [HALF, FLOAT] if numpy else FORMATS
    heads = case.choose("heads", [1, 1, 2, 3])
    width = heads * case.choose("width", [1, 5, 8, 16])
    scale = 2.0 ** case.choose("scale", [-12, 0, 0, 7])
    u = case.operand(case.size[1], width, dtype=case.choose("format of u", formats), scale=scale)
    v = case.operand(case.size[0], width, dtype=case.choose("format of v", formats))
    dtype = torch.promote_types(u.dtype, v.dtype)
    operands = {"u": u, "v": v}

    def reference(absolute: bool) -> tuple[torch.Tensor, dict[str, Any]]:
        leaves = dict(zip(operands, doubles(*operands.values(), absolute=absolute), strict=True))
        products = leaves["u"][case.index[1]] * leaves["v"][case.index[0]]
        e = products.view(graph.num_edges, heads, width // heads).sum(2)
        return e[:, 0] if heads == 1 else e, leaves

    expected, bound = reference(False), reference(True)
    error = (max(graph.num_edges, width) + 16) * 2.0**-24
    if numpy:
        e = halfgnn.sddmm(graph.numpy(), u.detach().numpy(), v.detach().numpy(), heads=heads)
        check("result", case, torch.from_numpy(np.ascontiguousarray(e)), expected[0].detach(), dtype, error * bound[0].detach())
        return
    compare(case, operands, halfgnn.sddmm(graph, u, v, heads=heads), expected, bound, error, dtype)


def softmax_of(case: Case, e: torch.Tensor) -> torch.Tensor:
    """Over the edges of each destination."""
    destination = case.index[1]
    rows = destination[:, None].expand_as(e)
    zeros = torch.zeros(case.size[1], e.shape[1], dtype=torch.float64)
    largest = zeros.scatter_reduce(0, rows, e, "amax", include_self=False).detach()
    powers = (e - largest[destination]).exp()
    return powers / zeros.index_add(0, destination, powers)[destination]


def softmax_case(seed: int) -> None:
    case = Case.of(seed)
    graph = case.graph()
    heads = case.choose("heads", [1, 1, 2, 3])
    dtype = case.choose("format", FORMATS)
    e = case.operand(graph.num_edges, heads, dtype=dtype, scale=case.choose("scale", [0.1, 1.0, 4.0]))
    (leaf,) = doubles(e)
    alpha = softmax_of(case, leaf)
    error = (graph.num_edges + 16 + 8 * float(e.detach().abs().max() if e.numel() else 0)) * 2.0**-24
    got = halfgnn.edge_softmax(graph, e)
    # Powers are kept in the format as well before they are divided by their sum.
    once_more = ROUNDOFF[dtype] * alpha.detach() + SMALLEST[dtype]
    check("result", case, got.detach(), alpha.detach(), dtype, error * alpha.detach() + once_more)
    d = torch.randn(*e.shape, generator=case.generator).to(dtype)
    (mine,) = torch.autograd.grad(got, e, d)
    (right,) = torch.autograd.grad(alpha, leaf, d.double())
    # The weights that were kept are rounded: each product with them, and their sum, is off by as much.
    kept, destination = alpha.detach(), case.index[1]
    inner = torch.zeros(case.size[1], heads, dtype=torch.float64).index_add(0, destination, kept * d.double().abs())
    magnitude = kept * (d.double().abs() + inner[destination])
    check("gradient of e", case, mine, right, dtype, (4 * ROUNDOFF[dtype] + error) * magnitude + 4 * SMALLEST[dtype])


# Attention


def attention_case(seed: int, second: bool) -> None:
    case = Case.of(seed)
    graph = case.graph()
    heads = case.choose("heads", [1, 1, 2, 3])
    width = case.choose("width", [1, 4, 8, 11])
    dtype = case.choose("format", FORMATS)
    of_vectors = case.choose("vectors' format", FORMATS)
    apart = graph.num_src != graph.num_dst or case.choose("apart", [False, True])
    scale = case.choose("scale", [0.1, 1.0])
    # A large vector of small features, which half has no number for.
    large = 2.0**17 if of_vectors != HALF and dtype != of_vectors and case.choose("large", [False, True]) else 1.0
    h = case.operand(case.size[0], heads * width, dtype=dtype, scale=scale / large)
    of_h_dst = case.choose("destinations' format", FORMATS) if apart else dtype
    h_dst = case.operand(case.size[1], heads * width, dtype=of_h_dst, scale=scale / large) if apart else None
    names = ["att"] if second else ["att_src", "att_dst"]
    vectors = {name: case.operand(heads, width, dtype=of_vectors, scale=large) for name in names}
    operands = {"h": h, "h_dst": h_dst, **vectors}
    source, destination = case.index

    leaves = dict(zip(operands, doubles(*operands.values()), strict=True))
    rows = leaves["h"].view(-1, heads, width)
    own = rows if h_dst is None else leaves["h_dst"].view(-1, heads, width)
    leak = torch.nn.functional.leaky_relu
    if second:
        sums = own[destination] + rows[source]
        inner = (sums.abs().min() if sums.numel() else torch.tensor(1.0)).item()
        scores = (leak(sums, 0.2) * leaves["att"]).sum(2)
        y = halfgnn.gatv2_attention(graph, h, vectors["att"], heads=heads, h_dst=h_dst)
    else:
        before = (own * leaves["att_dst"]).sum(2)[destination] + (rows * leaves["att_src"]).sum(2)[source]
        inner = (before.abs().min() if before.numel() else torch.tensor(1.0)).item()
        scores = leak(before, 0.2)
        y = halfgnn.gat_attention(graph, h, vectors["att_src"], vectors["att_dst"], heads=heads, h_dst=h_dst)
    alpha = softmax_of(case, scores)
    messages = alpha[:, :, None] * rows[source]
    expected = torch.zeros(case.size[1], heads, width, dtype=torch.float64).index_add(0, destination, messages).flatten(1)

    # Of operands of several formats all is computed in float, of one format sums are kept in it for the backward pass.
    formats = {operand.dtype for operand in operands.values() if operand is not None}
    roundoff = ROUNDOFF[dtype] if len(formats) == 1 else 2.0**-24
    most = float(h.detach().abs().max())
    vector = max(float(of.detach().abs().max()) for of in vectors.values())
    both = most if h_dst is None else max(most, float(h_dst.detach().abs().max()))
    score = 2 * width * vector * both
    error = (64 + graph.num_edges + width) * 2.0**-24 * (1 + 4 * score)
    check("result", case, y.detach(), expected.detach(), dtype, torch.full_like(expected, 2 * error * most))
    if inner < 1e-3 * both:
        # At the kink of the LeakyReLU its slope is either.
        return
    dy = torch.randn(*y.shape, generator=case.generator).to(dtype)
    names = [name for name, operand in operands.items() if operand is not None]
    given = [operands[name] for name in names]
    ours = torch.autograd.grad(y, given, dy)
    theirs = torch.autograd.grad(expected, [leaves[name] for name in names], dy.double())
    # Of a destination: what its edges' scores may take of the gradient in all. Of a source: what arrives over all edges.
    degree = max(1, int(torch.bincount(source).max()) if len(source) else 1)
    upstream = float(dy.double().abs().max()) if dy.numel() else 0.0
    of_scores = 2 * width * upstream * most
    relative = 16 * roundoff + 2 * error
    for name, operand, mine, right in zip(names, given, ours, theirs, strict=True):
        features = name.startswith("h")
        magnitude = degree * (upstream + of_scores * vector) if features else graph.num_edges * of_scores * 2 * both
        tiny = 8 * degree * SMALLEST[dtype] if len(formats) == 1 else 0.0
        tiny = tiny * (1 + vector) if features else graph.num_edges * tiny * (1 + 2 * both)
        check(f"gradient of {name}", case, mine, right, operand.dtype, torch.full_like(right, relative * magnitude + tiny))


CASES = {
    "spmm": (spmm_case, 1000),
    "spmm of arrays": (lambda seed: spmm_case(seed, numpy=True), 200),
    "sddmm": (sddmm_case, 250),
    "sddmm of arrays": (lambda seed: sddmm_case(seed, numpy=True), 50),
    "softmax": (softmax_case, 150),
    "GAT's attention": (lambda seed: attention_case(seed, second=False), 200),
    "GATv2's attention": (lambda seed: attention_case(seed, second=True), 150),
}


@pytest.mark.parametrize("name", CASES)
def test_random_operands_in_random_formats(name):
    run, count = CASES[name]
    assert sum(of for _, of in CASES.values()) == 2000
    for seed in range(count):
        run(seed)


# Cases of bug reports


def one_edge() -> Graph:
    return Graph(torch.tensor([[0], [0]]), 1)


def star(leaves: int) -> Graph:
    """All leaves to one destination."""
    return Graph((torch.arange(leaves), torch.zeros(leaves, dtype=torch.long)), size=(leaves, 1))


#: Each changes the result of a maximum, and not which edge has it.
EPILOGUES: dict[str, dict[str, Any]] = {
    "bias": {"bias": torch.tensor([-1.0])},
    "activation": {"relu": True},
    "both": {"bias": torch.tensor([0.5]), "relu": True},
}


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_a_maximum_goes_to_the_edge_that_has_it_before_the_epilogue(epilogue, dtype, weighted):
    graph = Graph(torch.tensor([[0, 1], [2, 2]]), 3)
    x = torch.tensor([[1.0], [2.0], [0.0]], dtype=dtype, requires_grad=True)
    weight = torch.ones(2, requires_grad=True) if weighted else None
    halfgnn.spmm(graph, x, weight, reduce="max", **EPILOGUES[epilogue]).sum().backward()
    assert x.grad.tolist() == [[0], [1], [0]]
    if weight is not None:
        assert weight.grad.tolist() == [0, 2]


def test_factors_of_a_maximum_have_a_gradient():
    graph = Graph(torch.tensor([[0, 1], [2, 2]]), 3)
    rows, columns = torch.tensor([1.0, 1.0, 0.5]), torch.tensor([4.0, 1.0, 1.0])
    for weight in (None, torch.ones(2, requires_grad=True)):
        x = torch.tensor([[1.0], [2.0], [0.0]], requires_grad=True)
        y = halfgnn.ops.scaled_spmm(graph, x, weight, (rows, columns), maximum=True)
        assert y.tolist() == [[0], [0], [2]]
        y.sum().backward()
        assert x.grad.tolist() == [[2], [0], [0]]
        if weight is not None:
            assert weight.grad.tolist() == [2, 0]


def test_maxima_that_differ_before_they_are_rounded_are_no_tie():
    graph = Graph(torch.tensor([[0, 1], [0, 0]]), size=(2, 1))
    x = torch.ones(2, 1, dtype=HALF, requires_grad=True)
    weight = torch.tensor([1.0, 1.0 + 2.0**-20], requires_grad=True)
    halfgnn.spmm(graph, x, weight, reduce="max").sum().backward()
    assert x.grad.tolist() == [[0], [1]] and weight.grad.tolist() == [0, 1]


@pytest.mark.parametrize("dtype, tolerance", [(HALF, 1e-3), (BFLOAT, 8e-3)])
@pytest.mark.parametrize("x, weight, y", [(5e-4, 70_000.0, 35.0), (60_000.0, 1e-8, 6e-4)])
def test_a_weight_in_float_is_read_as_float(dtype, tolerance, x, weight, y):
    for shape in ((1,), (1, 1)):
        rows = torch.full((1, 3), x, dtype=dtype)
        result = halfgnn.spmm(one_edge(), rows, torch.full(shape, weight))
        assert result.dtype == dtype
        assert result[0].tolist() == pytest.approx([y] * 3, rel=tolerance)
        if dtype == HALF:
            arrays = halfgnn.spmm(one_edge().numpy(), rows.numpy(), np.full(shape, weight, dtype=np.float32))
            assert arrays.dtype == np.float16 and arrays[0].tolist() == pytest.approx([y] * 3, rel=tolerance)


def test_weights_of_doubles_and_integers_are_read_as_float():
    x = torch.full((1, 2), 5e-4, dtype=HALF)
    for weight in (torch.tensor([70_000]), torch.tensor([70_000.0], dtype=torch.float64)):
        assert halfgnn.spmm(one_edge(), x, weight)[0].tolist() == pytest.approx([35.0] * 2, rel=1e-3)
        assert halfgnn.spmm(one_edge().numpy(), x.numpy(), weight.numpy())[0].tolist() == pytest.approx([35.0] * 2, rel=1e-3)


def test_only_a_result_overflows():
    x = torch.full((2, 1), 60_000.0, dtype=HALF)
    graph = Graph(torch.tensor([[0, 1], [0, 0]]), size=(2, 1))
    assert halfgnn.spmm(graph, x, torch.tensor([1.0, 1.0])).item() == float("inf")
    assert halfgnn.spmm(graph, x, torch.tensor([1.0, 1.0]), reduce="mean").item() == 60_000
    assert halfgnn.spmm(graph, x, torch.tensor([3.0, -2.0])).item() == 60_000
    assert halfgnn.spmm(graph, x, torch.tensor([1.0, 1.0]), bias=torch.tensor([-71_008.0])).item() == 48_992
    weight, bias = torch.tensor([2.0, 1.0], dtype=HALF), torch.tensor([-71_008.0])
    assert halfgnn.spmm(graph, x, weight, bias=bias, reduce="max").item() == 48_992
    assert halfgnn.spmm(graph.numpy(), x.numpy(), weight.numpy(), bias=bias.numpy(), reduce="max").item() == 48_992


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_gradient_of_a_float_weight_is_summed_in_float(dtype, heads):
    x = torch.full((1, 2048 * heads), 60.0, dtype=dtype)
    weight = torch.ones((1, heads) if heads > 1 else 1, requires_grad=True)
    halfgnn.spmm(one_edge(), x, weight).sum().backward()
    assert weight.grad.dtype == FLOAT
    assert weight.grad.flatten().tolist() == [122_880] * heads


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
def test_the_gradient_of_a_weight_in_a_mean_of_many_is_not_rounded_in_half(dtype):
    x = torch.full((70_000, 1), 1e-3, dtype=dtype)
    weight = torch.ones(70_000, requires_grad=True)
    halfgnn.spmm(star(70_000), x, weight, reduce="mean").sum().backward()
    assert weight.grad.dtype == FLOAT
    assert weight.grad[0].item() == pytest.approx(x[0].item() / 70_000, rel=1e-6)


def test_the_gradient_of_features_in_a_mean_of_many_has_the_factor_in_float():
    x = torch.ones(70_000, 1, dtype=HALF, requires_grad=True)
    weight = torch.full((70_000,), 1000.0, dtype=HALF, requires_grad=True)
    halfgnn.spmm(star(70_000), x, weight, reduce="mean").sum().backward()
    assert x.grad[0].item() == pytest.approx(1000 / 70_000, rel=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_factor_of_degrees_is_never_rounded_to_half(weighted):
    leaves = 2_000_000
    # One source of this number of edges, of which each destination but the first has one.
    graph = Graph((torch.zeros(leaves, dtype=torch.long), torch.arange(leaves)), size=(1, leaves))
    weight = torch.full((leaves,), 1000.0) if weighted else None
    x = torch.full((1, 1), 1.0 if weighted else 1000.0, dtype=HALF)
    y = halfgnn.spmm(graph, x, weight, norm="left")
    assert y[0].item() == pytest.approx(5e-4, rel=5e-4)
    if weighted:
        arrays = halfgnn.spmm(graph.numpy(), x.numpy(), weight.numpy(), norm="left")
        assert arrays[0].item() == pytest.approx(5e-4, rel=5e-4)
        half = halfgnn.spmm(graph, x, weight.half(), norm="left")
        assert half[0].item() == pytest.approx(5e-4, rel=5e-4)


@pytest.mark.parametrize("operator", ["gat", "gatv2"])
@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
def test_attention_reads_vectors_in_float(operator, dtype):
    graph = Graph(torch.tensor([[0, 1], [0, 0]]), 2)
    h = torch.tensor([[1e-3], [-1e-3]], dtype=dtype, requires_grad=True)
    vectors = [torch.full((1, 1), 1e5, requires_grad=True) for _ in range(2 if operator == "gat" else 1)]
    run = halfgnn.gat_attention if operator == "gat" else halfgnn.gatv2_attention
    y = run(graph, h, *vectors)
    assert y.dtype == dtype
    assert y[0].item() == pytest.approx(0.001, rel=8e-3)
    y.sum().backward()
    assert h.grad.dtype == dtype and h.grad.isfinite().all()
    assert all(vector.grad.dtype == FLOAT and vector.grad.isfinite().all() for vector in vectors)


def test_the_gradient_of_an_attention_vector_in_float_is_summed_in_float():
    # Of half alone the gradient of the vector would be some 10 % off.
    torch.manual_seed(0)
    graph = Graph(torch.randint(50, (2, 400)), 50)
    h = (1 + 1e-3 * torch.randn(50, 8)).half()
    att = [torch.randn(1, 8, requires_grad=True) for _ in range(2)]
    grads = []
    for rows in (h, h.float()):
        y = halfgnn.gat_attention(graph, rows, *att)
        weights = torch.linspace(-1, 1, y.numel()).half().view_as(y)
        grads.append(torch.autograd.grad((y.float() * weights).sum(), att))
    for mixed, right in zip(*grads, strict=True):
        torch.testing.assert_close(mixed, right, rtol=1e-4, atol=1e-7)


def test_products_of_two_formats_are_float():
    graph = one_edge()
    u, v = torch.full((1, 2048), 60.0, dtype=HALF), torch.ones(1, 2048)
    assert halfgnn.sddmm(graph, u, v).tolist() == [122_880]
    assert halfgnn.sddmm(graph, v, u.bfloat16()).dtype == FLOAT
    assert halfgnn.sddmm(graph.numpy(), u.numpy(), v.numpy()).tolist() == [122_880]
    with pytest.raises(ValueError, match="float64"):
        halfgnn.sddmm(graph, u, v.double())


def test_a_weight_keeps_its_format_under_autocast():
    x = torch.full((1, 2), 5e-4)
    weight = torch.full((1,), 70_000.0, requires_grad=True)
    with torch.autocast("cpu", dtype=HALF):
        y = halfgnn.spmm(one_edge(), x, weight)
    assert y.dtype == HALF and y[0].tolist() == pytest.approx([35.0] * 2, rel=1e-3)
    y.sum().backward()
    assert weight.grad.item() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("compiled", [False, True])
def test_mixed_formats_are_one_operator_where_torch_traces(compiled):
    graph = Graph(torch.randint(20, (2, 90), generator=torch.Generator().manual_seed(1)), 20).prepare()
    x = torch.randn(20, 7).half().requires_grad_()
    weight = torch.randn(90, 1, requires_grad=True)

    def run(x, weight):
        return halfgnn.spmm(graph, x, weight, norm="both", reduce="sum", bias=torch.ones(7)).float().square()

    step = torch.compile(run, backend="aot_eager", fullgraph=True) if compiled else run
    y = step(x, weight)
    grads = torch.autograd.grad(y.sum(), [x, weight])
    assert [grad.dtype for grad in grads] == [HALF, FLOAT]
    with torch.no_grad():
        expected = run(x.float(), weight)
    torch.testing.assert_close(y.detach(), expected, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("layer", ["GraphConv", "SAGEConv", "GATConv"])
def test_layers_of_dgl_read_parameters_in_their_own_format(layer):
    from halfgnn import dgl

    torch.manual_seed(2)
    graph = Graph(torch.randint(12, (2, 60)), 12).with_self_loops()
    x = torch.randn(12, 6).half()
    made = {
        "GraphConv": lambda: dgl.GraphConv(6, 5),
        "SAGEConv": lambda: dgl.SAGEConv(6, 6, "gcn").half(),
        "GATConv": lambda: dgl.GATConv(6, 5, 2),
    }[layer]()
    if layer == "GATConv":
        made.fc.half()
    assert made(graph, x).dtype == HALF
    expected = made.float()(graph, x.float())
    torch.testing.assert_close(made.half()(graph, x).float(), expected, rtol=1e-2, atol=1e-2)


def test_a_mean_with_itself_of_many_is_finite():
    from halfgnn import dgl

    count = 70_000
    graph = Graph((torch.arange(count), torch.zeros(count, dtype=torch.long)), count)
    layer = dgl.SAGEConv(1, 1, "gcn", bias=False).half()
    torch.nn.init.ones_(layer.fc_neigh.weight)
    y = layer(graph, torch.full((count, 1), 10.0, dtype=HALF))
    assert y[0].item() == pytest.approx(10.0, rel=1e-3)


# What decides structure, and sizes


def test_values_of_a_sparse_tensor_are_weights_whatever_they_are():
    index = torch.tensor([[0, 1, 2], [1, 0, 1]])
    values = torch.ones(3, requires_grad=True)
    adjacency = torch.sparse_coo_tensor(index, values, (3, 3))
    graph = Graph.from_sparse(adjacency)
    assert graph.weight is not None
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    halfgnn.spmm(graph, x).sum().backward()
    assert values.grad.tolist() == [7, 3, 7]
    assert Graph.from_sparse(adjacency, weighted=False).weight is None
    assert Graph.of(torch.sparse_coo_tensor(index, torch.ones(3), (3, 3)).to_sparse_csr()).weight is not None
    leaf = torch.sparse_coo_tensor(index, torch.ones(3), (3, 3)).coalesce().requires_grad_()
    halfgnn.spmm(Graph.of(leaf), x).sum().backward()
    assert leaf.grad.to_dense().sum().item() == 17


def test_values_of_a_scipy_matrix_are_weights_unless_they_are_booleans():
    sparse = pytest.importorskip("scipy.sparse")
    ones = sparse.csr_matrix(np.array([[0, 1.0], [1, 0]]))
    assert Graph.from_scipy(ones).weight.tolist() == [1, 1]
    assert Graph.from_scipy(ones, weighted=False).weight is None
    assert Graph.from_scipy(ones.astype(bool)).weight is None
    # New loops weigh what is asked for, of weights of one as well.
    assert Graph.from_scipy(ones).with_self_loops(2.0).weight.tolist() == [1, 1, 2, 2]


def test_weights_of_one_are_none_for_what_has_no_use_for_weights():
    sparse = pytest.importorskip("scipy.sparse")
    ones = sparse.csr_matrix(np.eye(4, k=1, dtype=np.float32) + np.eye(4, k=-1, dtype=np.float32))
    data = {"graph": ones, "x": np.ones((4, 2), dtype=np.float32), "y": np.zeros(4, dtype=np.int64)}
    assert len(list(halfgnn.Loader(data, "neighbor:2", 4))) == 1
    with pytest.raises(ValueError, match="unweighted"):
        halfgnn.Loader({**data, "graph": 2 * ones}, "neighbor:2", 4)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_weights_in_a_column_are_weights(kind):
    index = torch.tensor([[0, 1, 2], [1, 0, 1]])
    weight, x = torch.tensor([1.0, 2.0, 3.0]), torch.ones(3, 4)
    if kind == "numpy":
        index, weight, x = index.numpy(), weight.numpy(), x.numpy()
    expected = halfgnn.spmm(Graph(index, 3), x, weight).tolist()
    column = weight[:, None]
    assert halfgnn.spmm(Graph(index, 3), x, column).tolist() == expected
    for graph in (Graph(index, 3, weight=column), Graph(index, 3).with_weight(column)):
        assert tuple(graph.weight.shape) == (3,)
        assert halfgnn.spmm(graph, x).tolist() == expected
        assert tuple(graph.with_self_loops().weight.shape) == (6,)
    assert halfgnn.edge_softmax(Graph(index, 3), column).shape == (3, 1)
    for wrong in (weight[None], weight[:, None, None], weight[:2], column[:, :0]):
        with pytest.raises(ValueError, match="weight: should be 3|weight should be 3"):
            Graph(index, 3, weight=wrong)
        with pytest.raises(ValueError, match="weight should be 3"):
            halfgnn.spmm(Graph(index, 3), x, wrong)


def test_operands_of_two_libraries_are_refused_in_one_line():
    x = torch.ones(1, 2)
    for weight in (np.ones(1), [1.0]):
        with pytest.raises(ValueError, match="weight is .* and x is a torch tensor; convert one of them"):
            halfgnn.spmm(one_edge(), x, weight)
    with pytest.raises(ValueError, match="v is in NumPy arrays"):
        halfgnn.sddmm(one_edge(), x, x.numpy())
    with pytest.raises(ValueError, match="att_src is a ndarray and h is a tensor"):
        halfgnn.gat_attention(one_edge(), x, np.ones(2), torch.ones(2))


@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("size", [2**24 + 1, 10**9, 2**31 - 1])
def test_many_more_vertices_than_edges_are_refused_at_once(kind, size):
    index: Any = torch.tensor([[0, 1], [1, 0]])
    index = index.numpy() if kind == "numpy" else index
    for options in ({"num_nodes": size}, {"size": (2, size)}, {"size": (size, 2)}):
        with pytest.raises(ValueError, match=rf"{size} vertices with 2 edges; up to 16777216 are possible"):
            Graph(index, **options)
    index[0, 0] = size - 1
    with pytest.raises(ValueError, match="without gaps"):
        Graph(index)
    assert Graph(index % 2, 2**20).num_nodes == 2**20
    for wrong in (2.5, "3", 2**31, -1):
        with pytest.raises(ValueError, match="size: sources|vertices"):
            Graph(index % 2, wrong)


def test_many_heads_of_nothing_are_refused():
    with pytest.raises(ValueError, match="cannot be cut into 1000000000 heads"):
        halfgnn.sddmm(one_edge(), torch.ones(1, 0), torch.ones(1, 0), heads=10**9)
