//! What becomes of the sums: `relu(alpha · row_scale · sum + bias)` in float, zero in the padding and where a ReLU was, one
//! rounding, C, and where that is asked for codes of C.

use core::marker::PhantomData;

use halfgnn_contract::matmul::{
    CODE_VECTOR_BYTES, CODES_ALONE, MatmulParams, POSITIVE_CODES, RELU, STAGES, SUM,
    THREADS_PER_CTA, WARPS_PER_CTA, matrix_vector, workspace_vector,
};
use halfgnn_contract::quantize::{CodeFormat, INT8, largest_bytes, row_codes};
use halfgnn_contract::{DevicePtr, Format, HalfBits, VECTOR_BYTES, WARP};

use super::codes::Widened;
use super::operand::Source;
use super::pipeline::{Layouts, Multiplier, Origin};
use crate::device::async_copy;
use crate::device::bfloat::BFloat2;
use crate::device::float;
use crate::device::global::{Access, Global};
use crate::device::half::{Half2, Pair};
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::vector::{Floats, Packed, Vector};
use crate::device::warp::{lane_id, sync_warp, warp_id};
use crate::elementwise::Dropping;
use crate::quantize::Coder;

/// The parameters of the epilogue.
#[derive(Clone, Copy)]
pub struct Epilogue {
    bias: Global<f32>,
    row_scale: Global<f32>,
    m: u32,
    n: u32,
    /// What lies below becomes zero.
    floor: f32,
    alpha: f32,
}

impl Epilogue {
    /// Those of a launch.
    #[inline(always)]
    pub fn new(params: &MatmulParams) -> Self {
        Self {
            bias: Global::new(params.bias),
            row_scale: Global::new(params.row_scale),
            m: params.m,
            n: params.n,
            floor: if params.flags & RELU != 0 {
                0.0
            } else {
                f32::NEG_INFINITY
            },
            alpha: params.alpha,
        }
    }

    /// Whether sums are what is written, but for rounding and padding.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        let unbounded = self.floor == f32::NEG_INFINITY;
        self.bias.is_null() && self.row_scale.is_null() && unbounded && self.alpha == 1.0
    }

    /// The factor of a row of C, which may lie outside.
    #[inline(always)]
    pub fn scale(self, row: u32) -> f32 {
        if self.row_scale.is_null() || row >= self.m {
            return self.alpha;
        }
        // SAFETY: `row_scale` is `m` long, and the launch writes only C and the workspace.
        self.alpha * unsafe { self.row_scale.at(row as u64).read() }
    }

    /// What is added to a column of C, which may lie in the padding.
    #[inline(always)]
    pub fn bias(self, column: u32) -> f32 {
        if self.bias.is_null() || column >= self.n {
            return 0.0;
        }
        // SAFETY: `bias` is `n` long, and the launch writes only C and the workspace.
        unsafe { self.bias.at(column as u64).read() }
    }

    /// A sum that [`Epilogue::scale`] has been applied to as an element of C, but for its rounding; anything in the padding.
    #[inline(always)]
    pub fn unpadded(self, scaled: f32, bias: f32) -> f32 {
        // A NaN stays one.
        float::max(scaled + bias, self.floor)
    }

    /// [`Epilogue::unpadded`], but zero in the padding, whatever the sum.
    #[inline(always)]
    pub fn finish(self, scaled: f32, bias: f32, column: u32) -> f32 {
        let value = self.unpadded(scaled, bias);
        if column >= self.n { 0.0 } else { value }
    }
}

/// What a thread's sums become on their way to memory.
pub trait Finish: Copy {
    /// Whether they become elements of C.
    const FINAL: bool;
    /// The value of `sum`, the thread's in row `i` and column `j`, which is `column` of C.
    fn value(&self, sum: f32, i: usize, j: usize, column: u32) -> f32;
}

/// Nothing: the sums of a split.
#[derive(Clone, Copy)]
pub struct Raw;

impl Finish for Raw {
    const FINAL: bool = false;

    #[inline(always)]
    fn value(&self, sum: f32, _: usize, _: usize, _: u32) -> f32 {
        sum
    }
}

/// Most rows or columns of sums that a thread has; `unroll!` asks for no more.
const MOST: usize = 16;

/// Elements of C.
#[derive(Clone, Copy)]
pub struct Finished {
    epilogue: Epilogue,
    /// Factors of the thread's rows.
    scales: [f32; MOST],
    /// What its columns add.
    biases: [f32; MOST],
}

impl Finished {
    /// Reads what the thread's rows and columns need.
    #[inline(always)]
    pub fn new<L: Layouts, M: Multiplier>(params: &MatmulParams, origin: Origin) -> Self {
        let epilogue = Epilogue::new(params);
        let (mut scales, mut biases) = ([epilogue.alpha; MOST], [0.0; MOST]);
        if !epilogue.row_scale.is_null() {
            unroll!(i in 0..M::ROWS => {
                scales[i as usize] = epilogue.scale(origin.row + M::row::<L>(i));
            });
        }
        if !epilogue.bias.is_null() {
            unroll!(j in 0..M::COLUMNS => {
                biases[j as usize] = epilogue.bias(origin.column + M::column::<L>(j));
            });
        }
        Self {
            epilogue,
            scales,
            biases,
        }
    }
}

impl Finish for Finished {
    const FINAL: bool = true;

    #[inline(always)]
    fn value(&self, sum: f32, i: usize, j: usize, column: u32) -> f32 {
        self.epilogue
            .finish(sum * self.scales[i], self.biases[j], column)
    }
}

/// The type of C's elements.
pub trait Output {
    /// Its name in the contract.
    const ELEMENT: Format;

    /// Sends for what [`Output::write`] wants to see beside the sums.
    ///
    /// # Safety
    /// All threads of the CTA make this call. `shared` is half of the stages, which nothing else uses until `write` has.
    #[inline(always)]
    unsafe fn prefetch<L: Layouts, M: Multiplier>(_: &MatmulParams, _: Origin, _shared: Shared) {}

    /// Writes a CTA's finished tile, of a product whose A is `S`.
    ///
    /// # Safety
    /// All threads of the CTA make this call, after a barrier that follows the arrival of what [`Output::prefetch`] sent
    /// for to the same `shared`. C is as the launch contract says.
    unsafe fn write<L: Layouts, M: Multiplier, S: Source>(
        multiplier: &mut M,
        params: &MatmulParams,
        origin: Origin,
        shared: Shared,
    );

    /// Writes four finished elements to C, from the `quad`-th four of a row on.
    ///
    /// # Safety
    /// The four elements lie in C's padded row, and no other thread writes them.
    unsafe fn write_four(params: &MatmulParams, row: u32, quad: u32, values: [f32; 4]);

    /// Four values as C's elements are.
    fn rounded(values: [f32; 4]) -> [f32; 4];

    /// Four elements of C, or of a matrix that lies as it does.
    ///
    /// # Safety
    /// The four elements lie in the padded row, and no other thread writes them during the launch.
    unsafe fn read_four(matrix: DevicePtr<HalfBits>, stride: u32, row: u32, quad: u32) -> [f32; 4];
}

/// C in float.
pub struct F32;

/// C in elements of 16 bits, and whether codes are made of them.
pub struct Rounded<P, const CODED: bool>(PhantomData<P>);

/// C in half.
pub type F16 = Rounded<Half2, false>;

/// C in bfloat16.
pub type BF16 = Rounded<BFloat2, false>;

/// C in half, and its codes.
pub type CodedF16 = Rounded<Half2, true>;

/// C in bfloat16, and its codes.
pub type CodedBF16 = Rounded<BFloat2, true>;

impl Output for F32 {
    const ELEMENT: Format = Format::F32;

    #[inline(always)]
    unsafe fn write<L: Layouts, M: Multiplier, S: Source>(
        multiplier: &mut M,
        params: &MatmulParams,
        origin: Origin,
        _: Shared,
    ) {
        let finished = Finished::new::<L, M>(params, origin);
        let c = Rows {
            first: 0,
            end: params.m,
            address: params.c.address(),
            stride: params.c_stride,
            padding: Format::F32.per_vector(),
        };
        // SAFETY: the caller's promise.
        unsafe { write_floats::<L, M, _>(multiplier, finished, params, origin, c) }
        if L::SUM_OVER_ROWS && !params.column_sums.is_null() {
            let sums = Rows {
                first: params.sum_rows - 1,
                end: params.sum_rows,
                address: params.column_sums.address(),
                stride: 0,
                padding: Format::F32.per_vector(),
            };
            // SAFETY: the caller's promise; there is one row of sums.
            unsafe { write_floats::<L, M, _>(multiplier, Raw, params, origin, sums) }
        }
    }

    #[inline(always)]
    unsafe fn write_four(params: &MatmulParams, row: u32, quad: u32, values: [f32; 4]) {
        let c = Global::<[u32; 4]>::new(params.c).at(matrix_vector(row, quad, params.c_stride));
        // SAFETY: the caller's promise.
        unsafe { c.store(values.map(f32::to_bits)) };
    }

    #[inline(always)]
    unsafe fn read_four(matrix: DevicePtr<HalfBits>, stride: u32, row: u32, quad: u32) -> [f32; 4] {
        let place = Global::<[u32; 4]>::new(matrix).at(matrix_vector(row, quad, stride));
        // SAFETY: the caller's promise.
        unsafe { place.load() }.map(f32::from_bits)
    }

    #[inline(always)]
    fn rounded(values: [f32; 4]) -> [f32; 4] {
        values
    }
}

impl<P: Pair, const CODED: bool> Output for Rounded<P, CODED> {
    const ELEMENT: Format = P::FORMAT;

    /// The tile of `positive`, to where C's will be staged: its latency is that of the operands.
    #[inline(always)]
    unsafe fn prefetch<L: Layouts, M: Multiplier>(
        params: &MatmulParams,
        origin: Origin,
        shared: Shared,
    ) {
        if !L::OF_INPUT || params.positive.is_null() {
            return;
        }
        for_each_staged::<M>(origin, |staged, c_row, c_vector| {
            let present = is_of_c(params, c_row, c_vector);
            let (target, source) = (shared.offset(staged), params.positive.address());
            // SAFETY: within the staged tile, which the caller leaves to it; a vector of the matrix that lies as C does, or of its
            // codes, of which a row has as many as C's padded one at least.
            unsafe {
                if params.flags & POSITIVE_CODES == 0 {
                    let at = matrix_vector(c_row, c_vector, params.c_stride);
                    async_copy::copy_16(target, source + at * VECTOR_BYTES as u64, present);
                } else {
                    let codes = row_codes(params.n as u64) as u32 / CODE_VECTOR_BYTES;
                    let at = matrix_vector(c_row, c_vector, codes);
                    async_copy::copy_8(target, source + at * CODE_VECTOR_BYTES as u64, present);
                }
            };
        });
    }

    /// Through shared memory, so that a warp writes whole rows 16 bytes a lane. Each warp has its own rows there.
    #[inline(always)]
    unsafe fn write<L: Layouts, M: Multiplier, S: Source>(
        multiplier: &mut M,
        params: &MatmulParams,
        origin: Origin,
        shared: Shared,
    ) {
        const { assert!(staged_pitch::<M>() * M::TILE.rows <= STAGES / 2 * M::TILE.stage_bytes()) };
        // SAFETY: the caller's promise; `prefetch` was of the same opinion.
        unsafe {
            if L::OF_INPUT && !params.positive.is_null() {
                if params.flags & POSITIVE_CODES != 0 {
                    // Each lane the vectors that it sent for, which have come for the CTA.
                    for_each_staged::<M>(origin, |staged, _, _| {
                        let place = shared.offset(staged);
                        place.store_u32x4(Widened::<Packed<P, 4>>::of(place.load_u32x2()));
                    });
                    sync_warp();
                }
                stage::<P, L, M, true>(multiplier, params, origin, shared);
            } else {
                stage::<P, L, M, false>(multiplier, params, origin, shared);
            }
            // All lanes are here, and what follows reads only this warp's rows.
            sync_warp();
        }
        if CODED {
            // SAFETY: the caller's promise; the warp's rows of the tile are staged.
            unsafe {
                if params.codes.format == INT8 {
                    write_coded::<P, M>(params, origin, shared, CodeFormat::Int8);
                } else {
                    write_coded::<P, M>(params, origin, shared, CodeFormat::E4m3);
                }
            }
            return;
        }
        // As the contract's `drops` has it.
        let dropping = if S::PAIR {
            // SAFETY: the launch contract.
            unsafe { Dropping::of(&params.dropout) }
        } else {
            None
        };
        let elements = elements_of(params, lane_vector::<M>(origin));
        for_each_staged::<M>(origin, |staged, c_row, c_vector| {
            if is_of_c(params, c_row, c_vector) {
                let at = matrix_vector(c_row, c_vector, params.c_stride);
                // SAFETY: within the staged tile, written by this warp before its barrier; a vector of C's padded row,
                // which no other lane writes.
                unsafe {
                    let staged = Packed::<P, 4>::from_bits(shared.offset(staged).load_u32x4());
                    // What is staged may be anything in the padding.
                    let mut values = staged.first(elements).to_bits();
                    if let Some(dropping) = dropping {
                        let floats = Packed::<P, 4>::from_bits(values).widen();
                        let floats =
                            dropping.drop_elements::<Packed<P, 4>>(c_row as u64, c_vector, floats);
                        values = Packed::<P, 4>::narrow(floats).to_bits();
                    }
                    if L::OF_INPUT && params.flags & SUM != 0 {
                        let there = Global::<[u32; 4]>::new(params.c).at(at).load();
                        let [there, values_of] =
                            [there, values].map(|bits| Packed::<P, 4>::from_bits(bits).widen());
                        let sum = values_of.zip(there, |value, there| value + there);
                        values = Packed::<P, 4>::narrow(sum).to_bits();
                    }
                    Global::<[u32; 4]>::new(params.c).at(at).store(values);
                }
            }
        });
    }

    #[inline(always)]
    unsafe fn write_four(params: &MatmulParams, row: u32, quad: u32, [a, b, c, d]: [f32; 4]) {
        let vector = matrix_vector(row, 0, params.c_stride);
        // Two fours make a vector.
        let place = Global::<[u32; 2]>::new(params.c).at(vector * 2 + quad as u64);
        // SAFETY: the caller's promise.
        unsafe { place.store([P::from_f32(a, b).to_bits(), P::from_f32(c, d).to_bits()]) };
    }

    #[inline(always)]
    unsafe fn read_four(matrix: DevicePtr<HalfBits>, stride: u32, row: u32, quad: u32) -> [f32; 4] {
        let vector = matrix_vector(row, 0, stride);
        let place = Global::<[u32; 2]>::new(matrix).at(vector * 2 + quad as u64);
        // SAFETY: the caller's promise.
        let [a, b] = unsafe { place.load() }.map(P::from_bits);
        [a.low(), a.high(), b.low(), b.high()]
    }

    #[inline(always)]
    fn rounded([a, b, c, d]: [f32; 4]) -> [f32; 4] {
        let [first, second] = [P::from_f32(a, b), P::from_f32(c, d)];
        [first.low(), first.high(), second.low(), second.high()]
    }
}

/// Elements of a 16-byte vector of what is rounded.
const PER_VECTOR: u32 = VECTOR_BYTES / size_of::<u16>() as u32;

/// Leaves a warp's rows of a rounded tile in shared memory, with anything in the padding; with `MASKED` they become zero where what lies
/// there holds no positive number.
///
/// # Safety
/// All lanes of the warp make this call. `shared` has room for a staged tile, and with `MASKED` one lies there, after a
/// barrier; other threads use no row of the warp's.
#[inline(always)]
unsafe fn stage<P: Pair, L: Layouts, M: Multiplier, const MASKED: bool>(
    multiplier: &mut M,
    params: &MatmulParams,
    origin: Origin,
    shared: Shared,
) {
    // SAFETY: the caller's promise.
    unsafe {
        // Most gradients are sums as they are.
        if Epilogue::new(params).is_none() {
            stage_values::<P, L, M, MASKED>(multiplier, |sum, _, _| sum, shared);
        } else {
            let finished = Finished::new::<L, M>(params, origin);
            let value = |sum: f32, i: usize, j: usize| {
                let (scale, bias) = (finished.scales[i], finished.biases[j]);
                finished.epilogue.unpadded(sum * scale, bias)
            };
            stage_values::<P, L, M, MASKED>(multiplier, value, shared);
        }
    }
}

/// [`stage`], of each sum, in row `i` and column `j` of the thread's, its `value`.
///
/// # Safety
/// As [`stage`].
#[inline(always)]
unsafe fn stage_values<P: Pair, L: Layouts, M: Multiplier, const MASKED: bool>(
    multiplier: &mut M,
    value: impl Fn(f32, usize, usize) -> f32,
    shared: Shared,
) {
    unroll!(i in 0..M::ROWS => {
        let row = shared.offset(M::row::<L>(i) * staged_pitch::<M>());
        for pair in 0..M::COLUMNS / 2 {
            let j = 2 * pair;
            let column = M::column::<L>(j);
            let mut value = |j| value(*multiplier.sum(i, j), i as usize, j as usize);
            let (mut low, mut high) = (value(j), value(j + 1));
            // SAFETY: within the staged tile, four bytes that no other lane uses; columns of a run are neighbours.
            unsafe {
                let place = row.offset(column * 2);
                if MASKED {
                    let other = P::from_bits(place.load_u32());
                    low = if other.low() > 0.0 { low } else { 0.0 };
                    high = if other.high() > 0.0 { high } else { 0.0 };
                }
                place.store_u32(P::from_f32(low, high).to_bits());
            }
        }
    });
}

/// Writes a staged tile to C, unless that is not wanted, and its codes to theirs.
///
/// # Safety
/// The launch contract of a product that makes codes; all threads of the CTA make this call, each after its warp's rows of the tile
/// were staged.
#[inline(always)]
unsafe fn write_coded<P: Pair, M: Multiplier>(
    params: &MatmulParams,
    origin: Origin,
    shared: Shared,
    format: CodeFormat,
) {
    let staged_bytes = staged_pitch::<M>() * M::TILE.rows;
    const {
        let stages = STAGES / 2 * M::TILE.stage_bytes();
        let wanted = staged_pitch::<M>() * M::TILE.rows + largest_bytes(THREADS_PER_CTA);
        assert!(wanted <= stages, "no room for the largest magnitudes");
        assert!((M::TILE.columns / PER_VECTOR).is_power_of_two());
        assert!(M::TILE.columns <= THREADS_PER_CTA, "a thread a column");
    }
    let codes = &params.codes;
    let lanes_log2 = (M::TILE.columns / PER_VECTOR).ilog2();
    let first_vector = origin.column / PER_VECTOR;
    let vector = lane_vector::<M>(origin);
    let elements = elements_of(params, vector);
    let stored = params.flags & CODES_ALONE == 0;
    // SAFETY: the caller's promise.
    unsafe {
        let mut coder = Coder::<Packed<P, 4>>::new(codes, format, vector, params.n);
        let has_codes = coder.has_codes(codes);
        for_each_staged::<M>(origin, |staged, c_row, c_vector| {
            if c_row < params.m && has_codes {
                let staged = Packed::<P, 4>::from_bits(shared.offset(staged).load_u32x4());
                let values = staged.first(elements);
                if stored && is_of_c(params, c_row, c_vector) {
                    let at = matrix_vector(c_row, c_vector, params.c_stride);
                    Global::<[u32; 4]>::new(params.c)
                        .at(at)
                        .store(values.to_bits());
                }
                coder.code(codes, c_row as u64, values.widen());
            }
        });
        let room = shared.offset(staged_bytes);
        coder.finish::<THREADS_PER_CTA>(codes, room, lanes_log2, first_vector);
    }
}

/// Calls `visit` with every vector of the warp's rows of a staged tile, one a lane at a time: its offset there, its
/// row in C and its place in that row.
#[inline(always)]
fn for_each_staged<M: Multiplier>(origin: Origin, mut visit: impl FnMut(u32, u32, u32)) {
    let per_vector = PER_VECTOR;
    let row_vectors = M::TILE.columns / per_vector;
    let rows_of_a_warp = M::TILE.rows / WARPS_PER_CTA;
    let mut first = 0;
    while first < rows_of_a_warp * row_vectors {
        let index = first + lane_id();
        let row = warp_id() * rows_of_a_warp + index / row_vectors;
        let vector = index % row_vectors;
        visit(
            row * staged_pitch::<M>() + vector * VECTOR_BYTES,
            origin.row + row,
            origin.column / per_vector + vector,
        );
        first += WARP;
    }
}

/// The vector of a row of C that a lane has of every row that it visits in [`for_each_staged`].
#[inline(always)]
fn lane_vector<M: Multiplier>(origin: Origin) -> u32 {
    origin.column / PER_VECTOR + lane_id() % (M::TILE.columns / PER_VECTOR)
}

/// Elements of the vector of a row of C that are no padding, or more.
#[inline(always)]
fn elements_of(params: &MatmulParams, vector: u32) -> u32 {
    params.n.saturating_sub(vector * PER_VECTOR)
}

/// Whether C, rounded, has the vector.
#[inline(always)]
fn is_of_c(params: &MatmulParams, row: u32, vector: u32) -> bool {
    row < params.m && vector < params.n.div_ceil(PER_VECTOR)
}

/// Bytes from one row of a staged tile to the next: one vector more than its columns take, so that the eight rows
/// that a warp writes at a time lie in different banks.
#[inline(always)]
const fn staged_pitch<M: Multiplier>() -> u32 {
    M::TILE.columns * 2 + VECTOR_BYTES
}

/// Leaves a CTA's sums in its split's part of the workspace.
///
/// # Safety
/// The workspace is as the launch contract says, and `split` below the launch's.
#[inline(always)]
pub unsafe fn write_partial<L: Layouts, M: Multiplier>(
    multiplier: &mut M,
    params: &MatmulParams,
    origin: Origin,
    split: u32,
) {
    let vector = workspace_vector(split, 0, 0, params.sum_rows, params.workspace_stride);
    let part = Global::<[u32; 4]>::new(params.workspace)
        .at(vector)
        .address();
    // The operands' type bounds what the reduction reads; outputs of 16 bits come from such operands only.
    let padding = M::PER_VECTOR;
    let rows = Rows {
        first: 0,
        end: params.sum_rows,
        address: part,
        stride: params.workspace_stride,
        padding,
    };
    // SAFETY: the caller's promise; rows of the workspace are padded for either type.
    unsafe { write_floats::<L, M, _>(multiplier, Raw, params, origin, rows) }
}

/// Rows of floats in global memory.
#[derive(Clone, Copy)]
struct Rows {
    /// The first row of the product that is written there, and the end of them.
    first: u32,
    end: u32,
    /// Where row 0 is, or the only one.
    address: u64,
    /// Distance of two in 16-byte vectors.
    stride: u32,
    /// They are filled up to a multiple of this.
    padding: u32,
}

/// Writes a thread's values.
///
/// # Safety
/// There are the rows that `rows` says, and no other thread writes the elements of this one.
#[inline(always)]
unsafe fn write_floats<L: Layouts, M: Multiplier, F: Finish>(
    multiplier: &mut M,
    finish: F,
    params: &MatmulParams,
    origin: Origin,
    rows: Rows,
) {
    let columns = params.n.next_multiple_of(rows.padding);
    unroll!(i in 0..M::ROWS => {
        let row = origin.row + M::row::<L>(i);
        if row >= rows.first && row < rows.end {
            let start = rows.address + matrix_vector(row, 0, rows.stride) * VECTOR_BYTES as u64;
            for run in 0..M::COLUMNS / M::run::<L>() {
                let j = run * M::run::<L>();
                let column = origin.column + M::column::<L>(j);
                if column < columns {
                    let place = start + column as u64 * 4;
                    let at = place - start + matrix_vector(row, 0, rows.stride) * VECTOR_BYTES as u64;
                    let mut bits = |next: u32| {
                        let j = j + next;
                        let mut value = finish.value(*multiplier.sum(i, j), i as usize, j as usize, column + next);
                        if !(L::OF_INPUT && F::FINAL) {
                            return value.to_bits();
                        }
                        if !params.positive.is_null() {
                            let other = Global::<f32>::at_address(params.positive.address() + at);
                            // SAFETY: an element of the matrix that lies as C does.
                            if !(unsafe { other.at(next as u64).read() } > 0.0) {
                                value = 0.0;
                            }
                        }
                        if params.flags & SUM != 0 {
                            // SAFETY: an element of C, this thread's.
                            value += unsafe { Global::<f32>::at_address(place).at(next as u64).load() };
                        }
                        value.to_bits()
                    };
                    // SAFETY: the caller's promise; a run of columns begins at a multiple of its length, as the padded
                    // row ends at one.
                    unsafe {
                        match M::run::<L>() {
                            4 => Access::store(place, [bits(0), bits(1), bits(2), bits(3)]),
                            2 => Access::store(place, [bits(0), bits(1)]),
                            _ => Access::store(place, bits(0)),
                        }
                    }
                }
            }
        }
    });
}
