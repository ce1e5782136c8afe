//! An allocator that counts what each thread holds, so that an input that asks for too much is noticed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a count. A program that fuzzes makes it its own:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: halfgnn_fuzz::allocation::Counting = halfgnn_fuzz::allocation::Counting;
/// assert!(halfgnn_fuzz::allocation::peak_of(|| drop(vec![0u8; 1000])).1 >= 1000);
/// ```
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn take(bytes: usize) {
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

fn give(bytes: usize) {
    // What another thread allocated may be freed here.
    HELD.set(HELD.get().saturating_sub(bytes));
}

// SAFETY: every call goes to the system's allocator unchanged, so its guarantees are this one's; the counters are plain
// cells without destructors, so that they neither allocate nor are gone when a thread ends.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give(layout.size());
        // SAFETY: `pointer` came from this allocator, that is, from the system's, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        give(layout.size());
        // SAFETY: as in `dealloc`; the caller promises a size that the layout's alignment allows.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// What `f` gives, and the most bytes that this thread held during it beyond what it held before. Zero where
/// [`Counting`] is not the program's allocator.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    (result, PEAK.get().saturating_sub(before))
}
