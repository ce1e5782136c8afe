//! The trampolines: one for each entry point, each a jump through a slot of one table.
//!
//! ```text
//! cust ──call──▶ cuMemAlloc_v2:  jmp *slot       slot ─┬─ at first           ─▶ answers CUDA_ERROR_NO_DEVICE
//!                                                      ├─ bound              ─▶ cuMemAlloc_v2 of libcuda.so.1
//!                                                      └─ the driver lacks it ─▶ answers CUDA_ERROR_NOT_FOUND
//! ```
//!
//! A jump leaves registers and stack as the caller made them, so one instruction serves every signature. Slots and
//! trampolines are one piece of assembly and hence one object file: a caller of [`bind`] makes the linker take them
//! all. No other library in the process, the real driver among them, ever binds to them.

use std::arch::global_asm;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::super::{directives, jump_through};
use super::entry_points::for_each_entry_point;

/// `CUDA_ERROR_NO_DEVICE`, the answer of every entry point while no driver is bound.
const NO_DEVICE: c_uint = 100;
/// `CUDA_ERROR_NOT_FOUND`, the answer of an entry point that the bound driver does not export.
const NOT_FOUND: c_uint = 500;

/// Stands for every entry point while no driver is bound. Takes no arguments where its callers pass some: in the C
/// calling conventions of x86-64 and AArch64, Windows' among them, the caller removes them.
extern "C" fn answer_no_device() -> c_uint {
    NO_DEVICE
}

/// Stands for an entry point that the bound driver lacks.
extern "C" fn answer_not_found() -> c_uint {
    NOT_FOUND
}

/// `cuGetErrorName` while no driver is bound. Without an answer of its own, formatting any error of `cust` would panic.
///
/// # Safety
/// `name` is null or may be written to.
unsafe extern "C" fn answer_error_name(error: c_uint, name: *mut *const c_char) -> c_uint {
    let text = match error {
        0 => c"CUDA_SUCCESS",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        _ => c"CUDA_ERROR_UNKNOWN",
    };
    // SAFETY: what this function asks of its caller.
    unsafe { answer_text(text, name) }
}

/// `cuGetErrorString` while no driver is bound.
///
/// # Safety
/// `string` is null or may be written to.
unsafe extern "C" fn answer_error_string(error: c_uint, string: *mut *const c_char) -> c_uint {
    let text = match error {
        0 => c"no error",
        NO_DEVICE => c"no CUDA driver is loaded",
        _ => c"unknown error (no CUDA driver is loaded)",
    };
    // SAFETY: what this function asks of its caller.
    unsafe { answer_text(text, string) }
}

/// Writes `text` where the caller of an entry point asks for it, or returns `CUDA_ERROR_INVALID_VALUE` for null.
///
/// # Safety
/// `target` is null or may be written to.
unsafe fn answer_text(text: &'static CStr, target: *mut *const c_char) -> c_uint {
    if target.is_null() {
        return 1;
    }
    // SAFETY: not null, so writable by what this function asks of its caller.
    unsafe { target.write(text.as_ptr()) };
    0
}

/// The function that a slot holds while no driver is bound, as an operand of the assembly below.
macro_rules! first_answer {
    (cuGetErrorName) => {
        "{error_name}"
    };
    (cuGetErrorString) => {
        "{error_string}"
    };
    ($other:ident) => {
        "{no_device}"
    };
}

/// Emits slots and trampolines, and [`NAMES`] in the same order.
macro_rules! define {
    ($($name:ident)+) => {
        global_asm!(
            directives!(data),
            ".balign 8",
            directives!(symbol "object" "halfgnn_cuda_slots"),
            $(concat!(".Lhalfgnn_slot_", stringify!($name), ": .quad ", first_answer!($name)),)+
            directives!(end "halfgnn_cuda_slots"),
            ".popsection",
            directives!(text),
            $(concat!(
                ".balign 16\n",
                directives!(symbol "function" stringify!($name)), "\n",
                jump_through!(concat!(".Lhalfgnn_slot_", stringify!($name))),
                directives!(end stringify!($name)),
            ),)+
            ".popsection",
            no_device = sym answer_no_device,
            error_name = sym answer_error_name,
            error_string = sym answer_error_string,
        );

        /// The entry points' names, in the order of the slots.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),+];
    };
}
for_each_entry_point!(define);

unsafe extern "C" {
    /// The table that the assembly above defines.
    #[link_name = "halfgnn_cuda_slots"]
    static SLOTS: [AtomicPtr<c_void>; NAMES.len()];
}

/// Fills every slot with what `symbol` finds for its name, or with an answer that says that it is not there. Returns
/// the names that were not found.
///
/// # Safety
/// What `symbol` returns is a function of that name of the CUDA driver's API, and stays callable until the process
/// ends.
pub(crate) unsafe fn bind(
    mut symbol: impl FnMut(&str) -> Option<*mut c_void>,
) -> Vec<&'static str> {
    // SAFETY: the assembly above defines `NAMES.len()` words of eight bytes, aligned to eight, in writable memory, each
    // the address of a function. Only this function and the trampolines touch them; the trampolines read whole words.
    let slots = unsafe { &SLOTS };
    let mut missing = Vec::new();
    for (slot, &name) in slots.iter().zip(NAMES) {
        let target = symbol(name).unwrap_or_else(|| {
            missing.push(name);
            answer_not_found as extern "C" fn() -> c_uint as *mut c_void
        });
        slot.store(target, Ordering::Release);
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_distinct() {
        assert!(NAMES.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Where `cust_raw` sees each entry point.
    macro_rules! addresses_in_cust {
        ($($name:ident)+) => {
            vec![$((stringify!($name), cust::sys::$name as *const () as usize)),+]
        };
    }

    /// Naming each of them also makes the linker look for each: one that were not defined would fail this test's build.
    #[test]
    fn what_cust_calls_are_the_trampolines_in_the_order_of_the_list() {
        let found = for_each_entry_point!(addresses_in_cust);
        assert_eq!(found.len(), NAMES.len());
        for pair in found.windows(2) {
            assert_eq!(pair[1].1 - pair[0].1, 16, "{} and {}", pair[0].0, pair[1].0);
        }
    }
}
