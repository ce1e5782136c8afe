//! `--reorder`: vertices in an order in which neighbours lie close together.

use crate::failure::Failure;
use clap::ValueEnum;
use halfgnn::data::{Origin, Preparation};
use halfgnn::graph::Graph;
use halfgnn::graph::reorder::{Permutation, by_degree, louvain};
use std::time::Instant;

/// An order of the vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReorderName {
    /// Vertices of many edges first
    Degree,
    /// Communities together, by Louvain's method
    Louvain,
}

/// What has its vertices in another order.
pub struct Reordered<T> {
    /// What it is.
    pub what: T,
    /// Where each vertex went.
    pub order: Permutation,
    /// Which order, and how long it took.
    pub line: String,
}

impl ReorderName {
    /// That a dataset was brought into this order.
    pub fn preparation(self) -> Preparation {
        let by = match self {
            ReorderName::Degree => "vertices renamed by degree, those of many edges first",
            ReorderName::Louvain => "vertices renamed by Louvain's communities",
        };
        Preparation::new("order", by, Origin::Option)
    }

    /// Finds the order of `graph`, called `label`, and gives what belongs to its vertices that order.
    pub fn apply<T, E: Into<Failure>>(
        self,
        label: &str,
        graph: &Graph,
        apply: impl FnOnce(&Permutation) -> Result<T, E>,
    ) -> Result<Reordered<T>, Failure> {
        let start = Instant::now();
        let order = match self {
            ReorderName::Degree => by_degree(graph),
            ReorderName::Louvain => louvain(graph),
        };
        let found = start.elapsed();
        let what = apply(&order).map_err(Into::into)?;
        let line = format!(
            "{label}: in the order of {self:?} after {:.2} s, renamed after another {:.2} s",
            found.as_secs_f64(),
            (start.elapsed() - found).as_secs_f64()
        );
        Ok(Reordered { what, order, line })
    }
}
