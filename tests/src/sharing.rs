//! One network used by several threads: the weights once, rows and streams of each its own.

use crate::task;
use half::f16;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::nn::{Inputs, Mode, Model, ModelConfig, Network, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::TrainConfig;

/// The logits of evaluations of the task's graph with its features times `factor`.
fn logits<B: Backend, E: Element>(
    backend: &B,
    network: &mut Network<B, E>,
    (factor, config): (f32, &ModelConfig),
) -> Vec<f32> {
    let graph =
        [Propagation::of_graph::<E>(backend, &task::graph(), None, config.norm()).expect("room")];
    let values: Vec<f32> = task::features()
        .iter()
        .map(|value| factor * value)
        .collect();
    let (rows, columns) = (task::VERTICES, task::FEATURES);
    let features =
        Matrix::from_f32(backend, rows, columns, &values, MemoryKind::Features).expect("room");
    let inputs = Inputs {
        backend,
        graphs: &graph,
        features: &features,
        of_types: &[],
        dropped: false,
    };
    network.forward(inputs, Mode::Evaluate).expect("a pass");
    network.logits().to_f32(backend).expect("a copy")
}

/// Threads with handles of their own, such as two streams of a device, compute by one network what each would alone; while they
/// have it nobody changes it.
pub fn two_threads<B: Backend + Sync>(handles: [B; 2]) {
    for config in task::models() {
        threads_of::<B, f16>(&handles, &config);
        threads_of::<B, f32>(&handles, &config);
    }
}

fn threads_of<B: Backend + Sync, E: Element>([first, second]: &[B; 2], config: &ModelConfig) {
    let objective = task::objective::<B, E>(first, config.norm());
    let train = TrainConfig::new(E::PRECISION);
    let mut trainer = task::trainer(first, &objective, config.clone(), train);
    // Statistics are others than at first, and the step is recorded where a backend records.
    (0..2).for_each(|_| trainer.step().expect("a step"));
    let factors = [1.0, -0.5];
    let expected = factors.map(|factor| logits(first, trainer.model_mut(), (factor, config)));
    assert_ne!(expected[0], expected[1]);

    let another = Network::new(second, config, 9).expect("room");
    let mut twin = another
        .sharing(first, trainer.model_mut())
        .expect("the same layers");
    let weights = |network: &Network<B, E>| -> Vec<*const Matrix<B, f32>> {
        let parameters = network.parameters().into_iter();
        parameters
            .map(|parameter| std::ptr::from_ref(parameter.master()))
            .collect()
    };
    assert_eq!(weights(&twin), weights(trainer.model()));
    let model = trainer.model_mut();
    let run = |backend, network: &mut Network<B, E>, at: usize| {
        for _ in 0..3 {
            let told = logits(backend, network, (factors[at], config));
            assert_eq!(told, expected[at]);
        }
    };
    let (run, twin_mut) = (&run, &mut twin);
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(move || run(first, model, 0)),
            scope.spawn(move || run(second, twin_mut, 1)),
        ];
        for thread in threads {
            thread.join().expect("the same bits");
        }
    });

    let before = task::weights(first, trainer.model());
    let refused = trainer
        .step()
        .expect_err("its weights are read")
        .to_string();
    assert!(
        refused.contains("while another network reads it"),
        "{refused}"
    );
    assert_eq!(task::weights(first, trainer.model()), before);
    drop(twin);
    trainer.step().expect("nobody reads its weights");
    assert_ne!(task::weights(first, trainer.model()), before);
}

/// Networks of other layers share nothing.
pub fn misfits_are_refused<B: Backend>(backend: &B) {
    let network = |config: &ModelConfig| Network::<B, f32>::new(backend, config, 0).expect("room");
    let of = |config: &ModelConfig, with: &ModelConfig| {
        let refused = network(config).sharing(backend, &mut network(with));
        refused.expect_err("they differ").to_string()
    };
    let gcn = task::model();
    let wider = ModelConfig {
        hidden: 32,
        ..gcn.clone()
    };
    let deeper = ModelConfig {
        layers: 3,
        ..gcn.clone()
    };
    assert!(of(&gcn, &wider).contains("columns of a parameter"));
    assert!(of(&gcn, &deeper).contains("parameters"));
    let sage = ModelConfig::sage(task::FEATURES, task::CLASSES);
    let gat = ModelConfig::gat(task::FEATURES, task::CLASSES);
    let told = of(&sage, &gat);
    assert!(told.contains("parameter"), "{told}");
}
