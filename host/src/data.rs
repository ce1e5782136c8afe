//! Labelled graphs, as [`halfgnn_data`] has them, and their features on the way to a backend.

#[doc(inline)]
pub use halfgnn_data::*;

mod feature_rows;
mod sharded_rows;

pub use feature_rows::{FeatureRows, ReadAhead};

use crate::graph::Graph;
use crate::graph::reorder::degree_order;

use crate::backend::{Backend, MemoryKind};
use crate::distributed::Group;
use crate::error::Error;
use crate::tensor::{Element, Matrix};

/// Features on a backend, as a method of [`Dataset`].
pub trait UploadFeatures {
    /// The features as a matrix on `backend`, each number rounded to the nearest element. Sparse features become dense
    /// here, in the elements and with the padding of the matrix, and nowhere else.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the matrix cannot be addressed, [`Error::Driver`] where there is not enough memory,
    /// [`Error::Unsupported`] where they stay on disk.
    fn upload_features<B: Backend, E: Element>(&self, backend: &B) -> Result<Matrix<B, E>, Error> {
        self.upload_features_as(backend, MemoryKind::Features)
    }

    /// The same in memory of `kind`. With [`MemoryKind::HostFeatures`] the matrix is in the host's memory, from which
    /// kernels read it. That is slower, and leaves the GPU's memory to other arrays.
    ///
    /// # Errors
    /// Those of [`UploadFeatures::upload_features`].
    fn upload_features_as<B: Backend, E: Element>(
        &self,
        backend: &B,
        kind: MemoryKind,
    ) -> Result<Matrix<B, E>, Error>;

    /// The same where they are in memory, and else those that [stay on disk](Features::Stored).
    ///
    /// # Errors
    /// Those of [`UploadFeatures::upload_features`].
    fn feature_rows<B: Backend, E: Element>(
        &self,
        backend: &B,
        kind: MemoryKind,
    ) -> Result<FeatureRows<B, E>, Error>;

    /// This rank's share of those in memory, with which all [have them together](FeatureRows::sharded).
    ///
    /// # Errors
    /// Those of [`UploadFeatures::upload_features`].
    fn shard_features<B: Backend, E: Element>(
        &self,
        backend: &B,
        group: &Group,
    ) -> Result<FeatureRows<B, E>, Error>;
}

impl UploadFeatures for Dataset {
    fn upload_features_as<B: Backend, E: Element>(
        &self,
        backend: &B,
        kind: MemoryKind,
    ) -> Result<Matrix<B, E>, Error> {
        expect_in_memory(self, "Dataset::upload_features")?;
        let shape = (self.features.vertices(), self.features.feature_len());
        Matrix::from_rows(backend, shape, kind, |vertex, row| {
            self.features.write_row(vertex, row);
        })
    }

    fn feature_rows<B: Backend, E: Element>(
        &self,
        backend: &B,
        kind: MemoryKind,
    ) -> Result<FeatureRows<B, E>, Error> {
        match self.features.as_stored() {
            Some(stored) => FeatureRows::stored(backend, stored.clone()),
            None => self.upload_features_as(backend, kind).map(Into::into),
        }
    }

    fn shard_features<B: Backend, E: Element>(
        &self,
        backend: &B,
        group: &Group,
    ) -> Result<FeatureRows<B, E>, Error> {
        expect_in_memory(self, "Dataset::shard_features")?;
        let shape = (self.features.vertices(), self.features.feature_len());
        FeatureRows::sharded(backend, group, shape, |vertex, row| {
            self.features.write_row(vertex, row);
        })
    }
}

/// The `count` vertices of `graph` with the most out-edges, ascending: those whose features batches read most often,
/// however they are sampled. Of vertices with equal out-degree those with lower numbers come first.
pub fn most_read(graph: &Graph, count: usize) -> Vec<u32> {
    let mut vertices = degree_order(&graph.out_degrees());
    vertices.truncate(count);
    vertices.sort_unstable();
    vertices
}

fn expect_in_memory(dataset: &Dataset, operator: &'static str) -> Result<(), Error> {
    match dataset.features.as_stored() {
        None => Ok(()),
        Some(_) => Err(Error::Unsupported {
            operator,
            reason: "the features stay on disk; take Dataset::feature_rows, or open the dataset with them".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::data::{Features, Splits};
    use crate::graph::Graph;

    #[test]
    fn vertices_with_most_out_edges_are_read_most() {
        // 3 has three out-edges, 1 two, 0 and 2 one each.
        let graph = Graph::from_edges(4, &[0, 1, 2, 0, 3, 1, 0], &[3, 3, 3, 1, 1, 0, 2]);
        let graph = graph.expect("a graph");
        let lists = [0, 1, 2, 3, 9].map(|count| most_read(&graph, count));
        let expected: [&[u32]; 5] = [&[], &[3], &[1, 3], &[0, 1, 3], &[0, 1, 2, 3]];
        assert_eq!(lists, expected);
    }

    #[test]
    fn sparse_and_dense_features_arrive_alike_and_padded_with_zeros() {
        let sparse =
            Features::sparse(9, vec![0, 3, 3], vec![8, 0, 8], vec![0.1, -2.0, 0.2]).unwrap();
        let dense = Features::dense(9, sparse.to_dense().unwrap()).unwrap();
        let backend = Cpu::new();
        for features in [sparse, dense] {
            let graph = Graph::from_edges(2, &[], &[]).unwrap();
            let dataset =
                Dataset::new("pair", graph, features, vec![0, 0], Splits::default()).unwrap();
            let matrix = dataset.upload_features::<_, f16>(&backend).unwrap();
            assert_eq!(matrix.shape(), (2, 9));
            let mut expected = vec![f16::ZERO; 32];
            expected[0] = f16::from_f32(-2.0);
            expected[8] = f16::from_f32(0.1 + 0.2);
            assert_eq!(matrix.to_padded(&backend).unwrap(), expected);
        }
    }
}
