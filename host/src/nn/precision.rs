//! Which tensor is kept in what precision: the one list, which `halfgnn train -v` prints.

use super::Store;
use crate::ops::CodeFormat;
use crate::tensor::Precision;

/// A kind of tensor, and what it is kept as; `E` is the precision of the run.
const KEPT: [(&str, &str); 13] = [
    ("features, activations, their gradients", "E"),
    ("edge weights", "E"),
    (
        "weights that kernels read",
        "E, rounded from the master weights by Adam",
    ),
    ("master weights, their gradients, Adam's moments", "float"),
    (
        "biases, ε, scales and shifts of a batch normalisation",
        "float",
    ),
    ("degree norms (row and column factors)", "float"),
    (
        "statistics of a batch normalisation, running ones too",
        "float",
    ),
    (
        "scores and softmax statistics of attention, their gradients",
        "float",
    ),
    (
        "sums inside a batch of an SpMM",
        "float; half2 by `Accumulate::Half`",
    ),
    ("sums between batches, merge areas, staging buffer", "float"),
    ("sums of a matrix product, partial sums", "float"),
    ("softmax, loss, sums of columns", "float"),
    ("loss scale", "float, on the device"),
];

/// What a run of a precision keeps: kinds of tensors, and the format of each. `messages` is
/// [`ModelConfig::messages`](super::ModelConfig::messages), `store` [`ModelConfig::store`](super::ModelConfig::store).
pub fn kept_as(
    precision: Precision,
    messages: Option<CodeFormat>,
    store: Option<Store>,
) -> impl Iterator<Item = (&'static str, String)> {
    let messages = messages.map(|format| {
        (
            "what is summed up over neighbours in training, forward and backward",
            format!("{}, with a float scale for each column", format.name()),
        )
    });
    let kept = KEPT.into_iter().map(move |(tensor, kept)| {
        let kept = match kept.strip_prefix('E') {
            Some(_) if precision == Precision::Float => "float".to_owned(),
            Some(rest) => format!("{precision}{rest}"),
            None => kept.to_owned(),
        };
        (tensor, kept)
    });
    let stored = store.map(|Store::EightBit| {
        (
            "outputs of hidden layers, and what GIN normalises, for the backward pass",
            "int8, with a float scale for each column".to_owned(),
        )
    });
    kept.chain(messages).chain(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_tensors_are_of_the_precision_of_the_run() {
        let of = |precision| {
            kept_as(precision, None, None)
                .map(|(_, kept)| kept)
                .collect::<Vec<_>>()
        };
        let (half, float) = (of(Precision::Half), of(Precision::Float));
        assert_eq!((half[0].as_str(), float[0].as_str()), ("half", "float"));
        assert_eq!(half[2], "half, rounded from the master weights by Adam");
        assert_eq!(float[2], "float");
        assert!(half.iter().all(|kept| !kept.starts_with('E')));
        let codes = kept_as(Precision::Half, Some(CodeFormat::Int8), None).last();
        assert!(codes.is_some_and(|(_, kept)| kept.starts_with("int8")));
        let stored = kept_as(Precision::Half, None, Some(Store::EightBit)).last();
        assert!(stored.is_some_and(|(tensor, _)| tensor.starts_with("outputs")));
    }
}
