//! Profiles of training steps.

use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::graph::Graph;
use halfgnn::nn::{Inputs, Model, ModelConfig, Network, Propagation};
use halfgnn::ops::RandomState;
use halfgnn::program::Explanation;
use halfgnn::tensor::{Element, Matrix};

/// A profile has the operators that the explanation prints, and leaves parameters and running statistics as they are.
#[test]
fn a_profile_times_the_list_and_changes_nothing() {
    let backend = Cpu::new();
    let graph = Graph::from_edges(4, &[0, 1, 2, 3], &[1, 2, 3, 0]).expect("a ring");
    for model in [ModelConfig::gcn(8, 3), ModelConfig::gin(8, 3)] {
        let prepared = model.prepare(&graph).expect("room");
        let graphs = [Propagation::new(&backend, &prepared, model.norm()).expect("room")];
        let features = [0.5; 4 * 8];
        let features = Matrix::from_f32(&backend, 4, 8, &features, MemoryKind::Features);
        let features = features.expect("room");
        let mut network = Network::<_, f32>::new(&backend, &model, 1).expect("a network");
        let values = |network: &Network<Cpu, f32>| -> Vec<Vec<f32>> {
            let parameters = network.parameters().into_iter();
            let parameters = parameters.map(|of| of.master().to_f32(&backend).expect("numbers"));
            let buffers = network.buffers().into_iter();
            let buffers = buffers.map(|(_, of)| of.to_f32(&backend).expect("numbers"));
            parameters.chain(buffers).collect()
        };
        let before = values(&network);
        let inputs = Inputs {
            backend: &backend,
            graphs: &graphs,
            features: &features,
            of_types: &[],
            dropped: false,
        };
        let random = RandomState::new(&backend, 0, 0).expect("room");
        let profile = network.profile(inputs, &random, 3).expect("a profile");
        assert_eq!(values(&network), before);

        let size = (prepared.vertices(), prepared.edges());
        let text = Explanation::new(&model, f32::PRECISION, size);
        let text = text.expect("a list").to_string();
        let training = text.split("# evaluation").next().expect("a list");
        let (_, list) = training.rsplit_once("# training").expect("a list");
        for of in &profile.operators {
            let bytes = format!("moves {} B", of.traffic.bytes());
            let is = |line: &str| line.contains(&of.text) && line.contains(&bytes);
            assert!(list.lines().any(is), "{} {bytes}: {list}", of.text);
            assert!(of.ms > 0.0 && profile.share(of) > 0.0, "{of:?}");
        }
        assert_eq!(
            profile.operators.len(),
            list.matches(" = ").count(),
            "{list}"
        );
        let backward = profile.operators.iter().filter(|of| of.is_backward).count();
        assert!(backward > 0 && backward < profile.operators.len());
        let printed = profile.to_string();
        assert_eq!(printed.lines().count(), profile.operators.len() + 3);
        assert!(profile.over_bytes() > 0.0, "{printed}");
    }
}
