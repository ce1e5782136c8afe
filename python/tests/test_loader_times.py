"""PyG's loaders by time, disjoint and induced, and HGT's: nothing is later than its seed, and samples are as likely as they should be."""

from __future__ import annotations

import itertools
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from test_loader import BOUGHT, BUYS, CHI_SQUARE, ITEM, KNOWS, USER, VERTICES, Net, frontiers_of, graph, pairs_of, types  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.loader import HGTLoader as TheirHGT  # noqa: E402
from torch_geometric.sampler import NegativeSampling  # noqa: E402

from halfgnn import HGTLoader, LinkLoader, NeighborLoader  # noqa: E402
from halfgnn._negatives import NonEdges  # noqa: E402
from halfgnn._words import Words  # noqa: E402


def timed():
    """The graph with times of vertices and of edges, many of them equal."""
    whole, generator = graph(), torch.Generator().manual_seed(9)
    whole.time = torch.randint(12, (VERTICES,), generator=generator)
    whole.edge_time = torch.randint(12, (500,), generator=generator) / 2
    return whole


def timed_types(of_edges):
    """Users and items with times, or two of three types of edges."""
    whole, generator = types(), torch.Generator().manual_seed(8)
    if of_edges:
        whole[BUYS].time = torch.randint(20, (200,), generator=generator)
        whole[KNOWS].time = torch.randint(20, (100,), generator=generator)
    else:
        whole[USER].time = torch.randint(20, (40,), generator=generator)
        whole[ITEM].time = torch.randint(20, (50,), generator=generator).double()
    return whole


def stores(whole, batch):
    """Of each type of edges their store in the whole and in the batch, and the stores of both ends."""
    if isinstance(whole, Data):
        return {None: (whole, batch, (whole, whole), (batch, batch))}
    return {
        kind: (whole[kind], batch[kind], (whole[kind[0]], whole[kind[-1]]), (batch[kind[0]], batch[kind[-1]])) for kind in whole.edge_types
    }


def check_times(whole, batch, name, until, fanouts=None, replace=False, strategy="uniform"):
    """That edges are the graph's, within the sample of a seed, not later than it, and as many as there are, up to the fanout."""
    for kind, (given, sampled, (source, _), (from_, to)) in stores(whole, batch).items():
        row, column = sampled.edge_index
        ends = torch.stack([from_.n_id[row], to.n_id[column]])
        assert torch.equal(given.edge_index[:, sampled.e_id], ends)
        assert torch.equal(from_.batch[row], to.batch[column])
        edges = given[name].double() if name in given and len(given[name]) == given.num_edges else None
        if edges is None and name in source:
            edges = source[name].double()[given.edge_index[0]]
        if edges is not None:
            assert bool((edges[sampled.e_id] <= until[to.batch[column]]).all())
        if fanouts is None:
            continue
        at = 0
        for count, fanout, (first, last) in zip(
            sampled.num_sampled_edges, fanouts, frontiers_of(to.num_sampled_nodes), strict=True
        ):
            found, numbers = column[at : at + count], sampled.e_id[at : at + count]
            at += count
            # Edges that may be sampled, for each vertex of the hop.
            early = given.edge_index[1] == to.n_id[first:last, None]
            if edges is not None:
                early &= edges <= until[to.batch[first:last], None]
            degrees = early.sum(1)
            wanted = degrees if fanout < 0 else (degrees > 0) * fanout if replace else degrees.clamp(max=fanout)
            assert torch.equal(torch.bincount(found - first, minlength=last - first), wanted) and bool(early[found - first, numbers].all())
            if not replace:
                assert len(torch.unique(torch.stack([found, numbers]), dim=1).t()) == count
            if strategy == "last" and edges is not None and count and not replace:
                latest = torch.where(early, edges, -torch.inf).sort(1, descending=True).values
                assert bool((edges[numbers] >= latest[found - first, wanted[found - first] - 1]).all())
        assert at == len(column)


def check_trees(batch, kind, seeds):
    """That each vertex is once in the sample of a seed, and that the seeds come first."""
    store = batch if kind is None else batch[kind]
    assert len(set(zip(store.batch.tolist(), store.n_id.tolist()))) == len(store.n_id) == store.num_nodes
    if seeds is not None:
        assert store.batch[: len(seeds)].tolist() == list(range(len(seeds))) and store.n_id[: len(seeds)].tolist() == seeds


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("name", ["time", "edge_time"])
@pytest.mark.parametrize(("replace", "weight", "given"), [(False, None, False), (False, "edge_weight", True), (True, None, True), (True, "edge_weight", True)])
def test_no_neighbour_is_later_than_its_seed(strategy, name, replace, weight, given):
    if strategy == "last":
        weight = None
    whole = timed()
    times = None
    if given or name == "edge_time":
        times = torch.arange(VERTICES) % 7 + 0.5
    loader = NeighborLoader(
        whole, [3, 2], input_time=times, time_attr=name, temporal_strategy=strategy, replace=replace, weight_attr=weight, batch_size=16, shuffle=True, seed=2
    )
    seeds = []
    for batch in loader:
        own = batch.n_id[: batch.batch_size]
        until = (whole.time if times is None else times)[own].double()
        assert "seed_time" not in batch if times is None else torch.equal(batch.seed_time, times[own])
        check_trees(batch, None, own.tolist())
        check_times(whole, batch, name, until, [3, 2], replace, strategy)
        seeds += own.tolist()
    assert sorted(seeds) == list(range(VERTICES))


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("of_edges", [False, True])
@pytest.mark.parametrize("inputs", [ITEM, (USER, torch.arange(40) % 3 == 0)])
def test_no_neighbour_of_several_types_is_later_than_its_seed(strategy, of_edges, inputs):
    whole = timed_types(of_edges)
    kind = inputs if isinstance(inputs, str) else inputs[0]
    times = torch.arange(50 if kind == ITEM else 14) % 20 if of_edges else None
    loader = NeighborLoader(whole, [3, 2], inputs, input_time=times, time_attr="time", temporal_strategy=strategy, batch_size=8, seed=2)
    for batch in loader:
        own = batch[kind].n_id[: batch[kind].batch_size]
        until = whole[kind].time[own].double() if times is None else batch[kind].seed_time.double()
        check_trees(batch, kind, own.tolist())
        check_trees(batch, USER if kind == ITEM else ITEM, None)
        check_times(whole, batch, "time", until, [3, 2], strategy=strategy)


def test_types_without_times_are_sampled_as_ever():
    whole = timed_types(False)
    del whole[ITEM].time
    with pytest.raises(ValueError, match="vertices of 'item' have no 'time'"):
        NeighborLoader(whole, [-1], ITEM, time_attr="time")
    batch = next(iter(NeighborLoader(whole, [-1], (USER, [3, 3, 4]), input_time=torch.tensor([-1, 30, 5]), time_attr="time", batch_size=3)))
    # No user is earlier than -1, and all items are there.
    degrees = torch.bincount(batch[KNOWS].edge_index[1], minlength=3).tolist()
    assert degrees[0] == 0 and degrees[1] == int((whole[KNOWS].edge_index[1] == 3).sum())
    assert torch.bincount(batch[BOUGHT].edge_index[1], minlength=3).tolist() == [
        int((whole[BOUGHT].edge_index[1] == user).sum()) for user in (3, 3, 4)
    ]
    whole[KNOWS].time = torch.zeros(100)
    with pytest.raises(ValueError, match="time_attr: vertices and edges have 'time'"):
        NeighborLoader(whole, [-1], USER, time_attr="time")


def plain_sample(whole, kinds, seeds, until, fanouts, time_of):
    """The last neighbors, one after the other: the vertices of each type, and the edges of each type as (source, destination, number)."""
    nodes = {kind: [] for ends in kinds.values() for kind in ends}
    nodes[seeds[0]] = list(enumerate(seeds[1]))
    edges, starts = {kind: [] for kind in kinds}, dict.fromkeys(nodes, 0)
    for fanout in fanouts:
        ends = {kind: len(found) for kind, found in nodes.items()}
        for kind, (source, destination) in kinds.items():
            store, times = (whole if kind is None else whole[kind]), time_of(kind)
            row, column = store.edge_index.tolist()
            for at in range(starts[destination], ends[destination]):
                tree, vertex = nodes[destination][at]
                early = [edge for edge in range(len(row)) if column[edge] == vertex and times[edge] <= until[tree]]
                for edge in sorted(early, key=lambda edge: (times[edge], edge))[-fanout:]:
                    key = (tree, row[edge])
                    if key not in nodes[source]:
                        nodes[source].append(key)
                    edges[kind].append((nodes[source].index(key), at, edge))
        starts = ends
    return nodes, edges


@pytest.mark.parametrize("name", ["time", "edge_time", "types"])
def test_the_last_neighbours_are_those_of_a_plain_reference(name):
    if name == "types":
        whole = timed_types(False)
        kinds, seeds = {kind: (kind[0], kind[-1]) for kind in whole.edge_types}, (ITEM, list(range(0, 40, 5)))
        times = {kind: whole[kind[0]].time[whole[kind].edge_index[0]].tolist() for kind in kinds}
        loader = NeighborLoader(whole, [2, 3], seeds, time_attr="time", temporal_strategy="last", batch_size=8)
        until = whole[ITEM].time[::5]
    else:
        whole, seeds = timed(), (None, list(range(0, 50, 5)))
        kinds, until = {None: (None, None)}, torch.arange(10) % 6 + 1
        times = {None: (whole.time[whole.edge_index[0]] if name == "time" else whole.edge_time).tolist()}
        loader = NeighborLoader(whole, [2, 3], seeds[1], input_time=until, time_attr=name, temporal_strategy="last", batch_size=10)
    nodes, edges = plain_sample(whole, kinds, seeds, until.tolist(), [2, 3], times.__getitem__)
    first, second = list(loader), list(loader)
    assert sum(map(len, edges.values())) > 20
    for batch in (*first, *second):
        for kind, found in nodes.items():
            store = batch if kind is None else batch[kind]
            assert list(zip(store.batch.tolist(), store.n_id.tolist())) == found
        for kind, found in edges.items():
            store = batch if kind is None else batch[kind]
            assert list(zip(*store.edge_index.tolist(), store.e_id.tolist())) == found


def test_each_set_of_early_neighbours_is_as_likely_as_any_other():
    # Five of seven edges of vertex 0 are not later than 3, two of them from vertex 1: ten sets of two.
    times = torch.tensor([3.0, 3.5, 1.0, 0.0, 9.0, 3.0, 2.0, 0.0])
    data = Data(edge_index=torch.tensor([[1, 2, 3, 4, 5, 6, 1, 7], [0, 0, 0, 0, 0, 0, 0, 1]]), edge_time=times, num_nodes=9)
    options = {"input_time": torch.full((200,), 3), "time_attr": "edge_time", "batch_size": 200, "seed": 1}
    loader = NeighborLoader(data, [2], [0] * 200, **options)
    counts = {chosen: 0 for chosen in itertools.combinations([0, 2, 3, 5, 6], 2)}
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, 20)):
        assert torch.equal(batch.edge_index[1], torch.arange(200).repeat_interleave(2))
        for chosen in batch.e_id.view(200, 2).sort(1).values.tolist():
            counts[tuple(chosen)] += 1
    assert sum((count - 400) ** 2 for count in counts.values()) / 400 < CHI_SQUARE[9]
    # With replacement, by weights: no late edge, however heavy.
    data.weight = torch.tensor([1.0, 100.0, 2.0, 3.0, 100.0, 4.0, 0.0, 1.0])
    (batch,) = NeighborLoader(data, [20], [0] * 200, replace=True, weight_attr="weight", **options)
    found = torch.bincount(batch.e_id, minlength=8).double()
    expected = torch.tensor([0.1, 0, 0.2, 0.3, 0, 0.4, 0, 0]) * 4000
    known = expected > 0
    assert torch.equal(found > 0, known) and float(((found - expected)[known] ** 2 / expected[known]).sum()) < 21.1


def test_times_of_integers_are_compared_exactly():
    # One more than 2⁵³ is no float64.
    most = 2**53
    data = Data(edge_index=torch.tensor([[0, 1], [2, 2]]), time=torch.tensor([most, most + 1, 0]), num_nodes=3)
    batch = next(iter(NeighborLoader(data, [-1], [2], input_time=torch.tensor([most]), time_attr="time")))
    assert batch.n_id.tolist() == [2, 0]


# Disjoint and induced


def test_disjoint_samples_are_one_for_each_seed():
    whole = graph()
    seeds = [4, 9, 4, 30]
    for batch in NeighborLoader(whole, [3, 2], seeds, disjoint=True, batch_size=4, seed=5):
        check_trees(batch, None, seeds)
        check_times(whole, batch, "no", torch.zeros(4), [3, 2])
        assert torch.equal(batch.x, whole.x[batch.n_id])
    of_types = types()
    for batch in NeighborLoader(of_types, [3, 2], (ITEM, [1, 1, 2]), disjoint=True, batch_size=3, seed=5):
        check_trees(batch, ITEM, [1, 1, 2])
        check_trees(batch, USER, None)
        check_times(of_types, batch, "no", torch.zeros(3), [3, 2])
    # Samples that share have no vector.
    assert next(iter(NeighborLoader(whole, [3], seeds))).batch is None


def test_a_model_gives_the_graphs_rows_of_disjoint_and_induced_samples():
    whole, model = graph(), Net()
    expected = model(whole.x, whole.edge_index)
    for options in ({"disjoint": True}, {"subgraph_type": "induced"}, {"disjoint": True, "subgraph_type": "induced"}):
        for batch in NeighborLoader(whole, [-1, -1], batch_size=17, **options):
            # Trimmed by hop, where edges are those of hops.
            trims = [()] + ([] if "subgraph_type" in options else [(batch.num_sampled_nodes, batch.num_sampled_edges)])
            assert ("subgraph_type" in options) == ("num_sampled_edges" not in batch)
            for sizes in trims:
                out = model(batch.x, batch.edge_index, *sizes)[: batch.batch_size]
                torch.testing.assert_close(out, expected[batch.n_id[: batch.batch_size]])


@pytest.mark.parametrize(("disjoint", "time"), [(False, None), (True, None), (False, "time"), (False, "edge_time")])
@pytest.mark.parametrize("of_types", [False, True])
def test_induced_samples_have_all_edges_between_their_vertices(disjoint, time, of_types):
    whole, inputs, kind = (timed_types(time == "edge_time"), (ITEM, list(range(20))), ITEM) if of_types else (timed(), list(range(20)), None)
    name = "time" if of_types and time is not None else time
    given = torch.arange(20) % 9 if time == "edge_time" else None
    (batch,) = NeighborLoader(
        whole, [2, 1], inputs, disjoint=disjoint, time_attr=name, input_time=given, subgraph_type="induced", batch_size=20, seed=3
    )
    is_disjoint = disjoint or time is not None
    if time is not None:
        until = given if given is not None else (whole if kind is None else whole[kind]).time[:20]
        check_times(whole, batch, name, until.double())
    for of_whole, sampled, (source, _), (from_, to) in stores(whole, batch).values():
        row, column = sampled.edge_index
        trees = (from_.batch, to.batch) if is_disjoint else (torch.zeros_like(from_.n_id), torch.zeros_like(to.n_id))
        found = set(zip(trees[0][row].tolist(), sampled.e_id.tolist()))
        assert len(found) == len(sampled.e_id)
        assert torch.equal(of_whole.edge_index[:, sampled.e_id], torch.stack([from_.n_id[row], to.n_id[column]]))
        there = [set(zip(tree.tolist(), end.n_id.tolist())) for tree, end in zip(trees, (from_, to))]
        ends = of_whole.edge_index.t().tolist()
        times = of_whole[name] if time == "edge_time" and name in of_whole else source[name][of_whole.edge_index[0]] if time == "time" else None
        assert found == {
            (tree, edge)
            for tree in range(20 if is_disjoint else 1)
            for edge, (one, other) in enumerate(ends)
            if (tree, one) in there[0] and (tree, other) in there[1] and (times is None or times[edge] <= until[tree])
        }


def test_weights_and_times_of_a_type_with_and_without_replacement():
    whole = timed_types(True)
    whole[KNOWS].w = torch.arange(100) % 4
    for replace in (False, True):
        times = torch.full((40,), 11)
        loader = NeighborLoader(whole, [3, 2], USER, input_time=times, time_attr="time", weight_attr="w", replace=replace, batch_size=40, seed=1)
        (batch,) = loader
        chosen = batch[KNOWS].e_id
        assert len(chosen) > 20 and bool((whole[KNOWS].w[chosen] > 0).all()) and bool((whole[KNOWS].time[chosen] <= 11).all())
        assert batch[BUYS].num_edges > 20


# Links


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("kind", [None, BUYS, KNOWS])
@pytest.mark.parametrize("amount", [1, 2])
def test_links_by_time(mode, kind, amount):
    whole = timed() if kind is None else timed_types(False)
    given = whole if kind is None else whole[kind]
    vertices = (whole, whole) if kind is None else (whole[kind[0]], whole[kind[-1]])
    edges, links = pairs_of(given.edge_index), given.edge_index[:, ::3]
    times = torch.arange(len(links[0])) % 13 + 1
    labels = None if mode == "triplet" else torch.arange(len(links[0])) % 3
    sampling = None if mode is None else NegativeSampling(mode, amount)
    loader = LinkLoader(
        whole, [3, 2], links if kind is None else (kind, links), labels, edge_label_time=times, time_attr="time", neg_sampling=sampling, batch_size=64, seed=4
    )
    seen = []
    for batch in loader:
        store = batch if kind is None else batch[kind]
        from_, to = (batch, batch) if kind is None else (batch[kind[0]], batch[kind[-1]])
        positives = len(store.input_id)
        seen += store.input_id.tolist()
        until = times[store.input_id].double()
        is_one = from_ is to
        if mode == "triplet":
            assert torch.equal(from_.seed_time, times[store.input_id]) and "edge_label_index" not in store
            negative = to.dst_neg_index.view(positives, amount)
            assert torch.equal(from_.n_id[from_.src_index], links[0][store.input_id]) and torch.equal(to.n_id[to.dst_pos_index], links[1][store.input_id])
            source, destination = from_.src_index.repeat_interleave(amount), negative.flatten()
            of_link = torch.arange(positives).repeat_interleave(amount)
        else:
            index = store.edge_label_index
            count = 0 if mode is None else amount * positives
            # As PyG numbers them: each end is a seed of its own.
            total = positives + count
            expected = torch.arange(2 * total).view(2, -1) if is_one else torch.arange(total).repeat(2).view(2, -1)
            assert torch.equal(index, expected)
            assert torch.equal(store.edge_label_time, times[store.input_id].repeat(1 + count // positives))
            assert torch.equal(store.edge_label, torch.cat([labels[store.input_id] + (mode is not None), torch.zeros(count, dtype=torch.long)]))
            assert torch.equal(torch.stack([from_.n_id[index[0]], to.n_id[index[1]]])[:, :positives], links[:, store.input_id])
            source, destination = index[:, positives:]
            of_link = torch.arange(count) % positives
        for index, end in ((source, from_), (destination, to)):
            assert torch.equal(end.batch[index], of_link)
        assert not pairs_of(torch.stack([from_.n_id[source], to.n_id[destination]])) & edges
        if mode == "binary":
            assert bool((vertices[0].time[from_.n_id[source]] <= until[of_link]).all())
        assert bool((vertices[1].time[to.n_id[destination]] <= until[of_link]).all())
        # Each end has a sample of its own, so that a vertex may be there for several ends of a link.
        check_times(whole, batch, "time", until, [3, 2])
    assert sorted(seen) == list(range(len(links[0])))


def test_links_by_times_of_edges():
    whole = timed_types(True)
    times = torch.arange(200) % 20
    loader = LinkLoader(whole, [3], BUYS, edge_label_time=times, time_attr="time", temporal_strategy="last", neg_sampling="binary", batch_size=64)
    for batch in loader:
        check_times(whole, batch, "time", times[batch[BUYS].input_id].double(), [3], strategy="last")


@pytest.mark.parametrize("time", [None, "time"])
@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_too_few_negatives_of_a_type_are_said_once(mode, time):
    whole = timed_types(False)
    # Each user has bought each item; not all users know one another.
    whole[BUYS].edge_index = torch.cartesian_prod(torch.arange(40), torch.arange(50)).t()
    whole[BUYS].edge_attr = torch.zeros(2000, 3)
    given = {} if time is None else {"time_attr": time, "edge_label_time": torch.full((2000,), 9)}
    with pytest.warns(UserWarning, match="too few pairs without an edge: 500 negatives of this batch are edges") as warned:
        batches = list(LinkLoader(whole, [1], BUYS, neg_sampling=mode, batch_size=500, **given))
    assert len(warned) == 1 and len(batches) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = {} if time is None else {"time_attr": time, "edge_label_time": torch.full((100,), 19)}
        list(LinkLoader(whole, [1], KNOWS, neg_sampling=mode, batch_size=50, **given))


def test_workers_sample_by_time_and_by_budget():
    whole = timed_types(False)
    for made in (
        lambda: NeighborLoader(whole, [3, 2], USER, time_attr="time", batch_size=20, num_workers=2, seed=1),
        lambda: HGTLoader(whole, [5, 4], USER, batch_size=20, num_workers=2, seed=1),
    ):
        first, second = ([batch[BUYS].e_id.tolist() for batch in made()] for _ in range(2))
        assert first == second and len(first) == 2


@pytest.mark.parametrize("kind", [None, BUYS])
@pytest.mark.parametrize("amount", [1.0, 0.7])
def test_disjoint_links_without_times(kind, amount):
    whole = graph() if kind is None else types()
    loader = LinkLoader(whole, [2, 2], kind, neg_sampling=NegativeSampling("binary", amount), disjoint=True, batch_size=25, seed=1)
    for batch in itertools.islice(loader, 3):
        store, (from_, to) = (batch, (batch, batch)) if kind is None else (batch[kind], (batch[USER], batch[ITEM]))
        index, positives = store.edge_label_index, len(store.input_id)
        numbers = torch.cat([torch.arange(positives), torch.arange(index.shape[1] - positives) % positives])
        assert torch.equal(from_.batch[index[0]], numbers) and torch.equal(to.batch[index[1]], numbers)
        check_times(whole, batch, "no", torch.zeros(25))


@pytest.mark.parametrize("mode", ["pairs", "destinations"])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_early_negative_is_as_likely_as_it_should_be(mode, weighted):
    # Not later than 2 are the sources 0, 2 and 3, and the destinations 1, 2, 4 and 5; four of these pairs are edges.
    times = torch.tensor([2, 5, 0, 1]), torch.tensor([9, 0, 2, 7, 2, 1])
    edges = torch.tensor([[0, 0, 2, 3, 1, 3], [1, 4, 5, 2, 1, 0]])
    weights = (torch.tensor([1.0, 5.0, 2.0, 1.0]), torch.tensor([4.0, 1.0, 3.0, 1.0, 1.0, 2.0])) if weighted else (None, None)
    pairs = NonEdges(edges, (4, 6), loops=False, times=times)
    until, words = torch.full((8000,), 2), Words(3, torch.device("cpu"))
    chance = torch.ones(4, 6) if not weighted else torch.outer(*weights)
    chance[[1]], chance[:, [0, 3]] = 0, 0
    chance[edges[0], edges[1]] = 0
    if mode == "pairs":
        source, destination = pairs.pairs(8000, words, weights, until)
        expected = chance.double() / chance.sum() * 8000
    else:
        source = torch.arange(8000) % 4
        destination = pairs.destinations(source, words, weights[1], until)
        chance[1] = torch.tensor([0.0, 0, 1, 0, 1, 1]) * (weights[1] if weighted else 1)
        expected = chance.double() / chance.sum(1, keepdim=True) * 2000
        if weighted:
            expected = (chance / weights[0][:, None]).double()
            expected[1] = chance[1]
            expected = expected / expected.sum(1, keepdim=True) * 2000
    found = torch.bincount(source * 6 + destination, minlength=24).double().view(4, 6)
    known = expected > 0
    assert torch.equal(found > 0, known)
    # Seven degrees of freedom.
    assert float(((found - expected)[known] ** 2 / expected[known]).sum()) < 29.9


def test_pairs_that_attempts_do_not_find_are_found():
    # All pairs up to time 1 but three are edges, among 60 x 60: attempts find one in 1,200.
    generator = torch.Generator().manual_seed(1)
    times = torch.randint(3, (80,), generator=generator)
    early = (times <= 1).nonzero()[:, 0]
    free = torch.stack([early[[3, 9, 30]], early[[40, 2, 2]]])
    every = torch.cartesian_prod(torch.arange(80), torch.arange(80)).t()
    is_free = (every[0] * 80 + every[1])[:, None].eq(free[0] * 80 + free[1]).any(1)
    pairs = NonEdges(every[:, ~is_free], (80, 80), loops=False, times=(times, times))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source, destination = pairs.pairs(300, Words(1, torch.device("cpu")), until=torch.ones(300, dtype=torch.long))
    counts = (source * 80 + destination)[:, None].eq(free[0] * 80 + free[1]).sum(0)
    assert int(counts.sum()) == 300 and float(((counts - 100.0) ** 2).sum()) / 100 < 18.4
    late = NonEdges(every, (80, 80), loops=False, times=(times, times))
    with pytest.warns(UserWarning, match="too few pairs without an edge: 7 negatives of this batch are edges, for all pairs that weights") as warned:
        for _ in range(2):
            late.destinations(early[:7], Words(1, torch.device("cpu")), until=torch.ones(7, dtype=torch.long))
            late.pairs(7, Words(1, torch.device("cpu")), until=torch.ones(7, dtype=torch.long))
    assert len(warned) == 1
    with pytest.warns(UserWarning, match="3 negatives of this batch are later than their links, for no vertex is early enough") as warned:
        source, _ = NonEdges(every[:, :5], (80, 80), loops=False, times=(times, None)).pairs(3, Words(1, torch.device("cpu")), until=-torch.ones(3))
    assert len(warned) == 1 and bool((times[source] == 0).all())


# HGT's


def check_hgt(whole, batch, kind, counts):
    """That a batch has all edges between its vertices, each vertex once, and of each type as many as asked for, or all that are near."""
    assert type(batch) is HeteroData and batch[kind].num_nodes >= batch[kind].batch_size
    for each in whole.node_types:
        ids = batch[each].n_id
        assert len(ids.unique()) == len(ids)
        seeds = batch[kind].batch_size if each == kind else 0
        assert len(ids) - seeds <= sum(counts[each])
    for each in whole.edge_types:
        row, column = batch[each].edge_index
        found = torch.stack([batch[each[0]].n_id[row], batch[each[-1]].n_id[column]])
        assert torch.equal(found, whole[each].edge_index[:, batch[each].e_id])
        expected = torch.isin(whole[each].edge_index[0], batch[each[0]].n_id) & torch.isin(whole[each].edge_index[1], batch[each[-1]].n_id)
        assert sorted(batch[each].e_id.tolist()) == expected.nonzero()[:, 0].tolist()


@pytest.mark.parametrize("counts", [[4, 3], {USER: [5, 0, 2], ITEM: [1, 2, 3]}, [100] * 4])
def test_hgts_batches_are_parts_of_the_graph(counts):
    whole = types()
    loader = HGTLoader(whole, counts, (ITEM, torch.arange(50) % 2 == 0), batch_size=8, shuffle=True, seed=2)
    assert isinstance(loader, TheirHGT)
    by_type = counts if isinstance(counts, dict) else dict.fromkeys(whole.node_types, counts)
    seeds = []
    for batch in loader:
        check_hgt(whole, batch, ITEM, by_type)
        seeds += batch[ITEM].n_id[: batch[ITEM].batch_size].tolist()
        assert torch.equal(batch[ITEM].x, whole[ITEM].x[batch[ITEM].n_id])
    assert sorted(seeds) == list(range(0, 50, 2))
    first, second = ([batch[USER].n_id.tolist() for batch in HGTLoader(whole, counts, USER, seed=1, batch_size=9)] for _ in range(2))
    assert first == second
    copied = pickle.loads(pickle.dumps(loader.node_sampler))
    assert type(copied) is type(loader.node_sampler)


def test_hgts_vertices_are_as_likely_as_the_squares_of_their_budgets():
    # Budgets of users 0 to 3 from item 0 (four edges) and item 1 (two edges): 1/2, 1/4, 1/4 + 1/2, 1/2.
    data = HeteroData()
    data[USER].num_nodes, data[ITEM].num_nodes = 5, 2
    data[BUYS].edge_index = torch.tensor([[2, 0, 1, 0, 3, 2], [0, 0, 0, 0, 1, 1]])
    data[BOUGHT].edge_index = data[BUYS].edge_index.flip(0)
    share = torch.tensor([0.5, 0.25, 0.75, 0.5]).double() ** 2
    share /= share.sum()
    first, second = torch.meshgrid(share, share, indexing="ij")
    rounds = 400
    expected = rounds * (first * second / (1 - first)).fill_diagonal_(0)
    expected = (expected + expected.t()).triu(1)
    loader = HGTLoader(data, {USER: [2], ITEM: [0]}, ITEM, batch_size=2, seed=7)
    found = torch.zeros(4, 4).double()
    for _ in range(rounds):
        one, other = sorted(loader.node_sampler.sample_from_nodes(loader.input_data[[0, 1]]).node[USER].tolist())
        found[one, other] += 1
    known = expected > 0
    # Five degrees of freedom.
    assert torch.equal(found > 0, known) and float(((found - expected)[known] ** 2 / expected[known]).sum()) < 25.7


def test_hgts_second_hop_counts_the_edges_of_the_first():
    # Item 0 leads to user 0, which leads to the items 1 to 3, item 1 by two edges. A share of item 0's own budget is no other's.
    data = HeteroData()
    data[USER].num_nodes, data[ITEM].num_nodes = 2, 5
    data[BUYS].edge_index = torch.tensor([[0], [0]])
    data[BOUGHT].edge_index = torch.tensor([[0, 1, 1, 2, 3], [0, 0, 0, 0, 0]])
    counts = torch.zeros(5)
    loader = HGTLoader(data, {USER: [1, 0], ITEM: [0, 1]}, (ITEM, [0]), seed=3)
    for _ in range(200):
        nodes = loader.node_sampler.sample_from_nodes(loader.input_data[[0]]).node
        assert nodes[USER].tolist() == [0] and nodes[ITEM][0] == 0
        counts[nodes[ITEM][1]] += 1
    expected = torch.tensor([0, 4, 1, 1, 0]) * 200 / 6
    assert torch.equal(counts > 0, expected > 0) and float(((counts - expected)[1:4] ** 2 / expected[1:4]).sum()) < 18.4


def test_hgts_vertices_of_many_edges_have_fifty():
    data = HeteroData()
    data[USER].num_nodes, data[ITEM].num_nodes = 200, 1
    data[BUYS].edge_index = torch.stack([torch.arange(200), torch.zeros(200, dtype=torch.long)])
    (batch,) = HGTLoader(data, [300], (ITEM, [0]), seed=3)
    assert batch[USER].num_nodes == 50 and batch[BUYS].num_edges < 50
    assert torch.equal(batch[USER].n_id[batch[BUYS].edge_index[0]], batch[BUYS].e_id)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"data": graph()}, TypeError, "data is a Data; give a PyG HeteroData"),
        ({"num_samples": {USER: [1]}}, ValueError, "is None for 'item'"),
        ({"num_samples": {USER: [1], "items": [1]}}, ValueError, "is 'item' meant"),
        ({"num_samples": [-1]}, ValueError, "integers from 0 on"),
        ({"num_samples": 3}, ValueError, "should be a list"),
        ({"num_samples": {USER: [1], ITEM: [1, 2]}}, ValueError, "as many hops"),
        ({"input_nodes": None}, ValueError, "name one: 'user', 'item'"),
        ({"input_nodes": (USER, [40])}, IndexError, "40 is no vertex"),
        ({"input_time": torch.zeros(40)}, ValueError, "input_time: .* no times"),
        ({"node_sampler": 1}, TypeError, "there is no 'node_sampler'"),
        ({"num_neighbors": [1]}, TypeError, "there is no"),
    ],
)
def test_what_hgts_loader_does_not_sample_is_refused(options, error, words):
    with pytest.raises(error, match=words) as raised:
        HGTLoader(**{"data": types(), "num_samples": [2], "input_nodes": USER, **options})
    assert "\n" not in str(raised.value)


@pytest.mark.cuda
def test_a_gpu_samples_by_time_and_by_budget_what_the_cpu_samples():
    loaders = (
        lambda data: NeighborLoader(data, [3, 2], ITEM, time_attr="time", batch_size=16, shuffle=True, seed=3),
        lambda data: LinkLoader(data, [3], BUYS, edge_label_time=torch.arange(200) % 20, time_attr="time", neg_sampling="binary", batch_size=64, seed=3),
        lambda data: HGTLoader(data, [7, 5], ITEM, batch_size=16, seed=3),
    )
    for made in loaders:
        host, device = (made(each) for each in (timed_types(False), timed_types(False).cuda()))
        for one, other in zip(host, device, strict=True):
            for store, theirs in zip(one.stores, other.stores, strict=True):
                for name, value in store.items():
                    if isinstance(value, torch.Tensor):
                        torch.testing.assert_close(value, theirs[name].cpu())
