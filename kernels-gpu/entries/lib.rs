//! The entries of the kernels, each behind a `cfg` of its own name.
//!
//! The builder compiles this root once for each module of kernels, with the names of the module's entries set. An entry
//! instantiates a function of the library for one set of policies, so a module holds the code of its entries alone.
#![no_std]
#![feature(abi_ptx, asm_experimental_arch)]
#![allow(unexpected_cfgs)] // the names of entries, which the builder sets

/// Makes the entries of a list (see `halfgnn_contract::format`) of the functions in `family`, each generic over what a lane
/// loads of 16 bytes.
macro_rules! entries {
    (
        formats { $(#[doc = $doc:literal] $family:ident($params:ident): $($format:ident = $entry:ident),+;)* }
        plain { $(#[doc = $plain_doc:literal] $plain:ident($plain_params:ident);)* }
    ) => {
        $($(
            #[doc = $doc]
            #[doc = concat!("In ", stringify!($format), ".")]
            ///
            /// # Safety
            #[doc = concat!("The launch contract of [`", stringify!($params), "`].")]
            #[cfg($entry)]
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $entry(params: $params) {
                // SAFETY: the host keeps the launch contract.
                unsafe { family::$family::<halfgnn_kernels::device::vector::$format>(&params) }
            }
        )+)*
        $(
            #[doc = $plain_doc]
            ///
            /// # Safety
            #[doc = concat!("The launch contract of [`", stringify!($plain_params), "`].")]
            #[cfg($plain)]
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $plain(params: $plain_params) {
                // SAFETY: the host keeps the launch contract.
                unsafe { family::$plain(&params) }
            }
        )*
    };
}

/// The entries of families whose only variants are formats: the module of contract and library, and the list.
macro_rules! families {
    ($($module:ident: $list:ident;)*) => {$(
        mod $module {
            #[allow(unused_imports)] // where the build has none of the family's entries
            use {halfgnn_contract::$module::*, halfgnn_kernels::$module::family};
            halfgnn_contract::$list!(entries);
        }
    )*};
}

families! {
    attention: attention_entries;
    baselines: baselines_entries;
    bits: bits_entries;
    communities: communities_entries;
    construct: construct_entries;
    dot_attention: dot_attention_entries;
    elementwise: elementwise_entries;
    frdc: frdc_entries;
    heads: heads_entries;
    loss: loss_entries;
    maximum: maximum_entries;
    messages: messages_entries;
    metrics: metrics_entries;
    nonlinearity: nonlinearity_entries;
    normalize: normalize_entries;
    norms: norms_entries;
    optimizer: optimizer_entries;
    quantize: quantize_entries;
    reductions: reductions_entries;
    sampling: sampling_entries;
    scan: scan_entries;
    segment: segment_entries;
    shadow: shadow_entries;
    sort: sort_entries;
    subgraph: subgraph_entries;
}

mod matmul;
mod sddmm;
mod spmm;

// The dynamic shared memory: one symbol for all kernels of a module, since the size is a launch parameter.
core::arch::global_asm!(".extern .shared .align 16 .b8 halfgnn_shared[];");

/// Identifies the contract that a module was built from; see `halfgnn_contract::FINGERPRINT`.
#[unsafe(no_mangle)]
pub static HALFGNN_CONTRACT: u64 = halfgnn_contract::FINGERPRINT;
