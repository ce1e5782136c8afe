//! Models with explicit forward and backward passes, generic over backend and precision.
//!
//! State tensors (activations and their gradients) have the element type `E`. Master weights, their gradients and the
//! optimiser's moments are float, and kernels read a copy of the weights that is rounded to `E` (HalfGNN §5; in float
//! precision there is no copy). Gradients flow through the layers times the loss scale.
//! [`cross_entropy`](crate::ops::cross_entropy) multiplies it in and [`update`](crate::ops::update) divides it out,
//! both on the device.
//!
//! A [`Network`] is a [program](crate::program) of operators. Its memory is planned from their list, so a step after
//! the first allocates nothing.

mod aggregation;
mod appnp;
pub mod architecture;
mod binary;
mod codes;
mod config;
pub(crate) mod decoder;
mod edge_features;
mod gat;
mod gatv2;
mod gcn;
mod gcnii;
mod gin;
mod halo;
mod heads;
mod hidden_activation;
mod hidden_norm;
mod init;
mod jumping;
mod parameter;
mod pieces;
mod precision;
mod propagation;
mod readout;
#[cfg(feature = "parts")]
mod rows;
mod rows_of_pieces;
mod sage;
mod statistics;
mod types;
mod weights;

pub use crate::program::Network;
pub use crate::program::layers::{
    Arma, Cg, Cheb, ClusterGcn, Edge, GatedGraph, Gen, Gine, GraphConv, Hetero, Hgt, Le, MixHop,
    Pna, ResGated, Rgcn, Sg, Ssg, Tag, Transformer,
};
pub(crate) use aggregation::{check_policy_of_weights, rounds_by_default};
pub use appnp::Appnp;
pub use architecture::{
    Architecture, ConvolutionConfig, ModelKind, ModelOption, OtherLayers, OwnLayers,
};
pub use binary::Binary;
#[cfg(feature = "checkpoints")]
pub(crate) use binary::magnitudes_of_rows;
pub(crate) use codes::{MARGIN, store_in_8_bits};
pub use config::{ModelConfig, Store, WeightedGraph};
pub(crate) use decoder::WIDTH as EDGE_WIDTH;
pub use decoder::{Bilinear, Decoder, LinkDecoder, Mlp, PairScores};
pub use edge_features::{EdgeColumns, EdgeData, EdgeFeatures, EdgePlanes, PreparedGraph};
pub use gat::Gat;
pub use gatv2::GatV2;
pub use gcn::Gcn;
pub use gcnii::Gcnii;
pub(crate) use gin::balancing_power;
pub use gin::{Aggregate, Gin};
pub use halo::Halo;
pub(crate) use heads::refusal as check_heads;
pub use hidden_activation::HiddenActivation;
pub use hidden_norm::HiddenNorm;
pub use init::glorot_uniform;
pub use jumping::Jumping;
pub use parameter::Parameter;
pub(crate) use parameter::first_overflow;
pub use pieces::Pieces;
pub use precision::kept_as;
pub use propagation::{Degrees, EdgeFactors, GraphFactors, Norm, PartFactors, Propagation};
pub use readout::Readout;
#[cfg(feature = "parts")]
pub use rows::PreparedRows;
pub(crate) use rows_of_pieces::{RowsOfPieces, take_rows};
pub use sage::Sage;
pub use statistics::Statistics;
pub use types::{ModelEdgeType, ModelTypes, ModelVertexType};

use crate::backend::Backend;
use crate::data::FeatureRows;
use crate::error::Error;
use crate::ops::{Dropout, RandomState};
use crate::tensor::{Element, Matrix};
use std::fmt;

/// Distinguishes the random numbers of dropout, so that initial weights have none of them.
pub(crate) const DROPOUT_STREAM: u32 = 0x6472_6f70;

/// What a model computes on.
#[derive(Debug)]
pub struct Inputs<'a, B: Backend, E: Element> {
    /// Where it computes.
    pub backend: &'a B,
    /// The graph of each layer that aggregates, in their order; or one for all layers, such as a whole graph. The graph
    /// of a [readout](Readout), if there is one, follows them.
    ///
    /// A layer writes a row for each destination of its graph. Those are the sources of the next graph.
    pub graphs: &'a [Propagation<B>],
    /// Sources of the first graph × input features.
    pub features: &'a Matrix<B, E>,
    /// Features of the other types of vertices that have some, for a model of
    /// [several types](ModelTypes::others_with_features). Then [`Inputs::features`] are those of the labelled type, and
    /// [`Inputs::graphs`] has one graph for each type of edges.
    pub of_types: &'a [Matrix<B, E>],
    /// Whether those have gone through the model's [dropout of features](Model::dropout_of_features) of the same mode.
    /// The forward and the backward pass of a step must agree.
    pub dropped: bool,
}

impl<B: Backend, E: Element> Clone for Inputs<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend, E: Element> Copy for Inputs<'_, B, E> {}

/// What a forward pass is for.
#[derive(Debug)]
pub enum Mode<'a, B: Backend> {
    /// Dropout is on: a function of the seed, the step and the place alone.
    Train {
        /// Its seed and its step; no two steps of a run drop alike.
        random: &'a RandomState<B>,
    },
    /// Dropout is off, and inputs of a backward pass are not kept.
    Evaluate,
}

impl<B: Backend> Clone for Mode<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Mode<'_, B> {}

/// The operands of a loss of links: see [`Model::link_operands`].
#[derive(Debug)]
pub struct LinkOperands<'a, B: Backend, E: Element> {
    /// The embeddings.
    pub logits: &'a Matrix<B, E>,
    /// Where a backward pass reads their gradient.
    pub gradient: &'a mut Matrix<B, E>,
    /// The decoder, which has gradients of its own; dot products where absent.
    pub decoder: Option<&'a mut Decoder<B, E>>,
}

/// A model that gives each vertex one logit a class.
pub trait Model<B: Backend, E: Element>: fmt::Debug {
    /// Computes the logits from the features.
    ///
    /// # Errors
    /// [`Error::Shape`] where the model does not fit the inputs, and those of the device.
    fn forward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error>;

    /// Takes the statistics that steps on batches need from the features of all vertices: a binary network normalises
    /// by them. A [trainer](crate::train::Trainer) calls it before the first step.
    ///
    /// # Errors
    /// [`Error::Unsupported`] of features that are not in memory at once, where they are needed.
    fn see_features(&mut self, _backend: &B, _features: &FeatureRows<B, E>) -> Result<(), Error> {
        Ok(())
    }

    /// The dropout at the beginning of a pass, where nothing else reads the features. A caller that gathers rows of a
    /// larger graph may drop their elements on the way, and sets [`Inputs::dropped`].
    fn dropout_of_features<'a>(&self, _mode: Mode<'a, B>) -> Option<Dropout<'a, B>> {
        None
    }

    /// [`Model::forward`] in [`Mode::Evaluate`] over a graph that is in `pieces`: each layer is computed one piece
    /// after the other, so that no more than a piece lies on the device. `features` has a row for each vertex. Outputs
    /// of layers lie in the host's memory ([`HostFeatures`](crate::backend::MemoryKind::HostFeatures)). Those of the
    /// last, the [logits](Model::logits), and those of the layers in `keep`, numbered from 0, stay until the next pass.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model that has no such pass, [`Error::Shape`] where there is another number of
    /// rows, and those of [`Model::forward`].
    fn forward_in_pieces(
        &mut self,
        _backend: &B,
        _features: &FeatureRows<B, E>,
        _pieces: &Pieces<E>,
        _keep: &[usize],
    ) -> Result<(), Error> {
        Err(Error::Unsupported {
            operator: "Model::forward_in_pieces",
            reason: "the model computes on whole graphs alone; take a Network, or the graph whole"
                .into(),
        })
    }

    /// Logits of a vertex.
    fn classes(&self) -> usize;

    /// The logits of the last forward pass, a row for each destination of the last graph; without rows before the
    /// first.
    fn logits(&self) -> &Matrix<B, E>;

    /// The logits of the last forward pass, and where [`Model::backward`] reads the gradient with respect to them.
    fn loss_operands(&mut self) -> (&Matrix<B, E>, &mut Matrix<B, E>);

    /// Computes the gradient of every parameter from the gradient of the logits, for the forward pass before, which
    /// must have had the same inputs and mode.
    ///
    /// # Errors
    /// Those of the device, and [`Error::Unsupported`] in [`Mode::Evaluate`].
    fn backward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error>;

    /// The origin of an overflow that skipped a step: the first operator of the forward pass that writes an infinity or
    /// a NaN, or else the first gradient that holds one. Slow: it runs the forward pass of the last step once more,
    /// operator by operator.
    ///
    /// # Errors
    /// Those of [`Model::forward`].
    fn first_non_finite(
        &mut self,
        inputs: Inputs<'_, B, E>,
        mode: Mode<'_, B>,
    ) -> Result<Option<String>, Error>;

    /// The decoder of a model that learns to predict links; otherwise scores are dot products.
    fn decoder(&self) -> Option<&Decoder<B, E>> {
        None
    }

    /// [`Model::loss_operands`], and the [decoder](Model::decoder).
    fn link_operands(&mut self) -> LinkOperands<'_, B, E> {
        let (logits, gradient) = self.loss_operands();
        LinkOperands {
            logits,
            gradient,
            decoder: None,
        }
    }

    /// What is neither a parameter nor recomputed in every step, by name: the running statistics of a batch
    /// normalisation. A checkpoint holds them as well as the parameters.
    fn buffers(&self) -> Vec<(String, &Matrix<B, f32>)> {
        Vec::new()
    }

    /// The same, in the same order.
    fn buffers_mut(&mut self) -> Vec<(String, &mut Matrix<B, f32>)> {
        Vec::new()
    }

    /// The largest magnitudes of quantized messages and of stored activations in the last pass. One that is not finite
    /// shows an overflow that no gradient of a parameter shows, and the step is skipped.
    fn watched(&self) -> Vec<&Matrix<B, f32>> {
        Vec::new()
    }

    /// The same, in the same order; none is negative. Each becomes the largest over ranks that take a step together.
    fn watched_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        Vec::new()
    }

    /// The [buffers](Model::buffers) that become means over the ranks that take a step on parts of a batch.
    fn statistics_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        let buffers = self.buffers_mut().into_iter();
        buffers.map(|(_, buffer)| buffer).collect()
    }

    /// What becomes the largest over such ranks; none is negative. It is what is [watched](Model::watched_mut), and the
    /// scales of quantized messages, which each rank found for itself in its first step.
    fn shared_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        self.watched_mut()
    }

    /// Does what a step does in addition to its passes, on a rank that has none of its vertices. Scales of quantized
    /// messages are updated as on the other ranks. Nothing of the step before is [watched](Model::watched) any more.
    ///
    /// # Errors
    /// Those of the device.
    fn sends_nothing(&mut self, backend: &B) -> Result<(), Error> {
        let _ = backend;
        Ok(())
    }

    /// The parameters, in a fixed order.
    fn parameters(&self) -> Vec<&Parameter<B, E>>;

    /// The parameters, in the same order.
    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>>;
}
