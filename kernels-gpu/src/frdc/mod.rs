//! Sums of ±1 over the neighbours in a graph of tiles of bits: see [`halfgnn_contract::frdc`].

mod sums;

/// The functions that the entries are, by name.
pub mod family {
    use super::sums::{IfElse, OneCount, TwoCounts, run};
    use crate::bits::{Rounded, Signs};
    use crate::device::vector::Vector;
    use halfgnn_contract::frdc::FrdcParams;

    macro_rules! frdc {
        ($($name:ident, $sign:ident: $form:ident;)+) => {$(
            /// # Safety
            /// The launch contract of [`FrdcParams`].
            #[inline(always)]
            pub unsafe fn $name<V: Vector>(params: &FrdcParams) {
                // SAFETY: the caller's promise.
                unsafe { run::<Rounded<V>, $form>(params) }
            }

            /// # Safety
            /// The launch contract of [`FrdcParams`].
            #[inline(always)]
            pub unsafe fn $sign(params: &FrdcParams) {
                // SAFETY: the caller's promise.
                unsafe { run::<Signs, $form>(params) }
            }
        )+};
    }

    frdc! {
        frdc_if_else, frdc_if_else_sign: IfElse;
        frdc_two_counts, frdc_two_counts_sign: TwoCounts;
        frdc_one_count, frdc_one_count_sign: OneCount;
    }
}
