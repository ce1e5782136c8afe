//! GraphSAGE with the mean of the neighbours (Hamilton, Ying and Leskovec, NeurIPS 2017):
//! `H · W_self + D⁻¹ · A · H · W`.
//!
//! Both maps of the neighbours are linear, so a layer first applies the one that makes rows narrower or, on a sampled
//! block, fewer ([`Order`]).

use super::architecture::Architecture;
use super::{ModelConfig, Norm, rounds_by_default};
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use serde::{Deserialize, Serialize};

/// `H · W_self + mean(H) · W` (Hamilton, Ying and Leskovec, NeurIPS 2017), two layers of 64 with dropout 0.5.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sage;

impl Architecture for Sage {
    const NAME: &'static str = "sage";
    const TITLE: &'static str = "GraphSAGE with the mean of the neighbours (Hamilton et al.)";

    fn norm(&self) -> Norm {
        Norm::Right
    }

    fn reads_in_place(&self, model: &ModelConfig) -> bool {
        let (inputs, outputs) = model.layer(0);
        inputs <= outputs && rounds_by_default(model.policy)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula> {
        let edges = reads.edges;
        let outputs = model.layer(number).1;
        Box::new(formulas::Sage { edges, outputs })
    }
}

impl ModelConfig {
    /// GraphSAGE with the mean of the neighbours: two layers of 64 with dropout 0.5.
    pub fn sage(features: usize, classes: usize) -> Self {
        Self::of(Sage, features, classes)
    }
}
