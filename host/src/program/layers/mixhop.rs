//! The convolution that mixes powers of the adjacency (Abu-El-Haija et al., ICML 2019).

use super::{IN_FLOAT, Layer, LayerKind, MOST_HOPS, ParameterNames, Reads, check_hops};
use crate::nn::architecture::{Architecture, LayerOption, norm, norm_option, number, store};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<MixHop>(&[
    ParameterNames::linear("hops.*.weight", &["lins.*.weight"], &[]),
    ParameterNames::same("bias", &["bias"], &[]),
]);

/// Options of PyG's `MixHopConv`. Edges may have weights. The columns of the powers lie side by side, as many of each where the width
/// of a layer is a multiple of them, else one more of the first powers. The last layer of a network has their mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MixHop {
    /// The degree norm of the edges. PyG's is `in`, which is `both` on graphs whose edges go both ways.
    pub norm: Norm,
    /// The powers, each once.
    pub powers: Vec<usize>,
}

impl Default for MixHop {
    fn default() -> Self {
        Self {
            norm: Norm::Both,
            powers: vec![0, 1, 2],
        }
    }
}

fn powers(text: &str) -> Result<Vec<usize>, String> {
    let powers = text.split(',').map(|it| number(it.trim(), 0..=MOST_HOPS));
    let powers: Result<Vec<usize>, String> = powers.collect();
    powers.map_err(|_| format!("whole numbers from 0 to {MOST_HOPS}, such as 0,1,2"))
}

impl Architecture for MixHop {
    const NAME: &'static str = "mixhop";
    const TITLE: &'static str = "Powers of the adjacency side by side (Abu-El-Haija et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        norm_option(|mixhop, text| store(&mut mixhop.norm, norm(text))),
        LayerOption {
            name: "powers",
            value: "N,N,…",
            help: "powers of the adjacency [default: 0,1,2]",
            set: |mixhop, text| store(&mut mixhop.powers, powers(text)),
            ..LayerOption::NONE
        },
    ];

    fn norm(&self) -> Norm {
        self.norm
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        let count = self.powers.len();
        let twice = (1..count).find(|&at| self.powers[..at].contains(&self.powers[at]));
        if let Some(at) = twice {
            return Err(format!("the power {} is there twice", self.powers[at]));
        }
        check_hops(self.powers.iter().copied().max().unwrap_or(0), 0)?;
        if count == 0 {
            return Err("without powers a layer computes nothing; give at least one".into());
        }
        let mut hidden = (0..model.hidden_layers()).map(|layer| model.layer(layer).1);
        match hidden.find(|width| *width < count) {
            Some(width) => Err(format!(
                "{count} powers share the columns of a hidden layer, which has {width}; take at least {count}"
            )),
            None => Ok(()),
        }
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (_, outputs) = model.layer(number);
        Box::new(MixHopLayer {
            edges,
            outputs,
            averaged: model.is_last(number),
            options: self.clone(),
        })
    }
}

/// `Âᵖ · H · W_p` for each power `p`, side by side or averaged, with the degree norm of the edges.
#[derive(Clone, Debug)]
pub struct MixHopLayer {
    /// The adjacency, with self-loops.
    pub edges: Edges,
    /// Columns of the output, which the powers share where they are side by side.
    pub outputs: usize,
    /// Whether the output is the mean of the powers, and not all of them.
    pub averaged: bool,
    /// Its options.
    pub options: MixHop,
}

impl Layer for MixHopLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let (powers, inputs) = (&self.options.powers, g.columns(x));
        let mut weights = vec![None; powers.iter().max().map_or(0, |most| most + 1)];
        let mut first = 0;
        for (place, &power) in powers.iter().enumerate() {
            let width = match self.averaged {
                true => self.outputs,
                false => (self.outputs + powers.len() - 1 - place) / powers.len(),
            };
            let weight = g.weight(&format!("hops.{power}.weight"), (inputs, width));
            weights[power] = Some(match self.averaged {
                true => weight,
                false => g.place(weight, first, self.outputs),
            });
            first += width;
        }
        let y = g.polynomial(MixHop::NAME, self.edges, x, &weights);
        match self.averaged {
            true => g.combine(&[(1.0 / powers.len() as f32, y)]),
            false => y,
        }
    }
}
