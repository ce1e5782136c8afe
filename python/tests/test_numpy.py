"""NumPy and SciPy, without torch."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest

import halfgnn
from halfgnn import Graph

scipy_sparse = pytest.importorskip("scipy.sparse")

FORMATS = [(np.float32, 1e-5), (np.float16, 4e-3)]


def matrix(rng, rows=60, columns=45, edges=600):
    """With parallel edges and rows without any."""
    i = rng.integers(0, rows - 7, edges)
    j = rng.integers(0, columns, edges)
    return scipy_sparse.coo_matrix((rng.standard_normal(edges).astype(np.float32), (i, j)), (rows, columns))


def test_import_loads_neither_torch_nor_numpy():
    script = (
        "import sys, time; start = time.process_time(); import halfgnn; "
        "assert not {'torch', 'numpy'} & set(sys.modules), 'imported too much'; "
        "print(time.process_time() - start)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    assert min(times) < 0.1


@pytest.mark.parametrize("dtype, tolerance", FORMATS)
@pytest.mark.parametrize("features", [1, 7, 41, 64, 257])
def test_spmm_is_the_product(rng, dtype, tolerance, features):
    a = matrix(rng)
    x = rng.standard_normal((45, features)).astype(dtype)
    expected = a.astype(np.float64) @ x.astype(np.float64)
    y = halfgnn.spmm(Graph.from_scipy(a), x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, atol=tolerance * 10, rtol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", FORMATS)
def test_rows_themselves(rng, dtype, tolerance):
    a = matrix(rng, 45, 45)
    x = rng.standard_normal((45, 7)).astype(dtype)
    expected = a.astype(np.float64) @ x.astype(np.float64) + 1.25 * x.astype(np.float64)
    y = halfgnn.spmm(Graph.from_scipy(a), x, epsilon=0.25)
    np.testing.assert_allclose(y, expected, atol=tolerance * 10, rtol=tolerance)


def test_weights_are_in_the_order_of_the_edges(rng):
    source, destination = rng.integers(0, 9, 50), rng.integers(0, 9, 50)
    weight = rng.standard_normal(50).astype(np.float32)
    x = rng.standard_normal((9, 5)).astype(np.float32)
    expected = np.zeros((9, 5))
    np.add.at(expected, destination, weight[:, None] * x[source])
    graph = Graph((source, destination), 9)
    np.testing.assert_allclose(halfgnn.spmm(graph, x, weight), expected, atol=1e-5)
    assert (graph.edge_index == np.stack([source, destination])).all()


def test_mean_max_and_norms(rng):
    a = matrix(rng, 30, 30, 200)
    graph = Graph.from_scipy(a).unweighted()
    ones = scipy_sparse.coo_matrix((np.ones(200), (a.row, a.col)), a.shape)
    x = rng.standard_normal((30, 9)).astype(np.float32)
    into, out = np.maximum(ones.sum(1).A1, 1)[:, None], np.maximum(ones.sum(0).A1, 1)[:, None]
    for options, expected in [
        ({"reduce": "mean"}, (ones @ x) / into),
        ({"norm": "right"}, (ones @ x) / into),
        ({"norm": "left"}, ones @ (x / out)),
        ({"norm": "both"}, (ones @ (x / np.sqrt(out))) / np.sqrt(into)),
    ]:
        np.testing.assert_allclose(halfgnn.spmm(graph, x, **options), expected, atol=1e-5)
    largest = np.full((30, 9), -np.inf)
    np.maximum.at(largest, a.row, x[a.col])
    largest[np.isinf(largest)] = 0
    np.testing.assert_array_equal(halfgnn.spmm(graph, x, reduce="max"), largest.astype(np.float32))


def test_bias_and_relu(rng):
    a = matrix(rng)
    x, bias = rng.standard_normal((45, 7)).astype(np.float32), rng.standard_normal(7).astype(np.float32)
    expected = np.maximum(a @ x + bias, 0)
    np.testing.assert_allclose(halfgnn.spmm(Graph.of(a), x, bias=bias, relu=True), expected, atol=1e-4)


@pytest.mark.parametrize("heads, width", [(1, 41), (3, 5), (4, 8)])
def test_heads(rng, heads, width):
    source, destination = rng.integers(0, 20, 90), rng.integers(0, 20, 90)
    graph = Graph((source, destination), 20)
    u, v = (rng.standard_normal((20, heads, width)).astype(np.float32) for _ in range(2))
    e = halfgnn.sddmm(graph, u, v)
    np.testing.assert_allclose(e, (u[destination] * v[source]).sum(2), atol=1e-5)
    alpha = halfgnn.edge_softmax(graph, e)
    sums = np.zeros((20, heads))
    np.add.at(sums, destination, alpha)
    np.testing.assert_allclose(sums[np.unique(destination)], 1, atol=1e-5)
    y = halfgnn.spmm(graph, v, alpha)
    expected = np.zeros((20, heads, width))
    np.add.at(expected, destination, alpha[:, :, None] * v[source])
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_a_hub_of_70000_in_half_has_its_mean():
    hub = 70_000
    graph = Graph((np.arange(1, hub + 1), np.zeros(hub, np.int64)), hub + 1)
    y = halfgnn.spmm(graph, np.full((hub + 1, 3), 3, np.float16), reduce="mean")
    assert (y[0] == 3).all() and (y[1:] == 0).all()


def test_results_have_the_same_bits_on_any_number_of_threads(rng):
    graph = Graph((rng.integers(0, 300, 9000), rng.integers(0, 3, 9000)), 300)
    x = rng.standard_normal((300, 33)).astype(np.float32)
    results = []
    try:
        for threads in (1, 3):
            halfgnn.set_num_threads(threads)
            assert halfgnn.get_num_threads() == threads
            results.append(halfgnn.spmm(graph, x))
    finally:
        halfgnn.set_num_threads(0)
    assert (results[0].view(np.uint32) == results[1].view(np.uint32)).all()


def test_views_that_are_not_contiguous(rng):
    a = matrix(rng)
    wide = rng.standard_normal((90, 30)).astype(np.float32)
    for x in (wide[::2, 3:20], wide[:45, ::3], np.asfortranarray(wide[:45])):
        np.testing.assert_allclose(halfgnn.spmm(Graph.of(a), x), a @ x, atol=1e-4)


def test_networkx(rng):
    networkx = pytest.importorskip("networkx")
    for kind in (networkx.Graph, networkx.DiGraph):
        graph = kind()
        graph.add_nodes_from("abcd")
        graph.add_edge("a", "b", weight=2.0)
        graph.add_edge("b", "d", weight=3.0)
        graph.add_edge("c", "c", weight=5.0)
        x = rng.standard_normal((4, 3)).astype(np.float32)
        adjacency = networkx.to_numpy_array(graph, weight="weight").T
        made = Graph.from_networkx(graph, weight="weight")
        np.testing.assert_allclose(halfgnn.spmm(made, x), adjacency @ x, atol=1e-5)


def test_self_loops(rng):
    graph = Graph(np.array([[0, 1, 1, 2], [1, 1, 2, 0]]), weight=np.array([2.0, 7.0, 3.0, 4.0]))
    looped = graph.with_self_loops(fill_value=0.5)
    assert looped.edge_index.tolist() == [[0, 1, 2, 0, 1, 2], [1, 2, 0, 0, 1, 2]]
    assert looped.weight.tolist() == [2.0, 3.0, 4.0, 0.5, 7.0, 0.5]


def test_csr_and_transpose(rng):
    a = matrix(rng).tocsr()
    graph = Graph.from_csr(a.indptr, a.indices, 45, weight=a.data)
    x, y = rng.standard_normal((45, 4)).astype(np.float32), rng.standard_normal((60, 4)).astype(np.float32)
    np.testing.assert_allclose(halfgnn.spmm(graph, x), a @ x, atol=1e-4)
    np.testing.assert_allclose(halfgnn.spmm(graph.transpose(), y), a.T @ y, atol=1e-4)
    with pytest.raises(ValueError, match="should ascend from 0"):
        Graph.from_csr(a.indptr[::-1], a.indices, 45)


def test_copies_are_graphs(rng):
    graph = Graph.of(matrix(rng))
    x = rng.standard_normal((45, 4)).astype(np.float32)
    for other in (pickle.loads(pickle.dumps(graph)), copy.copy(graph), copy.deepcopy(graph)):
        assert (halfgnn.spmm(other, x) == halfgnn.spmm(graph, x)).all()
    assert repr(graph) == "Graph(45 -> 60, 600 edges, weighted, numpy)"


def test_empty_graphs():
    for graph in (Graph(np.zeros((2, 0), np.int64), 3), Graph(np.zeros((2, 0), np.int64), 0)):
        assert (halfgnn.spmm(graph, np.ones((graph.num_nodes, 5), np.float32)) == 0).all()
    assert halfgnn.sddmm(Graph(np.zeros((2, 0), np.int64), 3), *[np.ones((3, 5), np.float32)] * 2).shape == (0,)


def test_refusals_are_one_line_and_say_what():
    graph = Graph(np.array([[0, 1], [1, 2]]), 3)
    x = np.ones((3, 2), np.float32)
    with pytest.raises(IndexError, match="source 3 is no vertex: ids are 0 to 2"):
        Graph(np.array([[3], [0]]), 3)
    with pytest.raises(IndexError, match="destination -1 is no vertex"):
        Graph(np.array([[0], [-1]]), 3)
    for call, words in [
        (lambda: Graph(np.zeros((3, 4), int)), "should be 2 x E"),
        (lambda: Graph((np.zeros(3, int), np.zeros(4, int))), "3 sources and 4 destinations"),
        (lambda: Graph(np.zeros((2, 4))), "list of integers"),
        (lambda: Graph(np.zeros((2, 4), int), 2**31), "0 to 2147483647 are possible"),
        (lambda: halfgnn.spmm(graph, x[:2]), "rows of x should be 3, are 2"),
        (lambda: halfgnn.spmm(graph, x, np.ones(3)), "weight should be 2"),
        (lambda: halfgnn.spmm(graph, x.astype(np.float64)), "float64 is no format"),
        (lambda: halfgnn.spmm(graph, x, reduce="median"), "sum, mean and max"),
        (lambda: halfgnn.spmm(graph, x, reduce="mean", norm="both"), "leave one of them out"),
        (lambda: halfgnn.spmm(graph, x, bias=np.ones(3, np.float32)), "bias should be 2"),
        (lambda: halfgnn.sddmm(graph, x, x, heads=3), "cannot be cut into 3 heads"),
        (lambda: halfgnn.edge_softmax(graph, np.ones(3, np.float32)), "e should be 2"),
        (lambda: halfgnn.set_num_threads(-1), "from 0 on"),
    ]:
        with pytest.raises(ValueError, match=words) as refused:
            call()
        assert "\n" not in str(refused.value)


def test_a_graph_of_a_million_edges_is_made_quickly(rng):
    index = rng.integers(0, 50_000, (2, 1_000_000))
    start = time.perf_counter()
    Graph(index, 50_000)
    assert time.perf_counter() - start < 5
