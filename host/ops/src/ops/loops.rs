//! The CPU's loops in which the time goes, of each format.
//!
//! What is generic is compiled where it is used: again for each program, and as that program is. Of these loops every
//! set of instructions has its own, so they are compiled here, once, and to be fast.

use super::SpmmPolicy;
use super::elementwise::cpu::KeepPositive;
use super::matmul::sparse::{count_nonzero, push_nonzero};
use super::sddmm::cpu::Dots;
use super::spmm::cpu::{Operands, sum_rows};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{Round, WIDEST, Widen};
use half::{bf16, f16};

/// Loops over elements of a format.
pub trait Loops: Sized {
    /// [`sum_rows`]
    fn sum_rows(
        cpu: &Cpu,
        operands: &Operands<'_, Self>,
        policy: SpmmPolicy,
        shape: (usize, usize),
        y: &mut [Self],
    );
    /// Runs [`Dots`] with the instructions of `cpu`.
    fn dots(cpu: &Cpu, dots: Dots<'_, Self>);
    /// [`count_nonzero`]
    fn count_nonzero(row: &[Self]) -> usize;
    /// [`push_nonzero`]
    fn push_nonzero(row: &[Self], columns: &mut Vec<u32>, values: &mut Vec<f32>);
    /// Runs [`KeepPositive`] with the widest instructions.
    fn keep_positive(of: KeepPositive<'_, Self>);
    /// Runs [`Widen`] with the widest instructions.
    fn widen(widen: Widen<'_, Self>);
    /// Runs [`Round`] with the widest instructions.
    fn round(round: Round<'_, Self>);
}

macro_rules! compiled_here {
    ($($element:ty),*) => {$(
        impl Loops for $element {
            fn sum_rows(
                cpu: &Cpu,
                operands: &Operands<'_, Self>,
                policy: SpmmPolicy,
                shape: (usize, usize),
                y: &mut [Self],
            ) {
                sum_rows(cpu, operands, policy, shape, y);
            }

            fn dots(cpu: &Cpu, dots: Dots<'_, Self>) {
                cpu.instructions().run(dots);
            }

            fn count_nonzero(row: &[Self]) -> usize {
                count_nonzero(row)
            }

            fn push_nonzero(row: &[Self], columns: &mut Vec<u32>, values: &mut Vec<f32>) {
                push_nonzero(row, columns, values);
            }

            fn keep_positive(of: KeepPositive<'_, Self>) {
                WIDEST.run(of);
            }

            fn widen(widen: Widen<'_, Self>) {
                WIDEST.run(widen);
            }

            fn round(round: Round<'_, Self>) {
                WIDEST.run(round);
            }
        }
    )*};
}

compiled_here!(f16, bf16, f32);
