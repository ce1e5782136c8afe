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

#[test]
fn what_programs_do_not_do_is_refused() {
    let binary = ModelConfig::gcn(8, 2).of_bits(Binary::Full);
    let refused = explained(&binary).expect_err("no formula");
    assert_eq!(
        refused.to_string(),
        "Program: gcn is not trained with one bit yet; leave it out"
    );
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
