//! How families of kernels without other variants than the format declare their entries: from the contract's list, with a
//! function of the family's name for each, generic over what a lane loads of 16 bytes.

/// Makes the entries of a list (see `halfgnn_contract::format`) of the functions in `$family`.
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
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $entry(params: $params) {
                // SAFETY: the host keeps the launch contract.
                unsafe { family::$family::<$crate::device::vector::$format>(&params) }
            }
        )+)*
        $(
            #[doc = $plain_doc]
            ///
            /// # Safety
            #[doc = concat!("The launch contract of [`", stringify!($plain_params), "`].")]
            #[unsafe(no_mangle)]
            pub unsafe extern "ptx-kernel" fn $plain(params: $plain_params) {
                // SAFETY: the host keeps the launch contract.
                unsafe { family::$plain(&params) }
            }
        )*
    };
}
