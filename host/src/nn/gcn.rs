//! The graph convolution of Kipf and Welling (ICLR 2017): `R · A · C · H · W` with the degree norms `R` and `C`.

use super::architecture::{Architecture, LayerOption, norm, norm_option, store};
use super::{ModelConfig, Norm, rounds_by_default};
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use serde::{Deserialize, Serialize};

/// `R · A · C · H · W` (Kipf and Welling, ICLR 2017), two layers of 64 with dropout 0.5.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gcn {
    /// The degree norms `R` and `C`.
    pub norm: Norm,
}

impl Architecture for Gcn {
    const NAME: &'static str = "gcn";
    const TITLE: &'static str = "Graph convolutional network (Kipf and Welling)";
    const OPTIONS: &'static [LayerOption<Self>] =
        &[norm_option(|gcn, text| store(&mut gcn.norm, norm(text)))];

    fn norm(&self) -> Norm {
        self.norm
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn reads_in_place(&self, model: &ModelConfig) -> bool {
        let (inputs, outputs) = model.layer(0);
        inputs < outputs && rounds_by_default(model.policy)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula> {
        let edges = reads.edges;
        let outputs = model.layer(number).1;
        Box::new(formulas::Gcn { edges, outputs })
    }
}

impl ModelConfig {
    /// A graph convolutional network: two layers of 64 with dropout 0.5 and symmetric degree norms.
    pub fn gcn(features: usize, classes: usize) -> Self {
        Self::of(Gcn::default(), features, classes)
    }
}
