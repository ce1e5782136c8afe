//! Adjacencies from sources to destinations, as sampled layers and parts of a graph have them.

use super::{Csr, GraphError};

/// An adjacency whose destinations are its first sources: row `i` and column `i` are one vertex.
///
/// ```text
///   destinations  0 1 2            a layer of three vertices that are wanted and what it sampled of their neighbours:
///   sources       0 1 2 │ 3 4 5    the output has three rows, the input six, of which the first three are theirs
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    csr: Csr,
}

impl Block {
    /// The block of an adjacency: rows are destinations, columns sources.
    ///
    /// # Errors
    /// [`GraphError::NotABlock`] where there are fewer columns than rows.
    pub fn new(csr: Csr) -> Result<Self, GraphError> {
        let (destinations, sources) = csr.shape();
        if sources < destinations {
            return Err(GraphError::NotABlock {
                destinations,
                sources,
            });
        }
        Ok(Self { csr })
    }

    /// The adjacency.
    pub fn csr(&self) -> &Csr {
        &self.csr
    }

    /// The number of destinations.
    pub fn destinations(&self) -> usize {
        self.csr.shape().0
    }

    /// The number of sources, of which the destinations are the first.
    pub fn sources(&self) -> usize {
        self.csr.shape().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_sources() {
        let csr = Csr::rectangular_from_edges((2, 3), &[0, 1], &[2, 0]).unwrap();
        let block = Block::new(csr.clone()).unwrap();
        assert_eq!((block.destinations(), block.sources()), (2, 3));
        assert_eq!(block.csr(), &csr);
        assert_eq!(
            Block::new(csr.transposed()).unwrap_err().to_string(),
            "a block of 3 destinations has them among its sources, of which there are 2"
        );
    }
}
