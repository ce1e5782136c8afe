//! A network that a [`Trainer`](crate::train::Trainer) trains: programs for training and for evaluation that share parameters and
//! memory.

mod explain;
mod formula;
mod model;
mod pieces;
mod profile;
mod signs;
#[cfg(test)]
mod tests;
mod topology;
mod types;

use super::differentiate;
use super::list::{Program, refuse};
use super::passes::fuse::{Fuse, FuseBeforeStore};
use super::passes::{
    Binarize, Evaluate, Exchange, Mutual, Pass, Quantize, Recompute, Reorder, Store, apply,
};
use super::plan::{Place, Plan};
use super::run::{Memory, Parameters, Typed};
#[cfg(feature = "checkpoints")]
use super::value::Rows;
use super::value::Value;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::nn::{Decoder, Inputs, Model, ModelConfig, PairScores, Propagation, Store as StoreIn};
use crate::ops::{BitMatrix, RandomState};
use crate::tensor::{Element, Matrix, Precision};
use std::ops::Range;
use topology::{Graphs, Sizes, Topology};

pub use explain::Explanation;
pub use profile::{Profile, TimedOperator};

/// A graph neural network: layers that are [formulas](crate::program::layers), with norm, activation and dropout between them.
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
    /// Whether passes keep what each layer writes.
    keeps_activations: bool,
    weights: Weights,
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
    /// An evaluation that is given the signs of the features.
    Signs,
}

/// Whether an evaluation computes what it needs of weights alone, such as their signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    /// It does: they may have changed.
    Change,
    /// The next one does, for all that follow.
    Frozen,
    /// It is there, of this list.
    There(Kind),
}

/// The lists over adjacencies of one kind.
#[derive(Debug)]
struct Compiled {
    graphs: Graphs,
    training: List,
    evaluation: List,
    /// Of a network that reads nothing of the features but their signs.
    signs: Option<List>,
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

/// The passes that change what is computed. With `of_messages` quantized ones follow.
fn before(topology: Topology, of_messages: bool) -> &'static [&'static dyn Pass] {
    match (topology, of_messages) {
        (Topology::Ranks { .. }, true) => &[&Reorder, &Exchange { of_messages: true }],
        (Topology::Ranks { .. }, false) => &[&Reorder, &Exchange { of_messages: false }],
        (Topology::Whole | Topology::Types { .. } | Topology::Blocks { .. }, _) => &[&Reorder],
    }
}

/// The parameters and buffers of a model by their names, with rows and columns. None of them is allocated.
///
/// # Errors
/// [`Error::Unsupported`] where there is no such model.
#[cfg(feature = "checkpoints")]
pub(crate) fn shapes(
    model: &ModelConfig,
    precision: Precision,
) -> Result<std::collections::BTreeMap<String, (usize, usize)>, Error> {
    model.check()?;
    let graphs = Graphs::of(Topology::of_whole_graphs(model));
    let (program, _) = formula::of_model(model, precision, &graphs)?;
    let values = program.parameters().into_iter().chain(program.buffers());
    let shapes = values.filter_map(|value| {
        let description = program.description(value);
        match description.shape.rows {
            Rows::Fixed(rows) => {
                let shape = (rows, description.shape.columns);
                Some((description.name.clone(), shape))
            }
            _ => None,
        }
    });
    Ok(shapes.collect())
}

/// The list for training: forward and backward.
fn for_training(
    model: &ModelConfig,
    precision: Precision,
    (graphs, keeps): (&Graphs, bool),
    seen: Seen<'_>,
) -> Result<Program, Error> {
    let (mut program, outputs) = formula::of_model(model, precision, graphs)?;
    if keeps {
        outputs.iter().for_each(|output| program.keep(*output));
    }
    seen("formula", &program);
    let quantize = model.messages.map(|format| Quantize { format });
    let before = before(graphs.topology, quantize.is_some());
    apply(&mut program, before, &mut *seen)?;
    differentiate(&mut program)?;
    seen("differentiate", &program);
    let mut passes: Vec<&dyn Pass> = Vec::new();
    if model.binary.is_some() {
        passes.push(&Binarize);
    }
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
    let passes: &[&dyn Pass] = match model.binary {
        Some(_) => &[&Evaluate, &Binarize, &Fuse],
        None => &[&Evaluate, &Fuse],
    };
    apply(&mut program, passes, seen)?;
    Ok((program, outputs))
}

impl Compiled {
    fn new(
        model: &ModelConfig,
        precision: Precision,
        (graphs, keeps): (Graphs, bool),
    ) -> Result<Self, Error> {
        let seen: Seen<'_> = &mut |_, _| {};
        let training = for_training(model, precision, (&graphs, keeps), &mut *seen)?;
        let (evaluation, outputs) = for_evaluation(model, precision, (&graphs, keeps), seen)?;
        Ok(Self {
            graphs,
            training: List::new(training),
            signs: signs::given(&evaluation).map(List::new),
            evaluation: List::new(evaluation),
            outputs,
        })
    }

    fn list(&self, kind: Kind) -> &List {
        match kind {
            Kind::Training => &self.training,
            Kind::Evaluation => &self.evaluation,
            Kind::Signs => self.signs.as_ref().unwrap_or(&self.evaluation),
        }
    }

    fn list_mut(&mut self, kind: Kind) -> &mut List {
        match kind {
            Kind::Training => &mut self.training,
            Kind::Evaluation => &mut self.evaluation,
            Kind::Signs => self.signs.as_mut().unwrap_or(&mut self.evaluation),
        }
    }
}

impl<B: Backend, E: Element> Network<B, E> {
    /// The model of a configuration, with the weights of `seed`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a configuration that makes no model or asks for what programs do not do, and those of the device.
    pub fn new(backend: &B, model: &ModelConfig, seed: u64) -> Result<Self, Error> {
        model.check()?;
        let graphs = Graphs::of(Topology::of_whole_graphs(model));
        let compiled = Compiled::new(model, E::PRECISION, (graphs, false))?;
        let program = &compiled.training.program;
        let nothing = || Matrix::zeros(backend, 0, model.classes, MemoryKind::Activations);
        let mut memory = Memory::new(backend)?;
        memory.allocate_scales(backend, program)?;
        memory.allocate_weights(backend, program)?;
        memory.allocate_weights(backend, &compiled.evaluation.program)?;
        Ok(Self {
            parameters: Parameters::new(backend, program, seed)?,
            memory,
            decoder: Decoder::new(backend, model.decoder, model.classes, seed)?,
            compiled,
            before: Vec::new(),
            sizes: Vec::new(),
            keeps_activations: false,
            weights: Weights::Change,
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

    /// This network with a decoder of links, in the place of any other. It must be one of as many numbers as the network gives of a
    /// vertex.
    #[must_use]
    pub fn with_decoder(mut self, decoder: Decoder<B, E>) -> Self {
        self.decoder = Some(decoder);
        self
    }

    /// What scores pairs by the embeddings of the last forward pass. It is on the host, and outlives the next pass.
    ///
    /// # Errors
    /// Those of the device.
    pub fn pair_scores(&self, backend: &B) -> Result<PairScores, Error> {
        PairScores::new(backend, self.logits(), self.decoder.as_ref())
    }

    /// The score of each of `pairs`, by the embeddings of the last forward pass: see [`PairScores::score`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a pair names a vertex that there is no embedding of, and those of the device.
    pub fn score_pairs(&self, backend: &B, pairs: &[[u32; 2]]) -> Result<Vec<f32>, Error> {
        self.pair_scores(backend)?.score(pairs)
    }

    /// This network with the parameters of another of the same layers, which are not copied: kernels of both read the same
    /// memory. So one network serves several threads at once, each by a network and a stream of its own, with rows and
    /// activations of its own. Running statistics are copied. `backend` is where `of` computes; what it was given to do is
    /// done when this returns.
    ///
    /// While two networks share parameters, these cannot be changed: [`Parameter::write`](crate::nn::Parameter::write) and a step of
    /// an optimizer are refused. `of` is borrowed as one that is to be changed, so that no recorded step of a
    /// [trainer](crate::train::Trainer::model_mut) goes on to change it.
    ///
    /// ```
    /// # use halfgnn::backend::cpu::Cpu;
    /// # use halfgnn::nn::{Model, ModelConfig, Network};
    /// let backend = Cpu::new();
    /// let config = ModelConfig::gcn(16, 4);
    /// let mut first = Network::<_, f32>::new(&backend, &config, 1)?;
    /// let second = Network::new(&backend, &config, 1)?.sharing(&backend, &mut first)?;
    /// assert!(std::ptr::eq(first.parameters()[0].master(), second.parameters()[0].master()));
    /// # Ok::<_, halfgnn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] and [`Error::Shape`] where the parameters or the running statistics differ in number, name or
    /// shape, and those of the device.
    pub fn sharing(mut self, backend: &B, of: &mut Self) -> Result<Self, Error> {
        let (mut own, others) = (self.parameters_mut(), of.parameters());
        Error::expect("Network::sharing", "parameters", own.len(), others.len())?;
        for (own, other) in own.iter_mut().zip(others) {
            own.share(other)?;
        }
        let (own, others) = (self.buffers_mut(), of.buffers());
        Error::expect("Network::sharing", "buffers", own.len(), others.len())?;
        for ((_, own), (_, other)) in own.into_iter().zip(others) {
            own.write_f32(backend, &other.to_f32(backend)?)?;
        }
        backend.synchronize()?;
        Ok(self)
    }

    /// Layers that aggregate: graphs of [`Inputs::graphs`], and hops of a sampled batch.
    pub fn hops(&self) -> usize {
        self.model.hops()
    }

    /// From now on passes keep what each layer writes, for [`Network::activations`].
    pub fn keep_activations(&mut self) {
        self.keeps_activations = true;
    }

    /// Layers, those that do not aggregate among them, and the steps of jumping knowledge and readout behind them.
    pub fn depth(&self) -> usize {
        self.compiled.outputs.len()
    }

    /// Whether the first layer aggregates. Features are then those of all sources, on a rank as well, which else has its own rows alone.
    pub fn first_aggregates(&self) -> bool {
        let settings = formula::settings(&self.model);
        settings.first().is_some_and(|first| first.aggregates)
    }

    /// What layer `number` wrote in the last pass, a row for each vertex that it computes: behind bias, norm and activation, before the
    /// dropout of the next layer. The last are the logits.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no such layer, no forward pass has been, or its output is not
    /// [kept](Network::keep_activations).
    pub fn activations(&self, number: usize) -> Result<&Matrix<B, E>, Error> {
        if number >= self.depth() {
            return refuse(format!(
                "it has the layers 0 to {}, and the activations of layer {number} are asked for",
                self.depth() - 1
            ));
        }
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
        let list = self.last.map(|kind| self.compiled.list(kind));
        let list = list.filter(|list| !list.program.kept.is_empty());
        let output = self.compiled.outputs.get(number).copied();
        let place = list.and_then(|list| list.place(output));
        match place.and_then(|place| self.memory.at(place)) {
            Some(matrix) => Ok(matrix),
            None => refuse(format!(
                "the output of layer {number} is not kept; call Network::keep_activations before the pass"
            )),
        }
    }

    /// Messages that were larger than their scales hold, so far: each became the largest that is represented. None where messages are not
    /// quantized.
    ///
    /// # Errors
    /// Those of the device.
    pub fn saturated_messages(&self, backend: &B) -> Result<Option<u64>, Error> {
        if self.model.messages.is_none() {
            return Ok(None);
        }
        let counts = self.memory.quantized();
        let counts = counts.map(|codes| codes.scales().unrepresented(backend));
        let saturated = counts.map(|count| Ok(u64::from(count?.saturated)));
        saturated.sum::<Result<u64, Error>>().map(Some)
    }

    /// Makes the lists and the memory fit the inputs of a pass.
    fn fit(&mut self, kind: Kind, inputs: &Inputs<'_, B, E>) -> Result<(), Error> {
        let features = inputs.features.shape();
        self.fit_to(
            (inputs.backend, kind),
            inputs.graphs,
            (features, inputs.dropped),
        )
    }

    /// The same of features of a shape, of which elements may be dropped already.
    fn fit_to(
        &mut self,
        (backend, kind): (&B, Kind),
        graphs: &[Propagation<B>],
        (features, dropped): ((usize, usize), bool),
    ) -> Result<(), Error> {
        let (mut of, sizes) = topology::of(&self.model, graphs)?;
        of.dropped = match kind {
            Kind::Training => dropped,
            Kind::Evaluation | Kind::Signs => self.compiled.graphs.dropped,
        };
        if of.topology != Topology::Whole && self.model.binary.is_some() {
            return refuse("layers of one bit give a row for each that they read, on one rank; take a whole graph or a subgraph, or leave the ranks out".into());
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
        if let Some(types) = &self.model.types {
            return types::expect_embeddings(types, program);
        }
        let rows = program.named(formula::FEATURES);
        let rows = rows.map_or(0, |features| program.rows(features));
        Error::expect("Network", "rows of the features", rows, features.0)?;
        Error::expect("Network", "features", self.model.features, features.1)
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
        if let Some(signs) = &mut self.compiled.signs {
            signs.places = None;
        }
        self.last = None;
        self.overwrite_weights();
    }

    /// What was computed of frozen weights is computed again.
    fn overwrite_weights(&mut self) {
        if let Weights::There(_) = self.weights {
            self.weights = Weights::Frozen;
        }
    }

    /// The operators of an evaluation: without those of weights where their results are there.
    fn operators_to_evaluate(&self, kind: Kind) -> Range<usize> {
        let program = &self.compiled.list(kind).program;
        let first = match self.weights == Weights::There(kind) {
            true => program.of_weights(),
            false => 0,
        };
        first..program.forward
    }

    /// Runs one of the two passes of a list.
    fn run(
        &mut self,
        inputs: Inputs<'_, B, E>,
        of: (Kind, RandomState<B>),
        backward: bool,
    ) -> Result<(), Error> {
        let program = &self.compiled.list(of.0).program;
        let operators = match backward {
            false => 0..program.forward,
            true => program.forward..program.nodes.len(),
        };
        self.run_with(inputs, of, None, operators)
    }

    /// Runs a list for evaluation.
    fn evaluate(
        &mut self,
        inputs: Inputs<'_, B, E>,
        (kind, random): (Kind, RandomState<B>),
        signs: Option<(Value, &BitMatrix<B>)>,
    ) -> Result<(), Error> {
        let operators = self.operators_to_evaluate(kind);
        self.run_with(inputs, (kind, random), signs, operators)?;
        if self.weights != Weights::Change {
            self.weights = Weights::There(kind);
        }
        Ok(())
    }

    /// The same of bits in the place of features, where the list reads those.
    fn run_with(
        &mut self,
        inputs: Inputs<'_, B, E>,
        (kind, random): (Kind, RandomState<B>),
        signs: Option<(Value, &BitMatrix<B>)>,
        operators: Range<usize>,
    ) -> Result<(), Error> {
        if kind == Kind::Training {
            self.overwrite_weights();
        }
        let list = self.compiled.list(kind);
        let Some(places) = &list.places else {
            return refuse("a backward pass follows a forward pass over the same graph".into());
        };
        let program = &list.program;
        let edges: Vec<&Propagation<B>> = inputs.graphs.iter().collect();
        let read = match &self.model.types {
            Some(types) => types::inputs_of(types, program, &inputs)?,
            None => {
                let read = program.named(formula::FEATURES);
                Vec::from_iter(read.map(|value| (value, inputs.features)))
            }
        };
        let mut typed = Typed {
            backend: inputs.backend.clone(),
            program,
            places,
            edges: &edges,
            inputs: &read,
            signs,
            random,
            parameters: &mut self.parameters,
            memory: &mut self.memory,
        };
        typed.run(operators)
    }

    /// The first operator of a forward pass that writes an infinity or a NaN. Buffers are afterwards what they were.
    fn first_spoilt(
        &mut self,
        inputs: Inputs<'_, B, E>,
        random: &RandomState<B>,
    ) -> Result<Option<String>, Error> {
        let backend = inputs.backend;
        self.fit(Kind::Training, &inputs)?;
        self.keeping_buffers(backend, |network| {
            for number in 0..network.compiled.training.program.forward {
                let of = (Kind::Training, random.clone());
                network.run_with(inputs, of, None, number..number + 1)?;
                let list = &network.compiled.training;
                let node = &list.program.nodes[number];
                for result in &node.results {
                    let place = list.place(Some(*result));
                    let spoilt = place.map(|place| network.memory.is_spoilt(backend, place));
                    if spoilt.transpose()? == Some(true) {
                        return Ok(Some(list.program.operator_text(&node.operator)));
                    }
                }
            }
            Ok(None)
        })
    }

    /// Does `work` of training, and has buffers be what they were, also where it fails.
    fn keeping_buffers<T>(
        &mut self,
        backend: &B,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let buffers = self.carried_on().into_iter();
        let before = buffers.map(|buffer| buffer.to_f32(backend));
        let before = before.collect::<Result<Vec<_>, _>>()?;
        let done = work(self);
        for (buffer, values) in self.carried_on().into_iter().zip(before) {
            buffer.write_f32(backend, &values)?;
        }
        done
    }

    /// What one step leaves for the next besides parameters.
    fn carried_on(&mut self) -> Vec<&mut Matrix<B, f32>> {
        let buffers = self.parameters.buffers_mut().iter_mut();
        let messages = self.memory.messages_mut().map(|(_, matrix)| matrix);
        buffers.map(|(_, matrix)| matrix).chain(messages).collect()
    }

    fn logits_place(&self) -> Option<Place> {
        let list = self.compiled.list(self.last?);
        list.place(list.program.output)
    }
}
