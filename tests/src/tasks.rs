//! Tasks beside telling one class: every backend trains them as the CPU does, and metrics say of it what they say there.

use crate::Scale;
use crate::task::{CLASSES, FEATURES, VERTICES, graph};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::{LabelSets, Targets, Values};
use halfgnn::metrics::Metric;
use halfgnn::nn::{LinkDecoder, ModelConfig, Network, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{
    EpochReport, Few, Goal, HeldOut, LinkSplit, Loss, Objective, Split, TrainConfig, Trainer,
};
use halfgnn_contract::rng;

const EPOCHS: u32 = 4;

fn unit(index: usize, stream: u32) -> f32 {
    rng::unit_f32(rng::uniform_u32(rng::key(11, stream), index as u64))
}

fn features<B: Backend, E: Element>(backend: &B) -> Matrix<B, E> {
    let values: Vec<f32> = (0..VERTICES * FEATURES)
        .map(|at| 2.0 * unit(at, 0) - 1.0)
        .collect();
    Matrix::from_f32(backend, VERTICES, FEATURES, &values, MemoryKind::Features).expect("room")
}

fn train<B: Backend, E: Element>(
    backend: &B,
    objective: &Objective<B, E>,
    (outputs, decoder): (usize, LinkDecoder),
    metrics: &[Metric],
) -> Vec<EpochReport> {
    let model = ModelConfig {
        hidden: 12,
        decoder,
        ..ModelConfig::gcn(FEATURES, outputs)
    };
    let config = TrainConfig {
        epochs: EPOCHS,
        metric: Some(metrics[0]),
        others: Few::try_from(metrics[1..].to_vec()).expect("few"),
        ..TrainConfig::new(E::PRECISION)
    };
    let network = Network::new(backend, &model, 3).expect("a legal model");
    let mut trainer = Trainer::new(backend, objective, network, config).expect("a legal task");
    let epochs = (0..EPOCHS).map(|_| {
        trainer
            .next_epoch()
            .expect("a legal epoch")
            .expect("one more")
    });
    epochs.collect()
}

fn compare(what: &str, actual: &[EpochReport], expected: &[EpochReport], off: f64) {
    for (actual, expected) in actual.iter().zip(expected) {
        let (a, b) = (f64::from(actual.loss), f64::from(expected.loss));
        assert!(
            a.is_finite() && (a - b).abs() <= off * b.abs(),
            "{what}: a loss of {a} for {b}"
        );
        let scores = |report: &EpochReport| {
            std::iter::once(report.score)
                .chain(report.others.iter())
                .collect::<Vec<_>>()
        };
        for (actual, expected) in scores(actual).into_iter().zip(scores(expected)) {
            assert_eq!(actual.metric, expected.metric);
            for split in Split::ALL {
                let (a, b) = (actual.of(split), expected.of(split));
                // Ranks that are close may change places; there are few vertices.
                let bound = if actual.metric.is_percent() {
                    8.0
                } else {
                    20.0 * off * (1.0 + b.abs())
                };
                assert!(
                    (a - b).abs() <= bound,
                    "{what}: {} {split} of {a} for {b}",
                    actual.metric
                );
            }
        }
    }
}

/// Weighted classes, labels and values.
pub fn of_vertices<B: Backend>(backend: &B, _: Scale) {
    fn run<B: Backend, E: Element>(
        backend: &B,
        targets: &Targets,
        loss: &Loss,
        metrics: &[Metric],
    ) -> Vec<EpochReport> {
        let config = ModelConfig::gcn(FEATURES, 1);
        let graph = graph();
        let graph = config.prepare(&graph).expect("room");
        let ids: Vec<u32> = (0..VERTICES as u32).collect();
        let goal = Goal {
            targets,
            outputs: targets.outputs(),
            loss,
            splits: [&ids[..40], &ids[40..60], &ids[60..]],
        };
        let graph = Propagation::new(backend, &graph, config.norm()).expect("room");
        let objective = Objective::<B, E>::of(backend, vec![graph], features(backend), &goal);
        train(
            backend,
            &objective.expect("a legal task"),
            (targets.outputs(), LinkDecoder::Dot),
            metrics,
        )
    }
    let labels = (0..VERTICES * 3).map(|at| Some(unit(at, 1) < 0.4));
    let labels = Targets::Labels(LabelSets::new(3, labels).expect("whole rows"));
    let values = (0..VERTICES * 2).map(|at| 4.0 * unit(at, 2) - 1.0);
    let values = Targets::Values(Values::new(2, values.collect()).expect("whole rows"));
    let classes: Vec<u32> = (0..VERTICES)
        .map(|at| (unit(at, 3) * CLASSES as f32) as u32)
        .collect();
    let classes = Targets::from(classes);
    let weighted = |weights: Vec<f32>| Loss::CrossEntropy {
        class_weights: Some(weights),
    };
    let binary = |weights| Loss::BinaryCrossEntropy {
        positive_weights: weights,
    };
    let counts = [Metric::MicroF1, Metric::MacroF1];
    let ranks = [Metric::RocAuc, Metric::AveragePrecision];
    let errors = [
        Metric::RootMeanSquaredError,
        Metric::MeanAbsoluteError,
        Metric::R2,
    ];
    let of_classes = [&[Metric::Accuracy][..], &counts, &ranks].concat();
    let of_labels = [&counts[..], &ranks].concat();
    for (what, targets, loss, metrics) in [
        (
            "classes",
            &classes,
            weighted((0..CLASSES).map(|c| 0.5 + c as f32).collect()),
            &of_classes[..],
        ),
        ("labels", &labels, binary(None), &of_labels),
        (
            "weighted labels",
            &labels,
            binary(Some(vec![2.0, 0.5, 1.0])),
            &of_labels,
        ),
        ("values", &values, Loss::SquaredError, &errors),
        ("absolute values", &values, Loss::AbsoluteError, &errors),
    ] {
        let expected = run::<_, f32>(&Cpu::new(), targets, &loss, metrics);
        assert!(expected[3].loss < expected[0].loss, "{what} are not learnt");
        compare(
            what,
            &run::<B, f32>(backend, targets, &loss, metrics),
            &expected,
            1e-4,
        );
        let half = run::<B, half::f16>(backend, targets, &loss, metrics);
        compare(what, &half, &expected, 2e-2);
    }
}

/// Links, whose pairs are the same on every device.
pub fn of_links<B: Backend>(backend: &B, _: Scale) {
    fn run<B: Backend, E: Element>(
        backend: &B,
        split: &LinkSplit,
        decoder: LinkDecoder,
    ) -> Vec<EpochReport> {
        let config = ModelConfig::gcn(FEATURES, 6);
        let graph = config.prepare(&split.graph).expect("room");
        let graph = Propagation::new(backend, &graph, config.norm()).expect("room");
        let objective = Objective::<B, E>::of_links(backend, graph, features(backend), 6, split);
        let metrics = [
            Metric::RocAuc,
            Metric::AveragePrecision,
            Metric::MeanReciprocalRank,
            Metric::HitsAt(10),
        ];
        train(
            backend,
            &objective.expect("a legal task"),
            (6, decoder),
            &metrics,
        )
    }
    let graph = graph().to_undirected().expect("room");
    let split = LinkSplit::new(
        &graph,
        HeldOut {
            shares: [0.1, 0.1],
            seed: 2,
        },
    )
    .expect("links");
    for decoder in LinkDecoder::ALL {
        let expected = run::<_, f32>(&Cpu::new(), &split, decoder);
        assert_ne!(expected[0].loss, expected[1].loss);
        let what = format!("links by {decoder}");
        let found = run::<B, f32>(backend, &split, decoder);
        compare(&what, &found, &expected, 1e-4);
        let half = run::<B, half::f16>(backend, &split, decoder);
        compare(&format!("{what} in half"), &half, &expected, 2e-2);
    }
}
