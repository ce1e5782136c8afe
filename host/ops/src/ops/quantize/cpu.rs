//! Quantized values, row by row.

use super::{
    DequantizeOperands, QuantizeOperands, QuantizeOperators, Rounding, UpdateScalesOperands,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::round;
use crate::backend::cpu::view::{for_rows, read, view, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::quantize::{NOT_FINITE, SATURATED, kept_positive};
use halfgnn_contract::rng;
use halfgnn_graph::parallel;

/// Rows that are reported together.
const SEEN_ROWS: usize = 256;

/// What rows report of themselves in addition to their quantized values.
struct Seen {
    largest: Vec<f32>,
    saturated: u32,
    not_finite: u32,
}

impl Seen {
    fn nothing(columns: usize) -> Self {
        Self {
            largest: vec![0.0; columns],
            saturated: 0,
            not_finite: 0,
        }
    }

    fn and(mut self, other: Self) -> Self {
        for (largest, other) in self.largest.iter_mut().zip(other.largest) {
            *largest = largest.max(other);
        }
        self.saturated = self.saturated.wrapping_add(other.saturated);
        self.not_finite = self.not_finite.wrapping_add(other.not_finite);
        self
    }
}

impl QuantizeOperators for Cpu {
    fn quantize<E: Element>(
        &self,
        operands: Checked<QuantizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let QuantizeOperands {
            x,
            row_scale,
            rounding,
            keeps_positive,
            y,
        } = operands.into_inner();
        let (format, stride, columns) = (y.format(), y.stride(), y.columns());
        if stride == 0 {
            return Ok(());
        }
        let (values, row_scale) = (x.buffer.read(), read(row_scale));
        let x = view(x, &values);
        let (drawn, numbers) = match rounding {
            Rounding::Nearest => (None, None),
            Rounding::Stochastic {
                stream,
                random,
                numbers,
            } => {
                let (words, at) = random.count();
                let drawn = (rng::key(random.seed(), stream), words.buffer.read()[at]);
                (Some(drawn), read(numbers))
            }
        };
        let (rows, counted) = (y.rows(), y.counted);
        let scales = y.scales.scales.buffer.read();
        let scales: Vec<f32> = scales[..columns].to_vec();
        let reciprocals: Vec<f32> = scales.iter().map(|scale| 1.0 / scale).collect();
        // There may be memory for more rows.
        let codes = &mut y.codes.buffer.get_mut()[..rows * stride / 4];
        let rows = parallel::chunks_mut(codes, SEEN_ROWS * stride / 4);
        let of_blocks = parallel::map(rows, |block, words| {
            let mut seen = Seen::nothing(columns);
            for (row, words) in (block * SEEN_ROWS..).zip(words.chunks_exact_mut(stride / 4)) {
                let factor = row_scale.as_ref().map(|factors| factors[row]);
                words.fill(u32::from_ne_bytes([format.zero(); 4]));
                let elements = &x.values[row * x.stride..][..columns];
                let number = numbers
                    .as_ref()
                    .map_or(row as u64, |numbers| numbers[row].into());
                let counts = u32::from(row < counted);
                let together = rng::ROUNDED_TOGETHER as usize;
                for (block, elements) in elements.chunks(together).enumerate() {
                    let bits = drawn
                        .map(|(key, step)| rng::rounding_bits(key, step, number, block as u32));
                    for (k, element) in elements.iter().enumerate() {
                        let column = together * block + k;
                        let value = match keeps_positive {
                            true => kept_positive(element.to_f32(), scales[column]),
                            false => element.to_f32(),
                        };
                        let value = factor.map_or(value, |factor| value * factor);
                        let magnitude = if value.is_finite() {
                            value.abs()
                        } else {
                            seen.not_finite = seen.not_finite.wrapping_add(counts);
                            f32::INFINITY
                        };
                        seen.largest[column] = seen.largest[column].max(magnitude);
                        let number = value * reciprocals[column];
                        if number.abs() > format.saturation() {
                            seen.saturated = seen.saturated.wrapping_add(counts);
                        }
                        let noise = bits.map(|bits| rng::rounding_noise(bits, k as u32));
                        let code = format.encode(number, noise);
                        let (word, shift) = (&mut words[column / 4], 8 * (column % 4));
                        *word = *word & !(0xff << shift) | code << shift;
                    }
                }
            }
            seen
        });
        let nothing = Seen::nothing(columns);
        let seen = of_blocks.into_iter().fold(nothing, Seen::and);
        let so_far = y.scales.largest.buffer.get_mut().iter_mut();
        for (so_far, largest) in so_far.zip(&seen.largest) {
            *so_far = so_far.max(*largest);
        }
        let counts = y.scales.counts.buffer.get_mut();
        for (word, more) in [(SATURATED, seen.saturated), (NOT_FINITE, seen.not_finite)] {
            counts[word as usize] = counts[word as usize].wrapping_add(more);
        }
        Ok(())
    }

    fn dequantize<E: Element>(
        &self,
        operands: Checked<DequantizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let DequantizeOperands { x, y } = operands.into_inner();
        let (words, scales) = (x.codes.buffer.read(), x.scales.scales.buffer.read());
        let (codes, stride, format): (&[u8], _, _) =
            (bytemuck::cast_slice(&words), x.stride(), x.format());
        for_rows(view_mut(y), |row, columns, y, floats| {
            let numbers = codes[row * stride..]
                .iter()
                .map(|&code| format.decode(code));
            for ((float, number), scale) in floats[..columns].iter_mut().zip(numbers).zip(&*scales)
            {
                *float = number * scale;
            }
            round(&floats[..columns], &mut y[..columns]);
            y[columns..].fill(E::zeroed());
        });
        Ok(())
    }

    fn update_scales(
        &self,
        operands: Checked<UpdateScalesOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let UpdateScalesOperands { margin, scales } = operands.into_inner();
        let format = scales.format();
        let largest = scales.largest.buffer.get_mut();
        for (scale, largest) in scales.scales.buffer.get_mut().iter_mut().zip(largest) {
            *scale = format.next_scale(*largest, margin, *scale);
            *largest = 0.0;
        }
        Ok(())
    }
}
