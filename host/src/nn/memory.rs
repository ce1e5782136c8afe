//! How much memory a model will take, told from its shape alone.

use super::{Parameter, matrix_bytes};
use crate::backend::cpu::Cpu;
use crate::tensor::Element;

/// Counts what a model keeps, and replays what a step borrows from the [`Pool`](super::Pool).
#[derive(Debug)]
pub(super) struct MemoryPlan {
    vertices: usize,
    matrix: fn(usize, usize) -> u64,
    parameter: fn(usize, usize, bool) -> u64,
    lanes: usize,
    free: Vec<usize>,
    free_numbers: Vec<usize>,
    activations: u64,
    parameters: u64,
}

impl MemoryPlan {
    /// Of a model for `vertices` vertices in the precision `E`.
    pub(super) fn new<E: Element>(vertices: usize) -> Self {
        Self {
            vertices,
            matrix: matrix_bytes::<E>,
            parameter: Parameter::<Cpu, E>::bytes,
            lanes: E::LANES,
            free: Vec::new(),
            free_numbers: Vec::new(),
            activations: 0,
            parameters: 0,
        }
    }

    /// A matrix of `columns` columns that is kept.
    pub(super) fn keep(&mut self, columns: usize) {
        self.activations = self
            .activations
            .saturating_add((self.matrix)(self.vertices, columns));
    }

    /// A batch normalisation of `columns` columns: scales, shifts, and the statistics of the batch and the running ones.
    pub(super) fn batch_norm(&mut self, columns: usize) {
        self.bias(columns);
        self.bias(columns);
        let bytes = matrix_bytes::<f32>(2, columns);
        self.activations = self.activations.saturating_add(bytes);
        self.parameters = self.parameters.saturating_add(bytes);
    }

    /// A parameter of weights.
    pub(super) fn weights(&mut self, inputs: usize, outputs: usize) {
        self.add_parameter(inputs, outputs, true);
    }

    /// A parameter that kernels read in float, a row of `columns`.
    pub(super) fn bias(&mut self, columns: usize) {
        self.add_parameter(1, columns, false);
    }

    fn add_parameter(&mut self, rows: usize, columns: usize, rounded: bool) {
        self.parameters = self
            .parameters
            .saturating_add((self.parameter)(rows, columns, rounded));
    }

    /// What [`Pool::take`](super::Pool::take) allocates, if nothing of that width is free.
    pub(super) fn take(&mut self, columns: usize) {
        match self.free.iter().position(|&width| width == columns) {
            Some(index) => drop(self.free.swap_remove(index)),
            None => self.keep(columns),
        }
    }

    /// [`Pool::give`](super::Pool::give).
    pub(super) fn give(&mut self, columns: usize) {
        self.free.push(columns);
    }

    /// Columns of `heads` heads of `head` columns each, every one at a whole vector; `columns` where there is but one.
    pub(super) fn heads(&self, heads: usize, head: usize, columns: usize) -> usize {
        match heads {
            1 => columns,
            heads => heads * head.next_multiple_of(self.lanes),
        }
    }

    /// `len` floats that are kept.
    pub(super) fn numbers(&mut self, len: usize) {
        let bytes = (len as u64).saturating_mul(4);
        self.activations = self.activations.saturating_add(bytes);
    }

    /// What [`Pool::take_numbers`](super::Pool::take_numbers) allocates, if nothing of that length is free.
    pub(super) fn take_numbers(&mut self, len: usize) {
        match self.free_numbers.iter().position(|&free| free == len) {
            Some(index) => drop(self.free_numbers.swap_remove(index)),
            None => self.numbers(len),
        }
    }

    /// [`Pool::give_numbers`](super::Pool::give_numbers).
    pub(super) fn give_numbers(&mut self, len: usize) {
        self.free_numbers.push(len);
    }

    /// Bytes of activations and of parameters.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.activations, self.parameters)
    }
}
