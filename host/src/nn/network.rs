//! A model: layers one after the other, with bias, ReLU and dropout between them.
//!
//! A stage is `H' = relu(norm(layer(dropout(H)) + b))`, with `+ H` inside the ReLU where it is residual, each part where it has
//! it. The backward pass mirrors the forward pass. A dropout is done where the stage before writes its output, so that of
//! what follows a layer only one matrix is stored: behind a ReLU an element of it is positive exactly where ReLU and
//! dropout let it through. The features, which are the caller's, the rows of an initial stage, which later layers read
//! as they are, and what comes from another activation than a ReLU are dropped into a matrix of its own. With [`Stage::recompute`] an output is not even stored, where the
//! layer can make it again: it is lent to the next layer, forward, and once more, backward.

mod backward;
mod build;
pub(crate) mod pieces;
mod signs;
mod stage;
mod step;

pub use stage::Stage;

use super::binary;
use super::codes::StoredCodes;
use super::decoder::{self, Decoder};
use super::hidden_norm::StageNorm;
use super::jumping;
use super::layer::dropout;
use super::messages::Messages;
use super::parameter::first_overflow;
use super::{Inputs, LinkOperands, Mode, Model, ModelConfig, Parameter, Pieces, Pool, Propagation};
use crate::backend::{Backend, MemoryKind};
use crate::data::FeatureRows;
use crate::error::Error;
use crate::ops::{self, Activation, Dropout};
use crate::program;
use crate::tensor::{Element, Matrix};
use signs::Source;
use step::{Level, Pass, Step, earlier, input_dropout, ranks};

/// A graph neural network.
///
/// One that is made from a configuration is a function of it and the seed alone: every backend starts from the same
/// weights. It knows widths; what it keeps of vertices is allocated when it first sees them, and again when their number
/// changes.
#[derive(Debug)]
pub struct Network<B: Backend, E: Element> {
    /// Of a kind whose layers are formulas; then there are no steps.
    program: Option<program::Network<B, E>>,
    steps: Vec<Step<B, E>>,
    /// The number of the initial stage.
    initial: Option<usize>,
    /// The numbers of those that jump.
    jumps: Vec<usize>,
    /// What makes scores of pairs of what the last stage gives, where that is learnt.
    decoder: Option<Decoder<B, E>>,
    gradient: Matrix<B, E>,
    pool: Pool<B, E>,
    /// Rows of each stage's output for which there is room.
    rows: Vec<usize>,
    /// Whether evaluations write elements where the next stage reads their signs alone.
    keeps_activations: bool,
    /// Whether the last pass was in pieces, so that the outputs are those that were kept of it.
    in_pieces: bool,
}

fn refuse<T>(reason: String) -> Result<T, Error> {
    Err(Error::Unsupported {
        operator: "Network",
        reason,
    })
}

impl<B: Backend, E: Element> Network<B, E> {
    /// The model of a configuration, with the weights of `seed`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a configuration that makes no model, [`Error::TooLarge`] and [`Error::Driver`] where
    /// there is not enough memory.
    pub fn new(backend: &B, config: &ModelConfig, seed: u64) -> Result<Self, Error> {
        config.check()?;
        if config.convolution.is_program() {
            return Self::of_formulas(backend, config, seed);
        }
        let stages = match (config.binary, config.readout) {
            (Some(_), _) => binary::stages(backend, config, seed)?,
            (None, Some(readout)) if config.jumping.is_none() => {
                readout.stages(backend, config, seed)?
            }
            (None, _) => match config.jumping {
                Some(jumping) => jumping::stages(backend, config, jumping, seed)?,
                None => config.convolution.stages(backend, config, seed)?,
            },
        };
        let stages = stages.into_iter().map(|mut stage| {
            let sends = stage.layer.aggregates() && !stage.layer.pools();
            stage.recompute |= config.recompute;
            stage.messages = config.messages.filter(|_| sends);
            stage.store = config.store;
            stage
        });
        let network = Self::from_layers(backend, stages)?;
        match Decoder::new(backend, config.decoder, config.classes, seed)? {
            Some(decoder) => Ok(network.with_decoder(decoder)),
            None => Ok(network),
        }
    }

    /// This network with a decoder of links, in the place of any other. It must be one of as many numbers as the network gives of a
    /// vertex.
    #[must_use]
    pub fn with_decoder(mut self, decoder: Decoder<B, E>) -> Self {
        match &mut self.program {
            Some(program) => program.set_decoder(decoder),
            None => self.decoder = Some(decoder),
        }
        self
    }

    /// The model of a configuration as a [program](program::Network) of operators, also of a kind whose layers are written by hand as
    /// well.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a configuration that makes no model or asks for what programs do not do, and those of the device.
    pub fn of_formulas(backend: &B, config: &ModelConfig, seed: u64) -> Result<Self, Error> {
        config.check()?;
        let program = program::Network::new(backend, config, seed)?;
        Ok(Self {
            steps: Vec::new(),
            initial: None,
            jumps: Vec::new(),
            decoder: None,
            gradient: Matrix::zeros(backend, 0, 1, MemoryKind::Activations)?,
            pool: Pool::new(),
            rows: Vec::new(),
            in_pieces: false,
            keeps_activations: false,
            program: Some(program),
        })
    }

    /// The score of each of `pairs`, by the embeddings of the last forward pass: the mean of the two orders of a pair. The probability of a
    /// link is its sigmoid. Computed on the host.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a pair names a vertex that there is no embedding of, and those of the device.
    pub fn score_pairs(&self, backend: &B, pairs: &[[u32; 2]]) -> Result<Vec<f32>, Error> {
        let embeddings = self.logits();
        let rows = embeddings.rows();
        if let Some(vertex) = pairs.iter().flatten().find(|&&end| end as usize >= rows) {
            return refuse(format!(
                "a pair names vertex {vertex}, and there are embeddings of {rows}"
            ));
        }
        match self.decoder() {
            Some(decoder) => decoder.score_on_host(backend, embeddings, pairs),
            None => decoder::dots_on_host(backend, embeddings, pairs),
        }
    }

    /// This network with the parameters of another of the same layers, which are not copied: kernels of both read the same
    /// memory. So one network serves several threads at once, each by a network and a stream of its own, with rows and
    /// activations of its own. Running statistics are copied. `backend` is where `of` computes; what it was given to do is
    /// done when this returns.
    ///
    /// While two networks share parameters, nobody can change them: [`Parameter::write`] and a step of an optimiser are
    /// refused. `of` is borrowed as one that is to be changed, so that no recorded step of a
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

    /// Number of stages.
    pub fn depth(&self) -> usize {
        match &self.program {
            Some(program) => program.depth(),
            None => self.steps.len(),
        }
    }

    /// What stage `number` wrote in the last forward pass, a row for each vertex that it computes: hidden activations, behind bias,
    /// ReLU and, in training alone, the dropout of the next stage's input. That of the last stage are the logits.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no such stage, no forward pass has been, or the output is [made
    /// again](Stage::recompute) instead of stored.
    pub fn activations(&self, number: usize) -> Result<&Matrix<B, E>, Error> {
        if number >= self.depth() {
            return refuse(format!(
                "it has the layers 0 to {}, and the activations of layer {number} are asked for",
                self.depth() - 1
            ));
        }
        if let Some(program) = &self.program {
            return program.activations(number);
        }
        let step = &self.steps[number];
        if self.rows.is_empty() {
            return refuse("there are no activations before a forward pass".into());
        }
        match &step.output.matrix {
            _ if step.has_passed_signs => refuse(format!(
                "an evaluation had nothing but the signs of what layer {number} gives; call Network::keep_activations before it"
            )),
            Some(matrix) if step.output.stored => Ok(matrix),
            _ if self.in_pieces => refuse(format!(
                "the output of layer {number} was not kept of a pass in pieces; name it among those to be kept"
            )),
            _ => refuse(format!(
                "the output of layer {number} is not stored; leave recompute out, or activations as they are"
            )),
        }
    }

    /// Makes what layers make of their parameters alone, such as bits of weights, for all evaluations that follow, until parameters are
    /// [given to be changed](Model::parameters_mut).
    ///
    /// # Errors
    /// Those of the device.
    pub fn freeze(&mut self, backend: &B) -> Result<(), Error> {
        let mut layers = self.steps.iter_mut().map(|step| &mut step.layer);
        layers.try_for_each(|layer| layer.freeze(backend))
    }

    /// From now on evaluations write what every stage gives, for [`Network::activations`], also where the next stage
    /// [reads](crate::nn::Layer::reads_signs) nothing but signs, which take a sixteenth of the memory and less time.
    pub fn keep_activations(&mut self) {
        self.keeps_activations = true;
        if let Some(program) = &mut self.program {
            program.keep_activations();
        }
    }

    /// Messages that were larger than their scales had room for, so far: each became the largest that there is a code of. None where
    /// none are sent in codes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn saturated_messages(&self, backend: &B) -> Result<Option<u64>, Error> {
        if let Some(program) = &self.program {
            return program.saturated_messages(backend);
        }
        let messages = self.steps.iter().flat_map(|step| &step.messages);
        let counts: Vec<u64> = messages
            .map(|messages| messages.saturated(backend))
            .collect::<Result<_, _>>()?;
        Ok((!counts.is_empty()).then(|| counts.iter().sum()))
    }

    /// What is kept in codes.
    fn stored(&self) -> impl Iterator<Item = &StoredCodes<B>> {
        let steps = self.steps.iter();
        steps.flat_map(|step| step.layer.stored().into_iter().chain(&step.output.codes))
    }

    /// Layers that hear from neighbours: graphs of [`Inputs::graphs`], and hops of a sampled batch.
    pub fn hops(&self) -> usize {
        if let Some(program) = &self.program {
            return program.model().hops();
        }
        let hops = self.steps.iter().filter(|step| step.layer.aggregates());
        hops.count()
    }

    /// Whether a layer reads the features beside its input.
    fn reads_features(&self) -> bool {
        self.steps.iter().any(|step| step.layer.reads_features())
    }

    /// Whether its first layer hears from neighbours: then features are those of all sources, on a rank as well, which has its own
    /// rows alone else.
    pub fn first_hears(&self) -> bool {
        match &self.program {
            Some(program) => program.first_aggregates(),
            None => self.steps[0].layer.aggregates(),
        }
    }

    /// The graph and the rows of each stage.
    fn levels<'a>(
        &self,
        backend: &B,
        graphs: &'a [Propagation<B>],
        mut rows: usize,
    ) -> Result<Vec<Level<'a, B>>, Error> {
        let wanted = self.hops();
        let pooling = self.steps.iter().filter(|step| step.layer.pools()).count();
        // One for all that do not pool, and one for that which does.
        let two = pooling == 1 && graphs.len() == 2 && wanted != 2;
        if graphs.len() != wanted && !two && (graphs.len() != 1 || pooling > 0) {
            let ways = match pooling {
                0 => "one for all",
                _ => "one for all but the one that pools, and one for that",
            };
            return refuse(format!(
                "{wanted} of its layers hear from neighbours, and there are {} graphs; give one for each, or {ways}",
                graphs.len()
            ));
        }
        if graphs.iter().any(|graph| graph.halo().is_some()) && self.stored().next().is_some() {
            return refuse(
                "of several ranks activations are kept as they are; leave store out, or train with one"
                    .into(),
            );
        }
        let all = graphs;
        let mut pooled = graphs.iter().skip(usize::from(two));
        // One for all never ends.
        let mut graphs = match two {
            true => &graphs[..1],
            false => graphs,
        }
        .iter()
        .cycle();
        let members = all.last().filter(|_| pooling > 0);
        let groups = match members.filter(|_| self.wants_groups()) {
            Some(pooled) => pooled.row_groups(backend)?,
            None => None,
        };
        let levels = self.steps.iter().enumerate().map(|(number, step)| {
            let graph = match step.layer.aggregates() {
                true if two && step.layer.pools() => pooled.next(),
                true => graphs.next(),
                false => None,
            };
            let mut exchange = None;
            if let Some(graph) = graph {
                // Features are those of all sources. Between layers a rank has its own rows, and the others' come behind them.
                exchange = graph.halo().filter(|_| number > 0);
                let wanted = match exchange {
                    Some(_) => graph.destinations(),
                    None => graph.sources(),
                };
                let picks = step.layer.picks_own_rows() && !step.residual && number == 0;
                if graph.own().is_some() && (!picks || self.reads_features()) {
                    return refuse(format!(
                        "the graph of layer {number} has all vertices as its sources, and that or another layer reads its input's rows one by one; draw it with the sources that it meets"
                    ));
                }
                if wanted != rows {
                    return refuse(format!(
                        "the graph of layer {number} has {wanted} sources, and {rows} rows come to it"
                    ));
                }
                rows = graph.destinations();
            }
            Ok(Level {
                graph,
                rows,
                exchange,
                groups: groups.filter(|groups| groups.rows() == rows && !step.layer.pools()),
            })
        });
        levels.collect()
    }

    /// Whether a norm between its layers takes statistics of each graph.
    fn wants_groups(&self) -> bool {
        let mut norms = self.steps.iter().flat_map(|step| &step.norm);
        norms.any(StageNorm::is_of_groups)
    }

    /// Makes room for what stages write.
    fn fit(
        &mut self,
        backend: &B,
        levels: &[Level<'_, B>],
        mode: Mode<'_, B>,
    ) -> Result<(), Error> {
        let rows: Vec<usize> = levels.iter().map(|level| level.rows).collect();
        let last = rows[rows.len() - 1];
        // An evaluation has none.
        if let Mode::Train { .. } = mode
            && self.gradient.rows() != last
        {
            let columns = self.gradient.columns();
            self.gradient = Matrix::uninit(backend, last, columns, MemoryKind::Activations)?;
        }
        if self.rows == rows && !self.in_pieces {
            return Ok(());
        }
        self.in_pieces = false;
        // Of any content: each batch makes it anew, and a pass writes all of it.
        let room = |rows, columns| Matrix::uninit(backend, rows, columns, MemoryKind::Activations);
        // What was lent had other shapes.
        self.pool = Pool::new();
        self.rows.clear();
        let passes_signs: Vec<bool> = (0..rows.len())
            .map(|number| self.passes_signs(number))
            .collect();
        for ((step, &rows), passes_signs) in self.steps.iter_mut().zip(&rows).zip(passes_signs) {
            // What an evaluation need not have is made in training.
            step.output.matrix = if step.output.stored && !passes_signs {
                Some(room(rows, step.output.columns)?)
            } else {
                None
            };
        }
        self.rows = rows;
        Ok(())
    }

    /// Computes what each stage gives, of features of which elements may be dropped already.
    fn pass(
        &mut self,
        backend: &B,
        graphs: &[Propagation<B>],
        (features, dropped): (Source<'_, B, E>, bool),
        mode: Mode<'_, B>,
    ) -> Result<(), Error> {
        let levels = self.levels(backend, graphs, features.rows())?;
        let ranks = ranks(graphs);
        self.fit(backend, &levels, mode)?;
        let is_evaluation = matches!(mode, Mode::Evaluate);
        for (number, level) in levels.iter().enumerate() {
            let passes_signs = is_evaluation && self.passes_signs(number);
            let reads_signs = is_evaluation && self.reads_signs_at(number);
            let activation = self.activation(number, mode);
            let (before, rest) = self.steps.split_at_mut(number);
            let earlier = earlier(
                (self.initial, &self.jumps),
                before,
                // As they were nobody has them then.
                features.elements().filter(|_| !dropped),
                mode,
            );
            let source = match before.last() {
                // Nothing but their signs, which lie with the stage that reads them.
                Some(step) if step.has_passed_signs => Source::Passed,
                Some(step) => Source::Elements(step.output.get()),
                None => features,
            };
            let pass = Pass {
                backend,
                mode,
                number,
                dropped: dropped && number == 0,
                level,
                ranks,
                earlier,
                activation,
            };
            let Some((step, behind)) = rest.split_first_mut() else {
                break;
            };
            step.has_passed_signs = passes_signs;
            match source {
                Source::Elements(source) if !reads_signs => {
                    step.forward(source, pass, &mut self.pool)?;
                }
                source => {
                    let next = behind.first_mut().filter(|_| passes_signs);
                    step.forward_of_signs(source, pass, next, &mut self.pool)?;
                }
            }
            if let Some(step) = before.last_mut() {
                step.output.keep(backend, mode)?;
                step.output.release(&mut self.pool);
            }
        }
        Ok(())
    }

    /// What follows the layer of stage `number` in the same matrix, but for the bias.
    fn activation<'a>(&self, number: usize, mode: Mode<'a, B>) -> Activation<'a, B> {
        let next = self.steps.get(number + 1);
        Activation {
            bias: None,
            relu: self.steps[number].relu,
            dropout: next
                .filter(|next| next.dropped.is_none())
                .and_then(|next| dropout(next.dropout, number as u32 + 1, mode)),
        }
    }
}

impl<B: Backend, E: Element> Model<B, E> for Network<B, E> {
    fn forward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error> {
        if let Some(program) = &mut self.program {
            return program.forward(inputs, mode);
        }
        let Inputs {
            backend,
            graphs,
            features,
            dropped,
        } = inputs;
        let source = Source::Elements(features);
        self.pass(backend, graphs, (source, dropped), mode)
    }

    fn see_features(&mut self, backend: &B, features: &FeatureRows<B, E>) -> Result<(), Error> {
        match self.steps.first_mut() {
            Some(step) => step.layer.see_features(backend, features),
            None => Ok(()),
        }
    }

    fn dropout_of_features<'a>(&self, mode: Mode<'a, B>) -> Option<Dropout<'a, B>> {
        let dropping = input_dropout(self.steps.first()?, 0, mode);
        let dropping = dropping.filter(|_| !self.reads_features());
        dropping.and_then(|op| op.dropout)
    }

    fn forward_in_pieces(
        &mut self,
        backend: &B,
        features: &FeatureRows<B, E>,
        pieces: &Pieces<E>,
        keep: &[usize],
    ) -> Result<(), Error> {
        match &mut self.program {
            Some(program) => program.forward_in_pieces(backend, features, pieces, keep),
            None => self.pass_in_pieces(backend, features, pieces, keep),
        }
    }

    fn classes(&self) -> usize {
        match &self.program {
            Some(program) => program.classes(),
            None => self.gradient.columns(),
        }
    }

    fn logits(&self) -> &Matrix<B, E> {
        match &self.program {
            Some(program) => program.logits(),
            None => self.steps[self.steps.len() - 1].output.get(),
        }
    }

    fn loss_operands(&mut self) -> (&Matrix<B, E>, &mut Matrix<B, E>) {
        let LinkOperands {
            logits, gradient, ..
        } = self.link_operands();
        (logits, gradient)
    }

    fn backward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error> {
        match &mut self.program {
            Some(program) => program.backward(inputs, mode),
            None => self.pass_back(inputs, mode),
        }
    }

    fn decoder(&self) -> Option<&Decoder<B, E>> {
        match &self.program {
            Some(program) => program.decoder(),
            None => self.decoder.as_ref(),
        }
    }

    fn link_operands(&mut self) -> LinkOperands<'_, B, E> {
        if let Some(program) = &mut self.program {
            return program.link_operands();
        }
        let last = self.steps.last().expect("a network has a stage at least");
        LinkOperands {
            logits: last.output.get(),
            gradient: &mut self.gradient,
            decoder: self.decoder.as_mut(),
        }
    }

    fn first_non_finite(&self, backend: &B) -> Result<Option<String>, Error> {
        let spoilt = |matrix: &Matrix<B, E>| {
            // An infinity or a NaN stays one in its column's sum, in float.
            let mut sums = Matrix::zeros(backend, 1, matrix.columns(), MemoryKind::Workspace)?;
            ops::column_sums(backend, matrix, &mut sums)?;
            Ok::<_, Error>(!sums.to_f32(backend)?.iter().all(|sum| sum.is_finite()))
        };
        for (number, step) in self.steps.iter().enumerate() {
            for (name, matrix) in step.layer.kept() {
                if spoilt(matrix)? {
                    return Ok(Some(format!("layers.{number}.{name}")));
                }
            }
            if let Some(norm) = &step.norm
                && spoilt(norm.given())?
            {
                return Ok(Some(format!("layers.{number}.before_hidden_norm")));
            }
            if let Some(output) = &step.output.matrix
                && spoilt(output)?
            {
                return Ok(Some(format!("layers.{number}.output")));
            }
        }
        first_overflow(backend, &self.parameters())
    }

    fn buffers(&self) -> Vec<(String, &Matrix<B, f32>)> {
        if let Some(program) = &self.program {
            return program.buffers();
        }
        let steps = self.steps.iter().enumerate();
        steps
            .flat_map(|(number, step)| {
                let messages = step.messages.iter().flat_map(Messages::buffers);
                let norm = step.norm.iter().filter_map(StageNorm::buffers);
                let buffers = step.layer.buffers().into_iter().chain(norm).chain(messages);
                buffers.map(move |(name, buffer)| (format!("layers.{number}.{name}"), buffer))
            })
            .collect()
    }

    fn buffers_mut(&mut self) -> Vec<(String, &mut Matrix<B, f32>)> {
        if let Some(program) = &mut self.program {
            return program.buffers_mut();
        }
        let steps = self.steps.iter_mut().enumerate();
        steps
            .flat_map(|(number, step)| {
                let messages = step.messages.iter_mut().flat_map(Messages::buffers_mut);
                let norm = step.norm.iter_mut().filter_map(StageNorm::buffers_mut);
                let own = step.layer.buffers_mut().into_iter();
                let buffers = own.chain(norm).chain(messages);
                buffers.map(move |(name, buffer)| (format!("layers.{number}.{name}"), buffer))
            })
            .collect()
    }

    fn statistics_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        if let Some(program) = &mut self.program {
            return program.statistics_mut();
        }
        let steps = self.steps.iter_mut();
        steps
            .flat_map(|step| {
                let norm = step.norm.iter_mut().filter_map(StageNorm::buffers_mut);
                let own = step.layer.buffers_mut().into_iter();
                own.chain(norm).map(|(_, buffer)| buffer)
            })
            .collect()
    }

    fn shared_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        if let Some(program) = &mut self.program {
            return program.shared_mut();
        }
        let messages = self.steps.iter_mut().flat_map(|step| &mut step.messages);
        messages.flat_map(Messages::state_mut).collect()
    }

    fn sends_nothing(&mut self, backend: &B) -> Result<(), Error> {
        if let Some(program) = &mut self.program {
            return program.sends_nothing(backend);
        }
        let mut messages = self.steps.iter_mut().flat_map(|step| &mut step.messages);
        messages.try_for_each(|messages| messages.send_nothing(backend))
    }

    fn watched(&self) -> Vec<&Matrix<B, f32>> {
        if let Some(program) = &self.program {
            return program.watched();
        }
        let messages = self.steps.iter().flat_map(|step| &step.messages);
        let stored = self.stored().map(StoredCodes::largest);
        messages.flat_map(Messages::largest).chain(stored).collect()
    }

    fn watched_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        if let Some(program) = &mut self.program {
            return program.watched_mut();
        }
        let messages = self.steps.iter_mut().flat_map(|step| &mut step.messages);
        messages.flat_map(Messages::largest_mut).collect()
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        if let Some(program) = &self.program {
            return program.parameters();
        }
        let steps = self.steps.iter();
        steps
            .flat_map(|step| {
                let mut all = step.layer.parameters();
                all.extend(&step.bias);
                all.extend(step.norm.iter().flat_map(StageNorm::parameters));
                all
            })
            .chain(self.decoder.iter().flat_map(Decoder::parameters))
            .collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        if let Some(program) = &mut self.program {
            return program.parameters_mut();
        }
        let steps = self.steps.iter_mut();
        steps
            .flat_map(|step| {
                let mut all = step.layer.parameters_mut();
                all.extend(&mut step.bias);
                all.extend(step.norm.iter_mut().flat_map(StageNorm::parameters_mut));
                all
            })
            .chain(self.decoder.iter_mut().flat_map(Decoder::parameters_mut))
            .collect()
    }
}
