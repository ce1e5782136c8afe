//! What the host and the GPU kernels of `halfgnn` agree on, written once and compiled by both.
//!
//! - [`Param`]: one `#[repr(C)]` struct per kernel family. A kernel takes it by value as its only parameter, the host
//!   fills the same type, so order and types cannot drift apart.
//! - [`entries`]: every entry's name and the size of its parameter. The host compares a module with it before the
//!   first launch.
//! - [`Format`]: how elements of matrices lie in memory, by which entries of a family are told apart.
//! - [`FINGERPRINT`]: a hash of this crate's own sources, stored in the PTX as `HALFGNN_CONTRACT`. PTX that was built
//!   from another version is recognised by it and never launched.
//! - Geometry that both sides compute with: edges per warp, warps per CTA, tile shapes.
//! - [`rng`]: counter-based random numbers, so that a seed gives the same dropout mask on every backend.
#![no_std]

pub mod attention;
pub mod baselines;
pub mod bits;
pub mod communities;
pub mod construct;
pub mod dot_attention;
pub mod edge_walk;
pub mod elementwise;
pub mod format;
pub mod frdc;
pub mod heads;
pub mod loss;
pub mod math;
pub mod matmul;
pub mod maximum;
pub mod messages;
pub mod metrics;
pub mod nonlinearity;
pub mod normalize;
pub mod norms;
pub mod optimizer;
pub mod quantize;
pub mod reductions;
pub mod rng;
pub mod sampling;
pub mod scan;
pub mod sddmm;
pub mod segment;
pub mod shadow;
pub mod sort;
pub mod spmm;
pub mod subgraph;

pub use format::{Format, entry};

use core::marker::PhantomData;

/// Threads of a warp.
pub const WARP: u32 = 32;

/// Bytes of the widest load of one lane, and so the alignment and the granularity of every row of a matrix.
pub const VECTOR_BYTES: u32 = 16;

/// A device address of elements of type `T`, as a kernel parameter. Null where the kernel's contract allows it.
#[repr(transparent)]
pub struct DevicePtr<T> {
    address: u64,
    element: PhantomData<fn() -> T>,
}

impl<T> DevicePtr<T> {
    /// No memory.
    pub const NULL: Self = Self::new(0);

    /// The elements from `address` on.
    #[inline]
    pub const fn new(address: u64) -> Self {
        Self {
            address,
            element: PhantomData,
        }
    }

    /// The address.
    #[inline]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Whether it names no memory.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.address == 0
    }
}

impl<T> Clone for DevicePtr<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePtr<T> {}

impl<T> core::fmt::Debug for DevicePtr<T> {
    #[inline]
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

/// Half-precision bits as they lie in memory. The host sees `half::f16`, a kernel its own half types.
pub type HalfBits = u16;

/// A struct that a kernel takes by value as its only parameter.
///
/// # Safety
/// The type is `#[repr(C)]`, `Copy`, has no padding and no pointer of the host's, so that its bytes mean the same on
/// both sides. [`param_struct!`] checks what can be checked.
pub unsafe trait Param: Copy + 'static {}

/// Bytes of `param`, as a launch wants them.
#[inline]
pub fn param_bytes<P: Param>(param: &P) -> &[u8] {
    // SAFETY: `Param` promises a `#[repr(C)]` type without padding, so every byte is initialised; the slice borrows it.
    unsafe { core::slice::from_raw_parts((param as *const P).cast::<u8>(), size_of::<P>()) }
}

/// Declares the parameter struct of a kernel family: `#[repr(C)]`, `Copy`, [`Param`], and a check at compile time that
/// its fields fill it without padding.
#[macro_export]
macro_rules! param_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $ty:ty,)+ }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name { $($(#[$field_meta])* pub $field: $ty,)+ }

        const _: () = assert!(
            size_of::<$name>() == 0 $(+ size_of::<$ty>())+,
            concat!("padding in ", stringify!($name), ": reorder its fields or fill them up to 8 bytes"),
        );

        // SAFETY: `repr(C)` and `Copy` by the lines above, free of padding by the assertion, and made of integers,
        // floats and device addresses only.
        unsafe impl $crate::Param for $name {}
    };
}

/// What a module must offer: one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySpec {
    /// The entry's name.
    pub name: &'static str,
    /// Size in bytes of its one by-value parameter.
    pub param_bytes: usize,
    /// Its family and format, by which [`entry`] finds it; `None` where it knows no format, or is one of more policies.
    pub key: Option<(&'static str, Format)>,
}

/// Every entry that the kernels crate exports.
#[inline]
pub fn entries() -> impl Iterator<Item = EntrySpec> {
    [
        spmm::ENTRIES,
        sddmm::ENTRIES,
        matmul::ENTRIES,
        elementwise::ENTRIES,
        maximum::ENTRIES,
        nonlinearity::ENTRIES,
        loss::ENTRIES,
        sampling::ENTRIES,
        subgraph::ENTRIES,
        optimizer::ENTRIES,
        normalize::ENTRIES,
        norms::ENTRIES,
        baselines::ENTRIES,
        segment::ENTRIES,
        heads::ENTRIES,
        attention::ENTRIES,
        dot_attention::ENTRIES,
        messages::ENTRIES,
        reductions::ENTRIES,
        shadow::ENTRIES,
        bits::ENTRIES,
        frdc::ENTRIES,
        sort::ENTRIES,
        scan::ENTRIES,
        communities::ENTRIES,
        construct::ENTRIES,
        quantize::ENTRIES,
        metrics::ENTRIES,
    ]
    .into_iter()
    .flatten()
    .copied()
    .flatten()
    .copied()
}

/// Name of the constant in the PTX that holds [`FINGERPRINT`].
pub const FINGERPRINT_SYMBOL: &str = "HALFGNN_CONTRACT";

/// A hash of the sources of this crate, equal in the PTX and in the host exactly when both were built from the same contract. The
/// build script computes it.
pub const FINGERPRINT: u64 = decimal(env!("HALFGNN_CONTRACT"));

/// The number that a text of decimal digits stands for.
#[inline]
const fn decimal(text: &str) -> u64 {
    let (digits, mut number, mut i) = (text.as_bytes(), 0, 0);
    while i < digits.len() {
        number = number * 10 + (digits[i] - b'0') as u64;
        i += 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn numbers_are_read() {
        assert_eq!(decimal("0"), 0);
        assert_eq!(decimal("18446744073709551615"), u64::MAX);
    }
}
