//! Where ranks that exchange features have them.

use super::*;
use crate::feature_cache::FeatureCache;
use crate::placement::tests::card_of;
use crate::placement::{Placement, PlacementArgs};
use crate::processes::Exchange;
use crate::structure::StructureName;
use crate::task::Goal;
use halfgnn::backend::MemoryKind;
use halfgnn::data::{Features, Splits};
use halfgnn::graph::Graph;
use halfgnn::graph::generate::Rmat;
use halfgnn::nn::ModelConfig;
use halfgnn::sample::Sampling;
use halfgnn::tensor::Precision;
use halfgnn_bench::names::FeaturesName;
use std::time::Duration;

/// A graph with a number of features of each vertex.
fn dataset(graph: Graph, columns: usize) -> Dataset {
    let vertices = graph.vertices();
    let values = vec![1.0; columns * vertices];
    let features = Features::dense(columns, values).expect("whole rows");
    let splits = Splits {
        train: vec![0, 1, 2],
        ..Splits::default()
    };
    let labels = vec![0; vertices];
    Dataset::new("a graph", graph, features, labels, splits).expect("a dataset")
}

/// Where each of two ranks has the features of a dataset, which learn by `model` in batches and have that many bytes
/// each; or why they have too few.
fn placed(
    dataset: &Dataset,
    (model, features): (ModelConfig, FeaturesName),
    rooms: [u64; 2],
) -> Vec<Result<Placement, String>> {
    let plan = &Plan {
        label: "sage",
        precision: Precision::Float,
        model,
        goal: Goal::default(),
        sampling: Some(Sampling::of(
            "neighbor:2,2,2".parse().expect("it is one"),
            None,
            None,
        )),
        placement: PlacementArgs {
            features,
            ..PlacementArgs::default()
        },
        between: std::env::temp_dir(),
        feature_cache: FeatureCache::default(),
        structure: StructureName::default(),
        ranks: Some(Ranks {
            count: 2,
            dealt: None,
            timeout: Duration::from_secs(60),
            faults: Vec::new(),
            exchange: Exchange::default(),
            overlap: None,
            gather: Gather::default(),
            process: None,
        }),
        feature_divisors: None,
        train: TrainConfig::new(Precision::Float),
        seeds: 1,
        saving: None,
        resume: None,
    };
    std::thread::scope(|scope| {
        let group = in_process(2, "test", Duration::from_secs(60), &[]);
        let threads = group.into_iter().zip(rooms).map(|(rank, bytes)| {
            scope.spawn(move || {
                let (device, group) = (card_of(bytes), Group::new(rank));
                let placed = Placed::<f32>::of_rank(&device, (dataset, plan), &group);
                let placed = placed.map(|placed| placed.placement);
                placed.map_err(|failure| failure.to_string())
            })
        });
        let threads: Vec<_> = threads.collect();
        let placed = threads.into_iter().map(|it| it.join().expect("a rank"));
        placed.collect()
    })
}

/// Of ranks that exchange features the one with the least memory says in how many pieces all evaluate; others choose
/// for themselves.
#[test]
fn ranks_that_exchange_features_have_as_many_pieces() {
    let dataset = dataset(Rmat::graph500(10).generate(1).expect("a graph"), 64);
    let pieces = |features| {
        let sage = ModelConfig {
            layers: 3,
            ..ModelConfig::sage(64, 8)
        };
        let placed = placed(&dataset, (sage, features), [64 << 20, 900 << 10]);
        let pieces = placed
            .into_iter()
            .map(|placed| placed.expect("room").pieces);
        pieces.collect::<Vec<_>>()
    };
    let own = pieces(FeaturesName::Device);
    assert!(own[0] == 1 && own[1] > 1, "{own:?}");
    let agreed = pieces(FeaturesName::Sharded);
    assert!(agreed[0] > 1 && agreed[0] == agreed[1], "{agreed:?}");
}

/// Where nothing is asked for, features are partitioned as soon as one rank has no memory for all; where it has none
/// for a share either, each has them where they fit, as one rank does.
#[test]
fn features_are_dealt_out_where_a_rank_has_no_room_for_all() {
    let ring: Vec<u32> = (0..1000).collect();
    let next: Vec<u32> = ring.iter().map(|vertex| (vertex + 1) % 1000).collect();
    // A MiB of features, and half of one.
    let dataset = dataset(Graph::from_edges(1000, &ring, &next).expect("a ring"), 256);
    let auto = |model: ModelConfig, kib: u64| {
        let rooms = [64 << 20, kib << 10];
        placed(&dataset, (model, FeaturesName::Auto), rooms)
    };
    let sage = ModelConfig::sage(256, 8);
    let told = |kib| {
        auto(sage.clone(), kib)
            .into_iter()
            .map(|own| own.expect("room"))
    };
    let kinds = |kib| -> Vec<_> {
        let kinds = told(kib).map(|own| (own.sharded, own.features));
        kinds.collect()
    };
    let (device, host) = (MemoryKind::Features, MemoryKind::HostFeatures);
    assert_eq!(kinds(1700), [(false, device), (false, device)]);
    assert_eq!(kinds(1300), [(true, device), (true, device)]);
    assert_eq!(kinds(800), [(false, device), (false, host)]);
    for own in told(1300) {
        // Half of them, a row of zeros, and labels and splits: of all, and of the three vertices that are evaluated.
        let features = own.footprint.of(MemoryKind::Features);
        assert_eq!(features, 501 * 256 * 4 + 1003 * 3 * 4);
        assert!(own.footprint.total() <= 1300 << 10);
        let lines = own.lines().collect::<Vec<_>>().concat();
        assert!(
            lines.starts_with("features: 500.0 KiB on each rank at most")
                && lines.contains("since all together does not fit on each GPU"),
            "{lines}"
        );
    }
    // What reads all vertices at once exchanges none of a piece.
    let gin = ModelConfig {
        hidden: 16,
        ..ModelConfig::gin(256, 8)
    };
    let gin = auto(gin, 1000).remove(1).expect("room on the host");
    assert_eq!((gin.sharded, gin.features), (false, host));
    let refused = auto(sage.clone(), 400).remove(1).expect_err("no room");
    assert!(refused.starts_with("out of device memory: "), "{refused}");
}
