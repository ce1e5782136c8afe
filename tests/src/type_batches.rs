//! Batches over several types of vertices: what is sampled, and that steps on it are those on the whole graph.

use crate::Scale;
use crate::input::bits;
use crate::task;
use crate::types::{CLASSES, dataset, models, objective};
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::{Dataset, Types};
use halfgnn::distributed::{Group, in_process};
use halfgnn::nn::{Model, ModelConfig, ModelTypes, Network};
use halfgnn::sample::{EdgesIn, Fanout, FanoutsByType, Sampling, TypeSample, TypeSampler};
use halfgnn::tensor::Element;
use halfgnn::train::{Batches, Loss, TrainConfig, Trainer};
use std::time::Duration;

fn types(dataset: &Dataset) -> &Types {
    dataset.types.as_ref().expect("several")
}

/// A list of fanouts for each type of edges; 0 samples nothing, -1 all.
fn fanouts(of_types: &[&[i64]]) -> FanoutsByType {
    let fanout = |count: &i64| match count {
        0 => None,
        -1 => Some(Fanout::All),
        some => Some(Fanout::of(*some as u32).expect("a fanout")),
    };
    let lists = of_types.iter();
    lists.map(|of| of.iter().map(fanout).collect()).collect()
}

/// That a sample is one of these fanouts: vertices are there once and are reached, and edges are edges of the graph, as many as are asked for.
fn check(sample: &TypeSample, types: &Types, seeds: (usize, &[u32]), how: (&FanoutsByType, bool)) {
    let (of_seeds, seeds) = seeds;
    assert_eq!(&sample.vertices[of_seeds][..seeds.len()], seeds);
    let mut reached: Vec<Vec<bool>> = (sample.vertices.iter().enumerate())
        .map(|(of, vertices)| {
            let mut sorted = vertices.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), vertices.len(), "a vertex is there twice");
            let is_seed = |place: usize| of == of_seeds && place < seeds.len();
            (0..vertices.len()).map(is_seed).collect()
        })
        .collect();
    for (number, (of, edges)) in types.edges().iter().zip(&sample.edges).enumerate() {
        let edges = edges.csr().expect("memory");
        let ends = [of.destination, of.source].map(|end| &sample.vertices[end]);
        assert_eq!(edges.shape(), (ends[0].len(), ends[1].len()));
        for (place, &vertex) in ends[0].iter().enumerate() {
            let row = of.edges.row(vertex as usize);
            let sampled: Vec<u32> = (edges.row(place).iter())
                .map(|&column| ends[1][column as usize])
                .collect();
            for &column in edges.row(place) {
                reached[of.source][column as usize] = true;
            }
            for neighbor in &sampled {
                let count = |of: &[u32]| of.iter().filter(|it| *it == neighbor).count();
                assert!(count(row) > 0, "an edge that is not there");
                assert!(how.1 || count(&sampled) <= count(row), "an edge twice");
            }
            if of.destination == of_seeds && place < seeds.len() {
                let expected = match (how.0[number][0], how.1) {
                    (None, _) => 0,
                    (Some(Fanout::All), _) => row.len(),
                    (Some(Fanout::AtMost(most)), true) if !row.is_empty() => most.get() as usize,
                    (Some(Fanout::AtMost(most)), _) => row.len().min(most.get() as usize),
                };
                assert_eq!(sampled.len(), expected, "edges of a seed");
            }
        }
    }
    assert!(reached.concat().iter().all(|it| *it), "nothing leads there");
}

/// Samples are those of the CPU to the bit, and hold what is asked for.
pub fn samples_follow_the_cpu<B: Backend>(backend: &B, _: Scale) {
    let (dataset, cpu) = (dataset(), Cpu::new());
    let types = types(&dataset);
    let papers = types.labelled();
    // Types of edges by their names: appears, cites, invites, writes.
    for of_types in [
        [&[-1, -1][..]; 4],
        [&[2, 3][..]; 4],
        [&[0, 2][..], &[3, 0], &[2, 2], &[1, -1]],
        [&[0, 0][..]; 4],
        [&[4, 2, 3][..]; 4],
    ] {
        let fanouts = fanouts(&of_types);
        for replace in [false, true] {
            let mut own = TypeSampler::new(backend, types, papers, fanouts.clone())
                .expect("memory")
                .replacing(replace);
            let mut of_cpu = TypeSampler::new(&cpu, types, papers, fanouts.clone())
                .expect("memory")
                .replacing(replace);
            for (step, seeds) in [&[1, 0, 59][..], &[7], &[], &[1, 2, 3, 4, 5, 6, 20, 30]]
                .into_iter()
                .enumerate()
            {
                let sample = own.sample(backend, seeds, 11, step as u32).expect("seeds");
                check(&sample, types, (papers, seeds), (&fanouts, replace));
                let expected = of_cpu.sample(&cpu, seeds, 11, step as u32);
                assert_eq!(sample, expected.expect("seeds"));
            }
        }
    }
    let all = fanouts(&[&[-1][..]; 4]);
    let mut sampler = TypeSampler::new(backend, types, papers, all).expect("memory");
    for (seeds, words) in [(&[60][..], "vertex 60"), (&[3, 4, 3], "twice")] {
        let refused = sampler.sample(backend, seeds, 1, 0).expect_err("no seeds");
        assert!(refused.to_string().contains(words), "{refused}");
    }
    for wrong in [
        &[&[1][..]; 3][..],
        &[&[1][..], &[1, 2], &[1], &[1]],
        &[&[][..]; 4],
    ] {
        assert!(TypeSampler::new(backend, types, papers, fanouts(wrong)).is_err());
    }
}

/// Each neighbor of a hub is as likely, by chi-square, over every type of edges that leads to it.
pub fn neighbors_are_as_likely<B: Backend>(backend: &B, scale: Scale) {
    let dataset = dataset();
    let types = types(&dataset);
    let papers = types.labelled();
    let rounds = scale.pick(400, 4_000);
    let one = fanouts(&[&[1][..]; 4]);
    let mut sampler = TypeSampler::new(backend, types, papers, one).expect("memory");
    let mut counts = vec![std::collections::BTreeMap::<u32, f64>::new(); 4];
    for step in 0..rounds {
        let sample = sampler.sample(backend, &[1], 5, step).expect("a seed");
        for (number, edges) in sample.edges.iter().enumerate() {
            let of = &types.edges()[number];
            if of.destination != papers {
                continue;
            }
            for &column in edges.csr().expect("memory").row(0) {
                let neighbor = sample.vertices[of.source][column as usize];
                *counts[number].entry(neighbor).or_default() += 1.0;
            }
        }
    }
    for (of, counts) in types.edges().iter().zip(counts) {
        if of.destination != papers {
            continue;
        }
        let row = of.edges.row(1);
        assert!(row.len() > 10, "a hub");
        let mut distinct = row.to_vec();
        distinct.dedup();
        let chi: f64 = (distinct.iter())
            .map(|neighbor| {
                let times = row.iter().filter(|it| *it == neighbor).count() as f64;
                let expected = f64::from(rounds) * times / row.len() as f64;
                let found = counts.get(neighbor).copied().unwrap_or(0.0);
                (found - expected).powi(2) / expected
            })
            .sum();
        // Five deviations of the statistic beyond its mean.
        let free = (distinct.len() - 1) as f64;
        assert!(chi < free + 5.0 * (2.0 * free).sqrt(), "{}: {chi}", of.name);
    }
}

fn sampling(policy: &str, batch: u32, edges: EdgesIn) -> Sampling {
    let sampling = Sampling::of(policy.parse().expect("a policy"), Some(batch), None);
    Sampling { edges, ..sampling }
}

fn batches<B: Backend, E: Element>(
    backend: &B,
    of: (&Dataset, &ModelConfig),
    sampling: &Sampling,
) -> Batches<B, E> {
    let network = Network::<B, E>::new(backend, of.1, 5).expect("a model");
    let objective = objective::<B, E>(backend, of);
    let how = (&Loss::of(&of.0.targets), of.1, network.hops());
    Batches::of_types(backend, &objective, how, types(of.0), (sampling, 3)).expect("batches")
}

/// Without dropout, which numbers vertices by their rows.
fn plain(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        dropout: 0.0,
        ..model
    }
}

/// With all neighbors a batch of all training vertices has the loss and the gradients of the whole graph, those of rows that are learnt among them.
pub fn full_batches_are_the_whole_graph<B: Backend>(backend: &B, scale: Scale) {
    let dataset = dataset();
    for model in models(&dataset)
        .into_iter()
        .step_by(scale.pick(3, 1))
        .map(plain)
    {
        let of = (&dataset, &model);
        let gradients = |objective: &_| {
            let network = Network::<B, f32>::new(backend, &model, 5).expect("a model");
            let config = TrainConfig::new(f32::PRECISION);
            let mut trainer = Trainer::new(backend, objective, network, config).expect("a task");
            trainer.gradients().expect("a step");
            let loss = trainer.loss().expect("a loss");
            let of_all = trainer.model().parameters().into_iter();
            let of_all = of_all.map(|it| it.gradient().to_f32(backend).expect("gradients"));
            (loss, of_all.collect::<Vec<_>>())
        };
        let whole = gradients(&objective::<B, f32>(backend, of));
        let all = vec!["-1"; model.layers].join(",");
        for edges in [EdgesIn::Device, EdgesIn::Graph] {
            let sampling = sampling(&format!("neighbor:{all}"), 40, edges);
            let (batch, count) = batches::<B, f32>(backend, of, &sampling)
                .batch(backend, 0, 0)
                .expect("a batch");
            assert_eq!(count, 40);
            let found = gradients(&batch);
            let what = &model.convolution;
            assert!((found.0 - whole.0).abs() < 1e-5 * whole.0, "{what}");
            let largest = |of: &[f32]| of.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
            // A bias that a softmax takes out again has a gradient of roundings.
            let least = 1e-3 * largest(&whole.1.concat());
            for (found, expected) in found.1.iter().zip(&whole.1) {
                let largest = largest(expected).max(least);
                for (found, expected) in found.iter().zip(expected) {
                    let off = (found - expected).abs();
                    assert!(
                        off <= 3e-5 * largest,
                        "{what}: {found} for {expected} of {largest}"
                    );
                }
            }
        }
    }
}

/// The losses of two epochs of batches of 16, and the weights behind them, of each rank.
fn learn<B: Backend, E: Element>(
    backend: &B,
    of: (&Dataset, &ModelConfig),
    (policy, ranks): (&str, usize),
) -> Vec<(Vec<f32>, Vec<u32>)> {
    std::thread::scope(|scope| {
        let group = in_process(ranks, "test", Duration::from_secs(120), &[]);
        let threads = group.into_iter().map(|rank| {
            scope.spawn(move || {
                let group = Group::new(rank);
                let sampling = sampling(policy, 16, EdgesIn::Device);
                let batches = batches::<B, E>(backend, of, &sampling).among(&group);
                let network = Network::new(backend, of.1, 5).expect("a model");
                let config = TrainConfig {
                    epochs: 2,
                    ..TrainConfig::new(E::PRECISION)
                };
                let whole = objective::<B, E>(backend, of);
                let batches = batches.expect("vertices");
                let mut trainer =
                    Trainer::sampled(backend, batches, &whole, network, config).expect("a trainer");
                let mut losses = Vec::new();
                while let Some(report) = trainer.next_epoch().expect("a step") {
                    losses.push(report.loss);
                }
                let weights = task::weights(backend, trainer.model()).concat();
                (losses, bits(&weights))
            })
        });
        let threads: Vec<_> = threads.collect();
        let threads = threads.into_iter();
        threads.map(|it| it.join().expect("a rank")).collect()
    })
}

/// Ranks that train on parts of each batch have the same bits, in every run; with all neighbors they train as one rank does, but for roundings. The
/// last batch of an epoch has fewer vertices.
pub fn ranks_train_on_batches<B: Backend>(backend: &B, scale: Scale) {
    let dataset = dataset();
    let all = models(&dataset);
    for model in [&all[1], &all[6]].map(|model| plain(model.clone())) {
        let of = (&dataset, &model);
        let one = learn::<B, f32>(backend, of, ("neighbor:-1,-1", 1));
        assert!(one[0].0[1] < one[0].0[0], "nothing is learnt");
        for ranks in scale.pick(&[3][..], &[2, 3]) {
            let found = learn::<B, f32>(backend, of, ("neighbor:-1,-1", *ranks));
            assert!(found.iter().all(|of_rank| of_rank == &found[0]));
            for (found, expected) in found[0].0.iter().zip(&one[0].0) {
                let off = (found - expected).abs();
                assert!(off < 1e-3 * expected, "{found} and {expected}");
            }
        }
        let sampled = ("neighbor-replace:3,2/cites:2,0", 2);
        let found = learn::<B, f16>(backend, of, sampled);
        assert!(found[0] == found[1]);
        assert!(found == learn::<B, f16>(backend, of, sampled));
        assert!(found[0].0.iter().all(|loss| loss.is_finite()));
    }
}

/// What makes no batches is refused in a line that says why.
pub fn wrong_batches_are_refused<B: Backend>(backend: &B, _: Scale) {
    let dataset = dataset();
    let model = models(&dataset).remove(0);
    let objective = objective::<B, f32>(backend, (&dataset, &model));
    let loss = Loss::of(&dataset.targets);
    let refused = |policy: &str, model: &ModelConfig| {
        let how = (&loss, model, 2);
        let sampling = sampling(policy, 8, EdgesIn::Device);
        let made = Batches::of_types(backend, &objective, how, types(&dataset), (&sampling, 1));
        made.map(drop).expect_err(policy).to_string()
    };
    let plain = ModelConfig::gcn(7, CLASSES);
    for (policy, model, words) in [
        ("neighbor:2,2", &plain, "one type of vertices"),
        ("neighbor:2", &model, "1 fanouts, and 2 layers"),
        ("saint-node:9", &model, "take neighbor:15,10"),
        (
            "neighbor:2,2/sites:1,1",
            &model,
            "no edges are called sites",
        ),
        ("neighbor:2,2/cites:1", &model, "name one for each hop"),
        (
            "neighbor:2,2/cites:1,1/paper__cites__paper:1,1",
            &model,
            "twice",
        ),
    ] {
        let refused = refused(policy, model);
        assert!(refused.contains(words), "{policy}: {refused}");
    }
    // The ends distinguish two types of edges of one name.
    let mut twins = ModelTypes::of(&dataset).expect("several");
    for of in &mut twins.edges {
        of.name = "leads".into();
    }
    let policy = |text: &str| text.parse::<halfgnn::sample::SamplingPolicy>();
    let both = policy("neighbor:2,2/leads:1,1").expect("a policy");
    let refused = both.fanouts_of(&twins).expect_err("several").to_string();
    assert!(refused.contains("name both ends too"), "{refused}");
    let one = policy("neighbor:2,2/author__leads__paper:1,0").expect("a policy");
    let (found, _) = one.fanouts_of(&twins).expect("one of them");
    let two = Some(Fanout::of(2).expect("a fanout"));
    let own = vec![Some(Fanout::of(1).expect("a fanout")), None];
    let writes = twins
        .edges
        .iter()
        .position(|of| twins.title(of) == "author__leads__paper");
    for (number, of) in found.into_iter().enumerate() {
        let expected = if Some(number) == writes {
            own.clone()
        } else {
            vec![two; 2]
        };
        assert_eq!(of, expected);
    }
}
