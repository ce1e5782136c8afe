//! How much memory a model will take, told from its shape alone.

use super::{Parameter, matrix_bytes};
use crate::backend::cpu::Cpu;
use crate::tensor::Element;

/// What a model in training takes, whatever it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMemory {
    /// The most bytes of activations.
    pub activations: u64,
    /// Bytes of parameters, with their gradients and moments.
    pub parameters: u64,
    /// Inputs and outputs of the linear maps: what their products want to borrow is the device's to say.
    pub maps: Vec<(usize, usize)>,
    /// The sums over neighbours: what their SpMMs want to borrow is the device's to say.
    pub aggregations: Vec<AggregationShape>,
}

/// The shape of a sum over neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregationShape {
    /// Columns of what is added up.
    pub columns: usize,
    /// Heads that lie side by side in them, where attention weighs the neighbours.
    pub heads: Option<usize>,
}

/// Counts what a model keeps, and replays what a step borrows from the [`Pool`](super::Pool).
#[derive(Debug)]
pub(super) struct MemoryPlan {
    vertices: usize,
    matrix: fn(usize, usize) -> u64,
    parameter: fn(usize, usize, bool) -> u64,
    lanes: usize,
    free: Vec<usize>,
    free_numbers: Vec<usize>,
    memory: ModelMemory,
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
            memory: ModelMemory {
                activations: 0,
                parameters: 0,
                maps: Vec::new(),
                aggregations: Vec::new(),
            },
        }
    }

    /// A matrix of `columns` columns that is kept.
    pub(super) fn keep(&mut self, columns: usize) {
        self.memory.activations = self
            .memory
            .activations
            .saturating_add((self.matrix)(self.vertices, columns));
    }

    /// A batch normalisation of `columns` columns: scales, shifts, and the statistics of the batch and the running ones.
    pub(super) fn batch_norm(&mut self, columns: usize) {
        self.bias(columns);
        self.bias(columns);
        let bytes = matrix_bytes::<f32>(2, columns);
        self.memory.activations = self.memory.activations.saturating_add(bytes);
        self.memory.parameters = self.memory.parameters.saturating_add(bytes);
    }

    /// The weights of a linear map.
    pub(super) fn weights(&mut self, inputs: usize, outputs: usize) {
        self.rounded(inputs, outputs);
        self.memory.maps.push((inputs, outputs));
    }

    /// A sum over neighbours, and that of its gradient.
    pub(super) fn aggregation(&mut self, columns: usize, heads: Option<usize>) {
        self.memory
            .aggregations
            .push(AggregationShape { columns, heads });
    }

    /// A parameter that kernels read in the model's precision.
    pub(super) fn rounded(&mut self, rows: usize, columns: usize) {
        self.add_parameter(rows, columns, true);
    }

    /// A parameter that kernels read in float, a row of `columns`.
    pub(super) fn bias(&mut self, columns: usize) {
        self.add_parameter(1, columns, false);
    }

    fn add_parameter(&mut self, rows: usize, columns: usize, rounded: bool) {
        self.memory.parameters = self
            .memory
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
        self.memory.activations = self.memory.activations.saturating_add(bytes);
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

    /// What was counted.
    pub(super) fn memory(self) -> ModelMemory {
        self.memory
    }
}
