//! SpMM: two launches, the edge-parallel kernel and its follow-up, or one, the vertex-parallel kernel. Of rows of very
//! many edges three.

use super::schedule::{Columns, Operand, Plan, Rows, Work};
use super::{
    Accumulate, Aggregation, AttentionPair, AttentionPairOperands, EdgeAttention, EdgeWeights,
    HalfLoad, NAME, QuantizedAttentionPairOperands, QuantizedSpmmOperands, Scaling, Slices,
    SoftmaxGradient, Spmm, SpmmEpilogue, SpmmOperands, SpmmOperators, SpmmPolicy, Write,
};
use crate::backend::Adjacency;
use crate::backend::gpu::{Gpu, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::{self, Activation, Additive, Checked, CodeFormat, Combine, QuantizedMatrix};
use crate::tensor::{Array, Element, Matrix, Precision, padded};
use halfgnn_contract::attention::{self, edge_plane_stride};
use halfgnn_contract::spmm::{self as contract, Load, Scale, Schedule, SpmmParams, Weights};
use halfgnn_contract::{DevicePtr, HalfBits, VECTOR_BYTES, WARP};

impl<D: Driver> SpmmOperators for Gpu<D> {
    fn spmm<E: Element>(&self, operands: Checked<SpmmOperands<'_, Self, E>>) -> Result<(), Error> {
        let SpmmOperands { a, op, x, y } = operands.into_inner();
        self.launch_spmm(a, op, Input::of_matrix(self, x)?, y, (None, None))
    }

    fn quantized_spmm<E: Element>(
        &self,
        operands: Checked<QuantizedSpmmOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let QuantizedSpmmOperands { a, op, x, y } = operands.into_inner();
        self.launch_spmm(a, op, Input::of_codes(self, x)?, y, (None, None))
    }

    fn attention_pair<E: Element>(
        &self,
        operands: Checked<AttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AttentionPairOperands { a, op, x } = operands.into_inner();
        self.launch_pair(a, op, Input::of_matrix(self, x)?)
    }

    fn quantized_attention_pair<E: Element>(
        &self,
        operands: Checked<QuantizedAttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let QuantizedAttentionPairOperands { a, op, x } = operands.into_inner();
        self.launch_pair(a, op, Input::of_codes(self, x)?)
    }
}

impl<D: Driver> Gpu<D> {
    /// Two sums of `x` in one walk.
    fn launch_pair<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: AttentionPair<'_, Self, E>,
        x: Input,
    ) -> Result<(), Error> {
        let spmm = Spmm {
            weights: EdgeWeights::Attention(op.weights),
            policy: op.policy,
            ..Spmm::default()
        };
        let second = SecondSum {
            positive: self.matrix(op.positive)?,
            weights: op.weights,
            softmax_gradient: op.softmax_gradient,
        };
        self.launch_spmm(a, &spmm, x, op.all, (Some(second), None))
    }
}

/// What is added up, as it lies in memory.
struct Input {
    rows: DevicePtr<HalfBits>,
    /// Distance of two rows in 16-byte vectors.
    stride: u32,
    columns: usize,
    /// How quantized values represent numbers, and the scales of the columns, where it is a matrix of those.
    codes: Option<(CodeFormat, DevicePtr<f32>)>,
}

impl Input {
    fn of_matrix<D: Driver, E: Element>(
        gpu: &Gpu<D>,
        x: &Matrix<Gpu<D>, E>,
    ) -> Result<Self, Error> {
        Ok(Self {
            rows: gpu.strided(x)?,
            stride: stride_vectors(NAME, x)?,
            columns: x.columns(),
            codes: None,
        })
    }

    /// Bytes of what a lane loads at once.
    fn load_bytes(&self, load: Load) -> u32 {
        match self.codes {
            Some(_) => load.width(),
            None => load.width() * load.format().bytes(),
        }
    }

    fn of_codes<D: Driver>(gpu: &Gpu<D>, x: &QuantizedMatrix<Gpu<D>>) -> Result<Self, Error> {
        Ok(Self {
            rows: gpu.array(&x.codes)?,
            stride: narrow(NAME, "columns of x", x.stride())? / VECTOR_BYTES,
            columns: x.columns(),
            codes: Some((x.format(), gpu.matrix(&x.scales.scales)?)),
        })
    }
}

/// What an SpMM takes that is the gradient of additive attention.
struct AdditiveSums {
    heads: usize,
    /// The gradient of the scores: planes of floats.
    d: DevicePtr<HalfBits>,
    /// A row a row of the matrix, laid out as the input.
    row_features: DevicePtr<HalfBits>,
    vector: DevicePtr<HalfBits>,
    slope: f32,
    /// The second output, or null.
    of_vector: DevicePtr<HalfBits>,
}

/// The second sum of an SpMM with the weights of attention: what [`AttentionPair`](super::AttentionPair) has in
/// addition to the first.
struct SecondSum<'a, D: Driver> {
    /// The output, of the shape of the first.
    positive: DevicePtr<HalfBits>,
    weights: &'a EdgeAttention<'a, Gpu<D>>,
    softmax_gradient: Option<SoftmaxGradient<'a, Gpu<D>>>,
}

impl<D: Driver> Gpu<D> {
    /// The gradient of additive attention's scores `d` by `u`, and what each row has of that by the vector.
    pub(crate) fn launch_additive_gradient<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Additive<'_, Self, E>,
        d: &Array<Self, f32>,
        du: &mut Matrix<Self, E>,
        of_vector: Option<&mut Matrix<Self, E>>,
    ) -> Result<(), Error> {
        // What the kernel reads with them lies as they do.
        self.matrix::<E, E>(op.v)?;
        self.matrix::<E, E>(du)?;
        let of = AdditiveSums {
            heads: op.heads,
            d: self.array(d)?,
            row_features: self.matrix(op.u)?,
            vector: self.matrix(op.vector)?,
            slope: op.slope,
            of_vector: self.optional_matrix(of_vector.as_deref())?,
        };
        let x = Input::of_matrix(self, op.v)?;
        self.launch_spmm(a, &Spmm::default(), x, du, (None, Some(of)))
    }

    /// An SpMM, of one sum or of two.
    fn launch_spmm<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Spmm<'_, Self, E>,
        x: Input,
        y: &mut Matrix<Self, E>,
        (second_sum, additive): (Option<SecondSum<'_, D>>, Option<AdditiveSums>),
    ) -> Result<(), Error> {
        if y.rows() == 0 || y.columns() == 0 || self.is_count_of_cpu() {
            return Ok(());
        }
        let kind = Kind::of::<D, E>(op, second_sum.as_ref()).of_codes(x.codes.map(|codes| codes.0));
        let kind = kind.of_additive(additive.as_ref());
        let edges = narrow(NAME, "edges", a.edges())?;
        let load = kind.load;
        // A row is read to the end of its padding, in as many loads as fit into its 16-byte vectors.
        let loads = narrow(NAME, "feature length", padded::<E>(x.columns))? / load.width();
        let heads = match op.weights {
            EdgeWeights::Ones | EdgeWeights::Columns(_) | EdgeWeights::Features(_) => 1,
            EdgeWeights::Planes { heads, .. } => heads,
            EdgeWeights::Attention(of) => of.heads,
        };
        let heads = additive.as_ref().map_or(heads, |of| of.heads);
        let heads = narrow(NAME, "heads", heads)?;
        // Of rows that were sampled the edge-parallel kernels would want an index, which is waited for.
        let by_ids = a.is_coo_alone() && kind.entry(Schedule::RowIds).is_some();
        let wants_ids = match op.policy.schedule {
            ops::Schedule::Auto => by_ids,
            ops::Schedule::RowIds | ops::Schedule::RowIdsInTurn => true,
            ops::Schedule::Edge | ops::Schedule::Vertex | ops::Schedule::Hybrid => false,
        };
        let index = match wants_ids || a.is_drawn() && kind.does_without_index(&op.policy) {
            true => None,
            false => Some(a.index(self)?),
        };
        let empty_count = index.map_or(0, |index| index.empty_rows.len());
        let rows = Rows {
            edges,
            vertices: narrow(NAME, "rows", a.rows())?,
            filled: narrow(NAME, "rows", a.rows() - empty_count)?,
            longest: a.longest_row(),
            indexed: index.is_some(),
            by_ids,
        };
        let empty_count = narrow(NAME, "rows without edges", empty_count)?;
        let operand = Operand {
            load_bytes: x.load_bytes(load),
            row_bytes: u64::from(x.stride) * u64::from(VECTOR_BYTES),
            cache: self.driver().info().l2_bytes,
        };
        let columns = Columns::new(loads, heads).sliced(kind.slices(&op.policy), &rows, operand);
        let work = kind.work(rows, columns);
        let Columns {
            head_loads,
            lanes_log2,
            tiles,
            ..
        } = work.columns;
        let Plan {
            schedule,
            cta_edges_log2,
            ctas,
            many_rows,
        } = kind.plan(&op.policy, &work, self.driver().info().multiprocessors)?;
        let first = kind
            .entry(schedule)
            .ok_or_else(|| kind.missing::<D, E>(op))?;
        // The kernels that have a way for them.
        let many_rows = many_rows
            && matches!(first.weights, Weights::Ones | Weights::ColumnScale)
            && first.load == Load::widest(first.load.format());
        let fused = first.scale == Scale::Finished;
        // What no kernel of the schedule does.
        let apart = match (fused, schedule) {
            (true, Schedule::VertexParallel) => SpmmEpilogue::default(),
            (true, _) => SpmmEpilogue {
                positive: op.epilogue.positive,
                ..SpmmEpilogue::default()
            },
            (false, _) => op.epilogue,
        };
        if second_sum.is_some() || !apart.is_none() {
            // The second sum lies as the first does, and what is not fused are operators of other kinds.
            self.matrix::<E, E>(y)?;
        }
        let sums = work.sums;
        let (staged_row, staged_floats) = kind.staged(work.columns);
        // What an index was waited for says; of a layer that was sampled others have a bound.
        let longest = index.map_or(rows.longest, |index| index.longest_row);
        let chunk_log2 = contract::chunk_log2_of(longest, cta_edges_log2, ctas);
        let softmax_gradient = second_sum
            .as_ref()
            .and_then(|of| of.softmax_gradient.as_ref());
        // Records come first, since they are as long as vectors.
        let records = super::attention::gpu::RECORD_FLOATS
            * softmax_gradient.map_or(0, |softmax_gradient| softmax_gradient.values.len() as u64);
        let floats = records + contract::staging_floats(ctas, staged_row);
        let workspace = self.lend(floats)?;
        let staging = DevicePtr::new(workspace.address() + size_of::<f32>() as u64 * records);

        let (mut edge_weights, mut column_scale) = (DevicePtr::NULL, DevicePtr::NULL);
        let mut attention = attention::EdgeAttention::NONE;
        match op.weights {
            EdgeWeights::Ones => {}
            EdgeWeights::Features(weights) => edge_weights = self.array(weights)?,
            EdgeWeights::Columns(scale) => column_scale = self.array(scale)?,
            EdgeWeights::Planes { values, .. } => edge_weights = self.array(values)?,
            EdgeWeights::Attention(of) => {
                attention = self.edge_attention(of, a)?;
                edge_weights = self.optional_array(of.biases)?;
            }
        }
        if let Some(of) = &additive {
            edge_weights = of.d;
            attention.slope = of.slope;
        }
        let addend = op.epilogue.addend;
        let positive = op.epilogue.positive.filter(|_| apart.positive.is_none());
        let by_attention = matches!(op.weights, EdgeWeights::Attention(_));
        let row_ids = match by_attention || schedule.is_by_row_ids() {
            true => Some(a.row_ids(self)?),
            false => None,
        };
        let offsets = match schedule.is_by_row_ids() {
            true => None,
            false => Some(a.offsets(self)?),
        };
        // Of packed entries, which others do not read.
        let lanes = contract::packed_lanes(loads).unwrap_or(WARP);
        let sub_warps = WARP / lanes;
        let params = SpmmParams {
            rows: self.optional_array(row_ids)?,
            columns: self.array(&a.column_ids)?,
            offsets: self.optional_array(offsets)?,
            edge_weights,
            column_scale,
            row_scale: self.optional_array(op.row_scale)?,
            x: x.rows,
            y: self.strided(y)?,
            y_positive: match (&second_sum, &additive) {
                (Some(of), _) => of.positive,
                (None, Some(of)) => of.of_vector,
                (None, None) => DevicePtr::NULL,
            },
            term_sums: self
                .optional_array(softmax_gradient.map(|softmax_gradient| &*softmax_gradient.sums))?,
            records: DevicePtr::new(workspace.address()),
            staging,
            starts: self.optional_array(index.map(|index| &index.starts))?,
            filled_rows: self.optional_array(index.map(|index| &index.filled_rows))?,
            empty_rows: self.optional_array(index.map(|index| &index.empty_rows))?,
            addend: match addend {
                Some(addend) => self.strided(addend.matrix)?,
                None => DevicePtr::NULL,
            },
            epsilon: self.optional_matrix(addend.and_then(|addend| addend.epsilon))?,
            addend_scale: self.optional_array(addend.and_then(|addend| addend.row_scale))?,
            bias: self.optional_matrix(op.epilogue.bias)?,
            positive: positive.map_or(Ok(DevicePtr::NULL), |output| self.strided(output))?,
            edges,
            empty_count,
            x_stride: x.stride,
            y_stride: stride_vectors(NAME, y)?,
            feature_loads: loads,
            features: narrow(NAME, "feature length", x.columns)?,
            lanes_log2,
            ctas,
            cta_edges_log2,
            staged_row,
            vertices: rows.vertices,
            addend_stride: addend.map_or(Ok(0), |addend| stride_vectors(NAME, addend.matrix))?,
            positive_stride: positive.map_or(Ok(0), |output| stride_vectors(NAME, output))?,
            lanes,
            addend_factor: addend.map_or(0.0, |addend| addend.factor),
            relu: op.epilogue.relu.into(),
            scale: op.scale,
            head_loads,
            sub_warps,
            per_lanes: contract::reciprocal(lanes),
            per_sub_warps: contract::reciprocal(sub_warps),
            chunk_log2,
            staged_floats,
            reserved: 0,
            edge_plane_stride: edge_plane_stride(u64::from(edges)),
            attention,
            scales: x.codes.map_or(DevicePtr::NULL, |(_, scales)| scales),
            row_features: additive
                .as_ref()
                .map_or(DevicePtr::NULL, |of| of.row_features),
            vector: additive.as_ref().map_or(DevicePtr::NULL, |of| of.vector),
        };
        let config = |ctas, shared_bytes| LaunchConfig {
            grid: [ctas, tiles, heads],
            block: [contract::THREADS_PER_CTA, 1, 1],
            shared_bytes,
        };
        // SAFETY: the operator checked that `x`, `y`, weights and factors fit the graph, whose arrays were checked when
        // it was made; the staging buffer has `staging_floats`.
        unsafe {
            let lane = sums.floats(load.width());
            if let Some(SecondSum {
                weights,
                softmax_gradient: Some(softmax_gradient),
                ..
            }) = &second_sum
            {
                self.pack_records(weights, softmax_gradient, params.records)?;
            }
            if schedule == Schedule::VertexParallel {
                let shared_bytes = contract::vertex_shared::bytes(lane);
                let ctas = match many_rows {
                    true => contract::vertex_ctas_of_many(rows.vertices),
                    false => contract::vertex_ctas(rows.vertices),
                };
                let config = config(ctas, shared_bytes);
                self.launch(first.name, config, &params)?;
            } else {
                let words = first.weights.words() + schedule.words();
                let shared_bytes = contract::shared_bytes(lane, cta_edges_log2, words)
                    + first.scale.addend_scale_bytes();
                let second = contract::follow_up(schedule, load, first.scale, sums);
                let looked_at = match (&second, schedule) {
                    (Some(_), Schedule::EdgeParallel | Schedule::Packed) => empty_count,
                    // Which row ids do not list.
                    (Some(_), Schedule::RowIds) if rows.are_searched() => rows.vertices,
                    // Atomics add to what is there, and nothing writes the rows without edges.
                    _ => {
                        y.clear(self)?;
                        0
                    }
                };
                let clearing = looked_at.div_ceil(contract::EMPTY_ROWS_PER_CTA);
                let config_of_first = config(ctas + clearing, shared_bytes);
                self.launch(first.name, config_of_first, &params)?;
                if let Some(second) = second {
                    let chunks = contract::chunks(schedule, first.scale);
                    if let Some(chunks) = chunks.filter(|_| chunk_log2 != contract::NO_CHUNKS) {
                        let config = LaunchConfig {
                            grid: [
                                contract::chunk_ctas(ctas, chunk_log2),
                                contract::chunk_tiles(staged_floats),
                                1,
                            ],
                            ..config(ctas, contract::CHUNK_SHARED_BYTES)
                        };
                        self.launch(chunks.name, config, &params)?;
                    }
                    // One CTA leaves nothing to complete.
                    let follow_up = contract::follow_up_ctas(ctas, lanes_log2);
                    self.launch(second.name, config(follow_up, 0), &params)?;
                }
            }
        }
        drop(workspace);
        self.finish(&apart, y)
    }
}

impl<D: Driver> Gpu<D> {
    /// An epilogue of an SpMM whose kernels have none, in passes of its own.
    fn finish<E: Element>(
        &self,
        epilogue: &SpmmEpilogue<'_, Self, E>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        if let Some(addend) = epilogue.addend {
            let sum = Combine {
                x_factor: addend.factor,
                epsilon: addend.epsilon,
                x_scale: addend.row_scale,
                y_factor: 1.0,
            };
            // Of the addend's rows as many as `y` has.
            self.combine_rows(y.rows(), &sum, addend.matrix, y)?;
        }
        if epilogue.bias.is_some() || epilogue.relu {
            let activation = Activation {
                bias: epilogue.bias,
                relu: epilogue.relu,
                dropout: None,
            };
            ops::activate(self, &activation, None, y)?;
        }
        if epilogue.positive.is_some() {
            let relu = Activation {
                relu: true,
                ..Activation::default()
            };
            ops::activate_backward(self, &relu, epilogue.positive, None, y)?;
        }
        Ok(())
    }
}

/// What an entry is made of, but its schedule.
#[derive(Clone, Copy, Debug)]
struct Kind {
    load: Load,
    weights: Weights,
    /// None where nothing is built for it.
    scale: Option<Scale>,
    accumulate: contract::Accumulate,
    /// Whether something is done to the sums before they are written.
    epilogue: bool,
}

impl Kind {
    fn of<D: Driver, E: Element>(
        op: &Spmm<'_, Gpu<D>, E>,
        second_sum: Option<&SecondSum<'_, D>>,
    ) -> Self {
        let weights = match op.weights {
            EdgeWeights::Ones => Weights::Ones,
            EdgeWeights::Features(_) | EdgeWeights::Planes { .. } => Weights::EdgeFeatures,
            EdgeWeights::Columns(_) => Weights::ColumnScale,
            EdgeWeights::Attention(of) => {
                let gradient = second_sum.map(|second| second.softmax_gradient.is_some());
                match (gradient, of.biases.is_some()) {
                    // With a bias or without, the sum is what is stored.
                    (Some(false), _) if of.sums.is_some() => Weights::StoredAttention,
                    (None, false) => Weights::Attention,
                    (None, true) => Weights::BiasedAttention,
                    (Some(false), false) => Weights::SignedAttention,
                    (Some(false), true) => Weights::SignedBiasedAttention,
                    (Some(true), false) => Weights::AttentionGradient,
                    (Some(true), true) => Weights::BiasedAttentionGradient,
                }
            }
        };
        let (epilogue, both) = (!op.epilogue.is_none(), second_sum.is_some());
        Self::new::<E>(&op.policy, op.aggregation, weights, both, epilogue)
    }

    /// `both` sums, or one.
    fn new<E: Element>(
        policy: &SpmmPolicy,
        aggregation: Aggregation,
        weights: Weights,
        both: bool,
        epilogue: bool,
    ) -> Self {
        let load = match (E::PRECISION, policy.load) {
            (Precision::Half, HalfLoad::Half2) => Load::Half2,
            (Precision::Half, HalfLoad::Half4) => Load::Half4,
            (precision, _) => Load::widest(precision.format()),
        };
        // Column factors and attention are float, and so is what is added up with them.
        let in_half = E::PRECISION == Precision::Half
            && policy.accumulate == Accumulate::Half
            && matches!(weights, Weights::Ones | Weights::EdgeFeatures);
        let accumulate = match aggregation {
            Aggregation::Max => contract::Accumulate::Largest,
            Aggregation::Sum if both => contract::Accumulate::BothInFloat,
            Aggregation::Sum if in_half => contract::Accumulate::InHalf,
            Aggregation::Sum => contract::Accumulate::InFloat,
        };
        let scale = match (aggregation, policy.scaling, policy.write) {
            (Aggregation::Max, ..) => Some(Scale::Maximum),
            (_, Scaling::Discretized, Write::Staged) => Some(Scale::Discretized),
            (_, Scaling::Discretized, Write::Atomic) => Some(Scale::Atomic),
            (_, Scaling::PostReduction, Write::Staged) => Some(Scale::PostReduction),
            (_, Scaling::PreReduction, Write::Staged) => Some(Scale::PreReduction),
            _ => None,
        };
        Self {
            load,
            weights,
            scale,
            accumulate,
            epilogue,
        }
    }

    /// The same of a matrix of quantized values, where they are some.
    fn of_codes(self, format: Option<CodeFormat>) -> Self {
        let accumulate = match (format, self.weights) {
            (None, _) => self.accumulate,
            (Some(format), _) if self.accumulate == contract::Accumulate::BothInFloat => {
                match format {
                    CodeFormat::Int8 => contract::Accumulate::BothOfInt8,
                    CodeFormat::E4m3 => contract::Accumulate::BothOfE4m3,
                }
            }
            (Some(CodeFormat::Int8), Weights::Ones) => contract::Accumulate::InInteger,
            (Some(CodeFormat::Int8), _) => contract::Accumulate::Int8InFloat,
            (Some(CodeFormat::E4m3), _) => contract::Accumulate::E4m3InFloat,
        };
        Self { accumulate, ..self }
    }

    /// The entry, if it is built: one that has the epilogue, where there is one.
    fn entry(self, schedule: Schedule) -> Option<&'static contract::SpmmEntry> {
        let of = |scale| contract::spmm(schedule, self.load, self.weights, scale, self.accumulate);
        let scale = self.scale?;
        (scale == Scale::Discretized && self.epilogue)
            .then(|| of(Scale::Finished))
            .flatten()
            .or_else(|| of(scale))
    }

    /// The same of additive attention's gradient, where it is that.
    fn of_additive(self, of: Option<&AdditiveSums>) -> Self {
        let Some(of) = of else {
            return self;
        };
        Self {
            weights: Weights::EdgeFloats,
            accumulate: match of.of_vector.is_null() {
                true => contract::Accumulate::Additive,
                false => contract::Accumulate::BothAdditive,
            },
            ..self
        }
    }

    /// What a policy says of slices. Weights that are computed would be so in each slice.
    fn slices(self, policy: &SpmmPolicy) -> Slices {
        let are_read = matches!(
            self.weights,
            Weights::Ones | Weights::EdgeFeatures | Weights::ColumnScale
        );
        match policy.slices {
            Slices::Auto if !are_read => Slices::Whole,
            slices => slices,
        }
    }

    /// What it has to share out.
    fn work(self, rows: Rows, columns: Columns) -> Work {
        Work {
            rows,
            columns,
            sums: self.accumulate.sums(),
        }
    }

    /// Whether the vertex-parallel kernel will do, which reads offsets alone.
    fn does_without_index(self, policy: &SpmmPolicy) -> bool {
        let built = self.entry(Schedule::VertexParallel).is_some();
        let by_vertices = matches!(policy.schedule, ops::Schedule::Auto | ops::Schedule::Vertex);
        built && policy.edges_per_warp.is_none() && by_vertices
    }

    /// How it is launched.
    fn plan(self, policy: &SpmmPolicy, work: &Work, multiprocessors: u32) -> Result<Plan, Error> {
        let built = self.entry(Schedule::VertexParallel).is_some();
        let plan = Plan::of(policy, work, multiprocessors, built)?;
        Ok(match self.entry(Schedule::Packed) {
            Some(_) => plan.packed(work.columns),
            None => plan,
        })
    }

    /// Floats of a row of the staging buffer, and those of them that are written.
    fn staged(self, columns: Columns) -> (u32, u32) {
        let elements = columns.loads * self.load.width();
        let (sums, heads) = (self.accumulate.sums(), columns.heads);
        let row = contract::staged_row(elements, sums, heads);
        (row, contract::staged_floats(elements, sums, heads))
    }

    /// That it is not, and what is.
    fn missing<D: Driver, E: Element>(self, op: &Spmm<'_, Gpu<D>, E>) -> Error {
        Error::Unsupported {
            operator: NAME,
            reason: format!(
                "no kernel is built for the {:?} in {} with {:?} and {:?}; discretized scaling, float accumulation, the \
                 staged write and the widest load have one for every sum",
                op.aggregation,
                E::PRECISION,
                self.weights,
                op.policy
            ),
        }
    }
}
