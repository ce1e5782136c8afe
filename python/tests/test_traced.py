"""Layers in ``torch.compile``, ``torch.export``, TorchScript, ONNX and ``torch.func``."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import halfgnn  # noqa: E402
from halfgnn import Graph, nn  # noqa: E402
from halfgnn.nn import _common  # noqa: E402

N, IN, OUT = 14, 6, 4


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(IN, OUT), torch.nn.ReLU(), torch.nn.Linear(OUT, OUT))


LAYERS = {
    "gcn": lambda of: of.GCNConv(IN, OUT),
    "gcn wider": lambda of: of.GCNConv(IN, 9),
    "gcn without loops": lambda of: of.GCNConv(IN, OUT, add_self_loops=False),
    "gcn without norm": lambda of: of.GCNConv(IN, OUT, normalize=False),
    "sage": lambda of: of.SAGEConv(IN, OUT),
    "sage max": lambda of: of.SAGEConv(IN, OUT, aggr="max", normalize=True),
    "sage sum wider": lambda of: of.SAGEConv(IN, 9, aggr="sum", project=True),
    "gin": lambda of: of.GINConv(mlp(), train_eps=True),
    "gin mean": lambda of: of.GINConv(mlp(), eps=0.5, aggr="mean"),
    "gat": lambda of: of.GATConv(IN, OUT, heads=3, residual=True),
    "gat mean": lambda of: of.GATConv(IN, OUT, heads=2, concat=False, add_self_loops=False),
    "gatv2": lambda of: of.GATv2Conv(IN, OUT, heads=3),
    "gatv2 shared": lambda of: of.GATv2Conv(IN, OUT, heads=2, share_weights=True),
}


def given():
    generator = torch.Generator().manual_seed(3)
    index = torch.randint(0, N - 2, (2, 60), generator=generator)
    index[:, :4] = torch.tensor([0, 1, 2, 2])
    return torch.randn(N, IN, generator=generator), index


def made(name, of=nn):
    torch.manual_seed(5)
    return LAYERS[name](of)


def trained(call, layer, x, *arguments):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = call(x, *arguments)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in layer.parameters())]


def assert_close(got, expected):
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=2e-5, rtol=1e-4)


#: A layer of each kind with its own branch of tracing: the others differ in what the operator computes.
ONE_OF_EACH = ["gcn wider", "sage max", "gin", "gat mean", "gatv2"]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    _common._told.clear()


@pytest.mark.parametrize("name, as_graph", [*((name, False) for name in LAYERS), *((name, True) for name in ONE_OF_EACH)])
def test_a_compiled_layer_trains_in_one_graph(name, as_graph):
    layer, theirs = made(name), made(name, pyg)
    x, index = given()
    adjacency = Graph(index, N).prepare() if as_graph else index
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    expected = trained(theirs, theirs, x, index)
    for _ in range(2):
        assert_close(trained(compiled, layer, x, adjacency), expected)


@pytest.mark.parametrize(
    "how, options",
    [
        ("edge_index", {}),
        ("edge_index", {"improved": True}),
        ("edge_index", {"normalize": False}),
        ("edge_index, E x 1", {"add_self_loops": False}),
        ("Graph", {}),
        ("Graph", {"normalize": False}),
    ],
)
def test_a_compiled_gcn_trains_with_weights(how, options):
    layer = nn.GCNConv(IN, OUT, **options)
    theirs = pyg.GCNConv(IN, OUT, **options)
    theirs.load_state_dict(layer.state_dict())
    x, index = given()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = []
    for call, of in ((compiled, layer), (theirs, theirs)):
        weight = torch.linspace(0.5, 2, 60).requires_grad_()
        given_weight = weight[:, None] if how.endswith("1") else weight
        adjacency = Graph(index, N).prepare() if how == "Graph" and of is layer else index
        results.append([*trained(call, of, x, adjacency, given_weight), weight.grad])
    assert_close(*results)


@pytest.mark.cuda
def test_of_several_loops_of_a_vertex_the_last_counts_in_a_trace_on_a_gpu():
    """On a GPU a scatter to one place takes any of its values."""
    x, index = given()
    index = torch.cat([index, torch.zeros(2, 500, dtype=torch.long)], 1)
    weight = 0.1 + torch.rand(index.shape[1], generator=torch.Generator().manual_seed(2))
    layer = made("gcn")
    expected = layer(x, index, weight).detach()
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(layer).cuda(), backend="eager", fullgraph=True)
    x, index, weight = x.cuda(), index.cuda(), weight.cuda()
    for _ in range(10):
        assert (compiled(x, index, weight).cpu() - expected).abs().max() <= 1e-5



@pytest.mark.parametrize("kind", ["SAGEConv", "GATConv", "GATv2Conv"])
def test_a_compiled_layer_takes_pairs(kind):
    options = {} if kind == "SAGEConv" else {"add_self_loops": False}
    layer, theirs = (getattr(of, kind)((IN, 3), OUT, **options) for of in (nn, pyg))
    theirs.load_state_dict(layer.state_dict())
    index = torch.stack([torch.arange(20) % N, torch.arange(20) % 5])
    pair = torch.randn(N, IN), torch.randn(5, 3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(pair, index), theirs(pair, index), atol=1e-5)


@pytest.mark.parametrize("kind", ["GCN", "GraphSAGE", "GIN", "GAT"])
def test_a_replaced_model_has_no_graph_break(kind):
    models = pytest.importorskip("torch_geometric.nn.models")
    torch.manual_seed(0)
    model = getattr(models, kind)(IN, 8, 2, OUT)
    theirs = copy.deepcopy(model)
    nn.replace(model)
    x, index = given()
    explained = torch._dynamo.explain(model)(x, index)
    assert explained.graph_break_count == 0 and explained.graph_count == 1
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert_close(trained(compiled, model, x, index), trained(theirs, theirs, x, index))


def test_a_compiled_model_sees_another_edge_index():
    layer, theirs = made("gcn"), made("gcn", pyg)
    x, index = given()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for edges in (index, index.flip(0), index[:, :31]):
        assert torch.allclose(compiled(x, edges), theirs(x, edges), atol=1e-5)
    index.data[:, 5] = torch.tensor([1, 9])
    assert torch.allclose(compiled(x, index), theirs(x, index), atol=1e-5)


def test_a_compiled_layer_that_falls_back_has_no_break_and_warns():
    layer = nn.GATConv(IN, OUT, edge_dim=2)
    x, index = given()
    with pytest.warns(halfgnn.FallbackWarning, match="edge_dim") as caught:
        explained = torch._dynamo.explain(layer)(x, index)
    assert explained.graph_break_count == torch._dynamo.explain(pyg.GATConv(IN, OUT, edge_dim=2))(x, index).graph_break_count
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore::halfgnn.FallbackWarning")
@pytest.mark.parametrize("as_graph", [False, True])
def test_a_compiled_layer_that_keeps_its_graph(as_graph):
    layer, theirs = nn.GCNConv(IN, OUT, cached=True), pyg.GCNConv(IN, OUT)
    theirs.load_state_dict(layer.state_dict())
    x, index = given()
    compiled = torch.compile(layer, fullgraph=as_graph, backend="aot_eager")
    for _ in range(2):
        assert torch.allclose(compiled(x, Graph(index, N).prepare() if as_graph else index), theirs(x, index), atol=1e-5)


def test_a_compiled_layer_wants_a_prepared_graph():
    x, index = given()
    for prepare in (lambda graph: graph, lambda graph: graph.prepare(self_loops=False)):
        compiled = torch.compile(made("gcn"), fullgraph=True, backend="aot_eager")
        with pytest.raises(Exception, match=r"call graph.prepare\(\) before"):
            compiled(x, prepare(Graph(index, N)))
        torch._dynamo.reset()
    compiled = torch.compile(made("sage"), fullgraph=True, backend="aot_eager")
    compiled(x, Graph(index, N).prepare(self_loops=False)).sum().backward()


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_compiled_layer_in_half(half):
    x, index = given()
    for name in ("gcn", "gat") if half == torch.float16 else ("sage", "gatv2"):
        layer = made(name).to(half)
        expected = layer(x.to(half), index)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        got = compiled(x.to(half), index)
        assert got.dtype == half and torch.allclose(got, expected, atol=3e-2)


@pytest.mark.parametrize("name", [*ONE_OF_EACH, "gcn without norm", "sage sum wider", "gat"])
def test_an_exported_layer(name):
    layer, theirs = made(name).eval(), made(name, pyg).eval()
    x, index = given()
    exported = torch.export.export(layer, (x, index)).module()
    for edges in (index, index.flip(0)):
        assert torch.allclose(exported(x, edges), theirs(x, edges), atol=1e-5)


def test_an_exported_layer_with_any_number_of_vertices_and_edges():
    layer, theirs = made("gat").eval(), made("gat", pyg).eval()
    x, index = given()
    shapes = {"x": {0: torch.export.Dim("vertices")}, "edge_index": {1: torch.export.Dim("edges")}}
    exported = torch.export.export(layer, (x, index), dynamic_shapes=shapes).module()
    more, edges = torch.randn(31, IN), torch.randint(0, 31, (2, 99))
    assert torch.allclose(exported(more, edges), theirs(more, edges), atol=1e-5)


class Model(torch.nn.Module):
    def __init__(self, of):
        super().__init__()
        self.first = of.GCNConv(IN, 8)
        self.second = of.SAGEConv(8, OUT)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("name", ["gcn wider", "gcn without norm", "sage max", "gin"])
def test_a_scripted_layer(name):
    layer, theirs = made(name), made(name, pyg)
    x, index = given()
    with pytest.warns(halfgnn.FallbackWarning, match="TorchScript") as caught:
        scripted = torch.jit.script(layer)
    assert [each.filename for each in caught if each.category is halfgnn.FallbackWarning] == [__file__]
    assert torch.allclose(scripted(x, index), theirs(x, index), atol=1e-5)


def test_a_scripted_model_leaves_the_layers_halfgnns():
    x, index = given()
    theirs = Model(pyg)
    model = Model(nn)
    model.load_state_dict(theirs.state_dict())
    kinds = type(model.first), type(model.second)
    with pytest.warns(halfgnn.FallbackWarning, match="TorchScript"):
        scripted = torch.jit.script(model)
    expected = theirs(x, index)
    assert torch.allclose(scripted(x, index), expected, atol=1e-5)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model):
        assert torch.allclose(other(x, index), expected, atol=1e-5)
        assert (type(other.first), type(other.second)) == kinds
    assert set(model.state_dict()) == set(theirs.state_dict())


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
@pytest.mark.parametrize("inside", [False, True])
def test_attention_that_pyg_cannot_script_is_refused_in_a_line(kind, inside):
    layer = getattr(nn, kind)(6, 4)
    model = torch.nn.Sequential(layer) if inside else layer
    try:
        torch.jit.script(getattr(pyg, kind)(6, 4))
    except RuntimeError:
        with pytest.raises(NotImplementedError, match=f"^{kind}: PyG's layer does not compile.*torch.export.*$"):
            torch.jit.script(model)
    else:
        with pytest.warns(halfgnn.FallbackWarning, match="TorchScript"):
            torch.jit.script(layer)
    x, index = given()
    assert layer(x, index).shape == (len(x), 4)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_traced_layer_takes_other_edges(name):
    layer, theirs = made(name).eval(), made(name, pyg).eval()
    x, index = given()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(layer, (x, index))
        for edges in (index, index.flip(0)):
            assert torch.allclose(traced(x, edges), theirs(x, edges), atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "sage", "gin"])
def test_an_onnx_model(name, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnx.reference")
    layer, theirs = made(name).eval(), made(name, pyg).eval()
    x, index = given()
    file = str(tmp_path / "layer.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(layer, (x, index), file, dynamo=False, opset_version=18, input_names=["x", "edges"])
    model = onnx.load(file)
    assert {node.domain for node in model.graph.node} == {""}
    inputs = dict(zip([each.name for each in model.graph.input], (x.numpy(), index.numpy()), strict=True))
    (got,) = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
    assert torch.allclose(torch.from_numpy(got.copy()), theirs(x, index), atol=1e-5)


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("as_graph", [False, True])
def test_func_grad(name, as_graph):
    layer, theirs = made(name), made(name, pyg)
    x, index = given()
    adjacency = Graph(index, N) if as_graph else index

    def loss(of, edges):
        return lambda parameters, x: torch.func.functional_call(of, parameters, (x, edges)).square().sum()

    parameters = dict(layer.named_parameters())
    with pytest.warns(halfgnn.FallbackWarning, match="torch.func"):
        got = torch.func.grad(loss(layer, adjacency), argnums=(0, 1))(parameters, x)
    expected = torch.func.grad(loss(theirs, index), argnums=(0, 1))(dict(theirs.named_parameters()), x)
    assert_close([*got[0].values(), got[1]], [*expected[0].values(), expected[1]])


def test_forward_mode_gradients():
    layer, theirs = made("sage"), made("sage", pyg)
    x, index = given()
    tangents = []
    with torch.autograd.forward_ad.dual_level(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in (layer, theirs):
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            tangents.append(torch.autograd.forward_ad.unpack_dual(each(dual, index)).tangent)
    assert torch.allclose(*tangents, atol=1e-5)
