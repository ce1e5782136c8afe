"""Explanations by masks of edges: what PyG's explainers get of halfgnn's layers is what they get of PyG's."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from test_nn_table import CASES, N, both, distinct, edges, features, tensors  # noqa: E402
from torch_geometric.data import HeteroData  # noqa: E402
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer  # noqa: E402

import halfgnn  # noqa: E402
from halfgnn.nn import _common  # noqa: E402
from halfgnn.nn._layer import LAYERS, MASKED  # noqa: E402

#: PyG's ``explain_message`` fails on the first, whose loops are more than one at a vertex; the second has no neighbors.
OTHERS = ("simple loops", "cheb one")


@pytest.fixture(autouse=True)
def fresh():
    _common._told.clear()


def explained(case, layer, x, index, mask, sigmoid=True, **extra):
    """The output of a layer whose messages are masked, and the gradients of features, mask and parameters."""
    layer.zero_grad()
    x, mask = x.clone().requires_grad_(), mask.clone().requires_grad_()
    layer.explain, layer._edge_mask, layer._loop_mask, layer._apply_sigmoid = True, mask, index[0] != index[1], sigmoid
    try:
        out = tensors(case.call(layer, x, index, **extra))[0]
    finally:
        layer.explain, layer._edge_mask = False, None
    if out.requires_grad:
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out.detach(), x.grad, mask.grad, *(parameter.grad for parameter in layer.parameters())]


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None:
            assert all(value is None or not value.any() for value in (one, other))
            continue
        assert (one - other).abs().max().item() <= 1e-5 * max(1.0, other.abs().max().item())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.kind in MASKED and name not in OTHERS])
def test_masks_of_edges_multiply_messages(name):
    case = CASES[name]
    theirs, ours = both(case, case.width)
    for index, sigmoid in ((edges(), True), (distinct(), False)):
        x = features(N, case.width)
        mask = torch.rand(index.shape[1], generator=torch.Generator().manual_seed(2)) - 0.3 * sigmoid
        extra = case.extra(x, index)
        found, expected = (explained(case, layer, x, index, mask, sigmoid, **extra) for layer in (ours, theirs))
        assert expected[2] is None or expected[2].any()
        assert_equal(found, expected)
        # Without the mask it is another result, and the layer's own.
        plain = tensors(case.call(ours, x, index, **extra))[0]
        assert_equal([plain], [tensors(case.call(theirs, x, index, **extra))[0]])
        assert not torch.allclose(plain, found[0])


def test_layers_whose_messages_are_not_masked_are_pygs():
    assert {kind.__name__ for kind in LAYERS} > MASKED
    for name in ("pna", "le", "general both ends", "cheb one"):
        _common._told.clear()
        case = CASES[name]
        theirs, ours = both(case, case.width)
        index, x = edges(), features(N, case.width)
        with pytest.warns(halfgnn.FallbackWarning, match="it is explained"):
            found = explained(case, ours, x, index, torch.linspace(-1, 1, index.shape[1]))
        assert_equal(found, explained(case, theirs, x, index, torch.linspace(-1, 1, index.shape[1])))


def test_a_mask_that_does_not_fit_is_an_error_in_a_line():
    case = CASES["sage"]
    _, ours = both(case, case.width)
    index = edges()
    ours.explain, ours._edge_mask, ours._loop_mask = True, torch.rand(20), index[0, :20] != index[1, :20]
    with pytest.raises(ValueError, match=r"SAGEConv: the mask has .* numbers, and the layer \d+ edges") as raised:
        ours(features(N, case.width), index)
    assert "\n" not in str(raised.value)
    # A layer that is explained but has no mask fails as PyG's does.
    ours._edge_mask = None
    with pytest.warns(halfgnn.FallbackWarning), pytest.raises(ValueError, match="edge_mask"):
        ours(features(N, case.width), index)


class Own(pyg.MessagePassing):
    """A layer of the user's own, which is accelerated and not replaced."""

    def __init__(self, width, out):
        super().__init__()
        self.lin = torch.nn.Linear(width, out)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j):
        return x_j.tanh()


class Net(torch.nn.Module):
    def __init__(self, make, width):
        super().__init__()
        self.first, self.second = make(8), pyg.GCNConv(width, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index).log_softmax(1)


MODELS = {
    "gcn": (lambda width: pyg.GCNConv(width, 6), 6),
    "sage": (lambda width: pyg.SAGEConv(width, 6, aggr="max"), 6),
    "gin": (lambda width: pyg.GINConv(torch.nn.Linear(width, 6)), 6),
    "gat": (lambda width: pyg.GATConv(width, 3, heads=2), 6),
    "gatv2": (lambda width: pyg.GATv2Conv(width, 3, heads=2), 6),
    "transformer": (lambda width: pyg.TransformerConv(width, 3, heads=2), 6),
    "several": (lambda width: pyg.SAGEConv(width, 6, aggr=["sum", "std"]), 6),
    # Accelerated, not replaced: its own messages are masked.
    "own": (lambda width: Own(width, 6), 6),
}


def explanations(models, algorithm, *inputs, **options):
    found = []
    for model in models:
        torch.manual_seed(3)
        explainer = Explainer(
            model,
            algorithm(),
            explanation_type="model",
            node_mask_type="attributes",
            edge_mask_type="object",
            model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "log_probs"},
        )
        found.append(explainer(*inputs, **options))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_gnn_explainer_finds_what_it_finds_of_pygs_layers(name):
    torch.manual_seed(1)
    theirs = Net(*MODELS[name]).eval()
    ours = copy.deepcopy(theirs)
    done = halfgnn.nn.accelerate(ours)
    assert not done.left and len(done.replaced) + len(done.accelerated) == 2
    x, index = features(N, 8), edges()
    one, other = explanations((ours, theirs), lambda: GNNExplainer(epochs=8), x, index, index=torch.tensor([2, 5]))
    assert_equal([one.node_mask, one.edge_mask], [other.node_mask, other.edge_mask])
    assert other.edge_mask.any()
    # Afterwards nothing is masked.
    assert_equal([ours(x, index).detach()], [theirs(x, index).detach()])


class TypedNet(torch.nn.Module):
    def __init__(self, kinds):
        super().__init__()
        self.convs = torch.nn.ModuleList(
            [pyg.HeteroConv({kind: pyg.SAGEConv((5, 5), 5) for kind in kinds}), pyg.HeteroConv({kind: pyg.SAGEConv((5, 5), 5) for kind in kinds})]
        )

    def forward(self, x_dict, edge_index_dict):
        for conv in self.convs:
            x_dict = {kind: x.tanh() for kind, x in conv(x_dict, edge_index_dict).items()}
        return x_dict["a"].log_softmax(1)


def test_gnn_explainer_of_several_types():
    data = HeteroData()
    data["a"].x, data["b"].x = features(N, 5), features(20, 5, seed=1)
    data["a", "to", "a"].edge_index = edges()
    data["b", "of", "a"].edge_index = edges(20, N)
    data["a", "has", "b"].edge_index = edges(N, 20)
    torch.manual_seed(1)
    theirs = TypedNet(data.edge_types).eval()
    ours = copy.deepcopy(theirs)
    assert len(halfgnn.nn.replace(ours).replaced) == 6
    one, other = explanations((ours, theirs), lambda: GNNExplainer(epochs=5), data.x_dict, data.edge_index_dict, index=torch.tensor([3]))
    for kind in data.edge_types:
        assert_equal([one[kind].edge_mask], [other[kind].edge_mask])
    assert_equal([one["a"].node_mask], [other["a"].node_mask])


def test_captums_attributions():
    pytest.importorskip("captum")
    torch.manual_seed(1)
    theirs = Net(*MODELS["gat"]).eval()
    ours = copy.deepcopy(theirs)
    halfgnn.nn.replace(ours)
    x, index = features(N, 8), edges()
    one, other = explanations((ours, theirs), lambda: CaptumExplainer("Saliency"), x, index, index=torch.tensor([2]))
    assert_equal([one.node_mask, one.edge_mask], [other.node_mask, other.edge_mask])
