//! Copies, in a GPU's memory, of features that lie in the host's.

use crate::failure::Failure;
use crate::placement::{BatchMemory, Placement};
use crate::screen::{bytes, count};
use clap::Args;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::most_read;
use halfgnn::device::Device;
use halfgnn::graph::Graph;
use halfgnn::ops::RowCache;
use halfgnn::tensor::Element;
use halfgnn::train::Objective;
use halfgnn_bench::names::size;
use halfgnn_bench::room::feature_copies;
use std::str::FromStr;

/// How much of the GPU's memory they may have.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct FeatureCacheArgs {
    /// With features in the host's memory and a --sampler: how much of the GPU's memory is for copies of the features
    /// of the vertices that most edges lead from, which do not come over the bus then; auto is half of what the run
    /// leaves free, of several ranks none, and a size is for each of them; results are the same
    #[arg(long, value_name = "auto|none|SIZE", default_value = "auto")]
    pub feature_cache: FeatureCache,
}

/// See [`FeatureCacheArgs::feature_cache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FeatureCache {
    /// Half of what is free.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// The given number of bytes.
    Bytes(u64),
}

impl FromStr for FeatureCache {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            other => match size(other) {
                Ok(bytes) => Ok(Self::Bytes(bytes)),
                Err(_) => Err("it must be auto, none, or a size such as 8GiB".into()),
            },
        }
    }
}

/// Copies that a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedFeatures {
    /// Vertices whose features they are.
    pub vertices: usize,
    /// Bytes of the GPU's memory.
    pub bytes: u64,
}

impl FeatureCache {
    /// Refuses copies that are asked for and would be of nothing: `copied` says whether features lie in the host's
    /// memory of a GPU and are learnt from in batches of vertices.
    ///
    /// # Errors
    /// In a line that says what to do.
    pub fn check(self, copied: bool) -> Result<(), Failure> {
        match self {
            Self::Bytes(_) if !copied => Err(Failure::Input(
                "--feature-cache: copies are of features in the host's memory of which a GPU takes those of a batch; add --features host and --sampler neighbor:15,10, or leave it out".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Makes the copies that a run has of a `task`'s features with such `memory`, and reports of them there; once for
    /// all runs. `of_vertices` says whether its batches are of vertices.
    ///
    /// # Errors
    /// Those of [`FeatureCache::check`], where there is less free than is asked for, and those of the device.
    pub fn copy<B: Backend, E: Element>(
        self,
        device: &Device<B>,
        (task, graph): (&Objective<B, E>, &Graph),
        (placement, of_vertices): (&Placement, bool),
        memory: Option<&mut BatchMemory>,
    ) -> Result<(), Failure> {
        let on_host = placement.features == MemoryKind::HostFeatures && placement.is_card();
        let copied = on_host && of_vertices;
        self.check(copied)?;
        let rows = task.feature_rows();
        if !copied || rows.cached().is_some() {
            return Ok(());
        }
        let beside = match (&memory, self) {
            (Some(memory), _) => memory.footprint.total(),
            // Of ranks what their batches leave is not known.
            (None, Self::Auto) => return Ok(()),
            (None, _) => placement.footprint.total(),
        };
        let shape = (rows.rows(), rows.columns());
        let Some(cached) = self.fitting::<B, E>(shape, (beside, device.memory))? else {
            return Ok(());
        };
        rows.cache_rows(&device.backend, &most_read(graph, cached.vertices))?;
        match memory {
            Some(memory) => memory.add_cached(cached),
            None => tracing::info!("{cached}"),
        }
        Ok(())
    }

    /// What a run has of `shape` (vertices and columns) that takes the given number of bytes otherwise; `memory` is
    /// free and total bytes of the GPU, where they are known.
    ///
    /// # Errors
    /// Where there is less free than is asked for.
    fn fitting<B: Backend, E: Element>(
        self,
        shape: (usize, usize),
        (beside, memory): (u64, Option<(u64, u64)>),
    ) -> Result<Option<CachedFeatures>, Failure> {
        let left = memory.map(|(free, _)| free.saturating_sub(beside));
        let vertices = match (self, left, memory) {
            (Self::None, ..) | (Self::Auto, None, _) => return Ok(None),
            (Self::Auto, Some(left), _) => RowCache::<B, E>::copies_within(shape, left / 2),
            (Self::Bytes(asked), Some(left), Some((free, total))) if asked > left => {
                return Err(Failure::Input(format!(
                    "--feature-cache {}: the run takes {} beside it, and {} of {} are free; take {}, or leave it out",
                    bytes(asked),
                    bytes(beside),
                    bytes(free),
                    bytes(total),
                    bytes(left / 2),
                )));
            }
            (Self::Bytes(asked), ..) => feature_copies::<B, E>(shape, asked)?,
        };
        let bytes = RowCache::<B, E>::bytes(shape, vertices);
        Ok((vertices > 0).then_some(CachedFeatures { vertices, bytes }))
    }
}

impl std::fmt::Display for CachedFeatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} for copies of the features of {} vertices",
            bytes(self.bytes),
            count(self.vertices)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn::backend::cpu::Cpu;

    #[test]
    fn sizes_are_auto_none_or_bytes() {
        assert_eq!("auto".parse(), Ok(FeatureCache::Auto));
        assert_eq!("none".parse(), Ok(FeatureCache::None));
        assert_eq!("2KiB".parse(), Ok(FeatureCache::Bytes(2048)));
        for wrong in ["", "much", "-1GiB", "1GiBs"] {
            let told = wrong.parse::<FeatureCache>().expect_err(wrong);
            assert!(told.contains("such as 8GiB"), "{told}");
        }
    }

    #[test]
    fn copies_fit_what_is_left() {
        let fitting = |cache: FeatureCache, memory| {
            let found = cache.fitting::<Cpu, f32>((1000, 4), (500, memory));
            found.map_err(|failure| failure.to_string())
        };
        let found = |vertices| {
            let bytes = 256 + 16 * vertices as u64;
            Ok(Some(CachedFeatures { vertices, bytes }))
        };
        let memory = |free| Some((free, 99_999));
        // 32 words of marks, and 16 bytes a row.
        assert_eq!(
            fitting(FeatureCache::Auto, memory(500 + 2 * 4256)),
            found(250)
        );
        assert_eq!(fitting(FeatureCache::Auto, memory(90_000)), found(1000));
        for nothing in [0, 500, 1000] {
            assert_eq!(fitting(FeatureCache::Auto, memory(nothing)), Ok(None));
        }
        assert_eq!(fitting(FeatureCache::Auto, None), Ok(None));
        assert_eq!(fitting(FeatureCache::None, memory(90_000)), Ok(None));
        let asked = FeatureCache::Bytes(4256);
        for memory in [None, memory(4756)] {
            assert_eq!(fitting(asked, memory), found(250));
        }
        let told = fitting(FeatureCache::Bytes(271), memory(90_000)).expect_err("for marks alone");
        assert!(told.contains("take 272 B or more"), "{told}");
        let told = fitting(asked, memory(4755)).expect_err("a byte too few");
        assert!(
            told.contains("the run takes 500 B beside it, and 4.6 KiB of"),
            "{told}"
        );
    }
}
