//! Numbers of edges that go along when a graph is edited.

use super::Graph;
use super::error::{GraphError, check_length, check_room};

/// The weight of an edge that an edit added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AddedWeight {
    /// This one: 1 of a self-loop, as PyG's `add_remaining_self_loops` has it.
    Value(f32),
    /// That of the edge in the other direction, of a graph that was made undirected.
    OfReverse,
}

impl Graph {
    /// The weights of the edges of `edited`, a graph that was made of this one by adding edges or taking some away, in
    /// its order: those of this graph's edges are theirs, several between the same two vertices of which one is left
    /// add up, and edges that were not there have what `added` says.
    ///
    /// # Errors
    /// [`GraphError::Length`] where there is not a weight for each edge, or the graphs differ in vertices;
    /// [`GraphError::OutOfMemory`].
    pub fn carry_weights(
        &self,
        weights: &[f32],
        edited: &Graph,
        added: AddedWeight,
    ) -> Result<Vec<f32>, GraphError> {
        check_length(
            "edge weights",
            weights.len(),
            self.edges(),
            "one for each edge",
        )?;
        check_length(
            "vertices of the edited graph",
            edited.vertices(),
            self.vertices(),
            "those of the graph before",
        )?;
        let (old, new) = (self.csr(), edited.csr());
        let sum_of = |row: usize, column: u32| -> f32 {
            let range = old.row_range(row);
            let columns = old.row(row);
            let first = columns.partition_point(|&other| other < column);
            let same = columns[first..].iter().take_while(|&&it| it == column);
            let first = range.start + first;
            weights[first..first + same.count()].iter().sum()
        };
        check_room("edge weights", 4 * edited.edges() as u64)?;
        let mut carried = Vec::with_capacity(edited.edges());
        for row in 0..new.vertices() {
            let (columns, mut at) = (old.row(row), old.row_range(row).start);
            let mut rest = columns;
            let wanted = new.row(row);
            for (place, &column) in wanted.iter().enumerate() {
                let skipped = rest.partition_point(|&other| other < column);
                (rest, at) = (&rest[skipped..], at + skipped);
                let is_last = wanted.get(place + 1) != Some(&column);
                let same = rest.iter().take_while(|&&other| other == column).count();
                let taken = if is_last { same } else { same.min(1) };
                carried.push(match taken {
                    0 => match added {
                        AddedWeight::Value(value) => value,
                        AddedWeight::OfReverse => sum_of(column as usize, row as u32),
                    },
                    taken => weights[at..at + taken].iter().sum(),
                });
                (rest, at) = (&rest[taken..], at + taken);
            }
        }
        Ok(carried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges (0,1) twice, (1,1), (2,0).
    fn graph() -> (Graph, [f32; 4]) {
        let graph = Graph::from_edges(3, &[0, 0, 1, 2], &[1, 1, 1, 0]).unwrap();
        (graph, [1.0, 2.0, 4.0, 8.0])
    }

    #[test]
    fn added_loops_have_the_value() {
        let (graph, weights) = graph();
        let edited = graph.with_self_loops().unwrap();
        assert_eq!(edited.cols(), [0, 1, 1, 1, 0, 2]);
        let carried = graph.carry_weights(&weights, &edited, AddedWeight::Value(1.0));
        assert_eq!(carried.unwrap(), [1.0, 1.0, 2.0, 4.0, 8.0, 1.0]);
    }

    #[test]
    fn reverse_edges_have_the_weight_of_the_other_direction() {
        let (graph, weights) = graph();
        let edited = graph.to_undirected().unwrap();
        assert_eq!(
            (edited.rows(), edited.cols()),
            (&[0, 0, 1, 1, 2][..], &[1, 2, 0, 1, 0][..])
        );
        let carried = graph.carry_weights(&weights, &edited, AddedWeight::OfReverse);
        assert_eq!(carried.unwrap(), [3.0, 8.0, 3.0, 4.0, 8.0]);
    }

    #[test]
    fn edges_that_are_taken_away_take_theirs_along() {
        let (graph, weights) = graph();
        let edited = graph.without_self_loops().unwrap();
        let carried = graph.carry_weights(&weights, &edited, AddedWeight::Value(1.0));
        assert_eq!(carried.unwrap(), [1.0, 2.0, 8.0]);
        let short = graph.carry_weights(&weights[1..], &edited, AddedWeight::Value(1.0));
        let error = short.unwrap_err().to_string();
        assert_eq!(
            error,
            "edge weights has 3 entries where 4 are wanted (one for each edge)"
        );
    }
}
