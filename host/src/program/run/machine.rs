//! An operator's operands and results while a program runs: matrices of elements and of floats, found by value.

use super::memory::{Memory, Parameters};
use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{Parameter, Propagation};
use crate::ops::{BitMatrix, QuantizedMatrix, RandomState};
use crate::program::list::{Program, refuse};
use crate::program::plan::Place;
use crate::program::value::{Constant, Format, Origin, Value};
use crate::tensor::{Array, Element, Matrix};
use std::ops::Range;

/// A program that runs: what it reads, and the memory that it writes.
#[derive(Debug)]
pub(in crate::program) struct Typed<'a, B: Backend, E: Element> {
    pub(in crate::program) backend: B,
    pub(in crate::program) program: &'a Program,
    /// Where each value lies in `memory`.
    pub(in crate::program) places: &'a [Place],
    pub(in crate::program) edges: &'a [&'a Propagation<B>],
    pub(in crate::program) inputs: &'a [(Value, &'a Matrix<B, E>)],
    /// Bits of an input.
    pub(in crate::program) signs: Option<(Value, &'a BitMatrix<B>)>,
    pub(in crate::program) random: RandomState<B>,
    pub(in crate::program) parameters: &'a mut Parameters<B, E>,
    pub(in crate::program) memory: &'a mut Memory<B, E>,
}

impl<B: Backend, E: Element> Typed<'_, B, E> {
    /// Runs operators in their order.
    pub(in crate::program) fn run(&mut self, operators: Range<usize>) -> Result<(), Error> {
        let mut nodes = self.program.nodes[operators].iter();
        nodes.try_for_each(|node| self.execute(node))
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
        let is_stored = self.memory.stored.contains_key(&value);
        let codes = match is_stored {
            true => self.memory.stored.remove(&value),
            false => self.memory.quantized.remove(&value),
        };
        let (Some(mut codes), Some(words)) = (codes, self.memory.words.remove(&slot)) else {
            return absent(value);
        };
        let nothing = codes.replace_codes(words, rows)?;
        let done = work(self, &mut codes);
        let words = codes.replace_codes(nothing, 0)?;
        self.memory.words.insert(slot, words);
        match is_stored {
            true => self.memory.stored.insert(value, codes),
            false => self.memory.quantized.insert(value, codes),
        };
        done
    }

    /// The array of a value: numbers of heads, or a number for each row.
    pub(super) fn numbers(&self, value: Value) -> Result<&Array<B, f32>, Error> {
        if let Some(frozen) = self.memory.frozen.get(&value) {
            return Ok(frozen);
        }
        let found = match self.places[value.0] {
            Place::Slot(slot) => self.memory.numbers.get(&slot),
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
                    let array = self.memory.items.remove(&slot);
                    taken.items.push(array.map_or_else(|| absent(value), Ok)?);
                }
                (Format::Numbers, Place::Slot(slot)) => {
                    let array = self.memory.numbers.remove(&slot);
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
                    let item = items.next().map(|it| (slot, it));
                    self.memory.items.extend(item);
                }
                (Format::Numbers, Place::Slot(slot)) => {
                    let numbers = numbers.next().map(|it| (slot, it));
                    self.memory.numbers.extend(numbers);
                }
                _ => {}
            }
        }
        done
    }

    fn parameter(&self, value: Value) -> Result<&Parameter<B, E>, Error> {
        let found = self.parameters.of(self.program, value);
        found.map_or_else(|| absent(value), Ok)
    }

    fn parameter_mut(&mut self, value: Value) -> Result<&mut Parameter<B, E>, Error> {
        let found = self.parameters.of_mut(self.program, value);
        found.map_or_else(|| absent(value), Ok)
    }

    /// Takes a buffer out, to be written and [put](Self::put_buffer) back.
    pub(super) fn take_buffer(&mut self, value: Value) -> Result<Matrix<B, f32>, Error> {
        let spare = self.memory.spares.pop();
        let buffer = self.parameters.buffer_mut(self.program, value);
        match (buffer, spare) {
            (Some(buffer), Some(spare)) => Ok(std::mem::replace(buffer, spare)),
            _ => refuse(format!("{value} is no buffer")),
        }
    }

    /// Puts a buffer back.
    pub(super) fn put_buffer(&mut self, value: Value, matrix: Matrix<B, f32>) {
        if let Some(buffer) = self.parameters.buffer_mut(self.program, value) {
            let spare = std::mem::replace(buffer, matrix);
            self.memory.spares.push(spare);
        }
    }

    fn constant_of(&self, value: Value) -> Option<Constant> {
        match self.program.values[value.0].origin {
            Origin::Constant(constant) => Some(constant),
            _ => None,
        }
    }
}

/// That a value has no memory.
pub(super) fn absent<T>(value: Value) -> Result<T, Error> {
    refuse(format!(
        "{value} has no memory; an earlier operator failed while it wrote it"
    ))
}

/// What was taken out to be written, by format, each in the order of its values.
#[derive(Debug)]
pub(super) struct Taken<B: Backend, E: Element> {
    pub(super) elements: Vec<Matrix<B, E>>,
    pub(super) floats: Vec<Matrix<B, f32>>,
    pub(super) items: Vec<Array<B, E>>,
    pub(super) numbers: Vec<Array<B, f32>>,
}

/// Values of one format: of elements or of floats, which are two even where elements are floats.
pub(super) trait Bank<B: Backend, E: Element> {
    /// The type of an element.
    type Item: Element;

    /// The matrix of a value.
    fn matrix<'m>(
        machine: &'m Typed<'_, B, E>,
        value: Value,
    ) -> Result<&'m Matrix<B, Self::Item>, Error>;

    /// Takes the matrix of a value out, to be written and [put](Bank::put) back.
    fn take(machine: &mut Typed<'_, B, E>, value: Value) -> Result<Matrix<B, Self::Item>, Error>;

    /// Puts a matrix back.
    fn put(machine: &mut Typed<'_, B, E>, value: Value, matrix: Matrix<B, Self::Item>);
}

/// Values in the program's precision.
pub(super) struct Elements;

/// Values in float.
pub(super) struct Floats;

impl<B: Backend, E: Element> Bank<B, E> for Elements {
    type Item = E;

    fn matrix<'m>(machine: &'m Typed<'_, B, E>, value: Value) -> Result<&'m Matrix<B, E>, Error> {
        let found = match machine.places[value.0] {
            Place::Slot(slot) => machine.memory.elements.get(&slot),
            _ => match machine.program.values[value.0].origin {
                Origin::Input => {
                    let mut inputs = machine.inputs.iter();
                    inputs
                        .find(|(of, _)| *of == value)
                        .map(|(_, matrix)| *matrix)
                }
                Origin::Constant(constant) => machine.memory.constants.get(&constant),
                Origin::Ones => machine.memory.ones.get(&machine.program.rows(value)),
                Origin::EdgeFeatures(edges) => match machine.edges[edges.0].edge_features() {
                    Some(features) => return features.rows(),
                    None => None,
                },
                _ => return Ok(machine.parameter(value)?.values()),
            },
        };
        found.map_or_else(|| absent(value), Ok)
    }

    fn take(machine: &mut Typed<'_, B, E>, value: Value) -> Result<Matrix<B, E>, Error> {
        let taken = match machine.places[value.0] {
            Place::Slot(slot) => machine.memory.elements.remove(&slot),
            _ => None,
        };
        taken.map_or_else(|| absent(value), Ok)
    }

    fn put(machine: &mut Typed<'_, B, E>, value: Value, matrix: Matrix<B, E>) {
        if let Place::Slot(slot) = machine.places[value.0] {
            machine.memory.elements.insert(slot, matrix);
        }
    }
}

impl<B: Backend, E: Element> Bank<B, E> for Floats {
    type Item = f32;

    fn matrix<'m>(machine: &'m Typed<'_, B, E>, value: Value) -> Result<&'m Matrix<B, f32>, Error> {
        let found = match machine.places[value.0] {
            Place::Slot(slot) => machine.memory.floats.get(&slot),
            Place::Gradient(parameter) => return Ok(machine.parameter(parameter)?.gradient()),
            _ => match machine.constant_of(value) {
                Some(constant) => machine.memory.float_constants.get(&constant),
                None => return Ok(machine.parameter(value)?.master()),
            },
        };
        found.map_or_else(|| absent(value), Ok)
    }

    fn take(machine: &mut Typed<'_, B, E>, value: Value) -> Result<Matrix<B, f32>, Error> {
        let taken = match machine.places[value.0] {
            Place::Slot(slot) => machine.memory.floats.remove(&slot),
            Place::Gradient(parameter) => {
                let spare = machine.memory.spares.pop();
                let gradient = machine.parameter_mut(parameter)?.gradient_mut();
                spare.map(|spare| std::mem::replace(gradient, spare))
            }
            _ => None,
        };
        taken.map_or_else(|| absent(value), Ok)
    }

    fn put(machine: &mut Typed<'_, B, E>, value: Value, matrix: Matrix<B, f32>) {
        match machine.places[value.0] {
            Place::Slot(slot) => {
                machine.memory.floats.insert(slot, matrix);
            }
            Place::Gradient(parameter) => {
                if let Ok(parameter) = machine.parameter_mut(parameter) {
                    let spare = std::mem::replace(parameter.gradient_mut(), matrix);
                    machine.memory.spares.push(spare);
                }
            }
            _ => {}
        }
    }
}
