//! Batches that lie in the same memory each time.

use crate::Scale;
use crate::input::Random;
use halfgnn::backend::{Adjacency, Backend, Block, MemoryKind};
use halfgnn::graph::Graph;
use halfgnn::nn::{Inputs, Mode, Model, ModelConfig, Network, Norm, Propagation};
use halfgnn::ops::Fanout;
use halfgnn::sample::{FixedBlocks, LayerSizes, LayerSources, NeighborSampler, Sampler};
use halfgnn::tensor::{Array, Matrix};

fn sizes(edges: usize, met: usize) -> LayerSizes {
    LayerSizes {
        destinations: 0,
        edges,
        met,
    }
}

/// Enough for batches of nine seeds.
fn room() -> [LayerSizes; 2] {
    [sizes(64, 60), sizes(400, 256)]
}

/// A graph of so many vertices and five times as many edges, drawn from two seeds, and a sampler of two layers of it with self-loops.
fn sampled<B: Backend>(
    backend: &B,
    vertices: usize,
    [rows, columns]: [u32; 2],
) -> (Graph, NeighborSampler<B>) {
    let below = |seed| Random(seed).below(vertices as u32, vertices * 5);
    let (rows, columns) = (below(rows), below(columns));
    let graph = Graph::from_edges(vertices, &rows, &columns).expect("ids are in range");
    let fanouts = vec![Fanout::of(4).expect("a fanout"), Fanout::All];
    let sampler = NeighborSampler::new(backend, graph.csr(), fanouts).expect("room");
    (graph, sampler.with_self_loops(true))
}

/// Its batches of nine seeds.
fn fixed<B: Backend>(
    backend: &B,
    sampler: &NeighborSampler<B>,
    (room, inputs): (&[LayerSizes], LayerSources),
) -> FixedBlocks<B> {
    let drawn = sampler.fixed(backend, (9, 7), (room, inputs));
    drawn
        .expect("room")
        .expect("a neighbour sampler has such batches")
}

/// Batches that are drawn into the same memory have the edges of others, in their order and in that of their transposes; where room is
/// left there is no vertex and no edge, and where there is too little that is told.
pub fn batches_lie_in_the_same_memory<B: Backend>(backend: &B, scale: Scale) {
    let vertices = scale.pick(300, 3_000);
    let (_, mut sampler) = sampled(backend, vertices, [90, 91]);
    let (mut batches, mut blocks) = fixed(backend, &sampler, (&room(), LayerSources::Met));
    let mut others = batches.blocks(backend).expect("room");
    let mut inputs =
        Array::uninit(backend, batches.inputs().len(), MemoryKind::Graph).expect("room");
    let seeds = [17, 3, 255, 0, 31, 32, 299, 5, 6];
    let mut before: Option<Vec<u32>> = None;
    for (step, seeds) in [(0, &seeds[..]), (5, &seeds[..7]), (6, &seeds[2..])] {
        // In two places by turns, and those of the batch before stay.
        std::mem::swap(&mut blocks, &mut others);
        batches.swap_inputs(&mut inputs).expect("as many");
        batches.begin(backend, seeds, step).expect("room");
        batches.draw(backend, blocks.iter_mut()).expect("a batch");
        assert!(batches.fits(backend).expect("no failure"));
        let batch = sampler.sample(backend, seeds, 7, step).expect("a batch");
        let mut place: Vec<u32> = (0..seeds.len() as u32).collect();
        let mut room = 9;
        for (made, wanted) in blocks.iter().rev().zip(batch.blocks.iter().rev()) {
            let destinations = place.clone();
            assert_eq!(made.destinations(), room);
            let met = wanted.sources() - wanted.destinations();
            place.extend((room as u32..).take(met));
            room = made.sources();
            let edges_of = |a: &Adjacency<B>| {
                let [rows, columns] = a.to_coo(backend).expect("no failure");
                rows.into_iter().zip(columns).collect::<Vec<_>>()
            };
            let of = |edges: Vec<(u32, u32)>, ends: [&[u32]; 2]| -> Vec<_> {
                let end =
                    |(row, column): (u32, u32)| (ends[0][row as usize], ends[1][column as usize]);
                edges.into_iter().map(end).collect()
            };
            let forward = of(edges_of(wanted.forward()), [&destinations, &place]);
            assert_eq!(edges_of(made.forward()), forward, "step {step}");
            let [made, wanted] = [made, wanted].map(|it| it.backward(backend).expect("room"));
            let backward = of(edges_of(wanted), [&place, &destinations]);
            assert_eq!(edges_of(made), backward, "step {step}");
        }
        let inputs_now = batches.inputs().to_vec(backend).expect("no failure");
        let wanted = batch.inputs.to_vec(backend).expect("no failure");
        let mut found = vec![u32::MAX; inputs_now.len()];
        for (&place, vertex) in place.iter().zip(wanted) {
            found[place as usize] = vertex;
        }
        assert_eq!(inputs_now, found, "step {step}");
        let kept = inputs.to_vec(backend).expect("no failure");
        assert!(
            before.replace(found).is_none_or(|before| before == kept),
            "step {step}"
        );
    }
    let mut shorter = Array::uninit(backend, 3, MemoryKind::Graph).expect("room");
    let refused = batches
        .swap_inputs(&mut shorter)
        .expect_err("other sources");
    assert!(
        refused.to_string().contains("LayerRoom: sources"),
        "{refused}"
    );
    for room in [
        [sizes(20, 60), sizes(400, 256)],
        [sizes(64, 60), sizes(400, 20)],
    ] {
        let (mut batches, mut blocks) = fixed(backend, &sampler, (&room, LayerSources::Met));
        batches.begin(backend, &seeds, 0).expect("room");
        batches.draw(backend, blocks.iter_mut()).expect("a batch");
        assert!(!batches.fits(backend).expect("no failure"), "{room:?}");
    }
    let refused = batches.begin(backend, &[0; 10], 0).expect_err("no room");
    assert!(refused.to_string().contains("seeds should be 9, is 10"));
}

/// A first layer whose sources are all vertices of the graph has the edges of one whose sources are those that it meets, under the vertices' own
/// numbers, and tells which of them hear. What asks for more of it is refused.
pub fn sources_are_all_vertices<B: Backend>(backend: &B, _: Scale) {
    let vertices = 300;
    let (graph, sampler) = sampled(backend, vertices, [92, 93]);
    let fixed = |inputs| fixed(backend, &sampler, (&room(), inputs));
    let (mut met, mut blocks_of_met) = fixed(LayerSources::Met);
    let (mut all, mut blocks) = fixed(LayerSources::All);
    assert!(all.inputs().is_empty());
    let mut others = all.blocks(backend).expect("room");
    let list = |array: &Array<B, u32>| array.to_vec(backend).expect("no failure");
    let own = |blocks: &[Block<B>]| list(blocks[0].own().expect("a list"));
    let mut before: Option<Vec<u32>> = None;
    for (step, seeds) in [
        (0, &[17, 3, 255, 0, 31, 32, 299, 5, 6][..]),
        (5, &[8, 299, 7]),
    ] {
        // In two places by turns, and those of the batch before stay.
        std::mem::swap(&mut blocks, &mut others);
        for (fixed, blocks) in [(&mut met, &mut blocks_of_met), (&mut all, &mut blocks)] {
            fixed.begin(backend, seeds, step).expect("room");
            fixed.draw(backend, blocks.iter_mut()).expect("a batch");
            assert!(fixed.fits(backend).expect("no failure"));
        }
        let [outer, inner] = &blocks[..] else {
            panic!("two layers")
        };
        let [outer_of_met, inner_of_met] = &blocks_of_met[..] else {
            panic!("two layers")
        };
        // Without the room that is empty.
        let edges = |block: &Block<B>| {
            let [rows, mut columns] = block.forward().to_coo(backend).expect("no failure");
            columns.truncate(rows.len());
            [rows, columns]
        };
        assert_eq!(edges(inner), edges(inner_of_met), "step {step}");
        assert_eq!(outer.sources(), vertices);
        let [rows, columns] = edges(outer);
        let [rows_of_met, columns_of_met] = edges(outer_of_met);
        let inputs = list(met.inputs());
        let columns_of_met = columns_of_met.iter().map(|&place| inputs[place as usize]);
        assert_eq!(rows, rows_of_met, "step {step}");
        assert!(columns.into_iter().eq(columns_of_met), "step {step}");
        assert_eq!(own(&blocks), inputs[..outer.destinations()], "step {step}");
        if let Some(before) = before.replace(own(&blocks)) {
            assert_eq!(own(&others), before, "step {step}");
        }
    }
    let refused = |error: halfgnn::Error, what: &str| {
        assert!(error.to_string().contains(what), "{error}");
    };
    let transposed = blocks[0].backward(backend).expect_err("no gradient");
    refused(transposed, "draw the layer with the sources that it meets");
    let one = vec![Fanout::All];
    let one = NeighborSampler::new(backend, graph.csr(), one).expect("room");
    let one = one.fixed(backend, (9, 7), (&room()[..1], LayerSources::All));
    refused(one.expect_err("one layer"), "a batch of one layer");
    let outer = || all.blocks(backend).expect("room").swap_remove(0);
    let both = Propagation::of_sampled(backend, outer(), Norm::Both);
    refused(both.expect_err("no transpose"), "take the norm `right`");
    // One that reads all its sources one by one is refused, and one that adds its input is not.
    let features = Matrix::<B, f32>::zeros(backend, vertices, 16, MemoryKind::Features);
    let features = features.expect("room");
    let residual = ModelConfig {
        hidden: 16,
        residual: true,
        ..ModelConfig::sage(16, 4)
    };
    for model in [ModelConfig::gat(16, 4), residual].map(|model| ModelConfig { layers: 2, ..model })
    {
        let mut blocks = all.blocks(backend).expect("room");
        all.begin(backend, &[8, 299, 7], 5).expect("room");
        all.draw(backend, blocks.iter_mut()).expect("a batch");
        let graphs: Vec<_> = (blocks.into_iter())
            .map(|block| Propagation::of_sampled(backend, block, Norm::Right).expect("factors"))
            .collect();
        let mut network = Network::<B, f32>::new(backend, &model, 0).expect("a model");
        let inputs = Inputs {
            backend,
            graphs: &graphs,
            features: &features,
            of_types: &[],
            dropped: false,
        };
        let done = network.forward(inputs, Mode::Evaluate);
        match model.residual {
            true => done.expect("its input's own rows are picked"),
            false => refused(
                done.expect_err("other rows"),
                "lie anywhere among its sources",
            ),
        }
    }
}
