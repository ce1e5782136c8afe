//! What each operator of a training step takes, next to the bytes that it must move.

use super::{Kind, Network};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::nn::{Inputs, Model};
use crate::ops::{self, Combine, RandomState};
use crate::program::traffic::Traffic;
use crate::tensor::{Element, Matrix};
use std::fmt;

/// Times of a training step and of its operators, next to the bytes that they must move.
///
/// The bytes are the least that an operator moves, whatever its kernel does: see
/// [`Program::traffic`](crate::program::Program::traffic). The loss and the optimizer are not part of it.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The operators, in their order.
    pub operators: Vec<TimedOperator>,
    /// Milliseconds of the operators of both passes together, replayed where the backend records steps.
    pub ms: f64,
    /// Bytes that a copy of a large matrix reads and writes in a second, on the same device in the same run.
    pub bytes_per_second: f64,
}

/// An operator, and what it takes.
#[derive(Clone, Debug)]
pub struct TimedOperator {
    /// The operator with its operands, as in the text of a program.
    pub text: String,
    /// Whether it is of the backward pass.
    pub is_backward: bool,
    /// Milliseconds of the operator alone: the median over the steps.
    pub ms: f64,
    /// The least bytes that it moves.
    pub traffic: Traffic,
}

impl Profile {
    /// The share of the copy's bandwidth at which an operator moves its bytes. It is above 1 where a cache has what is read.
    pub fn share(&self, of: &TimedOperator) -> f64 {
        of.traffic.bytes() as f64 / (of.ms * 1e-3 * self.bytes_per_second)
    }

    /// Bytes of all operators.
    pub fn bytes(&self) -> u64 {
        self.operators.iter().map(|of| of.traffic.bytes()).sum()
    }

    /// The time of the step over the time that its bytes take at the copy's bandwidth.
    pub fn over_bytes(&self) -> f64 {
        self.ms * 1e-3 * self.bytes_per_second / self.bytes() as f64
    }
}

impl fmt::Display for Profile {
    /// A line for each operator, with milliseconds, megabytes and the share of the bandwidth; then a line for the step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MB: f64 = 1e6;
        writeln!(f, "{:>10} {:>12} {:>7}  operator", "ms", "MB", "share")?;
        let mut is_backward = false;
        for of in &self.operators {
            if of.is_backward && !is_backward {
                writeln!(f, "backward")?;
            }
            is_backward = of.is_backward;
            let (mb, share) = (of.traffic.bytes() as f64 / MB, 100.0 * self.share(of));
            writeln!(f, "{:>10.4} {mb:>12.3} {share:>6.0}%  {}", of.ms, of.text)?;
        }
        write!(
            f,
            "step: {:.4} ms, {:.3} MB, {:.2} times the time of its bytes at a copy's {:.1} GB/s",
            self.ms,
            self.bytes() as f64 / MB,
            self.over_bytes(),
            self.bytes_per_second / 1e9
        )
    }
}

impl<B: Backend, E: Element> Network<B, E> {
    /// Times the operators of training steps over `inputs`: the median of `steps` steps behind one that is not timed. Parameters and
    /// buffers stay as they are. The gradient of the output is ones.
    ///
    /// ```
    /// use halfgnn::backend::cpu::Cpu;
    /// use halfgnn::backend::MemoryKind;
    /// use halfgnn::graph::Graph;
    /// use halfgnn::nn::{Inputs, ModelConfig, Network, Propagation};
    /// use halfgnn::ops::RandomState;
    /// use halfgnn::tensor::Matrix;
    ///
    /// let backend = Cpu::new();
    /// let model = ModelConfig::gcn(8, 3);
    /// let graph = Graph::from_edges(3, &[0, 1], &[1, 2])?;
    /// let graphs = [Propagation::new(&backend, &graph, model.norm())?];
    /// let features = Matrix::zeros(&backend, 3, 8, MemoryKind::Features)?;
    /// let mut network = Network::<_, f32>::new(&backend, &model, 0)?;
    /// let inputs = Inputs { backend: &backend, graphs: &graphs, features: &features, of_types: &[], dropped: false };
    /// let profile = network.profile(inputs, &RandomState::new(&backend, 0, 0)?, 3)?;
    /// println!("{profile}");
    /// assert!(profile.operators.iter().any(|of| of.text.starts_with("aggregate")));
    /// # Ok::<(), halfgnn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a forward and a backward pass, and [`Error::Driver`] where there is no memory for the matrices that are copied.
    pub fn profile(
        &mut self,
        inputs: Inputs<'_, B, E>,
        random: &RandomState<B>,
        steps: usize,
    ) -> Result<Profile, Error> {
        let backend = inputs.backend;
        self.fit(Kind::Training, &inputs)?;
        self.last = Some(Kind::Training);
        let (ms, times) = self.keeping_buffers(backend, |network| {
            network.times(inputs, random, steps.max(1))
        })?;
        let program = &self.compiled.training.program;
        let operators = program.nodes.iter().zip(times).enumerate();
        let operators = operators.map(|(number, (node, times))| TimedOperator {
            text: program.operator_text(&node.operator),
            is_backward: number >= program.forward,
            ms: median(times),
            traffic: program.traffic(node),
        });
        Ok(Profile {
            operators: operators.collect(),
            ms,
            bytes_per_second: bandwidth(backend)?,
        })
    }

    /// Milliseconds of a step, and of each operator in each step.
    fn times(
        &mut self,
        inputs: Inputs<'_, B, E>,
        random: &RandomState<B>,
        steps: usize,
    ) -> Result<(f64, Vec<Vec<f64>>), Error> {
        let backend = inputs.backend;
        let operators = self.compiled.training.program.nodes.len();
        let mut times = vec![Vec::new(); operators];
        let mut ones = None;
        for step in 0..=steps {
            for (number, times) in times.iter_mut().enumerate() {
                if number == self.compiled.training.program.forward {
                    let (_, gradient) = self.loss_operands();
                    // An upload would let the device rest, and the next operator be slow.
                    let ones = match &mut ones {
                        Some(ones) => ones,
                        none => none.insert(like(backend, gradient)?),
                    };
                    ops::combine(backend, &Combine::copy(), ones, gradient)?;
                }
                let of = (Kind::Training, random.clone());
                let run = || self.run_with(inputs, of, None, number..number + 1);
                let ms = backend.timed(run)?;
                if step > 0 {
                    times.push(ms);
                }
            }
        }
        // The gradient of the output may lie where the backward pass writes: its values do not change what is launched.
        let mut work = || {
            let of = (Kind::Training, random.clone());
            self.run_with(inputs, of, None, 0..operators)
        };
        let recording = backend.record(&mut work).unwrap_or_else(|error| {
            tracing::warn!("steps are launched one by one: {error}");
            None
        });
        let mut whole = Vec::new();
        for _ in 0..steps {
            whole.push(match &recording {
                Some(recording) => backend.timed(|| backend.replay(recording))?,
                None => backend.timed(&mut work)?,
            });
        }
        Ok((median(whole), times))
    }
}

/// Ones, of the shape of a matrix.
fn like<B: Backend, E: Element>(backend: &B, matrix: &Matrix<B, E>) -> Result<Matrix<B, E>, Error> {
    let (rows, columns) = (matrix.rows(), matrix.columns());
    let ones = vec![1.0; rows * columns];
    Matrix::from_f32(backend, rows, columns, &ones, MemoryKind::Workspace)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// Rows of the matrix that is copied, of [`COLUMNS`] floats: 64 MiB, more than caches hold for reading and writing both.
const ROWS: usize = 1 << 16;

/// Its columns.
const COLUMNS: usize = 256;

/// Copies, of which the fastest counts.
const COPIES: usize = 5;

/// Bytes that a copy of a matrix reads and writes in a second.
fn bandwidth<B: Backend>(backend: &B) -> Result<f64, Error> {
    let zeros = || Matrix::<B, f32>::zeros(backend, ROWS, COLUMNS, MemoryKind::Workspace);
    let (x, mut y) = (zeros()?, zeros()?);
    let mut fastest = f64::INFINITY;
    for _ in 0..COPIES {
        let ms = backend.timed(|| ops::combine(backend, &Combine::copy(), &x, &mut y))?;
        fastest = fastest.min(ms);
    }
    let bytes = 2 * ROWS * COLUMNS * size_of::<f32>();
    Ok(bytes as f64 / (fastest * 1e-3))
}
