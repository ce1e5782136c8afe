//! What a program keeps on a device: parameters and buffers by name, and the memory that operators write.

use super::standardized::Standardized;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::nn::{Parameter, Propagation, glorot_uniform};
use crate::ops::{
    self, AdditiveAttention, Attention, BitMatrix, CodeFormat, QuantizedMatrix, RowGroups,
};
use crate::program::list::Program;
use crate::program::operator::{Coding, Node, Operator};
use crate::program::plan::{Place, Plan, Slot};
use crate::program::value::{Buffer, Constant, Edges, Format, HeadValues, Initial, Origin, Value};
use crate::tensor::{Array, Element, Matrix};
use std::collections::btree_map;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Parameters and buffers. Programs find theirs by name, so all programs of one network read the same.
#[derive(Debug)]
pub(in crate::program) struct Parameters<B: Backend, E: Element> {
    parameters: Vec<Parameter<B, E>>,
    buffers: Vec<(String, Matrix<B, f32>)>,
    /// The number of each parameter or buffer in its list.
    numbers: HashMap<String, usize>,
}

impl<B: Backend, E: Element> Parameters<B, E> {
    /// The parameters of a program with their initial values, which are a function of `seed`.
    pub(in crate::program) fn new(
        backend: &B,
        program: &Program,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut all = Self {
            parameters: Vec::new(),
            buffers: Vec::new(),
            numbers: HashMap::new(),
        };
        for (number, description) in program.values.iter().enumerate() {
            let (shape, name) = (program.size(Value(number)), description.name.clone());
            match description.origin {
                Origin::Parameter(initial) => {
                    let init = || initial_values(initial, shape, seed);
                    let mut parameter = match description.format {
                        Format::Element => Parameter::weights(backend, name, shape, init)?,
                        _ => Parameter::in_float(backend, name, shape, init)?,
                    };
                    if let Some(decay) = program.decays.get(&Value(number)) {
                        parameter.set_decay(*decay);
                    }
                    all.add(parameter);
                }
                Origin::Buffer(Buffer::RunningStatistics) => {
                    let (rows, columns) = shape;
                    let kind = MemoryKind::Weights;
                    let mut matrix = Matrix::zeros(backend, rows, columns, kind)?;
                    if !backend.only_counts() {
                        let values = [vec![0.0; columns], vec![1.0; columns]].concat();
                        matrix.write_f32(backend, &values)?;
                    }
                    all.numbers.insert(name.clone(), all.buffers.len());
                    all.buffers.push((name, matrix));
                }
                _ => {}
            }
        }
        Ok(all)
    }

    fn add(&mut self, parameter: Parameter<B, E>) {
        let name = parameter.name().to_owned();
        self.numbers.insert(name, self.parameters.len());
        self.parameters.push(parameter);
    }

    /// The parameters, in the order in which they were declared.
    pub(in crate::program) fn all(&self) -> &[Parameter<B, E>] {
        &self.parameters
    }

    /// The parameters, in the same order.
    pub(in crate::program) fn all_mut(&mut self) -> &mut [Parameter<B, E>] {
        &mut self.parameters
    }

    /// The buffers, in the order in which they were declared.
    pub(in crate::program) fn buffers(&self) -> &[(String, Matrix<B, f32>)] {
        &self.buffers
    }

    /// The buffers, in the same order.
    pub(in crate::program) fn buffers_mut(&mut self) -> &mut [(String, Matrix<B, f32>)] {
        &mut self.buffers
    }

    fn number(&self, program: &Program, value: Value) -> Option<usize> {
        let name = &program.values[value.0].name;
        self.numbers.get(name).copied()
    }

    /// The parameter of a value.
    pub(in crate::program) fn of(
        &self,
        program: &Program,
        value: Value,
    ) -> Option<&Parameter<B, E>> {
        let is = matches!(program.values[value.0].origin, Origin::Parameter(_));
        let number = self.number(program, value).filter(|_| is)?;
        self.parameters.get(number)
    }

    /// The parameter of a value.
    pub(super) fn of_mut(
        &mut self,
        program: &Program,
        value: Value,
    ) -> Option<&mut Parameter<B, E>> {
        let is = matches!(program.values[value.0].origin, Origin::Parameter(_));
        let number = self.number(program, value).filter(|_| is)?;
        self.parameters.get_mut(number)
    }

    /// The buffer of a value.
    pub(super) fn buffer(&self, program: &Program, value: Value) -> Option<&Matrix<B, f32>> {
        let is = matches!(program.values[value.0].origin, Origin::Buffer(_));
        let number = self.number(program, value).filter(|_| is)?;
        self.buffers.get(number).map(|(_, buffer)| buffer)
    }

    /// The buffer of a value.
    pub(super) fn buffer_mut(
        &mut self,
        program: &Program,
        value: Value,
    ) -> Option<&mut Matrix<B, f32>> {
        let is = matches!(program.values[value.0].origin, Origin::Buffer(_));
        let number = self.number(program, value).filter(|_| is)?;
        self.buffers.get_mut(number).map(|(_, buffer)| buffer)
    }
}

/// The memory that operators write. Programs that do not run at the same time, such as those for training and for evaluation, share it.
#[derive(Debug)]
pub(in crate::program) struct Memory<B: Backend, E: Element> {
    /// What each place is, of whatever format.
    places: Vec<Slot>,
    pub(super) elements: HashMap<usize, Matrix<B, E>>,
    pub(super) floats: HashMap<usize, Matrix<B, f32>>,
    pub(super) items: HashMap<usize, Array<B, E>>,
    pub(super) numbers: HashMap<usize, Array<B, f32>>,
    pub(super) words: HashMap<usize, Array<B, u32>>,
    /// In the place of gradients that are being written: an operator writes three at most.
    pub(super) spares: Vec<Matrix<B, f32>>,
    pub(super) constants: HashMap<Constant, Matrix<B, E>>,
    pub(super) float_constants: HashMap<Constant, Matrix<B, f32>>,
    /// Scales of quantized values, which have rows while they are written and read.
    pub(super) quantized: HashMap<Value, QuantizedMatrix<B>>,
    /// Scales of what is stored for the backward pass, in the order of the list. Each step finds them anew.
    pub(super) stored: BTreeMap<Value, QuantizedMatrix<B>>,
    /// Those whose scales follow a step.
    pub(super) has_scales: HashSet<Value>,
    /// What a checkpoint calls the scales of each and the largest magnitudes that the next ones are made of, in the order of the list.
    messages: Vec<(Value, [String; 2])>,
    /// What attention keeps between its passes, by the first result of its forward pass.
    pub(super) attentions: HashMap<Value, Attention<B>>,
    pub(super) additive: HashMap<Value, AdditiveAttention<B>>,
    /// The sums of the softmax of attention by dot products, likewise.
    pub(super) softmaxes: HashMap<Value, Array<B, [f32; 2]>>,
    pub(super) bits: HashMap<usize, BitMatrix<B>>,
    /// What features are normalized by, of a network of one bit.
    pub(in crate::program) standardized: Option<Standardized<B>>,
    /// Magnitudes of weights that stay as they are, by the value that they replace.
    pub(in crate::program) frozen: HashMap<Value, Array<B, f32>>,
    /// All rows of a matrix as one group, by their number.
    pub(super) wholes: HashMap<usize, RowGroups<B>>,
    /// Ones for as many vertices.
    pub(super) ones: HashMap<usize, Matrix<B, E>>,
}

/// A matrix that is read, and one that is written.
type ReadAndWritten<'a, B, E> = (&'a Matrix<B, E>, &'a mut Matrix<B, E>);

const ACTIVATIONS: MemoryKind = MemoryKind::Activations;

impl<B: Backend, E: Element> Memory<B, E> {
    /// Nothing yet.
    pub(in crate::program) fn new(backend: &B) -> Result<Self, Error> {
        let spare = || Matrix::zeros(backend, 0, 1, MemoryKind::Weights);
        Ok(Self {
            places: Vec::new(),
            elements: HashMap::new(),
            floats: HashMap::new(),
            items: HashMap::new(),
            numbers: HashMap::new(),
            words: HashMap::new(),
            spares: vec![spare()?, spare()?, spare()?],
            constants: HashMap::new(),
            float_constants: HashMap::new(),
            quantized: HashMap::new(),
            stored: BTreeMap::new(),
            has_scales: HashSet::new(),
            messages: Vec::new(),
            attentions: HashMap::new(),
            additive: HashMap::new(),
            softmaxes: HashMap::new(),
            bits: HashMap::new(),
            standardized: None,
            frozen: HashMap::new(),
            wholes: HashMap::new(),
            ones: HashMap::new(),
        })
    }

    /// Frees what has a row for each vertex. Constants and scales of quantized values stay.
    pub(in crate::program) fn forget_rows(&mut self) {
        self.places.clear();
        self.elements.clear();
        self.floats.clear();
        self.items.clear();
        self.numbers.clear();
        self.words.clear();
        self.bits.clear();
        self.attentions.clear();
        self.additive.clear();
        self.softmaxes.clear();
        self.wholes.clear();
        self.ones.clear();
    }

    /// Allocates what a program needs besides what is there, and returns where each of its values lies.
    pub(in crate::program) fn fit(
        &mut self,
        backend: &B,
        (program, plan): (&Program, &Plan),
        edges: &[&Propagation<B>],
    ) -> Result<Vec<Place>, Error> {
        // The output has the same place in all programs, so it is found whichever of them ran last.
        let first = program.output.map(|output| plan.place(output));
        let is_first = |slot: &usize| Some(Place::Slot(*slot)) == first;
        let mut order: Vec<usize> = (0..plan.slots().len()).collect();
        order.sort_by_key(|slot| !is_first(slot));
        let mut taken = vec![false; self.places.len()];
        let mut place_of = vec![0; order.len()];
        for number in order {
            let slot = &plan.slots()[number];
            let free = |place: &usize| !taken[*place] && self.places[*place] == *slot;
            let place = match (0..taken.len()).find(free) {
                Some(place) => place,
                None => {
                    taken.push(false);
                    self.allocate(backend, slot)?
                }
            };
            taken[place] = true;
            place_of[number] = place;
        }
        self.allocate_scales(backend, program)?;
        for node in &program.nodes {
            self.allocate_state(backend, node, edges)?;
        }
        self.allocate_weights(backend, program)?;
        for (number, description) in program.values.iter().enumerate() {
            let rows = program.rows(Value(number));
            if description.origin == Origin::Ones
                && let Entry::Vacant(entry) = self.ones.entry(rows)
            {
                let (ones, kind) = (vec![1.0; rows], MemoryKind::Weights);
                entry.insert(Matrix::from_f32(backend, rows, 1, &ones, kind)?);
            }
        }
        let places = (0..program.values.len()).map(|number| match plan.place(Value(number)) {
            Place::Slot(slot) => Place::Slot(place_of[slot]),
            place => place,
        });
        Ok(places.collect())
    }

    fn allocate(&mut self, backend: &B, slot: &Slot) -> Result<usize, Error> {
        let (place, len) = (self.places.len(), slot.rows * slot.columns);
        match slot.format {
            Format::Element => {
                self.elements.insert(place, matrix(backend, slot)?);
            }
            Format::Float => {
                self.floats.insert(place, matrix(backend, slot)?);
            }
            Format::Items => {
                let array = Array::uninit(backend, len, ACTIVATIONS)?;
                self.items.insert(place, array);
            }
            Format::Codes => {
                let words = QuantizedMatrix::<B>::words(slot.rows, slot.columns)?;
                let array = Array::uninit(backend, words, ACTIVATIONS)?;
                self.words.insert(place, array);
            }
            Format::Bits => {
                let (rows, columns) = (slot.rows, slot.columns);
                let bits = BitMatrix::zeros(backend, rows, columns, ACTIVATIONS)?;
                self.bits.insert(place, bits);
            }
            Format::Numbers => {
                let array = Array::uninit(backend, len, ACTIVATIONS)?;
                self.numbers.insert(place, array);
            }
        }
        self.places.push(*slot);
        Ok(place)
    }

    /// Allocates the scales of quantized values. Those of another list of the same formula go on as this one's.
    pub(in crate::program) fn allocate_scales(
        &mut self,
        backend: &B,
        program: &Program,
    ) -> Result<(), Error> {
        self.allocate_stored(backend, program)?;
        let mut coded = program.nodes.iter().filter_map(Node::coded);
        match coded.all(|(_, value)| self.quantized.contains_key(&value)) {
            true => Ok(()),
            false => self.move_scales(backend, program),
        }
    }

    /// Makes the scales of quantized values those of another list of the same formula, and allocates what is missing.
    pub(in crate::program) fn move_scales(
        &mut self,
        backend: &B,
        program: &Program,
    ) -> Result<(), Error> {
        self.allocate_stored(backend, program)?;
        let coded: Vec<_> = program.nodes.iter().filter_map(Node::coded).collect();
        let before = std::mem::take(&mut self.messages);
        let has_scales = std::mem::take(&mut self.has_scales);
        let mut quantized = std::mem::take(&mut self.quantized);
        let mut before = before.into_iter();
        for (coding, value) in coded {
            let of_before = before.next().map(|(of, _)| of);
            let found = of_before.and_then(|of| quantized.remove(&of));
            let columns = program.values[value.0].shape.columns;
            let codes = match found {
                Some(codes) => codes,
                None => QuantizedMatrix::zeros(backend, (0, columns), coding.format, ACTIVATIONS)?,
            };
            if of_before.is_some_and(|of| has_scales.contains(&of)) {
                self.has_scales.insert(value);
            }
            self.quantized.insert(value, codes);
            let names = self.names_of(coding);
            self.messages.push((value, names));
        }
        Ok(())
    }

    /// Allocates what does not depend on the number of vertices besides parameters: constants, and what a network of one bit normalizes its
    /// features by.
    pub(in crate::program) fn allocate_weights(
        &mut self,
        backend: &B,
        program: &Program,
    ) -> Result<(), Error> {
        for description in &program.values {
            if let Origin::Constant(constant) = description.origin {
                self.allocate_constant(backend, constant, description.format)?;
            }
        }
        let columns = program.nodes.iter().find_map(Node::standardizes);
        if let (None, Some(x)) = (&self.standardized, columns) {
            let columns = program.values[x.0].shape.columns;
            self.standardized = Some(Standardized::new(backend, columns)?);
        }
        Ok(())
    }

    /// Allocates the scales of what is stored for the backward pass. A list that stores nothing, such as one for evaluation, leaves those
    /// of the list for training.
    fn allocate_stored(&mut self, backend: &B, program: &Program) -> Result<(), Error> {
        let stored: BTreeMap<Value, usize> = program
            .nodes
            .iter()
            .filter_map(Node::stored)
            .map(|value| (value, program.values[value.0].shape.columns))
            .collect();
        if stored.is_empty() {
            return Ok(());
        }
        self.stored
            .retain(|value, codes| stored.get(value) == Some(&codes.columns()));
        for (value, columns) in stored {
            if let btree_map::Entry::Vacant(entry) = self.stored.entry(value) {
                let (shape, format) = ((0, columns), CodeFormat::Int8);
                entry.insert(QuantizedMatrix::zeros(backend, shape, format, ACTIVATIONS)?);
            }
        }
        Ok(())
    }

    /// The largest magnitude of each column of what is stored for the backward pass: infinite where something was, which quantized values
    /// do not show.
    pub(in crate::program) fn largest_stored(&self) -> impl Iterator<Item = &Matrix<B, f32>> {
        self.stored.values().map(|codes| codes.scales().state()[1])
    }

    /// Names that no quantized values before have: a layer may sum over neighbours several times.
    fn names_of(&self, coding: Coding) -> [String; 2] {
        let gradient = if coding.stream.is_some() {
            "gradient_"
        } else {
            ""
        };
        let name = |number: usize| {
            let number = match number {
                0 => String::new(),
                number => format!("{number}."),
            };
            let prefix = format!("layers.{}.messages.{number}{gradient}", coding.layer);
            [format!("{prefix}scales"), format!("{prefix}largest")]
        };
        let is_free = |names: &[String; 2]| self.messages.iter().all(|(_, of)| of != names);
        (0..)
            .map(name)
            .find(is_free)
            .expect("there are more numbers than messages")
    }

    /// The scales of quantized values and the largest magnitudes, by name.
    pub(in crate::program) fn messages(&self) -> impl Iterator<Item = (&str, &Matrix<B, f32>)> {
        self.messages.iter().flat_map(|(value, names)| {
            let state = self
                .quantized
                .get(value)
                .map(|codes| codes.scales().state());
            let names = names.each_ref().map(String::as_str);
            names.into_iter().zip(state.into_iter().flatten())
        })
    }

    /// The same, in the same order.
    pub(in crate::program) fn messages_mut(
        &mut self,
    ) -> impl Iterator<Item = (&str, &mut Matrix<B, f32>)> {
        of_messages(&self.messages, &mut self.quantized)
    }

    /// The scales of quantized values, the largest magnitudes of each behind them, and the largest magnitudes of what is stored.
    pub(in crate::program) fn messages_and_stored_mut(
        &mut self,
    ) -> (
        impl Iterator<Item = &mut Matrix<B, f32>>,
        impl Iterator<Item = &mut Matrix<B, f32>>,
    ) {
        let messages = of_messages(&self.messages, &mut self.quantized);
        let stored = self.stored.values_mut().map(|codes| {
            let [_, largest] = codes.scales_mut().state_mut();
            largest
        });
        (messages.map(|(_, matrix)| matrix), stored)
    }

    /// Has scales be looked at before the next step: they were restored from a checkpoint.
    pub(in crate::program) fn forget_scales(&mut self) {
        self.has_scales.clear();
    }

    /// Quantized values.
    pub(in crate::program) fn quantized_mut(
        &mut self,
    ) -> impl Iterator<Item = &mut QuantizedMatrix<B>> {
        self.quantized.values_mut()
    }

    /// What is stored for the backward pass.
    pub(in crate::program) fn stored_mut(
        &mut self,
    ) -> impl Iterator<Item = &mut QuantizedMatrix<B>> {
        self.stored.values_mut()
    }

    /// Quantized values.
    pub(in crate::program) fn quantized(&self) -> impl Iterator<Item = &QuantizedMatrix<B>> {
        self.quantized.values()
    }

    /// Allocates what an operator keeps between its passes.
    fn allocate_state(
        &mut self,
        backend: &B,
        node: &Node,
        edges: &[&Propagation<B>],
    ) -> Result<(), Error> {
        let ends = |of: Edges| (edges[of.0].destinations(), edges[of.0].sources());
        let key = node.results[0];
        match &node.operator {
            Operator::Attention(op) if !self.attentions.contains_key(&key) => {
                let state = Attention::between(backend, ends(op.edges), op.heads, op.slope)?;
                self.attentions.insert(key, state.with_policy(op.policy));
            }
            Operator::AdditiveAttention(op) if !self.additive.contains_key(&key) => {
                let state = AdditiveAttention::new(backend, ends(op.edges), op.heads, op.slope)?;
                self.additive.insert(key, state.with_policy(op.policy));
            }
            Operator::DotAttention(op) if !self.softmaxes.contains_key(&key) => {
                let sums = op.heads * ends(op.edges).0;
                let sums = Array::uninit(backend, sums, ACTIVATIONS)?;
                self.softmaxes.insert(key, sums);
            }
            _ => {}
        }
        Ok(())
    }

    fn allocate_constant(
        &mut self,
        backend: &B,
        constant: Constant,
        format: Format,
    ) -> Result<(), Error> {
        let is_there = match format {
            Format::Element => self.constants.contains_key(&constant),
            _ => self.float_constants.contains_key(&constant),
        };
        if is_there {
            return Ok(());
        }
        match format {
            Format::Element => {
                self.constants
                    .insert(constant, constant_matrix(backend, constant)?);
            }
            _ => {
                let matrix = constant_matrix(backend, constant)?;
                self.float_constants.insert(constant, matrix);
            }
        }
        Ok(())
    }

    /// The matrix of elements at a place.
    pub(in crate::program) fn at(&self, place: Place) -> Option<&Matrix<B, E>> {
        match place {
            Place::Slot(slot) => self.elements.get(&slot),
            _ => None,
        }
    }

    /// Whether the matrix at a place holds an infinity or a NaN, which stays one in the sum of its column.
    pub(in crate::program) fn is_spoilt(&self, backend: &B, place: Place) -> Result<bool, Error> {
        let Place::Slot(slot) = place else {
            return Ok(false);
        };
        let of = |columns| Matrix::zeros(backend, 1, columns, MemoryKind::Workspace);
        let sums = match (self.elements.get(&slot), self.floats.get(&slot)) {
            (Some(matrix), _) => {
                let mut sums = of(matrix.columns())?;
                ops::column_sums(backend, matrix, &mut sums)?;
                sums
            }
            (None, Some(matrix)) => {
                let mut sums = of(matrix.columns())?;
                ops::column_sums(backend, matrix, &mut sums)?;
                sums
            }
            (None, None) => return Ok(false),
        };
        Ok(!sums.to_f32(backend)?.iter().all(|sum| sum.is_finite()))
    }

    /// The matrix of elements at a place, which is given away.
    pub(in crate::program) fn take_at(&mut self, place: Place) -> Option<Matrix<B, E>> {
        match place {
            Place::Slot(slot) => self.elements.remove(&slot),
            _ => None,
        }
    }

    /// The matrices of elements at two places, of which the second is written.
    pub(in crate::program) fn at_both(
        &mut self,
        [read, written]: [Place; 2],
    ) -> Option<ReadAndWritten<'_, B, E>> {
        let (Place::Slot(read), Place::Slot(written)) = (read, written) else {
            return None;
        };
        match self.elements.get_disjoint_mut([&read, &written]) {
            [Some(read), Some(written)] => Some((read, written)),
            _ => None,
        }
    }
}

/// The scales of quantized values and the largest magnitudes, by name, in the order of the list.
fn of_messages<'a, B: Backend>(
    messages: &'a [(Value, [String; 2])],
    quantized: &'a mut HashMap<Value, QuantizedMatrix<B>>,
) -> impl Iterator<Item = (&'a str, &'a mut Matrix<B, f32>)> {
    let mut all: HashMap<Value, _> = quantized.iter_mut().map(|(of, it)| (*of, it)).collect();
    messages.iter().flat_map(move |(value, names)| {
        let codes = all.remove(value);
        let state = codes.map(|codes| codes.scales_mut().state_mut());
        let names = names.each_ref().map(String::as_str);
        names.into_iter().zip(state.into_iter().flatten())
    })
}

fn matrix<B: Backend, X: Element>(backend: &B, slot: &Slot) -> Result<Matrix<B, X>, Error> {
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

/// The matrix of a constant. A device that only counts gets no values.
fn constant_matrix<B: Backend, X: Element>(
    backend: &B,
    constant: Constant,
) -> Result<Matrix<B, X>, Error> {
    let (rows, columns) = constant.shape();
    let mut matrix = Matrix::zeros(backend, rows, columns, MemoryKind::Weights)?;
    if !backend.only_counts() {
        matrix.write_f32(backend, &constant.values())?;
    }
    Ok(matrix)
}
