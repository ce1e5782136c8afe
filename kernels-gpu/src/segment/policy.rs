//! What a variant of a segment reduction is made of: where an edge's value comes from, and how values are joined.

use crate::attention::weight::HeadScores;
use crate::device::float;
use crate::device::global::Global;
use crate::device::vector::{Vector, store_element};
use core::marker::PhantomData;
use halfgnn_contract::attention::Softmax;
use halfgnn_contract::segment::{FLOAT_WORDS, SOFTMAX_WORDS, SegmentParams};
use halfgnn_contract::{DevicePtr, HalfBits};

/// How values are joined: associative, up to rounding, with a value of no edge.
pub trait Monoid: Copy {
    /// Words of a value.
    const WORDS: u32;
    /// The value of no edge.
    fn empty() -> Self;
    /// The value of this one's edges and then the other's.
    fn join(self, other: Self) -> Self;
    /// Each word of a function of its index and itself.
    fn map(self, f: impl FnMut(u32, f32) -> f32) -> Self;
    /// Writes the value of row `at` of the output planes.
    ///
    /// # Safety
    /// The launch contract; no other thread writes that row.
    unsafe fn write(self, params: &SegmentParams, at: u64);
}

macro_rules! monoid_of_one_float {
    ($(#[$doc:meta])* $name:ident, $empty:expr, |$a:ident, $b:ident| $join:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(pub f32);

        impl Monoid for $name {
            const WORDS: u32 = FLOAT_WORDS;
            #[inline(always)]
            fn empty() -> Self {
                Self($empty)
            }
            #[inline(always)]
            fn join(self, other: Self) -> Self {
                let ($a, $b) = (self.0, other.0);
                Self($join)
            }
            #[inline(always)]
            fn map(self, mut f: impl FnMut(u32, f32) -> f32) -> Self {
                Self(f(0, self.0))
            }
            #[inline(always)]
            unsafe fn write(self, params: &SegmentParams, at: u64) {
                // SAFETY: the caller's promise.
                unsafe { Global::<f32>::new(params.result).at(at).store(self.0) };
            }
        }

        impl From<f32> for $name {
            #[inline(always)]
            fn from(value: f32) -> Self {
                Self(value)
            }
        }
    };
}

monoid_of_one_float! {
    /// The sum.
    Sum, 0.0, |a, b| a + b
}

monoid_of_one_float! {
    /// The maximum; a NaN is the largest.
    Max, f32::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b }
}

/// The sum, written as an element: rounded once, at the end.
pub struct Elements<V>(f32, PhantomData<V>);

impl<V> Clone for Elements<V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Elements<V> {}

impl<V> From<f32> for Elements<V> {
    #[inline(always)]
    fn from(value: f32) -> Self {
        Self(value, PhantomData)
    }
}

impl<V: Vector> Monoid for Elements<V> {
    const WORDS: u32 = FLOAT_WORDS;
    #[inline(always)]
    fn empty() -> Self {
        Self::from(0.0)
    }
    #[inline(always)]
    fn join(self, other: Self) -> Self {
        Self::from(self.0 + other.0)
    }
    #[inline(always)]
    fn map(self, mut f: impl FnMut(u32, f32) -> f32) -> Self {
        Self::from(f(0, self.0))
    }
    #[inline(always)]
    unsafe fn write(self, params: &SegmentParams, at: u64) {
        // SAFETY: the caller's promise.
        unsafe { store_element::<V>(Global::new(params.result).at(at), self.0) };
    }
}

impl Monoid for Softmax {
    const WORDS: u32 = SOFTMAX_WORDS;
    #[inline(always)]
    fn empty() -> Self {
        Self::EMPTY
    }
    #[inline(always)]
    fn join(self, other: Self) -> Self {
        self.join_by(other, float::mul_add)
    }
    #[inline(always)]
    fn map(self, mut f: impl FnMut(u32, f32) -> f32) -> Self {
        Self {
            m: f(0, self.m),
            z: f(1, self.z),
            positive: f(2, self.positive),
        }
    }
    #[inline(always)]
    unsafe fn write(self, params: &SegmentParams, at: u64) {
        let share = Global::<f32>::new(params.positive_share);
        // SAFETY: the caller's promise.
        unsafe {
            Global::<[u32; 2]>::new(params.result)
                .at(at)
                .store(self.statistics().map(f32::to_bits));
            if !share.is_null() {
                share.at(at).store(self.positive_share());
            }
        }
    }
}

/// An edge as a source sees it.
#[derive(Clone, Copy)]
pub struct Edge {
    /// Its place in the order of the adjacency.
    pub at: u64,
    /// Its row.
    pub row: u32,
    /// Its column; not read where [`Source::COLUMNS`] is false.
    pub column: u32,
}

/// Where an edge's value comes from.
pub trait Source<M: Monoid> {
    /// Whether it wants the columns of the edges.
    const COLUMNS: bool;
    /// What stands in the place of an edge past the last, of no row.
    #[inline(always)]
    fn none() -> M {
        M::empty()
    }
    /// The value of an edge.
    ///
    /// # Safety
    /// It is an edge of the graph.
    unsafe fn one(params: &SegmentParams, head: u32, edge: Edge) -> M;
    /// The values of `edges[0].at .. + 4`.
    ///
    /// # Safety
    /// They are edges of the graph, and the first is a multiple of 4.
    #[inline(always)]
    unsafe fn four(params: &SegmentParams, head: u32, [a, b, c, d]: [Edge; 4]) -> [M; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            [
                Self::one(params, head, a),
                Self::one(params, head, b),
                Self::one(params, head, c),
                Self::one(params, head, d),
            ]
        }
    }
}

/// A value whose `z` is that of any one edge, so that the compiler knows it to be 1.
const NO_SCORE: Softmax = Softmax::of(0.0, 0.0);

/// The score of the edge, from the vertices' scores and, where it is `BIASED`, its own bias. The sums are stored where there is room for them.
pub struct ScoresOf<const BIASED: bool>;

/// Without biases.
pub type Scores = ScoresOf<false>;

/// With biases.
pub type BiasedScores = ScoresOf<true>;

impl<const BIASED: bool> ScoresOf<BIASED> {
    /// # Safety
    /// As [`Source::one`].
    #[inline(always)]
    unsafe fn sum(params: &SegmentParams, head: u32, edge: Edge) -> f32 {
        // SAFETY: the caller's promise; a plane of biases is as long as there are edges.
        unsafe {
            let sum = HeadScores::new(&params.attention, head).sum(edge.row, edge.column);
            if BIASED {
                let biases = Global::<f32>::new(params.values);
                sum + biases.at(Self::place(params, head, edge.at)).read()
            } else {
                sum
            }
        }
    }

    /// Where the number of an edge stands in planes of edges.
    #[inline(always)]
    fn place(params: &SegmentParams, head: u32, edge: u64) -> u64 {
        head as u64 * params.plane_stride + edge
    }
}

impl<const BIASED: bool> Source<Softmax> for ScoresOf<BIASED> {
    const COLUMNS: bool = true;
    #[inline(always)]
    fn none() -> Softmax {
        NO_SCORE
    }
    #[inline(always)]
    unsafe fn one(params: &SegmentParams, head: u32, edge: Edge) -> Softmax {
        let of = &params.attention;
        // SAFETY: the caller's promise; a plane of sums is as long as there are edges, and the edge is the lane's own.
        unsafe {
            let sum = Self::sum(params, head, edge);
            let sums = Global::<f32>::new(of.sums);
            if !sums.is_null() {
                sums.at(Self::place(params, head, edge.at)).store(sum);
            }
            Softmax::of(sum, of.slope)
        }
    }
    #[inline(always)]
    unsafe fn four(params: &SegmentParams, head: u32, edges: [Edge; 4]) -> [Softmax; 4] {
        let of = &params.attention;
        // SAFETY: as above; planes are aligned to 16 bytes. What is stored is not read before the sums over the edges.
        unsafe {
            let four = edges.map(|edge| Self::sum(params, head, edge));
            let sums = Global::<f32>::new(of.sums);
            if !sums.is_null() {
                let place = sums.at(Self::place(params, head, edges[0].at));
                Global::<[u32; 4]>::cast(place).store_once(four.map(f32::to_bits));
            }
            four.map(|sum| Softmax::of(sum, of.slope))
        }
    }
}

/// Four consecutive values of a plane, or one, in float.
struct Values<V>(PhantomData<V>);

impl<V: Vector> Values<V> {
    #[inline(always)]
    fn plane(values: DevicePtr<HalfBits>, params: &SegmentParams, head: u32) -> Global<V::Feature> {
        Global::new(values).at(head as u64 * params.plane_stride)
    }

    /// # Safety
    /// As [`Source::one`].
    #[inline(always)]
    unsafe fn one(
        values: DevicePtr<HalfBits>,
        params: &SegmentParams,
        head: u32,
        edge: u64,
    ) -> f32 {
        // SAFETY: the caller's promise.
        V::weight_to_f32(unsafe { V::weight(Self::plane(values, params, head).at(edge)) })
    }

    /// # Safety
    /// As [`Source::four`].
    #[inline(always)]
    unsafe fn four(
        values: DevicePtr<HalfBits>,
        params: &SegmentParams,
        head: u32,
        edge: u64,
    ) -> [f32; 4] {
        // SAFETY: the caller's promise; planes are aligned to 16 bytes.
        unsafe { V::weights(Self::plane(values, params, head).at(edge)) }.map(V::weight_to_f32)
    }
}

/// A value an edge.
pub struct Plane<V>(PhantomData<V>);

impl<V: Vector, M: Monoid + From<f32>> Source<M> for Plane<V> {
    const COLUMNS: bool = false;
    #[inline(always)]
    unsafe fn one(params: &SegmentParams, head: u32, edge: Edge) -> M {
        // SAFETY: the caller's promise.
        unsafe { Values::<V>::one(params.values, params, head, edge.at) }.into()
    }
    #[inline(always)]
    unsafe fn four(params: &SegmentParams, head: u32, [edge, ..]: [Edge; 4]) -> [M; 4] {
        // SAFETY: the caller's promise.
        unsafe { Values::<V>::four(params.values, params, head, edge.at) }.map(M::from)
    }
}

/// The product of two values an edge, in float.
pub struct Product<V>(PhantomData<V>);

impl<V: Vector> Source<Sum> for Product<V> {
    const COLUMNS: bool = false;
    #[inline(always)]
    unsafe fn one(params: &SegmentParams, head: u32, edge: Edge) -> Sum {
        // SAFETY: the caller's promise.
        unsafe {
            let value = Values::<V>::one(params.values, params, head, edge.at);
            Sum(value * Values::<V>::one(params.factors, params, head, edge.at))
        }
    }
    #[inline(always)]
    unsafe fn four(params: &SegmentParams, head: u32, [edge, ..]: [Edge; 4]) -> [Sum; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let [a, b, c, d] = Values::<V>::four(params.values, params, head, edge.at);
            let [e, f, g, h] = Values::<V>::four(params.factors, params, head, edge.at);
            [Sum(a * e), Sum(b * f), Sum(c * g), Sum(d * h)]
        }
    }
}

/// The value that a map picks: that of the same edge in another order.
pub struct Gathered<V>(PhantomData<V>);

impl<V: Vector> Source<Sum> for Gathered<V> {
    const COLUMNS: bool = false;
    #[inline(always)]
    unsafe fn one(params: &SegmentParams, head: u32, edge: Edge) -> Sum {
        // SAFETY: the map has an edge for each edge.
        unsafe {
            let from = Global::<u32>::new(params.map).at(edge.at).read();
            Sum(Values::<V>::one(params.values, params, head, from as u64))
        }
    }
}

/// The element of the vector that the edge's column names.
pub struct Named<V>(PhantomData<V>);

impl<V: Vector> Named<V> {
    /// # Safety
    /// As [`Source::one`].
    #[inline(always)]
    unsafe fn element(params: &SegmentParams, edge: Edge) -> f32 {
        let x = Global::<V::Feature>::new(params.factors);
        // SAFETY: the caller's promise; the vector has an element for each column.
        V::weight_to_f32(unsafe { V::weight(x.at(edge.column as u64)) })
    }
}

impl<V: Vector> Source<Elements<V>> for Named<V> {
    const COLUMNS: bool = true;
    #[inline(always)]
    unsafe fn one(params: &SegmentParams, _: u32, edge: Edge) -> Elements<V> {
        // SAFETY: the caller's promise.
        unsafe { Self::element(params, edge) }.into()
    }
}

/// The same times the value of the edge, in float.
pub struct WeightedNamed<V>(PhantomData<V>);

impl<V: Vector> Source<Elements<V>> for WeightedNamed<V> {
    const COLUMNS: bool = true;
    #[inline(always)]
    unsafe fn one(params: &SegmentParams, head: u32, edge: Edge) -> Elements<V> {
        // SAFETY: the caller's promise.
        unsafe {
            let weight = Values::<V>::one(params.values, params, head, edge.at);
            (weight * Named::<V>::element(params, edge)).into()
        }
    }
    #[inline(always)]
    unsafe fn four(params: &SegmentParams, head: u32, edges: [Edge; 4]) -> [Elements<V>; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let weights = Values::<V>::four(params.values, params, head, edges[0].at);
            let [a, b, c, d] = edges.map(|edge| Named::<V>::element(params, edge));
            let [e, f, g, h] = weights;
            [a * e, b * f, c * g, d * h].map(Elements::from)
        }
    }
}
