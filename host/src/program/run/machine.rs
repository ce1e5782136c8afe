//! The memory of a program: matrices of elements and of floats, found by value.

use super::Machine;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::nn::{Parameter, Propagation, glorot_uniform};
use crate::ops::{AdditiveAttention, Attention, QuantizedMatrix, RandomState, RowGroups};
use crate::program::list::{Program, refuse};
use crate::program::operator::Operator;
use crate::program::plan::{Place, Plan, Slot};
use crate::program::value::{Buffer, Edges, Format, HeadValues, Initial, Origin, Value};
use crate::tensor::{Array, Element, Matrix};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// A program's memory on a backend, in one precision.
#[derive(Debug)]
pub(super) struct Typed<B: Backend, E: Element> {
    pub(super) backend: B,
    pub(super) program: Program,
    pub(super) edges: Vec<Arc<Propagation<B>>>,
    pub(super) random: RandomState<B>,
    pub(super) places: Vec<Place>,
    parameters: HashMap<Value, Parameter<B, E>>,
    /// Inputs and constants in elements.
    elements: HashMap<Value, Matrix<B, E>>,
    /// Constants and buffers.
    pub(super) floats: HashMap<Value, Matrix<B, f32>>,
    element_slots: HashMap<usize, Matrix<B, E>>,
    float_slots: HashMap<usize, Matrix<B, f32>>,
    /// In the place of gradients that are being written: an operator writes three at most.
    spares: Vec<Matrix<B, f32>>,
    item_slots: HashMap<usize, Array<B, E>>,
    number_slots: HashMap<usize, Array<B, f32>>,
    word_slots: HashMap<usize, Array<B, u32>>,
    /// Scales of quantized values, which have rows while they are written and read.
    quantized: HashMap<Value, QuantizedMatrix<B>>,
    /// Those whose scales follow a step.
    pub(super) has_scales: HashSet<Value>,
    /// What attention keeps between its passes, by the first result of its forward pass.
    pub(super) attentions: HashMap<Value, Attention<B>>,
    pub(super) additive: HashMap<Value, AdditiveAttention<B>>,
    /// The sums of the softmax of attention by dot products, likewise.
    pub(super) softmaxes: HashMap<Value, Array<B, [f32; 2]>>,
    /// All rows of a matrix as one group, by their number.
    pub(super) wholes: HashMap<usize, RowGroups<B>>,
}

impl<B: Backend, E: Element> Typed<B, E> {
    pub(super) fn new(
        backend: &B,
        program: &Program,
        plan: &Plan,
        edges: Vec<Arc<Propagation<B>>>,
        seed: u64,
    ) -> Result<Self, Error> {
        let spare = || Matrix::zeros(backend, 0, 1, MemoryKind::Weights);
        let mut machine = Self {
            backend: backend.clone(),
            program: program.clone(),
            edges,
            random: RandomState::new(backend, seed, 0)?,
            places: (0..program.values.len())
                .map(|it| plan.place(Value(it)))
                .collect(),
            parameters: HashMap::new(),
            elements: HashMap::new(),
            floats: HashMap::new(),
            element_slots: HashMap::new(),
            float_slots: HashMap::new(),
            spares: vec![spare()?, spare()?, spare()?],
            item_slots: HashMap::new(),
            number_slots: HashMap::new(),
            word_slots: HashMap::new(),
            quantized: HashMap::new(),
            has_scales: HashSet::new(),
            attentions: HashMap::new(),
            additive: HashMap::new(),
            softmaxes: HashMap::new(),
            wholes: HashMap::new(),
        };
        for (number, slot) in plan.slots().iter().enumerate() {
            match slot.format {
                Format::Element => {
                    let matrix = allocate(backend, slot)?;
                    machine.element_slots.insert(number, matrix);
                }
                Format::Float => {
                    let matrix = allocate(backend, slot)?;
                    machine.float_slots.insert(number, matrix);
                }
                Format::Items => {
                    let array = Array::uninit(backend, slot.rows * slot.columns, ACTIVATIONS)?;
                    machine.item_slots.insert(number, array);
                }
                Format::Codes => {
                    let words = QuantizedMatrix::<B>::words(slot.rows, slot.columns)?;
                    let array = Array::uninit(backend, words, ACTIVATIONS)?;
                    machine.word_slots.insert(number, array);
                }
                Format::Numbers => {
                    let array = Array::uninit(backend, slot.rows * slot.columns, ACTIVATIONS)?;
                    machine.number_slots.insert(number, array);
                }
            }
        }
        for number in 0..program.nodes.len() {
            machine.allocate_state(number)?;
        }
        for number in 0..program.values.len() {
            machine.allocate_outside(Value(number), seed)?;
        }
        Ok(machine)
    }

    /// Allocates what attention keeps between its passes.
    fn allocate_state(&mut self, number: usize) -> Result<(), Error> {
        let (backend, node) = (&self.backend, &self.program.nodes[number]);
        let ends = |edges: Edges| {
            let edges = &self.edges[edges.0];
            (edges.destinations(), edges.sources())
        };
        if let Some((coding, codes)) = node.coded() {
            let columns = self.program.values[codes.0].shape.columns;
            let none = QuantizedMatrix::zeros(backend, (0, columns), coding.format, ACTIVATIONS)?;
            self.quantized.insert(codes, none);
        }
        match &node.operator {
            Operator::Attention(op) => {
                let state = Attention::between(backend, ends(op.edges), op.heads, op.slope)?;
                self.attentions.insert(node.results[0], state);
            }
            Operator::AdditiveAttention(op) => {
                let state = AdditiveAttention::new(backend, ends(op.edges), op.heads, op.slope)?;
                self.additive.insert(node.results[0], state);
            }
            Operator::DotAttention(op) => {
                let sums = op.heads * ends(op.edges).0;
                let sums = Array::uninit(backend, sums, ACTIVATIONS)?;
                self.softmaxes.insert(node.results[0], sums);
            }
            _ => {}
        }
        Ok(())
    }

    /// Has `work` write or read quantized values, which have their memory for its length.
    pub(super) fn with_codes(
        &mut self,
        value: Value,
        work: impl FnOnce(&mut Self, &mut QuantizedMatrix<B>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (Place::Slot(slot), rows) = (self.places[value.0], self.program.rows(value)) else {
            return absent(value);
        };
        let (Some(mut codes), Some(words)) =
            (self.quantized.remove(&value), self.word_slots.remove(&slot))
        else {
            return absent(value);
        };
        let nothing = codes.replace_codes(words, rows)?;
        let done = work(self, &mut codes);
        self.word_slots
            .insert(slot, codes.replace_codes(nothing, 0)?);
        self.quantized.insert(value, codes);
        done
    }

    /// The array of a value: numbers of heads.
    pub(super) fn numbers(&self, value: Value) -> Result<&Array<B, f32>, Error> {
        let found = match self.places[value.0] {
            Place::Slot(slot) => self.number_slots.get(&slot),
            _ => None,
        };
        found.map_or_else(|| absent(value), Ok)
    }

    /// Has `work` write what lies behind values, which is put back in any case.
    pub(super) fn with_taken(
        &mut self,
        values: &[Value],
        work: impl FnOnce(&Self, &mut Taken<B, E>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut taken = Taken {
            elements: Vec::new(),
            floats: Vec::new(),
            items: Vec::new(),
            numbers: Vec::new(),
        };
        for &value in values {
            match (self.program.format(value), self.places[value.0]) {
                (Format::Element, _) => taken.elements.push(Elements::take(self, value)?),
                (Format::Float, _) => taken.floats.push(Floats::take(self, value)?),
                (Format::Items, Place::Slot(slot)) => {
                    let array = self.item_slots.remove(&slot);
                    taken.items.push(array.map_or_else(|| absent(value), Ok)?);
                }
                (Format::Numbers, Place::Slot(slot)) => {
                    let array = self.number_slots.remove(&slot);
                    taken.numbers.push(array.map_or_else(|| absent(value), Ok)?);
                }
                _ => return absent(value),
            }
        }
        let done = work(self, &mut taken);
        let (mut elements, mut floats) = (taken.elements.into_iter(), taken.floats.into_iter());
        let (mut items, mut numbers) = (taken.items.into_iter(), taken.numbers.into_iter());
        for &value in values {
            match (self.program.format(value), self.places[value.0]) {
                (Format::Element, _) => {
                    elements
                        .next()
                        .into_iter()
                        .for_each(|it| Elements::put(self, value, it));
                }
                (Format::Float, _) => {
                    floats
                        .next()
                        .into_iter()
                        .for_each(|it| Floats::put(self, value, it));
                }
                (Format::Items, Place::Slot(slot)) => {
                    self.item_slots.extend(items.next().map(|it| (slot, it)));
                }
                (Format::Numbers, Place::Slot(slot)) => {
                    self.number_slots
                        .extend(numbers.next().map(|it| (slot, it)));
                }
                _ => {}
            }
        }
        done
    }

    fn allocate_outside(&mut self, value: Value, seed: u64) -> Result<(), Error> {
        let backend = &self.backend;
        let description = self.program.description(value);
        let (rows, columns) = self.program.size(value);
        match &description.origin {
            Origin::Seed | Origin::Operator => {}
            Origin::Input => {
                let matrix = Matrix::zeros(backend, rows, columns, MemoryKind::Features)?;
                self.elements.insert(value, matrix);
            }
            Origin::Buffer(Buffer::RunningStatistics) => {
                let kind = MemoryKind::Weights;
                let values = [vec![0.0; columns], vec![1.0; columns]].concat();
                let matrix = Matrix::from_f32(backend, rows, columns, &values, kind)?;
                self.floats.insert(value, matrix);
            }
            Origin::Constant(constant) => {
                let (values, kind) = (constant.values((rows, columns)), MemoryKind::Weights);
                match description.format {
                    Format::Element => {
                        let matrix = Matrix::from_f32(backend, rows, columns, &values, kind)?;
                        self.elements.insert(value, matrix);
                    }
                    _ => {
                        let matrix = Matrix::from_f32(backend, rows, columns, &values, kind)?;
                        self.floats.insert(value, matrix);
                    }
                }
            }
            Origin::Parameter(initial) => {
                let (initial, name) = (*initial, description.name.clone());
                let init = || initial_values(initial, (rows, columns), seed);
                let parameter = match description.format {
                    Format::Element => Parameter::weights(backend, name, (rows, columns), init)?,
                    _ => Parameter::in_float(backend, name, (rows, columns), init)?,
                };
                self.parameters.insert(value, parameter);
            }
        }
        Ok(())
    }

    fn parameter(&self, value: Value) -> Result<&Parameter<B, E>, Error> {
        let found = self.parameters.get(&value);
        found.map_or_else(|| absent(value), Ok)
    }

    fn parameter_mut(&mut self, value: Value) -> Result<&mut Parameter<B, E>, Error> {
        let found = self.parameters.get_mut(&value);
        found.map_or_else(|| absent(value), Ok)
    }
}

fn absent<T>(value: Value) -> Result<T, Error> {
    refuse(format!(
        "{value} has no memory; an earlier operator failed while it wrote it"
    ))
}

fn allocate<B: Backend, X: Element>(backend: &B, slot: &Slot) -> Result<Matrix<B, X>, Error> {
    let kind = ACTIVATIONS;
    match slot.gathered {
        true => Matrix::uninit_gathered(backend, (slot.rows, slot.columns), kind),
        false => Matrix::uninit(backend, slot.rows, slot.columns, kind),
    }
}

fn initial_values(initial: Initial, (rows, columns): (usize, usize), seed: u64) -> Vec<f32> {
    match initial {
        Initial::Constant(value) => vec![value; rows * columns],
        Initial::Heads(of) => of_heads(of, (rows, columns), seed),
        Initial::GlorotRows { number, all, first } => {
            let values = glorot_uniform(all, columns, seed, number);
            values[first * columns..(first + rows) * columns].to_vec()
        }
        Initial::Glorot(number) => glorot_uniform(rows, columns, seed, number),
        // Each block is a linear map of its own; blocks of one map draw on, one after the other.
        Initial::GlorotBlocks {
            number,
            rows: of_block,
        } => {
            let mut values = glorot_uniform(rows, columns, seed, number);
            let limit = |rows: usize| (6.0 / (rows + columns) as f64).sqrt();
            let factor = (limit(of_block) / limit(rows)) as f32;
            values.iter_mut().for_each(|value| *value *= factor);
            values
        }
    }
}

fn of_heads(of: HeadValues, (rows, width): (usize, usize), seed: u64) -> Vec<f32> {
    let (all, distance) = (of.heads * of.columns, width / of.heads);
    let values = match of.are_vectors {
        true => {
            let number = |row| of.number + ((row as u32) << 16);
            let row = |row| glorot_uniform(of.heads, of.columns, seed, number(row));
            (0..of.rows).flat_map(row).collect()
        }
        false => glorot_uniform(of.rows, all, seed, of.number),
    };
    let mut spread = vec![0.0; rows * width];
    for (index, value) in values.into_iter().enumerate() {
        let (row, column) = (index / all, index % all);
        let place = column / of.columns * distance + column % of.columns;
        spread[row * width + place] = value;
    }
    spread
}

/// What was taken out to be written, by format, each in the order of its values.
#[derive(Debug)]
pub(super) struct Taken<B: Backend, E: Element> {
    pub(super) elements: Vec<Matrix<B, E>>,
    pub(super) floats: Vec<Matrix<B, f32>>,
    pub(super) items: Vec<Array<B, E>>,
    pub(super) numbers: Vec<Array<B, f32>>,
}

const ACTIVATIONS: MemoryKind = MemoryKind::Activations;

/// Values of one format: of elements or of floats, which are two even where elements are floats.
pub(super) trait Bank<B: Backend, E: Element> {
    /// The type of an element.
    type Item: Element;

    /// The matrix of a value.
    fn matrix(machine: &Typed<B, E>, value: Value) -> Result<&Matrix<B, Self::Item>, Error>;

    /// Takes the matrix of a value out, to be written and [put](Bank::put) back.
    fn take(machine: &mut Typed<B, E>, value: Value) -> Result<Matrix<B, Self::Item>, Error>;

    /// Puts a matrix back.
    fn put(machine: &mut Typed<B, E>, value: Value, matrix: Matrix<B, Self::Item>);
}

/// Values in the program's precision.
pub(super) struct Elements;

/// Values in float.
pub(super) struct Floats;

impl<B: Backend, E: Element> Bank<B, E> for Elements {
    type Item = E;

    fn matrix(machine: &Typed<B, E>, value: Value) -> Result<&Matrix<B, E>, Error> {
        let found = match machine.places[value.0] {
            Place::Slot(slot) => machine.element_slots.get(&slot),
            _ => machine.elements.get(&value),
        };
        match found {
            Some(matrix) => Ok(matrix),
            None => Ok(machine.parameter(value)?.values()),
        }
    }

    fn take(machine: &mut Typed<B, E>, value: Value) -> Result<Matrix<B, E>, Error> {
        let taken = match machine.places[value.0] {
            Place::Slot(slot) => machine.element_slots.remove(&slot),
            _ => None,
        };
        taken.map_or_else(|| absent(value), Ok)
    }

    fn put(machine: &mut Typed<B, E>, value: Value, matrix: Matrix<B, E>) {
        if let Place::Slot(slot) = machine.places[value.0] {
            machine.element_slots.insert(slot, matrix);
        }
    }
}

impl<B: Backend, E: Element> Bank<B, E> for Floats {
    type Item = f32;

    fn matrix(machine: &Typed<B, E>, value: Value) -> Result<&Matrix<B, f32>, Error> {
        let found = match machine.places[value.0] {
            Place::Slot(slot) => machine.float_slots.get(&slot),
            Place::Gradient(parameter) => return Ok(machine.parameter(parameter)?.gradient()),
            _ => machine.floats.get(&value),
        };
        match found {
            Some(matrix) => Ok(matrix),
            None => Ok(machine.parameter(value)?.master()),
        }
    }

    fn take(machine: &mut Typed<B, E>, value: Value) -> Result<Matrix<B, f32>, Error> {
        let taken = match machine.places[value.0] {
            Place::Slot(slot) => machine.float_slots.remove(&slot),
            Place::Gradient(parameter) => {
                let spare = machine.spares.pop();
                let gradient = machine.parameter_mut(parameter)?.gradient_mut();
                spare.map(|spare| std::mem::replace(gradient, spare))
            }
            _ => None,
        };
        taken.map_or_else(|| absent(value), Ok)
    }

    fn put(machine: &mut Typed<B, E>, value: Value, matrix: Matrix<B, f32>) {
        match machine.places[value.0] {
            Place::Slot(slot) => {
                machine.float_slots.insert(slot, matrix);
            }
            Place::Gradient(parameter) => {
                if let Ok(parameter) = machine.parameter_mut(parameter) {
                    let spare = std::mem::replace(parameter.gradient_mut(), matrix);
                    machine.spares.push(spare);
                }
            }
            _ => {}
        }
    }
}

impl<B: Backend, E: Element> Machine for Typed<B, E> {
    fn run(&mut self, operators: Range<usize>) -> Result<(), Error> {
        for number in operators {
            let node = self.program.nodes[number].clone();
            self.execute(&node)?;
        }
        Ok(())
    }

    fn write(&mut self, value: Value, values: &[f32]) -> Result<(), Error> {
        let backend = self.backend.clone();
        if self.parameters.contains_key(&value) {
            return self.parameter_mut(value)?.write(&backend, values);
        }
        if let Some(matrix) = self.elements.get_mut(&value) {
            return matrix.write_f32(&backend, values);
        }
        if let Some(matrix) = self.floats.get_mut(&value) {
            return matrix.write_f32(&backend, values);
        }
        let mut matrix = Elements::take(self, value)?;
        let done = matrix.write_f32(&backend, values);
        Elements::put(self, value, matrix);
        done
    }

    fn read(&self, value: Value) -> Result<Vec<f32>, Error> {
        match self.program.format(value) {
            _ if self.parameters.contains_key(&value) => {
                self.parameter(value)?.master().to_f32(&self.backend)
            }
            Format::Element => Elements::matrix(self, value)?.to_f32(&self.backend),
            Format::Float => Floats::matrix(self, value)?.to_f32(&self.backend),
            Format::Items | Format::Numbers | Format::Codes => refuse(format!(
                "{value} is an array that an operator computes in, and not a matrix"
            )),
        }
    }

    fn set_step(&mut self, step: u32) -> Result<(), Error> {
        self.random.set_step(&self.backend, step)
    }
}
