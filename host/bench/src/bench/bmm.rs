//! `halfgnn bench bmm`: products of matrices of bits, compared with the product in half and the time that a copy of as
//! many bytes takes.

use super::args::Gathering;
use super::bspmm::words;
use super::measure::{Operand, Times, samples, unit, zeros};
use super::peers::Peers;
use super::variants::{Variants, named, row_bytes};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::names::DeviceName;
use crate::screen::{Page, count};
use clap::Args;
use half::f16;
use halfgnn::Error;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::device::{self, Device, Task};
use halfgnn::ops::{self, BitMatrix, BitOutput, BitVariant, Bmm, Epilogue, Form, SignOperand};
use halfgnn::tensor::Matrix;
use rayon::prelude::*;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Examples of the command.
pub const EXAMPLES: &str = "\
Examples:
  halfgnn bench bmm --rows 2449029
  halfgnn bench bmm --rows 2708 --inner 1433 --columns 64,7 --variant BBB --json bmm.jsonl
  halfgnn bench bmm --variant all --against gather    the seven of the paper, and the product in half

Variants have BitGNN's names: left factor, right factor, result; F is full precision (half), B is bits. The signs of a factor F are
taken on the way, but for FFF, which is this library's product on tensor cores. Products of signs are compared with exact ones on rows
from the whole range before they are reported.";

/// Options of `bench bmm`.
#[derive(Args)]
pub struct BmmArgs {
    /// Rows of the left factor
    #[arg(long, value_name = "M", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 31))]
    rows: u32,
    /// Columns of the left factor
    #[arg(long, value_name = "K", value_delimiter = ',', default_values_t = [64, 128], value_parser = clap::value_parser!(u32).range(1..=65536))]
    inner: Vec<u32>,
    /// Columns of the product
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [64], value_parser = clap::value_parser!(u32).range(1..=65536))]
    columns: Vec<u32>,
    /// What is multiplied, and what products become
    #[arg(long, value_delimiter = ',', value_name = "VARIANT|all", default_values = ["BBB", "BBF", "FFF"])]
    variant: Vec<Variants>,
    /// What to time in the same run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PEER")]
    against: Vec<Gathering>,
    /// Timed runs of each; the median is reported
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Where to run; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Write one JSON object a line to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Row {
    event: &'static str,
    device: String,
    rows: u32,
    inner: u32,
    columns: u32,
    variant: &'static str,
    #[serde(flatten)]
    times: Times,
    /// Bytes of the left factor and of the product over the time.
    tb_per_s: f64,
    /// Time over that of a copy of as many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_bound: Option<f64>,
}

/// Times every combination that was asked for.
pub fn run(args: &BmmArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut json = JsonLines::open(args.json.as_deref())?;
    let page = Page::new(json.is_stdout());
    let bench = Bench {
        args,
        page,
        json: &mut json,
        stop,
    };
    device::open(args.device.into(), bench)??;
    json.finish()
}

struct Bench<'a> {
    args: &'a BmmArgs,
    page: Page,
    json: &'a mut JsonLines,
    stop: &'a AtomicBool,
}

impl Task for Bench<'_> {
    type Output = Result<(), Failure>;

    fn run<B: Backend>(mut self, device: &Device<B>) -> Self::Output {
        let backend = &device.backend;
        let mut copy = None;
        if self.args.against.contains(&Gathering::Gather) {
            match Peers::of(backend) {
                Ok(peers) => copy = Some(peers.copy_bandwidth()?),
                Err(reason) => self.page.line(&format_args!("no peers: {reason}")),
            }
        }
        for &inner in &self.args.inner {
            for &columns in &self.args.columns {
                for variant in named(&self.args.variant) {
                    if self.stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    let times = self.time(backend, inner, columns, variant)?;
                    self.tell(backend.name(), [inner, columns], variant, times, copy)?;
                }
            }
        }
        Ok(())
    }
}

impl Bench<'_> {
    fn time<B: Backend>(
        &self,
        backend: &B,
        inner: u32,
        columns: u32,
        variant: BitVariant,
    ) -> Result<Times, Failure> {
        let [m, k, n] = [self.args.rows, inner, columns].map(|size| size as usize);
        let kind = MemoryKind::Activations;
        if variant.name() == "FFF" {
            let [a, b] = [(0, m, k), (1, k, n)].map(|(number, rows, columns)| {
                Operand::<B, f16>::new(backend, number, rows, columns)
            });
            let (a, b) = (a?, b?);
            let mut y = Matrix::<B, f16>::zeros(backend, m, n, kind)?;
            let plain = Epilogue::default();
            return Ok(Times::of(backend, self.args.runs, || {
                ops::matmul(backend, Form::NN, &a.matrix, &b.matrix, &plain, &mut y)
            })?);
        }
        // The same bits in every row of words: of the larger of both the first rows.
        let bits = words(m.max(n), k);
        let stride = halfgnn_contract::bits::row_words(k as u64) as usize;
        let upload = |rows: usize| {
            BitMatrix::from_words(
                backend,
                (rows, k),
                &bits[..rows * stride],
                MemoryKind::Features,
            )
        };
        let (a, b) = (upload(m)?, upload(n)?);
        // Elements that have these signs, where a factor is of elements.
        let elements = |number: u32, rows: usize, is_bits: bool| match is_bits {
            true => Ok(None),
            false => signed(backend, number, (rows, k), &bits, stride).map(Some),
        };
        let [left, right] = [
            elements(0, m, variant.activation)?,
            elements(1, n, variant.second)?,
        ];
        let (mut left_signs, mut right_signs) = (None, None);
        let mut multiply = |y: BitOutput<'_, B, f16>| {
            let left = operand(&a, left.as_ref(), &mut left_signs);
            let right = operand(&b, right.as_ref(), &mut right_signs);
            ops::bmm_of(backend, left, right, &Bmm::default(), y)
        };
        let product = |row: usize, column: usize| {
            let words = |row: usize| &bits[row * stride..][..stride];
            let pairs = words(row).iter().zip(words(column));
            let differ: u32 = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
            k as i64 - 2 * i64::from(differ)
        };
        let wrong = |row: usize, column: usize| {
            Failure::Run(format!(
                "row {row}, column {column} of the product is not what {} becomes; {} is not timed",
                product(row, column),
                variant.name()
            ))
        };
        let places = || samples(m).flat_map(|row| (0..n).map(move |column| (row, column)));
        if variant.result {
            let mut y = BitMatrix::zeros(backend, m, n, kind)?;
            let times = Times::of(backend, self.args.runs, || {
                multiply(BitOutput::Bits(&mut y))
            })?;
            let signs = y.to_words(backend)?;
            let is_right = |&(row, column): &(usize, usize)| {
                let word = signs[row * y.stride() + column / 64];
                (word >> (column % 64) & 1 == 1) == (product(row, column) >= 0)
            };
            return match places().find(|place| !is_right(place)) {
                Some((row, column)) => Err(wrong(row, column)),
                None => Ok(times),
            };
        }
        let mut y = Matrix::<B, f16>::zeros(backend, m, n, kind)?;
        let times = Times::of(backend, self.args.runs, || {
            multiply(BitOutput::Elements(&mut y))
        })?;
        let products = y.to_padded(backend)?;
        let is_right = |&(row, column): &(usize, usize)| {
            products[row * y.stride() + column] == f16::from_f32(product(row, column) as f32)
        };
        match places().find(|place| !is_right(place)) {
            Some((row, column)) => Err(wrong(row, column)),
            None => Ok(times),
        }
    }

    fn tell(
        &mut self,
        device: String,
        [inner, columns]: [u32; 2],
        variant: BitVariant,
        times: Times,
        copy: Option<f64>,
    ) -> Result<(), Failure> {
        let bytes = f64::from(self.args.rows)
            * (row_bytes(variant.activation, inner) + row_bytes(variant.result, columns));
        let over_bound = copy.map(|rate| times.ms / (bytes / rate * 1e3));
        self.page.line(&format_args!(
            "{:>11} x {inner:<5} x {columns:<5} {}   {:>9.4} ms ({:.4} to {:.4})  {:>8.3} TB/s{}",
            count(self.args.rows as usize),
            variant.name(),
            times.ms,
            times.ms_fastest,
            times.ms_slowest,
            bytes / times.ms / 1e9,
            over_bound.map_or(String::new(), |over| format!("  {over:.2}x a copy")),
        ));
        Ok(self.json.write(&Row {
            event: "bmm",
            device,
            rows: self.args.rows,
            inner,
            columns,
            variant: variant.name(),
            times,
            tb_per_s: bytes / times.ms / 1e9,
            over_bound,
        })?)
    }
}

/// Random elements of these signs.
fn signed<B: Backend>(
    backend: &B,
    number: u32,
    (rows, columns): (usize, usize),
    words: &[u64],
    stride: usize,
) -> Result<Matrix<B, f16>, Error> {
    let mut values = zeros(rows, columns)?;
    values.par_iter_mut().enumerate().for_each(|(at, to)| {
        let (row, column) = (at / columns, at % columns);
        let is_set = words[row * stride + column / 64] >> (column % 64) & 1 != 0;
        let magnitude = 0.25 + 0.5 * unit(number, at);
        *to = if is_set { magnitude } else { -magnitude };
    });
    Matrix::from_f32(backend, rows, columns, &values, MemoryKind::Features)
}

fn operand<'a, B: Backend>(
    bits: &'a BitMatrix<B>,
    elements: Option<&'a Matrix<B, f16>>,
    room: &'a mut Option<BitMatrix<B>>,
) -> SignOperand<'a, B, f16> {
    match elements {
        None => SignOperand::Bits(bits),
        Some(elements) => SignOperand::Elements(elements, room),
    }
}
