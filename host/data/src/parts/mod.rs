//! A dataset in parts: a folder that no machine needs to hold as a whole.
//!
//! ```text
//! manifest.json     what there is, how many of each part, what each file adds up to
//! vertices.bin      of every vertex: its part, its degrees, its split, its target          read by every rank
//! part-00000.bin    rows of some vertices: their numbers, offsets (64 bits), columns        read by one rank
//! part-00001.bin    (of the whole graph), weights and features of edges, features, names
//! …
//! ```
//!
//! Vertices keep their numbers in the dataset, and columns are numbers of the whole graph. A folder that is read whole
//! is therefore the dataset that it was made of. What is of the order of the vertices is in one file that all ranks
//! read: splits, targets and degrees. What is of the order of edges or features is in the parts, of which a rank reads
//! only its own.
//!
//! Numbers are little-endian. A file starts with a `Header`; its sections follow in a fixed order, each at a multiple
//! of 8 bytes. Their lengths follow from the manifest. A file of another length is refused before anything is
//! allocated.

mod columns;
mod layout;
mod manifest;
mod read;
mod rows;
#[cfg(feature = "write")]
mod stream;
mod table;
#[cfg(all(test, feature = "full"))]
mod tests;
#[cfg(feature = "write")]
mod write;

pub use manifest::FeaturePrecision;
pub use read::{Parted, is_parted};
pub use rows::{PartRows, RowFeatures};
#[cfg(feature = "write")]
pub use stream::StreamedArchive;
pub use table::{VertexTable, WeightSums};
#[cfg(feature = "write")]
pub use write::{Deal, Written};

/// The file that says what there is.
pub(crate) const MANIFEST: &str = "manifest.json";

/// What belongs into a folder, for messages.
pub(crate) const LAYOUT: &str = "a folder of parts has manifest.json, vertices.bin and part-00000.bin, …, as `dataset partition` writes them";

/// The file of what there is one of a vertex.
const VERTICES: &str = "vertices.bin";

/// As many parts as there may be.
pub const MOST_PARTS: usize = 1 << 20;

/// The file of a part.
fn part_file(part: usize) -> String {
    format!("part-{part:05}.bin")
}
