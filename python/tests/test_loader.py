"""PyG's loaders over halfgnn's sampler: batches are parts of the graph, sampled uniformly, and PyG's models take them as they are."""

from __future__ import annotations

import itertools
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.loader import LinkNeighborLoader as TheirLinks  # noqa: E402
from torch_geometric.loader import NeighborLoader as Theirs  # noqa: E402
from torch_geometric.nn import HeteroConv, SAGEConv  # noqa: E402
from torch_geometric.sampler import NegativeSampling, NumNeighbors  # noqa: E402
from torch_geometric.utils import trim_to_layer  # noqa: E402

from halfgnn import LinkLoader, NeighborLoader  # noqa: E402
from halfgnn._negatives import NonEdges  # noqa: E402
from halfgnn._words import Words  # noqa: E402

VERTICES = 60
#: More than this has a chance of 1 in 10,000, by degrees of freedom.
CHI_SQUARE = {9: 33.72, 19: 50.80}


def graph():
    """Edges in no order, some of them several times; no edge arrives at the last ten vertices."""
    generator = torch.Generator().manual_seed(5)
    index = torch.stack([torch.randint(VERTICES, (500,), generator=generator), torch.randint(VERTICES - 10, (500,), generator=generator)])
    return Data(
        x=torch.randn(VERTICES, 5, generator=generator),
        y=torch.arange(VERTICES),
        position=torch.randn(VERTICES, 2, 3, generator=generator),
        train_mask=torch.arange(VERTICES) % 3 == 1,
        edge_index=index,
        edge_attr=torch.randn(500, 2, generator=generator),
        edge_weight=torch.rand(500, generator=generator),
        title="a graph",
    )


USER, ITEM = "user", "item"
BUYS, BOUGHT, KNOWS = (USER, "buys", ITEM), (ITEM, "rev_buys", USER), (USER, "knows", USER)


def types():
    """Users without features that know one another and buy items; nothing is known of the last ten items."""
    generator = torch.Generator().manual_seed(6)

    def edges(sources, destinations, count):
        return torch.stack([torch.randint(sources, (count,), generator=generator), torch.randint(destinations, (count,), generator=generator)])

    data = HeteroData()
    data[USER].num_nodes = 40
    data[USER].age = torch.arange(40)
    data[ITEM].x = torch.randn(50, 4, generator=generator)
    data[ITEM].y = torch.arange(50)
    data[BUYS].edge_index = edges(40, 40, 200)
    data[BUYS].edge_attr = torch.randn(200, 3, generator=generator)
    data[BOUGHT].edge_index = data[BUYS].edge_index.flip(0)
    data[KNOWS].edge_index = edges(40, 40, 100)
    return data


def check_sample(whole, batch, kind, frontiers, fanouts, replace=False):
    """That the edges of a type are the graph's, and as many as each hop's fanout lets through."""
    store = batch if kind is None else batch[kind]
    source_of, destination_of = (batch, batch) if kind is None else (batch[kind[0]], batch[kind[-1]])
    given = whole if kind is None else whole[kind]
    source, destination = store.edge_index
    found = torch.stack([source_of.n_id[source], destination_of.n_id[destination]])
    assert torch.equal(found, given.edge_index[:, store.e_id])
    assert replace or len(store.e_id.unique()) == len(store.e_id)
    if "edge_attr" in given:
        assert torch.equal(store.edge_attr, given.edge_attr[store.e_id])
    degrees = torch.bincount(given.edge_index[1], minlength=1000)
    assert sum(store.num_sampled_edges) == len(source) and len(store.num_sampled_edges) == len(fanouts)
    at = 0
    for count, fanout, (first, last) in zip(store.num_sampled_edges, fanouts, frontiers, strict=True):
        hop = destination[at : at + count]
        at += count
        # A hop has edges of the vertices that the hop before found, each as many as there are, up to the fanout.
        expected = degrees[destination_of.n_id[first:last]]
        if fanout >= 0:
            expected = (expected > 0) * fanout if replace else expected.clamp(max=fanout)
        assert torch.equal(torch.bincount(hop, minlength=last)[first:last], expected) and count == int(expected.sum())


def frontiers_of(num_sampled_nodes):
    """The first and the last of the vertices that each hop samples from."""
    ends = list(itertools.accumulate(num_sampled_nodes, initial=0))
    return list(itertools.pairwise(ends))[: len(num_sampled_nodes) - 1]


@pytest.mark.parametrize(
    ("fanouts", "replace", "inputs"),
    [
        ([4, 2], False, None),
        ([-1, 3], False, torch.arange(59, 20, -1)),
        ([2, 0, 2], False, graph().train_mask),
        ([3, 3, 1], False, [7, 3, 58]),
        ([3, 2], True, graph().train_mask),
        ([], False, None),
    ],
)
def test_batches_are_parts_of_the_graph(fanouts, replace, inputs):
    whole = graph()
    loader = NeighborLoader(whole, fanouts, inputs, replace=replace, batch_size=16, shuffle=True, seed=3)
    assert isinstance(loader, Theirs)
    ids = torch.arange(VERTICES) if inputs is None else torch.as_tensor(inputs)
    ids = ids.nonzero()[:, 0] if ids.dtype == torch.bool else ids
    seeds, inputs_seen = [], []
    for batch in loader:
        assert type(batch) is Data and batch.title == "a graph" and batch.num_nodes == len(batch.n_id)
        assert len(batch.n_id.unique()) == len(batch.n_id) == sum(batch.num_sampled_nodes)
        assert batch.num_sampled_nodes[0] == batch.batch_size
        for name in ("x", "y", "position", "train_mask"):
            assert torch.equal(batch[name], whole[name][batch.n_id])
        assert torch.equal(batch.edge_weight, whole.edge_weight[batch.e_id])
        check_sample(whole, batch, None, frontiers_of(batch.num_sampled_nodes), fanouts, replace)
        seeds.extend(batch.n_id[: batch.batch_size].tolist())
        inputs_seen.extend(batch.input_id.tolist())
    assert sorted(seeds) == sorted(ids.tolist()) and (len(ids) < 5 or seeds != ids.tolist())
    # As PyG's: of a mask the vertices, of a list the places in it.
    is_mask = isinstance(inputs, torch.Tensor) and inputs.dtype == torch.bool
    assert seeds == (inputs_seen if is_mask else ids[torch.tensor(inputs_seen)].tolist())


def test_each_set_of_neighbours_is_as_likely_as_any_other():
    # Six edges arrive at vertex 0, two of them from vertex 1: 20 sets of three.
    data = Data(edge_index=torch.tensor([[1, 1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0, 1]]), num_nodes=7)
    counts = {chosen: 0 for chosen in itertools.combinations(range(6), 3)}
    loader = NeighborLoader(data, [3], [0] * 100, batch_size=100, seed=1)
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, 40)):
        assert torch.equal(batch.edge_index[1], torch.arange(100).repeat_interleave(3))
        for chosen in batch.e_id.view(100, 3).sort(1).values.tolist():
            counts[tuple(chosen)] += 1
    expected = 4000 / 20
    assert sum((count - expected) ** 2 for count in counts.values()) / expected < CHI_SQUARE[19]
    again = NeighborLoader(data, [4], [0] * 100, batch_size=100, replace=True, seed=1)
    drawn = torch.cat([batch.e_id.view(100, 4) for batch in itertools.chain.from_iterable(itertools.repeat(again, 20))])
    # Of two samples with replacement any of 36 pairs; the first of the second four is as independent.
    for one, other in ((0, 1), (2, 3)):
        pairs = torch.bincount(drawn[:, one] * 6 + drawn[:, other], minlength=36).double()
        mean = len(drawn) / 36
        assert float(((pairs - mean) ** 2).sum()) / mean < 75.0


def test_sets_of_neighbours_are_as_likely_as_weights_say():
    # An edge of no weight arrives at vertex 1, and behind it seven at vertex 0, two of them of no weight.
    weight = torch.tensor([0.0, 0.0, 1.0, 4.0, 2.0, 0.0, 1.0, 2.0])
    data = Data(edge_index=torch.tensor([[6, 1, 1, 2, 3, 4, 5, 6], [1, 0, 0, 0, 0, 0, 0, 0]]), weight=weight, num_nodes=7)
    seeds, rounds = [0, 1] * 100, 40

    def sampled(count, replace):
        loader = NeighborLoader(data, [count], seeds, batch_size=200, replace=replace, weight_attr="weight", seed=1)
        batches = list(itertools.chain.from_iterable(itertools.repeat(loader, rounds)))
        # Vertex 1 has no neighbor, and each occurrence of vertex 0 has its own.
        assert all(torch.equal(batch.edge_index[1], torch.arange(0, 200, 2).repeat_interleave(count)) for batch in batches)
        return torch.cat([batch.e_id.view(100, count) - 1 for batch in batches])

    share = weight[1:] / 10
    first, second = torch.meshgrid(share, share, indexing="ij")
    for replace, chances in ((False, first * second / (1 - first)), (True, first * second)):
        chances = chances.double()
        if not replace:
            chances.fill_diagonal_(0)
        # In whichever order two of them are sampled.
        chances = (chances + chances.t()).triu(1) + chances.diag().diag()
        pairs = sampled(2, replace).sort(1).values
        counts = torch.bincount(pairs[:, 0] * 7 + pairs[:, 1], minlength=49).double().view(7, 7)
        expected = chances * len(pairs)
        assert torch.equal(counts > 0, expected > 0)
        known = expected > 0
        # Nine or fourteen degrees of freedom.
        assert float(((counts - expected)[known] ** 2 / expected[known]).sum()) < (42.6 if replace else CHI_SQUARE[9])
    # More than there are of weight, and all.
    assert sorted(sampled(5, False)[0].tolist()) == [1, 2, 3, 5, 6]
    everything = next(iter(NeighborLoader(data, [-1], [0], weight_attr="weight")))
    assert everything.e_id.tolist() == list(range(1, 8))
    of_types = types()
    of_types[BUYS].weight = torch.zeros(200)
    batch = next(iter(NeighborLoader(of_types, [5], ITEM, batch_size=50, weight_attr="weight")))
    assert batch[BUYS].num_edges == 0
    batch = next(iter(LinkLoader(of_types, [5], BOUGHT, batch_size=50, weight_attr="weight")))
    assert batch[BUYS].num_edges == 0 and batch[BOUGHT].num_edges > 0


def test_random_words_are_splitmix64():
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    words = Words(0, torch.device("cpu"))
    assert torch.cat([words.take(2), words.take(1)]).tolist() == [word & (2**63 - 1) for word in first]


def test_a_seed_is_a_sequence_of_batches():
    whole = graph()

    def epochs(count=2, **options):
        loader = NeighborLoader(whole, [3, 2], batch_size=20, shuffle=True, **options)
        return [[(batch.n_id.tolist(), batch.e_id.tolist()) for batch in loader] for _ in range(count)]

    first = epochs(seed=1)
    assert first == epochs(seed=1) and first != epochs(seed=2) and first[0] != first[1]
    torch.manual_seed(4)
    one = epochs()
    torch.manual_seed(4)
    assert one == epochs()
    assert epochs(generator=torch.Generator().manual_seed(1)) == first
    with pytest.raises(ValueError, match="seed and generator at once"):
        NeighborLoader(whole, [3], seed=1, generator=torch.Generator())
    # Other samples of the same order.
    loader = NeighborLoader(whole, [3, 2], batch_size=20, seed=1)
    one, other = ([batch.e_id.tolist() for batch in loader] for _ in range(2))
    assert one != other


def test_workers_sample_as_well():
    whole = graph()
    seen = []
    for batch in NeighborLoader(whole, [3, 2], batch_size=20, num_workers=2, seed=1):
        check_sample(whole, batch, None, frontiers_of(batch.num_sampled_nodes), [3, 2])
        seen.append(batch.e_id.tolist())
    assert len(seen) == 3
    assert seen == [batch.e_id.tolist() for batch in NeighborLoader(whole, [3, 2], batch_size=20, num_workers=2, seed=1)]
    # What a worker that is started anew gets.
    loader = NeighborLoader(whole, [3, 2], batch_size=20)
    copied = pickle.loads(pickle.dumps(loader.node_sampler))
    torch.manual_seed(1)
    one = [batch.e_id.tolist() for batch in loader]
    loader.node_sampler = copied
    torch.manual_seed(1)
    assert one == [batch.e_id.tolist() for batch in loader]


def test_options_of_pygs_loader_do_what_they_do_there():
    whole = graph()

    def marked(batch):
        batch.marked = True
        return batch

    outputs = []
    loader = NeighborLoader(
        whole, [3], batch_size=25, drop_last=True, transform=marked, transform_sampler_output=lambda out: outputs.append(out) or out
    )
    batches = list(loader)
    assert [batch.batch_size for batch in batches] == [25, 25] and all(batch.marked for batch in batches) and len(outputs) == 2
    picked = NeighborLoader(whole, [3], batch_size=2, sampler=[5, 4, 4, 3])
    assert [batch.n_id[:2].tolist() for batch in picked] == [[5, 4], [4, 3]]
    listed = NeighborLoader(whole, NumNeighbors([3]), batch_sampler=[[1, 2, 3], [9]])
    assert [batch.n_id[: batch.batch_size].tolist() for batch in listed] == [[1, 2, 3], [9]]
    numbered = NeighborLoader(whole, [3], [5, 6, 7], batch_size=2, input_id=torch.tensor([9, 8, 7]))
    assert [batch.input_id.tolist() for batch in numbered] == [[9, 8], [7]]
    for batch in NeighborLoader(whole, [3], batch_size=30, subgraph_type="bidirectional"):
        edges = set(map(tuple, batch.edge_index.t().tolist()))
        assert edges == {(b, a) for a, b in edges}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"input_time": torch.zeros(60)}, ValueError, "give time_attr as well"),
        ({"time_attr": "y", "input_time": torch.zeros(59)}, ValueError, "input_time: should be 60 numbers"),
        ({"time_attr": "y", "input_time": torch.full((60,), torch.nan)}, ValueError, "input_time: has a NaN"),
        ({"time_attr": "time"}, ValueError, "neither vertices nor edges have 'time'"),
        ({"time_attr": "title"}, ValueError, "neither vertices nor edges have 'title'"),
        ({"time_attr": "train_mask"}, ValueError, "should be 60 numbers"),
        ({"time_attr": "x"}, ValueError, r"time_attr: x should be 60 numbers.* of shape \(60, 5\)"),
        ({"time_attr": "edge_weight"}, ValueError, "input_time: seeds have no 'edge_weight'"),
        ({"temporal_strategy": "last"}, ValueError, "give time_attr as well"),
        ({"temporal_strategy": "first", "time_attr": "y"}, ValueError, "take 'uniform' or 'last'"),
        ({"temporal_strategy": "last", "time_attr": "y", "weight_attr": "edge_weight"}, ValueError, "samples nothing by weight"),
        ({"input_id": torch.arange(3)}, ValueError, "input_id: should be a tensor of 60"),
        ({"custom_cls": HeteroData}, ValueError, "custom_cls: .* not remote"),
        ({"weight_attr": "weight"}, ValueError, "weight_attr: edges have no 'weight'"),
        ({"weight_attr": "edge_attr"}, ValueError, "weight_attr: edge_attr should be 500"),
        ({"data": Data(edge_index=torch.zeros(2, 1, dtype=torch.long), w=-torch.ones(1), num_nodes=1), "weight_attr": "w"}, ValueError, "negative"),
        ({"directed": False}, ValueError, "directed: subgraph_type"),
        ({"subgraph_type": "inducted"}, ValueError, "take 'directional', 'bidirectional', 'induced'"),
        ({"collate_fn": list}, ValueError, "collate_fn"),
        ({"neighbor_sampler": 1}, ValueError, "neighbor_sampler"),
        ({"batch_sise": 3}, TypeError, "is 'batch_size' meant"),
        ({"num_neighbors": [-2]}, ValueError, "integers from -1 on"),
        ({"num_neighbors": [2.5]}, ValueError, "integers from -1 on"),
        ({"num_neighbors": {BUYS: [2]}}, ValueError, "give a list"),
        ({"input_nodes": [60]}, IndexError, "60 is no vertex"),
        ({"input_nodes": [-1]}, IndexError, "-1 is no vertex"),
        ({"input_nodes": [0.5]}, ValueError, "list of integers or a mask"),
        ({"input_nodes": torch.ones(3, dtype=torch.bool)}, ValueError, "mask should be 60"),
        ({"data": {"edge_index": 1}}, TypeError, "data is a dict"),
        ({"data": Data(x=torch.zeros(3, 1))}, ValueError, "no edge_index"),
        ({"data": Data(edge_index=torch.tensor([[5], [0]]), num_nodes=2)}, IndexError, "source 5 is no vertex"),
        ({"data": types()}, ValueError, "name one: 'user', 'item'"),
        ({"data": types(), "input_nodes": "users"}, ValueError, "is 'user' meant"),
        ({"data": types(), "input_nodes": USER, "num_neighbors": {BUYS: [2]}}, ValueError, "none are given for"),
        ({"data": types(), "input_nodes": USER, "num_neighbors": {(USER, "sells", ITEM): [2]}}, ValueError, "there is no"),
        ({"data": types(), "input_nodes": USER, "num_neighbors": {BUYS: [2], BOUGHT: [2], KNOWS: [2, 2]}}, ValueError, "as many hops"),
    ],
)
def test_what_is_not_sampled_is_refused_in_a_line(options, error, words):
    options = {"data": graph(), "num_neighbors": [3], **options}
    with pytest.raises(error, match=words) as raised:
        NeighborLoader(**options)
    assert "\n" not in str(raised.value)


class Net(torch.nn.Module):
    def __init__(self, trims=False):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv((-1, -1), 6), SAGEConv((-1, -1), 3)])
        self.trims = trims

    def forward(self, x, edge_index, nodes=None, edges=None):
        for layer, conv in enumerate(self.convs):
            if nodes is not None:
                x, edge_index, _ = trim_to_layer(layer, nodes, edges, x, edge_index)
            x = conv(x, edge_index).tanh()
        return x


def test_a_model_of_pygs_gives_the_graphs_rows_also_trimmed():
    whole = graph()
    model = Net()
    expected = model(whole.x, whole.edge_index)
    for batch in NeighborLoader(whole, [-1, -1], batch_size=17, shuffle=True):
        for sizes in ((), (batch.num_sampled_nodes, batch.num_sampled_edges)):
            out = model(batch.x, batch.edge_index, *sizes)[: batch.batch_size]
            torch.testing.assert_close(out, expected[batch.n_id[: batch.batch_size]])


@pytest.mark.parametrize(
    ("fanouts", "inputs"),
    [
        ([3, 2], ITEM),
        ({BUYS: [3, 2], BOUGHT: [0, 2], KNOWS: [1, -1]}, (ITEM, torch.arange(50) % 2 == 0)),
        (NumNeighbors({BUYS: [2, 2, 2]}, default=[1, 1, 1]), (USER, [3, 1, 4, 15, 9, 26])),
    ],
)
def test_batches_of_several_types(fanouts, inputs):
    whole = types()
    asked = fanouts if isinstance(fanouts, NumNeighbors) else NumNeighbors(fanouts)
    by_type = asked.get_values(whole.edge_types)
    seed_type = inputs if isinstance(inputs, str) else inputs[0]
    loader = NeighborLoader(whole, fanouts, inputs, batch_size=8, shuffle=True, seed=2)
    seeds = []
    for batch in loader:
        assert type(batch) is HeteroData and batch.metadata() == whole.metadata()
        assert torch.equal(batch[ITEM].x, whole[ITEM].x[batch[ITEM].n_id]) and torch.equal(batch[USER].age, batch[USER].n_id)
        assert batch[USER].num_nodes == len(batch[USER].n_id)
        for kind in whole.node_types:
            assert len(batch[kind].n_id.unique()) == len(batch[kind].n_id) == sum(batch.num_sampled_nodes_dict[kind])
        for kind in whole.edge_types:
            frontiers = frontiers_of(batch.num_sampled_nodes_dict[kind[-1]])
            check_sample(whole, batch, kind, frontiers, by_type[kind])
        seeds.extend(batch[seed_type].n_id[: batch[seed_type].batch_size].tolist())
    if seed_type == ITEM:
        wanted = range(50) if isinstance(inputs, str) else range(0, 50, 2)
    else:
        wanted = [3, 1, 4, 15, 9, 26]
    assert sorted(seeds) == sorted(wanted)


def test_a_model_of_several_types_gives_the_graphs_rows():
    whole = types()
    whole[USER].x = torch.randn(40, 4)
    convs = [HeteroConv({kind: SAGEConv((-1, -1), 4) for kind in whole.edge_types}) for _ in range(2)]

    def model(x, edge_index, nodes=None, edges=None):
        for layer, conv in enumerate(convs):
            if nodes is not None:
                x, edge_index, _ = trim_to_layer(layer, nodes, edges, x, edge_index)
            x = conv(x, edge_index)
        return x

    expected = model(whole.x_dict, whole.edge_index_dict)[ITEM]
    for batch in NeighborLoader(whole, [-1, -1], ITEM, batch_size=9):
        seeds = batch[ITEM].n_id[: batch[ITEM].batch_size]
        for sizes in ((), (batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict)):
            out = model(batch.x_dict, batch.edge_index_dict, *sizes)[ITEM][: len(seeds)]
            torch.testing.assert_close(out, expected[seeds])


# Links


def pairs_of(index):
    return set(map(tuple, index.t().tolist()))


@pytest.mark.parametrize("amount", [1, 2.5, 0.3])
def test_binary_links(amount):
    whole = graph()
    edges = pairs_of(whole.edge_index)
    loader = LinkLoader(whole, [3, 2], neg_sampling=NegativeSampling("binary", amount), batch_size=64, shuffle=True, seed=1)
    assert isinstance(loader, TheirLinks)
    seen, negatives = [], set()
    for batch in loader:
        positives = len(batch.input_id)
        seen.extend(batch.input_id.tolist())
        label = batch.edge_label
        assert torch.equal(label, torch.cat([torch.ones(positives), torch.zeros(-int(-positives * amount // 1))]))
        ends = batch.n_id[batch.edge_label_index]
        assert torch.equal(ends[:, :positives], whole.edge_index[:, batch.input_id])
        others = pairs_of(ends[:, positives:])
        assert not others & edges and all(a != b for a, b in others)
        negatives |= others
        # Both ends of all links are the seeds, each vertex once.
        assert batch.num_sampled_nodes[0] == len(ends.unique()) == int(batch.edge_label_index.max()) + 1
        check_sample(whole, batch, None, frontiers_of(batch.num_sampled_nodes), [3, 2])
    assert sorted(seen) == list(range(500)) and len(negatives) > 100


def test_negatives_are_no_links_either_and_each_other_pair_is_as_likely():
    # Edges in both directions: of 30 pairs 16 are edges, four are links in one direction or the other; ten are left.
    one = torch.tensor([[0, 0, 0, 1, 1, 2, 3, 4], [1, 2, 3, 2, 4, 5, 4, 5]])
    data = Data(edge_index=torch.cat([one, one.flip(0)], 1), num_nodes=6)
    links = torch.tensor([[0, 5], [4, 3]])
    taken = pairs_of(data.edge_index) | pairs_of(links) | pairs_of(links.flip(0)) | {(at, at) for at in range(6)}
    free = sorted(set(itertools.product(range(6), range(6))) - taken)
    assert len(free) == 10
    loader = LinkLoader(data, [1], links, neg_sampling=NegativeSampling("binary", 500), batch_size=2, seed=1)
    counts = dict.fromkeys(free, 0)
    for batch in itertools.chain(loader, loader):
        for pair in batch.n_id[batch.edge_label_index][:, 2:].t().tolist():
            counts[tuple(pair)] += 1
    assert sum((count - 200) ** 2 for count in counts.values()) / 200 < CHI_SQUARE[9]


def test_negatives_by_weight():
    edges = torch.tensor([[0, 0, 1], [1, 2, 0]])
    pairs = NonEdges(edges, (3, 4), loops=False)
    weights = torch.tensor([3.0, 1.0, 0.0]), torch.tensor([2.0, 1.0, 1.0, 4.0])
    source, destination = pairs.pairs(9000, Words(1, torch.device("cpu")), weights)
    found = torch.bincount(source * 4 + destination, minlength=12).double().view(3, 4)
    expected = torch.outer(*weights).double()
    expected[edges[0], edges[1]] = 0
    expected = expected / expected.sum() * 9000
    assert torch.equal(found > 0, expected > 0)
    known = expected > 0
    # Four degrees of freedom.
    assert float(((found - expected)[known] ** 2 / expected[known]).sum()) < 23.5


def test_triplets():
    whole = graph()
    edges = pairs_of(whole.edge_index)
    loader = LinkLoader(whole, [3], neg_sampling={"mode": "triplet", "amount": 2}, batch_size=50, seed=1)
    for batch in loader:
        assert "edge_label_index" not in batch
        source, positive, negative = batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index], batch.n_id[batch.dst_neg_index]
        assert torch.equal(torch.stack([source, positive]), whole.edge_index[:, batch.input_id])
        assert negative.shape == (len(source), 2)
        for row in negative.t():
            assert not pairs_of(torch.stack([source, row])) & edges and bool((source != row).all())
    flat = next(iter(LinkLoader(whole, [3], neg_sampling="triplet", batch_size=50)))
    assert flat.dst_neg_index.shape == (50,)


def test_each_negative_of_a_source_is_as_likely_as_any_other():
    # Of 13 destinations three have an edge from source 1: ten are left.
    edges = torch.tensor([[1, 1, 1, 1, 0, 2], [0, 4, 12, 4, 1, 5]])
    found = NonEdges(edges, (3, 13), loops=False).destinations(torch.ones(4000, dtype=torch.long), Words(2, torch.device("cpu")))
    counts = torch.bincount(found, minlength=13).double()
    assert not counts[[0, 4, 12]].any()
    assert float(((counts[counts > 0] - 400) ** 2).sum()) / 400 < CHI_SQUARE[9] and int((counts > 0).sum()) == 10


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("kind", [BUYS, KNOWS])
def test_links_of_a_type(mode, kind):
    whole = types()
    edges = pairs_of(whole[kind].edge_index)
    links = whole[kind].edge_index[:, ::2]
    loader = LinkLoader(whole, [2, 2], (kind, links), neg_sampling=mode, batch_size=32, seed=3)
    sources, destinations = (batch_of for batch_of in (kind[0], kind[-1]))
    for batch in loader:
        if mode == "binary":
            source, destination = batch[kind].edge_label_index
            positives = len(batch[kind].input_id)
        else:
            source = batch[sources].src_index.repeat(2)
            destination = torch.cat([batch[destinations].dst_pos_index, batch[destinations].dst_neg_index])
            positives = len(source) // 2
        ends = torch.stack([batch[sources].n_id[source], batch[destinations].n_id[destination]])
        assert torch.equal(ends[:, :positives], links[:, batch[kind].input_id])
        assert len(ends[0]) == 2 * positives and not pairs_of(ends[:, positives:]) & edges
        for each in whole.edge_types:
            check_sample(whole, batch, each, frontiers_of(batch.num_sampled_nodes_dict[each[-1]]), [2, 2])
    everything = LinkLoader(whole, [2], kind, batch_size=1000)
    (batch,) = everything
    assert torch.equal(batch[kind].input_id, torch.arange(whole[kind].num_edges))


def test_labels_of_links_make_place_for_negatives():
    whole = graph()
    labels = torch.arange(500) % 3
    batch = next(iter(LinkLoader(whole, [2], whole.edge_index, labels, neg_sampling_ratio=1.0, batch_size=10)))
    assert torch.equal(batch.edge_label, torch.cat([labels[:10] + 1, torch.zeros(10, dtype=torch.long)]))
    plain = next(iter(LinkLoader(whole, [2], whole.edge_index, labels, batch_size=10)))
    assert torch.equal(plain.edge_label, labels[:10])
    # Rows of labels, of which negatives have zeros.
    rows = next(iter(LinkLoader(whole, [2], whole.edge_index, torch.ones(500, 2), neg_sampling="binary", batch_size=10)))
    assert rows.edge_label.shape == (20, 2) and float(rows.edge_label.sum()) == 20


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_too_few_negatives_are_said_once(mode):
    full = torch.cartesian_prod(torch.arange(4), torch.arange(4)).t()
    loader = LinkLoader(Data(edge_index=full, num_nodes=4), [1], neg_sampling=mode, batch_size=4)
    with pytest.warns(UserWarning, match="too few pairs without an edge: 4 negatives") as warned:
        batches = list(loader)
    assert len(warned) == 1 and len(batches) == 4
    # One pair is left, and is found.
    one = full[:, (full[0] != 1) | (full[1] != 2)]
    one = one[:, one[0] != one[1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = next(iter(LinkLoader(Data(edge_index=one, num_nodes=4), [1], torch.tensor([[1], [0]]), neg_sampling=mode)))
    index = batch.edge_label_index[:, 1] if mode == "binary" else torch.stack([batch.src_index[0], batch.dst_neg_index[0]])
    assert batch.n_id[index].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"edge_label_time": torch.zeros(500)}, ValueError, "edge_label_time: .* give time_attr as well"),
        ({"time_attr": "y"}, ValueError, "time_attr: .* give edge_label_time as well"),
        ({"time_attr": "y", "edge_label_time": torch.zeros(60)}, ValueError, "edge_label_time: should be 500 numbers"),
        ({"input_id": [1]}, ValueError, "input_id: should be a tensor of 500"),
        ({"neg_sampling": "binary", "neg_sampling_ratio": 1.0}, ValueError, "give one of them"),
        ({"edge_label_index": torch.tensor([[60], [0]])}, IndexError, "60 is no vertex"),
        ({"edge_label_index": torch.zeros(3, 3)}, ValueError, "2 x L"),
        ({"edge_label": torch.zeros(3)}, ValueError, "3 labels of 500 links"),
        ({"edge_label": torch.zeros(500), "neg_sampling": "triplet"}, ValueError, "edge_label"),
        ({"data": types()}, ValueError, "name one:"),
        ({"data": types(), "edge_label_index": (USER, "buy", ITEM)}, ValueError, "is .* meant"),
    ],
)
def test_what_is_not_sampled_of_links_is_refused(options, error, words):
    with pytest.raises(error, match=words) as raised:
        LinkLoader(**{"data": graph(), "num_neighbors": [3], **options})
    if "triplet" not in options.values():
        assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="weights should be 60 numbers"):
        next(iter(LinkLoader(graph(), [3], neg_sampling=NegativeSampling("binary", 1, torch.ones(3), torch.ones(3)))))


@pytest.mark.cuda
def test_a_gpu_samples_what_the_cpu_samples():
    for data, options in ((graph(), {}), (types(), {"input_nodes": ITEM})):
        host, device = (NeighborLoader(each, [3, 2], batch_size=16, shuffle=True, seed=3, **options) for each in (data, data.clone().cuda()))
        for one, other in zip(host, device, strict=True):
            for store, theirs in zip(one.stores, other.stores, strict=True):
                for name, value in store.items():
                    if isinstance(value, torch.Tensor):
                        torch.testing.assert_close(value, theirs[name].cpu())
