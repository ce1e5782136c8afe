//! What a person is shown of a program.

use halfgnn::nn::{Binary, ModelConfig};
use halfgnn::program::Explanation;
use halfgnn::tensor::Precision;

fn explained(config: &ModelConfig) -> Result<String, halfgnn::Error> {
    let explanation = Explanation::new(config, Precision::Half, (10, 30))?;
    Ok(explanation.to_string())
}

#[test]
fn each_pass_is_a_section_with_its_memory() {
    let text = explained(&ModelConfig::gcn(8, 2)).expect("a formula");
    let sections: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    let expected = [
        "# training, the formula",
        "# training, after reorder",
        "# training, after differentiate",
        "# training, after fuse",
        "# evaluation, after reorder",
        "# evaluation, after evaluate",
        "# evaluation, after fuse",
    ];
    assert_eq!(sections, expected);
    let memory = text.lines().filter(|line| line.starts_with("memory: "));
    assert_eq!(memory.count(), expected.len());
    let config = ModelConfig {
        recompute: true,
        ..ModelConfig::gcn(8, 2)
    };
    let text = explained(&config).expect("a formula");
    assert!(text.contains("# training, after recompute"), "{text}");
}

/// A sum over 30 edges reads a row of 64 halves and an index for each, and writes 10 rows.
#[test]
fn an_operator_says_what_it_moves_and_for_whom_it_is_kept() {
    let text = explained(&ModelConfig::gcn(8, 64)).expect("a formula");
    let sum = 30 * (64 * 2 + 4) + 10 * 64 * 2;
    assert!(text.contains(&format!("moves {sum} B")), "{text}");
    assert!(text.contains(", kept for %"), "{text}");
}

/// An evaluation of bits multiplies and sums bits, and reads signs of the features alone.
#[test]
fn an_evaluation_of_bits_passes_signs_on() {
    let binary = ModelConfig {
        layers: 3,
        ..ModelConfig::gcn(8, 2)
    };
    let evaluation = evaluation_of(&binary);
    // Those of weights come first, so that their results can stay.
    assert_eq!(
        operators(&evaluation),
        [
            "pack",
            "pack",
            "binarize_weight",
            "pack",
            "binary_signs",
            "aggregate_signs",
            "binary_signs",
            "aggregate_signs",
            "aggregate_signs_matmul"
        ],
        "{evaluation}"
    );
    assert!(
        evaluation.contains("pack features, standardized"),
        "{evaluation}"
    );
    assert_eq!(evaluation.matches(", packed").count(), 2, "{evaluation}");
}

/// Own rows are multiplied and added in one operator, and the bias is added where the sums are multiplied.
#[test]
fn an_evaluation_of_bits_adds_products_in_place() {
    let evaluation = evaluation_of(&ModelConfig::sage(8, 2));
    let all = operators(&evaluation);
    let of_rows = all.iter().position(|name| *name == "binary_signs");
    assert_eq!(
        all[of_rows.expect("a product of signs")..],
        [
            "binary_signs",
            "aggregate_signs",
            "binary_matmul",
            "binarize",
            "pack",
            "aggregate_signs_matmul",
            "binary_matmul"
        ],
        "{evaluation}"
    );
    let bias = ", bias layers.1.bias";
    assert_eq!(evaluation.matches(bias).count(), 1, "{evaluation}");
}

/// The list for evaluation of a model that sums signs.
fn evaluation_of(model: &ModelConfig) -> String {
    let text = explained(&model.clone().of_bits(Binary::Bin)).expect("a formula");
    let (_, evaluation) = text
        .rsplit_once("# evaluation, after fuse")
        .expect("a list");
    evaluation.to_owned()
}

/// The names of a list's operators.
fn operators(list: &str) -> Vec<&str> {
    list.lines()
        .filter_map(|line| line.split_once(" = ")?.1.split([' ', ':']).next())
        .collect()
}

/// The list is made before the sizes of a graph are known.
#[test]
fn recomputation_makes_a_network_smaller() {
    let activations = |recompute: bool| -> u64 {
        let config = ModelConfig {
            layers: 4,
            recompute,
            ..ModelConfig::gcn(8, 2)
        };
        let text = explained(&config).expect("a formula");
        let (training, _) = text.split_once("# evaluation").expect("both lists");
        let (_, memory) = training
            .rsplit_once("memory: activations ")
            .expect("a plan");
        let (bytes, _) = memory.split_once(' ').expect("a number");
        bytes.parse().expect("a number")
    };
    assert!(activations(true) < activations(false));
}
