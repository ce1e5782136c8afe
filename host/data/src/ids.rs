//! The names that a person's own vertices have.

use super::error::DataProblem;
use halfgnn_graph::reorder::Permutation;

/// The id of each vertex in the file that it came from, one after the other in one text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VertexIds {
    text: String,
    /// Where each ends.
    ends: Vec<usize>,
}

impl VertexIds {
    /// The number of vertices.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no vertex.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The id of `vertex`.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn get(&self, vertex: usize) -> &str {
        let start = vertex.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[vertex]]
    }

    /// The id of each vertex.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|vertex| self.get(vertex))
    }

    /// Adds the id of the next vertex.
    pub(crate) fn push(&mut self, id: &str) -> Result<(), DataProblem> {
        let reserved = self.text.try_reserve(id.len()).is_ok() && self.ends.try_reserve(1).is_ok();
        if !reserved {
            return Err(DataProblem::OutOfMemory {
                key: "ids".into(),
                elements: self.len() as u64,
                bytes: self.text.len() as u64,
            });
        }
        self.text.push_str(id);
        self.ends.push(self.text.len());
        Ok(())
    }

    /// The ids of the vertices in another order.
    pub(crate) fn reordered(&self, order: &Permutation) -> Result<Self, DataProblem> {
        let old_of_new = order.apply(&(0..self.len()).collect::<Vec<_>>(), 1);
        let mut ids = Self::default();
        for vertex in old_of_new {
            ids.push(self.get(vertex))?;
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn_graph::Graph;
    use halfgnn_graph::reorder::by_degree;

    #[test]
    fn ids_stay_with_their_vertices() {
        let mut ids = VertexIds::default();
        for id in ["ann", "", "Bjørn"] {
            ids.push(id).unwrap();
        }
        assert_eq!(ids.iter().collect::<Vec<_>>(), ["ann", "", "Bjørn"]);
        // 2 has most edges.
        let graph = Graph::from_edges(3, &[2, 2, 1], &[0, 1, 2]).unwrap();
        let order = by_degree(&graph);
        let new = ids.reordered(&order).unwrap();
        assert_ne!(new, ids);
        for vertex in 0..3 {
            assert_eq!(
                new.get(order.rename(vertex as u32) as usize),
                ids.get(vertex)
            );
        }
    }
}
