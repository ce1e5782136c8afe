//! When an interrupt ends the program at once.

use halfgnn::file::exit_discarding;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The exit status of a program that an interrupt ended: 128 + SIGINT, as shells have it.
pub const INTERRUPTED: i32 = 130;

/// Whether an interrupt has come.
static CAME: AtomicBool = AtomicBool::new(false);

/// How many waits are under way that have nothing to keep.
static WAITS: AtomicUsize = AtomicUsize::new(0);

/// Notes an interrupt: whether the program ends now, as nothing looks at a flag meanwhile. For the handler.
pub fn came() -> bool {
    CAME.store(true, Ordering::SeqCst);
    WAITS.load(Ordering::SeqCst) > 0
}

/// Whether one has come.
pub fn has_come() -> bool {
    CAME.load(Ordering::SeqCst)
}

/// Does what only waits for others, such as ranks that meet: an interrupt, also one that has come before, ends the
/// program there.
pub fn at_once<T>(wait: impl FnOnce() -> T) -> T {
    WAITS.fetch_add(1, Ordering::SeqCst);
    // The handler sees the count, or this its note.
    if CAME.load(Ordering::SeqCst) {
        exit_discarding(INTERRUPTED);
    }
    let done = wait();
    WAITS.fetch_sub(1, Ordering::SeqCst);
    done
}
