//! Where the features of a graph lie while a device computes on them.

use crate::failure::Failure;
use crate::screen::bytes;
use halfgnn::backend::MemoryKind;
use halfgnn::graph::GraphCounts;
use halfgnn::nn::ModelConfig;
use halfgnn::tensor::Element;
use halfgnn::train::{FeaturesIn, Footprint, Room, TrainConfig, Work, host_memory};

/// Where features lie that might lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct FeaturePlacement {
    /// Where they may.
    pub asked: FeaturesIn,
    /// [`MemoryKind::HostFeatures`], or that of the device.
    pub kind: MemoryKind,
    /// How much of it they take; nothing of the device's, which the table of memory tells.
    pub bytes: u64,
    /// Whether the device has memory of its own.
    pub is_card: bool,
}

impl FeaturePlacement {
    /// A line for a person; none where it is as ever.
    pub fn line(&self) -> Option<String> {
        let bytes = bytes(self.bytes);
        match (self.asked, self.kind) {
            (FeaturesIn::Host, _) if !self.is_card => {
                Some("features: in the host's memory, as all is on a CPU".into())
            }
            (FeaturesIn::Host, _) => Some(format!(
                "features: {bytes} in the host's memory, from where the card reads them"
            )),
            (FeaturesIn::Either, MemoryKind::HostFeatures) => Some(format!(
                "features: {bytes} in the host's memory, from where the card reads them, since all together has no room on the card"
            )),
            _ => None,
        }
    }
}

/// Where the features are to lie of a graph of `counts` that a model does its work on, and that all of it has room on a device of so
/// many multiprocessors and free and total bytes.
///
/// # Errors
/// With what it takes and what is free.
pub fn place<E: Element>(
    counts: &GraphCounts,
    how: (&ModelConfig, &TrainConfig, Work),
    (multiprocessors, device): (Option<u32>, Option<(u64, u64)>),
    asked: FeaturesIn,
) -> Result<FeaturePlacement, Failure> {
    let room = Room {
        device,
        host: host_memory(),
        features: asked,
    };
    let footprint = Footprint::check_work::<E>(counts, how, multiprocessors, room)?;
    Ok(FeaturePlacement {
        asked,
        kind: footprint.features_kind(),
        bytes: footprint.of(MemoryKind::HostFeatures),
        is_card: multiprocessors.is_some(),
    })
}
