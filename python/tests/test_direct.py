"""The operator that torch's dispatcher calls without Python, beside the general one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import halfgnn  # noqa: E402
from halfgnn import Graph, _eager  # noqa: E402

direct = pytest.mark.skipif(_eager.reason is not None, reason=f"no direct operator: {_eager.reason}")
SIZE = (19, 23)


def edges(count=120, sources=19, destinations=19):
    generator = torch.Generator().manual_seed(5)
    source = torch.randint(0, sources, (count,), generator=generator)
    return torch.stack([source, torch.randint(0, destinations, (count,), generator=generator)])


def graph():
    return Graph(edges(), size=SIZE)


def operands(graph, x, weight=None, rows=None, columns=None, bias=None, relu=False, maximum=False, heads=1):
    """Of the direct operator, and of the general one."""
    a, sizes = graph._a
    shape, edges_, rest = _eager._packed(sizes)
    given = (x, weight, rows, columns, bias)
    options = rest + 4 * heads + 2 * relu + maximum
    return (a, *given, shape, edges_, options), (a, sizes, None, None, None, *given, relu, maximum, heads)


def test_torch_of_2_11_has_what_it_takes():
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11):
        pytest.skip("older torch may do without")
    if os.environ.get("HALFGNN_DISPATCH") == "python":
        pytest.skip("switched off")
    assert _eager.reason is None


@direct
@pytest.mark.parametrize("dtype, lanes", [(torch.float32, 4), (torch.float16, 8), (torch.bfloat16, 8)])
@pytest.mark.parametrize("kind", ["plain", "weighted", "scaled", "epilogue", "maximum", "padded", "many"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_it_gives_the_bits_of_the_general_one(dtype, lanes, kind, device):
    torch.manual_seed(3)
    of, features = graph(), 2 * lanes
    if kind == "many":
        # More than one thread takes by itself.
        of, features = Graph(edges(3000), size=SIZE), 64
    of = of.to(device)
    x = torch.randn(19, features).to(dtype)
    options = {
        "weighted": {"weight": torch.randn(2, 120).to(dtype), "heads": 2},
        "scaled": {"rows": torch.rand(23), "columns": torch.rand(19)},
        "epilogue": {"bias": torch.randn(features), "relu": True},
        "maximum": {"maximum": True},
    }.get(kind, {})
    if kind == "padded":
        # As operators leave them: columns that are no whole vectors, rows that are.
        x = torch.randn(19, features).to(dtype)[:, : features - 3]
    # Moved as it lies, padding and all.
    base = x if x._base is None else x._base
    x = base.to(device)[:, : x.shape[1]]
    options = {name: of_.to(device) if isinstance(of_, torch.Tensor) else of_ for name, of_ in options.items()}
    ours, general = operands(of, x, **options)
    y, expected = torch.ops.halfgnn.spmm_direct(*ours), torch.ops.halfgnn.spmm(*general)
    if not options:
        assert torch.equal(torch.ops.halfgnn.spmm_direct.plain(*ours[:2], *ours[-3:]), expected)
    assert y.shape == expected.shape and y.stride() == expected.stride() and torch.equal(y, expected)
    assert y.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


@direct
def test_what_does_not_fit_is_refused():
    of = graph()
    x = torch.randn(19, 8)
    ones = torch.ones(1000)
    misfits = [
        {"x": torch.randn(19, 7)},
        {"x": torch.randn(8, 19).t()},
        {"x": torch.randn(19, 16)[:, :8]},
        {"x": torch.randn(19, 9)[:, 1:]},
        {"x": torch.randn(20, 8)},
        {"x": torch.randn(19, 2, 4)},
        {"x": x.double()},
        {"x": torch.ones(19, 8, dtype=torch.int32)},
        {"weight": ones[:120].double()[None]},
        {"weight": ones[:120].half()[None]},
        {"weight": ones[:119]},
        {"weight": torch.ones(120, 2).t(), "heads": 2},
        {"weight": torch.ones(3, 120), "heads": 3},
        {"rows": ones[:22]},
        {"rows": ones[:46:2]},
        {"columns": ones[1:20]},
        {"columns": ones[:19], "weight": torch.ones(1, 120)},
        {"bias": ones[:7]},
        {"bias": ones[:8].half()},
        {"maximum": True, "rows": ones[:5]},
    ]
    for misfit in misfits:
        ours, _ = operands(of, **{"x": x, **misfit})
        assert torch.ops.halfgnn.spmm_direct(*ours).ndim == 1, misfit
    (a, *rest), _ = operands(of, x)
    for words in (a[:-4], a.float(), a[1:], a.long()):
        assert torch.ops.halfgnn.spmm_direct(words, *rest).ndim == 1


@direct
def test_what_is_too_large_for_memory_is_said_in_a_line(capfd):
    # More than addresses there are: with less, a machine that promises memory it has not would kill the tests.
    of = Graph(torch.zeros((2, 1), dtype=torch.long), size=(1, 2**24))
    halfgnn.spmm(graph(), torch.ones(19, 8))
    with pytest.raises(RuntimeError, match="allocate"):
        halfgnn.spmm(of, torch.ones(1, 2**24))
    assert "frame #" not in capfd.readouterr().err


@direct
def test_people_get_the_same_of_what_is_refused():
    of = graph()
    x = torch.randn(19, 7)
    expected = torch.zeros(23, 7).index_add(0, edges()[1], x[edges()[0]])
    for same in (x, x.t().contiguous().t(), torch.cat([x, x], 1)[:, 7:], x.reshape(19, 1, 7)):
        y = halfgnn.spmm(of, same).reshape(23, 7)
        assert torch.allclose(y, expected, atol=1e-5)
    with pytest.raises(ValueError, match="rows of x should be 19, are 18"):
        halfgnn.spmm(of, x[:18])
    with pytest.raises(ValueError, match="float64 is no format"):
        halfgnn.spmm(of, x.double())
    with pytest.raises(ValueError, match=r"the graph is on meta; move it with graph.to\('cpu'\)"):
        halfgnn.spmm(of.to("meta"), x)
    with pytest.raises(ValueError, match="bias is on meta and x on cpu"):
        halfgnn.spmm(of, x, bias=torch.ones(7, device="meta"))


@direct
def test_opcheck():
    ours, _ = operands(graph(), torch.randn(19, 8), rows=torch.rand(23))
    torch.library.opcheck(torch.ops.halfgnn.spmm_direct.default, ours)
    torch.library.opcheck(torch.ops.halfgnn.spmm_direct.plain, (*ours[:2], *ours[-3:]))


@direct
def test_modes_transforms_and_the_profiler_see_it():
    from torch.utils._python_dispatch import TorchDispatchMode

    of, x = graph(), torch.randn(19, 8)
    halfgnn.spmm(of, x)
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Mode():
        halfgnn.spmm(of, x)
    assert any("halfgnn.spmm" in name for name in seen)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        halfgnn.spmm(of, x)
    assert any("halfgnn::spmm" in event.key for event in profile.key_averages())
    batch = torch.randn(3, 19, 8)
    together = torch.func.vmap(lambda x: halfgnn.spmm(of, x))(batch)
    assert torch.equal(together, torch.stack([halfgnn.spmm(of, x) for x in batch]))


def test_gradients_by_both_ways():
    of, other = graph().prepare(), torch.randn(23, 8)
    x = torch.randn(19, 8, requires_grad=True)
    (expected,) = torch.autograd.grad((halfgnn.spmm(of, x) * other).sum(), x)
    with torch.no_grad():
        assert not halfgnn.spmm(of, x).requires_grad
    general = operands(of, x)[1]
    both = (*of._a, *of._t, of._map, *general[5:])
    (again,) = torch.autograd.grad((torch.ops.halfgnn.spmm(*both) * other).sum(), x)
    assert torch.equal(expected, again)
    # A gradient that is one number everywhere, and one of an odd width.
    for width in (8, 7):
        ones = torch.randn(19, width, requires_grad=True)
        (sums,) = torch.autograd.grad(halfgnn.spmm(of, ones).sum(), ones)
        assert torch.equal(sums[:, 0], of.out_degrees().float()) and torch.equal(sums[:, -1], sums[:, 0])
    # What only the bias learns is learnt as well.
    bias = torch.zeros(8, requires_grad=True)
    (learnt,) = torch.autograd.grad(halfgnn.spmm(of, x.detach(), bias=bias).sum(), bias)
    assert torch.equal(learnt, torch.full((8,), 23.0))


def test_autocast_is_seen_where_no_gradient_is_wanted():
    x = torch.randn(19, 8)
    # The first call is the one that imports.
    assert halfgnn.spmm(graph(), x).dtype == torch.float32
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert halfgnn.spmm(graph(), x).dtype == torch.bfloat16


def test_many_threads_at_once():
    of, x = Graph(edges(3000), size=SIZE), torch.randn(19, 64)
    small, few = graph(), torch.randn(19, 8)
    expected = halfgnn.spmm(of, x), halfgnn.spmm(small, few)
    wrong = []

    def work():
        for _ in range(50):
            results = halfgnn.spmm(of, x), halfgnn.spmm(small, few)
            wrong.extend(1 for got, right in zip(results, expected, strict=True) if not torch.equal(got, right))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_it_can_be_switched_off():
    program = (
        "import torch, halfgnn; g = halfgnn.Graph(torch.tensor([[0, 1], [1, 0]])); "
        "print(halfgnn.spmm(g, torch.tensor([[1.0], [2.0]])).tolist()); halfgnn.show_config()"
    )

    def run(way):
        return subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "HALFGNN_DISPATCH": way}, capture_output=True, text=True
        )

    off = run("python")
    assert off.returncode == 0, off.stderr
    assert off.stdout.startswith("[[2.0], [1.0]]")
    assert "spmm is called through Python: HALFGNN_DISPATCH=python" in off.stdout
    if _eager.reason is None:
        assert "spmm is called directly" in run("direct").stdout
    assert "HALFGNN_DISPATCH: 'other'; direct and python are possible" in run("other").stderr
