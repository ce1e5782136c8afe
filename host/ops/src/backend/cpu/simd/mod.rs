//! Vectors of floats for the operators' inner loops: `pulp`'s, and what halves and bfloats need with them.
//!
//! A [`Kernel`] is written once, for [`Lanes`] of any width, and [`Instructions`] chooses the width when the program
//! runs. No product and sum is contracted into one operation, and vectors lie along the features, so that each element
//! is computed by the same roundings in the same order at every width: results do not depend on the instructions.
//!
//! [`Instructions`]: super::Instructions

pub(crate) mod platform;
mod sums;

pub(crate) use sums::{
    InPlace, LARGEST_FACTOR, PlainSums, RowSums, ShrunkSums, Total, WeightedSums,
};

use crate::tensor::{Element, Precision};
use bytemuck::Pod;
use pulp::Simd;

/// The vector of floats of some lanes.
pub(crate) type Floats<L> = <<L as Lanes>::Simd as Simd>::f32s;

/// A width of vectors, and the proof that the processor has the instructions for it.
///
/// Rows are padded to whole 16-byte vectors: [`sweep`] walks one with the widest vectors first, and what is left with
/// narrower ones, so that nothing is masked.
pub(crate) trait Lanes: Copy + Send + Sync + 'static {
    /// What `pulp` knows of the instructions.
    type Simd: Simd;
    /// Half as many lanes; at four lanes itself.
    type Narrower: Lanes;
    /// Floats of a vector.
    const LANES: usize = <Self::Simd as Simd>::F32_LANES;

    /// What `pulp` knows of the instructions.
    fn simd(self) -> Self::Simd;

    /// Half as many lanes; at four lanes itself.
    fn narrower(self) -> Self::Narrower;

    /// Asks for the memory at an address, which need be none. Nothing where that cannot be asked for.
    #[inline(always)]
    fn prefetch(self, _address: *const u8) {}

    /// The bits of as many halves as there are lanes, widened.
    fn widen_halves(self, halves: &[u16]) -> Floats<Self>;

    /// Whether [`Lanes::shrink_halves`] is faster than [`Lanes::widen_halves`].
    const SHRINKS: bool = false;

    /// Of the bits of twice as many halves as there are lanes those at even places and those at odd ones, each
    /// [shrunk].
    #[inline(always)]
    fn shrink_halves(self, halves: &[u16]) -> [Floats<Self>; 2] {
        let mut floats = [self.simd().splat_f32s(0.0); 2];
        for (at, &half) in halves[..2 * Self::LANES].iter().enumerate() {
            let lanes = bytemuck::cast_slice_mut(std::slice::from_mut(&mut floats[at % 2]));
            lanes[at / 2] = shrunk(half);
        }
        floats
    }

    /// The floats at even places and those at odd ones in the order of their places.
    #[inline(always)]
    fn interleave(self, parts: [Floats<Self>; 2]) -> [Floats<Self>; 2] {
        let mut floats = [self.simd().splat_f32s(0.0); 2];
        let all: &mut [f32] = bytemuck::cast_slice_mut(&mut floats);
        for (first, part) in parts.iter().enumerate() {
            let part: &[f32] = bytemuck::cast_slice(std::slice::from_ref(part));
            for lane in 0..Self::LANES {
                all[2 * lane + first] = part[lane];
            }
        }
        floats
    }

    /// Writes the bits of the nearest halves, ties to even.
    fn round_halves(self, floats: Floats<Self>, halves: &mut [u16]);

    /// The bits of as many bfloats as there are lanes, widened.
    fn widen_bfloats(self, bfloats: &[u16]) -> Floats<Self>;

    /// Writes the bits of the nearest bfloats, ties to even. In integers: AVX512-BF16 would make zeros of subnormals.
    #[inline(always)]
    fn round_bfloats(self, floats: Floats<Self>, bfloats: &mut [u16]) {
        let bits: &[u32] = bytemuck::cast_slice(std::slice::from_ref(&floats));
        for (bfloat, &bits) in bfloats.iter_mut().zip(bits) {
            *bfloat = nearest_bfloat(bits);
        }
    }
}

/// What [`shrunk`] numbers are multiplied with to become what they were.
pub(crate) const GROWTH: f32 = f32::from_bits((127 + 112) << 23);

/// The bits of the float that is a half over 2^112: its fields moved to where a float has them, without another bias of
/// the exponent. Of a half that is infinite or NaN it is another number. Sums of such floats have the bits of the sums
/// of halves, over 2^112: what is below the smallest normal float is a multiple of 2^-136, and exact.
#[inline(always)]
pub(crate) fn shrunk(half: u16) -> u32 {
    let (sign, rest) = (u32::from(half & 0x8000), u32::from(half & 0x7fff));
    sign << 16 | rest << 13
}

/// The bits of the bfloat that is nearest to a float, ties to even; without a branch.
#[inline(always)]
pub(crate) fn nearest_bfloat(bits: u32) -> u16 {
    let to_even = bits >> 16 & 1;
    let nearest = bits.wrapping_add(0x7fff + to_even);
    // Rounding could carry a NaN into an infinity.
    let quiet = bits | 0x0040_0000;
    let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
    ((if is_nan { quiet } else { nearest }) >> 16) as u16
}

/// An operator's inner loop, written twice: plain, and in vectors. Both have the same bits.
pub(crate) trait Kernel {
    /// What comes of it.
    type Output;

    /// In plain Rust, element by element.
    fn plain(self) -> Self::Output;

    /// In vectors. To be marked `#[inline(always)]`, and so is whatever it calls that works on vectors: a function that
    /// is not inlined is compiled without the instructions.
    fn vectors<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// A [`Kernel`] that is one loop in plain Rust, of which the compiler makes vectors of each width.
pub(crate) trait Loop {
    /// Runs it. To be marked `#[inline(always)]`, as [`Kernel::vectors`].
    fn run(self);
}

impl<T: Loop> Kernel for T {
    type Output = ();

    fn plain(self) {
        self.run();
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, _: L) {
        self.run();
    }
}

/// A kernel and its lanes, as `pulp` needs to call them.
#[derive(Clone, Copy)]
pub(super) struct Call<K, L>(pub(super) K, pub(super) L);

impl<K: Kernel, L: Lanes> pulp::NullaryFnOnce for Call<K, L> {
    type Output = K::Output;

    #[inline(always)]
    fn call(self) -> K::Output {
        self.0.vectors(self.1)
    }
}

/// What is done with `N` vectors of a row at a time.
pub(crate) trait Step {
    /// Those that begin at element `at` of the row.
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize);
}

/// Calls `step` for all elements from `start` to `end`, as many vectors at a time as registers hold. The distance is a
/// multiple of four.
#[inline(always)]
pub(crate) fn sweep<L: Lanes>(lanes: L, start: usize, end: usize, step: &mut impl Step) {
    let mut at = start;
    while at + 8 * L::LANES <= end {
        step.step::<L, 8>(lanes, at);
        at += 8 * L::LANES;
    }
    if at + 4 * L::LANES <= end {
        step.step::<L, 4>(lanes, at);
        at += 4 * L::LANES;
    }
    if at + 2 * L::LANES <= end {
        step.step::<L, 2>(lanes, at);
        at += 2 * L::LANES;
    }
    if at + L::LANES <= end {
        step.step::<L, 1>(lanes, at);
        at += L::LANES;
    }
    if L::LANES > MIN_LANES && at < end {
        sweep_rest(lanes.narrower(), at, end, step);
    }
}

/// Most lanes of a vector.
pub(crate) const MOST_LANES: usize = 16;

/// Fewest lanes of a vector.
const MIN_LANES: usize = 4;

/// [`sweep`] over less than a wider vector.
#[inline(always)]
fn sweep_rest<L: Lanes>(lanes: L, start: usize, end: usize, step: &mut impl Step) {
    let mut at = start;
    if at + L::LANES <= end {
        step.step::<L, 1>(lanes, at);
        at += L::LANES;
    }
    if L::LANES > MIN_LANES && at + MIN_LANES <= end {
        // From sixteen lanes there are two steps down, not more.
        step.step::<L::Narrower, 1>(lanes.narrower(), at);
    }
}

/// The elements at the start of `elements`, in float.
#[inline(always)]
pub(crate) fn load<L: Lanes, E: Element>(lanes: L, elements: &[E]) -> Floats<L> {
    let elements = &elements[..L::LANES];
    match E::PRECISION {
        Precision::Half => lanes.widen_halves(bytemuck::cast_slice(elements)),
        Precision::BFloat16 => lanes.widen_bfloats(bytemuck::cast_slice(elements)),
        Precision::Float => read(elements),
    }
}

/// Writes the elements that are nearest to `floats` to the start of `elements`.
#[inline(always)]
pub(crate) fn store<L: Lanes, E: Element>(lanes: L, floats: Floats<L>, elements: &mut [E]) {
    let elements = &mut elements[..L::LANES];
    match E::PRECISION {
        Precision::Half => lanes.round_halves(floats, bytemuck::cast_slice_mut(elements)),
        Precision::BFloat16 => lanes.round_bfloats(floats, bytemuck::cast_slice_mut(elements)),
        Precision::Float => write(floats, elements),
    }
}

/// A vector at any address. A place of this type is read and written without a call, which might not be inlined.
#[repr(C, packed)]
struct Unaligned<V>(V);

/// A vector of the values at the start of `values`, wherever they lie.
#[inline(always)]
pub(super) fn read<T: Pod, V: Pod>(values: &[T]) -> V {
    assert!(size_of::<V>() <= size_of_val(values), "a vector is read");
    // SAFETY: the slice has the bytes of a `V`, any of which are one.
    unsafe { (*values.as_ptr().cast::<Unaligned<V>>()).0 }
}

/// Writes a vector to the start of `values`.
#[inline(always)]
pub(super) fn write<T: Pod, V: Pod>(vector: V, values: &mut [T]) {
    assert!(size_of::<V>() <= size_of_val(values), "a vector is written");
    // SAFETY: the slice has memory for the bytes of a `V`, which have no padding, and any bytes are a `T`.
    unsafe { (*values.as_mut_ptr().cast::<Unaligned<V>>()).0 = vector };
}

/// Whether all bits of some elements are zero.
#[inline]
pub(crate) fn is_zero<E: Element>(elements: &[E]) -> bool {
    are_zero(bytemuck::cast_slice(elements))
}

fn are_zero(bytes: &[u8]) -> bool {
    let mut vectors = bytes.chunks_exact(32);
    let any = (&mut vectors).fold([0u64; 4], |any, vector| {
        let words: [u64; 4] = read(vector);
        [0, 1, 2, 3].map(|i| any[i] | words[i])
    });
    any == [0; 4] && vectors.remainder().iter().all(|&byte| byte == 0)
}

/// Writes `elements` to `floats`, exactly. Both have one length, whichever.
#[inline(always)]
pub(crate) fn widen<L: Lanes, E: Element>(lanes: L, elements: &[E], floats: &mut [f32]) {
    let whole = elements.len() / MIN_LANES * MIN_LANES;
    assert_eq!(elements.len(), floats.len(), "one length");
    sweep(lanes, 0, whole, &mut Widening { elements, floats });
    for (element, float) in elements[whole..].iter().zip(&mut floats[whole..]) {
        *float = element.to_f32();
    }
}

/// Writes `floats` to `elements`, each rounded to the nearest, ties to even. Both have one length, whichever.
#[inline(always)]
pub(crate) fn round<L: Lanes, E: Element>(lanes: L, floats: &[f32], elements: &mut [E]) {
    let whole = elements.len() / MIN_LANES * MIN_LANES;
    assert_eq!(elements.len(), floats.len(), "one length");
    sweep(lanes, 0, whole, &mut Rounding { floats, elements });
    for (element, float) in elements[whole..].iter_mut().zip(&floats[whole..]) {
        *element = E::from_f32(*float);
    }
}

struct Widening<'a, E> {
    elements: &'a [E],
    floats: &'a mut [f32],
}

impl<E: Element> Step for Widening<'_, E> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        for i in 0..N {
            let at = at + i * L::LANES;
            write(load(lanes, &self.elements[at..]), &mut self.floats[at..]);
        }
    }
}

struct Rounding<'a, E> {
    floats: &'a [f32],
    elements: &'a mut [E],
}

impl<E: Element> Step for Rounding<'_, E> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        for i in 0..N {
            let at = at + i * L::LANES;
            let floats: Floats<L> = read(&self.floats[at..]);
            store(lanes, floats, &mut self.elements[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::Instructions;
    use half::f16;

    /// All halves, shrunk and back in their order, as floats; none of plain code.
    struct Shrink<'a>(&'a [u16]);

    impl Kernel for Shrink<'_> {
        type Output = Vec<f32>;

        fn plain(self) -> Vec<f32> {
            let shrunk = self.0.iter().map(|&half| f32::from_bits(shrunk(half)));
            shrunk.collect()
        }

        #[inline(always)]
        fn vectors<L: Lanes>(self, lanes: L) -> Vec<f32> {
            let mut floats = Vec::new();
            for halves in self.0.chunks_exact(2 * L::LANES) {
                let parts = lanes.interleave(lanes.shrink_halves(halves));
                floats.extend_from_slice(bytemuck::cast_slice(&parts));
            }
            floats
        }
    }

    #[test]
    fn every_finite_half_is_shrunk_exactly() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        for instructions in Instructions::available() {
            let floats = instructions.run(Shrink(&all));
            assert_eq!(floats.len(), all.len(), "{instructions}");
            for (&bits, float) in all.iter().zip(floats) {
                let half = f16::from_bits(bits);
                if half.is_finite() {
                    let grown = (float * GROWTH).to_bits();
                    assert_eq!(grown, half.to_f32().to_bits(), "{half}, {instructions}");
                }
            }
        }
    }
}
