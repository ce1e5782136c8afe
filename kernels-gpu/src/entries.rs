//! How families of kernels without variants declare their entries.

/// Declares entries that call a function each.
macro_rules! entries {
    ($($(#[$doc:meta])* $entry:ident($params:ident) = $call:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        #[doc = concat!("The launch contract of [`", stringify!($params), "`].")]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: $params) {
            // SAFETY: the host keeps the launch contract.
            unsafe { $call(&params) }
        }
    )*};
}
