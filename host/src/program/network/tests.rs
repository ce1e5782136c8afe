//! What lists of several topologies have in common.

use super::{Compiled, Graphs, Topology};
use crate::nn::{ConvolutionConfig, HiddenNorm, Jumping, ModelConfig, Store};
use crate::program::operator::Node;
use crate::program::value::Value;
use crate::tensor::Precision;

/// The columns of what a model's list for training stores, in the order in which ranks exchange their largest magnitudes; none where the
/// model has no list over the topology.
fn stored(model: &ModelConfig, graphs: Graphs) -> Option<Vec<usize>> {
    let compiled = Compiled::new(model, Precision::Half, (graphs, false)).ok()?;
    let program = compiled.training.program;
    let mut stored: Vec<_> = program.nodes.iter().filter_map(Node::stored).collect();
    stored.sort();
    let columns = |value: Value| program.values[value.0].shape.columns;
    Some(stored.into_iter().map(columns).collect())
}

/// Of ranks that take a step on a batch some may have no vertex of it, and the list of a whole graph. All exchange the same.
#[test]
fn lists_of_batches_store_the_columns_of_whole_graphs() {
    let variations: [fn(&mut ModelConfig); 7] = [
        |_| (),
        |model| model.dropout = 0.0,
        |model| model.residual = true,
        |model| model.recompute = true,
        |model| model.jumping = Some(Jumping::Cat),
        |model| model.hidden_norm = HiddenNorm::Batch,
        |model| model.hidden_norm = HiddenNorm::Layer,
    ];
    let topologies = [
        Topology::Blocks { in_place: false },
        Topology::Blocks { in_place: true },
    ];
    let mut compared = 0;
    let mut differ = Vec::new();
    for kind in ConvolutionConfig::kinds() {
        for vary in variations {
            for widths in [[8, 16], [16, 8]] {
                let mut model = ModelConfig {
                    layers: 3,
                    hidden_by_layer: widths.to_vec(),
                    store: Some(Store::EightBit),
                    ..ModelConfig::of(kind.convolution.clone(), 24, 3)
                };
                vary(&mut model);
                if model.check().is_err() {
                    continue;
                }
                let Some(whole) = stored(&model, Graphs::of(Topology::Whole)) else {
                    continue;
                };
                for topology in topologies {
                    for dropped in [false, true] {
                        let mut graphs = Graphs::of(topology);
                        graphs.dropped = dropped;
                        let found = stored(&model, graphs);
                        compared += usize::from(found.is_some());
                        if found.is_some_and(|found| found != whole) {
                            differ.push(format!("{model:?} over {topology:?}"));
                        }
                    }
                }
            }
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
    assert!(compared > 300, "{compared} lists");
}
