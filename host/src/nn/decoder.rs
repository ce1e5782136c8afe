//! Decoders of links: how the rows of two vertices become the score of their pair.
//!
//! | | score of the pair of `u` and `v` |
//! |---|---|
//! | [`LinkDecoder::Dot`] | `z_u · z_v` |
//! | [`LinkDecoder::Bilinear`] | `z_uᵀ W z_v` |
//! | [`LinkDecoder::Mlp`] | `w₂ · relu(W₁ [z_u ‖ z_v] + b₁) + b₂` |
//!
//! The links of an undirected graph have no direction. The score of a pair is therefore the mean of a decoder's scores
//! in its two orders: in training, in evaluation, and in [`Network::score_pairs`](super::Network::score_pairs).
//!
//! A bilinear score is then a dot product of `z_u` and `y_v`, where `y = z (W + Wᵀ) / 2`: an [SDDMM](ops::sddmm), like
//! the plain dot product. The first map of an MLP becomes two maps of vertices, `a = z W_u` and `b = z W_v + b₁`. The
//! rest of an edge, `w₂ · relu(a_u + b_v)`, is the [score of additive attention](ops::additive_scores) with a slope of
//! 0. No matrix has a row for each edge. Pairs stand in both directions, with equal slopes of the loss. One pass over
//! the rows of the graph of pairs therefore gives each gradient, and none needs a transpose.

use super::{Parameter, glorot_uniform};
use crate::backend::{Adjacency, Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{
    self, Activation, Additive, AdditiveGradientOperands, Combine, Epilogue, Form, edge_values,
};
use crate::tensor::{Array, Element, Matrix};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Columns of the matrix that numbers of edges are seen as: a vector of any format.
pub(crate) const WIDTH: usize = 8;
/// The numbers of a decoder's parameters are none of a layer's.
const PLACE: u32 = 0xffff;

/// How the score of a pair of vertices is made of their embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkDecoder {
    /// Their dot product; nothing is learnt (Kipf and Welling, 2016).
    #[default]
    Dot,
    /// By a matrix that is learnt, as wide as they are.
    Bilinear,
    /// By two linear maps of both, side by side, with a ReLU between them; the hidden rows are as wide as one of them.
    Mlp,
}

impl LinkDecoder {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Dot, Self::Bilinear, Self::Mlp];

    /// The name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dot => "dot",
            Self::Bilinear => "bilinear",
            Self::Mlp => "mlp",
        }
    }

    /// Whether nothing is learnt.
    pub(super) fn is_dot(&self) -> bool {
        *self == Self::Dot
    }
}

impl fmt::Display for LinkDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A [`LinkDecoder`] that learns.
#[derive(Debug)]
pub enum Decoder<B: Backend, E: Element> {
    /// [`LinkDecoder::Bilinear`].
    Bilinear(Bilinear<B, E>),
    /// [`LinkDecoder::Mlp`].
    Mlp(Box<Mlp<B, E>>),
}

impl<B: Backend, E: Element> Decoder<B, E> {
    /// The decoder of embeddings of `width` numbers, with the weights of `seed`; none where nothing is learnt. Its
    /// parameters' names begin with `decoder.`.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::Driver`] where there is not enough memory.
    pub fn new(
        backend: &B,
        kind: LinkDecoder,
        width: usize,
        seed: u64,
    ) -> Result<Option<Self>, Error> {
        Ok(match kind {
            LinkDecoder::Dot => None,
            LinkDecoder::Bilinear => Some(Self::Bilinear(Bilinear::new(backend, width, seed)?)),
            LinkDecoder::Mlp => Some(Self::Mlp(Box::new(Mlp::new(backend, width, seed)?))),
        })
    }

    /// Which it is.
    pub fn kind(&self) -> LinkDecoder {
        match self {
            Self::Bilinear(_) => LinkDecoder::Bilinear,
            Self::Mlp(_) => LinkDecoder::Mlp,
        }
    }

    pub(crate) fn parameters(&self) -> Vec<&Parameter<B, E>> {
        match self {
            Self::Bilinear(Bilinear { weight }) => vec![weight],
            Self::Mlp(mlp) => vec![&mlp.first, &mlp.second, &mlp.bias, &mlp.vector, &mlp.offset],
        }
    }

    pub(crate) fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        match self {
            Self::Bilinear(Bilinear { weight }) => vec![weight],
            Self::Mlp(mlp) => vec![
                &mut mlp.first,
                &mut mlp.second,
                &mut mlp.bias,
                &mut mlp.vector,
                &mut mlp.offset,
            ],
        }
    }

    /// What scores of pairs are made of, of the embeddings `z`.
    fn on_host(&self, backend: &B, z: &Matrix<B, E>) -> Result<HostScores, Error> {
        Ok(match self {
            Self::Bilinear(bilinear) => HostScores::Bilinear {
                z: Rows::of(backend, z)?,
                y: Rows::of(backend, &bilinear.map(backend, z)?)?,
            },
            Self::Mlp(mlp) => {
                let [first, second] = mlp.maps(backend, z)?;
                HostScores::Mlp {
                    first: Rows::of(backend, &first)?,
                    second: Rows::of(backend, &second)?,
                    vector: mlp.vector.values().to_f32(backend)?,
                    offset: f64::from(mlp.offset.master().to_f32(backend)?[0]),
                }
            }
        })
    }
}

/// Scores of pairs on the host, by the embeddings of one pass: see
/// [`Network::pair_scores`](super::Network::pair_scores).
#[derive(Debug)]
pub struct PairScores(HostScores);

#[derive(Debug)]
enum HostScores {
    Dot {
        z: Rows,
    },
    Bilinear {
        z: Rows,
        y: Rows,
    },
    Mlp {
        first: Rows,
        second: Rows,
        vector: Vec<f32>,
        offset: f64,
    },
}

impl PairScores {
    /// Those of the embeddings `z`, by dot products where there is no decoder.
    pub(crate) fn new<B: Backend, E: Element>(
        backend: &B,
        z: &Matrix<B, E>,
        decoder: Option<&Decoder<B, E>>,
    ) -> Result<Self, Error> {
        Ok(Self(match decoder {
            Some(decoder) => decoder.on_host(backend, z)?,
            None => HostScores::Dot {
                z: Rows::of(backend, z)?,
            },
        }))
    }

    /// Vertices that have embeddings.
    pub fn vertices(&self) -> usize {
        match &self.0 {
            HostScores::Dot { z } | HostScores::Bilinear { z, .. } => z.rows,
            HostScores::Mlp { first, .. } => first.rows,
        }
    }

    /// The score of each of `pairs`: the mean of the two orders of a pair. The probability of a link is its sigmoid.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a pair names a vertex that has no embedding.
    pub fn score(&self, pairs: &[[u32; 2]]) -> Result<Vec<f32>, Error> {
        let rows = self.vertices();
        if let Some(vertex) = pairs.iter().flatten().find(|&&end| end as usize >= rows) {
            return Err(Error::Unsupported {
                operator: "PairScores",
                reason: format!("a pair names vertex {vertex}, and there are embeddings of {rows}"),
            });
        }
        Ok(match &self.0 {
            HostScores::Dot { z } => {
                let score = |&[a, b]: &[u32; 2]| dot(z.get(a), z.get(b)) as f32;
                pairs.iter().map(score).collect()
            }
            HostScores::Bilinear { z, y } => mean_of_orders(pairs, |a, b| dot(z.get(a), y.get(b))),
            HostScores::Mlp {
                first,
                second,
                vector,
                offset,
            } => mean_of_orders(pairs, |a, b| {
                let hidden = first.get(a).iter().zip(second.get(b));
                let terms = hidden.zip(vector).map(|((a, b), weight)| {
                    f64::from(*weight) * (f64::from(*a) + f64::from(*b)).max(0.0)
                });
                terms.sum::<f64>() + offset
            }),
        })
    }
}

/// A matrix on the host.
#[derive(Debug)]
struct Rows {
    values: Vec<f32>,
    rows: usize,
    columns: usize,
}

impl Rows {
    fn of<B: Backend, E: Element>(backend: &B, matrix: &Matrix<B, E>) -> Result<Self, Error> {
        Ok(Self {
            values: matrix.to_f32(backend)?,
            rows: matrix.rows(),
            columns: matrix.columns(),
        })
    }

    fn get(&self, row: u32) -> &[f32] {
        &self.values[row as usize * self.columns..][..self.columns]
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    let terms = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
    terms.sum()
}

fn mean_of_orders(pairs: &[[u32; 2]], score: impl Fn(u32, u32) -> f64) -> Vec<f32> {
    let mean = |&[a, b]: &[u32; 2]| (0.5 * (score(a, b) + score(b, a))) as f32;
    pairs.iter().map(mean).collect()
}

/// A matrix of `z`'s rows.
fn rows_like<B: Backend, E: Element>(
    backend: &B,
    z: &Matrix<B, E>,
    columns: usize,
) -> Result<Matrix<B, E>, Error> {
    Matrix::uninit(backend, z.rows(), columns, MemoryKind::Workspace)
}

fn initial((inputs, outputs): (usize, usize), seed: u64, number: u32) -> Vec<f32> {
    glorot_uniform(inputs, outputs, seed, PLACE | number << 16)
}

/// Scores by a matrix.
#[derive(Debug)]
pub struct Bilinear<B: Backend, E: Element> {
    weight: Parameter<B, E>,
}

impl<B: Backend, E: Element> Bilinear<B, E> {
    fn new(backend: &B, width: usize, seed: u64) -> Result<Self, Error> {
        let shape = (width, width);
        let weight = Parameter::weights(backend, "decoder.weight".into(), shape, || {
            initial(shape, seed, 0)
        })?;
        Ok(Self { weight })
    }

    /// `x (W + Wᵀ) / 2`
    fn map_into(&self, backend: &B, x: &Matrix<B, E>, y: &mut Matrix<B, E>) -> Result<(), Error> {
        let half = Epilogue {
            alpha: 0.5,
            ..Epilogue::default()
        };
        let weight = self.weight.values();
        let mut turned = rows_like(backend, x, x.columns())?;
        ops::matmul(backend, Form::NN, x, weight, &half, y)?;
        ops::matmul(backend, Form::NT, x, weight, &half, &mut turned)?;
        ops::combine(backend, &Combine::sum(), &turned, y)
    }

    /// The rows whose dot products with `z` are the scores.
    pub(crate) fn map(&self, backend: &B, z: &Matrix<B, E>) -> Result<Matrix<B, E>, Error> {
        let mut y = rows_like(backend, z, z.columns())?;
        self.map_into(backend, z, &mut y)?;
        Ok(y)
    }

    /// The gradients of the matrix and of `z`. `d` is what the gradient of `z` would be if the scores were its dot
    /// products: twice the sum over the pairs of each vertex.
    pub(crate) fn backward(
        &mut self,
        backend: &B,
        z: &Matrix<B, E>,
        d: &Matrix<B, E>,
        dz: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        self.map_into(backend, d, dz)?;
        let half = Epilogue {
            alpha: 0.5,
            ..Epilogue::default()
        };
        ops::matmul(backend, Form::TN, z, d, &half, self.weight.gradient_mut())
    }
}

/// Scores by two linear maps with a ReLU between them.
#[derive(Debug)]
pub struct Mlp<B: Backend, E: Element> {
    /// What the first map has of a pair's first vertex, and of its second.
    first: Parameter<B, E>,
    second: Parameter<B, E>,
    bias: Parameter<B, E>,
    /// The second map.
    vector: Parameter<B, E>,
    /// Its bias, 1 × 1.
    offset: Parameter<B, E>,
    /// 1 × [`WIDTH`].
    ones: Matrix<B, f32>,
}

impl<B: Backend, E: Element> Mlp<B, E> {
    fn new(backend: &B, width: usize, seed: u64) -> Result<Self, Error> {
        // Those of a map of both, side by side: halves of its rows.
        let both = || initial((2 * width, width), seed, 0);
        let map = |name: &str, half: usize| {
            Parameter::weights(backend, name.to_owned(), (width, width), || {
                both()[half * width * width..][..width * width].to_vec()
            })
        };
        let vector = Parameter::weights(backend, "decoder.vector".into(), (1, width), || {
            initial((width, 1), seed, 1)
        })?;
        let kind = MemoryKind::Weights;
        Ok(Self {
            first: map("decoder.first.weight", 0)?,
            second: map("decoder.second.weight", 1)?,
            bias: Parameter::bias(backend, "decoder.bias".into(), width)?,
            vector,
            offset: Parameter::bias(backend, "decoder.offset".into(), 1)?,
            ones: Matrix::from_f32(backend, 1, WIDTH, &[1.0; WIDTH], kind)?,
        })
    }

    /// What each vertex has of the hidden rows of its pairs: as the first of a pair, and as the second.
    pub(crate) fn maps(&self, backend: &B, z: &Matrix<B, E>) -> Result<[Matrix<B, E>; 2], Error> {
        let width = self.bias.shape().1;
        let mut maps = [rows_like(backend, z, width)?, rows_like(backend, z, width)?];
        let with_bias = Epilogue {
            bias: Some(self.bias.master()),
            ..Epilogue::default()
        };
        let [first, second] = &mut maps;
        let weight = self.first.values();
        ops::matmul(backend, Form::NN, z, weight, &Epilogue::default(), first)?;
        ops::matmul(
            backend,
            Form::NN,
            z,
            self.second.values(),
            &with_bias,
            second,
        )?;
        Ok(maps)
    }

    fn additive<'a>(&'a self, u: &'a Matrix<B, E>, v: &'a Matrix<B, E>) -> Additive<'a, B, E> {
        Additive {
            heads: 1,
            // Of a ReLU.
            slope: 0.0,
            vector: self.vector.values(),
            u,
            v,
        }
    }

    /// The score of each edge of a graph of pairs, the mean of its two orders, as rows of [`WIDTH`].
    pub(crate) fn scores(
        &self,
        backend: &B,
        pairs: &Adjacency<B>,
        [first, second]: &[Matrix<B, E>; 2],
    ) -> Result<Matrix<B, f32>, Error> {
        let len = edge_values(pairs, 1);
        let scores = |of: Additive<'_, B, E>| {
            let mut scores = Array::zeros(backend, len, MemoryKind::Workspace)?;
            ops::additive_scores(backend, pairs, of, &mut scores)?;
            Matrix::from_array(scores, len / WIDTH, WIDTH)
        };
        let mut sum = scores(self.additive(first, second))?;
        let other = scores(self.additive(second, first))?;
        let mean = Combine {
            x_factor: 0.5,
            y_factor: 0.5,
            ..Combine::sum()
        };
        ops::combine(backend, &mean, &other, &mut sum)?;
        let mut offsets = Matrix::uninit(backend, 1, WIDTH, MemoryKind::Workspace)?;
        let (offset, plain) = (self.offset.master(), Epilogue::default());
        ops::matmul(backend, Form::NN, offset, &self.ones, &plain, &mut offsets)?;
        let add = Activation {
            bias: Some(&offsets),
            relu: false,
            dropout: None,
        };
        ops::activate(backend, &add, None, &mut sum)?;
        Ok(sum)
    }

    /// The gradients of the parameters and of `z`, from that of the scores of a graph that has its pairs in both
    /// directions.
    pub(crate) fn backward(
        &mut self,
        backend: &B,
        pairs: &Adjacency<B>,
        (z, [first, second]): (&Matrix<B, E>, &[Matrix<B, E>; 2]),
        slopes: Matrix<B, f32>,
        dz: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let plain = &Epilogue::default();
        let mut sums = Matrix::<_, f32>::uninit(backend, 1, WIDTH, MemoryKind::Workspace)?;
        ops::column_sums(backend, &slopes, &mut sums)?;
        let offset = self.offset.gradient_mut();
        ops::matmul(backend, Form::NT, &sums, &self.ones, plain, offset)?;

        // Both orders of a pair have the same slope, half of the pair's. A row's sum over both orders is therefore the
        // whole gradient.
        let d = &slopes.into_array()?;
        let width = first.columns();
        let rows = || rows_like(backend, z, width);
        let (mut d_first, mut d_second, mut of_vector) = (rows()?, rows()?, rows()?);
        for (op, du, of_vector) in [
            (
                self.additive(first, second),
                &mut d_first,
                Some(&mut of_vector),
            ),
            (self.additive(second, first), &mut d_second, None),
        ] {
            let operands = AdditiveGradientOperands {
                a: pairs,
                op,
                d,
                du,
                of_vector,
            };
            ops::additive_gradient(backend, operands)?;
        }
        ops::column_sums(backend, &of_vector, self.vector.gradient_mut())?;
        ops::column_sums(backend, &d_second, self.bias.gradient_mut())?;
        for (map, d) in [(&mut self.first, &d_first), (&mut self.second, &d_second)] {
            ops::matmul(backend, Form::TN, z, d, plain, map.gradient_mut())?;
        }
        let mut product = rows_like(backend, z, z.columns())?;
        ops::matmul(backend, Form::NT, &d_first, self.first.values(), plain, dz)?;
        let (d, weight) = (&d_second, self.second.values());
        ops::matmul(backend, Form::NT, d, weight, plain, &mut product)?;
        ops::combine(backend, &Combine::sum(), &product, dz)
    }
}
