//! Checkpoints of training runs.

use crate::Answer;
use crate::dataset::kind_of_text;
use halfgnn::train::Checkpoint;
use std::io::Write as _;

/// Opens a file with these bytes as a checkpoint.
pub(crate) fn open(bytes: &[u8]) -> Answer {
    let mut file = tempfile::NamedTempFile::new().expect("room for a temporary file");
    file.write_all(bytes).expect("room for the input");
    match Checkpoint::open(file.path()) {
        Ok(checkpoint) => {
            let tensors = checkpoint.snapshot.tensors.len().min(8);
            Answer::Accepted(format!(
                "{} layers, {tensors} tensors",
                checkpoint.model.layers
            ))
        }
        Err(error) => Answer::Refused(kind_of_text(&error.to_string())),
    }
}
