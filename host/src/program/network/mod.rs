//! A network that a [`Trainer`](crate::train::Trainer) trains: programs for training and for evaluation that share parameters and
//! memory.

mod explain;
mod formula;
mod pieces;
mod topology;

use super::differentiate;
use super::list::{Program, refuse};
use super::passes::fuse::{Fuse, FuseBeforeStore};
use super::passes::{Evaluate, Exchange, Mutual, Pass, Quantize, Recompute, Reorder, Store, apply};
use super::plan::{Place, Plan};
use super::run::{Memory, Parameters, Typed};
use super::value::Value;
use crate::backend::{Backend, MemoryKind};
use crate::data::FeatureRows;
use crate::error::Error;
use crate::nn::{
    Decoder, Inputs, LinkOperands, MARGIN, Mode, Model, ModelConfig, Parameter, Pieces,
    Propagation, Store as StoreIn, first_overflow,
};
use crate::ops::{self, RandomState};
use crate::tensor::{Element, Matrix, Precision};
use topology::{Graphs, Sizes, Topology};

pub use explain::Explanation;

/// A model whose layers are [formulas](super::layers).
///
/// It is a function of its configuration and the seed: every backend starts from the same weights. A list of operators is made once for
/// each topology of adjacencies; memory is allocated where a pass first meets their sizes, and again where these change.
#[derive(Debug)]
pub struct Network<B: Backend, E: Element> {
    model: ModelConfig,
    parameters: Parameters<B, E>,
    memory: Memory<B, E>,
    decoder: Option<Decoder<B, E>>,
    /// The lists of the last pass.
    compiled: Compiled,
    /// Those of passes before, over other adjacencies.
    before: Vec<Compiled>,
    sizes: Sizes,
    /// Whether evaluations keep what each layer writes.
    keeps_activations: bool,
    /// What layers gave, where the last pass was in pieces.
    in_pieces: pieces::Outputs<B, E>,
    /// The list that ran last.
    last: Option<Kind>,
    /// Of a pass that draws nothing.
    no_random: RandomState<B>,
    /// Logits and their gradient before the first pass.
    nothing: [Matrix<B, E>; 2],
}

/// Lists over other adjacencies that are kept: of whole graphs and of blocks, with sums in a few ranges.
const MOST_KEPT: usize = 8;

/// What a list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Training,
    Evaluation,
}

/// The lists over adjacencies of one kind.
#[derive(Debug)]
struct Compiled {
    graphs: Graphs,
    training: List,
    evaluation: List,
    /// What each layer writes in the list for evaluation.
    outputs: Vec<Value>,
}

/// A list, and where its values lie once it is sized.
#[derive(Debug)]
struct List {
    program: Program,
    places: Option<Vec<Place>>,
}

impl List {
    fn new(program: Program) -> Self {
        Self {
            program,
            places: None,
        }
    }

    /// Where a value lies.
    fn place(&self, value: Option<Value>) -> Option<Place> {
        let places = self.places.as_ref()?;
        places.get(value?.0).copied()
    }
}

/// Shows the list after each pass, with the name of the pass.
type Seen<'a> = &'a mut dyn FnMut(&str, &Program);

/// That programs can do what a configuration asks for.
fn check(model: &ModelConfig) -> Result<(), Error> {
    match model.binary {
        Some(_) => refuse(format!(
            "{} is not trained with one bit yet; leave it out",
            model.convolution.name()
        )),
        None => Ok(()),
    }
}

/// The passes that change what is computed. With `of_messages` quantized ones follow.
fn before(topology: Topology, of_messages: bool) -> &'static [&'static dyn Pass] {
    match (topology, of_messages) {
        (Topology::Ranks { .. }, true) => &[&Reorder, &Exchange { of_messages: true }],
        (Topology::Ranks { .. }, false) => &[&Reorder, &Exchange { of_messages: false }],
        (Topology::Whole | Topology::Blocks { .. }, _) => &[&Reorder],
    }
}

/// The list for training: forward and backward.
fn for_training(
    model: &ModelConfig,
    precision: Precision,
    graphs: &Graphs,
    seen: Seen<'_>,
) -> Result<Program, Error> {
    let (mut program, _) = formula::of_model(model, precision, graphs)?;
    seen("formula", &program);
    let quantize = model.messages.map(|format| Quantize { format });
    let before = before(graphs.topology, quantize.is_some());
    apply(&mut program, before, &mut *seen)?;
    differentiate(&mut program)?;
    seen("differentiate", &program);
    let mut passes: Vec<&dyn Pass> = Vec::new();
    if let (Topology::Ranks { is_mutual: true }, Some(_)) = (graphs.topology, &quantize) {
        passes.push(&Mutual);
    }
    match model.store {
        Some(StoreIn::EightBit) => passes.extend([&FuseBeforeStore as &dyn Pass, &Store]),
        None => passes.push(&Fuse),
    }
    if model.recompute {
        passes.push(&Recompute);
    }
    passes.extend(quantize.as_ref().map(|pass| pass as &dyn Pass));
    apply(&mut program, &passes, seen)?;
    Ok(program)
}

/// The list for evaluation, and what each layer writes; with `keeps` that stays readable.
fn for_evaluation(
    model: &ModelConfig,
    precision: Precision,
    (graphs, keeps): (&Graphs, bool),
    seen: Seen<'_>,
) -> Result<(Program, Vec<Value>), Error> {
    let (mut program, outputs) = formula::of_model(model, precision, graphs)?;
    if keeps {
        outputs.iter().for_each(|output| program.keep(*output));
    }
    apply(&mut program, before(graphs.topology, false), &mut *seen)?;
    apply(&mut program, &[&Evaluate, &Fuse], seen)?;
    Ok((program, outputs))
}

impl Compiled {
    fn new(
        model: &ModelConfig,
        precision: Precision,
        (graphs, keeps): (Graphs, bool),
    ) -> Result<Self, Error> {
        let seen: Seen<'_> = &mut |_, _| {};
        let training = for_training(model, precision, &graphs, &mut *seen)?;
        let (evaluation, outputs) = for_evaluation(model, precision, (&graphs, keeps), seen)?;
        Ok(Self {
            graphs,
            training: List::new(training),
            evaluation: List::new(evaluation),
            outputs,
        })
    }

    fn list(&self, kind: Kind) -> &List {
        match kind {
            Kind::Training => &self.training,
            Kind::Evaluation => &self.evaluation,
        }
    }

    fn list_mut(&mut self, kind: Kind) -> &mut List {
        match kind {
            Kind::Training => &mut self.training,
            Kind::Evaluation => &mut self.evaluation,
        }
    }
}

impl<B: Backend, E: Element> Network<B, E> {
    /// The model of a configuration, with the weights of `seed`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a configuration that makes no model or asks for what programs do not do, and those of the device.
    pub fn new(backend: &B, model: &ModelConfig, seed: u64) -> Result<Self, Error> {
        check(model)?;
        let graphs = Graphs::of(Topology::Whole);
        let compiled = Compiled::new(model, E::PRECISION, (graphs, false))?;
        let program = &compiled.training.program;
        let nothing = || Matrix::zeros(backend, 0, model.classes, MemoryKind::Activations);
        let mut memory = Memory::new(backend)?;
        memory.allocate_scales(backend, program)?;
        Ok(Self {
            parameters: Parameters::new(backend, program, seed)?,
            memory,
            decoder: Decoder::new(backend, model.decoder, model.classes, seed)?,
            compiled,
            before: Vec::new(),
            sizes: Vec::new(),
            keeps_activations: false,
            in_pieces: Vec::new(),
            last: None,
            no_random: RandomState::new(backend, seed, 0)?,
            nothing: [nothing()?, nothing()?],
            model: model.clone(),
        })
    }

    /// The configuration.
    pub fn model(&self) -> &ModelConfig {
        &self.model
    }

    /// From now on evaluations keep what each layer writes, for [`Network::activations`].
    pub(crate) fn keep_activations(&mut self) {
        self.keeps_activations = true;
    }

    /// Layers, those that do not aggregate among them.
    pub(crate) fn depth(&self) -> usize {
        self.compiled.outputs.len()
    }

    /// Whether the first layer aggregates.
    pub(crate) fn first_aggregates(&self) -> bool {
        let settings = formula::settings(&self.model);
        settings.first().is_some_and(|first| first.aggregates)
    }

    /// What layer `number` wrote in the last evaluation; of the last layer the logits, whatever ran last.
    pub(crate) fn activations(&self, number: usize) -> Result<&Matrix<B, E>, Error> {
        if let Some(output) = self.in_pieces.get(number) {
            return match output {
                Some(matrix) => Ok(matrix),
                None => refuse(format!(
                    "the output of layer {number} was not kept of a pass in pieces; name it among those to be kept"
                )),
            };
        }
        if self.last.is_none() {
            return refuse("there are no activations before a forward pass".into());
        }
        if number + 1 == self.depth() {
            return Ok(self.logits());
        }
        let list = &self.compiled.evaluation;
        let output = self.compiled.outputs.get(number).copied();
        let is_kept = self.last == Some(Kind::Evaluation) && !list.program.kept.is_empty();
        let place = list.place(output).filter(|_| is_kept);
        match place.and_then(|place| self.memory.at(place)) {
            Some(matrix) => Ok(matrix),
            None => refuse(format!(
                "the output of layer {number} is not kept; call Network::keep_activations before an evaluation"
            )),
        }
    }

    /// Replaces the decoder of links.
    pub(crate) fn set_decoder(&mut self, decoder: Decoder<B, E>) {
        self.decoder = Some(decoder);
    }

    /// Messages that were larger than their scales hold, so far: see [`nn::Network`](crate::nn::Network::saturated_messages).
    pub(crate) fn saturated_messages(&self, backend: &B) -> Result<Option<u64>, Error> {
        if self.model.messages.is_none() {
            return Ok(None);
        }
        let counts = self.memory.quantized();
        let counts = counts.map(|codes| codes.scales().unrepresented(backend));
        let saturated = counts.map(|count| Ok(u64::from(count?.saturated)));
        saturated.sum::<Result<u64, Error>>().map(Some)
    }

    /// Makes the lists and the memory fit the adjacencies of a pass.
    fn fit(
        &mut self,
        backend: &B,
        kind: Kind,
        graphs: &[Propagation<B>],
        features: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let (of, sizes) = topology::of(&self.model, graphs)?;
        let is_rank = matches!(of.topology, Topology::Ranks { .. });
        if is_rank && self.model.store.is_some() {
            return refuse(
                "of several ranks activations are kept as they are; leave store out, or train with one"
                    .into(),
            );
        }
        let keeps = self.keeps_activations && self.compiled.evaluation.program.kept.is_empty();
        if keeps {
            self.before.clear();
        }
        if keeps || !self.compiled.graphs.is_like(&of, &self.model) {
            self.switch(backend, of)?;
        }
        if sizes != self.sizes {
            self.forget();
            self.sizes = sizes;
        }
        let edges: Vec<&Propagation<B>> = graphs.iter().collect();
        let list = self.compiled.list_mut(kind);
        if list.places.is_none() {
            let program = &mut list.program;
            let ends = self
                .sizes
                .iter()
                .map(|[sources, destinations, ..]| [*sources, *destinations]);
            program.set_sizes(&ends.collect::<Vec<_>>());
            program.size_edges(backend, &edges);
            let plan = Plan::new(program);
            list.places = Some(self.memory.fit(backend, (program, &plan), &edges)?);
        }
        // Another graph of the same size may have weights of edges, or other rows first.
        list.program.check_edges(&edges)?;
        let program = &list.program;
        let rows = program.named(formula::FEATURES);
        let rows = rows.map_or(0, |features| program.rows(features));
        Error::expect("Network", "rows of the features", rows, features.rows())?;
        let columns = features.columns();
        Error::expect("Network", "features", self.model.features, columns)
    }

    /// Takes the lists over other adjacencies: those of before, or new ones.
    fn switch(&mut self, backend: &B, graphs: Graphs) -> Result<(), Error> {
        let of_before = |of: &Compiled| of.graphs.is_like(&graphs, &self.model);
        let next = match self.before.iter().position(of_before) {
            Some(number) => self.before.remove(number),
            None => Compiled::new(&self.model, E::PRECISION, (graphs, self.keeps_activations))?,
        };
        self.forget();
        if self.before.len() == MOST_KEPT {
            self.before.remove(0);
        }
        self.before
            .push(std::mem::replace(&mut self.compiled, next));
        let program = &self.compiled.training.program;
        self.memory.move_scales(backend, program)
    }

    fn forget(&mut self) {
        self.memory.forget_rows();
        self.sizes.clear();
        self.in_pieces.clear();
        self.compiled.training.places = None;
        self.compiled.evaluation.places = None;
        self.last = None;
    }

    /// Runs one of the two passes of a list.
    fn run(
        &mut self,
        inputs: Inputs<'_, B, E>,
        (kind, random): (Kind, RandomState<B>),
        backward: bool,
    ) -> Result<(), Error> {
        let list = self.compiled.list(kind);
        let Some(places) = &list.places else {
            return refuse("a backward pass follows a forward pass over the same graph".into());
        };
        let program = &list.program;
        let edges: Vec<&Propagation<B>> = inputs.graphs.iter().collect();
        let read = program.named(formula::FEATURES);
        let read = read.map(|value| (value, inputs.features));
        let mut typed = Typed {
            backend: inputs.backend.clone(),
            program,
            places,
            edges: &edges,
            inputs: read.as_slice(),
            random,
            parameters: &mut self.parameters,
            memory: &mut self.memory,
        };
        typed.run(match backward {
            false => 0..program.forward,
            true => program.forward..program.nodes.len(),
        })
    }

    fn logits_place(&self) -> Option<Place> {
        let list = self.compiled.list(self.last?);
        list.place(list.program.output)
    }
}

impl<B: Backend, E: Element> Model<B, E> for Network<B, E> {
    fn forward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error> {
        let (kind, random) = match mode {
            Mode::Train { random } => (Kind::Training, random.clone()),
            Mode::Evaluate => (Kind::Evaluation, self.no_random.clone()),
        };
        self.fit(inputs.backend, kind, inputs.graphs, inputs.features)?;
        self.last = Some(kind);
        self.run(inputs, (kind, random), false)
    }

    fn forward_in_pieces(
        &mut self,
        backend: &B,
        features: &FeatureRows<B, E>,
        pieces: &Pieces<E>,
        keep: &[usize],
    ) -> Result<(), Error> {
        self.pass_in_pieces(backend, features, pieces, keep)
    }

    fn classes(&self) -> usize {
        self.model.classes
    }

    fn logits(&self) -> &Matrix<B, E> {
        if let Some(Some(logits)) = self.in_pieces.last() {
            return logits;
        }
        let place = self.logits_place();
        let logits = place.and_then(|place| self.memory.at(place));
        logits.unwrap_or(&self.nothing[0])
    }

    fn loss_operands(&mut self) -> (&Matrix<B, E>, &mut Matrix<B, E>) {
        let operands = self.link_operands();
        (operands.logits, operands.gradient)
    }

    fn link_operands(&mut self) -> LinkOperands<'_, B, E> {
        let list = &self.compiled.training;
        let places = [list.program.output, list.program.seed].map(|value| list.place(value));
        let there = match places {
            [Some(logits), Some(seed)] => self.memory.at_both([logits, seed]),
            _ => None,
        };
        let [logits, gradient] = &mut self.nothing;
        let (logits, gradient) = there.unwrap_or((logits, gradient));
        LinkOperands {
            logits,
            gradient,
            decoder: self.decoder.as_mut(),
        }
    }

    fn decoder(&self) -> Option<&Decoder<B, E>> {
        self.decoder.as_ref()
    }

    fn backward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error> {
        match (mode, self.last) {
            (Mode::Train { random }, Some(Kind::Training)) => {
                self.run(inputs, (Kind::Training, random.clone()), true)
            }
            _ => refuse("a backward pass follows a forward pass in training".into()),
        }
    }

    fn first_non_finite(&self, backend: &B) -> Result<Option<String>, Error> {
        first_overflow(backend, &self.parameters())
    }

    fn buffers(&self) -> Vec<(String, &Matrix<B, f32>)> {
        let buffers = self.parameters.buffers().iter();
        let buffers = buffers.map(|(name, matrix)| (name.clone(), matrix));
        let messages = self.memory.messages();
        buffers
            .chain(messages.map(|(name, matrix)| (name.to_owned(), matrix)))
            .collect()
    }

    fn buffers_mut(&mut self) -> Vec<(String, &mut Matrix<B, f32>)> {
        self.memory.forget_scales();
        let buffers = self.parameters.buffers_mut().iter_mut();
        let buffers = buffers.map(|(name, matrix)| (name.clone(), matrix));
        let messages = self.memory.messages_mut();
        buffers
            .chain(messages.map(|(name, matrix)| (name.to_owned(), matrix)))
            .collect()
    }

    fn statistics_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        let buffers = self.parameters.buffers_mut().iter_mut();
        buffers.map(|(_, matrix)| matrix).collect()
    }

    fn shared_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        let messages = self.memory.messages_mut();
        messages.map(|(_, matrix)| matrix).collect()
    }

    fn watched(&self) -> Vec<&Matrix<B, f32>> {
        let largest = self.memory.messages().skip(1).step_by(2);
        let stored = self.memory.largest_stored();
        largest.map(|(_, matrix)| matrix).chain(stored).collect()
    }

    fn watched_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        let largest = self.memory.messages_mut().skip(1).step_by(2);
        largest.map(|(_, matrix)| matrix).collect()
    }

    fn sends_nothing(&mut self, backend: &B) -> Result<(), Error> {
        let mut codes = self.memory.quantized_mut();
        codes.try_for_each(|codes| ops::update_scales(backend, MARGIN, codes.scales_mut()))
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        let decoder = self.decoder.iter().flat_map(Decoder::parameters);
        self.parameters.all().iter().chain(decoder).collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        let decoder = self.decoder.iter_mut().flat_map(Decoder::parameters_mut);
        self.parameters
            .all_mut()
            .iter_mut()
            .chain(decoder)
            .collect()
    }
}
