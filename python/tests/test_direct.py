"""The operators that torch's dispatcher calls without Python, and the general ones."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")

import halfgnn  # noqa: E402
from halfgnn import Graph, _core, _eager, _library  # noqa: E402

direct = pytest.mark.skipif(_eager.reason is not None, reason=f"no direct operator: {_eager.reason}")
SIZE = (19, 23)


def edges(count=120, sources=19, destinations=19):
    generator = torch.Generator().manual_seed(5)
    source = torch.randint(0, sources, (count,), generator=generator)
    return torch.stack([source, torch.randint(0, destinations, (count,), generator=generator)])


def graph():
    return Graph(edges(), size=SIZE)


def operands(graph, x, weight=None, rows=None, columns=None, bias=None, epsilon=None, relu=False, maximum=False, heads=1):
    """Of the direct operator, and of the general one."""
    general = (*graph._a, None, None, None, x, weight, rows, columns, bias, epsilon, relu, maximum, heads)
    return _eager._given_spmm(*general), general


#: Of each direct operator, with general operands: x, u, planes, vectors and such as people's operands become.
OTHERS = ["sddmm", "edge_softmax", "edge_softmax_backward", "gat_attention", "gat_attention_backward"]
GIVEN = {
    "sddmm": _eager._given_sddmm,
    "edge_softmax": _eager._given_softmax,
    "edge_softmax_backward": _eager._given_softmax,
    "gat_attention": _eager._given_attention,
    "gat_attention_backward": _eager._given_attention_backward,
}


def others(name, of, dtype=torch.float32, device="cpu", heads=2, width=8, own=True, dropout=0.0, keep=True):
    """Operands of the general form of an operator."""
    torch.manual_seed(4)
    of = of.to(device).prepare()
    count, columns = (of.num_edges + 7) // 8 * 8, heads * width

    def random(*shape):
        return torch.randn(*shape).to(dtype).to(device)

    h, u, vectors, planes = random(of.num_src, columns), random(of.num_dst, columns), random(2, columns), random(heads, count)
    both = (*of._a, *of._t)
    if name == "sddmm":
        return *both, of._map, u, h, heads
    if name.startswith("edge_softmax"):
        # Behind the last edge there are zeros.
        planes[:, of.num_edges :] = 0
        return (*of._a, planes) if name == "edge_softmax" else (*of._a, planes.softmax(1), planes)
    seed = torch.tensor([5], dtype=torch.int32, device=device) if dropout else None
    layer = h, u if own else None, vectors
    forward = (*both, *layer, heads, 0.2, dropout, seed, keep)
    if name == "gat_attention":
        return forward
    y, positive, saved = torch.ops.halfgnn.gat_attention(*forward)
    return *of._t, *layer, y, positive, random(*y.shape), saved, heads, 0.2, dropout, seed


def called(name, operands):
    """Results of the direct operator, and of the general one."""
    given = GIVEN[name](*operands)
    both = getattr(torch.ops.halfgnn, f"{name}_direct")(*given), getattr(torch.ops.halfgnn, name)(*operands)
    return [results if isinstance(results, tuple) else (results,) for results in both]


def test_torch_of_2_11_has_what_it_takes():
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 11):
        pytest.skip("older torch may do without")
    if os.environ.get("HALFGNN_DISPATCH") == "python":
        pytest.skip("switched off")
    assert _eager.reason is None


@direct
@pytest.mark.parametrize("dtype, lanes", [(torch.float32, 4), (torch.float16, 8), (torch.bfloat16, 8)])
@pytest.mark.parametrize("kind", ["plain", "weighted", "scaled", "epilogue", "own", "maximum", "padded", "many"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_it_gives_the_bits_of_the_general_one(dtype, lanes, kind, device):
    torch.manual_seed(3)
    of, features = graph(), 2 * lanes
    if kind == "many":
        # More than one thread takes by itself.
        of, features = Graph(edges(3000), size=SIZE), 64
    if kind == "own":
        of = Graph(edges(), 23)
    of = of.to(device)
    x = torch.randn(of.num_src, features).to(dtype)
    options = {
        "weighted": {"weight": torch.randn(2, 120).to(dtype), "heads": 2},
        "scaled": {"rows": torch.rand(23), "columns": torch.rand(19)},
        "epilogue": {"bias": torch.randn(features), "relu": True},
        "own": {"epsilon": torch.tensor([0.5, 0, 0, 0]), "rows": torch.rand(23), "bias": torch.randn(features)},
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
        assert torch.equal(torch.ops.halfgnn.spmm_direct.plain(*ours[:5]), expected)
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
        {"epsilon": ones[:4]},
        {"epsilon": ones[:1], "graph": Graph(edges(), 23), "x": torch.randn(23, 8)},
    ]
    for misfit in misfits:
        ours, _ = operands(**{"graph": of, "x": x, **misfit})
        assert torch.ops.halfgnn.spmm_direct(*ours).ndim == 1, misfit
    assert torch.ops.halfgnn.spmm_direct(*operands(of, x)[0]).ndim == 2
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
    torch.library.opcheck(torch.ops.halfgnn.spmm_direct.plain, ours[:5])


@direct
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("own", [False, True])
def test_opcheck_of_others(name, own):
    for keep in (True,) if name == "gat_attention_backward" else (False, True):
        of = Graph(edges(), size=SIZE) if own else Graph(edges(), 19)
        # Of four heads, so that there is no gap between parts of what attention keeps, which would hold anything.
        given = GIVEN[name](*others(name, of, own=own, dropout=0.5, keep=keep, heads=4))
        torch.library.opcheck(getattr(torch.ops.halfgnn, f"{name}_direct").default, given)


@direct
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", ["own", "alike", "dropout", "many"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_others_give_the_bits_of_the_general_ones(dtype, name, kind, device):
    own, dropout, heads = kind != "alike", 0.4 * (kind == "dropout"), 3
    # More than one thread takes by itself, or fewer.
    index = edges(4000 if kind == "many" else 120)
    of = Graph(index, size=SIZE) if own else Graph(index, 19)
    operands = others(name, of, dtype, device, heads, own=own, dropout=dropout)
    before = [operand.clone() if isinstance(operand, torch.Tensor) else None for operand in operands]
    results = called(name, operands)
    for ours, general in zip(*results, strict=True):
        assert ours.dtype == general.dtype and ours.shape == general.shape
        assert ours.numel() == 0 or ours.stride() == general.stride()
    # What else the forward pass keeps has gaps between its parts, which holds anything.
    known = 2 if name == "gat_attention" else None
    for ours, general in list(zip(*results, strict=True))[:known]:
        assert torch.equal(ours, general)
    for operand, same in zip(operands, before, strict=True):
        assert same is None or torch.equal(operand, same)


@direct
@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_fit_is_refused_by_others(name):
    of = graph()
    operands = others(name, of, dropout=0.5)
    given = GIVEN[name](*operands)
    run = getattr(torch.ops.halfgnn, f"{name}_direct")
    first = lambda results: results[0] if isinstance(results, tuple) else results  # noqa: E731
    assert first(run(*given)).ndim == 2
    for at, operand in enumerate(given):
        if not isinstance(operand, torch.Tensor):
            continue
        larger = torch.zeros(operand.numel() + 8, dtype=operand.dtype)
        misfits = [operand.double(), larger[1 : 1 + operand.numel()].view(operand.shape)]
        # Words of a graph may be followed by others.
        misfits += [operand[:-1]] if at == 0 else [larger]
        if operand.ndim == 2:
            rows, columns = operand.shape
            misfits += [
                torch.zeros(columns, rows, dtype=operand.dtype).t(),
                torch.zeros(rows, columns + 8, dtype=operand.dtype)[:, :columns],
                torch.zeros(rows + 1, columns, dtype=operand.dtype),
                torch.zeros(rows, columns + 8, dtype=operand.dtype),
                torch.zeros(rows, columns - 3, dtype=operand.dtype),
                operand[None],
            ]
        for misfit in misfits:
            changed = (*given[:at], misfit, *given[at + 1 :])
            assert first(run(*changed)).ndim == 1, (at, misfit.dtype, misfit.shape, misfit.stride())
    # No heads, or more than there are columns for.
    a, shape, edges_, rest, *others_ = given
    for heads in (0, 3):
        assert first(run(a, shape, edges_, (rest & ~0xFFFFFFF8) | 8 * heads, *others_)).ndim == 1


@direct
@pytest.mark.parametrize("name", ["sddmm", "edge_softmax", "gat_attention"])
def test_others_are_called_and_copy_what_lies_otherwise(name, monkeypatch):
    of, heads = graph().prepare(), 3
    index = edges()

    def nothing(*_):
        raise AssertionError("the general operator was called")

    for operator in (_eager._product, _eager._sddmm, _eager._softmax, _eager._softmax_backward, _eager._attention, _eager._attention_backward):
        assert operator.is_direct
        monkeypatch.setattr(operator, "_general", nothing)
    for width in (8, 5):
        u, v = torch.randn(23, heads * width), torch.randn(19, heads * width)
        # Columns that do not follow one another, and rows that begin elsewhere.
        operands = [x.t().contiguous().t().requires_grad_() for x in (v, u)]
        if name == "sddmm":
            results = halfgnn.sddmm(of, operands[1], operands[0], heads=heads)
            expected = (u[index[1]] * v[index[0]]).view(120, heads, width).sum(2)
            assert torch.allclose(results, expected, atol=1e-5)
            one = halfgnn.sddmm(of, u[:, 1:8], v[:, 1:8])
            assert torch.allclose(one, (u[index[1], 1:8] * v[index[0], 1:8]).sum(1), atol=1e-5)
        elif name == "edge_softmax":
            operands = [torch.randn(240, heads)[::2].requires_grad_()]
            results = halfgnn.edge_softmax(of, operands[0])
            sums = torch.zeros(23, heads).index_add(0, index[1], results)
            assert torch.allclose(sums, (of.in_degrees() > 0).float()[:, None].expand(23, heads), atol=1e-5)
        else:
            att = torch.randn(heads, width)
            results = halfgnn.gat_attention(of, operands[0], att, att, heads=heads, h_dst=operands[1])
            same = halfgnn.gat_attention(of, v, att, att, heads=heads, h_dst=u)
            assert torch.equal(results, same)
        # A gradient that is one number everywhere.
        first, *_ = torch.autograd.grad(results.sum(), operands)
        if name == "sddmm":
            assert torch.allclose(first, torch.zeros(19, heads * width).index_add(0, index[0], u[index[1]]), atol=1e-5)
        elif name == "edge_softmax":
            assert first.abs().max() < 1e-6


@direct
def test_large_operands_are_copied_once(monkeypatch):
    """Where a result is too large for the direct operator, only the general one makes a copy of rows of an odd width."""
    of, x = graph(), torch.randn(19, 5)
    copies = []
    rows = _library._rows

    def counted(tensor, *arguments, **named):
        result = rows(tensor, *arguments, **named)
        copies.append(result[0] is not tensor)
        return result

    monkeypatch.setattr(_library, "_rows", counted)
    expected = halfgnn.spmm(of, x, reduce="mean")
    assert copies == [True]
    run, called = _eager._product._general, []
    monkeypatch.setattr(_eager._product, "_general", lambda *operands: called.append(True) or run(*operands))
    monkeypatch.setattr(_core, "LARGE", x.numel() * x.element_size() - 1)
    assert torch.equal(halfgnn.spmm(of, x, reduce="mean"), expected)
    assert called == [True] and copies == [True, True]


@pytest.mark.parametrize(("format", "columns", "stride"), [(0, 47, 64), (1, 100, 128), (0, 64, 64), (0, 27, 32), (2, 47, 48)])
def test_rows_that_sums_read_lie_at_whole_lines(format, columns, stride):
    assert _core.gathered_stride(format, columns) == stride


@pytest.mark.parametrize("size", [(0, 0), (3, 3)])
def test_graphs_without_edges(size):
    of = Graph(torch.zeros((2, 0), dtype=torch.long), size=size)
    x = torch.randn(size[0], 8, requires_grad=True)
    att = torch.randn(2, 4, requires_grad=True)
    results = [
        halfgnn.spmm(of, x),
        halfgnn.sddmm(of, x, x, heads=2),
        halfgnn.edge_softmax(of, torch.zeros(0, 2, requires_grad=True)),
        halfgnn.gat_attention(of, x, att, att, heads=2),
    ]
    assert [tuple(result.shape) for result in results] == [(size[1], 8), (0, 2), (0, 2), (size[1], 8)]
    for result in results:
        assert not result.any()
        result.sum().backward()
    assert not x.grad.any() and not att.grad.any()


def test_a_second_derivative_that_there_is_not_is_refused():
    of, x = Graph(edges(), 19), torch.randn(19, 8, requires_grad=True)
    att, e = torch.randn(1, 8), torch.randn(120, requires_grad=True)
    for y, operand in ((halfgnn.edge_softmax(of, e) ** 2, e), (halfgnn.gat_attention(of, x, att, att) ** 2, x)):
        (first,) = torch.autograd.grad(y.sum(), operand, create_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative; PyG's layers have one"):
            (first**2).sum().backward()


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
    cpu = next(line for line in off.stdout.splitlines() if line.startswith("CPU: "))
    machine = platform.machine().lower().replace("amd64", "x86_64").replace("arm64", "aarch64")
    assert f" on {machine} with plain" in cpu and cpu.endswith(" threads"), cpu
    assert "\noperators are called through Python: HALFGNN_DISPATCH=python\n" in off.stdout
    if _eager.reason is None:
        lines = run("direct").stdout.splitlines()
        assert "called directly: spmm, sddmm, edge_softmax, gat_attention" in lines
        assert "called through Python: gatv2_attention, attention" in lines
    assert "HALFGNN_DISPATCH: 'other'; direct and python are possible" in run("other").stderr
