//! Whether a graph that is to be made, and a model on it, fit the memory: asked before either is made.

use crate::failure::Failure;
use crate::names::DeviceName;
use crate::screen::bytes;
use crate::source::SourceName;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::{Demand, Recipe};
use halfgnn::device;
use halfgnn::graph::generate::Rmat;
use halfgnn::nn::ModelConfig;
use halfgnn::ops::RowCache;
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::{FeaturesIn, Footprint, Room, TrainConfig, Work, host_memory};
use halfgnn::with_element;
use std::fmt::Display;

/// Of how many vertices a GPU has copies in `asked` bytes, which `--feature-cache` names, where the features, of
/// `shape` (vertices and columns), lie in the host's memory.
///
/// # Errors
/// If there is no memory for those of one vertex; the message has the bytes that would do.
pub fn feature_copies<B: Backend, E: Element>(
    shape: (usize, usize),
    asked: u64,
) -> Result<usize, Failure> {
    match RowCache::<B, E>::copies_within(shape, asked) {
        0 if shape.0 > 0 => Err(Failure::Input(format!(
            "--feature-cache {}: it has no room for the features of a vertex; take {} or more, or leave it out",
            bytes(asked),
            bytes(RowCache::<B, E>::bytes(shape, 1)),
        ))),
        copies => Ok(copies),
    }
}

/// Free and total bytes; `None` where they are not known.
type Memory = Option<(u64, u64)>;

/// That this machine can make what `recipe` makes.
///
/// # Errors
/// With what it takes and what is free.
pub fn for_recipe(recipe: &Recipe) -> Result<(), Failure> {
    making(recipe, host_memory())
}

fn making(recipe: &Recipe, memory: Memory) -> Result<(), Failure> {
    let demand = recipe.demand();
    let most = demand.making.max(demand.dataset_bytes());
    makes(recipe, most, memory)
}

/// That this machine can make an R-MAT graph, without features.
///
/// # Errors
/// As [`for_recipe`].
pub fn for_rmat(name: &str, rmat: &Rmat) -> Result<(), Failure> {
    making_rmat(name, rmat, host_memory())
}

/// That one of several ranks that make an R-MAT graph together can make its share. What other ranks of this machine
/// take is not counted.
///
/// # Errors
/// As [`for_recipe`].
pub fn for_share_of_rmat(name: &str, rmat: &Rmat, ranks: usize) -> Result<(), Failure> {
    making_share(name, rmat, ranks, host_memory())
}

fn making_share(name: &str, rmat: &Rmat, ranks: usize, memory: Memory) -> Result<(), Failure> {
    let what = format!("making a share of {name} takes");
    let instead = "a smaller graph or more ranks";
    fits(&what, share_of_rmat(rmat, ranks), memory, instead)
}

/// Edges as they are sorted by rank, and the graph of a rank's own with and without self-loops; degrees, owners and
/// places of all vertices.
fn share_of_rmat(rmat: &Rmat, ranks: usize) -> u64 {
    let directions = if rmat.undirected { 2 } else { 1 };
    let own = rmat.edges.div_ceil(ranks as u64).saturating_mul(directions);
    own.saturating_mul(56)
        .saturating_add(rmat.vertices.saturating_mul(40))
}

fn making_rmat(name: &str, rmat: &Rmat, memory: Memory) -> Result<(), Failure> {
    makes(&name, Demand::of_rmat(rmat).making, memory)
}

fn makes(what: &impl Display, most: u64, memory: Memory) -> Result<(), Failure> {
    let what = format!("making {what} takes");
    fits(&what, most, memory, "a smaller graph")
}

fn fits(what: &str, asked: u64, memory: Memory, instead: &str) -> Result<(), Failure> {
    match memory {
        Some((free, total)) if asked > free => Err(Failure::Input(format!(
            "{what} {} of this machine's memory, and {} of {} are free; take {instead}",
            bytes(asked),
            bytes(free),
            bytes(total)
        ))),
        _ => Ok(()),
    }
}

/// How a model is to be trained.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// Of state tensors.
    pub precision: Precision,
    /// What is done on the whole graph.
    pub work: Work,
    /// Where features may lie.
    pub features: FeaturesIn,
}

/// That memory is free for training a model on what `source` makes, if it makes something: on the device and, for the
/// dataset, on this machine. It is a lower bound; once the graph is there the figures are exact.
///
/// # Errors
/// With what it takes and what is free, or why there is no such model.
pub fn for_training(
    source: &SourceName,
    device: DeviceName,
    how: Training,
    train: impl FnOnce(&Demand) -> Result<(ModelConfig, TrainConfig), Failure>,
) -> Result<(), Failure> {
    let SourceName::Made(recipe) = source else {
        return Ok(());
    };
    for_recipe(recipe)?;
    let demand = recipe.demand();
    let (model, train) = train(&demand)?;
    let card = match device {
        DeviceName::Cpu | DeviceName::Emulator => None,
        DeviceName::Auto | DeviceName::Cuda => device::cuda_driver()
            .ok()
            .and_then(|driver| driver.cards.into_iter().next())
            .map(|card| (card.multiprocessors, card.memory_bytes)),
    };
    training(recipe, (&model, &train), how, card, host_memory())
}

/// On a GPU of the given number of multiprocessors and bytes, or on the CPU.
fn training(
    recipe: &Recipe,
    (model, train): (&ModelConfig, &TrainConfig),
    how: Training,
    card: Option<(u32, u64)>,
    host: Memory,
) -> Result<(), Failure> {
    let demand = recipe.demand();
    let (mut counts, mut on_host) = (demand.counts, demand.dataset_bytes());
    if model.wants_self_loops() {
        on_host = on_host.saturating_add(counts.host_bytes());
        // Whether a vertex has one already is not known.
        counts.forward.empty = 0;
    }
    let (multiprocessors, device) = match card {
        Some((multiprocessors, bytes)) => (Some(multiprocessors), Some((bytes, bytes))),
        None => (None, host),
    };
    let room = Room {
        device,
        host,
        features: how.features,
    };
    let footprint = with_element!(how.precision, E => {
        Footprint::check_work::<E>(&counts, (model, train, how.work), multiprocessors, room)
    })?;
    on_host = on_host.saturating_add(match card {
        Some(_) => footprint.of(MemoryKind::HostFeatures),
        None => footprint.total(),
    });
    let what = format!("training on {recipe} takes");
    fits(
        &what,
        on_host,
        host,
        "a smaller graph, --hidden or --layers",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(text: &str) -> Recipe {
        text.parse().expect("a recipe")
    }

    #[test]
    fn what_a_machine_cannot_make_is_refused_with_the_figures() {
        let small = Some((23 << 30, 24 << 30));
        let refused = making(&recipe("kron:26"), small).expect_err("it is too large");
        let text = refused.to_string();
        assert!(
            text.contains("making kron:26 takes 25.0 GiB")
                && text.contains("23.0 GiB of 24.0 GiB are free"),
            "{text}"
        );
        assert!(making(&recipe("kron:26"), Some((40 << 30, 48 << 30))).is_ok());
        assert!(making(&recipe("kron:26"), None).is_ok());
        let rmat = Rmat::graph500(26);
        let refused = making_rmat("its-like", &rmat, small).expect_err("likewise");
        assert!(
            refused
                .to_string()
                .contains("making its-like takes 24.8 GiB"),
            "{refused}"
        );
        assert!(making_rmat("its-like", &Rmat::graph500(25), small).is_ok());
        // 2³⁰ edges in both directions, 2²⁶ vertices.
        let refused = making_share("its-like", &rmat, 4, small).expect_err("likewise");
        assert!(
            refused
                .to_string()
                .contains("making a share of its-like takes 30.5 GiB"),
            "{refused}"
        );
        assert!(making_share("its-like", &rmat, 8, small).is_ok());
    }

    #[test]
    fn a_model_is_refused_by_the_machine_or_the_card_before_its_graph_is_made() {
        let host = Some((60 << 30, 64 << 30));
        let gcn = ModelConfig::gcn(64, 8);
        let kron = |scale: u32, card| {
            let recipe = recipe(&format!("kron:{scale}"));
            let train = TrainConfig::new(Precision::Half);
            let how = Training {
                precision: Precision::Half,
                work: Work::Training,
                features: FeaturesIn::Either,
            };
            training(&recipe, (&gcn, &train), how, card, host).map_err(|error| error.to_string())
        };
        assert_eq!(kron(20, None), Ok(()));
        let refused = kron(26, None).expect_err("two graphs and the CPU's own");
        assert!(refused.contains("training on kron:26 takes"), "{refused}");
        assert_eq!(kron(22, Some((132, 80 << 30))), Ok(()));
        let refused = kron(22, Some((132, 1 << 30))).expect_err("a small GPU");
        assert!(refused.contains("out of device memory"), "{refused}");
    }
}
