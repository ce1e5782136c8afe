//! Which operands the steps of a softmax over edges take.

use super::{AttentionStatisticsOperands, EdgeBiasGradientOperands, EdgeStep, EdgeStepOperands};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::check::{expect_edges, expect_heads, expect_vertices};
use crate::ops::elementwise::check::expect_dropout;
use crate::ops::spmm::expect_biases;
use crate::ops::{AttentionScores, Operator};
use crate::tensor::Element;

impl<B: Storage> Operator for AttentionStatisticsOperands<'_, B> {
    const NAME: &'static str = "attention_statistics";

    fn check(&self) -> Result<(), Error> {
        let (rows, heads) = (self.a.rows(), self.scores.heads);
        expect_scores(Self::NAME, self.scores, self.a)?;
        expect_vertices(Self::NAME, "statistics", heads, rows, self.statistics)?;
        if let Some(share) = &self.positive_share {
            expect_vertices(Self::NAME, "positive shares", heads, rows, share)?;
        }
        if let Some(sums) = &self.sums {
            expect_edges(Self::NAME, "sums of scores", heads, self.a, sums)?;
        }
        Ok(())
    }
}

impl<B: Storage, E: Element> Operator for EdgeBiasGradientOperands<'_, B, E> {
    const NAME: &'static str = "edge_bias_gradient";

    fn check(&self) -> Result<(), Error> {
        let EdgeBiasGradientOperands {
            a,
            weights,
            x,
            inner,
            d,
        } = self;
        let heads = weights.heads;
        expect_heads(Self::NAME, heads)?;
        weights.check(Self::NAME, a)?;
        let refuse = |reason: &str| {
            Err(Error::Unsupported {
                operator: Self::NAME,
                reason: reason.into(),
            })
        };
        if weights.biases.is_none() {
            return refuse("the scores have no biases, and so no gradient of them");
        }
        expect_edges(Self::NAME, "gradient of the weights", heads, a, x)?;
        expect_edges(Self::NAME, "gradient of the biases", heads, a, d)?;
        let destinations = match weights.transposed {
            false => a.rows(),
            true => a.columns(),
        };
        expect_vertices(Self::NAME, "inner sums", heads, destinations, inner)
    }
}

impl<B: Storage, E: Element> Operator for EdgeStepOperands<'_, B, E> {
    const NAME: &'static str = "edge_step";

    fn check(&self) -> Result<(), Error> {
        let (a, heads) = (self.a, self.heads);
        expect_heads(Self::NAME, heads)?;
        if let Some(x) = self.x {
            expect_edges(Self::NAME, "edge values", heads, a, x)?;
        }
        expect_edges(Self::NAME, "result", heads, a, self.y)?;
        match self.step {
            EdgeStep::Scores(of) | EdgeStep::ScoresBackward(of) => {
                Error::expect(Self::NAME, "heads of the scores", heads, of.heads)?;
                if of.biases.is_some() {
                    return Err(Error::Unsupported {
                        operator: Self::NAME,
                        reason:
                            "scores have biases of edges in fused attention alone; see Attention"
                                .into(),
                    });
                }
                expect_scores(Self::NAME, of, a)
            }
            EdgeStep::Exp { row } | EdgeStep::Divide { row } => {
                expect_vertices(Self::NAME, "numbers of rows", heads, a.rows(), row)
            }
            EdgeStep::SoftmaxBackward { factor, row } => {
                expect_edges(Self::NAME, "edge factors", heads, a, factor)?;
                expect_vertices(Self::NAME, "numbers of rows", heads, a.rows(), row)
            }
            EdgeStep::Dropout(dropout) => expect_dropout(Self::NAME, Some(*dropout)),
        }
    }
}

fn expect_scores<B: Storage>(
    operator: &'static str,
    scores: &AttentionScores<'_, B>,
    a: &Adjacency<B>,
) -> Result<(), Error> {
    let heads = scores.heads;
    expect_heads(operator, heads)?;
    let what = "scores as destination";
    expect_vertices(operator, what, heads, a.rows(), scores.destination)?;
    let what = "scores as source";
    expect_vertices(operator, what, heads, a.columns(), scores.source)?;
    expect_biases(operator, heads, a, scores.biases)
}
