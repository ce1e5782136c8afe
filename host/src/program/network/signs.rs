//! Evaluations of networks of one bit that read nothing of the features but their signs.

use super::{Kind, Network, Weights, formula};
use crate::backend::{Backend, MemoryKind};
use crate::data::BitFeatures;
use crate::error::Error;
use crate::nn::{Inputs, Propagation};
use crate::ops::{self, BitMatrix};
use crate::program::list::{Program, refuse};
use crate::program::operator::Operator;
use crate::program::run::{row_dots, sign};
use crate::program::value::{Origin, Value};
use crate::tensor::{Array, Element, Matrix};

const NAME: &str = "Network::evaluate_signs";

/// The operator that alone reads the features, where it packs their signs, and whether it normalizes them first.
fn packed_features(program: &Program) -> Option<(usize, bool)> {
    let features = program.named(formula::FEATURES)?;
    let mut readers = program.readers(features);
    let (first, others) = (readers.next()?, readers.count());
    match program.nodes[first].operator {
        Operator::Pack { standardized, .. } if others == 0 => Some((first, standardized)),
        _ => None,
    }
}

/// The list for evaluation that is given the signs of the features; none where it reads more of them.
pub(super) fn given(evaluation: &Program) -> Option<Program> {
    let (number, _) = packed_features(evaluation)?;
    let mut program = evaluation.clone();
    let signs = program.remove(number).results[0];
    program.values[signs.0].origin = Origin::Input;
    Some(program)
}

impl<B: Backend, E: Element> Network<B, E> {
    /// The bits that an evaluation reads of the features alone, and whether features are normalized first; none where it reads more of
    /// them.
    fn packed_features(&self) -> Option<(Value, bool)> {
        let (node, standardized) = packed_features(&self.compiled.evaluation.program)?;
        let value = self.compiled.evaluation.program.nodes[node].results[0];
        Some((value, standardized))
    }

    /// Whether an evaluation reads nothing of the features but their signs, so that
    /// [`Network::evaluate_signs`] computes what a forward pass does.
    pub fn reads_signs(&self) -> bool {
        self.packed_features().is_some()
    }

    /// The bits of the features, and whether these are normalized first.
    fn expect_signs(&self) -> Result<(Value, bool), Error> {
        match self.packed_features() {
            Some(packed) => Ok(packed),
            None => refuse(
                "its first layer computes with more of the features than their signs; give it a matrix"
                    .into(),
            ),
        }
    }

    /// What an evaluation reads of features, a row a vertex: [`Network::evaluate_signs`] takes it, and the features need not be on the
    /// device any more.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the network does not [read signs](Network::reads_signs), [`Error::Shape`] where it has another
    /// number of features, and those of the device.
    pub fn signs_of_features(
        &mut self,
        backend: &B,
        features: &Matrix<B, E>,
    ) -> Result<BitMatrix<B>, Error> {
        let (_, standardized) = self.expect_signs()?;
        let columns = self.model.features;
        Error::expect(NAME, "columns of the features", columns, features.columns())?;
        let kind = MemoryKind::Features;
        let mut signs = BitMatrix::zeros(backend, features.rows(), columns, kind)?;
        match &mut self.memory.standardized {
            Some(of_features) if standardized => {
                of_features.signs(backend, features, &mut signs)?;
            }
            _ => ops::binarize(backend, features, &mut signs)?,
        }
        Ok(signs)
    }

    /// [`Network::signs_of_features`] of features that are packed: from their words, so that no matrix of them is made. Of up to 2²² vertices
    /// they are the same. Of more a mean in float may be rounded to one of the two numbers of a column, of which both have then one
    /// sign; here they always have two.
    ///
    /// # Errors
    /// Those of [`Network::signs_of_features`].
    pub fn signs_of_bits(
        &self,
        backend: &B,
        features: &BitFeatures,
    ) -> Result<BitMatrix<B>, Error> {
        let (_, standardized) = self.expect_signs()?;
        let (columns, actual) = (self.model.features, features.feature_len());
        Error::expect(NAME, "columns of the features", columns, actual)?;
        // What is +1 whatever the bit is. A mean lies between the two numbers of its column; of one number nothing is left, whose sign is
        // +1. Where no mean is subtracted, +1 is the sign of 1 and of 0.
        let always = match (standardized, features.lowest()) {
            (true, _) => features.empty_columns(),
            (false, lowest) => {
                let mut all = vec![0_u64; columns.div_ceil(64)];
                let set = (0..columns).filter(|_| lowest >= 0.0);
                set.for_each(|column| all[column / 64] |= 1 << (column % 64));
                all
            }
        };
        let shape = (features.vertices(), columns);
        BitMatrix::from_rows(backend, shape, MemoryKind::Features, |vertex, words| {
            let bits = features.row(vertex).iter().zip(&always);
            let words = words.iter_mut().zip(bits);
            words.for_each(|(word, (bits, always))| *word = bits | always);
        })
    }

    /// A forward pass of an evaluation, of the [signs](Network::signs_of_features) of the features. `graphs` are as those of
    /// [`Inputs`](crate::nn::Inputs).
    ///
    /// # Errors
    /// Those of [`Network::signs_of_features`] and of [`Model::forward`](crate::nn::Model::forward).
    pub fn evaluate_signs(
        &mut self,
        backend: &B,
        graphs: &[Propagation<B>],
        signs: &BitMatrix<B>,
    ) -> Result<(), Error> {
        self.expect_signs()?;
        let columns = self.model.features;
        Error::expect(NAME, "columns of the signs", columns, signs.columns())?;
        self.fit_to((backend, Kind::Signs), graphs, (signs.shape(), false))?;
        // Keeping activations may have changed the list.
        let (value, _) = self.expect_signs()?;
        self.last = Some(Kind::Signs);
        let nothing = Matrix::zeros(backend, 0, columns, MemoryKind::Features)?;
        let inputs = Inputs {
            backend,
            graphs,
            features: &nothing,
            of_types: &[],
            dropped: false,
        };
        let of = (Kind::Signs, self.no_random.clone());
        self.evaluate(inputs, of, Some((value, signs)))
    }

    /// Has the next evaluation compute what all that follow need of weights alone, until the parameters are given out to be changed. A
    /// row of one magnitude, as a file of bits has them, keeps it: rounded once more it would be another.
    ///
    /// # Errors
    /// Those of the device.
    pub fn freeze(&mut self, backend: &B) -> Result<(), Error> {
        self.weights = Weights::Frozen;
        if backend.only_counts() {
            return Ok(());
        }
        let program = &self.compiled.evaluation.program;
        for node in &program.nodes {
            let (x, magnitudes) = match (&node.operator, &node.results[..]) {
                (Operator::BinarizeWeight { weight }, [_, magnitudes, _]) => (*weight, *magnitudes),
                (Operator::Binarize { x }, [_, magnitudes]) => (*x, *magnitudes),
                _ => continue,
            };
            let Some(parameter) = self.parameters.of(program, x) else {
                continue;
            };
            let kind = MemoryKind::Activations;
            let (values, (rows, columns)) = (parameter.values(), parameter.shape());
            let mut signs = Matrix::zeros(backend, rows, columns, kind)?;
            let mut means = Array::zeros(backend, rows, kind)?;
            sign(backend, values, &mut signs)?;
            row_dots(backend, values, &signs, &mut means)?;
            let master = parameter.master().to_f32(backend)?;
            let mut of_rows = means.to_vec(backend)?;
            let given = of_rows.iter_mut().zip(master.chunks_exact(columns));
            given.for_each(|(of_row, row)| *of_row = only_magnitude(row).unwrap_or(*of_row));
            means.write(backend, &of_rows)?;
            self.memory.frozen.insert(magnitudes, means);
        }
        Ok(())
    }
}

/// The magnitude that all weights of a row have, as those of a file of bits do.
fn only_magnitude(row: &[f32]) -> Option<f32> {
    let first = row.first()?.abs();
    let is_only = row.iter().all(|value| value.abs() == first);
    is_only.then_some(first)
}
