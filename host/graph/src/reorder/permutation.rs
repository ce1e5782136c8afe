//! A renaming of vertices, and what it does to rows.

use crate::GraphError;
use crate::error::check_ids;

/// Which new name each vertex has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    new_of_old: Vec<u32>,
}

impl Permutation {
    /// The one after which vertex `order[k]` is called `k`.
    ///
    /// # Errors
    /// [`GraphError::VertexOutOfRange`] and [`GraphError::NotAPermutation`] where `order` does not name each vertex
    /// once.
    pub fn of_order(order: &[u32]) -> Result<Self, GraphError> {
        check_ids("order", order, order.len() as u64)?;
        // No new name: there are fewer vertices than that.
        const NONE: u32 = u32::MAX;
        let mut new_of_old = vec![NONE; order.len()];
        for (new, &old) in order.iter().enumerate() {
            let name = &mut new_of_old[old as usize];
            if *name != NONE {
                return Err(GraphError::NotAPermutation {
                    index: new as u64,
                    value: old.into(),
                });
            }
            *name = new as u32;
        }
        Ok(Self { new_of_old })
    }

    /// The one of an order of this module.
    ///
    /// # Panics
    /// Where `order` does not name each vertex once; the orders of this module do.
    pub(super) fn from_order(order: Vec<u32>) -> Self {
        match Self::of_order(&order) {
            Ok(permutation) => permutation,
            Err(error) => panic!("an order names each vertex once: {error}"),
        }
    }

    /// The new name of each vertex, as [`Graph::permuted`](crate::Graph::permuted) takes it.
    pub fn new_of_old(&self) -> &[u32] {
        &self.new_of_old
    }

    /// The new name of `vertex`.
    ///
    /// # Panics
    /// Where there is no such vertex.
    pub fn rename(&self, vertex: u32) -> u32 {
        self.new_of_old[vertex as usize]
    }

    /// Rows of `width` values, one a vertex, in the new order.
    ///
    /// # Panics
    /// Where there is not a row for each vertex.
    pub fn apply<T: Copy>(&self, rows: &[T], width: usize) -> Vec<T> {
        self.check(rows, width);
        let mut out = rows.to_vec();
        for (old, &new) in self.new_of_old.iter().enumerate() {
            let (old, new) = (old * width, new as usize * width);
            out[new..new + width].copy_from_slice(&rows[old..old + width]);
        }
        out
    }

    /// Rows of `width` values in the new order, in the old one again: the inverse of [`Permutation::apply`].
    ///
    /// # Panics
    /// Where there is not a row for each vertex.
    pub fn restore<T: Copy>(&self, rows: &[T], width: usize) -> Vec<T> {
        self.check(rows, width);
        self.new_of_old
            .iter()
            .flat_map(|&new| &rows[new as usize * width..][..width])
            .copied()
            .collect()
    }

    fn check<T>(&self, rows: &[T], width: usize) {
        assert_eq!(
            rows.len(),
            self.new_of_old.len() * width,
            "a row of {width} for each vertex"
        );
    }
}
