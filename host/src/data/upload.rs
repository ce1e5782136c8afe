//! Features on their way to a backend.

use rayon::prelude::*;

use super::Dataset;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::tensor::{Element, Matrix};

impl Dataset {
    /// The features as a matrix on `backend`, each number rounded to the nearest element. Sparse features become dense
    /// here, in the elements and with the padding of the matrix, and nowhere else.
    ///
    /// # Errors
    /// [`Error::TooLarge`] where the matrix cannot be addressed, [`Error::Driver`] where there is not enough memory.
    pub fn upload_features<B: Backend, E: Element>(
        &self,
        backend: &B,
    ) -> Result<Matrix<B, E>, Error> {
        let (rows, columns) = (self.features.vertices(), self.features.feature_len());
        let matrix = Matrix::<B, E>::zeros(backend, rows, columns, MemoryKind::Features)?;
        let stride = matrix.stride();
        let mut padded = Vec::new();
        // The matrix exists, so the product is a size; the host may still have less memory than the device.
        padded
            .try_reserve_exact(rows * stride)
            .map_err(|_| Error::TooLarge { rows, columns })?;
        padded.resize(rows * stride, E::zeroed());
        padded
            .par_chunks_mut(stride.max(1))
            .enumerate()
            .for_each_init(
                || vec![0.0; columns],
                |row, (vertex, padded)| {
                    self.features.write_row(vertex, row);
                    padded
                        .iter_mut()
                        .zip(&*row)
                        .for_each(|(to, &from)| *to = E::from_f32(from));
                },
            );
        backend.upload(&matrix.buffer, &padded)?;
        Ok(matrix)
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
