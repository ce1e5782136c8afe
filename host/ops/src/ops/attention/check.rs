//! Which operands the steps of a softmax over edges take.

use super::{AttentionStatisticsOperands, EdgeStep, EdgeStepOperands};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::check::{expect_edges, expect_heads, expect_vertices};
use crate::ops::elementwise::check::expect_dropout;
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
        Ok(())
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
    expect_vertices(operator, what, heads, a.columns(), scores.source)
}
