//! Where each value lies: memory planned from the list alone, to the byte.

use super::list::Program;
use super::operator::{Node, Operator};
use super::value::{Format, Origin, Value, Vertices, bytes_of};
use halfgnn_contract::quantize::{COUNTS, row_codes};

/// The memory of a program.
///
/// Values that are not alive at the same time share a slot where they have the same shape. A result takes the memory of an
/// operand that is not read again, where its operator can overwrite that. Slots are allocated once, so a recorded step finds
/// them where they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    places: Vec<Place>,
    lives: Vec<Life>,
    slots: Vec<Slot>,
    activations: u64,
    weights: u64,
    inputs: u64,
    peak: u64,
    boundary: usize,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A matrix from outside, or a constant.
    Outside,
    /// The gradient of a parameter, which lies with it.
    Gradient(Value),
    /// A slot.
    Slot(usize),
    /// Nowhere: no operator reads or writes it.
    Nowhere,
}

/// Memory that values share one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Rows.
    pub rows: usize,
    /// Columns, without padding; of quantized values with it.
    pub columns: usize,
    /// How elements lie.
    pub format: Format,
    /// Whether rows are as far apart as sums over neighbours read fastest.
    pub gathered: bool,
    /// Bytes, padding included.
    pub bytes: u64,
}

/// From the operator that writes a value to the last one that reads it. The loss is a moment between the two passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    from: usize,
    to: usize,
}

/// The count of steps that dropout is a function of.
const STEP_BYTES: u64 = size_of::<u32>() as u64;

/// After all operators.
const FOREVER: usize = usize::MAX;

impl Plan {
    /// The plan of a program with the numbers of vertices that it has.
    pub fn new(program: &Program) -> Self {
        let boundary = program.forward;
        let lives = lives(program);
        let classes = shared(program, &lives);
        let mut plan = Self {
            places: vec![Place::Nowhere; program.values.len()],
            slots: Vec::new(),
            activations: 0,
            weights: STEP_BYTES,
            inputs: 0,
            peak: 0,
            boundary,
            lives,
        };
        plan.place_outside(program);
        plan.weights = total([plan.weights, standardized(program)]);
        plan.place_slots(program, &classes);
        let states = plan_states(program);
        plan.activations = total(plan.slots.iter().map(|slot| slot.bytes).chain([states]));
        plan.peak = total([plan.peak, states]);
        plan
    }

    /// Bytes of what operators write, all slots together: what a [`Runner`](super::Runner) allocates as
    /// [`MemoryKind::Activations`](crate::backend::MemoryKind::Activations).
    pub fn activations(&self) -> u64 {
        self.activations
    }

    /// Bytes of parameters, their gradients, their copies in the program's precision, constants, and the count of steps. An optimiser's
    /// moments come on top.
    pub fn weights(&self) -> u64 {
        self.weights
    }

    /// Bytes of the inputs.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// The most bytes of values that are alive at one moment: what no sharing of slots comes below.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The slots.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Where a value lies.
    pub fn place(&self, value: Value) -> Place {
        self.places[value.0]
    }

    /// Whether a value can be read between the passes, or else behind both.
    pub(super) fn is_there(&self, value: Value, between: bool) -> bool {
        let Life { from, to } = self.lives[value.0];
        match (self.places[value.0], between) {
            (Place::Nowhere, _) => false,
            (Place::Outside, _) => true,
            (_, true) => from <= self.boundary && to >= self.boundary,
            (_, false) => to == FOREVER,
        }
    }

    fn place_outside(&mut self, program: &Program) {
        for (number, description) in program.values.iter().enumerate() {
            let value = Value(number);
            let bytes = program.bytes(value);
            match description.origin {
                Origin::Input => self.inputs = total([self.inputs, bytes]),
                Origin::Constant(_) | Origin::Buffer(_) | Origin::Ones => {
                    self.weights = total([self.weights, bytes]);
                }
                Origin::Parameter(_) => {
                    let float = program.bytes_in_float(value);
                    let rounded = description.format == Format::Element
                        && program.precision != crate::tensor::Precision::MASTER;
                    let rounded = if rounded { bytes } else { 0 };
                    self.weights = total([self.weights, float, float, rounded]);
                }
                // They are of the graph's memory.
                Origin::EdgeFeatures(_) => {}
                Origin::Seed | Origin::Operator => continue,
            }
            self.places[number] = Place::Outside;
        }
    }

    /// Gives each class of values a slot, in the order in which they are written.
    fn place_slots(&mut self, program: &Program, classes: &[usize]) {
        let mut free: Vec<usize> = Vec::new();
        let mut ends: Vec<(usize, usize)> = Vec::new(); // (last moment, slot)
        let mut firsts: Vec<usize> = (0..classes.len())
            .filter(|&number| classes[number] == number)
            .filter(|&number| self.lives[number].from != FOREVER)
            .collect();
        firsts.sort_by_key(|&number| (self.lives[number].from, number));
        let mut sizes: Vec<(Life, u64)> = Vec::new();
        for first in firsts {
            let members: Vec<usize> = (0..classes.len())
                .filter(|&it| classes[it] == first)
                .collect();
            let from = self.lives[first].from;
            let to = members.iter().map(|&it| self.lives[it].to).max();
            let life = Life {
                from,
                to: to.unwrap_or(from),
            };
            let of_parameter = program
                .gradients
                .iter()
                .find(|(_, gradient)| members.contains(&gradient.0));
            let place = match of_parameter {
                Some((parameter, _)) => Place::Gradient(*parameter),
                None => {
                    ends.retain(|&(end, slot)| {
                        let is_over = end < from;
                        if is_over {
                            free.push(slot);
                        }
                        !is_over
                    });
                    let is_alone = members.len() == 1;
                    let slot = self.slot_for(program, (Value(first), is_alone), &mut free);
                    ends.push((life.to, slot));
                    sizes.push((life, self.slots[slot].bytes));
                    Place::Slot(slot)
                }
            };
            for member in members {
                self.places[member] = place;
            }
        }
        let alive = |moment: usize| {
            let is = |life: &Life| life.from <= moment && moment <= life.to;
            let alive = sizes.iter().filter(|(life, _)| is(life));
            total(alive.map(|(_, bytes)| *bytes))
        };
        self.peak = sizes
            .iter()
            .map(|(life, _)| alive(life.from))
            .max()
            .unwrap_or(0);
    }

    /// The slot of a value. `is_alone` where no other value is written over it.
    fn slot_for(
        &mut self,
        program: &Program,
        (value, is_alone): (Value, bool),
        free: &mut Vec<usize>,
    ) -> usize {
        let description = &program.values[value.0];
        let (rows, columns) = (program.rows(value), description.shape.columns);
        let bytes = program.bytes(value);
        let close = bytes_of(program.precision, rows, columns, false);
        let slot = Slot {
            rows,
            // Rows of 8-bit values share memory where they are equally far apart.
            columns: match description.format {
                Format::Codes => row_codes(columns as u64) as usize,
                _ => columns,
            },
            format: description.format,
            // Rows of many widths are as far apart either way.
            gathered: program.is_gathered(value) && bytes != close,
            bytes,
        };
        let is_wider = |number: usize| {
            let of = self.slots[number];
            let as_if_close = Slot {
                gathered: false,
                bytes,
                ..of
            };
            of.gathered && as_if_close == slot
        };
        // The one that was free last lies in caches, if any does.
        let mut index = free.iter().rposition(|&number| self.slots[number] == slot);
        if index.is_none() && is_alone && program.may_lie_apart(value) {
            index = free.iter().rposition(|&number| is_wider(number));
        }
        match index {
            Some(index) => free.remove(index),
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        }
    }
}

/// Bytes of what features are standardized by: statistics and what a batch normalization reads and writes besides, six rows of floats.
fn standardized(program: &Program) -> u64 {
    let features = program.nodes.iter().find_map(Node::standardizes);
    let columns = features.map(|features| program.values[features.0].shape.columns);
    let row = |columns| bytes_of(crate::tensor::Precision::Float, 1, columns, false);
    columns.map_or(0, |columns| 6 * row(columns))
}

/// Bytes that operators keep: attention from its forward pass to its backward pass, scales of quantized values from step to step.
fn plan_states(program: &Program) -> u64 {
    let states = program.nodes.iter().map(|node| {
        // Scales, the largest magnitudes, and counts of what no value stands for.
        if let Some(codes) = node.coded().map(|(_, codes)| codes).or(node.stored()) {
            let columns = program.values[codes.0].shape.columns;
            let numbers = 2 * row_codes(columns as u64) + u64::from(COUNTS);
            return numbers * size_of::<f32>() as u64;
        }
        let (edges, heads, [of_destinations, of_sources]) = match &node.operator {
            Operator::Attention(op) => (op.edges, op.heads, [4, 1]),
            Operator::AdditiveAttention(op) => (op.edges, op.heads, [3, 1]),
            Operator::DotAttention(op) => (op.edges, op.heads, [2, 0]),
            _ => return 0,
        };
        let rows = |of: Vertices| program.vertices[of.0].rows;
        let edges = &program.edges[edges.0];
        let numbers = of_destinations * rows(edges.destinations) + of_sources * rows(edges.sources);
        heads as u64 * numbers as u64 * size_of::<f32>() as u64
    });
    total(states)
}

/// The sum of bytes: of sizes that no device has the most there is.
fn total(bytes: impl IntoIterator<Item = u64>) -> u64 {
    bytes.into_iter().fold(0, u64::saturating_add)
}

/// The moment of an operator.
fn moment(program: &Program, number: usize) -> usize {
    number + usize::from(number >= program.forward)
}

/// The life of each value.
fn lives(program: &Program) -> Vec<Life> {
    let nowhere = Life {
        from: FOREVER,
        to: 0,
    };
    let mut lives = vec![nowhere; program.values.len()];
    for (number, node) in program.nodes.iter().enumerate() {
        let now = moment(program, number);
        for result in node.results.iter().chain(&node.scratch) {
            lives[result.0] = Life { from: now, to: now };
        }
        for operand in node.operator.operands() {
            lives[operand.0].to = lives[operand.0].to.max(now);
        }
    }
    if let Some(seed) = program.seed {
        lives[seed.0].from = program.forward;
        lives[seed.0].to = lives[seed.0].to.max(program.forward);
    }
    // The output can be read until the next forward pass.
    let gradients = program.gradients.iter().map(|(_, gradient)| gradient);
    for outside in gradients.chain(&program.kept).chain(&program.output) {
        lives[outside.0].to = FOREVER;
    }
    if program.keeps_weights {
        let nodes = program.nodes[..program.of_weights()].iter();
        for result in nodes.flat_map(|node| &node.results) {
            let life = &mut lives[result.0];
            // Others are written and never read.
            if life.to > life.from {
                life.to = FOREVER;
            }
        }
    }
    lives
}

/// The first value of those that lie in the same memory because one is written over the other.
fn shared(program: &Program, lives: &[Life]) -> Vec<usize> {
    let mut classes: Vec<usize> = (0..program.values.len()).collect();
    for (number, node) in program.nodes.iter().enumerate() {
        let now = moment(program, number);
        let result = node.results[0];
        let operands = node.operator.operands();
        let shape = |value: Value| {
            let description = &program.values[value.0];
            (description.shape, description.format)
        };
        let is_over = |value: &Value| {
            let from_here = matches!(
                program.values[value.0].origin,
                Origin::Operator | Origin::Seed
            );
            let once = operands.iter().filter(|it| *it == value).count() == 1;
            from_here
                && once
                && lives[value.0].to == now
                && shape(*value) == shape(result)
                && !program.is_gathered(*value)
                && !program.is_gathered(result)
        };
        if let Some(over) = node.operator.overwrites().into_iter().find(is_over) {
            classes[result.0] = classes[over.0];
        }
    }
    classes
}

impl Program {
    /// Whether a value may lie in rows that are further apart than its own: a plain sum over neighbours that products alone read.
    fn may_lie_apart(&self, value: Value) -> bool {
        let is_sum = self.writer(value).is_some_and(|writer| {
            matches!(&self.nodes[writer].operator, Operator::Aggregate(op) if op.is_plain())
        });
        let multiplies = |number: usize| match &self.nodes[number].operator {
            Operator::Matmul(op) => {
                let operands = self.nodes[number].operator.operands();
                let is_once = operands.iter().filter(|it| **it == value).count() == 1;
                let is_product = op.norm.is_none() && op.second.is_none() && !op.column_sums;
                is_once && is_product && (op.a == value || op.b == value)
            }
            _ => false,
        };
        let is_outside = self.output == Some(value) || self.kept.contains(&value);
        is_sum && !is_outside && self.readers(value).all(multiplies)
    }

    /// Bytes of a value as floats.
    fn bytes_in_float(&self, value: Value) -> u64 {
        let (rows, columns) = (self.rows(value), self.values[value.0].shape.columns);
        bytes_of(crate::tensor::Precision::Float, rows, columns, false)
    }
}
