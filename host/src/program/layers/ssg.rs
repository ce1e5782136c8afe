//! Simple spectral graph convolution (Zhu and Koniusz, ICLR 2021).

use super::{IN_FLOAT, Layer, LayerKind, MOST_HOPS, ParameterNames, Reads, check_hops};
use crate::nn::architecture::{
    Architecture, LayerOption, norm, norm_option, number, probability, store,
};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<Ssg>(&[
    ParameterNames::linear("weight", &["lin.weight"], &[]),
    ParameterNames::same("bias", &["lin.bias"], &[]),
]);

/// Options of PyG's `SSGConv`, whose α has no default: here it is 0.1. Edges may have weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ssg {
    /// The degree norm of the edges. PyG's is `in`, which is `both` on graphs whose edges go both ways.
    pub norm: Norm,
    /// Sums over neighbours, PyG's `K`.
    pub hops: usize,
    /// Share of a vertex's own row, in [0, 1).
    pub alpha: f32,
}

impl Default for Ssg {
    fn default() -> Self {
        Self {
            norm: Norm::Both,
            hops: 1,
            alpha: 0.1,
        }
    }
}

impl Architecture for Ssg {
    const NAME: &'static str = "ssg";
    const TITLE: &'static str = "Simple spectral graph convolution (Zhu and Koniusz)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        norm_option(|ssg, text| store(&mut ssg.norm, norm(text))),
        LayerOption {
            name: "hops",
            value: "N",
            help: "hops that a layer averages over [default: 1]",
            set: |ssg, text| store(&mut ssg.hops, number(text, 1..=MOST_HOPS)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "alpha",
            value: "X",
            help: "share of a vertex's own row [default: 0.1]",
            set: |ssg, text| store(&mut ssg.alpha, probability(text)),
            ..LayerOption::NONE
        },
    ];

    fn norm(&self) -> Norm {
        self.norm
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        check_hops(self.hops, 1)?;
        match (0.0..1.0).contains(&self.alpha) {
            true => Ok(()),
            false => Err(format!("α {} should be in [0, 1)", self.alpha)),
        }
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (_, outputs) = model.layer(number);
        Box::new(SsgLayer {
            edges,
            outputs,
            options: self.clone(),
        })
    }
}

/// `(α · H + (1 − α) / K · Σ_k Âᵏ · H) · W` for `k` from 1 to `K`, with the degree norm of the edges.
#[derive(Clone, Debug)]
pub struct SsgLayer {
    /// The adjacency, with self-loops.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Its options.
    pub options: Ssg,
}

impl Layer for SsgLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let Ssg { hops, alpha, .. } = self.options;
        if hops > 1 && !g.expect_hops(Ssg::NAME, self.edges) {
            return x;
        }
        let weight = g.weight("weight", (g.columns(x), self.outputs));
        let is_narrower = self.outputs < g.columns(x);
        let h = match is_narrower {
            true => g.matmul(x, weight),
            false => x,
        };
        let (own, mut all) = (g.own_rows(self.edges, h), h);
        for _ in 1..hops {
            let further = g.aggregate(self.edges, all);
            let sum = g.add(further, own);
            all = g.all_rows(self.edges, sum);
        }
        let sum = g.aggregate(self.edges, all);
        let mut terms = vec![((1.0 - alpha) / hops as f32, sum)];
        if alpha != 0.0 {
            terms.push((alpha, own));
        }
        let y = g.combine(&terms);
        match is_narrower {
            true => y,
            false => g.matmul(y, weight),
        }
    }
}
