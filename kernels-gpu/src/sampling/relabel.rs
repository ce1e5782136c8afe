//! Places of the vertices of a batch.
//!
//! ```text
//!  vertices that were met   →   a bit each, but of those that are known   →   sums of the bits   →   places, by their numbers
//! ```

use crate::device::global::{Global, or_u32};
use crate::device::thread::global_idx_x;
use crate::device::warp::{ballot, lane_id, shuffle_idx};
use crate::sort::groups::count;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::sampling::{NO_VERTEX, RelabelParams, mark_words};

/// The thread's vertex, if it has one that is one of the graph's, and its place in the list.
///
/// # Safety
/// The launch contract; nothing writes the list during the launch.
#[inline(always)]
unsafe fn own_vertex(params: &RelabelParams) -> Option<(u64, u32)> {
    let at = global_idx_x();
    if at >= params.vertex_count {
        return None;
    }
    // SAFETY: the caller's promise.
    let vertex = unsafe { Global::<u32>::new(params.vertices).at(at).load() };
    ((vertex as u64) < params.graph_vertices).then_some((at, vertex))
}

/// # Safety
/// The launch contract of [`RelabelParams`]: a thread for each of the vertices, which are all different.
#[inline(always)]
pub unsafe fn place_vertices(params: &RelabelParams) {
    // SAFETY: the caller's promise: a vertex is one thread's, and bits of a word may be set by several.
    unsafe {
        if let Some((at, vertex)) = own_vertex(params) {
            Global::<u32>::new(params.places)
                .at(vertex as u64)
                .store(at as u32);
            or_u32(
                Global::new(params.known).at(vertex as u64 / 32),
                1 << (vertex % 32),
            );
        }
    }
}

/// # Safety
/// The launch contract of [`RelabelParams`]: a thread for each of the vertices.
#[inline(always)]
pub unsafe fn mark_vertices(params: &RelabelParams) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some((_, vertex)) = own_vertex(params) {
            mark(params.known, params.marks, vertex);
        }
    }
}

/// Marks a vertex that is not known.
///
/// # Safety
/// It is one of the graph's, of which `known` and `marks` have a bit and a pair each. Nothing writes what is known during the launch, and
/// others only mark.
#[inline(always)]
pub unsafe fn mark(known: DevicePtr<u32>, marks: DevicePtr<[u32; 2]>, vertex: u32) {
    let (word, bit) = (vertex as u64 / 32, 1 << (vertex % 32));
    // SAFETY: the caller's promise; bits of a word may be set by several.
    unsafe {
        if Global::<u32>::new(known).at(word).read() & bit == 0 {
            or_u32(Global::new(marks).at(2 * word), bit);
        }
    }
}

/// # Safety
/// The launch contract of [`RelabelParams`]: a thread for each word of marks, and for each of the sources that there is room for, in whole warps.
#[inline(always)]
pub unsafe fn place_marked(params: &RelabelParams) {
    let word = global_idx_x();
    let words = mark_words(params.graph_vertices);
    let sources = Global::<u32>::new(params.sources);
    let marks = Global::<u32>::new(params.marks);
    // SAFETY: the caller's promise: a place is one thread's, and so is a word; the places of its vertices are its warp's, one lane's each. All lanes of
    // a warp come together to where they hand words around.
    unsafe {
        if word < params.first_place {
            let vertex = Global::<u32>::new(params.vertices).at(word).read();
            sources.at(word).store(vertex);
        } else if word < params.source_count {
            let met = marks.at(2 * words + 1).load();
            if word >= params.first_place + met as u64 {
                sources.at(word).store(NO_VERTEX);
            }
        }
        let total = Global::<u32>::new(params.total);
        if word == 0 && !total.is_null() {
            total.store(marks.at(2 * words + 1).load());
        }
        let (mut marked, mut rank) = (0, 0);
        if word < words {
            let word_of_marks = marks.at(2 * word);
            marked = word_of_marks.load();
            rank = word_of_marks.at(1).load();
            if marked != 0 {
                let word_of_known = Global::<u32>::new(params.known).at(word);
                word_of_known.store(word_of_known.load() | marked);
                word_of_marks.store(0);
            }
        }
        // A lane a bit of one word after the other, so that what lanes write lies side by side.
        let first_word = word - lane_id() as u64;
        let below = (1 << lane_id()) - 1;
        let mut waiting = ballot(marked != 0);
        while waiting != 0 {
            let of = waiting.trailing_zeros();
            waiting &= waiting - 1;
            let (bits, before) = (shuffle_idx(marked, of), shuffle_idx(rank, of));
            let place = params.first_place + (before + (bits & below).count_ones()) as u64;
            if bits >> lane_id() & 1 != 0 && place < params.source_count {
                let vertex = (first_word + of as u64) * 32 + lane_id() as u64;
                sources.at(place).store(vertex as u32);
                Global::<u32>::new(params.places)
                    .at(vertex)
                    .store(place as u32);
            }
        }
    }
}

/// # Safety
/// The launch contract of [`RelabelParams`]: a thread for each of the vertices. With a tally there is a word for each of the sources.
#[inline(always)]
pub unsafe fn relabel(params: &RelabelParams) {
    // SAFETY: the caller's promise: a word of the list is one thread's, which loads it before it stores.
    unsafe {
        if let Some((at, vertex)) = own_vertex(params) {
            let place = Global::<u32>::new(params.places).at(vertex as u64).read();
            Global::<u32>::new(params.vertices).at(at).store(place);
            if !Global::<u32>::new(params.tally).is_null() && (place as u64) < params.source_count {
                count(params.tally, params.slots, (at, place));
            }
        }
    }
}
