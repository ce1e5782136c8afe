"""The operators, on NumPy arrays and on torch tensors.

Torch's are differentiable, run on the CPU and on GPUs in half, bfloat16 and float, and under autocast in its format; NumPy's
run on the CPU, in half and float. All sums are float and rounded once, so that in half nothing overflows but a result that half cannot
hold. The same operands give the same bits, on any number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from .graph import Graph, is_tensor

if TYPE_CHECKING:
    import torch

#: :func:`halfgnn._eager.quick_spmm`, once torch is there.
_quick: Any = None

#: Vectors of 16 bytes of the widest head that attention by dot products takes in one operator.
_WIDEST_VECTORS = 64

Reduce = Literal["sum", "mean", "max"]
Norm = Literal["none", "left", "right", "both"]


def spmm(
    graph: Any,
    x: Any,
    weight: Any = None,
    *,
    reduce: Reduce = "sum",
    norm: Norm = "none",
    bias: Any = None,
    epsilon: Any = None,
    relu: bool = False,
) -> Any:
    """The sum, mean or maximum over each destination's edges of the sources' rows, times the edges' weights.

    Args:
        graph: a :class:`Graph`, or what :meth:`Graph.of` takes (which makes one at each call).
        x: features of the sources, sources × F for any F; or sources × heads × D.
        weight: a number for each edge, E, E × 1 or E × heads, in the order of the edges; by default the graph's own weights. It
            is read in its own format, whatever that of ``x`` is.
        reduce: what becomes of the products. A destination without edges has zeros.
        norm: ``right`` divides by the degree of the destination, ``left`` by that of the source, ``both`` by the roots of both.
            Of sums only.
        bias: added to each row, F.
        epsilon: one number, or a tensor of one: ``(1 + epsilon)`` times a vertex's own row of ``x`` is added, as a GIN does. Of sums and
            means, of a graph whose destinations are its sources.
        relu: whether negative results become zero.

    Returns:
        destinations × F, in the format of ``x``; destinations × heads × D for such an ``x``. Each gradient is in the format of its
        operand.

    Raises:
        ValueError: shapes do not fit the graph, or there is no such operator.

    >>> import numpy as np, halfgnn
    >>> graph = halfgnn.Graph(np.array([[0, 1, 2], [1, 2, 1]]))  # 0 → 1, 1 → 2, 2 → 1
    >>> halfgnn.spmm(graph, np.array([[1.0], [2.0], [4.0]], dtype=np.float32))
    array([[0.],
           [5.],
           [2.]], dtype=float32)
    """
    graph = graph if isinstance(graph, Graph) else Graph.of(graph)
    if _quick is not None and weight is None and graph.weight is None and reduce == "sum" and norm == "none" and epsilon is None:
        y = _quick(graph, x, None, None, bias, relu, False)
        if y is not None:
            return y
    if reduce not in ("sum", "mean", "max"):
        raise ValueError(f"reduce: {reduce!r}; sum, mean and max are possible")
    if norm not in ("none", "left", "right", "both"):
        raise ValueError(f"norm: {norm!r}; none, left, right and both are possible")
    if reduce != "sum" and norm != "none":
        raise ValueError(f"norm {norm!r} is of sums, and reduce is {reduce!r}; leave one of them out")
    if epsilon is not None and (reduce == "max" or norm != "none"):
        raise ValueError("epsilon is of sums without a norm and of means; add the rows themselves to what comes out")
    graph = _on(graph, x)
    if weight is None:
        weight = graph.weight
    row_scale = column_scale = None
    if reduce == "mean":
        row_scale = graph._factors("in", -1.0)
    elif norm == "both":
        row_scale, column_scale = graph._factors("in", -0.5), graph._factors("out", -0.5)
    elif norm == "right":
        row_scale = graph._factors("in", -1.0)
    elif norm == "left":
        column_scale = graph._factors("out", -1.0)
    scales = row_scale, column_scale
    return scaled_spmm(graph, x, weight, scales, bias=bias, epsilon=epsilon, relu=relu, maximum=reduce == "max")


def scaled_spmm(
    graph: Graph,
    x: Any,
    weight: Any,
    scales: tuple[Any, Any],
    *,
    bias: Any = None,
    epsilon: Any = None,
    relu: bool = False,
    maximum: bool = False,
) -> Any:
    """:func:`spmm` with factors of rows and of columns in place of a norm."""
    if weight is None and epsilon is None and _quick is not None:
        y = _quick(graph, x, *scales, bias, relu, maximum)
        if y is not None:
            return y
    x, heads, shape = _heads("spmm", "x", x, graph.num_src)
    heads = _check_weight(graph, x, weight, heads)
    if bias is not None and tuple(bias.shape) != (x.shape[1],):
        raise ValueError(f"spmm: bias should be {x.shape[1]}, is {tuple(bias.shape)}")
    if bias is not None and is_tensor(x) and (not is_tensor(bias) or bias.device != x.device):
        where = f"on {bias.device}" if is_tensor(bias) else "in NumPy arrays"
        raise ValueError(f"spmm: bias is {where} and x on {x.device}; move one of them")
    if epsilon is not None:
        epsilon = _one_number(graph, x, epsilon)
    if is_tensor(x):
        y = _torch_spmm(graph, x, weight, heads, scales, bias, epsilon, relu, maximum)
    else:
        from . import _numpy

        weight = None if weight is None else _columns(weight)
        y = _numpy.spmm(graph, x, weight, heads, scales, bias, epsilon, relu, maximum)
    return y if shape is None else y.reshape(len(y), *shape)


def _one_number(graph: Graph, x: Any, epsilon: Any) -> Any:
    """An epsilon as a float, or as the tensor that it is."""
    if graph.num_dst != graph.num_src:
        raise ValueError(
            f"spmm: epsilon is of graphs whose destinations are their sources, and this has {graph.num_dst} and {graph.num_src}"
        )
    if not is_tensor(epsilon):
        return float(epsilon)
    if epsilon.numel() != 1:
        raise ValueError(f"spmm: epsilon should be one number, is {tuple(epsilon.shape)}")
    if not is_tensor(x):
        raise ValueError("spmm: epsilon is a tensor and x a NumPy array; give a number")
    if epsilon.device != x.device:
        raise ValueError(f"spmm: epsilon is on {epsilon.device} and x on {x.device}; move one of them")
    return epsilon


def sddmm(graph: Any, u: Any, v: Any, *, heads: int = 1) -> Any:
    """The dot product of each edge's ends: of the destination's row of ``u`` and the source's of ``v``.

    Args:
        graph: as of :func:`spmm`.
        u: destinations × F, or destinations × heads × D.
        v: sources × F, or sources × heads × D.
        heads: into how many equal parts rows of F are cut, with a product each.

    Returns:
        E, or E × heads where there are several or the operands have them; in the format of both, or in float where they have two.

    Raises:
        ValueError: shapes do not fit the graph or one another.

    >>> import numpy as np, halfgnn
    >>> graph = halfgnn.Graph(np.array([[0, 1], [1, 0]]))  # 0 → 1, 1 → 0
    >>> u = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    >>> halfgnn.sddmm(graph, u, np.eye(2, dtype=np.float32))
    array([3., 2.], dtype=float32)
    """
    graph = graph if isinstance(graph, Graph) else Graph.of(graph)
    graph = _on(graph, u)
    u, heads_of_u, shape = _heads("sddmm", "u", u, graph.num_dst)
    v, heads_of_v, _ = _heads("sddmm", "v", v, graph.num_src)
    if u.shape[1] != v.shape[1] or heads_of_u != heads_of_v:
        raise ValueError(f"sddmm: u has {u.shape[1]} columns and v has {v.shape[1]}; they should be as many")
    heads = heads_of_u or heads
    if heads < 1 or u.shape[1] % heads or (heads_of_u is None and heads > max(u.shape[1], 1)):
        raise ValueError(f"sddmm: {u.shape[1]} columns cannot be cut into {heads} heads")
    flat = heads == 1 and shape is None
    if is_tensor(u):
        return _torch_sddmm(graph, u, v, heads, flat)
    from . import _numpy

    e = _numpy.sddmm(graph, u, v, heads)
    return e[:, 0] if flat else e


def edge_softmax(graph: Any, e: Any) -> Any:
    """Softmax over the edges of each destination.

    Args:
        graph: as of :func:`spmm`.
        e: a number for each edge, E, or E × heads.

    Returns:
        As ``e``, in its format.

    Raises:
        ValueError: there is not a number for each edge.

    >>> import numpy as np, halfgnn
    >>> graph = halfgnn.Graph(np.array([[0, 1, 2], [1, 1, 0]]))  # 0 → 1, 1 → 1, 2 → 0
    >>> halfgnn.edge_softmax(graph, np.array([7.0, 7.0, 3.0], dtype=np.float32))
    array([0.5, 0.5, 1. ], dtype=float32)
    """
    graph = graph if isinstance(graph, Graph) else Graph.of(graph)
    graph = _on(graph, e)
    if e.ndim not in (1, 2) or e.shape[0] != graph.num_edges:
        raise ValueError(
            f"edge_softmax: e should be {graph.num_edges}, one for each edge, or that times heads, is {tuple(e.shape)}"
        )
    if is_tensor(e):
        return _torch_softmax(graph, e)
    from . import _numpy

    result = _numpy.edge_softmax(graph, _columns(e))
    return result if e.ndim == 2 else result[:, 0]


def gat_attention(
    graph: Any,
    h: torch.Tensor,
    att_src: torch.Tensor,
    att_dst: torch.Tensor,
    *,
    heads: int = 1,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    h_dst: torch.Tensor | None = None,
) -> torch.Tensor:
    """GAT's aggregation: a weighted sum over each destination's edges of the sources' rows, head by head.

    The weights are the softmax of ``LeakyReLU(att_dst · h_dst[i] + att_src · h[j])``. No array of edges is made, neither forward nor
    backward.

    Torch tensors only. Weights and their softmax are float.

    Args:
        graph: as of :func:`spmm`; its weights have no part in this, so that it must have none.
        h: features of the sources, sources × (heads · D).
        att_src: vectors of the sources, heads × D (or 1 × heads × D).
        att_dst: vectors of the destinations.
        heads: number of heads.
        negative_slope: of the LeakyReLU below zero.
        dropout: probability of a weight to be dropped, in [0, 1); the others are divided by its complement.
        h_dst: features of the destinations, where they are others: by default the first rows of ``h``.

    Returns:
        destinations × (heads · D), in the format of ``h``.

    Raises:
        ValueError: shapes do not fit, or a number is out of range.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 1, 2], [1, 1, 0]]))  # 0 → 1, 1 → 1, 2 → 0
    >>> att = torch.zeros(1, 3)  # equal scores: the means of the sources
    >>> halfgnn.gat_attention(graph, torch.eye(3), att, att)
    tensor([[0.0000, 0.0000, 1.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    name = "gat_attention"
    vectors = {"att_src": att_src, "att_dst": att_dst}
    graph, h, h_dst = _attended(name, graph, h, h_dst, heads, dropout, vectors)
    of = _attending(name, h, h_dst, (att_dst, att_src), heads, dropout)
    *both, _ = _both(graph, of.learns)
    run = _torch_operator(name, of.h)
    y = run(*both, of.h, of.h_dst, of.vectors, heads, negative_slope, dropout, of.seed, of.learns)[0]
    return _narrowed(y, heads, of.width).to(of.format)


def gatv2_attention(
    graph: Any,
    h: torch.Tensor,
    att: torch.Tensor,
    *,
    heads: int = 1,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    h_dst: torch.Tensor | None = None,
) -> torch.Tensor:
    """GATv2's aggregation: a weighted sum over each destination's edges of the sources' rows, head by head.

    The weights are the softmax of ``att · LeakyReLU(h_dst[i] + h[j])``. Some numbers an edge and head are stored during a pass, and
    none after it.

    Torch tensors only. Scores, weights and their softmax are float.

    Args:
        graph: as of :func:`spmm`; its weights have no part in this, so that it must have none.
        h: features of the sources, sources × (heads · D).
        att: the vectors of the scores, heads × D (or 1 × heads × D).
        heads: number of heads.
        negative_slope: of the LeakyReLU below zero.
        dropout: probability of a weight to be dropped, in [0, 1); the others are divided by its complement.
        h_dst: features of the destinations, where they are others: by default the first rows of ``h``.

    Returns:
        destinations × (heads · D), in the format of ``h``.

    Raises:
        ValueError: shapes do not fit, or a number is out of range.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 1, 2], [1, 1, 0]]))  # 0 → 1, 1 → 1, 2 → 0
    >>> att = torch.zeros(1, 3)  # equal scores: the means of the sources
    >>> halfgnn.gatv2_attention(graph, torch.eye(3), att)
    tensor([[0.0000, 0.0000, 1.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    name = "gatv2_attention"
    graph, h, h_dst = _attended(name, graph, h, h_dst, heads, dropout, {"att": att})
    of = _attending(name, h, h_dst, (att,), heads, dropout)
    *both, _ = _both(graph, of.learns)
    run = _torch_operator(name, of.h)
    y = run(*both, of.h, of.h_dst, of.vectors, heads, negative_slope, dropout, of.seed)[0]
    return _narrowed(y, heads, of.width).to(of.format)


def attention(
    graph: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    heads: int = 1,
    scale: float | None = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attention by dot products: a weighted sum over each destination's edges of the sources' values, head by head.

    The weights are the softmax of ``scale · q[i] · k[j]``. Nothing is stored for an edge, in the forward and in the backward pass.

    Torch tensors only. Scores, weights and their softmax are float. Heads of more than 512 columns, in float32 256, are computed by
    :func:`sddmm`, :func:`edge_softmax` and :func:`spmm` in float, which store numbers for each edge.

    Args:
        graph: as of :func:`spmm`; it must have no weights.
        q: queries of the destinations, destinations × (heads · D), or destinations × heads × D.
        k: keys of the sources, likewise.
        v: values of the sources, likewise.
        heads: number of heads, where ``q`` has two dimensions.
        scale: factor of the scores; by default ``1 / sqrt(D)``.
        dropout: probability of a weight to be dropped, in [0, 1); the others are divided by its complement.

    Returns:
        In the shape and format of ``q``. A destination without edges has zeros.

    Raises:
        ValueError: shapes do not fit, or a number is out of range.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 1, 2], [1, 1, 0]]))  # 0 → 1, 1 → 1, 2 → 0
    >>> x = torch.eye(3)
    >>> halfgnn.attention(graph, torch.zeros(3, 3), x, x)  # equal scores: the means of the sources
    tensor([[0.0000, 0.0000, 1.0000],
            [0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    import torch

    from ._tensors import FORMATS

    name = "attention"
    graph = graph if isinstance(graph, Graph) else Graph.of(graph)
    for what, value in (("q", q), ("k", k), ("v", v)):
        if not is_tensor(value):
            raise ValueError(f"{name}: {what} is no torch tensor; make one with torch.from_numpy")
        if value.device != q.device:
            raise ValueError(f"{name}: {what} is on {value.device} and q on {q.device}; move one of them")
    graph = _on(graph, q)
    if graph.weight is not None:
        raise ValueError(f"{name}: the graph has weights, which attention does not read; pass graph.unweighted()")
    flat = []
    shape = None
    for what, value, rows in (("q", q, graph.num_dst), ("k", k, graph.num_src), ("v", v, graph.num_src)):
        value, found, of_rows = _heads(name, what, value, rows)
        flat.append(value)
        if what == "q":
            shape, heads = of_rows, found or heads
        if value.shape[1] != flat[0].shape[1]:
            raise ValueError(f"{name}: {what} has {value.shape[1]} columns and q has {flat[0].shape[1]}; they should be as many")
        if found not in (None, heads):
            raise ValueError(f"{name}: {what} has {found} heads and q has {heads}; they should be as many")
    columns = flat[0].shape[1]
    if heads < 1 or columns % heads or columns == 0:
        raise ValueError(f"{name}: {columns} columns cannot be cut into {heads} heads")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"{name}: dropout should be in [0, 1), is {dropout}")
    flat = [_format(name, value) for value in flat]
    result = flat[0].dtype
    if any(value.dtype != result for value in flat):
        flat = [value.float() for value in flat]
    learns = _gradients(*flat)
    lanes = FORMATS[flat[0].dtype][1]
    width = columns // heads
    scale = width**-0.5 if scale is None else float(scale)
    if width > _WIDEST_VECTORS * lanes:
        operands = flat[0].float(), flat[1].float(), flat[2].float()
        y = _attention_step_by_step(graph, operands, heads, scale, dropout).to(result)
        return y if shape is None else y.reshape(len(y), *shape)
    if heads > 1:
        flat = [_widened(value, heads, lanes)[0] for value in flat]
    seed = None
    if dropout > 0.0:
        seed = torch.randint(-(2**31), 2**31 - 1, (1,), dtype=torch.int32, device=q.device)
    *both, _ = _both(graph, learns)
    run = _torch_operator("dot_attention", flat[0])
    y = _narrowed(run(*both, *flat, heads, scale, dropout, seed)[0], heads, width).to(result)
    return y if shape is None else y.reshape(len(y), *shape)


#: Activations of :func:`message_sum`, in the order in which the operator numbers them.
ACTS = ("identity", "relu", "leaky_relu", "sigmoid", "tanh", "softplus")

#: Rows of destinations, of sources and of edges, or None.
Terms = tuple["torch.Tensor | None", "torch.Tensor | None", "torch.Tensor | None"]


def message_sum(
    graph: Any,
    a: Terms,
    b: Terms = (None, None, None),
    *,
    acts: tuple[str, str] = ("relu", "identity"),
    reduce: Literal["sum", "mean"] = "sum",
) -> torch.Tensor:
    """Sums of messages that are computed of both ends of an edge and of the edge's own row: ``Σ f(a) ⊙ g(b)`` over each destination's edges,
    where ``a`` and ``b`` are sums of up to three rows each. Nothing is stored for an edge but its own rows.

    Torch tensors only. Sums are float and rounded once; with ``reduce="mean"`` they are divided before.

    Args:
        graph: as of :func:`spmm`; without weights.
        a: matrices of destinations, of sources and of edges, each of F columns or None; at least one is given. Rows of edges are in the
            order in which edges are given.
        b: likewise; with none, a message is ``f(a)``.
        acts: ``f`` and ``g``: identity, relu, leaky_relu (slope 0.01), sigmoid, tanh or softplus.
        reduce: sums or means.

    Returns:
        destinations × F, in the format of the matrices; zeros where a destination has no edges.

    Raises:
        ValueError: shapes do not fit, or a name is unknown.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 2], [1, 1]]), 3)
    >>> x, e = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[-4.0], [0.5]])
    >>> halfgnn.message_sum(graph, (None, x, e))  # GINE's: relu(1 - 4) + relu(3 + 0.5)
    tensor([[0.0000],
            [3.5000],
            [0.0000]])
    """
    name = "message_sum"
    graph = graph if isinstance(graph, Graph) else Graph.of(graph)
    terms = message_terms(graph, a, b)
    graph = _on(graph, next(x for x in terms if x is not None))
    if graph.weight is not None:
        raise ValueError(f"{name}: the graph has weights, which messages do not read; pass graph.unweighted()")
    unknown = [act for act in acts if act not in ACTS]
    if unknown or len(acts) != 2:
        raise ValueError(f"{name}: acts should be two of {', '.join(ACTS)}, are {', '.join(map(str, acts))}")
    if reduce not in ("sum", "mean"):
        raise ValueError(f"{name}: reduce should be sum or mean, is {reduce}")
    return message_sum_of(graph, terms, acts, reduce)


def message_sum_of(graph: Graph, terms: Any, acts: tuple[str, str], reduce: str) -> torch.Tensor:
    """:func:`message_sum` of :func:`message_terms`, unchecked."""
    from . import _library

    operands = _messaging(graph, terms, acts, reduce, _gradients(*terms))
    return _library._ops.message_sums(*operands, *terms)  # type: ignore[no-any-return]


def message_sum_gradients(
    graph: Graph, terms: Any, acts: tuple[str, str], reduce: str, dy: torch.Tensor, wanted: Any
) -> list[torch.Tensor | None]:
    """The gradients of :func:`message_sum_of` by those of the six matrices that are wanted."""
    from . import _library

    operands = _messaging(graph, terms, acts, reduce, True)
    found = _library._ops.message_sums_backward(*operands, list(wanted), dy, *terms)
    return [x if needs else None for x, needs in zip(found, wanted)]


def _messaging(graph: Graph, terms: Any, acts: tuple[str, str], reduce: str, learns: bool) -> tuple[Any, ...]:
    """What the operator reads besides matrices: the graph, the rows of its edges, factors and activations."""
    *both, which = _both(graph, learns)
    has_rows = terms[2] is not None or terms[5] is not None
    order, back = _rows_of_edges(graph, which) if has_rows else (None, None)
    scale = graph._factors("in", -1.0) if reduce == "mean" else None
    return *both, order, back, scale, *map(ACTS.index, acts)


def _rows_of_edges(graph: Graph, which: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The row of each edge in matrices of edges, and that of each edge of the transposed graph, of which ``which`` has the edges here."""
    order = graph._order
    if which is None:
        return order, None
    back = which[: graph.num_edges]
    return order, back if order is None else order.index_select(0, back.long())


#: Reductions of :func:`message_reduce`, in the order in which the operator numbers them.
REDUCTIONS = ("max", "min", "softmax", "std")


def message_reduce(
    graph: Any, a: Terms, *, act: str = "identity", reduce: Literal["max", "min", "softmax", "std"] = "max"
) -> torch.Tensor:
    """The maximum, minimum, softmax-weighted mean or standard deviation of messages ``f(a)`` over each destination's edges, column by
    column, where ``a`` adds up to three rows. Nothing is stored for an edge but its own row.

    Torch tensors only. Messages are rounded to the matrices' format, and what is made of them is float and rounded once. Edges that have
    the maximum share its gradient equally. It has one derivative.

    Args:
        graph: as of :func:`spmm`; without weights.
        a: as of :func:`message_sum`.
        act: ``f``, as of :func:`message_sum`.
        reduce: what becomes of the messages; a deviation whose square is at most 1e-5 is 0, as PyG's.

    Returns:
        destinations × F, in the format of the matrices; zeros where a destination has no edges.

    Raises:
        ValueError: shapes do not fit, or a name is unknown.

    >>> import torch, halfgnn
    >>> graph = halfgnn.Graph(torch.tensor([[0, 2], [1, 1]]), 3)
    >>> halfgnn.message_reduce(graph, (None, torch.tensor([[1.0], [2.0], [3.0]]), None), reduce="max")
    tensor([[0.],
            [3.],
            [0.]])
    """
    name = "message_reduce"
    graph = graph if isinstance(graph, Graph) else Graph.of(graph)
    terms = message_terms(graph, a, (None, None, None), name)[:3]
    graph = _on(graph, next(x for x in terms if x is not None))
    if graph.weight is not None:
        raise ValueError(f"{name}: the graph has weights, which messages do not read; pass graph.unweighted()")
    if act not in ACTS:
        raise ValueError(f"{name}: act should be one of {', '.join(ACTS)}, is {act}")
    if reduce not in REDUCTIONS:
        raise ValueError(f"{name}: reduce should be one of {', '.join(REDUCTIONS)}, is {reduce}")
    from ._reduced import reduced

    return reduced(graph, terms, act, reduce)


def message_terms(graph: Graph, a: Terms, b: Terms, name: str = "message_sum") -> list[torch.Tensor | None]:
    """The six matrices of :func:`message_sum` in one format: autocast's, or float where they have several.

    Raises:
        ValueError: there is none, or one does not fit.
    """
    import torch

    given = [x for x in (*a, *b) if x is not None]
    if not any(x is not None for x in a):
        raise ValueError(f"{name}: a has no matrix")
    counts = graph.num_dst, graph.num_src, graph.num_edges
    for terms in (a, b):
        for x, count, kind in zip(terms, counts, ("destinations", "sources", "edges"), strict=True):
            if x is None:
                continue
            if not is_tensor(x) or x.device != given[0].device:
                where = f"on {x.device}" if is_tensor(x) else f"a {type(x).__name__}"
                raise ValueError(f"{name}: the matrix of {kind} is {where}; all are torch tensors on one device")
            if x.shape != (count, given[0].shape[1]):
                found, expected = tuple(x.shape), (count, given[0].shape[1])
                raise ValueError(f"{name}: the matrix of {kind} should be {expected}, is {found}")
    cast = [None if x is None else _format(name, x) for x in (*a, *b)]
    formats = {x.dtype for x in cast if x is not None}
    if len(formats) > 1:
        cast = [None if x is None else x.to(torch.float32) for x in cast]
    return cast


def _attention_step_by_step(
    graph: Graph, operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor], heads: int, scale: float, dropout: float
) -> torch.Tensor:
    """Attention whose heads are too wide for the fused operator, in float."""
    import torch

    q, k, v = operands
    weights = edge_softmax(graph, sddmm(graph, q, k, heads=heads) * scale)
    if dropout > 0.0:
        weights = torch.nn.functional.dropout(weights, dropout)
    return cast("torch.Tensor", spmm(graph, v, weights))


def _attended(
    operator: str,
    graph: Any,
    h: Any,
    h_dst: Any,
    heads: int,
    dropout: float,
    vectors: dict[str, Any],
) -> tuple[Graph, Any, Any]:
    """The operands of attention, of shapes that fit."""
    graph = graph if isinstance(graph, Graph) else Graph.of(graph)
    if not is_tensor(h):
        raise ValueError(f"{operator}: h is no torch tensor; make one with torch.from_numpy")
    graph = _on(graph, h)
    if graph.weight is not None:
        raise ValueError(f"{operator}: the graph has weights, which attention replaces; pass graph.unweighted()")
    if h.ndim == 3:
        h = h.flatten(1)
    for what, value in (("h_dst", h_dst), *vectors.items()):
        if value is not None and (not is_tensor(value) or value.device != h.device):
            where = f"on {value.device}" if is_tensor(value) else f"a {type(value).__name__}"
            raise ValueError(f"{operator}: {what} is {where} and h is a tensor on {h.device}; move one of them")
    if h_dst is not None and h_dst.ndim == 3:
        h_dst = h_dst.flatten(1)
    if heads < 1 or h.ndim != 2 or h.shape[1] % heads or h.shape[1] == 0:
        raise ValueError(f"{operator}: h of {tuple(h.shape)} cannot be cut into {heads} heads")
    if h.shape[0] != graph.num_src:
        raise ValueError(f"{operator}: rows of h should be {graph.num_src}, are {h.shape[0]}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"{operator}: dropout should be in [0, 1), is {dropout}")
    for name, vector in vectors.items():
        if vector.numel() != h.shape[1]:
            raise ValueError(f"{operator}: {name} should have {h.shape[1]} numbers, has {vector.numel()}")
    if h_dst is None and graph.num_dst != graph.num_src:
        if graph.num_dst > graph.num_src:
            raise ValueError(
                f"{operator}: {graph.num_dst} destinations cannot be the first of {graph.num_src} sources; give h_dst"
            )
        h_dst = h[: graph.num_dst]
    if h_dst is not None and tuple(h_dst.shape) != (graph.num_dst, h.shape[1]):
        raise ValueError(f"{operator}: h_dst should be {(graph.num_dst, h.shape[1])}, is {tuple(h_dst.shape)}")
    return graph, h, h_dst


def _on(graph: Graph, x: Any) -> Graph:
    """The graph where the features are."""
    if not is_tensor(x):
        if not hasattr(x, "dtype"):
            raise ValueError(f"features are {type(x).__name__}; give a NumPy array or a torch tensor")
        if not graph.is_numpy and graph.device.type != "cpu":
            raise ValueError(f"features are NumPy's and the graph is on {graph.device}; move it with graph.cpu()")
        return graph if graph.is_numpy else graph.numpy()
    if graph.is_numpy and x.device.type == "cpu":
        return graph._in_torch()
    if graph.is_numpy or graph.device != x.device:
        where = "in NumPy arrays" if graph.is_numpy else f"on {graph.device}"
        raise ValueError(f"features are on {x.device} and the graph is {where}; move it with graph.to({str(x.device)!r})")
    return graph


def _heads(operator: str, name: str, x: Any, rows: int) -> tuple[Any, int | None, Any]:
    """A matrix, the heads that it had, and its shape without rows where that was another."""
    heads, shape = None, None
    if x.ndim == 3:
        heads, shape = x.shape[1], x.shape[1:]
        # Without rows, reshape(0, -1) is ambiguous.
        x = x.reshape(x.shape[0], x.shape[1] * x.shape[2])
    if x.ndim != 2:
        raise ValueError(f"{operator}: {name} should have rows and columns, is {tuple(x.shape)}")
    if x.shape[0] != rows:
        raise ValueError(f"{operator}: rows of {name} should be {rows}, are {x.shape[0]}")
    return x, heads, shape


def _columns(e: Any) -> Any:
    return e if e.ndim == 2 else e[:, None]


def _check_weight(graph: Graph, x: Any, weight: Any, heads: int | None) -> int:
    """Heads of the weights."""
    if weight is None:
        return 1
    if is_tensor(weight) != is_tensor(x):
        kinds = ["a torch tensor" if is_tensor(value) else type(value).__name__ for value in (weight, x)]
        raise ValueError(f"spmm: weight is {kinds[0]} and x is {kinds[1]}; convert one of them")
    columns, shape = x.shape[1], tuple(getattr(weight, "shape", ()))
    if len(shape) not in (1, 2) or shape[0] != graph.num_edges or 0 in shape[1:]:
        raise ValueError(
            f"spmm: weight should be {graph.num_edges}, one for each edge, or that times heads, is {shape or type(weight).__name__}"
        )
    found = 1 if len(shape) == 1 else int(shape[1])
    if found != 1 and (columns % found or (heads is not None and heads != found)):
        raise ValueError(f"spmm: weight has {found} heads and x has {heads or columns}; they should be as many, or one")
    return found


# Torch


def _cast(x: torch.Tensor) -> torch.Tensor:
    """In autocast's format, or as it is."""
    import torch

    from ._tensors import FORMATS

    kind = x.device.type
    # Of doubles nothing is cast, as with torch's own.
    if torch.is_autocast_enabled(kind) and x.dtype in FORMATS:
        return x.to(torch.get_autocast_dtype(kind))
    return x


def _format(operator: str, x: torch.Tensor) -> torch.Tensor:
    """In autocast's format, or as it is."""
    from ._tensors import FORMATS

    x = _cast(x)
    if x.dtype not in FORMATS:
        raise ValueError(f"{operator}: {x.dtype} is no format of halfgnn's; use float16, bfloat16 or float32 (x.float())")
    return x


def _gradients(*operands: Any) -> bool:
    import torch

    return torch.is_grad_enabled() and any(
        operand is not None and operand.requires_grad for operand in operands
    )


def _both(graph: Graph, wanted: bool) -> tuple[Any, ...]:
    """The arrays of both directions, the second where gradients are wanted, and which edge each transposed one is."""
    if not wanted:
        return *graph._a, None, None, None
    if graph._t is None:
        _prepare(graph)
    return *graph._a, *graph._t, graph._map


def _prepare(graph: Graph) -> None:
    import torch

    if torch.compiler.is_compiling():
        raise RuntimeError("inside torch.compile a graph must have its transpose: call graph.prepare() before")
    graph._make_transpose()


def _planes(graph: Graph, e: torch.Tensor) -> torch.Tensor:
    """Planes in the graph's own order of numbers of edges, E, or E × heads: in their own format, or in float where that is none of
    the operators'."""
    import torch

    from ._tensors import plane

    e = _of_a_format(e)
    if graph._order is not None:
        e = e.index_select(0, graph._order)
    edges = graph._a[1][1]
    e = e[None] if e.ndim == 1 else e.t()
    return torch.nn.functional.pad(e, (0, plane(edges) - edges)).contiguous()


def _of_a_format(values: torch.Tensor) -> torch.Tensor:
    """As it is, or in float where its format is none of the operators', such as of integers and doubles."""
    from ._tensors import FORMATS

    return values if values.dtype in FORMATS else values.float()


def _values(graph: Graph, planes: torch.Tensor, flat: bool) -> torch.Tensor:
    """The way back; ``flat``: of one head, E."""
    inverse = graph._in_given_order()
    if flat:
        # Indices are of edges, none of what a plane has behind them.
        values = planes.reshape(-1)
        return values[: graph._a[1][1]] if inverse is None else values.index_select(0, inverse)
    values = planes[:, : graph._a[1][1]].t()
    return values if inverse is None else values.index_select(0, inverse)


def _widened(x: torch.Tensor, heads: int, lanes: int) -> tuple[torch.Tensor, int]:
    """Heads of whole vectors, and how wide they were."""
    import torch

    width = x.shape[1] // heads
    rest = -width % lanes
    if rest == 0:
        return x, width
    return torch.nn.functional.pad(x.reshape(-1, heads, width), (0, rest)).flatten(1), width


def _narrowed(y: torch.Tensor, heads: int, width: int) -> torch.Tensor:
    if y.shape[1] == heads * width:
        return y
    return y.view(-1, heads, y.shape[1] // heads)[..., :width].flatten(1)


def _torch_spmm(
    graph: Graph,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    heads: int,
    scales: tuple[Any, Any],
    bias: torch.Tensor | None,
    epsilon: torch.Tensor | float | None,
    relu: bool,
    maximum: bool,
) -> torch.Tensor:
    import torch

    from ._tensors import FORMATS

    x = _format("spmm", x)
    if x.requires_grad and not torch.is_grad_enabled():
        x = x.detach()
    row_scale, column_scale = scales
    own = None if epsilon is None else _vector_of_one(epsilon, x)
    both = _both(graph, _gradients(x, weight, bias, own))
    if weight is not None and weight.device != x.device:
        raise ValueError(f"spmm: weight is on {weight.device} and x on {x.device}; move one of them")
    planes = None if weight is None else _planes(graph, weight)
    run = _torch_operator("spmm", x)
    lanes = FORMATS[x.dtype][1]
    width = x.shape[1] // heads
    if heads > 1 and width % lanes:
        x, bias = _widened(x, heads, lanes)[0], None if bias is None else _widened(bias[None], heads, lanes)[0][0]
    y = cast("torch.Tensor", run(*both, x, planes, row_scale, column_scale, bias, own, relu, maximum, heads))
    return _narrowed(y, heads, width)


def _vector_of_one(number: torch.Tensor | float, x: torch.Tensor) -> torch.Tensor:
    """A number where ``x`` is, and zeros that make a vector of 16 bytes of it."""
    import torch

    if isinstance(number, torch.Tensor):
        one = number.float().reshape(1)
    else:
        one = x.new_full((1,), number, dtype=torch.float32)
    return torch.nn.functional.pad(one, (0, 3))


def _torch_sddmm(graph: Graph, u: torch.Tensor, v: torch.Tensor, heads: int, flat: bool) -> torch.Tensor:
    from ._tensors import FORMATS

    if not is_tensor(v) or u.device != v.device:
        where = f"on {v.device}" if is_tensor(v) else "in NumPy arrays"
        raise ValueError(f"sddmm: u is on {u.device} and v is {where}; move one of them")
    u, v = _format("sddmm", u), _format("sddmm", v)
    if u.dtype != v.dtype:
        u, v = u.float(), v.float()
    both = _both(graph, _gradients(u, v))
    if heads > 1:
        lanes = FORMATS[u.dtype][1]
        u, v = _widened(u, heads, lanes)[0], _widened(v, heads, lanes)[0]
    return _values(graph, _torch_operator("sddmm", u)(*both, u, v, heads), flat)


def _torch_softmax(graph: Graph, e: torch.Tensor) -> torch.Tensor:
    # As torch's own softmax, autocast leaves it in the format that it is given in.
    from ._tensors import FORMATS

    if e.dtype not in FORMATS:
        raise ValueError(f"edge_softmax: {e.dtype} is no format of halfgnn's; use float16, bfloat16 or float32")
    run = _torch_operator("edge_softmax", e)
    return _values(graph, run(*graph._a, _planes(graph, e)), e.ndim == 1)


def _torch_operator(name: str, x: torch.Tensor) -> Any:
    """The operator, as one that others see through where they trace or transform this operand."""
    global _quick
    from . import _eager, _library

    if not _eager.usable(x):
        return getattr(_library._ops, name)
    if _quick is None:
        _quick = _eager.quick_spmm
    return getattr(_eager, name)


class _Attending(NamedTuple):
    """Operands of attention in one format, of heads of whole vectors, and what else it takes."""

    h: torch.Tensor
    h_dst: torch.Tensor | None
    #: A row each.
    vectors: torch.Tensor
    #: Whether gradients are needed.
    learns: bool
    seed: torch.Tensor | None
    #: Columns of a head of the result.
    width: int
    #: Of the result.
    format: torch.dtype


def _attending(
    operator: str,
    h: torch.Tensor,
    h_dst: torch.Tensor | None,
    vectors: tuple[torch.Tensor, ...],
    heads: int,
    dropout: float,
) -> _Attending:
    """The operands, all in float where they have several formats: kernels read them in one, and in float none loses anything."""
    import torch

    from ._tensors import FORMATS

    h = _format(operator, h)
    result = h.dtype
    h_dst = None if h_dst is None else _of_a_format(_cast(h_dst))
    # Under autocast vectors are in its format as the features are: they are parameters of a product, as a layer's weights.
    vectors = tuple(_of_a_format(_cast(vector)).reshape(-1) for vector in vectors)
    operands = [h, *([] if h_dst is None else [h_dst]), *vectors]
    learns = _gradients(*operands)
    if any(operand.dtype != h.dtype for operand in operands):
        h, h_dst = h.float(), None if h_dst is None else h_dst.float()
        vectors = tuple(vector.float() for vector in vectors)
    lanes = FORMATS[h.dtype][1]
    rows = _widened(torch.stack(vectors), heads, lanes)[0]
    h, width = _widened(h, heads, lanes)
    h_dst = None if h_dst is None else _widened(h_dst, heads, lanes)[0]
    seed = None
    if dropout > 0.0:
        seed = torch.randint(-(2**31), 2**31 - 1, (1,), dtype=torch.int32, device=h.device)
    return _Attending(h, h_dst, rows, learns, seed, width, result)
