//! The entries of the SDDMM: one for each row of the contract's lists.
#![allow(unused_imports)] // where the build has none of the entries

use halfgnn_contract::sddmm::{CombineParams, SddmmParams};
use halfgnn_kernels::device::vector::{
    BFloatVector8 as BFloat8, Float4, HalfVector2 as Half2, HalfVector4 as Half4,
    HalfVector8 as Half8,
};
use halfgnn_kernels::sddmm::policy::{Additive, InFloat, InHalf, Shuffles, TensorCores};
use halfgnn_kernels::sddmm::{dot, family};

macro_rules! dot_entries {
    ($($entry:ident: $element:ident, $reduction:ident, $accumulate:ident, $wide:literal;)*) => {$(
        #[doc = concat!("SDDMM: ", stringify!($element, $reduction, $accumulate), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::sddmm`.
        #[cfg($entry)]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SddmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { dot::run::<$element, $reduction<$accumulate>, $wide>(&params) }
        }
    )*};
}

halfgnn_contract::sddmm_entries!(dot_entries);
halfgnn_contract::sddmm_combine_entries!(entries);
