//! Features of each edge, in addition to its weight or in place of it.

use super::error::DataProblem;
use halfgnn_graph::{AddedWeight, Graph, GraphError};

/// A row of numbers for each edge, in the graph's order.
#[derive(Debug, Clone, PartialEq)]
pub struct EdgeFeatures {
    columns: usize,
    values: Vec<f32>,
}

impl EdgeFeatures {
    /// `values` as rows of `columns` numbers.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where `columns` is 0 or does not divide the length of `values`; [`DataProblem::Value`]
    /// where a number is not finite.
    pub fn new(columns: usize, values: Vec<f32>) -> Result<Self, DataProblem> {
        if columns == 0 || !values.len().is_multiple_of(columns) {
            let shape = [values.len() as u64];
            let wanted = format!("a multiple of {columns} columns");
            return Err(DataProblem::shape("edge features", &shape, wanted));
        }
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(Self { columns, values }),
            Some(at) => {
                let why = format!(
                    "of edge {}, column {} (from 0), which is not finite",
                    at / columns,
                    at % columns
                );
                Err(DataProblem::value(
                    "edge features",
                    at as u64,
                    values[at],
                    why,
                ))
            }
        }
    }

    /// The number of features of an edge.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The number of edges.
    pub fn edges(&self) -> usize {
        self.values.len() / self.columns
    }

    /// All rows, one after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The same to be filled.
    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// The features of an edge.
    ///
    /// # Panics
    /// If there is no such edge.
    pub fn row(&self, edge: usize) -> &[f32] {
        &self.values[edge * self.columns..(edge + 1) * self.columns]
    }

    /// Row `k` is the row of edge `order[k]`.
    pub(crate) fn in_order(&self, order: &[u32]) -> Result<Self, DataProblem> {
        Ok(Self {
            columns: self.columns,
            values: gathered("edge features", &self.values, self.columns, order)?,
        })
    }

    /// Those of `edited`, as [`Graph::carry_weights`] has the weights: each column by itself.
    pub(crate) fn carried(
        &self,
        graph: &Graph,
        edited: &Graph,
        added: AddedWeight,
    ) -> Result<Self, DataProblem> {
        let refuse = |error: GraphError| DataProblem::graph("edge features", error);
        let elements = edited.edges() as u64 * self.columns as u64;
        let mut values = DataProblem::with_capacity("edge features", elements)?;
        values.resize(edited.edges() * self.columns, 0.0);
        for column in 0..self.columns {
            let mut one = DataProblem::with_capacity("edge features", graph.edges() as u64)?;
            one.extend(self.values.iter().skip(column).step_by(self.columns));
            let carried = graph.carry_weights(&one, edited, added).map_err(refuse)?;
            let places = values.iter_mut().skip(column).step_by(self.columns);
            places
                .zip(carried)
                .for_each(|(place, value)| *place = value);
        }
        Ok(Self {
            columns: self.columns,
            values,
        })
    }
}

/// Row `order[k]` of rows of `width` in the place of row `k`.
pub(crate) fn gathered<T: Copy>(
    key: &str,
    rows: &[T],
    width: usize,
    order: &[u32],
) -> Result<Vec<T>, DataProblem> {
    let mut out = DataProblem::with_capacity(key, rows.len() as u64)?;
    for &from in order {
        let from = from as usize * width;
        out.extend_from_slice(&rows[from..from + width]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_along_with_edges_that_are_added() {
        // Edges 1 -> 0 with (1, 2) and with (3, 4), and 0 -> 2 with (5, 6).
        let graph = Graph::from_edges(3, &[0, 0, 2], &[1, 1, 0]).unwrap();
        let features = EdgeFeatures::new(2, vec![1., 2., 3., 4., 5., 6.]).unwrap();
        assert_eq!((features.edges(), features.row(1)), (3, &[3., 4.][..]));
        let both = graph.to_undirected().unwrap();
        let carried = features.carried(&graph, &both, AddedWeight::OfReverse);
        // (0, 1), (0, 2), (1, 0), (2, 0): what lies twice between two vertices adds up.
        let expected = [4., 6., 5., 6., 4., 6., 5., 6.];
        assert_eq!(carried.unwrap().values(), expected);
        let reversed = features.in_order(&[2, 1, 0]).unwrap();
        assert_eq!(reversed.values(), [5., 6., 3., 4., 1., 2.]);
    }

    #[test]
    fn what_is_no_matrix_is_refused() {
        let refused = |columns, values| EdgeFeatures::new(columns, values).unwrap_err().to_string();
        assert!(refused(0, vec![]).starts_with("edge features: the shape is [0]"));
        assert!(refused(2, vec![1.0; 3]).starts_with("edge features: the shape is [3]"));
        let nan = refused(2, vec![1.0, 0.0, 0.0, f32::NAN]);
        assert_eq!(
            nan,
            "edge features[3] is NaN, of edge 1, column 1 (from 0), which is not finite"
        );
    }
}
