//! The convolution by Chebyshev polynomials of the Laplacian (Defferrard, Bresson and Vandergheynst, NIPS 2016).

use super::{IN_FLOAT, Layer, LayerKind, MOST_HOPS, ParameterNames, Reads, check_hops};
use crate::nn::architecture::{Architecture, LayerOption, norm, number, positive, store};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names. DGL has the weights of all terms in one.
pub(super) const KIND: LayerKind = LayerKind::of::<Cheb>(&[
    ParameterNames::linear("terms.*.weight", &["lins.*.weight"], &["linear.weight"]),
    ParameterNames::same("bias", &["bias"], &["linear.bias"]),
]);

/// Options of PyG's `ChebConv`, whose `K` has no default: here it is 3. Edges may have weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cheb {
    /// The degree norm of the edges: `both` for the symmetric Laplacian, `right` for that of random walks.
    pub norm: Norm,
    /// Terms of the polynomial, PyG's `K`.
    pub terms: usize,
    /// The largest eigenvalue of the Laplacian, which scales it. Above zero.
    pub lambda_max: f32,
}

impl Default for Cheb {
    fn default() -> Self {
        Self {
            norm: Norm::Both,
            terms: 3,
            lambda_max: 2.0,
        }
    }
}

impl Architecture for Cheb {
    const NAME: &'static str = "cheb";
    const TITLE: &'static str =
        "Convolution by Chebyshev polynomials of the Laplacian (Defferrard et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "norm",
            value: "NORM",
            choices: &[
                ("both", "Of the symmetric Laplacian"),
                ("right", "Of the Laplacian of random walks"),
            ],
            help: "which degrees normalise the Laplacian [default: both]",
            set: |cheb, text| store(&mut cheb.norm, norm(text)),
        },
        LayerOption {
            name: "terms",
            value: "N",
            help: "terms of the polynomial, the first of which is the identity [default: 3]",
            set: |cheb, text| store(&mut cheb.terms, number(text, 1..=MOST_HOPS)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "lambda-max",
            value: "X",
            help: "the largest eigenvalue of the Laplacian [default: 2]",
            set: |cheb, text| store(&mut cheb.lambda_max, positive(text)),
            ..LayerOption::NONE
        },
    ];

    fn norm(&self) -> Norm {
        self.norm
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        check_hops(self.terms, 1)?;
        if !matches!(self.norm, Norm::Both | Norm::Right) {
            return Err(format!(
                "a Laplacian has the degree norm both or right here, and not {}",
                self.norm
            ));
        }
        match self.lambda_max.is_finite() && self.lambda_max > 0.0 {
            true => Ok(()),
            false => Err(format!(
                "the largest eigenvalue {} of the Laplacian should be a number above 0",
                self.lambda_max
            )),
        }
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (_, outputs) = model.layer(number);
        Box::new(ChebLayer {
            edges,
            outputs,
            options: self.clone(),
        })
    }
}

/// `Σ_k T_k(L̂) · H · W_k` for `k` from 0 to `K − 1`, with `T₀(x) = 1`, `T₁(x) = x` and `T_k(x) = 2 · x · T_{k−1}(x) − T_{k−2}(x)`.
///
/// The scaled Laplacian is `L̂ = 2 / λ · (I − Â) − I`, which the layer makes of an adjacency `Â` without self-loops. The norm of the
/// edges is the Laplacian's: `both` for the symmetric one, `right` for that of random walks. The sums are over `H` or over products,
/// whichever are narrower.
#[derive(Clone, Debug)]
pub struct ChebLayer {
    /// The adjacency, without self-loops.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Its options.
    pub options: Cheb,
}

impl Layer for ChebLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let terms = self.options.terms;
        if terms > 2 && !g.expect_hops(Cheb::NAME, self.edges) {
            return x;
        }
        let shape = (g.columns(x), self.outputs);
        let weights: Vec<Value> = (0..terms)
            .map(|term| g.weight(&format!("terms.{term}.weight"), shape))
            .collect();
        match self.outputs < shape.0 {
            true => self.by_clenshaw(g, x, &weights),
            false => self.by_recurrence(g, x, &weights),
        }
    }
}

impl ChebLayer {
    /// `factor · L̂ · x` as terms of a sum, from the rows of all sources and those of destinations.
    fn laplacian(&self, g: &mut Builder, factor: f32, [all, own]: [Value; 2]) -> Vec<(f32, Value)> {
        let scale = 2.0 / self.options.lambda_max;
        let sum = g.aggregate(self.edges, all);
        let mut terms = vec![(-factor * scale, sum)];
        if scale != 1.0 {
            terms.push((factor * (scale - 1.0), own));
        }
        terms
    }

    fn by_recurrence(&self, g: &mut Builder, x: Value, weights: &[Value]) -> Value {
        let own = g.own_rows(self.edges, x);
        let mut products = vec![g.matmul(own, weights[0])];
        let (mut before, mut last) = (own, own);
        for (term, weight) in weights.iter().enumerate().skip(1) {
            let next = match term {
                1 => self.laplacian(g, 1.0, [x, own]),
                _ => {
                    let all = g.all_rows(self.edges, last);
                    let mut terms = self.laplacian(g, 2.0, [all, last]);
                    terms.push((-1.0, before));
                    terms
                }
            };
            let next = g.combine(&next);
            products.push(g.matmul(next, *weight));
            (before, last) = (last, next);
        }
        g.sum(&products)
    }

    /// Clenshaw's rule: `b_k = H · W_k + 2 · L̂ · b_{k+1} − b_{k+2}`, with `L̂ · b₁` once for the output, `b₀`.
    fn by_clenshaw(&self, g: &mut Builder, x: Value, weights: &[Value]) -> Value {
        let (mut next, mut after) = (None, None);
        let last = weights.len().saturating_sub(1);
        for (term, weight) in weights.iter().enumerate().rev() {
            // What is summed next of the highest term is its product alone.
            if term == last && term > 0 {
                let all = g.matmul(x, *weight);
                next = Some([all, g.own_rows(self.edges, all)]);
                continue;
            }
            let own = g.own_rows(self.edges, x);
            let mut terms = vec![(1.0, g.matmul(own, *weight))];
            if let Some(next) = next {
                let factor = if term == 0 { 1.0 } else { 2.0 };
                terms.extend(self.laplacian(g, factor, next));
            }
            terms.extend(after.map(|after| (-1.0, after)));
            let sum = match &terms[..] {
                [(_, product)] => *product,
                terms => g.combine(terms),
            };
            if term == 0 {
                return sum;
            }
            after = next.map(|[_, own]| own);
            next = Some([g.all_rows(self.edges, sum), sum]);
        }
        x
    }
}
