//! Bits: a launch for the signs of a matrix, one for a product, and for sums over neighbours two for each 256 columns,
//! or one of all on a small graph.

use super::blocks::Addition;
use super::{
    BinarizeOperands, BitMatrix, BitsOperators, BmmElements, BmmOperands, BmmSigns,
    BspmmIntegersOperands, BspmmOperands, BspmmSignsOperands, ColumnFactors,
};
use crate::backend::gpu::{Gpu, entry, linear_config, narrow, stride_vectors};
use crate::backend::{Adjacency, RowShare};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::spmm::one_launch_suits;
use crate::ops::{Checked, Schedule};
use crate::tensor::Element;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::bits::{self as contract, BinarizeParams, BmmParams, BspmmParams};

impl<D: Driver> BitsOperators for Gpu<D> {
    fn binarize<E: Element>(
        &self,
        operands: Checked<BinarizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "binarize";
        let BinarizeOperands {
            x,
            normalization: op,
            y,
        } = operands.into_inner();
        let params = BinarizeParams {
            x: self.matrix(x)?,
            y: self.array(&y.words)?,
            statistics: self.optional_matrix(op.map(|op| op.statistics))?,
            weight: self.optional_matrix(op.map(|op| op.weight))?,
            bias: self.optional_matrix(op.map(|op| op.bias))?,
            rows: x.rows() as u64,
            features: narrow(NAME, "columns", x.columns())?,
            x_vectors: stride_vectors(NAME, x)?,
            y_stride: narrow(NAME, "columns", y.stride())?,
            float_vectors: match op {
                Some(op) => stride_vectors(NAME, op.statistics)?,
                None => 0,
            },
        };
        let rows = (x.rows() as u64).div_ceil(contract::BINARIZE_ROWS.into());
        let vectors = rows * y.stride() as u64 * (64 / E::LANES) as u64;
        let ctas = vectors.div_ceil(contract::THREADS_PER_CTA.into());
        let config = config(NAME, ctas, 0)?;
        // SAFETY: the operator checked that both have one shape and a normalisation their columns; there is a thread
        // for each vector of the words of some rows.
        unsafe { self.launch(entry::<E>("binarize")?, config, &params) }
    }

    fn bspmm<E: Element>(
        &self,
        operands: Checked<BspmmOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "bspmm";
        let of = operands.into_inner();
        let params = BspmmParams {
            y: self.matrix(of.y)?,
            row_scale: self.optional_array(of.row_scale)?,
            y_stride: narrow(NAME, "columns", of.y.stride())?,
            scale: of.scale * of.factors.map_or(1.0, ColumnFactors::scale),
            ..self.bspmm_params(NAME, (of.a, of.share), of.factors, of.x)?
        };
        let rows = narrow(NAME, "rows", of.a.rows())?;
        let by_vertices = of.share == RowShare::ALL;
        let entries = Entries::of_values(entry::<E>, (rows, &params), by_vertices)?;
        // SAFETY: the operator checked that the operands fit the graph, and `y` the share of its rows.
        unsafe { self.sum_bits(NAME, (of.a, of.schedule), entries, of.x, params) }
    }

    fn bspmm_signs(&self, operands: Checked<BspmmSignsOperands<'_, Self>>) -> Result<(), Error> {
        const NAME: &str = "bspmm_signs";
        let BspmmSignsOperands {
            a,
            factors,
            x,
            schedule,
            y,
        } = operands.into_inner();
        let params = BspmmParams {
            y: self.array(&y.words)?,
            y_stride: narrow(NAME, "columns", y.stride())?,
            ..self.bspmm_params(NAME, (a, RowShare::ALL), factors, x)?
        };
        let entries = Entries {
            sums: match factors {
                None => {
                    let filled = params.rows - params.empty_count;
                    let are_counted = |words| contract::are_counted(words, params.edges, filled);
                    [
                        match are_counted(1) {
                            true => Sum::in_counters("bspmm_counted_1_sign", 1),
                            false => Sum::by_columns("bspmm_1_sign", 1),
                        },
                        match are_counted(2) {
                            true => Sum::in_counters("bspmm_counted_2_sign", 2),
                            false => Sum::of_long_rows("bspmm_long_2_sign", 2),
                        },
                        Sum::in_counters("bspmm_counted_4_sign", contract::MOST_WORDS),
                    ]
                }
                Some(_) => [
                    Sum::factored("bspmm_factored_1_sign", 1),
                    Sum::factored("bspmm_factored_2_sign", 2),
                    Sum::factored("bspmm_factored_4_sign", contract::MOST_WORDS),
                ],
            },
            follow_up: "bspmm_follow_up_sign",
            vertex: match factors {
                None => Some("bspmm_vertex_sign"),
                Some(_) => None,
            },
        };
        // SAFETY: the operator checked that the operands fit the graph.
        unsafe { self.sum_bits(NAME, (a, schedule), entries, x, params) }
    }

    fn bspmm_integers(
        &self,
        operands: Checked<BspmmIntegersOperands<'_, Self>>,
    ) -> Result<(), Error> {
        const NAME: &str = "bspmm_integers";
        let of = operands.into_inner();
        let params = BspmmParams {
            y: self.array(&of.y.values)?,
            y_stride: narrow(NAME, "columns", of.y.stride())?,
            ..self.bspmm_params(NAME, (of.a, RowShare::ALL), of.factors, of.x)?
        };
        let entries = Entries::of_values(of_integers, (params.rows, &params), true)?;
        // SAFETY: the operator checked that the operands fit the graph.
        unsafe { self.sum_bits(NAME, (of.a, of.schedule), entries, of.x, params) }
    }

    fn bmm<E: Element>(&self, operands: Checked<BmmElements<'_, Self, E>>) -> Result<(), Error> {
        let BmmElements {
            operands,
            addition,
            y,
        } = operands.into_inner();
        let (family, share) = match addition {
            None => ("bmm", 0.0),
            Some(Addition::Products) => ("bmm_add", 0.0),
            Some(Addition::Signs { share }) => ("bmm_add_signs", share),
        };
        let params = BmmParams {
            y: self.matrix(y)?,
            y_stride: narrow(BMM, "columns", y.stride())?,
            share,
            ..self.bmm_params(&operands)?
        };
        // SAFETY: the operator checked that the operands fit one another; rows of `y` end with their columns' last word
        // of signs, and it is none of what is multiplied, since it is borrowed mutably.
        unsafe { self.multiply_bits(entry::<E>(family)?, 0, &params) }
    }

    fn bmm_signs(&self, operands: Checked<BmmSigns<'_, Self>>) -> Result<(), Error> {
        let BmmSigns { operands, y } = operands.into_inner();
        let params = BmmParams {
            y: self.array(&y.words)?,
            y_stride: narrow(BMM, "columns", y.stride())?,
            ..self.bmm_params(&operands)?
        };
        // SAFETY: as above; all words of rows of `y` are written.
        unsafe { self.multiply_bits("bmm_sign", params.y_stride, &params) }
    }
}

/// The product, in messages.
const BMM: &str = "bmm";

/// A kernel that sums up some words of rows.
#[derive(Clone, Copy)]
struct Sum {
    entry: &'static str,
    threads: u32,
    shared_bytes: u32,
}

impl Sum {
    /// One that counts each column in a lane.
    const fn by_columns(entry: &'static str, words: u32) -> Self {
        Self {
            entry,
            threads: contract::THREADS_PER_CTA,
            shared_bytes: contract::shared_bytes(contract::WARPS_PER_CTA, words),
        }
    }

    /// The same of long rows.
    const fn of_long_rows(entry: &'static str, words: u32) -> Self {
        Self {
            entry,
            threads: contract::FEW_WARPS_THREADS_PER_CTA,
            shared_bytes: contract::shared_bytes(contract::FEW_WARPS_PER_CTA, words),
        }
    }

    /// One of rows times factors.
    const fn factored(entry: &'static str, words: u32) -> Self {
        Self {
            entry,
            threads: contract::FEW_WARPS_THREADS_PER_CTA,
            shared_bytes: contract::factored_shared_bytes(words),
        }
    }

    /// One of vertical counters.
    const fn in_counters(entry: &'static str, words: u32) -> Self {
        Self {
            entry,
            threads: contract::THREADS_PER_CTA,
            shared_bytes: contract::counters_shared_bytes(words),
        }
    }
}

/// The entries of one kind of output.
struct Entries {
    /// Of one word, of two, of four.
    sums: [Sum; 3],
    follow_up: &'static str,
    /// Of all words in one launch, where there is one.
    vertex: Option<&'static str>,
}

impl Entries {
    /// Those that write values of one type, of which `of_type` knows the name by that of the family, on a graph of a
    /// number of rows, however few are written.
    fn of_values(
        of_type: impl Fn(&'static str) -> Result<&'static str, Error>,
        (rows, params): (u32, &BspmmParams),
        by_vertices: bool,
    ) -> Result<Self, Error> {
        let has_factors = !params.codes.is_null();
        let are_long = contract::are_long(params.edges, rows - params.empty_count);
        let (names, by_words): (_, [fn(_, _) -> _; 3]) = match has_factors {
            false if are_long => (
                ["bspmm_1", "bspmm_long_2", "bspmm_long_4"],
                [Sum::by_columns, Sum::of_long_rows, Sum::of_long_rows],
            ),
            false => (["bspmm_1", "bspmm_2", "bspmm_4"], [Sum::by_columns; 3]),
            true => (
                ["bspmm_factored_1", "bspmm_factored_2", "bspmm_factored_4"],
                [Sum::factored; 3],
            ),
        };
        let sum = |at: usize, words| Ok::<_, Error>(by_words[at](of_type(names[at])?, words));
        Ok(Self {
            sums: [sum(0, 1)?, sum(1, 2)?, sum(2, contract::MOST_WORDS)?],
            follow_up: of_type("bspmm_follow_up")?,
            vertex: match by_vertices && !has_factors {
                true => Some(of_type("bspmm_vertex")?),
                false => None,
            },
        })
    }
}

/// The entry of a family that writes integers.
fn of_integers(family: &'static str) -> Result<&'static str, Error> {
    let mut entries = contract::ENTRIES.iter().copied().flatten();
    let is_it = |name: &str| name.strip_suffix("_i32") == Some(family);
    let found = entries.find(|entry| is_it(entry.name));
    found.map(|entry| entry.name).ok_or_else(|| {
        Error::Contract(format!("the launch contract has no `{family}` in integers"))
    })
}

/// CTAs of the vertex-parallel kernel that a multiprocessor holds at once, of 48 registers a thread.
const VERTEX_CTAS_PER_MULTIPROCESSOR: u64 = 5;

fn config(operator: &'static str, ctas: u64, shared_bytes: u32) -> Result<LaunchConfig, Error> {
    linear_config(operator, ctas, contract::THREADS_PER_CTA, shared_bytes)
}

impl<D: Driver> Gpu<D> {
    /// What both kinds of output share.
    fn bspmm_params(
        &self,
        operator: &'static str,
        (a, share): (&Adjacency<Self>, RowShare),
        factors: Option<&ColumnFactors<Self>>,
        x: &BitMatrix<Self>,
    ) -> Result<BspmmParams, Error> {
        let edges = narrow(operator, "edges", a.edges())?;
        let index = a.index(self)?;
        let of_cta = u64::from(contract::EDGES_PER_CTA);
        let rows = share.rows(a.rows());
        let of_share = match share {
            RowShare::ALL => 0..u64::from(edges),
            share => a.edges_of(self, share)?,
        };
        let first_cta = of_share.start / of_cta;
        let ctas = match of_share.is_empty() {
            true => 0,
            false => of_share.end.div_ceil(of_cta) - first_cta,
        };
        Ok(BspmmParams {
            columns: self.array(&a.column_ids)?,
            starts: self.array(&index.starts)?,
            filled_rows: self.array(&index.filled_rows)?,
            offsets: self.array(a.offsets(self)?)?,
            empty_rows: self.array(&index.empty_rows)?,
            x: self.array(&x.words)?,
            y: DevicePtr::NULL,
            row_scale: DevicePtr::NULL,
            staging: DevicePtr::NULL,
            codes: self.optional_array(factors.map(|factors| &factors.codes))?,
            edges,
            ctas: narrow(operator, "CTAs", ctas as usize)?,
            first_cta: narrow(operator, "CTAs", first_cta as usize)?,
            empty_count: narrow(operator, "rows without edges", index.empty_rows.len())?,
            x_stride: narrow(operator, "columns", x.stride())?,
            y_stride: 0,
            features: narrow(operator, "columns", x.columns())?,
            first_word: 0,
            words: 0,
            scale: 1.0,
            first_row: narrow(operator, "rows", rows.start)?,
            rows: narrow(operator, "rows", rows.len())?,
        })
    }

    /// What both kinds of products share.
    fn bmm_params(&self, of: &BmmOperands<'_, Self>) -> Result<BmmParams, Error> {
        let BmmOperands { a, b, op } = of;
        // No warp's rows, past the last ones too, have numbers that do not fit.
        let of_cta = (contract::BMM_MOST_ROWS * contract::WARPS_PER_CTA) as usize;
        narrow(BMM, "rows", a.rows().next_multiple_of(of_cta))?;
        let rows = narrow(BMM, "rows", a.rows())?;
        let multiprocessors = self.driver().info().multiprocessors;
        Ok(BmmParams {
            a: self.array(&a.words)?,
            b: self.array(&b.words)?,
            y: DevicePtr::NULL,
            row_scale: self.optional_array(op.row_scale)?,
            column_scale: self.optional_array(op.column_scale)?,
            bias: self.optional_array(op.bias)?,
            rows,
            columns: narrow(BMM, "columns", b.rows())?,
            inner: narrow(BMM, "columns of a", a.columns())?,
            a_stride: narrow(BMM, "columns of a", a.stride())?,
            b_stride: narrow(BMM, "columns of b", b.stride())?,
            y_stride: 0,
            scale: op.scale,
            rows_per_warp: contract::bmm_rows_per_warp(rows, multiprocessors),
            share: 0.0,
            reserved: 0,
        })
    }

    /// A product of at least `words` words of columns.
    ///
    /// # Safety
    /// Operands in `params` are as its page asks for.
    unsafe fn multiply_bits(
        &self,
        entry: &'static str,
        words: u32,
        params: &BmmParams,
    ) -> Result<(), Error> {
        let (ctas, ctas_y) = contract::bmm_ctas(params.rows, params.rows_per_warp, params.columns);
        let config = config(BMM, ctas.into(), contract::BMM_SHARED_BYTES)?;
        let grid = [config.grid[0], ctas_y.max(words), 1];
        // SAFETY: the caller's promise.
        unsafe { self.launch(entry, LaunchConfig { grid, ..config }, params) }
    }

    /// The sums of all words of rows: in one launch, or [`contract::MOST_WORDS`] with a follow-up.
    ///
    /// # Safety
    /// Operands in `params` are as its page asks for, but for staging and words, and `a` is the graph that it names.
    unsafe fn sum_bits(
        &self,
        operator: &'static str,
        (a, schedule): (&Adjacency<Self>, Schedule),
        entries: Entries,
        x: &BitMatrix<Self>,
        params: BspmmParams,
    ) -> Result<(), Error> {
        let words = narrow(operator, "columns", x.stride())?;
        let vertex_ctas = contract::vertex_ctas(params.rows);
        let suits_vertices = || {
            let multiprocessors = u64::from(self.driver().info().multiprocessors);
            let at_once = VERTEX_CTAS_PER_MULTIPROCESSOR * multiprocessors;
            let all = u64::from(vertex_ctas) * u64::from(words);
            one_launch_suits(all, at_once, a.longest_row())
        };
        let is_by_vertices = match schedule {
            Schedule::Auto => suits_vertices(),
            other => other == Schedule::Vertex,
        };
        if let Some(entry) = entries.vertex.filter(|_| is_by_vertices) {
            let config = config(operator, vertex_ctas.into(), 0)?;
            let grid = [config.grid[0], words, 1];
            // SAFETY: the caller's promise; each word of each row is a warp's.
            return unsafe { self.launch(entry, LaunchConfig { grid, ..config }, &params) };
        }
        let ctas = params.ctas;
        let most = contract::MOST_WORDS.min(words);
        // As much for a share as for all, which is known before it is known where a share's edges lie.
        let all = contract::ctas(params.edges);
        let factored = !params.codes.is_null();
        let staging = self.lend(contract::staging_words(all, most, factored))?;
        let mut first_word = 0;
        while first_word < x.stride() {
            let (words, sum) = match x.stride() - first_word {
                1 => (1, entries.sums[0]),
                2 => (2, entries.sums[1]),
                _ => (contract::MOST_WORDS, entries.sums[2]),
            };
            let params = BspmmParams {
                staging: DevicePtr::new(staging.address()),
                first_word: narrow(operator, "columns", first_word)?,
                words,
                ..params
            };
            // SAFETY: the caller's promise; a row has these words, as it has one or an even number, and the staging
            // buffer is long enough for the most.
            unsafe {
                if ctas > 0 {
                    let (threads, shared_bytes) = (sum.threads, sum.shared_bytes);
                    let config = linear_config(operator, ctas.into(), threads, shared_bytes)?;
                    self.launch(sum.entry, config, &params)?;
                }
                let ctas = contract::follow_up_ctas(ctas, params.empty_count);
                if ctas > 0 {
                    let config = config(operator, ctas.into(), 0)?;
                    self.launch(entries.follow_up, config, &params)?;
                }
            }
            first_word += words as usize;
        }
        Ok(())
    }
}
