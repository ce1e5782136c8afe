//! Initial weights.

use halfgnn_contract::rng;

/// Tags the random numbers of initial weights, so that no dropout mask shares any with them.
const INIT_STREAM: u32 = 0x696e_6974;

/// Weights of a linear map, `inputs` × `outputs`, row-major: uniform in ±√(6 / (inputs + outputs)) (Glorot and Bengio,
/// AISTATS 2010), as PyG initialises its graph convolutions.
///
/// Depends only on the seed and on the parameter's number in the model: the same on every backend.
pub fn glorot_uniform(inputs: usize, outputs: usize, seed: u64, parameter: u32) -> Vec<f32> {
    let limit = (6.0 / (inputs as f64 + outputs as f64).max(1.0)).sqrt() as f32;
    let key = rng::key(seed, INIT_STREAM.wrapping_add(parameter));
    (0..inputs as u64 * outputs as u64)
        .map(|index| (2.0 * rng::unit_f32(rng::uniform_u32(key, index)) - 1.0) * limit)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_within_the_limit_and_different_for_every_parameter() {
        let weights = glorot_uniform(100, 50, 3, 0);
        let limit = 0.2;
        assert_eq!(weights.len(), 5000);
        assert!(weights.iter().all(|w| w.abs() <= limit));
        let mean = weights.iter().sum::<f32>() / 5000.0;
        let variance = weights.iter().map(|w| w * w).sum::<f32>() / 5000.0;
        assert!(mean.abs() < 0.01, "mean {mean}");
        assert!(
            (variance - limit * limit / 3.0).abs() < 0.001,
            "variance {variance}"
        );
        assert_eq!(weights, glorot_uniform(100, 50, 3, 0));
        assert_ne!(weights, glorot_uniform(100, 50, 3, 1));
        assert_ne!(weights, glorot_uniform(100, 50, 4, 0));
    }
}
